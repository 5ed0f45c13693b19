//! The gate: from what a request shows to who it is.

use crate::cache::Verified;
use crate::certificates::PeerCertificate;
use crate::config::{Config, ConfigError, Usual};
use crate::jwt::{self, Effort, Fetch, JwtError};
use crate::principal::{Binding, How, Principal, Role, Scopes};
use crate::secret::{Secret, SecretHash};
use crate::settings::Settings;
use crate::throttle::Throttle;
use crate::tokens::{TokenBook, TokenRecord, TokenTable};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use windlass_api::job_token::{JobClaim, JobWork};
use windlass_core::redact::Masking;
use windlass_types::Timestamp;

/// Passwords that are checked at a time. Each keeps a core busy for a while; more callers are told to come again.
const CHECKED_AT_ONCE: usize = 16;
/// Who comes with a token in place of a password may leave his name out.
const NO_NAME: &str = "__token__";

/// What a request shows, and when it came.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The `Authorization` header; `Some("")` if it was there and is no text.
    pub authorization: Option<&'a str>,
    /// One that was checked against the CAs that are believed.
    pub certificate: Option<&'a PeerCertificate>,
    pub address: IpAddr,
    pub now: Timestamp,
    pub clock: Instant,
}

/// Why somebody is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("this server answers nobody whom it does not know")]
    Missing,
    #[error("the Authorization header is neither `Bearer TOKEN` nor `Basic …`")]
    Scheme,
    /// Whether the name or the password is wrong is not told.
    #[error("the user name or the password is wrong")]
    Password,
    #[error("the token is not known here; it may have been revoked")]
    Token,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not accepted: {0}")]
    Jwt(String),
    #[error("the certificate belongs to nobody who is known here")]
    Certificate,
    #[error("the certificate cannot be read in full: {0}")]
    UnreadableCertificate(String),
    #[error("{0} has no role on this server")]
    NoRole(String),
    #[error("too many wrong passwords, or too many to be checked at once")]
    Throttled(Duration),
    #[error("whether the token is good cannot be found out at the moment")]
    Unavailable,
}

impl Denied {
    /// The HTTP status that says this.
    pub const fn status(&self) -> u16 {
        match self {
            Self::NoRole(_) => 403,
            Self::Throttled(_) => 429,
            Self::Unavailable => 503,
            _ => 401,
        }
    }

    /// For programs.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Missing | Self::Scheme => "unauthenticated",
            Self::Password
            | Self::Token
            | Self::Jwt(_)
            | Self::Certificate
            | Self::UnreadableCertificate(_) => "bad_credentials",
            Self::Expired => "token_expired",
            Self::NoRole(_) => "no_role",
            Self::Throttled(_) => "too_many_attempts",
            Self::Unavailable => "unavailable",
        }
    }

    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Missing | Self::Scheme => {
                "send `Authorization: Bearer TOKEN`; `windlass login URL` keeps a token; that of the server's owner is in the file which `windlass serve` names when it starts"
            }
            Self::Password => "`windlass password verify` checks a password against the file",
            Self::Token | Self::Expired | Self::Jwt(_) => "get a new token: `windlass token create`",
            Self::Certificate => "an administrator can add it to [certificates] of the server's auth file",
            Self::UnreadableCertificate(_) => {
                "have one issued whose subject has one value of a usual text type (UTF8String, PrintableString) in each part"
            }
            Self::NoRole(_) => "an administrator can give one in [roles] of the server's auth file",
            Self::Throttled(_) | Self::Unavailable => "try again later",
        }
    }

    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Throttled(wait) => Some(*wait),
            Self::Unavailable => Some(Duration::from_secs(30)),
            _ => None,
        }
    }
}

/// How a gate is set up.
#[derive(Clone, Default)]
pub struct GateOptions {
    /// Who runs the server.
    pub owner: String,
    /// The token that the server made for him.
    pub owner_token: Option<Secret>,
    /// Everybody is the owner.
    pub no_auth: bool,
    /// The auth file.
    pub config: Option<PathBuf>,
    /// Instead of the one that the auth file names.
    pub password_file: Option<PathBuf>,
    /// How many authorities clients may show certificates of. Asked at each (re)load.
    pub client_authorities: Option<Arc<dyn Fn() -> usize + Send + Sync>>,
    /// For the keys of issuers.
    pub fetch: Option<Arc<dyn Fetch>>,
    pub tokens: Option<Arc<dyn TokenBook>>,
}

impl fmt::Debug for GateOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateOptions")
            .field("owner", &self.owner)
            .field("no_auth", &self.no_auth)
            .field("config", &self.config)
            .field("password_file", &self.password_file)
            .finish_non_exhaustive()
    }
}

/// What a reload found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// In the password file.
    pub users: usize,
    pub issuers: usize,
}

/// The gate. Shared by all requests.
#[derive(Debug)]
pub struct Gate {
    options: GateOptions,
    owner_hash: Option<SecretHash>,
    settings: RwLock<Arc<Settings>>,
    tokens: RwLock<TokenTable>,
    verified: Mutex<Verified>,
    throttle: Mutex<Throttle>,
    checking: AtomicUsize,
}

impl Gate {
    /// Reads all the files that the options name.
    pub fn open(options: GateOptions) -> Result<Self, ConfigError> {
        let settings = load(&options)?;
        let verified = Verified::new().map_err(|error| ConfigError::Meaning(error.to_string()))?;
        Ok(Self {
            owner_hash: options.owner_token.as_ref().map(Secret::hash),
            settings: RwLock::new(Arc::new(settings)),
            tokens: RwLock::default(),
            verified: Mutex::new(verified),
            throttle: Mutex::default(),
            checking: AtomicUsize::new(0),
            options,
        })
    }

    /// Who this is, if that takes neither a slow hash nor the network: `None` if it does. Then [`Gate::admit`] is called
    /// where it may block.
    pub fn admit_quickly(&self, shown: &Shown<'_>) -> Option<Result<Principal, Denied>> {
        self.decide(shown, Effort::Never)
    }

    /// Who this is. May take a while.
    pub fn admit(&self, shown: &Shown<'_>) -> Result<Principal, Denied> {
        self.decide(shown, Effort::IfNeeded).unwrap_or(Err(Denied::Unavailable))
    }

    /// Reads the files again. If one cannot be used, all stays as it was.
    pub fn reload(&self) -> Result<Reloaded, ConfigError> {
        let settings = load(&self.options)?;
        let reloaded =
            Reloaded { users: settings.passwords.users().count(), issuers: settings.issuers.len() };
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        lock(&self.verified).flush();
        Ok(reloaded)
    }

    /// To be told when the books have noted it. From the next request on it is not known.
    pub fn revoke_token(&self, id: i64) {
        self.tokens.write().unwrap_or_else(PoisonError::into_inner).revoke(id);
    }

    /// Tokens that were used since this was last asked, and when: to be noted in the books now and then.
    pub fn take_used_tokens(&self) -> Vec<(i64, Timestamp)> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).take_used()
    }

    pub fn masking(&self) -> Masking {
        self.settings().masking.clone()
    }

    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn decide(&self, shown: &Shown<'_>, effort: Effort) -> Option<Result<Principal, Denied>> {
        if self.options.no_auth {
            return Some(Ok(Principal::full(&self.options.owner, Role::Admin, How::Open)));
        }
        match (shown.authorization.map(credential), shown.certificate) {
            (Some(Some(Credential::Bearer(token))), _) => self.bearer(token, shown, effort),
            (Some(Some(Credential::Basic { user, password })), _) => {
                self.basic(&user, &password, shown, effort)
            }
            (Some(None), _) => Some(Err(Denied::Scheme)),
            (None, Some(certificate)) => Some(self.certificate(certificate, shown.now)),
            (None, None) => Some(Err(Denied::Missing)),
        }
    }

    fn bearer(&self, token: &str, shown: &Shown<'_>, effort: Effort) -> Option<Result<Principal, Denied>> {
        if let Some(claim) = JobClaim::parse(token) {
            return match effort {
                Effort::Never => None,
                Effort::IfNeeded => Some(self.job(token, &claim)),
            };
        }
        if jwt::looks_like_one(token) {
            return self.jwt(token, shown, effort);
        }
        self.token(token, shown.now, effort)
    }

    fn token(&self, token: &str, now: Timestamp, effort: Effort) -> Option<Result<Principal, Denied>> {
        let hash = SecretHash::of(token);
        if self.owner_hash == Some(hash) {
            return Some(Ok(Principal::full(&self.options.owner, Role::Admin, How::Owner)));
        }
        let known = self.tokens.read().unwrap_or_else(PoisonError::into_inner).find(hash, now).cloned();
        let record = match (known, effort) {
            (Some(record), _) => Ok(record),
            (None, Effort::Never) => return None,
            (None, Effort::IfNeeded) => self.look_up(hash, now),
        };
        Some(record.and_then(|record| match record.expires {
            Some(expires) if expires <= now => Err(Denied::Expired),
            _ => match self.settings().named_role(&record.user) {
                Some(Usual(None)) => Err(Denied::NoRole(record.user.to_string())),
                named => Ok(record.principal(named.and_then(|named| named.0))),
            },
        }))
    }

    /// From inside a job: it acts for the owner of its workflow, there alone, and as long as its worker runs it.
    fn job(&self, token: &str, claim: &JobClaim) -> Result<Principal, Denied> {
        let book = self.options.tokens.as_ref().ok_or(Denied::Token)?;
        let holder = book.holder(claim).map_err(|_| Denied::Unavailable)?.ok_or(Denied::Token)?;
        if SecretHash::of(&claim.sign(&holder.secret_hash)) != SecretHash::of(token) {
            return Err(Denied::Token);
        }
        let bound = match claim.work {
            JobWork::Job(key) => Binding::Job(key),
            JobWork::Action { workflow, .. } => Binding::Action(workflow),
        };
        let role = match self.settings().named_role(&holder.user) {
            Some(Usual(None)) => return Err(Denied::NoRole(holder.user.to_string())),
            Some(Usual(Some(role))) => role.min(Role::User),
            None => Role::User,
        };
        let principal = Principal::full(&holder.user, role, How::Job);
        Ok(Principal { scopes: Scopes::JOB, bound: Some(bound), ..principal })
    }

    fn look_up(&self, hash: SecretHash, now: Timestamp) -> Result<TokenRecord, Denied> {
        let book = self.options.tokens.as_ref().ok_or(Denied::Token)?;
        let revocations = self.tokens.read().unwrap_or_else(PoisonError::into_inner).revocations();
        let record = book.find(hash).map_err(|_| Denied::Unavailable)?.ok_or(Denied::Token)?;
        let mut table = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        table.remember(hash, record.clone(), revocations, now);
        Ok(record)
    }

    fn jwt(&self, token: &str, shown: &Shown<'_>, effort: Effort) -> Option<Result<Principal, Denied>> {
        let settings = self.settings();
        let checked = jwt::check(&settings.issuers, token, shown.now, shown.clock, effort)?;
        Some(checked.map_err(deny_jwt).and_then(|(issuer, believed)| {
            let role = settings.role(&believed.user, &believed.groups, issuer.default_role);
            Ok(Principal {
                role: role.ok_or_else(|| Denied::NoRole(believed.user.to_string()))?,
                user: believed.user,
                scopes: believed.scopes,
                groups: believed.groups,
                how: How::Jwt { issuer: Arc::clone(&issuer.name) },
                expires: Some(believed.expires),
                bound: None,
            })
        }))
    }

    fn basic(
        &self,
        user: &str,
        password: &str,
        shown: &Shown<'_>,
        effort: Effort,
    ) -> Option<Result<Principal, Denied>> {
        // Clients that know nothing but passwords can use a token all the same.
        if password.starts_with(Secret::PREFIX) {
            let principal = self.token(password, shown.now, effort)?;
            return Some(principal.and_then(|principal| match user {
                NO_NAME => Ok(principal),
                user if *user == *principal.user => Ok(principal),
                _ => Err(Denied::Password),
            }));
        }
        if lock(&self.verified).knows(user, password, shown.clock) {
            return Some(self.with_password(user));
        }
        if let Some(wait) = lock(&self.throttle).wait(user, shown.address, shown.clock) {
            return Some(Err(Denied::Throttled(wait)));
        }
        match effort {
            Effort::Never => None,
            Effort::IfNeeded => Some(self.check_password(user, password, shown)),
        }
    }

    fn check_password(&self, user: &str, password: &str, shown: &Shown<'_>) -> Result<Principal, Denied> {
        let Some(_checking) = Checking::begin(&self.checking) else {
            return Err(Denied::Throttled(Duration::from_secs(1)));
        };
        let settings = self.settings();
        if !settings.passwords.verify(user, password) {
            lock(&self.throttle).failed(user, shown.address, shown.clock);
            return Err(Denied::Password);
        }
        lock(&self.throttle).succeeded(user, shown.address);
        let mut verified = lock(&self.verified);
        // What was checked against a file that has been replaced since is not remembered.
        if Arc::ptr_eq(&settings, &self.settings()) {
            verified.remember(user, password, shown.clock);
        }
        drop(verified);
        self.with_password(user)
    }

    fn with_password(&self, user: &str) -> Result<Principal, Denied> {
        let role = self.settings().role(user, &[], None);
        let role = role.ok_or_else(|| Denied::NoRole(user.to_owned()))?;
        Ok(Principal::full(user, role, How::Password))
    }

    fn certificate(&self, certificate: &PeerCertificate, now: Timestamp) -> Result<Principal, Denied> {
        if let Err(part) = &certificate.subject {
            return Err(Denied::UnreadableCertificate(part.clone()));
        }
        // A connection may last longer than the certificate that it was made with.
        if certificate.expires <= now {
            return Err(Denied::Expired);
        }
        let settings = self.settings();
        let user = settings.certificates.user(certificate).ok_or(Denied::Certificate)?;
        let role = settings.role(user, &[], None).ok_or_else(|| Denied::NoRole(user.to_string()))?;
        let principal = Principal::full(user, role, How::Certificate);
        // Tokens that are made with it end with it.
        Ok(Principal { expires: Some(certificate.expires), ..principal })
    }
}

/// Counts a password that is being checked, for as long as it is.
struct Checking<'a>(&'a AtomicUsize);

impl<'a> Checking<'a> {
    fn begin(count: &'a AtomicUsize) -> Option<Self> {
        let one = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < CHECKED_AT_ONCE).then_some(one)
    }
}

impl Drop for Checking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

enum Credential<'a> {
    Bearer(&'a str),
    Basic { user: String, password: String },
}

/// What stands in an `Authorization` header.
fn credential(header: &str) -> Option<Credential<'_>> {
    let (scheme, rest) = header.trim().split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !rest.is_empty() {
        return Some(Credential::Bearer(rest));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(Credential::Basic { user: user.to_owned(), password: password.to_owned() })
}

fn deny_jwt(error: JwtError) -> Denied {
    match error {
        JwtError::Expired => Denied::Expired,
        JwtError::KeysUnavailable => Denied::Unavailable,
        other => Denied::Jwt(other.to_string()),
    }
}

fn load(options: &GateOptions) -> Result<Settings, ConfigError> {
    let mut config = options.config.as_deref().map(Config::read).transpose()?.unwrap_or_default();
    if let Some(file) = &options.password_file {
        config.password_file = Some(file.clone());
    }
    let authorities = options.client_authorities.as_ref().map_or(0, |count| count());
    Settings::load(&config, options.fetch.as_ref(), authorities)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{BookError, JobHolder};
    use std::collections::HashMap;
    use std::net::Ipv4Addr;
    use windlass_types::work::AttemptKey;
    use windlass_types::{Attempt, JobId, RunId, WorkerId, WorkflowId};

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    /// A book in memory; `None`: it cannot be read.
    #[derive(Default)]
    struct Book(Mutex<Option<HashMap<String, TokenRecord>>>);

    impl TokenBook for Book {
        fn find(&self, hash: SecretHash) -> Result<Option<TokenRecord>, BookError> {
            let book = lock(&self.0);
            let book = book.as_ref().ok_or_else(|| BookError("away".to_owned()))?;
            Ok(book.get(&hash.to_string()).cloned())
        }

        /// A worker with the secret `hush` runs job 2 of workflow 1, which is Ana's, and no other.
        fn holder(&self, claim: &JobClaim) -> Result<Option<JobHolder>, BookError> {
            let holder = JobHolder { secret_hash: SecretHash::of("hush").to_string(), user: "ana".into() };
            Ok((claim.work == JobWork::Job(RUNS)).then_some(holder))
        }
    }

    const RUNS: AttemptKey =
        AttemptKey { workflow: WorkflowId(1), job: JobId(2), run: RunId(3), attempt: Attempt(4) };

    fn record(user: &str, role: Role) -> TokenRecord {
        TokenRecord {
            id: 1,
            name: "t".into(),
            user: user.into(),
            role,
            scopes: Scopes::ALL,
            expires: None,
            bound: None,
        }
    }

    fn book(tokens: &[(&str, TokenRecord)]) -> Arc<Book> {
        let tokens = tokens.iter().map(|(token, record)| (SecretHash::of(token).to_string(), record.clone()));
        Arc::new(Book(Mutex::new(Some(tokens.collect()))))
    }

    fn gate(files: &[(&str, String)], tokens: &Arc<Book>) -> (tempfile::TempDir, Gate) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let options = GateOptions {
            owner: "olga".to_owned(),
            owner_token: Some(Secret::kept("wl_owner")),
            config: files.iter().any(|(name, _)| *name == "auth.toml").then(|| dir.path().join("auth.toml")),
            tokens: Some(Arc::clone(tokens) as Arc<dyn TokenBook>),
            ..GateOptions::default()
        };
        (dir, Gate::open(options).unwrap())
    }

    fn shows(header: Option<&str>) -> Shown<'_> {
        Shown {
            authorization: header,
            certificate: None,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            now: NOW,
            clock: Instant::now(),
        }
    }

    fn basic(user: &str, password: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
    }

    fn people(password: &str) -> [(&'static str, String); 2] {
        let hash = bcrypt::hash(password, 4).unwrap();
        [
            ("auth.toml", "password_file = 'people'\n[roles]\nana = 'operator'\n".to_owned()),
            ("people", format!("ana:{hash}\nbob:{hash}\n")),
        ]
    }

    #[test]
    fn what_is_no_credential() {
        let (_dir, gate) = gate(&[], &book(&[]));
        let denied = |header| gate.admit(&shows(header)).unwrap_err();
        assert_eq!(denied(None), Denied::Missing);
        for header in ["", "Bearer", "Bearer ", "wl_owner", "Digest x", "Basic !!!", "Basic YW5h"] {
            assert_eq!(denied(Some(header)), Denied::Scheme, "{header:?}");
        }
        for header in ["Bearer wl_wrong", "Bearer wl_owner2", "Bearer wl_owne", "bearer x"] {
            assert_eq!(denied(Some(header)), Denied::Token, "{header:?}");
        }
        for header in ["Bearer a.b.c", "Bearer ..", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbmEifQ."] {
            assert!(matches!(denied(Some(header)), Denied::Jwt(_)), "{header:?}");
        }
    }

    #[test]
    fn the_owner_and_tokens() {
        let tokens = book(&[("wl_a", record("ana", Role::Admin)), ("wl_c", record("carla", Role::Viewer))]);
        let (_dir, gate) = gate(&people("secret"), &tokens);
        let admit = |header: &str| gate.admit(&shows(Some(header)));
        let owner = admit("Bearer wl_owner").unwrap();
        assert_eq!((&*owner.user, owner.role, &owner.how), ("olga", Role::Admin, &How::Owner));
        assert_eq!(admit("bearer wl_a").unwrap().role, Role::Operator, "the file says less than the token");
        assert_eq!(admit("Bearer wl_c").unwrap().role, Role::Viewer, "the file says nothing");
        assert_eq!(&*admit(&basic("__token__", "wl_c")).unwrap().user, "carla");
        assert_eq!(&*admit(&basic("carla", "wl_c")).unwrap().user, "carla");
        assert_eq!(admit(&basic("ana", "wl_c")), Err(Denied::Password), "not under another name");
    }

    #[test]
    fn a_token_is_looked_up_once_and_gone_when_it_is_revoked() {
        let tokens = book(&[("wl_a", record("ana", Role::User))]);
        let (_dir, gate) = gate(&[], &tokens);
        let header = shows(Some("Bearer wl_a"));
        assert_eq!(gate.admit_quickly(&header), None, "it has to be looked up first");
        assert!(gate.admit(&header).is_ok());
        assert!(gate.admit_quickly(&header).unwrap().is_ok());
        assert_eq!(gate.take_used_tokens(), [(1, NOW)]);
        lock(&tokens.0).as_mut().unwrap().clear();
        gate.revoke_token(1);
        assert_eq!(gate.admit(&header), Err(Denied::Token));
        *lock(&tokens.0) = None;
        assert_eq!(gate.admit(&header), Err(Denied::Unavailable));
    }

    #[test]
    fn a_job_is_bound_to_its_workflow_and_ends_with_its_attempt() {
        let (_dir, gate) = gate(&people("secret"), &book(&[]));
        let claim = |attempt| JobClaim {
            worker: WorkerId(9),
            work: JobWork::Job(AttemptKey { attempt: Attempt(attempt), ..RUNS }),
        };
        let admit = |token: String| gate.admit(&shows(Some(&format!("Bearer {token}"))));
        let hash = SecretHash::of("hush").to_string();
        let job = admit(claim(4).sign(&hash)).unwrap();
        assert_eq!(
            (&*job.user, job.role, job.scopes),
            ("ana", Role::User, Scopes::JOB),
            "she is an operator"
        );
        assert_eq!((job.bound, job.sees_all()), (Some(Binding::Job(RUNS)), false));
        assert!(job.reaches(WorkflowId(1)) && !job.reaches(WorkflowId(2)));
        assert_eq!(admit(claim(3).sign(&hash)), Err(Denied::Token), "an attempt that is over");
        assert_eq!(
            admit(claim(4).sign(&SecretHash::of("x").to_string())),
            Err(Denied::Token),
            "a forged one"
        );
        let request = crate::TokenRequest { user: None, role: None, scopes: Scopes::JOB, lasts: None };
        assert_eq!(crate::grant(&job, &request, NOW), Err(crate::TokenRefused::Bound));
    }

    #[test]
    fn a_token_ends() {
        let ended = TokenRecord { expires: Some(NOW), ..record("ana", Role::User) };
        let (_dir, gate) = gate(&[], &book(&[("wl_a", ended)]));
        assert_eq!(gate.admit(&shows(Some("Bearer wl_a"))), Err(Denied::Expired));
    }

    #[test]
    fn passwords_are_checked_once_a_while_and_forgotten_on_reload() {
        let (dir, gate) = gate(&people("secret"), &book(&[]));
        let right = basic("ana", "secret");
        let right = shows(Some(&right));
        assert_eq!(gate.admit_quickly(&right), None, "that takes a slow hash");
        assert_eq!(gate.admit(&right).unwrap().role, Role::Operator);
        assert!(gate.admit_quickly(&right).unwrap().is_ok(), "remembered");
        assert_eq!(gate.admit(&shows(Some(&basic("bob", "secret")))).unwrap().role, Role::User);

        for (name, text) in people("changed") {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        assert_eq!(gate.reload().unwrap(), Reloaded { users: 2, issuers: 0 });
        assert_eq!(gate.admit(&right), Err(Denied::Password));

        std::fs::write(dir.path().join("people"), "broken").unwrap();
        assert!(gate.reload().is_err());
        assert!(gate.admit(&shows(Some(&basic("ana", "changed")))).is_ok(), "all stays as it was");
    }

    #[test]
    fn guessing_is_slowed_down() {
        let (_dir, gate) = gate(&people("secret"), &book(&[]));
        let wrong = basic("ana", "wrong");
        let wrong = shows(Some(&wrong));
        for _ in 0..5 {
            assert_eq!(gate.admit(&wrong), Err(Denied::Password));
        }
        assert!(matches!(gate.admit_quickly(&wrong), Some(Err(Denied::Throttled(_)))), "without a slow hash");
        assert!(gate.admit(&shows(Some(&basic("bob", "secret")))).is_ok(), "bob is not locked out");
    }

    #[test]
    fn a_wrong_credential_is_not_made_good_by_a_right_certificate() {
        let files = [("auth.toml", "[certificates]\n'CN=ana' = 'ana'\n".to_owned())];
        let (_dir, gate) = gate(&files, &book(&[]));
        let of = |name: &str| PeerCertificate {
            subject: Ok(vec![("CN".into(), name.into())]),
            alternatives: Vec::new(),
            authorities: Vec::new(),
            expires: NOW.after(Duration::from_hours(1)),
        };
        let (ana, other) = (of("ana"), of("eve"));
        let admit = |header, certificate| gate.admit(&Shown { certificate, ..shows(header) });
        let by_certificate = admit(None, Some(&ana)).unwrap();
        assert_eq!(&*by_certificate.user, "ana");
        let request = crate::TokenRequest { user: None, role: None, scopes: Scopes::READ, lasts: None };
        let (.., expires) = crate::grant(&by_certificate, &request, NOW).unwrap();
        assert_eq!(expires, Some(ana.expires), "a token that it makes ends with it");
        let longer = crate::TokenRequest { lasts: Some(Duration::from_hours(2)), ..request };
        assert_eq!(crate::grant(&by_certificate, &longer, NOW), Err(crate::TokenRefused::Outlasts));
        let unreadable = PeerCertificate { subject: Err("OU".into()), ..ana.clone() };
        let denied = admit(None, Some(&unreadable)).unwrap_err();
        assert_eq!((denied.code(), denied.status()), ("bad_credentials", 401));
        let over = PeerCertificate { expires: NOW, ..ana.clone() };
        assert_eq!(admit(None, Some(&over)), Err(Denied::Expired));
        assert_eq!(admit(None, Some(&other)), Err(Denied::Certificate));
        assert_eq!(admit(Some("Bearer wl_wrong"), Some(&ana)), Err(Denied::Token));
    }

    #[test]
    fn without_auth_everybody_is_the_owner() {
        let options = GateOptions { owner: "olga".to_owned(), no_auth: true, ..GateOptions::default() };
        let gate = Gate::open(options).unwrap();
        let anybody = gate.admit_quickly(&shows(None)).unwrap().unwrap();
        assert_eq!((&*anybody.user, anybody.how), ("olga", How::Open));
    }
}

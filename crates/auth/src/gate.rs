//! The gate: from what a request shows to who it is.

use crate::cache::Verified;
use crate::certificates::PeerCertificate;
use crate::config::{Config, ConfigError};
use crate::jwt::{self, Effort, Fetch, JwtError};
use crate::masking::Masking;
use crate::principal::{How, Principal, Role};
use crate::secret::{Secret, SecretHash};
use crate::settings::Settings;
use crate::throttle::Throttle;
use crate::tokens::{Found, TokenRecord, TokenTable};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
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
            Self::Password | Self::Token | Self::Jwt(_) | Self::Certificate => "bad_credentials",
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
                "send `Authorization: Bearer TOKEN`; `windlass login URL` keeps a token"
            }
            Self::Password => "`windlass password verify` checks a password against the file",
            Self::Token | Self::Expired | Self::Jwt(_) => "get a new token: `windlass token create`",
            Self::Certificate => "an administrator can add it to [certificates] of the server's auth file",
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
    /// For the keys of issuers.
    pub fetch: Option<Arc<dyn Fetch>>,
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
    /// Reads all that the options name. `tokens`: those in the books that are not revoked.
    pub fn open(
        options: GateOptions,
        tokens: impl IntoIterator<Item = (SecretHash, TokenRecord)>,
    ) -> Result<Self, ConfigError> {
        let settings = load(&options)?;
        let verified = Verified::new().map_err(|error| ConfigError::Meaning(error.to_string()))?;
        Ok(Self {
            owner_hash: options.owner_token.as_ref().map(Secret::hash),
            settings: RwLock::new(Arc::new(settings)),
            tokens: RwLock::new(TokenTable::new(tokens)),
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

    /// A token that was just made.
    pub fn add_token(&self, hash: SecretHash, record: TokenRecord) {
        self.tokens.write().unwrap_or_else(PoisonError::into_inner).add(hash, record);
    }

    /// From the next request on it is not known.
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
            (None, Some(certificate)) => Some(self.certificate(certificate)),
            (None, None) => Some(Err(Denied::Missing)),
        }
    }

    fn bearer(&self, token: &str, shown: &Shown<'_>, effort: Effort) -> Option<Result<Principal, Denied>> {
        if jwt::looks_like_one(token) {
            return self.jwt(token, shown, effort);
        }
        Some(self.token(token, shown.now))
    }

    fn token(&self, token: &str, now: Timestamp) -> Result<Principal, Denied> {
        let hash = SecretHash::of(token);
        if self.owner_hash == Some(hash) {
            return Ok(Principal::full(&self.options.owner, Role::Admin, How::Owner));
        }
        match self.tokens.read().unwrap_or_else(PoisonError::into_inner).find(hash, now) {
            Found::Good(record) => Ok(record.principal(self.settings().named_role(&record.user))),
            Found::Expired => Err(Denied::Expired),
            Found::Unknown => Err(Denied::Token),
        }
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
            let principal = self.token(password, shown.now);
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

    fn certificate(&self, certificate: &PeerCertificate) -> Result<Principal, Denied> {
        let settings = self.settings();
        let user = settings.certificates.user(certificate).ok_or(Denied::Certificate)?;
        let role = settings.role(user, &[], None).ok_or_else(|| Denied::NoRole(user.to_string()))?;
        Ok(Principal::full(user, role, How::Certificate))
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
    Settings::load(&config, options.fetch.as_ref())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

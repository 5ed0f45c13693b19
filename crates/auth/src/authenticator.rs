//! Authentication: from the credentials of a request to its principal.

use crate::certificates::PeerCertificate;
use crate::config::{AuthConfig, AuthConfigError, DefaultRole};
use crate::jwt::{self, DocumentFetcher, JwtError, KeyFetchPolicy};
use crate::password_cache::PasswordCache;
use crate::principal::{AuthMethod, CredentialBinding, Principal, TokenScopes, UserRole};
use crate::secret::{SecretHash, TokenSecret};
use crate::settings::AuthSettings;
use crate::throttle::LoginThrottle;
use crate::tokens::{TokenCache, TokenRecord, TokenStore};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use windlass_api::job_token::{JobTokenClaims, JobTokenSubject};
use windlass_core::redact::SecretNames;
use windlass_types::{Timestamp, WorkerId};

/// Maximum number of concurrent password checks. Each keeps a core busy for a while; further requests have to
/// retry.
const MAX_CONCURRENT_CHECKS: usize = 16;
/// Maximum number of workers whose job tokens are recognized without the database.
const MAX_JOB_SIGNERS: usize = 10_000;
/// User name that stands for the owner of a token that is sent as a password.
const TOKEN_USER_NAME: &str = "__token__";

/// The credentials of a request, and when it came.
#[derive(Clone, Copy, Debug)]
pub struct PresentedCredentials<'a> {
    /// The `Authorization` header; `Some("")` if it was present but is not text.
    pub authorization: Option<&'a str>,
    /// Client certificate, verified against the trusted CAs.
    pub certificate: Option<&'a PeerCertificate>,
    pub address: IpAddr,
    pub now: Timestamp,
    pub clock: Instant,
}

/// Why authentication failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthenticationError {
    #[error("this server requires authentication")]
    Missing,
    #[error("the Authorization header is neither `Bearer TOKEN` nor `Basic …`")]
    Scheme,
    /// Does not reveal whether the name or the password is wrong.
    #[error("wrong user name or password")]
    Password,
    #[error("unknown token; it may have been revoked")]
    Token,
    #[error("the token has expired")]
    Expired,
    #[error("the token was rejected: {0}")]
    Jwt(String),
    #[error("the certificate does not belong to a user of this server")]
    Certificate,
    #[error("the certificate cannot be read in full: {0}")]
    UnreadableCertificate(String),
    #[error("{0} has no role on this server")]
    NoRole(String),
    #[error("too many wrong passwords, or too many concurrent password checks")]
    Throttled(Duration),
    #[error("the token cannot be verified at the moment")]
    Unavailable,
}

impl AuthenticationError {
    /// Returns the HTTP status.
    pub const fn status(&self) -> u16 {
        match self {
            Self::NoRole(_) => 403,
            Self::Throttled(_) => 429,
            Self::Unavailable => 503,
            _ => 401,
        }
    }

    /// Returns the error code for programs.
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

    /// Returns what to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Missing | Self::Scheme => {
                "send `Authorization: Bearer TOKEN`; `windlass auth login URL` stores a token; the owner's token is in the file that `windlass serve` names at its start"
            }
            Self::Password => "`windlass auth password verify` checks a password against the file",
            Self::Token | Self::Expired | Self::Jwt(_) => "get a new token: `windlass auth token create`",
            Self::Certificate => "an administrator can add it to [certificates] in the server's auth file",
            Self::UnreadableCertificate(_) => {
                "use a certificate whose subject has exactly one value of a common text type (UTF8String, PrintableString) in each part"
            }
            Self::NoRole(_) => "an administrator can assign one in [roles] of the server's auth file",
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

/// Options of an authenticator.
#[derive(Clone, Default)]
pub struct AuthenticatorOptions {
    /// User who runs the server.
    pub owner: String,
    /// Token that the server created for the owner.
    pub owner_token: Option<TokenSecret>,
    /// Authentication is disabled: every caller is the owner.
    pub no_auth: bool,
    /// The auth file.
    pub config: Option<PathBuf>,
    /// Password file that replaces the one named in the auth file.
    pub password_file: Option<PathBuf>,
    /// Returns the number of accepted client CAs. Called at each (re)load.
    pub client_authorities: Option<Arc<dyn Fn() -> usize + Send + Sync>>,
    /// Fetches the keys of issuers.
    pub fetch: Option<Arc<dyn DocumentFetcher>>,
    pub tokens: Option<Arc<dyn TokenStore>>,
}

impl fmt::Debug for AuthenticatorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticatorOptions")
            .field("owner", &self.owner)
            .field("no_auth", &self.no_auth)
            .field("config", &self.config)
            .field("password_file", &self.password_file)
            .finish_non_exhaustive()
    }
}

/// Result of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthReloadSummary {
    /// Number of users in the password file.
    pub users: usize,
    pub issuers: usize,
}

/// The authenticator. Shared by all requests.
#[derive(Debug)]
pub struct Authenticator {
    options: AuthenticatorOptions,
    owner_hash: Option<SecretHash>,
    settings: RwLock<Arc<AuthSettings>>,
    tokens: RwLock<TokenCache>,
    password_cache: Mutex<PasswordCache>,
    throttle: Mutex<LoginThrottle>,
    active_checks: AtomicUsize,
    /// Hashes of the secrets of workers whose jobs were authenticated.
    job_signers: Mutex<HashMap<WorkerId, String>>,
}

impl Authenticator {
    /// Reads all files that the options name.
    pub fn open(options: AuthenticatorOptions) -> Result<Self, AuthConfigError> {
        let settings = load_settings(&options)?;
        let verified = PasswordCache::new().map_err(|error| AuthConfigError::Meaning(error.to_string()))?;
        Ok(Self {
            owner_hash: options.owner_token.as_ref().map(TokenSecret::hash),
            settings: RwLock::new(Arc::new(settings)),
            tokens: RwLock::default(),
            password_cache: Mutex::new(verified),
            throttle: Mutex::default(),
            active_checks: AtomicUsize::new(0),
            job_signers: Mutex::default(),
            options,
        })
    }

    /// Authenticates a request if that requires neither a slow hash nor the network; otherwise returns `None`,
    /// and [`Authenticator::authenticate`] has to be called where it may block.
    pub fn try_authenticate(
        &self,
        shown: &PresentedCredentials<'_>,
    ) -> Option<Result<Principal, AuthenticationError>> {
        self.authenticate_with(shown, KeyFetchPolicy::Never)
    }

    /// Authenticates a request. May block.
    pub fn authenticate(&self, shown: &PresentedCredentials<'_>) -> Result<Principal, AuthenticationError> {
        self.authenticate_with(shown, KeyFetchPolicy::IfNeeded)
            .unwrap_or(Err(AuthenticationError::Unavailable))
    }

    /// Returns the worker that signed the job token of a request, if another job of that worker was authenticated
    /// before. This needs no database. The job may have ended, so the request must still be authenticated.
    pub fn find_job_signer(&self, shown: &PresentedCredentials<'_>) -> Option<WorkerId> {
        let AuthorizationHeader::Bearer(token) = parse_authorization(shown.authorization?)? else {
            return None;
        };
        let claim = JobTokenClaims::parse(token)?;
        let is_signed = is_signed_with(token, &claim, lock(&self.job_signers).get(&claim.worker)?);
        is_signed.then_some(claim.worker)
    }

    /// Reloads the files. If one is invalid, the current settings stay in use.
    pub fn reload(&self) -> Result<AuthReloadSummary, AuthConfigError> {
        let settings = load_settings(&self.options)?;
        let reloaded =
            AuthReloadSummary { users: settings.passwords.users().count(), issuers: settings.issuers.len() };
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        lock(&self.password_cache).clear();
        Ok(reloaded)
    }

    /// Removes a token from the cache after it was revoked in the database. The next request with it is
    /// rejected.
    pub fn revoke_token(&self, id: i64) {
        self.tokens.write().unwrap_or_else(PoisonError::into_inner).revoke(id);
    }

    /// Returns tokens used since the last call, and when, for writing to the database.
    pub fn take_used_tokens(&self) -> Vec<(i64, Timestamp)> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).take_used()
    }

    pub fn masking(&self) -> SecretNames {
        self.settings().masking.clone()
    }

    fn settings(&self) -> Arc<AuthSettings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn authenticate_with(
        &self,
        shown: &PresentedCredentials<'_>,
        effort: KeyFetchPolicy,
    ) -> Option<Result<Principal, AuthenticationError>> {
        if self.options.no_auth {
            return Some(Ok(Principal::with_all_scopes(
                &self.options.owner,
                UserRole::Admin,
                AuthMethod::Open,
            )));
        }
        match (shown.authorization.map(parse_authorization), shown.certificate) {
            (Some(Some(AuthorizationHeader::Bearer(token))), _) => {
                self.authenticate_bearer(token, shown, effort)
            }
            (Some(Some(AuthorizationHeader::Basic { user, password })), _) => {
                self.authenticate_basic(&user, &password, shown, effort)
            }
            (Some(None), _) => Some(Err(AuthenticationError::Scheme)),
            (None, Some(certificate)) => Some(self.authenticate_certificate(certificate, shown.now)),
            (None, None) => Some(Err(AuthenticationError::Missing)),
        }
    }

    fn authenticate_bearer(
        &self,
        token: &str,
        shown: &PresentedCredentials<'_>,
        effort: KeyFetchPolicy,
    ) -> Option<Result<Principal, AuthenticationError>> {
        if let Some(claim) = JobTokenClaims::parse(token) {
            return match effort {
                KeyFetchPolicy::Never => None,
                KeyFetchPolicy::IfNeeded => Some(self.authenticate_job(token, &claim)),
            };
        }
        if jwt::looks_like_jwt(token) {
            return self.authenticate_jwt(token, shown, effort);
        }
        self.authenticate_token(token, shown.now, effort)
    }

    fn authenticate_token(
        &self,
        token: &str,
        now: Timestamp,
        effort: KeyFetchPolicy,
    ) -> Option<Result<Principal, AuthenticationError>> {
        let hash = SecretHash::from_secret(token);
        if self.owner_hash == Some(hash) {
            return Some(Ok(Principal::with_all_scopes(
                &self.options.owner,
                UserRole::Admin,
                AuthMethod::Owner,
            )));
        }
        let known = self.tokens.read().unwrap_or_else(PoisonError::into_inner).find(hash, now).cloned();
        let record = match (known, effort) {
            (Some(record), _) => Ok(record),
            (None, KeyFetchPolicy::Never) => return None,
            (None, KeyFetchPolicy::IfNeeded) => self.find_token(hash, now),
        };
        Some(record.and_then(|record| match record.expires {
            Some(expires) if expires <= now => Err(AuthenticationError::Expired),
            _ => match self.token_role(&record) {
                Some(DefaultRole(None)) => Err(AuthenticationError::NoRole(record.user.to_string())),
                named => Ok(record.to_principal(named.and_then(|named| named.0))),
            },
        }))
    }

    /// Returns the configured role of the user of a token. The owner needs none, nor do the workers of an
    /// allocation, whose workflow was permitted when it was started.
    fn token_role(&self, record: &TokenRecord) -> Option<DefaultRole> {
        let settings = self.settings();
        if record.binding.is_some() || *record.user == *self.options.owner {
            return settings.named_role(&record.user);
        }
        settings.token_role(&record.user)
    }

    /// Authenticates a running job: with the permissions of the workflow's owner, for this workflow only, and
    /// while its worker runs it.
    fn authenticate_job(
        &self,
        token: &str,
        claim: &JobTokenClaims,
    ) -> Result<Principal, AuthenticationError> {
        let token_store = self.options.tokens.as_ref().ok_or(AuthenticationError::Token)?;
        let holder = token_store
            .find_job_holder(claim)
            .map_err(|_| AuthenticationError::Unavailable)?
            .ok_or(AuthenticationError::Token)?;
        if !is_signed_with(token, claim, &holder.secret_hash) {
            return Err(AuthenticationError::Token);
        }
        let mut signers = lock(&self.job_signers);
        if signers.len() >= MAX_JOB_SIGNERS {
            signers.clear();
        }
        signers.insert(claim.worker, holder.secret_hash);
        drop(signers);
        let bound = match claim.work {
            JobTokenSubject::Job(key) => CredentialBinding::Job(key),
            JobTokenSubject::Action { workflow, .. } => CredentialBinding::Action(workflow),
        };
        let role = match self.settings().named_role(&holder.user) {
            Some(DefaultRole(None)) => return Err(AuthenticationError::NoRole(holder.user.to_string())),
            Some(DefaultRole(Some(role))) => role.min(UserRole::User),
            None => UserRole::User,
        };
        let principal = Principal::with_all_scopes(&holder.user, role, AuthMethod::Job);
        Ok(Principal { scopes: TokenScopes::JOB, binding: Some(bound), ..principal })
    }

    fn find_token(&self, hash: SecretHash, now: Timestamp) -> Result<TokenRecord, AuthenticationError> {
        let token_store = self.options.tokens.as_ref().ok_or(AuthenticationError::Token)?;
        let revocations = self.tokens.read().unwrap_or_else(PoisonError::into_inner).revocations();
        let record = token_store
            .find_token(hash)
            .map_err(|_| AuthenticationError::Unavailable)?
            .ok_or(AuthenticationError::Token)?;
        let mut table = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(hash, record.clone(), revocations, now);
        Ok(record)
    }

    fn authenticate_jwt(
        &self,
        token: &str,
        shown: &PresentedCredentials<'_>,
        effort: KeyFetchPolicy,
    ) -> Option<Result<Principal, AuthenticationError>> {
        let settings = self.settings();
        let checked = jwt::verify_token(&settings.issuers, token, shown.now, shown.clock, effort)?;
        Some(checked.map_err(jwt_error).and_then(|(issuer, believed)| {
            let role = settings.resolve_role(&believed.user, &believed.groups, issuer.default_role);
            Ok(Principal {
                role: role.ok_or_else(|| AuthenticationError::NoRole(believed.user.to_string()))?,
                user: believed.user,
                scopes: believed.scopes,
                groups: believed.groups,
                method: AuthMethod::Jwt { issuer: Arc::clone(&issuer.name) },
                expires: Some(believed.expires),
                binding: None,
            })
        }))
    }

    fn authenticate_basic(
        &self,
        user: &str,
        password: &str,
        shown: &PresentedCredentials<'_>,
        effort: KeyFetchPolicy,
    ) -> Option<Result<Principal, AuthenticationError>> {
        // Clients that support only passwords can send a token as the password.
        if password.starts_with(TokenSecret::PREFIX) {
            let principal = self.authenticate_token(password, shown.now, effort)?;
            return Some(principal.and_then(|principal| match user {
                TOKEN_USER_NAME => Ok(principal),
                user if *user == *principal.user => Ok(principal),
                _ => Err(AuthenticationError::Password),
            }));
        }
        if lock(&self.password_cache).contains(user, password, shown.clock) {
            return Some(self.password_principal(user));
        }
        if let Some(wait) = lock(&self.throttle).wait_time(user, shown.address, shown.clock) {
            return Some(Err(AuthenticationError::Throttled(wait)));
        }
        match effort {
            KeyFetchPolicy::Never => None,
            KeyFetchPolicy::IfNeeded => Some(self.check_password(user, password, shown)),
        }
    }

    fn check_password(
        &self,
        user: &str,
        password: &str,
        shown: &PresentedCredentials<'_>,
    ) -> Result<Principal, AuthenticationError> {
        let Some(_checking) = PasswordCheckSlot::acquire(&self.active_checks) else {
            return Err(AuthenticationError::Throttled(Duration::from_secs(1)));
        };
        let settings = self.settings();
        if !settings.passwords.verify(user, password) {
            lock(&self.throttle).record_failure(user, shown.address, shown.clock);
            return Err(AuthenticationError::Password);
        }
        lock(&self.throttle).record_success(user, shown.address);
        let mut verified = lock(&self.password_cache);
        // A result from a password file that was replaced meanwhile is not cached.
        if Arc::ptr_eq(&settings, &self.settings()) {
            verified.insert(user, password, shown.clock);
        }
        drop(verified);
        self.password_principal(user)
    }

    fn password_principal(&self, user: &str) -> Result<Principal, AuthenticationError> {
        let role = self.settings().resolve_role(user, &[], None);
        let role = role.ok_or_else(|| AuthenticationError::NoRole(user.to_owned()))?;
        Ok(Principal::with_all_scopes(user, role, AuthMethod::Password))
    }

    fn authenticate_certificate(
        &self,
        certificate: &PeerCertificate,
        now: Timestamp,
    ) -> Result<Principal, AuthenticationError> {
        if let Err(part) = &certificate.subject {
            return Err(AuthenticationError::UnreadableCertificate(part.clone()));
        }
        // A connection may outlive the certificate that it was made with.
        if certificate.expires <= now {
            return Err(AuthenticationError::Expired);
        }
        let settings = self.settings();
        let user = settings.certificates.find_user(certificate).ok_or(AuthenticationError::Certificate)?;
        let role = settings
            .resolve_role(user, &[], None)
            .ok_or_else(|| AuthenticationError::NoRole(user.to_string()))?;
        let principal = Principal::with_all_scopes(user, role, AuthMethod::Certificate);
        // Tokens created with it expire with it.
        Ok(Principal { expires: Some(certificate.expires), ..principal })
    }
}

/// Compares hashes, so that the duration reveals nothing about the expected token.
fn is_signed_with(token: &str, claim: &JobTokenClaims, secret_hash: &str) -> bool {
    SecretHash::from_secret(&claim.sign(secret_hash)) == SecretHash::from_secret(token)
}

/// Counts a concurrent password check until dropped.
struct PasswordCheckSlot<'a>(&'a AtomicUsize);

impl<'a> PasswordCheckSlot<'a> {
    fn acquire(count: &'a AtomicUsize) -> Option<Self> {
        let one = Self(count);
        (count.fetch_add(1, Ordering::Relaxed) < MAX_CONCURRENT_CHECKS).then_some(one)
    }
}

impl Drop for PasswordCheckSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

enum AuthorizationHeader<'a> {
    Bearer(&'a str),
    Basic { user: String, password: String },
}

/// The parsed `Authorization` header.
fn parse_authorization(header: &str) -> Option<AuthorizationHeader<'_>> {
    let (scheme, rest) = header.trim().split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") && !rest.is_empty() {
        return Some(AuthorizationHeader::Bearer(rest));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(AuthorizationHeader::Basic { user: user.to_owned(), password: password.to_owned() })
}

fn jwt_error(error: JwtError) -> AuthenticationError {
    match error {
        JwtError::Expired => AuthenticationError::Expired,
        JwtError::KeysUnavailable => AuthenticationError::Unavailable,
        other => AuthenticationError::Jwt(other.to_string()),
    }
}

fn load_settings(options: &AuthenticatorOptions) -> Result<AuthSettings, AuthConfigError> {
    let mut config = options.config.as_deref().map(AuthConfig::load).transpose()?.unwrap_or_default();
    if let Some(file) = &options.password_file {
        config.password_file = Some(file.clone());
    }
    let authorities = options.client_authorities.as_ref().map_or(0, |count| count());
    AuthSettings::load(&config, options.fetch.as_ref(), authorities)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{JobHolder, TokenStoreError};
    use std::collections::HashMap;
    use std::net::Ipv4Addr;
    use windlass_types::worker_messages::AttemptKey;
    use windlass_types::{Attempt, JobId, RunId, WorkerId, WorkflowId};

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    /// A token store in memory; `None`: it is unavailable.
    #[derive(Default)]
    struct MemoryTokenStore(Mutex<Option<HashMap<String, TokenRecord>>>);

    impl TokenStore for MemoryTokenStore {
        fn find_token(&self, hash: SecretHash) -> Result<Option<TokenRecord>, TokenStoreError> {
            let records = lock(&self.0);
            let records = records.as_ref().ok_or_else(|| TokenStoreError("away".to_owned()))?;
            Ok(records.get(&hash.to_string()).cloned())
        }

        /// A worker with the secret `hush` runs job 2 of workflow 1 (owner: Ana), and nothing else.
        fn find_job_holder(&self, claim: &JobTokenClaims) -> Result<Option<JobHolder>, TokenStoreError> {
            let holder =
                JobHolder { secret_hash: SecretHash::from_secret("hush").to_string(), user: "ana".into() };
            Ok((claim.work == JobTokenSubject::Job(RUNS)).then_some(holder))
        }
    }

    const RUNS: AttemptKey =
        AttemptKey { workflow: WorkflowId(1), job: JobId(2), run: RunId(3), attempt: Attempt(4) };

    fn record(user: &str, role: UserRole) -> TokenRecord {
        TokenRecord {
            id: 1,
            name: "t".into(),
            user: user.into(),
            role,
            scopes: TokenScopes::ALL,
            expires: None,
            binding: None,
        }
    }

    fn token_store(tokens: &[(&str, TokenRecord)]) -> Arc<MemoryTokenStore> {
        let tokens =
            tokens.iter().map(|(token, record)| (SecretHash::from_secret(token).to_string(), record.clone()));
        Arc::new(MemoryTokenStore(Mutex::new(Some(tokens.collect()))))
    }

    fn authenticator(
        files: &[(&str, String)],
        tokens: &Arc<MemoryTokenStore>,
    ) -> (tempfile::TempDir, Authenticator) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let options = AuthenticatorOptions {
            owner: "olga".to_owned(),
            owner_token: Some(TokenSecret::from_text("wl_owner")),
            config: files.iter().any(|(name, _)| *name == "auth.toml").then(|| dir.path().join("auth.toml")),
            tokens: Some(Arc::clone(tokens) as Arc<dyn TokenStore>),
            ..AuthenticatorOptions::default()
        };
        (dir, Authenticator::open(options).unwrap())
    }

    fn shows(header: Option<&str>) -> PresentedCredentials<'_> {
        PresentedCredentials {
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
    fn missing_and_malformed_credentials_are_rejected() {
        let (_dir, authenticator) = authenticator(&[], &token_store(&[]));
        let denied = |header| authenticator.authenticate(&shows(header)).unwrap_err();
        assert_eq!(denied(None), AuthenticationError::Missing);
        for header in ["", "Bearer", "Bearer ", "wl_owner", "Digest x", "Basic !!!", "Basic YW5h"] {
            assert_eq!(denied(Some(header)), AuthenticationError::Scheme, "{header:?}");
        }
        for header in ["Bearer wl_wrong", "Bearer wl_owner2", "Bearer wl_owne", "bearer x"] {
            assert_eq!(denied(Some(header)), AuthenticationError::Token, "{header:?}");
        }
        for header in ["Bearer a.b.c", "Bearer ..", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbmEifQ."] {
            assert!(matches!(denied(Some(header)), AuthenticationError::Jwt(_)), "{header:?}");
        }
    }

    #[test]
    fn owner_and_tokens_are_authenticated() {
        let tokens = token_store(&[
            ("wl_a", record("ana", UserRole::Admin)),
            ("wl_c", record("carla", UserRole::Viewer)),
        ]);
        let (_dir, authenticator) = authenticator(&people("secret"), &tokens);
        let admit = |header: &str| authenticator.authenticate(&shows(Some(header)));
        let owner = admit("Bearer wl_owner").unwrap();
        assert_eq!((&*owner.user, owner.role, &owner.method), ("olga", UserRole::Admin, &AuthMethod::Owner));
        assert_eq!(
            admit("bearer wl_a").unwrap().role,
            UserRole::Operator,
            "the file grants less than the token"
        );
        assert_eq!(admit("Bearer wl_c").unwrap().role, UserRole::Viewer, "the file has no role for the user");
        assert_eq!(&*admit(&basic("__token__", "wl_c")).unwrap().user, "carla");
        assert_eq!(&*admit(&basic("carla", "wl_c")).unwrap().user, "carla");
        assert_eq!(
            admit(&basic("ana", "wl_c")),
            Err(AuthenticationError::Password),
            "not under another name"
        );
    }

    #[test]
    fn token_is_cached_until_revoked() {
        let tokens = token_store(&[("wl_a", record("ana", UserRole::User))]);
        let (_dir, authenticator) = authenticator(&[], &tokens);
        let header = shows(Some("Bearer wl_a"));
        assert_eq!(authenticator.try_authenticate(&header), None, "it has to be looked up first");
        assert!(authenticator.authenticate(&header).is_ok());
        assert!(authenticator.try_authenticate(&header).unwrap().is_ok());
        assert_eq!(authenticator.take_used_tokens(), [(1, NOW)]);
        lock(&tokens.0).as_mut().unwrap().clear();
        authenticator.revoke_token(1);
        assert_eq!(authenticator.authenticate(&header), Err(AuthenticationError::Token));
        *lock(&tokens.0) = None;
        assert_eq!(authenticator.authenticate(&header), Err(AuthenticationError::Unavailable));
    }

    #[test]
    fn job_token_is_bound_to_workflow_and_attempt() {
        let (_dir, authenticator) = authenticator(&people("secret"), &token_store(&[]));
        let claim = |attempt| JobTokenClaims {
            worker: WorkerId(9),
            work: JobTokenSubject::Job(AttemptKey { attempt: Attempt(attempt), ..RUNS }),
        };
        let admit = |token: String| authenticator.authenticate(&shows(Some(&format!("Bearer {token}"))));
        let hash = SecretHash::from_secret("hush").to_string();
        let signer = |token: String| authenticator.find_job_signer(&shows(Some(&format!("Bearer {token}"))));
        assert_eq!(signer(claim(4).sign(&hash)), None, "not before a job of it was authenticated");
        let job = admit(claim(4).sign(&hash)).unwrap();
        assert_eq!(signer(claim(5).sign(&hash)), Some(WorkerId(9)), "another job of the same worker");
        assert_eq!(signer(claim(4).sign("guessed")), None);
        assert_eq!(
            (&*job.user, job.role, job.scopes),
            ("ana", UserRole::User, TokenScopes::JOB),
            "she is an operator"
        );
        assert_eq!((job.binding, job.sees_all()), (Some(CredentialBinding::Job(RUNS)), false));
        assert!(job.covers_workflow(WorkflowId(1)) && !job.covers_workflow(WorkflowId(2)));
        assert_eq!(admit(claim(3).sign(&hash)), Err(AuthenticationError::Token), "an ended attempt");
        assert_eq!(
            admit(claim(4).sign(&SecretHash::from_secret("x").to_string())),
            Err(AuthenticationError::Token),
            "a forged token"
        );
        let request =
            crate::TokenGrantRequest { user: None, role: None, scopes: TokenScopes::JOB, lifetime: None };
        assert_eq!(crate::grant_token(&job, &request, NOW), Err(crate::TokenGrantError::Bound));
    }

    #[test]
    fn expired_token_is_rejected() {
        let ended = TokenRecord { expires: Some(NOW), ..record("ana", UserRole::User) };
        let (_dir, authenticator) = authenticator(&[], &token_store(&[("wl_a", ended)]));
        assert_eq!(
            authenticator.authenticate(&shows(Some("Bearer wl_a"))),
            Err(AuthenticationError::Expired)
        );
    }

    #[test]
    fn default_role_none_applies_to_existing_tokens() {
        let tokens = token_store(&[
            ("wl_a", record("ana", UserRole::User)),
            ("wl_b", record("bob", UserRole::User)),
            ("wl_o", record("olga", UserRole::User)),
        ]);
        let file = "default_role = 'none'\n[roles]\nana = 'user'\n";
        let (_dir, authenticator) = authenticator(&[("auth.toml", file.to_owned())], &tokens);
        let admit = |header| authenticator.authenticate(&shows(Some(header))).map(|one| one.role);
        assert_eq!(admit("Bearer wl_a"), Ok(UserRole::User));
        assert_eq!(admit("Bearer wl_b"), Err(AuthenticationError::NoRole("bob".into())));
        assert_eq!(admit("Bearer wl_o"), Ok(UserRole::User), "the owner");
    }

    #[test]
    fn passwords_are_cached_until_reload() {
        let (dir, authenticator) = authenticator(&people("secret"), &token_store(&[]));
        let right = basic("ana", "secret");
        let right = shows(Some(&right));
        assert_eq!(authenticator.try_authenticate(&right), None, "requires a slow hash");
        assert_eq!(authenticator.authenticate(&right).unwrap().role, UserRole::Operator);
        assert!(authenticator.try_authenticate(&right).unwrap().is_ok(), "remembered");
        assert_eq!(
            authenticator.authenticate(&shows(Some(&basic("bob", "secret")))).unwrap().role,
            UserRole::User
        );

        for (name, text) in people("changed") {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        assert_eq!(authenticator.reload().unwrap(), AuthReloadSummary { users: 2, issuers: 0 });
        assert_eq!(authenticator.authenticate(&right), Err(AuthenticationError::Password));

        std::fs::write(dir.path().join("people"), "broken").unwrap();
        assert!(authenticator.reload().is_err());
        assert!(
            authenticator.authenticate(&shows(Some(&basic("ana", "changed")))).is_ok(),
            "the settings did not change"
        );
    }

    #[test]
    fn guessing_is_throttled() {
        let (_dir, authenticator) = authenticator(&people("secret"), &token_store(&[]));
        let wrong = basic("ana", "wrong");
        let wrong = shows(Some(&wrong));
        for _ in 0..5 {
            assert_eq!(authenticator.authenticate(&wrong), Err(AuthenticationError::Password));
        }
        assert!(
            matches!(authenticator.try_authenticate(&wrong), Some(Err(AuthenticationError::Throttled(_)))),
            "without a slow hash"
        );
        assert!(
            authenticator.authenticate(&shows(Some(&basic("bob", "secret")))).is_ok(),
            "bob is not locked out"
        );
    }

    #[test]
    fn valid_certificate_does_not_excuse_wrong_credential() {
        let files = [("auth.toml", "[certificates]\n'CN=ana' = 'ana'\n".to_owned())];
        let (_dir, authenticator) = authenticator(&files, &token_store(&[]));
        let of = |name: &str| PeerCertificate {
            subject: Ok(vec![("CN".into(), name.into())]),
            alternatives: Vec::new(),
            authorities: Vec::new(),
            expires: NOW.plus(Duration::from_hours(1)),
        };
        let (ana, other) = (of("ana"), of("eve"));
        let admit = |header, certificate| {
            authenticator.authenticate(&PresentedCredentials { certificate, ..shows(header) })
        };
        let by_certificate = admit(None, Some(&ana)).unwrap();
        assert_eq!(&*by_certificate.user, "ana");
        let request =
            crate::TokenGrantRequest { user: None, role: None, scopes: TokenScopes::READ, lifetime: None };
        let (.., expires) = crate::grant_token(&by_certificate, &request, NOW).unwrap();
        assert_eq!(expires, Some(ana.expires), "a token created with it expires with it");
        let longer = crate::TokenGrantRequest { lifetime: Some(Duration::from_hours(2)), ..request };
        assert_eq!(crate::grant_token(&by_certificate, &longer, NOW), Err(crate::TokenGrantError::Outlasts));
        let unreadable = PeerCertificate { subject: Err("OU".into()), ..ana.clone() };
        let denied = admit(None, Some(&unreadable)).unwrap_err();
        assert_eq!((denied.code(), denied.status()), ("bad_credentials", 401));
        let over = PeerCertificate { expires: NOW, ..ana.clone() };
        assert_eq!(admit(None, Some(&over)), Err(AuthenticationError::Expired));
        assert_eq!(admit(None, Some(&other)), Err(AuthenticationError::Certificate));
        assert_eq!(admit(Some("Bearer wl_wrong"), Some(&ana)), Err(AuthenticationError::Token));
    }

    #[test]
    fn without_auth_every_client_is_the_owner() {
        let options = AuthenticatorOptions {
            owner: "olga".to_owned(),
            no_auth: true,
            ..AuthenticatorOptions::default()
        };
        let authenticator = Authenticator::open(options).unwrap();
        let anybody = authenticator.try_authenticate(&shows(None)).unwrap().unwrap();
        assert_eq!((&*anybody.user, anybody.method), ("olga", AuthMethod::Open));
    }
}

//! API tokens: a cache by hash over the token store, and the rules for creating tokens.

use crate::principal::{AuthMethod, CredentialBinding, Principal, TokenScopes, UserRole};
use crate::secret::SecretHash;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use windlass_api::job_token::JobTokenClaims;
use windlass_types::Timestamp;

/// A valid token; revoked ones are not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: i64,
    pub name: Arc<str>,
    pub user: Arc<str>,
    /// Maximum role; the configured role of the user may be lower.
    pub role: UserRole,
    pub scopes: TokenScopes,
    pub expires: Option<Timestamp>,
    /// The object that it is limited to.
    pub binding: Option<CredentialBinding>,
}

/// The storage of tokens.
pub trait TokenStore: Send + Sync {
    /// Returns the token with this hash, unless it was revoked.
    fn find_token(&self, hash: SecretHash) -> Result<Option<TokenRecord>, TokenStoreError>;

    /// Returns the worker that holds the attempt of a job token, if it runs. Called each time: the token
    /// expires with the attempt.
    fn find_job_holder(&self, claim: &JobTokenClaims) -> Result<Option<JobHolder>, TokenStoreError>;
}

/// The worker that runs a job, and the owner of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobHolder {
    /// SHA-256 of the worker's secret, as text.
    pub secret_hash: String,
    /// Owner of the workflow.
    pub user: Arc<str>,
}

/// The token store cannot be read at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenStoreError(pub String);

/// Maximum number of cached tokens; tokens in frequent use are soon cached again.
const MAX_CACHED_TOKENS: usize = 10_000;

/// Tokens found in the store, cached by hash, so that they are not read for every request. A revoked token is
/// removed at once ([`TokenCache::revoke`]).
#[derive(Debug, Default)]
pub(crate) struct TokenCache {
    tokens: HashMap<SecretHash, CachedToken>,
    revocations: u64,
}

#[derive(Debug)]
struct CachedToken {
    record: TokenRecord,
    /// Microseconds; 0: not used since it was last written to the database.
    last_used: AtomicI64,
}

impl TokenCache {
    /// To be called before reading the store: see [`TokenCache::insert`].
    pub(crate) fn revocations(&self) -> u64 {
        self.revocations
    }

    /// Caches the result of a store read that started at the given number of revocations. If there was one
    /// since, it may concern this token, and nothing is cached.
    pub(crate) fn insert(&mut self, hash: SecretHash, record: TokenRecord, revocations: u64, now: Timestamp) {
        if revocations != self.revocations {
            return;
        }
        if self.tokens.len() >= MAX_CACHED_TOKENS {
            self.tokens.clear();
        }
        self.tokens.insert(hash, CachedToken { record, last_used: AtomicI64::new(now.micros()) });
    }

    pub(crate) fn revoke(&mut self, id: i64) {
        self.revocations += 1;
        self.tokens.retain(|_, entry| entry.record.id != id);
    }

    pub(crate) fn find(&self, hash: SecretHash, now: Timestamp) -> Option<&TokenRecord> {
        let entry = self.tokens.get(&hash)?;
        entry.last_used.store(now.micros(), Ordering::Relaxed);
        Some(&entry.record)
    }

    /// Returns tokens used since the last call, and when, for the database.
    pub(crate) fn take_used(&self) -> Vec<(i64, Timestamp)> {
        self.tokens
            .values()
            .filter_map(|entry| match entry.last_used.swap(0, Ordering::Relaxed) {
                0 => None,
                used => Some((entry.record.id, Timestamp(used))),
            })
            .collect()
    }
}

/// A request to create a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenGrantRequest {
    /// User of the token; `None`: the caller.
    pub user: Option<String>,
    /// `None`: the caller's own role.
    pub role: Option<UserRole>,
    pub scopes: TokenScopes,
    /// `None`: no expiration, or that of the caller's credential.
    pub lifetime: Option<Duration>,
}

/// Why a token is not created; shown to the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenGrantError {
    #[error("a job or allocation token cannot create tokens")]
    Bound,
    #[error("only an admin can create tokens for other users")]
    ForOthers,
    #[error("a token has at most the role of its creator: {has}, not {asked}")]
    Role { has: UserRole, asked: UserRole },
    #[error("a token cannot have scopes that the creating credential lacks")]
    Scopes,
    #[error("a token requires at least one scope: read, write, worker, agent or admin")]
    NoScope,
    #[error("a token cannot outlive the credential that it is created with")]
    Outlasts,
}

/// Checks a request of `by` and returns the token to create: never with more permissions than `by`, nor for
/// longer.
pub fn grant_token(
    by: &Principal,
    request: &TokenGrantRequest,
    now: Timestamp,
) -> Result<(Arc<str>, UserRole, TokenScopes, Option<Timestamp>), TokenGrantError> {
    if by.binding.is_some() {
        return Err(TokenGrantError::Bound);
    }
    let user: Arc<str> = request.user.as_deref().map_or_else(|| Arc::clone(&by.user), Arc::from);
    if user != by.user && by.role < UserRole::Admin {
        return Err(TokenGrantError::ForOthers);
    }
    // For another user the role has no default from the caller: an admin does not create admins implicitly.
    let usual = if user == by.user { by.role } else { UserRole::User };
    let role = request.role.unwrap_or(usual);
    if role > by.role {
        return Err(TokenGrantError::Role { has: by.role, asked: role });
    }
    if request.scopes.is_none() {
        return Err(TokenGrantError::NoScope);
    }
    if !request.scopes.is_within(by.scopes.grantable()) {
        return Err(TokenGrantError::Scopes);
    }
    let expires = match (request.lifetime.map(|lasts| now.plus(lasts)), by.expires) {
        (Some(asked), Some(end)) if asked > end => return Err(TokenGrantError::Outlasts),
        (asked, end) => asked.or(end),
    };
    Ok((user, role, request.scopes, expires))
}

impl TokenRecord {
    /// Converts the token to a principal. `configured`: the configured role of its user.
    pub(crate) fn to_principal(&self, configured: Option<UserRole>) -> Principal {
        Principal {
            user: Arc::clone(&self.user),
            role: configured.map_or(self.role, |role| role.min(self.role)),
            scopes: self.scopes,
            groups: Vec::new(),
            method: AuthMethod::Token { id: self.id, name: Arc::clone(&self.name) },
            expires: self.expires,
            binding: self.binding,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000);
    const HOUR: Duration = Duration::from_hours(1);

    fn asks(scopes: TokenScopes) -> TokenGrantRequest {
        TokenGrantRequest { user: None, role: None, scopes, lifetime: None }
    }

    fn ana() -> Principal {
        Principal::with_all_scopes("ana", UserRole::User, AuthMethod::Password)
    }

    #[test]
    fn lookup_during_revocation_is_not_cached() {
        let hash = SecretHash::from_secret("x");
        let record = TokenRecord {
            id: 7,
            name: "x".into(),
            user: "ana".into(),
            role: UserRole::User,
            scopes: TokenScopes::READ,
            expires: None,
            binding: None,
        };
        let mut table = TokenCache::default();
        let before = table.revocations();
        table.revoke(7);
        table.insert(hash, record.clone(), before, NOW);
        assert_eq!(table.find(hash, NOW), None);
        table.insert(hash, record.clone(), table.revocations(), NOW);
        assert_eq!(table.find(hash, NOW), Some(&record));
        assert_eq!(table.take_used(), [(7, NOW)]);
        assert_eq!(table.take_used(), []);
        table.revoke(7);
        assert_eq!(table.find(hash, NOW), None);
    }

    #[test]
    fn token_cannot_exceed_its_creator() {
        assert_eq!(
            grant_token(&ana(), &asks(TokenScopes::WRITE), NOW).unwrap(),
            ("ana".into(), UserRole::User, TokenScopes::WRITE, None)
        );
        let reader = Principal { scopes: TokenScopes::READ, ..ana() };
        assert_eq!(grant_token(&reader, &asks(TokenScopes::WRITE), NOW), Err(TokenGrantError::Scopes));
        let writer = Principal { scopes: TokenScopes::WRITE, ..ana() };
        assert!(grant_token(&writer, &asks(TokenScopes::AGENT), NOW).is_ok(), "for an agent of this user");
        assert_eq!(grant_token(&reader, &asks(TokenScopes::AGENT), NOW), Err(TokenGrantError::Scopes));
        assert_eq!(grant_token(&ana(), &asks(TokenScopes::NONE), NOW), Err(TokenGrantError::NoScope));
        let higher = TokenGrantRequest { role: Some(UserRole::Admin), ..asks(TokenScopes::READ) };
        let refused = TokenGrantError::Role { has: UserRole::User, asked: UserRole::Admin };
        assert_eq!(grant_token(&ana(), &higher, NOW), Err(refused));
    }

    #[test]
    fn only_admins_create_tokens_for_others() {
        let for_bob = TokenGrantRequest { user: Some("bob".into()), ..asks(TokenScopes::READ) };
        assert_eq!(grant_token(&ana(), &for_bob, NOW), Err(TokenGrantError::ForOthers));
        let admin = Principal { role: UserRole::Admin, ..ana() };
        let (user, role, ..) = grant_token(&admin, &for_bob, NOW).unwrap();
        assert_eq!((&*user, role), ("bob", UserRole::User), "not implicitly an admin");
    }

    #[test]
    fn token_cannot_outlast_its_creator() {
        let ending = Principal { expires: Some(NOW.plus(HOUR)), ..ana() };
        let (.., expires) = grant_token(&ending, &asks(TokenScopes::READ), NOW).unwrap();
        assert_eq!(expires, ending.expires);
        let longer = TokenGrantRequest { lifetime: Some(2 * HOUR), ..asks(TokenScopes::READ) };
        assert_eq!(grant_token(&ending, &longer, NOW), Err(TokenGrantError::Outlasts));
        let shorter = TokenGrantRequest { lifetime: Some(HOUR / 2), ..asks(TokenScopes::READ) };
        assert!(grant_token(&ending, &shorter, NOW).is_ok());
    }
}

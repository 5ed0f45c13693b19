//! API tokens as the gate knows them: an index by hash over what the books hold, and who may be given one.

use crate::principal::{AuthMethod, CredentialBinding, Principal, TokenScopes, UserRole};
use crate::secret::SecretHash;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use windlass_api::job_token::JobTokenClaims;
use windlass_types::Timestamp;

/// A token that is good: revoked ones are not kept here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: i64,
    pub name: Arc<str>,
    pub user: Arc<str>,
    /// At most; a role that the configuration gives to the user may be less.
    pub role: UserRole,
    pub scopes: TokenScopes,
    pub expires: Option<Timestamp>,
    /// The one object that it is for.
    pub binding: Option<CredentialBinding>,
}

/// Where tokens are kept.
pub trait TokenStore: Send + Sync {
    /// The token with this hash, unless it was revoked.
    fn find_token(&self, hash: SecretHash) -> Result<Option<TokenRecord>, TokenStoreError>;

    /// Who holds the attempt that a job's token names, if it runs. Asked each time: the token ends with the attempt.
    fn find_job_holder(&self, claim: &JobTokenClaims) -> Result<Option<JobHolder>, TokenStoreError>;
}

/// The worker that runs something, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobHolder {
    /// SHA-256 of the worker's secret, as text.
    pub secret_hash: String,
    /// The owner of the workflow.
    pub user: Arc<str>,
}

/// The books cannot be read at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TokenStoreError(pub String);

/// Tokens remembered at most; those of programs that come often are back at once.
const MAX_CACHED_TOKENS: usize = 10_000;

/// Tokens that were found in the books, by hash, so that they are not looked up for every request. A token that is
/// revoked is told so ([`TokenTable::revoke`]) and is gone at once.
#[derive(Debug, Default)]
pub(crate) struct TokenCache {
    tokens: HashMap<SecretHash, CachedToken>,
    revocations: u64,
}

#[derive(Debug)]
struct CachedToken {
    record: TokenRecord,
    /// Microseconds; 0: not since it was last noted in the books.
    last_used: AtomicI64,
}

impl TokenCache {
    /// To be asked before the books are: see [`TokenTable::remember`].
    pub(crate) fn revocations(&self) -> u64 {
        self.revocations
    }

    /// Remembers what the books said when there had been so many revocations. If there was one since, it may have been
    /// of this token, and nothing is remembered.
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

    /// Which tokens were used since this was last asked, and when: for the books.
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

/// A token that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenGrantRequest {
    /// For whom; `None`: for himself.
    pub user: Option<String>,
    /// `None`: his own.
    pub role: Option<UserRole>,
    pub scopes: TokenScopes,
    /// `None`: it does not end, or ends when the credential ends that it is asked for with.
    pub lifetime: Option<Duration>,
}

/// Why a token is not made. Each is a sentence for whoever asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenGrantError {
    #[error("the token of a job or an allocation makes no tokens")]
    Bound,
    #[error("only an admin makes tokens for others")]
    ForOthers,
    #[error("a token has at most the role of who makes it: {has}, not {asked}")]
    Role { has: UserRole, asked: UserRole },
    #[error("a token is good for no more than the credential that it is made with")]
    Scopes,
    #[error("a token needs at least one scope: read, write, worker, agent or admin")]
    NoScope,
    #[error("a token that is made with a credential that ends does not outlast it")]
    Outlasts,
}

/// What a token is good for that `by` asks for: never for more than he himself, nor for longer.
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
    // For somebody else a role is only what it is said to be: an admin does not make admins by saying nothing.
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
    let expires = match (request.lifetime.map(|lasts| now.after(lasts)), by.expires) {
        (Some(asked), Some(end)) if asked > end => return Err(TokenGrantError::Outlasts),
        (asked, end) => asked.or(end),
    };
    Ok((user, role, request.scopes, expires))
}

impl TokenRecord {
    /// Who comes with this token. `configured`: the role that the configuration gives its user by name.
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
    fn what_was_looked_up_while_it_was_revoked_is_not_remembered() {
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
    fn a_token_is_good_for_no_more_than_its_maker() {
        assert_eq!(
            grant_token(&ana(), &asks(TokenScopes::WRITE), NOW).unwrap(),
            ("ana".into(), UserRole::User, TokenScopes::WRITE, None)
        );
        let reader = Principal { scopes: TokenScopes::READ, ..ana() };
        assert_eq!(grant_token(&reader, &asks(TokenScopes::WRITE), NOW), Err(TokenGrantError::Scopes));
        let writer = Principal { scopes: TokenScopes::WRITE, ..ana() };
        assert!(grant_token(&writer, &asks(TokenScopes::AGENT), NOW).is_ok(), "for an agent of hers");
        assert_eq!(grant_token(&reader, &asks(TokenScopes::AGENT), NOW), Err(TokenGrantError::Scopes));
        assert_eq!(grant_token(&ana(), &asks(TokenScopes::NONE), NOW), Err(TokenGrantError::NoScope));
        let higher = TokenGrantRequest { role: Some(UserRole::Admin), ..asks(TokenScopes::READ) };
        let refused = TokenGrantError::Role { has: UserRole::User, asked: UserRole::Admin };
        assert_eq!(grant_token(&ana(), &higher, NOW), Err(refused));
    }

    #[test]
    fn only_admins_make_them_for_others() {
        let for_bob = TokenGrantRequest { user: Some("bob".into()), ..asks(TokenScopes::READ) };
        assert_eq!(grant_token(&ana(), &for_bob, NOW), Err(TokenGrantError::ForOthers));
        let admin = Principal { role: UserRole::Admin, ..ana() };
        let (user, role, ..) = grant_token(&admin, &for_bob, NOW).unwrap();
        assert_eq!((&*user, role), ("bob", UserRole::User), "not an admin by saying nothing");
    }

    #[test]
    fn what_ends_makes_nothing_that_lasts() {
        let ending = Principal { expires: Some(NOW.after(HOUR)), ..ana() };
        let (.., expires) = grant_token(&ending, &asks(TokenScopes::READ), NOW).unwrap();
        assert_eq!(expires, ending.expires);
        let longer = TokenGrantRequest { lifetime: Some(2 * HOUR), ..asks(TokenScopes::READ) };
        assert_eq!(grant_token(&ending, &longer, NOW), Err(TokenGrantError::Outlasts));
        let shorter = TokenGrantRequest { lifetime: Some(HOUR / 2), ..asks(TokenScopes::READ) };
        assert!(grant_token(&ending, &shorter, NOW).is_ok());
    }
}

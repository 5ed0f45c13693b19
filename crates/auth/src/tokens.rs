//! API tokens as the gate knows them: an index by hash over what the books hold, and who may be given one.

use crate::principal::{Binding, How, Principal, Role, Scopes};
use crate::secret::SecretHash;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use windlass_api::job_token::JobClaim;
use windlass_types::Timestamp;

/// A token that is good: revoked ones are not kept here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: i64,
    pub name: Arc<str>,
    pub user: Arc<str>,
    /// At most; a role that the configuration gives to the user may be less.
    pub role: Role,
    pub scopes: Scopes,
    pub expires: Option<Timestamp>,
    /// The one object that it is for.
    pub bound: Option<Binding>,
}

/// Where tokens are kept.
pub trait TokenBook: Send + Sync {
    /// The token with this hash, unless it was revoked.
    fn find(&self, hash: SecretHash) -> Result<Option<TokenRecord>, BookError>;

    /// Who holds the attempt that a job's token names, if it runs. Asked each time: the token ends with the attempt.
    fn holder(&self, claim: &JobClaim) -> Result<Option<JobHolder>, BookError>;
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
pub struct BookError(pub String);

/// Tokens remembered at most; those of programs that come often are back at once.
const REMEMBERED: usize = 10_000;

/// Tokens that were found in the books, by hash, so that they are not looked up for every request. A token that is
/// revoked is told so ([`TokenTable::revoke`]) and is gone at once.
#[derive(Debug, Default)]
pub(crate) struct TokenTable {
    tokens: HashMap<SecretHash, Entry>,
    revocations: u64,
}

#[derive(Debug)]
struct Entry {
    record: TokenRecord,
    /// Microseconds; 0: not since it was last noted in the books.
    used: AtomicI64,
}

impl TokenTable {
    /// To be asked before the books are: see [`TokenTable::remember`].
    pub(crate) fn revocations(&self) -> u64 {
        self.revocations
    }

    /// Remembers what the books said when there had been so many revocations. If there was one since, it may have been
    /// of this token, and nothing is remembered.
    pub(crate) fn remember(
        &mut self,
        hash: SecretHash,
        record: TokenRecord,
        revocations: u64,
        now: Timestamp,
    ) {
        if revocations != self.revocations {
            return;
        }
        if self.tokens.len() >= REMEMBERED {
            self.tokens.clear();
        }
        self.tokens.insert(hash, Entry { record, used: AtomicI64::new(now.micros()) });
    }

    pub(crate) fn revoke(&mut self, id: i64) {
        self.revocations += 1;
        self.tokens.retain(|_, entry| entry.record.id != id);
    }

    pub(crate) fn find(&self, hash: SecretHash, now: Timestamp) -> Option<&TokenRecord> {
        let entry = self.tokens.get(&hash)?;
        entry.used.store(now.micros(), Ordering::Relaxed);
        Some(&entry.record)
    }

    /// Which tokens were used since this was last asked, and when: for the books.
    pub(crate) fn take_used(&self) -> Vec<(i64, Timestamp)> {
        self.tokens
            .values()
            .filter_map(|entry| match entry.used.swap(0, Ordering::Relaxed) {
                0 => None,
                used => Some((entry.record.id, Timestamp(used))),
            })
            .collect()
    }
}

/// A token that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRequest {
    /// For whom; `None`: for himself.
    pub user: Option<String>,
    /// `None`: his own.
    pub role: Option<Role>,
    pub scopes: Scopes,
    /// `None`: it does not end, or ends when the credential ends that it is asked for with.
    pub lasts: Option<Duration>,
}

/// Why a token is not made. Each is a sentence for whoever asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    #[error("the token of a job or an allocation makes no tokens")]
    Bound,
    #[error("only an admin makes tokens for others")]
    ForOthers,
    #[error("a token has at most the role of who makes it: {has}, not {asked}")]
    Role { has: Role, asked: Role },
    #[error("a token is good for no more than the credential that it is made with")]
    Scopes,
    #[error("a token needs at least one scope: read, write, worker, agent or admin")]
    NoScope,
    #[error("a token that is made with a credential that ends does not outlast it")]
    Outlasts,
}

/// What a token is good for that `by` asks for: never for more than he himself, nor for longer.
pub fn grant(
    by: &Principal,
    request: &TokenRequest,
    now: Timestamp,
) -> Result<(Arc<str>, Role, Scopes, Option<Timestamp>), TokenRefused> {
    if by.bound.is_some() {
        return Err(TokenRefused::Bound);
    }
    let user: Arc<str> = request.user.as_deref().map_or_else(|| Arc::clone(&by.user), Arc::from);
    if user != by.user && by.role < Role::Admin {
        return Err(TokenRefused::ForOthers);
    }
    // For somebody else a role is only what it is said to be: an admin does not make admins by saying nothing.
    let usual = if user == by.user { by.role } else { Role::User };
    let role = request.role.unwrap_or(usual);
    if role > by.role {
        return Err(TokenRefused::Role { has: by.role, asked: role });
    }
    if request.scopes.is_none() {
        return Err(TokenRefused::NoScope);
    }
    if !request.scopes.is_within(by.scopes.grantable()) {
        return Err(TokenRefused::Scopes);
    }
    let expires = match (request.lasts.map(|lasts| now.after(lasts)), by.expires) {
        (Some(asked), Some(end)) if asked > end => return Err(TokenRefused::Outlasts),
        (asked, end) => asked.or(end),
    };
    Ok((user, role, request.scopes, expires))
}

impl TokenRecord {
    /// Who comes with this token. `configured`: the role that the configuration gives its user by name.
    pub(crate) fn principal(&self, configured: Option<Role>) -> Principal {
        Principal {
            user: Arc::clone(&self.user),
            role: configured.map_or(self.role, |role| role.min(self.role)),
            scopes: self.scopes,
            groups: Vec::new(),
            how: How::Token { id: self.id, name: Arc::clone(&self.name) },
            expires: self.expires,
            bound: self.bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000);
    const HOUR: Duration = Duration::from_hours(1);

    fn asks(scopes: Scopes) -> TokenRequest {
        TokenRequest { user: None, role: None, scopes, lasts: None }
    }

    fn ana() -> Principal {
        Principal::full("ana", Role::User, How::Password)
    }

    #[test]
    fn what_was_looked_up_while_it_was_revoked_is_not_remembered() {
        let hash = SecretHash::of("x");
        let record = TokenRecord {
            id: 7,
            name: "x".into(),
            user: "ana".into(),
            role: Role::User,
            scopes: Scopes::READ,
            expires: None,
            bound: None,
        };
        let mut table = TokenTable::default();
        let before = table.revocations();
        table.revoke(7);
        table.remember(hash, record.clone(), before, NOW);
        assert_eq!(table.find(hash, NOW), None);
        table.remember(hash, record.clone(), table.revocations(), NOW);
        assert_eq!(table.find(hash, NOW), Some(&record));
        assert_eq!(table.take_used(), [(7, NOW)]);
        assert_eq!(table.take_used(), []);
        table.revoke(7);
        assert_eq!(table.find(hash, NOW), None);
    }

    #[test]
    fn a_token_is_good_for_no_more_than_its_maker() {
        assert_eq!(
            grant(&ana(), &asks(Scopes::WRITE), NOW).unwrap(),
            ("ana".into(), Role::User, Scopes::WRITE, None)
        );
        let reader = Principal { scopes: Scopes::READ, ..ana() };
        assert_eq!(grant(&reader, &asks(Scopes::WRITE), NOW), Err(TokenRefused::Scopes));
        let writer = Principal { scopes: Scopes::WRITE, ..ana() };
        assert!(grant(&writer, &asks(Scopes::AGENT), NOW).is_ok(), "for an agent of hers");
        assert_eq!(grant(&reader, &asks(Scopes::AGENT), NOW), Err(TokenRefused::Scopes));
        assert_eq!(grant(&ana(), &asks(Scopes::NONE), NOW), Err(TokenRefused::NoScope));
        let higher = TokenRequest { role: Some(Role::Admin), ..asks(Scopes::READ) };
        let refused = TokenRefused::Role { has: Role::User, asked: Role::Admin };
        assert_eq!(grant(&ana(), &higher, NOW), Err(refused));
    }

    #[test]
    fn only_admins_make_them_for_others() {
        let for_bob = TokenRequest { user: Some("bob".into()), ..asks(Scopes::READ) };
        assert_eq!(grant(&ana(), &for_bob, NOW), Err(TokenRefused::ForOthers));
        let admin = Principal { role: Role::Admin, ..ana() };
        let (user, role, ..) = grant(&admin, &for_bob, NOW).unwrap();
        assert_eq!((&*user, role), ("bob", Role::User), "not an admin by saying nothing");
    }

    #[test]
    fn what_ends_makes_nothing_that_lasts() {
        let ending = Principal { expires: Some(NOW.after(HOUR)), ..ana() };
        let (.., expires) = grant(&ending, &asks(Scopes::READ), NOW).unwrap();
        assert_eq!(expires, ending.expires);
        let longer = TokenRequest { lasts: Some(2 * HOUR), ..asks(Scopes::READ) };
        assert_eq!(grant(&ending, &longer, NOW), Err(TokenRefused::Outlasts));
        let shorter = TokenRequest { lasts: Some(HOUR / 2), ..asks(Scopes::READ) };
        assert!(grant(&ending, &shorter, NOW).is_ok());
    }
}

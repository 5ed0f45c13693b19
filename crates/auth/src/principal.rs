//! Somebody who was let in: his name, his role, and what he was let in for.

use std::fmt;
use std::sync::Arc;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{AllocationId, Timestamp, WorkflowId};

/// What a person is on this server, from least to most. Each may do all that the ones before may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UserRole {
    /// Reads what is his own and what is shared with him.
    Viewer,
    /// Also makes workflows, and changes his own and those shared with him.
    User,
    /// Sees all workflows and acts on them.
    Operator,
    /// Also administers the server: everybody's tokens, groups, reloading.
    Admin,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no role `{0}`; roles are viewer, user, operator and admin")]
pub struct ParseRoleError(String);

impl UserRole {
    pub const ALL: [Self; 4] = [Self::Viewer, Self::User, Self::Operator, Self::Admin];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for UserRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for UserRole {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| ParseRoleError(text.to_owned()))
    }
}

/// A kind of thing that a credential is good for. As fine as WLCG tokens tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenScope {
    Read,
    Create,
    Modify,
    Cancel,
    /// To run jobs: to introduce workers, claim, report.
    Work,
    Admin,
    /// To decide about failures as an agent, as far as the workflow's policy allows.
    Decide,
    /// To act from inside a job: read its workflow, add jobs to it, change its user data.
    Job,
    /// To run the jobs of one Slurm allocation.
    Allocation,
}

/// What a credential is good for, at most: the role says what its bearer may do at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TokenScopes(u16);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no scope `{0}`; scopes are read, write, worker, agent and admin")]
pub struct ParseScopeError(String);

/// The words for sets of scopes that tokens are made with, smallest first.
const SCOPE_NAMES: [(&str, TokenScopes); 5] = [
    ("read", TokenScopes::READ),
    ("worker", TokenScopes::WORKER),
    ("agent", TokenScopes::AGENT),
    ("write", TokenScopes::WRITE),
    ("admin", TokenScopes::ALL),
];

impl TokenScopes {
    pub const NONE: Self = Self(0);
    pub const READ: Self = Self::NONE.with(TokenScope::Read);
    pub const WRITE: Self =
        Self::READ.with(TokenScope::Create).with(TokenScope::Modify).with(TokenScope::Cancel);
    pub const AGENT: Self = Self::READ.with(TokenScope::Decide);
    pub const WORKER: Self = Self::READ.with(TokenScope::Work);
    /// Of a token that a job gets. It is no part of [`Scopes::ALL`]: operations list it where a job may do them.
    pub const JOB: Self = Self::NONE.with(TokenScope::Job);
    /// Of a token that the workers of an allocation get.
    pub const ALLOCATION: Self = Self::NONE.with(TokenScope::Allocation);
    pub const ALL: Self = Self::WRITE.with(TokenScope::Work).with(TokenScope::Admin);

    #[must_use]
    pub const fn with(self, scope: TokenScope) -> Self {
        Self(self.0 | 1 << scope as u16)
    }

    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn has(self, scope: TokenScope) -> bool {
        self.0 & 1 << scope as u16 != 0
    }

    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// What tokens may be good for that are made with these. Whoever may change workflows may have an agent decide about
    /// their failures.
    #[must_use]
    pub const fn grantable(self) -> Self {
        if self.has(TokenScope::Modify) { self.with(TokenScope::Decide) } else { self }
    }

    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// A word of ours: `read`, `write`, `worker`, `agent`, `admin`.
    pub fn parse_name(word: &str) -> Result<Self, ParseScopeError> {
        SCOPE_NAMES
            .into_iter()
            .find(|(name, _)| *name == word)
            .map(|(_, scopes)| scopes)
            .ok_or_else(|| ParseScopeError(word.to_owned()))
    }

    /// The smallest word of ours that holds one of these.
    pub fn smallest_name(self) -> &'static str {
        SCOPE_NAMES.iter().find(|(_, scopes)| scopes.intersects(self)).map_or("admin", |(name, _)| *name)
    }

    /// All of these words.
    pub fn parse_names<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, ParseScopeError> {
        words.into_iter().try_fold(Self::NONE, |all, word| Ok(all.union(Self::parse_name(word)?)))
    }

    /// The fewest words of ours that say this. What came from elsewhere (a single WLCG scope) may need words of its own.
    pub fn to_names(self) -> Vec<&'static str> {
        if Self::ALL.is_within(self) {
            return vec!["admin"];
        }
        let mut names: Vec<&str> = SCOPE_NAMES
            .iter()
            .filter(|(name, scopes)| *name != "read" && scopes.is_within(self))
            .map(|(name, _)| *name)
            .collect();
        if names.is_empty() && self.has(TokenScope::Read) {
            names.push("read");
        }
        let parts =
            [(TokenScope::Create, "create"), (TokenScope::Modify, "modify"), (TokenScope::Cancel, "cancel")];
        if !Self::WRITE.is_within(self) {
            names.extend(parts.into_iter().filter(|(scope, _)| self.has(*scope)).map(|(_, name)| name));
        }
        let bound = [(TokenScope::Job, "job"), (TokenScope::Allocation, "allocation")];
        names.extend(bound.into_iter().filter(|(scope, _)| self.has(*scope)).map(|(_, name)| name));
        names
    }
}

/// How somebody showed who he is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// With the token that the server made for its owner at start.
    Owner,
    Token {
        id: i64,
        name: Arc<str>,
    },
    Password,
    Jwt {
        issuer: Arc<str>,
    },
    Certificate,
    /// With the token of a job that runs.
    Job,
    /// Not at all: the server runs with `--no-auth`.
    Open,
}

impl AuthMethod {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Token { .. } => "token",
            Self::Password => "password",
            Self::Jwt { .. } => "jwt",
            Self::Certificate => "certificate",
            Self::Job => "job",
            Self::Open => "open",
        }
    }
}

/// The one object that a credential is for. All others do not exist for its bearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialBinding {
    /// An attempt of a job: its workflow, as long as it runs.
    Job(AttemptKey),
    /// A workflow action that runs.
    Action(WorkflowId),
    /// A Slurm allocation, for the workflow that it was made for.
    Allocation { allocation: AllocationId, workflow: WorkflowId },
}

impl CredentialBinding {
    pub const fn workflow(&self) -> WorkflowId {
        match self {
            Self::Job(key) => key.workflow,
            Self::Action(workflow) | Self::Allocation { workflow, .. } => *workflow,
        }
    }
}

/// Somebody who was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub user: Arc<str>,
    pub role: UserRole,
    pub scopes: TokenScopes,
    /// That whoever vouches for him says he belongs to; the books may know of more.
    pub groups: Vec<Arc<str>>,
    pub method: AuthMethod,
    /// When what he showed is no longer good.
    pub expires: Option<Timestamp>,
    /// `None`: the credential is not tied to an object.
    pub binding: Option<CredentialBinding>,
}

impl Principal {
    /// Somebody with all scopes, as for the owner and people with passwords.
    pub fn with_all_scopes(user: &str, role: UserRole, method: AuthMethod) -> Self {
        Self {
            user: user.into(),
            role,
            scopes: TokenScopes::ALL,
            groups: Vec::new(),
            method,
            expires: None,
            binding: None,
        }
    }

    /// Whether he sees everybody's workflows.
    pub fn sees_all(&self) -> bool {
        self.role >= UserRole::Operator && self.binding.is_none()
    }

    /// Whether the credential may be used for this workflow at all. What it may do there, the role and scopes say.
    pub fn covers_workflow(&self, workflow: WorkflowId) -> bool {
        self.binding.is_none_or(|bound| bound.workflow() == workflow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_scopes_are_read_back() {
        for words in [
            vec!["read"],
            vec!["write"],
            vec!["worker"],
            vec!["agent"],
            vec!["worker", "write"],
            vec!["admin"],
        ] {
            let scopes = TokenScopes::parse_names(words.iter().copied()).unwrap();
            assert_eq!(scopes.to_names(), words);
        }
        assert!(TokenScopes::WRITE.has(TokenScope::Read), "who may write may read");
        assert!(!TokenScopes::WRITE.has(TokenScope::Admin));
        assert!(!TokenScopes::WORKER.has(TokenScope::Modify));
        assert!(
            !TokenScopes::AGENT.has(TokenScope::Modify)
                && TokenScopes::AGENT.is_within(TokenScopes::WRITE.grantable())
        );
        assert_eq!(TokenScopes::READ.with(TokenScope::Cancel).to_names(), ["read", "cancel"]);
        let least = [TokenScope::Read, TokenScope::Work, TokenScope::Modify, TokenScope::Admin]
            .map(|scope| TokenScopes::NONE.with(scope).smallest_name());
        assert_eq!(least, ["read", "worker", "write", "admin"]);
        assert!(!TokenScopes::ALL.has(TokenScope::Job) && !TokenScopes::ALL.has(TokenScope::Allocation));
        assert!(TokenScopes::parse_name("everything").is_err());
    }

    #[test]
    fn roles_are_ordered() {
        assert!(UserRole::ALL.is_sorted());
        for role in UserRole::ALL {
            assert_eq!(role.name().parse::<UserRole>().unwrap(), role);
        }
        assert!("root".parse::<UserRole>().is_err());
    }
}

//! An authenticated principal: user name, role and scopes.

use std::fmt;
use std::sync::Arc;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{AllocationId, Timestamp, WorkflowId};

/// Role of a user on this server, from least to most. Each includes all permissions of the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UserRole {
    /// Reads own and shared objects.
    Viewer,
    /// Also creates workflows, and changes own and shared ones.
    User,
    /// Sees all workflows and acts on them.
    Operator,
    /// Also administers the server: tokens of all users, groups, reloading.
    Admin,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown role `{0}`; roles are viewer, user, operator and admin")]
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

/// A scope of a credential, as fine-grained as WLCG tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenScope {
    Read,
    Create,
    Modify,
    Cancel,
    /// Run jobs: register workers, claim, report.
    Work,
    Admin,
    /// Decide about failures as an agent, as far as the workflow's triage policy permits.
    Decide,
    /// Act from inside a job: read its workflow, add jobs to it, change its user data.
    Job,
    /// Run the jobs of one Slurm allocation.
    Allocation,
}

/// Scopes of a credential. They limit it: what its user may do at all depends on the role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TokenScopes(u16);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown scope `{0}`; scopes are read, write, worker, agent and admin")]
pub struct ParseScopeError(String);

/// Names of the scope sets that tokens are created with, smallest first.
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
    /// Scope of a job's token. Not part of [`TokenScopes::ALL`]: the operations that jobs may perform list it.
    pub const JOB: Self = Self::NONE.with(TokenScope::Job);
    /// Scope of the token of an allocation's workers.
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

    /// Returns the scopes that a token created with these may have. A caller that may change workflows may let
    /// an agent decide about their failures.
    #[must_use]
    pub const fn grantable(self) -> Self {
        if self.has(TokenScope::Modify) { self.with(TokenScope::Decide) } else { self }
    }

    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Parses a name: `read`, `write`, `worker`, `agent`, `admin`.
    pub fn parse_name(word: &str) -> Result<Self, ParseScopeError> {
        SCOPE_NAMES
            .into_iter()
            .find(|(name, _)| *name == word)
            .map(|(_, scopes)| scopes)
            .ok_or_else(|| ParseScopeError(word.to_owned()))
    }

    /// Returns the smallest named scope that contains one of these.
    pub fn smallest_name(self) -> &'static str {
        SCOPE_NAMES.iter().find(|(_, scopes)| scopes.intersects(self)).map_or("admin", |(name, _)| *name)
    }

    /// Returns all names.
    pub fn parse_names<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, ParseScopeError> {
        words.into_iter().try_fold(Self::NONE, |all, word| Ok(all.union(Self::parse_name(word)?)))
    }

    /// Returns the fewest names that describe the scopes. Foreign scopes (a single WLCG scope) may need names
    /// of their own.
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

/// How a caller was authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthMethod {
    /// The token that the server created for its owner at start.
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
    /// The token of a running job.
    Job,
    /// Not authenticated: the server runs with `--no-auth`.
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

/// The object that a credential is limited to. All others are hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CredentialBinding {
    /// An attempt of a job: its workflow, while the job runs.
    Job(AttemptKey),
    /// A running workflow action.
    Action(WorkflowId),
    /// A Slurm allocation, for the workflow that it was created for.
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

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub user: Arc<str>,
    pub role: UserRole,
    pub scopes: TokenScopes,
    /// Groups asserted by the identity provider; the database may have more.
    pub groups: Vec<Arc<str>>,
    pub method: AuthMethod,
    /// When the credential expires.
    pub expires: Option<Timestamp>,
    /// `None`: the credential is not limited to an object.
    pub binding: Option<CredentialBinding>,
}

impl Principal {
    /// Creates a principal with all scopes, as for the owner and users with passwords.
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

    /// Whether the caller sees the workflows of all users.
    pub fn sees_all(&self) -> bool {
        self.role >= UserRole::Operator && self.binding.is_none()
    }

    /// Whether the credential may be used for this workflow at all. What it may do there depends on role and
    /// scopes.
    pub fn covers_workflow(&self, workflow: WorkflowId) -> bool {
        self.binding.is_none_or(|bound| bound.workflow() == workflow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_names_round_trip() {
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
        assert!(TokenScopes::WRITE.has(TokenScope::Read), "write includes read");
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

//! Somebody who was let in: his name, his role, and what he was let in for.

use std::fmt;
use std::sync::Arc;
use windlass_types::work::AttemptKey;
use windlass_types::{AllocationId, Timestamp, WorkflowId};

/// What a person is on this server, from least to most. Each may do all that the ones before may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
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

impl Role {
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

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| ParseRoleError(text.to_owned()))
    }
}

/// A kind of thing that a credential is good for. As fine as WLCG tokens tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
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
pub struct Scopes(u16);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no scope `{0}`; scopes are read, write, worker, agent and admin")]
pub struct ParseScopeError(String);

/// The words for sets of scopes that tokens are made with, smallest first.
const WORDS: [(&str, Scopes); 5] = [
    ("read", Scopes::READ),
    ("worker", Scopes::WORKER),
    ("agent", Scopes::AGENT),
    ("write", Scopes::WRITE),
    ("admin", Scopes::ALL),
];

impl Scopes {
    pub const NONE: Self = Self(0);
    pub const READ: Self = Self::NONE.with(Scope::Read);
    pub const WRITE: Self = Self::READ.with(Scope::Create).with(Scope::Modify).with(Scope::Cancel);
    pub const AGENT: Self = Self::READ.with(Scope::Decide);
    pub const WORKER: Self = Self::READ.with(Scope::Work);
    /// Of a token that a job gets. It is no part of [`Scopes::ALL`]: operations list it where a job may do them.
    pub const JOB: Self = Self::NONE.with(Scope::Job);
    /// Of a token that the workers of an allocation get.
    pub const ALLOCATION: Self = Self::NONE.with(Scope::Allocation);
    pub const ALL: Self = Self::WRITE.with(Scope::Work).with(Scope::Admin);

    #[must_use]
    pub const fn with(self, scope: Scope) -> Self {
        Self(self.0 | 1 << scope as u16)
    }

    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn has(self, scope: Scope) -> bool {
        self.0 & 1 << scope as u16 != 0
    }

    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// What tokens may be good for that are made with these. Whoever may change workflows may have an agent decide about
    /// their failures.
    #[must_use]
    pub const fn grantable(self) -> Self {
        if self.has(Scope::Modify) { self.with(Scope::Decide) } else { self }
    }

    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// A word of ours: `read`, `write`, `worker`, `agent`, `admin`.
    pub fn word(word: &str) -> Result<Self, ParseScopeError> {
        WORDS
            .into_iter()
            .find(|(name, _)| *name == word)
            .map(|(_, scopes)| scopes)
            .ok_or_else(|| ParseScopeError(word.to_owned()))
    }

    /// The smallest word of ours that holds one of these.
    pub fn least_word(self) -> &'static str {
        WORDS.iter().find(|(_, scopes)| scopes.meets(self)).map_or("admin", |(name, _)| *name)
    }

    /// All of these words.
    pub fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, ParseScopeError> {
        words.into_iter().try_fold(Self::NONE, |all, word| Ok(all.and(Self::word(word)?)))
    }

    /// The fewest words of ours that say this. What came from elsewhere (a single WLCG scope) may need words of its own.
    pub fn named(self) -> Vec<&'static str> {
        if Self::ALL.is_within(self) {
            return vec!["admin"];
        }
        let mut names: Vec<&str> = WORDS
            .iter()
            .filter(|(name, scopes)| *name != "read" && scopes.is_within(self))
            .map(|(name, _)| *name)
            .collect();
        if names.is_empty() && self.has(Scope::Read) {
            names.push("read");
        }
        let parts = [(Scope::Create, "create"), (Scope::Modify, "modify"), (Scope::Cancel, "cancel")];
        if !Self::WRITE.is_within(self) {
            names.extend(parts.into_iter().filter(|(scope, _)| self.has(*scope)).map(|(_, name)| name));
        }
        let bound = [(Scope::Job, "job"), (Scope::Allocation, "allocation")];
        names.extend(bound.into_iter().filter(|(scope, _)| self.has(*scope)).map(|(_, name)| name));
        names
    }
}

/// How somebody showed who he is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
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

impl How {
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
pub enum Binding {
    /// An attempt of a job: its workflow, as long as it runs.
    Job(AttemptKey),
    /// A workflow action that runs.
    Action(WorkflowId),
    /// A Slurm allocation, for the workflow that it was made for.
    Allocation { allocation: AllocationId, workflow: WorkflowId },
}

impl Binding {
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
    pub role: Role,
    pub scopes: Scopes,
    /// That whoever vouches for him says he belongs to; the books may know of more.
    pub groups: Vec<Arc<str>>,
    pub how: How,
    /// When what he showed is no longer good.
    pub expires: Option<Timestamp>,
    /// `None`: the credential is not tied to an object.
    pub bound: Option<Binding>,
}

impl Principal {
    /// Somebody with all scopes, as for the owner and people with passwords.
    pub fn full(user: &str, role: Role, how: How) -> Self {
        Self {
            user: user.into(),
            role,
            scopes: Scopes::ALL,
            groups: Vec::new(),
            how,
            expires: None,
            bound: None,
        }
    }

    /// Whether he sees everybody's workflows.
    pub fn sees_all(&self) -> bool {
        self.role >= Role::Operator && self.bound.is_none()
    }

    /// Whether the credential may be used for this workflow at all. What it may do there, the role and scopes say.
    pub fn reaches(&self, workflow: WorkflowId) -> bool {
        self.bound.is_none_or(|bound| bound.workflow() == workflow)
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
            let scopes = Scopes::words(words.iter().copied()).unwrap();
            assert_eq!(scopes.named(), words);
        }
        assert!(Scopes::WRITE.has(Scope::Read), "who may write may read");
        assert!(!Scopes::WRITE.has(Scope::Admin));
        assert!(!Scopes::WORKER.has(Scope::Modify));
        assert!(!Scopes::AGENT.has(Scope::Modify) && Scopes::AGENT.is_within(Scopes::WRITE.grantable()));
        assert_eq!(Scopes::READ.with(Scope::Cancel).named(), ["read", "cancel"]);
        let least = [Scope::Read, Scope::Work, Scope::Modify, Scope::Admin]
            .map(|scope| Scopes::NONE.with(scope).least_word());
        assert_eq!(least, ["read", "worker", "write", "admin"]);
        assert!(!Scopes::ALL.has(Scope::Job) && !Scopes::ALL.has(Scope::Allocation));
        assert!(Scopes::word("everything").is_err());
    }

    #[test]
    fn roles_are_ordered() {
        assert!(Role::ALL.is_sorted());
        for role in Role::ALL {
            assert_eq!(role.name().parse::<Role>().unwrap(), role);
        }
        assert!("root".parse::<Role>().is_err());
    }
}

//! Counts of attempts by node role. A completed landing does not exonerate a site where all jobs fail, so
//! attempts are only compared with others of the same roles.

use serde::{Deserialize, Serialize};
use windlass_types::requests::NodeRole;

/// Number of attempts of each role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredRoleCounts")]
pub struct RoleCounts {
    #[serde(skip_serializing_if = "is_none")]
    pub landing: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub processing: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub merge: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub cleanup: u64,
}

/// Old databases contain a single number without roles.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredRoleCounts {
    Together(u64),
    Apart {
        #[serde(default)]
        landing: u64,
        #[serde(default)]
        processing: u64,
        #[serde(default)]
        merge: u64,
        #[serde(default)]
        cleanup: u64,
    },
}

impl From<StoredRoleCounts> for RoleCounts {
    fn from(written: StoredRoleCounts) -> Self {
        match written {
            StoredRoleCounts::Together(processing) => Self { processing, ..Self::default() },
            StoredRoleCounts::Apart { landing, processing, merge, cleanup } => {
                Self { landing, processing, merge, cleanup }
            }
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
const fn is_none(count: &u64) -> bool {
    *count == 0
}

impl RoleCounts {
    /// Creates counts with one role.
    pub fn for_role(role: NodeRole, attempts: u64) -> Self {
        let mut counts = Self::default();
        counts.add_attempts(role, attempts);
        counts
    }

    /// Adds attempts of a role.
    pub const fn add_attempts(&mut self, role: NodeRole, attempts: u64) {
        let counted = match role {
            NodeRole::Landing => &mut self.landing,
            NodeRole::Processing => &mut self.processing,
            NodeRole::Merge => &mut self.merge,
            NodeRole::Cleanup => &mut self.cleanup,
        };
        *counted = counted.saturating_add(attempts);
    }

    pub const fn get(self, role: NodeRole) -> u64 {
        match role {
            NodeRole::Landing => self.landing,
            NodeRole::Processing => self.processing,
            NodeRole::Merge => self.merge,
            NodeRole::Cleanup => self.cleanup,
        }
    }

    pub fn total(self) -> u64 {
        NodeRole::ALL.iter().map(|role| self.get(*role)).sum()
    }

    /// Returns the number of attempts whose role also occurs in `others`, for comparison. All of them if the
    /// roles of the others are unknown.
    pub fn comparable_with(self, others: Self) -> u64 {
        let of = |role: &&NodeRole| others == Self::default() || others.get(**role) > 0;
        NodeRole::ALL.iter().filter(of).map(|role| self.get(*role)).sum()
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        self.combine(other, u64::saturating_sub)
    }

    /// Returns the maximum of both for each role.
    #[must_use]
    pub fn max_by_role(self, other: Self) -> Self {
        self.combine(other, Ord::max)
    }

    fn combine(self, other: Self, both: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            landing: both(self.landing, other.landing),
            processing: both(self.processing, other.processing),
            merge: both(self.merge, other.merge),
            cleanup: both(self.cleanup, other.cleanup),
        }
    }
}

impl std::iter::Sum for RoleCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Self::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attempts_of_the_same_roles_are_compared() {
        let ended = RoleCounts { landing: 50, processing: 40, merge: 10, cleanup: 10 };
        let of = |role| RoleCounts::for_role(role, 1);
        for (others, expected) in [
            (of(NodeRole::Processing), 40),
            (of(NodeRole::Landing), 50),
            (of(NodeRole::Merge).plus(of(NodeRole::Processing)), 50),
            (RoleCounts::default(), 110),
        ] {
            assert_eq!(ended.comparable_with(others), expected, "{others:?}");
        }
    }

    #[test]
    fn tally_without_roles_is_read() {
        let counts = RoleCounts { processing: 7, merge: 1, ..RoleCounts::default() };
        let text = serde_json::to_string(&counts).unwrap();
        assert_eq!(text, r#"{"processing":7,"merge":1}"#);
        assert_eq!(serde_json::from_str::<RoleCounts>(&text).unwrap(), counts);
        assert_eq!(
            serde_json::from_str::<RoleCounts>("9").unwrap(),
            RoleCounts::for_role(NodeRole::Processing, 9)
        );
    }
}

//! What is known about a failed attempt.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass_types::worker_messages::AttemptEndCause;
use windlass_types::{Bytes, FailureClass, Resources};

/// Everything known about one failed attempt. Missing stderr, measurements or history are left empty.
#[derive(Clone, Copy, Debug)]
pub struct FailureEvidence<'a> {
    /// 128 + n for a signal.
    pub return_code: i32,
    pub signal: Option<i32>,
    pub cause: TerminationCause,
    /// The end of its stderr. If empty, Windlass's own message about the end.
    pub tail: &'a str,
    pub wall: Duration,
    pub peak_memory: Option<Bytes>,
    /// Explicitly requested resources; defaults limit nothing.
    pub asked: Option<Resources>,
    /// Recent failures of its worker.
    pub node: Option<NodeFailureCounts>,
}

/// What ended the attempt, as observed by Windlass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TerminationCause {
    /// It exited by itself, or by a signal from outside Windlass.
    Itself,
    Timeout,
    OutOfMemory,
    /// Exit code 0, but declared outputs are missing.
    MissingOutput,
    CannotStart,
    /// Its worker died.
    Orphaned,
    /// A user stopped it.
    Interrupted,
}

/// A resource limit that can end a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceLimit {
    Memory,
    Runtime,
}

/// Recently ended attempts: on this node, and on all other nodes with the same kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFailureCounts {
    pub failed: u32,
    pub ended: u32,
    pub peers_failed: u32,
    pub peers_ended: u32,
}

impl<'a> FailureEvidence<'a> {
    /// Creates evidence from the exit code and the end of stderr alone.
    pub const fn from_exit(return_code: i32, tail: &'a str) -> Self {
        Self {
            return_code,
            signal: None,
            cause: TerminationCause::Itself,
            tail,
            wall: Duration::ZERO,
            peak_memory: None,
            asked: None,
            node: None,
        }
    }

    /// Returns the signal that ended it. A shell reports a signal of its command as 128 + n.
    pub fn effective_signal(&self) -> Option<i32> {
        let told = || Some(self.return_code - 128).filter(|signal| (1..=31).contains(signal));
        self.signal.or_else(told)
    }

    /// Returns the exit code as a shell would report it.
    pub fn effective_code(&self) -> i32 {
        self.signal.map_or(self.return_code, |signal| 128 + signal)
    }

    /// Whether the failure may have this class. For a job killed from outside its own messages do not count,
    /// only those of the system or the batch system. A signal passed on by a shell or a launcher may have any
    /// cause.
    pub(super) const fn can_be_due_to(&self, class: FailureClass) -> bool {
        const SIGKILL: i32 = 9;
        const SIGTERM: i32 = 15;
        !matches!(self.signal, Some(SIGKILL | SIGTERM))
            || matches!(class, FailureClass::Memory | FailureClass::Timeout | FailureClass::Infrastructure)
    }

    /// Whether it used at least 95 % of its request.
    pub(super) fn is_near_limit(&self, limit: ResourceLimit) -> bool {
        let Some(asked) = self.asked else { return false };
        let (used, asked) = match limit {
            ResourceLimit::Memory => {
                (self.peak_memory.map(|peak| u128::from(peak.0)), Some(u128::from(asked.memory.0)))
            }
            ResourceLimit::Runtime => {
                (Some(self.wall.as_millis()), asked.runtime.map(|runtime| runtime.as_millis()))
            }
        };
        matches!((used, asked), (Some(used), Some(asked)) if asked > 0 && used * 100 >= asked * 95)
    }
}

impl TerminationCause {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Itself => "itself",
            Self::Timeout => "timeout",
            Self::OutOfMemory => "out_of_memory",
            Self::MissingOutput => "missing_output",
            Self::CannotStart => "cannot_start",
            Self::Orphaned => "orphaned",
            Self::Interrupted => "interrupted",
        }
    }

    /// Whether Windlass observed the cause, so that the output of the program does not matter.
    pub const fn is_certain(self) -> bool {
        !matches!(self, Self::Itself | Self::MissingOutput)
    }
}

impl From<&AttemptEndCause> for TerminationCause {
    fn from(cause: &AttemptEndCause) -> Self {
        match cause {
            AttemptEndCause::Itself => Self::Itself,
            AttemptEndCause::Timeout => Self::Timeout,
            AttemptEndCause::OutOfMemory => Self::OutOfMemory,
            AttemptEndCause::Stopped(_) => Self::Interrupted,
            AttemptEndCause::MissingOutputs(_) => Self::MissingOutput,
            AttemptEndCause::CannotStart(_) => Self::CannotStart,
        }
    }
}

impl NodeFailureCounts {
    /// Fewer failures prove nothing.
    const MIN_FAILED: u32 = 3;
    const MIN_PEERS: u32 = 5;

    /// Whether the node fails at least half of its attempts, and at least three times as often as its peers.
    pub fn is_suspicious(&self) -> bool {
        let [failed, ended, peers_failed, peers_ended] =
            [self.failed, self.ended, self.peers_failed, self.peers_ended].map(u128::from);
        self.failed >= Self::MIN_FAILED
            && self.peers_ended >= Self::MIN_PEERS
            && failed * 2 >= ended
            && failed * peers_ended >= 3 * peers_failed * ended
    }

    pub(super) fn describe_counts(&self) -> String {
        format!(
            "this node failed {} of its last {} attempts, the others {} of {}",
            self.failed, self.ended, self.peers_failed, self.peers_ended
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_exit_code_gives_the_signal() {
        let of =
            |return_code, signal| FailureEvidence { signal, ..FailureEvidence::from_exit(return_code, "") };
        assert_eq!((of(139, None).effective_signal(), of(139, None).effective_code()), (Some(11), 139));
        assert_eq!((of(9, Some(9)).effective_signal(), of(9, Some(9)).effective_code()), (Some(9), 137));
        for code in [0, 1, 127, 128, 160, 255, -128] {
            assert_eq!(of(code, None).effective_signal(), None, "{code}");
        }
    }

    #[test]
    fn limits_count_only_with_explicit_requests() {
        let asked =
            Resources { memory: Bytes(1000), runtime: Some(Duration::from_secs(100)), ..Resources::DEFAULT };
        let of = |peak, wall| FailureEvidence {
            peak_memory: Some(Bytes(peak)),
            wall: Duration::from_secs(wall),
            asked: Some(asked),
            ..FailureEvidence::from_exit(137, "")
        };
        assert!(
            of(950, 0).is_near_limit(ResourceLimit::Memory)
                && !of(949, 0).is_near_limit(ResourceLimit::Memory)
        );
        assert!(
            of(0, 95).is_near_limit(ResourceLimit::Runtime)
                && !of(0, 94).is_near_limit(ResourceLimit::Runtime)
        );
        let unasked = FailureEvidence { asked: None, ..of(950, 95) };
        assert!(
            !unasked.is_near_limit(ResourceLimit::Memory) && !unasked.is_near_limit(ResourceLimit::Runtime)
        );
        let unlimited = FailureEvidence { asked: Some(Resources { runtime: None, ..asked }), ..of(0, 95) };
        assert!(!unlimited.is_near_limit(ResourceLimit::Runtime));
    }

    #[test]
    fn node_is_suspicious_if_peers_fail_less() {
        let of = |failed, ended, peers_failed, peers_ended| {
            NodeFailureCounts { failed, ended, peers_failed, peers_ended }.is_suspicious()
        };
        assert!(of(3, 3, 0, 5) && of(9, 10, 10, 100) && of(5, 10, 16, 100));
        assert!(!of(2, 2, 0, 100), "too few");
        assert!(!of(9, 9, 0, 4), "too few peers");
        assert!(!of(3, 10, 0, 100), "most of its attempts succeed");
        assert!(!of(9, 10, 40, 100), "the jobs themselves fail");
        assert!(!of(10, 10, 100, 100));
        assert!(of(u32::MAX, u32::MAX, 0, u32::MAX));
    }
}

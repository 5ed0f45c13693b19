//! What is known about an attempt that did not end well.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass_types::worker_messages::AttemptEndCause;
use windlass_types::{Bytes, FailureClass, Resources};

/// All that is known of one failed attempt. Whoever has no stderr, no measurements or no history leaves them out.
#[derive(Clone, Copy, Debug)]
pub struct FailureEvidence<'a> {
    /// 128 + n for a signal.
    pub return_code: i32,
    pub signal: Option<i32>,
    pub cause: TerminationCause,
    /// The last words of its stderr. Where there are none, what Windlass itself noted about the end.
    pub tail: &'a str,
    pub wall: Duration,
    pub peak_memory: Option<Bytes>,
    /// What somebody asked for; no default, which limits nothing.
    pub asked: Option<Resources>,
    /// How its worker did lately.
    pub node: Option<NodeFailureCounts>,
}

/// Who or what ended the attempt, as far as Windlass saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TerminationCause {
    /// It ended by itself, or by a signal from outside Windlass.
    Itself,
    Timeout,
    OutOfMemory,
    /// Exit code 0 without its declared outputs.
    MissingOutput,
    CannotStart,
    /// Its worker died.
    Orphaned,
    /// Somebody stopped it.
    Interrupted,
}

/// What a job can come near to before it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceLimit {
    Memory,
    Runtime,
}

/// Attempts that ended lately: on this node, and on all others that did the same kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFailureCounts {
    pub failed: u32,
    pub ended: u32,
    pub peers_failed: u32,
    pub peers_ended: u32,
}

impl<'a> FailureEvidence<'a> {
    /// An attempt of which only the exit code and the last words are known.
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

    /// The signal that ended it. A shell tells of the signal that ended its command by 128 + n.
    pub fn effective_signal(&self) -> Option<i32> {
        let told = || Some(self.return_code - 128).filter(|signal| (1..=31).contains(signal));
        self.signal.or_else(told)
    }

    /// The exit code, as a shell would tell it.
    pub fn effective_code(&self) -> i32 {
        self.signal.map_or(self.return_code, |signal| 128 + signal)
    }

    /// Whoever was killed from outside did not end for what it said itself: only what the system or the batch system
    /// says then counts. A signal that a shell or a launcher passes on may be due to anything.
    pub(super) const fn can_be_due_to(&self, class: FailureClass) -> bool {
        const SIGKILL: i32 = 9;
        const SIGTERM: i32 = 15;
        !matches!(self.signal, Some(SIGKILL | SIGTERM))
            || matches!(class, FailureClass::Memory | FailureClass::Timeout | FailureClass::Infrastructure)
    }

    /// Used at least 95 % of what it had asked for.
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

    /// Windlass saw why it ended, so what the program said last does not matter.
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
    /// Too few say nothing.
    const MIN_FAILED: u32 = 3;
    const MIN_PEERS: u32 = 5;

    /// It fails at least half of what it is given, and at least three times as often as its peers.
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
    fn a_shell_tells_signals_by_its_code() {
        let of =
            |return_code, signal| FailureEvidence { signal, ..FailureEvidence::from_exit(return_code, "") };
        assert_eq!((of(139, None).effective_signal(), of(139, None).effective_code()), (Some(11), 139));
        assert_eq!((of(9, Some(9)).effective_signal(), of(9, Some(9)).effective_code()), (Some(9), 137));
        for code in [0, 1, 127, 128, 160, 255, -128] {
            assert_eq!(of(code, None).effective_signal(), None, "{code}");
        }
    }

    #[test]
    fn limits_count_only_where_somebody_asked() {
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
    fn a_node_is_suspicious_beside_peers_that_do_better() {
        let of = |failed, ended, peers_failed, peers_ended| {
            NodeFailureCounts { failed, ended, peers_failed, peers_ended }.is_suspicious()
        };
        assert!(of(3, 3, 0, 5) && of(9, 10, 10, 100) && of(5, 10, 16, 100));
        assert!(!of(2, 2, 0, 100), "too few");
        assert!(!of(9, 9, 0, 4), "too few peers");
        assert!(!of(3, 10, 0, 100), "it does most of its work");
        assert!(!of(9, 10, 40, 100), "the work itself fails");
        assert!(!of(10, 10, 100, 100));
        assert!(of(u32::MAX, u32::MAX, 0, u32::MAX));
    }
}

//! What became of an allocation, in plain words: for people who wonder why an attempt was lost, or a job waits.

use super::reasons;
use crate::judge::INTERRUPTED;
use std::fmt;
use windlass_types::AllocationId;
use windlass_types::slurm::{Allocation, AllocationState, SlurmState};

/// `allocation 12 (Slurm job 4711)`.
pub fn name(row: &Allocation) -> String {
    named(row.id, row.job_id)
}

fn named(id: AllocationId, job: Option<u64>) -> String {
    match job {
        Some(job) => format!("allocation {id} (Slurm job {job})"),
        None => format!("allocation {id}"),
    }
}

/// `allocation 12 (Slurm job 4711) was preempted`.
pub fn in_words(row: &Allocation) -> String {
    format!("{} {}", name(row), fate(row))
}

/// What is said of an attempt that was stopped when its allocation ended: `interrupted: allocation 12 (Slurm job 4711) was
/// preempted`. One that its worker left in time was not ended by anybody.
pub fn interruption(row: &Allocation) -> String {
    let fate = if row.end == Some(SlurmState::Completed) { "came to its end".to_owned() } else { fate(row) };
    format!("{INTERRUPTED}: {} {fate}", name(row))
}

/// Whether what ran in an allocation is certainly gone because of how that ended: its node has told that its script is over, and
/// there was no other node. That it was cancelled, preempted or out of time is what the controller has decided. Of a node that it
/// cannot reach it says so in the end all the same, and everything may go on there. Then only a worker's goodbye, or the end of its
/// lease, says when its jobs may run elsewhere.
pub fn has_ended_all(row: &Allocation) -> bool {
    use SlurmState::{Completed, Failed, OutOfMemory};
    let is_told = row.end.is_some_and(|end| matches!(end, Completed | Failed | OutOfMemory));
    row.state == AllocationState::Ended && is_told && row.request.nodes <= 1
}

/// An allocation ended for a reason that no job in it is to blame for, as a value that is small enough to be handed around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    allocation: AllocationId,
    job_id: Option<u64>,
    end: SlurmState,
}

impl Eviction {
    /// What an administrator, another job, the hardware or the clock did is nobody's fault. That it ran out of memory, or failed,
    /// may well be some job's.
    pub fn of(row: &Allocation) -> Option<Self> {
        use SlurmState::{BootFail, Cancelled, Deadline, NodeFail, Preempted, Revoked, Timeout};
        let end = row.end.filter(|_| row.state == AllocationState::Ended)?;
        matches!(end, BootFail | Cancelled | Deadline | NodeFail | Preempted | Revoked | Timeout)
            .then_some(Self { allocation: row.id, job_id: row.job_id, end })
    }
}

impl Eviction {
    /// What is said of an attempt that was lost by it: `orphaned: allocation 12 (Slurm job 4711) lost a node`.
    pub fn loss(&self) -> String {
        format!("orphaned: {self}")
    }
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", named(self.allocation, self.job_id), words(self.end))
    }
}

fn fate(row: &Allocation) -> String {
    let because = |words: &str| match &row.reason {
        Some(reason) => format!("{words}: {reason}"),
        None => words.to_owned(),
    };
    match row.state {
        AllocationState::Intended => because("is about to be submitted"),
        AllocationState::Submitting => because("was submitted, and Slurm has not said that it has it"),
        AllocationState::Pending => match &row.reason {
            Some(reason) => format!("waits in Slurm's queue: {}", reasons::in_words(reason)),
            None => "waits in Slurm's queue".to_owned(),
        },
        AllocationState::Running => because("runs"),
        AllocationState::Refused => because("was refused by Slurm"),
        AllocationState::Withdrawn => because("was withdrawn before it was submitted"),
        AllocationState::Completing | AllocationState::Ended => {
            row.end.map_or_else(|| because("is over"), |end| ended(end, row))
        }
    }
}

const fn words(end: SlurmState) -> &'static str {
    match end {
        SlurmState::Completed => "ended by itself",
        SlurmState::Preempted => "was preempted",
        SlurmState::NodeFail => "lost a node",
        SlurmState::BootFail => "got a node that did not start",
        SlurmState::Timeout => "reached its time limit",
        SlurmState::Deadline => "reached its deadline",
        SlurmState::Cancelled => "was cancelled",
        SlurmState::OutOfMemory => "ran out of memory",
        SlurmState::Revoked => "was taken over by another cluster",
        _ => "failed",
    }
}

fn ended(end: SlurmState, row: &Allocation) -> String {
    let words = words(end);
    let code = row.exit_code.as_deref().filter(|code| end == SlurmState::Failed && *code != "0:0");
    match (&row.unwanted, code) {
        (Some(why), _) if end == SlurmState::Cancelled => format!("{words}: {why}"),
        (_, Some(code)) => format!("{words} (exit code {code})"),
        _ => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use windlass_types::Timestamp;

    fn row(state: AllocationState, end: Option<SlurmState>, reason: Option<&str>) -> Allocation {
        serde_json::from_value(json!({
            "id": 12, "workflow": 1, "is_ours": true, "scheduler": null, "tag": "t", "request": {"scheduler": "s"},
            "state": state, "job_id": 4711, "by": "ada", "created_at": Timestamp(0), "reason": reason, "end": end,
            "submitted_at": null, "started_at": null, "ends_at": null, "ended_at": null, "seen_at": null,
        }))
        .unwrap()
    }

    #[test]
    fn every_end_has_its_words() {
        use AllocationState as A;
        for (state, end, reason, words) in [
            (A::Ended, Some(SlurmState::Preempted), None, "was preempted"),
            (A::Ended, Some(SlurmState::NodeFail), None, "lost a node"),
            (A::Ended, Some(SlurmState::Timeout), None, "reached its time limit"),
            (A::Ended, Some(SlurmState::OutOfMemory), None, "ran out of memory"),
            (A::Ended, Some(SlurmState::Completed), None, "ended by itself"),
            (A::Ended, None, Some("it was missing twice"), "is over: it was missing twice"),
            (A::Refused, None, Some("Invalid account"), "was refused by Slurm: Invalid account"),
            (
                A::Pending,
                None,
                Some("Priority"),
                "waits in Slurm's queue: Priority: others are before it in the queue",
            ),
            (A::Pending, None, None, "waits in Slurm's queue"),
            (A::Running, None, None, "runs"),
        ] {
            let told = in_words(&row(state, end, reason));
            assert_eq!(told, format!("allocation 12 (Slurm job 4711) {words}"));
        }
        let left = row(A::Ended, Some(SlurmState::Completed), None);
        assert_eq!(interruption(&left), "interrupted: allocation 12 (Slurm job 4711) came to its end");
        let mut canceled = row(A::Ended, Some(SlurmState::Cancelled), None);
        assert_eq!(interruption(&canceled), "interrupted: allocation 12 (Slurm job 4711) was cancelled");
        assert_eq!(fate(&canceled), "was cancelled");
        canceled.unwanted = Some("all jobs are over".into());
        assert_eq!(fate(&canceled), "was cancelled: all jobs are over");
        let mut failed = row(A::Ended, Some(SlurmState::Failed), None);
        (failed.exit_code, failed.job_id) = (Some("1:0".into()), None);
        assert_eq!(in_words(&failed), "allocation 12 failed (exit code 1:0)");
    }

    #[test]
    fn what_nobody_is_to_blame_for() {
        use AllocationState as A;
        let evicted = |state, end| Eviction::of(&row(state, end, None)).map(|one| one.to_string());
        let preempted = evicted(A::Ended, Some(SlurmState::Preempted));
        assert_eq!(preempted.as_deref(), Some("allocation 12 (Slurm job 4711) was preempted"));
        for end in [SlurmState::NodeFail, SlurmState::Timeout, SlurmState::Cancelled, SlurmState::BootFail] {
            assert!(evicted(A::Ended, Some(end)).is_some(), "{end}");
        }
        for end in [SlurmState::OutOfMemory, SlurmState::Failed, SlurmState::Completed] {
            assert_eq!(evicted(A::Ended, Some(end)), None, "{end}");
        }
        assert_eq!((evicted(A::Ended, None), evicted(A::Running, None)), (None, None));
        assert_eq!(evicted(A::Completing, Some(SlurmState::Timeout)), None, "its processes may live");
    }

    #[test]
    fn only_a_node_says_that_nothing_runs_on_it() {
        use AllocationState as A;
        for (state, end, nodes, expected) in [
            (A::Ended, Some(SlurmState::Completed), 1, true),
            (A::Ended, Some(SlurmState::Failed), 1, true),
            (A::Ended, Some(SlurmState::OutOfMemory), 1, true),
            // The first of them has told.
            (A::Ended, Some(SlurmState::Completed), 2, false),
            // So it ends on a node that is lost while Slurm waits for its end.
            (A::Ended, Some(SlurmState::Cancelled), 1, false),
            (A::Ended, Some(SlurmState::Preempted), 1, false),
            (A::Ended, Some(SlurmState::Timeout), 1, false),
            (A::Ended, Some(SlurmState::Deadline), 1, false),
            (A::Ended, Some(SlurmState::NodeFail), 1, false),
            (A::Completing, Some(SlurmState::Completed), 1, false),
            (A::Ended, None, 1, false),
        ] {
            let mut row = row(state, end, None);
            row.request.nodes = nodes;
            assert_eq!(has_ended_all(&row), expected, "{state:?} {end:?} {nodes}");
        }
    }
}

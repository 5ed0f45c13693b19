//! The end of an allocation in plain words: explains why an attempt was lost, or why a job waits.

use super::pending_reasons;
use crate::attempt_outcome::INTERRUPTED;
use std::fmt;
use windlass_types::AllocationId;
use windlass_types::slurm::{Allocation, AllocationState, SlurmJobState};

/// `allocation 12 (Slurm job 4711)`.
pub fn allocation_name(row: &Allocation) -> String {
    format_name(row.id, row.job_id)
}

fn format_name(id: AllocationId, job: Option<u64>) -> String {
    match job {
        Some(job) => format!("allocation {id} (Slurm job {job})"),
        None => format!("allocation {id}"),
    }
}

/// `allocation 12 (Slurm job 4711) was preempted`.
pub fn describe_end(row: &Allocation) -> String {
    format!("{} {}", allocation_name(row), end_text(row))
}

/// Reason of an attempt that was stopped when its allocation ended: `interrupted: allocation 12 (Slurm job
/// 4711) was preempted`. A worker that left in time was not stopped.
pub fn interruption_reason(row: &Allocation) -> String {
    let ending =
        if row.end == Some(SlurmJobState::Completed) { "came to its end".to_owned() } else { end_text(row) };
    format!("{INTERRUPTED}: {} {ending}", allocation_name(row))
}

/// Whether all processes of an allocation have certainly ended: its node has reported the end of the script,
/// and there was no other node. Cancellation, preemption and timeouts are decisions of the controller. For an
/// unreachable node it reports them eventually, while processes may continue there. Then only the worker's
/// shutdown message, or the end of its lease, allows its jobs to run elsewhere.
pub fn ended_all_processes(row: &Allocation) -> bool {
    use SlurmJobState::{Completed, Failed, OutOfMemory};
    let is_told = row.end.is_some_and(|end| matches!(end, Completed | Failed | OutOfMemory));
    row.state == AllocationState::Ended && is_told && row.request.nodes <= 1
}

/// An allocation that ended for a reason unrelated to its jobs, as a small value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationEviction {
    allocation: AllocationId,
    job_id: Option<u64>,
    end: SlurmJobState,
}

impl AllocationEviction {
    /// Administrators, other jobs, hardware and time limits are unrelated to a job. Out of memory and failures
    /// may be caused by a job.
    pub fn from_allocation(row: &Allocation) -> Option<Self> {
        use SlurmJobState::{BootFail, Cancelled, Deadline, NodeFail, Preempted, Revoked, Timeout};
        let end = row.end.filter(|_| row.state == AllocationState::Ended)?;
        matches!(end, BootFail | Cancelled | Deadline | NodeFail | Preempted | Revoked | Timeout)
            .then_some(Self { allocation: row.id, job_id: row.job_id, end })
    }
}

impl AllocationEviction {
    /// Reason of an attempt that was lost with it: `orphaned: allocation 12 (Slurm job 4711) lost a node`.
    pub fn loss_reason(&self) -> String {
        format!("orphaned: {self}")
    }
}

impl fmt::Display for AllocationEviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", format_name(self.allocation, self.job_id), state_text(self.end))
    }
}

fn end_text(row: &Allocation) -> String {
    let because = |words: &str| match &row.reason {
        Some(reason) => format!("{words}: {reason}"),
        None => words.to_owned(),
    };
    match row.state {
        AllocationState::Intended => because("is about to be submitted"),
        AllocationState::Submitting => because("was submitted, and Slurm has not confirmed it"),
        AllocationState::Pending => match &row.reason {
            Some(reason) => format!("waits in Slurm's queue: {}", pending_reasons::describe_reason(reason)),
            None => "waits in Slurm's queue".to_owned(),
        },
        AllocationState::Running => because("runs"),
        AllocationState::Refused => because("was refused by Slurm"),
        AllocationState::Withdrawn => because("was withdrawn before it was submitted"),
        AllocationState::Completing | AllocationState::Ended => {
            row.end.map_or_else(|| because("is over"), |end| ended_text(end, row))
        }
    }
}

const fn state_text(end: SlurmJobState) -> &'static str {
    match end {
        SlurmJobState::Completed => "ended by itself",
        SlurmJobState::Preempted => "was preempted",
        SlurmJobState::NodeFail => "lost a node",
        SlurmJobState::BootFail => "got a node that did not start",
        SlurmJobState::Timeout => "reached its time limit",
        SlurmJobState::Deadline => "reached its deadline",
        SlurmJobState::Cancelled => "was cancelled",
        SlurmJobState::OutOfMemory => "ran out of memory",
        SlurmJobState::Revoked => "was taken over by another cluster",
        _ => "failed",
    }
}

fn ended_text(end: SlurmJobState, row: &Allocation) -> String {
    let words = state_text(end);
    let code = row.exit_code.as_deref().filter(|code| end == SlurmJobState::Failed && *code != "0:0");
    match (&row.unwanted, code) {
        (Some(why), _) if end == SlurmJobState::Cancelled => format!("{words}: {why}"),
        (_, Some(code)) => format!("{words} (exit code {code})"),
        _ => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use windlass_types::Timestamp;

    fn row(state: AllocationState, end: Option<SlurmJobState>, reason: Option<&str>) -> Allocation {
        serde_json::from_value(json!({
            "id": 12, "workflow": 1, "is_ours": true, "scheduler": null, "tag": "t", "request": {"scheduler": "s"},
            "state": state, "job_id": 4711, "by": "ada", "created_at": Timestamp(0), "reason": reason, "end": end,
            "submitted_at": null, "started_at": null, "ends_at": null, "ended_at": null, "seen_at": null,
        }))
        .unwrap()
    }

    #[test]
    fn every_allocation_end_has_a_text() {
        use AllocationState as A;
        for (state, end, reason, words) in [
            (A::Ended, Some(SlurmJobState::Preempted), None, "was preempted"),
            (A::Ended, Some(SlurmJobState::NodeFail), None, "lost a node"),
            (A::Ended, Some(SlurmJobState::Timeout), None, "reached its time limit"),
            (A::Ended, Some(SlurmJobState::OutOfMemory), None, "ran out of memory"),
            (A::Ended, Some(SlurmJobState::Completed), None, "ended by itself"),
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
            let told = describe_end(&row(state, end, reason));
            assert_eq!(told, format!("allocation 12 (Slurm job 4711) {words}"));
        }
        let left = row(A::Ended, Some(SlurmJobState::Completed), None);
        assert_eq!(interruption_reason(&left), "interrupted: allocation 12 (Slurm job 4711) came to its end");
        let mut canceled = row(A::Ended, Some(SlurmJobState::Cancelled), None);
        assert_eq!(
            interruption_reason(&canceled),
            "interrupted: allocation 12 (Slurm job 4711) was cancelled"
        );
        assert_eq!(end_text(&canceled), "was cancelled");
        canceled.unwanted = Some("all jobs are over".into());
        assert_eq!(end_text(&canceled), "was cancelled: all jobs are over");
        let mut failed = row(A::Ended, Some(SlurmJobState::Failed), None);
        (failed.exit_code, failed.job_id) = (Some("1:0".into()), None);
        assert_eq!(describe_end(&failed), "allocation 12 failed (exit code 1:0)");
    }

    #[test]
    fn ends_unrelated_to_jobs_are_evictions() {
        use AllocationState as A;
        let evicted = |state, end| {
            AllocationEviction::from_allocation(&row(state, end, None)).map(|one| one.to_string())
        };
        let preempted = evicted(A::Ended, Some(SlurmJobState::Preempted));
        assert_eq!(preempted.as_deref(), Some("allocation 12 (Slurm job 4711) was preempted"));
        for end in [
            SlurmJobState::NodeFail,
            SlurmJobState::Timeout,
            SlurmJobState::Cancelled,
            SlurmJobState::BootFail,
        ] {
            assert!(evicted(A::Ended, Some(end)).is_some(), "{end}");
        }
        for end in [SlurmJobState::OutOfMemory, SlurmJobState::Failed, SlurmJobState::Completed] {
            assert_eq!(evicted(A::Ended, Some(end)), None, "{end}");
        }
        assert_eq!((evicted(A::Ended, None), evicted(A::Running, None)), (None, None));
        assert_eq!(evicted(A::Completing, Some(SlurmJobState::Timeout)), None, "its processes may be alive");
    }

    #[test]
    fn only_node_failures_prove_that_nothing_runs() {
        use AllocationState as A;
        for (state, end, nodes, expected) in [
            (A::Ended, Some(SlurmJobState::Completed), 1, true),
            (A::Ended, Some(SlurmJobState::Failed), 1, true),
            (A::Ended, Some(SlurmJobState::OutOfMemory), 1, true),
            // The first of them has reported.
            (A::Ended, Some(SlurmJobState::Completed), 2, false),
            // This is also the result if a node is lost while Slurm waits for its end.
            (A::Ended, Some(SlurmJobState::Cancelled), 1, false),
            (A::Ended, Some(SlurmJobState::Preempted), 1, false),
            (A::Ended, Some(SlurmJobState::Timeout), 1, false),
            (A::Ended, Some(SlurmJobState::Deadline), 1, false),
            (A::Ended, Some(SlurmJobState::NodeFail), 1, false),
            (A::Completing, Some(SlurmJobState::Completed), 1, false),
            (A::Ended, None, 1, false),
        ] {
            let mut row = row(state, end, None);
            row.request.nodes = nodes;
            assert_eq!(ended_all_processes(&row), expected, "{state:?} {end:?} {nodes}");
        }
    }
}

//! Allocations (Slurm jobs that host workers): request, state and end.

use crate::{AllocationId, Timestamp, WorkflowId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The options of an `sbatch` call, already validated. Stored with the allocation, so that the request stays
/// known when its scheduler changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocationRequest {
    /// Name of the scheduler that it was made from.
    pub scheduler: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub account: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    pub nodes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ntasks_per_node: Option<u32>,
    /// In the format of `--mem`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gres: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmp: Option<String>,
    pub walltime: Duration,
    /// Other long options of `sbatch` by name, without dashes, from `slurm_defaults`. An empty value is a flag.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// Additional arguments as written by the user; split like a shell does, never run by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    /// Series: at most one allocation of this scheduler and workflow at a time.
    #[serde(skip_serializing_if = "is_false")]
    pub serialize: bool,
    /// One worker on each node; otherwise one for all nodes, on the first.
    #[serde(skip_serializing_if = "is_false")]
    pub one_worker_per_node: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_jobs: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "signature required by serde")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// The state of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationState {
    /// Waits to be submitted; `sbatch` has not been called.
    Intended,
    /// `sbatch` was called, or is about to be, and the result is unknown. Before another submission the
    /// reconciler looks for its tag in Slurm.
    Submitting,
    /// Pending in Slurm.
    Pending,
    /// Running.
    Running,
    /// Ended, but its processes may still exist.
    Completing,
    /// Ended.
    Ended,
    /// Rejected by `sbatch`.
    Refused,
    /// Withdrawn before it was submitted.
    Withdrawn,
}

impl AllocationState {
    pub const ALL: [Self; 8] = [
        Self::Intended,
        Self::Submitting,
        Self::Pending,
        Self::Running,
        Self::Completing,
        Self::Ended,
        Self::Refused,
        Self::Withdrawn,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Intended => "intended",
            Self::Submitting => "submitting",
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completing => "completing",
            Self::Ended => "ended",
            Self::Refused => "refused",
            Self::Withdrawn => "withdrawn",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether the state is final.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Refused | Self::Withdrawn)
    }
}

impl fmt::Display for AllocationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The job states of Slurm, as `squeue` and `sacct` spell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SlurmJobState {
    Pending,
    Configuring,
    Running,
    Suspended,
    Stopped,
    Signaling,
    StageOut,
    Resizing,
    Requeued,
    RequeueHold,
    RequeueFed,
    SpecialExit,
    ResvDelHold,
    Revoked,
    Completing,
    Completed,
    Failed,
    Cancelled,
    Timeout,
    Preempted,
    NodeFail,
    OutOfMemory,
    BootFail,
    Deadline,
}

impl SlurmJobState {
    pub const ALL: [Self; 24] = [
        Self::Pending,
        Self::Configuring,
        Self::Running,
        Self::Suspended,
        Self::Stopped,
        Self::Signaling,
        Self::StageOut,
        Self::Resizing,
        Self::Requeued,
        Self::RequeueHold,
        Self::RequeueFed,
        Self::SpecialExit,
        Self::ResvDelHold,
        Self::Revoked,
        Self::Completing,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Timeout,
        Self::Preempted,
        Self::NodeFail,
        Self::OutOfMemory,
        Self::BootFail,
        Self::Deadline,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Configuring => "CONFIGURING",
            Self::Running => "RUNNING",
            Self::Suspended => "SUSPENDED",
            Self::Stopped => "STOPPED",
            Self::Signaling => "SIGNALING",
            Self::StageOut => "STAGE_OUT",
            Self::Resizing => "RESIZING",
            Self::Requeued => "REQUEUED",
            Self::RequeueHold => "REQUEUE_HOLD",
            Self::RequeueFed => "REQUEUE_FED",
            Self::SpecialExit => "SPECIAL_EXIT",
            Self::ResvDelHold => "RESV_DEL_HOLD",
            Self::Revoked => "REVOKED",
            Self::Completing => "COMPLETING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Timeout => "TIMEOUT",
            Self::Preempted => "PREEMPTED",
            Self::NodeFail => "NODE_FAIL",
            Self::OutOfMemory => "OUT_OF_MEMORY",
            Self::BootFail => "BOOT_FAIL",
            Self::Deadline => "DEADLINE",
        }
    }

    /// Parses Slurm's text: `CANCELLED by 1001` is `CANCELLED`.
    pub fn parse(text: &str) -> Option<Self> {
        let word = text.split_ascii_whitespace().next()?.trim_end_matches('+');
        Self::ALL.into_iter().find(|state| state.name() == word)
    }

    /// Whether the job has ended for Slurm. Its processes may still exist: see [`Self::Completing`].
    pub const fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed
                | Self::Failed
                | Self::Cancelled
                | Self::Timeout
                | Self::Preempted
                | Self::NodeFail
                | Self::OutOfMemory
                | Self::BootFail
                | Self::Deadline
                | Self::Revoked
        )
    }

    /// Whether the job is pending.
    pub const fn is_waiting(self) -> bool {
        matches!(
            self,
            Self::Pending
                | Self::Requeued
                | Self::RequeueHold
                | Self::RequeueFed
                | Self::SpecialExit
                | Self::ResvDelHold
        )
    }
}

impl fmt::Display for SlurmJobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The position in Slurm that a worker in an allocation reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmJobNode {
    /// The Slurm job id, from `SLURM_JOB_ID`.
    pub job_id: u64,
    /// `SLURM_RESTART_COUNT`; together with the id it identifies an execution.
    #[serde(default)]
    pub restarts: u32,
    /// Slurm's name of the node.
    #[serde(default)]
    pub node: String,
}

/// An allocation as stored in the database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    pub id: AllocationId,
    pub workflow: WorkflowId,
    /// Managed by Windlass. Otherwise a client of Torc's API manages it, and `request` has only the type of the
    /// scheduler.
    pub is_ours: bool,
    /// Row id of the scheduler.
    pub scheduler: Option<i64>,
    /// Identifies the allocation in Slurm: the comment of its job, and the job name unless it is part of a
    /// series.
    pub tag: String,
    pub request: AllocationRequest,
    pub state: AllocationState,
    /// The Slurm job id.
    pub job_id: Option<u64>,
    #[serde(default)]
    pub restarts: u32,
    /// Why it is pending, was rejected or withdrawn, or ended unusually; in Slurm's words if available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its nodes in Slurm's format: `n[1-2]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// The action that requested it, the execution of that action, and the index among the allocations of that
    /// execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<(i64, u32, u32)>,
    /// The user who requested it.
    pub by: String,
    /// The reason to cancel it: a user's command, or no remaining work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwanted: Option<String>,
    pub created_at: Timestamp,
    /// Time of the last `sbatch` call.
    pub submitted_at: Option<Timestamp>,
    /// Number of `sbatch` calls.
    #[serde(default)]
    pub submissions: u32,
    pub started_at: Option<Timestamp>,
    /// When Slurm will end it; administrators can change it.
    pub ends_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// The final state that Slurm reports.
    pub end: Option<SlurmJobState>,
    /// `code:signal`, as Slurm reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<String>,
    /// When Slurm last reported it.
    pub seen_at: Option<Timestamp>,
    /// Number of consecutive successful polls that did not contain it.
    #[serde(default)]
    pub missed: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_names_round_trip() {
        for state in AllocationState::ALL {
            assert_eq!(AllocationState::from_name(state.name()), Some(state));
        }
        for state in SlurmJobState::ALL {
            assert_eq!(SlurmJobState::parse(state.name()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }

    #[test]
    fn slurm_states_are_parsed() {
        assert_eq!(SlurmJobState::parse("CANCELLED by 1001"), Some(SlurmJobState::Cancelled));
        assert_eq!(SlurmJobState::parse("CANCELLED+"), Some(SlurmJobState::Cancelled));
        assert_eq!(SlurmJobState::parse("RUNNING"), Some(SlurmJobState::Running));
        assert_eq!(SlurmJobState::parse(""), None);
        assert_eq!(SlurmJobState::parse("NONE"), None);
        assert!(!SlurmJobState::Completing.is_terminal() && !SlurmJobState::Completing.is_waiting());
    }
}

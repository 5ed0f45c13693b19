//! Allocations: jobs of Slurm that host workers. What is asked for, how far it is, how it ended.

use crate::{AllocationId, Timestamp, WorkflowId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What `sbatch` is asked for. Everything in it was checked; it is kept with the allocation, so that what was asked for is
/// known also when its scheduler is another one by now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocationRequest {
    /// The scheduler it was made from, by name.
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
    /// As `--mem` takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gres: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmp: Option<String>,
    pub walltime: Duration,
    /// Other long options of `sbatch` by name, without dashes: those of `slurm_defaults`. An empty value is a flag.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
    /// More arguments, as the user wrote them; split as a shell does, never run by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    /// One after another: no two of this scheduler and workflow at once.
    #[serde(skip_serializing_if = "is_false")]
    pub serialize: bool,
    /// A worker on each node; otherwise one for all nodes, on the first.
    #[serde(skip_serializing_if = "is_false")]
    pub one_worker_per_node: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_jobs: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// How far an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationState {
    /// It is to be submitted. `sbatch` was never called for it.
    Intended,
    /// `sbatch` was called, or is about to be, and we do not know what came of it. It is looked for by its tag before it is
    /// submitted again.
    Submitting,
    /// Slurm has it, and it waits.
    Pending,
    /// It runs.
    Running,
    /// It is over, but its processes may not be.
    Completing,
    /// It is over.
    Ended,
    /// `sbatch` said no.
    Refused,
    /// It was never submitted, and never will be.
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

    /// Nothing more happens to it.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Refused | Self::Withdrawn)
    }
}

impl fmt::Display for AllocationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The states of a job that Slurm knows, as `squeue` and `sacct` spell them.
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

    /// As Slurm writes it: `CANCELLED by 1001` is `CANCELLED`.
    pub fn parse(text: &str) -> Option<Self> {
        let word = text.split_ascii_whitespace().next()?.trim_end_matches('+');
        Self::ALL.into_iter().find(|state| state.name() == word)
    }

    /// Slurm is done with the job. Its processes may not be: see [`Self::Completing`].
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

    /// It waits for its turn.
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

/// Where a worker in an allocation says it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmJobNode {
    /// Of Slurm, as `SLURM_JOB_ID` has it.
    pub job_id: u64,
    /// `SLURM_RESTART_COUNT`: with the id it is what Slurm runs.
    #[serde(default)]
    pub restarts: u32,
    /// Its node's name, as Slurm has it.
    #[serde(default)]
    pub node: String,
}

/// An allocation as the books have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    pub id: AllocationId,
    pub workflow: WorkflowId,
    /// We look after it. Otherwise a client of Torc's API does, and its `request` says nothing but the type of its scheduler.
    pub is_ours: bool,
    /// The scheduler's row.
    pub scheduler: Option<i64>,
    /// Found in Slurm by this: its job's comment, and the name unless it is one of a series.
    pub tag: String,
    pub request: AllocationRequest,
    pub state: AllocationState,
    /// The number of Slurm's job.
    pub job_id: Option<u64>,
    #[serde(default)]
    pub restarts: u32,
    /// Why it waits, was refused or withdrawn, or what was odd about its end; in Slurm's words where it has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its nodes, as Slurm writes them: `n[1-2]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Which execution of which action asked for it, and which of those that it asked for it is, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<(i64, u32, u32)>,
    /// Who asked.
    pub by: String,
    /// Somebody, or that nothing is left for it to do, wants it gone: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwanted: Option<String>,
    pub created_at: Timestamp,
    /// `sbatch` was called the last time.
    pub submitted_at: Option<Timestamp>,
    /// How often it was called.
    #[serde(default)]
    pub submissions: u32,
    pub started_at: Option<Timestamp>,
    /// When Slurm will end it; administrators change it.
    pub ends_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// How Slurm says it ended.
    pub end: Option<SlurmJobState>,
    /// `code:signal`, as Slurm writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<String>,
    /// When Slurm last spoke of it.
    pub seen_at: Option<Timestamp>,
    /// So many polls in a row were answered and did not have it.
    #[serde(default)]
    pub missed: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for state in AllocationState::ALL {
            assert_eq!(AllocationState::from_name(state.name()), Some(state));
        }
        for state in SlurmJobState::ALL {
            assert_eq!(SlurmJobState::parse(state.name()), Some(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.name());
        }
    }

    #[test]
    fn states_as_slurm_writes_them() {
        assert_eq!(SlurmJobState::parse("CANCELLED by 1001"), Some(SlurmJobState::Cancelled));
        assert_eq!(SlurmJobState::parse("CANCELLED+"), Some(SlurmJobState::Cancelled));
        assert_eq!(SlurmJobState::parse("RUNNING"), Some(SlurmJobState::Running));
        assert_eq!(SlurmJobState::parse(""), None);
        assert_eq!(SlurmJobState::parse("NONE"), None);
        assert!(!SlurmJobState::Completing.is_terminal() && !SlurmJobState::Completing.is_waiting());
    }
}

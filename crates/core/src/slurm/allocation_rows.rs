//! Rows of allocations: new ones, their changes, and a whole schedule stored at once.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass_types::settings::{SlurmScheduler, WorkflowAction};
use windlass_types::slurm::{Allocation, AllocationRequest, AllocationState, SlurmJobState};
use windlass_types::{AllocationId, JobId, Timestamp, WorkflowId};

/// An allocation to be submitted. Its first state is `intended`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewAllocation {
    pub workflow: WorkflowId,
    /// The scheduler's row; `None`: the one that the request names, if the workflow has it.
    pub scheduler: Option<i64>,
    /// Identifies it in Slurm; empty: the store generates a unique one.
    #[serde(default)]
    pub tag: String,
    pub request: AllocationRequest,
    /// The action execution that requests it: action, attempt, and index from 0. A repeated one is not
    /// submitted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<(i64, u32, u32)>,
    /// The user who requests it.
    pub by: String,
}

impl NewAllocation {
    /// Returns a problem that does not depend on Slurm.
    pub fn find_problem(&self) -> Option<String> {
        let AllocationRequest { scheduler, account, partition, qos, mem, gres, tmp, options, extra, .. } =
            &self.request;
        let given = [partition, qos, mem, gres, tmp, extra].into_iter().flatten();
        let mut texts =
            [scheduler, account].into_iter().chain(given).chain(options.iter().flat_map(|(k, v)| [k, v]));
        if self.request.nodes == 0 {
            return Some("an allocation of no nodes".to_owned());
        }
        if !self.tag.is_empty() && !is_valid_tag(&self.tag) {
            let tag = self.tag.escape_debug();
            return Some(format!(
                "the tag `{tag}` of an allocation (letters, digits, - _ . and no more than 100)"
            ));
        }
        // The script has a line for each of them.
        texts
            .find(|text| text.chars().any(char::is_control))
            .map(|text| format!("`{}` in what is asked of Slurm (control characters)", text.escape_debug()))
    }
}

/// Whether a tag is safe in the name and comment of a job, and in Slurm's output.
pub fn is_valid_tag(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !text.is_empty() && text.len() <= 100 && !text.starts_with('-') && text.chars().all(is_plain)
}

/// A change of an allocation. Applies only if the row is in the state `from`.
///
/// `None` leaves a field unchanged; `Some(None)` clears it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationChange {
    pub id: AllocationId,
    pub from: AllocationState,
    pub to: AllocationState,
    /// Applies only to this Slurm job.
    pub only_slurm_job: Option<u64>,
    pub job_id: Option<Option<u64>>,
    pub restarts: Option<u32>,
    pub reason: Option<Option<String>>,
    pub nodes: Option<Option<String>>,
    /// `sbatch` is called again; also counts the call.
    pub submitted_at: Option<Timestamp>,
    pub started_at: Option<Option<Timestamp>>,
    pub ends_at: Option<Option<Timestamp>>,
    pub ended_at: Option<Timestamp>,
    pub end: Option<SlurmJobState>,
    pub exit_code: Option<String>,
    pub seen_at: Option<Timestamp>,
    pub missed_polls: Option<u32>,
    pub unwanted_reason: Option<String>,
}

impl AllocationChange {
    /// Creates a change of the state alone.
    pub const fn new(id: AllocationId, from: AllocationState, to: AllocationState) -> Self {
        Self {
            id,
            from,
            to,
            only_slurm_job: None,
            job_id: None,
            restarts: None,
            reason: None,
            nodes: None,
            submitted_at: None,
            started_at: None,
            ends_at: None,
            ended_at: None,
            end: None,
            exit_code: None,
            seen_at: None,
            missed_polls: None,
            unwanted_reason: None,
        }
    }

    /// Whether it was decided from this row.
    pub fn applies_to(&self, row: &Allocation) -> bool {
        row.id == self.id
            && row.state == self.from
            && self.only_slurm_job.is_none_or(|job| row.job_id == Some(job))
    }

    /// Applies it to the row.
    pub fn apply_to(&self, row: &mut Allocation) {
        row.state = self.to;
        set_if_some(&mut row.job_id, self.job_id);
        set_if_some(&mut row.restarts, self.restarts);
        set_if_some(&mut row.reason, self.reason.clone());
        set_if_some(&mut row.nodes, self.nodes.clone());
        if let Some(at) = self.submitted_at {
            row.submitted_at = Some(at);
            row.submissions = row.submissions.saturating_add(1);
        }
        set_if_some(&mut row.started_at, self.started_at);
        set_if_some(&mut row.ends_at, self.ends_at);
        set_if_some(&mut row.ended_at, self.ended_at.map(Some));
        set_if_some(&mut row.end, self.end.map(Some));
        set_if_some(&mut row.exit_code, self.exit_code.clone().map(Some));
        set_if_some(&mut row.seen_at, self.seen_at.map(Some));
        set_if_some(&mut row.missed, self.missed_polls);
        set_if_some(&mut row.unwanted, self.unwanted_reason.clone().map(Some));
    }
}

fn set_if_some<T>(field: &mut T, to: Option<T>) {
    if let Some(to) = to {
        *field = to;
    }
}

/// A new or changed action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewAllocationAction {
    pub action: WorkflowAction,
    /// The jobs that its trigger waits for.
    pub jobs: Vec<JobId>,
    /// Whether it was created by a recovery; removed when the workflow is reinitialized.
    pub is_recovery: bool,
}

/// All changes of a plan to schedulers, actions and allocations of a workflow. Applied atomically.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationSchedule {
    /// Fingerprint of the schedulers, actions and allocations at planning. If it differs the schedule is
    /// rejected.
    pub seen: String,
    /// Actions that must not fire any more: recorded as executed.
    pub mark_executed: Vec<i64>,
    /// New schedulers. If the name exists, it must be identical.
    pub schedulers: Vec<SlurmScheduler>,
    /// Jobs, and the names of their new schedulers.
    pub assign: Vec<(JobId, String)>,
    pub actions: Vec<NewAllocationAction>,
    /// Of this workflow; their schedulers are those named in their requests.
    pub allocations: Vec<NewAllocation>,
    /// Jobs without new allocations, because they fit nowhere: for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfit: Vec<String>,
}

impl AllocationSchedule {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        let Self { seen: _, mark_executed, schedulers, assign, actions, allocations, unfit: _ } = self;
        mark_executed.is_empty()
            && schedulers.is_empty()
            && assign.is_empty()
            && actions.is_empty()
            && allocations.is_empty()
    }
}

/// The rows written for an [`AllocationSchedule`], in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedSchedule {
    pub schedulers: Vec<i64>,
    pub actions: Vec<i64>,
    pub allocations: Vec<AllocationId>,
}

/// Number of calls of a Slurm command within an hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmCallCount {
    /// Start of the hour. Set by the store from the time of the report.
    pub hour: Timestamp,
    /// `squeue`, `sbatch` …
    pub command: String,
    pub calls: u64,
    pub failures: u64,
    /// Total duration.
    pub took: Duration,
}

/// Returns the start of the hour.
pub const fn hour_start(at: Timestamp) -> Timestamp {
    const HOUR: i64 = 3_600_000_000;
    Timestamp(at.0 - at.0.rem_euclid(HOUR))
}

/// An allocation that a client of Torc's API submitted itself: the client reports its state, and Windlass does
/// not manage it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalAllocation {
    pub workflow: WorkflowId,
    /// The client's number: the Slurm job.
    pub job_id: u64,
    /// The scheduler that it was made from, of any type.
    pub scheduler: i64,
    pub scheduler_type: String,
    pub status: TorcAllocationStatus,
}

/// State of an allocation, as in Torc's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TorcAllocationStatus {
    Pending,
    Active,
    Complete,
    Canceled,
}

impl TorcAllocationStatus {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Active, Self::Complete, Self::Canceled];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Complete => "complete",
            Self::Canceled => "canceled",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Converts the state of a row.
    pub const fn from_state(state: AllocationState, end: Option<SlurmJobState>) -> Self {
        match state {
            AllocationState::Intended | AllocationState::Submitting | AllocationState::Pending => {
                Self::Pending
            }
            AllocationState::Running | AllocationState::Completing => Self::Active,
            AllocationState::Withdrawn => Self::Canceled,
            AllocationState::Ended if matches!(end, Some(SlurmJobState::Cancelled)) => Self::Canceled,
            AllocationState::Ended | AllocationState::Refused => Self::Complete,
        }
    }

    /// Converts a state reported by a client.
    pub const fn to_state(self) -> (AllocationState, Option<SlurmJobState>) {
        match self {
            Self::Pending => (AllocationState::Pending, None),
            Self::Active => (AllocationState::Running, None),
            Self::Complete => (AllocationState::Ended, None),
            Self::Canceled => (AllocationState::Ended, Some(SlurmJobState::Cancelled)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_states_map_to_torc_statuses() {
        use AllocationState as S;
        for (state, end, told) in [
            (S::Intended, None, "pending"),
            (S::Submitting, None, "pending"),
            (S::Pending, None, "pending"),
            (S::Running, None, "active"),
            (S::Completing, Some(SlurmJobState::Timeout), "active"),
            (S::Ended, Some(SlurmJobState::Completed), "complete"),
            (S::Ended, Some(SlurmJobState::Timeout), "complete"),
            (S::Ended, None, "complete"),
            (S::Ended, Some(SlurmJobState::Cancelled), "canceled"),
            (S::Withdrawn, None, "canceled"),
            (S::Refused, None, "complete"),
        ] {
            assert_eq!(TorcAllocationStatus::from_state(state, end).name(), told, "{state} {end:?}");
        }
        for status in TorcAllocationStatus::ALL {
            let (state, end) = status.to_state();
            assert_eq!(TorcAllocationStatus::from_state(state, end), status);
            assert_eq!(TorcAllocationStatus::from_name(status.name()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.name());
        }
        assert_eq!(TorcAllocationStatus::from_name("running"), None);
    }

    #[test]
    fn valid_tags_are_plain() {
        for good in ["wl-6f1c9a02-17", "a", "a_b.c"] {
            assert!(is_valid_tag(good), "{good}");
        }
        for bad in ["", "-x", "a b", "a,b", "a;b", "ä", "a\n", &"x".repeat(101)] {
            assert!(!is_valid_tag(bad), "{bad}");
        }
    }

    #[test]
    fn invalid_allocation_rows_are_rejected() {
        let new = NewAllocation {
            workflow: WorkflowId(1),
            scheduler: None,
            tag: String::new(),
            request: AllocationRequest {
                nodes: 1,
                scheduler: "night".into(),
                ..AllocationRequest::default()
            },
            action: None,
            by: "ada".into(),
        };
        assert_eq!(new.find_problem(), None);
        let changed = |change: &dyn Fn(&mut NewAllocation)| {
            let mut new = new.clone();
            change(&mut new);
            new.find_problem()
        };
        assert_eq!(changed(&|new| new.tag = "wl-1".into()), None);
        let flaws = [
            changed(&|new| new.request.nodes = 0),
            changed(&|new| new.tag = "a b".into()),
            changed(&|new| new.request.account = "lab\n#SBATCH --uid=0".into()),
            changed(&|new| new.request.partition = Some("p\r".into())),
            changed(&|new| drop(new.request.options.insert("comment".into(), "\u{1b}[2J".into()))),
            changed(&|new| new.request.extra = Some("\0".into())),
        ];
        assert!(flaws.iter().all(Option::is_some), "{flaws:?}");
    }

    #[test]
    fn call_hours_start_at_full_hours() {
        for (at, hour) in [(0, 0), (3_599_999_999, 0), (3_600_000_000, 3_600_000_000), (-1, -3_600_000_000)] {
            assert_eq!(hour_start(Timestamp(at)), Timestamp(hour));
        }
    }
}

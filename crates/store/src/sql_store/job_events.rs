//! Events of single jobs: stored as numbers, many rows per statement; the text is rendered when they are read.

use crate::db::{SqlValue, StatementPipeline, values};
use crate::error::SqlError;
use crate::model::EventSeverity;
use crate::sql::workers_and_parts::insert_job_events;
use serde_json::{Map, json};
use std::sync::LazyLock;
use windlass_core::change::WorkflowChange;
use windlass_types::{Attempt, JobId, JobStatus, RunId, Timestamp, WorkerId, WorkflowId};

/// An event of a job to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobEvent {
    pub(crate) severity: EventSeverity,
    pub(crate) category: &'static str,
    pub(crate) job: JobId,
    pub(crate) run: RunId,
    pub(crate) attempt: Option<Attempt>,
    pub(crate) worker: Option<WorkerId>,
    pub(crate) return_code: Option<i32>,
}

/// Returns the event of a change. There is none for ready, blocked and claimed jobs: these states follow from
/// other events.
pub(crate) fn job_event(change: &WorkflowChange, run: RunId) -> Option<JobEvent> {
    let plain = |job, (category, severity)| JobEvent {
        severity,
        category,
        job,
        run,
        attempt: None,
        worker: None,
        return_code: None,
    };
    match *change {
        WorkflowChange::Start { job, attempt, worker, .. } => Some(JobEvent {
            attempt: Some(attempt),
            worker: Some(worker),
            ..plain(job, ("job_started", EventSeverity::Info))
        }),
        WorkflowChange::End { to, ref result, next_attempt, orphaned, .. } => {
            let goes_on = !(to.is_settled() || to == JobStatus::PendingFailed);
            let what = match (goes_on, orphaned) {
                (true, true) => ("job_orphaned", EventSeverity::Warning),
                (true, false) if next_attempt > result.key.attempt => ("job_retried", EventSeverity::Warning),
                (true, false) => ("job_interrupted", EventSeverity::Warning),
                (false, _) => end_category(to),
            };
            Some(JobEvent {
                attempt: Some(result.key.attempt),
                worker: Some(result.worker),
                return_code: Some(result.return_code),
                ..plain(result.key.job, what)
            })
        }
        WorkflowChange::Retry { job, attempt, .. } => {
            Some(JobEvent { attempt: Some(attempt), ..plain(job, ("job_retried", EventSeverity::Warning)) })
        }
        WorkflowChange::Reset { job, .. } => Some(plain(job, ("job_reset", EventSeverity::Info))),
        WorkflowChange::Status { job, from, to } => {
            status_change_category(from, to).map(|what| plain(job, what))
        }
        WorkflowChange::Claim { .. }
        | WorkflowChange::ReturnClaim { .. }
        | WorkflowChange::ReassignClaim { .. }
        | WorkflowChange::Action(_)
        | WorkflowChange::Unit(_)
        | WorkflowChange::CountSiteAttempts { .. }
        | WorkflowChange::RaiseAlarm(_) => None,
        WorkflowChange::Ignore { job, attempt } => {
            Some(JobEvent { attempt: Some(attempt), ..plain(job, ("job_ignored", EventSeverity::Warning)) })
        }
    }
}

/// A change of state without an attempt.
const fn status_change_category(from: JobStatus, to: JobStatus) -> Option<(&'static str, EventSeverity)> {
    match to {
        JobStatus::Ready | JobStatus::Blocked => {
            let was_waiting =
                matches!(from, JobStatus::Uninitialized | JobStatus::Blocked | JobStatus::Ready);
            if was_waiting { None } else { Some(("job_reset", EventSeverity::Info)) }
        }
        JobStatus::Uninitialized => Some(("job_reset", EventSeverity::Info)),
        other => Some(end_category(other)),
    }
}

const fn end_category(to: JobStatus) -> (&'static str, EventSeverity) {
    match to {
        JobStatus::Completed => ("job_completed", EventSeverity::Info),
        JobStatus::Failed => ("job_failed", EventSeverity::Error),
        JobStatus::Canceled => ("job_canceled", EventSeverity::Warning),
        JobStatus::Terminated => ("job_terminated", EventSeverity::Warning),
        JobStatus::PendingFailed => ("job_pending_failed", EventSeverity::Error),
        JobStatus::Disabled => ("job_disabled", EventSeverity::Info),
        _ => ("job_changed", EventSeverity::Info),
    }
}

/// Rows per statement: most batches are small, some are large.
const ROWS_PER_STATEMENT: [usize; 3] = [32, 4, 1];
static STATEMENTS: LazyLock<[String; 3]> = LazyLock::new(|| ROWS_PER_STATEMENT.map(insert_job_events));

pub(crate) fn send_job_events(
    pipe: &mut dyn StatementPipeline,
    workflow: WorkflowId,
    actor: &str,
    at: Timestamp,
    events: &[JobEvent],
) -> Result<(), SqlError> {
    let mut left = events;
    let mut values =
        Vec::with_capacity(SHARED_VALUES + VALUES_PER_EVENT * ROWS_PER_STATEMENT[0].min(events.len()));
    let gathers = pipe.batches_rows();
    for (size, sql) in
        ROWS_PER_STATEMENT.into_iter().zip(STATEMENTS.iter()).filter(|(size, _)| *size == 1 || !gathers)
    {
        while left.len() >= size {
            let (now, later) = left.split_at(size);
            values.clear();
            values.extend::<[_; SHARED_VALUES]>(values![workflow.0, at.0, actor]);
            values.extend(now.iter().flat_map(JobEvent::values));
            pipe.send_row(0, None, sql, &values)?;
            left = later;
        }
    }
    Ok(())
}

/// Number of parameters shared by all rows of a statement, and number per row.
const SHARED_VALUES: usize = 3;
const VALUES_PER_EVENT: usize = 7;

impl JobEvent {
    fn values<'v>(&self) -> [SqlValue<'v>; VALUES_PER_EVENT] {
        let number = |number: Option<i64>| number.map_or(SqlValue::Null, SqlValue::Int);
        [
            SqlValue::Int(i64::from(self.severity as u8)),
            SqlValue::Text(self.category),
            SqlValue::Int(self.job.0),
            SqlValue::Int(self.run.0),
            number(self.attempt.map(|attempt| i64::from(attempt.0))),
            number(self.worker.map(|worker| worker.0)),
            number(self.return_code.map(i64::from)),
        ]
    }
}

/// The numbers of a job event, as read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobEventNumbers {
    pub(crate) run: Option<i64>,
    pub(crate) attempt: Option<i64>,
    pub(crate) worker: Option<i64>,
    pub(crate) return_code: Option<i64>,
}

impl JobEventNumbers {
    /// Renders the text for people.
    pub(crate) fn render_message(self, category: &str, job: JobId, name: Option<&str>) -> String {
        let job = name.map_or_else(|| format!("job {job}"), |name| format!("job `{name}`"));
        let what = category.strip_prefix("job_").unwrap_or(category).replace('_', " ");
        let attempt = match self.attempt {
            Some(attempt) if attempt > 1 => format!(", attempt {attempt}"),
            _ => String::new(),
        };
        let code = match self.return_code {
            Some(code) if code != 0 => format!(" (return code {code})"),
            _ => String::new(),
        };
        format!("{job}{attempt}: {what}{code}")
    }

    /// Renders the data for programs.
    pub(crate) fn render_data(self, job: JobId, name: Option<&str>) -> serde_json::Value {
        let mut data = Map::new();
        data.insert("job_id".to_owned(), json!(job));
        let numbers = [
            ("run_id", self.run),
            ("attempt_id", self.attempt),
            ("compute_node_id", self.worker),
            ("return_code", self.return_code),
        ];
        if let Some(name) = name {
            data.insert("job_name".to_owned(), name.into());
        }
        for (field, number) in numbers {
            if let Some(number) = number {
                data.insert(field.to_owned(), number.into());
            }
        }
        data.into()
    }
}

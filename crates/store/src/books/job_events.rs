//! What happens to single jobs, as events: numbers in a row, many rows in a statement, words only when somebody reads.

use crate::db::{Pipeline, Value, values};
use crate::error::Fault;
use crate::model::Severity;
use crate::sql::server::insert_job_events;
use serde_json::{Map, json};
use std::sync::LazyLock;
use windlass_core::change::Change;
use windlass_types::{Attempt, JobId, JobStatus, RunId, Timestamp, WorkerId, WorkflowId};

/// One of them, before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JobEvent {
    pub(crate) severity: Severity,
    pub(crate) category: &'static str,
    pub(crate) job: JobId,
    pub(crate) run: RunId,
    pub(crate) attempt: Option<Attempt>,
    pub(crate) worker: Option<WorkerId>,
    pub(crate) return_code: Option<i32>,
}

/// What is told of a change. Being ready, blocked or claimed is not: that follows from what others did.
pub(crate) fn told(change: &Change, run: RunId) -> Option<JobEvent> {
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
        Change::Start { job, attempt, worker, .. } => Some(JobEvent {
            attempt: Some(attempt),
            worker: Some(worker),
            ..plain(job, ("job_started", Severity::Info))
        }),
        Change::End { to, ref result, next_attempt, orphaned, .. } => {
            let goes_on = !(to.is_settled() || to == JobStatus::PendingFailed);
            let what = match (goes_on, orphaned) {
                (true, true) => ("job_orphaned", Severity::Warning),
                (true, false) if next_attempt > result.key.attempt => ("job_retried", Severity::Warning),
                (true, false) => ("job_interrupted", Severity::Warning),
                (false, _) => ending(to),
            };
            Some(JobEvent {
                attempt: Some(result.key.attempt),
                worker: Some(result.worker),
                return_code: Some(result.return_code),
                ..plain(result.key.job, what)
            })
        }
        Change::Retry { job, attempt, .. } => {
            Some(JobEvent { attempt: Some(attempt), ..plain(job, ("job_retried", Severity::Warning)) })
        }
        Change::Reset { job, .. } => Some(plain(job, ("job_reset", Severity::Info))),
        Change::Status { job, from, to } => changed(from, to).map(|what| plain(job, what)),
        Change::Claim { .. }
        | Change::GiveBack { .. }
        | Change::HandOver { .. }
        | Change::Action(_)
        | Change::Unit(_)
        | Change::EndedAt { .. }
        | Change::Alarm(_) => None,
        Change::Ignore { job, attempt } => {
            Some(JobEvent { attempt: Some(attempt), ..plain(job, ("job_ignored", Severity::Warning)) })
        }
    }
}

/// A change of state without an attempt behind it.
const fn changed(from: JobStatus, to: JobStatus) -> Option<(&'static str, Severity)> {
    match to {
        JobStatus::Ready | JobStatus::Blocked => {
            let was_waiting =
                matches!(from, JobStatus::Uninitialized | JobStatus::Blocked | JobStatus::Ready);
            if was_waiting { None } else { Some(("job_reset", Severity::Info)) }
        }
        JobStatus::Uninitialized => Some(("job_reset", Severity::Info)),
        other => Some(ending(other)),
    }
}

const fn ending(to: JobStatus) -> (&'static str, Severity) {
    match to {
        JobStatus::Completed => ("job_completed", Severity::Info),
        JobStatus::Failed => ("job_failed", Severity::Error),
        JobStatus::Canceled => ("job_canceled", Severity::Warning),
        JobStatus::Terminated => ("job_terminated", Severity::Warning),
        JobStatus::PendingFailed => ("job_pending_failed", Severity::Error),
        JobStatus::Disabled => ("job_disabled", Severity::Info),
        _ => ("job_changed", Severity::Info),
    }
}

/// Rows of a statement: most batches are small, some are large.
const SIZES: [usize; 3] = [32, 4, 1];
static STATEMENTS: LazyLock<[String; 3]> = LazyLock::new(|| SIZES.map(insert_job_events));

pub(crate) fn send(
    pipe: &mut dyn Pipeline,
    workflow: WorkflowId,
    actor: &str,
    at: Timestamp,
    events: &[JobEvent],
) -> Result<(), Fault> {
    let mut left = events;
    let mut values = Vec::with_capacity(COMMON + WIDTH * SIZES[0].min(events.len()));
    let gathers = pipe.gathers();
    for (size, sql) in SIZES.into_iter().zip(STATEMENTS.iter()).filter(|(size, _)| *size == 1 || !gathers) {
        while left.len() >= size {
            let (now, later) = left.split_at(size);
            values.clear();
            values.extend::<[_; COMMON]>(values![workflow.0, at.0, actor]);
            values.extend(now.iter().flat_map(JobEvent::values));
            pipe.send_row(0, None, sql, &values)?;
            left = later;
        }
    }
    Ok(())
}

/// How many values all rows of a statement share, and how many each has.
const COMMON: usize = 3;
const WIDTH: usize = 7;

impl JobEvent {
    fn values<'v>(&self) -> [Value<'v>; WIDTH] {
        let number = |number: Option<i64>| number.map_or(Value::Null, Value::Int);
        [
            Value::Int(i64::from(self.severity as u8)),
            Value::Text(self.category),
            Value::Int(self.job.0),
            Value::Int(self.run.0),
            number(self.attempt.map(|attempt| i64::from(attempt.0))),
            number(self.worker.map(|worker| worker.0)),
            number(self.return_code.map(i64::from)),
        ]
    }
}

/// The numbers of such an event, as they are read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) run: Option<i64>,
    pub(crate) attempt: Option<i64>,
    pub(crate) worker: Option<i64>,
    pub(crate) return_code: Option<i64>,
}

impl Numbers {
    /// In words, for people.
    pub(crate) fn message(self, category: &str, job: JobId, name: Option<&str>) -> String {
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

    /// For programs.
    pub(crate) fn data(self, job: JobId, name: Option<&str>) -> serde_json::Value {
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

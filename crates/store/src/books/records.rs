//! What is known of the work behind completed jobs: the results of their own attempts, or copies of what was reused.

use super::apply::current_run;
use super::column;
use crate::db::{Db, Row};
use crate::error::Fault;
use crate::model::{DoneWork, LastRecord};
use crate::sql::common as sql;
use serde::{Deserialize, Serialize};
use windlass_types::work::{AttemptKey, FilesSeen};
use windlass_types::{Attempt, JobId, RunId, Timestamp, WorkflowId};

/// Reused work as a job keeps it. Times in microseconds, as everywhere in the books.
#[derive(Serialize, Deserialize)]
struct Kept {
    #[serde(flatten)]
    done_by: AttemptKey,
    started_at: Option<i64>,
    ended_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files: Option<FilesSeen>,
}

/// Reused work as text for its column.
pub(crate) fn text(work: Option<&DoneWork>) -> Result<Option<String>, Fault> {
    let kept = work.map(|work| Kept {
        done_by: work.done_by,
        started_at: work.started_at.map(|at| at.0),
        ended_at: work.ended_at.0,
        files: work.files.clone(),
    });
    Ok(kept.as_ref().map(column::json_text).transpose()?)
}

pub(crate) fn last_records(db: &impl Db, workflow: WorkflowId) -> Result<Vec<LastRecord>, Fault> {
    current_run(db, workflow)?;
    db.all(sql::LAST_RECORDS, [workflow.0], |row| record(row, workflow))
}

fn record(row: &Row<'_>, workflow: WorkflowId) -> Result<LastRecord, Fault> {
    let job = JobId(row.get(0)?);
    let work = match column::json::<Kept>(row, 6)? {
        Some(kept) => DoneWork {
            done_by: kept.done_by,
            started_at: kept.started_at.map(Timestamp),
            ended_at: Timestamp(kept.ended_at),
            files: kept.files,
        },
        None => DoneWork {
            done_by: AttemptKey { workflow, job, run: RunId(row.get(1)?), attempt: Attempt(row.get(2)?) },
            started_at: column::time(row, 3)?,
            ended_at: Timestamp(row.get(4)?),
            files: column::json(row, 5)?,
        },
    };
    Ok(LastRecord { job, work, command: row.get(7)? })
}

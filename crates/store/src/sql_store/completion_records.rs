//! Records of the work behind completed jobs: results of their own attempts, or copies of reused ones.

use super::apply_changes::current_run;
use super::column_decoding;
use crate::db::{SqlConnection, SqlRow};
use crate::error::SqlError;
use crate::model::{CompletedWork, CompletionRecord};
use crate::sql::common as sql;
use serde::{Deserialize, Serialize};
use windlass_types::worker_messages::{AttemptFiles, AttemptKey};
use windlass_types::{Attempt, JobId, RunId, Timestamp, WorkflowId};

/// Reused work as stored with a job. Times in microseconds, as everywhere in the database.
#[derive(Serialize, Deserialize)]
struct StoredReusedWork {
    #[serde(flatten)]
    done_by: AttemptKey,
    started_at: Option<i64>,
    ended_at: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    files: Option<AttemptFiles>,
}

/// Encodes reused work for its column.
pub(crate) fn render_reused_work(work: Option<&CompletedWork>) -> Result<Option<String>, SqlError> {
    let kept = work.map(|work| StoredReusedWork {
        done_by: work.done_by,
        started_at: work.started_at.map(|at| at.0),
        ended_at: work.ended_at.0,
        files: work.files.clone(),
    });
    Ok(kept.as_ref().map(column_decoding::render_json).transpose()?)
}

pub(crate) fn list_completion_records(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<CompletionRecord>, SqlError> {
    current_run(db, workflow)?;
    db.query_all(sql::COMPLETION_RECORDS, [workflow.0], |row| read_completion_record(row, workflow))
}

fn read_completion_record(row: &SqlRow<'_>, workflow: WorkflowId) -> Result<CompletionRecord, SqlError> {
    let job = JobId(row.get(0)?);
    let work = match column_decoding::read_json::<StoredReusedWork>(row, 6)? {
        Some(kept) => CompletedWork {
            done_by: kept.done_by,
            started_at: kept.started_at.map(Timestamp),
            ended_at: Timestamp(kept.ended_at),
            files: kept.files,
        },
        None => CompletedWork {
            done_by: AttemptKey { workflow, job, run: RunId(row.get(1)?), attempt: Attempt(row.get(2)?) },
            started_at: column_decoding::read_time(row, 3)?,
            ended_at: Timestamp(row.get(4)?),
            files: column_decoding::read_json(row, 5)?,
        },
    };
    Ok(CompletionRecord { job, work, command: row.get(7)? })
}

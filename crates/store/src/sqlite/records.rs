//! What is known of the work behind completed jobs.

use super::apply::current_run;
use super::column;
use crate::error::Fault;
use crate::model::LastRecord;
use crate::sql::common as sql;
use rusqlite::{Connection, Row};
use windlass_types::work::AttemptKey;
use windlass_types::{Attempt, JobId, RunId, Timestamp, WorkflowId};

pub(crate) fn last_records(conn: &Connection, workflow: WorkflowId) -> Result<Vec<LastRecord>, Fault> {
    current_run(conn, workflow)?;
    let mut statement = conn.prepare_cached(sql::LAST_RECORDS)?;
    let rows = statement.query_map([workflow.0], record)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn record(row: &Row<'_>) -> rusqlite::Result<LastRecord> {
    Ok(LastRecord {
        job: JobId(row.get(0)?),
        done_by: AttemptKey {
            workflow: WorkflowId(row.get(1)?),
            job: JobId(row.get(2)?),
            run: RunId(row.get(3)?),
            attempt: Attempt(row.get(4)?),
        },
        started_at: column::time(row, 5)?,
        ended_at: Timestamp(row.get(6)?),
        files: column::json(row, 7)?,
        command: row.get(8)?,
    })
}

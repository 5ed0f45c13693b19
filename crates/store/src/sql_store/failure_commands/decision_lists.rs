//! Lists of decisions and revisions.

use crate::db::{SqlConnection, SqlRow};
use crate::error::SqlError;
use crate::model::{DecisionFilter, DecisionRow, DecisionState, JobRevisionRow, RevisionFilter};
use crate::sql::common as sql;
use crate::sql_store::column_decoding;
use crate::sql_store::failures::parse_class;
use crate::sql_store::query_builder::SqlQuery;
use windlass_types::{Attempt, JobId, RunId, Timestamp, WorkflowId};

pub(crate) fn list_decisions(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    filter: &DecisionFilter,
) -> Result<Vec<DecisionRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_DECISIONS, vec![]);
    query.push("d.workflow_id = ?", vec![Box::new(workflow.0)]);
    if let Some(id) = filter.id {
        query.push(" AND d.id = ?", vec![Box::new(id)]);
    }
    if !filter.jobs.is_empty() {
        let jobs: Vec<String> = filter.jobs.iter().map(|job| job.0.to_string()).collect();
        query.push(&format!(" AND d.job_id IN ({})", jobs.join(", ")), vec![]);
    }
    if let Some(run) = filter.run {
        query.push(" AND d.run_id = ?", vec![Box::new(run.0)]);
    }
    match filter.state {
        None => {}
        Some(DecisionState::Overtaken) => query.push(" AND d.superseded_at IS NOT NULL", vec![]),
        Some(state) => {
            query.push(" AND d.superseded_at IS NULL AND d.state = ?", vec![Box::new(state.as_str())]);
        }
    }
    query.push(" ORDER BY d.id", vec![]);
    query.push_page(filter.offset, filter.limit);
    query.read_rows(db, read_decision_row)
}

fn read_decision_row(row: &SqlRow<'_>) -> Result<DecisionRow, SqlError> {
    let kind: String = row.get(8)?;
    let state: String = row.get(13)?;
    let known = DecisionState::ALL.into_iter().find(|known| known.as_str() == state);
    let next: Option<i64> = row.get(16)?;
    Ok(DecisionRow {
        id: row.get(0)?,
        job_id: JobId(row.get(1)?),
        job_name: row.get(2)?,
        run_id: RunId(row.get(3)?),
        attempt_id: Attempt(row.get(4)?),
        made_at: Timestamp(row.get(5)?),
        made_by: row.get(6)?,
        is_agent: column_decoding::read_flag(row, 7)?,
        kind: kind.parse().map_err(SqlError::damage)?,
        confidence: row.get(9)?,
        reason: row.get(10)?,
        evidence: column_decoding::read_json(row, 11)?.unwrap_or_default(),
        changes: column_decoding::read_json(row, 12)?.unwrap_or_default(),
        state: known.ok_or_else(|| SqlError::damage(format!("unknown decision state `{state}`")))?,
        settled_at: column_decoding::read_time(row, 14)?,
        settled_by: row.get(15)?,
        next_status: next.map(|_| column_decoding::read_status(row, 16)).transpose()?,
        class: row.get::<Option<String>>(17)?.as_deref().map(parse_class).transpose()?,
        signature: row.get(18)?,
        message: row.get(19)?,
    })
}

pub(crate) fn list_revisions(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    filter: RevisionFilter,
) -> Result<Vec<JobRevisionRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_REVISIONS, vec![]);
    query.push("r.workflow_id = ?", vec![Box::new(workflow.0)]);
    if let Some(batch) = filter.batch {
        query.push(" AND r.batch = ?", vec![Box::new(batch)]);
    }
    if let Some(job) = filter.job {
        query.push(" AND r.job_id = ?", vec![Box::new(job.0)]);
    }
    query.push(" ORDER BY r.id", vec![]);
    query.read_rows(db, |row| {
        Ok(JobRevisionRow {
            id: row.get(0)?,
            batch: row.get(1)?,
            job_id: JobId(row.get(2)?),
            job_name: row.get(3)?,
            job_status: column_decoding::read_status(row, 4)?,
            made_at: Timestamp(row.get(5)?),
            made_by: row.get(6)?,
            reason: row.get(7)?,
            before: column_decoding::read_required_json(row, 8)?,
            after: column_decoding::read_required_json(row, 9)?,
            undone_at: column_decoding::read_time(row, 10)?,
            undone_by: row.get(11)?,
            has_run: column_decoding::read_flag(row, 12)?,
        })
    })
}

//! Events of workflows: who did what, when and why.

use super::column_decoding;
use super::job_events::JobEventNumbers;
use super::query_builder::SqlQuery;
use crate::db::{SqlConnection, SqlRow, values};
use crate::error::SqlError;
use crate::model::{EventFilter, EventRow, EventSeverity, NewEvent};
use crate::sql::common as sql;
use crate::sql::workers_and_parts::SELECT_COUNT_OF_EVENTS;
use windlass_types::{EventId, JobId, Timestamp, WorkflowId};

/// Records an event in the open transaction, so that it is committed together with the change it is about.
pub(crate) fn insert_event(
    db: &impl SqlConnection,
    actor: &str,
    event: &NewEvent,
    now: Timestamp,
) -> Result<EventId, SqlError> {
    let data = event.data.as_ref().map(column_decoding::render_json).transpose()?;
    let id = db.query_one(
        sql::INSERT_EVENT,
        values![
            event.workflow.map(|id| id.0),
            now.0,
            severity_code(event.severity),
            event.category,
            actor,
            event.message,
            data,
            event.job.map(|id| id.0),
        ],
        |row| row.get(0),
    )?;
    Ok(EventId(id))
}

pub(crate) fn list_events(
    db: &impl SqlConnection,
    workflow: Option<WorkflowId>,
    filter: &EventFilter,
) -> Result<Vec<EventRow>, SqlError> {
    let query = events_query(workflow, filter);
    let mut rows = query.read_rows(db, read_event_row)?;
    if filter.newest.is_some() {
        rows.reverse();
    }
    Ok(rows)
}

pub(crate) fn events_query(workflow: Option<WorkflowId>, filter: &EventFilter) -> SqlQuery {
    let mut query = SqlQuery::new(sql::SELECT_EVENTS, vec![]);
    push_conditions(&mut query, workflow, filter);
    let from_the_end = filter.newest.is_some() || filter.descending;
    query.push(if from_the_end { " ORDER BY e.id DESC" } else { " ORDER BY e.id" }, vec![]);
    query.push_page(filter.offset, filter.newest.or(filter.limit));
    query
}

pub(crate) fn count_events(
    db: &impl SqlConnection,
    workflow: Option<WorkflowId>,
    filter: &EventFilter,
) -> Result<u64, SqlError> {
    let mut query = SqlQuery::new(SELECT_COUNT_OF_EVENTS, vec![]);
    push_conditions(&mut query, workflow, filter);
    query.read_count(db)
}

fn push_conditions(query: &mut SqlQuery, workflow: Option<WorkflowId>, filter: &EventFilter) {
    query.push("e.id > ?", vec![Box::new(filter.after.map_or(0, |id| id.0))]);
    if let Some(id) = workflow {
        query.push(" AND e.workflow_id = ?", vec![Box::new(id.0)]);
    }
    if let Some(severity) = filter.severity {
        query.push(" AND e.severity >= ?", vec![Box::new(severity_code(severity))]);
    }
    if let Some(category) = &filter.category {
        query.push(" AND e.category = ?", vec![Box::new(category.clone())]);
    }
    if let Some(job) = filter.job {
        query.push(" AND e.job_id = ?", vec![Box::new(job.0)]);
    }
    if let Some(since) = filter.since {
        query.push(" AND e.at > ?", vec![Box::new(since.0)]);
    }
}

pub(crate) fn find_event(db: &impl SqlConnection, id: EventId) -> Result<Option<EventRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_EVENTS, vec![]);
    query.push("e.id = ?", vec![Box::new(id.0)]);
    Ok(query.read_rows(db, read_event_row)?.pop())
}

const SEVERITIES: [EventSeverity; 4] =
    [EventSeverity::Debug, EventSeverity::Info, EventSeverity::Warning, EventSeverity::Error];

/// Its sequence number.
const fn severity_code(severity: EventSeverity) -> u8 {
    severity as u8
}

fn read_event_row(row: &SqlRow<'_>) -> Result<EventRow, SqlError> {
    let severity: i64 = row.get(3)?;
    let known = usize::try_from(severity).ok().and_then(|code| SEVERITIES.get(code)).copied();
    let mut event = EventRow {
        id: EventId(row.get(0)?),
        workflow_id: row.get::<Option<i64>>(1)?.map(WorkflowId),
        job_id: row.get::<Option<i64>>(8)?.map(JobId),
        at: Timestamp(row.get(2)?),
        severity: known.ok_or_else(|| row.conversion_error(3, severity))?,
        category: row.get(4)?,
        actor: row.get(5)?,
        message: row.get(6)?,
        data: column_decoding::read_json(row, 7)?,
    };
    if let Some(job) = event.job_id.filter(|_| event.message.is_empty()) {
        let name: Option<String> = row.get(13)?;
        let numbers = JobEventNumbers {
            run: row.get(9)?,
            attempt: row.get(10)?,
            worker: row.get(11)?,
            return_code: row.get(12)?,
        };
        event.message = numbers.render_message(&event.category, job, name.as_deref());
        event.data.get_or_insert_with(|| numbers.render_data(job, name.as_deref()));
    }
    Ok(event)
}

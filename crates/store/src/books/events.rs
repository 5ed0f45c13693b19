//! What was noted about workflows: who did what, when and why.

use super::column;
use super::job_events::Numbers;
use super::query::Query;
use crate::db::{Db, Row, values};
use crate::error::Fault;
use crate::model::{EventFilter, EventRow, NewEvent, Severity};
use crate::sql::common as sql;
use crate::sql::server::SELECT_COUNT_OF_EVENTS;
use windlass_types::{EventId, JobId, Timestamp, WorkflowId};

/// Notes it in the transaction that is open, so that it is on disk if and only if what it tells of is.
pub(crate) fn note(db: &impl Db, actor: &str, event: &NewEvent, now: Timestamp) -> Result<EventId, Fault> {
    let data = event.data.as_ref().map(column::json_text).transpose()?;
    let id = db.one(
        sql::INSERT_EVENT,
        values![
            event.workflow.map(|id| id.0),
            now.0,
            code(event.severity),
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

pub(crate) fn events(
    db: &impl Db,
    workflow: Option<WorkflowId>,
    filter: &EventFilter,
) -> Result<Vec<EventRow>, Fault> {
    let query = events_query(workflow, filter);
    let mut rows = query.run(db, event_row)?;
    if filter.newest.is_some() {
        rows.reverse();
    }
    Ok(rows)
}

pub(crate) fn events_query(workflow: Option<WorkflowId>, filter: &EventFilter) -> Query {
    let mut query = Query::new(sql::SELECT_EVENTS, vec![]);
    push_conditions(&mut query, workflow, filter);
    let from_the_end = filter.newest.is_some() || filter.descending;
    query.push(if from_the_end { " ORDER BY e.id DESC" } else { " ORDER BY e.id" }, vec![]);
    query.push_page(filter.offset, filter.newest.or(filter.limit));
    query
}

pub(crate) fn count_events(
    db: &impl Db,
    workflow: Option<WorkflowId>,
    filter: &EventFilter,
) -> Result<u64, Fault> {
    let mut query = Query::new(SELECT_COUNT_OF_EVENTS, vec![]);
    push_conditions(&mut query, workflow, filter);
    query.count(db)
}

fn push_conditions(query: &mut Query, workflow: Option<WorkflowId>, filter: &EventFilter) {
    query.push("e.id > ?", vec![Box::new(filter.after.map_or(0, |id| id.0))]);
    if let Some(id) = workflow {
        query.push(" AND e.workflow_id = ?", vec![Box::new(id.0)]);
    }
    if let Some(severity) = filter.severity {
        query.push(" AND e.severity >= ?", vec![Box::new(code(severity))]);
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

pub(crate) fn event(db: &impl Db, id: EventId) -> Result<Option<EventRow>, Fault> {
    let mut query = Query::new(sql::SELECT_EVENTS, vec![]);
    query.push("e.id = ?", vec![Box::new(id.0)]);
    Ok(query.run(db, event_row)?.pop())
}

const SEVERITIES: [Severity; 4] = [Severity::Debug, Severity::Info, Severity::Warning, Severity::Error];

/// Its place in the list.
const fn code(severity: Severity) -> u8 {
    severity as u8
}

fn event_row(row: &Row<'_>) -> Result<EventRow, Fault> {
    let severity: i64 = row.get(3)?;
    let known = usize::try_from(severity).ok().and_then(|code| SEVERITIES.get(code)).copied();
    let mut event = EventRow {
        id: EventId(row.get(0)?),
        workflow_id: row.get::<Option<i64>>(1)?.map(WorkflowId),
        job_id: row.get::<Option<i64>>(8)?.map(JobId),
        at: Timestamp(row.get(2)?),
        severity: known.ok_or_else(|| row.wrong(3, severity))?,
        category: row.get(4)?,
        actor: row.get(5)?,
        message: row.get(6)?,
        data: column::json(row, 7)?,
    };
    if let Some(job) = event.job_id.filter(|_| event.message.is_empty()) {
        let name: Option<String> = row.get(13)?;
        let numbers = Numbers {
            run: row.get(9)?,
            attempt: row.get(10)?,
            worker: row.get(11)?,
            return_code: row.get(12)?,
        };
        event.message = numbers.message(&event.category, job, name.as_deref());
        event.data.get_or_insert_with(|| numbers.data(job, name.as_deref()));
    }
    Ok(event)
}

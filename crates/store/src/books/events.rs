//! What was noted about workflows: who did what, when and why.

use super::column;
use super::query::Query;
use crate::db::{Db, Row, values};
use crate::error::Fault;
use crate::model::{EventFilter, EventRow, NewEvent, Severity};
use crate::sql::common as sql;
use windlass_types::{EventId, Timestamp, WorkflowId};

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
    match filter.newest {
        Some(_) => query.push(" ORDER BY e.id DESC", vec![]),
        None => query.push(" ORDER BY e.id", vec![]),
    }
    query.push_page(0, filter.newest);
    query
}

const SEVERITIES: [Severity; 4] = [Severity::Debug, Severity::Info, Severity::Warning, Severity::Error];

/// Its place in the list.
const fn code(severity: Severity) -> u8 {
    severity as u8
}

fn event_row(row: &Row<'_>) -> Result<EventRow, Fault> {
    let severity: i64 = row.get(3)?;
    let known = usize::try_from(severity).ok().and_then(|code| SEVERITIES.get(code)).copied();
    Ok(EventRow {
        id: EventId(row.get(0)?),
        workflow_id: row.get::<Option<i64>>(1)?.map(WorkflowId),
        at: Timestamp(row.get(2)?),
        severity: known.ok_or_else(|| row.wrong(3, severity))?,
        category: row.get(4)?,
        actor: row.get(5)?,
        message: row.get(6)?,
        data: column::json(row, 7)?,
    })
}

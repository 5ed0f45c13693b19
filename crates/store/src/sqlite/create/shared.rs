//! What the jobs of a new workflow refer to: requirements, failure handlers, schedulers, kinds; and its actions.

use crate::Error;
use crate::error::Fault;
use crate::model::{NewAction, NewKind, NewRequirements, NewWorkflow};
use crate::sql::common as sql;
use crate::sqlite::apply::{bytes, micros};
use crate::sqlite::column;
use rusqlite::{Connection, params};
use windlass_types::{Resources, WorkflowId};

/// The ids of what jobs refer to by number.
pub(crate) struct Shared {
    pub(crate) requirements: Vec<i64>,
    pub(crate) kinds: Vec<i64>,
}

pub(crate) fn insert(conn: &Connection, id: WorkflowId, workflow: &NewWorkflow<'_>) -> Result<Shared, Fault> {
    let requirements = workflow.requirements.iter();
    let requirements = requirements
        .map(|NewRequirements { name, resources }| insert_requirements(conn, id, name, resources));
    let requirements = requirements.collect::<Result<_, _>>()?;
    let mut handlers = Vec::with_capacity(workflow.failure_handlers.len());
    for handler in workflow.failure_handlers {
        let values = params![id.0, handler.name, column::json_text(&handler.rules)?];
        handlers.push(conn.query_row(sql::INSERT_HANDLER, values, |row| row.get(0))?);
    }
    let mut schedulers = Vec::with_capacity(workflow.schedulers.len());
    for scheduler in workflow.schedulers {
        let values = params![id.0, scheduler.name, column::json_text(scheduler)?];
        schedulers.push(conn.query_row(sql::INSERT_SCHEDULER, values, |row| row.get(0))?);
    }
    let kinds = workflow.kinds.iter().map(|kind| {
        let handler = nth(&handlers, kind.failure_handler, "failure handler", kind.name)?;
        let scheduler = nth(&schedulers, kind.scheduler, "scheduler", kind.name)?;
        insert_kind(conn, id, kind, handler, scheduler)
    });
    Ok(Shared { requirements, kinds: kinds.collect::<Result<_, _>>()? })
}

pub(crate) fn insert_requirements(
    conn: &Connection,
    workflow: WorkflowId,
    name: &str,
    resources: &Resources,
) -> Result<i64, Fault> {
    let values = params![
        workflow.0,
        name,
        resources.cpus,
        bytes(resources.memory),
        resources.gpus,
        resources.nodes,
        resources.runtime.map(micros),
    ];
    Ok(conn.prepare_cached(sql::INSERT_REQUIREMENTS)?.query_row(values, |row| row.get(0))?)
}

pub(crate) fn insert_kind(
    conn: &Connection,
    workflow: WorkflowId,
    kind: &NewKind<'_>,
    handler: Option<i64>,
    scheduler: Option<i64>,
) -> Result<i64, Fault> {
    let values = params![
        workflow.0,
        kind.name,
        column::env_text(kind.env),
        kind.invocation_script,
        kind.stdio.map(|stdio| column::stdio_name(stdio.mode)),
        kind.stdio.map(|stdio| i64::from(stdio.delete_on_success)),
        kind.supports_termination.map(i64::from),
        handler,
        scheduler,
        column::json_text(kind.labels)?,
        column::json_text(kind.parameters)?,
    ];
    Ok(conn.prepare_cached(sql::INSERT_KIND)?.query_row(values, |row| row.get(0))?)
}

pub(crate) fn insert_actions(
    conn: &Connection,
    workflow: WorkflowId,
    actions: &[NewAction<'_>],
    first_job: i64,
    job_count: i64,
) -> Result<(), Fault> {
    for NewAction { action, jobs } in actions {
        let values = params![workflow.0, column::json_text(action)?];
        let id: i64 = conn.prepare_cached(sql::INSERT_ACTION)?.query_row(values, |row| row.get(0))?;
        let mut statement = conn.prepare_cached(sql::INSERT_ACTION_JOB)?;
        for &job in super::sorted(jobs).iter() {
            if i64::from(job) >= job_count {
                let what = format!("job number {job} of {job_count}, for which an action waits");
                return Err(Error::OutOfRange { what }.into());
            }
            statement.execute([id, first_job + i64::from(job)])?;
        }
    }
    Ok(())
}

/// The id of what somebody refers to by number.
pub(crate) fn nth(ids: &[i64], number: Option<u32>, what: &str, of: &str) -> Result<Option<i64>, Fault> {
    let Some(number) = number else { return Ok(None) };
    let found = ids.get(number as usize).copied();
    let missing = || Error::OutOfRange { what: format!("{what} {number} of `{of}`") };
    Ok(Some(found.ok_or_else(missing)?))
}

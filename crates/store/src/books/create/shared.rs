//! What the jobs of a new workflow refer to: requirements, failure handlers, schedulers, kinds; and its actions.

use crate::Error;
use crate::books::apply::{bytes, micros};
use crate::books::column;
use crate::db::{Db, Loader as _, values};
use crate::error::Fault;
use crate::model::{NewAction, NewKind, NewRequirements, NewWorkflow};
use crate::sql::{common as sql, tables};
use windlass_types::{Resources, WorkflowId};

/// The ids of what jobs refer to by number.
pub(crate) struct Shared {
    pub(crate) requirements: Vec<i64>,
    pub(crate) kinds: Vec<i64>,
    /// Those of them that elect.
    pub(crate) electing: Vec<u32>,
}

pub(crate) fn insert(db: &impl Db, id: WorkflowId, workflow: &NewWorkflow<'_>) -> Result<Shared, Fault> {
    let requirements = workflow.requirements.iter();
    let requirements =
        requirements.map(|NewRequirements { name, resources }| insert_requirements(db, id, name, resources));
    let requirements = requirements.collect::<Result<_, _>>()?;
    let mut handlers = Vec::with_capacity(workflow.failure_handlers.len());
    for handler in workflow.failure_handlers {
        let rules = column::json_text(&handler.rules)?;
        handlers.push(db.one(sql::INSERT_HANDLER, values![id.0, handler.name, rules], |row| row.get(0))?);
    }
    let mut schedulers = Vec::with_capacity(workflow.schedulers.len());
    for scheduler in workflow.schedulers {
        let settings = column::json_text(scheduler)?;
        schedulers
            .push(db.one(sql::INSERT_SCHEDULER, values![id.0, scheduler.name, settings], |row| row.get(0))?);
    }
    let kinds = workflow.kinds.iter().map(|kind| {
        let handler = nth(&handlers, kind.failure_handler, "failure handler", kind.name)?;
        let scheduler = nth(&schedulers, kind.scheduler, "scheduler", kind.name)?;
        insert_kind(db, id, kind, handler, scheduler)
    });
    let electing = (0..).zip(workflow.kinds).filter(|(_, kind)| kind.elects).map(|(number, _)| number);
    let electing = electing.collect();
    Ok(Shared { requirements, kinds: kinds.collect::<Result<_, _>>()?, electing })
}

pub(crate) fn insert_requirements(
    db: &impl Db,
    workflow: WorkflowId,
    name: &str,
    resources: &Resources,
) -> Result<i64, Fault> {
    let values = values![
        workflow.0,
        name,
        resources.cpus,
        bytes(resources.memory),
        resources.gpus,
        resources.nodes,
        resources.runtime.map(micros),
    ];
    db.one(sql::INSERT_REQUIREMENTS, values, |row| row.get(0))
}

pub(crate) fn insert_kind(
    db: &impl Db,
    workflow: WorkflowId,
    kind: &NewKind<'_>,
    handler: Option<i64>,
    scheduler: Option<i64>,
) -> Result<i64, Fault> {
    let env = column::env_text(kind.env);
    let (labels, parameters) = (column::json_text(kind.labels)?, column::json_text(kind.parameters)?);
    let sites = (!kind.sites.is_empty()).then(|| column::json_text(kind.sites)).transpose()?;
    let values = values![
        workflow.0,
        kind.name,
        env,
        kind.invocation_script,
        kind.stdio.map(|stdio| column::stdio_name(stdio.mode)),
        kind.stdio.map(|stdio| i64::from(stdio.delete_on_success)),
        kind.supports_termination.map(i64::from),
        handler,
        scheduler,
        labels,
        parameters,
        sites,
        kind.limit,
        i64::from(kind.elects),
    ];
    db.one(sql::INSERT_KIND, values, |row| row.get(0))
}

pub(crate) fn insert_actions(
    db: &impl Db,
    workflow: WorkflowId,
    actions: &[NewAction<'_>],
    first_job: i64,
    job_count: i64,
) -> Result<(), Fault> {
    for NewAction { action, jobs } in actions {
        let settings = column::json_text(action)?;
        let values = values![workflow.0, settings];
        let id: i64 = db.one(sql::INSERT_ACTION, values, |row| row.get(0))?;
        let mut rows = db.load_into(&tables::ACTION_JOB)?;
        for &job in super::sorted(jobs).iter() {
            if i64::from(job) >= job_count {
                let what = format!("job number {job} of {job_count}, for which an action waits");
                return Err(Error::OutOfRange { what }.into());
            }
            rows.push(&values![id, first_job + i64::from(job)])?;
        }
        rows.finish()?;
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

//! Shared parts of a new workflow: requirements, failure handlers, schedulers, job groups; and its actions.

use crate::StoreError;
use crate::db::{BulkLoader as _, SqlConnection, values};
use crate::error::SqlError;
use crate::model::{NewAction, NewRequirements, NewWorkflow};
use crate::sql::{common as sql, tables};
use crate::sql_store::apply_changes::{to_micros, to_sql_bytes};
use crate::sql_store::column_decoding;
use windlass_types::{JobGroup, Resources, WorkflowId};

/// The ids of parts that jobs refer to by index.
pub(crate) struct SharedIds {
    pub(crate) requirements: Vec<i64>,
    pub(crate) job_groups: Vec<i64>,
    /// The job groups whose jobs are landing jobs.
    pub(crate) site_electing: Vec<u32>,
}

pub(crate) fn insert_shared(
    db: &impl SqlConnection,
    id: WorkflowId,
    workflow: &NewWorkflow<'_>,
) -> Result<SharedIds, SqlError> {
    let requirements = workflow.requirements.iter();
    let requirements =
        requirements.map(|NewRequirements { name, resources }| insert_requirements(db, id, name, resources));
    let requirements = requirements.collect::<Result<_, _>>()?;
    let mut handlers = Vec::with_capacity(workflow.failure_handlers.len());
    for handler in workflow.failure_handlers {
        let rules = column_decoding::render_json(&handler.rules)?;
        handlers
            .push(db.query_one(sql::INSERT_HANDLER, values![id.0, handler.name, rules], |row| row.get(0))?);
    }
    let mut schedulers = Vec::with_capacity(workflow.schedulers.len());
    for scheduler in workflow.schedulers {
        let settings = column_decoding::render_json(scheduler)?;
        schedulers.push(db.query_one(
            sql::INSERT_SCHEDULER,
            values![id.0, scheduler.name, settings],
            |row| row.get(0),
        )?);
    }
    let job_groups = workflow.job_groups.iter().map(|job_group| {
        let resolved = job_group.clone().try_map_references(
            |number| resolve_number(&handlers, number, "failure handler", &job_group.name),
            |number| resolve_number(&schedulers, number, "scheduler", &job_group.name),
        )?;
        insert_job_group(db, id, &resolved)
    });
    let electing = (0..)
        .zip(workflow.job_groups)
        .filter(|(_, job_group)| job_group.elects_site)
        .map(|(number, _)| number);
    let electing = electing.collect();
    Ok(SharedIds { requirements, job_groups: job_groups.collect::<Result<_, _>>()?, site_electing: electing })
}

pub(crate) fn insert_requirements(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    name: &str,
    resources: &Resources,
) -> Result<i64, SqlError> {
    let values = values![
        workflow.0,
        name,
        resources.cpus,
        to_sql_bytes(resources.memory),
        resources.gpus,
        resources.nodes,
        resources.runtime.map(to_micros),
    ];
    db.query_one(sql::INSERT_REQUIREMENTS, values, |row| row.get(0))
}

pub(crate) fn insert_job_group(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    job_group: &JobGroup<i64>,
) -> Result<i64, SqlError> {
    let env = column_decoding::render_env(&job_group.env);
    let settings = &job_group.settings;
    let (labels, parameters) = (
        column_decoding::render_json(&settings.labels)?,
        column_decoding::render_json(&job_group.parameters)?,
    );
    let sites =
        (!settings.sites.is_empty()).then(|| column_decoding::render_json(&settings.sites)).transpose()?;
    let values = values![
        workflow.0,
        job_group.name,
        env,
        job_group.invocation_script,
        settings.stdio.map(|stdio| column_decoding::stdio_name(stdio.mode)),
        settings.stdio.map(|stdio| i64::from(stdio.delete_on_success)),
        settings.supports_termination.map(i64::from),
        settings.failure_handler,
        settings.scheduler,
        labels,
        parameters,
        sites,
        settings.limit,
        i64::from(job_group.elects_site),
    ];
    db.query_one(sql::INSERT_JOB_GROUP, values, |row| row.get(0))
}

pub(crate) fn insert_actions(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    actions: &[NewAction<'_>],
    first_job: i64,
    job_count: i64,
) -> Result<(), SqlError> {
    for NewAction { action, jobs } in actions {
        let settings = column_decoding::render_json(action)?;
        let values = values![workflow.0, settings];
        let id: i64 = db.query_one(sql::INSERT_ACTION, values, |row| row.get(0))?;
        let mut rows = db.open_loader(&tables::ACTION_JOB)?;
        for &job in super::sorted_copy(jobs).iter() {
            if i64::from(job) >= job_count {
                let what = format!("job index {job} of {job_count} in an action");
                return Err(StoreError::OutOfRange { what }.into());
            }
            rows.push(&values![id, first_job + i64::from(job)])?;
        }
        rows.finish()?;
    }
    Ok(())
}

/// Returns the id of a part by index.
pub(crate) fn resolve_number(ids: &[i64], number: u32, what: &str, of: &str) -> Result<i64, SqlError> {
    let found = ids.get(number as usize).copied();
    Ok(found.ok_or_else(|| StoreError::OutOfRange { what: format!("{what} {number} of `{of}`") })?)
}

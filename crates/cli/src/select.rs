//! Finds the workflow or job that the command line means.

use crate::args::{JobRef, WorkflowRef};
use crate::error::CliError;
use windlass_store::Store;
use windlass_store::model::{JobFilter, JobRow, WorkflowRow};
use windlass_types::{JobId, WorkflowId};

pub(crate) fn workflow(store: &dyn Store, wanted: &WorkflowRef) -> Result<WorkflowRow, CliError> {
    match wanted {
        WorkflowRef::Id(id) => store.workflow(*id)?.ok_or_else(|| {
            CliError::user(format!("there is no workflow {id}")).with_hint("`windlass workflows` lists them")
        }),
        WorkflowRef::Last => store.workflows()?.into_iter().max_by_key(|row| row.id).ok_or_else(|| {
            CliError::user("there is no workflow yet").with_hint("`windlass run SPEC` makes one and runs it")
        }),
        WorkflowRef::Name(name) => by_name(store.workflows()?, name),
    }
}

fn by_name(all: Vec<WorkflowRow>, name: &str) -> Result<WorkflowRow, CliError> {
    let mut named: Vec<WorkflowRow> = all.into_iter().filter(|row| row.name == name).collect();
    named.sort_by_key(|row| std::cmp::Reverse(row.id));
    let ids: Vec<WorkflowId> = named.iter().map(|row| row.id).collect();
    match ids.as_slice() {
        [] => Err(CliError::user(format!("there is no workflow named `{name}`"))
            .with_hint("`windlass workflows` lists them")),
        [_] => Ok(named.remove(0)),
        [newest, ..] => {
            let list = ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            Err(CliError::user(format!("{} workflows are named `{name}`: {list}", ids.len()))
                .with_hint(format!("name it by its id; the newest is {newest}")))
        }
    }
}

/// The job that was named on the command line. `elsewhere` says how that command names another workflow.
pub(crate) fn job(
    store: &dyn Store,
    workflow: &WorkflowRow,
    wanted: &JobRef,
    elsewhere: &str,
) -> Result<JobRow, CliError> {
    let by_id = wanted.id.map(|id| job_by_id(store, workflow, id)).transpose()?.flatten();
    let by_name = JobFilter { name: Some(wanted.text.clone()), ..JobFilter::default() };
    let by_name = store.jobs(workflow.id, &by_name)?.into_iter().next();
    match (by_id, by_name) {
        (Some(first), Some(second)) if first.id != second.id => Err(CliError::user(format!(
            "`{0}` is the id of job `{1}` and the name of job {2}",
            wanted.text, first.name, second.id
        ))
        .with_hint(format!("say `{}` or {}", first.name, second.id))),
        (Some(job), _) | (None, Some(job)) => Ok(job),
        (None, None) => Err(CliError::user(format!(
            "workflow {} ({}) has no job `{}`",
            workflow.id, workflow.name, wanted.text
        ))
        .with_hint(format!(
            "`windlass jobs {}` lists its jobs; {elsewhere} names another workflow",
            workflow.id
        ))),
    }
}

pub(crate) fn job_by_id(
    store: &dyn Store,
    workflow: &WorkflowRow,
    id: JobId,
) -> Result<Option<JobRow>, CliError> {
    let by_id = JobFilter { ids: vec![id], ..JobFilter::default() };
    Ok(store.jobs(workflow.id, &by_id)?.into_iter().next())
}

//! Finds the workflow or job that the command line means.

use crate::args::{JobRef, WorkflowRef};
use crate::error::CliError;
use windlass_store::Store;
use windlass_store::model::{JobFilter, JobRow, WorkflowRow};
use windlass_types::WorkflowId;

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

pub(crate) fn job(store: &dyn Store, workflow: &WorkflowRow, wanted: &JobRef) -> Result<JobRow, CliError> {
    if let Some(id) = wanted.id {
        let by_id = JobFilter { ids: vec![id], ..JobFilter::default() };
        if let Some(job) = store.jobs(workflow.id, &by_id)?.into_iter().next() {
            return Ok(job);
        }
    }
    let by_name = JobFilter { name: Some(wanted.text.clone()), ..JobFilter::default() };
    store.jobs(workflow.id, &by_name)?.into_iter().next().ok_or_else(|| {
        CliError::user(format!("workflow {} ({}) has no job `{}`", workflow.id, workflow.name, wanted.text))
            .with_hint(format!(
                "`windlass jobs {}` lists its jobs; --workflow names another workflow",
                workflow.id
            ))
    })
}

//! Makes a workflow from an export file: the ids in it are given anew, in the order of the file.

mod history;
mod source;

use super::create;
use super::manage::By;
use crate::Error;
use crate::db::Db;
use crate::error::Fault;
use crate::model::export::{Export, ExportedRequirements, ImportOptions};
use crate::model::{NewAction, NewKind, NewRequirements, NewWorkflow};
use serde_json::json;
use source::{Kinds, Numbers, Source};
use windlass_core::edges::Edges;
use windlass_core::graph::Graph;
use windlass_types::settings::FailureHandler;
use windlass_types::{Resources, WorkflowId, parse_duration};

/// One transaction, on a connection of its own.
pub(crate) fn import(
    db: &impl Db,
    export: &Export,
    options: &ImportOptions,
    by: By<'_>,
) -> Result<WorkflowId, Fault> {
    if export.export_version != Export::VERSION {
        let (found, known) = (&export.export_version, Export::VERSION);
        return Err(bad(format!("it has version {found}, this windlass reads {known}")).into());
    }
    let numbers = Numbers::of(export)?;
    let edges = edges(export, &numbers)?;
    let with_results = export.results.is_some() && !options.without_results;
    let id = insert(db, export, options, &numbers, &edges, with_results, by)?;
    let jobs = super::load::Blocks::read(db, id)?;
    let first_job = jobs.iter().next().map_or(0, |block| block.first);
    history::insert_spawns(db, id, export, &numbers, first_job)?;
    if with_results {
        history::insert(db, id, export, &numbers, first_job)?;
    }
    history::insert_events(db, id, export)?;
    let message = format!("imported `{}` with {} jobs", export.workflow.name, export.jobs.len());
    by.note(db, id, "workflow", message, json!({ "jobs": export.jobs.len(), "with_results": with_results }))?;
    Ok(id)
}

pub(super) fn bad(what: String) -> Error {
    Error::BadExport { what }
}

fn insert(
    db: &impl Db,
    export: &Export,
    options: &ImportOptions,
    numbers: &Numbers,
    edges: &Edges,
    with_results: bool,
    by: By<'_>,
) -> Result<WorkflowId, Fault> {
    let requirements =
        export.resource_requirements.iter().map(requirements).collect::<Result<Vec<_>, _>>()?;
    let handlers: Vec<FailureHandler> = export
        .failure_handlers
        .iter()
        .map(|handler| FailureHandler { name: handler.name.clone(), rules: handler.rules.clone() })
        .collect();
    let schedulers: Vec<_> = export.slurm_schedulers.iter().map(|row| row.scheduler.clone()).collect();
    let kinds = Kinds::of(export);
    let new_kinds =
        kinds.list.iter().map(|kind| kind.resolve(numbers)).collect::<Result<Vec<NewKind<'_>>, _>>()?;
    let waited_for =
        export.workflow_actions.iter().map(|action| numbers.jobs.all(&action.job_ids, "an action"));
    let waited_for = waited_for.collect::<Result<Vec<_>, _>>()?;
    let actions: Vec<NewAction<'_>> = export
        .workflow_actions
        .iter()
        .zip(&waited_for)
        .map(|(row, jobs)| NewAction { action: &row.action, jobs })
        .collect();
    let workflow = &export.workflow;
    let from = |chosen: &'_ Option<String>, said: &'_ Option<String>| chosen.clone().or_else(|| said.clone());
    let submission_dir = from(&options.submission_dir, &workflow.submission_directory).unwrap_or_default();
    let output_dir = from(&options.output_dir, &workflow.output_directory).unwrap_or_default();
    let new = NewWorkflow {
        name: options.name.as_deref().unwrap_or(&workflow.name),
        user: options.user.as_deref().unwrap_or(&workflow.user),
        description: workflow.description.as_deref(),
        submission_dir: &submission_dir,
        output_dir: &output_dir,
        // The spec that it came from, run again, makes a workflow of its own and not this one; and a file from elsewhere
        // does not get to name one of ours.
        spec_path: None,
        spec_digest: None,
        env: &workflow.env,
        stdio: workflow.stdio,
        settings: Some(&workflow.settings),
        requirements: &requirements,
        failure_handlers: &handlers,
        schedulers: &schedulers,
        kinds: &new_kinds,
        actions: &actions,
        edges,
    };
    create::insert(db, &new, &mut Source::new(export, numbers, &kinds, with_results)?, by.now)
}

fn requirements(row: &ExportedRequirements) -> Result<NewRequirements<'_>, Error> {
    let wrong =
        |e: windlass_types::ParseAmountError| bad(format!("resource requirements `{}`: {e}", row.name));
    let resources = Resources {
        cpus: row.num_cpus,
        memory: row.memory.parse().map_err(wrong)?,
        gpus: row.num_gpus,
        nodes: row.num_nodes,
        runtime: row.runtime.as_deref().map(parse_duration).transpose().map_err(wrong)?,
    };
    Ok(NewRequirements { name: &row.name, resources })
}

fn edges(export: &Export, numbers: &Numbers) -> Result<Edges, Error> {
    let mut edges = Edges::default();
    for (number, job) in (0..).zip(&export.jobs) {
        let named = || format!("job `{}`", job.name);
        for &on in &job.depends_on_job_ids {
            edges.direct.push((number, numbers.jobs.one(on, named)?));
        }
        for &gate in &job.depends_on_gates {
            if gate as usize >= export.gates.len() {
                return Err(bad(format!("{} waits for gate {gate}, of which there is none", named())));
            }
            edges.waits.push((number, gate));
        }
    }
    for members in &export.gates {
        edges.gates.push(numbers.jobs.all(members, "a gate")?);
    }
    for list in [&mut edges.direct, &mut edges.waits] {
        list.sort_unstable();
        list.dedup();
    }
    match Graph::new(export.jobs.len() as u32, &edges) {
        Ok(_) => Ok(edges),
        Err(_) => Err(bad("its jobs wait for each other in a circle".to_owned())),
    }
}

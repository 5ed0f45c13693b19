//! Creates a workflow from an export file and assigns new ids in the order of the file.

mod history;
mod import_source;

use super::create;
use super::workflow_updates::AuditContext;
use crate::StoreError;
use crate::db::SqlConnection;
use crate::error::SqlError;
use crate::model::export::{ExportedRequirements, ImportOptions, WorkflowExport};
use crate::model::{NewAction, NewRequirements, NewWorkflow};
use import_source::{ImportNumbering, ImportSource, ImportedJobGroups};
use serde_json::json;
use windlass_core::dependency_edges::DependencyEdges;
use windlass_core::dependency_graph::JobDependencyGraph;
use windlass_types::settings::FailureHandler;
use windlass_types::{Resources, WorkflowId, parse_duration};

/// One transaction, on a connection of its own.
pub(crate) fn import_workflow(
    db: &impl SqlConnection,
    export: &WorkflowExport,
    options: &ImportOptions,
    by: AuditContext<'_>,
) -> Result<WorkflowId, SqlError> {
    if export.export_version != WorkflowExport::VERSION {
        let (found, known) = (&export.export_version, WorkflowExport::VERSION);
        return Err(bad_export_error(format!("it has version {found}; this windlass reads {known}")).into());
    }
    let numbers = ImportNumbering::from_export(export)?;
    let edges = import_edges(export, &numbers)?;
    let with_results = export.results.is_some() && !options.without_results;
    let id = insert_workflow(db, export, options, &numbers, &edges, with_results, by)?;
    let jobs = super::job_loading::JobIdBlocks::load(db, id)?;
    let first_job = jobs.iter().next().map_or(0, |block| block.first);
    history::insert_spawns(db, id, export, &numbers, first_job)?;
    if with_results {
        history::insert_history(db, id, export, &numbers, first_job)?;
    }
    history::insert_events(db, id, export)?;
    let message = format!("imported `{}` with {} jobs", export.workflow.name, export.jobs.len());
    by.record_event(
        db,
        id,
        "workflow",
        message,
        json!({ "jobs": export.jobs.len(), "with_results": with_results }),
    )?;
    Ok(id)
}

pub(super) fn bad_export_error(what: String) -> StoreError {
    StoreError::BadExport { what }
}

fn insert_workflow(
    db: &impl SqlConnection,
    export: &WorkflowExport,
    options: &ImportOptions,
    numbers: &ImportNumbering,
    edges: &DependencyEdges,
    with_results: bool,
    by: AuditContext<'_>,
) -> Result<WorkflowId, SqlError> {
    let requirements =
        export.resource_requirements.iter().map(new_requirements).collect::<Result<Vec<_>, _>>()?;
    let handlers: Vec<FailureHandler> = export
        .failure_handlers
        .iter()
        .map(|handler| FailureHandler { name: handler.name.clone(), rules: handler.rules.clone() })
        .collect();
    let schedulers: Vec<_> = export.slurm_schedulers.iter().map(|row| row.scheduler.clone()).collect();
    let job_groups = ImportedJobGroups::from_export(export);
    let new_job_groups = job_groups
        .list
        .iter()
        .map(|job_group| job_group.to_new_group(numbers))
        .collect::<Result<Vec<_>, _>>()?;
    let waited_for =
        export.workflow_actions.iter().map(|action| numbers.jobs.resolve_all(&action.job_ids, "an action"));
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
        // Running the original spec again creates a new workflow instead of resuming this one; and an external
        // file must not name a workflow here.
        spec_path: None,
        spec_digest: None,
        env: &workflow.env,
        stdio: workflow.stdio,
        settings: Some(&workflow.settings),
        requirements: &requirements,
        failure_handlers: &handlers,
        schedulers: &schedulers,
        job_groups: &new_job_groups,
        actions: &actions,
        edges,
    };
    create::insert_all(db, &new, &mut ImportSource::new(export, numbers, &job_groups, with_results)?, by.now)
}

fn new_requirements(row: &ExportedRequirements) -> Result<NewRequirements<'_>, StoreError> {
    let wrong = |e: windlass_types::ParseAmountError| {
        bad_export_error(format!("resource requirements `{}`: {e}", row.name))
    };
    let resources = Resources {
        cpus: row.num_cpus,
        memory: row.memory.parse().map_err(wrong)?,
        gpus: row.num_gpus,
        nodes: row.num_nodes,
        runtime: row.runtime.as_deref().map(parse_duration).transpose().map_err(wrong)?,
    };
    Ok(NewRequirements { name: &row.name, resources })
}

fn import_edges(export: &WorkflowExport, numbers: &ImportNumbering) -> Result<DependencyEdges, StoreError> {
    let mut edges = DependencyEdges::default();
    for (number, job) in (0..).zip(&export.jobs) {
        let named = || format!("job `{}`", job.name);
        for &on in &job.depends_on_job_ids {
            edges.direct.push((number, numbers.jobs.resolve(on, named)?));
        }
        for &group in &job.depends_on_groups {
            if group as usize >= export.dependency_groups.len() {
                return Err(bad_export_error(format!(
                    "{} waits for dependency group {group}, which does not exist",
                    named()
                )));
            }
            edges.waits.push((number, group));
        }
    }
    for members in &export.dependency_groups {
        edges.groups.push(numbers.jobs.resolve_all(members, "a dependency group")?);
    }
    for list in [&mut edges.direct, &mut edges.waits] {
        list.sort_unstable();
        list.dedup();
    }
    match JobDependencyGraph::new(export.jobs.len() as u32, &edges) {
        Ok(_) => Ok(edges),
        Err(_) => Err(bad_export_error("its jobs have a dependency cycle".to_owned())),
    }
}

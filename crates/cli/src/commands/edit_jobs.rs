//! Workflows and jobs created, changed and deleted one at a time: `workflows new`, `jobs create`, `update`,
//! `delete` …

use super::edit_objects::{self, find_requirements_id};
use super::jobs;
use crate::args::crud::{
    CreateJobArgs, CreateJobsArgs, DeleteAllJobsArgs, DeleteJobsArgs, NewWorkflowArgs, UpdateJobArgs,
};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::failure_commands;
use crate::object_selection;
use crate::spec_file;
use crate::ui::listing::ListFields;
use crate::ui::text;
use crate::workflow_view::WorkflowView;
use windlass_store::Store;
use windlass_store::model::{
    AddJob, InMemoryJobSource, JobFilter, JobRow, JobUpdate, NewJob, NewWorkflow, WorkflowRow,
};
use windlass_types::failure_commands::{
    FailureCommand, FailureCommandBatch, FailureCommandKind, FailureCommandStatus, RequestedJobChanges,
};
use windlass_types::{Bytes, JobDefinition, JobId, RequirementsId, Resources, WorkflowId};

/// Maximum number of jobs named in a confirmation prompt.
const MAX_NAMED: usize = 5;

pub(crate) fn new_workflow(ctx: &CliContext, args: &NewWorkflowArgs) -> Result<CliExit, CliError> {
    if args.name.is_empty() {
        return Err(CliError::user("the name of a workflow must not be empty"));
    }
    let output_dir = spec_file::output_directory(ctx, &args.output)?;
    let store = ctx.open_or_create()?;
    let new = NewWorkflow {
        name: &args.name,
        user: &spec_file::current_user(),
        description: args.description.as_deref(),
        submission_dir: spec_file::path_to_utf8(&ctx.cwd)?,
        output_dir: spec_file::path_to_utf8(&output_dir)?,
        ..NewWorkflow::default()
    };
    let none = std::iter::empty::<NewJob<'_>>();
    let id = store.create_workflow(&new, &mut InMemoryJobSource::new(none), ctx.clock.now())?;
    if ctx.ui.wants_json() {
        let row = object_selection::find_workflow(&*store, &crate::args::WorkflowRef::Id(id))?;
        let view = WorkflowView::new(row, false, ctx.clock.now());
        ctx.ui.print_record(&ListFields::new(super::workflows::FIELDS), view)?;
    } else {
        ctx.ui.print_line(&format!("workflow {id}: {}", args.name))?;
        ctx.ui.print_note(&format!("next: windlass jobs create {id} --name NAME --command CMD"));
    }
    Ok(CliExit::Success)
}

pub(crate) fn create_job(ctx: &CliContext, args: &CreateJobArgs) -> Result<CliExit, CliError> {
    if args.name.is_empty() {
        return Err(CliError::user("the name of a job must not be empty"));
    }
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let requirements = args.resource_requirements_id.as_deref();
    let files = |names: &[String]| {
        names
            .iter()
            .map(|name| edit_objects::find_file_id(&*store, &workflow, name))
            .collect::<Result<_, _>>()
    };
    let requirements = requirements.map(|name| find_requirements_id(&*store, &workflow, name)).transpose()?;
    let job = AddJob {
        definition: JobDefinition {
            resource_requirements: requirements.map(|id| id.0),
            priority: args.priority,
            ..JobDefinition::new(&*args.name, &*args.command)
        },
        waits_for: find_jobs(&*store, &workflow, &args.blocking_job_ids)?.iter().map(|job| job.id).collect(),
        input_files: files(&args.input_file_ids)?,
        output_files: files(&args.output_file_ids)?,
        ..AddJob::default()
    };
    let added = store.add_jobs(workflow.id, &[job], ctx.clock.now())?;
    print_job(ctx, &*store, &workflow, added[0])
}

fn print_job(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: &WorkflowRow,
    id: JobId,
) -> Result<CliExit, CliError> {
    let job = object_selection::find_job_by_id(store, workflow, id)?
        .ok_or(CliError::from(windlass_store::StoreError::NoSuchJob(id)))?;
    if ctx.ui.wants_json() {
        jobs::print_record(ctx, store, job)?;
    } else {
        ctx.ui.print_line(&format!("job {id}: {}", job.name))?;
    }
    Ok(CliExit::Success)
}

pub(crate) fn create_jobs_from_file(ctx: &CliContext, args: &CreateJobsArgs) -> Result<CliExit, CliError> {
    let commands = super::exec::read_commands(&args.file)?;
    if commands.is_empty() {
        return Err(CliError::user(format!("{} contains no commands", args.file.display())));
    }
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let now = ctx.clock.now();
    let first = 1 + highest_number(&*store, &workflow)?;
    let requirements = requirements_for(ctx, &*store, workflow.id, first, args)?;
    let jobs: Vec<AddJob> = (first..)
        .zip(commands)
        .map(|(n, command)| {
            let resource_requirements = requirements.map(|id| id.0);
            JobDefinition { resource_requirements, ..JobDefinition::new(job_name(n), command) }.into()
        })
        .collect();
    let added = store.add_jobs(workflow.id, &jobs, now)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&serde_json::json!({ "workflow_id": workflow.id, "job_ids": added }))?;
    } else {
        let last = job_name(first + added.len() as u64 - 1);
        let names = if added.len() == 1 { last } else { format!("{} to {last}", job_name(first)) };
        ctx.ui.print_line(&format!("workflow {}: {names}", workflow.id))?;
    }
    Ok(CliExit::Success)
}

fn job_name(number: u64) -> String {
    format!("job{number}")
}

/// Among the jobs named `job<N>`.
fn highest_number(store: &dyn Store, workflow: &WorkflowRow) -> Result<u64, CliError> {
    let filter = JobFilter { name_prefix: Some("job".to_owned()), ..JobFilter::default() };
    let jobs = store.jobs(workflow.id, &filter)?;
    let numbers = jobs.iter().filter_map(|job| job.name.strip_prefix("job")?.parse().ok());
    Ok(numbers.max().unwrap_or(0))
}

/// One set of requirements for all jobs of the file, if any were given; named after the first job.
fn requirements_for(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
    first: u64,
    args: &CreateJobsArgs,
) -> Result<Option<RequirementsId>, CliError> {
    let CreateJobsArgs { cpus_per_job: cpus, memory_per_job: memory, runtime_per_job: runtime, .. } = args;
    if cpus.is_none() && memory.is_none() && runtime.is_none() {
        return Ok(None);
    }
    let resources = Resources {
        cpus: cpus.unwrap_or(1),
        memory: memory.unwrap_or(Bytes(0)),
        runtime: *runtime,
        ..Resources::DEFAULT
    };
    let name = format!("{}_and_on", job_name(first));
    Ok(Some(store.add_requirements(workflow, &name, &resources, ctx.clock.now())?))
}

pub(crate) fn update_job(ctx: &CliContext, args: &UpdateJobArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let (workflow, job) = object_selection::find_job_anywhere(&*store, &args.job, &args.workflow)?;
    let update = job_update(&*store, &workflow, args)?;
    let asked =
        RequestedJobChanges { memory_bytes: args.memory, cpus: args.cpus, ..RequestedJobChanges::default() };
    if update == JobUpdate::default() && asked.is_empty() {
        return Err(CliError::user("no changes given").with_hint(
            "use --name, --command, --memory, --cpus, --runtime, --resource-requirements-id, --priority, --label or --clear-labels",
        ));
    }
    if !asked.is_empty() {
        change_resources(ctx, &*store, &workflow, &job, asked)?;
    }
    if update != JobUpdate::default() {
        let changes = store.update_job(workflow.id, job.id, &update, ctx.clock.now())?;
        edit_objects::print_changes(ctx, &format!("job {} ({})", job.id, job.name), &changes);
    }
    if ctx.ui.wants_json() {
        return print_job(ctx, &*store, &workflow, job.id);
    }
    Ok(CliExit::Success)
}

/// Applied as a failure command: it can be undone, and is checked against the capacity of the workers.
fn change_resources(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: &WorkflowRow,
    job: &JobRow,
    changes: RequestedJobChanges,
) -> Result<(), CliError> {
    let order = FailureCommand {
        job: job.id,
        kind: FailureCommandKind::Change,
        changes,
        reason: "jobs update".to_owned(),
        confidence: None,
        evidence: Vec::new(),
    };
    let orders = FailureCommandBatch { orders: vec![order], ..FailureCommandBatch::default() };
    for outcome in failure_commands::submit_failure_commands_within_limits(store, workflow.id, orders)? {
        let message = format!("job {} ({}): {}", job.id, job.name, outcome.words);
        if outcome.answer != FailureCommandStatus::Done {
            return Err(CliError::refused(message));
        }
        ctx.ui.print_note(&message);
    }
    Ok(())
}

fn job_update(
    store: &dyn Store,
    workflow: &WorkflowRow,
    args: &UpdateJobArgs,
) -> Result<JobUpdate, CliError> {
    if args.name.as_deref() == Some("") {
        return Err(CliError::user("the name of a job must not be empty"));
    }
    let requirements = args.resource_requirements_id.as_deref();
    let new_labels = args.clear_labels || !args.label.is_empty();
    Ok(JobUpdate {
        name: args.name.clone(),
        command: args.command.clone(),
        requirements: requirements.map(|name| find_requirements_id(store, workflow, name)).transpose()?,
        runtime: args.runtime,
        priority: args.priority,
        labels: new_labels.then(|| args.label.clone()),
        ..JobUpdate::default()
    })
}

pub(crate) fn delete_jobs(ctx: &CliContext, args: &DeleteJobsArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let found: Vec<(WorkflowRow, JobRow)> = args
        .jobs
        .iter()
        .map(|job| object_selection::find_job_anywhere(&*store, job, &args.workflow))
        .collect::<Result<_, _>>()?;
    let workflow = &found[0].0;
    if let Some((other, job)) = found.iter().find(|(row, _)| row.id != workflow.id) {
        let message = format!("job {} belongs to workflow {}, not to {}", job.id, other.id, workflow.id);
        return Err(CliError::user(message).with_hint("delete the jobs of one workflow at a time"));
    }
    let jobs: Vec<&JobRow> = found.iter().map(|(_, job)| job).collect();
    if args.dry_run {
        ctx.ui.print_note(&format!("would delete {}", render_jobs(&jobs)));
        return Ok(CliExit::Success);
    }
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    store.delete_jobs(workflow.id, &ids, ctx.clock.now())?;
    ctx.ui.print_note(&format!("deleted {}", render_jobs(&jobs)));
    Ok(CliExit::Success)
}

pub(crate) fn delete_all_jobs(ctx: &CliContext, args: &DeleteAllJobsArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let count = text::render_count(workflow.counts.total(), "job");
    let all = format!("all {count} of workflow {} ({})", workflow.id, workflow.name);
    if args.confirm.dry_run {
        ctx.ui.print_note(&format!("would delete {all}"));
        return Ok(CliExit::Success);
    }
    ctx.ui.confirm(&format!("delete {all}"), args.confirm)?;
    store.delete_jobs(workflow.id, &store.load_jobs(workflow.id)?.ids, ctx.clock.now())?;
    ctx.ui.print_note(&format!("deleted {all}"));
    Ok(CliExit::Success)
}

/// `job 3 (a), job 4 (b) and 12 more`.
fn render_jobs(jobs: &[&JobRow]) -> String {
    let named = jobs.iter().take(MAX_NAMED).map(|job| format!("job {} ({})", job.id, job.name));
    let named = named.collect::<Vec<_>>().join(", ");
    match jobs.len().saturating_sub(MAX_NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn find_jobs(
    store: &dyn Store,
    workflow: &WorkflowRow,
    wanted: &[crate::args::JobRef],
) -> Result<Vec<JobRow>, CliError> {
    wanted.iter().map(|job| object_selection::find_job(store, workflow, job, "the first argument")).collect()
}

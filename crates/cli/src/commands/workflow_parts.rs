//! Parts of a workflow other than jobs: requirements, failure handlers, actions.

use super::job_relations::{self, NamedObject};
use crate::args::jobs::{HandlersSubcommand, JobsRequirementsArgs, NamedObjectArgs, RequirementsSubcommand};
use crate::args::list_options::ListPageArgs;
use crate::args::workflows::ListInWorkflowArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::table::TableColumn;
use serde::Serialize;
use std::collections::HashMap;
use windlass_store::Store;
use windlass_store::model::{
    ActionRow, FailureHandlerRow, JobFilter, JobGroupRow, JobRow, RequirementsRow, WorkflowRow,
};
use windlass_types::{Resources, WorkflowId};

pub(crate) const REQUIREMENT_FIELDS: &[ListField<RequirementsRow>] = &[
    ListField::new("id", |r: &RequirementsRow| r.id.0.into()).column(TableColumn::number("ID")),
    ListField::new("name", |r: &RequirementsRow| (&r.name).into()).column(TableColumn::flexible("NAME")),
    ListField::new("num_cpus", |r: &RequirementsRow| r.resources.cpus.into())
        .column(TableColumn::number("CPUS")),
    ListField::new("memory_bytes", |r: &RequirementsRow| r.resources.memory.into())
        .column(TableColumn::number("MEMORY")),
    ListField::new("num_gpus", |r: &RequirementsRow| r.resources.gpus.into())
        .column(TableColumn::number("GPUS")),
    ListField::new("num_nodes", |r: &RequirementsRow| r.resources.nodes.into())
        .column(TableColumn::number("NODES")),
    ListField::new("runtime_seconds", |r: &RequirementsRow| r.resources.runtime.into())
        .column(TableColumn::number("RUNTIME")),
];

pub(crate) fn list_requirements(ctx: &CliContext, args: &ListInWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    print_objects(
        ctx,
        &workflow,
        ListFields::new(REQUIREMENT_FIELDS),
        store.requirements(workflow.id)?,
        &args.page,
    )
}

pub(crate) fn dispatch_requirements(
    ctx: &CliContext,
    verb: &RequirementsSubcommand,
) -> Result<CliExit, CliError> {
    match verb {
        RequirementsSubcommand::List(args) => list_requirements(ctx, args),
        RequirementsSubcommand::Get(args) => show_object(
            ctx,
            args,
            REQUIREMENT_FIELDS,
            |store, id| Ok(store.requirements(id)?),
            |row| row.id.0,
        ),
        RequirementsSubcommand::Create(args) => super::edit_objects::create_requirements(ctx, args),
        RequirementsSubcommand::Update(args) => super::edit_objects::update_requirements(ctx, args),
        RequirementsSubcommand::Delete(args) => super::edit_objects::delete_requirements(ctx, args),
    }
}

const HANDLER_FIELDS: &[ListField<FailureHandlerRow>] = &[
    ListField::new("id", |h: &FailureHandlerRow| h.id.into()).column(TableColumn::number("ID")),
    ListField::new("name", |h: &FailureHandlerRow| (&h.handler.name).into())
        .column(TableColumn::flexible("NAME")),
    ListField::new("rules", |h: &FailureHandlerRow| json_value(&h.handler.rules))
        .column(TableColumn::flexible("RULES")),
];

pub(crate) fn list_handlers(ctx: &CliContext, args: &ListInWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    print_objects(ctx, &workflow, ListFields::new(HANDLER_FIELDS), store.handlers(workflow.id)?, &args.page)
}

pub(crate) fn dispatch_handlers(ctx: &CliContext, verb: &HandlersSubcommand) -> Result<CliExit, CliError> {
    match verb {
        HandlersSubcommand::List(args) => list_handlers(ctx, args),
        HandlersSubcommand::Get(args) => {
            show_object(ctx, args, HANDLER_FIELDS, |store, id| Ok(store.handlers(id)?), |row| row.id)
        }
    }
}

const ACTION_FIELDS: &[ListField<ActionRow>] = &[
    ListField::new("id", |a: &ActionRow| a.id.into()).column(TableColumn::number("ID")),
    ListField::new("trigger_type", |a: &ActionRow| json_value(&a.action.trigger_type)),
    ListField::table_only(TableColumn::text("WHEN"), |a: &ActionRow| name_value(&a.action.trigger_type)),
    ListField::new("action_type", |a: &ActionRow| json_value(&a.action.action_type)),
    ListField::table_only(TableColumn::text("WHAT"), |a: &ActionRow| name_value(&a.action.action_type)),
    ListField::new("commands", |a: &ActionRow| json_value(&a.action.commands)),
    ListField::new("scheduler", |a: &ActionRow| a.action.scheduler.as_ref().into()),
    ListField::table_only(TableColumn::flexible("HOW"), |a: &ActionRow| action_details(a).into()),
    ListField::new("job_ids", |a: &ActionRow| json_value(&a.jobs)),
    ListField::table_only(TableColumn::number("JOBS"), |a: &ActionRow| (a.jobs.len() as u64).into()),
    ListField::new("action", |a: &ActionRow| json_value(&a.action)),
];

pub(super) fn action_details(row: &ActionRow) -> String {
    match &row.action.scheduler {
        Some(scheduler) => format!("with {scheduler}"),
        None => row.action.commands.join("; "),
    }
}

pub(crate) fn list_actions(ctx: &CliContext, args: &ListInWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    print_objects(ctx, &workflow, ListFields::new(ACTION_FIELDS), store.actions(workflow.id)?, &args.page)
}

/// A job with its requirements.
struct JobRequirementsRow {
    job: JobRow,
    resources: Option<Resources>,
}

const JOB_REQUIREMENT_FIELDS: &[ListField<JobRequirementsRow>] = &[
    ListField::new("job_id", |a: &JobRequirementsRow| a.job.id.0.into()).column(TableColumn::number("JOB")),
    ListField::new("job_name", |a: &JobRequirementsRow| (&a.job.name).into())
        .column(TableColumn::flexible("NAME")),
    ListField::new("resource_requirements", |a: &JobRequirementsRow| {
        a.job.resource_requirements.as_ref().into()
    })
    .column(TableColumn::flexible("REQUIREMENTS")),
    ListField::new("num_cpus", |a: &JobRequirementsRow| a.resources.map(|r| r.cpus).into())
        .column(TableColumn::number("CPUS")),
    ListField::new("memory_bytes", |a: &JobRequirementsRow| a.resources.map(|r| r.memory).into())
        .column(TableColumn::number("MEMORY")),
    ListField::new("num_gpus", |a: &JobRequirementsRow| a.resources.map(|r| r.gpus).into())
        .column(TableColumn::number("GPUS")),
    ListField::new("num_nodes", |a: &JobRequirementsRow| a.resources.map(|r| r.nodes).into())
        .column(TableColumn::number("NODES")),
    ListField::new("runtime_seconds", |a: &JobRequirementsRow| a.resources.and_then(|r| r.runtime).into())
        .column(TableColumn::number("RUNTIME")),
];

pub(crate) fn list_job_requirements(
    ctx: &CliContext,
    args: &JobsRequirementsArgs,
) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let (workflow, jobs) = load_jobs(&*store, args)?;
    let known: HashMap<String, Resources> =
        store.requirements(workflow.id)?.into_iter().map(|row| (row.name, row.resources)).collect();
    let rows = jobs.into_iter().map(|job| {
        let resources = job.resource_requirements.as_ref().and_then(|name| known.get(name)).copied();
        JobRequirementsRow { job, resources }
    });
    print_objects(ctx, &workflow, ListFields::new(JOB_REQUIREMENT_FIELDS), rows.collect(), &args.page)
}

/// A job with its failure handler.
struct JobHandlerRow {
    job: JobRow,
    handler: Option<String>,
}

const JOB_HANDLER_FIELDS: &[ListField<JobHandlerRow>] = &[
    ListField::new("job_id", |h: &JobHandlerRow| h.job.id.0.into()).column(TableColumn::number("JOB")),
    ListField::new("job_name", |h: &JobHandlerRow| (&h.job.name).into())
        .column(TableColumn::flexible("NAME")),
    ListField::new("failure_handler", |h: &JobHandlerRow| h.handler.as_ref().into())
        .column(TableColumn::flexible("HANDLER")),
];

pub(crate) fn list_job_handlers(ctx: &CliContext, args: &JobsRequirementsArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let (workflow, jobs) = load_jobs(&*store, args)?;
    let kinds = store.job_groups(workflow.id)?;
    let handler = |job: &JobRow| {
        let kind: Option<&JobGroupRow> =
            kinds.iter().find(|kind| Some(&kind.group.name) == job.kind.as_ref());
        kind.and_then(|kind| kind.group.settings.failure_handler.clone())
    };
    let rows = jobs.into_iter().map(|job| JobHandlerRow { handler: handler(&job), job });
    print_objects(ctx, &workflow, ListFields::new(JOB_HANDLER_FIELDS), rows.collect(), &args.page)
}

fn load_jobs(store: &dyn Store, args: &JobsRequirementsArgs) -> Result<(WorkflowRow, Vec<JobRow>), CliError> {
    let workflow = object_selection::find_workflow(store, &args.workflow)?;
    let jobs = match &args.job_id {
        Some(job) => vec![object_selection::find_job(store, &workflow, job, "the first argument")?],
        None => store.jobs(workflow.id, &JobFilter::default())?,
    };
    Ok((workflow, jobs))
}

/// Lists these objects; a workflow has few of them.
fn show_object<T: NamedObject>(
    ctx: &CliContext,
    args: &NamedObjectArgs,
    fields: &'static [ListField<T>],
    all: impl Fn(&dyn Store, WorkflowId) -> Result<Vec<T>, CliError>,
    id_of: impl Fn(&T) -> i64,
) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let by_id = |id: i64| {
        for workflow in store.workflows()? {
            if let Some(thing) = all(&*store, workflow.id)?.into_iter().find(|thing| id_of(thing) == id) {
                return Ok(Some((workflow.id, thing)));
            }
        }
        Ok(None)
    };
    let (_, thing) = job_relations::find_named(&*store, args, by_id, |workflow| all(&*store, workflow))?;
    ctx.ui.print_record(&ListFields::new(fields), thing)?;
    Ok(CliExit::Success)
}

pub(super) fn print_objects<T>(
    ctx: &CliContext,
    workflow: &WorkflowRow,
    listing: ListFields<T>,
    rows: Vec<T>,
    page: &ListPageArgs,
) -> Result<CliExit, CliError> {
    let listing = listing.without_fields(&page.exclude)?;
    if ctx.ui.print_list(&listing, listing.sort_and_limit(rows, page)?)? == 0 {
        ctx.ui.print_note(&format!("workflow {} ({}) has none", workflow.id, workflow.name));
    }
    Ok(CliExit::Success)
}

pub(super) fn json_value(value: &impl Serialize) -> FieldValue {
    serde_json::to_value(value).unwrap_or_default().into()
}

/// The serde name of a value.
pub(super) fn name_value(value: &impl Serialize) -> FieldValue {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word.into(),
        _ => FieldValue::Empty,
    }
}

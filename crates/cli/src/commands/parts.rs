//! What a workflow says besides its jobs: requirements, failure handlers, actions.

use super::relations::{self, Named};
use crate::args::jobs::{HandlersVerb, JobsRequirementsArgs, NamedArgs, RequirementsVerb};
use crate::args::page::PageArgs;
use crate::args::workflows::ListOfWorkflowArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::table::Column;
use serde::Serialize;
use std::collections::HashMap;
use windlass_store::Store;
use windlass_store::model::{
    ActionRow, HandlerRow, JobFilter, JobRow, KindRow, RequirementsRow, WorkflowRow,
};
use windlass_types::{Resources, WorkflowId};

pub(crate) const REQUIREMENTS: &[Field<RequirementsRow>] = &[
    Field::new("id", |r: &RequirementsRow| r.id.0.into()).column(Column::number("ID")),
    Field::new("name", |r: &RequirementsRow| (&r.name).into()).column(Column::elastic("NAME")),
    Field::new("num_cpus", |r: &RequirementsRow| r.resources.cpus.into()).column(Column::number("CPUS")),
    Field::new("memory_bytes", |r: &RequirementsRow| r.resources.memory.into())
        .column(Column::number("MEMORY")),
    Field::new("num_gpus", |r: &RequirementsRow| r.resources.gpus.into()).column(Column::number("GPUS")),
    Field::new("num_nodes", |r: &RequirementsRow| r.resources.nodes.into()).column(Column::number("NODES")),
    Field::new("runtime_seconds", |r: &RequirementsRow| r.resources.runtime.into())
        .column(Column::number("RUNTIME")),
];

pub(crate) fn requirements(ctx: &Context, args: &ListOfWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    print(ctx, &workflow, Listing::new(REQUIREMENTS), store.requirements(workflow.id)?, &args.page)
}

pub(crate) fn requirements_verb(ctx: &Context, verb: &RequirementsVerb) -> Result<Exit, CliError> {
    match verb {
        RequirementsVerb::List(args) => requirements(ctx, args),
        RequirementsVerb::Get(args) => {
            get(ctx, args, REQUIREMENTS, |store, id| Ok(store.requirements(id)?), |row| row.id.0)
        }
        RequirementsVerb::Create(args) => super::edit_parts::create_requirements(ctx, args),
        RequirementsVerb::Update(args) => super::edit_parts::update_requirements(ctx, args),
        RequirementsVerb::Delete(args) => super::edit_parts::delete_requirements(ctx, args),
    }
}

const HANDLERS: &[Field<HandlerRow>] = &[
    Field::new("id", |h: &HandlerRow| h.id.into()).column(Column::number("ID")),
    Field::new("name", |h: &HandlerRow| (&h.handler.name).into()).column(Column::elastic("NAME")),
    Field::new("rules", |h: &HandlerRow| json(&h.handler.rules)).column(Column::elastic("RULES")),
];

pub(crate) fn handlers(ctx: &Context, args: &ListOfWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    print(ctx, &workflow, Listing::new(HANDLERS), store.handlers(workflow.id)?, &args.page)
}

pub(crate) fn handlers_verb(ctx: &Context, verb: &HandlersVerb) -> Result<Exit, CliError> {
    match verb {
        HandlersVerb::List(args) => handlers(ctx, args),
        HandlersVerb::Get(args) => {
            get(ctx, args, HANDLERS, |store, id| Ok(store.handlers(id)?), |row| row.id)
        }
    }
}

const ACTIONS: &[Field<ActionRow>] = &[
    Field::new("id", |a: &ActionRow| a.id.into()).column(Column::number("ID")),
    Field::new("trigger_type", |a: &ActionRow| json(&a.action.trigger_type)),
    Field::shown(Column::text("WHEN"), |a: &ActionRow| word(&a.action.trigger_type)),
    Field::new("action_type", |a: &ActionRow| json(&a.action.action_type)),
    Field::shown(Column::text("WHAT"), |a: &ActionRow| word(&a.action.action_type)),
    Field::new("commands", |a: &ActionRow| json(&a.action.commands)),
    Field::new("scheduler", |a: &ActionRow| a.action.scheduler.as_ref().into()),
    Field::shown(Column::elastic("HOW"), |a: &ActionRow| how(a).into()),
    Field::new("job_ids", |a: &ActionRow| json(&a.jobs)),
    Field::shown(Column::number("JOBS"), |a: &ActionRow| (a.jobs.len() as u64).into()),
    Field::new("action", |a: &ActionRow| json(&a.action)),
];

pub(super) fn how(row: &ActionRow) -> String {
    match &row.action.scheduler {
        Some(scheduler) => format!("with {scheduler}"),
        None => row.action.commands.join("; "),
    }
}

pub(crate) fn actions(ctx: &Context, args: &ListOfWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    print(ctx, &workflow, Listing::new(ACTIONS), store.actions(workflow.id)?, &args.page)
}

/// A job with what it asks for.
struct Asking {
    job: JobRow,
    resources: Option<Resources>,
}

const ASKING: &[Field<Asking>] = &[
    Field::new("job_id", |a: &Asking| a.job.id.0.into()).column(Column::number("JOB")),
    Field::new("job_name", |a: &Asking| (&a.job.name).into()).column(Column::elastic("NAME")),
    Field::new("resource_requirements", |a: &Asking| a.job.resource_requirements.as_ref().into())
        .column(Column::elastic("REQUIREMENTS")),
    Field::new("num_cpus", |a: &Asking| a.resources.map(|r| r.cpus).into()).column(Column::number("CPUS")),
    Field::new("memory_bytes", |a: &Asking| a.resources.map(|r| r.memory).into())
        .column(Column::number("MEMORY")),
    Field::new("num_gpus", |a: &Asking| a.resources.map(|r| r.gpus).into()).column(Column::number("GPUS")),
    Field::new("num_nodes", |a: &Asking| a.resources.map(|r| r.nodes).into()).column(Column::number("NODES")),
    Field::new("runtime_seconds", |a: &Asking| a.resources.and_then(|r| r.runtime).into())
        .column(Column::number("RUNTIME")),
];

pub(crate) fn jobs_requirements(ctx: &Context, args: &JobsRequirementsArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let (workflow, jobs) = jobs(&*store, args)?;
    let known: HashMap<String, Resources> =
        store.requirements(workflow.id)?.into_iter().map(|row| (row.name, row.resources)).collect();
    let rows = jobs.into_iter().map(|job| {
        let resources = job.resource_requirements.as_ref().and_then(|name| known.get(name)).copied();
        Asking { job, resources }
    });
    print(ctx, &workflow, Listing::new(ASKING), rows.collect(), &args.page)
}

/// A job with who handles its failures.
struct Handled {
    job: JobRow,
    handler: Option<String>,
}

const HANDLED: &[Field<Handled>] = &[
    Field::new("job_id", |h: &Handled| h.job.id.0.into()).column(Column::number("JOB")),
    Field::new("job_name", |h: &Handled| (&h.job.name).into()).column(Column::elastic("NAME")),
    Field::new("failure_handler", |h: &Handled| h.handler.as_ref().into()).column(Column::elastic("HANDLER")),
];

pub(crate) fn jobs_handlers(ctx: &Context, args: &JobsRequirementsArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let (workflow, jobs) = jobs(&*store, args)?;
    let kinds = store.kinds(workflow.id)?;
    let handler = |job: &JobRow| {
        let kind: Option<&KindRow> = kinds.iter().find(|kind| Some(&kind.name) == job.kind.as_ref());
        kind.and_then(|kind| kind.failure_handler.clone())
    };
    let rows = jobs.into_iter().map(|job| Handled { handler: handler(&job), job });
    print(ctx, &workflow, Listing::new(HANDLED), rows.collect(), &args.page)
}

fn jobs(store: &dyn Store, args: &JobsRequirementsArgs) -> Result<(WorkflowRow, Vec<JobRow>), CliError> {
    let workflow = select::workflow(store, &args.workflow)?;
    let jobs = match &args.job_id {
        Some(job) => vec![select::job(store, &workflow, job, "the first argument")?],
        None => store.jobs(workflow.id, &JobFilter::default())?,
    };
    Ok((workflow, jobs))
}

/// Shows one of them; there are few in a workflow.
fn get<T: Named>(
    ctx: &Context,
    args: &NamedArgs,
    fields: &'static [Field<T>],
    all: impl Fn(&dyn Store, WorkflowId) -> Result<Vec<T>, CliError>,
    id_of: impl Fn(&T) -> i64,
) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let by_id = |id: i64| {
        for workflow in store.workflows()? {
            if let Some(thing) = all(&*store, workflow.id)?.into_iter().find(|thing| id_of(thing) == id) {
                return Ok(Some((workflow.id, thing)));
            }
        }
        Ok(None)
    };
    let (_, thing) = relations::named(&*store, args, by_id, |workflow| all(&*store, workflow))?;
    ctx.ui.print_record(&Listing::new(fields), thing)?;
    Ok(Exit::Success)
}

pub(super) fn print<T>(
    ctx: &Context,
    workflow: &WorkflowRow,
    listing: Listing<T>,
    rows: Vec<T>,
    page: &PageArgs,
) -> Result<Exit, CliError> {
    let listing = listing.without(&page.exclude)?;
    if ctx.ui.print_list(&listing, listing.arrange(rows, page)?)? == 0 {
        ctx.ui.note(&format!("workflow {} ({}) has none", workflow.id, workflow.name));
    }
    Ok(Exit::Success)
}

pub(super) fn json(value: &impl Serialize) -> Datum {
    serde_json::to_value(value).unwrap_or_default().into()
}

/// A word that serde knows how to spell.
pub(super) fn word(value: &impl Serialize) -> Datum {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word.into(),
        _ => Datum::Nothing,
    }
}

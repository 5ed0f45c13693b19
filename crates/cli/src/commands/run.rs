//! `windlass run`: makes a workflow from a spec, or finds the one it made before, and runs it.

use crate::args::WorkflowRef;
use crate::args::plan::{CapacityArgs, PlanArgs};
use crate::args::run::RunArgs;
use crate::changes::{self, Books, Planned, Terms};
use crate::context::Context;
use crate::drive::{Failed, drive};
use crate::error::{CliError, Exit};
use crate::job_logs;
use crate::plan::{self, SpecFile};
use crate::rerun;
use crate::select;
use crate::spec_files;
use crate::ui::{summary, text};
use crate::view;
use std::path::Path;
use std::sync::Arc;
use windlass_insight::making::Reused;
use windlass_spec::Workflow;
use windlass_store::lock::{Lock, LockGuard};
use windlass_store::model::WorkflowRow;
use windlass_store::{Error, Store};
use windlass_types::JobStatus;
use windlass_types::settings::{Action, ActionType};

pub(crate) fn run(ctx: &Context, args: &RunArgs) -> Result<Exit, CliError> {
    if let Some((why, instead)) = args.torc.refused() {
        return Err(CliError::user(why).with_hint(instead));
    }
    if args.dry_run {
        return super::plan::run(ctx, &as_plan(args));
    }
    if let Some(workflow) = args.spec.as_deref().and_then(|word| select::meant_workflow(&ctx.cwd, word)) {
        return go_on_with(ctx, &workflow, args);
    }
    let file = SpecFile::read(&ctx.cwd, &spec_files::named_or_found(args.spec.as_ref(), &ctx.cwd)?)?;
    let store = ctx.open_if_there()?;
    // Text that is known already need not be understood again, which takes its time for a million jobs.
    let known = match store.as_deref() {
        Some(store) if !args.new => find(ctx, store, &file)?,
        _ => None,
    };
    match (store, known) {
        (Some(store), Some(row)) => go_on(ctx, &*store, &row, args),
        (store, _) => begin(ctx, store, &file, args),
    }
}

/// What `--dry-run` shows.
fn as_plan(args: &RunArgs) -> PlanArgs {
    let machine = &args.machine;
    PlanArgs {
        target: args.spec.as_ref().map(|spec| spec.display().to_string()),
        output: None,
        per_job: false,
        all: false,
        new: args.new,
        content: args.content,
        accept: args.accept.clone(),
        capacity: CapacityArgs {
            num_cpus: machine.num_cpus,
            memory: machine.memory,
            num_gpus: machine.num_gpus,
            max_parallel_jobs: machine.max_parallel_jobs,
        },
    }
}

fn go_on_with(ctx: &Context, workflow: &WorkflowRef, args: &RunArgs) -> Result<Exit, CliError> {
    if args.new {
        return Err(CliError::user("--new makes a workflow from a spec file, and this names a workflow")
            .with_hint("name the file"));
    }
    let store = ctx.open_write()?;
    let row = select::workflow(&*store, workflow)?;
    refuse_canceled(&row)?;
    if summary::is_over(&row) {
        let news = format!("nothing to do: workflow {} ({}) is over", row.id, row.name);
        return summary::report_over(ctx, &*store, row.id, &news, "");
    }
    if let Some(news) = rerun::begin_changed(ctx, &*store, &row, terms(args), Failed::Keep, &args.machine)? {
        ctx.ui.note(&format!("workflow {} goes on: {news}", row.id));
    }
    drive(ctx, &*store, row.id, Failed::Keep, &args.machine)
}

fn refuse_canceled(row: &WorkflowRow) -> Result<(), CliError> {
    if !row.is_canceled {
        return Ok(());
    }
    let id = row.id;
    Err(CliError::refused(format!("workflow {id} ({}) was canceled", row.name))
        .with_hint(format!("`windlass resume {id} --retry-failed` starts it again; --new makes a new one")))
}

/// The workflow that this very text made in this directory before. If the file made another one since, with another
/// text, then that one is the state of things.
fn find(ctx: &Context, store: &dyn Store, file: &SpecFile) -> Result<Option<WorkflowRow>, CliError> {
    let known = store.find_by_digest(&file.digest(), plan::utf8(&ctx.cwd)?)?;
    let newest = plan::newest_of(store, file, &ctx.cwd)?;
    Ok(known.filter(|row| newest.is_none_or(|newest| newest.id <= row.id)))
}

fn go_on(ctx: &Context, store: &dyn Store, row: &WorkflowRow, args: &RunArgs) -> Result<Exit, CliError> {
    let id = row.id;
    refuse_canceled(row)?;
    let origin =
        row.spec_path.as_deref().map_or("stdin".to_owned(), |p| job_logs::short(Path::new(p), &ctx.cwd));
    let is_over = summary::is_over(row);
    let failed = if is_over { Failed::RunAgain } else { Failed::Keep };
    if let Some(news) = rerun::begin_changed(ctx, store, row, terms(args), failed, &args.machine)? {
        ctx.ui.note(&format!("workflow {id} ({origin}) goes on: {news}"));
        return drive(ctx, store, id, Failed::Keep, &args.machine);
    }
    if is_over {
        let news = format!("workflow {id} was made from the same text ({origin}) and is over");
        return summary::report_over(ctx, store, id, &news, "; --new runs it once more");
    }
    if row.started_at.is_some() {
        ctx.ui.note(&format!(
            "workflow {id} was made from the same text ({origin}); going on with it, {}",
            how_far(row)
        ));
    }
    drive(ctx, store, id, Failed::Keep, &args.machine)
}

/// Parts of a spec that are kept for a later version: nobody should count on them now.
fn say_what_waits(ctx: &Context, spec: &Workflow<'_>) {
    let is_ours = |action: &Action| action.action_type == ActionType::RunCommands;
    if spec.actions().iter().any(|one| !is_ours(&one.action)) {
        ctx.ui.warn("actions of the type schedule_nodes: kept and shown, but not acted on by this version");
    }
}

/// Makes the workflow and runs it. A spec with errors leaves nothing behind, not even an empty database.
fn begin(
    ctx: &Context,
    store: Option<Arc<dyn Store>>,
    file: &SpecFile,
    args: &RunArgs,
) -> Result<Exit, CliError> {
    let spec = file.load()?;
    ctx.ui.spec_warnings(spec.all_warnings());
    say_what_waits(ctx, &spec);
    let output_dir = plan::output_directory(ctx, &args.output)?;
    let store = store.map_or_else(|| ctx.open_or_create(), Ok)?;
    ctx.refuse_served(&*store)?;
    let lock = store.lock(Lock::Create, ctx.clock.now())?;
    // Somebody else may have made it while we read the file.
    let known = if args.new { None } else { find(ctx, &*store, file)? };
    if let Some(row) = known {
        drop(lock);
        return go_on(ctx, &*store, &row, args);
    }
    let earlier = if args.new { None } else { plan::newest_of(&*store, file, &ctx.cwd)? };
    // Held until the new one is there: what it takes over stands still.
    let held = earlier.as_ref().map(|row| lay_hold_of(ctx, &*store, row, file, args)).transpose()?;
    let earlier = held.as_ref().map(|(_, row)| row);
    let taken = earlier.map(|row| take_over(&*store, row, file, &spec, args)).transpose()?;
    let (reused, news) = taken.unzip();
    let now = ctx.clock.now();
    let id = plan::create_from_spec(&*store, file, &spec, reused.as_ref(), &ctx.cwd, &output_dir, now)?;
    drop((held, lock));
    if let Some(news) = news {
        ctx.ui.note(&format!("{news}; this is the new workflow {id}"));
    }
    drive(ctx, &*store, id, Failed::Keep, &args.machine)
}

/// The workflow of an earlier text of this file, which nobody runs from here on. If its processes died without a word,
/// what they had started may still be writing what the new jobs are to write: it is ended first.
fn lay_hold_of(
    ctx: &Context,
    store: &dyn Store,
    earlier: &WorkflowRow,
    file: &SpecFile,
    args: &RunArgs,
) -> Result<(Option<LockGuard>, WorkflowRow), CliError> {
    let id = earlier.id;
    let busy = || {
        CliError::refused(format!("workflow {id}, which an earlier text of {} made, is running", file.name()))
            .with_hint(format!(
                "wait for it, or `windlass cancel {id} --wait`; --new runs beside it and reuses nothing"
            ))
    };
    if ctx.server()?.is_some() {
        return if view::is_run_by_somebody(store, earlier) {
            Err(busy())
        } else {
            Ok((None, rerun::row(store, id)?))
        };
    }
    let lock = store.lock(Lock::Workflow(id), ctx.clock.now()).map_err(|error| match error {
        Error::Busy { .. } => busy(),
        other => other.into(),
    })?;
    let row = if store.active_workers(Some(id))?.is_empty() {
        rerun::row(store, id)?
    } else {
        rerun::clear_up(ctx, store, &lock, id, &args.machine)?
    };
    Ok((Some(lock), row))
}

/// What that workflow has done that still holds, and a line about it.
fn take_over(
    store: &dyn Store,
    earlier: &WorkflowRow,
    file: &SpecFile,
    spec: &Workflow<'_>,
    args: &RunArgs,
) -> Result<(Reused, String), CliError> {
    let books = Books::load(store, earlier)?;
    let planned = Planned::new(spec, Some(&books));
    let changes = changes::of_spec(&books, &planned, terms(args))?;
    let reused = changes::reused(&books, &planned, &changes);
    let news = changes::headline(&changes, |number| spec.job(number as usize).name.to_owned());
    books.trouble()?;
    Ok((reused, format!("{} has changed since workflow {}: {news}", file.name(), earlier.id)))
}

fn terms(args: &RunArgs) -> Terms<'_> {
    Terms { content: args.content, accepted: &args.accept, ..Terms::default() }
}

/// `1 of 2 jobs completed`.
fn how_far(row: &WorkflowRow) -> String {
    let completed = row.counts.get(JobStatus::Completed);
    format!("{completed} of {} completed", text::count(row.counts.enabled(), "job"))
}

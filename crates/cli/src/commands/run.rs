//! `windlass run`: creates a workflow from a spec, or finds the workflow that the same spec created, and runs
//! it.

use crate::args::WorkflowRef;
use crate::args::plan_and_reset::{CapacityArgs, PlanArgs};
use crate::args::run::RunArgs;
use crate::changes::{self, ComparisonSettings, PlannedJobs, StoredJobs};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::job_logs;
use crate::local_run::{EarlierFailuresPolicy, run_locally};
use crate::object_selection;
use crate::rerun;
use crate::spec_discovery;
use crate::spec_file::{self, SpecFile};
use crate::ui::{run_summary, text};
use crate::workflow_view;
use std::path::Path;
use std::sync::Arc;
use windlass_insight::workflow_creation::ReusedJobs;
use windlass_spec::ResolvedWorkflow;
use windlass_store::lock::{LockGuard, LockScope};
use windlass_store::model::WorkflowRow;
use windlass_store::{Store, StoreError};
use windlass_types::JobStatus;
use windlass_types::settings::{ActionType, WorkflowAction};

pub(crate) fn run(ctx: &CliContext, args: &RunArgs) -> Result<CliExit, CliError> {
    if let Some((why, instead)) = args.torc.unsupported_option() {
        return Err(CliError::user(why).with_hint(instead));
    }
    if args.dry_run {
        return super::plan::run(ctx, &plan_args(args));
    }
    if let Some(workflow) =
        args.spec.as_deref().and_then(|word| object_selection::workflow_ref_from_word(&ctx.cwd, word))
    {
        return continue_workflow(ctx, &workflow, args);
    }
    let file = SpecFile::read(&ctx.cwd, &spec_discovery::resolve_spec_path(args.spec.as_ref(), &ctx.cwd)?)?;
    let store = ctx.open_if_exists()?;
    // An unchanged spec is not parsed again, which saves time for a million jobs.
    let known = match store.as_deref() {
        Some(store) if !args.new => find_existing(ctx, store, &file)?,
        _ => None,
    };
    match (store, known) {
        (Some(store), Some(row)) => continue_run(ctx, &store, &row, args),
        (store, _) => create_and_run(ctx, store, &file, args),
    }
}

/// Output of `--dry-run`.
fn plan_args(args: &RunArgs) -> PlanArgs {
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

fn continue_workflow(ctx: &CliContext, workflow: &WorkflowRef, args: &RunArgs) -> Result<CliExit, CliError> {
    if args.new {
        return Err(CliError::user(
            "--new creates a workflow from a spec file, but the argument names a workflow",
        )
        .with_hint("give the spec file"));
    }
    let store = ctx.open_write()?;
    let row = object_selection::find_workflow(&*store, workflow)?;
    refuse_canceled(&row)?;
    if run_summary::is_over(&row) {
        let headline = format!("nothing to do: workflow {} ({}) has ended", row.id, row.name);
        return run_summary::report_already_over(ctx, &*store, row.id, &headline, "");
    }
    if let Some(headline) = rerun::start_next_run_if_changed(
        ctx,
        &*store,
        &row,
        comparison_settings(args),
        EarlierFailuresPolicy::Keep,
        &args.machine,
    )? {
        ctx.ui.print_note(&format!("workflow {} continues: {headline}", row.id));
    }
    run_locally(ctx, &store, row.id, EarlierFailuresPolicy::Keep, &args.machine)
}

fn refuse_canceled(row: &WorkflowRow) -> Result<(), CliError> {
    if !row.is_canceled {
        return Ok(());
    }
    let id = row.id;
    Err(CliError::refused(format!("workflow {id} ({}) was canceled", row.name))
        .with_hint(format!("`windlass resume {id} --retry-failed` reruns its canceled and failed jobs; --new creates a new workflow")))
}

/// The workflow that exactly this text created in this directory. A later workflow from a changed text of the
/// same file takes precedence.
fn find_existing(
    ctx: &CliContext,
    store: &dyn Store,
    file: &SpecFile,
) -> Result<Option<WorkflowRow>, CliError> {
    let known = store.find_by_digest(&file.digest(), spec_file::path_to_utf8(&ctx.cwd)?)?;
    let newest = spec_file::newest_workflow_of(store, file, &ctx.cwd)?;
    Ok(known.filter(|row| newest.is_none_or(|newest| newest.id <= row.id)))
}

fn continue_run(
    ctx: &CliContext,
    shared_store: &Arc<dyn Store>,
    row: &WorkflowRow,
    args: &RunArgs,
) -> Result<CliExit, CliError> {
    let (id, store) = (row.id, &**shared_store);
    refuse_canceled(row)?;
    let origin =
        row.spec_path.as_deref().map_or("stdin".to_owned(), |p| job_logs::short_path(Path::new(p), &ctx.cwd));
    let is_over = run_summary::is_over(row);
    let failed = if is_over { EarlierFailuresPolicy::RunAgain } else { EarlierFailuresPolicy::Keep };
    if let Some(headline) =
        rerun::start_next_run_if_changed(ctx, store, row, comparison_settings(args), failed, &args.machine)?
    {
        ctx.ui.print_note(&format!("workflow {id} ({origin}) continues: {headline}"));
        return run_locally(ctx, shared_store, id, EarlierFailuresPolicy::Keep, &args.machine);
    }
    if is_over {
        let headline = format!("nothing to do: {origin} already ran as workflow {id}");
        return run_summary::report_already_over(ctx, store, id, &headline, "--new reruns everything");
    }
    if row.started_at.is_some() {
        ctx.ui.print_note(&format!("workflow {id} ({origin}) continues: {}", render_completed(row)));
    }
    run_locally(ctx, shared_store, id, EarlierFailuresPolicy::Keep, &args.machine)
}

/// Parts of a spec that a local run stores but does not perform.
fn warn_unsupported(ctx: &CliContext, spec: &ResolvedWorkflow<'_>) {
    let is_ours = |action: &WorkflowAction| action.action_type == ActionType::RunCommands;
    if spec.actions().iter().any(|one| !is_ours(&one.action)) {
        ctx.ui.print_warning(
            "a local run does not perform `schedule_nodes` actions; `windlass submit` gives the workflow to a \
             server, which requests the allocations",
        );
    }
}

/// Creates the workflow and runs it. An invalid spec leaves nothing behind, not even an empty database.
fn create_and_run(
    ctx: &CliContext,
    store: Option<Arc<dyn Store>>,
    file: &SpecFile,
    args: &RunArgs,
) -> Result<CliExit, CliError> {
    let spec = file.load()?;
    ctx.ui.print_spec_warnings(spec.warning_diagnostics());
    warn_unsupported(ctx, &spec);
    let output_dir = spec_file::output_directory(ctx, &args.output)?;
    let store = store.map_or_else(|| ctx.open_or_create(), Ok)?;
    ctx.refuse_served_database(&*store)?;
    let lock = store.lock(LockScope::Create, ctx.clock.now())?;
    // Another process may have created it while the file was read.
    let known = if args.new { None } else { find_existing(ctx, &*store, file)? };
    if let Some(row) = known {
        drop(lock);
        return continue_run(ctx, &store, &row, args);
    }
    let earlier = if args.new { None } else { spec_file::newest_workflow_of(&*store, file, &ctx.cwd)? };
    // Held until the new workflow exists, so that the reused results do not change.
    let held =
        earlier.as_ref().map(|row| lock_earlier_workflow(ctx, &*store, row, file, args)).transpose()?;
    let earlier = held.as_ref().map(|(_, row)| row);
    let taken = earlier.map(|row| reuse_results(&*store, row, file, &spec, args)).transpose()?;
    let (reused, headline) = taken.unzip();
    let now = ctx.clock.now();
    let id = spec_file::create_from_spec(&*store, file, &spec, reused.as_ref(), &ctx.cwd, &output_dir, now)?;
    drop((held, lock));
    if let Some(headline) = headline {
        ctx.ui.print_note(&format!("{headline}; this is the new workflow {id}"));
    }
    run_locally(ctx, &store, id, EarlierFailuresPolicy::Keep, &args.machine)
}

/// Locks the workflow of an earlier text of this file, so that it cannot run from here on. If its processes
/// died, their jobs may still write to files that the new jobs write: they are ended first.
fn lock_earlier_workflow(
    ctx: &CliContext,
    store: &dyn Store,
    earlier: &WorkflowRow,
    file: &SpecFile,
    args: &RunArgs,
) -> Result<(Option<LockGuard>, WorkflowRow), CliError> {
    let id = earlier.id;
    let busy = || {
        CliError::refused(format!(
            "workflow {id}, created from an earlier text of {}, is running",
            file.name()
        ))
        .with_hint(format!(
            "wait for it, or `windlass cancel {id} --wait`; --new runs in parallel and reuses nothing"
        ))
    };
    if ctx.server()?.is_some() {
        return if workflow_view::has_active_process(store, earlier) {
            Err(busy())
        } else {
            Ok((None, rerun::load_workflow_row(store, id)?))
        };
    }
    let lock = store.lock(LockScope::Workflow(id), ctx.clock.now()).map_err(|error| match error {
        StoreError::Busy { .. } => busy(),
        other => other.into(),
    })?;
    let row = if store.active_workers(Some(id))?.is_empty() {
        rerun::load_workflow_row(store, id)?
    } else {
        rerun::ensure_nothing_runs(ctx, store, &lock, id, &args.machine)?
    };
    Ok((Some(lock), row))
}

/// The valid results of that workflow, and a summary line.
fn reuse_results(
    store: &dyn Store,
    earlier: &WorkflowRow,
    file: &SpecFile,
    spec: &ResolvedWorkflow<'_>,
    args: &RunArgs,
) -> Result<(ReusedJobs, String), CliError> {
    let jobs_store = StoredJobs::load(store, earlier)?;
    let planned = PlannedJobs::new(spec, Some(&jobs_store));
    let changes = changes::compare_spec(&jobs_store, &planned, comparison_settings(args))?;
    let reused = changes::collect_reused(&jobs_store, &planned, &changes);
    let headline = changes::render_headline(&changes, |number| spec.job(number as usize).name.to_owned());
    jobs_store.check_read_error()?;
    Ok((reused, format!("{} has changed since workflow {}: {headline}", file.name(), earlier.id)))
}

fn comparison_settings(args: &RunArgs) -> ComparisonSettings<'_> {
    ComparisonSettings {
        compare_contents: args.content,
        accepted_changes: &args.accept,
        ..ComparisonSettings::default()
    }
}

/// `1 of 2 jobs completed`.
fn render_completed(row: &WorkflowRow) -> String {
    let completed = row.counts.get(JobStatus::Completed);
    format!("{completed} of {} completed", text::render_count(row.counts.enabled(), "job"))
}

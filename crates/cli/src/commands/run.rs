//! `windlass run`: makes a workflow from a spec, or finds the one it made before, and runs it.

use crate::args::WorkflowRef;
use crate::args::run::RunArgs;
use crate::context::Context;
use crate::drive::{Failed, drive};
use crate::error::{CliError, Exit};
use crate::job_logs;
use crate::plan::{self, SpecFile};
use crate::select;
use crate::spec_files;
use crate::ui::{summary, text};
use std::path::Path;
use windlass_store::Store as _;
use windlass_store::lock::CreateLock;
use windlass_store::model::WorkflowRow;
use windlass_store::sqlite::SqliteStore;
use windlass_types::WorkflowId;

pub(crate) fn run(ctx: &Context, args: &RunArgs) -> Result<Exit, CliError> {
    say_what_is_ignored(ctx, args);
    if let Some(workflow) = args.spec.as_deref().and_then(|word| meant_workflow(ctx, word)) {
        return go_on_with(ctx, &workflow, args);
    }
    let file = SpecFile::read(&ctx.cwd, &spec_files::named_or_found(args.spec.as_ref(), &ctx.cwd)?)?;
    let store = ctx.open_if_there()?;
    // Text that is known already need not be understood again, which takes its time for a million jobs.
    let known = match &store {
        Some(store) if !args.new => find(ctx, store, &file)?,
        _ => None,
    };
    match (store, known) {
        (Some(store), Some(row)) => go_on(ctx, &store, &row, args),
        (store, _) => begin(ctx, store, &file, args),
    }
}

fn say_what_is_ignored(ctx: &Context, args: &RunArgs) {
    for flag in args.torc.ignored() {
        ctx.ui.note(&format!("{flag} has no effect here; `windlass run --help` says why"));
    }
}

/// A word that names no file, and has nothing of a path, may name a workflow.
fn meant_workflow(ctx: &Context, word: &Path) -> Option<WorkflowRef> {
    let text = word.to_str()?;
    let is_a_path = text == "-" || text.contains('/') || ctx.cwd.join(word).exists();
    let Ok(named) = text.parse();
    match named {
        // `sim.yaml` is a file that is not there rather than a workflow of that name.
        WorkflowRef::Name(name) if is_a_path || name.contains('.') => None,
        _ if is_a_path => None,
        named => Some(named),
    }
}

fn go_on_with(ctx: &Context, workflow: &WorkflowRef, args: &RunArgs) -> Result<Exit, CliError> {
    if args.new {
        return Err(CliError::user("--new makes a workflow from a spec file, and this names a workflow")
            .with_hint("name the file"));
    }
    let store = ctx.open_write()?;
    let row = select::workflow(&store, workflow)?;
    refuse_canceled(&row)?;
    if summary::is_over(&row) {
        let news = format!("nothing to do: workflow {} ({}) is over", row.id, row.name);
        return summary::report_over(ctx, &store, row.id, &news, "");
    }
    drive(ctx, &store, row.id, Failed::Keep, &args.machine)
}

fn refuse_canceled(row: &WorkflowRow) -> Result<(), CliError> {
    if !row.is_canceled {
        return Ok(());
    }
    let id = row.id;
    Err(CliError::refused(format!("workflow {id} ({}) was canceled", row.name))
        .with_hint(format!("`windlass resume {id} --retry-failed` starts it again; --new makes a new one")))
}

/// The workflow that this very text made in this directory before.
fn find(ctx: &Context, store: &SqliteStore, file: &SpecFile) -> Result<Option<WorkflowRow>, CliError> {
    Ok(store.find_by_digest(&file.digest(), plan::utf8(&ctx.cwd)?)?)
}

fn go_on(ctx: &Context, store: &SqliteStore, row: &WorkflowRow, args: &RunArgs) -> Result<Exit, CliError> {
    let id = row.id;
    refuse_canceled(row)?;
    let origin =
        row.spec_path.as_deref().map_or("stdin".to_owned(), |p| job_logs::short(Path::new(p), &ctx.cwd));
    if summary::is_over(row) {
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

/// Makes the workflow and runs it. A spec with errors leaves nothing behind, not even an empty database.
fn begin(
    ctx: &Context,
    store: Option<SqliteStore>,
    file: &SpecFile,
    args: &RunArgs,
) -> Result<Exit, CliError> {
    let spec = file.load()?;
    let output_dir = plan::output_directory(&ctx.cwd, &args.output)?;
    let store = store.map_or_else(|| ctx.open_or_create(), Ok)?;
    let lock = CreateLock::acquire(store.path())?;
    // Somebody else may have made it while we read the file.
    let known = if args.new { None } else { find(ctx, &store, file)? };
    if let Some(row) = known {
        drop(lock);
        return go_on(ctx, &store, &row, args);
    }
    let earlier = earlier_version(ctx, &store, file)?;
    let id = plan::create_from_spec(&store, file, &spec, &ctx.cwd, &output_dir, ctx.clock.now())?;
    drop(lock);
    if let Some(row) = earlier {
        say_it_has_changed(ctx, file, &row, id);
    }
    drive(ctx, &store, id, Failed::Keep, &args.machine)
}

/// The newest workflow that this file made here, if the file had another text then.
fn earlier_version(
    ctx: &Context,
    store: &SqliteStore,
    file: &SpecFile,
) -> Result<Option<WorkflowRow>, CliError> {
    let Some(path) = file.path() else { return Ok(None) };
    let from_here = |row: &WorkflowRow| {
        row.spec_path.as_deref().map(Path::new) == Some(path) && Path::new(&row.submission_dir) == ctx.cwd
    };
    let newest = store.workflows()?.into_iter().filter(from_here).max_by_key(|row| row.id);
    let digest = file.digest();
    Ok(newest.filter(|row| row.spec_digest.as_ref() != Some(&digest)))
}

fn say_it_has_changed(ctx: &Context, file: &SpecFile, earlier: &WorkflowRow, new: WorkflowId) {
    ctx.ui.note(&format!(
        "{} has changed since workflow {} ({}); this is the new workflow {new}",
        file.name(),
        earlier.id,
        how_far(earlier)
    ));
}

/// `1 of 2 jobs done`.
fn how_far(row: &WorkflowRow) -> String {
    format!("{} of {} done", row.counts.settled(), text::count(row.counts.total(), "job"))
}

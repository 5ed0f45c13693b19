//! `windlass run`: makes a workflow from a spec, or finds the one it made before, and runs it.

use crate::args::RunArgs;
use crate::context::Context;
use crate::drive::{Failed, drive};
use crate::error::{CliError, Exit};
use crate::plan::{self, SpecFile};
use crate::ui::text;
use windlass_store::Store as _;
use windlass_store::model::WorkflowRow;
use windlass_store::sqlite::SqliteStore;
use windlass_types::WorkflowId;

pub(crate) fn run(ctx: &Context, args: &RunArgs) -> Result<Exit, CliError> {
    let file = SpecFile::read(&ctx.cwd, &args.spec)?;
    let store = ctx.open_or_create()?;
    let earlier = if args.new { None } else { find(ctx, &store, &file)? };
    let workflow = match earlier {
        Some(row) => {
            say_what_is_left(ctx, &row)?;
            row.id
        }
        None => create(ctx, &store, &file, args)?,
    };
    drive(ctx, &store, workflow, Failed::Keep, &args.machine)
}

/// The workflow that this very text made in this directory before.
fn find(ctx: &Context, store: &SqliteStore, file: &SpecFile) -> Result<Option<WorkflowRow>, CliError> {
    Ok(store.find_by_digest(&file.digest(), plan::utf8(&ctx.cwd)?)?)
}

fn create(
    ctx: &Context,
    store: &SqliteStore,
    file: &SpecFile,
    args: &RunArgs,
) -> Result<WorkflowId, CliError> {
    let output_dir = ctx.cwd.join(&args.output.output_dir);
    let spec = file.load()?;
    plan::create_from_spec(store, file, &spec, &ctx.cwd, &output_dir, ctx.clock.now())
}

fn say_what_is_left(ctx: &Context, row: &WorkflowRow) -> Result<(), CliError> {
    if row.is_canceled {
        return Err(CliError::refused(format!("workflow {} ({}) was canceled", row.id, row.name)).with_hint(
            format!("`windlass resume {} --retry-failed` starts it again; --new makes a new one", row.id),
        ));
    }
    let (done, total) = (row.counts.settled(), row.counts.total());
    if done == total {
        ctx.ui.note(&format!(
            "workflow {} was made from this file and is over; --new runs it once more",
            row.id
        ));
    } else if row.started_at.is_some() {
        ctx.ui.note(&format!(
            "going on with workflow {}: {done} of {} are done",
            row.id,
            text::count(total, "job")
        ));
    }
    Ok(())
}

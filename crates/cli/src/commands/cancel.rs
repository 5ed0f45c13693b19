//! `windlass cancel`: stops a workflow for good.
//!
//! The request goes into the books first, so that it is not lost whatever happens next. Whoever runs the workflow is
//! then told to look; if nobody does, it is carried out here.

use crate::args::workflows::CancelArgs;
use crate::args::{MachineArgs, WorkflowRef};
use crate::context::Context;
use crate::drive::{Failed, conduct};
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::{Ui, summary, text};
use rustix::process::{Signal, kill_process};
use serde::Serialize;
use std::time::Duration;
use windlass_proc::identity::{Identity, to_pid};
use windlass_proc::machine::hostname;
use windlass_store::Store;
use windlass_store::lock::Holder;
use windlass_store::model::WorkflowRow;
use windlass_types::{JobStatus, WorkflowId};

/// Another process is watched through the books, which cannot notify.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What `--format json` says.
#[derive(Serialize)]
struct CancelView {
    workflow_id: WorkflowId,
    name: String,
    state: State,
    /// Who was asked to stop it; `null` if nobody ran it.
    pid: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Canceled,
    /// Whoever runs it is about to.
    Canceling,
    /// With `--dry-run`.
    WouldCancel,
}

pub(crate) fn run(ctx: &Context, args: &CancelArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let rows = select::workflows(&*store, &args.workflows)?;
    let several = rows.len() > 1;
    let mut views = Vec::new();
    for row in rows {
        if several && summary::is_over(&row) {
            ctx.ui.note(&format!("{} is over", title(&row)));
            continue;
        }
        views.push(if args.dry_run { would_cancel(ctx, &row) } else { cancel(ctx, &*store, &row, args) }?);
    }
    match (ctx.ui.json_wanted(), views.as_slice()) {
        (false, _) => {}
        (true, [one]) if !several => ctx.ui.print_json(one)?,
        (true, all) => ctx.ui.print_json(&all)?,
    }
    Ok(Exit::Success)
}

fn title(row: &WorkflowRow) -> String {
    format!("workflow {} ({})", row.id, row.name)
}

fn would_cancel(ctx: &Context, row: &WorkflowRow) -> Result<CancelView, CliError> {
    refuse_if_over(row)?;
    ctx.ui.note(&format!("would cancel {}", title(row)));
    Ok(view(row, State::WouldCancel, None))
}

/// Cancels one workflow and says so.
fn cancel(
    ctx: &Context,
    store: &dyn Store,
    row: &WorkflowRow,
    args: &CancelArgs,
) -> Result<CancelView, CliError> {
    let title = title(row);
    if row.is_canceled {
        ctx.ui.note(&format!("{title} is canceled already"));
        return Ok(view(row, State::Canceled, None));
    }
    refuse_if_over(row)?;
    store.request_cancel(row.id, ctx.clock.now())?;
    if ctx.server()?.is_some() {
        return cancel_on_server(ctx, store, row, args);
    }
    let asked = match store.lock_holder(row.id)? {
        Some(holder) => {
            tell(&holder)?;
            let pid = holder.pid;
            if !args.wait {
                let running = row.counts.get(JobStatus::Running) + row.counts.get(JobStatus::Pending);
                let held = text::count(running, "job");
                ctx.ui.note(&format!("asked process {pid} to stop {title}, which holds {held}"));
                return Ok(view(row, State::Canceling, Some(pid)));
            }
            wait_until_free(store, row.id)?;
            Some(pid)
        }
        None => None,
    };
    let row_now = select::workflow(store, &WorkflowRef::Id(row.id))?;
    if !row_now.is_canceled {
        refuse_if_over(&row_now)?;
        cancel_here(ctx, store, row.id, args)?;
    }
    ctx.ui.note(&format!("{title} is canceled"));
    Ok(view(row, State::Canceled, asked))
}

/// The server has told its workers, which end what runs.
fn cancel_on_server(
    ctx: &Context,
    store: &dyn Store,
    row: &WorkflowRow,
    args: &CancelArgs,
) -> Result<CancelView, CliError> {
    let title = title(row);
    let mut row_now = select::workflow(store, &WorkflowRef::Id(row.id))?;
    let is_running = |row: &WorkflowRow| row.started_at.is_some() && row.ended_at.is_none();
    while args.wait && is_running(&row_now) {
        std::thread::sleep(LOOK_EVERY);
        row_now = select::workflow(store, &WorkflowRef::Id(row.id))?;
    }
    let state = if is_running(&row_now) { State::Canceling } else { State::Canceled };
    ctx.ui.note(&match state {
        State::Canceling => format!("asked the server to stop {title}"),
        _ => format!("{title} is canceled"),
    });
    Ok(view(row, state, None))
}

fn view(row: &WorkflowRow, state: State, pid: Option<u32>) -> CancelView {
    CancelView { workflow_id: row.id, name: row.name.clone(), state, pid }
}

fn refuse_if_over(row: &WorkflowRow) -> Result<(), CliError> {
    if row.counts.settled() < row.counts.total() {
        return Ok(());
    }
    Err(CliError::refused(format!("workflow {} ({}) is over: there is nothing to cancel", row.id, row.name)))
}

/// Nobody runs it, but jobs of a process that died may still run: the usual way sees to both.
fn cancel_here(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    args: &CancelArgs,
) -> Result<(), CliError> {
    let machine = MachineArgs { grace: args.grace, ..MachineArgs::default() };
    conduct(ctx, store, workflow, Failed::Keep, &machine, Ui::silent_observer()).map(|_| ())
}

fn wait_until_free(store: &dyn Store, workflow: WorkflowId) -> Result<(), CliError> {
    while store.lock_holder(workflow)?.is_some() {
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Has whoever runs a workflow look into the books.
pub(crate) fn tell(holder: &Holder) -> Result<(), CliError> {
    let here = hostname();
    if holder.host != here {
        return Err(CliError::refused(format!("the workflow is run by {holder}, and this is {here}"))
            .with_hint("the request is stored: that process finds it when it next starts; to stop it now, run this there"));
    }
    let process = Identity { pid: holder.pid, start_ticks: holder.pid_start_ticks };
    let Some(pid) = to_pid(holder.pid).filter(|_| process.is_alive()) else { return Ok(()) };
    kill_process(pid, Signal::USR1).map_err(|e| {
        CliError::io(format!("cannot tell process {} to look: {e}", holder.pid))
            .with_hint("the request is stored, and is carried out when the workflow is next resumed")
    })
}

//! `windlass cancel`: cancels a workflow.
//!
//! The pending command is stored first, so that it cannot be lost. Then the process that runs the workflow is
//! notified; if no process runs it, the cancellation is carried out here.

use crate::args::workflows::WorkflowCancelArgs;
use crate::args::{MachineArgs, WorkflowRef};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_run::{EarlierFailuresPolicy, run_with_observer};
use crate::object_selection;
use crate::ui::{TerminalUi, run_summary, text};
use rustix::process::{Signal, kill_process};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use windlass_process::machine::hostname;
use windlass_process::process_identity::{ProcessIdentity, to_pid};
use windlass_store::Store;
use windlass_store::lock::LockHolder;
use windlass_store::model::WorkflowRow;
use windlass_types::{JobStatus, WorkflowId};

/// Poll interval: the database cannot notify about another process.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Output of `--format json`.
#[derive(Serialize)]
struct CancelView {
    workflow_id: WorkflowId,
    name: String,
    state: CancelState,
    /// The process that was asked to cancel; `null` if no process ran the workflow.
    pid: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CancelState {
    Canceled,
    /// The process that runs the workflow is canceling it.
    Canceling,
    /// With `--dry-run`.
    WouldCancel,
}

pub(crate) fn run(ctx: &CliContext, args: &WorkflowCancelArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let rows = object_selection::find_workflows(&*store, &args.workflows)?;
    let several = rows.len() > 1;
    let mut views = Vec::new();
    for row in rows {
        if several && run_summary::is_over(&row) {
            ctx.ui.print_note(&format!("{} has ended", workflow_title(&row)));
            continue;
        }
        views.push(if args.dry_run {
            plan_cancel(ctx, &row)
        } else {
            cancel_workflow(ctx, &store, &row, args)
        }?);
    }
    match (ctx.ui.wants_json(), views.as_slice()) {
        (false, _) => {}
        (true, [one]) if !several => ctx.ui.print_json(one)?,
        (true, all) => ctx.ui.print_json(&all)?,
    }
    Ok(CliExit::Success)
}

fn workflow_title(row: &WorkflowRow) -> String {
    format!("workflow {} ({})", row.id, row.name)
}

fn plan_cancel(ctx: &CliContext, row: &WorkflowRow) -> Result<CancelView, CliError> {
    refuse_if_ended(row)?;
    ctx.ui.print_note(&format!("would cancel {}", workflow_title(row)));
    Ok(build_view(row, CancelState::WouldCancel, None))
}

/// Cancels one workflow and reports it.
fn cancel_workflow(
    ctx: &CliContext,
    shared_store: &Arc<dyn Store>,
    row: &WorkflowRow,
    args: &WorkflowCancelArgs,
) -> Result<CancelView, CliError> {
    let (title, store) = (workflow_title(row), &**shared_store);
    if row.is_canceled {
        ctx.ui.print_note(&format!("{title} is already canceled"));
        return Ok(build_view(row, CancelState::Canceled, None));
    }
    refuse_if_ended(row)?;
    store.request_cancel(row.id, ctx.clock.now())?;
    if ctx.server()?.is_some() {
        return cancel_on_server(ctx, store, row, args);
    }
    let asked = match store.lock_holder(row.id)? {
        Some(holder) => {
            signal_holder(&holder)?;
            let pid = holder.pid;
            if !args.wait {
                let running = row.counts.get(JobStatus::Running) + row.counts.get(JobStatus::Pending);
                let held = text::render_count(running, "job");
                ctx.ui.print_note(&format!("asked process {pid} to cancel {title}, which holds {held}"));
                return Ok(build_view(row, CancelState::Canceling, Some(pid)));
            }
            wait_until_unlocked(store, row.id)?;
            Some(pid)
        }
        None => None,
    };
    let row_now = object_selection::find_workflow(store, &WorkflowRef::Id(row.id))?;
    if !row_now.is_canceled {
        refuse_if_ended(&row_now)?;
        cancel_locally(ctx, shared_store, row.id, args)?;
    }
    ctx.ui.print_note(&format!("{title} is canceled"));
    Ok(build_view(row, CancelState::Canceled, asked))
}

/// The server has notified its workers, which terminate running jobs.
fn cancel_on_server(
    ctx: &CliContext,
    store: &dyn Store,
    row: &WorkflowRow,
    args: &WorkflowCancelArgs,
) -> Result<CancelView, CliError> {
    let title = workflow_title(row);
    let mut row_now = object_selection::find_workflow(store, &WorkflowRef::Id(row.id))?;
    let is_running = |row: &WorkflowRow| row.started_at.is_some() && row.ended_at.is_none();
    while args.wait && is_running(&row_now) {
        std::thread::sleep(POLL_INTERVAL);
        row_now = object_selection::find_workflow(store, &WorkflowRef::Id(row.id))?;
    }
    let state = if is_running(&row_now) { CancelState::Canceling } else { CancelState::Canceled };
    ctx.ui.print_note(&match state {
        CancelState::Canceling => format!("asked the server to cancel {title}"),
        _ => format!("{title} is canceled"),
    });
    Ok(build_view(row, state, None))
}

fn build_view(row: &WorkflowRow, state: CancelState, pid: Option<u32>) -> CancelView {
    CancelView { workflow_id: row.id, name: row.name.clone(), state, pid }
}

fn refuse_if_ended(row: &WorkflowRow) -> Result<(), CliError> {
    if row.counts.settled() < row.counts.total() {
        return Ok(());
    }
    Err(CliError::refused(format!(
        "workflow {} ({}) has ended: there is nothing to cancel",
        row.id, row.name
    )))
}

/// No process runs the workflow, but jobs of a dead process may still run: the usual path handles both.
fn cancel_locally(
    ctx: &CliContext,
    store: &Arc<dyn Store>,
    workflow: WorkflowId,
    args: &WorkflowCancelArgs,
) -> Result<(), CliError> {
    let machine = MachineArgs { grace: args.grace, ..MachineArgs::default() };
    run_with_observer(
        ctx,
        store,
        workflow,
        EarlierFailuresPolicy::Keep,
        &machine,
        TerminalUi::silent_observer(),
    )
    .map(|_| ())
}

fn wait_until_unlocked(store: &dyn Store, workflow: WorkflowId) -> Result<(), CliError> {
    while store.lock_holder(workflow)?.is_some() {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Notifies the process that runs a workflow.
pub(crate) fn signal_holder(holder: &LockHolder) -> Result<(), CliError> {
    let here = hostname();
    if holder.host != here {
        return Err(CliError::refused(format!("the workflow is run by {holder}, and this host is {here}"))
            .with_hint("the request is stored and applied when that process next starts; to cancel now, run this command there"));
    }
    let process = ProcessIdentity { pid: holder.pid, start_ticks: holder.pid_start_ticks };
    let Some(pid) = to_pid(holder.pid).filter(|_| process.is_alive()) else { return Ok(()) };
    kill_process(pid, Signal::USR1).map_err(|e| {
        CliError::io(format!("cannot notify process {}: {e}", holder.pid))
            .with_hint("the request is stored, and is applied when the workflow is next resumed")
    })
}

//! `windlass cancel`: stops a workflow for good.
//!
//! The request goes into the books first, so that it is not lost whatever happens next. Whoever runs the workflow is
//! then told to look; if nobody does, it is carried out here.

use crate::args::{CancelArgs, MachineArgs};
use crate::context::Context;
use crate::drive::{Failed, drive};
use crate::error::{CliError, Exit};
use crate::select;
use rustix::process::{Signal, kill_process};
use std::time::Duration;
use windlass_proc::identity::{Identity, to_pid};
use windlass_proc::machine::hostname;
use windlass_store::Store as _;
use windlass_store::lock::{Holder, WorkflowLock};
use windlass_types::JobStatus;

/// Another process is watched through the books, which cannot notify.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn run(ctx: &Context, args: &CancelArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let row = select::workflow(&store, &args.workflow)?;
    let (id, name) = (row.id, &row.name);
    if row.is_canceled {
        ctx.ui.note(&format!("workflow {id} ({name}) is canceled already"));
        return Ok(Exit::Success);
    }
    if row.counts.settled() == row.counts.total() {
        return Err(CliError::refused(format!("workflow {id} ({name}) is over: there is nothing to cancel")));
    }
    store.request_cancel(id, ctx.clock.now())?;
    let Some(holder) = WorkflowLock::holder(store.path(), id)? else {
        // Nobody runs it, but jobs of a process that died may still run: the usual way sees to both.
        drive(ctx, &store, id, Failed::Keep, &MachineArgs { grace: args.grace, ..MachineArgs::default() })?;
        return Ok(Exit::Success);
    };
    tell(&holder)?;
    if args.wait {
        while WorkflowLock::holder(store.path(), id)?.is_some() {
            std::thread::sleep(LOOK_EVERY);
        }
        ctx.ui.note(&format!("workflow {id} ({name}) is canceled"));
    } else {
        let running = row.counts.get(JobStatus::Running) + row.counts.get(JobStatus::Pending);
        ctx.ui.note(&format!(
            "asked process {} to stop workflow {id} ({name}); {running} jobs are held",
            holder.pid
        ));
    }
    Ok(Exit::Success)
}

fn tell(holder: &Holder) -> Result<(), CliError> {
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

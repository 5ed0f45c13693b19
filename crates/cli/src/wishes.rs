//! Has done what somebody wants about jobs that failed or wait: by the server, by whoever runs the workflow, who alone may
//! change where its jobs stand, or here if nobody does.

use crate::context::Context;
use crate::error::CliError;
use rustix::process::{Signal, kill_process};
use std::time::Duration;
use windlass_proc::identity::{Identity, to_pid};
use windlass_proc::machine::hostname;
use windlass_store::lock::Holder;
use windlass_store::{Error, Store};
use windlass_types::WorkflowId;
use windlass_types::orders::{Outcome, Wanted};

/// Another process is watched through the books, which cannot notify.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What came of it, order by order.
pub(crate) fn have_done(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    wanted: &Wanted,
) -> Result<Vec<Outcome>, CliError> {
    loop {
        match store.carry_out(workflow, wanted, ctx.clock.now()) {
            Err(Error::Busy { .. }) if ctx.server()?.is_none() => {}
            done => return Ok(done?),
        }
        // Nobody has it any more: we try again.
        let Some(holder) = store.lock_holder(workflow)? else { continue };
        let wish = store.add_wish(workflow, wanted, ctx.clock.now())?;
        let told = tell(&holder);
        if let Some(answer) = await_answer(ctx, store, workflow, wish, told)? {
            return answer.map_err(CliError::refused);
        }
    }
}

/// `None`: nobody has answered, and nobody will.
fn await_answer(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    wish: i64,
    told: Result<(), CliError>,
) -> Result<Option<Result<Vec<Outcome>, String>>, CliError> {
    loop {
        if let Some(answer) = store.wish_answer(wish)? {
            return Ok(Some(answer));
        }
        let is_run = store.lock_holder(workflow)?.is_some();
        if told.is_ok() && is_run {
            std::thread::sleep(LOOK_EVERY);
            continue;
        }
        if store.withdraw_wish(wish, ctx.clock.now())? {
            return if is_run { told.map(|()| None) } else { Ok(None) };
        }
    }
}

fn tell(holder: &Holder) -> Result<(), CliError> {
    let here = hostname();
    if holder.host != here {
        return Err(CliError::refused(format!("the workflow is run by {holder}, and this is {here}"))
            .with_hint("run this there"));
    }
    let process = Identity { pid: holder.pid, start_ticks: holder.pid_start_ticks };
    let Some(pid) = to_pid(holder.pid).filter(|_| process.is_alive()) else { return Ok(()) };
    kill_process(pid, Signal::USR1)
        .map_err(|e| CliError::io(format!("cannot tell process {} to look: {e}", holder.pid)))
}

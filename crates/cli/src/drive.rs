//! Runs a stored workflow on this machine until it is over: shared by `run`, `resume` and `exec`.

use crate::args::MachineArgs;
use crate::context::Context;
use crate::error::{CliError, Exit, Kind};
use crate::local::LocalHost;
use crate::ui::summary;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};
use windlass_engine::{Control, Dispatcher, Options, RunEnd, begin_next_run, take_over};
use windlass_store::Store as _;
use windlass_store::lock::WorkflowLock;
use windlass_store::sqlite::SqliteStore;
use windlass_types::WorkflowId;

/// What to do with jobs that ended badly in an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// They stay as they are.
    Keep,
    /// A new run starts, in which they and what was built on them run again.
    RunAgain,
}

pub(crate) fn drive(
    ctx: &Context,
    store: &SqliteStore,
    workflow: WorkflowId,
    failed: Failed,
    machine: &MachineArgs,
) -> Result<Exit, CliError> {
    let _lock = WorkflowLock::acquire(store.path(), workflow, ctx.clock.now())?;
    let mut host = LocalHost::new(machine, store.path());
    let row = |store: &SqliteStore| {
        store.workflow(workflow)?.ok_or(CliError::from(windlass_store::Error::NoSuchWorkflow(workflow)))
    };
    let mut observer = ctx.ui.observer(row(store)?.counts.total());
    if failed == Failed::RunAgain {
        take_over(store, &mut host, &mut *observer, &row(store)?, ctx.clock.now())?;
        begin_next_run(store, &row(store)?, ctx.clock.now())?;
    }
    let options = Options { grace: machine.grace };
    let dispatcher = Dispatcher::new(store, &mut host, &mut *observer, row(store)?, options)?;
    let listener = Listener::start(dispatcher.control())?;
    let run = dispatcher.run();
    drop(listener);
    // The terminal is its own again before the summary is printed.
    drop(observer);
    let run = run?;
    let exit = summary::report_end(ctx, store, workflow, run.elapsed)?;
    Ok(match run.end {
        RunEnd::Finished | RunEnd::Canceled => exit,
        RunEnd::Stuck => Exit::JobsFailed,
        RunEnd::Interrupted => Exit::Interrupted,
    })
}

/// Hears signals and passes them on to the dispatcher, until it is dropped.
struct Listener(Handle);

impl Listener {
    fn start(control: Control) -> Result<Self, CliError> {
        let trouble = |e: std::io::Error| CliError::new(Kind::Io, format!("cannot listen for signals: {e}"));
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1]).map_err(trouble)?;
        let handle = signals.handle();
        let listen = move || {
            for signal in signals.forever() {
                if signal == SIGUSR1 { control.look_for_cancel() } else { control.interrupt() }
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(trouble)?;
        Ok(Self(handle))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.close();
    }
}

//! Runs a stored workflow on this machine until it is over: shared by `run`, `resume` and `exec`.

use crate::args::MachineArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
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
    // Before the lock is taken: whoever holds it is sent SIGUSR1 by `cancel`, which ends a process that does not listen.
    let signals = listen_for_signals()?;
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
    let listener = Listener::start(signals, dispatcher.control())?;
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

fn listen_for_signals() -> Result<Signals, CliError> {
    Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1]).map_err(|e| deaf(&e))
}

fn deaf(error: &std::io::Error) -> CliError {
    CliError::io(format!("cannot listen for signals: {error}"))
}

/// Passes signals on to the dispatcher, until it is dropped.
struct Listener(Handle);

impl Listener {
    fn start(mut signals: Signals, control: Control) -> Result<Self, CliError> {
        let handle = signals.handle();
        let listen = move || {
            for signal in signals.forever() {
                if signal == SIGUSR1 { control.look_for_cancel() } else { control.interrupt() }
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(|e| deaf(&e))?;
        Ok(Self(handle))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.close();
    }
}

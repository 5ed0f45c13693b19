//! Runs a stored workflow on this machine until it is over: shared by `run`, `resume` and `exec`.

use crate::args::MachineArgs;
use crate::away;
use crate::commands::plot;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::inputs;
use crate::local::LocalHost;
use crate::rules;
use crate::strays;
use crate::ui::{Ui, summary};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use windlass_agent::default_state_dir;
use windlass_engine::observe::Observer;
use windlass_engine::{Dispatcher, Options, RunEnd, Summary, Until, begin_next_run, take_over};
use windlass_proc::shell;
use windlass_store::lock::Lock;
use windlass_store::model::WorkflowRow;
use windlass_store::{Location, Store};
use windlass_types::WorkflowId;

/// What to do with jobs that ended badly in an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// They stay as they are.
    Keep,
    /// A new run starts, in which they and what was built on them run again.
    RunAgain,
}

/// Runs the workflow, shows how it goes, and tells how it ended.
pub(crate) fn drive(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    failed: Failed,
    machine: &MachineArgs,
) -> Result<Exit, CliError> {
    if let Some(client) = ctx.server()? {
        return away::drive(ctx, client, store, workflow, failed, machine);
    }
    let row = row(store, workflow)?;
    require_directory(&row)?;
    if !machine.force {
        inputs::require(store, &row)?;
    }
    let run = conduct(ctx, store, workflow, failed, machine, ctx.ui.observer(row.counts.total()))?;
    let exit = summary::report_end(ctx, store, workflow, run.elapsed)?;
    plot::after_run(ctx, store, workflow);
    if let Some(why) = run.kept_back {
        return Err(why.into());
    }
    Ok(match run.end {
        RunEnd::Finished => exit,
        RunEnd::Canceled => Exit::JobsFailed,
        RunEnd::Stuck => Exit::NeedsDecision,
        RunEnd::Interrupted => Exit::Interrupted,
    })
}

/// Runs the workflow and tells only the observer, which is gone afterwards: the terminal is its own again.
pub(crate) fn conduct(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    failed: Failed,
    machine: &MachineArgs,
    mut observer: Box<dyn Observer>,
) -> Result<Summary, CliError> {
    // Before the lock is taken: whoever holds it is sent SIGUSR1 by `cancel`, which ends a process that does not listen.
    let signals = listen_for_signals()?;
    let lock = store.lock(Lock::Workflow(workflow), ctx.clock.now())?;
    strays::refuse(store, workflow, machine.take_over)?;
    if failed == Failed::Keep && row(store, workflow)?.is_canceled {
        return Err(CliError::refused(format!("workflow {workflow} was canceled in this moment")));
    }
    warn_without_bash(&ctx.ui);
    let mut host = LocalHost::new(machine, &database(store)?).with_password_of(&ctx.database());
    if failed == Failed::RunAgain {
        let (before, classifier) = (row(store, workflow)?, rules::of_settings(ctx)?);
        take_over(store, &mut host, &mut *observer, &before, classifier, ctx.clock.now())?;
        begin_next_run(store, &row(store, workflow)?, ctx.clock.now())?;
    }
    let row = row(store, workflow)?;
    let until = until(ctx, machine, &row)?;
    let options = Options { grace: machine.grace, until, classifier: rules::of_settings(ctx)? };
    let dispatcher = Dispatcher::new(store, &mut host, &mut *observer, row, options)?.holding(&lock);
    let control = dispatcher.control();
    let listener =
        Listener::start(
            signals,
            move |signal| {
                if signal == SIGUSR1 { control.look() } else { control.interrupt() }
            },
        )?;
    let run = dispatcher.run();
    drop(listener);
    Ok(run?)
}

/// Said before jobs run on this machine.
pub(crate) fn warn_without_bash(ui: &Ui) {
    if !shell::has_bash() {
        ui.warn(shell::NO_BASH);
    }
}

/// When the run has to end, if anybody said so. Jobs are asked to stop as long before as the workflow says, else as a
/// stopped job gets anyway; but not before half of the time is over.
pub(crate) fn until(
    ctx: &Context,
    machine: &MachineArgs,
    row: &WorkflowRow,
) -> Result<Option<Until>, CliError> {
    let now = ctx.clock.now();
    if let Some(end) = machine.end_time.filter(|end| *end <= now) {
        return Err(CliError::user(format!("--end-time {end} is over; it is {now}")));
    }
    let until_then = machine.end_time.map(|end| end.since(now));
    let Some(time) = machine.time_limit.into_iter().chain(until_then).min() else { return Ok(None) };
    let config = row.settings.execution_config.as_ref();
    let lead = config.and_then(|config| config.sigterm_lead_seconds).map(Duration::from_secs);
    let lead = lead.unwrap_or(machine.grace).min(time / 2);
    Ok(Instant::now().checked_add(time).map(|end| Until { end, lead }))
}

/// The file or PostgreSQL database that jobs run here are noted in, and told of.
pub(crate) fn database(store: &dyn Store) -> Result<PathBuf, CliError> {
    match store.location() {
        Location::Sqlite(path) => Ok(path),
        Location::Postgres { url } if default_state_dir().is_some() => Ok(url.into()),
        Location::Postgres { .. } => {
            Err(CliError::io("nobody's home is known, and notes on what runs are kept there")
                .with_hint("set HOME"))
        }
        location @ Location::Server(_) => {
            Err(CliError::refused(format!("jobs cannot be run from here into {location}"))
                .with_hint("a server gives them to its workers: `windlass worker --url URL`"))
        }
    }
}

fn row(store: &dyn Store, workflow: WorkflowId) -> Result<WorkflowRow, CliError> {
    store.workflow(workflow)?.ok_or(CliError::from(windlass_store::Error::NoSuchWorkflow(workflow)))
}

/// Every job would fail to start in a directory that is gone, for instance because the project was moved.
fn require_directory(row: &WorkflowRow) -> Result<(), CliError> {
    if Path::new(&row.submission_dir).is_dir() {
        return Ok(());
    }
    Err(CliError::io(format!(
        "the directory {}, in which the jobs of workflow {} run, is not there",
        row.submission_dir, row.id
    ))
    .with_hint("move it back, or run the spec where it is now: `windlass run --new SPEC`"))
}

/// Not to those that were ignored before we came: `nohup` and shells mean it.
pub(crate) fn listen_for_signals() -> Result<Signals, CliError> {
    let ignored = ignored_signals();
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    Signals::new(wanted.chain([SIGUSR1])).map_err(|e| deaf(&e))
}

/// Whether somebody had this signal ignored before we came.
pub(crate) fn is_ignored(signal: i32) -> bool {
    ignored_signals() & (1 << (signal - 1)) != 0
}

/// One bit per signal, the first one lowest.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

fn deaf(error: &std::io::Error) -> CliError {
    CliError::io(format!("cannot listen for signals: {error}"))
}

/// Passes signals on, until it is dropped.
pub(crate) struct Listener(Handle);

impl Listener {
    pub(crate) fn start(mut signals: Signals, tell: impl Fn(i32) + Send + 'static) -> Result<Self, CliError> {
        let handle = signals.handle();
        let listen = move || {
            for signal in signals.forever() {
                tell(signal);
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

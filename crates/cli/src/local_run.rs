//! Runs a stored workflow on this machine until it has ended: shared by `run`, `resume` and `exec`.

use crate::args::MachineArgs;
use crate::classification_rules;
use crate::commands::plot;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_worker::LocalWorkerHost;
use crate::missing_inputs;
use crate::orphaned_workers;
use crate::server_run;
use crate::ui::{TerminalUi, run_summary};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_agent::default_state_dir;
use windlass_process::shell;
use windlass_scheduler::run_observer::RunObserver;
use windlass_scheduler::{
    LocalRun, LocalRunOptions, RunDeadline, RunEnd, RunSummary, begin_next_run, recover_workflow,
};
use windlass_store::lock::LockScope;
use windlass_store::model::WorkflowRow;
use windlass_store::{Store, StoreLocation};
use windlass_types::WorkflowId;

/// What to do with jobs that failed or were canceled in an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlierFailuresPolicy {
    /// Keep their states.
    Keep,
    /// Start a new run in which they and their dependents run again.
    RunAgain,
}

/// Runs the workflow, shows its progress, and reports the outcome.
pub(crate) fn run_locally(
    ctx: &CliContext,
    shared_store: &Arc<dyn Store>,
    workflow: WorkflowId,
    failed: EarlierFailuresPolicy,
    machine: &MachineArgs,
) -> Result<CliExit, CliError> {
    let store = &**shared_store;
    if let Some(client) = ctx.server()? {
        return server_run::run_on_server(ctx, client, store, workflow, failed, machine);
    }
    let row = load_workflow_row(store, workflow)?;
    require_directory(&row)?;
    if !machine.force {
        missing_inputs::require_inputs(store, &row)?;
    }
    let run =
        run_with_observer(ctx, shared_store, workflow, failed, machine, ctx.ui.observer(row.counts.total()))?;
    let exit = run_summary::report_run_end(ctx, store, workflow, run.elapsed)?;
    plot::plot_after_run(ctx, store, workflow);
    if let Some(why) = run.unrunnable_jobs {
        return Err(why.into());
    }
    Ok(match run.end {
        RunEnd::Finished => exit,
        RunEnd::Canceled => CliExit::JobsFailed,
        RunEnd::WaitingForDecision => CliExit::NeedsDecision,
        RunEnd::Interrupted => CliExit::Interrupted,
    })
}

/// Runs the workflow and reports to the observer, which is dropped afterwards and releases the terminal.
pub(crate) fn run_with_observer(
    ctx: &CliContext,
    shared_store: &Arc<dyn Store>,
    workflow: WorkflowId,
    failed: EarlierFailuresPolicy,
    machine: &MachineArgs,
    mut observer: Box<dyn RunObserver>,
) -> Result<RunSummary, CliError> {
    let store = &**shared_store;
    // Handlers are installed before the lock is taken: `cancel` sends SIGUSR1 to the lock holder, which would
    // kill a process without a handler.
    let signals = listen_for_signals()?;
    let lock = store.lock(LockScope::Workflow(workflow), ctx.clock.now())?;
    orphaned_workers::refuse_orphaned_workers(store, workflow, machine.take_over)?;
    if failed == EarlierFailuresPolicy::Keep && load_workflow_row(store, workflow)?.is_canceled {
        return Err(CliError::refused(format!("workflow {workflow} has just been canceled")));
    }
    warn_without_bash(&ctx.ui);
    let mut host = LocalWorkerHost::new(machine, &worker_database(store)?).with_password_of(&ctx.database());
    if failed == EarlierFailuresPolicy::RunAgain {
        let (before, classifier) =
            (load_workflow_row(store, workflow)?, classification_rules::configured_classifier(ctx)?);
        recover_workflow(store, &mut host, &mut *observer, &before, classifier, ctx.clock.now())?;
        begin_next_run(store, &load_workflow_row(store, workflow)?, ctx.clock.now())?;
    }
    let row = load_workflow_row(store, workflow)?;
    let until = run_deadline(ctx, machine, &row)?;
    let options = LocalRunOptions {
        grace: machine.grace,
        deadline: until,
        classifier: classification_rules::configured_classifier(ctx)?,
    };
    let local_run =
        LocalRun::new(Arc::clone(shared_store), &mut host, &mut *observer, row, options)?.with_lock(&lock);
    let control = local_run.control();
    let listener = RunSignalListener::start(signals, move |signal| {
        if signal == SIGUSR1 { control.check_requests() } else { control.interrupt() }
    })?;
    let run = local_run.run();
    drop(listener);
    Ok(run?)
}

/// Notices before jobs run on this machine.
pub(crate) fn warn_without_bash(ui: &TerminalUi) {
    if !shell::has_bash() {
        ui.print_warning(shell::NO_BASH_WARNING);
    }
}

/// The end time of the run, if given. Jobs are asked to stop before it by the time that the workflow sets, or
/// by the grace period, but not before half of the time has passed.
pub(crate) fn run_deadline(
    ctx: &CliContext,
    machine: &MachineArgs,
    row: &WorkflowRow,
) -> Result<Option<RunDeadline>, CliError> {
    let now = ctx.clock.now();
    if let Some(end) = machine.end_time.filter(|end| *end <= now) {
        return Err(CliError::user(format!("--end-time {end} has passed; it is {now}")));
    }
    let until_then = machine.end_time.map(|end| end.since(now));
    let Some(time) = machine.time_limit.into_iter().chain(until_then).min() else { return Ok(None) };
    let config = row.settings.execution_config.as_ref();
    let lead = config.and_then(|config| config.sigterm_lead_seconds).map(Duration::from_secs);
    let lead = lead.unwrap_or(machine.grace).min(time / 2);
    Ok(Instant::now().checked_add(time).map(|end| RunDeadline { end, stop_before_end: lead }))
}

/// The file or PostgreSQL database in which jobs that run here are recorded.
pub(crate) fn worker_database(store: &dyn Store) -> Result<PathBuf, CliError> {
    match store.location() {
        StoreLocation::Sqlite(path) => Ok(path),
        StoreLocation::Postgres { url } if default_state_dir().is_some() => Ok(url.into()),
        StoreLocation::Postgres { .. } => Err(CliError::io(
            "the home directory is unknown, and it is needed for records of running processes",
        )
        .with_hint("set HOME")),
        location @ StoreLocation::Server(_) => {
            Err(CliError::refused(format!("jobs for {location} cannot be run from here"))
                .with_hint("use a server, which assigns them to its workers: `windlass worker --url URL`"))
        }
    }
}

fn load_workflow_row(store: &dyn Store, workflow: WorkflowId) -> Result<WorkflowRow, CliError> {
    store.workflow(workflow)?.ok_or(CliError::from(windlass_store::StoreError::NoSuchWorkflow(workflow)))
}

/// Every job would fail to start in a missing directory, for instance after the project was moved.
fn require_directory(row: &WorkflowRow) -> Result<(), CliError> {
    if Path::new(&row.submission_dir).is_dir() {
        return Ok(());
    }
    Err(CliError::io(format!(
        "the working directory {} of the jobs of workflow {} does not exist",
        row.submission_dir, row.id
    ))
    .with_hint("move it back, or run the spec at its new path: `windlass run --new SPEC`"))
}

/// Signals that were already ignored stay ignored, as `nohup` and shells intend.
pub(crate) fn listen_for_signals() -> Result<Signals, CliError> {
    let ignored = ignored_signals();
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0);
    Signals::new(wanted.chain([SIGUSR1])).map_err(|e| signal_error(&e))
}

/// Whether this signal was already ignored at the start.
pub(crate) fn is_ignored(signal: i32) -> bool {
    ignored_signals() & (1 << (signal - 1)) != 0
}

/// One bit per signal, signal 1 lowest.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

fn signal_error(error: &std::io::Error) -> CliError {
    CliError::io(format!("cannot install signal handlers: {error}"))
}

/// Forwards signals until it is dropped.
pub(crate) struct RunSignalListener(Handle);

impl RunSignalListener {
    pub(crate) fn start(mut signals: Signals, tell: impl Fn(i32) + Send + 'static) -> Result<Self, CliError> {
        let handle = signals.handle();
        let listen = move || {
            for signal in signals.forever() {
                tell(signal);
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(listen).map_err(|e| signal_error(&e))?;
        Ok(Self(handle))
    }
}

impl Drop for RunSignalListener {
    fn drop(&mut self) {
        self.0.close();
    }
}

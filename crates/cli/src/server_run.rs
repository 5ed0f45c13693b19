//! Runs a workflow of a server until it has ended, with a worker of this machine: `run`, `resume` and `exec`
//! with a server. Other workers of the server may take part.

use crate::args::MachineArgs;
use crate::commands::plot;
use crate::context::CliContext;
use crate::error::{CliError, CliErrorKind, CliExit};
use crate::local_run::{EarlierFailuresPolicy, RunSignalListener, listen_for_signals, run_deadline};
use crate::local_worker;
use crate::ui::run_summary;
use crate::{missing_inputs, rerun};
use signal_hook::consts::SIGUSR1;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use windlass_agent::{
    FindServer, LeaveReason, RemoteWorker, RemoteWorkerOptions, RemoteWorkerSummary, default_state_dir,
};
use windlass_client::Client;
use windlass_process::machine::MachineInfo;
use windlass_scheduler::begin_next_run;
use windlass_scheduler::run_observer::RunProgress;
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{StatusCounts, WorkflowId};

/// Poll interval for the state of the workflow.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Makes the server start the workflow, runs a worker for it, and reports the outcome.
pub(crate) fn run_on_server(
    ctx: &CliContext,
    client: &Client,
    store: &dyn Store,
    workflow: WorkflowId,
    failed: EarlierFailuresPolicy,
    machine: &MachineArgs,
) -> Result<CliExit, CliError> {
    let row = rerun::load_workflow_row(store, workflow)?;
    if !machine.force {
        missing_inputs::require_inputs(store, &row)?;
    }
    if failed == EarlierFailuresPolicy::RunAgain {
        begin_next_run(store, &row, ctx.clock.now())?;
    }
    let began = Instant::now();
    client.start_workflow(workflow)?;
    let outcome = run_until_over(ctx, client, store, &row, machine)?;
    if let Some(kept) = &outcome.kept {
        ctx.ui.print_warning(&format!(
            "{} results did not reach the server; they are kept in {} for the next worker on this machine",
            outcome.undelivered,
            kept.display()
        ));
    }
    let exit = run_summary::report_run_end(ctx, store, workflow, began.elapsed())?;
    plot::plot_after_run(ctx, store, workflow);
    // Other workers may have run the rest.
    let is_over = rerun::load_workflow_row(store, workflow)?.ended_at.is_some();
    Ok(match outcome.reason {
        _ if is_over => exit,
        // The worker has no more to do, but the workflow has not ended.
        LeaveReason::Dismissed => CliExit::NeedsDecision,
        _ => CliExit::Interrupted,
    })
}

/// Runs until the workflow has ended or this process must exit, and shows the progress.
fn run_until_over(
    ctx: &CliContext,
    client: &Client,
    store: &dyn Store,
    row: &WorkflowRow,
    machine: &MachineArgs,
) -> Result<RemoteWorkerSummary, CliError> {
    let signals = listen_for_signals()?;
    let agent = RemoteWorker::new(agent_options(ctx, client, row, machine)?)?;
    let control = agent.control();
    let listener = RunSignalListener::start(signals, move |signal| {
        // SIGUSR1 only wakes local runs; here the server notifies.
        if signal != SIGUSR1 {
            control.interrupt();
        }
    })?;
    let (sender, receiver) = channel();
    let mut observer = ctx.ui.observer(row.counts.total());
    let mut meter = JobRateMeter::new(row.counts);
    let outcome = std::thread::scope(|scope| {
        let working = scope.spawn(move || agent.run(&mut NoticeForwarder(sender)));
        loop {
            match receiver.recv_timeout(POLL_INTERVAL) {
                Ok(text) => observer.on_notice(&text),
                Err(RecvTimeoutError::Timeout) => {
                    // While the server is unreachable, the agent reports it.
                    if let Ok(Some(row)) = store.workflow(row.id) {
                        observer.on_progress(&meter.progress(row.counts));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        working.join().map_err(|_| CliError::internal("the worker of this machine crashed"))
    });
    drop((listener, observer));
    Ok(outcome??)
}

fn agent_options(
    ctx: &CliContext,
    client: &Client,
    row: &WorkflowRow,
    machine: &MachineArgs,
) -> Result<RemoteWorkerOptions, CliError> {
    let here = MachineInfo::detect();
    let state_dir = default_state_dir().ok_or_else(|| {
        CliError::io("the home directory is unknown, and it is needed for the journal of the worker")
            .with_hint("set HOME")
    })?;
    let mut options =
        RemoteWorkerOptions::new(client.clone(), local_worker::machine_capacity(machine, &here), state_dir);
    local_worker::share_log_level(&mut options);
    options.find_server = ctx.server_finder().map(|find| Arc::new(find) as FindServer);
    options.database = ctx.served_database();
    options.gpu_devices = here.gpus;
    options.labels.clone_from(&machine.label);
    options.workflow = Some(row.id);
    // As without a server: jobs get the environment of the command.
    options.environment.extra_patterns.push("*".to_owned());
    options.grace = machine.grace;
    let until = run_deadline(ctx, machine, row)?;
    options.deadline = until.map(|until| windlass_agent::WorkerDeadline {
        end: until.end,
        stop_before_end: until.stop_before_end,
    });
    Ok(options)
}

/// Prints the notices of the agent.
struct NoticeForwarder(Sender<String>);

impl windlass_agent::RemoteWorkerObserver for NoticeForwarder {
    fn on_notice(&mut self, text: &str) {
        // The receiver is dropped only at the end.
        self.0.send(text.to_owned()).ok();
    }

    fn on_progress(&mut self, _progress: &windlass_agent::RemoteWorkerProgress) {}
}

/// Measures how many jobs end per second.
pub(crate) struct JobRateMeter {
    started_at: Instant,
    initial_settled: u64,
}

impl JobRateMeter {
    pub(crate) fn new(counts: StatusCounts) -> Self {
        Self { started_at: Instant::now(), initial_settled: counts.settled() }
    }

    pub(crate) fn progress(&mut self, counts: StatusCounts) -> RunProgress {
        let elapsed = self.started_at.elapsed();
        let done = counts.settled().saturating_sub(self.initial_settled);
        let jobs_per_second = done as f64 / elapsed.as_secs_f64().max(0.001);
        RunProgress { counts, elapsed, jobs_per_second, ..RunProgress::default() }
    }
}

impl From<windlass_agent::RemoteWorkerError> for CliError {
    fn from(error: windlass_agent::RemoteWorkerError) -> Self {
        use windlass_agent::RemoteWorkerError as E;
        match error {
            E::Server(error) => error.into(),
            E::EnsureDead(_) => Self::refused(error.to_string()),
            E::ServerUnreachable { .. }
            | E::StateDirectory { .. }
            | E::StartWorkerProcess(_)
            | E::WorkerKeepsDying(_) => Self::new(CliErrorKind::Io, error.to_string()),
        }
    }
}

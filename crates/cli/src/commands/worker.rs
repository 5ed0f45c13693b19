//! `windlass worker`: starts a worker for a server.

use crate::args::WorkflowRef;
use crate::args::worker::{WorkerArgs, WorkerCapacityArgs};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_worker;
use crate::object_selection;
use crate::ui::{TerminalUi, WorkerStatusLine, text};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::time::Instant;
use windlass_agent::environment::PassedEnvironment;
use windlass_agent::{
    FindServer, LeaveReason, RemoteWorker, RemoteWorkerControl, RemoteWorkerError, RemoteWorkerObserver,
    RemoteWorkerOptions, RemoteWorkerProgress, RemoteWorkerSummary, WorkerDeadline, default_state_dir,
};
use windlass_process::machine::MachineInfo;
use windlass_types::worker_protocol::AcceptedJobOwners;
use windlass_types::{Capacity, WorkflowId};

pub(crate) fn run(ctx: &CliContext, args: &WorkerArgs) -> Result<CliExit, CliError> {
    let client = ctx.require_server()?.clone();
    crate::local_run::warn_without_bash(&ctx.ui);
    let machine = MachineInfo::detect();
    let capacity = worker_capacity(&machine, &args.offer);
    let state_dir = args.state_dir.clone().or_else(default_state_dir).ok_or_else(|| {
        CliError::user("no home directory for the worker's journal").with_hint("use --state-dir")
    })?;
    let mut options = RemoteWorkerOptions::new(client, capacity, ctx.cwd.join(state_dir));
    local_worker::share_log_level(&mut options);
    options.find_server = ctx.server_finder().map(|find| Arc::new(find) as FindServer);
    options.database = ctx.served_database();
    options.gpu_devices = machine.gpus;
    options.labels.clone_from(&args.label);
    options.site.clone_from(&args.worker_site);
    options.jobs_of = parse_jobs_of(&args.jobs_of)?;
    options.environment =
        PassedEnvironment { extra_patterns: args.pass_environment.clone(), in_allocation: false };
    options.workflow = args.workflow.as_ref().map(|workflow| bound_workflow(ctx, workflow)).transpose()?;
    options.persistent = args.persistent;
    options.idle_timeout = args.idle_timeout;
    options.give_up_after = args.give_up_after;
    options.grace = args.grace;
    options.deadline = leave_deadline(ctx, args)?;
    let outcome = work(&ctx.ui, options, &SignalHandling::DEFAULT)?;
    Ok(print_end(&ctx.ui, &outcome))
}

/// Jobs of other users run with the account of the worker, so they are accepted only on request, and never as
/// root.
fn parse_jobs_of(users: &[String]) -> Result<AcceptedJobOwners, CliError> {
    let asked = AcceptedJobOwners::from_users(users);
    if !asked.is_own() && rustix::process::geteuid().is_root() {
        return Err(CliError::user("--jobs-of: as root, the jobs of other users would run as root")
            .with_hint(
                "run one worker per user under that user's account: `runuser -u USER -- windlass worker`",
            ));
    }
    Ok(asked)
}

/// The signals that a worker handles, and the resulting commands.
pub(crate) struct SignalHandling<'a> {
    pub(crate) signals: &'a [i32],
    pub(crate) handler: fn(&RemoteWorkerControl, i32),
}

impl SignalHandling<'static> {
    /// The first signal drains, the second stops, the third kills.
    const DEFAULT: Self =
        Self { signals: &[SIGINT, SIGTERM, SIGHUP], handler: |control, _| control.interrupt() };
}

/// Runs until there is a reason to leave.
pub(crate) fn work(
    ui: &TerminalUi,
    options: RemoteWorkerOptions,
    signalled: &SignalHandling<'_>,
) -> Result<RemoteWorkerSummary, CliError> {
    let wanted = signalled.signals.iter().filter(|signal| !crate::local_run::is_ignored(**signal));
    let signals =
        Signals::new(wanted).map_err(|e| CliError::io(format!("cannot install signal handlers: {e}")))?;
    let url = options.client.url().to_owned();
    let agent = RemoteWorker::new(options).map_err(worker_error)?;
    let listener = WorkerSignalListener::start(signals, agent.control(), signalled.handler)?;
    let mut watcher =
        WorkerObserver { ui, line: ui.worker_status_line(&url), url, has_server_accepted: false };
    let end = agent.run(&mut watcher).map_err(worker_error);
    drop(watcher);
    drop(listener);
    end
}

/// An id is not looked up, because the server may be unreachable for now.
fn bound_workflow(ctx: &CliContext, workflow: &WorkflowRef) -> Result<WorkflowId, CliError> {
    match workflow {
        WorkflowRef::Id(id) => Ok(*id),
        WorkflowRef::Last | WorkflowRef::Name(_) => {
            Ok(object_selection::find_workflow(&*ctx.open_read()?, workflow)?.id)
        }
    }
}

fn worker_capacity(machine: &MachineInfo, offer: &WorkerCapacityArgs) -> Capacity {
    Capacity {
        cpus: offer.num_cpus.unwrap_or(machine.cpus),
        memory: offer.memory.unwrap_or(machine.memory),
        gpus: offer.num_gpus.unwrap_or(machine.gpus.len() as u32),
        nodes: 1,
        max_jobs: offer.max_jobs,
    }
}

/// The time at which the worker must exit, if given. Jobs are asked to stop one grace period earlier, but not
/// before half of the time has passed.
fn leave_deadline(ctx: &CliContext, args: &WorkerArgs) -> Result<Option<WorkerDeadline>, CliError> {
    let now = ctx.clock.now();
    if let Some(end) = args.end_time.filter(|end| *end <= now) {
        return Err(CliError::user(format!("--end-time {end} has passed; it is {now}")));
    }
    let until_then = args.end_time.map(|end| end.since(now));
    let Some(time) = args.time_limit.into_iter().chain(until_then).min() else { return Ok(None) };
    let lead = args.grace.min(time / 2);
    Ok(Instant::now().checked_add(time).map(|end| WorkerDeadline { end, stop_before_end: lead }))
}

pub(crate) fn print_end(ui: &TerminalUi, outcome: &RemoteWorkerSummary) -> CliExit {
    let why = match outcome.reason {
        LeaveReason::Dismissed => "no work left",
        LeaveReason::Idle => "idle timeout reached",
        LeaveReason::Drained => "drained",
        LeaveReason::TimeOver => "time limit reached",
        LeaveReason::Stopped => "stopped; running jobs are queued again",
    };
    let done = text::render_count(outcome.succeeded, "job");
    let count = |count: u64, word: &str| if count > 0 { format!(", {count} {word}") } else { String::new() };
    let (failed, stopped) = (count(outcome.failed, "failed"), count(outcome.stopped, "stopped"));
    ui.print_note(&format!("{why}; {done} completed{failed}{stopped}"));
    if let Some(kept) = &outcome.kept {
        let count = text::render_count(outcome.undelivered as u64, "result");
        let (kept, state_dir) = (kept.display(), kept.parent().unwrap_or(kept).display());
        ui.print_warning(&format!(
            "{count} could not be delivered and are kept in {kept}. The next `windlass worker` with this state directory \
             delivers them; to do only that: windlass worker --state-dir {state_dir} --idle-timeout 1s"
        ));
        return CliExit::Environment;
    }
    if outcome.reason == LeaveReason::Stopped || outcome.stopped > 0 {
        CliExit::Interrupted
    } else {
        CliExit::Success
    }
}

fn worker_error(error: RemoteWorkerError) -> CliError {
    let message = error.to_string();
    let RemoteWorkerError::Server(error) = error else { return CliError::io(message) };
    match error.problem() {
        None => CliError::io(message)
            .with_hint("check that the server is running at this address; `windlass serve` starts one"),
        Some(problem) => {
            let refusal = match problem.status {
                404 | 422 => CliError::user(message),
                _ => CliError::refused(message),
            };
            match &problem.hint {
                Some(hint) => refusal.with_hint(hint.clone()),
                None => refusal,
            }
        }
    }
}

/// Prints notices line by line, and on a terminal also the state.
struct WorkerObserver<'a> {
    ui: &'a TerminalUi,
    line: Option<WorkerStatusLine>,
    url: String,
    has_server_accepted: bool,
}

impl RemoteWorkerObserver for WorkerObserver<'_> {
    fn on_notice(&mut self, text: &str) {
        match &self.line {
            Some(line) => line.print_above(text),
            None => self.ui.print_note(text),
        }
    }

    fn on_progress(&mut self, progress: &RemoteWorkerProgress) {
        if let Some(worker) = progress.worker.filter(|_| !self.has_server_accepted) {
            self.has_server_accepted = true;
            self.on_notice(&format!(
                "worker {worker} is connected to {}; press Ctrl-C to drain it",
                self.url
            ));
        }
        if let Some(line) = &self.line {
            line.show_progress(progress);
        }
    }
}

/// Forwards signals to the agent until it is dropped.
struct WorkerSignalListener(signal_hook::iterator::Handle);

impl WorkerSignalListener {
    fn start(
        mut signals: Signals,
        control: RemoteWorkerControl,
        tell: fn(&RemoteWorkerControl, i32),
    ) -> Result<Self, CliError> {
        let handle = signals.handle();
        let listen = move || signals.forever().for_each(|signal| tell(&control, signal));
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(listen)
            .map_err(|e| CliError::io(format!("cannot install signal handlers: {e}")))?;
        Ok(Self(handle))
    }
}

impl Drop for WorkerSignalListener {
    fn drop(&mut self) {
        self.0.close();
    }
}

//! `windlass worker`: this machine works for a server.

use crate::args::WorkflowRef;
use crate::args::worker::{OfferArgs, WorkerArgs};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::{Ui, WorkerLine, text};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::Arc;
use std::time::Instant;
use windlass_agent::environment::PassedEnvironment;
use windlass_agent::{
    Agent, AgentOptions, Control, End, Error, FindAgain, Observer, Outcome, Progress, Until,
    default_state_dir,
};
use windlass_proc::machine::Machine;
use windlass_types::fleet::JobsOf;
use windlass_types::{Capacity, WorkflowId};

pub(crate) fn run(ctx: &Context, args: &WorkerArgs) -> Result<Exit, CliError> {
    let client = ctx.require_server()?.clone();
    crate::drive::warn_without_bash(&ctx.ui);
    let machine = Machine::detect();
    let capacity = capacity(&machine, &args.offer);
    let state_dir = args.state_dir.clone().or_else(default_state_dir).ok_or_else(|| {
        CliError::user("there is no home directory to keep notes in")
            .with_hint("--state-dir names another place")
    })?;
    let mut options = AgentOptions::new(client, capacity, ctx.cwd.join(state_dir));
    options.find_again = ctx.way_back().map(|find| Arc::new(find) as FindAgain);
    options.gpu_devices = machine.gpus;
    options.labels.clone_from(&args.label);
    options.site.clone_from(&args.worker_site);
    options.jobs_of = jobs_of(&args.jobs_of)?;
    options.environment = PassedEnvironment { more: args.pass_environment.clone(), in_allocation: false };
    options.workflow = args.workflow.as_ref().map(|workflow| bound_to(ctx, workflow)).transpose()?;
    options.persistent = args.persistent;
    options.idle_timeout = args.idle_timeout;
    options.give_up_after = args.give_up_after;
    options.grace = args.grace;
    options.until = until(ctx, args)?;
    let outcome = work(&ctx.ui, options, &Signalled::USUAL)?;
    Ok(tell_end(&ctx.ui, &outcome))
}

/// Others' jobs run with our account, so they are only taken if that was asked for, and never as root.
fn jobs_of(users: &[String]) -> Result<JobsOf, CliError> {
    let asked = JobsOf::from_users(users);
    if !asked.is_own() && rustix::process::geteuid().is_root() {
        return Err(CliError::user("--jobs-of: as root, the jobs of other users would run as root")
            .with_hint(
                "run one worker per user with the account of that user: `runuser -u USER -- windlass worker`",
            ));
    }
    Ok(asked)
}

/// Which signals a worker hears, and what it is told then.
pub(crate) struct Signalled<'a> {
    pub(crate) signals: &'a [i32],
    pub(crate) tell: fn(&Control, i32),
}

impl Signalled<'static> {
    /// The first drains, the second stops, the third kills.
    const USUAL: Self = Self { signals: &[SIGINT, SIGTERM, SIGHUP], tell: |control, _| control.interrupt() };
}

/// Works until there is a reason to leave.
pub(crate) fn work(ui: &Ui, options: AgentOptions, signalled: &Signalled<'_>) -> Result<Outcome, CliError> {
    let wanted = signalled.signals.iter().filter(|signal| !crate::drive::is_ignored(**signal));
    let signals =
        Signals::new(wanted).map_err(|e| CliError::io(format!("cannot listen for signals: {e}")))?;
    let url = options.client.url().to_owned();
    let agent = Agent::new(options).map_err(failed)?;
    let listener = Listener::start(signals, agent.control(), signalled.tell)?;
    let mut watcher = Watcher { ui, line: ui.worker_line(&url), url, is_known: false };
    let end = agent.run(&mut watcher).map_err(failed);
    drop(watcher);
    drop(listener);
    end
}

/// A number is not looked up: the server may be away, and is waited for.
fn bound_to(ctx: &Context, workflow: &WorkflowRef) -> Result<WorkflowId, CliError> {
    match workflow {
        WorkflowRef::Id(id) => Ok(*id),
        WorkflowRef::Last | WorkflowRef::Name(_) => Ok(select::workflow(&*ctx.open_read()?, workflow)?.id),
    }
}

fn capacity(machine: &Machine, offer: &OfferArgs) -> Capacity {
    Capacity {
        cpus: offer.num_cpus.unwrap_or(machine.cpus),
        memory: offer.memory.unwrap_or(machine.memory),
        gpus: offer.num_gpus.unwrap_or(machine.gpus.len() as u32),
        nodes: 1,
        max_jobs: offer.max_jobs,
    }
}

/// When it has to be gone, if anybody said so. Jobs are asked to stop as long before as a stopped job gets anyway, but not
/// before half of the time is over.
fn until(ctx: &Context, args: &WorkerArgs) -> Result<Option<Until>, CliError> {
    let now = ctx.clock.now();
    if let Some(end) = args.end_time.filter(|end| *end <= now) {
        return Err(CliError::user(format!("--end-time {end} is over; it is {now}")));
    }
    let until_then = args.end_time.map(|end| end.since(now));
    let Some(time) = args.time_limit.into_iter().chain(until_then).min() else { return Ok(None) };
    let lead = args.grace.min(time / 2);
    Ok(Instant::now().checked_add(time).map(|end| Until { end, lead }))
}

pub(crate) fn tell_end(ui: &Ui, outcome: &Outcome) -> Exit {
    let why = match outcome.end {
        End::Dismissed => "there is nothing more to do here",
        End::Idle => "there was nothing to do for long enough",
        End::Drained => "finished what it had",
        End::TimeOver => "its time is over",
        End::Stopped => "stopped; jobs that ran go back to be run again",
    };
    let done = text::count(outcome.succeeded, "job");
    let count = |count: u64, word: &str| if count > 0 { format!(", {count} {word}") } else { String::new() };
    let (failed, stopped) = (count(outcome.failed, "failed"), count(outcome.stopped, "stopped"));
    ui.note(&format!("{why}; {done} completed{failed}{stopped}"));
    if let Some(kept) = &outcome.kept {
        let count = text::count(outcome.undelivered as u64, "result");
        let (kept, state_dir) = (kept.display(), kept.parent().unwrap_or(kept).display());
        ui.warn(&format!(
            "{count} could not be delivered, kept in {kept}. The next `windlass worker` with this state directory \
             delivers what is there; one that does nothing else: windlass worker --state-dir {state_dir} --idle-timeout 1s"
        ));
        return Exit::Environment;
    }
    if outcome.end == End::Stopped || outcome.stopped > 0 { Exit::Interrupted } else { Exit::Success }
}

fn failed(error: Error) -> CliError {
    let message = error.to_string();
    let Error::Server(error) = error else { return CliError::io(message) };
    match error.problem() {
        None => CliError::io(message)
            .with_hint("is the server running, and is this its address? `windlass serve` starts one"),
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

/// Tells what should be known, line by line; on a terminal also how things stand.
struct Watcher<'a> {
    ui: &'a Ui,
    line: Option<WorkerLine>,
    url: String,
    is_known: bool,
}

impl Observer for Watcher<'_> {
    fn notice(&mut self, text: &str) {
        match &self.line {
            Some(line) => line.above(text),
            None => self.ui.note(text),
        }
    }

    fn progress(&mut self, progress: &Progress) {
        if let Some(worker) = progress.worker.filter(|_| !self.is_known) {
            self.is_known = true;
            self.notice(&format!(
                "worker {worker} works for {}; Ctrl-C to let it finish and leave",
                self.url
            ));
        }
        if let Some(line) = &self.line {
            line.show(progress);
        }
    }
}

/// Passes signals on to the agent, until it is dropped.
struct Listener(signal_hook::iterator::Handle);

impl Listener {
    fn start(mut signals: Signals, control: Control, tell: fn(&Control, i32)) -> Result<Self, CliError> {
        let handle = signals.handle();
        let listen = move || signals.forever().for_each(|signal| tell(&control, signal));
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(listen)
            .map_err(|e| CliError::io(format!("cannot listen for signals: {e}")))?;
        Ok(Self(handle))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.close();
    }
}

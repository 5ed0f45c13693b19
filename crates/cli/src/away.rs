//! Runs a workflow of a server until it is over, with a worker of this machine: `run`, `resume` and `exec` where the books
//! are a server's. Other workers of the server may take part.

use crate::args::MachineArgs;
use crate::commands::plot;
use crate::context::Context;
use crate::drive::{Failed, Listener, listen_for_signals, until};
use crate::error::{CliError, Exit, Kind};
use crate::local;
use crate::ui::summary;
use crate::{inputs, rerun};
use signal_hook::consts::SIGUSR1;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use windlass_agent::{Agent, AgentOptions, End, FindAgain, Outcome, default_state_dir};
use windlass_client::Client;
use windlass_engine::begin_next_run;
use windlass_engine::observe::Progress;
use windlass_proc::machine::Machine;
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{StatusCounts, WorkflowId};

/// How often the books are asked how things stand.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Has the server start the workflow, works for it, and tells how it ended.
pub(crate) fn drive(
    ctx: &Context,
    client: &Client,
    store: &dyn Store,
    workflow: WorkflowId,
    failed: Failed,
    machine: &MachineArgs,
) -> Result<Exit, CliError> {
    let row = rerun::row(store, workflow)?;
    if !machine.force {
        inputs::require(store, &row)?;
    }
    if failed == Failed::RunAgain {
        begin_next_run(store, &row, ctx.clock.now())?;
    }
    let began = Instant::now();
    client.start_workflow(workflow)?;
    let outcome = work(ctx, client, store, &row, machine)?;
    if let Some(kept) = &outcome.kept {
        ctx.ui.warn(&format!(
            "{} results did not reach the server; they are kept in {}, for the next worker on this machine",
            outcome.undelivered,
            kept.display()
        ));
    }
    let exit = summary::report_end(ctx, store, workflow, began.elapsed())?;
    plot::after_run(ctx, store, workflow);
    // Somebody else may have finished what we left.
    let is_over = rerun::row(store, workflow)?.ended_at.is_some();
    Ok(match outcome.end {
        _ if is_over => exit,
        // There is nothing to stay for, though it is not over.
        End::Dismissed => Exit::NeedsDecision,
        _ => Exit::Interrupted,
    })
}

/// Works until the workflow is over or we have to go, and shows meanwhile how it stands.
fn work(
    ctx: &Context,
    client: &Client,
    store: &dyn Store,
    row: &WorkflowRow,
    machine: &MachineArgs,
) -> Result<Outcome, CliError> {
    let signals = listen_for_signals()?;
    let agent = Agent::new(options(ctx, client, row, machine)?)?;
    let control = agent.control();
    let listener = Listener::start(signals, move |signal| {
        // That one is for those whom `cancel` asks to look; here the server tells.
        if signal != SIGUSR1 {
            control.interrupt();
        }
    })?;
    let (sender, news) = channel();
    let mut observer = ctx.ui.observer(row.counts.total());
    let mut meter = Meter::new(row.counts);
    let outcome = std::thread::scope(|scope| {
        let working = scope.spawn(move || agent.run(&mut Reporter(sender)));
        loop {
            match news.recv_timeout(LOOK_EVERY) {
                Ok(text) => observer.notice(&text),
                Err(RecvTimeoutError::Timeout) => {
                    // Where the server is away, the agent says so.
                    if let Ok(Some(row)) = store.workflow(row.id) {
                        observer.progress(&meter.progress(row.counts));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        working.join().map_err(|_| CliError::internal("the worker of this machine broke down"))
    });
    drop((listener, observer));
    Ok(outcome??)
}

fn options(
    ctx: &Context,
    client: &Client,
    row: &WorkflowRow,
    machine: &MachineArgs,
) -> Result<AgentOptions, CliError> {
    let here = Machine::detect();
    let state_dir = default_state_dir().ok_or_else(|| {
        CliError::io("nobody's home is known, and a worker keeps notes there").with_hint("set HOME")
    })?;
    let mut options = AgentOptions::new(client.clone(), local::capacity(machine, &here), state_dir);
    options.find_again = ctx.way_back().map(|find| Arc::new(find) as FindAgain);
    options.gpu_devices = here.gpus;
    options.labels.clone_from(&machine.label);
    options.workflow = Some(row.id);
    // As without a server: what was set up before the command is there for its jobs.
    options.environment.more.push("*".to_owned());
    options.grace = machine.grace;
    let until = until(ctx, machine, row)?;
    options.until = until.map(|until| windlass_agent::Until { end: until.end, lead: until.lead });
    Ok(options)
}

/// Passes on what the agent has to say.
struct Reporter(Sender<String>);

impl windlass_agent::Observer for Reporter {
    fn notice(&mut self, text: &str) {
        // Whoever showed it is gone only when all is over.
        self.0.send(text.to_owned()).ok();
    }

    fn progress(&mut self, _progress: &windlass_agent::Progress) {}
}

/// How fast it goes.
pub(crate) struct Meter {
    began: Instant,
    settled: u64,
}

impl Meter {
    pub(crate) fn new(counts: StatusCounts) -> Self {
        Self { began: Instant::now(), settled: counts.settled() }
    }

    pub(crate) fn progress(&mut self, counts: StatusCounts) -> Progress {
        let elapsed = self.began.elapsed();
        let done = counts.settled().saturating_sub(self.settled);
        let jobs_per_second = done as f64 / elapsed.as_secs_f64().max(0.001);
        Progress { counts, elapsed, jobs_per_second, ..Progress::default() }
    }
}

impl From<windlass_agent::Error> for CliError {
    fn from(error: windlass_agent::Error) -> Self {
        use windlass_agent::Error as E;
        match error {
            E::Server(error) => error.into(),
            E::Bury(_) => Self::refused(error.to_string()),
            E::GaveUp { .. } | E::State { .. } | E::Start(_) | E::WorkerKeepsDying(_) => {
                Self::new(Kind::Io, error.to_string())
            }
        }
    }
}

//! Runs on HTCondor: DAGs of DAGs in the directory that planning has written. DAGMan owns their nodes; a run is found
//! again by its batch name, goes on from the rescue files of the one before it, and is watched by reading what DAGMan
//! writes.

mod lookout;
mod paper;
mod queue;
#[cfg(test)]
mod tests;

pub(crate) use paper::Paper;

use super::{Backend, Look, Order, Stop, UnitChange, attempts};
use crate::mailbox::Nudge;
use crate::outline::Outline;
use lookout::{Lookout, Seen};
use queue::{Answer, Queue};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_condor::pausing;
use windlass_condor::pool::{BATCH_PREFIX, CondorError};
use windlass_condor::render::{RenderError, node_priority, write_bans};
use windlass_condor::rescue;
use windlass_condor::submit::{Desk, SubmitError};
use windlass_condor::watch::{DagState, Outcome, UnitNews};
use windlass_core::requests::book::{self, NodeCounts, RunRow};
use windlass_core::requests::lifecycle::{RunState, Trouble};
use windlass_types::requests::NodeRole;

/// How runs go to HTCondor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CondorOptions {
    /// New runs go to the one with the fewest of them. None: the schedd of this machine.
    pub schedds: Vec<String>,
    /// The `windlass` of this machine, absolute: what the scripts of nodes are.
    pub program: PathBuf,
    /// Where workers have it, absolute. `None`: it is sent along with each job.
    pub on_workers: Option<PathBuf>,
    /// An X.509 proxy that jobs go to storage with.
    pub proxy: Option<PathBuf>,
    /// A token that they go there with.
    pub token: Option<PathBuf>,
    /// Attributes that all jobs bear, for those who count what was used.
    pub accounting: BTreeMap<String, String>,
    /// Where the commands of HTCondor are, if not on the path.
    pub tools: Option<PathBuf>,
}

impl CondorOptions {
    /// Asks each schedd that new runs go to whether it is there.
    pub fn check_schedds(&self) -> Result<(), windlass_condor::pool::CondorError> {
        let queue = Queue::new(self.tools.clone());
        let named = self.schedds.iter().map(|schedd| Some(schedd.as_str()));
        let local = self.schedds.is_empty().then_some(None);
        named.chain(local).try_for_each(|schedd| queue.probe(schedd))
    }
}

/// What is being told to a schedd when we stop may still be heard. What was not is told after the next start.
const LAST_WORDS: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Condor {
    options: CondorOptions,
    queue: Queue,
    lookout: Lookout,
}

impl Condor {
    pub(crate) fn new(options: CondorOptions, nudge: Nudge) -> Self {
        let queue = Queue::new(options.tools.clone());
        Self { lookout: Lookout::new(nudge, queue.apart()), queue, options }
    }

    /// No schedd is told anything more: whoever waits for one that is silent goes on.
    pub(crate) fn stop(&self) {
        self.queue.leash.cut(LAST_WORDS);
    }

    /// Where a new run goes, given those that are not over: to the schedd that has the fewest of them, among those that
    /// answer.
    pub(crate) fn place(&self, active: &[RunRow]) -> book::Backend {
        let load = |schedd: &String| {
            let is_there = |run: &&RunRow| schedd_of(run) == Some(schedd.as_str());
            active.iter().filter(is_there).count()
        };
        let mut schedds: Vec<&String> = self.options.schedds.iter().collect();
        schedds.sort_by_key(|schedd| load(schedd));
        let answers = |schedd: &&&String| schedds.len() == 1 || self.queue.answers(schedd);
        // If none answers, the one that has the least to do when it is back.
        let schedd = schedds.iter().find(answers).or(schedds.first()).map(|&schedd| schedd.clone());
        book::Backend::Htcondor { schedd, cluster: None }
    }

    /// What was changed since the run was planned holds for what is left of it: retries, memory, priority, sites.
    fn renew(&self, order: &Order<'_>) -> Result<(), Trouble> {
        let (directory, submission) = (Path::new(&order.run.submit_dir), &order.submission);
        let outline = Outline::read(directory).map_err(|error| passing(&error))?;
        let paper = paper_of(order);
        paper::renew(&paper, &outline, &self.options).map_err(|error| of_render(&error))?;
        rescue::adapt(directory, submission.retries.counts.processing, submission.memory_mb)
            .map_err(|error| passing(&error))
    }

    /// Writes what HTCondor has to know of a planned run into its directory.
    pub(crate) fn write(&self, paper: &Paper<'_>, outline: &Outline) -> Result<(), Trouble> {
        paper::write(paper, outline, &self.options).map_err(|error| of_render(&error))
    }

    /// Runs that are not among these need not be watched any more.
    pub(crate) fn keep(&self, is_wanted: impl Fn(&str) -> bool) {
        self.lookout.keep(is_wanted);
    }

    /// The DAGMan that a run has, if it was submitted, and at which schedd; also where nobody was told.
    fn find(&self, order: &Order<'_>) -> Result<Option<(Option<String>, u64)>, Trouble> {
        let (condor, directory) = (self.commands(order.run), Path::new(&order.run.submit_dir));
        let desk = Desk::open(&condor, directory, &batch(order));
        desk.and_then(|desk| desk.find_at(number(order))).map_err(|error| of_submit(&error))
    }

    /// Where a run is handed over: where it was planned for, or where the one before it was. If that schedd was taken out
    /// of service meanwhile, where a new one would go.
    fn destination(&self, order: &Order<'_>) -> Option<String> {
        let planned = schedd_of(order.run);
        // That of this machine is not named anywhere.
        let is_in_service = |schedd: &str| self.options.schedds.iter().any(|known| known == schedd);
        if planned.is_none_or(is_in_service) {
            return planned.map(str::to_owned);
        }
        let elsewhere = match self.place(&order.others) {
            book::Backend::Htcondor { schedd, .. } => schedd,
            book::Backend::Engine { .. } => None,
        };
        tracing::info!(run = order.run.uuid, planned, elsewhere, "its schedd is not in service any more");
        elsewhere
    }

    pub(crate) fn commands(&self, run: &RunRow) -> windlass_condor::pool::Condor {
        self.queue.at(schedd_of(run))
    }
}

/// All runs of a round are of the first one's directory, and bear its name.
fn paper_of<'o>(order: &'o Order<'_>) -> Paper<'o> {
    Paper {
        directory: Path::new(&order.run.submit_dir),
        run: &order.submission.digest,
        workflow: &order.run.process,
        submission: &order.submission,
        banned: &order.banned,
    }
}

/// What the runs of a round are called in the queue, from before they are there.
fn batch(order: &Order<'_>) -> String {
    format!("{BATCH_PREFIX}{}", order.submission.digest)
}

/// Which submission of its directory a run is: those before it that were handed over are known to have been. One that
/// DAGMan did not accept was none, so a run that is released after that has the same number.
fn number(order: &Order<'_>) -> u32 {
    let is_before = |other: &&RunRow| other.submit_dir == order.run.submit_dir && cluster_of(other).is_some();
    order.others.iter().filter(is_before).count() as u32 + 1
}

fn schedd_of(run: &RunRow) -> Option<&str> {
    match &run.backend {
        book::Backend::Htcondor { schedd, .. } => schedd.as_deref(),
        book::Backend::Engine { .. } => None,
    }
}

/// The number of a run's DAGMan, if it was handed over.
pub(crate) fn cluster_of(run: &RunRow) -> Option<u64> {
    match &run.backend {
        book::Backend::Htcondor { cluster, .. } => cluster.as_ref()?.parse().ok(),
        book::Backend::Engine { .. } => None,
    }
}

fn handed(schedd: Option<String>, cluster: u64) -> book::Backend {
    book::Backend::Htcondor { schedd, cluster: Some(cluster.to_string()) }
}

impl Backend for Condor {
    /// Once: what is there already, or was, is not prepared again.
    fn hand_over(&self, order: &Order<'_>) -> Result<book::Backend, Trouble> {
        let (run, directory) = (order.run, Path::new(&order.run.submit_dir));
        let (condor, number) = (self.queue.at(self.destination(order).as_deref()), number(order));
        let mut desk = Desk::open(&condor, directory, &batch(order)).map_err(|error| of_submit(&error))?;
        if desk.is_to_be_made(number).map_err(|error| of_submit(&error))? {
            prepare(run, directory, &order.banned)?;
            if desk.was_submitted() {
                self.renew(order)?;
            }
        }
        let submitted = desk.hand_over(number).map_err(|error| of_submit(&error))?;
        Ok(handed(submitted.schedd, submitted.cluster))
    }

    /// Removed, DAGMan ends its jobs and writes down what need not be done again.
    fn stop(&self, order: &Order<'_>, reason: &str) -> Result<Stop, Trouble> {
        let run = order.run;
        let known = cluster_of(run).map(|cluster| (schedd_of(run).map(str::to_owned), cluster));
        let Some((schedd, cluster)) = known.map_or_else(|| self.find(order), |known| Ok(Some(known)))? else {
            return Ok(Stop::NotThere);
        };
        // If it is gone or going already, looking at it will tell.
        let removed = self.queue.at(schedd.as_deref()).remove(cluster, reason);
        removed.map_err(|error| of_condor(&error))?;
        Ok(Stop::Told(handed(schedd, cluster)))
    }

    fn look(&self, run: &RunRow, read: i64) -> Option<Look> {
        let cluster = cluster_of(run)?;
        Some(match self.lookout.look(run, read, schedd_of(run), cluster) {
            Ok(seen) => look_of(run, &seen),
            Err(error) => {
                tracing::warn!(run = run.uuid, %error, "cannot watch a run");
                Look::unknown(run.backend.clone())
            }
        })
    }

    /// The scripts of its nodes see to it, without a schedd; DAGMan goes on, and tells of units that are completed.
    fn pause(&self, run: &RunRow, is_paused: bool) -> Result<(), Trouble> {
        let Some(cluster) = cluster_of(run) else { return Ok(()) };
        let directory = Path::new(&run.submit_dir);
        if is_paused {
            return pausing::pause(directory).map_err(|error| passing(&error));
        }
        pausing::go_on(directory).map_err(|error| passing(&error))?;
        // Somebody may have held it as well. If it is not, or is gone, looking at it will tell.
        let released = self.commands(run).release(cluster, "somebody lets it go on");
        released.map(drop).map_err(|error| of_condor(&error))
    }

    /// Read by whatever is submitted from now on.
    fn avoid(&self, order: &Order<'_>) -> Result<(), Trouble> {
        write_bans(Path::new(&order.run.submit_dir), &order.banned).map_err(|error| of_render(&error))
    }

    /// First for the nodes that are still to be submitted, then for those in the queue: none is missed in between.
    fn prioritize(&self, order: &Order<'_>) -> Result<(), Trouble> {
        let outline = Outline::read(Path::new(&order.run.submit_dir)).map_err(|error| passing(&error))?;
        paper::renew_submit_files(&paper_of(order), &outline, &self.options)
            .map_err(|error| of_render(&error))?;
        let (condor, priority) = (self.commands(order.run), paper::priority(&order.submission));
        for role in NodeRole::ALL {
            condor
                .set_priority(&batch(order), role.name(), node_priority(priority, *role))
                .map_err(|error| of_condor(&error))?;
        }
        Ok(())
    }
}

/// The sites of now, and units that must not stay where they are.
fn prepare(run: &RunRow, directory: &Path, banned: &[String]) -> Result<(), Trouble> {
    write_bans(directory, banned).map_err(|error| of_render(&error))?;
    let moved = rescue::prepare(directory, banned).map_err(|error| passing(&error))?;
    for rescue::Moved { unit, site, why } in moved {
        tracing::info!(run = run.uuid, unit, site, ?why, "a work unit lands anew");
    }
    Ok(())
}

fn look_of(run: &RunRow, seen: &Seen) -> Look {
    let look = &seen.look;
    let (state, reason) = state_of(seen);
    let change = |news: &UnitNews| UnitChange { seq: news.seq, unit: news.number, status: news.status };
    Look {
        backend: run.backend.clone(),
        state,
        counts: with_others(look.counts, run.totals.nodes, state),
        units_completed: look.units_completed,
        units_failed: look.units_failed,
        news: look.units.iter().map(change).collect(),
        attempts: look.failed.iter().cloned().filter_map(attempts::of_condor).collect(),
        site_totals: look.ended.clone(),
        held: look.tell_held(),
        reason,
    }
}

/// What the files say stands over what the schedd says: they are written by the DAG itself. If they cannot be read, nothing
/// is concluded either from its having left the queue: how it went is not known, and what it has done is not counted yet.
fn state_of(seen: &Seen) -> (RunState, Option<String>) {
    let Seen { look, presence } = seen;
    match (&look.state, presence.gone()) {
        (DagState::Over(outcome), _) => (RunState::Over, tell_outcome(outcome)),
        (DagState::Unknown, gone) => (RunState::Unknown, tell_unreadable(look.trouble.as_deref(), gone)),
        (_, Some(Answer::Ended(why))) => (RunState::Over, Some(why.clone())),
        (_, Some(_)) => (RunState::Gone, None),
        (_, None) if presence.is_unreachable() && look.units.is_empty() => (RunState::Unknown, None),
        (_, None) if look.dagman_held.is_some() || look.is_paused => (RunState::Halted, None),
        (DagState::NotYet | DagState::Running, None) => (RunState::Running, None),
    }
}

/// For whoever is told, should it last.
fn tell_unreadable(trouble: Option<&str>, gone: Option<&Answer>) -> Option<String> {
    let ended = match gone {
        Some(Answer::Ended(why)) => format!(" ({why})"),
        Some(_) => " (its DAGMan is not in the queue any more)".to_owned(),
        None => String::new(),
    };
    trouble.map(|trouble| format!("its files cannot be read: {trouble}{ended}"))
}

/// How it ended, where that is more than units that failed.
fn tell_outcome(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Completed | Outcome::Failed => None,
        Outcome::Aborted => {
            Some("one of its nodes ended the whole run, as no other could do better".to_owned())
        }
        Outcome::Removed => Some("its DAG was removed from the queue".to_owned()),
        Outcome::Broken(why) => Some(why.clone()),
    }
}

/// Only nodes of units that have begun are counted there; the others wait. So do those that were stopped with their DAG.
fn with_others(counts: NodeCounts, total: u64, state: RunState) -> NodeCounts {
    let NodeCounts { done, failed, .. } = counts;
    let (running, held) = if state == RunState::Over { (0, 0) } else { (counts.running, counts.held) };
    NodeCounts { idle: total.saturating_sub(running + done + failed + held), running, done, failed, held }
}

/// With all that lies behind it.
fn told(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        told = format!("{told}: {source}");
        next = source.source();
    }
    told
}

fn passing(error: &dyn Error) -> Trouble {
    Trouble { reason: told(error), again: true }
}

/// Whatever HTCondor refuses now it may accept later, when somebody has mended it; until the request is stuck.
fn of_condor(error: &CondorError) -> Trouble {
    passing(error)
}

fn of_submit(error: &SubmitError) -> Trouble {
    Trouble { again: error.is_transient(), reason: told(error) }
}

fn of_render(error: &RenderError) -> Trouble {
    Trouble { again: matches!(error, RenderError::Io { .. }), reason: told(error) }
}

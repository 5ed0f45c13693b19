//! Runs on HTCondor: DAGs of DAGs in the directory that planning has written. DAGMan owns their nodes; a run is found
//! again by its batch name, goes on from the rescue files of the one before it, and is watched by reading what DAGMan
//! writes.

mod dag_files;
mod dag_watcher;
mod schedd_queue;
#[cfg(test)]
mod tests;

pub(crate) use dag_files::DagFiles;

use super::{RunBackend, RunContext, RunSnapshot, RunUnitChange, StopResult, attempts};
use crate::mailbox::ReconcilerWaker;
use crate::run_outline::RunOutline;
use dag_watcher::{DagWatcher, ObservedRun};
use schedd_queue::{DagQueueStatus, ScheddQueue};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_core::requests::lifecycle::{EffectFailure, RunState};
use windlass_core::requests::rows::{self, NodeCounts, RunRow};
use windlass_htcondor::commands::{BATCH_PREFIX, CondorError};
use windlass_htcondor::pause;
use windlass_htcondor::render::{DagRenderError, node_priority, write_bans};
use windlass_htcondor::rescue;
use windlass_htcondor::submit::{DagSubmitError, SubmitLock};
use windlass_htcondor::watch::{DagOutcome, DagState, UnitUpdate};
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
    pub tools_directory: Option<PathBuf>,
}

impl CondorOptions {
    /// Asks each schedd that new runs go to whether it is there.
    pub fn check_schedds(&self) -> Result<(), windlass_htcondor::commands::CondorError> {
        let queue = ScheddQueue::new(self.tools_directory.clone());
        let named = self.schedds.iter().map(|schedd| Some(schedd.as_str()));
        let local = self.schedds.is_empty().then_some(None);
        named.chain(local).try_for_each(|schedd| queue.probe(schedd))
    }
}

/// What is being told to a schedd when we stop may still be heard. What was not is told after the next start.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct CondorBackend {
    options: CondorOptions,
    schedd_queue: ScheddQueue,
    dag_watcher: DagWatcher,
}

impl CondorBackend {
    pub(crate) fn new(options: CondorOptions, nudge: ReconcilerWaker) -> Self {
        let schedd_queue = ScheddQueue::new(options.tools_directory.clone());
        Self {
            dag_watcher: DagWatcher::new(nudge, schedd_queue.with_own_cancel_token()),
            schedd_queue,
            options,
        }
    }

    /// No schedd is told anything more: whoever waits for one that is silent goes on.
    pub(crate) fn stop(&self) {
        self.schedd_queue.cancel_token.cancel(SHUTDOWN_GRACE);
    }

    /// Where a new run goes, given those that are not over: to the schedd that has the fewest of them, among those that
    /// answer.
    pub(crate) fn choose_schedd(&self, active: &[RunRow]) -> rows::BackendRunRef {
        let load = |schedd: &String| {
            let is_there = |run: &&RunRow| schedd_of(run) == Some(schedd.as_str());
            active.iter().filter(is_there).count()
        };
        let mut schedds: Vec<&String> = self.options.schedds.iter().collect();
        schedds.sort_by_key(|schedd| load(schedd));
        let answers = |schedd: &&&String| schedds.len() == 1 || self.schedd_queue.is_answering(schedd);
        // If none answers, the one that has the least to do when it is back.
        let schedd = schedds.iter().find(answers).or(schedds.first()).map(|&schedd| schedd.clone());
        rows::BackendRunRef::Htcondor { schedd, cluster: None }
    }

    /// What was changed since the run was planned holds for what is left of it: retries, memory, priority, sites.
    fn rewrite_files(&self, order: &RunContext<'_>) -> Result<(), EffectFailure> {
        let (directory, submission) = (Path::new(&order.run.submit_dir), &order.submission);
        let outline = RunOutline::read(directory).map_err(|error| transient_trouble(&error))?;
        let paper = dag_files_of(order);
        dag_files::rewrite_dag_files(&paper, &outline, &self.options)
            .map_err(|error| render_trouble(&error))?;
        rescue::apply_overrides(directory, submission.retries.counts.processing, submission.memory_mb)
            .map_err(|error| transient_trouble(&error))
    }

    /// Writes what HTCondor has to know of a planned run into its directory.
    pub(crate) fn write_dag_files(
        &self,
        paper: &DagFiles<'_>,
        outline: &RunOutline,
    ) -> Result<(), EffectFailure> {
        dag_files::write_dag_files(paper, outline, &self.options).map_err(|error| render_trouble(&error))
    }

    /// Runs that are not among these need not be watched any more.
    pub(crate) fn retain_watched(&self, is_wanted: impl Fn(&str) -> bool) {
        self.dag_watcher.retain_runs(is_wanted);
    }

    /// The DAGMan that a run has, if it was submitted, and at which schedd; also where nobody was told.
    fn find_dagman(&self, order: &RunContext<'_>) -> Result<Option<(Option<String>, u64)>, EffectFailure> {
        let (condor, directory) = (self.condor_client(order.run), Path::new(&order.run.submit_dir));
        let requests = SubmitLock::open(&condor, directory, &batch_name(order));
        requests
            .and_then(|requests| requests.find_with_schedd(number(order)))
            .map_err(|error| submit_trouble(&error))
    }

    /// Where a run is handed over: where it was planned for, or where the one before it was. If that schedd was taken out
    /// of service meanwhile, where a new one would go.
    fn choose_destination(&self, order: &RunContext<'_>) -> Option<String> {
        let planned = schedd_of(order.run);
        // That of this machine is not named anywhere.
        let is_in_service = |schedd: &str| self.options.schedds.iter().any(|known| known == schedd);
        if planned.is_none_or(is_in_service) {
            return planned.map(str::to_owned);
        }
        let elsewhere = match self.choose_schedd(&order.process_runs) {
            rows::BackendRunRef::Htcondor { schedd, .. } => schedd,
            rows::BackendRunRef::Engine { .. } => None,
        };
        tracing::info!(run = order.run.uuid, planned, elsewhere, "its schedd is not in service any more");
        elsewhere
    }

    pub(crate) fn condor_client(&self, run: &RunRow) -> windlass_htcondor::commands::CondorClient {
        self.schedd_queue.client_for(schedd_of(run))
    }
}

/// All runs of a round are of the first one's directory, and bear its name.
fn dag_files_of<'o>(order: &'o RunContext<'_>) -> DagFiles<'o> {
    DagFiles {
        directory: Path::new(&order.run.submit_dir),
        run: &order.submission.digest,
        workflow: &order.run.process,
        submission: &order.submission,
        banned_sites: &order.banned_sites,
    }
}

/// What the runs of a round are called in the queue, from before they are there.
fn batch_name(order: &RunContext<'_>) -> String {
    format!("{BATCH_PREFIX}{}", order.submission.digest)
}

/// Which submission of its directory a run is: those before it that were handed over are known to have been. One that
/// DAGMan did not accept was none, so a run that is released after that has the same number.
fn number(order: &RunContext<'_>) -> u32 {
    let is_before = |other: &&RunRow| other.submit_dir == order.run.submit_dir && cluster_of(other).is_some();
    order.process_runs.iter().filter(is_before).count() as u32 + 1
}

fn schedd_of(run: &RunRow) -> Option<&str> {
    match &run.backend {
        rows::BackendRunRef::Htcondor { schedd, .. } => schedd.as_deref(),
        rows::BackendRunRef::Engine { .. } => None,
    }
}

/// The number of a run's DAGMan, if it was handed over.
pub(crate) fn cluster_of(run: &RunRow) -> Option<u64> {
    match &run.backend {
        rows::BackendRunRef::Htcondor { cluster, .. } => cluster.as_ref()?.parse().ok(),
        rows::BackendRunRef::Engine { .. } => None,
    }
}

fn backend_of_dag(schedd: Option<String>, cluster: u64) -> rows::BackendRunRef {
    rows::BackendRunRef::Htcondor { schedd, cluster: Some(cluster.to_string()) }
}

impl RunBackend for CondorBackend {
    /// Once: what is there already, or was, is not prepared again.
    fn submit_run(&self, order: &RunContext<'_>) -> Result<rows::BackendRunRef, EffectFailure> {
        let (run, directory) = (order.run, Path::new(&order.run.submit_dir));
        let (condor, number) =
            (self.schedd_queue.client_for(self.choose_destination(order).as_deref()), number(order));
        let mut requests = SubmitLock::open(&condor, directory, &batch_name(order))
            .map_err(|error| submit_trouble(&error))?;
        if requests.may_change_files(number).map_err(|error| submit_trouble(&error))? {
            prepare_rescue(run, directory, &order.banned_sites)?;
            if requests.was_submitted() {
                self.rewrite_files(order)?;
            }
        }
        let submitted = requests.submit(number).map_err(|error| submit_trouble(&error))?;
        Ok(backend_of_dag(submitted.schedd, submitted.cluster))
    }

    /// Removed, DAGMan ends its jobs and writes down what need not be done again.
    fn stop_run(&self, order: &RunContext<'_>, reason: &str) -> Result<StopResult, EffectFailure> {
        let run = order.run;
        let known = cluster_of(run).map(|cluster| (schedd_of(run).map(str::to_owned), cluster));
        let Some((schedd, cluster)) =
            known.map_or_else(|| self.find_dagman(order), |known| Ok(Some(known)))?
        else {
            return Ok(StopResult::NotRunning);
        };
        // If it is gone or going already, looking at it will tell.
        let removed = self.schedd_queue.client_for(schedd.as_deref()).remove(cluster, reason);
        removed.map_err(|error| condor_trouble(&error))?;
        Ok(StopResult::Requested(backend_of_dag(schedd, cluster)))
    }

    fn inspect_run(&self, run: &RunRow, read: i64) -> Option<RunSnapshot> {
        let cluster = cluster_of(run)?;
        Some(match self.dag_watcher.observe_run(run, read, schedd_of(run), cluster) {
            Ok(seen) => run_snapshot(run, &seen),
            Err(error) => {
                tracing::warn!(run = run.uuid, %error, "cannot watch a run");
                RunSnapshot::unknown(run.backend.clone())
            }
        })
    }

    /// The scripts of its nodes see to it, without a schedd; DAGMan goes on, and tells of units that are completed.
    fn set_paused(&self, run: &RunRow, is_paused: bool) -> Result<(), EffectFailure> {
        let Some(cluster) = cluster_of(run) else { return Ok(()) };
        let directory = Path::new(&run.submit_dir);
        if is_paused {
            return pause::pause_run(directory).map_err(|error| transient_trouble(&error));
        }
        pause::resume_run(directory).map_err(|error| transient_trouble(&error))?;
        // Somebody may have held it as well. If it is not, or is gone, looking at it will tell.
        let released = self.condor_client(run).release(cluster, "somebody lets it go on");
        released.map(drop).map_err(|error| condor_trouble(&error))
    }

    /// Read by whatever is submitted from now on.
    fn apply_site_bans(&self, order: &RunContext<'_>) -> Result<(), EffectFailure> {
        write_bans(Path::new(&order.run.submit_dir), &order.banned_sites)
            .map_err(|error| render_trouble(&error))
    }

    /// First for the nodes that are still to be submitted, then for those in the queue: none is missed in between.
    fn update_priority(&self, order: &RunContext<'_>) -> Result<(), EffectFailure> {
        let outline =
            RunOutline::read(Path::new(&order.run.submit_dir)).map_err(|error| transient_trouble(&error))?;
        dag_files::rewrite_submit_files(&dag_files_of(order), &outline, &self.options)
            .map_err(|error| render_trouble(&error))?;
        let (condor, priority) =
            (self.condor_client(order.run), dag_files::condor_priority(&order.submission));
        for role in NodeRole::ALL {
            condor
                .set_priority(&batch_name(order), role.name(), node_priority(priority, *role))
                .map_err(|error| condor_trouble(&error))?;
        }
        Ok(())
    }
}

/// The sites of now, and units that must not stay where they are.
fn prepare_rescue(run: &RunRow, directory: &Path, banned: &[String]) -> Result<(), EffectFailure> {
    write_bans(directory, banned).map_err(|error| render_trouble(&error))?;
    let moved = rescue::prepare_rescue(directory, banned).map_err(|error| transient_trouble(&error))?;
    for rescue::MovedUnit { unit, site, reason: why } in moved {
        tracing::info!(run = run.uuid, unit, site, ?why, "a work unit lands anew");
    }
    Ok(())
}

fn run_snapshot(run: &RunRow, seen: &ObservedRun) -> RunSnapshot {
    let look = &seen.snapshot;
    let (state, reason) = run_state(seen);
    let change = |news: &UnitUpdate| RunUnitChange { seq: news.seq, unit: news.number, status: news.status };
    RunSnapshot {
        backend: run.backend.clone(),
        state,
        counts: add_unstarted_nodes(look.counts, run.totals.nodes, state),
        units_completed: look.units_completed,
        units_failed: look.units_failed,
        unit_changes: look.units.iter().map(change).collect(),
        failed_attempts: look
            .failed_attempts
            .iter()
            .cloned()
            .filter_map(attempts::from_condor_attempt)
            .collect(),
        site_totals: look.ended_by_site.clone(),
        held_reasons: look.describe_held(),
        reason,
    }
}

/// What the files say stands over what the schedd says: they are written by the DAG itself. If they cannot be read, nothing
/// is concluded either from its having left the queue: how it went is not known, and what it has done is not counted yet.
fn run_state(seen: &ObservedRun) -> (RunState, Option<String>) {
    let ObservedRun { snapshot: look, presence } = seen;
    match (&look.state, presence.confirmed_absence()) {
        (DagState::Over(outcome), _) => (RunState::Over, describe_outcome(outcome)),
        (DagState::Unknown, gone) => {
            (RunState::Unknown, describe_unreadable(look.read_error.as_deref(), gone))
        }
        (_, Some(DagQueueStatus::Ended(why))) => (RunState::Over, Some(why.clone())),
        (_, Some(_)) => (RunState::Gone, None),
        (_, None) if presence.is_unreachable() && look.units.is_empty() => (RunState::Unknown, None),
        (_, None) if look.dagman_held.is_some() || look.is_paused => (RunState::Halted, None),
        (DagState::NotYet | DagState::Running, None) => (RunState::Running, None),
    }
}

/// For whoever is told, should it last.
fn describe_unreadable(trouble: Option<&str>, gone: Option<&DagQueueStatus>) -> Option<String> {
    let ended = match gone {
        Some(DagQueueStatus::Ended(why)) => format!(" ({why})"),
        Some(_) => " (its DAGMan is not in the queue any more)".to_owned(),
        None => String::new(),
    };
    trouble.map(|trouble| format!("its files cannot be read: {trouble}{ended}"))
}

/// How it ended, where that is more than units that failed.
fn describe_outcome(outcome: &DagOutcome) -> Option<String> {
    match outcome {
        DagOutcome::Completed | DagOutcome::Failed => None,
        DagOutcome::Aborted => {
            Some("one of its nodes ended the whole run, as no other could do better".to_owned())
        }
        DagOutcome::Removed => Some("its DAG was removed from the queue".to_owned()),
        DagOutcome::Broken(why) => Some(why.clone()),
    }
}

/// Only nodes of units that have begun are counted there; the others wait. So do those that were stopped with their DAG.
fn add_unstarted_nodes(counts: NodeCounts, total: u64, state: RunState) -> NodeCounts {
    let NodeCounts { done, failed, .. } = counts;
    let (running, held) = if state == RunState::Over { (0, 0) } else { (counts.running, counts.held) };
    NodeCounts { idle: total.saturating_sub(running + done + failed + held), running, done, failed, held }
}

/// With all that lies behind it.
fn error_chain_text(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        told = format!("{told}: {source}");
        next = source.source();
    }
    told
}

fn transient_trouble(error: &dyn Error) -> EffectFailure {
    EffectFailure { reason: error_chain_text(error), is_retryable: true }
}

/// Whatever HTCondor refuses now it may accept later, when somebody has mended it; until the request is stuck.
fn condor_trouble(error: &CondorError) -> EffectFailure {
    transient_trouble(error)
}

fn submit_trouble(error: &DagSubmitError) -> EffectFailure {
    EffectFailure { is_retryable: error.is_transient(), reason: error_chain_text(error) }
}

fn render_trouble(error: &DagRenderError) -> EffectFailure {
    EffectFailure {
        is_retryable: matches!(error, DagRenderError::Io { .. }),
        reason: error_chain_text(error),
    }
}

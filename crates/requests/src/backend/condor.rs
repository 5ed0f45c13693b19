//! Runs on HTCondor: DAGs of DAGs in the directory that planning has written. DAGMan runs their nodes; a run is
//! found by its batch name, continues from the rescue files of the previous one, and is watched by reading the
//! files of DAGMan.

mod dag_files;
mod dag_watcher;
mod schedd_queue;
#[cfg(test)]
mod tests;

pub(crate) use dag_files::DagFileParameters;

use super::{RunBackend, RunContext, RunSnapshot, RunUnitChange, StopResult, attempts};
use crate::mailbox::RequestReconcilerWaker;
use crate::planned_run_units::PlannedRunUnits;
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

/// Settings for the HTCondor backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CondorOptions {
    /// New runs go to the schedd with the fewest of them. Empty: the schedd of this machine.
    pub schedds: Vec<String>,
    /// The absolute path of `windlass` on this machine, for the scripts of nodes.
    pub program: PathBuf,
    /// The absolute path on workers. `None`: the binary is transferred with each job.
    pub on_workers: Option<PathBuf>,
    /// An X.509 proxy for access to storage.
    pub proxy: Option<PathBuf>,
    /// A token for access to storage.
    pub token: Option<PathBuf>,
    /// Attributes of all jobs, for accounting.
    pub accounting: BTreeMap<String, String>,
    /// The directory of HTCondor's commands, if not on the PATH.
    pub tools_directory: Option<PathBuf>,
}

impl CondorOptions {
    /// Checks whether each schedd for new runs answers.
    pub fn check_schedds(&self) -> Result<(), windlass_htcondor::commands::CondorError> {
        let queue = ScheddQueue::new(self.tools_directory.clone());
        let named = self.schedds.iter().map(|schedd| Some(schedd.as_str()));
        let local = self.schedds.is_empty().then_some(None);
        named.chain(local).try_for_each(|schedd| queue.probe(schedd))
    }
}

/// Calls to a schedd may finish after a stop; others are repeated after the next start.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct CondorBackend {
    options: CondorOptions,
    schedd_queue: ScheddQueue,
    dag_watcher: DagWatcher,
}

impl CondorBackend {
    pub(crate) fn new(options: CondorOptions, waker: RequestReconcilerWaker) -> Self {
        let schedd_queue = ScheddQueue::new(options.tools_directory.clone());
        Self {
            dag_watcher: DagWatcher::new(waker, schedd_queue.with_own_cancel_token()),
            schedd_queue,
            options,
        }
    }

    /// Stops all calls to schedds: callers that wait for a silent one continue.
    pub(crate) fn stop(&self) {
        self.schedd_queue.cancel_token.cancel(SHUTDOWN_GRACE);
    }

    /// The schedd for a new run, given the active ones: the one with the fewest, among those that answer.
    pub(crate) fn choose_schedd(&self, active: &[RunRow]) -> rows::BackendRunRef {
        let load = |schedd: &String| {
            let is_there = |run: &&RunRow| schedd_of(run) == Some(schedd.as_str());
            active.iter().filter(is_there).count()
        };
        let mut schedds: Vec<&String> = self.options.schedds.iter().collect();
        schedds.sort_by_key(|schedd| load(schedd));
        let answers = |schedd: &&&String| schedds.len() == 1 || self.schedd_queue.is_answering(schedd);
        // If none answers, the one with the fewest runs.
        let schedd = schedds.iter().find(answers).or(schedds.first()).map(|&schedd| schedd.clone());
        rows::BackendRunRef::Htcondor { schedd, cluster: None }
    }

    /// Changes since the planning apply to the rest of the run: retries, memory, priority, sites.
    fn rewrite_files(&self, order: &RunContext<'_>) -> Result<(), EffectFailure> {
        let (directory, submission) = (Path::new(&order.run.submit_dir), &order.submission);
        let outline = PlannedRunUnits::read(directory).map_err(|error| transient_failure(&error))?;
        let parameters = dag_files_of(order);
        dag_files::rewrite_dag_files(&parameters, &outline, &self.options)
            .map_err(|error| render_trouble(&error))?;
        rescue::apply_overrides(directory, submission.retries.counts.processing, submission.memory_mb)
            .map_err(|error| transient_failure(&error))
    }

    /// Writes the files for HTCondor into the directory of a planned run.
    pub(crate) fn write_dag_files(
        &self,
        parameters: &DagFileParameters<'_>,
        outline: &PlannedRunUnits,
    ) -> Result<(), EffectFailure> {
        dag_files::write_dag_files(parameters, outline, &self.options).map_err(|error| render_trouble(&error))
    }

    /// Stops watching runs that are not among these.
    pub(crate) fn retain_watched(&self, is_wanted: impl Fn(&str) -> bool) {
        self.dag_watcher.retain_runs(is_wanted);
    }

    /// The DAGMan of a run, if it was submitted, and its schedd; also if the submission was not recorded.
    fn find_dagman(&self, order: &RunContext<'_>) -> Result<Option<(Option<String>, u64)>, EffectFailure> {
        let (condor, directory) = (self.condor_client(order.run), Path::new(&order.run.submit_dir));
        let requests = SubmitLock::open(&condor, directory, &batch_name(order));
        requests
            .and_then(|requests| requests.find_with_schedd(number(order)))
            .map_err(|error| submit_trouble(&error))
    }

    /// The schedd for a submission: the one of the plan, or of the previous run. If it was removed from the
    /// configuration, the choice is made as for a new run.
    fn choose_destination(&self, order: &RunContext<'_>) -> Option<String> {
        let planned = schedd_of(order.run);
        // The schedd of this machine has no name.
        let is_in_service = |schedd: &str| self.options.schedds.iter().any(|known| known == schedd);
        if planned.is_none_or(is_in_service) {
            return planned.map(str::to_owned);
        }
        let elsewhere = match self.choose_schedd(&order.process_runs) {
            rows::BackendRunRef::Htcondor { schedd, .. } => schedd,
            rows::BackendRunRef::Engine { .. } => None,
        };
        tracing::info!(run = order.run.uuid, planned, elsewhere, "its schedd is no longer configured");
        elsewhere
    }

    pub(crate) fn condor_client(&self, run: &RunRow) -> windlass_htcondor::commands::CondorClient {
        self.schedd_queue.client_for(schedd_of(run))
    }
}

/// All runs of a round use the directory of the first one, and its name.
fn dag_files_of<'o>(order: &'o RunContext<'_>) -> DagFileParameters<'o> {
    DagFileParameters {
        directory: Path::new(&order.run.submit_dir),
        run: &order.submission.digest,
        workflow: &order.run.process,
        submission: &order.submission,
        banned_sites: &order.banned_sites,
    }
}

/// The batch name of the runs of a round, known before they are submitted.
fn batch_name(order: &RunContext<'_>) -> String {
    format!("{BATCH_PREFIX}{}", order.submission.digest)
}

/// The number of a run among the submissions of its directory: earlier ones that were submitted are recorded. A
/// submission that DAGMan rejected does not count, so a run that is released after that has the same number.
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

/// The cluster id of a run's DAGMan, if it was submitted.
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
    /// Idempotent: skipped if already submitted.
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

    /// When removed, DAGMan removes its jobs and writes a rescue file.
    fn stop_run(&self, order: &RunContext<'_>, reason: &str) -> Result<StopResult, EffectFailure> {
        let run = order.run;
        let known = cluster_of(run).map(|cluster| (schedd_of(run).map(str::to_owned), cluster));
        let Some((schedd, cluster)) =
            known.map_or_else(|| self.find_dagman(order), |known| Ok(Some(known)))?
        else {
            return Ok(StopResult::NotRunning);
        };
        // If it has ended already, the next look shows it.
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

    /// The scripts of its nodes enforce it, without a schedd; DAGMan continues, and reports completed units.
    fn set_paused(&self, run: &RunRow, is_paused: bool) -> Result<(), EffectFailure> {
        let Some(cluster) = cluster_of(run) else { return Ok(()) };
        let directory = Path::new(&run.submit_dir);
        if is_paused {
            return pause::pause_run(directory).map_err(|error| transient_failure(&error));
        }
        pause::resume_run(directory).map_err(|error| transient_failure(&error))?;
        // A user may have held it as well. If not, or if it has ended, the next look shows it.
        let released = self.condor_client(run).release(cluster, "an operator resumes it");
        released.map(drop).map_err(|error| condor_trouble(&error))
    }

    /// Read by all jobs that are submitted from now on.
    fn apply_site_bans(&self, order: &RunContext<'_>) -> Result<(), EffectFailure> {
        write_bans(Path::new(&order.run.submit_dir), &order.banned_sites)
            .map_err(|error| render_trouble(&error))
    }

    /// First for the nodes that are not submitted yet, then for those in the queue: none is missed in between.
    fn update_priority(&self, order: &RunContext<'_>) -> Result<(), EffectFailure> {
        let outline = PlannedRunUnits::read(Path::new(&order.run.submit_dir))
            .map_err(|error| transient_failure(&error))?;
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

/// The current sites, and units that must leave theirs.
fn prepare_rescue(run: &RunRow, directory: &Path, banned: &[String]) -> Result<(), EffectFailure> {
    write_bans(directory, banned).map_err(|error| render_trouble(&error))?;
    let moved = rescue::prepare_rescue(directory, banned).map_err(|error| transient_failure(&error))?;
    for rescue::MovedUnit { unit, site, reason: why } in moved {
        tracing::info!(run = run.uuid, unit, site, ?why, "a work unit chooses another site");
    }
    Ok(())
}

fn run_snapshot(run: &RunRow, seen: &ObservedRun) -> RunSnapshot {
    let look = &seen.snapshot;
    let (state, reason) = run_state(seen);
    let change =
        |update: &UnitUpdate| RunUnitChange { seq: update.seq, unit: update.number, status: update.status };
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

/// The files take precedence over the schedd: the DAG itself writes them. If they cannot be read, leaving the
/// queue proves nothing: the result is unknown, and completed work is not counted yet.
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

/// For the alert, if it lasts.
fn describe_unreadable(problem: Option<&str>, gone: Option<&DagQueueStatus>) -> Option<String> {
    let ended = match gone {
        Some(DagQueueStatus::Ended(why)) => format!(" ({why})"),
        Some(_) => " (its DAGMan is no longer in the queue)".to_owned(),
        None => String::new(),
    };
    problem.map(|problem| format!("cannot read its files: {problem}{ended}"))
}

/// How it ended, where that is more than failed units.
fn describe_outcome(outcome: &DagOutcome) -> Option<String> {
    match outcome {
        DagOutcome::Completed | DagOutcome::Failed => None,
        DagOutcome::Aborted => Some(
            "one of its nodes ended the whole run, because the others would fail in the same way".to_owned(),
        ),
        DagOutcome::Removed => Some("its DAG was removed from the queue".to_owned()),
        DagOutcome::Broken(why) => Some(why.clone()),
    }
}

/// Only nodes of started units are counted there; the others wait, as do those that were stopped with their
/// DAG.
fn add_unstarted_nodes(counts: NodeCounts, total: u64, state: RunState) -> NodeCounts {
    let NodeCounts { done, failed, .. } = counts;
    let (running, held) = if state == RunState::Over { (0, 0) } else { (counts.running, counts.held) };
    NodeCounts { idle: total.saturating_sub(running + done + failed + held), running, done, failed, held }
}

/// With all causes.
fn error_chain_text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

fn transient_failure(error: &dyn Error) -> EffectFailure {
    EffectFailure { reason: error_chain_text(error), is_retryable: true }
}

/// HTCondor may accept later what it rejects now; until the request is stuck.
fn condor_trouble(error: &CondorError) -> EffectFailure {
    transient_failure(error)
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

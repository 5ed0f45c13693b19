//! Watches runs on HTCondor: it sends no notifications, so their files are checked every few seconds. A run
//! without changes costs a few system calls; a change is reported to the reconciler.
//!
//! The schedds are queried now and then, once each for all runs: a DAG that disappears leaves no trace in any
//! file. Each is queried by a thread of its own, so that a silent schedd delays only the answers about its own
//! DAGs.

use super::schedd_queue::{DagPresence, ScheddQueue};
use crate::backend::MOST_ATTEMPTS;
use crate::mailbox::RequestReconcilerWaker;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use windlass_core::requests::rows::RunRow;
use windlass_htcondor::watch::{DagPoller, DagSnapshot, FailedNodeAttempt, UnitUpdate};

/// Interval at which files are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which schedds are queried.
const QUERY_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct DagWatcher {
    shared: Arc<DagWatcherShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct DagWatcherShared {
    runs: Mutex<WatchedRuns>,
    /// There is a new run to watch, or the watcher stops.
    wake: Condvar,
    waker: RequestReconcilerWaker,
    schedd_queue: ScheddQueue,
}

#[derive(Debug, Default)]
struct WatchedRuns {
    /// By UUID.
    watched: HashMap<String, Arc<Mutex<WatchedRun>>>,
    is_stopped: bool,
}

/// A run, by its UUID.
type NamedRun = (String, Arc<Mutex<WatchedRun>>);

/// The threads that query a schedd.
type ScheddQueries = BTreeMap<Option<String>, JoinHandle<()>>;

/// A run, and its last known state.
#[derive(Debug)]
struct WatchedRun {
    poller: DagPoller,
    schedd: Option<String>,
    cluster: u64,
    /// The last state, without changes.
    last_snapshot: Option<DagSnapshot>,
    /// Changes that were not handled yet.
    unit_updates: Vec<UnitUpdate>,
    failed_attempts: Vec<FailedNodeAttempt>,
    presence: DagPresence,
}

/// The last known state of a run, with all its changes.
#[derive(Clone, Debug)]
pub(super) struct ObservedRun {
    pub(super) snapshot: DagSnapshot,
    pub(super) presence: DagPresence,
}

impl DagWatcher {
    pub(super) fn new(waker: RequestReconcilerWaker, queue: ScheddQueue) -> Self {
        let shared =
            DagWatcherShared { runs: Mutex::default(), wake: Condvar::new(), waker, schedd_queue: queue };
        Self { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// The last known state of a run, with failed attempts after `read`. It is watched from now on.
    pub(super) fn observe_run(
        &self,
        run: &RunRow,
        read: i64,
        schedd: Option<&str>,
        cluster: u64,
    ) -> std::io::Result<ObservedRun> {
        let watched = self.find_or_add_run(run, read, schedd, cluster);
        self.ensure_thread()?;
        let mut watched = lock_run(&watched);
        watched.unit_updates.retain(|update| update.seq > run.units_read);
        watched.failed_attempts.retain(|failed| failed.seq > read);
        if watched.last_snapshot.is_none() {
            watched.poll(&run.uuid);
        }
        let Some(seen) = watched.last_snapshot.clone() else {
            return Err(std::io::ErrorKind::NotFound.into());
        };
        let failed = watched.failed_attempts[..watched.failed_attempts.len().min(MOST_ATTEMPTS + 1)].to_vec();
        let look = DagSnapshot { units: watched.unit_updates.clone(), failed_attempts: failed, ..seen };
        Ok(ObservedRun { snapshot: look, presence: watched.presence.clone() })
    }

    fn find_or_add_run(
        &self,
        run: &RunRow,
        read: i64,
        schedd: Option<&str>,
        cluster: u64,
    ) -> Arc<Mutex<WatchedRun>> {
        let mut runs = self.shared.lock_runs();
        let entry = runs.watched.entry(run.uuid.clone()).or_insert_with(|| {
            let watch = DagPoller::for_cluster(run.submit_dir.as_ref(), Some(cluster), run.units_read)
                .with_failures_after(read);
            let schedd = schedd.map(str::to_owned);
            let presence = DagPresence::default();
            let (seen, updates, failed) = (None, Vec::new(), Vec::new());
            Arc::new(Mutex::new(WatchedRun {
                poller: watch,
                schedd,
                cluster,
                last_snapshot: seen,
                unit_updates: updates,
                failed_attempts: failed,
                presence,
            }))
        });
        Arc::clone(entry)
    }

    /// The others have ended or are not needed any more.
    pub(super) fn retain_runs(&self, is_wanted: impl Fn(&str) -> bool) {
        self.shared.lock_runs().watched.retain(|run, _| is_wanted(run));
    }

    /// No thread runs as long as there is nothing to watch.
    fn ensure_thread(&self) -> std::io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let name = "windlass-lookout".to_owned();
            *thread = Some(thread::Builder::new().name(name).spawn(move || shared.run_loop())?);
        }
        Ok(())
    }
}

impl Drop for DagWatcher {
    fn drop(&mut self) {
        self.shared.lock_runs().is_stopped = true;
        self.shared.wake.notify_all();
        // The answers are no longer needed.
        self.shared.schedd_queue.cancel_token.cancel(Duration::ZERO);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The panic hook has logged it.
            drop(thread.join());
        }
    }
}

impl DagWatcherShared {
    fn lock_runs(&self) -> MutexGuard<'_, WatchedRuns> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_loop(self: &Arc<Self>) {
        // What disappeared before watching began must be known at once.
        let mut ask_at = Instant::now();
        let mut asking = ScheddQueries::new();
        while let Some(runs) = self.next_runs() {
            for (name, watched) in &runs {
                if lock_run(watched).poll(name) {
                    self.waker.wake_run(name);
                }
            }
            if Instant::now() >= ask_at {
                self.query_schedds(&mut asking, runs);
                ask_at = Instant::now() + QUERY_INTERVAL;
            }
        }
        for thread in asking.into_values() {
            // The panic hook has logged it.
            drop(thread.join());
        }
    }

    /// The runs to check, when it is time. `None`: stopped.
    fn next_runs(&self) -> Option<Vec<NamedRun>> {
        let until = Instant::now() + POLL_INTERVAL;
        let mut runs = self.lock_runs();
        while !runs.is_stopped {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let all = runs.watched.iter();
                return Some(all.map(|(name, watched)| (name.clone(), Arc::clone(watched))).collect());
            }
            (runs, _) = self.wake.wait_timeout(runs, left).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Queries each schedd once for all its active runs, unless an answer is outstanding.
    fn query_schedds(self: &Arc<Self>, asking: &mut ScheddQueries, runs: Vec<NamedRun>) {
        asking.retain(|_, thread| !thread.is_finished());
        let mut by_schedd: BTreeMap<Option<String>, Vec<NamedRun>> = BTreeMap::new();
        for named in runs {
            let (schedd, is_over) = {
                let watched = lock_run(&named.1);
                (watched.schedd.clone(), watched.is_over())
            };
            if !is_over && !asking.contains_key(&schedd) {
                by_schedd.entry(schedd).or_default().push(named);
            }
        }
        for (schedd, runs) in by_schedd {
            let (shared, whom) = (Arc::clone(self), schedd.clone());
            let thread = thread::Builder::new().name("windlass-asking".to_owned());
            match thread.spawn(move || shared.query_schedd(whom.as_deref(), &runs)) {
                Ok(thread) => drop(asking.insert(schedd, thread)),
                Err(error) => tracing::warn!(schedd, %error, "cannot query a schedd: no thread available"),
            }
        }
    }

    fn query_schedd(&self, schedd: Option<&str>, runs: &[NamedRun]) {
        let clusters: Vec<u64> = runs.iter().map(|(_, watched)| lock_run(watched).cluster).collect();
        let answers = self.schedd_queue.query_clusters(schedd, &clusters);
        for ((name, watched), answer) in runs.iter().zip(answers) {
            let mut watched = lock_run(watched);
            let before = watched.presence.clone();
            watched.presence.record(answer);
            if watched.presence != before {
                tracing::debug!(run = name, schedd, presence = ?watched.presence, "presence of the DAG at its schedd");
                self.waker.wake_run(name);
            }
        }
    }
}

fn lock_run(watched: &Mutex<WatchedRun>) -> MutexGuard<'_, WatchedRun> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WatchedRun {
    /// Reads changed files and returns whether there are changes.
    fn poll(&mut self, run: &str) -> bool {
        let mut look = self.poller.poll();
        let units = std::mem::take(&mut look.units);
        let failed = std::mem::take(&mut look.failed_attempts);
        let has_changed =
            !units.is_empty() || !failed.is_empty() || self.last_snapshot.as_ref() != Some(&look);
        if has_changed {
            tracing::debug!(run, state = ?look.state, units = units.len(), failed_attempts = failed.len(), "DAG changes");
        }
        for unit in &units {
            tracing::debug!(run, unit = unit.number, status = ?unit.status, "work unit ended");
        }
        self.unit_updates.extend(units);
        self.failed_attempts.extend(failed);
        self.last_snapshot = Some(look);
        has_changed
    }

    fn is_over(&self) -> bool {
        let state = self.last_snapshot.as_ref().map(|seen| &seen.state);
        matches!(state, Some(windlass_htcondor::watch::DagState::Over(_)))
    }
}

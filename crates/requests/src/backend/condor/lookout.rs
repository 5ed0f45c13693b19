//! Who watches runs on HTCondor: it does not tell us anything, so their files are looked at every few seconds. A run that
//! nothing happened to costs a few system calls; of one that something happened to, the reconciler is told.
//!
//! The schedds themselves are asked now and then, each once for all runs: that a DAG is gone without a word is not in any
//! file. Each is asked by a thread of its own, so that one that is silent delays nothing but the answers about its own DAGs.

use super::queue::{Presence, Queue};
use crate::backend::MOST_ATTEMPTS;
use crate::mailbox::Nudge;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use windlass_condor::watch::{FailedAttempt, Look, UnitNews, Watch};
use windlass_core::requests::book::RunRow;

/// So often files are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// So often schedds are asked.
const ASK: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Lookout {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    runs: Mutex<Runs>,
    /// Something is to be watched, or it is over.
    wake: Condvar,
    nudge: Nudge,
    queue: Queue,
}

#[derive(Debug, Default)]
struct Runs {
    /// By UUID.
    watched: HashMap<String, Arc<Mutex<Watched>>>,
    is_stopped: bool,
}

/// A run, by its UUID.
type Named = (String, Arc<Mutex<Watched>>);

/// Those that ask a schedd.
type Asking = BTreeMap<Option<String>, JoinHandle<()>>;

/// A run, and what was seen of it.
#[derive(Debug)]
struct Watched {
    watch: Watch,
    schedd: Option<String>,
    cluster: u64,
    /// As it was seen last, without its news.
    seen: Option<Look>,
    /// What nobody has dealt with yet.
    news: Vec<UnitNews>,
    failed: Vec<FailedAttempt>,
    presence: Presence,
}

/// How a run was seen last, with all its news.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) look: Look,
    pub(super) presence: Presence,
}

impl Lookout {
    pub(super) fn new(nudge: Nudge, queue: Queue) -> Self {
        let shared = Shared { runs: Mutex::default(), wake: Condvar::new(), nudge, queue };
        Self { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// How a run stands, as it was seen last. It is watched from now on.
    /// Of failed attempts those after `read`.
    pub(super) fn look(
        &self,
        run: &RunRow,
        read: i64,
        schedd: Option<&str>,
        cluster: u64,
    ) -> std::io::Result<Seen> {
        let watched = self.watched(run, read, schedd, cluster);
        self.start()?;
        let mut watched = open(&watched);
        watched.news.retain(|news| news.seq > run.units_read);
        watched.failed.retain(|failed| failed.seq > read);
        if watched.seen.is_none() {
            watched.look();
        }
        let Some(seen) = watched.seen.clone() else { return Err(std::io::ErrorKind::NotFound.into()) };
        let failed = watched.failed[..watched.failed.len().min(MOST_ATTEMPTS + 1)].to_vec();
        let look = Look { units: watched.news.clone(), failed, ..seen };
        Ok(Seen { look, presence: watched.presence.clone() })
    }

    fn watched(&self, run: &RunRow, read: i64, schedd: Option<&str>, cluster: u64) -> Arc<Mutex<Watched>> {
        let mut runs = self.shared.open();
        let entry = runs.watched.entry(run.uuid.clone()).or_insert_with(|| {
            let watch = Watch::of(run.submit_dir.as_ref(), Some(cluster), run.units_read).after_failure(read);
            let schedd = schedd.map(str::to_owned);
            let presence = Presence::default();
            let (seen, news, failed) = (None, Vec::new(), Vec::new());
            Arc::new(Mutex::new(Watched { watch, schedd, cluster, seen, news, failed, presence }))
        });
        Arc::clone(entry)
    }

    /// The others are over, or nobody's concern any more.
    pub(super) fn keep(&self, is_wanted: impl Fn(&str) -> bool) {
        self.shared.open().watched.retain(|run, _| is_wanted(run));
    }

    /// Nothing watches as long as there is nothing to watch.
    fn start(&self) -> std::io::Result<()> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let name = "windlass-lookout".to_owned();
            *thread = Some(thread::Builder::new().name(name).spawn(move || shared.run())?);
        }
        Ok(())
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.shared.open().is_stopped = true;
        self.shared.wake.notify_all();
        // Nobody wants the answers any more.
        self.shared.queue.leash.cut(Duration::ZERO);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic has been told by the hook.
            drop(thread.join());
        }
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(self: &Arc<Self>) {
        // What was gone or silent before somebody began to watch is to be known at once.
        let mut ask_at = Instant::now();
        let mut asking = Asking::new();
        while let Some(runs) = self.next() {
            for (name, watched) in &runs {
                if open(watched).look() {
                    self.nudge.run(name);
                }
            }
            if Instant::now() >= ask_at {
                self.ask(&mut asking, runs);
                ask_at = Instant::now() + ASK;
            }
        }
        for thread in asking.into_values() {
            // A panic has been told by the hook.
            drop(thread.join());
        }
    }

    /// What is to be looked at, when it is time. `None`: it is over.
    fn next(&self) -> Option<Vec<Named>> {
        let until = Instant::now() + LOOK;
        let mut runs = self.open();
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

    /// Each schedd once, for all that is still under way there; not while it owes an answer.
    fn ask(self: &Arc<Self>, asking: &mut Asking, runs: Vec<Named>) {
        asking.retain(|_, thread| !thread.is_finished());
        let mut by_schedd: BTreeMap<Option<String>, Vec<Named>> = BTreeMap::new();
        for named in runs {
            let (schedd, is_over) = {
                let watched = open(&named.1);
                (watched.schedd.clone(), watched.is_over())
            };
            if !is_over && !asking.contains_key(&schedd) {
                by_schedd.entry(schedd).or_default().push(named);
            }
        }
        for (schedd, runs) in by_schedd {
            let (shared, whom) = (Arc::clone(self), schedd.clone());
            let thread = thread::Builder::new().name("windlass-asking".to_owned());
            match thread.spawn(move || shared.ask_about(whom.as_deref(), &runs)) {
                Ok(thread) => drop(asking.insert(schedd, thread)),
                Err(error) => tracing::warn!(schedd, %error, "cannot ask a schedd: no thread for it"),
            }
        }
    }

    fn ask_about(&self, schedd: Option<&str>, runs: &[Named]) {
        let clusters: Vec<u64> = runs.iter().map(|(_, watched)| open(watched).cluster).collect();
        let answers = self.queue.ask(schedd, &clusters);
        for ((name, watched), answer) in runs.iter().zip(answers) {
            let mut watched = open(watched);
            let before = watched.presence.clone();
            watched.presence.note(answer);
            if watched.presence != before {
                self.nudge.run(name);
            }
        }
    }
}

fn open(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    /// Reads what has changed. Whether that is anything.
    fn look(&mut self) -> bool {
        let mut look = self.watch.look();
        let units = std::mem::take(&mut look.units);
        let failed = std::mem::take(&mut look.failed);
        let has_changed = !units.is_empty() || !failed.is_empty() || self.seen.as_ref() != Some(&look);
        self.news.extend(units);
        self.failed.extend(failed);
        self.seen = Some(look);
        has_changed
    }

    fn is_over(&self) -> bool {
        let state = self.seen.as_ref().map(|seen| &seen.state);
        matches!(state, Some(windlass_condor::watch::DagState::Over(_)))
    }
}

//! Performs effects on a few threads: planning, submitting, calls to catalogs.
//!
//! A task has a key, and only one task per key runs at a time. Its result waits here until the next pass takes
//! it; until then the key stays taken, so that no task starts before the result of the previous one was handled.
//! A task that panics has no result ([`FinishedWork::outcome`] is `None`) and does not affect others.
//!
//! Tasks that wait for a possibly silent service have a lane: threads of their own, as long as there are any. So
//! no other task waits behind them.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Maximum number of concurrent tasks of a lane.
const LANE_THREADS: usize = 4;

type WorkItem<T> = Box<dyn FnOnce() -> T + Send>;
/// Called when a task is done: pass the notice on, do no work.
type DoneCallback<K> = Box<dyn Fn(&K) + Send + Sync>;

/// A completed task.
#[derive(Debug)]
pub(crate) struct FinishedWork<K, T> {
    pub(crate) key: K,
    /// `None`: it panicked.
    pub(crate) outcome: Option<T>,
}

pub(crate) struct WorkPool<K, T> {
    shared: Arc<WorkPoolShared<K, T>>,
    threads: Vec<JoinHandle<()>>,
}

struct WorkPoolShared<K, T> {
    state: Mutex<WorkPoolState<K, T>>,
    wake: Condvar,
    on_done: DoneCallback<K>,
}

struct WorkPoolState<K, T> {
    waiting: VecDeque<(K, WorkItem<T>)>,
    /// Lanes with a thread.
    lanes: HashMap<String, WorkLane<K, T>>,
    lane_threads: Vec<JoinHandle<()>>,
    /// Waiting, running, or done and not taken.
    active_keys: HashSet<K>,
    finished: Vec<FinishedWork<K, T>>,
    is_stopped: bool,
}

/// Tasks that wait for the same service.
struct WorkLane<K, T> {
    waiting: VecDeque<(K, WorkItem<T>)>,
    threads: usize,
}

impl<K, T> WorkPoolShared<K, T> {
    fn lock_state(&self) -> MutexGuard<'_, WorkPoolState<K, T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash + Send + 'static, T: Send + 'static> WorkPool<K, T> {
    pub(crate) fn start_threads(
        threads: usize,
        tell: impl Fn(&K) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let inside = WorkPoolState {
            waiting: VecDeque::new(),
            lanes: HashMap::new(),
            lane_threads: Vec::new(),
            active_keys: HashSet::new(),
            finished: Vec::new(),
            is_stopped: false,
        };
        let shared =
            WorkPoolShared { state: Mutex::new(inside), wake: Condvar::new(), on_done: Box::new(tell) };
        let mut pool = Self { shared: Arc::new(shared), threads: Vec::with_capacity(threads) };
        for _ in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let thread =
                thread::Builder::new().name("windlass-effects".into()).spawn(move || run_worker(&shared))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// `false`: a task with this key is running, or its result was not taken yet.
    pub(crate) fn submit_work(&self, key: K, work: impl FnOnce() -> T + Send + 'static) -> bool {
        let mut inside = self.shared.lock_state();
        if !inside.active_keys.insert(key.clone()) {
            return false;
        }
        inside.waiting.push_back((key, Box::new(work)));
        self.shared.wake.notify_one();
        true
    }

    /// As [`Self::offer`], on the threads of this lane.
    pub(crate) fn submit_to_lane(
        &self,
        lane: &str,
        key: K,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> bool {
        let mut inside = self.shared.lock_state();
        if !inside.active_keys.insert(key.clone()) {
            return false;
        }
        let known = inside.lanes.entry(lane.to_owned());
        let known = known.or_insert_with(|| WorkLane { waiting: VecDeque::new(), threads: 0 });
        known.waiting.push_back((key, Box::new(work)));
        if known.threads < LANE_THREADS {
            let (shared, name) = (Arc::clone(&self.shared), lane.to_owned());
            let thread = thread::Builder::new().name("windlass-lane".into());
            match thread.spawn(move || run_lane_worker(&shared, &name)) {
                Ok(thread) => {
                    known.threads += 1;
                    inside.lane_threads.retain(|thread| !thread.is_finished());
                    inside.lane_threads.push(thread);
                }
                // The existing threads do it later.
                Err(error) if known.threads > 0 => {
                    tracing::warn!(%error, lane, "cannot start a thread");
                }
                Err(error) => {
                    tracing::warn!(%error, lane, "cannot start a thread; tasks wait for the existing ones");
                    if let Some(lane) = inside.lanes.remove(lane) {
                        inside.waiting.extend(lane.waiting);
                        self.shared.wake.notify_all();
                    }
                }
            }
        }
        true
    }

    /// Tasks completed since the last call.
    pub(crate) fn take_finished(&self) -> Vec<FinishedWork<K, T>> {
        let mut inside = self.shared.lock_state();
        let done = std::mem::take(&mut inside.finished);
        for one in &done {
            inside.active_keys.remove(&one.key);
        }
        done
    }

    /// Whether a task with such a key is waiting, running, or done and not taken.
    pub(crate) fn is_active(&self, with: impl Fn(&K) -> bool) -> bool {
        self.shared.lock_state().active_keys.iter().any(with)
    }

    /// Waiting, running, or done and not taken.
    pub(crate) fn active_count(&self) -> usize {
        self.shared.lock_state().active_keys.len()
    }
}

fn run_worker<K: Clone + Eq + Hash, T>(shared: &WorkPoolShared<K, T>) {
    while let Some((key, work)) = next_work(shared) {
        run_work(shared, key, work);
    }
}

fn run_lane_worker<K: Clone + Eq + Hash, T>(shared: &WorkPoolShared<K, T>, lane: &str) {
    while let Some((key, work)) = next_in_lane(shared, lane) {
        run_work(shared, key, work);
    }
}

fn run_work<K: Clone, T>(shared: &WorkPoolShared<K, T>, key: K, work: WorkItem<T>) {
    let outcome = catch_unwind(AssertUnwindSafe(work)).ok();
    shared.lock_state().finished.push(FinishedWork { key: key.clone(), outcome });
    (shared.on_done)(&key);
}

/// `None`: the thread ends because nothing is left. The next offer starts another one.
fn next_in_lane<K, T>(shared: &WorkPoolShared<K, T>, lane: &str) -> Option<(K, WorkItem<T>)> {
    let mut inside = shared.lock_state();
    let is_stopped = inside.is_stopped;
    let known = inside.lanes.get_mut(lane)?;
    if !is_stopped && let Some(next) = known.waiting.pop_front() {
        return Some(next);
    }
    known.threads -= 1;
    if known.threads == 0 {
        inside.lanes.remove(lane);
    }
    None
}

fn next_work<K, T>(shared: &WorkPoolShared<K, T>) -> Option<(K, WorkItem<T>)> {
    let mut inside = shared.lock_state();
    loop {
        if inside.is_stopped {
            return None;
        }
        if let Some(next) = inside.waiting.pop_front() {
            return Some(next);
        }
        inside = shared.wake.wait(inside).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Waits for running tasks; waiting ones are dropped.
impl<K, T> Drop for WorkPool<K, T> {
    fn drop(&mut self) {
        let lanes = {
            let mut inside = self.shared.lock_state();
            inside.is_stopped = true;
            std::mem::take(&mut inside.lane_threads)
        };
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..).chain(lanes) {
            // Panics are caught inside.
            drop(thread.join());
        }
    }
}

impl<K, T> fmt::Debug for WorkPool<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn work_runs_once_per_key_and_panic_is_isolated() {
        let (sender, receiver) = mpsc::channel();
        let pool: WorkPool<&str, u32> =
            WorkPool::start_threads(2, move |key: &&str| sender.send(*key).unwrap()).unwrap();
        let (go, wait) = mpsc::channel::<u32>();
        assert!(pool.submit_work("a", move || wait.recv().unwrap()));
        assert!(!pool.submit_work("a", || 0), "it is running");
        assert!(pool.submit_work("b", || panic!("on purpose")));
        assert_eq!(receiver.recv().unwrap(), "b");
        let done = pool.take_finished();
        assert!(done.len() == 1 && done[0].key == "b" && done[0].outcome.is_none(), "{done:?}");
        go.send(7).unwrap();
        assert_eq!(receiver.recv().unwrap(), "a");
        assert!(!pool.submit_work("a", || 0), "its result was not taken");
        assert_eq!(pool.take_finished()[0].outcome, Some(7));
        assert_eq!(pool.active_count(), 0);
        assert!(pool.submit_work("a", || 8));
        assert_eq!(receiver.recv().unwrap(), "a");
        assert_eq!(pool.take_finished()[0].outcome, Some(8));
    }

    #[test]
    fn full_lane_does_not_delay_other_lanes() {
        let (sender, receiver) = mpsc::channel();
        let pool: WorkPool<u32, u32> =
            WorkPool::start_threads(1, move |key: &u32| sender.send(*key).unwrap()).unwrap();
        let (go, wait) = mpsc::channel::<u32>();
        let wait = Arc::new(Mutex::new(wait));
        // More than its lane has threads, and all of them hang.
        let many = 2 * LANE_THREADS as u32;
        for key in 0..many {
            let wait = Arc::clone(&wait);
            assert!(pool.submit_to_lane("silent", key, move || wait.lock().unwrap().recv().unwrap()));
        }
        assert!(!pool.submit_to_lane("silent", 0, || 0), "it is running");
        assert!(pool.submit_work(100, || 100));
        assert_eq!(receiver.recv(), Ok(100));
        assert!(pool.submit_to_lane("other", 101, || 101));
        assert_eq!(receiver.recv(), Ok(101), "not even another lane");
        for key in 0..many {
            go.send(key).unwrap();
        }
        for _ in 0..many {
            receiver.recv().unwrap();
        }
        assert_eq!(pool.take_finished().len(), 2 + many as usize);
        assert!(pool.submit_to_lane("silent", 0, || 7), "an empty lane can be used again");
        assert_eq!(receiver.recv(), Ok(0));
        assert_eq!(pool.take_finished()[0].outcome, Some(7));
    }

    #[test]
    fn dropped_pool_finishes_started_work_only() {
        let pool: WorkPool<u32, ()> = WorkPool::start_threads(1, |_| ()).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let (ended, has_ended) = mpsc::channel();
        pool.submit_work(1, move || {
            begun.send(()).unwrap();
            wait.recv().unwrap();
            ended.send(1).unwrap();
        });
        let (never, unsent) = mpsc::channel::<()>();
        pool.submit_work(2, move || never.send(()).unwrap());
        has_begun.recv().unwrap();
        let shared = Arc::clone(&pool.shared);
        let dropping = thread::spawn(move || drop(pool));
        while !shared.lock_state().is_stopped {
            thread::yield_now();
        }
        go.send(()).unwrap();
        dropping.join().unwrap();
        drop(shared);
        assert_eq!(has_ended.recv(), Ok(1));
        assert_eq!(unsent.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }
}

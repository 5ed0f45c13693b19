//! What is done outside, on a few threads: planning, submitting, calls to catalogs.
//!
//! A piece of work has a key, and of one key only one piece is under way. What it comes to waits here until the next pass
//! takes it; until then the key is still taken, so that nothing is begun again whose outcome was not looked at. A piece
//! that panics has come to nothing ([`Done::outcome`] is `None`) and is nobody else's concern.
//!
//! Work that waits for somebody who may be silent for long has a lane: threads of its own, while there is any of it. So
//! nothing else waits behind it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// So many pieces of a lane are under way at once.
const LANE_THREADS: usize = 4;

type Work<T> = Box<dyn FnOnce() -> T + Send>;
/// Called when something is done: hand the news on, do no work.
type Tell<K> = Box<dyn Fn(&K) + Send + Sync>;

/// A piece of work that is over.
#[derive(Debug)]
pub(crate) struct Done<K, T> {
    pub(crate) key: K,
    /// `None`: it panicked.
    pub(crate) outcome: Option<T>,
}

pub(crate) struct Pool<K, T> {
    shared: Arc<Shared<K, T>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<K, T> {
    inside: Mutex<Inside<K, T>>,
    wake: Condvar,
    tell: Tell<K>,
}

struct Inside<K, T> {
    waiting: VecDeque<(K, Work<T>)>,
    /// Those that have a thread.
    lanes: HashMap<String, Lane<K, T>>,
    lane_threads: Vec<JoinHandle<()>>,
    /// Waiting, under way, or done and not taken.
    taken: HashSet<K>,
    done: Vec<Done<K, T>>,
    is_stopped: bool,
}

/// Work that waits for the same one.
struct Lane<K, T> {
    waiting: VecDeque<(K, Work<T>)>,
    threads: usize,
}

impl<K, T> Shared<K, T> {
    fn open(&self) -> MutexGuard<'_, Inside<K, T>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash + Send + 'static, T: Send + 'static> Pool<K, T> {
    pub(crate) fn start(threads: usize, tell: impl Fn(&K) + Send + Sync + 'static) -> std::io::Result<Self> {
        let inside = Inside {
            waiting: VecDeque::new(),
            lanes: HashMap::new(),
            lane_threads: Vec::new(),
            taken: HashSet::new(),
            done: Vec::new(),
            is_stopped: false,
        };
        let shared = Shared { inside: Mutex::new(inside), wake: Condvar::new(), tell: Box::new(tell) };
        let mut pool = Self { shared: Arc::new(shared), threads: Vec::with_capacity(threads) };
        for _ in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let thread =
                thread::Builder::new().name("windlass-effects".into()).spawn(move || run(&shared))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// `false`: a piece with this key is under way, or its outcome was not taken yet.
    pub(crate) fn offer(&self, key: K, work: impl FnOnce() -> T + Send + 'static) -> bool {
        let mut inside = self.shared.open();
        if !inside.taken.insert(key.clone()) {
            return false;
        }
        inside.waiting.push_back((key, Box::new(work)));
        self.shared.wake.notify_one();
        true
    }

    /// As [`Self::offer`], by threads of this lane.
    pub(crate) fn offer_in(&self, lane: &str, key: K, work: impl FnOnce() -> T + Send + 'static) -> bool {
        let mut inside = self.shared.open();
        if !inside.taken.insert(key.clone()) {
            return false;
        }
        let known = inside.lanes.entry(lane.to_owned());
        let known = known.or_insert_with(|| Lane { waiting: VecDeque::new(), threads: 0 });
        known.waiting.push_back((key, Box::new(work)));
        if known.threads < LANE_THREADS {
            let (shared, name) = (Arc::clone(&self.shared), lane.to_owned());
            let thread = thread::Builder::new().name("windlass-lane".into());
            match thread.spawn(move || run_lane(&shared, &name)) {
                Ok(thread) => {
                    known.threads += 1;
                    inside.lane_threads.retain(|thread| !thread.is_finished());
                    inside.lane_threads.push(thread);
                }
                // Those that it has do it, if later.
                Err(error) if known.threads > 0 => {
                    tracing::warn!(%error, lane, "cannot start a thread");
                }
                Err(error) => {
                    tracing::warn!(%error, lane, "cannot start a thread; others wait for this one");
                    if let Some(lane) = inside.lanes.remove(lane) {
                        inside.waiting.extend(lane.waiting);
                        self.shared.wake.notify_all();
                    }
                }
            }
        }
        true
    }

    /// What is over since the last time.
    pub(crate) fn take(&self) -> Vec<Done<K, T>> {
        let mut inside = self.shared.open();
        let done = std::mem::take(&mut inside.done);
        for one in &done {
            inside.taken.remove(&one.key);
        }
        done
    }

    /// Whether a piece with such a key is waiting, under way, or done and not taken.
    pub(crate) fn is_busy(&self, with: impl Fn(&K) -> bool) -> bool {
        self.shared.open().taken.iter().any(with)
    }

    /// Waiting, under way, or done and not taken.
    pub(crate) fn under_way(&self) -> usize {
        self.shared.open().taken.len()
    }
}

fn run<K: Clone + Eq + Hash, T>(shared: &Shared<K, T>) {
    while let Some((key, work)) = next(shared) {
        perform(shared, key, work);
    }
}

fn run_lane<K: Clone + Eq + Hash, T>(shared: &Shared<K, T>, lane: &str) {
    while let Some((key, work)) = next_in(shared, lane) {
        perform(shared, key, work);
    }
}

fn perform<K: Clone, T>(shared: &Shared<K, T>, key: K, work: Work<T>) {
    let outcome = catch_unwind(AssertUnwindSafe(work)).ok();
    shared.open().done.push(Done { key: key.clone(), outcome });
    (shared.tell)(&key);
}

/// `None`: the thread ends, as nothing is left for it. Whoever offers more starts another one.
fn next_in<K, T>(shared: &Shared<K, T>, lane: &str) -> Option<(K, Work<T>)> {
    let mut inside = shared.open();
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

fn next<K, T>(shared: &Shared<K, T>) -> Option<(K, Work<T>)> {
    let mut inside = shared.open();
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

/// Waits for what is under way; what was not begun is not begun.
impl<K, T> Drop for Pool<K, T> {
    fn drop(&mut self) {
        let lanes = {
            let mut inside = self.shared.open();
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

impl<K, T> fmt::Debug for Pool<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn one_at_a_time_for_each_key_and_a_panic_is_its_own() {
        let (told, news) = mpsc::channel();
        let pool: Pool<&str, u32> = Pool::start(2, move |key: &&str| told.send(*key).unwrap()).unwrap();
        let (go, wait) = mpsc::channel::<u32>();
        assert!(pool.offer("a", move || wait.recv().unwrap()));
        assert!(!pool.offer("a", || 0), "it is under way");
        assert!(pool.offer("b", || panic!("on purpose")));
        assert_eq!(news.recv().unwrap(), "b");
        let done = pool.take();
        assert!(done.len() == 1 && done[0].key == "b" && done[0].outcome.is_none(), "{done:?}");
        go.send(7).unwrap();
        assert_eq!(news.recv().unwrap(), "a");
        assert!(!pool.offer("a", || 0), "its outcome was not looked at");
        assert_eq!(pool.take()[0].outcome, Some(7));
        assert_eq!(pool.under_way(), 0);
        assert!(pool.offer("a", || 8));
        assert_eq!(news.recv().unwrap(), "a");
        assert_eq!(pool.take()[0].outcome, Some(8));
    }

    #[test]
    fn what_waits_in_a_lane_keeps_nobody_else_waiting() {
        let (told, news) = mpsc::channel();
        let pool: Pool<u32, u32> = Pool::start(1, move |key: &u32| told.send(*key).unwrap()).unwrap();
        let (go, wait) = mpsc::channel::<u32>();
        let wait = Arc::new(Mutex::new(wait));
        // More than its lane has threads, and all of them hang.
        let many = 2 * LANE_THREADS as u32;
        for key in 0..many {
            let wait = Arc::clone(&wait);
            assert!(pool.offer_in("silent", key, move || wait.lock().unwrap().recv().unwrap()));
        }
        assert!(!pool.offer_in("silent", 0, || 0), "it is under way");
        assert!(pool.offer(100, || 100));
        assert_eq!(news.recv(), Ok(100));
        assert!(pool.offer_in("other", 101, || 101));
        assert_eq!(news.recv(), Ok(101), "also not another lane");
        for key in 0..many {
            go.send(key).unwrap();
        }
        for _ in 0..many {
            news.recv().unwrap();
        }
        assert_eq!(pool.take().len(), 2 + many as usize);
        assert!(pool.offer_in("silent", 0, || 7), "a lane that was empty is one again");
        assert_eq!(news.recv(), Ok(0));
        assert_eq!(pool.take()[0].outcome, Some(7));
    }

    #[test]
    fn dropped_it_finishes_what_was_begun_and_begins_nothing_more() {
        let pool: Pool<u32, ()> = Pool::start(1, |_| ()).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let (ended, has_ended) = mpsc::channel();
        pool.offer(1, move || {
            begun.send(()).unwrap();
            wait.recv().unwrap();
            ended.send(1).unwrap();
        });
        let (never, nobody) = mpsc::channel::<()>();
        pool.offer(2, move || never.send(()).unwrap());
        has_begun.recv().unwrap();
        let shared = Arc::clone(&pool.shared);
        let dropping = thread::spawn(move || drop(pool));
        while !shared.open().is_stopped {
            thread::yield_now();
        }
        go.send(()).unwrap();
        dropping.join().unwrap();
        drop(shared);
        assert_eq!(has_ended.recv(), Ok(1));
        assert_eq!(nobody.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }
}

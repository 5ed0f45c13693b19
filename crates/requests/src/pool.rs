//! What is done outside, on a few threads: planning, submitting, calls to catalogs.
//!
//! A piece of work has a key, and of one key only one piece is under way. What it comes to waits here until the next pass
//! takes it; until then the key is still taken, so that nothing is begun again whose outcome was not looked at. A piece
//! that panics has come to nothing ([`Done::outcome`] is `None`) and is nobody else's concern.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

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
    /// Waiting, under way, or done and not taken.
    taken: HashSet<K>,
    done: Vec<Done<K, T>>,
    is_stopped: bool,
}

impl<K, T> Shared<K, T> {
    fn open(&self) -> MutexGuard<'_, Inside<K, T>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Clone + Eq + Hash + Send + 'static, T: Send + 'static> Pool<K, T> {
    pub(crate) fn start(threads: usize, tell: impl Fn(&K) + Send + Sync + 'static) -> std::io::Result<Self> {
        let inside =
            Inside { waiting: VecDeque::new(), taken: HashSet::new(), done: Vec::new(), is_stopped: false };
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
        let outcome = catch_unwind(AssertUnwindSafe(work)).ok();
        shared.open().done.push(Done { key: key.clone(), outcome });
        (shared.tell)(&key);
    }
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
        self.shared.open().is_stopped = true;
        self.shared.wake.notify_all();
        for thread in self.threads.drain(..) {
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

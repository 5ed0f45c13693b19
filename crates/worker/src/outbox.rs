//! Reports on their way to the engine.
//!
//! While there is more to do than slots, nobody waits for a single report, so reports gather for a moment and go out
//! together. When a slot runs dry the engine may be waiting for just this report: the slot itself sends all there is.

use crate::lock;
use std::io::Write as _;
use std::mem;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use windlass_types::work::{FromWorker, Report};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    CanWait,
    Now,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    pending: Mutex<Pending>,
    something: Condvar,
    /// Taken before `pending` is emptied, so that batches leave in the order in which they were filled.
    link: Mutex<Link>,
    linger: Duration,
}

#[derive(Debug, Default)]
struct Pending {
    reports: Vec<Report>,
    /// Of several the last one is news.
    alive: Option<FromWorker>,
    closed: bool,
}

impl Pending {
    const fn is_empty(&self) -> bool {
        self.reports.is_empty() && self.alive.is_none()
    }
}

#[derive(Debug)]
struct Link {
    stream: UnixStream,
    line: Vec<u8>,
}

impl Outbox {
    pub(crate) fn new(stream: UnixStream, linger: Duration) -> Self {
        Self {
            pending: Mutex::default(),
            something: Condvar::new(),
            link: Mutex::new(Link { stream, line: Vec::new() }),
            linger,
        }
    }

    pub(crate) fn push(&self, reports: impl IntoIterator<Item = Report>, urgency: Urgency) {
        let mut pending = lock(&self.pending);
        let was_empty = pending.is_empty();
        pending.reports.extend(reports);
        let wake = was_empty && !pending.is_empty();
        drop(pending);
        match urgency {
            Urgency::Now => self.flush(),
            Urgency::CanWait if wake => self.something.notify_one(),
            Urgency::CanWait => {}
        }
    }

    /// A word of [`FromWorker::Alive`], after all that was reported before it.
    pub(crate) fn tell(&self, alive: FromWorker, urgency: Urgency) {
        lock(&self.pending).alive = Some(alive);
        match urgency {
            Urgency::Now => self.flush(),
            Urgency::CanWait => self.something.notify_one(),
        }
    }

    pub(crate) fn send_now(&self, message: &FromWorker) {
        lock(&self.link).send(message);
    }

    pub(crate) fn flush(&self) {
        let mut link = lock(&self.link);
        let mut pending = lock(&self.pending);
        let (reports, alive) = (mem::take(&mut pending.reports), pending.alive.take());
        drop(pending);
        if !reports.is_empty() {
            link.send(&FromWorker::Reports(reports));
        }
        if let Some(alive) = alive {
            link.send(&alive);
        }
    }

    /// Sends what can wait, until [`Self::close`].
    pub(crate) fn send_lingering(&self) {
        loop {
            let pending = lock(&self.pending);
            let pending = self
                .something
                .wait_while(pending, |pending| pending.is_empty() && !pending.closed)
                .unwrap_or_else(PoisonError::into_inner);
            let (pending, _) = self
                .something
                .wait_timeout_while(pending, self.linger, |pending| !pending.closed)
                .unwrap_or_else(PoisonError::into_inner);
            let closed = pending.closed;
            drop(pending);
            self.flush();
            if closed {
                return;
            }
        }
    }

    pub(crate) fn close(&self) {
        lock(&self.pending).closed = true;
        self.something.notify_all();
    }
}

impl Link {
    fn send(&mut self, message: &FromWorker) {
        self.line.clear();
        // A message of ours can always be written as JSON; a broken link is noticed by the thread that reads it.
        if serde_json::to_writer(&mut self.line, message).is_ok() {
            self.line.push(b'\n');
            self.stream.write_all(&self.line).ok();
        }
    }
}

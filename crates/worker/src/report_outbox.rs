//! Reports on their way to the engine.
//!
//! While the queue is not empty, no single report is urgent, so reports are collected for a moment and sent
//! together. When a slot becomes idle the engine may be waiting for just this report: the slot itself sends all
//! pending reports.

use crate::lock_ignoring_poison;
use std::io::Write as _;
use std::mem;
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use windlass_types::worker_messages::{AttemptReport, FromWorker};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportUrgency {
    CanWait,
    Now,
}

#[derive(Debug)]
pub(crate) struct ReportOutbox {
    pending: Mutex<PendingReports>,
    has_reports: Condvar,
    /// Locked before `pending` is emptied, so that batches are sent in the order in which they were filled.
    link: Mutex<SchedulerLink>,
    report_delay: Duration,
}

#[derive(Debug, Default)]
struct PendingReports {
    reports: Vec<AttemptReport>,
    /// The latest message; earlier ones are superseded.
    alive_message: Option<FromWorker>,
    is_closed: bool,
}

impl PendingReports {
    const fn is_empty(&self) -> bool {
        self.reports.is_empty() && self.alive_message.is_none()
    }
}

#[derive(Debug)]
struct SchedulerLink {
    stream: UnixStream,
    line: Vec<u8>,
}

impl ReportOutbox {
    pub(crate) fn new(stream: UnixStream, report_delay: Duration) -> Self {
        Self {
            pending: Mutex::default(),
            has_reports: Condvar::new(),
            link: Mutex::new(SchedulerLink { stream, line: Vec::new() }),
            report_delay,
        }
    }

    pub(crate) fn push(&self, reports: impl IntoIterator<Item = AttemptReport>, urgency: ReportUrgency) {
        let mut pending = lock_ignoring_poison(&self.pending);
        let was_empty = pending.is_empty();
        pending.reports.extend(reports);
        let wake = was_empty && !pending.is_empty();
        drop(pending);
        match urgency {
            ReportUrgency::Now => self.flush(),
            ReportUrgency::CanWait if wake => self.has_reports.notify_one(),
            ReportUrgency::CanWait => {}
        }
    }

    /// Sends [`FromWorker::Alive`] after all earlier reports.
    pub(crate) fn send_alive(&self, alive: FromWorker, urgency: ReportUrgency) {
        lock_ignoring_poison(&self.pending).alive_message = Some(alive);
        match urgency {
            ReportUrgency::Now => self.flush(),
            ReportUrgency::CanWait => self.has_reports.notify_one(),
        }
    }

    pub(crate) fn send_now(&self, message: &FromWorker) {
        lock_ignoring_poison(&self.link).send(message);
    }

    pub(crate) fn flush(&self) {
        let mut link = lock_ignoring_poison(&self.link);
        let mut pending = lock_ignoring_poison(&self.pending);
        let (reports, alive) = (mem::take(&mut pending.reports), pending.alive_message.take());
        drop(pending);
        if !reports.is_empty() {
            link.send(&FromWorker::Reports(reports));
        }
        if let Some(alive) = alive {
            link.send(&alive);
        }
    }

    /// Sends the reports that can wait, until [`Self::close`].
    pub(crate) fn send_delayed_reports(&self) {
        loop {
            let pending = lock_ignoring_poison(&self.pending);
            let pending = self
                .has_reports
                .wait_while(pending, |pending| pending.is_empty() && !pending.is_closed)
                .unwrap_or_else(PoisonError::into_inner);
            let (pending, _) = self
                .has_reports
                .wait_timeout_while(pending, self.report_delay, |pending| !pending.is_closed)
                .unwrap_or_else(PoisonError::into_inner);
            let closed = pending.is_closed;
            drop(pending);
            self.flush();
            if closed {
                return;
            }
        }
    }

    pub(crate) fn close(&self) {
        lock_ignoring_poison(&self.pending).is_closed = true;
        self.has_reports.notify_all();
    }
}

impl SchedulerLink {
    fn send(&mut self, message: &FromWorker) {
        self.line.clear();
        // Messages are always valid JSON; the thread that reads the link notices when it breaks.
        if serde_json::to_writer(&mut self.line, message).is_ok() {
            self.line.push(b'\n');
            self.stream.write_all(&self.line).ok();
        }
    }
}

//! Stale reports: they are rejected, counted, and recorded as events of the workflow that they name, if the
//! worker was permitted to work for it.
//!
//! The caller of a worker can report anything, about any workflow and at any rate. So events are written
//! asynchronously, their number is limited, and none goes to workflows of other users.

use super::call_types::{OnCommit, WorkerCaller};
use super::metrics::add_to_gauge;
use super::scheduler::Scheduler;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use windlass_core::workflow_state::StaleAttemptReport;
use windlass_store::Store;
use windlass_store::model::{EventSeverity, NewEvent};
use windlass_types::worker_protocol::ActionReport;
use windlass_types::{Timestamp, WorkerId, WorkflowId};

/// The number of reports of an exchange that are recorded individually, and of workflows; of the others only
/// the count.
const MAX_RECORDED: usize = 10;
/// The number of events that wait to be written.
const MAX_WAITING_EVENTS: usize = 256;

/// The worker that sent the reports.
pub(super) struct ReportSource {
    worker: WorkerId,
    user: String,
    sees_all: bool,
    bound_workflow: Option<WorkflowId>,
}

impl Scheduler {
    /// Records stale reports of a connected worker.
    pub(super) fn record_stale_reports(&mut self, worker: WorkerId, stale: &[StaleAttemptReport]) {
        let Some(session) = self.sessions.get(&worker).filter(|_| !stale.is_empty()) else { return };
        let whose = ReportSource {
            worker,
            user: session.user.clone(),
            sees_all: session.sees_all,
            bound_workflow: session.bound_workflow,
        };
        self.record_stale_from(&whose, stale);
    }

    /// Records those of a worker that was considered lost, and is in the database.
    pub(super) fn record_stale_of_lost_worker(
        &mut self,
        row: windlass_store::model::WorkerRow,
        speaker: &WorkerCaller,
        stale: &[StaleAttemptReport],
    ) {
        let sees_all = *speaker == WorkerCaller::Operator;
        let whose = ReportSource {
            worker: row.id,
            user: row.worker.user,
            sees_all,
            bound_workflow: row.worker.workflow,
        };
        self.record_stale_from(&whose, stale);
    }

    fn record_stale_from(&mut self, whose: &ReportSource, stale: &[StaleAttemptReport]) {
        add_to_gauge(&self.gauges.stale_reports, stale.len());
        let mut known: HashMap<WorkflowId, bool> = HashMap::new();
        let (mut noted, mut more) = (0, HashMap::<WorkflowId, usize>::new());
        for one in stale {
            let workflow = one.key.workflow;
            if !known.contains_key(&workflow) && known.len() < MAX_RECORDED {
                known.insert(workflow, self.may_report_on(whose, workflow));
            }
            match known.get(&workflow) {
                Some(true) if noted < MAX_RECORDED => {
                    noted += 1;
                    self.stale_report_writer
                        .record(stale_report_event(whose.worker, one), self.now.timestamp);
                }
                Some(true) => *more.entry(workflow).or_default() += 1,
                _ => {}
            }
        }
        for (workflow, more) in more {
            self.stale_report_writer
                .record(more_stale_reports_event(whose.worker, workflow, more), self.now.timestamp);
        }
    }

    /// The same for executions of actions: the first few.
    pub(super) fn record_late_actions(&mut self, worker: WorkerId, late: &[ActionReport]) {
        let Some(session) = self.sessions.get(&worker).filter(|_| !late.is_empty()) else { return };
        let whose = ReportSource {
            worker,
            user: session.user.clone(),
            sees_all: session.sees_all,
            bound_workflow: session.bound_workflow,
        };
        add_to_gauge(&self.gauges.stale_reports, late.len());
        for report in late.iter().take(MAX_RECORDED) {
            if self.may_report_on(&whose, report.workflow) {
                self.stale_report_writer.record(late_action_event(worker, report), self.now.timestamp);
            }
        }
    }

    fn may_report_on(&mut self, whose: &ReportSource, workflow: WorkflowId) -> bool {
        if whose.sees_all || whose.bound_workflow == Some(workflow) {
            return true;
        }
        match self.find_workflow(workflow) {
            Some(active) => active.row.user == whose.user,
            None => self.store.workflow(workflow).ok().flatten().is_some_and(|row| row.user == whose.user),
        }
    }

    /// Records a report that was valid when it arrived.
    pub(super) fn record_stale_report(&mut self, worker: WorkerId, stale: &StaleAttemptReport) {
        add_to_gauge(&self.gauges.stale_reports, 1);
        self.stale_report_writer.record(stale_report_event(worker, stale), self.now.timestamp);
    }
}

fn stale_report_event(worker: WorkerId, stale: &StaleAttemptReport) -> NewEvent {
    NewEvent {
        workflow: Some(stale.key.workflow),
        job: Some(stale.key.job),
        severity: EventSeverity::Warning,
        category: "stale_report".to_owned(),
        message: format!("worker {worker}: {stale}"),
        data: Some(serde_json::json!({ "worker_id": worker, "key": stale.key })),
    }
}

fn late_action_event(worker: WorkerId, report: &ActionReport) -> NewEvent {
    let (action, attempt, code) = (report.action, report.attempt, report.return_code);
    NewEvent {
        workflow: Some(report.workflow),
        job: None,
        severity: EventSeverity::Warning,
        category: "stale_report".to_owned(),
        message: format!("worker {worker}: stale result {code} of execution {attempt} of action {action}"),
        data: Some(serde_json::json!({ "worker_id": worker, "action_id": action, "attempt_id": attempt })),
    }
}

fn more_stale_reports_event(worker: WorkerId, workflow: WorkflowId, more: usize) -> NewEvent {
    NewEvent {
        workflow: Some(workflow),
        job: None,
        severity: EventSeverity::Warning,
        category: "stale_report".to_owned(),
        message: format!("worker {worker}: {more} more stale reports"),
        data: Some(serde_json::json!({ "worker_id": worker, "more": more })),
    }
}

/// Writes events, one after the other, on a thread of its own.
pub(super) struct StaleReportWriter {
    sender: Option<SyncSender<WriterMessage>>,
    thread: Option<JoinHandle<()>>,
}

enum WriterMessage {
    Record(Box<NewEvent>, Timestamp),
    Flush(SyncSender<()>),
}

impl StaleReportWriter {
    pub(super) fn start(store: Arc<dyn Store>, on_commit: Option<OnCommit>) -> Self {
        let (sender, words) = sync_channel(MAX_WAITING_EVENTS);
        let write = move || write_events(&*store, on_commit.as_ref(), &words);
        let thread = std::thread::Builder::new().name("windlass-notes".into()).spawn(write).ok();
        Self { sender: Some(sender), thread }
    }

    /// Records an event without effect on the state: if too many wait, the workflow is gone or the disk is
    /// full, it is dropped.
    pub(super) fn record(&self, event: NewEvent, now: Timestamp) {
        if let Some(sender) = &self.sender {
            drop(sender.try_send(WriterMessage::Record(Box::new(event), now)));
        }
    }

    /// Returns when all recorded events are written.
    pub(super) fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.sender.as_ref().is_some_and(|sender| sender.send(WriterMessage::Flush(done)).is_ok()) {
            written.recv().unwrap_or_default();
        }
    }
}

impl Drop for StaleReportWriter {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, that has been logged.
            drop(thread.join());
        }
    }
}

fn write_events(store: &dyn Store, on_commit: Option<&OnCommit>, words: &Receiver<WriterMessage>) {
    for word in words {
        match word {
            WriterMessage::Record(event, now) => {
                let written = store.add_event(&event, now);
                if let (Ok(_), Some(told)) = (written, on_commit) {
                    told();
                }
            }
            WriterMessage::Flush(done) => done.send(()).unwrap_or_default(),
        }
    }
}

//! Reports that came too late: they are refused and counted, and noted among the events of the workflow that they name, if
//! that is the worker's business.
//!
//! Whoever speaks for a worker can say anything, about any workflow and as often as he likes. So nobody waits for what is
//! written about it, there is only so much of it, and nothing of it stands in other people's workflows.

use super::figures::count;
use super::office::Office;
use super::talk::{OnCommit, Speaker};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use windlass_core::board::Stale;
use windlass_store::Store;
use windlass_store::model::{NewEvent, Severity};
use windlass_types::fleet::ActionReport;
use windlass_types::{Timestamp, WorkerId, WorkflowId};

/// So many of an exchange are noted one by one, and in so many workflows; of the others only how many they were.
const NOTED: usize = 10;
/// Notes that wait to be written.
const WAITING: usize = 256;

/// Whose reports they are.
pub(super) struct Whose {
    worker: WorkerId,
    user: String,
    sees_all: bool,
    bound: Option<WorkflowId>,
}

impl Office {
    /// Those of a worker that is known.
    pub(super) fn record_stale_of(&mut self, worker: WorkerId, stale: &[Stale]) {
        let Some(mate) = self.mates.get(&worker).filter(|_| !stale.is_empty()) else { return };
        let whose = Whose { worker, user: mate.user.clone(), sees_all: mate.sees_all, bound: mate.bound };
        self.record_all(&whose, stale);
    }

    /// Those of one that was given up, and is in the books.
    pub(super) fn record_stale_of_lost(
        &mut self,
        row: windlass_store::model::WorkerRow,
        speaker: &Speaker,
        stale: &[Stale],
    ) {
        let sees_all = *speaker == Speaker::Operator;
        let whose = Whose { worker: row.id, user: row.worker.user, sees_all, bound: row.worker.workflow };
        self.record_all(&whose, stale);
    }

    fn record_all(&mut self, whose: &Whose, stale: &[Stale]) {
        count(&self.gauges.stale_reports, stale.len());
        let mut known: HashMap<WorkflowId, bool> = HashMap::new();
        let (mut noted, mut more) = (0, HashMap::<WorkflowId, usize>::new());
        for one in stale {
            let workflow = one.key.workflow;
            if !known.contains_key(&workflow) && known.len() < NOTED {
                known.insert(workflow, self.is_business_of(whose, workflow));
            }
            match known.get(&workflow) {
                Some(true) if noted < NOTED => {
                    noted += 1;
                    self.notes.note(about(whose.worker, one), self.now.wall);
                }
                Some(true) => *more.entry(workflow).or_default() += 1,
                _ => {}
            }
        }
        for (workflow, more) in more {
            self.notes.note(about_more(whose.worker, workflow, more), self.now.wall);
        }
    }

    /// The same for executions of actions: the first few.
    pub(super) fn record_late_actions(&mut self, worker: WorkerId, late: &[ActionReport]) {
        let Some(mate) = self.mates.get(&worker).filter(|_| !late.is_empty()) else { return };
        let whose = Whose { worker, user: mate.user.clone(), sees_all: mate.sees_all, bound: mate.bound };
        count(&self.gauges.stale_reports, late.len());
        for report in late.iter().take(NOTED) {
            if self.is_business_of(&whose, report.workflow) {
                self.notes.note(about_action(worker, report), self.now.wall);
            }
        }
    }

    fn is_business_of(&mut self, whose: &Whose, workflow: WorkflowId) -> bool {
        if whose.sees_all || whose.bound == Some(workflow) {
            return true;
        }
        match self.desk(workflow) {
            Some(desk) => desk.row.user == whose.user,
            None => self.store.workflow(workflow).ok().flatten().is_some_and(|row| row.user == whose.user),
        }
    }

    /// One that fitted when it came.
    pub(super) fn record_stale(&mut self, worker: WorkerId, stale: &Stale) {
        count(&self.gauges.stale_reports, 1);
        self.notes.note(about(worker, stale), self.now.wall);
    }
}

fn about(worker: WorkerId, stale: &Stale) -> NewEvent {
    NewEvent {
        workflow: Some(stale.key.workflow),
        job: Some(stale.key.job),
        severity: Severity::Warning,
        category: "stale_report".to_owned(),
        message: format!("worker {worker}: {stale}"),
        data: Some(serde_json::json!({ "worker_id": worker, "key": stale.key })),
    }
}

fn about_action(worker: WorkerId, report: &ActionReport) -> NewEvent {
    let (action, attempt, code) = (report.action, report.attempt, report.return_code);
    NewEvent {
        workflow: Some(report.workflow),
        job: None,
        severity: Severity::Warning,
        category: "stale_report".to_owned(),
        message: format!(
            "worker {worker}: execution {attempt} of action {action} ended with {code}, too late to count"
        ),
        data: Some(serde_json::json!({ "worker_id": worker, "action_id": action, "attempt_id": attempt })),
    }
}

fn about_more(worker: WorkerId, workflow: WorkflowId, more: usize) -> NewEvent {
    NewEvent {
        workflow: Some(workflow),
        job: None,
        severity: Severity::Warning,
        category: "stale_report".to_owned(),
        message: format!("worker {worker}: {more} more stale reports"),
        data: Some(serde_json::json!({ "worker_id": worker, "more": more })),
    }
}

/// Writes notes, one after the other, on a thread of its own.
pub(super) struct Notes {
    sender: Option<SyncSender<Word>>,
    thread: Option<JoinHandle<()>>,
}

enum Word {
    Note(Box<NewEvent>, Timestamp),
    Flush(SyncSender<()>),
}

impl Notes {
    pub(super) fn start(store: Arc<dyn Store>, on_commit: Option<OnCommit>) -> Self {
        let (sender, words) = sync_channel(WAITING);
        let write = move || write(&*store, on_commit.as_ref(), &words);
        let thread = std::thread::Builder::new().name("windlass-notes".into()).spawn(write).ok();
        Self { sender: Some(sender), thread }
    }

    /// A note about what changed nothing: where too many wait, the workflow is gone or the disk is full, it is not missed.
    pub(super) fn note(&self, event: NewEvent, now: Timestamp) {
        if let Some(sender) = &self.sender {
            drop(sender.try_send(Word::Note(Box::new(event), now)));
        }
    }

    /// Returns when all that was noted is written.
    pub(super) fn flush(&self) {
        let (done, written) = sync_channel(1);
        if self.sender.as_ref().is_some_and(|sender| sender.send(Word::Flush(done)).is_ok()) {
            written.recv().unwrap_or_default();
        }
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, that has been told.
            drop(thread.join());
        }
    }
}

fn write(store: &dyn Store, on_commit: Option<&OnCommit>, words: &Receiver<Word>) {
    for word in words {
        match word {
            Word::Note(event, now) => {
                let written = store.add_event(&event, now);
                if let (Ok(_), Some(told)) = (written, on_commit) {
                    told();
                }
            }
            Word::Flush(done) => done.send(()).unwrap_or_default(),
        }
    }
}

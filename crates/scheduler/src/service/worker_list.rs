//! The list of connected workers, with frequently changing values that are not in the database.

use super::scheduler::Scheduler;
use std::time::Duration;
use windlass_core::node_quarantine::NodeEligibility;
use windlass_store::model::{EventSeverity, NewEvent, NodeQuarantineRow, WORKER_PROBLEM_CATEGORY};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{WorkerId, WorkflowId};

/// The current state of a worker with a lease.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectedWorker {
    pub worker: WorkerId,
    /// Its assigned jobs: running and queued.
    pub held_jobs: usize,
    /// The time since its last contact.
    pub silence: Duration,
    /// Its remaining lifetime, as it last stated. `None`: unlimited.
    pub time_left: Option<Duration>,
    /// It accepts no more jobs.
    pub is_draining: bool,
    /// Why its node gets no jobs, or one at a time.
    pub standing: NodeEligibility,
    pub quarantine: Option<NodeQuarantineRow>,
}

impl Scheduler {
    pub(super) fn list_workers(&self) -> Vec<ConnectedWorker> {
        let (now, full) = (self.options.clock.now().instant, self.lease_from_now());
        let mut present: Vec<ConnectedWorker> = self
            .sessions
            .iter()
            .map(|(id, session)| ConnectedWorker {
                worker: *id,
                held_jobs: session.held_jobs.len(),
                // Its lease was renewed at its last contact.
                silence: full.saturating_duration_since(session.lease_until)
                    + now.saturating_duration_since(self.now.instant),
                time_left: session.usage.time_left(),
                is_draining: session.is_draining || session.is_to_drain || session.is_leaving(),
                standing: session.standing,
                quarantine: self.nodes.quarantine_of(&session.node).cloned(),
            })
            .collect();
        present.sort_unstable_by_key(|one| one.worker);
        present
    }

    /// Records that a worker could not start a job of a workflow. Once for each worker and reason, because it
    /// is repeated.
    pub(super) fn record_start_problem(&mut self, worker: WorkerId, key: &AttemptKey, trouble: &str) {
        if let Some(local_run) = &mut self.local_run {
            local_run.problems.push(trouble.to_owned());
        }
        let Some(session) = self.sessions.get_mut(&worker) else { return };
        if !session.start_problems.insert((key.workflow, trouble.to_owned())) {
            return;
        }
        let event = NewEvent {
            workflow: Some(key.workflow),
            job: Some(key.job),
            severity: EventSeverity::Warning,
            category: WORKER_PROBLEM_CATEGORY.to_owned(),
            message: format!("worker {worker} could not start it: {trouble}"),
            data: Some(serde_json::json!({ "worker_id": worker, "trouble": trouble })),
        };
        // If it cannot be written, the worker itself reports it too.
        drop(self.store.add_event(&event, self.now.timestamp));
        self.notify_commit();
    }
}

/// Problems recorded for a worker: there are few different ones.
pub(super) type StartProblems = std::collections::HashSet<(WorkflowId, String)>;

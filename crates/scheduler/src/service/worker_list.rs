//! Who is there: what of the workers stands in no row, because it changes all the time.

use super::scheduler::Scheduler;
use std::time::Duration;
use windlass_core::node_quarantine::NodeStanding;
use windlass_store::model::{EventSeverity, NewEvent, NodeQuarantineRow, WORKER_PROBLEM_CATEGORY};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{WorkerId, WorkflowId};

/// A worker that the service has a lease with, as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectedWorker {
    pub worker: WorkerId,
    /// Jobs that it has: running, and waiting there.
    pub held_jobs: usize,
    /// Since it was last heard of.
    pub silence: Duration,
    /// How long it will be there, as it last said. `None`: for good.
    pub time_left: Option<Duration>,
    /// It takes nothing more.
    pub is_draining: bool,
    /// Its node gets nothing, or one job at a time, for this reason.
    pub standing: NodeStanding,
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
                // Its lease runs from when it was last heard of.
                silence: full.saturating_duration_since(session.lease_until)
                    + now.saturating_duration_since(self.now.instant),
                time_left: session.usage.time_left(),
                is_draining: session.is_draining || session.is_to_drain || session.is_leaving,
                standing: session.standing,
                quarantine: self.nodes.quarantine_of(&session.node).cloned(),
            })
            .collect();
        present.sort_unstable_by_key(|one| one.worker);
        present
    }

    /// A worker could not start something of a workflow. Once for each worker and reason: it tries again and again.
    pub(super) fn record_start_problem(&mut self, worker: WorkerId, key: &AttemptKey, trouble: &str) {
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
        // Where it cannot be written, the worker itself says it too.
        drop(self.store.add_event(&event, self.now.timestamp));
        self.notify_commit();
    }
}

/// What a worker could not start, and why, as it was noted: few are different.
pub(super) type StartProblems = std::collections::HashSet<(WorkflowId, String)>;

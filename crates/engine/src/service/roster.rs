//! Who is there: what of the workers stands in no row, because it changes all the time.

use super::office::Office;
use std::time::Duration;
use windlass_core::nodes::Standing;
use windlass_store::model::{NewEvent, NodeAside, Severity, WORKER_TROUBLE};
use windlass_types::work::AttemptKey;
use windlass_types::{WorkerId, WorkflowId};

/// A worker that the service has a lease with, as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct Present {
    pub worker: WorkerId,
    /// Jobs that it has: running, and waiting there.
    pub held: usize,
    /// Since it was last heard of.
    pub silence: Duration,
    /// How long it will be there, as it last said. `None`: for good.
    pub time_left: Option<Duration>,
    /// It takes nothing more.
    pub is_draining: bool,
    /// Its node gets nothing, or one job at a time, for this reason.
    pub standing: Standing,
    pub set_aside: Option<NodeAside>,
}

impl Office {
    pub(super) fn roster(&self) -> Vec<Present> {
        let (now, full) = (self.options.clock.now().at, self.lease_from_now());
        let mut present: Vec<Present> = self
            .mates
            .iter()
            .map(|(id, mate)| Present {
                worker: *id,
                held: mate.held.len(),
                // Its lease runs from when it was last heard of.
                silence: full.saturating_duration_since(mate.lease_until)
                    + now.saturating_duration_since(self.now.at),
                time_left: mate.mirror.time_left(),
                is_draining: mate.is_draining || mate.is_to_drain || mate.is_leaving,
                standing: mate.standing,
                set_aside: self.nodes.aside(&mate.node).cloned(),
            })
            .collect();
        present.sort_unstable_by_key(|one| one.worker);
        present
    }

    /// A worker could not start something of a workflow. Once for each worker and reason: it tries again and again.
    pub(super) fn note_trouble(&mut self, worker: WorkerId, key: &AttemptKey, trouble: &str) {
        let Some(mate) = self.mates.get_mut(&worker) else { return };
        if !mate.troubles.insert((key.workflow, trouble.to_owned())) {
            return;
        }
        let event = NewEvent {
            workflow: Some(key.workflow),
            job: Some(key.job),
            severity: Severity::Warning,
            category: WORKER_TROUBLE.to_owned(),
            message: format!("worker {worker} could not start it: {trouble}"),
            data: Some(serde_json::json!({ "worker_id": worker, "trouble": trouble })),
        };
        // Where it cannot be written, the worker itself says it too.
        drop(self.store.add_event(&event, self.now.wall));
        self.tell_of_commit();
    }
}

/// What a worker could not start, and why, as it was noted: few are different.
pub(super) type Troubles = std::collections::HashSet<(WorkflowId, String)>;

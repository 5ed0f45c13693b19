//! The only worker of a workflow, which claims its jobs.

use windlass_core::change::WorkflowChange;
use windlass_core::dispatch::{ClaimLimits, WorkerUsage};
use windlass_core::workflow_state::WorkflowState;
use windlass_types::WorkerId;

pub(crate) const WORKER: WorkerId = WorkerId(7);

/// Claims jobs for the only worker, `ahead` of them for its queue. Jobs that run alone go first.
pub(crate) fn claim_jobs(
    state: &mut WorkflowState,
    usage: &mut WorkerUsage,
    ahead: usize,
    changes: &mut Vec<WorkflowChange>,
) -> Vec<u32> {
    if state.has_isolated_running() {
        Vec::new()
    } else if state.has_isolated_waiting() {
        state.claim_isolated(WORKER, usage, changes).into_iter().collect()
    } else {
        let limits = ClaimLimits { max_jobs: usize::MAX, queue_ahead: ahead };
        state.claim_ready(WORKER, usage, limits, changes)
    }
}

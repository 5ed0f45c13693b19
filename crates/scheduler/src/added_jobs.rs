//! What follows when a running job has added others: shared by everybody who keeps a board.

use std::ops::Range;
use windlass_core::change::WorkflowChange;
use windlass_core::workflow_state::WorkflowState;
use windlass_store::{Store, StoreError};
use windlass_types::WorkflowId;
use windlass_types::worker_messages::AttemptKey;

/// Takes up the jobs whose rows are there and that are not on the board. Returns their numbers there.
pub(crate) fn insert_added_jobs(
    store: &dyn Store,
    workflow: WorkflowId,
    state: &mut WorkflowState,
    changes: &mut Vec<WorkflowChange>,
) -> Result<Range<u32>, StoreError> {
    let Some(last) = state.last_job_id() else { return Ok(0..0) };
    let added = store.jobs_after(workflow, last)?;
    if added.ids.is_empty() {
        return Ok(0..0);
    }
    Ok(state.on_jobs_added(&added, changes))
}

/// A job that ran again decides anew what is to follow: what it had added before and did not ask for this time does not
/// run. `over`: attempts with which their jobs are over.
pub(crate) fn drop_stale_added_jobs(
    store: &dyn Store,
    over: &[AttemptKey],
    state: &mut WorkflowState,
    changes: &mut Vec<WorkflowChange>,
) -> Result<(), StoreError> {
    if !over.is_empty() {
        let left = store.jobs_not_respawned(over)?;
        state.on_jobs_dropped(&left, changes);
    }
    Ok(())
}

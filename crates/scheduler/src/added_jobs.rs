//! Handles jobs that a running job adds to its workflow, for every owner of a workflow state.

use std::ops::Range;
use windlass_core::change::WorkflowChange;
use windlass_core::workflow_state::WorkflowState;
use windlass_store::{Store, StoreError};
use windlass_types::WorkflowId;
use windlass_types::worker_messages::AttemptKey;

/// Inserts the jobs that are in the database but not in the workflow state. Returns their indices there.
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

/// Drops stale added jobs: a job that ran again decides anew which jobs to add, and those of its earlier
/// attempt that it did not request again do not run. `over`: the attempts that settled their jobs.
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

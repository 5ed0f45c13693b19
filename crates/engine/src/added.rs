//! What follows when a running job has added others: shared by everybody who keeps a board.

use std::ops::Range;
use windlass_core::board::Board;
use windlass_core::change::Change;
use windlass_store::{Error, Store};
use windlass_types::WorkflowId;
use windlass_types::work::AttemptKey;

/// Takes up the jobs whose rows are there and that are not on the board. Returns their numbers there.
pub(crate) fn take_up(
    store: &dyn Store,
    workflow: WorkflowId,
    board: &mut Board,
    changes: &mut Vec<Change>,
) -> Result<Range<u32>, Error> {
    let Some(last) = board.last_id() else { return Ok(0..0) };
    let added = store.jobs_after(workflow, last)?;
    if added.ids.is_empty() {
        return Ok(0..0);
    }
    Ok(board.on_added(&added, changes))
}

/// A job that ran again decides anew what is to follow: what it had added before and did not ask for this time does not
/// run. `over`: attempts with which their jobs are over.
pub(crate) fn leave_out(
    store: &dyn Store,
    over: &[AttemptKey],
    board: &mut Board,
    changes: &mut Vec<Change>,
) -> Result<(), Error> {
    if !over.is_empty() {
        let left = store.left_behind(over)?;
        board.on_left_out(&left, changes);
    }
    Ok(())
}

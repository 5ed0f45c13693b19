//! The next run of a workflow: which of its jobs go back to the start. Decided and noted while nobody else runs it;
//! running it is another command.

use crate::args::MachineArgs;
use crate::context::Context;
use crate::error::CliError;
use crate::local::LocalHost;
use windlass_engine::observe::{AttemptEnd, Observer, Progress};
use windlass_engine::take_over;
use windlass_store::Store as _;
use windlass_store::lock::WorkflowLock;
use windlass_store::model::WorkflowRow;
use windlass_store::sqlite::SqliteStore;
use windlass_types::{JobId, RunId, WorkflowId};

/// Has `choose` say which jobs go back, and starts the next run with them. `None` if there are none.
///
/// What a dead process left running is first made sure to be dead, so that what is decided on stands still.
pub(crate) fn begin<T>(
    ctx: &Context,
    store: &SqliteStore,
    workflow: WorkflowId,
    choose: impl FnOnce(&WorkflowRow) -> Result<(Vec<JobId>, T), CliError>,
) -> Result<(Option<RunId>, T), CliError> {
    let _lock = WorkflowLock::acquire(store.path(), workflow, ctx.clock.now())?;
    let mut host = LocalHost::new(&MachineArgs::default(), store.path());
    take_over(store, &mut host, &mut Notices(ctx), &row(store, workflow)?, ctx.clock.now())?;
    let (again, found) = choose(&row(store, workflow)?)?;
    if again.is_empty() {
        return Ok((None, found));
    }
    Ok((Some(store.begin_next_run(workflow, &again, ctx.clock.now())?), found))
}

fn row(store: &SqliteStore, workflow: WorkflowId) -> Result<WorkflowRow, CliError> {
    store.workflow(workflow)?.ok_or(CliError::from(windlass_store::Error::NoSuchWorkflow(workflow)))
}

/// Passes on what is found out about earlier processes.
struct Notices<'a>(&'a Context);

impl Observer for Notices<'_> {
    fn progress(&mut self, _progress: &Progress) {}

    fn attempt_ended(&mut self, _end: &AttemptEnd<'_>) {}

    fn notice(&mut self, text: &str) {
        self.0.ui.note(text);
    }
}

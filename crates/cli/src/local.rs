//! The worker of this machine: how `run`, `resume` and `exec` start it, and what `windlass __worker` does.

use crate::args::WorkerArgs;
use crate::error::{CliError, Exit};

/// `windlass __worker …`: the process that a run starts to execute its jobs.
pub(crate) fn worker(_args: &WorkerArgs) -> Result<Exit, CliError> {
    Err(CliError::internal("the worker process is not built yet"))
}

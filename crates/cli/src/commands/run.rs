//! `windlass run`.

use crate::args::RunArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};

pub(crate) fn run(_ctx: &Context, _args: &RunArgs) -> Result<Exit, CliError> {
    Err(CliError::internal("`windlass run` is not built yet"))
}

//! `windlass cancel`.

use crate::args::CancelArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};

pub(crate) fn run(_ctx: &Context, _args: &CancelArgs) -> Result<Exit, CliError> {
    Err(CliError::internal("`windlass cancel` is not built yet"))
}

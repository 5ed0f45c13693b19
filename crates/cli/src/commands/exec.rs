//! `windlass exec`.

use crate::args::ExecArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};

pub(crate) fn run(_ctx: &Context, _args: &ExecArgs) -> Result<Exit, CliError> {
    Err(CliError::internal("`windlass exec` is not built yet"))
}

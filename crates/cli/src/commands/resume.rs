//! `windlass resume`.

use crate::args::ResumeArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};

pub(crate) fn run(_ctx: &Context, _args: &ResumeArgs) -> Result<Exit, CliError> {
    Err(CliError::internal("`windlass resume` is not built yet"))
}

//! `windlass demo`.

use crate::args::DemoArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};

pub(crate) fn run(_ctx: &Context, _args: &DemoArgs) -> Result<Exit, CliError> {
    Err(CliError::internal("`windlass demo` is not built yet"))
}

//! A command of the user's that puts right what made jobs fail.

use super::agent::agent_environment;
use crate::context::CliContext;
use crate::error::CliError;
use std::process::Stdio;
use windlass_process::shell;
use windlass_store::model::WorkflowRow;

/// Runs it, with the workflow's id as its last argument. What it prints is talk, not data.
pub(super) fn run_hook(ctx: &CliContext, row: &WorkflowRow, command: &str) -> Result<(), CliError> {
    ctx.ui.print_note(&format!("running the recovery hook: {command}"));
    // The command may have words of its own; what follows them is quoted whatever they are.
    let mut hook = shell::shell_command(&format!("{command} \"$@\""));
    hook.args(["sh", &row.id.to_string()]);
    hook.stdin(Stdio::null()).envs(agent_environment(ctx, row)?);
    let stderr = std::io::stderr();
    let talk = rustix::io::dup(&stderr).map_err(|e| CliError::io(format!("cannot use stderr: {e}")))?;
    let ended = hook.stdout(Stdio::from(talk)).status();
    let ended = ended.map_err(|e| CliError::io(format!("cannot start the recovery hook: {e}")))?;
    if ended.success() {
        return Ok(());
    }
    Err(CliError::refused(format!("the recovery hook failed ({ended}); nothing was changed"))
        .with_hint("see what it printed above; `--dry-run` shows what is to be recovered"))
}

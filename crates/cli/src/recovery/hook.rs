//! The recovery hook: a user command that fixes the cause of failures.

use super::agent::agent_environment;
use crate::context::CliContext;
use crate::error::CliError;
use std::process::Stdio;
use windlass_process::shell;
use windlass_store::model::WorkflowRow;
use windlass_types::worker_messages::SERVER_URL_VARIABLES;

/// Runs the hook with the workflow id as its last argument. Its output goes to stderr.
pub(super) fn run_hook(ctx: &CliContext, row: &WorkflowRow, command: &str) -> Result<(), CliError> {
    ctx.ui.print_note(&format!("running the recovery hook: {command}"));
    // The command may contain words of its own; the appended argument is quoted.
    let mut hook = shell::shell_command(&format!("{command} \"$@\""));
    hook.args(["sh", &row.id.to_string()]);
    for name in SERVER_URL_VARIABLES {
        hook.env_remove(name);
    }
    hook.stdin(Stdio::null()).envs(agent_environment(ctx, row)?);
    let stderr = std::io::stderr();
    let talk = rustix::io::dup(&stderr).map_err(|e| CliError::io(format!("cannot use stderr: {e}")))?;
    let ended = hook.stdout(Stdio::from(talk)).status();
    let ended = ended.map_err(|e| CliError::io(format!("cannot start the recovery hook: {e}")))?;
    if ended.success() {
        return Ok(());
    }
    Err(CliError::refused(format!("the recovery hook failed ({ended}); nothing changed"))
        .with_hint("see its output above; `--dry-run` shows what would be recovered"))
}

//! Pending commands for the process that runs a workflow, which alone may change the states of its jobs.

use super::workflow_updates::AuditContext;
use super::{apply_changes, column_decoding, failure_commands};
use crate::StoreError;
use crate::db::{SqlConnection, values};
use crate::error::SqlError;
use crate::model::PendingCommandResult;
use crate::sql::common as sql;
use windlass_types::WorkflowId;
use windlass_types::failure_commands::PendingCommand;

pub(crate) fn add_pending_command(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    wanted: &PendingCommand,
    by: AuditContext<'_>,
) -> Result<i64, SqlError> {
    apply_changes::current_run(db, workflow)?;
    let wanted = column_decoding::render_json(wanted)?;
    db.query_one(sql::ADD_PENDING_COMMAND, values![workflow.0, by.now.0, by.actor, wanted], |row| row.get(0))
}

pub(crate) fn open_pending_commands(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<i64>, SqlError> {
    db.query_all(sql::OPEN_PENDING_COMMANDS, [workflow.0], |row| row.get(0))
}

/// Applies a pending command on behalf of its author and stores the result. A rejection is a result too.
pub(crate) fn apply_pending_command(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    command: i64,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let found = db.query_optional(sql::OPEN_PENDING_COMMAND, [command, workflow.0], |row| {
        Ok((row.get::<String>(0)?, column_decoding::read_required_json::<PendingCommand>(row, 1)?))
    })?;
    // Withdrawn or answered concurrently.
    let Some((actor, wanted)) = found else { return Ok(()) };
    let answer: PendingCommandResult = match failure_commands::apply_triage_command(
        db,
        workflow,
        &wanted,
        AuditContext { actor: &actor, ..by },
    ) {
        Ok(outcomes) => Ok(outcomes),
        Err(SqlError::Store(error)) => Err(error.to_string()),
        Err(fault) => return Err(fault),
    };
    let answer = column_decoding::render_json(&answer)?;
    db.execute(sql::SET_PENDING_COMMAND_RESULT, values![by.now.0, answer, command])?;
    Ok(())
}

/// Returns the result, if there is one.
pub(crate) fn pending_command_result(
    db: &impl SqlConnection,
    command: i64,
) -> Result<Option<PendingCommandResult>, SqlError> {
    let found =
        db.query_optional(sql::PENDING_COMMAND_RESULT, [command], |row| column_decoding::read_json(row, 0))?;
    found.ok_or_else(|| StoreError::OutOfRange { what: format!("pending command {command}") }.into())
}

/// Withdraws a pending command. `false`: it already has a result.
pub(crate) fn withdraw_pending_command(db: &impl SqlConnection, command: i64) -> Result<bool, SqlError> {
    Ok(db.execute(sql::WITHDRAW_PENDING_COMMAND, [command])? > 0)
}

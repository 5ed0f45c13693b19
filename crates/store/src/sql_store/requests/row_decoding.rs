//! Decodes rows of the request tables.

use crate::StoreError;
use crate::db::SqlRow;
use crate::error::SqlError;
use crate::sql_store::column_decoding;
use serde_json::Value;
use std::str::FromStr;
use windlass_core::requests::rows::{
    BackendRunRef, BlockRow, OutputStep, OutputStepKind, OutputStepState, RequestFileRow, RequestRow,
    RunEvent, RunRow, StatusTransition,
};
use windlass_types::requests::Request;
use windlass_types::{RunId, Timestamp, WorkflowId};

/// Stored instead of a unit for steps of a whole block.
pub(super) const WHOLE_BLOCK: i64 = -1;

/// Decodes an enumeration value.
pub(super) fn read_enum<T: FromStr<Err: std::fmt::Display>>(
    row: &SqlRow<'_>,
    index: usize,
) -> Result<T, SqlError> {
    row.get_text(index)?.unwrap_or_default().parse().map_err(|e: T::Err| row.conversion_error(index, e))
}

pub(super) fn read_optional_enum<T: FromStr<Err: std::fmt::Display>>(
    row: &SqlRow<'_>,
    index: usize,
) -> Result<Option<T>, SqlError> {
    row.get_text(index)?.map(|_| read_enum(row, index)).transpose()
}

pub(super) fn read_timestamp(row: &SqlRow<'_>, index: usize) -> Result<Timestamp, SqlError> {
    row.get(index).map(Timestamp)
}

/// Decodes a non-negative number.
pub(crate) fn read_unsigned(row: &SqlRow<'_>, index: usize) -> Result<u64, SqlError> {
    let n: i64 = row.get(index)?;
    u64::try_from(n).map_err(|_| row.conversion_error(index, n))
}

/// Encodes a number: databases have 63 bits for it.
pub(crate) fn to_signed(what: &str, n: u64) -> Result<i64, StoreError> {
    i64::try_from(n).map_err(|_| StoreError::OutOfRange { what: format!("{what} {n}") })
}

pub(super) fn read_request(row: &SqlRow<'_>) -> Result<RequestRow, SqlError> {
    let mut request: Request = column_decoding::read_required_json(row, 13)?;
    request.priority = row.get(3)?;
    request.urgent = row.get(4)?;
    request.production_steps = column_decoding::read_required_json(row, 5)?;
    request.superseded_by_request = row.get(6)?;
    if let Some(payload) = column_decoding::read_json(row, 14)? {
        request.payload_config = payload;
    }
    Ok(RequestRow {
        request,
        overrides: column_decoding::read_json(row, 15)?.unwrap_or_default(),
        status: read_enum(row, 1)?,
        version: row.get(2)?,
        created_at: read_timestamp(row, 7)?,
        updated_at: read_timestamp(row, 8)?,
        since: read_timestamp(row, 9)?,
        reason: row.get(10)?,
        wanted: column_decoding::read_json(row, 11)?,
        alerted_at: column_decoding::read_time(row, 12)?,
    })
}

pub(super) fn read_transition(row: &SqlRow<'_>) -> Result<StatusTransition, SqlError> {
    Ok(StatusTransition {
        n: row.get(0)?,
        from: read_optional_enum(row, 1)?,
        to: read_enum(row, 2)?,
        at: read_timestamp(row, 3)?,
        by: row.get(4)?,
        reason: row.get(5)?,
    })
}

pub(super) fn read_run(row: &SqlRow<'_>) -> Result<RunRow, SqlError> {
    let backend = match row.get_text(5)?.unwrap_or_default() {
        "engine" => BackendRunRef::Engine {
            workflow: row.get::<Option<i64>>(6)?.map(WorkflowId),
            run: row.get::<Option<i64>>(7)?.map(RunId),
        },
        "htcondor" => BackendRunRef::Htcondor { schedd: row.get(8)?, cluster: row.get(9)? },
        other => return Err(row.conversion_error(5, format!("unknown backend `{other}`"))),
    };
    Ok(RunRow {
        uuid: row.get(0)?,
        process: row.get(1)?,
        round: row.get(2)?,
        parent: row.get(3)?,
        status: read_enum(row, 4)?,
        backend,
        submit_dir: row.get(10)?,
        stop_requested_at: column_decoding::read_time(row, 11)?,
        stop_reason: row.get(12)?,
        totals: column_decoding::read_required_json(row, 13)?,
        counts: column_decoding::read_required_json(row, 14)?,
        units_completed: row.get(15)?,
        units_failed: row.get(16)?,
        units_read: row.get(17)?,
        created_at: read_timestamp(row, 18)?,
        submitted_at: column_decoding::read_time(row, 19)?,
        completed_at: column_decoding::read_time(row, 20)?,
        cause: read_enum(row, 21)?,
        rescues: row.get(22)?,
        paused: column_decoding::read_time(row, 23)?,
        silent: column_decoding::read_time(row, 24)?,
        priority: row.get(25)?,
    })
}

pub(super) fn read_run_event(row: &SqlRow<'_>) -> Result<RunEvent, SqlError> {
    Ok(RunEvent {
        run: row.get(0)?,
        event_type: row.get(1)?,
        from: read_optional_enum(row, 2)?,
        to: read_optional_enum(row, 3)?,
        counts: column_decoding::read_required_json(row, 4)?,
        detail: column_decoding::read_required_json(row, 5)?,
        at: read_timestamp(row, 6)?,
    })
}

pub(super) fn read_block(row: &SqlRow<'_>) -> Result<BlockRow, SqlError> {
    Ok(BlockRow {
        uuid: row.get(0)?,
        process: row.get(1)?,
        round: row.get(2)?,
        dataset: row.get(3)?,
        index: row.get(4)?,
        first_unit: row.get(5)?,
        last_unit: row.get(6)?,
        units_completed: row.get(7)?,
        name: row.get(8)?,
        is_closed: row.get(9)?,
        tape_rule: row.get(10)?,
        status: read_enum(row, 11)?,
        created_at: read_timestamp(row, 12)?,
        updated_at: read_timestamp(row, 13)?,
        units_expected: row.get(14)?,
    })
}

pub(super) fn read_file(row: &SqlRow<'_>) -> Result<RequestFileRow, SqlError> {
    Ok(RequestFileRow {
        lfn: row.get(0)?,
        state: read_enum(row, 1)?,
        round: row.get(2)?,
        left: column_decoding::read_json(row, 3)?,
        reason: row.get(4)?,
    })
}

pub(super) fn read_step(row: &SqlRow<'_>) -> Result<OutputStep, SqlError> {
    let unit: i64 = row.get(1)?;
    let kind = row.get_text(2)?.unwrap_or_default();
    let kind = OutputStepKind::ALL.into_iter().find(|known| known.name() == kind);
    Ok(OutputStep {
        block: row.get(0)?,
        unit: if unit == WHOLE_BLOCK { None } else { Some(row.get(1)?) },
        kind: kind.ok_or_else(|| row.conversion_error(2, "unknown step kind"))?,
        state: read_step_state(row, 3)?,
        attempts: row.get(4)?,
        due_at: read_timestamp(row, 5)?,
        first_failed_at: column_decoding::read_time(row, 6)?,
        last_error: row.get(7)?,
        result: row.get(8)?,
        detail: column_decoding::read_json(row, 9)?.unwrap_or(Value::Null),
    })
}

pub(super) fn read_step_state(row: &SqlRow<'_>, index: usize) -> Result<OutputStepState, SqlError> {
    let name = row.get_text(index)?.unwrap_or_default();
    let known = OutputStepState::ALL.into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| row.conversion_error(index, format!("unknown step state `{name}`")))
}

//! From rows of the tables of requests to our types.

use crate::Error;
use crate::books::column;
use crate::db::Row;
use crate::error::Fault;
use serde_json::Value;
use std::str::FromStr;
use windlass_core::requests::book::{
    Backend, BlockRow, FileRow, OutputStep, RequestRow, RunEvent, RunRow, StepKind, StepState, Transition,
};
use windlass_types::requests::Request;
use windlass_types::{RunId, Timestamp, WorkflowId};

/// What stands for a step that is about a block as a whole.
pub(super) const WHOLE_BLOCK: i64 = -1;

/// One of a closed list of words.
pub(super) fn word<T: FromStr<Err: std::fmt::Display>>(row: &Row<'_>, index: usize) -> Result<T, Fault> {
    row.text(index)?.unwrap_or_default().parse().map_err(|e: T::Err| row.wrong(index, e))
}

pub(super) fn optional_word<T: FromStr<Err: std::fmt::Display>>(
    row: &Row<'_>,
    index: usize,
) -> Result<Option<T>, Fault> {
    row.text(index)?.map(|_| word(row, index)).transpose()
}

pub(super) fn at(row: &Row<'_>, index: usize) -> Result<Timestamp, Fault> {
    row.get(index).map(Timestamp)
}

/// A number that is never negative.
pub(crate) fn natural(row: &Row<'_>, index: usize) -> Result<u64, Fault> {
    let n: i64 = row.get(index)?;
    u64::try_from(n).map_err(|_| row.wrong(index, n))
}

/// The way in: the databases have 63 bits for it.
pub(crate) fn number(what: &str, n: u64) -> Result<i64, Error> {
    i64::try_from(n).map_err(|_| Error::OutOfRange { what: format!("{what} {n}") })
}

pub(super) fn request(row: &Row<'_>) -> Result<RequestRow, Fault> {
    let mut request: Request = column::required_json(row, 13)?;
    request.priority = row.get(3)?;
    request.urgent = row.get(4)?;
    request.production_steps = column::required_json(row, 5)?;
    request.superseded_by_request = row.get(6)?;
    if let Some(payload) = column::json(row, 14)? {
        request.payload_config = payload;
    }
    Ok(RequestRow {
        request,
        overrides: column::json(row, 15)?.unwrap_or_default(),
        status: word(row, 1)?,
        version: row.get(2)?,
        created_at: at(row, 7)?,
        updated_at: at(row, 8)?,
        since: at(row, 9)?,
        reason: row.get(10)?,
        wanted: column::json(row, 11)?,
        alerted_at: column::time(row, 12)?,
    })
}

pub(super) fn transition(row: &Row<'_>) -> Result<Transition, Fault> {
    Ok(Transition {
        n: row.get(0)?,
        from: optional_word(row, 1)?,
        to: word(row, 2)?,
        at: at(row, 3)?,
        by: row.get(4)?,
        reason: row.get(5)?,
    })
}

pub(super) fn run(row: &Row<'_>) -> Result<RunRow, Fault> {
    let backend = match row.text(5)?.unwrap_or_default() {
        "engine" => Backend::Engine {
            workflow: row.get::<Option<i64>>(6)?.map(WorkflowId),
            run: row.get::<Option<i64>>(7)?.map(RunId),
        },
        "htcondor" => Backend::Htcondor { schedd: row.get(8)?, cluster: row.get(9)? },
        other => return Err(row.wrong(5, format!("`{other}`, which is no backend"))),
    };
    Ok(RunRow {
        uuid: row.get(0)?,
        process: row.get(1)?,
        round: row.get(2)?,
        parent: row.get(3)?,
        status: word(row, 4)?,
        backend,
        submit_dir: row.get(10)?,
        stop_requested_at: column::time(row, 11)?,
        stop_reason: row.get(12)?,
        totals: column::required_json(row, 13)?,
        counts: column::required_json(row, 14)?,
        units_completed: row.get(15)?,
        units_failed: row.get(16)?,
        units_read: row.get(17)?,
        created_at: at(row, 18)?,
        submitted_at: column::time(row, 19)?,
        completed_at: column::time(row, 20)?,
        cause: word(row, 21)?,
        rescues: row.get(22)?,
        paused: column::time(row, 23)?,
        silent: column::time(row, 24)?,
        priority: row.get(25)?,
    })
}

pub(super) fn run_event(row: &Row<'_>) -> Result<RunEvent, Fault> {
    Ok(RunEvent {
        run: row.get(0)?,
        event_type: row.get(1)?,
        from: optional_word(row, 2)?,
        to: optional_word(row, 3)?,
        counts: column::required_json(row, 4)?,
        detail: column::required_json(row, 5)?,
        at: at(row, 6)?,
    })
}

pub(super) fn block(row: &Row<'_>) -> Result<BlockRow, Fault> {
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
        status: word(row, 11)?,
        created_at: at(row, 12)?,
        updated_at: at(row, 13)?,
        units_expected: row.get(14)?,
    })
}

pub(super) fn file(row: &Row<'_>) -> Result<FileRow, Fault> {
    Ok(FileRow {
        lfn: row.get(0)?,
        state: word(row, 1)?,
        round: row.get(2)?,
        left: column::json(row, 3)?,
        reason: row.get(4)?,
    })
}

pub(super) fn step(row: &Row<'_>) -> Result<OutputStep, Fault> {
    let unit: i64 = row.get(1)?;
    let kind = row.text(2)?.unwrap_or_default();
    let kind = StepKind::ALL.into_iter().find(|known| known.name() == kind);
    Ok(OutputStep {
        block: row.get(0)?,
        unit: if unit == WHOLE_BLOCK { None } else { Some(row.get(1)?) },
        kind: kind.ok_or_else(|| row.wrong(2, "no kind of step"))?,
        state: step_state(row, 3)?,
        attempts: row.get(4)?,
        due_at: at(row, 5)?,
        first_failed_at: column::time(row, 6)?,
        last_error: row.get(7)?,
        result: row.get(8)?,
        detail: column::json(row, 9)?.unwrap_or(Value::Null),
    })
}

pub(super) fn step_state(row: &Row<'_>, index: usize) -> Result<StepState, Fault> {
    let name = row.text(index)?.unwrap_or_default();
    let known = StepState::ALL.into_iter().find(|known| known.name() == name);
    known.ok_or_else(|| row.wrong(index, format!("`{name}`, which is no state of a step")))
}

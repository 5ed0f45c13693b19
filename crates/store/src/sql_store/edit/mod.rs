//! What users change by hand in a workflow that nobody runs: [`jobs`] are added and changed, [`delete`] takes jobs away,
//! [`data`] is about files, requirements, results and events.
//!
//! That nobody runs the workflow is seen to by the caller, who holds its lock. What a worker held when everything died is
//! still held, and is left alone.

pub(crate) mod data;
pub(crate) mod delete;
pub(crate) mod jobs;

use super::runs;
use crate::StoreError;
use crate::db::SqlConnection;
use crate::error::SqlError;
use crate::model::FieldChange;
use crate::sql::common as sql;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Write as _;
use windlass_types::{JobId, WorkflowId};

/// What a worker holds was started with what it asked for then.
pub(crate) fn refuse_held_jobs(db: &impl SqlConnection, workflow: WorkflowId) -> Result<(), SqlError> {
    match runs::load_status_counts(db, workflow)?.active() {
        0 => Ok(()),
        held => Err(StoreError::StillActive { workflow, held }.into()),
    }
}

/// Who reads a piece of data waits for who writes it: pairs of those two.
pub(crate) fn add_data_edges(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    pairs: impl Iterator<Item = (JobId, JobId)>,
) -> Result<(), SqlError> {
    let mut added = 0;
    for (reader, writer) in pairs.filter(|(reader, writer)| reader != writer) {
        added += db.execute(sql::ADD_EDGE, [workflow.0, reader.0, writer.0])?;
    }
    if added > 0 { jobs::refuse_cycles(db, workflow) } else { Ok(()) }
}

/// Notes that a field changes, if it does.
fn record_field_change<T: PartialEq + Serialize>(
    changes: &mut Vec<FieldChange>,
    field: &'static str,
    old: &T,
    new: &T,
) {
    if old != new {
        let value = |of: &T| serde_json::to_value(of).unwrap_or_default();
        changes.push(FieldChange { field: field.into(), old: value(old), new: value(new) });
    }
}

/// `name a → b, priority 0 → 5`.
fn render_changes(changes: &[FieldChange]) -> String {
    let mut text = String::new();
    for FieldChange { field, old, new } in changes {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _infallible = write!(text, "{comma}{field} {} → {}", render_value(old), render_value(new));
    }
    text
}

fn render_value(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => format!("`{text}`"),
        other => other.to_string(),
    }
}

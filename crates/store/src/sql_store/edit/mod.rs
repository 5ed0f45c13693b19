//! Manual edits of a workflow that does not run: [`jobs`] adds and changes jobs, [`delete`] deletes them,
//! [`data`] is for files, requirements, results and events.
//!
//! The caller holds the lock of the workflow, so that no process runs it. Jobs that workers held at a crash are
//! still held, and cannot be edited.

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

/// A held job was started with its old values.
pub(crate) fn refuse_held_jobs(db: &impl SqlConnection, workflow: WorkflowId) -> Result<(), SqlError> {
    match runs::load_status_counts(db, workflow)?.active() {
        0 => Ok(()),
        held => Err(StoreError::StillActive { workflow, held }.into()),
    }
}

/// Returns pairs of consumer and producer: a consumer of data depends on its producer.
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

/// Adds a field to the changes if its value differs.
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

/// For example `name a → b, priority 0 → 5`.
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

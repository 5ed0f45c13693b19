//! Inserts files and user data of a new workflow. Each of the two gets one block of ids.

use crate::StoreError;
use crate::db::{BulkLoader as _, SqlConnection, values};
use crate::error::SqlError;
use crate::model::JobSource;
use crate::sql::tables;
use crate::sql_store::column_decoding;
use windlass_types::{Timestamp, WorkflowId};

/// Returns their number.
pub(crate) fn insert_files(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    first: i64,
    source: &mut dyn JobSource,
) -> Result<i64, SqlError> {
    let mut rows = db.open_loader(&tables::FILE)?;
    let mut id = first;
    while let Some(file) = source.next_file() {
        let values = values![id, workflow.0, file.name, file.path, file.identifier, file.mtime_ns];
        rows.push(&values).map_err(|fault| duplicate_in_workflow(fault, "files", file.name))?;
        id += 1;
    }
    rows.finish().map_err(|fault| duplicate_in_workflow(fault, "files", "?"))?;
    Ok(id - first)
}

/// Returns their number.
pub(crate) fn insert_user_data(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    first: i64,
    source: &mut dyn JobSource,
    now: Timestamp,
) -> Result<i64, SqlError> {
    let mut rows = db.open_loader(&tables::USER_DATA)?;
    let mut id = first;
    while let Some(piece) = source.next_user_data() {
        let data = piece.data.map(column_decoding::render_json).transpose()?;
        let values = values![id, workflow.0, piece.name, data, i64::from(piece.is_ephemeral), now.0];
        rows.push(&values).map_err(|fault| duplicate_in_workflow(fault, "user data entries", piece.name))?;
        id += 1;
    }
    rows.finish().map_err(|fault| duplicate_in_workflow(fault, "user data entries", "?"))?;
    Ok(id - first)
}

/// The error for a duplicate name in a workflow.
///
/// If many rows were sent together, only the database knows which one it was.
pub(crate) fn duplicate_in_workflow(fault: SqlError, what: &'static str, name: &str) -> SqlError {
    if !fault.is_duplicate() {
        return fault;
    }
    let name = fault.duplicate_name().unwrap_or_else(|| name.to_owned());
    StoreError::DuplicateName { what: what.into(), name }.into()
}

/// The same for names that are not in a workflow.
pub(crate) fn duplicate_name(fault: SqlError, what: &'static str, name: &str) -> SqlError {
    if fault.is_duplicate() {
        StoreError::NameTaken { what: what.into(), name: name.to_owned() }.into()
    } else {
        fault
    }
}

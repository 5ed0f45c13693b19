//! Files and user data of a new workflow, as they come. Each kind gets one block of ids.

use crate::Error;
use crate::error::Fault;
use crate::model::JobSource;
use crate::sql::common as sql;
use crate::sqlite::column;
use rusqlite::{Connection, params};
use windlass_types::{Timestamp, WorkflowId};

/// How many there were.
pub(crate) fn insert_files(
    conn: &Connection,
    workflow: WorkflowId,
    first: i64,
    source: &mut dyn JobSource,
) -> Result<i64, Fault> {
    let mut statement = conn.prepare(sql::INSERT_FILE)?;
    let mut id = first;
    while let Some(file) = source.next_file() {
        let values = params![id, workflow.0, file.name, file.path, file.identifier, file.mtime_ns];
        statement.execute(values).map_err(|error| taken(error, "files", file.name))?;
        id += 1;
    }
    Ok(id - first)
}

/// How many there were.
pub(crate) fn insert_user_data(
    conn: &Connection,
    workflow: WorkflowId,
    first: i64,
    source: &mut dyn JobSource,
    now: Timestamp,
) -> Result<i64, Fault> {
    let mut statement = conn.prepare(sql::INSERT_USER_DATA)?;
    let mut id = first;
    while let Some(piece) = source.next_user_data() {
        let data = piece.data.map(column::json_text).transpose()?;
        let values = params![id, workflow.0, piece.name, data, i64::from(piece.is_ephemeral), now.0];
        statement.execute(values).map_err(|error| taken(error, "pieces of user data", piece.name))?;
        id += 1;
    }
    Ok(id - first)
}

/// A name that another one of the workflow has.
pub(crate) fn taken(error: rusqlite::Error, what: &'static str, name: &str) -> Fault {
    if error.sqlite_extended_error_code() == Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE) {
        return Error::DuplicateName { what, name: name.to_owned() }.into();
    }
    error.into()
}

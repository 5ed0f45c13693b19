//! Files and user data of a new workflow, as they come. Each kind gets one block of ids.

use crate::Error;
use crate::books::column;
use crate::db::{Db, Loader as _, values};
use crate::error::Fault;
use crate::model::JobSource;
use crate::sql::tables;
use windlass_types::{Timestamp, WorkflowId};

/// How many there were.
pub(crate) fn insert_files(
    db: &impl Db,
    workflow: WorkflowId,
    first: i64,
    source: &mut dyn JobSource,
) -> Result<i64, Fault> {
    let mut rows = db.load_into(&tables::FILE)?;
    let mut id = first;
    while let Some(file) = source.next_file() {
        let values = values![id, workflow.0, file.name, file.path, file.identifier, file.mtime_ns];
        rows.push(&values).map_err(|fault| taken(fault, "files", file.name))?;
        id += 1;
    }
    rows.finish().map_err(|fault| taken(fault, "files", "?"))?;
    Ok(id - first)
}

/// How many there were.
pub(crate) fn insert_user_data(
    db: &impl Db,
    workflow: WorkflowId,
    first: i64,
    source: &mut dyn JobSource,
    now: Timestamp,
) -> Result<i64, Fault> {
    let mut rows = db.load_into(&tables::USER_DATA)?;
    let mut id = first;
    while let Some(piece) = source.next_user_data() {
        let data = piece.data.map(column::json_text).transpose()?;
        let values = values![id, workflow.0, piece.name, data, i64::from(piece.is_ephemeral), now.0];
        rows.push(&values).map_err(|fault| taken(fault, "pieces of user data", piece.name))?;
        id += 1;
    }
    rows.finish().map_err(|fault| taken(fault, "pieces of user data", "?"))?;
    Ok(id - first)
}

/// A name that another one of the workflow has.
///
/// Of many rows that were sent together the database knows better than we which one it was.
pub(crate) fn taken(fault: Fault, what: &'static str, name: &str) -> Fault {
    if !fault.is_taken() {
        return fault;
    }
    let name = fault.taken_name().unwrap_or_else(|| name.to_owned());
    Error::DuplicateName { what: what.into(), name }.into()
}

/// The same for what is not of a workflow.
pub(crate) fn name_taken(fault: Fault, what: &'static str, name: &str) -> Fault {
    if fault.is_taken() {
        Error::NameTaken { what: what.into(), name: name.to_owned() }.into()
    } else {
        fault
    }
}

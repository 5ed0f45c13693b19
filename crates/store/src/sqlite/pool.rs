//! Connections for reading. Readers never wait for the writer, and not for each other either: when none is free, another
//! one is opened.

use super::open::{self, Access};
use crate::Error;
use crate::error::Fault;
use crate::sql::sqlite as sql;
use rusqlite::Connection;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Kept open for the next reader.
const KEPT: usize = 2;

#[derive(Debug)]
pub(crate) struct ReadPool {
    db: Arc<Path>,
    access: Access,
    free: Mutex<Vec<Connection>>,
}

impl ReadPool {
    pub(crate) fn new(db: Arc<Path>, access: Access, first: Connection) -> Self {
        Self { db, access, free: Mutex::new(vec![first]) }
    }

    /// Runs `query` in one read transaction, so that all of it sees the same state.
    pub(crate) fn read<T>(&self, query: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Error> {
        self.read_or_fault(query).map_err(|fault| fault.explain(&self.db))
    }

    /// Closes what is open; the last connection to a database tidies up behind itself.
    pub(crate) fn clear(&self) {
        self.free().clear();
    }

    fn read_or_fault<T>(&self, query: impl FnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        let free = self.free().pop();
        let conn = match free {
            Some(conn) => conn,
            None => open::reader(&self.db, self.access)?,
        };
        conn.prepare_cached(sql::BEGIN_READ)?.execute([])?;
        // On an error the connection is closed, which ends the transaction.
        let value = query(&conn)?;
        conn.prepare_cached(sql::COMMIT)?.execute([])?;
        let mut free = self.free();
        if free.len() < KEPT {
            free.push(conn);
        }
        Ok(value)
    }

    /// A list of idle connections is whole whatever happened to the thread that used it last.
    fn free(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

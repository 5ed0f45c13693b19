//! Connections for reading. Readers never wait for the writer or for each other: if no connection is idle,
//! another one is opened.

use super::open::{self, ReadAccess};
use crate::StoreError;
use crate::error::SqlError;
use crate::sql::sqlite as sql;
use rusqlite::Connection;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Idle connections.
const MAX_IDLE_READERS: usize = 2;

#[derive(Debug)]
pub(crate) struct ReadPool {
    db: Arc<Path>,
    access: ReadAccess,
    idle: Mutex<Vec<Connection>>,
}

impl ReadPool {
    pub(crate) fn new(db: Arc<Path>, access: ReadAccess, first: Connection) -> Self {
        Self { db, access, idle: Mutex::new(vec![first]) }
    }

    /// Runs `query` in one read transaction, so that all of it sees the same snapshot.
    pub(crate) fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, SqlError>,
    ) -> Result<T, StoreError> {
        self.read_raw(query).map_err(|fault| fault.into_store_error(&self.db))
    }

    /// Closes idle connections; the last connection to a database cleans up.
    pub(crate) fn close_idle(&self) {
        self.idle_connections().clear();
    }

    fn read_raw<T>(&self, query: impl FnOnce(&Connection) -> Result<T, SqlError>) -> Result<T, SqlError> {
        let free = self.idle_connections().pop();
        let conn = match free {
            Some(conn) => conn,
            None => open::open_reader(&self.db, self.access)?,
        };
        conn.prepare_cached(sql::BEGIN_READ)?.execute([])?;
        // On an error the connection is closed, which ends the transaction.
        let value = query(&conn)?;
        conn.prepare_cached(sql::COMMIT)?.execute([])?;
        let mut free = self.idle_connections();
        if free.len() < MAX_IDLE_READERS {
            free.push(conn);
        }
        Ok(value)
    }

    /// A list of idle connections stays valid even if a thread panicked while it held the lock.
    fn idle_connections(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

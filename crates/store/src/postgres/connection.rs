//! One connection to PostgreSQL: implements the database interface of the store, and transactions.
//!
//! The next transaction reconnects after a lost connection. If it is lost during a commit, the result is
//! unknown; the status of the transaction is then queried by its id, and confirmed by a marker in the database.

use super::batch_pipeline::{BatchPipeline, rewrite_for_many_rows};
use super::connect::{PgTarget, block_on};
use super::copy_loader::{CopyLoader, insert_jobs};
use super::pg_error::PgError;
use super::value::SqlParameter;
use crate::StoreError;
use crate::db::{BulkTable, JobChunk, SqlConnection, SqlRow, SqlValue, StatementPipeline};
use crate::error::SqlError;
use crate::sql::common::RowLookup;
use crate::sql::postgres as sql;
use crate::writer::{MaintenanceUrgency, WriteSession};
use futures_util::StreamExt as _;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, RowStream, Statement};
use windlass_types::SystemClock;

/// Rows that are fetched at once.
const ROWS_PER_FETCH: usize = 1000;
/// Time after which an unknown commit result is reported.
const IN_DOUBT_TIMEOUT: Duration = Duration::from_secs(20);
const IN_DOUBT_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Commit markers of connections that have not written for this long are deleted.
const MARKER_LIFETIME: Duration = Duration::from_hours(24);
/// A transaction that is still active this long after its connection was lost has not received the commit.
const ABANDONED_AFTER: Duration = Duration::from_secs(3);

/// State shared by the connections of one store.
#[derive(Debug)]
pub(crate) struct PgStoreState {
    pub(super) target: PgTarget,
    /// The epoch in which this store may write as the server; 0: not a server.
    pub(super) epoch: AtomicI64,
    /// Number of transactions that this store has committed.
    pub(super) commits: AtomicI64,
}

/// One connection, used by one thread at a time.
pub(crate) struct PgConnection {
    pub(super) store_state: Arc<PgStoreState>,
    client: RefCell<Option<Arc<Client>>>,
    prepared: RefCell<HashMap<String, Statement>>,
    prepared_for_many: RefCell<HashMap<&'static str, Option<Statement>>>,
    in_transaction: Cell<bool>,
    /// A read transaction begins with its first statement.
    is_begin_pending: Cell<bool>,
    /// Id of the write transaction.
    transaction_id: RefCell<String>,
    /// Process id of the PostgreSQL backend.
    backend_pid: Cell<i64>,
    /// The name of this connection's commit marker, and its value in the current transaction: a time in
    /// microseconds, later in each transaction.
    marker_name: String,
    marker: Cell<i64>,
}

impl fmt::Debug for PgConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgConnection").field("place", &self.store_state.target).finish_non_exhaustive()
    }
}

impl PgConnection {
    /// Connects on first use.
    pub(super) fn new(store_state: Arc<PgStoreState>) -> Self {
        Self {
            store_state,
            client: RefCell::default(),
            prepared: RefCell::default(),
            prepared_for_many: RefCell::default(),
            in_transaction: Cell::new(false),
            is_begin_pending: Cell::new(false),
            transaction_id: RefCell::default(),
            backend_pid: Cell::new(0),
            marker_name: uuid::Uuid::new_v4().simple().to_string(),
            marker: Cell::new(0),
        }
    }

    /// Returns the connection; reconnects if it was lost.
    pub(super) fn connect(&self) -> Result<Arc<Client>, SqlError> {
        if let Some(client) = self.client.borrow().as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        self.in_transaction.set(false);
        self.prepared.borrow_mut().clear();
        self.prepared_for_many.borrow_mut().clear();
        let client = Arc::new(self.store_state.target.connect()?);
        *self.client.borrow_mut() = Some(Arc::clone(&client));
        Ok(client)
    }

    /// Returns the current connection: a transaction must not continue on another one.
    pub(super) fn client(&self) -> Result<Arc<Client>, SqlError> {
        let client = self.client.borrow().clone();
        let lost = || SqlError::Postgres(PgError::unreachable("the connection was lost"));
        client.filter(|client| !client.is_closed()).ok_or_else(lost)
    }

    pub(super) fn is_connection_lost(&self) -> bool {
        self.client.borrow().as_ref().is_none_or(|client| client.is_closed())
    }

    /// Closes the connection and rolls back what is active on it.
    pub(super) fn close(&self) {
        self.in_transaction.set(false);
        *self.client.borrow_mut() = None;
    }

    pub(super) fn run_statement(&self, sql: &str) -> Result<(), SqlError> {
        let client = self.client()?;
        Ok(block_on(client.batch_execute(sql))??)
    }

    /// Sends a statement without waiting for its result; if it fails, all later ones fail too.
    fn send_without_waiting(&self, sql: &str) -> Result<(), SqlError> {
        let client = self.client()?;
        match block_on(async { poll_once(Box::pin(client.batch_execute(sql)).as_mut()).await })? {
            Some(answer) => Ok(answer?),
            None => Ok(()),
        }
    }

    /// For display, without the password.
    pub(crate) fn url(&self) -> &str {
        &self.store_state.target.url
    }

    /// For tables known by name only.
    pub(crate) fn open_copy(&self, table: &str, columns: &[&str]) -> CopyLoader<'_> {
        CopyLoader::new(self, table, columns)
    }

    pub(super) fn prepare_cached(&self, client: &Client, sql: &str) -> Result<Statement, SqlError> {
        if let Some(statement) = self.prepared.borrow().get(sql) {
            return Ok(statement.clone());
        }
        let statement = block_on(client.prepare(sql))??;
        self.prepared.borrow_mut().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Prepares the variant of `sql` for many rows, if there is one.
    pub(super) fn prepare_cached_for_many(
        &self,
        client: &Client,
        sql: &'static str,
    ) -> Result<Option<Statement>, SqlError> {
        if let Some(known) = self.prepared_for_many.borrow().get(sql) {
            return Ok(known.clone());
        }
        let text = rewrite_for_many_rows(sql, self.prepare_cached(client, sql)?.params());
        let statement = text.map(|text| self.prepare_cached(client, &text)).transpose()?;
        self.prepared_for_many.borrow_mut().insert(sql, statement.clone());
        Ok(statement)
    }

    /// Begins a snapshot for reads. Nothing is sent yet: the begin goes with the first statement.
    pub(super) fn begin_reading(&self) -> Result<(), SqlError> {
        self.connect()?;
        self.is_begin_pending.set(true);
        self.in_transaction.set(true);
        Ok(())
    }

    /// Ends the snapshot without waiting for the result.
    pub(super) fn end_reading(&self) {
        let was_begun = self.in_transaction.replace(false) && !self.is_begin_pending.replace(false);
        if was_begun {
            // The next read detects a lost connection.
            self.send_without_waiting(sql::ROLLBACK).unwrap_or_default();
        }
    }

    /// Executes a query, together with a pending begin.
    fn query_rows(
        &self,
        sql: &str,
        is_kept: bool,
        values: &[impl ToSql + Sync],
    ) -> Result<RowStream, SqlError> {
        let is_first = self.is_begin_pending.replace(false);
        let asked = self.try_query_rows(sql, is_kept, values, is_first);
        match asked {
            // An idle connection may have been lost unnoticed. Nothing was done on it yet, so a retry is safe.
            Err(fault) if is_first && fault.is_connection_lost() => {
                self.close();
                self.connect()?;
                self.in_transaction.set(true);
                self.try_query_rows(sql, is_kept, values, true)
            }
            other => other,
        }
    }

    fn try_query_rows(
        &self,
        sql: &str,
        is_kept: bool,
        values: &[impl ToSql + Sync],
        is_first: bool,
    ) -> Result<RowStream, SqlError> {
        let client = self.client()?;
        let statement =
            if is_kept { self.prepare_cached(&client, sql)? } else { block_on(client.prepare(sql))?? };
        let rows = block_on(async {
            let mut begin = Box::pin(client.batch_execute(sql::BEGIN_READ));
            let begun = if is_first { poll_once(begin.as_mut()).await } else { Some(Ok(())) };
            let mut rows = Box::pin(client.query_raw(&statement, values));
            let answer = poll_once(rows.as_mut()).await;
            await_result(begin, begun).await?;
            await_result(rows, answer).await
        })??;
        Ok(rows)
    }

    /// Executes one statement with keys of the type `ty`.
    fn query_each_key(
        &self,
        sql: &str,
        ty: &str,
        keys: Vec<SqlValue<'_>>,
        mut each: impl FnMut(usize, &SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        if let [key] = keys.as_slice() {
            return self.query_each_value(sql, &[*key], |row| each(0, row));
        }
        let rows = self.query_rows(&rewrite_for_each_key(sql, ty), true, &[SqlParameter::Many(keys)])?;
        for_each_row(rows, |row| {
            // Counted from 1, in the last column.
            let place: i64 = row.get(row.column_count() - 1)?;
            each(usize::try_from(place - 1).unwrap_or_default(), row)
        })
    }

    /// The same for a write transaction.
    fn reconnect_and_retry(
        &self,
        fault: SqlError,
        work: impl FnOnce() -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        if !fault.is_connection_lost() {
            return Err(fault);
        }
        self.close();
        self.connect()?;
        work()
    }

    /// If the begin fails, PostgreSQL may still be in a transaction and reject everything that follows, or hold
    /// the write lock: the connection is closed.
    fn begin_writing(&self) -> Result<(), SqlError> {
        self.begin_write_transaction().inspect_err(|_| self.close())
    }

    /// In one round trip: begins, waits for other writers, and reads which server may write.
    fn begin_write_transaction(&self) -> Result<(), SqlError> {
        let client = self.connect()?;
        let lock = self.prepare_cached(&client, sql::WAIT_TO_WRITE)?;
        let count = self.prepare_cached(&client, sql::COUNT_COMMIT)?;
        let writing = self.prepare_cached(&client, sql::TRANSACTION_INFO)?;
        let key = SqlValue::Int(super::lock::WRITE_LOCK_KEY);
        self.marker.set(SystemClock.now().0.max(self.marker.get() + 1));
        let row = block_on(async {
            let mut begin = Box::pin(client.batch_execute(sql::BEGIN_WRITE));
            let mut lock = Box::pin(client.execute_raw(&lock, [key]));
            let mut count = Box::pin(client.execute_raw(&count, self.marker_values()));
            let mut writing = Box::pin(client.query_one(&writing, &[]));
            let begun = poll_once(begin.as_mut()).await;
            let locked = poll_once(lock.as_mut()).await;
            let counted = poll_once(count.as_mut()).await;
            let written = poll_once(writing.as_mut()).await;
            await_result(begin, begun).await?;
            await_result(lock, locked).await?;
            await_result(count, counted).await?;
            await_result(writing, written).await
        })??;
        self.in_transaction.set(true);
        let row = SqlRow::Postgres(&row);
        *self.transaction_id.borrow_mut() = row.get(0)?;
        let epoch: i64 = row.get(1)?;
        self.backend_pid.set(row.get(2)?);
        match self.store_state.epoch.load(Ordering::Acquire) {
            0 => Ok(()),
            own if own == epoch => Ok(()),
            _ => Err(StoreError::Superseded { url: self.store_state.target.url.clone() }.into()),
        }
    }

    /// The name and the value of the commit marker.
    fn marker_values(&self) -> [SqlValue<'_>; 2] {
        [SqlValue::Text(&self.marker_name), SqlValue::Int(self.marker.get())]
    }

    /// Deletes the commit markers of connections that are closed.
    pub(super) fn delete_old_markers(&self) -> Result<(), SqlError> {
        let lifetime = i64::try_from(MARKER_LIFETIME.as_micros()).unwrap_or(i64::MAX);
        self.execute(sql::DELETE_OLD_MARKERS, [SystemClock.now().0 - lifetime])?;
        Ok(())
    }

    /// Returns the status of the transaction whose commit lost its connection.
    fn resolve_in_doubt_commit(&self, fault: SqlError) -> Result<(), SqlError> {
        let number = self.transaction_id.borrow().clone();
        let since = Instant::now();
        self.close();
        while since.elapsed() < IN_DOUBT_TIMEOUT {
            match self.query_transaction_status(&number) {
                Ok(Some(became)) if became == "committed" => match self.is_commit_marked() {
                    Ok(true) => return Ok(()),
                    // It was lost in a crash of the database, and another transaction has its id.
                    Ok(false) => return Err(fault),
                    Err(SqlError::Postgres(_)) => std::thread::sleep(IN_DOUBT_POLL_INTERVAL),
                    Err(other) => return Err(other),
                },
                Ok(Some(became)) if became == "aborted" => return Err(fault),
                Ok(Some(_)) if since.elapsed() > ABANDONED_AFTER => self.terminate_abandoned_backend()?,
                // Still committing, or still unreachable.
                Ok(_) | Err(SqlError::Postgres(_)) => std::thread::sleep(IN_DOUBT_POLL_INTERVAL),
                Err(other) => return Err(other),
            }
        }
        Err(StoreError::InDoubt { url: self.store_state.target.url.clone() }.into())
    }

    /// Terminates the backend of the lost connection, which rolls back what is not committed.
    fn terminate_abandoned_backend(&self) -> Result<(), SqlError> {
        let (tag, backend) =
            (SqlValue::Text(&self.store_state.target.tag), SqlValue::Int(self.backend_pid.get()));
        match self.execute_values(sql::END_SESSION, &[tag, backend]) {
            // The result is verified anyway.
            Ok(_) | Err(SqlError::Postgres(_)) => std::thread::sleep(IN_DOUBT_POLL_INTERVAL),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn is_commit_marked(&self) -> Result<bool, SqlError> {
        self.connect()?;
        let mut is_marked = false;
        self.query_each_value(sql::IS_COMMIT_MARKED, &self.marker_values(), |_| {
            is_marked = true;
            Ok(())
        })?;
        Ok(is_marked)
    }

    fn query_transaction_status(&self, number: &str) -> Result<Option<String>, SqlError> {
        self.connect()?;
        self.query_one(sql::TRANSACTION_STATUS, [number], |row| row.get(0))
    }
}

type PgResult<T> = Result<T, tokio_postgres::Error>;

/// Sends the statement, because futures of the library do so on the first poll. Returns the result if it is
/// already there.
pub(super) async fn poll_once<T>(
    mut future: Pin<&mut (impl Future<Output = PgResult<T>> + ?Sized)>,
) -> Option<PgResult<T>> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

pub(super) async fn await_result<T>(
    future: Pin<Box<impl Future<Output = PgResult<T>> + ?Sized>>,
    answer: Option<PgResult<T>>,
) -> PgResult<T> {
    match answer {
        Some(answer) => answer,
        None => future.await,
    }
}

impl SqlConnection for PgConnection {
    type Loader<'d> = CopyLoader<'d>;

    const JOBS_PER_INSERT: usize = 2000;
    const ORDERED_SCAN: RowLookup = RowLookup::Span;

    fn execute_values(&self, sql: &str, values: &[SqlValue<'_>]) -> Result<usize, SqlError> {
        let client = self.client()?;
        let statement = self.prepare_cached(&client, sql)?;
        let touched = block_on(client.execute_raw(&statement, values.iter().copied()))??;
        Ok(usize::try_from(touched).unwrap_or(usize::MAX))
    }

    fn query_each_value(
        &self,
        sql: &str,
        values: &[SqlValue<'_>],
        each: impl FnMut(&SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        for_each_row(self.query_rows(sql, true, values)?, each)
    }

    fn for_each_unprepared(
        &self,
        sql: &str,
        values: &[SqlValue<'_>],
        each: impl FnMut(&SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        for_each_row(self.query_rows(sql, false, values)?, each)
    }

    fn for_each_key(
        &self,
        sql: &'static str,
        keys: &[i64],
        each: impl FnMut(usize, &SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.query_each_key(sql, "bigint", keys.iter().map(|key| SqlValue::Int(*key)).collect(), each)
    }

    fn for_each_text_key(
        &self,
        sql: &'static str,
        keys: &[&str],
        each: impl FnMut(usize, &SqlRow<'_>) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        self.query_each_key(sql, "text", keys.iter().map(|key| SqlValue::Text(key)).collect(), each)
    }

    fn pipeline(
        &self,
        fill: impl FnOnce(&mut dyn StatementPipeline) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut gathered = BatchPipeline::new(self);
        fill(&mut gathered)?;
        gathered.send_all()
    }

    fn open_loader(&self, table: &'static BulkTable) -> Result<CopyLoader<'_>, SqlError> {
        Ok(CopyLoader::new(self, table.name, table.columns))
    }

    fn insert_jobs(&self, jobs: &JobChunk<'_>) -> Result<(), SqlError> {
        insert_jobs(self, jobs)
    }
}

/// Rewrites a query for one id (`$1`) to one for a list of ids. The form makes PostgreSQL look up each by its
/// key, regardless of the assumed size of the table.
fn rewrite_for_each_key(sql: &str, ty: &str) -> String {
    let question = sql.replace("$1", "asked.id");
    format!(
        "SELECT found.*, asked.place FROM unnest($1::{ty}[]) WITH ORDINALITY AS asked(id, place)
         CROSS JOIN LATERAL ({question} OFFSET 0) AS found ORDER BY asked.place"
    )
}

fn for_each_row(
    rows: RowStream,
    mut each: impl FnMut(&SqlRow<'_>) -> Result<(), SqlError>,
) -> Result<(), SqlError> {
    let mut chunks = Box::pin(rows.ready_chunks(ROWS_PER_FETCH));
    while let Some(chunk) = block_on(chunks.next())? {
        for row in chunk {
            each(&SqlRow::Postgres(&row?))?;
        }
    }
    Ok(())
}

impl WriteSession for PgConnection {
    const IS_LOCAL: bool = false;

    type Db = Self;

    fn db(&self) -> &Self {
        self
    }

    fn begin(&self) -> Result<(), SqlError> {
        self.begin_writing().or_else(|fault| self.reconnect_and_retry(fault, || self.begin_writing()))
    }

    fn commit(&self) -> Result<(), SqlError> {
        let committed = self.run_statement(sql::COMMIT);
        self.in_transaction.set(false);
        match committed {
            Err(fault) if fault.is_connection_lost() => self.resolve_in_doubt_commit(fault)?,
            other => other?,
        }
        self.store_state.commits.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn rollback(&self) {
        if self.in_transaction.replace(false) && self.run_statement(sql::ROLLBACK).is_err() {
            self.close();
        }
    }

    fn has_lost_transaction(&self) -> bool {
        self.is_connection_lost()
    }

    fn begin_savepoint(&self) -> Result<(), SqlError> {
        self.send_without_waiting(sql::BEGIN_SAVEPOINT)
    }

    fn release_savepoint(&self) -> Result<(), SqlError> {
        self.send_without_waiting(sql::RELEASE_SAVEPOINT)
    }

    fn rollback_savepoint(&self) -> Result<(), SqlError> {
        self.run_statement(sql::ROLLBACK_SAVEPOINT)
    }

    fn explain_error(&self, fault: SqlError) -> StoreError {
        fault.into_store_error_at(&self.store_state.target.url)
    }

    /// PostgreSQL manages its log itself.
    fn maintenance_need(&self) -> MaintenanceUrgency {
        MaintenanceUrgency::NotNeeded
    }

    fn run_maintenance(&self) {}
}

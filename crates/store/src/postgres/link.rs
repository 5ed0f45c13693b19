//! One connection to PostgreSQL: how it does what the books ask of a database, and its transactions.
//!
//! A connection that was lost is made anew by the next transaction. One that is lost while it commits leaves a doubt,
//! which is settled by asking what became of the transaction, by its number.

use super::connect::{Place, wait};
use super::copy::{Copying, insert_jobs};
use super::fault::Failure;
use super::gather::{Gathered, for_many};
use super::value::Parameter;
use crate::Error;
use crate::db::{Db, JobChunk, Pipeline, Row, Table, Value, values};
use crate::error::Fault;
use crate::sql::common::From;
use crate::sql::postgres as sql;
use crate::writer::Session;
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

/// Rows that are handed on at once.
const ROWS_AT_ONCE: usize = 1000;
/// How long a doubt may last before it is told.
const DOUBT: Duration = Duration::from_secs(20);
const DOUBT_PAUSE: Duration = Duration::from_millis(100);
/// A transaction that is under way for so long after its connection was lost waits for words that went nowhere.
const UNDER_WAY: Duration = Duration::from_secs(3);

/// What the connections of one store have in common.
#[derive(Debug)]
pub(crate) struct Common {
    pub(super) place: Place,
    /// The epoch in which this store may write as the server; 0: it is no server.
    pub(super) epoch: AtomicI64,
    /// Transactions that this store has committed.
    pub(super) commits: AtomicI64,
}

/// One connection, used by one thread at a time.
pub(crate) struct Link {
    pub(super) common: Arc<Common>,
    client: RefCell<Option<Arc<Client>>>,
    prepared: RefCell<HashMap<String, Statement>>,
    for_many: RefCell<HashMap<&'static str, Option<Statement>>>,
    in_transaction: Cell<bool>,
    /// A transaction that reads is to begin with its first statement.
    is_fresh: Cell<bool>,
    /// The number of the transaction that writes.
    number: RefCell<String>,
    /// Who works on it, in PostgreSQL.
    backend: Cell<i64>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("place", &self.common.place).finish_non_exhaustive()
    }
}

impl Link {
    /// Connects when it is first needed.
    pub(super) fn new(common: Arc<Common>) -> Self {
        Self {
            common,
            client: RefCell::default(),
            prepared: RefCell::default(),
            for_many: RefCell::default(),
            in_transaction: Cell::new(false),
            is_fresh: Cell::new(false),
            number: RefCell::default(),
            backend: Cell::new(0),
        }
    }

    /// The connection, made anew if it was lost.
    pub(super) fn connect(&self) -> Result<Arc<Client>, Fault> {
        if let Some(client) = self.client.borrow().as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        self.in_transaction.set(false);
        self.prepared.borrow_mut().clear();
        self.for_many.borrow_mut().clear();
        let client = Arc::new(self.common.place.connect()?);
        *self.client.borrow_mut() = Some(Arc::clone(&client));
        Ok(client)
    }

    /// The connection as it is: what was begun on it must not go on on another one.
    pub(super) fn client(&self) -> Result<Arc<Client>, Fault> {
        let client = self.client.borrow().clone();
        let lost = || Fault::Postgres(Failure::unreachable("the connection was lost"));
        client.filter(|client| !client.is_closed()).ok_or_else(lost)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.client.borrow().as_ref().is_none_or(|client| client.is_closed())
    }

    /// Ends the connection and with it all that is under way on it.
    pub(super) fn hang_up(&self) {
        self.in_transaction.set(false);
        *self.client.borrow_mut() = None;
    }

    pub(super) fn run(&self, sql: &str) -> Result<(), Fault> {
        let client = self.client()?;
        Ok(wait(client.batch_execute(sql))??)
    }

    /// Sends what can fail only if all that comes after it does as well: nobody waits for the answer.
    fn say(&self, sql: &str) -> Result<(), Fault> {
        let client = self.client()?;
        match wait(async { start(Box::pin(client.batch_execute(sql)).as_mut()).await })? {
            Some(answer) => Ok(answer?),
            None => Ok(()),
        }
    }

    /// To be shown: it holds no password.
    pub(crate) fn url(&self) -> &str {
        &self.common.place.url
    }

    /// For tables that are known by name only.
    pub(crate) fn copy_into(&self, table: &str, columns: &[&str]) -> Copying<'_> {
        Copying::new(self, table, columns)
    }

    pub(super) fn prepared(&self, client: &Client, sql: &str) -> Result<Statement, Fault> {
        if let Some(statement) = self.prepared.borrow().get(sql) {
            return Ok(statement.clone());
        }
        let statement = wait(client.prepare(sql))??;
        self.prepared.borrow_mut().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// For many rows at once what `sql` is for one, if there is such a thing.
    pub(super) fn prepared_for_many(
        &self,
        client: &Client,
        sql: &'static str,
    ) -> Result<Option<Statement>, Fault> {
        if let Some(known) = self.for_many.borrow().get(sql) {
            return Ok(known.clone());
        }
        let text = for_many(sql, self.prepared(client, sql)?.params());
        let statement = text.map(|text| self.prepared(client, &text)).transpose()?;
        self.for_many.borrow_mut().insert(sql, statement.clone());
        Ok(statement)
    }

    /// What is read from here on is of one moment. Nobody is asked yet: that goes with the first statement.
    pub(super) fn begin_reading(&self) -> Result<(), Fault> {
        self.connect()?;
        self.is_fresh.set(true);
        self.in_transaction.set(true);
        Ok(())
    }

    /// Ends what was read. Nobody has to wait for that.
    pub(super) fn end_reading(&self) {
        let was_begun = self.in_transaction.replace(false) && !self.is_fresh.replace(false);
        if was_begun {
            // The next one who reads finds out if the connection is lost.
            self.say(sql::ROLLBACK).unwrap_or_default();
        }
    }

    /// Asks, and begins the transaction in the same breath if that is still to be done.
    fn ask(&self, sql: &str, is_kept: bool, values: &[impl ToSql + Sync]) -> Result<RowStream, Fault> {
        let is_first = self.is_fresh.replace(false);
        let asked = self.try_asking(sql, is_kept, values, is_first);
        match asked {
            // A connection that was idle may have been lost without anybody noticing. Nothing was done on it yet.
            Err(fault) if is_first && fault.is_lost() => {
                self.hang_up();
                self.connect()?;
                self.in_transaction.set(true);
                self.try_asking(sql, is_kept, values, true)
            }
            other => other,
        }
    }

    fn try_asking(
        &self,
        sql: &str,
        is_kept: bool,
        values: &[impl ToSql + Sync],
        is_first: bool,
    ) -> Result<RowStream, Fault> {
        let client = self.client()?;
        let statement = if is_kept { self.prepared(&client, sql)? } else { wait(client.prepare(sql))?? };
        let rows = wait(async {
            let mut begin = Box::pin(client.batch_execute(sql::BEGIN_READ));
            let begun = if is_first { start(begin.as_mut()).await } else { Some(Ok(())) };
            let mut rows = Box::pin(client.query_raw(&statement, values));
            let answer = start(rows.as_mut()).await;
            finish(begin, begun).await?;
            finish(rows, answer).await
        })??;
        Ok(rows)
    }

    /// As one statement, whose keys are of the type `ty`.
    fn ask_about_each(
        &self,
        sql: &str,
        ty: &str,
        keys: Vec<Value<'_>>,
        mut each: impl FnMut(usize, &Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if let [key] = keys.as_slice() {
            return self.for_each_value(sql, &[*key], |row| each(0, row));
        }
        let rows = self.ask(&about_each(sql, ty), true, &[Parameter::Many(keys)])?;
        for_each(rows, |row| {
            // Counted from 1, in the last column.
            let place: i64 = row.get(row.width() - 1)?;
            each(usize::try_from(place - 1).unwrap_or_default(), row)
        })
    }

    /// The same for a transaction that writes.
    fn again(&self, fault: Fault, work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
        if !fault.is_lost() {
            return Err(fault);
        }
        self.hang_up();
        self.connect()?;
        work()
    }

    /// A transaction that did not begin as it should is none, but PostgreSQL may think that there is one and refuse all that
    /// comes after, or hold the lock for writing: it ends with its connection.
    fn begin_writing(&self) -> Result<(), Fault> {
        self.start_writing().inspect_err(|_| self.hang_up())
    }

    /// All in one go: begins, waits for other writers, and learns who may write.
    fn start_writing(&self) -> Result<(), Fault> {
        let client = self.connect()?;
        let lock = self.prepared(&client, sql::WAIT_TO_WRITE)?;
        let count = self.prepared(&client, sql::COUNT_COMMIT)?;
        let writing = self.prepared(&client, sql::WRITING)?;
        let key = Value::Int(super::lock::WRITE);
        let row = wait(async {
            let mut begin = Box::pin(client.batch_execute(sql::BEGIN_WRITE));
            let mut lock = Box::pin(client.execute_raw(&lock, [key]));
            let mut count = Box::pin(client.execute_raw(&count, values![]));
            let mut writing = Box::pin(client.query_one(&writing, &[]));
            let begun = start(begin.as_mut()).await;
            let locked = start(lock.as_mut()).await;
            let counted = start(count.as_mut()).await;
            let written = start(writing.as_mut()).await;
            finish(begin, begun).await?;
            finish(lock, locked).await?;
            finish(count, counted).await?;
            finish(writing, written).await
        })??;
        self.in_transaction.set(true);
        let row = Row::Postgres(&row);
        *self.number.borrow_mut() = row.get(0)?;
        let epoch: i64 = row.get(1)?;
        self.backend.set(row.get(2)?);
        match self.common.epoch.load(Ordering::Acquire) {
            0 => Ok(()),
            own if own == epoch => Ok(()),
            _ => Err(Error::Superseded { url: self.common.place.url.clone() }.into()),
        }
    }

    /// What became of the transaction that was being committed when the connection was lost.
    fn settle_doubt(&self, fault: Fault) -> Result<(), Fault> {
        let number = self.number.borrow().clone();
        let since = Instant::now();
        self.hang_up();
        while since.elapsed() < DOUBT {
            match self.ask_what_became(&number) {
                Ok(Some(became)) if became == "committed" => return Ok(()),
                Ok(Some(became)) if became == "aborted" => return Err(fault),
                Ok(Some(_)) if since.elapsed() > UNDER_WAY => self.end_abandoned()?,
                // Still being committed, or nobody answers yet.
                Ok(_) | Err(Fault::Postgres(_)) => std::thread::sleep(DOUBT_PAUSE),
                Err(other) => return Err(other),
            }
        }
        Err(Error::InDoubt { url: self.common.place.url.clone() }.into())
    }

    /// Ends what is left of the connection on the other side, and with it what it has not committed.
    fn end_abandoned(&self) -> Result<(), Fault> {
        let (tag, backend) = (Value::Text(&self.common.place.tag), Value::Int(self.backend.get()));
        match self.execute_values(sql::END_SESSION, &[tag, backend]) {
            // Whether it is so is asked anyway.
            Ok(_) | Err(Fault::Postgres(_)) => std::thread::sleep(DOUBT_PAUSE),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn ask_what_became(&self, number: &str) -> Result<Option<String>, Fault> {
        self.connect()?;
        self.one(sql::WHAT_BECAME_OF, [number], |row| row.get(0))
    }
}

type Answer<T> = Result<T, tokio_postgres::Error>;

/// Sends the statement: a future of the library does so when it is first polled. Its answer, should it be there already.
pub(super) async fn start<T>(
    mut future: Pin<&mut (impl Future<Output = Answer<T>> + ?Sized)>,
) -> Option<Answer<T>> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

pub(super) async fn finish<T>(
    future: Pin<Box<impl Future<Output = Answer<T>> + ?Sized>>,
    answer: Option<Answer<T>>,
) -> Answer<T> {
    match answer {
        Some(answer) => answer,
        None => future.await,
    }
}

impl Db for Link {
    type Loader<'d> = Copying<'d>;

    const JOBS_AT_ONCE: usize = 2000;
    const IN_ORDER: From = From::Span;

    fn execute_values(&self, sql: &str, values: &[Value<'_>]) -> Result<usize, Fault> {
        let client = self.client()?;
        let statement = self.prepared(&client, sql)?;
        let touched = wait(client.execute_raw(&statement, values.iter().copied()))??;
        Ok(usize::try_from(touched).unwrap_or(usize::MAX))
    }

    fn for_each_value(
        &self,
        sql: &str,
        values: &[Value<'_>],
        each: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for_each(self.ask(sql, true, values)?, each)
    }

    fn for_each_once(
        &self,
        sql: &str,
        values: &[Value<'_>],
        each: impl FnMut(&Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        for_each(self.ask(sql, false, values)?, each)
    }

    fn for_each_of(
        &self,
        sql: &'static str,
        keys: &[i64],
        each: impl FnMut(usize, &Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.ask_about_each(sql, "bigint", keys.iter().map(|key| Value::Int(*key)).collect(), each)
    }

    fn for_each_named(
        &self,
        sql: &'static str,
        keys: &[&str],
        each: impl FnMut(usize, &Row<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.ask_about_each(sql, "text", keys.iter().map(|key| Value::Text(key)).collect(), each)
    }

    fn pipeline(&self, fill: impl FnOnce(&mut dyn Pipeline) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut gathered = Gathered::new(self);
        fill(&mut gathered)?;
        gathered.deliver()
    }

    fn load_into(&self, table: &'static Table) -> Result<Copying<'_>, Fault> {
        Ok(Copying::new(self, table.name, table.columns))
    }

    fn insert_jobs(&self, jobs: &JobChunk<'_>) -> Result<(), Fault> {
        insert_jobs(self, jobs)
    }
}

/// A question about one, whose number is `$1`, becomes one about each in a list. Each is looked up by its key, whatever
/// PostgreSQL thinks of the size of the table.
fn about_each(sql: &str, ty: &str) -> String {
    let question = sql.replace("$1", "asked.id");
    format!(
        "SELECT found.*, asked.place FROM unnest($1::{ty}[]) WITH ORDINALITY AS asked(id, place)
         CROSS JOIN LATERAL ({question} OFFSET 0) AS found ORDER BY asked.place"
    )
}

fn for_each(rows: RowStream, mut each: impl FnMut(&Row<'_>) -> Result<(), Fault>) -> Result<(), Fault> {
    let mut chunks = Box::pin(rows.ready_chunks(ROWS_AT_ONCE));
    while let Some(chunk) = wait(chunks.next())? {
        for row in chunk {
            each(&Row::Postgres(&row?))?;
        }
    }
    Ok(())
}

impl Session for Link {
    const IS_NEAR: bool = false;

    type Db = Self;

    fn db(&self) -> &Self {
        self
    }

    fn begin(&self) -> Result<(), Fault> {
        self.begin_writing().or_else(|fault| self.again(fault, || self.begin_writing()))
    }

    fn commit(&self) -> Result<(), Fault> {
        let committed = self.run(sql::COMMIT);
        self.in_transaction.set(false);
        match committed {
            Err(fault) if fault.is_lost() => self.settle_doubt(fault)?,
            other => other?,
        }
        self.common.commits.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn roll_back(&self) {
        if self.in_transaction.replace(false) && self.run(sql::ROLLBACK).is_err() {
            self.hang_up();
        }
    }

    fn has_lost_transaction(&self) -> bool {
        self.is_lost()
    }

    fn begin_request(&self) -> Result<(), Fault> {
        self.say(sql::BEGIN_REQUEST)
    }

    fn keep_request(&self) -> Result<(), Fault> {
        self.say(sql::KEEP_REQUEST)
    }

    fn undo_request(&self) -> Result<(), Fault> {
        self.run(sql::UNDO_REQUEST)
    }

    fn explain(&self, fault: Fault) -> Error {
        fault.explain_at(&self.common.place.url)
    }

    /// PostgreSQL sees to its log itself.
    fn is_untidy(&self) -> bool {
        false
    }

    fn tidy_up(&self) {}
}

//! A store whose books are elsewhere.

use super::access::MOST_IDS;
use super::create::Upload;
use super::error::ErrorOnWire;
use super::table::table;
use super::{GivenUserData, Request, read_answer};
use crate::lock::{Holder, Lock, LockGuard};
use crate::model::{
    ActionRow, AddJob, DataFilter, DecisionFilter, DecisionRow, EventFilter, EventRow, Export, ExportOptions,
    FailureFilter, FailureGroup, FailureRow, FieldChange, FileRow, FileUpdate, HandlerRow, HeldJob,
    ImportOptions, JobCommand, JobFileRow, JobFilter, JobRelations, JobRow, JobSource, JobUpdate,
    JobUserDataRow, KindRow, LastRecord, LoadedJobs, NewEvent, NewUserData, NewWorkflow, RequirementsChange,
    RequirementsRow, RequirementsUpdate, ResultFilter, ResultRow, RevisionFilter, RevisionRow, SchedulerRow,
    SpawnRequest, Spawned, UnitRow, UserDataRow, WishAnswer, WorkerRow, WorkflowRow, WorkflowUpdate,
};
use crate::{Batch, Done, Error, Location, Store};
use serde_json::Value;
use std::io::Read;
use std::sync::Arc;
use windlass_types::orders::{Outcome, Wanted};
use windlass_types::work::AttemptKey;
use windlass_types::{
    EventId, FileId, JobId, RequirementsId, Resources, ResultId, RunId, Timestamp, UnitCounts, UserDataId,
    WorkflowId,
};

/// The way to the books.
pub trait Transport: Send + Sync {
    /// Where it leads, for people.
    fn location(&self) -> Location;

    /// Brings a request there and the body of its answer back. `now` is for books that have no clock of their own.
    fn call(&self, request: &Request, now: Timestamp) -> Result<Vec<u8>, Error>;

    /// Brings the lines of a new workflow there, and the body of the answer back.
    fn create(&self, lines: Box<dyn Read + Send>, now: Timestamp) -> Result<Vec<u8>, Error>;

    /// The books themselves, where they are in this process: then an engine can work on them too.
    fn direct(&self) -> Option<&dyn Store> {
        None
    }
}

/// The books at the other end of a [`Transport`].
#[derive(Debug)]
pub struct Remote<T>(Arc<T>);

impl<T> Remote<T> {
    pub fn new(transport: T) -> Self {
        Self(Arc::new(transport))
    }

    pub fn transport(&self) -> &T {
        &self.0
    }
}

impl<T: Transport> Remote<T> {
    pub(super) fn direct(&self, what: &str) -> Result<&dyn Store, Error> {
        self.0.direct().ok_or_else(|| ErrorOnWire::not_offered(what).into())
    }
}

macro_rules! given_type {
    (val $type:ty) => { $type };
    (list $type:ty) => { &[$type] };
    (maybe $type:ty) => { Option<&$type> };
    (piece $type:ty) => { &NewUserData<'_> };
    ($how:ident $type:ty) => { &$type };
}

macro_rules! kept {
    (val $name:ident) => {
        $name
    };
    (text $name:ident) => {
        $name.to_owned()
    };
    (list $name:ident) => {
        $name.to_vec()
    };
    (maybe $name:ident) => {
        $name.cloned()
    };
    (piece $name:ident) => {
        GivenUserData::new($name)
    };
    (by $name:ident) => {
        $name.clone()
    };
}

/// Makes the methods of lines of the table.
macro_rules! methods {
    ($(
        $sort:ident $variant:ident = $method:ident($($arg:ident: $how:ident $type:ty),*) $(at $time:ident)?
            -> $answer:ty, of $subject:expr;
    )*) => {$(
        methods! { one $variant = $method($($arg: $how $type),*) $(at $time)? -> $answer }
    )*};
    (one $variant:ident = $method:ident($($arg:ident: $how:ident $type:ty),*) at $time:ident -> $answer:ty) => {
        fn $method(&self, $($arg: given_type!($how $type),)* now: $time) -> Result<$answer, Error> {
            read_answer(&self.transport().call(&Request::$variant { $($arg: kept!($how $arg)),* }, now)?)
        }
    };
    // A long list goes in several requests, each with as many ids as a server takes.
    (one $variant:ident = $method:ident($arg:ident: list $type:ty) -> $answer:ty) => {
        fn $method(&self, $arg: &[$type]) -> Result<$answer, Error> {
            let mut all: $answer = Vec::new();
            for part in $arg.chunks(MOST_IDS) {
                let request = Request::$variant { $arg: part.to_vec() };
                let answer: $answer = read_answer(&self.transport().call(&request, Timestamp(0))?)?;
                all.extend(answer);
            }
            Ok(all)
        }
    };
    (one $variant:ident = $method:ident($($arg:ident: $how:ident $type:ty),*) -> $answer:ty) => {
        fn $method(&self, $($arg: given_type!($how $type),)*) -> Result<$answer, Error> {
            read_answer(&self.transport().call(&Request::$variant { $($arg: kept!($how $arg)),* }, Timestamp(0))?)
        }
    };
}

pub(super) use {given_type, kept, methods};

/// Those of one trait.
macro_rules! methods_of_store {
    (Store { $($lines:tt)* } $($others:tt)*) => { methods! { $($lines)* } };
}

/// A server carries out at once what is wanted.
const WISHES: &str = "a wish for whoever runs a workflow";

impl<T: Transport + 'static> Store for Remote<T> {
    table!(methods_of_store);

    fn location(&self) -> Location {
        self.0.location()
    }

    /// Whoever keeps the books sees to it that changes do not meet. Running a workflow is not for those outside.
    fn lock(&self, what: Lock, now: Timestamp) -> Result<LockGuard, Error> {
        match (self.0.direct(), what) {
            (Some(store), what) => store.lock(what, now),
            (None, Lock::Create) => Ok(LockGuard::elsewhere()),
            (None, Lock::Server | Lock::Workflow(_)) => Err(ErrorOnWire::not_offered("a lock").into()),
        }
    }

    /// Who did it is said by whoever keeps the books: they know who asks.
    fn acting_as(&self, _actor: &str) -> Arc<dyn Store> {
        Arc::new(Self(Arc::clone(&self.0)))
    }

    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<Holder>, Error> {
        self.direct("the holder of a lock")?.lock_holder(workflow)
    }

    fn create_workflow(
        &self,
        workflow: &NewWorkflow<'_>,
        source: &mut dyn JobSource,
        now: Timestamp,
    ) -> Result<WorkflowId, Error> {
        Upload::send(workflow, source, |lines| self.0.create(lines, now)).and_then(|body| read_answer(&body))
    }

    fn submit(&self, batch: Batch, done: Done) {
        match self.direct("a change of states") {
            Ok(store) => store.submit(batch, done),
            Err(error) => done(Err(error)),
        }
    }

    fn begin_run(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), Error> {
        self.direct("the begin of a run")?.begin_run(workflow, now)
    }

    fn end_run(&self, workflow: WorkflowId, canceled: bool, now: Timestamp) -> Result<(), Error> {
        self.direct("the end of a run")?.end_run(workflow, canceled, now)
    }

    fn add_wish(&self, workflow: WorkflowId, wanted: &Wanted, now: Timestamp) -> Result<i64, Error> {
        self.direct(WISHES)?.add_wish(workflow, wanted, now)
    }

    fn open_wishes(&self, workflow: WorkflowId) -> Result<Vec<i64>, Error> {
        self.direct(WISHES)?.open_wishes(workflow)
    }

    fn grant_wish(&self, workflow: WorkflowId, wish: i64, now: Timestamp) -> Result<(), Error> {
        self.direct(WISHES)?.grant_wish(workflow, wish, now)
    }

    fn wish_answer(&self, wish: i64) -> Result<Option<WishAnswer>, Error> {
        self.direct(WISHES)?.wish_answer(wish)
    }

    fn withdraw_wish(&self, wish: i64, now: Timestamp) -> Result<bool, Error> {
        self.direct(WISHES)?.withdraw_wish(wish, now)
    }

    fn jobs_after(&self, workflow: WorkflowId, after: JobId) -> Result<LoadedJobs, Error> {
        self.direct("jobs for an engine")?.jobs_after(workflow, after)
    }

    fn foreign_commits(&self, wait: bool) -> Result<Option<i64>, Error> {
        self.direct("a number of commits")?.foreign_commits(wait)
    }
}

//! A store on a server.

use super::call_access::MAX_IDS_PER_CALL;
use super::call_table::table;
use super::rpc_error::WireError;
use super::workflow_upload::WorkflowUpload;
use super::{OwnedUserData, StoreCall, parse_reply};
use crate::lock::{LockGuard, LockHolder, LockScope};
use crate::model::{
    ActionRow, AddJob, CompletionRecord, DataFilter, DecisionFilter, DecisionRow, EventFilter, EventRow,
    ExportOptions, FailureFilter, FailureGroup, FailureHandlerRow, FailureRow, FieldChange, FileUpdate,
    HeldJob, ImportOptions, JobCommand, JobFileRow, JobFilter, JobGroupRow, JobRelations, JobRevisionRow,
    JobRow, JobSource, JobUpdate, JobUserDataRow, LoadedJobs, NewEvent, NewUserData, NewWorkflow,
    PendingCommandResult, RequirementsChange, RequirementsRow, RequirementsUpdate, ResultFilter, ResultRow,
    RevisionFilter, SlurmSchedulerRow, SpawnRequest, SpawnResult, UserDataRow, WorkUnitStatusRow, WorkerRow,
    WorkflowExport, WorkflowFileRow, WorkflowRow, WorkflowUpdate,
};
use crate::{BatchCallback, ChangeBatch, Store, StoreError, StoreLocation};
use serde_json::Value;
use std::io::Read;
use std::sync::Arc;
use windlass_types::failure_commands::{FailureCommandOutcome, PendingCommand};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{
    EventId, FileId, JobId, RequirementsId, Resources, ResultId, RunId, Timestamp, UserDataId,
    WorkUnitStatusCounts, WorkflowId,
};

/// A connection to a remote store.
pub trait RpcTransport: Send + Sync {
    /// Its location, for display.
    fn location(&self) -> StoreLocation;

    /// Sends a call and returns the body of the reply. `now` is for stores without a clock of their own.
    fn call(&self, request: &StoreCall, now: Timestamp) -> Result<Vec<u8>, StoreError>;

    /// Sends the lines of a new workflow and returns the body of the reply.
    fn send_new_workflow(&self, lines: Box<dyn Read + Send>, now: Timestamp) -> Result<Vec<u8>, StoreError>;

    /// The store itself, if it is in this process: then an engine can use it too.
    fn direct_store(&self) -> Option<&dyn Store> {
        None
    }
}

/// The store behind an [`RpcTransport`].
#[derive(Debug)]
pub struct RpcStore<T>(Arc<T>);

impl<T> RpcStore<T> {
    pub fn new(transport: T) -> Self {
        Self(Arc::new(transport))
    }

    pub fn transport(&self) -> &T {
        &self.0
    }
}

impl<T: RpcTransport> RpcStore<T> {
    pub(super) fn require_direct(&self, what: &str) -> Result<&dyn Store, StoreError> {
        self.0.direct_store().ok_or_else(|| WireError::not_offered(what).into())
    }
}

macro_rules! borrowed_type {
    (val $type:ty) => { $type };
    (list $type:ty) => { &[$type] };
    (maybe $type:ty) => { Option<&$type> };
    (piece $type:ty) => { &NewUserData<'_> };
    ($how:ident $type:ty) => { &$type };
}

macro_rules! stored_argument {
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
        OwnedUserData::new($name)
    };
    (by $name:ident) => {
        $name.clone()
    };
}

/// Generates methods from lines of the table.
macro_rules! methods {
    ($(
        $sort:ident $variant:ident = $method:ident($($arg:ident: $how:ident $type:ty),*) $(at $time:ident)?
            -> $answer:ty, of $subject:expr;
    )*) => {$(
        methods! { one $variant = $method($($arg: $how $type),*) $(at $time)? -> $answer }
    )*};
    (one $variant:ident = $method:ident($($arg:ident: $how:ident $type:ty),*) at $time:ident -> $answer:ty) => {
        fn $method(&self, $($arg: borrowed_type!($how $type),)* now: $time) -> Result<$answer, StoreError> {
            parse_reply(&self.transport().call(&StoreCall::$variant { $($arg: stored_argument!($how $arg)),* }, now)?)
        }
    };
    // A long list is split into several calls with the maximum number of ids each.
    (one $variant:ident = $method:ident($arg:ident: list $type:ty) -> $answer:ty) => {
        fn $method(&self, $arg: &[$type]) -> Result<$answer, StoreError> {
            let mut all: $answer = Vec::new();
            for part in $arg.chunks(MAX_IDS_PER_CALL) {
                let request = StoreCall::$variant { $arg: part.to_vec() };
                let answer: $answer = parse_reply(&self.transport().call(&request, Timestamp(0))?)?;
                all.extend(answer);
            }
            Ok(all)
        }
    };
    (one $variant:ident = $method:ident($($arg:ident: $how:ident $type:ty),*) -> $answer:ty) => {
        fn $method(&self, $($arg: borrowed_type!($how $type),)*) -> Result<$answer, StoreError> {
            parse_reply(&self.transport().call(&StoreCall::$variant { $($arg: stored_argument!($how $arg)),* }, Timestamp(0))?)
        }
    };
}

pub(super) use {borrowed_type, methods, stored_argument};

/// Generates the methods of one trait.
macro_rules! methods_of_store {
    (Store { $($lines:tt)* } $($others:tt)*) => { methods! { $($lines)* } };
}

/// A server applies commands at once.
const PENDING_COMMANDS_LABEL: &str = "pending commands";

impl<T: RpcTransport + 'static> Store for RpcStore<T> {
    table!(methods_of_store);

    fn location(&self) -> StoreLocation {
        self.0.location()
    }

    /// The server prevents conflicting changes. Clients of a server cannot run workflows themselves.
    fn lock(&self, what: LockScope, now: Timestamp) -> Result<LockGuard, StoreError> {
        match (self.0.direct_store(), what) {
            (Some(store), what) => store.lock(what, now),
            (None, LockScope::Create) => Ok(LockGuard::without_lock()),
            (None, LockScope::Server | LockScope::Workflow(_)) => {
                Err(WireError::not_offered("a lock").into())
            }
        }
    }

    /// The server records the actor: it knows the caller.
    fn acting_as(&self, _actor: &str) -> Arc<dyn Store> {
        Arc::new(Self(Arc::clone(&self.0)))
    }

    fn lock_holder(&self, workflow: WorkflowId) -> Result<Option<LockHolder>, StoreError> {
        self.require_direct("holders of locks")?.lock_holder(workflow)
    }

    fn create_workflow(
        &self,
        workflow: &NewWorkflow<'_>,
        source: &mut dyn JobSource,
        now: Timestamp,
    ) -> Result<WorkflowId, StoreError> {
        WorkflowUpload::send_workflow(workflow, source, |lines| self.0.send_new_workflow(lines, now))
            .and_then(|body| parse_reply(&body))
    }

    fn submit(&self, batch: ChangeBatch, done: BatchCallback) {
        match self.require_direct("changes of job states") {
            Ok(store) => store.submit(batch, done),
            Err(error) => done(Err(error)),
        }
    }

    fn begin_run(&self, workflow: WorkflowId, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct("starting a run")?.begin_run(workflow, now)
    }

    fn end_run(&self, workflow: WorkflowId, canceled: bool, now: Timestamp) -> Result<(), StoreError> {
        self.require_direct("ending a run")?.end_run(workflow, canceled, now)
    }

    fn add_pending_command(
        &self,
        workflow: WorkflowId,
        wanted: &PendingCommand,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        self.require_direct(PENDING_COMMANDS_LABEL)?.add_pending_command(workflow, wanted, now)
    }

    fn open_pending_commands(&self, workflow: WorkflowId) -> Result<Vec<i64>, StoreError> {
        self.require_direct(PENDING_COMMANDS_LABEL)?.open_pending_commands(workflow)
    }

    fn apply_pending_command(
        &self,
        workflow: WorkflowId,
        command: i64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.require_direct(PENDING_COMMANDS_LABEL)?.apply_pending_command(workflow, command, now)
    }

    fn pending_command_result(&self, command: i64) -> Result<Option<PendingCommandResult>, StoreError> {
        self.require_direct(PENDING_COMMANDS_LABEL)?.pending_command_result(command)
    }

    fn withdraw_pending_command(&self, command: i64, now: Timestamp) -> Result<bool, StoreError> {
        self.require_direct(PENDING_COMMANDS_LABEL)?.withdraw_pending_command(command, now)
    }

    fn jobs_after(&self, workflow: WorkflowId, after: JobId) -> Result<LoadedJobs, StoreError> {
        self.require_direct("jobs for an engine")?.jobs_after(workflow, after)
    }

    fn foreign_commit_count(&self, wait: bool) -> Result<Option<i64>, StoreError> {
        self.require_direct("commit counts")?.foreign_commit_count(wait)
    }
}

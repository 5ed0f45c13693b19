//! Errors of the store, with hints.

use crate::disk_space::{DiskErrorKind, DiskSpace};
use crate::lock::LockHolder;
use crate::rpc::rpc_error::RemoteError;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{
    Attempt, Bytes, EventId, FileId, JobId, JobStatus, RequirementsId, ResultId, RunId, UserDataId, WorkerId,
    WorkflowId,
};

/// An error of the store. [`StoreError::hint`] suggests a remedy.
///
/// Cheap to clone: when a group commit fails, each of its batches gets the error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    // ---- the file ----
    #[error("there is no database at {}", path.display())]
    Missing { path: PathBuf },
    #[error("{} already exists", path.display())]
    AlreadyExists { path: PathBuf },
    #[error("{} is not a file", path.display())]
    NotAFile { path: PathBuf },
    #[error("{} is not a database", path.display())]
    NotADatabase { path: PathBuf },
    #[error("{} is a database of another program (application id {application_id:#010x})", path.display())]
    OtherApplication { path: PathBuf, application_id: u32 },
    #[error("the database {} was written by a newer windlass (format {found}; this version supports up to {known})", path.display())]
    FormatTooNew { path: PathBuf, found: u32, known: u32 },
    #[error("the database {} has the old format {found} and was opened read-only", path.display())]
    FormatTooOld { path: PathBuf, found: u32 },
    #[error("migration {version} of {} differs from the one of this windlass", path.display())]
    DifferentHistory { path: PathBuf, version: u32 },
    #[error("the database {} is truncated: {found} bytes, {}", path.display(), ExpectedSize(*expected))]
    Truncated { path: PathBuf, found: u64, expected: Option<u64> },
    #[error("the database {} is damaged: {detail}", path.display())]
    Damaged { path: PathBuf, detail: String },
    #[error("the database {} is missing, but its write-ahead log {} still exists", path.display(), log.display())]
    LeftoverLog { path: PathBuf, log: PathBuf },
    #[error("the database {} was removed or replaced while it was in use", path.display())]
    FileRemoved { path: PathBuf },
    #[error("no permission to write {}", path.display())]
    ReadOnly { path: PathBuf },
    #[error("the SQLite library {found} is older than 3.51.3, which fixed a bug that damages databases")]
    SqliteTooOld { found: &'static str },
    #[error("cannot open the database {}", path.display())]
    CannotOpen { path: PathBuf, source: Arc<rusqlite::Error> },
    #[error("cannot {what} {}", path.display())]
    File { what: &'static str, path: PathBuf, source: Arc<std::io::Error> },

    #[error("{} is not private: other users could write to it", path.display())]
    NotPrivate { path: PathBuf },

    // ---- locks ----
    #[error("{}", render_busy(what, holder.as_ref()))]
    Busy { what: LockedObject, holder: Option<LockHolder> },

    // ---- the disk ----
    #[error("no space left for the database {}{}", path.display(), render_free_space(*space))]
    DiskFull { path: PathBuf, space: Option<DiskSpace>, source: Arc<rusqlite::Error> },
    #[error("cannot use the database {}: {fault}", path.display())]
    Disk { path: PathBuf, fault: DiskErrorKind, source: Arc<rusqlite::Error> },
    #[error("timeout: another process holds a lock on the database {}", path.display())]
    LockTimeout { path: PathBuf, source: Arc<rusqlite::Error> },

    // ---- PostgreSQL ----
    #[error("invalid database location: {why}")]
    BadLocation { why: String },
    #[error("cannot connect to the database {url}: {source}")]
    Unreachable { url: String, source: Arc<dyn std::error::Error + Send + Sync> },
    #[error("the database {url} denied access: {source}")]
    AccessDenied { url: String, source: Arc<dyn std::error::Error + Send + Sync> },
    #[error("cannot verify the identity of the database {url}: {source}")]
    Untrusted { url: String, source: Arc<dyn std::error::Error + Send + Sync> },
    #[error("the database {url} is temporarily unable to process requests: {source}")]
    Overloaded { url: String, source: Arc<dyn std::error::Error + Send + Sync> },
    #[error(
        "the connection to the database {url} was lost during a commit: it is unknown whether the change was applied"
    )]
    InDoubt { url: String },
    #[error("another server has taken over the database {url}")]
    Superseded { url: String },
    #[error(
        "the database {url} belongs to another application: it has a table `{table}` and was not created by windlass"
    )]
    ForeignDatabase { url: String, table: String },

    #[error("the database {url} is not empty: table `{table}` has rows")]
    NotEmpty { url: String, table: String },

    // ---- the request ----
    #[error("there is no workflow {0}")]
    NoSuchWorkflow(WorkflowId),
    #[error("there is no job {0}")]
    NoSuchJob(JobId),
    #[error("there is no worker {0}")]
    NoSuchWorker(WorkerId),
    #[error("there is no user data {0}")]
    NoSuchUserData(UserDataId),
    #[error("the workflow has no resource requirements called `{name}`")]
    NoSuchRequirements { name: String },
    #[error("there are no resource requirements {0}")]
    NoSuchRequirementsId(RequirementsId),
    #[error("there is no file {0}")]
    NoSuchFile(FileId),
    #[error("there is no event {0}")]
    NoSuchEvent(EventId),
    #[error("event {0} was recorded by Windlass and cannot be changed or deleted")]
    EventIsRecord(EventId),
    #[error("there is no result {0}")]
    NoSuchResult(ResultId),
    #[error("there is no {what} {id}")]
    NoSuch { what: Cow<'static, str>, id: i64 },
    #[error("there is no {what} called `{name}`")]
    NoSuchName { what: Cow<'static, str>, name: String },
    #[error("`{user}` is not a member of the access group `{group}`")]
    NoSuchMember { user: String, group: String },
    #[error("there is already {what} called `{name}`")]
    NameTaken { what: Cow<'static, str>, name: String },
    #[error("output dataset {dataset} is taken: {by}")]
    OutputTaken { dataset: String, by: String },
    #[error("dataset {dataset} belongs to {}", render_owner(owner.as_deref()))]
    NotOwner { dataset: String, owner: Option<String> },
    #[error("a worker holds job {job} (`{name}`)")]
    JobIsHeld { job: JobId, name: String },
    #[error("{what} cannot be deleted: {by}")]
    InUse { what: String, by: String },
    #[error("dependency cycle: {} would wait for each other", render_quoted_names(jobs))]
    Circle { jobs: Vec<String> },
    #[error("duplicate job name `{name}`")]
    DuplicateJobName { name: String },
    #[error("two {what} of the workflow are called `{name}`")]
    DuplicateName { what: Cow<'static, str>, name: String },
    #[error("job {job} of workflow {workflow} was expected to be {expected}, but {}", render_found_state(*found))]
    Conflict { workflow: WorkflowId, job: JobId, expected: JobAttemptState, found: Option<JobAttemptState> },
    #[error("request `{request}` is at version {found}; the decision was based on version {expected}")]
    Outdated { request: String, expected: i64, found: i64 },
    #[error("{what} was expected to be {expected}, but {found}")]
    Unexpected { what: String, expected: String, found: String },
    #[error("workflow {workflow} is in run {found}; the change is for run {expected}")]
    StaleRun { workflow: WorkflowId, expected: RunId, found: RunId },
    #[error("run {run} of workflow {workflow} has not started")]
    RunNotBegun { workflow: WorkflowId, run: RunId },
    #[error("workers hold {held} jobs of workflow {workflow}")]
    StillActive { workflow: WorkflowId, held: u64 },
    #[error("workflow {workflow} has {workers} workers whose end is not confirmed")]
    WorkersMayBeAlive { workflow: WorkflowId, workers: usize },
    #[error("{caller} is not running, so it cannot add jobs")]
    NotRunning { caller: AttemptKey },
    #[error("lineage `{lineage}` has added jobs {max} times, the maximum of the workflow")]
    TooManyIterations { lineage: String, max: u32 },
    #[error("not an exported workflow: {what}")]
    BadExport { what: String },
    #[error("action {id}: {what}")]
    Action { id: i64, what: String },
    #[error("invalid request: {what}")]
    OutOfRange { what: String },
    #[error("the database rejected the change: {source}")]
    Refused { source: Arc<dyn std::error::Error + Send + Sync> },
    #[error("internal error: the database rejected a statement of windlass")]
    Internal { source: Arc<dyn std::error::Error + Send + Sync> },
    #[error("the store is closed")]
    Closed,

    // ---- remote stores ----
    #[error("{0}")]
    Remote(Arc<RemoteError>),
}

/// The object of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockedObject {
    Database,
    Workflow(WorkflowId),
}

/// An expected or actual state of a job. An expectation may omit the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAttemptState {
    pub status: JobStatus,
    pub attempt: Option<Attempt>,
}

impl StoreError {
    /// Whether the same call may succeed later: the cause is the disk, a lock or the connection, not the call.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::DiskFull { .. }
                | Self::Disk { .. }
                | Self::LockTimeout { .. }
                | Self::Unreachable { .. }
                | Self::Overloaded { .. }
        )
    }

    /// Whether the call refers to an object that does not exist.
    pub const fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::NoSuchWorkflow(_)
                | Self::NoSuchJob(_)
                | Self::NoSuchWorker(_)
                | Self::NoSuchUserData(_)
                | Self::NoSuchRequirementsId(_)
                | Self::NoSuchFile(_)
                | Self::NoSuchEvent(_)
                | Self::NoSuchResult(_)
                | Self::NoSuchMember { .. }
                | Self::NoSuchName { .. }
                | Self::NoSuch { .. }
        )
    }

    /// Whether the call is invalid regardless of the state of the database.
    pub const fn is_invalid(&self) -> bool {
        matches!(
            self,
            Self::NoSuchRequirements { .. }
                | Self::Circle { .. }
                | Self::DuplicateJobName { .. }
                | Self::DuplicateName { .. }
                | Self::BadExport { .. }
                | Self::OutOfRange { .. }
                | Self::Refused { .. }
                | Self::TooManyIterations { .. }
        )
    }

    /// For calls that name the expected state: if the first try was applied, a repetition is rejected and
    /// changes nothing. So an unknown result is just a reason to retry.
    pub(crate) fn for_conditional_request(self) -> Self {
        match self {
            Self::InDoubt { url } => {
                let source = Arc::new(crate::postgres::PgError::retryable_connection_loss());
                Self::Unreachable { url, source }
            }
            other => other,
        }
    }

    /// Whether the file is damaged, so that all calls fail.
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::Damaged { .. })
    }

    /// Whether the error still applies; a full disk may have free space again.
    pub(crate) fn is_still_present(&self) -> bool {
        !matches!(self, Self::DiskFull { path, .. } if DiskSpace::measure(path).is_some_and(|space| !space.is_short()))
    }

    /// Describes persistent errors without the location of the database, for clients that must not learn it.
    pub fn public_message(&self) -> Option<String> {
        Some(match self {
            Self::DiskFull { space, .. } => {
                format!("the disk of the database is full{}", render_free_space(*space))
            }
            Self::Disk { fault, .. } => format!("disk error of the database: {fault}"),
            Self::ReadOnly { .. } => "no permission to write the database".to_owned(),
            Self::LockTimeout { .. } => "another process holds a lock on the database".to_owned(),
            Self::Unreachable { .. } => "cannot connect to the database".to_owned(),
            Self::Overloaded { .. } => {
                "the database is temporarily unable to process changes; see its log".to_owned()
            }
            Self::FileRemoved { .. } => "the database was removed".to_owned(),
            _ => return None,
        })
    }

    /// Suggests a remedy.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Missing { .. } => "create it with `windlass create` or `windlass run`, or name another location with --db or WINDLASS_DB".into(),
            Self::AlreadyExists { .. } => "open it instead, or choose another name".into(),
            Self::NotPrivate { .. } => {
                "remove it if nothing runs there, or choose another location with --db or WINDLASS_DB".into()
            }
            Self::FileRemoved { .. } => "restore it from a backup, or run the workflow again; without a backup its records are lost".into(),
            Self::NotAFile { .. } | Self::NotADatabase { .. } | Self::OtherApplication { .. } => {
                "nothing was changed; name another file with --db or WINDLASS_DB, or move this one away".into()
            }
            Self::FormatTooNew { .. } => "use the newer windlass, or another database".into(),
            Self::FormatTooOld { .. } => "any command that writes, for example `windlass run`, upgrades it".into(),
            Self::DifferentHistory { .. } => "use the windlass that created it, or another database".into(),
            Self::Damaged { path, .. } if crate::StoreLocation::is_postgres(&path.to_string_lossy()) => {
                "nothing was changed; run `windlass db check` for details; restore the database from a backup".into()
            }
            Self::Truncated { path, .. } | Self::Damaged { path, .. } => format!(
                "nothing was changed; restore {0} from a backup, or save readable data with `sqlite3 {0} .recover`; \
                 move it away to start with a new database",
                path.display()
            ),
            Self::LeftoverLog { log, .. } => format!(
                "put the database back next to it; if it was deleted on purpose, delete {} too",
                log.display()
            ),
            Self::ReadOnly { path } if crate::disk_space::is_read_only(path) => {
                "its file system is mounted read-only: remount it writable, or name another location with --db".into()
            }
            Self::ReadOnly { .. } => {
                "the database, its directory and its -wal and -shm files must be writable; name another location with --db".into()
            }
            Self::SqliteTooOld { .. } => "build windlass with the bundled SQLite".into(),
            Self::CannotOpen { .. } | Self::File { .. } => "check that the path exists and that you have permission to use it".into(),
            Self::Busy { what: LockedObject::Workflow(id), .. } => {
                format!("wait for it, or stop it with `windlass cancel {id}`")
            }
            Self::Busy { what: LockedObject::Database, .. } => "wait for it, stop it, or use another database".into(),
            Self::DiskFull { space, .. } => {
                let much = space.map_or_else(|| "some space".to_owned(), |space| Bytes(space.needed).to_string());
                format!("free {much} on its disk (`df -h`); work then continues automatically; no acknowledged change is lost")
            }
            Self::Disk { .. } => "check the disk (see `dmesg`); no acknowledged change is lost".into(),
            Self::LockTimeout { .. } => "find the process, for example with `fuser -v`, and try again".into(),
            Self::BadLocation { .. } => "use a path, or postgres://USER@HOST:PORT/DATABASE?sslmode=verify-full".into(),
            Self::Unreachable { .. } => {
                "check that it is running and that host and port are correct; no acknowledged change is lost".into()
            }
            Self::AccessDenied { .. } => {
                "check user, password (PGPASSWORD, or ~/.pgpass) and database name; the user needs the privilege to create tables in \
                 it: as its administrator, `ALTER DATABASE name OWNER TO user` or `GRANT CREATE ON SCHEMA public TO user`"
                    .into()
            }
            Self::Untrusted { .. } => {
                "set sslrootcert=FILE to the CA of its certificate; the certificate must be issued for the host in the URL".into()
            }
            Self::Overloaded { .. } => "see its log; no acknowledged change is lost".into(),
            Self::InDoubt { .. } => "check whether the change was applied before repeating it".into(),
            Self::Superseded { .. } => "restart this server to make it a standby".into(),
            Self::NotEmpty { .. } => "nothing was changed; copy into a new database (`createdb windlass`)".into(),
            Self::ForeignDatabase { .. } => "nothing was changed; create a separate database for windlass (`createdb windlass`)".into(),
            Self::NoSuchWorkflow(_) => "`windlass workflows` lists the workflows".into(),
            Self::NoSuchJob(_) => "`windlass jobs` lists the jobs".into(),
            Self::DuplicateJobName { .. } => "give every job its own name".into(),
            Self::NoSuchUserData(_) => "`windlass jobs user-data` lists user data".into(),
            Self::NoSuchRequirements { .. } | Self::NoSuchRequirementsId(_) => {
                "`windlass jobs requirements` lists resource requirements".into()
            }
            Self::NoSuchFile(_) => "`windlass jobs files` lists files".into(),
            Self::NoSuchEvent(_) => "`windlass events` lists events".into(),
            Self::EventIsRecord(_) => "only events that clients added can be changed; `windlass workflows delete` removes a workflow with its events".into(),
            Self::NoSuchResult(_) => "`windlass jobs results --format json` shows their ids".into(),
            Self::JobIsHeld { .. } => {
                "wait for it, or cancel the workflow; after a crash `windlass resume` resets the job".into()
            }
            Self::OutputTaken { .. } => {
                "name another output dataset; `windlass request restart NAME` restarts a request with new datasets".into()
            }
            Self::NotOwner { .. } => "only its owner and operators may change it: add the files to a dataset of your own".into(),
            Self::InUse { .. } => "delete or change the objects that refer to it first".into(),
            Self::Circle { .. } => "remove one of the dependencies or files".into(),
            Self::WorkersMayBeAlive { workflow, .. } => {
                format!("`windlass resume {workflow}` makes sure that their processes have ended; cancel the workflow if it should not continue")
            }
            Self::NotRunning { .. } => "only a running job can add jobs".into(),
            Self::TooManyIterations { .. } => {
                "end the loop earlier, or raise dynamic_jobs.max_iterations in the spec".into()
            }
            Self::BadExport { .. } => "`windlass workflows export` writes files that can be imported".into(),
            Self::DuplicateName { .. } | Self::NameTaken { .. } => "use unique names".into(),
            Self::StillActive { .. } => "wait for them, or cancel the workflow first".into(),
            Self::Conflict { .. } | Self::StaleRun { .. } => {
                "the workflow was changed concurrently; this request changed nothing".into()
            }
            Self::Outdated { .. } | Self::Unexpected { .. } => {
                "it was changed concurrently; this request changed nothing; check the current state and try again".into()
            }
            Self::Remote(elsewhere) => return elsewhere.hint.clone(),
            Self::Action { .. } => "`windlass workflows actions` shows their state; this request changed nothing".into(),
            Self::NoSuchWorker(_)
            | Self::NoSuch { .. }
            | Self::NoSuchName { .. }
            | Self::NoSuchMember { .. }
            | Self::RunNotBegun { .. }
            | Self::OutOfRange { .. }
            | Self::Refused { .. }
            | Self::Internal { .. }
            | Self::Closed => return None,
        };
        Some(text)
    }

    pub(crate) fn file(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::File { what, path: path.to_owned(), source: Arc::new(source) }
    }

    /// The same for write operations: a missing permission becomes [`Self::ReadOnly`].
    pub(crate) fn file_write(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        match source.kind() {
            PermissionDenied | ReadOnlyFilesystem => Self::ReadOnly { path: path.to_owned() },
            _ => Self::file(what, path, source),
        }
    }
}

impl fmt::Display for JobAttemptState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempt {
            Some(attempt) => write!(f, "{} at attempt {attempt}", self.status),
            None => write!(f, "{}", self.status),
        }
    }
}

fn render_free_space(space: Option<DiskSpace>) -> String {
    space.map_or_else(String::new, |space| format!(" ({space})"))
}

struct ExpectedSize(Option<u64>);

impl fmt::Display for ExpectedSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "its header states {bytes}"),
            None => f.write_str("too small for its header"),
        }
    }
}

/// Renders the first few names.
fn render_quoted_names(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(", …");
    }
    text
}

fn render_owner(owner: Option<&str>) -> String {
    owner.map_or_else(|| "an unknown user".to_owned(), |owner| format!("`{owner}`"))
}

fn render_found_state(found: Option<JobAttemptState>) -> String {
    found.map_or_else(|| "it does not exist".to_owned(), |state| format!("is {state}"))
}

fn render_busy(what: &LockedObject, holder: Option<&LockHolder>) -> String {
    let what = match what {
        LockedObject::Database => "the database is in use".to_owned(),
        LockedObject::Workflow(id) => format!("workflow {id} is being run"),
    };
    match holder {
        Some(holder) => format!("{what} by {holder}"),
        None => format!("{what} by another process"),
    }
}

/// An error inside the store, before the file or URL is added to it.
#[derive(Debug)]
pub(crate) enum SqlError {
    Sqlite(rusqlite::Error),
    Postgres(crate::postgres::PgError),
    Store(StoreError),
    /// Contents that no version of Windlass writes.
    Damage(String),
    /// A statement of a pipeline, identified by its number, affected no row.
    NoRowAffected(usize),
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for SqlError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl SqlError {
    pub(crate) fn damage(detail: impl Into<String>) -> Self {
        Self::Damage(detail.into())
    }

    /// Whether a unique constraint was violated.
    pub(crate) fn is_duplicate(&self) -> bool {
        match self {
            Self::Sqlite(e) => {
                e.sqlite_extended_error_code() == Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
            }
            Self::Postgres(failure) => failure.is_duplicate(),
            Self::Store(_) | Self::Damage(_) | Self::NoRowAffected(_) => false,
        }
    }

    /// Whether the connection was lost, together with its transaction.
    pub(crate) fn is_connection_lost(&self) -> bool {
        matches!(self, Self::Postgres(failure) if failure.is_connection_lost())
    }

    /// Converts the error for a database that is not a file.
    pub(crate) fn into_store_error_at(self, url: &str) -> StoreError {
        match self {
            Self::Postgres(failure) => failure.into_store_error(url),
            other => other.into_store_error(url.as_ref()),
        }
    }

    /// The duplicate name, where the database reports it.
    pub(crate) fn duplicate_name(&self) -> Option<String> {
        match self {
            Self::Postgres(failure) => failure.duplicate_name(),
            _ => None,
        }
    }

    /// Distinguishes errors of the disk, of locks, of the file, and of the call.
    pub(crate) fn into_store_error(self, db: &Path) -> StoreError {
        use rusqlite::ErrorCode as Code;
        let source = match self {
            Self::Store(error) => return error,
            Self::Postgres(failure) => return failure.into_store_error(&db.to_string_lossy()),
            Self::Damage(detail) => return StoreError::Damaged { path: db.to_owned(), detail },
            Self::NoRowAffected(number) => {
                let detail = format!("statement {number} affected no row");
                return StoreError::Damaged { path: db.to_owned(), detail };
            }
            Self::Sqlite(source) => Arc::new(source),
        };
        let path = || db.to_owned();
        if source.sqlite_extended_error_code() == Some(rusqlite::ffi::SQLITE_IOERR_CORRUPTFS) {
            return StoreError::Damaged { path: path(), detail: source.to_string() };
        }
        match source.sqlite_error_code() {
            Some(Code::DiskFull) => {
                StoreError::DiskFull { path: path(), space: DiskSpace::measure(db), source }
            }
            Some(Code::SystemIoFailure) if is_disk_full(db) => {
                StoreError::DiskFull { path: path(), space: DiskSpace::measure(db), source }
            }
            Some(Code::SystemIoFailure | Code::OutOfMemory) => {
                let fault = DiskErrorKind::from_sqlite_code(source.sqlite_extended_error_code(), db);
                StoreError::Disk { path: path(), fault, source }
            }
            Some(Code::DatabaseBusy | Code::DatabaseLocked | Code::FileLockingProtocolFailed) => {
                StoreError::LockTimeout { path: path(), source }
            }
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => {
                StoreError::Damaged { path: path(), detail: source.to_string() }
            }
            Some(Code::ReadOnly | Code::PermissionDenied) => StoreError::ReadOnly { path: path() },
            Some(Code::CannotOpen) => StoreError::CannotOpen { path: path(), source },
            Some(Code::ConstraintViolation | Code::TooBig | Code::TypeMismatch) => {
                StoreError::Refused { source }
            }
            _ => match *source {
                // A value that no version of Windlass writes, or a missing row that every version writes.
                rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::Utf8Error(..)
                | rusqlite::Error::StatementChangedRows(..)
                | rusqlite::Error::QueryReturnedNoRows => {
                    StoreError::Damaged { path: path(), detail: source.to_string() }
                }
                _ => StoreError::Internal { source },
            },
        }
    }
}

/// SQLite reports a full disk as a generic error in some calls.
fn is_disk_full(db: &Path) -> bool {
    rustix::fs::statvfs(db).is_ok_and(|fs| fs.f_bavail == 0)
}

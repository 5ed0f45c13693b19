//! Why the store could not do it, and what to do about it.

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

/// Why the store could not do it. [`Error::hint`] says what to do about it.
///
/// Cheap to clone: when a group commit fails, everybody who was part of it is told the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    // ---- the file ----
    #[error("there is no database at {}", path.display())]
    Missing { path: PathBuf },
    #[error("there is already something at {}", path.display())]
    AlreadyExists { path: PathBuf },
    #[error("{} is not a file", path.display())]
    NotAFile { path: PathBuf },
    #[error("{} is not a database", path.display())]
    NotADatabase { path: PathBuf },
    #[error("{} is a database of another program (application id {application_id:#010x})", path.display())]
    OtherApplication { path: PathBuf, application_id: u32 },
    #[error("the database {} was written by a newer windlass (format {found}, this one knows up to {known})", path.display())]
    FormatTooNew { path: PathBuf, found: u32, known: u32 },
    #[error("the database {} has the old format {found} and was opened for reading only", path.display())]
    FormatTooOld { path: PathBuf, found: u32 },
    #[error("step {version} of the format of {} is not the one this windlass knows", path.display())]
    DifferentHistory { path: PathBuf, version: u32 },
    #[error("the database {} is truncated: {found} bytes, {}", path.display(), ExpectedSize(*expected))]
    Truncated { path: PathBuf, found: u64, expected: Option<u64> },
    #[error("the database {} is damaged: {detail}", path.display())]
    Damaged { path: PathBuf, detail: String },
    #[error("the database {} is gone, but its write-ahead log {} is still there", path.display(), log.display())]
    LeftoverLog { path: PathBuf, log: PathBuf },
    #[error("the database {} was removed or replaced while it was in use", path.display())]
    FileRemoved { path: PathBuf },
    #[error("may not write {}", path.display())]
    ReadOnly { path: PathBuf },
    #[error("the SQLite library {found} is older than 3.51.3, which fixed a bug that damages databases")]
    SqliteTooOld { found: &'static str },
    #[error("cannot open the database {}", path.display())]
    CannotOpen { path: PathBuf, source: Arc<rusqlite::Error> },
    #[error("cannot {what} {}", path.display())]
    File { what: &'static str, path: PathBuf, source: Arc<std::io::Error> },

    #[error("{} is not a directory of ours alone: somebody else could put things into it", path.display())]
    NotPrivate { path: PathBuf },

    // ---- who else is there ----
    #[error("{}", render_busy(what, holder.as_ref()))]
    Busy { what: LockedObject, holder: Option<LockHolder> },

    // ---- the disk ----
    #[error("no space left for the database {}{}", path.display(), render_free_space(*space))]
    DiskFull { path: PathBuf, space: Option<DiskSpace>, source: Arc<rusqlite::Error> },
    #[error("cannot use the database {}: {fault}", path.display())]
    Disk { path: PathBuf, fault: DiskErrorKind, source: Arc<rusqlite::Error> },
    #[error("another process kept the database {} locked for too long", path.display())]
    LockTimeout { path: PathBuf, source: Arc<rusqlite::Error> },

    // ---- a database elsewhere ----
    #[error("this is not the location of a database: {why}")]
    BadLocation { why: String },
    #[error("the database {url} cannot be reached: {source}")]
    Unreachable { url: String, source: Arc<dyn std::error::Error + Send + Sync> },
    #[error("the database {url} does not let us in: {source}")]
    AccessDenied { url: String, source: Arc<dyn std::error::Error + Send + Sync> },
    #[error("the database {url} cannot be believed to be the one that is meant: {source}")]
    Untrusted { url: String, source: Arc<dyn std::error::Error + Send + Sync> },
    #[error("the database {url} cannot do it now: {source}")]
    Overloaded { url: String, source: Arc<dyn std::error::Error + Send + Sync> },
    #[error("the database {url} was lost while it was writing: nobody knows whether this was done")]
    InDoubt { url: String },
    #[error("another server has taken over the database {url}")]
    Superseded { url: String },
    #[error(
        "the database {url} belongs to something else: it has a table `{table}` and is not one of windlass"
    )]
    NotOurs { url: String, table: String },

    #[error("the database {url} is not empty: it has rows in `{table}`")]
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
    #[error("`{user}` does not belong to the access group `{group}`")]
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
    #[error("with this, {} would wait for each other in a circle", render_quoted_names(jobs))]
    Circle { jobs: Vec<String> },
    #[error("two jobs of the workflow are called `{name}`")]
    DuplicateJobName { name: String },
    #[error("two {what} of the workflow are called `{name}`")]
    DuplicateName { what: Cow<'static, str>, name: String },
    #[error("job {job} of workflow {workflow} was expected to be {expected}, but {}", render_found_state(*found))]
    Conflict { workflow: WorkflowId, job: JobId, expected: JobState, found: Option<JobState> },
    #[error("request `{request}` is at version {found}; this was decided from version {expected}")]
    Outdated { request: String, expected: i64, found: i64 },
    #[error("{what} was expected to be {expected}, but {found}")]
    Unexpected { what: String, expected: String, found: String },
    #[error("workflow {workflow} is in run {found}; this belongs to run {expected}")]
    StaleRun { workflow: WorkflowId, expected: RunId, found: RunId },
    #[error("run {run} of workflow {workflow} has not begun")]
    RunNotBegun { workflow: WorkflowId, run: RunId },
    #[error("workflow {workflow} has {held} jobs that a worker holds")]
    StillActive { workflow: WorkflowId, held: u64 },
    #[error("workflow {workflow} has {workers} workers that were never seen to end")]
    NotBuried { workflow: WorkflowId, workers: usize },
    #[error("{caller} does not run now, so it cannot add jobs")]
    NotRunning { caller: AttemptKey },
    #[error("the lineage `{lineage}` has added jobs {max} times, which is as often as the workflow allows")]
    TooManyIterations { lineage: String, max: u32 },
    #[error("this is not an exported workflow: {what}")]
    BadExport { what: String },
    #[error("action {id}: {what}")]
    Action { id: i64, what: String },
    #[error("{what} is out of range")]
    OutOfRange { what: String },
    #[error("the database refused the change: {source}")]
    Refused { source: Arc<dyn std::error::Error + Send + Sync> },
    #[error("the database did not understand a statement of this windlass")]
    Internal { source: Arc<dyn std::error::Error + Send + Sync> },
    #[error("the store was closed")]
    Closed,

    // ---- books elsewhere ----
    #[error("{0}")]
    Remote(Arc<RemoteError>),
}

/// What somebody else has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockedObject {
    Database,
    Workflow(WorkflowId),
}

/// A job's state as expected or as found. An expectation may leave the attempt open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobState {
    pub status: JobStatus,
    pub attempt: Option<Attempt>,
}

impl StoreError {
    /// Worth trying again later, unchanged: the trouble lies with the disk or a lock, not with the request.
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

    /// It names something that is not there.
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

    /// It asks for something that can never be, whenever it is asked for.
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

    /// For a request that names what it expects to find: if it was done, doing it again is refused and changes nothing.
    /// So a doubt whether it was done is no more than a reason to try again.
    pub(crate) fn for_conditional_request(self) -> Self {
        match self {
            Self::InDoubt { url } => {
                let source = Arc::new(crate::postgres::PgError::retryable_connection_loss());
                Self::Unreachable { url, source }
            }
            other => other,
        }
    }

    /// The file itself is no good: nothing that is asked of it will work.
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::Damaged { .. })
    }

    /// A disk on which there is space again was full.
    pub(crate) fn is_still_present(&self) -> bool {
        !matches!(self, Self::DiskFull { path, .. } if DiskSpace::measure(path).is_some_and(|space| !space.is_short()))
    }

    /// What is wrong with the database, for those who may not know where it is: trouble that lasts until somebody acts.
    pub fn public_message(&self) -> Option<String> {
        Some(match self {
            Self::DiskFull { space, .. } => {
                format!("the disk of the database is full{}", render_free_space(*space))
            }
            Self::Disk { fault, .. } => format!("the database cannot be used: {fault}"),
            Self::ReadOnly { .. } => "the database may not be written".to_owned(),
            Self::LockTimeout { .. } => "another process keeps the database locked".to_owned(),
            Self::Unreachable { .. } => "the database cannot be reached".to_owned(),
            Self::Overloaded { .. } => "the database refuses changes for now; its log says more".to_owned(),
            Self::FileRemoved { .. } => "the database was removed".to_owned(),
            _ => return None,
        })
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Missing { .. } => "`windlass create` or `windlass run` makes one; --db or WINDLASS_DB names another place".into(),
            Self::AlreadyExists { .. } => "open it instead, or choose another name".into(),
            Self::NotPrivate { .. } => {
                "remove it if nobody runs anything there, or put the database elsewhere with --db or WINDLASS_DB".into()
            }
            Self::FileRemoved { .. } => "what was recorded in it is lost unless there is a copy: put that back, or run the workflow again".into(),
            Self::NotAFile { .. } | Self::NotADatabase { .. } | Self::OtherApplication { .. } => {
                "nothing was changed; name another file with --db or WINDLASS_DB, or move this one away".into()
            }
            Self::FormatTooNew { .. } => "use the newer windlass, or another database".into(),
            Self::FormatTooOld { .. } => "any command that writes, for example `windlass run`, brings it up to date".into(),
            Self::DifferentHistory { .. } => "use the windlass that made it, or another database".into(),
            Self::Damaged { path, .. } if crate::StoreLocation::is_postgres(&path.to_string_lossy()) => {
                "nothing was changed; `windlass db check` tells more; restore it from a backup".into()
            }
            Self::Truncated { path, .. } | Self::Damaged { path, .. } => format!(
                "nothing was changed; restore {0} from a copy, or save what can be read with `sqlite3 {0} .recover`; \
                 move it away to start anew",
                path.display()
            ),
            Self::LeftoverLog { log, .. } => format!(
                "put the database back beside it; if it was deleted on purpose, delete {} too",
                log.display()
            ),
            Self::ReadOnly { path } if crate::disk_space::is_read_only(path) => {
                "its file system is mounted read-only: mount it for writing, or name another place with --db".into()
            }
            Self::ReadOnly { .. } => {
                "the database, its directory and its -wal and -shm files must be writable; name another place with --db".into()
            }
            Self::SqliteTooOld { .. } => "build windlass with the SQLite it brings along".into(),
            Self::CannotOpen { .. } | Self::File { .. } => "check that the path exists and that you may use it".into(),
            Self::Busy { what: LockedObject::Workflow(id), .. } => {
                format!("wait for it, or stop it with `windlass cancel {id}`")
            }
            Self::Busy { what: LockedObject::Database, .. } => "wait for it, stop it, or use another database".into(),
            Self::DiskFull { space, .. } => {
                let much = space.map_or_else(|| "some space".to_owned(), |space| Bytes(space.needed).to_string());
                format!("free {much} on its disk (`df -h`): work then goes on by itself; nothing that was acknowledged is lost")
            }
            Self::Disk { .. } => "check the disk (`dmesg` may say more); nothing that was acknowledged is lost".into(),
            Self::LockTimeout { .. } => "see who has it open, for example with `fuser -v`, and try again".into(),
            Self::BadLocation { .. } => "a path, or postgres://USER@HOST:PORT/DATABASE?sslmode=verify-full".into(),
            Self::Unreachable { .. } => {
                "check that it runs and that its host and port are right; nothing that was acknowledged is lost".into()
            }
            Self::AccessDenied { .. } => {
                "check user, password (PGPASSWORD, or ~/.pgpass) and database name; the user must be allowed to create tables in \
                 it: as its administrator, `ALTER DATABASE name OWNER TO user` or `GRANT CREATE ON SCHEMA public TO user`"
                    .into()
            }
            Self::Untrusted { .. } => {
                "sslrootcert=FILE names the authority that signed its certificate, which must be for the host in the URL".into()
            }
            Self::Overloaded { .. } => "its log says more; nothing that was acknowledged is lost".into(),
            Self::InDoubt { .. } => "look whether it was done before doing it again".into(),
            Self::Superseded { .. } => "this server can do nothing more; start it anew to stand by".into(),
            Self::NotEmpty { .. } => "nothing was changed; copy into a new database (`createdb windlass`)".into(),
            Self::NotOurs { .. } => "nothing was changed; make a database for windlass alone (`createdb windlass`)".into(),
            Self::NoSuchWorkflow(_) => "`windlass list` lists the workflows".into(),
            Self::NoSuchJob(_) => "`windlass jobs` lists the jobs".into(),
            Self::DuplicateJobName { .. } => "give every job its own name".into(),
            Self::NoSuchUserData(_) => "`windlass user-data` lists what there is".into(),
            Self::NoSuchRequirements { .. } | Self::NoSuchRequirementsId(_) => {
                "`windlass resource-requirements` lists what there is".into()
            }
            Self::NoSuchFile(_) => "`windlass files` lists what there is".into(),
            Self::NoSuchEvent(_) => "`windlass events` lists what there is".into(),
            Self::EventIsRecord(_) => "only events that clients added can be changed; `windlass delete` removes a workflow with its events".into(),
            Self::NoSuchResult(_) => "`windlass results --format json` shows their ids".into(),
            Self::JobIsHeld { .. } => {
                "wait for it, or cancel the workflow; after a crash `windlass resume` takes the job back first".into()
            }
            Self::OutputTaken { .. } => {
                "name another output dataset; `windlass request restart NAME` begins a request anew with datasets of its own".into()
            }
            Self::NotOwner { .. } => "only its owner and operators change it: add the files to a dataset of your own".into(),
            Self::InUse { .. } => "delete or change what refers to it first".into(),
            Self::Circle { .. } => "leave out one of the dependencies or files".into(),
            Self::NotBuried { workflow, .. } => {
                format!("`windlass resume {workflow}` sees to it that nothing of them is left; cancel it if it should not go on")
            }
            Self::NotRunning { .. } => "jobs are added from inside a job, while it runs".into(),
            Self::TooManyIterations { .. } => {
                "end the loop earlier, or raise dynamic_jobs.max_iterations in the spec".into()
            }
            Self::BadExport { .. } => "`windlass export` writes files that can be imported".into(),
            Self::DuplicateName { .. } | Self::NameTaken { .. } => "give each its own name".into(),
            Self::StillActive { .. } => "wait for them, or cancel the workflow first".into(),
            Self::Conflict { .. } | Self::StaleRun { .. } => {
                "somebody else changed the workflow meanwhile; nothing was changed by this request".into()
            }
            Self::Outdated { .. } | Self::Unexpected { .. } => {
                "somebody else changed it meanwhile; nothing was changed by this; look again and decide anew".into()
            }
            Self::Remote(elsewhere) => return elsewhere.hint.clone(),
            Self::Action { .. } => "`windlass actions` shows how they stand; nothing was changed by this request".into(),
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

    /// The same for something that writes: then missing permission is a case of its own.
    pub(crate) fn file_write(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        match source.kind() {
            PermissionDenied | ReadOnlyFilesystem => Self::ReadOnly { path: path.to_owned() },
            _ => Self::file(what, path, source),
        }
    }
}

impl fmt::Display for JobState {
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
            Some(bytes) => write!(f, "its header says {bytes}"),
            None => f.write_str("too few to hold its header"),
        }
    }
}

/// The first few by name.
fn render_quoted_names(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut text = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(", …");
    }
    text
}

fn render_owner(owner: Option<&str>) -> String {
    owner.map_or_else(|| "no user that is known".to_owned(), |owner| format!("`{owner}`"))
}

fn render_found_state(found: Option<JobState>) -> String {
    found.map_or_else(|| "it is not there".to_owned(), |state| format!("is {state}"))
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

/// What went wrong inside the store, before it is known which file it was about.
#[derive(Debug)]
pub(crate) enum SqlError {
    Sqlite(rusqlite::Error),
    Postgres(crate::postgres::PgError),
    Store(StoreError),
    /// What is there is not what any version of windlass writes.
    Damage(String),
    /// A statement of a pipeline, by its number, found nothing to change.
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

    /// A name, or whatever else there may be once only, is there already.
    pub(crate) fn is_duplicate(&self) -> bool {
        match self {
            Self::Sqlite(e) => {
                e.sqlite_extended_error_code() == Some(rusqlite::ffi::SQLITE_CONSTRAINT_UNIQUE)
            }
            Self::Postgres(failure) => failure.is_duplicate(),
            Self::Store(_) | Self::Damage(_) | Self::NoRowAffected(_) => false,
        }
    }

    /// The connection is gone, and with it what was under way on it.
    pub(crate) fn is_connection_lost(&self) -> bool {
        matches!(self, Self::Postgres(failure) if failure.is_connection_lost())
    }

    /// For a database that is not a file.
    pub(crate) fn into_store_error_at(self, url: &str) -> StoreError {
        match self {
            Self::Postgres(failure) => failure.into_store_error(url),
            other => other.into_store_error(url.as_ref()),
        }
    }

    /// The name that is taken, where the database says which one.
    pub(crate) fn duplicate_name(&self) -> Option<String> {
        match self {
            Self::Postgres(failure) => failure.duplicate_name(),
            _ => None,
        }
    }

    /// Tells the disk's faults, the lock's, the file's and the request's apart.
    pub(crate) fn into_store_error(self, db: &Path) -> StoreError {
        use rusqlite::ErrorCode as Code;
        let source = match self {
            Self::Store(error) => return error,
            Self::Postgres(failure) => return failure.into_store_error(&db.to_string_lossy()),
            Self::Damage(detail) => return StoreError::Damaged { path: db.to_owned(), detail },
            Self::NoRowAffected(number) => {
                let detail = format!("statement {number} found nothing to change");
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
                // A value that no version of windlass writes, or a row that every version does.
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

/// Some calls of SQLite report a full disk as a plain failure.
fn is_disk_full(db: &Path) -> bool {
    rustix::fs::statvfs(db).is_ok_and(|fs| fs.f_bavail == 0)
}

//! Handing a DAG over once, whatever happens in between.
//!
//! HTCondor itself does not keep anybody from submitting a DAG twice, and two DAGMans in one directory ruin it. So there
//! is a lock for each directory, and a record that is on disk before anything is submitted:
//!
//! ```text
//! lock → intent on disk → condor_submit_dag → its number on disk → first seconds → unlock
//! ```
//!
//! Whoever finds an intent without a number looks for the DAG by its batch name, in the queue, in the history and in what
//! the schedd wrote beside the DAG, before he submits again. The lock belongs to `condor_submit_dag` as well: if we are
//! killed while it runs, the next one waits for its end before he looks.

mod record;
mod sight;

use crate::layout;
use crate::pool::{Condor, CondorError, DagSubmission};
use crate::read::events::{self, What};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use windlass_types::{Clock, Timestamp};

use self::record::Due;
pub use self::record::{RECORD, Record, Submission};
pub use self::sight::Sight;

pub const LOCK: &str = "submission.lock";

/// How long DAGMan's first words are waited for.
const FIRST_SECONDS: Duration = Duration::from_secs(20);
/// How much the clocks of two machines may differ.
const CLOCKS: Duration = Duration::from_hours(1);
const LOOK_AT_LOCK: Duration = Duration::from_millis(50);

/// A DAG that was handed over, now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its number in the queue of the schedd.
    pub cluster: u64,
    pub schedd: Option<String>,
    pub number: u32,
    pub sight: Sight,
}

#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    #[error("there is no DAG to submit: {}", path.display())]
    NoDag { path: PathBuf },
    #[error("{}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("somebody else is submitting the DAG of {}", directory.display())]
    Busy { directory: PathBuf },
    #[error("{} belongs to {found}, not to {batch}: another run was submitted from this directory", path.display())]
    OtherRun { path: PathBuf, found: String, batch: String },
    #[error("submission {number} is not the next one of this DAG, which is {next}")]
    OutOfTurn { number: u32, next: u32 },
    #[error("DAGMan {cluster} still works on this DAG: remove it, or wait for its end, before a rescue")]
    StillThere { cluster: u64 },
    #[error("DAGMan {cluster} did not accept the DAG: {reason}")]
    Rejected { cluster: u64, reason: String },
    #[error(transparent)]
    Condor(#[from] CondorError),
}

impl SubmitError {
    /// The same call may succeed later, and is the right thing to do.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::StillThere { .. } => true,
            Self::Condor(error) => error.is_transient(),
            _ => false,
        }
    }

    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Io { path: path.to_owned(), source }
    }
}

/// Makes sure that the DAG of this directory was submitted, and once. Call it again after a crash or an error.
pub fn submit(condor: &Condor, directory: &Path, batch: &str) -> Result<Submitted, SubmitError> {
    hand_over(condor, directory, batch, 1)
}

/// The same for a later submission of the same DAG, which goes on where the one before ended. Its number (2, 3, …) says
/// which: asked for again it is found, not made again.
pub fn rescue(condor: &Condor, directory: &Path, batch: &str, number: u32) -> Result<Submitted, SubmitError> {
    hand_over(condor, directory, batch, number)
}

/// The number in the queue of this submission, if it was made; without making it. Waits for one that is under way.
pub fn find(condor: &Condor, directory: &Path, batch: &str, number: u32) -> Result<Option<u64>, SubmitError> {
    let lock = lock(directory, condor.limit)?;
    let desk = Desk { condor, directory, lock: &lock, record: Record::read_for(directory, batch)? };
    match desk.record.due(number)? {
        Due::Done(_, cluster) => Ok(Some(cluster)),
        Due::Look(begun) => desk.lost(&begun),
        Due::Begin => Ok(None),
    }
}

fn hand_over(condor: &Condor, directory: &Path, batch: &str, number: u32) -> Result<Submitted, SubmitError> {
    let dag = directory.join(layout::OUTER_DAG);
    if !dag.is_file() {
        return Err(SubmitError::NoDag { path: dag });
    }
    let lock = lock(directory, condor.limit)?;
    let mut desk = Desk { condor, directory, lock: &lock, record: Record::read_for(directory, batch)? };
    let (submission, cluster) = match desk.record.due(number)? {
        Due::Done(submission, cluster) => (submission, cluster),
        Due::Look(begun) => desk.resume(begun)?,
        Due::Begin => desk.begin(number)?,
    };
    desk.watch(submission, cluster)
}

/// Held until it is dropped; and by a command that inherited it, until that is over.
fn lock(directory: &Path, patience: Duration) -> Result<File, SubmitError> {
    let path = directory.join(LOCK);
    let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
    let file = file.map_err(SubmitError::io(&path))?;
    let deadline = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(source)) => return Err(SubmitError::Io { path, source }),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(SubmitError::Busy { directory: directory.to_owned() });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK_AT_LOCK),
        }
    }
}

/// Whoever holds the lock of a directory.
struct Desk<'a> {
    condor: &'a Condor,
    directory: &'a Path,
    lock: &'a File,
    record: Record,
}

impl Desk<'_> {
    /// The intent, then the deed.
    fn begin(&mut self, number: u32) -> Result<(Submission, u64), SubmitError> {
        let queued = self.condor.find(&self.record.batch)?;
        let schedd = self.condor.schedd.clone();
        if let Some(earlier) = queued.iter().find(|job| self.record.knows(schedd.as_deref(), job.cluster)) {
            return Err(SubmitError::StillThere { cluster: earlier.cluster });
        }
        let begun = Submission { number, schedd, begun_at: Clock.now(), cluster: None, has_started: false };
        self.record.note(self.directory, &begun)?;
        match queued.first() {
            // One that nobody knows of: the record was lost, with or without its directory.
            Some(stray) => self.found(begun, stray.cluster),
            None => self.send(begun),
        }
    }

    /// Somebody began it and did not say how it went.
    fn resume(&mut self, begun: Submission) -> Result<(Submission, u64), SubmitError> {
        match self.lost(&begun)? {
            Some(cluster) => self.found(begun, cluster),
            None => self.send(begun),
        }
    }

    /// The DAG that came of an intent, if one did.
    fn lost(&self, begun: &Submission) -> Result<Option<u64>, SubmitError> {
        // Where it was meant to go, whatever is preferred now.
        let condor = Condor { schedd: begun.schedd.clone(), ..self.condor.clone() };
        let batch = &self.record.batch;
        let queued = condor.find(batch)?;
        let over =
            condor.find_in_history(batch, Timestamp(begun.begun_at.micros() - CLOCKS.as_micros() as i64))?;
        let found = queued.iter().chain(&over).map(|job| job.cluster).chain(self.logged()?);
        Ok(found.filter(|cluster| !self.record.knows(begun.schedd.as_deref(), *cluster)).max())
    }

    /// The DAGMan jobs of which the schedd wrote beside the DAG that they were submitted.
    fn logged(&self) -> Result<Vec<u64>, SubmitError> {
        let path = self.directory.join(format!("{}{}", layout::OUTER_DAG, layout::DAGMAN_LOG));
        let log = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(SubmitError::io(&path))?,
        };
        let submitted =
            events::parse(&log).into_iter().filter(|event| matches!(event.what, What::Submitted { .. }));
        Ok(submitted.map(|event| event.cluster).collect())
    }

    fn send(&mut self, begun: Submission) -> Result<(Submission, u64), SubmitError> {
        let condor = Condor { schedd: begun.schedd.clone(), ..self.condor.clone() };
        let submission =
            DagSubmission { directory: self.directory, batch: &self.record.batch, lock: self.lock };
        let cluster = condor.submit_dag(&submission)?;
        self.found(begun, cluster)
    }

    /// Its number is known from now on.
    fn found(&mut self, begun: Submission, cluster: u64) -> Result<(Submission, u64), SubmitError> {
        let submission = Submission { cluster: Some(cluster), ..begun };
        self.record.note(self.directory, &submission)?;
        Ok((submission, cluster))
    }

    fn watch(&mut self, submission: Submission, cluster: u64) -> Result<Submitted, SubmitError> {
        if submission.has_started {
            return Ok(submission.into_seen(cluster, Sight::Started));
        }
        let sight = sight::watch(self.directory, cluster, FIRST_SECONDS)?;
        if sight == Sight::Started {
            self.record.note(self.directory, &Submission { has_started: true, ..submission.clone() })?;
        }
        Ok(submission.into_seen(cluster, sight))
    }
}

impl Submission {
    fn into_seen(self, cluster: u64, sight: Sight) -> Submitted {
        Submitted { cluster, schedd: self.schedd, number: self.number, sight }
    }
}

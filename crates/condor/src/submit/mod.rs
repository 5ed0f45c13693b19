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
//! killed while it runs, the next one waits for its end before he looks. A submission that DAGMan did not accept is told of
//! once, and on record; asked for again, when somebody has mended what was wrong, it is made again.

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
/// What was removed is usually gone after some seconds.
const ENDING: Duration = Duration::from_secs(30);
const ASK_AGAIN: Duration = Duration::from_secs(1);

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
    #[error("{left} jobs of the run before it are still being ended")]
    StillEnding { left: usize },
    #[error("DAGMan {cluster} did not accept the DAG: {reason}")]
    Rejected { cluster: u64, reason: String },
    #[error(transparent)]
    Condor(#[from] CondorError),
}

impl SubmitError {
    /// The same call may succeed later, and is the right thing to do.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::StillThere { .. } | Self::StillEnding { .. } => true,
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
    rescue(condor, directory, batch, 1)
}

/// The same for a later submission of the same DAG, which goes on where the one before ended. Its number (2, 3, …) says
/// which: asked for again it is found, not made again.
pub fn rescue(condor: &Condor, directory: &Path, batch: &str, number: u32) -> Result<Submitted, SubmitError> {
    Desk::open(condor, directory, batch)?.hand_over(number)
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

/// Whoever holds the lock of a directory: nobody else submits between what he finds there and what he does about it.
#[derive(Debug)]
pub struct Desk<'a> {
    condor: &'a Condor,
    directory: &'a Path,
    lock: File,
    record: Record,
}

impl<'a> Desk<'a> {
    /// Waits for a submission that is under way.
    pub fn open(condor: &'a Condor, directory: &'a Path, batch: &str) -> Result<Self, SubmitError> {
        let lock = lock(directory, condor.limit)?;
        let mut record = Record::read_for(directory, batch)?;
        if let Some((last, cluster)) = record.rejected()
            && sight::has_started(directory, cluster)?
        {
            // What it wrote was to be seen later than its end, as on a shared file system.
            (last.rejected, last.has_started) = (None, true);
        }
        Ok(Self { condor, directory, lock, record })
    }

    /// The number of the submission that would go on with this DAG.
    pub fn next_number(&self) -> u32 {
        self.record.next_number()
    }

    /// Something of this directory was in the queue before, whatever became of it.
    pub fn was_submitted(&self) -> bool {
        self.record.submissions.iter().any(|submission| submission.cluster.is_some())
    }

    /// The number in the queue of this submission, if it was made; without making it.
    pub fn find(&self, number: u32) -> Result<Option<u64>, SubmitError> {
        Ok(self.find_at(number)?.map(|(_, cluster)| cluster))
    }

    /// The same, with the schedd whose queue that is.
    pub fn find_at(&self, number: u32) -> Result<Option<(Option<String>, u64)>, SubmitError> {
        match self.record.due(number)? {
            Due::Done(submission, cluster) => Ok(Some((submission.schedd, cluster))),
            Due::Look(begun) => Ok(self.lost(&begun)?.map(|cluster| (begun.schedd, cluster))),
            Due::Begin => Ok(None),
        }
    }

    /// Whether the files of the DAG may be changed for this submission: it was not made, and nothing of the one before
    /// is in the queue any more. DAGMan is over before the DAGs of its units are, which have still to write down what they
    /// did: all of them are waited for.
    pub fn is_to_be_made(&self, number: u32) -> Result<bool, SubmitError> {
        if self.find(number)?.is_some() {
            return Ok(false);
        }
        match self.stray() {
            Ok(Some(_)) => Ok(false),
            Ok(None) if !self.was_submitted() => Ok(true),
            Ok(None) | Err(SubmitError::StillThere { .. }) => self.await_the_last().map(|()| true),
            Err(error) => Err(error),
        }
    }

    /// Nobody works on this DAG, as far as is known.
    pub fn check_alone(&self) -> Result<(), SubmitError> {
        self.stray().map(drop)
    }

    /// Makes sure that this submission was made, and once.
    pub fn hand_over(&mut self, number: u32) -> Result<Submitted, SubmitError> {
        let dag = self.directory.join(layout::OUTER_DAG);
        if !dag.is_file() {
            return Err(SubmitError::NoDag { path: dag });
        }
        let (submission, cluster) = match self.record.due(number)? {
            Due::Done(submission, cluster) => (submission, cluster),
            Due::Look(begun) => self.resume(begun)?,
            Due::Begin => self.begin(number)?,
        };
        self.watch(submission, cluster)
    }

    fn await_the_last(&self) -> Result<(), SubmitError> {
        let deadline = Instant::now() + ENDING;
        loop {
            let left = self.everywhere(|condor| condor.left(&self.record.batch))?.into_iter().sum();
            if left == 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                self.check_alone()?;
                return Err(SubmitError::StillEnding { left });
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    /// A DAG in the queue that nobody knows of: the record was lost, with or without its directory. One that is known and
    /// there must not get company.
    fn stray(&self) -> Result<Option<u64>, SubmitError> {
        let queued = self.everywhere(|condor| condor.find(&self.record.batch))?.concat();
        match queued.iter().find(|job| self.record.knows_number(job.cluster)) {
            Some(earlier) => Err(SubmitError::StillThere { cluster: earlier.cluster }),
            None => Ok(queued.first().map(|job| job.cluster)),
        }
    }

    /// What the schedds say where something of this DAG may be: the one where it goes, and the one where it was, which may
    /// be another and out of service.
    fn everywhere<T>(&self, ask: impl Fn(&Condor) -> Result<T, CondorError>) -> Result<Vec<T>, SubmitError> {
        let mut answers = vec![ask(self.condor)?];
        if let Some(last) = self.record.last_elsewhere(self.condor.schedd.as_deref()) {
            match ask(&Condor { schedd: last.schedd.clone(), ..self.condor.clone() }) {
                Err(error) if error.is_unknown_schedd() => {}
                answer => answers.push(answer?),
            }
        }
        Ok(answers)
    }

    /// The intent, then the deed.
    fn begin(&mut self, number: u32) -> Result<(Submission, u64), SubmitError> {
        let stray = self.stray()?;
        if self.record.last_elsewhere(self.condor.schedd.as_deref()).is_some() {
            self.forget_end()?;
        }
        let begun = Submission::begun(number, self.condor.schedd.clone(), Clock.now());
        self.record.note(self.directory, &begun)?;
        match stray {
            Some(stray) => self.found(begun, stray),
            None => self.send(begun),
        }
    }

    /// How the run before ended is known by its number, which another schedd may give again.
    fn forget_end(&self) -> Result<(), SubmitError> {
        let path = self.directory.join(format!("{}{}", layout::OUTER_DAG, layout::METRICS));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(SubmitError::io(&path)(error)),
            _ => Ok(()),
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
        // Lines of the log do not say at which schedd they were written.
        let logged = self.logged()?.into_iter().filter(|cluster| !self.record.knows_number(*cluster));
        let found = queued.iter().chain(&over).map(|job| job.cluster).chain(logged);
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
            DagSubmission { directory: self.directory, batch: &self.record.batch, lock: &self.lock };
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
        let sight = sight::watch(self.directory, cluster, FIRST_SECONDS);
        if let Err(SubmitError::Rejected { reason, .. }) = &sight {
            let rejected = Some(reason.clone());
            self.record.note(self.directory, &Submission { rejected, ..submission.clone() })?;
        }
        let sight = sight?;
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

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

mod startup;
mod submission_record;

use crate::commands::{CondorClient, CondorError, DagSubmission};
use crate::file_layout;
use crate::parsers::events::{self, CondorEventKind};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use windlass_types::{SystemClock, Timestamp};

pub use self::startup::DagStartup;
use self::submission_record::SubmissionStep;
pub use self::submission_record::{RECORD_FILE, RecordedSubmission, SubmissionRecord};

pub const LOCK_FILE: &str = "submission.lock";

/// How long DAGMan's first words are waited for.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(20);
/// How much the clocks of two machines may differ.
const MAX_CLOCK_SKEW: Duration = Duration::from_hours(1);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// What was removed is usually gone after some seconds.
const END_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A DAG that was handed over, now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmittedDag {
    /// Its number in the queue of the schedd.
    pub cluster: u64,
    pub schedd: Option<String>,
    pub number: u32,
    pub startup: DagStartup,
}

#[derive(Debug, thiserror::Error)]
pub enum DagSubmitError {
    #[error("there is no DAG to submit: {}", path.display())]
    NoDag { path: PathBuf },
    #[error("{}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("somebody else is submitting the DAG of {}", directory.display())]
    Locked { directory: PathBuf },
    #[error("{} belongs to {found}, not to {batch}: another run was submitted from this directory", path.display())]
    OtherRun { path: PathBuf, found: String, batch: String },
    #[error("submission {number} is not the next one of this DAG, which is {next}")]
    WrongNumber { number: u32, next: u32 },
    #[error("DAGMan {cluster} still works on this DAG: remove it, or wait for its end, before a rescue")]
    StillQueued { cluster: u64 },
    #[error("{left} jobs of the run before it are still being ended")]
    StillEnding { left: usize },
    #[error("DAGMan {cluster} did not accept the DAG: {reason}")]
    Rejected { cluster: u64, reason: String },
    #[error(transparent)]
    Condor(#[from] CondorError),
}

impl DagSubmitError {
    /// The same call may succeed later, and is the right thing to do.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Locked { .. } | Self::StillQueued { .. } | Self::StillEnding { .. } => true,
            Self::Condor(error) => error.is_transient(),
            _ => false,
        }
    }

    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Io { path: path.to_owned(), source }
    }
}

/// Makes sure that the DAG of this directory was submitted, and once. Call it again after a crash or an error.
pub fn submit(condor: &CondorClient, directory: &Path, batch: &str) -> Result<SubmittedDag, DagSubmitError> {
    submit_rescue(condor, directory, batch, 1)
}

/// The same for a later submission of the same DAG, which goes on where the one before ended. Its number (2, 3, …) says
/// which: asked for again it is found, not made again.
pub fn submit_rescue(
    condor: &CondorClient,
    directory: &Path,
    batch: &str,
    number: u32,
) -> Result<SubmittedDag, DagSubmitError> {
    SubmitLock::open(condor, directory, batch)?.submit(number)
}

/// Held until it is dropped; and by a command that inherited it, until that is over.
fn acquire_lock(directory: &Path, patience: Duration) -> Result<File, DagSubmitError> {
    let path = directory.join(LOCK_FILE);
    let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
    let file = file.map_err(DagSubmitError::io(&path))?;
    let deadline = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(source)) => return Err(DagSubmitError::Io { path, source }),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                return Err(DagSubmitError::Locked { directory: directory.to_owned() });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_POLL_INTERVAL),
        }
    }
}

/// Whoever holds the lock of a directory: nobody else submits between what he finds there and what he does about it.
#[derive(Debug)]
pub struct SubmitLock<'a> {
    client: &'a CondorClient,
    directory: &'a Path,
    lock: File,
    record: SubmissionRecord,
}

impl<'a> SubmitLock<'a> {
    /// Waits for a submission that is under way.
    pub fn open(condor: &'a CondorClient, directory: &'a Path, batch: &str) -> Result<Self, DagSubmitError> {
        let lock = acquire_lock(directory, condor.timeout)?;
        let mut record = SubmissionRecord::load_for(directory, batch)?;
        if let Some((last, cluster)) = record.last_rejected()
            && startup::has_started(directory, cluster)?
        {
            // What it wrote was to be seen later than its end, as on a shared file system.
            (last.rejected, last.has_started) = (None, true);
        }
        Ok(Self { client: condor, directory, lock, record })
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
    pub fn find(&self, number: u32) -> Result<Option<u64>, DagSubmitError> {
        Ok(self.find_with_schedd(number)?.map(|(_, cluster)| cluster))
    }

    /// The same, with the schedd whose queue that is.
    pub fn find_with_schedd(&self, number: u32) -> Result<Option<(Option<String>, u64)>, DagSubmitError> {
        match self.record.next_step(number)? {
            SubmissionStep::Done(submission, cluster) => Ok(Some((submission.schedd, cluster))),
            SubmissionStep::Search(begun) => {
                Ok(self.find_lost_submission(&begun)?.map(|cluster| (begun.schedd, cluster)))
            }
            SubmissionStep::Begin => Ok(None),
        }
    }

    /// Whether the files of the DAG may be changed for this submission: it was not made, and nothing of the one before
    /// is in the queue any more. DAGMan is over before the DAGs of its units are, which have still to write down what they
    /// did: all of them are waited for.
    pub fn may_change_files(&self, number: u32) -> Result<bool, DagSubmitError> {
        if self.find(number)?.is_some() {
            return Ok(false);
        }
        match self.find_stray_dag() {
            Ok(Some(_)) => Ok(false),
            Ok(None) if !self.was_submitted() => Ok(true),
            Ok(None) | Err(DagSubmitError::StillQueued { .. }) => self.await_previous_end().map(|()| true),
            Err(error) => Err(error),
        }
    }

    /// Nobody works on this DAG, as far as is known.
    pub fn check_not_running(&self) -> Result<(), DagSubmitError> {
        self.find_stray_dag().map(drop)
    }

    /// Makes sure that this submission was made, and once.
    pub fn submit(&mut self, number: u32) -> Result<SubmittedDag, DagSubmitError> {
        let dag = self.directory.join(file_layout::OUTER_DAG);
        if !dag.is_file() {
            return Err(DagSubmitError::NoDag { path: dag });
        }
        let (submission, cluster) = match self.record.next_step(number)? {
            SubmissionStep::Done(submission, cluster) => (submission, cluster),
            SubmissionStep::Search(begun) => self.resume_submission(begun)?,
            SubmissionStep::Begin => self.begin_submission(number)?,
        };
        self.await_startup(submission, cluster)
    }

    fn await_previous_end(&self) -> Result<(), DagSubmitError> {
        let deadline = Instant::now() + END_TIMEOUT;
        loop {
            let left =
                self.query_all_schedds(|condor| condor.count_jobs(&self.record.batch))?.into_iter().sum();
            if left == 0 {
                return Ok(());
            }
            if Instant::now() >= deadline {
                self.check_not_running()?;
                return Err(DagSubmitError::StillEnding { left });
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// A DAG in the queue that nobody knows of: the record was lost, with or without its directory. One that is known and
    /// there must not get company.
    fn find_stray_dag(&self) -> Result<Option<u64>, DagSubmitError> {
        let queued = self.query_all_schedds(|condor| condor.find_dags(&self.record.batch))?.concat();
        match queued.iter().find(|job| self.record.has_cluster_anywhere(job.cluster)) {
            Some(earlier) => Err(DagSubmitError::StillQueued { cluster: earlier.cluster }),
            None => Ok(queued.first().map(|job| job.cluster)),
        }
    }

    /// What the schedds say where something of this DAG may be: the one where it goes, and the one where it was, which may
    /// be another and out of service.
    fn query_all_schedds<T>(
        &self,
        ask: impl Fn(&CondorClient) -> Result<T, CondorError>,
    ) -> Result<Vec<T>, DagSubmitError> {
        let mut answers = vec![ask(self.client)?];
        if let Some(last) = self.record.last_at_other_schedd(self.client.schedd.as_deref()) {
            match ask(&CondorClient { schedd: last.schedd.clone(), ..self.client.clone() }) {
                Err(error) if error.is_unknown_schedd() => {}
                answer => answers.push(answer?),
            }
        }
        Ok(answers)
    }

    /// The intent, then the deed.
    fn begin_submission(&mut self, number: u32) -> Result<(RecordedSubmission, u64), DagSubmitError> {
        let stray = self.find_stray_dag()?;
        if self.record.last_at_other_schedd(self.client.schedd.as_deref()).is_some() {
            self.remove_old_metrics()?;
        }
        let begun = RecordedSubmission::new_intent(number, self.client.schedd.clone(), SystemClock.now());
        self.record.save_submission(self.directory, &begun)?;
        match stray {
            Some(stray) => self.record_cluster(begun, stray),
            None => self.run_submission(begun),
        }
    }

    /// How the run before ended is known by its number, which another schedd may give again.
    fn remove_old_metrics(&self) -> Result<(), DagSubmitError> {
        let path = self.directory.join(format!("{}{}", file_layout::OUTER_DAG, file_layout::METRICS_SUFFIX));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DagSubmitError::io(&path)(error)),
            _ => Ok(()),
        }
    }

    /// Somebody began it and did not say how it went.
    fn resume_submission(
        &mut self,
        begun: RecordedSubmission,
    ) -> Result<(RecordedSubmission, u64), DagSubmitError> {
        match self.find_lost_submission(&begun)? {
            Some(cluster) => self.record_cluster(begun, cluster),
            None => self.run_submission(begun),
        }
    }

    /// The DAG that came of an intent, if one did.
    fn find_lost_submission(&self, begun: &RecordedSubmission) -> Result<Option<u64>, DagSubmitError> {
        // Where it was meant to go, whatever is preferred now.
        let condor = CondorClient { schedd: begun.schedd.clone(), ..self.client.clone() };
        let batch = &self.record.batch;
        let queued = condor.find_dags(batch)?;
        let over = condor
            .find_in_history(batch, Timestamp(begun.begun_at.micros() - MAX_CLOCK_SKEW.as_micros() as i64))?;
        // Lines of the log do not say at which schedd they were written.
        let logged = self
            .read_logged_clusters()?
            .into_iter()
            .filter(|cluster| !self.record.has_cluster_anywhere(*cluster));
        let found = queued.iter().chain(&over).map(|job| job.cluster).chain(logged);
        Ok(found.filter(|cluster| !self.record.has_cluster(begun.schedd.as_deref(), *cluster)).max())
    }

    /// The DAGMan jobs of which the schedd wrote beside the DAG that they were submitted.
    fn read_logged_clusters(&self) -> Result<Vec<u64>, DagSubmitError> {
        let path =
            self.directory.join(format!("{}{}", file_layout::OUTER_DAG, file_layout::DAGMAN_LOG_SUFFIX));
        let log = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read.map_err(DagSubmitError::io(&path))?,
        };
        let submitted = events::parse_events(&log)
            .into_iter()
            .filter(|event| matches!(event.kind, CondorEventKind::Submitted { .. }));
        Ok(submitted.map(|event| event.cluster).collect())
    }

    fn run_submission(
        &mut self,
        begun: RecordedSubmission,
    ) -> Result<(RecordedSubmission, u64), DagSubmitError> {
        let condor = CondorClient { schedd: begun.schedd.clone(), ..self.client.clone() };
        let submission =
            DagSubmission { directory: self.directory, batch: &self.record.batch, lock: &self.lock };
        let cluster = condor.submit_dag(&submission)?;
        self.record_cluster(begun, cluster)
    }

    /// Its number is known from now on.
    fn record_cluster(
        &mut self,
        begun: RecordedSubmission,
        cluster: u64,
    ) -> Result<(RecordedSubmission, u64), DagSubmitError> {
        let submission = RecordedSubmission { cluster: Some(cluster), ..begun };
        self.record.save_submission(self.directory, &submission)?;
        Ok((submission, cluster))
    }

    fn await_startup(
        &mut self,
        submission: RecordedSubmission,
        cluster: u64,
    ) -> Result<SubmittedDag, DagSubmitError> {
        if submission.has_started {
            return Ok(submission.into_submitted(cluster, DagStartup::Started));
        }
        let sight = startup::await_startup(self.directory, cluster, STARTUP_TIMEOUT);
        if let Err(DagSubmitError::Rejected { reason, .. }) = &sight {
            let rejected = Some(reason.clone());
            self.record
                .save_submission(self.directory, &RecordedSubmission { rejected, ..submission.clone() })?;
        }
        let sight = sight?;
        if sight == DagStartup::Started {
            self.record.save_submission(
                self.directory,
                &RecordedSubmission { has_started: true, ..submission.clone() },
            )?;
        }
        Ok(submission.into_submitted(cluster, sight))
    }
}

impl RecordedSubmission {
    fn into_submitted(self, cluster: u64, sight: DagStartup) -> SubmittedDag {
        SubmittedDag { cluster, schedd: self.schedd, number: self.number, startup: sight }
    }
}

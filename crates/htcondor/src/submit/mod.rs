//! Submits a DAG exactly once, in spite of crashes.
//!
//! HTCondor itself does not prevent a second submission of a DAG, and two DAGMans in one directory corrupt it. So
//! there is a lock for each directory, and a record that is on disk before anything is submitted:
//!
//! ```text
//! lock → intent on disk → condor_submit_dag → cluster id on disk → startup → unlock
//! ```
//!
//! If an intent has no cluster id, the DAG is looked up by its batch name in the queue, in the history and in the
//! schedd's log beside the DAG before it is submitted again. `condor_submit_dag` inherits the lock: if this
//! process is killed while the command runs, the next one waits for the end of the command before it searches. A
//! rejection by DAGMan is reported and recorded once; a later call, after the cause was fixed, submits again.

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

/// How long to wait for DAGMan's first log lines.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(20);
/// The largest difference between the clocks of two machines.
const MAX_CLOCK_SKEW: Duration = Duration::from_hours(1);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Removed jobs usually leave the queue within seconds.
const END_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A DAG that was submitted, now or before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmittedDag {
    /// Its cluster id in the queue of the schedd.
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
    #[error("another process is submitting the DAG of {}", directory.display())]
    Locked { directory: PathBuf },
    #[error("{} belongs to {found}, not to {batch}: another run was submitted from this directory", path.display())]
    OtherRun { path: PathBuf, found: String, batch: String },
    #[error("submission {number} is not the next one of this DAG, which is {next}")]
    WrongNumber { number: u32, next: u32 },
    #[error("DAGMan {cluster} still runs this DAG: remove it, or wait for its end, before a rescue")]
    StillQueued { cluster: u64 },
    #[error("{left} jobs of the previous run are still ending")]
    StillEnding { left: usize },
    #[error("DAGMan {cluster} rejected the DAG: {reason}")]
    Rejected { cluster: u64, reason: String },
    #[error(transparent)]
    Condor(#[from] CondorError),
}

impl DagSubmitError {
    /// Whether the same call should be repeated later.
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

/// Ensures that the DAG of this directory was submitted exactly once. Call it again after a crash or an error.
pub fn submit(condor: &CondorClient, directory: &Path, batch: &str) -> Result<SubmittedDag, DagSubmitError> {
    submit_rescue(condor, directory, batch, 1)
}

/// The same for a later submission of the same DAG, which continues where the previous one ended. Its number (2,
/// 3, …) identifies it: a repeated call finds the submission instead of making another.
pub fn submit_rescue(
    condor: &CondorClient,
    directory: &Path,
    batch: &str,
    number: u32,
) -> Result<SubmittedDag, DagSubmitError> {
    SubmitLock::open(condor, directory, batch)?.submit(number)
}

/// Held until it is dropped, and until a command that inherited it has ended.
fn acquire_lock(directory: &Path, max_wait: Duration) -> Result<File, DagSubmitError> {
    let path = directory.join(LOCK_FILE);
    let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
    let file = file.map_err(DagSubmitError::io(&path))?;
    let deadline = Instant::now() + max_wait;
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

/// The lock of a directory: no other process submits between reading its state and acting on it.
#[derive(Debug)]
pub struct SubmitLock<'a> {
    client: &'a CondorClient,
    directory: &'a Path,
    lock: File,
    record: SubmissionRecord,
}

impl<'a> SubmitLock<'a> {
    /// Waits for a running submission.
    pub fn open(condor: &'a CondorClient, directory: &'a Path, batch: &str) -> Result<Self, DagSubmitError> {
        let lock = acquire_lock(directory, condor.timeout)?;
        let mut record = SubmissionRecord::load_for(directory, batch)?;
        if let Some((last, cluster)) = record.last_rejected()
            && startup::has_started(directory, cluster)?
        {
            // On a shared file system, the files of the command may become visible only after its end.
            (last.rejected, last.has_started) = (None, true);
        }
        Ok(Self { client: condor, directory, lock, record })
    }

    /// The number of the next submission of this DAG.
    pub fn next_number(&self) -> u32 {
        self.record.next_number()
    }

    /// Whether anything from this directory was ever queued.
    pub fn was_submitted(&self) -> bool {
        self.record.submissions.iter().any(|submission| submission.cluster.is_some())
    }

    /// Returns the cluster id of this submission if it was made; does not submit.
    pub fn find(&self, number: u32) -> Result<Option<u64>, DagSubmitError> {
        Ok(self.find_with_schedd(number)?.map(|(_, cluster)| cluster))
    }

    /// The same, with the schedd of that queue.
    pub fn find_with_schedd(&self, number: u32) -> Result<Option<(Option<String>, u64)>, DagSubmitError> {
        match self.record.next_step(number)? {
            SubmissionStep::Done(submission, cluster) => Ok(Some((submission.schedd, cluster))),
            SubmissionStep::Search(begun) => {
                Ok(self.find_lost_submission(&begun)?.map(|cluster| (begun.schedd, cluster)))
            }
            SubmissionStep::Begin => Ok(None),
        }
    }

    /// Whether the files of the DAG may be changed for this submission: it was not made, and no job of the
    /// previous one is queued any more. DAGMan ends before the DAGMans of its units, which still write their
    /// results: all of them are waited for.
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

    /// Fails if a DAGMan is known to run this DAG.
    pub fn check_not_running(&self) -> Result<(), DagSubmitError> {
        self.find_stray_dag().map(drop)
    }

    /// Ensures that this submission was made exactly once.
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

    /// Finds a queued DAG that is not on record: the record was lost, with or without its directory. If a DAG
    /// that is on record is queued, no other may be submitted.
    fn find_stray_dag(&self) -> Result<Option<u64>, DagSubmitError> {
        let queued = self.query_all_schedds(|condor| condor.find_dags(&self.record.batch))?.concat();
        match queued.iter().find(|job| self.record.has_cluster_anywhere(job.cluster)) {
            Some(earlier) => Err(DagSubmitError::StillQueued { cluster: earlier.cluster }),
            None => Ok(queued.first().map(|job| job.cluster)),
        }
    }

    /// The answers of the schedds that may have this DAG: the one for the submission and that of the previous
    /// one, which may be different and out of service.
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

    /// Records the intent, then submits.
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

    /// The end of the previous run is identified by its cluster id, which another schedd may use again.
    fn remove_old_metrics(&self) -> Result<(), DagSubmitError> {
        let path = self.directory.join(format!("{}{}", file_layout::OUTER_DAG, file_layout::METRICS_SUFFIX));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DagSubmitError::io(&path)(error)),
            _ => Ok(()),
        }
    }

    /// An intent without a result: searches for the DAG.
    fn resume_submission(
        &mut self,
        begun: RecordedSubmission,
    ) -> Result<(RecordedSubmission, u64), DagSubmitError> {
        match self.find_lost_submission(&begun)? {
            Some(cluster) => self.record_cluster(begun, cluster),
            None => self.run_submission(begun),
        }
    }

    /// The DAG that was submitted for an intent, if any.
    fn find_lost_submission(&self, begun: &RecordedSubmission) -> Result<Option<u64>, DagSubmitError> {
        // At the schedd of the intent, whichever is preferred now.
        let condor = CondorClient { schedd: begun.schedd.clone(), ..self.client.clone() };
        let batch = &self.record.batch;
        let queued = condor.find_dags(batch)?;
        let over = condor
            .find_in_history(batch, Timestamp(begun.begun_at.micros() - MAX_CLOCK_SKEW.as_micros() as i64))?;
        // Lines of the log do not name the schedd that wrote them.
        let logged = self
            .read_logged_clusters()?
            .into_iter()
            .filter(|cluster| !self.record.has_cluster_anywhere(*cluster));
        let found = queued.iter().chain(&over).map(|job| job.cluster).chain(logged);
        Ok(found.filter(|cluster| !self.record.has_cluster(begun.schedd.as_deref(), *cluster)).max())
    }

    /// The DAGMan jobs whose submission the schedd logged beside the DAG.
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

    /// Records the cluster id.
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
        let startup = startup::await_startup(self.directory, cluster, STARTUP_TIMEOUT);
        if let Err(DagSubmitError::Rejected { reason, .. }) = &startup {
            let rejected = Some(reason.clone());
            self.record
                .save_submission(self.directory, &RecordedSubmission { rejected, ..submission.clone() })?;
        }
        let startup = startup?;
        if startup == DagStartup::Started {
            self.record.save_submission(
                self.directory,
                &RecordedSubmission { has_started: true, ..submission.clone() },
            )?;
        }
        Ok(submission.into_submitted(cluster, startup))
    }
}

impl RecordedSubmission {
    fn into_submitted(self, cluster: u64, startup: DagStartup) -> SubmittedDag {
        SubmittedDag { cluster, schedd: self.schedd, number: self.number, startup }
    }
}

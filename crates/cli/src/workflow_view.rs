//! Views of a workflow, loaded from the store; shared by `status`, `workflows` and the end of a run.
//!
//! The serialized field names are part of the contract of `--format json`.

use crate::commands::workflows;
use crate::error::{CliError, CliExit};
use crate::job_logs::{self, LogStream};
use crate::orphaned_workers::{self, OrphanedWorker};
use crate::ui::listing::RecordView;
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use std::path::PathBuf;
use std::time::Duration;
use windlass_client::Client;
pub(crate) use windlass_insight::{WorkflowPhase, has_active_process};
use windlass_insight::{is_remote_store, needs_decision};
use windlass_store::Store;
use windlass_store::model::{JobFilter, JobRow, ResultFilter, ResultRow, WorkflowRow};
use windlass_types::worker_messages::StdioSettings;
use windlass_types::{Attempt, JobId, JobStatus, RunId, StatusCounts, Timestamp, WorkflowId};

/// Maximum number of failed or running jobs listed; the counts cover all.
const MAX_LISTED: u64 = 10;

/// The exit code of a command that ran the workflow.
pub(crate) fn exit_for_counts(counts: &StatusCounts) -> CliExit {
    match () {
        () if needs_decision(counts) => CliExit::NeedsDecision,
        () if counts.settled() < counts.total() => CliExit::Interrupted,
        () if counts.unsuccessful() > 0 => CliExit::JobsFailed,
        () => CliExit::Success,
    }
}

/// One workflow in a list.
#[derive(Debug)]
pub(crate) struct WorkflowView {
    pub(crate) row: WorkflowRow,
    pub(crate) state: WorkflowPhase,
    pub(crate) jobs: StatusCountsView,
    /// Of the current run: from its start to its end, or until now while it runs.
    pub(crate) elapsed_seconds: Option<f64>,
}

impl WorkflowView {
    pub(crate) fn new(row: WorkflowRow, has_active_process: bool, now: Timestamp) -> Self {
        let state = WorkflowPhase::from_row(&row, has_active_process);
        let elapsed = elapsed(&row, state, now);
        let jobs = StatusCountsView(row.counts);
        Self { row, state, jobs, elapsed_seconds: elapsed.map(|e| e.as_secs_f64()) }
    }

    pub(crate) fn elapsed(&self) -> Option<Duration> {
        self.elapsed_seconds.map(Duration::from_secs_f64)
    }
}

/// With the fields of the list of workflows.
impl Serialize for WorkflowView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RecordView::new(workflows::FIELDS, self).serialize(serializer)
    }
}

/// One workflow in full, with running and failed jobs.
#[derive(Debug, Serialize)]
pub(crate) struct WorkflowOverview {
    #[serde(flatten)]
    pub(crate) workflow: WorkflowView,
    pub(crate) running: Vec<RunningJobView>,
    pub(crate) failures: Vec<FailedJobView>,
    /// Whether this is the workflow that commands select by default.
    #[serde(skip)]
    pub(crate) is_newest: bool,
    /// Workers that still run without their server.
    #[serde(skip)]
    pub(crate) orphaned_workers: Vec<OrphanedWorker>,
    /// On Slurm: how much of the allocations was used, if it is to be shown.
    #[serde(skip)]
    pub(crate) usage: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct RunningJobView {
    pub(crate) job_id: JobId,
    pub(crate) name: String,
    pub(crate) attempt_id: Attempt,
    pub(crate) pid: Option<u32>,
    pub(crate) started_at: Option<Timestamp>,
}

/// A failed job, with its last attempt.
#[derive(Debug, Serialize)]
pub(crate) struct FailedJobView {
    pub(crate) job_id: JobId,
    pub(crate) name: String,
    pub(crate) status: JobStatus,
    pub(crate) run_id: RunId,
    pub(crate) attempt_id: Attempt,
    pub(crate) return_code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) out_of_memory: bool,
    pub(crate) reason: Option<String>,
    /// The log file to read first; `None` if none was kept.
    pub(crate) log_path: Option<PathBuf>,
    /// The stream of that file.
    #[serde(skip)]
    pub(crate) log_stream: Option<LogStream>,
}

impl WorkflowOverview {
    pub(crate) fn load(
        store: &dyn Store,
        row: WorkflowRow,
        has_active_process: bool,
        now: Timestamp,
    ) -> Result<Self, CliError> {
        let running = list_jobs_by_status(store, &row, &[JobStatus::Running])?;
        let failed = list_jobs_by_status(
            store,
            &row,
            &[JobStatus::Failed, JobStatus::Terminated, JobStatus::PendingFailed],
        )?;
        let failures =
            failed.into_iter().map(|job| FailedJobView::load(store, &row, job)).collect::<Result<_, _>>()?;
        let is_newest = store.workflows()?.iter().all(|other| other.id <= row.id);
        let running = running.into_iter().map(RunningJobView::from).collect();
        let id = row.id;
        let workflow = WorkflowView::new(row, has_active_process, now);
        let orphaned_workers = if workflow.state == WorkflowPhase::Interrupted && !is_remote_store(store) {
            // The overview is shown even if this fails.
            orphaned_workers::find_orphaned_workers(store, id).unwrap_or_default()
        } else {
            Vec::new()
        };
        Ok(Self { workflow, running, failures, is_newest, orphaned_workers, usage: None })
    }
}

impl From<JobRow> for RunningJobView {
    fn from(job: JobRow) -> Self {
        let JobRow { id, name, attempt_id, pid, started_at, .. } = job;
        Self { job_id: id, name, attempt_id, pid, started_at }
    }
}

impl FailedJobView {
    fn load(store: &dyn Store, workflow: &WorkflowRow, job: JobRow) -> Result<Self, CliError> {
        let filter = ResultFilter { job: Some(job.id), failed_only: true, ..ResultFilter::default() };
        let newest = store.results(workflow.id, &filter)?.into_iter().max_by_key(|row| row.key.attempt_id);
        let stdio = job_logs::load_stdio(store, workflow, job.id)?;
        Ok(Self::new(workflow, job, stdio, newest.as_ref()))
    }

    fn new(workflow: &WorkflowRow, job: JobRow, stdio: StdioSettings, result: Option<&ResultRow>) -> Self {
        let first_log = result.and_then(|row| job_logs::choose_first_log(workflow, row.key.into(), stdio));
        Self {
            job_id: job.id,
            name: job.name,
            status: job.status,
            run_id: result.map_or(workflow.run_id, |row| row.key.run_id),
            attempt_id: result.map_or(job.attempt_id, |row| row.key.attempt_id),
            return_code: result.map(|row| row.return_code).or(job.return_code),
            signal: result.and_then(|row| row.signal),
            out_of_memory: result.is_some_and(|row| row.out_of_memory),
            reason: result.and_then(|row| row.reason.clone()).or(job.reason),
            log_stream: first_log.as_ref().and_then(|first_log| first_log.stream_with_text),
            log_path: first_log.map(|first_log| first_log.path),
        }
    }
}

/// Says that no worker of the server takes jobs of the workflow, and how to start one. Workers of other users are
/// visible to operators only, and a failed query is not worth an error.
pub(crate) fn missing_workers_note(client: &Client, workflow: WorkflowId) -> Option<String> {
    let none = client.workers(Some(workflow)).is_ok_and(|workers| workers.is_empty());
    none.then(|| {
        "no worker of yours is connected, and jobs run on workers only; start one here with `windlass worker`, or \
         see `windlass why JOB`"
            .to_owned()
    })
}

/// All eleven states by name, and `total`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusCountsView(pub(crate) StatusCounts);

impl Serialize for StatusCountsView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("total", &self.0.total())?;
        for (status, n) in self.0.iter() {
            map.serialize_entry(status.name(), &n)?;
        }
        map.end()
    }
}

fn list_jobs_by_status(
    store: &dyn Store,
    row: &WorkflowRow,
    status: &[JobStatus],
) -> Result<Vec<JobRow>, CliError> {
    if status.iter().all(|s| row.counts.get(*s) == 0) {
        return Ok(Vec::new());
    }
    let filter = JobFilter { status: status.to_vec(), limit: Some(MAX_LISTED), ..JobFilter::default() };
    Ok(store.jobs(row.id, &filter)?)
}

fn elapsed(row: &WorkflowRow, state: WorkflowPhase, now: Timestamp) -> Option<Duration> {
    let end = row.ended_at.or((state == WorkflowPhase::Running).then_some(now))?;
    Some(end.since(row.started_at?))
}

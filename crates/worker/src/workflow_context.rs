//! What the jobs of one workflow share on this worker: working directory, environment, logs and measurement
//! settings.
//!
//! The worker of `windlass run` has one context from the start. A worker of a server is introduced to each
//! workflow before its first job and opens its context with that job; contexts unused for a while are closed,
//! since each holds files.

use crate::file_states::FileInspector;
use crate::logs::LogDirectory;
use crate::options::WorkerOptions;
use crate::series_recorder::SeriesRecorder;
use crate::worker_process::WorkerError;
use crate::{environment, lock_ignoring_poison};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use windlass_process::spawn::{BaseEnvironment, JobSpawner};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::worker_protocol::WorkflowSetup;
use windlass_types::{Bytes, SystemClock, WorkflowId};

/// The number of unused contexts kept open.
const MAX_IDLE_CONTEXTS: usize = 32;

#[derive(Debug)]
pub(crate) struct WorkflowContext {
    pub(crate) spawner: JobSpawner,
    pub(crate) environment: BaseEnvironment,
    pub(crate) logs: LogDirectory,
    pub(crate) files: FileInspector,
    pub(crate) measure_jobs: bool,
    pub(crate) sample_interval: Duration,
    recorder: Option<Mutex<SeriesRecorder>>,
}

impl WorkflowContext {
    pub(crate) fn open(options: &WorkerOptions) -> Result<Self, WorkerError> {
        Ok(Self {
            spawner: JobSpawner::new(&options.submission_dir)?,
            environment: environment::build_shared_environment(options, std::env::vars_os()),
            logs: LogDirectory::create(&options.output_dir)
                .map_err(|source| WorkerError::Logs { path: options.output_dir.clone(), source })?,
            files: FileInspector::new(options.submission_dir.clone(), SystemClock),
            measure_jobs: options.measure_jobs,
            sample_interval: options.sample_interval,
            recorder: SeriesRecorder::open(options, SystemClock)?.map(Mutex::new),
        })
    }

    /// Adds a sample of one of its jobs.
    pub(crate) fn record_job_sample(&self, key: &AttemptKey, cpu_percent: f64, memory: Bytes) {
        if let Some(recorder) = &self.recorder {
            lock_ignoring_poison(recorder).record_job_sample(key, cpu_percent, memory);
        }
    }

    /// Records what is due; returns the time of the next call.
    fn flush_if_due(&self, now: Instant) -> Option<Instant> {
        lock_ignoring_poison(self.recorder.as_ref()?).flush_if_due(now)
    }
}

impl Drop for WorkflowContext {
    fn drop(&mut self) {
        if let Some(recorder) = &self.recorder {
            lock_ignoring_poison(recorder).flush();
        }
    }
}

/// All workflows introduced to this worker.
#[derive(Debug, Default)]
pub(crate) struct WorkflowContexts {
    /// The contexts of a worker that serves one workflow.
    default_context: Option<Arc<WorkflowContext>>,
    workflow_setups: HashMap<WorkflowId, WorkflowSetup>,
    open: HashMap<WorkflowId, Arc<WorkflowContext>>,
}

impl WorkflowContexts {
    pub(crate) fn new(options: &WorkerOptions) -> Result<Self, WorkerError> {
        let home = options.one_workflow.then(|| WorkflowContext::open(options).map(Arc::new)).transpose()?;
        Ok(Self { default_context: home, ..Self::default() })
    }

    /// Sets or replaces a workflow's settings from the next job on; running jobs keep their context.
    pub(crate) fn add_workflow(&mut self, site: WorkflowSetup) {
        self.open.remove(&site.workflow);
        self.workflow_setups.insert(site.workflow, site);
    }

    /// Removes an ended workflow. Jobs of it that still run keep their context.
    pub(crate) fn forget_workflow(&mut self, workflow: WorkflowId) {
        self.open.remove(&workflow);
        self.workflow_setups.remove(&workflow);
    }

    /// Returns the context of a workflow, opened if necessary; or the reason why its jobs cannot run here.
    pub(crate) fn open_context(
        &mut self,
        workflow: WorkflowId,
        options: &WorkerOptions,
    ) -> Result<Arc<WorkflowContext>, String> {
        if let Some(site) = self.find_context(workflow) {
            return Ok(site);
        }
        let setup =
            self.workflow_setups.get(&workflow).ok_or("the workflow was not introduced to this worker")?;
        if !std::path::Path::new(&setup.submission_dir).is_dir() {
            return Err(format!("{} is not a directory on this machine", setup.submission_dir));
        }
        let site =
            Arc::new(WorkflowContext::open(&options.for_workflow(setup)).map_err(|error| error.to_string())?);
        self.close_idle();
        self.open.insert(workflow, Arc::clone(&site));
        Ok(site)
    }

    pub(crate) fn find_context(&self, workflow: WorkflowId) -> Option<Arc<WorkflowContext>> {
        self.default_context.as_ref().or_else(|| self.open.get(&workflow)).cloned()
    }

    /// Records what is due in all contexts; returns the time of the next call.
    pub(crate) fn flush_all_if_due(&self, now: Instant) -> Option<Instant> {
        self.default_context.iter().chain(self.open.values()).filter_map(|site| site.flush_if_due(now)).min()
    }

    /// Drops the least recently used contexts; those in use have other owners and stay.
    fn close_idle(&mut self) {
        if self.open.len() >= MAX_IDLE_CONTEXTS {
            self.open.retain(|_, site| Arc::strong_count(site) > 1);
        }
    }
}

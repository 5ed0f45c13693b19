//! What the jobs of one workflow share on this worker: where they run, their environment, their logs, what is measured.
//!
//! A worker of `windlass run` has one site from the start. One of a server is told of each workflow before its first job
//! and opens its site when that job comes; sites that nobody has used for a while are closed, since each holds files.

use crate::files::Files;
use crate::logs::Logs;
use crate::options::WorkerOptions;
use crate::recorder::Recorder;
use crate::service::Error;
use crate::{environment, lock};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use windlass_proc::spawn::{Environment, Spawner};
use windlass_types::fleet::WorkflowSite;
use windlass_types::work::AttemptKey;
use windlass_types::{Bytes, Clock, WorkflowId};

/// So many are kept open beside those in use.
const MOST_OPEN: usize = 32;

#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) spawner: Spawner,
    pub(crate) environment: Environment,
    pub(crate) logs: Logs,
    pub(crate) files: Files,
    pub(crate) measure_jobs: bool,
    pub(crate) sample_interval: Duration,
    recorder: Option<Mutex<Recorder>>,
}

impl Site {
    pub(crate) fn open(options: &WorkerOptions) -> Result<Self, Error> {
        Ok(Self {
            spawner: Spawner::new(&options.submission_dir)?,
            environment: environment::shared(options, std::env::vars_os()),
            logs: Logs::create(&options.output_dir)
                .map_err(|source| Error::Logs { path: options.output_dir.clone(), source })?,
            files: Files::new(options.submission_dir.clone(), Clock),
            measure_jobs: options.measure_jobs,
            sample_interval: options.sample_interval,
            recorder: Recorder::open(options, Clock)?.map(Mutex::new),
        })
    }

    /// A sample of one of its jobs.
    pub(crate) fn record(&self, key: &AttemptKey, cpu_percent: f64, memory: Bytes) {
        if let Some(recorder) = &self.recorder {
            lock(recorder).job(key, cpu_percent, memory);
        }
    }

    /// Records what is due; returns when to come again.
    fn attend(&self, now: Instant) -> Option<Instant> {
        lock(self.recorder.as_ref()?).attend(now)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(recorder) = &self.recorder {
            lock(recorder).flush();
        }
    }
}

/// All that this worker has heard of.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    /// Of a worker that serves one workflow.
    home: Option<Arc<Site>>,
    told: HashMap<WorkflowId, WorkflowSite>,
    open: HashMap<WorkflowId, Arc<Site>>,
}

impl Sites {
    pub(crate) fn new(options: &WorkerOptions) -> Result<Self, Error> {
        let home = options.one_workflow.then(|| Site::open(options).map(Arc::new)).transpose()?;
        Ok(Self { home, ..Self::default() })
    }

    /// From the next job on this is how it is; those that run keep what they began with.
    pub(crate) fn introduce(&mut self, site: WorkflowSite) {
        self.open.remove(&site.workflow);
        self.told.insert(site.workflow, site);
    }

    /// It is over. Should something of it still run, it keeps what it began with.
    pub(crate) fn forget(&mut self, workflow: WorkflowId) {
        self.open.remove(&workflow);
        self.told.remove(&workflow);
    }

    /// The site of a workflow, opened if need be; or, in words, why its jobs cannot run here.
    pub(crate) fn open(
        &mut self,
        workflow: WorkflowId,
        options: &WorkerOptions,
    ) -> Result<Arc<Site>, String> {
        if let Some(site) = self.find(workflow) {
            return Ok(site);
        }
        let told = self.told.get(&workflow).ok_or("this worker was told nothing of its workflow")?;
        if !std::path::Path::new(&told.submission_dir).is_dir() {
            return Err(format!("{} is no directory on this machine", told.submission_dir));
        }
        let site = Arc::new(Site::open(&options.at(told)).map_err(|error| error.to_string())?);
        self.close_some();
        self.open.insert(workflow, Arc::clone(&site));
        Ok(site)
    }

    pub(crate) fn find(&self, workflow: WorkflowId) -> Option<Arc<Site>> {
        self.home.as_ref().or_else(|| self.open.get(&workflow)).cloned()
    }

    /// Records what is due on all sites; returns when to come again.
    pub(crate) fn attend(&self, now: Instant) -> Option<Instant> {
        self.home.iter().chain(self.open.values()).filter_map(|site| site.attend(now)).min()
    }

    /// Those in use have other owners and stay.
    fn close_some(&mut self) {
        if self.open.len() >= MOST_OPEN {
            self.open.retain(|_, site| Arc::strong_count(site) > 1);
        }
    }
}

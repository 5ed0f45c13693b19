//! A database with many active requests, a scheduler that has their jobs, and the request lifecycle on both.

use crate::manual_backend::ManualBackend;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use windlass_core::requests::rows::{RunRow, SiteRow};
use windlass_requests::{
    LifecycleDependencies, LifecycleOptions, LifecycleStatus, LocalCatalog, RequestLifecycle,
    RequestReconcilerWaker,
};
use windlass_scheduler::service::{SchedulerHandle, SchedulerOptions};
use windlass_store::model::RequestRunFilter;
use windlass_store::{Store, StoreDatabase};
use windlass_types::SystemClock;
use windlass_types::requests::{Request, RequestRunStatus, RequestStatus};

pub(crate) const SITE: &str = "T2_XX_Bench";
pub(crate) const USER: &str = "bench";
/// The number of jobs that are merged together.
const UNIT: u32 = 100;
const EVENTS_PER_JOB: u32 = 100;
/// How often the end of a pass is polled: faster than passes can follow each other.
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) type PassResult<T> = Result<T, Box<dyn std::error::Error>>;

pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let begun = Instant::now();
    let made = work();
    (begun.elapsed().as_secs_f64(), made)
}

pub(crate) struct PassFixture {
    pub(crate) database: Arc<dyn StoreDatabase>,
    options: LifecycleOptions,
    service: SchedulerHandle,
    lifecycle: RequestLifecycle,
}

/// The durations of planning and submitting a request.
pub(crate) struct TakenUp {
    pub(crate) planned: f64,
    pub(crate) submitted: f64,
}

impl PassFixture {
    pub(crate) fn open(database: Arc<dyn StoreDatabase>, directory: &Path) -> PassResult<Self> {
        let mut options = LifecycleOptions::new(directory.join("requests"), directory.join("storage"));
        options.interval = Duration::from_hours(1);
        options.admission_settings.max_active = usize::MAX;
        // The number of concurrent units equals the number that end together.
        options.plan_settings.throttles.insert("MergeGroup".to_owned(), 3);
        options.plan_settings.max_nodes = u32::MAX;
        database.put_site(&site())?;
        // The scheduler does not wake the lifecycle, so that it makes passes only on request.
        let service =
            SchedulerHandle::start(Arc::clone(&database) as Arc<dyn Store>, SchedulerOptions::default())?;
        let lifecycle = open_lifecycle(&database, &service, &options)?;
        Ok(Self { database, options, service, lifecycle })
    }

    /// Plans and submits a single large request.
    pub(crate) fn take_up_one(&self, nodes: u32) -> PassResult<TakenUp> {
        let created_at = SystemClock.now();
        self.submit("large", nodes)?;
        let run = self.await_runs(1)?.pop().ok_or("it has no run")?;
        let submitted_at = run.submitted_at.ok_or("it was not submitted")?;
        Ok(TakenUp {
            planned: run.created_at.since(created_at).as_secs_f64(),
            submitted: submitted_at.since(run.created_at).as_secs_f64(),
        })
    }

    /// Plans and submits many requests at once, until the scheduler has the jobs of all.
    pub(crate) fn take_up(&self, requests: u32, nodes: u32) -> PassResult<f64> {
        let before = self.database.open_requests()?.len();
        let begun = Instant::now();
        for number in 0..requests {
            self.submit(&format!("bench-{number:04}"), nodes)?;
        }
        self.await_runs(before + requests as usize)?;
        let took = begun.elapsed().as_secs_f64();
        self.settle()?;
        Ok(took)
    }

    fn submit(&self, name: &str, nodes: u32) -> PassResult<()> {
        self.database.add_request(
            &request(name, nodes)?,
            RequestStatus::Submitted,
            USER,
            SystemClock.now(),
        )?;
        self.lifecycle.wake_request(name);
        Ok(())
    }

    fn await_runs(&self, count: usize) -> PassResult<Vec<RunRow>> {
        let handed = vec![RequestRunStatus::Submitted, RequestRunStatus::Running];
        let filter = RequestRunFilter { status: handed, ..RequestRunFilter::default() };
        loop {
            let runs = self.database.request_runs(&filter)?;
            if runs.len() >= count {
                return Ok(runs);
            }
            without_trouble(&self.lifecycle.status())?;
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the duration of a pass over everything.
    pub(crate) fn pass(&self) -> PassResult<f64> {
        let before = self.lifecycle.status().passes;
        self.lifecycle.wake_all();
        self.await_pass(before)
    }

    fn await_pass(&self, before: u64) -> PassResult<f64> {
        loop {
            let status = self.lifecycle.status();
            if status.passes > before {
                without_trouble(&status)?;
                return Ok(status.last_duration_sec.unwrap_or_default());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Makes passes until nothing more changes. Returns the duration of the longest.
    pub(crate) fn settle(&self) -> PassResult<f64> {
        let mut longest = 0.0f64;
        loop {
            longest = longest.max(self.pass()?);
            let status = self.lifecycle.status();
            // Every full pass also starts a check for alerts, which counts as one under way.
            if status.last.under_way <= 1 && status.last.changed == 0 {
                return Ok(longest);
            }
        }
    }

    /// Completes this many units with a worker.
    pub(crate) fn work(&self, units: usize) -> PassResult<()> {
        ManualBackend::new(&self.service).complete(units)
    }

    /// Returns the duration of the first pass of a restarted server, which reads everything.
    pub(crate) fn start_anew(&mut self) -> PassResult<f64> {
        self.lifecycle.stop();
        self.lifecycle = open_lifecycle(&self.database, &self.service, &self.options)?;
        self.await_pass(0)
    }

    pub(crate) fn close(self) {
        self.lifecycle.stop();
        self.service.stop();
    }
}

fn open_lifecycle(
    database: &Arc<dyn StoreDatabase>,
    service: &SchedulerHandle,
    options: &LifecycleOptions,
) -> std::io::Result<RequestLifecycle> {
    let catalog = Arc::new(LocalCatalog::new(Arc::clone(database), "tape"));
    let parts = LifecycleDependencies { database: Arc::clone(database), service: service.clone(), catalog };
    RequestLifecycle::open(parts, RequestReconcilerWaker::default(), options.clone())
}

fn without_trouble(status: &LifecycleStatus) -> PassResult<()> {
    status.last.errors.first().map_or(Ok(()), |trouble| Err(format!("{trouble:?}").into()))
}

fn site() -> SiteRow {
    SiteRow {
        name: SITE.to_owned(),
        status: windlass_types::requests::SiteStatus::Enabled,
        drain_until: None,
        total_slots: Some(10_000),
        running_slots: 0,
        pending_slots: 0,
        thresholds: BTreeMap::new(),
        schedd_name: None,
        collector_host: None,
        storage_element: None,
        storage_path: None,
        updated_at: SystemClock.now(),
    }
}

fn request(name: &str, nodes: u32) -> PassResult<Request> {
    let events = u64::from(nodes) * u64::from(EVENTS_PER_JOB);
    Ok(serde_json::from_value(json!({
        "request_name": name, "requestor": USER, "output_datasets": [format!("/Bench/Era-{name}-v1/GEN")],
        "generation": {"events": events, "first_event": 1, "first_lumi": 1, "events_per_lumi": 100,
            "filter_efficiency": 1.0},
        "memory_mb": 1000, "time_per_event_sec": 0.01, "size_per_event_kb": 1.0, "multicore": 1,
        "splitting_algo": "EventBased", "processing_version": 1, "priority": 100,
        "cleanup_policy": "keep_until_replaced",
        "splitting_params": {"events_per_job": EVENTS_PER_JOB, "target_merged_size_kb": UNIT * EVENTS_PER_JOB,
            "target_block_size_kb": 10 * UNIT * EVENTS_PER_JOB},
        "payload_config": {"steps": [{"name": "GEN", "command": "true"}]},
    }))?)
}

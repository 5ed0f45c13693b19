//! A small production site: database, engine, workers, a catalog that can fail, and the lifecycle of requests.

use crate::worker::{JobOutcome, Worker};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use windlass_core::requests::change::{RequestChange, RequestCommit};
use windlass_core::requests::rows::{BlockRow, RequestCommand, RequestCommandKind, RequestRow, RunRow};
use windlass_requests::{
    DatasetCatalog, LifecycleDependencies, LifecycleOptions, LocalCatalog, OnRequestCommit, RequestLifecycle,
    RequestReconcilerWaker,
};
use windlass_scheduler::service::{SchedulerHandle, SchedulerOptions};
use windlass_store::model::RequestRunFilter;
use windlass_store::sqlite::SqliteStore;
use windlass_store::{DatasetEditor, Store, StoreDatabase, StoreError};
use windlass_types::SystemClock;
use windlass_types::catalog::{CatalogFile, FileLumi};
use windlass_types::requests::{
    CleanupPolicy, GenerationParams, Request, RequestStatus, SplittingAlgo, SplittingParams,
};

/// Longer than any step takes on a busy machine; only a failed test waits this long.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

/// Copies its input events and appends its name.
const TAKE: &str =
    r#"for f in $(cat "$WINDLASS_INPUTS"); do sed "s/\$/ $WINDLASS_STEP/" "$f"; done > "$WINDLASS_OUTPUT""#;
pub(crate) const MAKE: &str = r#"seq $WINDLASS_FIRST_EVENT $WINDLASS_LAST_EVENT | sed "s/^/1 $WINDLASS_FIRST_LUMI /" > "$WINDLASS_OUTPUT""#;

pub(crate) const SITES: [&str; 2] = ["T1_A", "T2_B"];
pub(crate) const INPUT: &str = "/Prim/Era-RAW-v1/RAW";

pub(crate) struct Fixture {
    pub(crate) job_store: Arc<dyn StoreDatabase>,
    pub(crate) catalog: Arc<dyn DatasetCatalog>,
    pub(crate) options: LifecycleOptions,
    pub(crate) job_outcome: JobOutcome,
    /// Sites where no processing succeeds.
    pub(crate) sick: Arc<Mutex<BTreeSet<String>>>,
    /// The lifecycle crashes right after its commit of this number, counted from 1.
    pub(crate) crash_at: Option<u32>,
    live: Option<RunningLifecycle>,
    news: (Sender<()>, Mutex<Receiver<()>>),
    dir: TempDir,
}

struct RunningLifecycle {
    lifecycle: RequestLifecycle,
    workers: Vec<Worker>,
    service: SchedulerHandle,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::create(dir.path().join("windlass.db")).unwrap().store;
        let job_store: Arc<dyn StoreDatabase> = Arc::new(store);
        let mut options = LifecycleOptions::new(dir.path().join("requests"), dir.path().join("storage"));
        options.interval = Duration::from_hours(1);
        options.cool_off = Duration::ZERO;
        options.decision_settings.retry_after = Duration::from_millis(20);
        options.decision_settings.recovery.rescue_pause = Duration::ZERO;
        options.decision_settings.outputs.backoff = vec![Duration::from_millis(1)];
        fs::create_dir_all(dir.path().join("work")).unwrap();
        let catalog = Arc::new(LocalCatalog::new(Arc::clone(&job_store), "tape"));
        let (sender, receiver) = mpsc::channel();
        let fixture = Self {
            job_store,
            catalog,
            options,
            job_outcome: Arc::new(|_| true),
            sick: Arc::default(),
            crash_at: None,
            live: None,
            news: (sender, Mutex::new(receiver)),
            dir,
        };
        for site in SITES {
            fs::create_dir_all(fixture.storage(site)).unwrap();
        }
        fixture
    }

    pub(crate) fn storage(&self, site: &str) -> PathBuf {
        self.options.storage_root.join(site)
    }

    /// Starts the server, with a worker at each site.
    pub(crate) fn start(&mut self) {
        let wake = RequestReconcilerWaker::default();
        let told = wake.clone();
        let service = SchedulerOptions {
            on_change: Some(Arc::new(move |workflow| told.wake_workflow(workflow))),
            ..SchedulerOptions::default()
        };
        let store: Arc<dyn Store> = Arc::clone(&self.job_store) as _;
        let service = SchedulerHandle::start(store, service).unwrap();
        let work = self.dir.path().join("work");
        let start = |site: &&str| Worker::start(&service, site, &work, self.job_outcome_at(site));
        let workers = SITES.iter().map(start).collect();
        // So that planning finds them at once, not a moment later.
        self.wait_for(|fixture| {
            (fixture.job_store.active_workers(None).unwrap().len() >= SITES.len()).then_some(())
        });
        let own: Arc<OnceLock<RequestLifecycle>> = Arc::default();
        let mut options = self.options.clone();
        options.on_commit = Some(self.told(&own));
        let parts = LifecycleDependencies {
            database: Arc::clone(&self.job_store),
            service: service.clone(),
            catalog: Arc::clone(&self.catalog),
        };
        let lifecycle = RequestLifecycle::open(parts, wake, options).unwrap();
        own.set(lifecycle.clone()).unwrap();
        self.live = Some(RunningLifecycle { lifecycle, workers, service });
    }

    fn job_outcome_at(&self, site: &str) -> JobOutcome {
        let (job_outcome, sick, site) =
            (Arc::clone(&self.job_outcome), Arc::clone(&self.sick), site.to_owned());
        Arc::new(move |job| {
            let is_sick = job.name.starts_with("proc") && sick.lock().unwrap().contains(&site);
            !is_sick && job_outcome(job)
        })
    }

    /// Wakes waiting tests; and crashes on request.
    fn told(&self, own: &Arc<OnceLock<RequestLifecycle>>) -> OnRequestCommit {
        let (sender, own) = (Mutex::new(self.news.0.clone()), Arc::clone(own));
        let (crash_at, commits) = (self.crash_at, AtomicU32::new(0));
        Arc::new(move |_request| {
            sender.lock().unwrap_or_else(PoisonError::into_inner).send(()).unwrap_or_default();
            if crash_at == Some(commits.fetch_add(1, Ordering::Relaxed) + 1) {
                own.wait().stop();
                panic!("crashes on purpose, before any effect of this commit");
            }
        })
    }

    /// Stops everything; only rows and files are left.
    pub(crate) fn stop(&mut self) {
        if let Some(RunningLifecycle { lifecycle, workers, service }) = self.live.take() {
            lifecycle.stop();
            drop(workers);
            service.stop();
        }
    }

    pub(crate) fn lifecycle(&self) -> &RequestLifecycle {
        &self.live.as_ref().unwrap().lifecycle
    }

    /// Adds files of this many events each to the input dataset, each at one site.
    pub(crate) fn input(&self, files: u32, events: u32) {
        let file = |number: u32| {
            let site = SITES[number as usize % SITES.len()];
            let lfn = format!("/store/in/{number}.txt");
            let path = PathBuf::from(format!("{}{lfn}", self.storage(site).display()));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let event = |n| format!("1 {} {}\n", number + 1, number * events + n + 1);
            let text: String = (0..events).map(event).collect();
            fs::write(&path, &text).unwrap();
            CatalogFile {
                lfn,
                size: text.len() as u64,
                events: u64::from(events),
                lumis: vec![FileLumi { run: 1, lumi: number + 1, events: Some(events) }],
                replicas: BTreeMap::from([(site.to_owned(), path.display().to_string())]),
                ..CatalogFile::default()
            }
        };
        let files: Vec<CatalogFile> = (0..files).map(file).collect();
        self.job_store
            .add_dataset_files(INPUT, &files, DatasetEditor::with_full_access("me"), SystemClock.now())
            .unwrap();
    }

    pub(crate) fn submit(&self, request: &Request) {
        self.job_store.add_request(request, RequestStatus::Submitted, "me", SystemClock.now()).unwrap();
        self.wake(&request.request_name);
    }

    /// Issues a command for a request.
    pub(crate) fn want(&self, name: &str, what: RequestCommandKind) {
        self.change(name, |_| vec![RequestChange::SetCommand(Some(user_command(what)))]);
    }

    /// Changes a request; returns it after the change was applied.
    pub(crate) fn change(&self, name: &str, changes: impl Fn(&RequestRow) -> Vec<RequestChange>) {
        loop {
            let row = self.row(name);
            let commit = RequestCommit {
                request: name.to_owned(),
                version: row.version,
                changes: changes(&row),
                by: "me".into(),
                at: SystemClock.now(),
            };
            match self.job_store.apply_requests(&[commit]).pop().unwrap() {
                Ok(_) => break,
                // The lifecycle was faster.
                Err(StoreError::Outdated { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        self.wake(name);
    }

    fn wake(&self, name: &str) {
        if let Some(live) = &self.live {
            live.lifecycle.wake_request(name);
        }
    }

    pub(crate) fn row(&self, name: &str) -> RequestRow {
        self.job_store.request(name).unwrap().unwrap()
    }

    pub(crate) fn wait(&self, name: &str, status: RequestStatus) -> RequestRow {
        self.wait_for(|fixture| {
            let row = fixture.row(name);
            assert!(
                row.status == status || !row.status.is_terminal(),
                "{name} is {}: {:?}",
                row.status,
                row.reason
            );
            (row.status == status).then_some(row)
        })
    }

    /// Checks again after every commit.
    pub(crate) fn wait_for<T>(&self, look: impl Fn(&Self) -> Option<T>) -> T {
        let until = Instant::now() + WAIT_TIMEOUT;
        let news = self.news.1.lock().unwrap();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "condition not met in time: {}", self.tell());
            // Commits of others are not announced; polling finds them.
            news.recv_timeout(left.min(Duration::from_millis(20))).unwrap_or_default();
        }
    }

    /// The states of all requests, for the message of a failed test.
    fn tell(&self) -> String {
        let requests = self.job_store.requests(&windlass_store::model::RequestFilter::default()).unwrap();
        let one = |row: &RequestRow| {
            let name = &row.request.request_name;
            let runs = self.runs(name);
            format!("{name}: {} {:?}\n{runs:#?}\n{:#?}", row.status, row.reason, self.blocks(name))
        };
        let status = self.live.as_ref().map(|live| live.lifecycle.status());
        format!("{status:#?}\n{}", requests.iter().map(one).collect::<Vec<_>>().join("\n"))
    }

    pub(crate) fn runs(&self, name: &str) -> Vec<RunRow> {
        let Some(process) = self.job_store.process(name).unwrap() else { return Vec::new() };
        let filter = RequestRunFilter { process: Some(process.uuid), ..RequestRunFilter::default() };
        self.job_store.request_runs(&filter).unwrap()
    }

    pub(crate) fn blocks(&self, name: &str) -> Vec<BlockRow> {
        let Some(process) = self.job_store.process(name).unwrap() else { return Vec::new() };
        self.job_store.processing_blocks(&process.uuid).unwrap()
    }

    pub(crate) fn statuses(&self, name: &str) -> Vec<RequestStatus> {
        self.job_store.transitions(name).unwrap().iter().map(|line| line.to).collect()
    }

    /// The numbers of all events in the files of a dataset, as they are on disk; each file is where the catalog
    /// says. Empty if the dataset is not in the catalog yet.
    pub(crate) fn events(&self, dataset: &str) -> Vec<u64> {
        let mut events = Vec::new();
        if self.job_store.dataset(dataset).unwrap().is_none() {
            return events;
        }
        for file in self.job_store.dataset_files(dataset, true).unwrap() {
            let path = file.replicas.values().next().unwrap();
            let text = fs::read_to_string(path).unwrap();
            assert_eq!(text.len() as u64, file.size);
            assert_eq!(text.lines().count() as u64, file.events);
            events.extend(text.lines().map(|line| line.split(' ').nth(2).unwrap().parse::<u64>().unwrap()));
        }
        events
    }

    /// Every event once, every block archived once, no files left behind.
    pub(crate) fn assert_whole(&self, name: &str, dataset: &str, events: std::ops::RangeInclusive<u64>) {
        assert_eq!(self.unique_events(dataset), events.collect(), "of {dataset}");
        self.assert_archived(name);
    }

    /// The numbers of all events in a dataset, without duplicates.
    pub(crate) fn unique_events(&self, dataset: &str) -> BTreeSet<u64> {
        let found = self.events(dataset);
        let unique: BTreeSet<u64> = found.iter().copied().collect();
        assert_eq!(found.len(), unique.len(), "an event is duplicated");
        unique
    }

    /// Every block is archived once, except empty ones.
    pub(crate) fn assert_archived(&self, name: &str) {
        for block in self.blocks(name) {
            if block.units_expected == 0 {
                let never = (windlass_types::requests::ProcessingBlockStatus::Invalidated, None);
                assert_eq!((block.status, block.name.as_deref()), never, "{block:?}");
                continue;
            }
            assert_eq!(block.status, windlass_types::requests::ProcessingBlockStatus::Archived, "{block:?}");
            let known = self.job_store.catalog_block(block.name.as_ref().unwrap()).unwrap().unwrap();
            assert!(!known.is_open);
            let rules = self.job_store.rules(block.name.as_deref()).unwrap();
            let tape = rules.iter().filter(|rule| rule.rule.rse_expression == "tape").count();
            assert_eq!(tape, 1, "{rules:?}");
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(crate) fn user_command(what: RequestCommandKind) -> RequestCommand {
    RequestCommand::new(what, "me", "test", SystemClock.now())
}

/// A request over the input dataset, with a file per job and two jobs per work unit.
pub(crate) fn reading(name: &str) -> Request {
    let output = format!("/Prim/Era-{name}-v1/RECO");
    Request {
        request_name: name.to_owned(),
        requestor: "me".into(),
        requestor_dn: None,
        group: None,
        input_dataset: Some(INPUT.into()),
        secondary_input_dataset: None,
        output_datasets: vec![output],
        generation: None,
        cmssw_version: None,
        scram_arch: Vec::new(),
        global_tag: None,
        memory_mb: 1000,
        time_per_event_sec: 0.01,
        size_per_event_kb: 1.0,
        multicore: 1,
        site_whitelist: Vec::new(),
        site_blacklist: Vec::new(),
        adaptive: true,
        trust_sitelists: false,
        splitting_algo: SplittingAlgo::FileBased,
        splitting_params: SplittingParams {
            files_per_job: Some(1),
            target_merged_size_kb: Some(20),
            target_block_size_kb: Some(40),
            ..SplittingParams::default()
        },
        campaign: None,
        processing_string: None,
        acquisition_era: None,
        processing_version: 1,
        priority: 100,
        urgent: false,
        production_steps: Vec::new(),
        payload_config: steps("RECO", TAKE),
        previous_version_request: None,
        superseded_by_request: None,
        cleanup_policy: CleanupPolicy::KeepUntilReplaced,
    }
}

/// A request for this many events without input, ten per job.
pub(crate) fn generating(name: &str, events: u64) -> Request {
    Request {
        input_dataset: None,
        output_datasets: vec![format!("/Prim/Era-{name}-v1/GEN")],
        generation: Some(GenerationParams {
            events,
            first_event: 1,
            first_lumi: 1,
            events_per_lumi: 10,
            filter_efficiency: 1.0,
        }),
        splitting_algo: SplittingAlgo::EventBased,
        splitting_params: SplittingParams {
            events_per_job: Some(10),
            target_merged_size_kb: Some(20),
            target_block_size_kb: Some(40),
            ..SplittingParams::default()
        },
        payload_config: steps("GEN", MAKE),
        ..reading(name)
    }
}

pub(crate) fn steps(name: &str, command: &str) -> serde_json::Map<String, serde_json::Value> {
    let config = json!({"steps": [{"name": name, "command": command}]});
    config.as_object().unwrap().clone()
}

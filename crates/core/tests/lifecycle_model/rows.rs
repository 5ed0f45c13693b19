//! Rows and events of the simulated backend.

use crate::DATASETS;
use std::collections::BTreeMap;
use windlass_core::requests::lifecycle::{LifecycleEvent, RunReport, RunState, WorkUnitReport};
use windlass_core::requests::rows::{
    BackendRunRef, BlockRow, NodeCounts, RequestFileCounts, RequestProgress, RequestRunCause, RoundExtent,
    RunRow, RunTotals,
};
use windlass_types::payload::{MergeCounts, MergeOutput, MergedFile};
use windlass_types::requests::{
    CleanupPolicy, PriorityStep, ProcessingBlockStatus, Request, RequestRunStatus, SplittingAlgo,
    SplittingParams,
};
use windlass_types::{RunId, Timestamp, WorkflowId};

pub(crate) const START: Timestamp = Timestamp(1_000_000);

pub(crate) fn told(
    run: &RunRow,
    backend: Option<BackendRunRef>,
    state: RunState,
    completed: u32,
    failed: u32,
    units: Vec<WorkUnitReport>,
) -> LifecycleEvent {
    LifecycleEvent::RunReported(Box::new(RunReport {
        run: run.uuid.clone(),
        backend,
        state,
        counts: NodeCounts::default(),
        units_completed: completed,
        units_failed: failed,
        units,
        attempts: Vec::new(),
        site_totals: BTreeMap::new(),
        held: Vec::new(),
        reason: None,
    }))
}

/// The backend's name of a run of its workflow `at`.
pub(crate) fn called(backend: &BackendRunRef, at: usize, run: &str) -> BackendRunRef {
    match backend {
        BackendRunRef::Engine { .. } => {
            BackendRunRef::Engine { workflow: Some(WorkflowId(at as i64)), run: Some(RunId(1)) }
        }
        BackendRunRef::Htcondor { schedd, .. } => {
            BackendRunRef::Htcondor { schedd: schedd.clone(), cluster: Some(format!("{at}-{run}")) }
        }
    }
}

pub(crate) const ENGINE: BackendRunRef = BackendRunRef::Engine { workflow: None, run: None };
pub(crate) const HTCONDOR: BackendRunRef = BackendRunRef::Htcondor { schedd: None, cluster: None };

pub(crate) fn merged(round: u32, unit: u32) -> MergeOutput {
    let file = |dataset: &str| MergedFile {
        lfn: format!("/store{dataset}/{round}/{unit}"),
        size: 1,
        adler32: "00000001".into(),
        events: 10,
        lumis: windlass_types::LumiMask::default(),
        parents: Vec::new(),
    };
    MergeOutput {
        request: "r".into(),
        unit: format!("mg_{unit:06}"),
        number: unit,
        site: "T2".into(),
        datasets: DATASETS.iter().map(|dataset| ((*dataset).to_owned(), vec![file(dataset)])).collect(),
        counts: MergeCounts::default(),
    }
}

pub(crate) fn process() -> RequestProgress {
    RequestProgress {
        uuid: "process".into(),
        request_name: "r".into(),
        round: 0,
        next_first_event: 1,
        next_first_lumi: 1,
        next_block: 0,
        more_input: true,
        excluded: 0,
        settled: 0,
        files: RequestFileCounts::default(),
        extent: RoundExtent::default(),
        events_produced: 0,
        events_of_round: 0,
        empty_rounds: 0,
        category_throttles: BTreeMap::new(),
        step_metrics: None,
        created_at: START,
        updated_at: START,
    }
}

pub(crate) fn run(round: u32, uuid: &str, units: u32, backend: BackendRunRef) -> RunRow {
    RunRow {
        uuid: uuid.into(),
        process: "process".into(),
        round,
        parent: None,
        cause: RequestRunCause::First,
        rescues: 0,
        paused: None,
        silent: None,
        priority: None,
        backend,
        submit_dir: "dir".into(),
        status: RequestRunStatus::Ready,
        stop_requested_at: None,
        stop_reason: None,
        totals: RunTotals { units, ..RunTotals::default() },
        counts: NodeCounts::default(),
        units_completed: 0,
        units_failed: 0,
        units_read: 0,
        created_at: START,
        submitted_at: None,
        completed_at: None,
    }
}

pub(crate) fn request(production_steps: Vec<PriorityStep>) -> Request {
    Request {
        request_name: "r".into(),
        requestor: "ana".into(),
        requestor_dn: None,
        group: None,
        input_dataset: Some("/Mu/A-v1/RAW".into()),
        secondary_input_dataset: None,
        output_datasets: DATASETS.map(str::to_owned).to_vec(),
        generation: None,
        cmssw_version: None,
        scram_arch: Vec::new(),
        global_tag: None,
        memory_mb: 2048,
        time_per_event_sec: 1.0,
        size_per_event_kb: 1.5,
        multicore: 1,
        site_whitelist: Vec::new(),
        site_blacklist: Vec::new(),
        adaptive: true,
        trust_sitelists: false,
        splitting_algo: SplittingAlgo::FileBased,
        splitting_params: SplittingParams::default(),
        campaign: None,
        processing_string: None,
        acquisition_era: None,
        processing_version: 1,
        priority: 100,
        urgent: false,
        production_steps,
        payload_config: serde_json::Map::new(),
        previous_version_request: None,
        superseded_by_request: None,
        cleanup_policy: CleanupPolicy::KeepUntilReplaced,
    }
}

/// Work units of a round, as a block of one of the datasets.
pub(crate) fn block(
    round: u32,
    dataset: usize,
    units: std::ops::RangeInclusive<u32>,
    now: Timestamp,
) -> BlockRow {
    let (first_unit, last_unit) = (*units.start(), *units.end());
    BlockRow {
        uuid: format!("{round}-{dataset}-{first_unit}"),
        process: "process".into(),
        round,
        index: first_unit / 2,
        dataset: DATASETS[dataset].into(),
        first_unit,
        last_unit,
        units_completed: 0,
        units_expected: last_unit - first_unit + 1,
        name: None,
        is_closed: false,
        tape_rule: None,
        status: ProcessingBlockStatus::Open,
        created_at: now,
        updated_at: now,
    }
}

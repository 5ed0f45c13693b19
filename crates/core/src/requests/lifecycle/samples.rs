//! Sample rows for tests of decisions.

use crate::requests::RequestView;
use crate::requests::rows::{
    BackendRunRef, BlockRow, NodeCounts, RequestFileCounts, RequestOverrides, RequestProgress, RequestRow,
    RequestRunCause, RoundExtent, RunRow, RunTotals,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use windlass_types::Timestamp;
use windlass_types::requests::{
    CleanupPolicy, ProcessingBlockStatus, Request, RequestRunStatus, RequestStatus, SplittingAlgo,
    SplittingParams,
};

pub(crate) const START: Timestamp = Timestamp(1_000_000_000);

pub(crate) fn request() -> Request {
    Request {
        request_name: "ana_test_v1".into(),
        requestor: "ana".into(),
        requestor_dn: None,
        group: None,
        input_dataset: Some("/Mu/Run1-v1/RAW".into()),
        secondary_input_dataset: None,
        output_datasets: vec!["/Mu/Run1-again-v1/AOD".into()],
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
        priority: 100_000,
        urgent: false,
        production_steps: Vec::new(),
        payload_config: serde_json::Map::new(),
        previous_version_request: None,
        superseded_by_request: None,
        cleanup_policy: CleanupPolicy::KeepUntilReplaced,
    }
}

pub(crate) fn view() -> RequestView {
    RequestView {
        row: RequestRow {
            request: request(),
            overrides: RequestOverrides::default(),
            status: RequestStatus::Submitted,
            version: 1,
            created_at: START,
            updated_at: START,
            since: START,
            wanted: None,
            reason: None,
            alerted_at: None,
        },
        process: None,
        run: None,
        failures: Arc::default(),
        blocks: Vec::new(),
        steps: Vec::new(),
    }
}

pub(crate) fn process() -> RequestProgress {
    RequestProgress {
        uuid: "process".into(),
        request_name: "ana_test_v1".into(),
        round: 0,
        next_first_event: 1,
        next_first_lumi: 1,
        next_block: 0,
        more_input: false,
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

pub(crate) fn run(units: u32) -> RunRow {
    RunRow {
        uuid: "run-0".into(),
        process: "process".into(),
        round: 0,
        parent: None,
        cause: RequestRunCause::First,
        rescues: 0,
        paused: None,
        silent: None,
        priority: Some(request().priority),
        backend: BackendRunRef::Engine { workflow: None, run: None },
        submit_dir: "dir".into(),
        status: RequestRunStatus::Ready,
        stop_requested_at: None,
        stop_reason: None,
        totals: RunTotals { nodes: u64::from(units) * 4, edges: 0, by_role: BTreeMap::new(), units },
        counts: NodeCounts::default(),
        units_completed: 0,
        units_failed: 0,
        units_read: 0,
        created_at: START,
        submitted_at: None,
        completed_at: None,
    }
}

pub(crate) fn block(index: u32, first_unit: u32, last_unit: u32) -> BlockRow {
    BlockRow {
        uuid: format!("block-{index}"),
        process: "process".into(),
        round: 0,
        index,
        dataset: "/Mu/Run1-again-v1/AOD".into(),
        first_unit,
        last_unit,
        units_completed: 0,
        units_expected: last_unit - first_unit + 1,
        name: None,
        is_closed: false,
        tape_rule: None,
        status: ProcessingBlockStatus::Open,
        created_at: START,
        updated_at: START,
    }
}

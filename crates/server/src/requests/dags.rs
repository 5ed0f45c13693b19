//! Runs of requests, called DAGs in the specification. Their nodes are read from the engine or DAGMan in their
//! current state.

mod dag_actions;
mod nodes;

pub use dag_actions::{hold_dag, release_dag, remove_dag, rescue_dag};
pub use nodes::{DagLogFiles, DagLogSelector, DagNodeFilter, find_log_files, get_dag_logs, list_dag_nodes};

use super::page_length;
use crate::error::{ApiError, ApiResult};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use windlass_api::requests::{DagHistory, RequestDag, RequestDagEvent, RequestDagList};
use windlass_core::requests::rows::{BackendRunRef, RunEvent, RunRow};
use windlass_htcondor::watch::{DagPoller, DagSnapshot};
use windlass_store::StoreDatabase;
use windlass_store::model::RequestRunFilter;
use windlass_types::requests::RequestRunStatus;

pub fn list_dags(db: &dyn StoreDatabase, mut filter: RequestRunFilter) -> ApiResult<RequestDagList> {
    filter.limit = Some(page_length(filter.limit));
    let runs = db.request_runs(&filter)?;
    let mut names: BTreeMap<String, Option<String>> = BTreeMap::new();
    for run in &runs {
        if let Entry::Vacant(name) = names.entry(run.process.clone()) {
            name.insert(find_request_name(db, run)?);
        }
    }
    let named =
        |run: RunRow| RequestDag { request_name: names.get(&run.process).cloned().flatten(), ..api_dag(run) };
    Ok(RequestDagList { items: runs.into_iter().map(named).collect(), offset: filter.offset })
}

pub fn get_dag(db: &dyn StoreDatabase, uuid: &str) -> ApiResult<RequestDag> {
    let run = load_run(db, uuid)?;
    let history = db.run_history(uuid)?.into_iter().map(api_dag_event).collect();
    Ok(RequestDag {
        request_name: find_request_name(db, &run)?,
        history,
        held: held_reasons(&run),
        ..api_dag(run)
    })
}

fn find_request_name(db: &dyn StoreDatabase, run: &RunRow) -> ApiResult<Option<String>> {
    Ok(db.process_by_uuid(&run.process)?.map(|process| process.request_name))
}

/// Returns the user who owns the run's request.
pub fn load_dag_requestor(db: &dyn StoreDatabase, uuid: &str) -> ApiResult<String> {
    let name = find_request_name(db, &load_run(db, uuid)?)?.unwrap_or_default();
    super::load_requestor(db, &name)
}

/// Returns the history of the run, oldest first.
pub fn get_dag_history(db: &dyn StoreDatabase, uuid: &str) -> ApiResult<DagHistory> {
    load_run(db, uuid)?;
    Ok(DagHistory { items: db.run_history(uuid)?.into_iter().map(api_dag_event).collect() })
}

/// Returns the parts of the run that wait for an operator, and why.
fn held_reasons(run: &RunRow) -> Vec<String> {
    poll_active_dag(run).map(|seen| seen.describe_held()).unwrap_or_default()
}

/// Returns how many jobs of runs on HTCondor run now at each site.
pub(super) fn count_running_by_site(db: &dyn StoreDatabase) -> ApiResult<BTreeMap<String, u64>> {
    let active = RequestRunStatus::ALL.iter().copied().filter(|status| status.is_active());
    let filter = RequestRunFilter { status: active.collect(), ..RequestRunFilter::default() };
    let mut sum = BTreeMap::new();
    for run in db.request_runs(&filter)? {
        for (site, jobs) in poll_active_dag(&run).map(|seen| seen.running_by_site).unwrap_or_default() {
            *sum.entry(site).or_default() += jobs;
        }
    }
    Ok(sum)
}

/// The present state of a run on HTCondor that has not ended.
fn poll_active_dag(run: &RunRow) -> Option<DagSnapshot> {
    match &run.backend {
        BackendRunRef::Htcondor { cluster: Some(cluster), .. } if run.status.is_active() => {
            let watch = DagPoller::for_cluster(Path::new(&run.submit_dir), cluster.parse().ok(), 0);
            Some(watch.without_attempts().poll())
        }
        _ => None,
    }
}

fn load_run(db: &dyn StoreDatabase, uuid: &str) -> ApiResult<RunRow> {
    db.request_run(uuid)?.ok_or_else(|| ApiError::not_found(format_args!("DAG {uuid}")))
}

pub(crate) fn api_dag(run: RunRow) -> RequestDag {
    let (backend, workflow, engine_run, schedd, cluster) = match run.backend {
        BackendRunRef::Engine { workflow, run } => ("engine", workflow, run, None, None),
        BackendRunRef::Htcondor { schedd, cluster } => ("htcondor", None, None, schedd, cluster),
    };
    RequestDag {
        id: run.uuid,
        request_name: None,
        workflow_id: run.process,
        round: run.round,
        parent_dag_id: run.parent,
        cause: run.cause.name().to_owned(),
        rescues: run.rescues,
        backend: backend.to_owned(),
        engine_workflow_id: workflow.map(|id| id.0),
        engine_run_id: engine_run.map(|id| id.0),
        schedd_name: schedd,
        dagman_cluster_id: cluster,
        submit_dir: run.submit_dir,
        status: run.status,
        total_nodes: run.totals.nodes,
        total_edges: run.totals.edges,
        node_counts: run.totals.by_role,
        nodes_idle: run.counts.idle,
        nodes_running: run.counts.running,
        nodes_done: run.counts.done,
        nodes_failed: run.counts.failed,
        nodes_held: run.counts.held,
        total_work_units: run.totals.units,
        work_units_completed: run.units_completed,
        work_units_failed: run.units_failed,
        stop_requested_at: run.stop_requested_at,
        stop_reason: run.stop_reason,
        created_at: run.created_at,
        submitted_at: run.submitted_at,
        completed_at: run.completed_at,
        held: Vec::new(),
        history: Vec::new(),
    }
}

fn api_dag_event(event: RunEvent) -> RequestDagEvent {
    RequestDagEvent {
        event_type: event.event_type,
        from_status: event.from,
        to_status: event.to,
        nodes_done: event.counts.done,
        nodes_failed: event.counts.failed,
        nodes_running: event.counts.running,
        detail: event.detail.into(),
        created_at: event.at,
    }
}

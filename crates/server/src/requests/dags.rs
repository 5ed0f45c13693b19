//! Runs of requests, which the specification calls DAGs. Their nodes come from the engine, or from DAGMan, as they are at
//! the moment.

mod nodes;
mod verbs;

pub use nodes::{LogFiles, Nodes, Which, log_files, logs, nodes};
pub use verbs::{hold, release, remove, rescue};

use super::page;
use crate::error::{Answer, ApiError};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use windlass_api::requests::{Dag, DagEvent, DagHistory, Dags};
use windlass_condor::watch::Watch;
use windlass_core::requests::book::{Backend, RunEvent, RunRow};
use windlass_store::Database;
use windlass_store::model::RunFilter;

pub fn list(db: &dyn Database, mut filter: RunFilter) -> Answer<Dags> {
    filter.limit = Some(page(filter.limit));
    let runs = db.request_runs(&filter)?;
    let mut names: BTreeMap<String, Option<String>> = BTreeMap::new();
    for run in &runs {
        if let Entry::Vacant(name) = names.entry(run.process.clone()) {
            name.insert(request_of(db, run)?);
        }
    }
    let named = |run: RunRow| Dag { request_name: names.get(&run.process).cloned().flatten(), ..dag(run) };
    Ok(Dags { items: runs.into_iter().map(named).collect(), offset: filter.offset })
}

pub fn show(db: &dyn Database, uuid: &str) -> Answer<Dag> {
    let run = run(db, uuid)?;
    let history = db.run_history(uuid)?.into_iter().map(event).collect();
    Ok(Dag { request_name: request_of(db, &run)?, history, held: held(&run), ..dag(run) })
}

fn request_of(db: &dyn Database, run: &RunRow) -> Answer<Option<String>> {
    Ok(db.process_by_uuid(&run.process)?.map(|process| process.request_name))
}

/// The user whose request it carries out.
pub fn requestor(db: &dyn Database, uuid: &str) -> Answer<String> {
    let name = request_of(db, &run(db, uuid)?)?.unwrap_or_default();
    super::requestor(db, &name)
}

/// What happened to it, the oldest first.
pub fn history(db: &dyn Database, uuid: &str) -> Answer<DagHistory> {
    run(db, uuid)?;
    Ok(DagHistory { items: db.run_history(uuid)?.into_iter().map(event).collect() })
}

/// What of it waits for a person at this moment, and why.
fn held(run: &RunRow) -> Vec<String> {
    match &run.backend {
        Backend::Htcondor { cluster: Some(cluster), .. } if run.status.is_active() => {
            let watch = Watch::of(Path::new(&run.submit_dir), cluster.parse().ok(), 0);
            watch.without_attempts().look().tell_held()
        }
        _ => Vec::new(),
    }
}

fn run(db: &dyn Database, uuid: &str) -> Answer<RunRow> {
    db.request_run(uuid)?.ok_or_else(|| ApiError::not_found(format_args!("DAG {uuid}")))
}

pub(crate) fn dag(run: RunRow) -> Dag {
    let (backend, workflow, engine_run, schedd, cluster) = match run.backend {
        Backend::Engine { workflow, run } => ("engine", workflow, run, None, None),
        Backend::Htcondor { schedd, cluster } => ("htcondor", None, None, schedd, cluster),
    };
    Dag {
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

fn event(event: RunEvent) -> DagEvent {
    DagEvent {
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

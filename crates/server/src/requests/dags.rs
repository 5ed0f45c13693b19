//! Runs of requests, which the specification calls DAGs; their nodes come from the engine as they are at the moment.

use super::page;
use crate::error::{Answer, ApiError};
use windlass_api::requests::{Dag, DagEvent, DagLogs, DagNode, DagNodes, Dags};
use windlass_core::requests::book::{Backend, RunEvent, RunRow};
use windlass_store::Database;
use windlass_store::model::{JobFilter, JobRow, RunFilter};
use windlass_types::requests::UnitName;
use windlass_types::{JobStatus, WorkflowId};

/// Which nodes of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    pub status: Vec<JobStatus>,
    /// Of this work unit, by its number.
    pub unit: Option<u32>,
    pub offset: u64,
    pub limit: Option<u64>,
}

pub fn list(db: &dyn Database, mut filter: RunFilter) -> Answer<Dags> {
    filter.limit = Some(page(filter.limit));
    let items = db.request_runs(&filter)?.into_iter().map(dag).collect();
    Ok(Dags { items, offset: filter.offset })
}

pub fn show(db: &dyn Database, uuid: &str) -> Answer<Dag> {
    let history = db.run_history(uuid)?;
    let shown = dag(run(db, uuid)?);
    Ok(Dag { history: history.into_iter().map(event).collect(), ..shown })
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
        workflow_id: run.process,
        round: run.round,
        parent_dag_id: run.parent,
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

/// The workflow of the engine that a run is.
fn engine_workflow(run: &RunRow) -> Option<WorkflowId> {
    match run.backend {
        Backend::Engine { workflow, .. } => workflow,
        Backend::Htcondor { .. } => None,
    }
}

/// As they are at this moment. A run that was not handed over yet has none.
pub fn nodes(db: &dyn Database, uuid: &str, wanted: &Nodes) -> Answer<DagNodes> {
    let run = run(db, uuid)?;
    let Some(workflow) = engine_workflow(&run) else { return Ok(DagNodes::default()) };
    let limit = page(wanted.limit);
    let filter = JobFilter {
        status: wanted.status.clone(),
        name_contains: wanted.unit.map(|unit| format!("_{unit:06}")),
        offset: wanted.offset,
        limit: Some(limit),
        ..JobFilter::default()
    };
    let rows = db.jobs(workflow, &filter)?;
    Ok(DagNodes { items: rows.into_iter().map(node).collect(), offset: wanted.offset })
}

fn node(job: JobRow) -> DagNode {
    let kind = job.kind.unwrap_or_default();
    DagNode {
        role: kind.split('_').next().unwrap_or_default().to_owned(),
        work_unit: unit_of(&job.name).map(|unit| UnitName(unit).to_string()),
        name: job.name,
        status: job.status.name().to_owned(),
        attempt: job.attempt_id.0.into(),
        return_code: job.return_code,
        reason: job.reason,
        job_id: job.id.0,
    }
}

/// `proc_000012_3` → 12
fn unit_of(name: &str) -> Option<u32> {
    name.split('_').nth(1)?.parse().ok()
}

/// Where the logs are.
pub fn logs(db: &dyn Database, uuid: &str) -> Answer<DagLogs> {
    let run = run(db, uuid)?;
    let workflow = engine_workflow(&run);
    let log_dir = match workflow {
        Some(id) => db.workflow(id)?.map(|row| row.output_dir),
        None => None,
    };
    let message = match workflow {
        Some(id) => format!("`windlass logs show JOB --workflow {id}` prints what a job of it said"),
        None => "it was not handed over yet: there are no logs".to_owned(),
    };
    Ok(DagLogs {
        dag_id: run.uuid,
        submit_dir: run.submit_dir,
        log_dir,
        engine_workflow_id: workflow.map(|id| id.0),
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_of_which_unit_it_is() {
        for (name, unit) in [
            ("landing_000000", Some(0)),
            ("proc_000012_3", Some(12)),
            ("merge_1000000", Some(1_000_000)),
            ("x", None),
        ] {
            assert_eq!(unit_of(name), unit, "{name}");
        }
    }
}

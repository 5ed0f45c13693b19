//! What is shown of runs and their nodes.

use crate::ui::listing::{Datum, Field};
use crate::ui::style::Tone;
use crate::ui::table::Column;
use serde_json::json;
use windlass_api::requests::{Dag, DagEvent, DagNode};
use windlass_types::requests::RunStatus;

pub(super) const DAGS: &[Field<Dag>] = &[
    Field::new("id", |d: &Dag| (&d.id).into()).column(Column::text("DAG")),
    Field::new("request_name", |d: &Dag| d.request_name.clone().into()).column(Column::elastic("REQUEST")),
    Field::new("status", |d: &Dag| status(d.status)).column(Column::text("STATUS")),
    Field::new("backend", |d: &Dag| (&d.backend).into()).column(Column::text("BACKEND")),
    Field::new("round", |d: &Dag| d.round.into()).column(Column::number("ROUND")),
    Field::new("work_units_completed", |d: &Dag| d.work_units_completed.into()),
    Field::new("work_units_failed", |d: &Dag| d.work_units_failed.into()),
    Field::new("total_work_units", |d: &Dag| d.total_work_units.into()),
    Field::shown(Column::text("UNITS"), |d: &Dag| units(d).into()),
    Field::new("nodes_done", |d: &Dag| d.nodes_done.into()).column(Column::number("DONE")),
    Field::new("nodes_running", |d: &Dag| d.nodes_running.into()).column(Column::number("RUNNING")),
    Field::new("nodes_failed", |d: &Dag| d.nodes_failed.into()).column(Column::number("FAILED")),
    Field::new("nodes_held", |d: &Dag| d.nodes_held.into()).column(Column::number("HELD")),
    Field::new("total_nodes", |d: &Dag| d.total_nodes.into()).column(Column::number("NODES")),
    Field::new("schedd_name", |d: &Dag| d.schedd_name.clone().into()),
    Field::new("dagman_cluster_id", |d: &Dag| d.dagman_cluster_id.clone().into()),
    Field::new("submit_dir", |d: &Dag| (&d.submit_dir).into()),
    Field::new("parent_dag_id", |d: &Dag| d.parent_dag_id.clone().into()),
    Field::new("cause", |d: &Dag| (&d.cause).into()).column(Column::text("CAUSE")),
    Field::new("rescues", |d: &Dag| d.rescues.into()),
    Field::new("submitted_at", |d: &Dag| d.submitted_at.into()).column(Column::text("SUBMITTED")),
    Field::new("completed_at", |d: &Dag| d.completed_at.into()),
];

pub(super) const WHOLE: &[Field<Dag>] = &[
    Field::new("id", |d: &Dag| (&d.id).into()),
    Field::new("request", |d: &Dag| d.request_name.clone().into()),
    Field::new("status", |d: &Dag| status(d.status)),
    Field::new("backend", |d: &Dag| place(d).into()),
    Field::new("round", |d: &Dag| d.round.into()),
    Field::new("cause", |d: &Dag| (&d.cause).into()),
    Field::new("rescues", |d: &Dag| d.rescues.into()),
    Field::new("goes_on_with", |d: &Dag| d.parent_dag_id.clone().into()),
    Field::new("work_units", |d: &Dag| units(d).into()),
    Field::new("nodes", |d: &Dag| nodes(d).into()),
    Field::new("directory", |d: &Dag| (&d.submit_dir).into()),
    Field::new("stop_reason", |d: &Dag| d.stop_reason.clone().into()),
    Field::new("created_at", |d: &Dag| d.created_at.into()),
    Field::new("submitted_at", |d: &Dag| d.submitted_at.into()),
    Field::new("completed_at", |d: &Dag| d.completed_at.into()),
];

pub(super) const HISTORY: &[Field<DagEvent>] = &[
    Field::new("created_at", |e: &DagEvent| e.created_at.into()).column(Column::text("TIME")),
    Field::new("event_type", |e: &DagEvent| (&e.event_type).into()).column(Column::text("EVENT")),
    Field::new("to_status", |e: &DagEvent| e.to_status.map(RunStatus::name).into())
        .column(Column::text("STATUS")),
    Field::new("nodes_done", |e: &DagEvent| e.nodes_done.into()).column(Column::number("DONE")),
    Field::new("nodes_failed", |e: &DagEvent| e.nodes_failed.into()).column(Column::number("FAILED")),
    Field::new("detail", |e: &DagEvent| Datum::Json(json!(e.detail))),
];

pub(super) const NODES: &[Field<DagNode>] = &[
    Field::new("work_unit", |n: &DagNode| n.work_unit.clone().into()).column(Column::text("UNIT")),
    Field::new("name", |n: &DagNode| (&n.name).into()).column(Column::text("NODE")),
    Field::new("role", |n: &DagNode| (&n.role).into()),
    Field::new("status", |n: &DagNode| (&n.status).into()).column(Column::text("STATUS")),
    Field::new("attempt", |n: &DagNode| n.attempt.into()).column(Column::number("ATTEMPT")),
    Field::new("site", |n: &DagNode| n.site.clone().into()).column(Column::text("SITE")),
    Field::new("return_code", |n: &DagNode| n.return_code.into()),
    Field::new("job_id", |n: &DagNode| n.job_id.into()),
    Field::new("cluster_id", |n: &DagNode| n.cluster_id.into()),
    Field::new("reason", |n: &DagNode| n.reason.clone().into()).column(Column::elastic("REASON")),
];

fn status(status: RunStatus) -> Datum {
    let tone = match status {
        RunStatus::Completed => Some(Tone::Good),
        RunStatus::Failed | RunStatus::Removed => Some(Tone::Bad),
        RunStatus::Partial | RunStatus::Halted => Some(Tone::Warn),
        RunStatus::Submitted | RunStatus::Running => Some(Tone::Busy),
        RunStatus::Planning | RunStatus::Ready | RunStatus::Stopped => None,
    };
    Datum::Word(status.name(), tone)
}

/// `12/25`, and how many failed.
fn units(dag: &Dag) -> String {
    let failed = match dag.work_units_failed {
        0 => String::new(),
        failed => format!(" ({failed} failed)"),
    };
    format!("{}/{}{failed}", dag.work_units_completed, dag.total_work_units)
}

fn nodes(dag: &Dag) -> String {
    let held = if dag.nodes_held > 0 { format!(", {} held", dag.nodes_held) } else { String::new() };
    format!(
        "{} of {} completed, {} running, {} failed{held}",
        dag.nodes_done, dag.total_nodes, dag.nodes_running, dag.nodes_failed
    )
}

/// `htcondor: DAGMan 40 at schedd-3`
fn place(dag: &Dag) -> String {
    let at = dag.schedd_name.as_ref().map(|schedd| format!(" at {schedd}")).unwrap_or_default();
    match (&dag.dagman_cluster_id, dag.engine_workflow_id) {
        (Some(cluster), _) => format!("{}: DAGMan {cluster}{at}", dag.backend),
        (None, Some(workflow)) => format!("{}: workflow {workflow}", dag.backend),
        (None, None) => format!("{}{at}", dag.backend),
    }
}

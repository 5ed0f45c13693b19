//! Columns of runs and their nodes.

use crate::ui::listing::{FieldValue, ListField};
use crate::ui::style::TextTone;
use crate::ui::table::TableColumn;
use serde_json::json;
use windlass_api::requests::{RequestDag, RequestDagEvent, RequestDagNode};
use windlass_types::requests::RequestRunStatus;

pub(super) const DAG_LIST_FIELDS: &[ListField<RequestDag>] = &[
    ListField::new("id", |d: &RequestDag| (&d.id).into()).column(TableColumn::text("DAG")),
    ListField::new("request_name", |d: &RequestDag| d.request_name.clone().into())
        .column(TableColumn::flexible("REQUEST")),
    ListField::new("status", |d: &RequestDag| status_value(d.status)).column(TableColumn::text("STATUS")),
    ListField::new("backend", |d: &RequestDag| (&d.backend).into()).column(TableColumn::text("BACKEND")),
    ListField::new("round", |d: &RequestDag| d.round.into()).column(TableColumn::number("ROUND")),
    ListField::new("work_units_completed", |d: &RequestDag| d.work_units_completed.into()),
    ListField::new("work_units_failed", |d: &RequestDag| d.work_units_failed.into()),
    ListField::new("total_work_units", |d: &RequestDag| d.total_work_units.into()),
    ListField::table_only(TableColumn::text("UNITS"), |d: &RequestDag| render_units(d).into()),
    ListField::new("nodes_done", |d: &RequestDag| d.nodes_done.into()).column(TableColumn::number("DONE")),
    ListField::new("nodes_running", |d: &RequestDag| d.nodes_running.into())
        .column(TableColumn::number("RUNNING")),
    ListField::new("nodes_failed", |d: &RequestDag| d.nodes_failed.into())
        .column(TableColumn::number("FAILED")),
    ListField::new("nodes_held", |d: &RequestDag| d.nodes_held.into()).column(TableColumn::number("HELD")),
    ListField::new("total_nodes", |d: &RequestDag| d.total_nodes.into()).column(TableColumn::number("NODES")),
    ListField::new("schedd_name", |d: &RequestDag| d.schedd_name.clone().into()),
    ListField::new("dagman_cluster_id", |d: &RequestDag| d.dagman_cluster_id.clone().into()),
    ListField::new("submit_dir", |d: &RequestDag| (&d.submit_dir).into()),
    ListField::new("parent_dag_id", |d: &RequestDag| d.parent_dag_id.clone().into()),
    ListField::new("cause", |d: &RequestDag| (&d.cause).into()).column(TableColumn::text("CAUSE")),
    ListField::new("rescues", |d: &RequestDag| d.rescues.into()),
    ListField::new("submitted_at", |d: &RequestDag| d.submitted_at.into())
        .column(TableColumn::text("SUBMITTED")),
    ListField::new("completed_at", |d: &RequestDag| d.completed_at.into()),
];

pub(super) const DAG_DETAIL_FIELDS: &[ListField<RequestDag>] = &[
    ListField::new("id", |d: &RequestDag| (&d.id).into()),
    ListField::new("request", |d: &RequestDag| d.request_name.clone().into()),
    ListField::new("status", |d: &RequestDag| status_value(d.status)),
    ListField::new("backend", |d: &RequestDag| render_backend(d).into()),
    ListField::new("round", |d: &RequestDag| d.round.into()),
    ListField::new("cause", |d: &RequestDag| (&d.cause).into()),
    ListField::new("rescues", |d: &RequestDag| d.rescues.into()),
    ListField::new("goes_on_with", |d: &RequestDag| d.parent_dag_id.clone().into()),
    ListField::new("work_units", |d: &RequestDag| render_units(d).into()),
    ListField::new("nodes", |d: &RequestDag| render_nodes(d).into()),
    ListField::new("directory", |d: &RequestDag| (&d.submit_dir).into()),
    ListField::new("stop_reason", |d: &RequestDag| d.stop_reason.clone().into()),
    ListField::new("created_at", |d: &RequestDag| d.created_at.into()),
    ListField::new("submitted_at", |d: &RequestDag| d.submitted_at.into()),
    ListField::new("completed_at", |d: &RequestDag| d.completed_at.into()),
];

pub(super) const HISTORY_FIELDS: &[ListField<RequestDagEvent>] = &[
    ListField::new("created_at", |e: &RequestDagEvent| e.created_at.into()).column(TableColumn::text("TIME")),
    ListField::new("event_type", |e: &RequestDagEvent| (&e.event_type).into())
        .column(TableColumn::text("EVENT")),
    ListField::new("to_status", |e: &RequestDagEvent| e.to_status.map(RequestRunStatus::name).into())
        .column(TableColumn::text("STATUS")),
    ListField::new("nodes_done", |e: &RequestDagEvent| e.nodes_done.into())
        .column(TableColumn::number("DONE")),
    ListField::new("nodes_failed", |e: &RequestDagEvent| e.nodes_failed.into())
        .column(TableColumn::number("FAILED")),
    ListField::new("detail", |e: &RequestDagEvent| FieldValue::Json(json!(e.detail))),
];

pub(super) const NODE_FIELDS: &[ListField<RequestDagNode>] = &[
    ListField::new("work_unit", |n: &RequestDagNode| n.work_unit.clone().into())
        .column(TableColumn::text("UNIT")),
    ListField::new("name", |n: &RequestDagNode| (&n.name).into()).column(TableColumn::text("NODE")),
    ListField::new("role", |n: &RequestDagNode| (&n.role).into()),
    ListField::new("status", |n: &RequestDagNode| (&n.status).into()).column(TableColumn::text("STATUS")),
    ListField::new("attempt", |n: &RequestDagNode| n.attempt.into()).column(TableColumn::number("ATTEMPT")),
    ListField::new("site", |n: &RequestDagNode| n.site.clone().into()).column(TableColumn::text("SITE")),
    ListField::new("return_code", |n: &RequestDagNode| n.return_code.into()),
    ListField::new("job_id", |n: &RequestDagNode| n.job_id.into()),
    ListField::new("cluster_id", |n: &RequestDagNode| n.cluster_id.into()),
    ListField::new("reason", |n: &RequestDagNode| n.reason.clone().into())
        .column(TableColumn::flexible("REASON")),
];

fn status_value(status: RequestRunStatus) -> FieldValue {
    let tone = match status {
        RequestRunStatus::Completed => Some(TextTone::Good),
        RequestRunStatus::Failed | RequestRunStatus::Removed => Some(TextTone::Bad),
        RequestRunStatus::Partial | RequestRunStatus::Halted => Some(TextTone::Warn),
        RequestRunStatus::Submitted | RequestRunStatus::Running => Some(TextTone::Busy),
        RequestRunStatus::Planning | RequestRunStatus::Ready | RequestRunStatus::Stopped => None,
    };
    FieldValue::Word(status.name(), tone)
}

/// `12/25`, and the number of failed nodes.
fn render_units(dag: &RequestDag) -> String {
    let failed = match dag.work_units_failed {
        0 => String::new(),
        failed => format!(" ({failed} failed)"),
    };
    format!("{}/{}{failed}", dag.work_units_completed, dag.total_work_units)
}

fn render_nodes(dag: &RequestDag) -> String {
    let held = if dag.nodes_held > 0 { format!(", {} held", dag.nodes_held) } else { String::new() };
    format!(
        "{} of {} completed, {} running, {} failed{held}",
        dag.nodes_done, dag.total_nodes, dag.nodes_running, dag.nodes_failed
    )
}

/// `htcondor: DAGMan 40 at schedd-3`
fn render_backend(dag: &RequestDag) -> String {
    let at = dag.schedd_name.as_ref().map(|schedd| format!(" at {schedd}")).unwrap_or_default();
    match (&dag.dagman_cluster_id, dag.engine_workflow_id) {
        (Some(cluster), _) => format!("{}: DAGMan {cluster}{at}", dag.backend),
        (None, Some(workflow)) => format!("{}: workflow {workflow}", dag.backend),
        (None, None) => format!("{}{at}", dag.backend),
    }
}

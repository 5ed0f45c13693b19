//! Scheduled compute nodes: what the contract calls allocations. Runners of Torc say how theirs stand; ours are looked after
//! here, and can be seen.

use super::call::Call;
use super::records::sort_models;
use super::table::Table;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::{ListScheduledComputeNodes, OfWorkflow};
use windlass_api::torc::{DeleteCountResponse, Page, ScheduledComputeNodesModel};
use windlass_auth::Operation;
use windlass_core::slurm::book::{StatedAllocation, TorcStatus};
use windlass_store::model::{AllocationFilter, Part};
use windlass_types::slurm::Allocation;
use windlass_types::{AllocationId, WorkflowId};

pub(super) fn table() -> Table {
    Table::new("kept for clients")
        .get("/scheduled_compute_nodes", "list_scheduled_compute_nodes", "Allocations of a workflow", list)
        .post(
            "/scheduled_compute_nodes",
            "create_scheduled_compute_node",
            "An allocation was asked for",
            create,
        )
        .delete(
            "/scheduled_compute_nodes",
            "delete_scheduled_compute_nodes",
            "Forgets those of a workflow",
            delete_all,
        )
        .get("/scheduled_compute_nodes/{id}", "get_scheduled_compute_node", "One allocation", get)
        .put("/scheduled_compute_nodes/{id}", "update_scheduled_compute_node", "It began, or ended", update)
        .delete("/scheduled_compute_nodes/{id}", "delete_scheduled_compute_node", "Forgets it", delete)
}

/// How those stand that are not over.
pub(super) fn open(call: &Call, workflow: WorkflowId) -> Answer<Vec<TorcStatus>> {
    let filter =
        AllocationFilter { workflow: Some(workflow), is_open: Some(true), ..AllocationFilter::default() };
    let rows = call.store().allocations(&filter)?;
    Ok(rows.into_iter().map(|row| TorcStatus::of(row.state, row.end)).collect())
}

fn model(row: &Allocation) -> ScheduledComputeNodesModel {
    let scheduler_type = if row.is_ours { "slurm".to_owned() } else { row.request.scheduler.clone() };
    ScheduledComputeNodesModel {
        id: Some(row.id.0),
        workflow_id: row.workflow.0,
        scheduler_config_id: row.scheduler.unwrap_or_default(),
        scheduler_id: row.job_id.and_then(|job| i64::try_from(job).ok()).unwrap_or_default(),
        scheduler_type,
        status: TorcStatus::of(row.state, row.end).name().to_owned(),
    }
}

fn stated(body: &ScheduledComputeNodesModel) -> Answer<StatedAllocation> {
    let status = TorcStatus::from_name(&body.status).ok_or_else(|| {
        ApiError::invalid(format!("status: `{}` is none", body.status.escape_debug()))
            .with_hint("pending, active, complete or canceled")
    })?;
    let job_id = u64::try_from(body.scheduler_id).map_err(|_| {
        ApiError::invalid("scheduler_id: the number of a job of the batch system is not below 0")
    })?;
    Ok(StatedAllocation {
        workflow: WorkflowId(body.workflow_id),
        job_id,
        scheduler: body.scheduler_config_id,
        scheduler_type: body.scheduler_type.clone(),
        status,
    })
}

fn row(call: &Call, operation: Operation, id: i64) -> Answer<Allocation> {
    let id = AllocationId(id);
    call.part(operation, Part::Allocation(id))?;
    let found = call.store().allocation(id)?;
    found.ok_or_else(|| ApiError::not_found(format_args!("scheduled compute node {id}")))
}

fn get(call: &Call, Path(id): Path<i64>) -> Answer<ScheduledComputeNodesModel> {
    Ok(model(&row(call, Operation::ReadWorkflow, id)?))
}

fn create(call: &Call, Json(body): Json<ScheduledComputeNodesModel>) -> Answer<ScheduledComputeNodesModel> {
    call.workflow(Operation::Work, body.workflow_id)?;
    let stated = stated(&body)?;
    let id = call.write(|store, now| store.state_allocation(None, &stated, now))?;
    Ok(ScheduledComputeNodesModel { id: Some(id.0), ..body })
}

fn update(
    call: &Call,
    Path(id): Path<i64>,
    Json(body): Json<ScheduledComputeNodesModel>,
) -> Answer<ScheduledComputeNodesModel> {
    let row = row(call, Operation::Work, id)?;
    if body.workflow_id != row.workflow.0 || body.id.is_some_and(|said| said != id) {
        return Err(ApiError::invalid("a scheduled compute node keeps its id and its workflow"));
    }
    let stated = stated(&body)?;
    call.write(|store, now| store.state_allocation(Some(row.id), &stated, now))?;
    Ok(ScheduledComputeNodesModel { id: Some(id), ..body })
}

fn delete(call: &Call, Path(id): Path<i64>) -> Answer<ScheduledComputeNodesModel> {
    let row = row(call, Operation::Work, id)?;
    call.write(|store, now| store.delete_allocation(row.id, now))?;
    Ok(model(&row))
}

fn delete_all(call: &Call, Query(query): Query<OfWorkflow>) -> Answer<DeleteCountResponse> {
    let row = call.workflow(Operation::Work, query.workflow_id)?;
    let count = call.write(|store, now| store.delete_allocations(row.id, now))?;
    Ok(DeleteCountResponse { count: count as i64 })
}

fn list(
    call: &Call,
    Query(query): Query<ListScheduledComputeNodes>,
) -> Answer<Page<ScheduledComputeNodesModel>> {
    let row = call.workflow(Operation::ReadWorkflow, query.workflow_id)?;
    let filter = AllocationFilter { workflow: Some(row.id), ..AllocationFilter::default() };
    let mut found: Vec<_> = call.store().allocations(&filter)?.iter().map(model).collect();
    let is = |asked: &Option<String>, has: String| asked.as_ref().is_none_or(|asked| *asked == has);
    found.retain(|one| is(&query.scheduler_id, one.scheduler_id.to_string()));
    found.retain(|one| is(&query.scheduler_config_id, one.scheduler_config_id.to_string()));
    found.retain(|one| is(&query.status, one.status.clone()));
    let view = query.view();
    Ok(Page::of(sort_models(found, view)?, view.offset, view.limit))
}

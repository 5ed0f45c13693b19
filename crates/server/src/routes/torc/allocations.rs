//! Scheduled compute nodes: the contract's name for allocations. Torc runners report the state of theirs;
//! allocations of Windlass are managed here and can be listed.

use super::call_context::TorcCallContext;
use super::opaque_records::sort_models;
use super::operation_table::OperationTable;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::{ListScheduledComputeNodes, WorkflowQuery};
use windlass_api::torc::{DeleteCountResponse, ListPage, ScheduledComputeNodesModel};
use windlass_auth::AuthOperation;
use windlass_core::slurm::allocation_rows::{ExternalAllocation, TorcAllocationStatus};
use windlass_store::model::{AllocationFilter, WorkflowPartId};
use windlass_types::slurm::Allocation;
use windlass_types::{AllocationId, WorkflowId};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("client data")
        .get(
            "/scheduled_compute_nodes",
            "list_scheduled_compute_nodes",
            "List the allocations of a workflow",
            list_allocations,
        )
        .post(
            "/scheduled_compute_nodes",
            "create_scheduled_compute_node",
            "Add an allocation",
            create_allocation,
        )
        .delete(
            "/scheduled_compute_nodes",
            "delete_scheduled_compute_nodes",
            "Delete the allocations of a workflow",
            delete_allocations,
        )
        .get(
            "/scheduled_compute_nodes/{id}",
            "get_scheduled_compute_node",
            "Get an allocation",
            get_allocation,
        )
        .put(
            "/scheduled_compute_nodes/{id}",
            "update_scheduled_compute_node",
            "Change the state of an allocation",
            update_allocation,
        )
        .delete(
            "/scheduled_compute_nodes/{id}",
            "delete_scheduled_compute_node",
            "Delete an allocation",
            delete_allocation,
        )
}

/// State of the open allocations.
pub(super) fn list_open_allocations(
    call: &TorcCallContext,
    workflow: WorkflowId,
) -> ApiResult<Vec<TorcAllocationStatus>> {
    let filter =
        AllocationFilter { workflow: Some(workflow), is_open: Some(true), ..AllocationFilter::default() };
    let rows = call.store().allocations(&filter)?;
    Ok(rows.into_iter().map(|row| TorcAllocationStatus::from_state(row.state, row.end)).collect())
}

fn allocation_model(row: &Allocation) -> ScheduledComputeNodesModel {
    let scheduler_type = if row.is_ours { "slurm".to_owned() } else { row.request.scheduler.clone() };
    ScheduledComputeNodesModel {
        id: Some(row.id.0),
        workflow_id: row.workflow.0,
        scheduler_config_id: row.scheduler.unwrap_or_default(),
        scheduler_id: row.job_id.and_then(|job| i64::try_from(job).ok()).unwrap_or_default(),
        scheduler_type,
        status: TorcAllocationStatus::from_state(row.state, row.end).name().to_owned(),
    }
}

fn parse_allocation(body: &ScheduledComputeNodesModel) -> ApiResult<ExternalAllocation> {
    let status = TorcAllocationStatus::from_name(&body.status).ok_or_else(|| {
        ApiError::invalid(format!("status: `{}` is not a status", body.status.escape_debug()))
            .with_hint("expected pending, active, complete or canceled")
    })?;
    let job_id = u64::try_from(body.scheduler_id)
        .map_err(|_| ApiError::invalid("scheduler_id: must not be negative"))?;
    Ok(ExternalAllocation {
        workflow: WorkflowId(body.workflow_id),
        job_id,
        scheduler: body.scheduler_config_id,
        scheduler_type: body.scheduler_type.clone(),
        status,
    })
}

fn authorize_allocation(call: &TorcCallContext, operation: AuthOperation, id: i64) -> ApiResult<Allocation> {
    let id = AllocationId(id);
    call.authorize_part(operation, WorkflowPartId::Allocation(id))?;
    let found = call.store().allocation(id)?;
    found.ok_or_else(|| ApiError::not_found(format_args!("scheduled compute node {id}")))
}

fn get_allocation(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<ScheduledComputeNodesModel> {
    Ok(allocation_model(&authorize_allocation(call, AuthOperation::ReadWorkflow, id)?))
}

fn create_allocation(
    call: &TorcCallContext,
    Json(body): Json<ScheduledComputeNodesModel>,
) -> ApiResult<ScheduledComputeNodesModel> {
    call.authorize_workflow(AuthOperation::RunJobs, body.workflow_id)?;
    let stated = parse_allocation(&body)?;
    let id = call.write_store(|store, now| store.record_client_allocation(None, &stated, now))?;
    Ok(ScheduledComputeNodesModel { id: Some(id.0), ..body })
}

fn update_allocation(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<ScheduledComputeNodesModel>,
) -> ApiResult<ScheduledComputeNodesModel> {
    let row = authorize_allocation(call, AuthOperation::RunJobs, id)?;
    if body.workflow_id != row.workflow.0 || body.id.is_some_and(|given| given != id) {
        return Err(ApiError::invalid("id and workflow of a scheduled compute node cannot change"));
    }
    let stated = parse_allocation(&body)?;
    call.write_store(|store, now| store.record_client_allocation(Some(row.id), &stated, now))?;
    Ok(ScheduledComputeNodesModel { id: Some(id), ..body })
}

fn delete_allocation(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<ScheduledComputeNodesModel> {
    let row = authorize_allocation(call, AuthOperation::RunJobs, id)?;
    call.write_store(|store, now| store.delete_allocation(row.id, now))?;
    Ok(allocation_model(&row))
}

fn delete_allocations(
    call: &TorcCallContext,
    Query(query): Query<WorkflowQuery>,
) -> ApiResult<DeleteCountResponse> {
    let row = call.authorize_workflow(AuthOperation::RunJobs, query.workflow_id)?;
    let count = call.write_store(|store, now| store.delete_allocations(row.id, now))?;
    Ok(DeleteCountResponse { count: count as i64 })
}

fn list_allocations(
    call: &TorcCallContext,
    Query(query): Query<ListScheduledComputeNodes>,
) -> ApiResult<ListPage<ScheduledComputeNodesModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, query.workflow_id)?;
    let filter = AllocationFilter { workflow: Some(row.id), ..AllocationFilter::default() };
    let mut found: Vec<_> = call.store().allocations(&filter)?.iter().map(allocation_model).collect();
    let is = |asked: &Option<String>, has: String| asked.as_ref().is_none_or(|asked| *asked == has);
    found.retain(|one| is(&query.scheduler_id, one.scheduler_id.to_string()));
    found.retain(|one| is(&query.scheduler_config_id, one.scheduler_config_id.to_string()));
    found.retain(|one| is(&query.status, one.status.clone()));
    let view = query.view();
    Ok(ListPage::from_full_list(sort_models(found, view)?, view.offset, view.limit))
}

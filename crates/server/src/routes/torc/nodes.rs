//! Compute nodes: the contract's name for workers. Torc runners create theirs here; Windlass workers register
//! themselves.

use super::call_context::{TorcCallContext, limit, offset, sort_order};
use super::input;
use super::operation_table::OperationTable;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use windlass_api::torc::query::{ListComputeNodes, WorkflowQuery};
use windlass_api::torc::{ComputeNodeModel, DeleteCountResponse, ListPage};
use windlass_auth::AuthOperation;
use windlass_store::model::{
    CountQuery, NewWorker, WorkerFilter, WorkerKind, WorkerRow, WorkerUpdate, WorkflowPartId, WorkflowRow,
};
use windlass_types::worker_bounds::{self, UserWorkerCount};
use windlass_types::{AllocationId, Bytes, Capacity, WorkerId};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("compute nodes")
        .get("/compute_nodes", "list_compute_nodes", "List the workers of a workflow", list_compute_nodes)
        .post("/compute_nodes", "create_compute_node", "Register a runner", create_compute_node)
        .delete(
            "/compute_nodes",
            "delete_compute_nodes",
            "Delete the records of all workers of a workflow",
            delete_compute_nodes,
        )
        .get("/compute_nodes/{id}", "get_compute_node", "Get a worker", get_compute_node)
        .put(
            "/compute_nodes/{id}",
            "update_compute_node",
            "Update a runner, or report that it has left",
            update_compute_node,
        )
        .delete(
            "/compute_nodes/{id}",
            "delete_compute_node",
            "Delete the record of a worker",
            delete_compute_node,
        )
}

/// Rows that do not represent a worker are hidden.
const LISTED_KINDS: [WorkerKind; 3] = [WorkerKind::Local, WorkerKind::Remote, WorkerKind::Torc];

fn list_compute_nodes(
    call: &TorcCallContext,
    Query(query): Query<ListComputeNodes>,
) -> ApiResult<ListPage<ComputeNodeModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, query.workflow_id)?;
    let view = query.view();
    let mut filter = WorkerFilter {
        workflow: Some(row.id),
        kinds: LISTED_KINDS.to_vec(),
        host: query.hostname.clone(),
        is_active: query.is_active,
        allocation: query.scheduled_compute_node_id,
        sort: sort_order(view),
        ..WorkerFilter::default()
    };
    let total = call.store().count_rows(&CountQuery::Workers(filter.clone()))?;
    filter.offset = offset(view);
    filter.limit = limit(view);
    let workers = call.store().workers(&filter)?;
    let items = workers.into_iter().map(|worker| compute_node_model(&row, worker)).collect();
    Ok(ListPage::new(items, view.offset, total as i64))
}

fn get_compute_node(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<ComputeNodeModel> {
    let row = call.authorize_part(AuthOperation::ReadWorkflow, WorkflowPartId::Worker(WorkerId(id)))?;
    Ok(compute_node_model(&row, load_worker(call, id)?))
}

fn load_worker(call: &TorcCallContext, id: i64) -> ApiResult<WorkerRow> {
    let missing = || ApiError::not_found(format_args!("compute node {id}"));
    call.store()
        .worker(WorkerId(id))?
        .filter(|row| LISTED_KINDS.contains(&row.worker.kind))
        .ok_or_else(missing)
}

fn create_compute_node(
    call: &TorcCallContext,
    Json(body): Json<ComputeNodeModel>,
) -> ApiResult<ComputeNodeModel> {
    let row = call.authorize_workflow(AuthOperation::RunJobs, body.workflow_id)?;
    let capacity = parse_capacity(&body)?;
    check_user_workers(call, capacity)?;
    let worker = NewWorker {
        kind: WorkerKind::Torc,
        workflow: Some(row.id),
        run: Some(row.run_id),
        user: call.caller_name().to_owned(),
        version: "torc".to_owned(),
        labels: input::parse_labels(body.labels.as_deref())?,
        host: parse_host(&body)?,
        pid: input::convert_number("pid", body.pid)?,
        capacity,
        allocation: find_allocation(call, &row, &body)?,
        extra: Some(extra_fields(&body)?),
        ..NewWorker::default()
    };
    let started = input::parse_time("start_time", &body.start_time)?;
    let store = call.store().acting_as(call.caller_name());
    let id = store.add_worker(&worker, call.now())?;
    let update = WorkerUpdate { started_at: Some(started), ..WorkerUpdate::default() };
    store.update_worker(id, &update, call.now())?;
    if body.is_active == Some(false) {
        store.retire_worker(id, call.now())?;
    }
    get_compute_node(call, Path(id.0))
}

/// Runners of Torc are counted by their rows: the scheduler does not know them until they hold a job.
fn check_user_workers(call: &TorcCallContext, capacity: Capacity) -> ApiResult<()> {
    let filter = WorkerFilter {
        user: Some(call.caller_name().to_owned()),
        kinds: vec![WorkerKind::Torc],
        is_active: Some(true),
        ..WorkerFilter::default()
    };
    let others = call.store().workers(&filter)?;
    let others: UserWorkerCount = others.into_iter().map(|row| row.worker.capacity).collect();
    others.check_further(&capacity).map_err(|error| {
        ApiError::invalid(error.to_string())
            .with_hint("set `is_active` to false for compute nodes that are gone")
    })
}

fn parse_host(body: &ComputeNodeModel) -> ApiResult<String> {
    worker_bounds::check_host(&body.hostname)
        .map_err(|error| ApiError::invalid(format!("compute node: {error}")))?;
    Ok(body.hostname.clone())
}

fn parse_capacity(body: &ComputeNodeModel) -> ApiResult<Capacity> {
    if !(0.0..1e9).contains(&body.memory_gb) {
        return Err(ApiError::invalid("memory_gb is out of range"));
    }
    input::check_capacity(Capacity {
        cpus: input::convert_number("num_cpus", body.num_cpus)?,
        memory: Bytes((body.memory_gb * f64::from(1 << 30)) as u64),
        gpus: input::convert_number("num_gpus", body.num_gpus)?,
        nodes: input::convert_number("num_nodes", body.num_nodes)?,
        max_jobs: None,
    })
}

/// Returns the scheduled compute node that started the worker, if it belongs to the workflow.
fn find_allocation(
    call: &TorcCallContext,
    row: &WorkflowRow,
    body: &ComputeNodeModel,
) -> ApiResult<Option<i64>> {
    let given = body.scheduler.as_ref().and_then(|scheduler| scheduler.get("scheduler_id")?.as_i64());
    let Some(id) = given else { return Ok(None) };
    let found = call.store().allocation(AllocationId(id))?;
    Ok(found.filter(|allocation| allocation.workflow == row.id).map(|allocation| allocation.id.0))
}

/// Fields without a database column.
const EXTRA_FIELDS: [&str; 11] = [
    "avg_cpu_percent",
    "avg_memory_bytes",
    "compute_node_type",
    "duration_seconds",
    "end_time",
    "memory_gb",
    "peak_cpu_percent",
    "peak_memory_bytes",
    "sample_count",
    "scheduler",
    "time_limit",
];

fn extra_fields(body: &ComputeNodeModel) -> ApiResult<Value> {
    input::check_name("a type of compute nodes", &body.compute_node_type)?;
    let Value::Object(mut all) = json!(body) else {
        return Err(ApiError::internal("a compute node is no object"));
    };
    all.retain(|field, value| {
        (EXTRA_FIELDS.contains(&field.as_str()) || field == "scheduler_config_id") && !value.is_null()
    });
    Ok(Value::Object(all))
}

/// A runner that becomes inactive has left: the jobs that it held run again.
fn update_compute_node(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<ComputeNodeModel>,
) -> ApiResult<ComputeNodeModel> {
    let row = call.authorize_part(AuthOperation::RunJobs, WorkflowPartId::Worker(WorkerId(id)))?;
    let old = load_worker(call, id)?;
    if body.workflow_id != row.id.0 || body.id.is_some_and(|given| given != id) {
        return Err(ApiError::invalid("id and workflow of a compute node cannot change"));
    }
    if old.worker.kind != WorkerKind::Torc {
        return Err(ApiError::invalid("this worker reports its own state and cannot be changed"));
    }
    let capacity = parse_capacity(&body)?;
    if body.is_active == Some(true) && !old.is_active() {
        check_user_workers(call, capacity)?;
    }
    let Value::Object(new_fields) = extra_fields(&body)? else { return Err(ApiError::internal("no object")) };
    let mut all = match old.worker.extra.clone() {
        Some(Value::Object(known)) => known,
        _ => Map::new(),
    };
    all.extend(new_fields);
    let store = call.store().acting_as(call.caller_name());
    let update = WorkerUpdate {
        host: Some(parse_host(&body)?),
        pid: Some(input::convert_number("pid", body.pid)?),
        labels: body.labels.as_deref().map(|labels| input::parse_labels(Some(labels))).transpose()?,
        capacity: Some(capacity),
        allocation: find_allocation(call, &row, &body)?,
        extra: Some(Value::Object(all)),
        ended_at: (body.is_active == Some(true) && !old.is_active()).then_some(None),
        ..WorkerUpdate::default()
    };
    store.update_worker(WorkerId(id), &update, call.now())?;
    if body.is_active == Some(false) && old.is_active() {
        retire_worker(call, WorkerId(id))?;
    }
    get_compute_node(call, Path(id))
}

fn delete_compute_node(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<ComputeNodeModel> {
    let row = call.authorize_part(AuthOperation::RunJobs, WorkflowPartId::Worker(WorkerId(id)))?;
    let shown = compute_node_model(&row, load_worker(call, id)?);
    delete_workers(call, &[load_worker(call, id)?])?;
    Ok(shown)
}

fn delete_compute_nodes(
    call: &TorcCallContext,
    Query(query): Query<WorkflowQuery>,
) -> ApiResult<DeleteCountResponse> {
    let row = call.authorize_workflow(AuthOperation::RunJobs, query.workflow_id)?;
    let filter =
        WorkerFilter { workflow: Some(row.id), kinds: LISTED_KINDS.to_vec(), ..WorkerFilter::default() };
    let workers = call.store().workers(&filter)?;
    delete_workers(call, &workers)?;
    Ok(DeleteCountResponse { count: workers.len() as i64 })
}

/// Retires the worker, so that its jobs run again, and deletes it. The scheduler knows only workers that have
/// held jobs.
fn retire_worker(call: &TorcCallContext, id: WorkerId) -> ApiResult<()> {
    match call.call_service(|service, reply| service.retire_worker(id, call.caller_name(), reply)) {
        Err(error) if error.status != StatusCode::NOT_FOUND => return Err(error),
        _ => {}
    }
    Ok(call.store().acting_as(call.caller_name()).retire_worker(id, call.now())?)
}

/// Retires connected runners before their rows are deleted. Possible for Torc runners only.
fn delete_workers(call: &TorcCallContext, workers: &[WorkerRow]) -> ApiResult<()> {
    if let Some(own) = workers.iter().find(|row| row.is_active() && row.worker.kind != WorkerKind::Torc) {
        return Err(ApiError::invalid(format!("worker {} is connected and reports its own state", own.id))
            .with_hint("`windlass worker drain` drains it"));
    }
    for row in workers.iter().filter(|row| row.is_active()) {
        retire_worker(call, row.id)?;
    }
    let ids: Vec<WorkerId> = workers.iter().map(|row| row.id).collect();
    Ok(call.store().acting_as(call.caller_name()).delete_workers(&ids, call.now())?)
}

/// Returns how a worker was started, as the contract names it.
pub(super) fn node_type(row: &WorkerRow) -> String {
    let given =
        row.worker.extra.as_ref().and_then(|extra| extra.get("compute_node_type")).and_then(Value::as_str);
    given.unwrap_or("local").to_owned()
}

fn compute_node_model(workflow: &WorkflowRow, row: WorkerRow) -> ComputeNodeModel {
    let node_type = node_type(&row);
    let is_active = row.is_active();
    let known = row.worker.extra.unwrap_or(Value::Null);
    let number = |field: &str| known.get(field).and_then(Value::as_f64);
    let whole = |field: &str| known.get(field).and_then(Value::as_i64);
    let words = |field: &str| known.get(field).and_then(Value::as_str).map(str::to_owned);
    let lived = row.ended_at.map(|end| end.since(row.started_at).as_secs_f64());
    ComputeNodeModel {
        id: Some(row.id.0),
        workflow_id: workflow.id.0,
        compute_node_type: node_type,
        hostname: row.worker.host,
        memory_gb: number("memory_gb").unwrap_or(row.worker.capacity.memory.0 as f64 / f64::from(1 << 30)),
        num_cpus: i64::from(row.worker.capacity.cpus),
        num_gpus: i64::from(row.worker.capacity.gpus),
        num_nodes: i64::from(row.worker.capacity.nodes),
        pid: i64::from(row.worker.pid),
        start_time: row.started_at.to_string(),
        avg_cpu_percent: number("avg_cpu_percent"),
        avg_memory_bytes: whole("avg_memory_bytes"),
        duration_seconds: number("duration_seconds").or(lived),
        end_time: words("end_time"),
        is_active: Some(is_active),
        labels: (!row.worker.labels.is_empty()).then_some(row.worker.labels),
        peak_cpu_percent: number("peak_cpu_percent"),
        peak_memory_bytes: whole("peak_memory_bytes"),
        sample_count: whole("sample_count"),
        scheduler: known.get("scheduler").cloned(),
        scheduler_config_id: whole("scheduler_config_id"),
        time_limit: words("time_limit"),
    }
}

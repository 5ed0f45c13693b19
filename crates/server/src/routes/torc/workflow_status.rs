//! Operations on whole workflows, and their status.

use super::call_context::TorcCallContext;
use super::operation_table::{
    HandlerReply, OperationDescription, OperationTable, TorcOrOwnReply, WorkflowKey,
};
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use crate::routes::requests;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_api::torc::query::{DryRunQuery, InitializeQuery, ResetJobsQuery, ResetStatusQuery};
use windlass_api::torc::{
    ActiveTaskResponse, IsCompleteResponse, IsUninitializedResponse, JobStatusCounts,
    ProcessChangedJobInputsResponse, ResetJobStatusResponse, TaskModel, TaskStatus, WorkflowStatusResponse,
};
use windlass_auth::AuthOperation;
use windlass_core::slurm::allocation_rows::TorcAllocationStatus;
use windlass_scheduler::service::{JobsToReset, ReadyJobGroup, WorkflowSnapshot};
use windlass_store::model::{
    DataFilter, JobDetails, JobFilter, WorkerFilter, WorkerKind, WorkerRow, WorkflowPartId, WorkflowRow,
};
use windlass_types::{JobId, JobStatus, Timestamp, WorkflowId, digest_bytes};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("workflows")
        .get(
            "/workflows/{id}/status",
            "get_workflow_status",
            "Get the status of an engine workflow; with a UUID, same as `/request-workflows/{id}/status`",
            get_status_by_key,
        )
        .get(
            "/workflows/{id}/is_complete",
            "is_workflow_complete",
            "Check whether a workflow has ended",
            is_complete,
        )
        .get(
            "/workflows/{id}/is_uninitialized",
            "is_workflow_uninitialized",
            "Check whether all jobs are uninitialized",
            is_uninitialized,
        )
        .post(
            "/workflows/{id}/initialize_jobs",
            "initialize_jobs",
            "Initialize jobs: make them ready or blocked",
            initialize_jobs,
        )
        .put(
            "/workflows/{id}/cancel",
            "cancel_workflow",
            "Cancel a workflow and its running jobs",
            cancel_workflow,
        )
        .post(
            "/workflows/{id}/reset_status",
            "reset_workflow_status",
            "Start the next run",
            reset_workflow_status,
        )
        .post(
            "/workflows/{id}/reset_job_status",
            "reset_job_status",
            "Reset jobs to uninitialized",
            reset_job_status,
        )
        .post(
            "/workflows/{id}/process_changed_job_inputs",
            "process_changed_job_inputs",
            "Reset jobs whose inputs changed since they were initialized",
            process_changed_inputs,
        )
        .get("/tasks/{id}", "get_task", "Get a background task", get_task)
        .get(
            "/workflows/{id}/active_task",
            "get_active_task_for_workflow",
            "Get the active background task of a workflow",
            get_active_task,
        )
}

fn get_status_by_key(
    call: &TorcCallContext,
    Path(key): Path<WorkflowKey>,
) -> ApiResult<TorcOrOwnReply<WorkflowStatusResponse, windlass_api::requests::RequestWorkflowStatus>> {
    match key {
        WorkflowKey::Id(id) => get_workflow_status(call, id).map(TorcOrOwnReply::Contract),
        WorkflowKey::Uuid(uuid) => {
            call.authorize(AuthOperation::ListVisible)?;
            requests::get_status_by_uuid(&*call.state.database, &uuid, call.now()).map(TorcOrOwnReply::Own)
        }
    }
}

fn get_workflow_status(call: &TorcCallContext, id: i64) -> ApiResult<WorkflowStatusResponse> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let filter = WorkerFilter {
        workflow: Some(row.id),
        also_shared: true,
        is_active: Some(true),
        ..WorkerFilter::default()
    };
    let workers = call.store().workers(&filter)?;
    let allocations = super::allocations::list_open_allocations(call, row.id)?;
    let in_state = |status| allocations.iter().filter(|one| **one == status).count() as i64;
    let WorkflowSnapshot { ready_jobs: ready, wall_time: wall } = load_outline(call, &row)?;
    let longest = ready.iter().filter_map(|ready| ready.runtime).max();
    let left = workers.iter().filter_map(|worker| time_left(worker, call.now())).max();
    let blocked = |limit: Duration| {
        let too_long = ready.iter().filter(|ready| ready.runtime.is_some_and(|time| time > limit));
        too_long.map(|ready| ready.jobs).sum::<u64>()
    };
    Ok(WorkflowStatusResponse {
        workflow_id: id,
        workflow_name: row.name.clone(),
        workflow_user: row.user.clone(),
        active_compute_nodes: workers.iter().filter(|worker| is_compute_node_of(worker, row.id)).count()
            as i64,
        active_scheduled_nodes: in_state(TorcAllocationStatus::Active),
        is_canceled: row.is_canceled,
        is_complete: is_over(&row),
        jobs_by_status: status_counts(&row),
        pending_scheduled_nodes: in_state(TorcAllocationStatus::Pending),
        runtime_blocked_ready_jobs: left.map_or(0, blocked) as i64,
        total_exec_time_minutes: wall.as_secs_f64() / 60.0,
        total_jobs: row.counts.total() as i64,
        longest_ready_runtime_seconds: longest.map(|time| time.as_secs() as i64),
        max_allocation_remaining_seconds: left.map(|time| time.as_secs() as i64),
        unserved_ready_labels: unserved_labels(&ready, &workers),
        walltime_seconds: walltime(&row, call.now()),
    })
}

/// Whether the row is a worker of this workflow, not the row that represents claims of clients.
fn is_compute_node_of(worker: &WorkerRow, workflow: WorkflowId) -> bool {
    worker.worker.workflow == Some(workflow) && worker.worker.kind != WorkerKind::Claims
}

/// Returns the time from the start of the current run to its end, or until now.
fn walltime(row: &WorkflowRow, now: Timestamp) -> Option<f64> {
    row.started_at.map(|start| row.ended_at.unwrap_or(now).since(start).as_secs_f64())
}

/// Returns the remaining time of a worker's allocation, if known.
fn time_left(worker: &WorkerRow, now: Timestamp) -> Option<Duration> {
    let end = worker.worker.extra.as_ref()?.get("end_time")?.as_str()?.parse::<Timestamp>().ok()?;
    Some(end.since(now))
}

/// Counts jobs from memory if the workflow is active, regardless of its size; otherwise from the database.
fn load_outline(call: &TorcCallContext, row: &WorkflowRow) -> ApiResult<WorkflowSnapshot> {
    if let Some(outline) = call.call_service(|service, reply| service.snapshot_workflow(row.id, reply))? {
        return Ok(outline);
    }
    let wall = call.store().work_summary(row.id)?.wall;
    if row.counts.get(JobStatus::Ready) == 0 {
        return Ok(WorkflowSnapshot { ready_jobs: Vec::new(), wall_time: wall });
    }
    let asked = call.store().ready_requirements(row.id, None)?.into_iter();
    let asked = asked.map(|ready| ReadyJobGroup {
        jobs: ready.jobs,
        runtime: ready.resources.runtime,
        labels: Vec::new(),
    });
    let filter = JobFilter { status: vec![JobStatus::Ready], ..JobFilter::default() };
    let has_labels =
        call.store().job_groups(row.id)?.iter().any(|kind| !kind.group.settings.labels.is_empty());
    let jobs = if has_labels { call.store().job_details(row.id, &filter)? } else { Vec::new() };
    let labeled = jobs.into_iter().map(|job| ReadyJobGroup { jobs: 1, runtime: None, labels: job.labels });
    Ok(WorkflowSnapshot { ready_jobs: asked.chain(labeled).collect(), wall_time: wall })
}

/// Returns the number of ready jobs by labels that no active worker has.
fn unserved_labels(ready: &[ReadyJobGroup], workers: &[WorkerRow]) -> BTreeMap<String, i64> {
    let is_served = |label: &String| workers.iter().any(|worker| worker.worker.labels.contains(label));
    let mut unserved = BTreeMap::new();
    for ready in ready {
        for label in ready.labels.iter().filter(|label| !is_served(label)) {
            *unserved.entry(label.clone()).or_default() += ready.jobs as i64;
        }
    }
    unserved
}

fn status_counts(row: &WorkflowRow) -> JobStatusCounts {
    let count = |status| row.counts.get(status) as i64;
    JobStatusCounts {
        blocked: count(JobStatus::Blocked),
        canceled: count(JobStatus::Canceled),
        completed: count(JobStatus::Completed),
        disabled: count(JobStatus::Disabled),
        failed: count(JobStatus::Failed),
        pending: count(JobStatus::Pending),
        pending_failed: count(JobStatus::PendingFailed),
        ready: count(JobStatus::Ready),
        running: count(JobStatus::Running),
        terminated: count(JobStatus::Terminated),
        uninitialized: count(JobStatus::Uninitialized),
    }
}

fn is_over(row: &WorkflowRow) -> bool {
    row.is_canceled || row.counts.settled() == row.counts.total()
}

fn is_complete(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<IsCompleteResponse> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    Ok(IsCompleteResponse { is_canceled: row.is_canceled, is_complete: is_over(&row) })
}

fn is_uninitialized(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<IsUninitializedResponse> {
    let counts = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?.counts;
    let untouched = counts.get(JobStatus::Uninitialized) + counts.get(JobStatus::Disabled);
    Ok(IsUninitializedResponse { is_uninitialized: untouched == counts.total() })
}

/// The operation was completed: an empty response, or a task to report it.
pub(super) enum InitializeResponse {
    Done,
    Task(TaskModel),
}

impl HandlerReply for InitializeResponse {
    fn describe(mut description: OperationDescription<'_>) -> OperationDescription<'_> {
        let task = description.add_schema::<TaskModel>();
        description.with_response("200", "Done", Some(utoipa::openapi::schema::empty().into())).with_response(
            "202",
            "The task, already completed",
            Some(task.into()),
        )
    }

    fn render(self) -> Response {
        match self {
            Self::Done => Json(Value::Null).into_response(),
            Self::Task(task) => (StatusCode::ACCEPTED, Json(task)).into_response(),
        }
    }
}

fn initialize_jobs(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(query): Query<InitializeQuery>,
) -> ApiResult<InitializeResponse> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, id)?;
    let started = call.now();
    let only_uninitialized = query.only_uninitialized.unwrap_or(false);
    let clear_ephemeral = query.clear_ephemeral_user_data.unwrap_or(true);
    let done = call
        .call_service(|service, reply| {
            service.initialize_workflow(
                row.id,
                only_uninitialized,
                clear_ephemeral,
                call.caller_name(),
                reply,
            );
        })
        .and_then(|()| save_input_digests(call, row.id));
    if !query.r#async.unwrap_or(false) {
        return done.map(|()| InitializeResponse::Done);
    }
    record_task(call, row.id, started, done.err()).map(InitializeResponse::Task)
}

/// Initializing takes no longer than a response may, so a task has ended when it is first returned.
fn record_task(
    call: &TorcCallContext,
    workflow: WorkflowId,
    started: Timestamp,
    error: Option<ApiError>,
) -> ApiResult<TaskModel> {
    let finished = call.now();
    let mut task = TaskModel {
        id: 0,
        workflow_id: workflow.0,
        created_at_ms: started.micros() / 1000,
        operation: "initialize_jobs".to_owned(),
        status: if error.is_none() { TaskStatus::Succeeded } else { TaskStatus::Failed },
        error: error.map(|error| error.detail),
        finished_at_ms: Some(finished.micros() / 1000),
        started_at_ms: Some(started.micros() / 1000),
    };
    task.id = call.store().add_record(Some(workflow), TASK_RECORD, None, &json!(task), finished)?;
    Ok(task)
}

const TASK_RECORD: &str = "task";

fn get_task(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<TaskModel> {
    call.authorize_part(AuthOperation::ReadWorkflow, WorkflowPartId::Record(id))?;
    let record = call.store().record(id)?.filter(|record| record.kind == TASK_RECORD);
    let record = record.ok_or_else(|| ApiError::not_found(format_args!("task {id}")))?;
    let mut task: TaskModel = serde_json::from_value(record.data).map_err(ApiError::internal)?;
    task.id = id;
    Ok(task)
}

fn get_active_task(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<ActiveTaskResponse> {
    call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    Ok(ActiveTaskResponse { task: None })
}

fn cancel_workflow(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<Value> {
    let row = call.authorize_workflow(AuthOperation::CancelWorkflow, id)?;
    call.call_service(|service, reply| service.cancel_workflow(row.id, call.caller_name(), reply))?;
    Ok(Value::Null)
}

fn reset_workflow_status(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(query): Query<ResetStatusQuery>,
) -> ApiResult<Value> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, id)?;
    // Torc's clients also ask before the first run.
    if row.started_at.is_none() && !row.is_archived {
        return Ok(Value::Null);
    }
    let force = query.force.unwrap_or(false);
    if !force {
        reject_open_allocations(call, row.id)?;
    }
    call.call_service(|service, reply| service.reset_status(row.id, force, call.caller_name(), reply))?;
    Ok(Value::Null)
}

fn reject_open_allocations(call: &TorcCallContext, id: WorkflowId) -> ApiResult<()> {
    match super::allocations::list_open_allocations(call, id)?.len() {
        0 => Ok(()),
        n => Err(ApiError::invalid(format!("{n} scheduled compute nodes are pending or active"))
            .with_hint("wait for them, cancel them, or use force=true")),
    }
}

fn reset_job_status(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(query): Query<ResetJobsQuery>,
) -> ApiResult<ResetJobStatusResponse> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, id)?;
    let failed_only = query.failed_only.unwrap_or(false);
    let which = if failed_only { JobsToReset::Failed } else { JobsToReset::All };
    let count =
        call.call_service(|service, reply| service.reset_jobs(row.id, which, call.caller_name(), reply))?;
    Ok(ResetJobStatusResponse {
        workflow_id: id,
        status: "uninitialized".to_owned(),
        updated_count: count as i64,
        reset_type: Some(if failed_only { "failed_only" } else { "all" }.to_owned()),
    })
}

/// Name of the record with the job inputs at initialization: one entry per workflow.
const INPUTS_RECORD: &str = "job_inputs";

fn save_input_digests(call: &TorcCallContext, workflow: WorkflowId) -> ApiResult<()> {
    let inputs = json!(compute_input_digests(call, workflow)?);
    let store = call.store();
    match store.records(Some(workflow), INPUTS_RECORD)?.into_iter().next() {
        Some(record) => store.update_record(record.id, &inputs, call.now())?,
        None => {
            store.add_record(Some(workflow), INPUTS_RECORD, Some(INPUTS_RECORD), &inputs, call.now())?;
        }
    }
    Ok(())
}

fn process_changed_inputs(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(query): Query<DryRunQuery>,
) -> ApiResult<ProcessChangedJobInputsResponse> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, id)?;
    let known = call.store().records(Some(row.id), INPUTS_RECORD)?.into_iter().next();
    let known: BTreeMap<i64, String> =
        known.and_then(|record| serde_json::from_value(record.data).ok()).unwrap_or_default();
    let changed: Vec<JobId> = compute_input_digests(call, row.id)?
        .into_iter()
        .filter(|(id, digest)| known.get(id).is_some_and(|before| before != digest))
        .map(|(id, _)| JobId(id))
        .collect();
    let reinitialized_jobs = call.store().job_names(&changed)?;
    if !query.dry_run.unwrap_or(false) && !changed.is_empty() {
        call.call_service(|service, reply| {
            service.reset_jobs(row.id, JobsToReset::Jobs(changed), call.caller_name(), reply);
        })?;
    }
    Ok(ProcessChangedJobInputsResponse { reinitialized_jobs })
}

/// Computes a digest of the definition and inputs of each job, by id.
fn compute_input_digests(call: &TorcCallContext, workflow: WorkflowId) -> ApiResult<BTreeMap<i64, String>> {
    let store = call.store();
    let jobs = store.job_details(workflow, &JobFilter::default())?;
    let ids: Vec<JobId> = jobs.iter().map(|job| job.row.id).collect();
    let relations = store.list_job_relations(&ids)?;
    let data: BTreeMap<_, _> = store
        .user_data(workflow, &DataFilter::default())?
        .into_iter()
        .map(|piece| (piece.id, piece.data))
        .collect();
    let one = |(job, all): (JobDetails, windlass_store::model::JobRelations)| {
        let contents: Vec<_> = all.input_user_data.iter().map(|id| data.get(id)).collect();
        let text = json!([
            job.row.command,
            job.invocation_script,
            job.env,
            all.waits_for,
            all.input_files,
            all.output_files,
            all.input_user_data,
            all.output_user_data,
            contents,
        ]);
        (job.row.id.0, digest_bytes(text.to_string().as_bytes()))
    };
    Ok(jobs.into_iter().zip(relations).map(one).collect())
}

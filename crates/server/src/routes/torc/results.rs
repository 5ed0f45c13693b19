//! Results of job attempts.

use super::call_context::{TorcCallContext, limit, offset, sort_order};
use super::input;
use super::job_execution::{parse_minutes, parse_usage};
use super::operation_table::OperationTable;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use serde_json::Value;
use windlass_api::torc::query::{ListResults, WorkflowQuery};
use windlass_api::torc::{ListPage, ResultModel};
use windlass_auth::AuthOperation;
use windlass_scheduler::service::ExclusiveRequirement;
use windlass_store::model::{ClientResult, CountQuery, ResultFilter, ResultRow, WorkflowPartId, WorkflowRow};
use windlass_types::{Attempt, JobId, ResultId, RunId, WorkerId};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("results")
        .get("/results", "list_results", "List the results of a workflow", list_results)
        .post("/results", "create_result", "Add a result without changing the job", create_result)
        .delete("/results", "delete_results", "Delete all results of a workflow", delete_results)
        .get("/results/{id}", "get_result", "Get a result", get_result)
        .put("/results/{id}", "update_result", "Change a result", update_result)
        .delete("/results/{id}", "delete_result", "Delete a result without changing the job", delete_result)
}

fn list_results(
    call: &TorcCallContext,
    Query(query): Query<ListResults>,
) -> ApiResult<ListPage<ResultModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, query.workflow_id)?;
    let view = query.view();
    let mut filter = ResultFilter {
        job: query.job_id.map(JobId),
        run: query.run_id.map(RunId),
        all_runs: query.all_runs.unwrap_or(false),
        last_only: !query.all_runs.unwrap_or(false),
        status: query.status.into_iter().collect(),
        return_code: query.return_code.map(|code| input::convert_number("return_code", code)).transpose()?,
        worker: query.compute_node_id.map(WorkerId),
        sort: sort_order(view),
        ..ResultFilter::default()
    };
    let total = call.store().count_rows(&CountQuery::Results(row.id, filter.clone()))?;
    filter.offset = offset(view);
    filter.limit = limit(view);
    let results = call.store().results(row.id, &filter)?;
    Ok(ListPage::new(results.into_iter().map(result_model).collect(), view.offset, total as i64))
}

fn get_result(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<ResultModel> {
    call.authorize_part(AuthOperation::ReadWorkflow, WorkflowPartId::Result(ResultId(id)))?;
    load_result_model(call, id)
}

fn load_result_model(call: &TorcCallContext, id: i64) -> ApiResult<ResultModel> {
    let row = call.store().result(ResultId(id))?;
    row.map(result_model).ok_or_else(|| ApiError::not_found(format_args!("result {id}")))
}

fn create_result(call: &TorcCallContext, Json(body): Json<ResultModel>) -> ApiResult<ResultModel> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, body.workflow_id)?;
    let result = parse_result(call, &row, &body)?;
    let id = call.change_workflow(row.id, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.add_result(&result, now)
    })?;
    load_result_model(call, id.0)
}

fn parse_result(call: &TorcCallContext, row: &WorkflowRow, body: &ResultModel) -> ApiResult<ClientResult> {
    call.check_part_of(row.id, WorkflowPartId::Job(JobId(body.job_id)))?;
    call.check_part_of(row.id, WorkflowPartId::Worker(WorkerId(body.compute_node_id)))?;
    if !(1..=row.run_id.0).contains(&body.run_id) {
        return Err(ApiError::invalid(format!(
            "run_id: workflow {} has had runs 1 to {}",
            row.id, row.run_id
        )));
    }
    let attempt = Attempt(input::convert_number("attempt_id", body.attempt_id.unwrap_or(1))?);
    if attempt < Attempt::FIRST {
        return Err(ApiError::invalid("attempt_id: attempts are counted from 1"));
    }
    // The limits are the same as for a worker's report.
    parse_usage(body)?;
    Ok(ClientResult {
        job: JobId(body.job_id),
        run: RunId(body.run_id),
        attempt,
        worker: WorkerId(body.compute_node_id),
        status: body.status,
        return_code: input::convert_number("return_code", body.return_code)?,
        ended_at: input::parse_time("completion_time", &body.completion_time)?,
        wall: parse_minutes(body.exec_time_minutes)?,
        peak_memory_bytes: body.peak_memory_bytes,
        avg_memory_bytes: body.avg_memory_bytes,
        peak_cpu_percent: body.peak_cpu_percent,
        avg_cpu_percent: body.avg_cpu_percent,
    })
}

fn update_result(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<ResultModel>,
) -> ApiResult<ResultModel> {
    let row = call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::Result(ResultId(id)))?;
    if body.workflow_id != row.id.0 || body.id.is_some_and(|given| given != id) {
        return Err(ApiError::invalid("id and workflow of a result cannot change"));
    }
    let result = parse_result(call, &row, &body)?;
    call.change_workflow(row.id, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.update_result(ResultId(id), &result, now)
    })?;
    load_result_model(call, id)
}

fn delete_result(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<ResultModel> {
    let row = call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::Result(ResultId(id)))?;
    let result = load_result_model(call, id)?;
    call.change_workflow(row.id, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.delete_result(ResultId(id), now)
    })?;
    Ok(result)
}

fn delete_results(call: &TorcCallContext, Query(query): Query<WorkflowQuery>) -> ApiResult<Value> {
    let id = call.authorize_workflow(AuthOperation::ChangeWorkflow, query.workflow_id)?.id;
    let count = call.change_workflow(id, ExclusiveRequirement::NoHeldJobs, move |store, now| {
        store.delete_results(id, now)
    })?;
    Ok(serde_json::json!({ "count": count }))
}

fn result_model(row: ResultRow) -> ResultModel {
    ResultModel {
        id: Some(row.id.0),
        workflow_id: row.key.workflow_id.0,
        job_id: row.key.job_id.0,
        job_name: Some(row.job_name),
        run_id: row.key.run_id.0,
        attempt_id: Some(i64::from(row.key.attempt_id.0)),
        completion_time: row.ended_at.to_string(),
        compute_node_id: row.worker_id.0,
        exec_time_minutes: row.wall.as_secs_f64() / 60.0,
        return_code: i64::from(row.return_code),
        status: row.status,
        avg_cpu_percent: row.avg_cpu_percent,
        avg_memory_bytes: row.avg_memory_bytes.map(|bytes| bytes.0 as i64),
        peak_cpu_percent: row.peak_cpu_percent,
        peak_memory_bytes: row.peak_memory_bytes.map(|bytes| bytes.0 as i64),
    }
}

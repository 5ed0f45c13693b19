//! What attempts of jobs came to.

use super::call::{Call, limit, offset, sorting};
use super::input;
use super::running::{minutes, usage};
use super::table::Table;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use serde_json::Value;
use windlass_api::torc::query::{ListResults, OfWorkflow};
use windlass_api::torc::{Page, ResultModel};
use windlass_auth::Operation;
use windlass_engine::service::Quiet;
use windlass_store::model::{Counted, Part, ResultFilter, ResultRow, StatedResult, WorkflowRow};
use windlass_types::{Attempt, JobId, ResultId, RunId, WorkerId};

pub(super) fn table() -> Table {
    Table::new("results")
        .get("/results", "list_results", "Results of a workflow", list)
        .post("/results", "create_result", "States a result; the job stays as it is", create)
        .delete("/results", "delete_results", "Deletes all results of a workflow", delete_all)
        .get("/results/{id}", "get_result", "One result", get)
        .put("/results/{id}", "update_result", "Corrects a result", update)
        .delete("/results/{id}", "delete_result", "Deletes a result; the job stays as it is", delete)
}

fn list(call: &Call, Query(query): Query<ListResults>) -> Answer<Page<ResultModel>> {
    let row = call.workflow(Operation::ReadWorkflow, query.workflow_id)?;
    let view = query.view();
    let mut filter = ResultFilter {
        job: query.job_id.map(JobId),
        run: query.run_id.map(RunId),
        all_runs: query.all_runs.unwrap_or(false),
        last_only: !query.all_runs.unwrap_or(false),
        status: query.status.into_iter().collect(),
        return_code: query.return_code.map(|code| input::number("return_code", code)).transpose()?,
        worker: query.compute_node_id.map(WorkerId),
        sort: sorting(view),
        ..ResultFilter::default()
    };
    let total = call.store().count(&Counted::Results(row.id, filter.clone()))?;
    filter.offset = offset(view);
    filter.limit = limit(view);
    let results = call.store().results(row.id, &filter)?;
    Ok(Page::new(results.into_iter().map(model).collect(), view.offset, total as i64))
}

fn get(call: &Call, Path(id): Path<i64>) -> Answer<ResultModel> {
    call.part(Operation::ReadWorkflow, Part::Result(ResultId(id)))?;
    shown(call, id)
}

fn shown(call: &Call, id: i64) -> Answer<ResultModel> {
    let row = call.store().result(ResultId(id))?;
    row.map(model).ok_or_else(|| ApiError::not_found(format_args!("result {id}")))
}

fn create(call: &Call, Json(body): Json<ResultModel>) -> Answer<ResultModel> {
    let row = call.workflow(Operation::ChangeWorkflow, body.workflow_id)?;
    let result = stated(call, &row, &body)?;
    let id = call.change(row.id, Quiet::Any, move |store, now| store.add_result(&result, now))?;
    shown(call, id.0)
}

fn stated(call: &Call, row: &WorkflowRow, body: &ResultModel) -> Answer<StatedResult> {
    call.is_of(row.id, Part::Job(JobId(body.job_id)))?;
    call.is_of(row.id, Part::Worker(WorkerId(body.compute_node_id)))?;
    if !(1..=row.run_id.0).contains(&body.run_id) {
        return Err(ApiError::invalid(format!(
            "run_id: workflow {} has had runs 1 to {}",
            row.id, row.run_id
        )));
    }
    let attempt = Attempt(input::number("attempt_id", body.attempt_id.unwrap_or(1))?);
    if attempt < Attempt::FIRST {
        return Err(ApiError::invalid("attempt_id: attempts are counted from 1"));
    }
    // What a number must not be is the same as for a worker's report.
    usage(body)?;
    Ok(StatedResult {
        job: JobId(body.job_id),
        run: RunId(body.run_id),
        attempt,
        worker: WorkerId(body.compute_node_id),
        status: body.status,
        return_code: input::number("return_code", body.return_code)?,
        ended_at: input::time("completion_time", &body.completion_time)?,
        wall: minutes(body.exec_time_minutes)?,
        peak_memory_bytes: body.peak_memory_bytes,
        avg_memory_bytes: body.avg_memory_bytes,
        peak_cpu_percent: body.peak_cpu_percent,
        avg_cpu_percent: body.avg_cpu_percent,
    })
}

fn update(call: &Call, Path(id): Path<i64>, Json(body): Json<ResultModel>) -> Answer<ResultModel> {
    let row = call.part(Operation::ChangeWorkflow, Part::Result(ResultId(id)))?;
    if body.workflow_id != row.id.0 || body.id.is_some_and(|said| said != id) {
        return Err(ApiError::invalid("a result keeps its id and its workflow"));
    }
    let result = stated(call, &row, &body)?;
    call.change(row.id, Quiet::Any, move |store, now| store.update_result(ResultId(id), &result, now))?;
    shown(call, id)
}

fn delete(call: &Call, Path(id): Path<i64>) -> Answer<ResultModel> {
    let row = call.part(Operation::ChangeWorkflow, Part::Result(ResultId(id)))?;
    let result = shown(call, id)?;
    call.change(row.id, Quiet::Any, move |store, now| store.delete_result(ResultId(id), now))?;
    Ok(result)
}

fn delete_all(call: &Call, Query(query): Query<OfWorkflow>) -> Answer<Value> {
    let id = call.workflow(Operation::ChangeWorkflow, query.workflow_id)?.id;
    let count = call.change(id, Quiet::Free, move |store, now| store.delete_results(id, now))?;
    Ok(serde_json::json!({ "count": count }))
}

fn model(row: ResultRow) -> ResultModel {
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

//! Failure handlers: what to do when jobs that name them fail.

use super::call::Call;
use super::input;
use super::table::Table;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::Paging;
use windlass_api::torc::{FailureHandlerModel, Page};
use windlass_auth::Operation;
use windlass_core::handlers::Handler;
use windlass_engine::service::Quiet;
use windlass_store::model::{HandlerRow, Part};
use windlass_types::WorkflowId;
use windlass_types::settings::{FailureHandler, FailureRule};

pub(super) fn table() -> Table {
    Table::new("failure handlers")
        .post("/failure_handlers", "create_failure_handler", "Adds a failure handler", create)
        .get("/failure_handlers/{id}", "get_failure_handler", "One failure handler", get)
        .delete("/failure_handlers/{id}", "delete_failure_handler", "Deletes it", delete)
        .get("/workflows/{id}/failure_handlers", "list_failure_handlers", "Those of a workflow", list)
}

fn list(call: &Call, Path(id): Path<i64>, Query(page): Query<Paging>) -> Answer<Page<FailureHandlerModel>> {
    let row = call.workflow(Operation::ReadWorkflow, id)?;
    let all = call.store().handlers(row.id)?.into_iter().map(|found| model(row.id, found));
    let view = page.view();
    Ok(Page::of(all.collect::<Answer<_>>()?, view.offset, view.limit))
}

fn get(call: &Call, Path(id): Path<i64>) -> Answer<FailureHandlerModel> {
    let row = call.part(Operation::ReadWorkflow, Part::Handler(id))?;
    shown(call, row.id, id)
}

fn shown(call: &Call, workflow: WorkflowId, id: i64) -> Answer<FailureHandlerModel> {
    let found = call.store().handlers(workflow)?.into_iter().find(|row| row.id == id);
    model(workflow, found.ok_or_else(|| ApiError::not_found(format_args!("failure handler {id}")))?)
}

fn create(call: &Call, Json(body): Json<FailureHandlerModel>) -> Answer<FailureHandlerModel> {
    let workflow = call.workflow(Operation::ChangeWorkflow, body.workflow_id)?.id;
    let rules: Vec<FailureRule> =
        serde_json::from_str(&body.rules).map_err(|error| ApiError::invalid(format!("rules: {error}")))?;
    let handler = FailureHandler { name: input::name("a failure handler", &body.name)?, rules };
    // Now, when somebody is there to hear of it, and not when the first job has failed.
    Handler::compile(&handler).map_err(|error| ApiError::invalid(error.to_string()))?;
    let id =
        call.change(workflow, Quiet::Any, move |store, now| store.add_handler(workflow, &handler, now))?;
    shown(call, workflow, id)
}

fn delete(call: &Call, Path(id): Path<i64>) -> Answer<FailureHandlerModel> {
    let workflow = call.part(Operation::ChangeWorkflow, Part::Handler(id))?.id;
    let handler = shown(call, workflow, id)?;
    call.change(workflow, Quiet::Any, move |store, now| store.delete_handler(id, now))?;
    Ok(handler)
}

fn model(workflow: WorkflowId, row: HandlerRow) -> Answer<FailureHandlerModel> {
    Ok(FailureHandlerModel {
        id: Some(row.id),
        workflow_id: workflow.0,
        name: row.handler.name,
        rules: serde_json::to_string(&row.handler.rules).map_err(ApiError::internal)?,
    })
}

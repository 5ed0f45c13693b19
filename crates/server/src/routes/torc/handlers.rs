//! Failure handlers: what to do when jobs that name them fail.

use super::call::Call;
use super::input;
use super::table::Table;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::Paging;
use windlass_api::torc::{FailureHandlerModel, Page};
use windlass_auth::Operation;
use windlass_core::handlers::{Handler, unknown_field};
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
    check_fields(&body.rules)?;
    let rules: Vec<FailureRule> =
        serde_json::from_str(&body.rules).map_err(|error| ApiError::invalid(format!("rules: {error}")))?;
    let handler = FailureHandler { name: input::name("a failure handler", &body.name)?, rules };
    // Now, when somebody is there to hear of it, and not when the first job has failed.
    Handler::compile(&handler).map_err(|error| ApiError::invalid(error.to_string()))?;
    let id =
        call.change(workflow, Quiet::Any, move |store, now| store.add_handler(workflow, &handler, now))?;
    shown(call, workflow, id)
}

/// A field that no rule has would be dropped, and the rule would match other failures than its author meant.
fn check_fields(rules: &str) -> Answer<()> {
    let Ok(rules) = serde_json::from_str::<Vec<serde_json::Map<String, serde_json::Value>>>(rules) else {
        // Deserializing the rules says what is wrong.
        return Ok(());
    };
    for (number, rule) in rules.iter().enumerate() {
        if let Some((unknown, near)) = unknown_field(rule.keys()) {
            let error = ApiError::invalid(format!("rules[{number}]: unknown field `{unknown}`"));
            return Err(error.with_hint(match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the fields of a rule are {}", FailureRule::FIELDS.join(", ")),
            }));
        }
    }
    Ok(())
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

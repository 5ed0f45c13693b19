//! Failure handlers: what to do when jobs that name them fail.

use super::call_context::TorcCallContext;
use super::input;
use super::operation_table::OperationTable;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::PageQuery;
use windlass_api::torc::{FailureHandlerModel, ListPage};
use windlass_auth::AuthOperation;
use windlass_core::failure_handlers::{CompiledHandler, find_unknown_field};
use windlass_scheduler::service::ExclusiveRequirement;
use windlass_store::model::{FailureHandlerRow, WorkflowPartId};
use windlass_types::WorkflowId;
use windlass_types::settings::{FailureHandler, FailureRule};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("failure handlers")
        .post("/failure_handlers", "create_failure_handler", "Add a failure handler", create_failure_handler)
        .get("/failure_handlers/{id}", "get_failure_handler", "Get a failure handler", get_failure_handler)
        .delete(
            "/failure_handlers/{id}",
            "delete_failure_handler",
            "Delete a failure handler",
            delete_failure_handler,
        )
        .get(
            "/workflows/{id}/failure_handlers",
            "list_failure_handlers",
            "List the failure handlers of a workflow",
            list_failure_handlers,
        )
}

fn list_failure_handlers(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(page): Query<PageQuery>,
) -> ApiResult<ListPage<FailureHandlerModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let all = call.store().handlers(row.id)?.into_iter().map(|found| failure_handler_model(row.id, found));
    let view = page.view();
    Ok(ListPage::from_full_list(all.collect::<ApiResult<_>>()?, view.offset, view.limit))
}

fn get_failure_handler(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<FailureHandlerModel> {
    let row = call.authorize_part(AuthOperation::ReadWorkflow, WorkflowPartId::Handler(id))?;
    load_failure_handler_model(call, row.id, id)
}

fn load_failure_handler_model(
    call: &TorcCallContext,
    workflow: WorkflowId,
    id: i64,
) -> ApiResult<FailureHandlerModel> {
    let found = call.store().handlers(workflow)?.into_iter().find(|row| row.id == id);
    failure_handler_model(
        workflow,
        found.ok_or_else(|| ApiError::not_found(format_args!("failure handler {id}")))?,
    )
}

fn create_failure_handler(
    call: &TorcCallContext,
    Json(body): Json<FailureHandlerModel>,
) -> ApiResult<FailureHandlerModel> {
    let workflow = call.authorize_workflow(AuthOperation::ChangeWorkflow, body.workflow_id)?.id;
    check_rule_fields(&body.rules)?;
    let rules: Vec<FailureRule> =
        serde_json::from_str(&body.rules).map_err(|error| ApiError::invalid(format!("rules: {error}")))?;
    let handler = FailureHandler { name: input::check_name("a failure handler", &body.name)?, rules };
    // Report errors now, not when the first job has failed.
    CompiledHandler::compile(&handler).map_err(|error| ApiError::invalid(error.to_string()))?;
    let id = call.change_workflow(workflow, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.add_handler(workflow, &handler, now)
    })?;
    load_failure_handler_model(call, workflow, id)
}

/// Rejects unknown fields: ignoring them would make a rule match other failures than intended.
fn check_rule_fields(rules: &str) -> ApiResult<()> {
    let Ok(rules) = serde_json::from_str::<Vec<serde_json::Map<String, serde_json::Value>>>(rules) else {
        // Deserializing the rules reports the error.
        return Ok(());
    };
    for (number, rule) in rules.iter().enumerate() {
        if let Some((unknown, near)) = find_unknown_field(rule.keys()) {
            let error = ApiError::invalid(format!("rules[{number}]: unknown field `{unknown}`"));
            return Err(error.with_hint(match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("fields of a rule: {}", FailureRule::FIELDS.join(", ")),
            }));
        }
    }
    Ok(())
}

fn delete_failure_handler(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<FailureHandlerModel> {
    let workflow = call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::Handler(id))?.id;
    let handler = load_failure_handler_model(call, workflow, id)?;
    call.change_workflow(workflow, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.delete_handler(id, now)
    })?;
    Ok(handler)
}

fn failure_handler_model(workflow: WorkflowId, row: FailureHandlerRow) -> ApiResult<FailureHandlerModel> {
    Ok(FailureHandlerModel {
        id: Some(row.id),
        workflow_id: workflow.0,
        name: row.handler.name,
        rules: serde_json::to_string(&row.handler.rules).map_err(ApiError::internal)?,
    })
}

//! Verbs of our own on workflows, beside those of the Torc contract.

use crate::caller::Caller;
use crate::error::ApiResult;
use crate::extract::{Json, Path};
use crate::state::{AppState, call_service};
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_auth::AuthOperation;
use windlass_types::WorkflowId;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(start_workflow))
}

/// A workflow that workers may have.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct StartedWorkflow {
    workflow_id: i64,
    run_id: i64,
}

/// Start a workflow
///
/// Its jobs become ready or blocked, and workers may have them. One that was started is left as it is.
#[utoipa::path(post, path = "/workflows/{id}/start", tag = "workflows", params(("id" = i64, Path,)),
    responses((status = 200, description = "Workers may have it", body = StartedWorkflow),
    (status = 404, description = "There is no such workflow"),
    (status = 409, description = "It is canceled, archived or over")))]
async fn start_workflow(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> ApiResult<Json<StartedWorkflow>> {
    let workflow = caller.authorize_workflow(&state, AuthOperation::ChangeWorkflow, WorkflowId(id)).await?.id;
    let run = call_service(|reply| state.service.start_workflow(workflow, caller.user(), reply)).await?;
    Ok(Json(StartedWorkflow { workflow_id: id, run_id: run.0 }))
}

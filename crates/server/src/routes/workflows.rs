//! Windlass operations on workflows, in addition to the Torc contract.

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

/// A started workflow.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct StartedWorkflow {
    /// Id of the workflow.
    workflow_id: i64,
    /// Number of the run of the workflow, from 1.
    run_id: i64,
}

/// Start a workflow
///
/// Its jobs become ready or blocked, and workers may claim them. A workflow that is already started does not
/// change.
#[utoipa::path(post, path = "/workflows/{id}/start", tag = "workflows", params(("id" = i64, Path,)),
    responses((status = 200, description = "Started", body = StartedWorkflow),
    (status = 404, description = "Workflow not found"),
    (status = 409, description = "The workflow is canceled, archived or has ended")))]
async fn start_workflow(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> ApiResult<Json<StartedWorkflow>> {
    let workflow = caller.authorize_workflow(&state, AuthOperation::ChangeWorkflow, WorkflowId(id)).await?.id;
    let run = call_service(|reply| state.service.start_workflow(workflow, caller.user(), reply)).await?;
    Ok(Json(StartedWorkflow { workflow_id: id, run_id: run.0 }))
}

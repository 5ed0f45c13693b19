//! Whether this server asks Slurm for allocations, and how that goes.

use crate::caller::Caller;
use crate::error::ApiResult;
use crate::extract::{Json, Path};
use crate::slurm_allocations;
use crate::state::{AppState, run_blocking};
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::slurm::{ReconcilerStatusResponse, SlurmAccountingList, SlurmStatus};
use windlass_auth::AuthOperation;
use windlass_types::{Timestamp, WorkflowId};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_slurm_status)).routes(routes!(list_slurm_accounting))
}

/// How the server gets on with Slurm
#[utoipa::path(get, path = "/slurm", tag = "allocations", operation_id = "slurm_status",
    responses((status = 200, description = "Whether it asks for allocations, and how that goes", body = SlurmStatus)))]
async fn get_slurm_status(State(state): State<AppState>) -> Json<SlurmStatus> {
    let steward = state.allocation_reconciler.as_ref().map(|steward| {
        let (status, left) = (steward.status(), steward.remaining_budget());
        ReconcilerStatusResponse {
            open: status
                .open_allocations
                .into_iter()
                .map(|(state, count)| (state.to_string(), count))
                .collect(),
            last_answer_at: status.last_answer_at.as_ref().map(Timestamp::to_string),
            trouble: status.problem,
            calls_left: left.calls,
            paused_until: left.paused_until.as_ref().map(Timestamp::to_string),
            unanswered: left.unanswered,
        }
    });
    Json(SlurmStatus { steward })
}

/// What Slurm's accounting measured
///
/// Of all allocations of a workflow that Slurm has seen, and of the steps in them. Accounting is asked now, within what this server
/// may ask of Slurm.
#[utoipa::path(get, path = "/workflows/{id}/allocations/accounts", tag = "allocations", operation_id = "slurm_accounts",
    params(("id" = i64, Path,)), responses(
    (status = 200, description = "As sacct has them", body = SlurmAccountingList),
    (status = 404, description = "There is no such workflow"),
    (status = 409, description = "This server asks nothing of Slurm, or the cluster keeps no accounts"),
    (status = 503, description = "Slurm does not answer, or was asked too often")))]
async fn list_slurm_accounting(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> ApiResult<Json<SlurmAccountingList>> {
    let id = WorkflowId(id);
    caller.authorize_workflow(&state, AuthOperation::ReadWorkflow, id).await?;
    let items = run_blocking(move || slurm_allocations::load_slurm_accounting(&state, id)).await??;
    Ok(Json(SlurmAccountingList { items }))
}

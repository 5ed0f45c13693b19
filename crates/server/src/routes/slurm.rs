//! Whether this server asks Slurm for allocations, and how that goes.

use crate::caller::Caller;
use crate::error::Answer;
use crate::extract::{Json, Path};
use crate::slurm;
use crate::state::{AppState, blocking};
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::slurm::{SlurmAccounts, SlurmStatus, Steward};
use windlass_auth::Operation;
use windlass_types::{Timestamp, WorkflowId};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(status)).routes(routes!(accounts))
}

/// How the server gets on with Slurm
#[utoipa::path(get, path = "/slurm", tag = "allocations", operation_id = "slurm_status",
    responses((status = 200, description = "Whether it asks for allocations, and how that goes", body = SlurmStatus)))]
async fn status(State(state): State<AppState>) -> Json<SlurmStatus> {
    let steward = state.steward.as_ref().map(|steward| {
        let (status, left) = (steward.status(), steward.left());
        Steward {
            open: status.open.into_iter().map(|(state, count)| (state.to_string(), count)).collect(),
            last_answer_at: status.last_answer_at.as_ref().map(Timestamp::to_string),
            trouble: status.trouble,
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
    (status = 200, description = "As sacct has them", body = SlurmAccounts),
    (status = 404, description = "There is no such workflow"),
    (status = 409, description = "This server asks nothing of Slurm, or the cluster keeps no accounts"),
    (status = 503, description = "Slurm does not answer, or was asked too often")))]
async fn accounts(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> Answer<Json<SlurmAccounts>> {
    let id = WorkflowId(id);
    caller.workflow(&state, Operation::ReadWorkflow, id).await?;
    let items = blocking(move || slurm::accounts(&state, id)).await??;
    Ok(Json(SlurmAccounts { items }))
}

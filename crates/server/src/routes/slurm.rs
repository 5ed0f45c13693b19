//! State of the connection to Slurm, and accounting data.

use crate::caller::Caller;
use crate::error::ApiResult;
use crate::extract::{Json, Path};
use crate::slurm_allocations;
use crate::state::{AppState, run_blocking};
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::slurm::{AllocationReconcilerStatusResponse, SlurmAccountingList, SlurmStatus};
use windlass_auth::AuthOperation;
use windlass_types::{Timestamp, WorkflowId};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_slurm_status)).routes(routes!(list_slurm_accounting))
}

/// Get the state of the connection to Slurm
#[utoipa::path(get, path = "/slurm", tag = "allocations", operation_id = "slurm_status",
    responses((status = 200, description = "Whether allocations are managed, and the state of the reconciler", body = SlurmStatus)))]
async fn get_slurm_status(State(state): State<AppState>) -> Json<SlurmStatus> {
    let reconciler = state.allocation_reconciler.as_ref().map(|reconciler| {
        let (status, left) = (reconciler.status(), reconciler.remaining_budget());
        AllocationReconcilerStatusResponse {
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
    Json(SlurmStatus { reconciler })
}

/// Get Slurm accounting data
///
/// For all allocations of a workflow that were submitted, and their steps. Queries accounting now, within the
/// server's limit on calls of Slurm.
#[utoipa::path(get, path = "/workflows/{id}/allocations/accounts", tag = "allocations", operation_id = "slurm_accounts",
    params(("id" = i64, Path,)), responses(
    (status = 200, description = "Data as reported by sacct", body = SlurmAccountingList),
    (status = 404, description = "Workflow not found"),
    (status = 409, description = "This server does not use Slurm, or the cluster has no accounting"),
    (status = 503, description = "Slurm does not answer, or the limit on calls is reached")))]
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

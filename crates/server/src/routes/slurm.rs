//! Whether this server asks Slurm for allocations, and how that goes.

use crate::extract::Json;
use crate::state::AppState;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::slurm::{SlurmStatus, Steward};
use windlass_types::Timestamp;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(status))
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

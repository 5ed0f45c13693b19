//! The input files of a request.

use super::parse_list;
use crate::caller::Caller;
use crate::error::ApiResult;
use crate::extract::{Json, Path, Query};
use crate::requests::files;
use crate::state::AppState;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::requests::RequestFiles;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_request_files))
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RequestFileQuery {
    /// Only files in these states, comma-separated: `attempted`, `processed`, `excluded`.
    state: Option<String>,
    /// Number of files to skip.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// Maximum number of files.
    #[param(minimum = 0)]
    limit: Option<u64>,
}

/// List the input files of a request
///
/// Files that its rounds have used: processed, to be retried, or excluded and why. All other files are unused.
/// The files of a round are updated when the round ends.
#[utoipa::path(get, path = "/requests/{name}/files", tag = "requests", operation_id = "list_request_files",
    params(("name" = String, Path,), RequestFileQuery), responses(
    (status = 200, description = "By name, with counts and a summary of exclusions", body = RequestFiles),
    (status = 404, description = "Request not found")))]
async fn list_request_files(
    State(state): State<AppState>,
    caller: Caller,
    Path(name): Path<String>,
    Query(which): Query<RequestFileQuery>,
) -> ApiResult<Json<RequestFiles>> {
    let states = parse_list("state", which.state.as_deref())?;
    let offset = which.offset.unwrap_or(0);
    caller
        .read_as_caller(&state, move |db| files::list_request_files(db, &name, &states, offset, which.limit))
        .await
        .map(Json)
}

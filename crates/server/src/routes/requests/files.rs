//! What became of the input files of a request.

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
    /// Only those in one of these, with commas between them: `attempted`, `processed`, `excluded`.
    state: Option<String>,
    /// Skip so many.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// At most so many.
    #[param(minimum = 0)]
    limit: Option<u64>,
}

/// The input files of a request
///
/// Those that its rounds have dealt with: processed, to be tried again, or excluded and why. The others are fresh. What a
/// round does shows here when it is over.
#[utoipa::path(get, path = "/requests/{name}/files", tag = "requests", operation_id = "list_request_files",
    params(("name" = String, Path,), RequestFileQuery), responses(
    (status = 200, description = "By name, with counts and what was excluded", body = RequestFiles),
    (status = 404, description = "There is no such request")))]
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

//! Routes of the built-in catalog.

use crate::caller::Caller;
use crate::error::ApiResult;
use crate::extract::{Json, Query};
use crate::requests::catalog;
use crate::state::AppState;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::requests::{DatasetBlockList, DatasetFileList, DatasetList, ImportFiles, ImportResponse};
use windlass_auth::AuthOperation;
use windlass_types::catalog::DatasetSummary;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_datasets))
        .routes(routes!(get_dataset, forget_dataset))
        .routes(routes!(list_dataset_files))
        .routes(routes!(list_dataset_blocks))
}

pub(super) fn upload_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(import_files))
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DatasetListQuery {
    /// Only datasets with a matching name; `*` matches any text.
    name: Option<String>,
}

/// List datasets
#[utoipa::path(get, path = "/catalog/datasets", tag = "catalog", operation_id = "list_datasets", params(DatasetListQuery),
    responses((status = 200, description = "By name", body = DatasetList)))]
async fn list_datasets(
    State(state): State<AppState>,
    caller: Caller,
    Query(like): Query<DatasetListQuery>,
) -> ApiResult<Json<DatasetList>> {
    caller.read_as_caller(&state, move |db| catalog::list_datasets(db, like.name.as_deref())).await.map(Json)
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DatasetQuery {
    /// `/primary/processed/tier`
    name: String,
}

/// Get a summary of a dataset
#[utoipa::path(get, path = "/catalog/dataset", tag = "catalog", operation_id = "get_dataset", params(DatasetQuery),
    responses((status = 200, description = "Content and locations of the dataset", body = Value),
    (status = 404, description = "Dataset not found")))]
async fn get_dataset(
    State(state): State<AppState>,
    caller: Caller,
    Query(named): Query<DatasetQuery>,
) -> ApiResult<Json<DatasetSummary>> {
    caller.read_as_caller(&state, move |db| catalog::get_dataset(db, &named.name)).await.map(Json)
}

/// Remove a dataset from the catalog
///
/// Its files are not deleted.
#[utoipa::path(delete, path = "/catalog/dataset", tag = "catalog", operation_id = "forget_dataset", params(DatasetQuery),
    responses((status = 200, description = "It is forgotten", body = Value),
    (status = 403, description = "Requires the role operator"),
    (status = 404, description = "Dataset not found")))]
async fn forget_dataset(
    State(state): State<AppState>,
    caller: Caller,
    Query(named): Query<DatasetQuery>,
) -> ApiResult<Json<Value>> {
    let work =
        move |db: &dyn windlass_store::StoreDatabase, actor: crate::requests::RequestActor<'_>, now| {
            catalog::forget_dataset(db, &named.name, actor, now)?;
            Ok(json!({"name": named.name, "forgotten": true}))
        };
    caller.perform_as_caller(&state, AuthOperation::ManageSites, work).await.map(Json)
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DatasetFileQuery {
    /// Name of the dataset.
    dataset: String,
    /// Only valid files. Default: true.
    valid: Option<bool>,
    /// Number of files to skip.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// Maximum number of files. Default: 1000.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// List the files of a dataset
#[utoipa::path(get, path = "/catalog/files", tag = "catalog", operation_id = "list_dataset_files", params(DatasetFileQuery),
    responses((status = 200, description = "In the order in which they were added", body = DatasetFileList),
    (status = 404, description = "Dataset not found")))]
async fn list_dataset_files(
    State(state): State<AppState>,
    caller: Caller,
    Query(which): Query<DatasetFileQuery>,
) -> ApiResult<Json<DatasetFileList>> {
    let look = move |db: &dyn windlass_store::StoreDatabase| {
        let (valid, offset) = (which.valid.unwrap_or(true), which.offset.unwrap_or(0));
        catalog::list_dataset_files(db, &which.dataset, valid, offset, which.limit)
    };
    caller.read_as_caller(&state, look).await.map(Json)
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DatasetBlockQuery {
    /// Name of the dataset.
    dataset: String,
}

/// List the blocks of a dataset
#[utoipa::path(get, path = "/catalog/blocks", tag = "catalog", operation_id = "list_dataset_blocks", params(DatasetBlockQuery),
    responses((status = 200, description = "In the order in which they were opened", body = DatasetBlockList),
    (status = 404, description = "Dataset not found")))]
async fn list_dataset_blocks(
    State(state): State<AppState>,
    caller: Caller,
    Query(of): Query<DatasetBlockQuery>,
) -> ApiResult<Json<DatasetBlockList>> {
    caller.read_as_caller(&state, move |db| catalog::list_dataset_blocks(db, &of.dataset)).await.map(Json)
}

/// Add files to a dataset
///
/// All files are added or none. A missing dataset is created and belongs to the caller; existing files are
/// updated. Only the owner of a dataset and operators may change it; each change is recorded as an event.
#[utoipa::path(post, path = "/catalog/import", tag = "catalog", operation_id = "import_dataset_files",
    request_body = ImportFiles, responses(
    (status = 200, description = "Number of new files", body = ImportResponse),
    (status = 403, description = "The dataset belongs to another user"),
    (status = 409, description = "A file belongs to another dataset"),
    (status = 422, description = "Invalid file")))]
async fn import_files(
    State(state): State<AppState>,
    caller: Caller,
    Json(body): Json<ImportFiles>,
) -> ApiResult<Json<ImportResponse>> {
    let work = move |db: &dyn windlass_store::StoreDatabase,
                     actor: crate::requests::RequestActor<'_>,
                     now| { catalog::import_files(db, &body, actor, now) };
    let imported = caller.perform_as_caller(&state, AuthOperation::CreateRequest, work).await?;
    // A request may wait for this data.
    state.lifecycle.wake_all();
    Ok(Json(imported))
}

//! The catalog that the server keeps itself.

use crate::caller::Caller;
use crate::error::Answer;
use crate::extract::{Json, Query};
use crate::requests::catalog;
use crate::state::AppState;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_api::requests::{Blocks, Datasets, Files, Import, Imported};
use windlass_auth::Operation;
use windlass_types::catalog::DatasetSummary;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(datasets))
        .routes(routes!(dataset, forget))
        .routes(routes!(files))
        .routes(routes!(blocks))
}

pub(super) fn uploads() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(import))
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Like {
    /// Only those whose name is like this; `*` stands for anything.
    name: Option<String>,
}

/// Datasets
#[utoipa::path(get, path = "/catalog/datasets", tag = "catalog", operation_id = "list_datasets", params(Like),
    responses((status = 200, description = "By name", body = Datasets)))]
async fn datasets(
    State(state): State<AppState>,
    caller: Caller,
    Query(like): Query<Like>,
) -> Answer<Json<Datasets>> {
    caller.look(&state, move |db| catalog::list(db, like.name.as_deref())).await.map(Json)
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Named {
    /// `/primary/processed/tier`
    name: String,
}

/// A dataset, summed up
#[utoipa::path(get, path = "/catalog/dataset", tag = "catalog", operation_id = "get_dataset", params(Named),
    responses((status = 200, description = "What is in it, and where", body = Value),
    (status = 404, description = "There is no such dataset")))]
async fn dataset(
    State(state): State<AppState>,
    caller: Caller,
    Query(named): Query<Named>,
) -> Answer<Json<DatasetSummary>> {
    caller.look(&state, move |db| catalog::show(db, &named.name)).await.map(Json)
}

/// Forget a dataset
///
/// Its files stay where they are.
#[utoipa::path(delete, path = "/catalog/dataset", tag = "catalog", operation_id = "forget_dataset", params(Named),
    responses((status = 200, description = "It is forgotten", body = Value),
    (status = 403, description = "This is for operators"),
    (status = 404, description = "There is no such dataset")))]
async fn forget(
    State(state): State<AppState>,
    caller: Caller,
    Query(named): Query<Named>,
) -> Answer<Json<Value>> {
    let work = move |db: &dyn windlass_store::Database, actor: crate::requests::Actor<'_>, now| {
        catalog::forget(db, &named.name, actor, now)?;
        Ok(json!({"name": named.name, "forgotten": true}))
    };
    caller.act(&state, Operation::ManageSites, work).await.map(Json)
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichFiles {
    /// Of this dataset.
    dataset: String,
    /// Only those that are valid; so without it.
    valid: Option<bool>,
    /// Skip so many.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// At most so many; 1000 without it.
    #[param(minimum = 0, maximum = 10_000)]
    limit: Option<u64>,
}

/// The files of a dataset
#[utoipa::path(get, path = "/catalog/files", tag = "catalog", operation_id = "list_dataset_files", params(WhichFiles),
    responses((status = 200, description = "In the order in which they came", body = Files),
    (status = 404, description = "There is no such dataset")))]
async fn files(
    State(state): State<AppState>,
    caller: Caller,
    Query(which): Query<WhichFiles>,
) -> Answer<Json<Files>> {
    let look = move |db: &dyn windlass_store::Database| {
        let (valid, offset) = (which.valid.unwrap_or(true), which.offset.unwrap_or(0));
        catalog::files(db, &which.dataset, valid, offset, which.limit)
    };
    caller.look(&state, look).await.map(Json)
}

#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfDataset {
    /// Of this dataset.
    dataset: String,
}

/// The blocks of a dataset
#[utoipa::path(get, path = "/catalog/blocks", tag = "catalog", operation_id = "list_dataset_blocks", params(OfDataset),
    responses((status = 200, description = "In the order in which they were opened", body = Blocks),
    (status = 404, description = "There is no such dataset")))]
async fn blocks(
    State(state): State<AppState>,
    caller: Caller,
    Query(of): Query<OfDataset>,
) -> Answer<Json<Blocks>> {
    caller.look(&state, move |db| catalog::blocks(db, &of.dataset)).await.map(Json)
}

/// Add files to a dataset
///
/// All of them or none; the dataset is made if it is not there, and belongs to the caller. Files that are there get what is
/// said now. Only the owner of a dataset and operators change it; an event tells of each change.
#[utoipa::path(post, path = "/catalog/import", tag = "catalog", operation_id = "import_dataset_files",
    request_body = Import, responses(
    (status = 200, description = "How many are new", body = Imported),
    (status = 403, description = "The dataset belongs to another user"),
    (status = 409, description = "A file belongs to another dataset"),
    (status = 422, description = "Something about a file makes no sense")))]
async fn import(
    State(state): State<AppState>,
    caller: Caller,
    Json(body): Json<Import>,
) -> Answer<Json<Imported>> {
    let work = move |db: &dyn windlass_store::Database, actor: crate::requests::Actor<'_>, now| {
        catalog::import(db, &body, actor, now)
    };
    let imported = caller.act(&state, Operation::CreateRequest, work).await?;
    // Somebody may wait for it.
    state.lifecycle.nudge_all();
    Ok(Json(imported))
}

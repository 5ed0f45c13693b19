//! Routes of requests, their workflows and runs, admission, sites and the catalog. Callers are authenticated
//! here; the operations are in [`crate::requests`].

mod agent_calls;
mod catalog;
mod crud;
mod dags;
mod files;
mod recovery;
mod sites;

pub(crate) use agent_calls::perform_agent_call as answer_agent;
pub(crate) use dags::{get_status_by_uuid, get_workflow_by_uuid};

use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::requests::{RequestActor, request_queries};
use crate::state::AppState;
use serde_json::Map;
use utoipa_axum::router::OpenApiRouter;
use windlass_api::requests::FullRequest;
use windlass_auth::{AuthOperation, ObjectRelation};
use windlass_store::StoreDatabase;
use windlass_types::Timestamp;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .merge(crud::routes())
        .merge(dags::routes())
        .merge(files::routes())
        .merge(recovery::routes())
        .merge(sites::routes())
        .merge(catalog::routes())
}

/// Routes with large bodies: the files of a dataset.
pub(crate) fn upload_routes() -> OpenApiRouter<AppState> {
    catalog::upload_routes()
}

impl Caller {
    /// Returns the caller's relation to a request. All users may see all requests, so none is ever hidden.
    fn relation_to_requestor(&self, requestor: &str) -> ObjectRelation {
        if *requestor == *self.0.user { ObjectRelation::Own } else { ObjectRelation::Shared }
    }

    /// Performs an operation in the database as the caller, checking the permission once the object is known.
    pub(super) async fn perform_as_caller<T: Send + 'static>(
        &self,
        state: &AppState,
        operation: AuthOperation,
        work: impl FnOnce(&dyn StoreDatabase, RequestActor<'_>, Timestamp) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        self.authorize(operation, ObjectRelation::Own, "such thing")?;
        let (caller, now) = (self.clone(), state.now());
        let work = move |database: &dyn StoreDatabase| {
            let may = |requestor: &str| {
                let relation = caller.relation_to_requestor(requestor);
                caller.authorize(operation, relation, format_args!("request of {requestor}"))
            };
            work(database, RequestActor { name: caller.user(), authorize: &may }, now)
        };
        state.with_database(work).await
    }

    /// Reads data of a request that only its requestor and operators may read. `requestor` returns its
    /// requestor.
    pub(super) async fn read_request_details<T: Send + 'static>(
        &self,
        state: &AppState,
        requestor: impl FnOnce(&dyn StoreDatabase) -> ApiResult<String> + Send + 'static,
        work: impl FnOnce(&dyn StoreDatabase) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        let work = move |db: &dyn StoreDatabase, actor: RequestActor<'_>, _: Timestamp| {
            (actor.authorize)(&requestor(db)?)?;
            work(db)
        };
        self.perform_as_caller(state, AuthOperation::ReadRequestDetails, work).await
    }

    /// Returns a request as the caller may see it.
    pub(super) async fn read_request(&self, state: &AppState, name: String) -> ApiResult<FullRequest> {
        let now = state.now();
        let mut shown =
            self.read_as_caller(state, move |db| request_queries::get_request(db, &name, now)).await?;
        let relation = self.relation_to_requestor(&shown.request.requestor);
        if self.authorize(AuthOperation::ReadRequestDetails, relation, "request").is_err() {
            shown.request.payload_config =
                Map::from_iter([("hidden".to_owned(), "visible only to the requestor and operators".into())]);
        }
        Ok(shown)
    }

    /// Reads data that every authenticated caller may see.
    pub(super) async fn read_as_caller<T: Send + 'static>(
        &self,
        state: &AppState,
        work: impl FnOnce(&dyn StoreDatabase) -> ApiResult<T> + Send + 'static,
    ) -> ApiResult<T> {
        self.authorize(AuthOperation::ListVisible, ObjectRelation::Own, "such thing")?;
        state.with_database(work).await
    }
}

/// Parses a comma-separated list.
fn parse_list<T: std::str::FromStr<Err: std::fmt::Display>>(
    name: &str,
    text: Option<&str>,
) -> ApiResult<Vec<T>> {
    let parts = text.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty());
    parts.map(|word| word.parse().map_err(|error| ApiError::invalid(format!("`{name}`: {error}")))).collect()
}

//! Requests, their workflows and runs, admission, sites, and the catalog: who calls is found out here, what is asked is
//! answered in [`crate::requests`].

mod agents;
mod catalog;
mod dags;
mod files;
mod recovery;
mod sites;
mod wishes;

pub(crate) use agents::answer as answer_agent;
pub(crate) use dags::{by_uuid, status_by_uuid};

use crate::caller::Caller;
use crate::error::{Answer, ApiError};
use crate::requests::{Actor, look};
use crate::state::AppState;
use serde_json::Map;
use utoipa_axum::router::OpenApiRouter;
use windlass_api::requests::RequestShown;
use windlass_auth::{Operation, Relation};
use windlass_store::Database;
use windlass_types::Timestamp;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .merge(wishes::routes())
        .merge(dags::routes())
        .merge(files::routes())
        .merge(recovery::routes())
        .merge(sites::routes())
        .merge(catalog::routes())
}

/// Bodies that may be long: the files of a dataset.
pub(crate) fn uploads() -> OpenApiRouter<AppState> {
    catalog::uploads()
}

impl Caller {
    /// What somebody's request is to him. Requests are everybody's to see, so that one of another is never hidden.
    fn relation_to_requestor(&self, requestor: &str) -> Relation {
        if *requestor == *self.0.user { Relation::Own } else { Relation::Shared }
    }

    /// Does something in the books as him, if he may do such a thing to what it turns out to be about.
    pub(super) async fn act<T: Send + 'static>(
        &self,
        state: &AppState,
        operation: Operation,
        work: impl FnOnce(&dyn Database, Actor<'_>, Timestamp) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        self.may(operation, Relation::Own, "such thing")?;
        let (caller, now) = (self.clone(), state.now());
        let work = move |database: &dyn Database| {
            let may = |requestor: &str| {
                let relation = caller.relation_to_requestor(requestor);
                caller.may(operation, relation, format_args!("request of {requestor}"))
            };
            work(database, Actor { name: caller.user(), may: &may }, now)
        };
        state.database(work).await
    }

    /// Reads something of a request that only its requestor and operators may read. `requestor` says whose it is.
    pub(super) async fn look_into<T: Send + 'static>(
        &self,
        state: &AppState,
        requestor: impl FnOnce(&dyn Database) -> Answer<String> + Send + 'static,
        work: impl FnOnce(&dyn Database) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        let work = move |db: &dyn Database, actor: Actor<'_>, _: Timestamp| {
            (actor.may)(&requestor(db)?)?;
            work(db)
        };
        self.act(state, Operation::ReadRequestDetails, work).await
    }

    /// A request as this caller may see it.
    pub(super) async fn look_at_request(&self, state: &AppState, name: String) -> Answer<RequestShown> {
        let now = state.now();
        let mut shown = self.look(state, move |db| look::show(db, &name, now)).await?;
        let relation = self.relation_to_requestor(&shown.request.requestor);
        if self.may(Operation::ReadRequestDetails, relation, "request").is_err() {
            shown.request.payload_config =
                Map::from_iter([("hidden".to_owned(), "shown to the requestor and to operators".into())]);
        }
        Ok(shown)
    }

    /// Looks at something that everybody who is let in may see.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        state: &AppState,
        work: impl FnOnce(&dyn Database) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        self.may(Operation::Look, Relation::Own, "such thing")?;
        state.database(work).await
    }
}

/// Words with commas between them.
fn words<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, text: Option<&str>) -> Answer<Vec<T>> {
    let parts = text.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty());
    parts.map(|word| word.parse().map_err(|error| ApiError::invalid(format!("`{name}`: {error}")))).collect()
}

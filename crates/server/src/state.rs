//! What every handler has at hand, and how it asks those who block or answer later.

use crate::error::{Answer, ApiError};
use crate::listeners::Listeners;
use crate::metrics::Metrics;
use crate::options::ServeOptions;
use crate::publisher::Publisher;
use crate::rates::Rates;
use std::sync::Arc;
use tokio::sync::oneshot;
use windlass_auth::Gate;
use windlass_engine::service::Service;
use windlass_requests::Lifecycle;
use windlass_slurm::steward::Steward;
use windlass_store::{Database, Pulse, Store};
use windlass_types::{Clock, Timestamp};

/// Cheap to clone: axum does so for every request.
#[derive(Clone)]
pub struct AppState {
    /// The books of workflows.
    pub store: Arc<dyn Store>,
    /// The same with those of requests and datasets.
    pub database: Arc<dyn Database>,
    pub service: Service,
    /// Owns the states of requests: whoever changes something about one nudges it.
    pub lifecycle: Lifecycle,
    /// Looks after allocations of Slurm, where it is to.
    pub steward: Option<Steward>,
    pub auth: Arc<Gate>,
    pub events: Publisher,
    pub metrics: Arc<Metrics>,
    pub listeners: Listeners,
    pub rates: Rates,
    /// Whether this is certainly still the server.
    pub pulse: Pulse,
    pub options: Arc<ServeOptions>,
}

impl AppState {
    pub fn now(&self) -> Timestamp {
        Clock.now()
    }

    /// A use case of the books, on the blocking pool.
    pub async fn books<T, E, W>(&self, work: W) -> Answer<T>
    where
        T: Send + 'static,
        E: Into<ApiError> + Send + 'static,
        W: FnOnce(&dyn Store) -> Result<T, E> + Send + 'static,
    {
        let store = Arc::clone(&self.store);
        blocking(move || work(&*store)).await?.map_err(Into::into)
    }

    /// The same with all that the database keeps.
    pub async fn database<T, W>(&self, work: W) -> Answer<T>
    where
        T: Send + 'static,
        W: FnOnce(&dyn Database) -> Answer<T> + Send + 'static,
    {
        let database = Arc::clone(&self.database);
        blocking(move || work(&*database)).await?
    }
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppState").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Runs what blocks where it blocks nobody. It runs to its end also when the caller hangs up meanwhile.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Answer<T> {
    let span = tracing::Span::current();
    let task = tokio::task::spawn_blocking(move || span.in_scope(work));
    task.await.map_err(ApiError::internal)
}

/// Makes one call that answers by a closure, and waits for the answer.
pub async fn ask<T, E>(call: impl FnOnce(Box<dyn FnOnce(Result<T, E>) + Send>)) -> Answer<T>
where
    T: Send + 'static,
    E: Into<ApiError> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    // Nobody listens any more: the caller hung up. What was asked for is done all the same.
    call(Box::new(move |answer| drop(sender.send(answer))));
    match receiver.await {
        Ok(answer) => answer.map_err(Into::into),
        // Nobody is left who would answer: whoever stops answers first.
        Err(_) => Err(ApiError::internal(
            "the scheduler gave no answer: the call was rejected after an internal error",
        )),
    }
}

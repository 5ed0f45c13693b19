//! What every handler has at hand, and how it asks those who block or answer later.

use crate::error::{ApiError, ApiResult};
use crate::event_publisher::EventPublisher;
use crate::exchange_waiters::ExchangeWaiters;
use crate::metrics::ServerMetrics;
use crate::options::ServeOptions;
use crate::rate_limiter::RateLimiter;
use std::sync::Arc;
use tokio::sync::oneshot;
use windlass_auth::Authenticator;
use windlass_requests::RequestLifecycle;
use windlass_scheduler::service::SchedulerHandle;
use windlass_slurm::allocation_reconciler::AllocationReconciler;
use windlass_store::{LeaderLease, Store, StoreDatabase};
use windlass_types::{SystemClock, Timestamp};

/// Cheap to clone: axum does so for every request.
#[derive(Clone)]
pub struct AppState {
    /// The books of workflows.
    pub store: Arc<dyn Store>,
    /// The same with those of requests and datasets.
    pub database: Arc<dyn StoreDatabase>,
    pub service: SchedulerHandle,
    /// Owns the states of requests: whoever changes something about one nudges it.
    pub lifecycle: RequestLifecycle,
    /// Looks after allocations of Slurm, where it is to.
    pub allocation_reconciler: Option<AllocationReconciler>,
    pub authenticator: Arc<Authenticator>,
    pub events: EventPublisher,
    pub metrics: Arc<ServerMetrics>,
    pub exchange_waiters: ExchangeWaiters,
    pub rate_limiter: RateLimiter,
    /// Whether this is certainly still the server.
    pub pulse: LeaderLease,
    pub options: Arc<ServeOptions>,
}

impl AppState {
    pub fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    /// A use case of the books, on the blocking pool.
    pub async fn with_store<T, E, W>(&self, work: W) -> ApiResult<T>
    where
        T: Send + 'static,
        E: Into<ApiError> + Send + 'static,
        W: FnOnce(&dyn Store) -> Result<T, E> + Send + 'static,
    {
        let store = Arc::clone(&self.store);
        run_blocking(move || work(&*store)).await?.map_err(Into::into)
    }

    /// The same with all that the database keeps.
    pub async fn with_database<T, W>(&self, work: W) -> ApiResult<T>
    where
        T: Send + 'static,
        W: FnOnce(&dyn StoreDatabase) -> ApiResult<T> + Send + 'static,
    {
        let database = Arc::clone(&self.database);
        run_blocking(move || work(&*database)).await?
    }
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppState").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Runs what blocks where it blocks nobody. It runs to its end also when the caller hangs up meanwhile.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> ApiResult<T> {
    let span = tracing::Span::current();
    let task = tokio::task::spawn_blocking(move || span.in_scope(work));
    task.await.map_err(ApiError::internal)
}

/// Makes one call that answers by a closure, and waits for the answer.
pub async fn call_service<T, E>(call: impl FnOnce(Box<dyn FnOnce(Result<T, E>) + Send>)) -> ApiResult<T>
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

//! State shared by all handlers, and helpers for blocking and callback-based calls.

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

/// Cheap to clone: axum clones it for every request.
#[derive(Clone)]
pub struct AppState {
    /// Store of workflows.
    pub store: Arc<dyn Store>,
    /// The same database, including requests and datasets.
    pub database: Arc<dyn StoreDatabase>,
    pub service: SchedulerHandle,
    /// The reconciler of requests; changes of a request wake it.
    pub lifecycle: RequestLifecycle,
    /// The allocation reconciler, if enabled.
    pub allocation_reconciler: Option<AllocationReconciler>,
    pub authenticator: Arc<Authenticator>,
    pub events: EventPublisher,
    pub metrics: Arc<ServerMetrics>,
    pub exchange_waiters: ExchangeWaiters,
    pub rate_limiter: RateLimiter,
    /// Whether this server certainly still holds the database.
    pub leader_lease: LeaderLease,
    pub options: Arc<ServeOptions>,
}

impl AppState {
    pub fn now(&self) -> Timestamp {
        SystemClock.now()
    }

    /// Runs a store call on the blocking pool.
    pub async fn with_store<T, E, W>(&self, work: W) -> ApiResult<T>
    where
        T: Send + 'static,
        E: Into<ApiError> + Send + 'static,
        W: FnOnce(&dyn Store) -> Result<T, E> + Send + 'static,
    {
        let store = Arc::clone(&self.store);
        run_blocking(move || work(&*store)).await?.map_err(Into::into)
    }

    /// The same with the whole database.
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

/// Runs blocking code on the blocking pool. It runs to its end even if the client disconnects.
pub async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> ApiResult<T> {
    let span = tracing::Span::current();
    let task = tokio::task::spawn_blocking(move || span.in_scope(work));
    task.await.map_err(ApiError::internal)
}

/// Makes a call that answers through a closure, and waits for the answer.
pub async fn call_service<T, E>(call: impl FnOnce(Box<dyn FnOnce(Result<T, E>) + Send>)) -> ApiResult<T>
where
    T: Send + 'static,
    E: Into<ApiError> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    // The client has disconnected; the call was performed all the same.
    call(Box::new(move |answer| drop(sender.send(answer))));
    match receiver.await {
        Ok(answer) => answer.map_err(Into::into),
        // The closure was dropped without an answer; a regular shutdown answers all calls first.
        Err(_) => Err(ApiError::internal(
            "the scheduler gave no answer: the call was rejected after an internal error",
        )),
    }
}

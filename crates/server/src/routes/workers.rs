//! Workers elsewhere: they introduce themselves, and then exchange what happened for what to do.

use crate::caller::Caller;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path};
use crate::state::{AppState, ask};
use axum::extract::State;
use serde_json::Value;
use std::sync::Arc;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_auth::{Operation, Relation};
use windlass_engine::service::Service;
use windlass_types::WorkerId;
use windlass_types::fleet::{Exchange, ExchangeAnswer, Introduction, Welcome};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(introduce)).routes(routes!(drain)).routes(routes!(retire))
}

pub(crate) fn lasting() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(exchange))
}

/// Introduce a worker
///
/// Or one that comes back after the server was restarted. The answer holds a secret that every exchange quotes. The
/// worker gets jobs of the workflows that its user may work on.
#[utoipa::path(post, path = "/workers", tag = "workers", request_body = Value, responses(
    (status = 200, description = "It is welcome", body = Value),
    (status = 409, description = "It cannot be who it says it was")))]
async fn introduce(
    State(state): State<AppState>,
    caller: Caller,
    Json(who): Json<Introduction>,
) -> Answer<Json<Welcome>> {
    caller.may(Operation::IntroduceWorker, Relation::Own, "worker")?;
    let user = Arc::clone(&caller.0.user);
    let may = caller.works_for();
    ask(|reply| state.service.introduce(who, user, may, reply)).await.map(Json)
}

/// Report what happened, and get what to do
///
/// Waits until there is something to do, or as long as the worker says. Exchanges are numbered; one that got no answer is
/// sent again as it was, and nothing is done twice. A newer one ends the wait of an older one.
#[utoipa::path(post, path = "/workers/{id}/exchange", tag = "workers", params(("id" = i64, Path,)), request_body = Value,
    responses((status = 200, description = "What to do", body = Value),
    (status = 409, description = "The server does not know this worker any more: it has to introduce itself again")))]
async fn exchange(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
    Json(mut exchange): Json<Exchange>,
) -> Answer<Json<ExchangeAnswer>> {
    caller.may(Operation::SpeakAsWorker, Relation::Own, "worker")?;
    if exchange.worker != WorkerId(id) {
        return Err(ApiError::invalid("the exchange is of another worker than the path"));
    }
    exchange.wait = exchange.wait.min(state.options.limits.max_wait);
    let mut listener = Listener {
        service: state.service.clone(),
        worker: exchange.worker,
        number: exchange.number,
        gone: true,
    };
    let answer = ask(|reply| state.service.exchange(exchange, reply)).await;
    listener.gone = false;
    answer.map(Json)
}

/// Somebody who waits for the answer to an exchange. Dropped before it is there, he has hung up, and the service is told:
/// nothing more is assigned to an exchange that nobody listens to.
struct Listener {
    service: Service,
    worker: WorkerId,
    number: u64,
    gone: bool,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.gone {
            self.service.hang_up(self.worker, self.number);
        }
    }
}

/// Have a worker finish what it has, and leave
#[utoipa::path(post, path = "/workers/{id}/drain", tag = "workers", params(("id" = i64, Path,)),
    responses((status = 200, description = "It gets nothing more", body = Value),
    (status = 404, description = "There is no such worker")))]
async fn drain(State(state): State<AppState>, caller: Caller, Path(id): Path<i64>) -> Answer<Json<Value>> {
    let worker = caller.manages_worker(WorkerId(id))?;
    ask(|reply| state.service.drain(worker, reply)).await?;
    Ok(Json(serde_json::json!({"id": id, "draining": true})))
}

/// Say that a worker is certainly dead
///
/// What it held runs again at once, without waiting for the end of its lease. If it lives after all, jobs may run twice.
#[utoipa::path(post, path = "/workers/{id}/retire", tag = "workers", params(("id" = i64, Path,)),
    responses((status = 200, description = "What it held goes to others", body = Value),
    (status = 404, description = "There is no such worker")))]
async fn retire(State(state): State<AppState>, caller: Caller, Path(id): Path<i64>) -> Answer<Json<Value>> {
    let worker = caller.manages_worker(WorkerId(id))?;
    ask(|reply| state.service.retire(worker, caller.user(), reply)).await?;
    Ok(Json(serde_json::json!({"id": id, "retired": true})))
}

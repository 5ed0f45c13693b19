//! Health checks.

use crate::extract::Json;
use crate::state::AppState;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_scheduler::service::SchedulerMetrics;
use windlass_store::model::EventFilter;
use windlass_types::Timestamp;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_health))
}

/// The same below the API prefix.
pub(crate) fn prefixed_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_prefixed_health))
}

/// Time limit for the database to answer.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time without an iteration of the scheduler or a completed write.
const MAX_SERVICE_SILENCE: Duration = Duration::from_secs(10);

/// Health of the server.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct HealthResponse {
    /// `ok`, `standby`, or `unwell`.
    #[schema(example = "ok")]
    status: &'static str,
    /// `active`, or `standby` while another server holds the database.
    #[schema(example = "active")]
    role: &'static str,
    /// Version of the server.
    #[schema(example = "0.1.0")]
    version: &'static str,
    /// `ok`, or an error.
    #[schema(example = "ok")]
    database: String,
    /// `ok`, or why the scheduler does not work.
    #[schema(example = "ok")]
    service: &'static str,
}

impl HealthResponse {
    pub(crate) fn standby() -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self {
            status: "standby",
            role: "standby",
            version,
            database: "not checked".into(),
            service: "standing by",
        }
    }

    fn active(database: String, service: &'static str) -> Self {
        let status = if (database.as_str(), service) == ("ok", "ok") { "ok" } else { "unwell" };
        Self { status, role: "active", version: env!("CARGO_PKG_VERSION"), database, service }
    }

    fn status_code(&self) -> StatusCode {
        if self.status == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
    }
}

/// Check the health of the server
///
/// Checks the database and the scheduler. Needs no credentials and returns only public information. 503 if the
/// server is unhealthy or on standby.
#[utoipa::path(get, path = "/health", tag = "operations", security(()), responses(
    (status = 200, description = "It is well", body = HealthResponse),
    (status = 503, description = "Unhealthy, or on standby", body = HealthResponse)))]
async fn get_health(State(state): State<AppState>) -> (StatusCode, Json<HealthResponse>) {
    let service = &state.service;
    let service = if service.is_alive() {
        service_health(&service.metrics(), state.leader_lease.is_valid(), state.now())
    } else {
        "failed; see the log"
    };
    let newest = EventFilter { newest: Some(1), ..EventFilter::default() };
    // Also checks the connection that writes, unless it is busy; the scheduler's metrics show for how long.
    let asked = state.with_store(move |store| {
        store.events(None, &newest)?;
        store.foreign_commit_count(false).map(drop)
    });
    // Reads may succeed on a full disk, so the result of the last write counts.
    let problem = || state.store.write_failure().and_then(|error| error.public_message());
    let database = match tokio::time::timeout(DATABASE_TIMEOUT, asked).await {
        Ok(Ok(())) => problem().unwrap_or_else(|| "ok".to_owned()),
        Ok(Err(error)) => {
            tracing::warn!(%error, "database health check failed");
            problem().unwrap_or_else(|| "failed; see the log".to_owned())
        }
        Err(_) => "no answer".to_owned(),
    };
    let health = HealthResponse::active(database, service);
    (health.status_code(), Json(health))
}

/// Check the health of the server
///
/// The same as `/health` without the prefix.
#[utoipa::path(get, path = "/health", tag = "operations", security(()), responses(
    (status = 200, description = "It is well", body = HealthResponse),
    (status = 503, description = "Unhealthy, or on standby", body = HealthResponse)))]
async fn get_prefixed_health(state: State<AppState>) -> (StatusCode, Json<HealthResponse>) {
    get_health(state).await
}

/// Checks the metrics of the scheduler.
fn service_health(metrics: &SchedulerMetrics, is_certain: bool, now: Timestamp) -> &'static str {
    let is_too_long = |since: i64| now.since(Timestamp(since)) > MAX_SERVICE_SILENCE;
    match () {
        () if !is_certain => {
            "the server could not renew its database lock for seconds; another server may take over"
        }
        () if is_too_long(metrics.last_loop_at) => "the scheduler does not respond",
        () if metrics.writing_since != 0 && is_too_long(metrics.writing_since) => {
            "the database does not complete writes"
        }
        () => "ok",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_scheduler_is_unhealthy() {
        let now = Timestamp(1_000_000_000);
        let (recent, long_ago) = (now.0 - 1_000_000, now.0 - 11_000_000);
        let well = SchedulerMetrics { last_loop_at: recent, ..SchedulerMetrics::default() };
        assert_eq!(service_health(&well, true, now), "ok");
        assert_eq!(service_health(&SchedulerMetrics { writing_since: recent, ..well }, true, now), "ok");
        for (metrics, is_certain, word) in [
            (well, false, "another server may take over"),
            (SchedulerMetrics { last_loop_at: long_ago, ..well }, true, "does not respond"),
            (SchedulerMetrics { writing_since: long_ago, ..well }, true, "does not complete writes"),
        ] {
            let told = service_health(&metrics, is_certain, now);
            assert!(told.contains(word), "{told}");
            let health = HealthResponse::active("ok".to_owned(), told);
            assert_eq!((health.status, health.status_code()), ("unwell", StatusCode::SERVICE_UNAVAILABLE));
        }
    }
}

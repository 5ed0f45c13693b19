//! Whether the server is well.

use crate::extract::Json;
use crate::state::AppState;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use std::time::Duration;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_store::model::EventFilter;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(health))
}

/// A database that takes longer to say anything is not well.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(5);

/// How the server is.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, `standby`, or `unwell`.
    #[schema(example = "ok")]
    status: &'static str,
    /// `active`, or `standby` while another server has the database.
    #[schema(example = "active")]
    role: &'static str,
    #[schema(example = "0.1.0")]
    version: &'static str,
    /// `ok`, or what is wrong with it.
    #[schema(example = "ok")]
    database: &'static str,
}

impl Health {
    pub(crate) const fn standby() -> Self {
        Self { status: "standby", role: "standby", version: env!("CARGO_PKG_VERSION"), database: "not asked" }
    }

    const fn active(status: &'static str, database: &'static str) -> Self {
        Self { status, role: "active", version: env!("CARGO_PKG_VERSION"), database }
    }
}

/// Whether the server is well
///
/// Asks the database. Needs no credentials, and tells nothing that is not everybody's business. 503 if the server is not
/// well, or stands by.
#[utoipa::path(get, path = "/health", tag = "operations", security(()), responses(
    (status = 200, description = "It is well", body = Health),
    (status = 503, description = "It is not, or stands by", body = Health)))]
async fn health(State(state): State<AppState>) -> (StatusCode, Json<Health>) {
    let newest = EventFilter { newest: Some(1), ..EventFilter::default() };
    let asked = state.books(move |store| store.events(None, &newest));
    let (code, health) = match tokio::time::timeout(DATABASE_TIMEOUT, asked).await {
        Ok(Ok(_)) => (StatusCode::OK, Health::active("ok", "ok")),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the database is not well");
            (StatusCode::SERVICE_UNAVAILABLE, Health::active("unwell", "failed; the log says more"))
        }
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, Health::active("unwell", "no answer")),
    };
    (code, Json(health))
}

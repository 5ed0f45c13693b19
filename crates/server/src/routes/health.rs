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
use windlass_engine::service::Figures;
use windlass_store::model::EventFilter;
use windlass_types::Timestamp;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(health))
}

/// The same below the prefix of the API.
pub(crate) fn api_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(api_health))
}

/// A database that takes longer to say anything is not well.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Nor is a server that does not look around, or gets nothing written, for so long.
const TOO_LONG: Duration = Duration::from_secs(10);

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
    database: String,
    /// `ok`, or why nothing is done.
    #[schema(example = "ok")]
    service: &'static str,
}

impl Health {
    pub(crate) fn standby() -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self {
            status: "standby",
            role: "standby",
            version,
            database: "not asked".into(),
            service: "standing by",
        }
    }

    fn active(database: String, service: &'static str) -> Self {
        let status = if (database.as_str(), service) == ("ok", "ok") { "ok" } else { "unwell" };
        Self { status, role: "active", version: env!("CARGO_PKG_VERSION"), database, service }
    }

    fn code(&self) -> StatusCode {
        if self.status == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
    }
}

/// Whether the server is well
///
/// Asks the database, and looks whether the server gets anything done. Needs no credentials, and tells nothing that is not
/// everybody's business. 503 if the server is not well, or stands by.
#[utoipa::path(get, path = "/health", tag = "operations", security(()), responses(
    (status = 200, description = "It is well", body = Health),
    (status = 503, description = "It is not, or stands by", body = Health)))]
async fn health(State(state): State<AppState>) -> (StatusCode, Json<Health>) {
    let service = &state.service;
    let service = if service.is_alive() {
        judge(&service.figures(), state.pulse.is_certain(), state.now())
    } else {
        "failed; the log says more"
    };
    let newest = EventFilter { newest: Some(1), ..EventFilter::default() };
    // The connection that writes is asked as well, unless it is busy: then it is the service that sees how long.
    let asked = state.books(move |store| {
        store.events(None, &newest)?;
        store.foreign_commits(false).map(drop)
    });
    // A full disk can still be read: what became of the last change says more than that it can.
    let trouble = || state.store.trouble().and_then(|error| error.public_words());
    let database = match tokio::time::timeout(DATABASE_TIMEOUT, asked).await {
        Ok(Ok(())) => trouble().unwrap_or_else(|| "ok".to_owned()),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the database is not well");
            trouble().unwrap_or_else(|| "failed; the log says more".to_owned())
        }
        Err(_) => "no answer".to_owned(),
    };
    let health = Health::active(database, service);
    (health.code(), Json(health))
}

/// Whether the server is well
///
/// The same as `/health` without the prefix.
#[utoipa::path(get, path = "/health", tag = "operations", security(()), responses(
    (status = 200, description = "It is well", body = Health),
    (status = 503, description = "It is not, or stands by", body = Health)))]
async fn api_health(state: State<AppState>) -> (StatusCode, Json<Health>) {
    health(state).await
}

/// How the service is, going by its figures.
fn judge(figures: &Figures, is_certain: bool, now: Timestamp) -> &'static str {
    let is_too_long = |since: i64| now.since(Timestamp(since)) > TOO_LONG;
    match () {
        () if !is_certain => "the database has not heard of this server for seconds; another may take over",
        () if is_too_long(figures.last_loop) => "the part that decides does not answer",
        () if figures.writing_since != 0 && is_too_long(figures.writing_since) => {
            "the database takes no changes"
        }
        () => "ok",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_gets_nothing_done_is_not_well() {
        let now = Timestamp(1_000_000_000);
        let (recent, long_ago) = (now.0 - 1_000_000, now.0 - 11_000_000);
        let well = Figures { last_loop: recent, ..Figures::default() };
        assert_eq!(judge(&well, true, now), "ok");
        assert_eq!(judge(&Figures { writing_since: recent, ..well }, true, now), "ok");
        for (figures, is_certain, word) in [
            (well, false, "another may take over"),
            (Figures { last_loop: long_ago, ..well }, true, "does not answer"),
            (Figures { writing_since: long_ago, ..well }, true, "takes no changes"),
        ] {
            let told = judge(&figures, is_certain, now);
            assert!(told.contains(word), "{told}");
            let health = Health::active("ok".to_owned(), told);
            assert_eq!((health.status, health.code()), ("unwell", StatusCode::SERVICE_UNAVAILABLE));
        }
    }
}

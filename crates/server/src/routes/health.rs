//! Whether the server is well.

use crate::error::Answer;
use crate::extract::Json;
use crate::state::AppState;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(health))
}

/// How the server is.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, or what is wrong.
    pub(crate) status: String,
    /// `active`, or `standby` while another server has the database.
    pub role: String,
    pub version: String,
    /// `ok`, or what the database said.
    pub database: String,
}

/// Whether the server is well
///
/// Asks the database. Needs no credentials, and says nothing that is not everybody's business.
#[utoipa::path(get, path = "/health", tag = "operations",
    responses((status = 200, body = Health), (status = 503, body = Health)))]
async fn health(State(state): State<AppState>) -> Answer<Json<Health>> {
    state.books(|store| store.events(None, &newest_event())).await?;
    Ok(Json(Health {
        status: "ok".to_owned(),
        role: "active".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        database: "ok".to_owned(),
    }))
}

fn newest_event() -> windlass_store::model::EventFilter {
    windlass_store::model::EventFilter { newest: Some(1), ..Default::default() }
}

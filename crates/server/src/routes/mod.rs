//! The routes, one file per noun. Each file has a `routes()` that lists its handlers; that list is both the routing and
//! the OpenAPI.

mod allocations;
mod books;
mod docs;
pub(crate) mod events;
mod failures;
pub(crate) mod health;
mod mcp;
mod metrics;
mod nodes;
pub(crate) mod requests;
mod slurm;
mod status;
mod tokens;
mod torc;
mod worker_messages;
mod workers;
mod workflows;

use crate::state::AppState;
use utoipa_axum::router::OpenApiRouter;

/// Routes without a prefix, for those who watch over the server, and for agents.
pub(crate) fn plain() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().merge(health::routes()).merge(metrics::routes()).merge(mcp::routes())
}

/// Our own routes below [`crate::error::API_PREFIX`], done in a moment.
pub(crate) fn brief() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .merge(docs::routes())
        .merge(health::api_routes())
        .merge(metrics::api_routes())
        .merge(status::routes())
        .merge(tokens::routes())
        .merge(workers::routes())
        .merge(nodes::routes())
        .merge(workflows::routes())
        .merge(failures::routes())
        .merge(allocations::routes())
        .merge(slurm::routes())
        .merge(requests::routes())
        .merge(books::routes())
}

/// Our own routes whose requests last as long as they like: waits and streams.
pub(crate) fn lasting() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().merge(events::lasting()).merge(workers::lasting())
}

/// What takes in more than fits into memory.
pub(crate) fn uploads() -> OpenApiRouter<AppState> {
    books::uploads().merge(requests::uploads())
}

/// The contract of Torc, at both prefixes.
pub(crate) fn torc() -> OpenApiRouter<AppState> {
    torc::routes().merge(tokens::torc())
}

/// What of it lasts.
pub(crate) fn torc_lasting() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().merge(events::torc_lasting())
}

//! The routes, one file per noun. Each file has a `routes()` that lists its handlers; that list is both the routing and
//! the OpenAPI.

mod allocations;
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
mod store_calls;
mod tokens;
mod torc;
mod worker_messages;
mod workers;
mod workflows;

use crate::state::AppState;
use utoipa_axum::router::OpenApiRouter;

/// Routes without a prefix, for those who watch over the server, and for agents.
pub(crate) fn unprefixed_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().merge(health::routes()).merge(metrics::routes()).merge(mcp::routes())
}

/// Our own routes below [`crate::error::API_PREFIX`], done in a moment.
pub(crate) fn brief_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .merge(docs::routes())
        .merge(health::prefixed_routes())
        .merge(metrics::prefixed_routes())
        .merge(status::routes())
        .merge(tokens::routes())
        .merge(workers::routes())
        .merge(nodes::routes())
        .merge(workflows::routes())
        .merge(failures::routes())
        .merge(allocations::routes())
        .merge(slurm::routes())
        .merge(requests::routes())
        .merge(store_calls::routes())
}

/// Our own routes whose requests last as long as they like: waits and streams.
pub(crate) fn long_running_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().merge(events::streaming_routes()).merge(workers::long_running_routes())
}

/// What takes in more than fits into memory.
pub(crate) fn upload_routes() -> OpenApiRouter<AppState> {
    store_calls::uploads().merge(requests::upload_routes())
}

/// The contract of Torc, at both prefixes.
pub(crate) fn torc_routes() -> OpenApiRouter<AppState> {
    torc::routes().merge(tokens::torc_routes())
}

/// What of it lasts.
pub(crate) fn torc_long_running_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().merge(events::torc_streaming_routes())
}

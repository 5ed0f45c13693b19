//! The routes, one file per noun. Each file has a `routes()` that lists its handlers; that list defines both
//! the routing and the OpenAPI document.

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

/// Routes without a prefix, for monitoring and agents.
pub(crate) fn unprefixed_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().merge(health::routes()).merge(metrics::routes()).merge(mcp::routes())
}

/// Windlass routes below [`crate::error::API_PREFIX`] that answer quickly.
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

/// Windlass routes without a time limit: long polls and streams.
pub(crate) fn long_running_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().merge(events::streaming_routes()).merge(workers::long_running_routes())
}

/// Routes whose bodies may exceed memory.
pub(crate) fn upload_routes() -> OpenApiRouter<AppState> {
    store_calls::uploads().merge(requests::upload_routes())
}

/// The Torc contract, at both prefixes.
pub(crate) fn torc_routes() -> OpenApiRouter<AppState> {
    torc::routes().merge(tokens::torc_routes())
}

/// Long-running routes of the Torc contract.
pub(crate) fn torc_long_running_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().merge(events::torc_streaming_routes())
}

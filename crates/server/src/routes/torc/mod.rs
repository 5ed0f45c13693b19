//! The job-level contract of Torc 1.0, one file per noun. See [`table`] for how an operation is written.

mod access;
mod actions;
mod allocations;
mod call;
mod events;
mod files;
mod handlers;
mod input;
mod jobs;
mod lifecycle;
mod nodes;
mod records;
mod relations;
mod requirements;
mod results;
mod running;
mod schedulers;
mod system;
mod table;
mod user_data;
mod workflows;

use crate::state::AppState;
use utoipa_axum::router::OpenApiRouter;

/// All operations, with paths relative to a prefix.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    let tables = vec![
        workflows::table(),
        lifecycle::table(),
        jobs::table(),
        running::table(),
        relations::table(),
        files::table(),
        user_data::table(),
        requirements::table(),
        handlers::table(),
        schedulers::table(),
        results::table(),
        nodes::table(),
        events::table(),
        actions::table(),
        allocations::table(),
        records::table(),
        access::table(),
        system::table(),
    ];
    tables.into_iter().fold(OpenApiRouter::new(), |all, table| all.merge(table.into_router()))
}

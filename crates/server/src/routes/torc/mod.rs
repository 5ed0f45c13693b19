//! The job-level contract of Torc 1.0, one file per noun. For how an operation is declared see
//! [`operation_table`].

mod access;
mod actions;
mod allocations;
mod call_context;
mod events;
mod failure_handlers;
mod files;
mod input;
mod job_execution;
mod jobs;
mod nodes;
mod opaque_records;
mod operation_table;
mod relations;
mod requirements;
mod results;
mod schedulers;
mod system;
mod user_data;
mod workflow_status;
mod workflows;

pub(crate) use events::check_event_category;

use crate::state::AppState;
use utoipa_axum::router::OpenApiRouter;

/// All operations, with paths relative to a prefix.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    let tables = vec![
        workflows::operations(),
        workflow_status::operations(),
        jobs::operations(),
        job_execution::operations(),
        relations::operations(),
        files::operations(),
        user_data::operations(),
        requirements::operations(),
        failure_handlers::operations(),
        schedulers::operations(),
        results::operations(),
        nodes::operations(),
        events::operations(),
        actions::operations(),
        allocations::operations(),
        opaque_records::operations(),
        access::operations(),
        system::operations(),
    ];
    tables.into_iter().fold(OpenApiRouter::new(), |all, table| all.merge(table.into_router()))
}

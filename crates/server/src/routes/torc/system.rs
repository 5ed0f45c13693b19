//! The server itself: whether it is there, what it is, and what administrators ask of it.

use super::call::Call;
use super::table::Table;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Query};
use axum::http::StatusCode;
use serde_json::{Value, json};
use windlass_api::torc::query::Paging;
use windlass_api::torc::{
    API_VERSION, AdminAuditLogEntry, AdminSqlRequest, AdminSqlResponse, Page, PingResponse, VersionResponse,
};
use windlass_auth::Operation;

pub(super) fn table() -> Table {
    Table::new("system")
        .get("/ping", "ping", "Whether somebody is there", ping)
        .get("/version", "get_version", "What answers here", version)
        .get("/admin/audit-log", "list_admin_audit_log", "Statements that administrators ran", audit_log)
        .get("/admin/api-stats", "get_api_stats", "What the server is busy with", stats)
        .post("/admin/sql", "admin_sql", "Statements for the database: offered to nobody", sql)
}

#[expect(clippy::unnecessary_wraps, reason = "as all handlers")]
fn ping(_: &Call) -> Answer<PingResponse> {
    Ok(PingResponse { status: "ok".to_owned() })
}

#[expect(clippy::unnecessary_wraps, reason = "as all handlers")]
fn version(_: &Call) -> Answer<VersionResponse> {
    Ok(VersionResponse {
        api_version: API_VERSION.to_owned(),
        version: format!("windlass {}", env!("CARGO_PKG_VERSION")),
        git_hash: None,
    })
}

/// Always empty: nobody can run statements. What people did is among the events.
fn audit_log(call: &Call, Query(page): Query<Paging>) -> Answer<Page<AdminAuditLogEntry>> {
    call.may(Operation::Administer)?;
    Ok(Page::new(Vec::new(), page.view().offset, 0))
}

/// A few figures; `/metrics` has all of them.
fn stats(call: &Call) -> Answer<Value> {
    call.may(Operation::Administer)?;
    let figures = call.state.service.figures();
    Ok(json!({
        "workers": figures.workers,
        "workflows": figures.workflows,
        "ready_jobs": figures.ready,
        "held_jobs": figures.held,
        "waits": figures.waits,
        "commits": figures.commits,
        "assigned_jobs": figures.assigned,
        "ended_jobs": figures.ended,
    }))
}

fn sql(call: &Call, Json(_): Json<AdminSqlRequest>) -> Answer<AdminSqlResponse> {
    call.may(Operation::Administer)?;
    let refusal =
        "this server runs no statements of others: they would go past its memory, its events and its rules";
    Err(ApiError::new(StatusCode::FORBIDDEN, "no_sql", refusal)
        .with_hint("read a copy of the database made by `windlass db backup`, or ask through this interface"))
}

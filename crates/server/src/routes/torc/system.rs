//! The server itself: ping, version, status, and administration.

use super::call_context::TorcCallContext;
use super::operation_table::OperationTable;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Query};
use axum::http::StatusCode;
use serde_json::{Value, json};
use windlass_api::torc::query::PageQuery;
use windlass_api::torc::{
    API_VERSION, AdminAuditLogEntry, AdminSqlRequest, AdminSqlResponse, ListPage, PingResponse,
    VersionResponse,
};
use windlass_auth::AuthOperation;

pub(super) fn operations() -> OperationTable {
    OperationTable::new("system")
        .get("/ping", "ping", "Check that the server runs", get_ping)
        .get("/version", "get_version", "Get the version of the server", get_version)
        .get(
            "/admin/audit-log",
            "list_admin_audit_log",
            "List SQL statements run by administrators",
            list_audit_log,
        )
        .get("/admin/api-stats", "get_api_stats", "Get the load of the server", get_stats)
        .post("/admin/sql", "admin_sql", "Run an SQL statement (always rejected)", reject_sql)
}

#[expect(clippy::unnecessary_wraps, reason = "same signature as all handlers")]
fn get_ping(_: &TorcCallContext) -> ApiResult<PingResponse> {
    Ok(PingResponse { status: "ok".to_owned() })
}

#[expect(clippy::unnecessary_wraps, reason = "same signature as all handlers")]
fn get_version(_: &TorcCallContext) -> ApiResult<VersionResponse> {
    Ok(VersionResponse {
        api_version: API_VERSION.to_owned(),
        version: format!("windlass {}", env!("CARGO_PKG_VERSION")),
        git_hash: None,
    })
}

/// Always empty: SQL statements are not supported. Administrative actions are recorded as events.
fn list_audit_log(
    call: &TorcCallContext,
    Query(page): Query<PageQuery>,
) -> ApiResult<ListPage<AdminAuditLogEntry>> {
    call.authorize(AuthOperation::Administer)?;
    Ok(ListPage::new(Vec::new(), page.view().offset, 0))
}

/// Some figures; `/metrics` has all of them.
fn get_stats(call: &TorcCallContext) -> ApiResult<Value> {
    call.authorize(AuthOperation::Administer)?;
    let metrics = call.state.service.metrics();
    Ok(json!({
        "workers": metrics.workers,
        "workflows": metrics.workflows,
        "ready_jobs": metrics.ready_jobs,
        "held_jobs": metrics.held_jobs,
        "waits": metrics.waiting_exchanges,
        "commits": metrics.commits,
        "assigned_jobs": metrics.assigned_jobs,
        "ended_jobs": metrics.ended_attempts,
    }))
}

fn reject_sql(call: &TorcCallContext, Json(_): Json<AdminSqlRequest>) -> ApiResult<AdminSqlResponse> {
    call.authorize(AuthOperation::Administer)?;
    let refusal = "this server does not run SQL statements: they would bypass its memory, its events and its permission checks";
    Err(ApiError::new(StatusCode::FORBIDDEN, "no_sql", refusal)
        .with_hint("query a copy of the database made by `windlass db backup`, or use the API"))
}

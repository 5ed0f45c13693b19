//! The declared access of every route; permissions are decided here and in [`windlass_auth::decide_access`].
//!
//! Two steps. [`enforce_access`] runs before every route: it authenticates the caller and rejects operations
//! that the caller may not perform on any object. Handlers then check the requested object, which returns 404
//! if the caller may not see it. A route that is not in [`ROUTE_ACCESS`] is rejected for every caller.

use crate::caller::{Caller, RequestCredential};
use crate::error::{API_PREFIX, ApiError, ApiResult, TORC_PREFIX};
use crate::http_request_guard::RequestUser;
use crate::state::AppState;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::ALLOW;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use std::sync::Arc;
use windlass_auth::AuthOperation::{
    self, ActAsWorker, Administer, CancelRequest, CancelWorkflow, ChangeGroup, ChangeRequest, ChangeTokens,
    ChangeUserData, ChangeWorkflow, CreateGroup, CreateRequest, CreateWorkflow, DecideAsAgent, DeleteGroup,
    DeleteWorkflow, Identify, ListVisible, ManageNodes, ManageSites, ManageWorker, Metrics, ReadGroup,
    ReadTokens, ReadWorker, ReadWorkflow, RegisterWorker, RunJobs, ShareWorkflow, SpawnJobs,
};
use windlass_auth::{ObjectRelation, Principal};

/// The access that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess {
    /// None: the response is public.
    Public,
    Requires(AuthOperation),
}

use RouteAccess::{Public, Requires};

/// All routes, without their prefix.
#[rustfmt::skip]
pub const ROUTE_ACCESS: &[(&str, &str, RouteAccess)] = &[
    ("GET", "/health", Public),
    ("GET", "/docs", Public),
    ("GET", "/openapi.json", Public),
    ("GET", "/metrics", Requires(Metrics)),
    ("POST", "/mcp", Requires(ListVisible)),
    ("GET", "/ping", Requires(Identify)),
    ("GET", "/version", Requires(Identify)),

    ("GET", "/me", Requires(Identify)),
    ("GET", "/tokens", Requires(ReadTokens)),
    ("POST", "/tokens", Requires(ChangeTokens)),
    ("DELETE", "/tokens", Requires(ChangeTokens)),
    ("DELETE", "/tokens/{id}", Requires(ChangeTokens)),
    ("POST", "/admin/reload-auth", Requires(Administer)),
    ("GET", "/admin/audit-log", Requires(Administer)),
    ("GET", "/admin/api-stats", Requires(Administer)),
    ("POST", "/admin/sql", Requires(Administer)),

    ("POST", "/workers", Requires(RegisterWorker)),
    ("POST", "/workers/{id}/exchange", Requires(ActAsWorker)),
    ("GET", "/workers", Requires(ListVisible)),
    ("GET", "/workers/{id}", Requires(ReadWorker)),
    ("POST", "/workers/{id}/drain", Requires(ManageWorker)),
    ("POST", "/workers/{id}/retire", Requires(ManageWorker)),

    ("GET", "/nodes", Requires(ListVisible)),
    ("POST", "/nodes", Requires(ManageNodes)),
    ("DELETE", "/nodes/{host}", Requires(ManageNodes)),

    ("GET", "/requests", Requires(ListVisible)),
    ("POST", "/requests", Requires(CreateRequest)),
    ("GET", "/requests/{name}", Requires(ListVisible)),
    ("PATCH", "/requests/{name}", Requires(ChangeRequest)),
    ("DELETE", "/requests/{name}", Requires(CancelRequest)),
    ("GET", "/requests/{name}/metrics", Requires(ListVisible)),
    ("GET", "/requests/{name}/status", Requires(ListVisible)),
    ("POST", "/requests/{name}/stop", Requires(ChangeRequest)),
    ("GET", "/requests/{name}/versions", Requires(ListVisible)),
    ("GET", "/requests/{name}/files", Requires(ListVisible)),
    ("GET", "/requests/{name}/errors", Requires(ListVisible)),
    ("POST", "/requests/{name}/release", Requires(ChangeRequest)),
    ("POST", "/requests/{name}/fail", Requires(CancelRequest)),
    ("POST", "/requests/{name}/restart", Requires(CancelRequest)),
    ("POST", "/requests/{name}/invalidate", Requires(CancelRequest)),
    ("GET", "/alerts", Requires(ListVisible)),
    ("GET", "/status", Requires(ListVisible)),
    ("GET", "/request-workflows", Requires(ListVisible)),
    ("GET", "/request-workflows/{id}", Requires(ListVisible)),
    ("GET", "/request-workflows/{id}/status", Requires(ListVisible)),
    ("GET", "/dags", Requires(ListVisible)),
    ("GET", "/dags/{id}", Requires(ListVisible)),
    ("GET", "/dags/{id}/nodes", Requires(ListVisible)),
    ("GET", "/dags/{id}/logs", Requires(ListVisible)),
    ("GET", "/dags/{id}/history", Requires(ListVisible)),
    ("POST", "/dags/{id}/hold", Requires(ChangeRequest)),
    ("POST", "/dags/{id}/release", Requires(ChangeRequest)),
    ("POST", "/dags/{id}/remove", Requires(ChangeRequest)),
    ("POST", "/dags/{id}/rescue", Requires(ChangeRequest)),
    ("GET", "/admission/queue", Requires(ListVisible)),
    ("PATCH", "/admission/config", Requires(ManageSites)),
    ("GET", "/lifecycle/status", Requires(ListVisible)),
    ("GET", "/sites", Requires(ListVisible)),
    ("GET", "/sites/bans", Requires(ListVisible)),
    ("GET", "/sites/{name}", Requires(ListVisible)),
    ("PATCH", "/sites/{name}", Requires(ManageSites)),
    ("POST", "/sites/{name}/drain", Requires(ManageSites)),
    ("POST", "/sites/{name}/enable", Requires(ManageSites)),
    ("POST", "/sites/{name}/ban", Requires(ManageSites)),
    ("DELETE", "/sites/{name}/ban", Requires(ManageSites)),
    ("GET", "/catalog/datasets", Requires(ListVisible)),
    ("GET", "/catalog/dataset", Requires(ListVisible)),
    ("DELETE", "/catalog/dataset", Requires(ManageSites)),
    ("GET", "/catalog/files", Requires(ListVisible)),
    ("GET", "/catalog/blocks", Requires(ListVisible)),
    ("POST", "/catalog/import", Requires(CreateRequest)),

    ("POST", "/store", Requires(Identify)),
    ("POST", "/store/create", Requires(CreateWorkflow)),
    ("GET", "/events/stream", Requires(ListVisible)),
    ("GET", "/workflows/{id}/events/stream", Requires(ReadWorkflow)),
    ("POST", "/workflows/{id}/start", Requires(ChangeWorkflow)),

    ("GET", "/workflows/{id}/failures", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/failures/{signature}", Requires(ReadWorkflow)),
    ("POST", "/workflows/{id}/orders", Requires(DecideAsAgent)),
    ("GET", "/workflows/{id}/decisions", Requires(ReadWorkflow)),
    ("POST", "/workflows/{id}/decisions/{decision_id}", Requires(ChangeWorkflow)),
    ("GET", "/workflows/{id}/revisions", Requires(ReadWorkflow)),
    ("POST", "/workflows/{id}/revisions/{revision}/undo", Requires(ChangeWorkflow)),

    ("GET", "/workflows/{id}/allocations", Requires(ReadWorkflow)),
    ("POST", "/workflows/{id}/allocations", Requires(ChangeWorkflow)),
    ("POST", "/workflows/{id}/allocations/look", Requires(ReadWorkflow)),
    ("GET", "/allocations/{id}", Requires(ReadWorkflow)),
    ("DELETE", "/allocations/{id}", Requires(ChangeWorkflow)),
    ("GET", "/slurm", Requires(ListVisible)),
    ("GET", "/workflows/{id}/allocations/accounts", Requires(ReadWorkflow)),

    ("GET", "/workflows", Requires(ListVisible)),
    ("POST", "/workflows", Requires(CreateWorkflow)),
    ("GET", "/workflows/{id}", Requires(ReadWorkflow)),
    ("PUT", "/workflows/{id}", Requires(ChangeWorkflow)),
    ("DELETE", "/workflows/{id}", Requires(DeleteWorkflow)),
    ("POST", "/workflows/{id}/archive", Requires(ChangeWorkflow)),
    ("PUT", "/workflows/{id}/cancel", Requires(CancelWorkflow)),
    ("GET", "/workflows/{id}/status", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/is_complete", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/is_uninitialized", Requires(ReadWorkflow)),
    ("POST", "/workflows/{id}/initialize_jobs", Requires(ChangeWorkflow)),
    ("POST", "/workflows/{id}/reset_status", Requires(ChangeWorkflow)),
    ("POST", "/workflows/{id}/reset_job_status", Requires(ChangeWorkflow)),
    ("POST", "/workflows/{id}/process_changed_job_inputs", Requires(ChangeWorkflow)),
    ("GET", "/workflows/{id}/active_task", Requires(ReadWorkflow)),
    ("GET", "/tasks/{id}", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/job_ids", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/running_jobs", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/slurm_job_correlations", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/job_dependencies", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/job_file_relationships", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/job_user_data_relationships", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/required_existing_files", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/missing_user_data", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/ready_job_requirements", Requires(ReadWorkflow)),
    ("GET", "/workflows/{id}/failure_handlers", Requires(ReadWorkflow)),

    ("POST", "/workflows/{id}/claim_next_jobs", Requires(RunJobs)),
    ("POST", "/workflows/{id}/claim_jobs_based_on_resources/{limit}", Requires(RunJobs)),
    ("POST", "/workflows/{id}/batch_complete_jobs", Requires(RunJobs)),
    ("PUT", "/jobs/{id}/start_job/{run_id}/{compute_node_id}", Requires(RunJobs)),
    ("POST", "/jobs/{id}/complete_job/{status}/{run_id}", Requires(RunJobs)),
    ("POST", "/jobs/{id}/retry/{run_id}", Requires(RunJobs)),
    ("POST", "/jobs/{id}/spawn_jobs", Requires(SpawnJobs)),
    ("PUT", "/jobs/{id}/manage_status_change/{status}/{run_id}", Requires(ChangeWorkflow)),

    ("GET", "/jobs", Requires(ReadWorkflow)),
    ("POST", "/jobs", Requires(ChangeWorkflow)),
    ("DELETE", "/jobs", Requires(ChangeWorkflow)),
    ("POST", "/bulk_jobs", Requires(ChangeWorkflow)),
    ("GET", "/jobs/{id}", Requires(ReadWorkflow)),
    ("PUT", "/jobs/{id}", Requires(ChangeWorkflow)),
    ("DELETE", "/jobs/{id}", Requires(ChangeWorkflow)),

    ("GET", "/files", Requires(ReadWorkflow)),
    ("POST", "/files", Requires(ChangeWorkflow)),
    ("DELETE", "/files", Requires(ChangeWorkflow)),
    ("POST", "/bulk_files", Requires(ChangeWorkflow)),
    ("GET", "/files/{id}", Requires(ReadWorkflow)),
    ("PUT", "/files/{id}", Requires(ChangeWorkflow)),
    ("DELETE", "/files/{id}", Requires(ChangeWorkflow)),

    ("GET", "/user_data", Requires(ReadWorkflow)),
    ("POST", "/user_data", Requires(ChangeUserData)),
    ("DELETE", "/user_data", Requires(ChangeWorkflow)),
    ("POST", "/bulk_user_data", Requires(ChangeWorkflow)),
    ("GET", "/user_data/{id}", Requires(ReadWorkflow)),
    ("PUT", "/user_data/{id}", Requires(ChangeUserData)),
    ("DELETE", "/user_data/{id}", Requires(ChangeWorkflow)),

    ("GET", "/resource_requirements", Requires(ReadWorkflow)),
    ("POST", "/resource_requirements", Requires(ChangeWorkflow)),
    ("DELETE", "/resource_requirements", Requires(ChangeWorkflow)),
    ("GET", "/resource_requirements/{id}", Requires(ReadWorkflow)),
    ("PUT", "/resource_requirements/{id}", Requires(ChangeWorkflow)),
    ("DELETE", "/resource_requirements/{id}", Requires(ChangeWorkflow)),

    ("POST", "/failure_handlers", Requires(ChangeWorkflow)),
    ("GET", "/failure_handlers/{id}", Requires(ReadWorkflow)),
    ("DELETE", "/failure_handlers/{id}", Requires(ChangeWorkflow)),

    ("GET", "/slurm_schedulers", Requires(ReadWorkflow)),
    ("POST", "/slurm_schedulers", Requires(ChangeWorkflow)),
    ("DELETE", "/slurm_schedulers", Requires(ChangeWorkflow)),
    ("GET", "/slurm_schedulers/{id}", Requires(ReadWorkflow)),
    ("PUT", "/slurm_schedulers/{id}", Requires(ChangeWorkflow)),
    ("DELETE", "/slurm_schedulers/{id}", Requires(ChangeWorkflow)),

    ("GET", "/results", Requires(ReadWorkflow)),
    ("POST", "/results", Requires(ChangeWorkflow)),
    ("DELETE", "/results", Requires(ChangeWorkflow)),
    ("GET", "/results/{id}", Requires(ReadWorkflow)),
    ("PUT", "/results/{id}", Requires(ChangeWorkflow)),
    ("DELETE", "/results/{id}", Requires(ChangeWorkflow)),

    ("GET", "/compute_nodes", Requires(ReadWorkflow)),
    ("POST", "/compute_nodes", Requires(RunJobs)),
    ("DELETE", "/compute_nodes", Requires(RunJobs)),
    ("GET", "/compute_nodes/{id}", Requires(ReadWorkflow)),
    ("PUT", "/compute_nodes/{id}", Requires(RunJobs)),
    ("DELETE", "/compute_nodes/{id}", Requires(RunJobs)),

    ("GET", "/events", Requires(ReadWorkflow)),
    ("POST", "/events", Requires(RunJobs)),
    ("DELETE", "/events", Requires(ChangeWorkflow)),
    ("GET", "/events/{id}", Requires(ReadWorkflow)),
    ("PUT", "/events/{id}", Requires(ChangeWorkflow)),
    ("DELETE", "/events/{id}", Requires(ChangeWorkflow)),

    ("GET", "/workflows/{id}/actions", Requires(ReadWorkflow)),
    ("POST", "/workflows/{id}/actions", Requires(ChangeWorkflow)),
    ("GET", "/workflows/{id}/actions/pending", Requires(ReadWorkflow)),
    ("PUT", "/workflows/{id}/actions/{action_id}", Requires(ChangeWorkflow)),
    ("DELETE", "/workflows/{id}/actions/{action_id}", Requires(ChangeWorkflow)),
    ("POST", "/workflows/{id}/actions/{action_id}/claim", Requires(RunJobs)),

    ("GET", "/local_schedulers", Requires(ReadWorkflow)),
    ("POST", "/local_schedulers", Requires(RunJobs)),
    ("DELETE", "/local_schedulers", Requires(RunJobs)),
    ("GET", "/local_schedulers/{id}", Requires(ReadWorkflow)),
    ("PUT", "/local_schedulers/{id}", Requires(RunJobs)),
    ("DELETE", "/local_schedulers/{id}", Requires(RunJobs)),
    ("GET", "/scheduled_compute_nodes", Requires(ReadWorkflow)),
    ("POST", "/scheduled_compute_nodes", Requires(RunJobs)),
    ("DELETE", "/scheduled_compute_nodes", Requires(RunJobs)),
    ("GET", "/scheduled_compute_nodes/{id}", Requires(ReadWorkflow)),
    ("PUT", "/scheduled_compute_nodes/{id}", Requires(RunJobs)),
    ("DELETE", "/scheduled_compute_nodes/{id}", Requires(RunJobs)),
    ("POST", "/ro_crate_entities", Requires(RunJobs)),
    ("GET", "/ro_crate_entities/{id}", Requires(ReadWorkflow)),
    ("PUT", "/ro_crate_entities/{id}", Requires(RunJobs)),
    ("DELETE", "/ro_crate_entities/{id}", Requires(RunJobs)),
    ("GET", "/workflows/{id}/ro_crate_entities", Requires(ReadWorkflow)),
    ("DELETE", "/workflows/{id}/ro_crate_entities", Requires(RunJobs)),
    ("GET", "/slurm_stats", Requires(ReadWorkflow)),
    ("POST", "/slurm_stats", Requires(RunJobs)),
    ("GET", "/workflows/{id}/remote_workers", Requires(ReadWorkflow)),
    ("POST", "/workflows/{id}/remote_workers", Requires(ChangeWorkflow)),
    ("DELETE", "/workflows/{id}/remote_workers/{worker}", Requires(ChangeWorkflow)),

    ("GET", "/access_groups", Requires(ListVisible)),
    ("POST", "/access_groups", Requires(CreateGroup)),
    ("GET", "/access_groups/{id}", Requires(ReadGroup)),
    ("DELETE", "/access_groups/{id}", Requires(DeleteGroup)),
    ("GET", "/access_groups/{id}/members", Requires(ReadGroup)),
    ("POST", "/access_groups/{id}/members", Requires(ChangeGroup)),
    ("DELETE", "/access_groups/{id}/members/{user_name}", Requires(ChangeGroup)),
    ("GET", "/users/{user_name}/groups", Requires(ListVisible)),
    ("GET", "/workflows/{id}/access_groups", Requires(ReadWorkflow)),
    ("POST", "/workflows/{id}/access_groups/{group_id}", Requires(ShareWorkflow)),
    ("DELETE", "/workflows/{id}/access_groups/{group_id}", Requires(ShareWorkflow)),
    ("GET", "/access_check/{workflow_id}/{user_name}", Requires(ReadWorkflow)),
];

/// Returns the access of a route, given its path as written in the router.
pub fn route_access(method: &str, path: &str) -> Option<RouteAccess> {
    let bare = [API_PREFIX, TORC_PREFIX].iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path);
    // Routes with GET also answer HEAD.
    let method = if method == "HEAD" { "GET" } else { method };
    let mut all = ROUTE_ACCESS.iter();
    all.find(|(known, template, _)| *known == method && *template == bare).map(|(.., declared)| *declared)
}

/// Middleware before every route: authenticates the caller and checks the operation in general.
pub(crate) async fn enforce_access(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let declared = path.as_deref().and_then(|path| route_access(request.method().as_str(), path));
    let operation = match declared {
        Some(Public) => None,
        Some(Requires(operation)) => Some(operation),
        None => return undeclared_response(path.as_deref().unwrap_or_default()),
    };
    let (mut parts, body) = request.into_parts();
    let credential = RequestCredential::from_parts(&parts);
    let Some(operation) = operation else {
        let known = credential.cached_principal(&state);
        return match count_request(&state, &credential, known.as_ref()) {
            Ok(()) => next.run(Request::from_parts(parts, body)).await,
            Err(error) => error.into_response(),
        };
    };
    let caller = match identify_caller(&state, &credential).await {
        Ok(caller) => caller,
        Err(error) => return error.into_response(),
    };
    let counted = if operation == ActAsWorker {
        state.rate_limiter.count_worker(&caller.0, credential.address(), parts.uri.path())
    } else {
        count_request(&state, &credential, Some(&caller.0))
    };
    let counted = counted.and_then(|()| credential.assign_connection(&caller.0.user));
    let (who, address) = (caller.0.clone(), credential.address());
    if let Err(error) = counted.and_then(|()| caller.authorize(operation, ObjectRelation::Own, "such thing"))
    {
        let mut response = error.into_response();
        response.extensions_mut().insert(RequestUser(Arc::clone(&who.user)));
        return response;
    }
    parts.extensions.insert(caller);
    parts.extensions.insert(credential);
    let may_change = parts.method != Method::GET && operation != ActAsWorker;
    let mut response = next.run(Request::from_parts(parts, body)).await;
    response.extensions_mut().insert(RequestUser(Arc::clone(&who.user)));
    if may_change {
        // The scheduler publishes its own events; this is for writes by handlers.
        state.events.wake();
    }
    if operation == ActAsWorker && response.status().is_client_error() {
        state.rate_limiter.count_rejected_worker(&who, address);
    }
    response
}

/// Authenticates the caller. Until a slow check completes, the request is counted as anonymous, or as one of the
/// worker whose job makes it: jobs are checked in the database each time.
async fn identify_caller(state: &AppState, credential: &RequestCredential) -> ApiResult<Caller> {
    if let Some(known) = credential.cached_principal(state) {
        return Ok(Caller(known));
    }
    match credential.job_signer(state) {
        Some(worker) => state.rate_limiter.count_job_of(worker)?,
        None => state.rate_limiter.count_anonymous(credential.address())?,
    }
    Ok(Caller(credential.authenticate(state).await?))
}

fn count_request(
    state: &AppState,
    credential: &RequestCredential,
    known: Option<&Principal>,
) -> ApiResult<()> {
    match known {
        Some(who) => state.rate_limiter.count_principal(who, credential.address()),
        None => state.rate_limiter.count_anonymous(credential.address()),
    }
}

/// The response for a method that the path does not support, or for a route without declared access.
fn undeclared_response(path: &str) -> Response {
    let mut methods: Vec<&str> = ["GET", "POST", "PUT", "PATCH", "DELETE"].to_vec();
    methods.retain(|method| route_access(method, path).is_some());
    if methods.is_empty() {
        return ApiError::forbidden("route has no declared permission").into_response();
    }
    let allow = HeaderValue::from_str(&methods.join(",")).unwrap_or(HeaderValue::from_static(""));
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, allow)]).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Method and path (without prefix) of every operation.
    fn offered() -> BTreeSet<(String, String)> {
        let document = serde_json::to_value(crate::build_openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let bare = |path: &str| {
            let prefix = [API_PREFIX, TORC_PREFIX].into_iter().find(|prefix| path.starts_with(prefix));
            path.strip_prefix(prefix.unwrap_or_default()).unwrap().to_owned()
        };
        let methods = |(path, item): (&String, &serde_json::Value)| {
            let path = bare(path);
            let item = item.as_object().unwrap().clone();
            let known = ["get", "put", "post", "delete", "patch", "head", "options", "trace"];
            let methods =
                item.into_iter().map(|(method, _)| method).filter(move |m| known.contains(&m.as_str()));
            methods.map(move |method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
        };
        paths.iter().flat_map(methods).collect()
    }

    #[test]
    fn every_route_declares_its_access() {
        let undeclared: Vec<_> =
            offered().into_iter().filter(|(method, path)| route_access(method, path).is_none()).collect();
        assert!(undeclared.is_empty(), "add these to ROUTE_ACCESS: {undeclared:#?}");
    }

    #[test]
    fn routes_are_declared_once() {
        let mut seen = BTreeSet::new();
        for (method, path, _) in ROUTE_ACCESS {
            assert!(seen.insert((method, path)), "{method} {path}");
        }
    }

    #[test]
    fn route_access_matches_prefix_and_method() {
        assert_eq!(route_access("GET", "/api/v1/jobs/{id}"), Some(Requires(ReadWorkflow)));
        assert_eq!(route_access("HEAD", "/torc-service/v1/jobs/{id}"), Some(Requires(ReadWorkflow)));
        assert_eq!(route_access("GET", "/health"), Some(Public));
        assert_eq!(route_access("POST", "/health"), None);
        assert_eq!(route_access("GET", "/api/v1/nothing"), None);
    }
}

//! Every route says what it does, and who may do that is decided here and in [`windlass_auth::judge`].
//!
//! Two steps. [`enforce`] stands before every route: it finds out who calls, and refuses whoever may not do such a thing
//! to any object. Handlers then ask for the object they were called for, which is not there for those whose business it
//! is not. A route that is not in [`DECLARED`] is refused to everybody.

use crate::caller::{Caller, Credential};
use crate::error::{API_PREFIX, Answer, ApiError, TORC_PREFIX};
use crate::state::AppState;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::ALLOW;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use windlass_auth::Operation::{
    self, Administer, CancelRequest, CancelWorkflow, ChangeGroup, ChangeRequest, ChangeTokens,
    ChangeUserData, ChangeWorkflow, CreateGroup, CreateRequest, CreateWorkflow, DecideAsAgent, DeleteGroup,
    DeleteWorkflow, Identify, IntroduceWorker, Look, ManageNodes, ManageSites, ManageWorker, Metrics,
    ReadGroup, ReadTokens, ReadWorker, ReadWorkflow, ShareWorkflow, SpawnJobs, SpeakAsWorker, Work,
};
use windlass_auth::{Principal, Relation};

/// What a route takes to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declared {
    /// Nothing: it says nothing that is not everybody's business.
    Public,
    Needs(Operation),
}

use Declared::{Needs, Public};

/// All routes, without their prefix.
#[rustfmt::skip]
pub const DECLARED: &[(&str, &str, Declared)] = &[
    ("GET", "/health", Public),
    ("GET", "/docs", Public),
    ("GET", "/openapi.json", Public),
    ("GET", "/metrics", Needs(Metrics)),
    ("POST", "/mcp", Needs(Look)),
    ("GET", "/ping", Needs(Identify)),
    ("GET", "/version", Needs(Identify)),

    ("GET", "/me", Needs(Identify)),
    ("GET", "/tokens", Needs(ReadTokens)),
    ("POST", "/tokens", Needs(ChangeTokens)),
    ("DELETE", "/tokens", Needs(ChangeTokens)),
    ("DELETE", "/tokens/{id}", Needs(ChangeTokens)),
    ("POST", "/admin/reload-auth", Needs(Administer)),
    ("GET", "/admin/audit-log", Needs(Administer)),
    ("GET", "/admin/api-stats", Needs(Administer)),
    ("POST", "/admin/sql", Needs(Administer)),

    ("POST", "/workers", Needs(IntroduceWorker)),
    ("POST", "/workers/{id}/exchange", Needs(SpeakAsWorker)),
    ("GET", "/workers", Needs(Look)),
    ("GET", "/workers/{id}", Needs(ReadWorker)),
    ("POST", "/workers/{id}/drain", Needs(ManageWorker)),
    ("POST", "/workers/{id}/retire", Needs(ManageWorker)),

    ("GET", "/nodes", Needs(Look)),
    ("POST", "/nodes", Needs(ManageNodes)),
    ("DELETE", "/nodes/{host}", Needs(ManageNodes)),

    ("GET", "/requests", Needs(Look)),
    ("POST", "/requests", Needs(CreateRequest)),
    ("GET", "/requests/{name}", Needs(Look)),
    ("PATCH", "/requests/{name}", Needs(ChangeRequest)),
    ("DELETE", "/requests/{name}", Needs(CancelRequest)),
    ("GET", "/requests/{name}/metrics", Needs(Look)),
    ("GET", "/requests/{name}/status", Needs(Look)),
    ("POST", "/requests/{name}/stop", Needs(ChangeRequest)),
    ("GET", "/requests/{name}/versions", Needs(Look)),
    ("GET", "/requests/{name}/files", Needs(Look)),
    ("GET", "/requests/{name}/errors", Needs(Look)),
    ("POST", "/requests/{name}/release", Needs(ChangeRequest)),
    ("POST", "/requests/{name}/fail", Needs(CancelRequest)),
    ("POST", "/requests/{name}/restart", Needs(CancelRequest)),
    ("POST", "/requests/{name}/invalidate", Needs(CancelRequest)),
    ("GET", "/alerts", Needs(Look)),
    ("GET", "/status", Needs(Look)),
    ("GET", "/request-workflows", Needs(Look)),
    ("GET", "/request-workflows/{id}", Needs(Look)),
    ("GET", "/request-workflows/{id}/status", Needs(Look)),
    ("GET", "/dags", Needs(Look)),
    ("GET", "/dags/{id}", Needs(Look)),
    ("GET", "/dags/{id}/nodes", Needs(Look)),
    ("GET", "/dags/{id}/logs", Needs(Look)),
    ("GET", "/dags/{id}/history", Needs(Look)),
    ("POST", "/dags/{id}/hold", Needs(ChangeRequest)),
    ("POST", "/dags/{id}/release", Needs(ChangeRequest)),
    ("POST", "/dags/{id}/remove", Needs(ChangeRequest)),
    ("POST", "/dags/{id}/rescue", Needs(ChangeRequest)),
    ("GET", "/admission/queue", Needs(Look)),
    ("PATCH", "/admission/config", Needs(ManageSites)),
    ("GET", "/lifecycle/status", Needs(Look)),
    ("GET", "/sites", Needs(Look)),
    ("GET", "/sites/bans", Needs(Look)),
    ("GET", "/sites/{name}", Needs(Look)),
    ("PATCH", "/sites/{name}", Needs(ManageSites)),
    ("POST", "/sites/{name}/drain", Needs(ManageSites)),
    ("POST", "/sites/{name}/enable", Needs(ManageSites)),
    ("POST", "/sites/{name}/ban", Needs(ManageSites)),
    ("DELETE", "/sites/{name}/ban", Needs(ManageSites)),
    ("GET", "/catalog/datasets", Needs(Look)),
    ("GET", "/catalog/dataset", Needs(Look)),
    ("DELETE", "/catalog/dataset", Needs(ManageSites)),
    ("GET", "/catalog/files", Needs(Look)),
    ("GET", "/catalog/blocks", Needs(Look)),
    ("POST", "/catalog/import", Needs(CreateRequest)),

    ("POST", "/books", Needs(Identify)),
    ("POST", "/books/create", Needs(CreateWorkflow)),
    ("GET", "/events/stream", Needs(Look)),
    ("GET", "/workflows/{id}/events/stream", Needs(ReadWorkflow)),
    ("POST", "/workflows/{id}/start", Needs(ChangeWorkflow)),

    ("GET", "/workflows/{id}/failures", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/failures/{signature}", Needs(ReadWorkflow)),
    ("POST", "/workflows/{id}/orders", Needs(DecideAsAgent)),
    ("GET", "/workflows/{id}/decisions", Needs(ReadWorkflow)),
    ("POST", "/workflows/{id}/decisions/{decision_id}", Needs(ChangeWorkflow)),
    ("GET", "/workflows/{id}/revisions", Needs(ReadWorkflow)),
    ("POST", "/workflows/{id}/revisions/{revision}/undo", Needs(ChangeWorkflow)),

    ("GET", "/workflows/{id}/allocations", Needs(ReadWorkflow)),
    ("POST", "/workflows/{id}/allocations", Needs(ChangeWorkflow)),
    ("POST", "/workflows/{id}/allocations/look", Needs(ReadWorkflow)),
    ("GET", "/allocations/{id}", Needs(ReadWorkflow)),
    ("DELETE", "/allocations/{id}", Needs(ChangeWorkflow)),
    ("GET", "/slurm", Needs(Look)),
    ("GET", "/workflows/{id}/allocations/accounts", Needs(ReadWorkflow)),

    ("GET", "/workflows", Needs(Look)),
    ("POST", "/workflows", Needs(CreateWorkflow)),
    ("GET", "/workflows/{id}", Needs(ReadWorkflow)),
    ("PUT", "/workflows/{id}", Needs(ChangeWorkflow)),
    ("DELETE", "/workflows/{id}", Needs(DeleteWorkflow)),
    ("POST", "/workflows/{id}/archive", Needs(ChangeWorkflow)),
    ("PUT", "/workflows/{id}/cancel", Needs(CancelWorkflow)),
    ("GET", "/workflows/{id}/status", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/is_complete", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/is_uninitialized", Needs(ReadWorkflow)),
    ("POST", "/workflows/{id}/initialize_jobs", Needs(ChangeWorkflow)),
    ("POST", "/workflows/{id}/reset_status", Needs(ChangeWorkflow)),
    ("POST", "/workflows/{id}/reset_job_status", Needs(ChangeWorkflow)),
    ("POST", "/workflows/{id}/process_changed_job_inputs", Needs(ChangeWorkflow)),
    ("GET", "/workflows/{id}/active_task", Needs(ReadWorkflow)),
    ("GET", "/tasks/{id}", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/job_ids", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/running_jobs", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/slurm_job_correlations", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/job_dependencies", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/job_file_relationships", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/job_user_data_relationships", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/required_existing_files", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/missing_user_data", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/ready_job_requirements", Needs(ReadWorkflow)),
    ("GET", "/workflows/{id}/failure_handlers", Needs(ReadWorkflow)),

    ("POST", "/workflows/{id}/claim_next_jobs", Needs(Work)),
    ("POST", "/workflows/{id}/claim_jobs_based_on_resources/{limit}", Needs(Work)),
    ("POST", "/workflows/{id}/batch_complete_jobs", Needs(Work)),
    ("PUT", "/jobs/{id}/start_job/{run_id}/{compute_node_id}", Needs(Work)),
    ("POST", "/jobs/{id}/complete_job/{status}/{run_id}", Needs(Work)),
    ("POST", "/jobs/{id}/retry/{run_id}", Needs(Work)),
    ("POST", "/jobs/{id}/spawn_jobs", Needs(SpawnJobs)),
    ("PUT", "/jobs/{id}/manage_status_change/{status}/{run_id}", Needs(ChangeWorkflow)),

    ("GET", "/jobs", Needs(ReadWorkflow)),
    ("POST", "/jobs", Needs(ChangeWorkflow)),
    ("DELETE", "/jobs", Needs(ChangeWorkflow)),
    ("POST", "/bulk_jobs", Needs(ChangeWorkflow)),
    ("GET", "/jobs/{id}", Needs(ReadWorkflow)),
    ("PUT", "/jobs/{id}", Needs(ChangeWorkflow)),
    ("DELETE", "/jobs/{id}", Needs(ChangeWorkflow)),

    ("GET", "/files", Needs(ReadWorkflow)),
    ("POST", "/files", Needs(ChangeWorkflow)),
    ("DELETE", "/files", Needs(ChangeWorkflow)),
    ("POST", "/bulk_files", Needs(ChangeWorkflow)),
    ("GET", "/files/{id}", Needs(ReadWorkflow)),
    ("PUT", "/files/{id}", Needs(ChangeWorkflow)),
    ("DELETE", "/files/{id}", Needs(ChangeWorkflow)),

    ("GET", "/user_data", Needs(ReadWorkflow)),
    ("POST", "/user_data", Needs(ChangeUserData)),
    ("DELETE", "/user_data", Needs(ChangeWorkflow)),
    ("POST", "/bulk_user_data", Needs(ChangeWorkflow)),
    ("GET", "/user_data/{id}", Needs(ReadWorkflow)),
    ("PUT", "/user_data/{id}", Needs(ChangeUserData)),
    ("DELETE", "/user_data/{id}", Needs(ChangeWorkflow)),

    ("GET", "/resource_requirements", Needs(ReadWorkflow)),
    ("POST", "/resource_requirements", Needs(ChangeWorkflow)),
    ("DELETE", "/resource_requirements", Needs(ChangeWorkflow)),
    ("GET", "/resource_requirements/{id}", Needs(ReadWorkflow)),
    ("PUT", "/resource_requirements/{id}", Needs(ChangeWorkflow)),
    ("DELETE", "/resource_requirements/{id}", Needs(ChangeWorkflow)),

    ("POST", "/failure_handlers", Needs(ChangeWorkflow)),
    ("GET", "/failure_handlers/{id}", Needs(ReadWorkflow)),
    ("DELETE", "/failure_handlers/{id}", Needs(ChangeWorkflow)),

    ("GET", "/slurm_schedulers", Needs(ReadWorkflow)),
    ("POST", "/slurm_schedulers", Needs(ChangeWorkflow)),
    ("DELETE", "/slurm_schedulers", Needs(ChangeWorkflow)),
    ("GET", "/slurm_schedulers/{id}", Needs(ReadWorkflow)),
    ("PUT", "/slurm_schedulers/{id}", Needs(ChangeWorkflow)),
    ("DELETE", "/slurm_schedulers/{id}", Needs(ChangeWorkflow)),

    ("GET", "/results", Needs(ReadWorkflow)),
    ("POST", "/results", Needs(ChangeWorkflow)),
    ("DELETE", "/results", Needs(ChangeWorkflow)),
    ("GET", "/results/{id}", Needs(ReadWorkflow)),
    ("PUT", "/results/{id}", Needs(ChangeWorkflow)),
    ("DELETE", "/results/{id}", Needs(ChangeWorkflow)),

    ("GET", "/compute_nodes", Needs(ReadWorkflow)),
    ("POST", "/compute_nodes", Needs(Work)),
    ("DELETE", "/compute_nodes", Needs(Work)),
    ("GET", "/compute_nodes/{id}", Needs(ReadWorkflow)),
    ("PUT", "/compute_nodes/{id}", Needs(Work)),
    ("DELETE", "/compute_nodes/{id}", Needs(Work)),

    ("GET", "/events", Needs(ReadWorkflow)),
    ("POST", "/events", Needs(Work)),
    ("DELETE", "/events", Needs(ChangeWorkflow)),
    ("GET", "/events/{id}", Needs(ReadWorkflow)),
    ("PUT", "/events/{id}", Needs(ChangeWorkflow)),
    ("DELETE", "/events/{id}", Needs(ChangeWorkflow)),

    ("GET", "/workflows/{id}/actions", Needs(ReadWorkflow)),
    ("POST", "/workflows/{id}/actions", Needs(ChangeWorkflow)),
    ("GET", "/workflows/{id}/actions/pending", Needs(ReadWorkflow)),
    ("PUT", "/workflows/{id}/actions/{action_id}", Needs(ChangeWorkflow)),
    ("DELETE", "/workflows/{id}/actions/{action_id}", Needs(ChangeWorkflow)),
    ("POST", "/workflows/{id}/actions/{action_id}/claim", Needs(Work)),

    ("GET", "/local_schedulers", Needs(ReadWorkflow)),
    ("POST", "/local_schedulers", Needs(Work)),
    ("DELETE", "/local_schedulers", Needs(Work)),
    ("GET", "/local_schedulers/{id}", Needs(ReadWorkflow)),
    ("PUT", "/local_schedulers/{id}", Needs(Work)),
    ("DELETE", "/local_schedulers/{id}", Needs(Work)),
    ("GET", "/scheduled_compute_nodes", Needs(ReadWorkflow)),
    ("POST", "/scheduled_compute_nodes", Needs(Work)),
    ("DELETE", "/scheduled_compute_nodes", Needs(Work)),
    ("GET", "/scheduled_compute_nodes/{id}", Needs(ReadWorkflow)),
    ("PUT", "/scheduled_compute_nodes/{id}", Needs(Work)),
    ("DELETE", "/scheduled_compute_nodes/{id}", Needs(Work)),
    ("POST", "/ro_crate_entities", Needs(Work)),
    ("GET", "/ro_crate_entities/{id}", Needs(ReadWorkflow)),
    ("PUT", "/ro_crate_entities/{id}", Needs(Work)),
    ("DELETE", "/ro_crate_entities/{id}", Needs(Work)),
    ("GET", "/workflows/{id}/ro_crate_entities", Needs(ReadWorkflow)),
    ("DELETE", "/workflows/{id}/ro_crate_entities", Needs(Work)),
    ("GET", "/slurm_stats", Needs(ReadWorkflow)),
    ("POST", "/slurm_stats", Needs(Work)),
    ("GET", "/workflows/{id}/remote_workers", Needs(ReadWorkflow)),
    ("POST", "/workflows/{id}/remote_workers", Needs(ChangeWorkflow)),
    ("DELETE", "/workflows/{id}/remote_workers/{worker}", Needs(ChangeWorkflow)),

    ("GET", "/access_groups", Needs(Look)),
    ("POST", "/access_groups", Needs(CreateGroup)),
    ("GET", "/access_groups/{id}", Needs(ReadGroup)),
    ("DELETE", "/access_groups/{id}", Needs(DeleteGroup)),
    ("GET", "/access_groups/{id}/members", Needs(ReadGroup)),
    ("POST", "/access_groups/{id}/members", Needs(ChangeGroup)),
    ("DELETE", "/access_groups/{id}/members/{user_name}", Needs(ChangeGroup)),
    ("GET", "/users/{user_name}/groups", Needs(Look)),
    ("GET", "/workflows/{id}/access_groups", Needs(ReadWorkflow)),
    ("POST", "/workflows/{id}/access_groups/{group_id}", Needs(ShareWorkflow)),
    ("DELETE", "/workflows/{id}/access_groups/{group_id}", Needs(ShareWorkflow)),
    ("GET", "/access_check/{workflow_id}/{user_name}", Needs(ReadWorkflow)),
];

/// What the route at this path, as it is written in the router, takes.
pub fn declared(method: &str, path: &str) -> Option<Declared> {
    let bare = [API_PREFIX, TORC_PREFIX].iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path);
    // What answers a GET also answers a HEAD.
    let method = if method == "HEAD" { "GET" } else { method };
    let mut all = DECLARED.iter();
    all.find(|(known, template, _)| *known == method && *template == bare).map(|(.., declared)| *declared)
}

/// The layer before every route: who calls is found out, and whether he may do such a thing at all.
pub(crate) async fn enforce(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let declared = path.as_deref().and_then(|path| declared(request.method().as_str(), path));
    let operation = match declared {
        Some(Public) => None,
        Some(Needs(operation)) => Some(operation),
        None => return undeclared(path.as_deref().unwrap_or_default()),
    };
    let (mut parts, body) = request.into_parts();
    let credential = Credential::of(&parts);
    let Some(operation) = operation else {
        let known = credential.known(&state);
        return match count(&state, &credential, known.as_ref()) {
            Ok(()) => next.run(Request::from_parts(parts, body)).await,
            Err(error) => error.into_response(),
        };
    };
    let caller = match identify(&state, &credential).await {
        Ok(caller) => caller,
        Err(error) => return error.into_response(),
    };
    let counted = if operation == SpeakAsWorker {
        state.rates.worker(&caller.0, credential.address(), parts.uri.path())
    } else {
        count(&state, &credential, Some(&caller.0))
    };
    let counted = counted.and_then(|()| credential.authenticated(&caller.0.user));
    if let Err(error) = counted.and_then(|()| caller.may(operation, Relation::Own, "such thing")) {
        return error.into_response();
    }
    let (who, address) = (caller.0.clone(), credential.address());
    parts.extensions.insert(caller);
    parts.extensions.insert(credential);
    let may_change = parts.method != Method::GET && operation != SpeakAsWorker;
    let response = next.run(Request::from_parts(parts, body)).await;
    if may_change {
        // What the service writes it tells of itself; this is for what handlers write.
        state.events.nudge();
    }
    if operation == SpeakAsWorker && response.status().is_client_error() {
        state.rates.refused(&who, address);
    }
    response
}

/// Who calls. Whoever has to be looked up is a stranger until that is done.
async fn identify(state: &AppState, credential: &Credential) -> Answer<Caller> {
    if let Some(known) = credential.known(state) {
        return Ok(Caller(known));
    }
    state.rates.stranger(credential.address())?;
    Ok(Caller(credential.admit(state).await?))
}

fn count(state: &AppState, credential: &Credential, known: Option<&Principal>) -> Answer<()> {
    match known {
        Some(who) => state.rates.known(who, credential.address()),
        None => state.rates.stranger(credential.address()),
    }
}

/// A method that the path does not have; or, if it has it, a route that does not say what it does.
fn undeclared(path: &str) -> Response {
    let mut methods: Vec<&str> = ["GET", "POST", "PUT", "PATCH", "DELETE"].to_vec();
    methods.retain(|method| declared(method, path).is_some());
    if methods.is_empty() {
        return ApiError::forbidden("nobody may do this: it does not say what it does").into_response();
    }
    let allow = HeaderValue::from_str(&methods.join(",")).unwrap_or(HeaderValue::from_static(""));
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, allow)]).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Method and bare path of everything that the server offers.
    fn offered() -> BTreeSet<(String, String)> {
        let document = serde_json::to_value(crate::openapi()).unwrap();
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
    fn every_route_says_what_it_does() {
        let undeclared: Vec<_> =
            offered().into_iter().filter(|(method, path)| declared(method, path).is_none()).collect();
        assert!(undeclared.is_empty(), "add these to DECLARED: {undeclared:#?}");
    }

    #[test]
    fn nothing_is_declared_twice() {
        let mut seen = BTreeSet::new();
        for (method, path, _) in DECLARED {
            assert!(seen.insert((method, path)), "{method} {path}");
        }
    }

    #[test]
    fn prefixes_and_methods() {
        assert_eq!(declared("GET", "/api/v1/jobs/{id}"), Some(Needs(ReadWorkflow)));
        assert_eq!(declared("HEAD", "/torc-service/v1/jobs/{id}"), Some(Needs(ReadWorkflow)));
        assert_eq!(declared("GET", "/health"), Some(Public));
        assert_eq!(declared("POST", "/health"), None);
        assert_eq!(declared("GET", "/api/v1/nothing"), None);
    }
}

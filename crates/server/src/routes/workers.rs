//! Remote workers: they register, and then exchange reports for assignments.

use super::worker_messages::{
    ExchangeReplyMessage, RegistrationReplyMessage, WorkerExchangeMessage, WorkerRegistrationMessage,
};
use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use crate::state::{AppState, call_service};
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_auth::{AuthOperation, ObjectRelation};
use windlass_core::node_quarantine::NodeEligibility;
use windlass_scheduler::service::{ConnectedWorker, WorkerCaller};
use windlass_store::model::{WorkerFilter, WorkerRow};
use windlass_types::worker_protocol::{ExchangeReply, RegistrationReply, WorkerExchange, WorkerRegistration};
use windlass_types::{LOCAL_SITE, WorkerId, WorkflowId};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_workers, register_worker))
        .routes(routes!(get_worker))
        .routes(routes!(drain_worker))
        .routes(routes!(retire_worker))
}

/// Maximum page length.
const MAX_LISTED: u64 = 100_000;

pub(crate) fn long_running_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(exchange_with_worker))
}

/// Register a worker
///
/// Also used by a worker that returns after a server restart. The response has a secret that every exchange
/// includes. The worker gets jobs of the workflows whose jobs its user may run.
#[utoipa::path(post, path = "/workers", tag = "workers", request_body = WorkerRegistrationMessage, responses(
    (status = 200, description = "The worker is registered", body = RegistrationReplyMessage),
    (status = 403, description = "The worker may not register at this site"),
    (status = 422, description = "A field is out of bounds"),
    (status = 409, description = "The previous identity is not valid")))]
async fn register_worker(
    State(state): State<AppState>,
    caller: Caller,
    Json(who): Json<WorkerRegistration>,
) -> ApiResult<Json<RegistrationReply>> {
    caller.authorize(AuthOperation::RegisterWorker, ObjectRelation::Own, "worker")?;
    check_site(&state, &caller, &who.site).await?;
    let owner = caller.authorize_registration(&state, &who).await?;
    let registration = call_service(|reply| state.service.register_worker(who, owner, reply)).await?;
    // Requests may wait for the site.
    state.lifecycle.wake_all();
    Ok(Json(registration))
}

/// Sites are shared: their slots are used for planning, and failures there ban them. So only operators may
/// register workers at a site, and a token with only the scope worker cannot create a site.
async fn check_site(state: &AppState, caller: &Caller, site: &str) -> ApiResult<()> {
    if site == LOCAL_SITE || caller.authorize(AuthOperation::ManageSites, ObjectRelation::Own, "site").is_ok()
    {
        return Ok(());
    }
    let refused = |detail: String, hint: String| Err(ApiError::forbidden(detail).with_hint(hint));
    if !caller.0.sees_all() {
        return refused(
            format!(
                "role {} may not register a worker at site `{site}`: this requires the role operator",
                caller.0.role
            ),
            "start the worker without `--site`, or with an operator's token".to_owned(),
        );
    }
    let name = site.to_owned();
    let is_known = state.with_database(move |db| Ok(db.sites()?.iter().any(|row| row.name == name))).await?;
    if is_known {
        return Ok(());
    }
    refused(
        format!("there is no site `{site}`, and a worker token cannot create one"),
        format!("create it first: `windlass site set {site} --status enabled`"),
    )
}

/// Exchange reports for assignments
///
/// Waits until there is work, or for the time given by the worker. Exchanges are numbered; one without a
/// response is repeated unchanged, and nothing is applied twice. A newer exchange ends the wait of an older
/// one.
#[utoipa::path(post, path = "/workers/{id}/exchange", tag = "workers", params(("id" = i64, Path,)),
    request_body = WorkerExchangeMessage, responses((status = 200, description = "Assignments and commands", body = ExchangeReplyMessage),
    (status = 422, description = "A field is out of bounds"),
    (status = 409, description = "The server no longer knows this worker: it has to register again")))]
async fn exchange_with_worker(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
    Json(mut exchange): Json<WorkerExchange>,
) -> ApiResult<Json<ExchangeReply>> {
    caller.authorize(AuthOperation::ActAsWorker, ObjectRelation::Own, "worker")?;
    if exchange.worker != WorkerId(id) {
        return Err(ApiError::invalid("the exchange belongs to another worker than the path"));
    }
    exchange.wait = exchange.wait.min(state.options.limits.max_wait);
    let listener = state.exchange_waiters.register(&state.service, &exchange);
    let speaker = if caller.0.sees_all() {
        WorkerCaller::Operator
    } else {
        WorkerCaller::User(Arc::clone(&caller.0.user))
    };
    let answer = call_service(|reply| state.service.exchange(exchange, speaker, reply)).await;
    listener.mark_answered();
    answer.map(Json)
}

/// A worker.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct WorkerResponse {
    /// Id of the worker.
    id: i64,
    /// `local`, `remote`, `torc`, or `claims` for clients that claim jobs anonymously.
    kind: &'static str,
    /// User whose token the worker uses.
    user: String,
    /// Host name of the machine.
    host: String,
    /// Process id of the worker.
    pid: u32,
    /// Runs jobs of this workflow only.
    workflow_id: Option<i64>,
    /// Site of the worker; `null` for Torc clients, which have no site.
    site: Option<String>,
    /// Labels of the worker.
    labels: Vec<String>,
    /// Version of windlass on the worker.
    version: String,
    /// CPUs that jobs may use.
    num_cpus: u32,
    /// Memory that jobs may use.
    memory_bytes: u64,
    /// GPUs that jobs may use.
    num_gpus: u32,
    /// Maximum number of concurrent jobs; `null`: no limit.
    max_jobs: Option<u32>,
    /// When the worker registered.
    started_at: String,
    /// When the worker left or was lost.
    ended_at: Option<String>,
    /// Whether the worker is connected.
    is_active: bool,
    /// Gets no new jobs, and leaves when its jobs have ended.
    is_draining: bool,
    /// Number of jobs held now. `null` without a lease, or if the worker is gone.
    held_jobs: Option<u64>,
    /// Seconds since the last contact.
    silence_seconds: Option<f64>,
    /// Remaining seconds, if its time is limited.
    time_left_seconds: Option<f64>,
    /// `trusted`, `quarantined` (its node is in quarantine and gets no jobs) or `on_probation` (one job at a time
    /// until one completes).
    standing: &'static str,
    /// Why the node is in quarantine, and until when.
    quarantine_reason: Option<String>,
    /// When the quarantine of its node ends.
    quarantined_until: Option<String>,
}

impl WorkerResponse {
    /// Adds the session data that is not in the database.
    fn with_presence(mut self, present: &[ConnectedWorker]) -> Self {
        if let Some(present) = present.iter().find(|one| one.worker.0 == self.id) {
            self.is_draining |= present.is_draining;
            self.held_jobs = Some(present.held_jobs as u64);
            self.silence_seconds = Some(present.silence.as_secs_f64());
            self.time_left_seconds = present.time_left.map(|left| left.as_secs_f64());
            self.standing = present.standing.as_str();
            self.quarantine_reason = present.quarantine.as_ref().map(|aside| aside.reason.clone());
            self.quarantined_until = present.quarantine.as_ref().map(|aside| aside.until.to_string());
        }
        self
    }
}

impl From<WorkerRow> for WorkerResponse {
    fn from(row: WorkerRow) -> Self {
        let is_active = row.is_active();
        let WorkerRow { id, worker, started_at, ended_at, is_draining } = row;
        Self {
            id: id.0,
            kind: worker.kind.name(),
            user: worker.user,
            host: worker.host,
            pid: worker.pid,
            workflow_id: worker.workflow.map(|id| id.0),
            site: worker.site,
            labels: worker.labels,
            version: worker.version,
            num_cpus: worker.capacity.cpus,
            memory_bytes: worker.capacity.memory.0,
            num_gpus: worker.capacity.gpus,
            max_jobs: worker.capacity.max_jobs,
            started_at: started_at.to_string(),
            ended_at: ended_at.map(|at| at.to_string()),
            is_active,
            is_draining,
            held_jobs: None,
            silence_seconds: None,
            time_left_seconds: None,
            standing: NodeEligibility::Trusted.as_str(),
            quarantine_reason: None,
            quarantined_until: None,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WorkerListQuery {
    /// Only workers of this workflow, and those of all workflows.
    workflow: Option<i64>,
    /// true: only connected workers. false: only those that are gone.
    is_active: Option<bool>,
    /// Number of workers to skip.
    #[param(minimum = 0)]
    offset: Option<u64>,
    /// Maximum number of workers.
    #[param(minimum = 1, maximum = 100_000)]
    limit: Option<u64>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct WorkerListResponse {
    /// The entries of this page or list.
    items: Vec<WorkerResponse>,
}

/// List workers
///
/// The caller's own workers; operators see all.
#[utoipa::path(get, path = "/workers", tag = "workers", params(WorkerListQuery),
    responses((status = 200, description = "Oldest first", body = WorkerListResponse)))]
async fn list_workers(
    State(state): State<AppState>,
    caller: Caller,
    Query(which): Query<WorkerListQuery>,
) -> ApiResult<Json<WorkerListResponse>> {
    caller.authorize(AuthOperation::ListVisible, ObjectRelation::Own, "worker")?;
    let filter = WorkerFilter {
        workflow: which.workflow.map(WorkflowId),
        also_shared: true,
        is_active: which.is_active,
        offset: which.offset.unwrap_or(0),
        limit: Some(which.limit.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED)),
        ..WorkerFilter::default()
    };
    let rows = state.with_store(move |store| store.workers(&filter)).await?;
    let seen = |row: &WorkerRow| {
        caller.authorize(AuthOperation::ReadWorker, caller.relation_to_user(&row.worker.user), "").is_ok()
    };
    let present = call_service(|reply| state.service.list_workers(reply)).await?;
    let items =
        rows.into_iter().filter(seen).map(|row| WorkerResponse::from(row).with_presence(&present)).collect();
    Ok(Json(WorkerListResponse { items }))
}

/// Get a worker
#[utoipa::path(get, path = "/workers/{id}", tag = "workers", params(("id" = i64, Path,)),
    responses((status = 200, description = "It", body = WorkerResponse), (status = 404, description = "Worker not found")))]
async fn get_worker(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> ApiResult<Json<WorkerResponse>> {
    let row = caller.authorize_worker(&state, AuthOperation::ReadWorker, WorkerId(id)).await?;
    let present = call_service(|reply| state.service.list_workers(reply)).await?;
    Ok(Json(WorkerResponse::from(row).with_presence(&present)))
}

/// Drain a worker: it gets no new jobs and leaves when its jobs have ended
#[utoipa::path(post, path = "/workers/{id}/drain", tag = "workers", params(("id" = i64, Path,)),
    responses((status = 200, description = "The worker is draining", body = Value),
    (status = 404, description = "Worker not found")))]
async fn drain_worker(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> ApiResult<Json<Value>> {
    let worker = caller.authorize_worker(&state, AuthOperation::ManageWorker, WorkerId(id)).await?.id;
    call_service(|reply| state.service.drain_worker(worker, reply)).await?;
    Ok(Json(serde_json::json!({"id": id, "draining": true})))
}

/// Retire a worker that is certainly dead
///
/// Its jobs run again at once instead of after the end of its lease. If the worker is alive, jobs may run
/// twice.
#[utoipa::path(post, path = "/workers/{id}/retire", tag = "workers", params(("id" = i64, Path,)),
    responses((status = 200, description = "Its jobs are reassigned", body = Value),
    (status = 404, description = "Worker not found")))]
async fn retire_worker(
    State(state): State<AppState>,
    caller: Caller,
    Path(id): Path<i64>,
) -> ApiResult<Json<Value>> {
    let worker = caller.authorize_worker(&state, AuthOperation::ManageWorker, WorkerId(id)).await?.id;
    call_service(|reply| state.service.retire_worker(worker, caller.user(), reply)).await?;
    Ok(Json(serde_json::json!({"id": id, "retired": true})))
}

//! The Model Context Protocol for agents, at `/mcp`: each request runs in a session of its own caller.
//!
//! The session reads the database through the store calls with the caller's permissions, and changes go to the
//! scheduler with them too: an agent sees and changes only what its user may. No state is kept between
//! requests.

use super::{requests, store_calls};
use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::options::AgentPermission;
use crate::slurm_allocations;
use crate::state::{AppState, call_service};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::io::Read;
use std::sync::Arc;
use tokio::runtime::Handle;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_auth::{AuthOperation, ObjectRelation};
use windlass_core::job_explanation::WorkerAvailability;
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_insight::allocation_planning;
use windlass_insight::recovery::EligibleWorkers;
use windlass_mcp::{
    AgentActions, AgentCapability, AgentSession, JobVariables, RequestToolCall, SpecText, ToolError,
    create_workflow, load_job_variables,
};
use windlass_scheduler::service::JobsToReset;
use windlass_store::model::{WorkerFilter, WorkerRow};
use windlass_store::rpc::rpc_error::{ErrorCategory, RemoteError};
use windlass_store::rpc::{self, RpcStore, RpcTransport, StoreCall as Asked};
use windlass_store::{Store, StoreError, StoreLocation};
use windlass_types::slurm::AllocationRequest;
use windlass_types::{JobId, Timestamp, WorkflowId};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(handle_mcp))
}

/// Call the Model Context Protocol server
///
/// For AI agents: one JSON-RPC message per request and response ("streamable HTTP", without sessions). The
/// tools have the permissions of the caller. Available only if the server was started with `--mcp`.
#[utoipa::path(post, path = "/mcp", tag = "agents", request_body = serde_json::Value, responses(
    (status = 200, description = "JSON-RPC response", body = serde_json::Value),
    (status = 202, description = "Notification accepted"),
    (status = 404, description = "MCP is not enabled on this server")))]
async fn handle_mcp(State(state): State<AppState>, caller: Caller, request: Request) -> ApiResult<Response> {
    let rights = state.options.mcp.ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", "MCP is not enabled on this server")
            .with_hint("start it with `windlass serve --mcp`")
    })?;
    let request_service = agent_session(&state, &caller, rights);
    Ok(windlass_mcp::respond_http(request_service, request).await.map(Body::new))
}

fn agent_session(state: &AppState, caller: &Caller, rights: AgentPermission) -> AgentSession {
    let backend = CallerBackend { state: state.clone(), caller: caller.clone(), runtime: Handle::current() };
    AgentSession {
        store: Arc::new(RpcStore::new(backend.clone())),
        actions: Arc::new(backend),
        masking: state.authenticator.masking(),
        agent: format!("agent of {}", caller.user()),
        known_as: None,
        allow_write: rights == AgentPermission::Write,
    }
}

/// Store and actions with the permissions of one caller. Used on threads that may block.
#[derive(Clone, Debug)]
struct CallerBackend {
    state: AppState,
    caller: Caller,
    runtime: Handle,
}

impl RpcTransport for CallerBackend {
    fn location(&self) -> StoreLocation {
        StoreLocation::Server("this server".to_owned())
    }

    fn call(&self, request: &Asked, _now: Timestamp) -> Result<Vec<u8>, StoreError> {
        let answer =
            self.runtime.block_on(store_calls::perform_call(&self.state, &self.caller, request.clone()));
        answer.map(|answer| answer.body).map_err(|refused| remote_store_error(refused).into())
    }

    fn send_new_workflow(&self, lines: Box<dyn Read + Send>, now: Timestamp) -> Result<Vec<u8>, StoreError> {
        let made = self.create_workflow_from_lines(lines, now);
        made.map(|made| rpc::StoreReply::new(made).body).map_err(|refused| remote_store_error(refused).into())
    }
}

/// Converts an error to the form that remote stores return.
fn remote_store_error(refused: ApiError) -> RemoteError {
    let sort = match refused.status.as_u16() {
        404 | 410 => ErrorCategory::Missing,
        401 | 403 => ErrorCategory::Forbidden,
        400 | 413 | 422 => ErrorCategory::Wrong,
        429 | 502..=504 => ErrorCategory::Unavailable,
        500.. => ErrorCategory::Internal,
        _ => ErrorCategory::Refused,
    };
    RemoteError {
        category: sort,
        code: refused.code.into_owned(),
        message: refused.detail,
        hint: refused.hint,
    }
}

fn tool_error(refused: ApiError) -> ToolError {
    ToolError { message: refused.detail, hint: refused.hint }
}

/// Includes the errors of all fields.
fn detailed_tool_error(refused: ApiError) -> ToolError {
    let faults: Vec<String> = refused.errors.iter().map(ToString::to_string).collect();
    let mut problem = tool_error(refused);
    if !faults.is_empty() {
        problem.message = format!("{}: {}", problem.message, faults.join("; "));
    }
    problem
}

impl CallerBackend {
    /// Creates a workflow from its lines; the caller becomes the owner.
    fn create_workflow_from_lines(
        &self,
        lines: Box<dyn Read + Send>,
        now: Timestamp,
    ) -> ApiResult<Result<WorkflowId, StoreError>> {
        self.caller.authorize(AuthOperation::CreateWorkflow, ObjectRelation::Own, "workflow")?;
        let store = self.state.store.acting_as(self.caller.user());
        let lines = store_calls::spool_reader(lines, self.state.options.limits.max_upload)?;
        let made = rpc::workflow_upload::create_from_lines(&*store, lines, Some(self.caller.user()), now);
        self.state.events.wake();
        Ok(made)
    }

    fn check_can_create_workflows(&self) -> Result<(), ToolError> {
        self.caller
            .authorize(AuthOperation::CreateWorkflow, ObjectRelation::Own, "workflow")
            .map_err(tool_error)
    }

    /// Performs an operation on a workflow if the caller may.
    fn perform_on_workflow<T, F>(
        &self,
        operation: AuthOperation,
        id: WorkflowId,
        work: F,
    ) -> Result<T, ToolError>
    where
        F: AsyncFnOnce(&AppState, &str) -> ApiResult<T>,
    {
        let done = self.runtime.block_on(async {
            self.caller.authorize_workflow(&self.state, operation, id).await?;
            let done = work(&self.state, self.caller.user()).await;
            self.state.events.wake();
            done
        });
        done.map_err(tool_error)
    }
}

impl AgentActions for CallerBackend {
    fn supports(&self, skill: AgentCapability) -> bool {
        match skill {
            AgentCapability::CreateWorkflows => true,
            AgentCapability::PlanAllocations => self.state.allocation_reconciler.is_some(),
            AgentCapability::ReadJournals => false,
        }
    }

    /// Callers that may create workflows may see the cluster's resources.
    fn load_cluster_profile(&self, profile: Option<&str>) -> Result<ClusterProfile, ToolError> {
        if let Some(name) = profile {
            return Err(ToolError::new(format!("there is no HPC profile `{name}` on this server"))
                .with_hint("omit hpc_profile: this server asks its own cluster"));
        }
        self.check_can_create_workflows()?;
        slurm_allocations::load_cluster_profile(&self.state).map_err(tool_error)
    }

    fn estimate_start(&self, request: &AllocationRequest) -> Result<String, ToolError> {
        self.check_can_create_workflows()?;
        slurm_allocations::estimate_start(&self.state, request).map_err(tool_error)
    }

    fn slurm_accounting(&self, workflow: WorkflowId) -> Result<Vec<Value>, ToolError> {
        let allowed = self.caller.authorize_workflow(&self.state, AuthOperation::ReadWorkflow, workflow);
        self.runtime.block_on(allowed).map_err(tool_error)?;
        let rows = slurm_allocations::load_slurm_accounting(&self.state, workflow).map_err(tool_error)?;
        Ok(rows.iter().filter_map(|row| serde_json::to_value(row).ok()).collect())
    }

    /// Includes workers of all workflows that the caller may see, and session data that is not in the database:
    /// remaining time, and draining.
    fn available_workers(
        &self,
        _: &dyn Store,
        workflow: WorkflowId,
    ) -> Result<Vec<WorkerAvailability>, ToolError> {
        let filter = WorkerFilter {
            workflow: Some(workflow),
            also_shared: true,
            is_active: Some(true),
            ..WorkerFilter::default()
        };
        let caller = &self.caller;
        let may_see = |row: &WorkerRow| {
            caller
                .authorize(AuthOperation::ReadWorker, caller.relation_to_user(&row.worker.user), "worker")
                .is_ok()
        };
        let mut rows = self.state.store.workers(&filter)?;
        rows.retain(may_see);
        let present = self
            .runtime
            .block_on(call_service(|reply| self.state.service.list_workers(reply)))
            .map_err(tool_error)?;
        let offer = |row: WorkerRow| {
            let now = present.iter().find(|one| one.worker == row.id);
            WorkerAvailability {
                name: format!("worker {} on {}", row.id, row.worker.host),
                worker: Some(row.id),
                silence: now.map(|now| now.silence),
                labels: row.worker.labels,
                site: row.worker.site,
                is_draining: row.is_draining || now.is_some_and(|now| now.is_draining),
                time_left: now.and_then(|now| now.time_left),
                ..WorkerAvailability::from_capacity(row.worker.capacity)
            }
        };
        Ok(rows.into_iter().map(offer).collect())
    }

    /// With Slurm, capacities of current workers say little: new allocations bring others.
    fn eligible_capacity(
        &self,
        jobs_store: &dyn Store,
        workflow: WorkflowId,
    ) -> Result<EligibleWorkers, ToolError> {
        if allocation_planning::is_on_slurm(jobs_store, workflow)?
            && let Ok(profile) = slurm_allocations::load_cluster_profile(&self.state)
        {
            let settings = jobs_store.workflow(workflow)?.map(|row| row.settings).unwrap_or_default();
            return Ok(allocation_planning::cluster_capacity(&profile, None, &settings));
        }
        EligibleWorkers::from_offers(&self.available_workers(jobs_store, workflow)?)
            .or_last_connected(&*self.state.store, workflow)
            .map_err(ToolError::from)
    }

    fn create_workflow(&self, spec: &SpecText, working_dir: Option<&str>) -> Result<Value, ToolError> {
        create_workflow(&RpcStore::new(self.clone()), spec, working_dir, self.caller.user())
    }

    fn perform_request_call(&self, asked: &RequestToolCall) -> Result<Value, ToolError> {
        let answer = requests::answer_agent(&self.state, &self.caller, asked.clone());
        self.runtime.block_on(answer).map_err(detailed_tool_error)
    }

    fn start_workflow(&self, workflow: WorkflowId) -> Result<Value, ToolError> {
        let run = self.perform_on_workflow(AuthOperation::ChangeWorkflow, workflow, async |state, by| {
            call_service(|reply| state.service.start_workflow(workflow, by, reply)).await
        })?;
        Ok(json!({ "workflow_id": workflow, "run_id": run, "state": "started: workers may claim its jobs" }))
    }

    fn cancel_workflow(&self, workflow: WorkflowId) -> Result<Value, ToolError> {
        self.perform_on_workflow(AuthOperation::CancelWorkflow, workflow, async |state, by| {
            call_service(|reply| state.service.cancel_workflow(workflow, by, reply)).await
        })?;
        Ok(json!({ "workflow_id": workflow, "state": "canceling: workers stop the running jobs" }))
    }

    fn reset_workflow(&self, workflow: WorkflowId, failed_only: bool) -> Result<Value, ToolError> {
        let which = if failed_only { JobsToReset::Failed } else { JobsToReset::All };
        let jobs = self.perform_on_workflow(AuthOperation::ChangeWorkflow, workflow, async |state, by| {
            call_service(|reply| state.service.reset_jobs(workflow, which, by, reply)).await
        })?;
        Ok(json!({ "workflow_id": workflow, "jobs": jobs, "next": "created; run_workflow starts it" }))
    }

    /// Returns the unmasked values: they are removed from texts that the caller sees.
    fn load_job_variables(
        &self,
        _: &dyn Store,
        workflow: WorkflowId,
        jobs: &[JobId],
    ) -> Result<Vec<JobVariables>, ToolError> {
        load_job_variables(&*self.state.store, workflow, jobs)
    }
}

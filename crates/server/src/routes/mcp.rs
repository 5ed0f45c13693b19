//! The Model Context Protocol for agents, at `/mcp`: each request is answered at the desk of its own caller.
//!
//! His books are those of `/books`, asked in his name: what he may not see there, his agent does not see here. What
//! changes something goes to the service in his name too. Nothing is kept between requests.

use super::{books, requests};
use crate::caller::Caller;
use crate::error::{Answer, ApiError};
use crate::options::AgentRights;
use crate::slurm;
use crate::state::{AppState, ask};
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
use windlass_auth::{Operation, Relation};
use windlass_core::slurm::profile::Profile;
use windlass_core::why::Offer;
use windlass_engine::service::ResetWhich;
use windlass_insight::allocating;
use windlass_insight::recovery::Room;
use windlass_mcp::{
    AboutRequests, Desk, Environment, Hands, Skill, SpecText, Trouble, environments, make_workflow,
};
use windlass_store::model::{WorkerFilter, WorkerRow};
use windlass_store::wire::error::{Elsewhere, Sort};
use windlass_store::wire::{self, Remote, Request as Asked, Transport};
use windlass_store::{Error, Location, Store};
use windlass_types::slurm::AllocationRequest;
use windlass_types::{JobId, Timestamp, WorkflowId};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(mcp))
}

/// Speak the Model Context Protocol
///
/// For AI agents: one JSON-RPC message in, one out ("streamable HTTP", without sessions). The tools see and do what
/// whoever sends the request may see and do. Not there unless the server was started with `--mcp`.
#[utoipa::path(post, path = "/mcp", tag = "agents", request_body = serde_json::Value, responses(
    (status = 200, description = "The answer", body = serde_json::Value),
    (status = 202, description = "Taken note of"),
    (status = 404, description = "This server does not speak it")))]
async fn mcp(State(state): State<AppState>, caller: Caller, request: Request) -> Answer<Response> {
    let rights = state.options.mcp.ok_or_else(|| {
        ApiError::new(StatusCode::NOT_FOUND, "not_found", "this server does not speak to agents")
            .with_hint("`windlass serve --mcp` does")
    })?;
    let desk = desk(&state, &caller, rights);
    Ok(windlass_mcp::respond(desk, request).await.map(Body::new))
}

fn desk(state: &AppState, caller: &Caller, rights: AgentRights) -> Desk {
    let seat = Seat { state: state.clone(), caller: caller.clone(), runtime: Handle::current() };
    Desk {
        books: Arc::new(Remote::new(seat.clone())),
        hands: Arc::new(seat),
        masking: state.auth.masking(),
        agent: format!("agent of {}", caller.user()),
        known_as: None,
        allow_write: rights == AgentRights::Write,
    }
}

/// The place of one caller. Used on threads that may block.
#[derive(Clone, Debug)]
struct Seat {
    state: AppState,
    caller: Caller,
    runtime: Handle,
}

impl Transport for Seat {
    fn location(&self) -> Location {
        Location::Server("this server".to_owned())
    }

    fn call(&self, request: &Asked, _now: Timestamp) -> Result<Vec<u8>, Error> {
        let answer = self.runtime.block_on(books::perform(&self.state, &self.caller, request.clone()));
        answer.map(|answer| answer.body).map_err(|refused| elsewhere(refused).into())
    }

    fn create(&self, lines: Box<dyn Read + Send>, now: Timestamp) -> Result<Vec<u8>, Error> {
        let made = self.make(lines, now);
        made.map(|made| wire::Answer::new(made).body).map_err(|refused| elsewhere(refused).into())
    }
}

/// A refusal, as books that are elsewhere tell it.
fn elsewhere(refused: ApiError) -> Elsewhere {
    let sort = match refused.status.as_u16() {
        404 | 410 => Sort::Missing,
        401 | 403 => Sort::Forbidden,
        400 | 413 | 422 => Sort::Wrong,
        429 | 502..=504 => Sort::Surroundings,
        500.. => Sort::Internal,
        _ => Sort::Refused,
    };
    Elsewhere { sort, code: refused.code.into_owned(), message: refused.detail, hint: refused.hint }
}

fn trouble(refused: ApiError) -> Trouble {
    Trouble { message: refused.detail, hint: refused.hint }
}

/// With all that is wrong with what was sent.
fn told_whole(refused: ApiError) -> Trouble {
    let faults: Vec<String> = refused.errors.iter().map(ToString::to_string).collect();
    let mut trouble = trouble(refused);
    if !faults.is_empty() {
        trouble.message = format!("{}: {}", trouble.message, faults.join("; "));
    }
    trouble
}

impl Seat {
    /// Makes a workflow of its lines if he may; it is his.
    fn make(&self, lines: Box<dyn Read + Send>, now: Timestamp) -> Answer<Result<WorkflowId, Error>> {
        self.caller.may(Operation::CreateWorkflow, Relation::Own, "workflow")?;
        let store = self.state.store.acting_as(self.caller.user());
        let lines = books::keep(lines, self.state.options.limits.max_upload)?;
        let made = wire::create::create(&*store, lines, Some(self.caller.user()), now);
        self.state.events.nudge();
        Ok(made)
    }

    fn may_make_workflows(&self) -> Result<(), Trouble> {
        self.caller.may(Operation::CreateWorkflow, Relation::Own, "workflow").map_err(trouble)
    }

    /// Does something to a workflow if he may.
    fn to_workflow<T, F>(&self, operation: Operation, id: WorkflowId, work: F) -> Result<T, Trouble>
    where
        F: AsyncFnOnce(&AppState, &str) -> Answer<T>,
    {
        let done = self.runtime.block_on(async {
            self.caller.workflow(&self.state, operation, id).await?;
            let done = work(&self.state, self.caller.user()).await;
            self.state.events.nudge();
            done
        });
        done.map_err(trouble)
    }
}

impl Hands for Seat {
    fn can(&self, skill: Skill) -> bool {
        match skill {
            Skill::MakeWorkflows => true,
            Skill::PlanAllocations => self.state.steward.is_some(),
            Skill::ReadJournals => false,
        }
    }

    /// What the cluster has may be known to whoever may make workflows for it.
    fn cluster(&self, profile: Option<&str>) -> Result<Profile, Trouble> {
        if let Some(name) = profile {
            return Err(Trouble::refused(format!("there is no profile `{name}` here"))
                .with_hint("leave out hpc_profile: this server asks its own cluster"));
        }
        self.may_make_workflows()?;
        slurm::cluster(&self.state).map_err(trouble)
    }

    fn would_start(&self, request: &AllocationRequest) -> Result<String, Trouble> {
        self.may_make_workflows()?;
        slurm::would_start(&self.state, request).map_err(trouble)
    }

    fn accounts(&self, workflow: WorkflowId) -> Result<Vec<Value>, Trouble> {
        let allowed = self.caller.workflow(&self.state, Operation::ReadWorkflow, workflow);
        self.runtime.block_on(allowed).map_err(trouble)?;
        let rows = slurm::accounts(&self.state, workflow).map_err(trouble)?;
        Ok(rows.iter().filter_map(|row| serde_json::to_value(row).ok()).collect())
    }

    /// Also those that work for all, as far as he may see them, and with what of them stands in no row: how long they stay,
    /// and who takes nothing more.
    fn workers(&self, _: &dyn Store, workflow: WorkflowId) -> Result<Vec<Offer>, Trouble> {
        let filter = WorkerFilter {
            workflow: Some(workflow),
            also_shared: true,
            is_active: Some(true),
            ..WorkerFilter::default()
        };
        let caller = &self.caller;
        let may_see = |row: &WorkerRow| {
            caller.may(Operation::ReadWorker, caller.relation_to(&row.worker.user), "worker").is_ok()
        };
        let mut rows = self.state.store.workers(&filter)?;
        rows.retain(may_see);
        let present =
            self.runtime.block_on(ask(|reply| self.state.service.roster(reply))).map_err(trouble)?;
        let offer = |row: WorkerRow| {
            let now = present.iter().find(|one| one.worker == row.id);
            Offer {
                name: format!("worker {} on {}", row.id, row.worker.host),
                worker: Some(row.id),
                silence: now.map(|now| now.silence),
                labels: row.worker.labels,
                site: row.worker.site,
                is_draining: row.is_draining || now.is_some_and(|now| now.is_draining),
                time_left: now.and_then(|now| now.time_left),
                ..Offer::of(row.worker.capacity)
            }
        };
        Ok(rows.into_iter().map(offer).collect())
    }

    /// What workers have now says little where new allocations bring others.
    fn room(&self, books: &dyn Store, workflow: WorkflowId) -> Result<Room, Trouble> {
        if allocating::is_on_slurm(books, workflow)?
            && let Ok(profile) = slurm::cluster(&self.state)
        {
            let settings = books.workflow(workflow)?.map(|row| row.settings).unwrap_or_default();
            return Ok(allocating::room(&profile, None, &settings));
        }
        Ok(Room::of(&self.workers(books, workflow)?))
    }

    fn create(&self, spec: &SpecText, working_dir: Option<&str>) -> Result<Value, Trouble> {
        make_workflow(&Remote::new(self.clone()), spec, working_dir, self.caller.user())
    }

    fn requests(&self, asked: &AboutRequests) -> Result<Value, Trouble> {
        let answer = requests::answer_agent(&self.state, &self.caller, asked.clone());
        self.runtime.block_on(answer).map_err(told_whole)
    }

    fn start(&self, workflow: WorkflowId) -> Result<Value, Trouble> {
        let run = self.to_workflow(Operation::ChangeWorkflow, workflow, async |state, by| {
            ask(|reply| state.service.start_workflow(workflow, by, reply)).await
        })?;
        Ok(json!({ "workflow_id": workflow, "run_id": run, "state": "workers may have it" }))
    }

    fn cancel(&self, workflow: WorkflowId) -> Result<Value, Trouble> {
        self.to_workflow(Operation::CancelWorkflow, workflow, async |state, by| {
            ask(|reply| state.service.cancel(workflow, by, reply)).await
        })?;
        Ok(json!({ "workflow_id": workflow, "state": "canceling: workers end what runs" }))
    }

    fn reset(&self, workflow: WorkflowId, failed_only: bool) -> Result<Value, Trouble> {
        let which = if failed_only { ResetWhich::Failed } else { ResetWhich::All };
        let jobs = self.to_workflow(Operation::ChangeWorkflow, workflow, async |state, by| {
            ask(|reply| state.service.reset_jobs(workflow, which, by, reply)).await
        })?;
        Ok(json!({ "workflow_id": workflow, "jobs": jobs, "next": "run_workflow has them run" }))
    }

    /// As they are, although he may not see them: they are what is taken out of what he sees.
    fn environments(
        &self,
        _: &dyn Store,
        workflow: WorkflowId,
        jobs: &[JobId],
    ) -> Result<Vec<Environment>, Trouble> {
        environments(&*self.state.store, workflow, jobs)
    }
}

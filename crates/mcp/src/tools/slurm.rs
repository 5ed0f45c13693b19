//! Allocations of Slurm: what a spec would ask for, and what became of those of a workflow.

use super::ToolResult;
use super::specs::{load_spec, spec_source};
use crate::agent_session::{AgentSession, ToolError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass_core::slurm::allocation_ends;
use windlass_core::slurm::allocation_groups::AllocationOptions;
use windlass_core::slurm::cluster_profile::{ClusterProfile, is_safe_name};
use windlass_core::slurm::schedule_generation::format_walltime;
use windlass_insight::slurm_planning::{self, PlannedAllocations, SlurmPlanError, SpecScheduleError};
use windlass_spec::{ResolvedWorkflow, SpecDiagnostics};
use windlass_store::model::{AllocationFilter, WorkflowRow};
use windlass_types::slurm::{Allocation, SlurmJobState};

/// So many allocations are told of one by one, the newest.
const MAX_ALLOCATIONS: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SlurmSacctInput {
    workflow_id: i64,
}

pub(super) fn get_slurm_sacct(desk: &AgentSession, args: &SlurmSacctInput) -> ToolResult {
    let workflow = desk.load_workflow(args.workflow_id)?;
    let filter = AllocationFilter { workflow: Some(workflow.id), ..AllocationFilter::default() };
    let rows = desk.store.allocations(&filter)?;
    let items: Vec<Value> = rows.iter().rev().take(MAX_ALLOCATIONS).map(allocation_json).collect();
    let mut answer = json!({
        "workflow_id": workflow.id, "count": rows.len(), "has_more": rows.len() > MAX_ALLOCATIONS, "allocations": items,
        "source": "what the server was told by Slurm's queue and accounting, as it noted it",
    });
    if let Value::Object(answer) = &mut answer {
        answer.extend(load_accounting(desk, &workflow, rows.iter().any(|row| row.job_id.is_some())));
    }
    Ok(answer)
}

/// What accounting has beyond that. It may be late, or not there: then what the books have is told all the same.
fn load_accounting(desk: &AgentSession, workflow: &WorkflowRow, was_submitted: bool) -> Map<String, Value> {
    let (accounts, trouble) = match was_submitted.then(|| desk.actions.slurm_accounting(workflow.id)) {
        None => (Vec::new(), None),
        Some(Ok(accounts)) => (accounts, None),
        Some(Err(why)) => (Vec::new(), Some(json!({ "error": why.message, "hint": why.hint }))),
    };
    let has_more = accounts.len() > MAX_ALLOCATIONS;
    let accounts: Vec<Value> = accounts.into_iter().take(MAX_ALLOCATIONS).collect();
    Map::from_iter([
        ("accounts".to_owned(), json!(accounts)),
        ("accounts_have_more".to_owned(), json!(has_more)),
        ("accounts_trouble".to_owned(), json!(trouble)),
    ])
}

fn allocation_json(row: &Allocation) -> Value {
    json!({
        "allocation_id": row.id, "slurm_job_id": row.job_id, "scheduler": row.request.scheduler,
        "account": row.request.account, "partition": row.request.partition, "nodes": row.nodes,
        "state": row.state, "slurm_state": row.end.map(SlurmJobState::name), "exit_code": row.exit_code,
        "reason": row.reason, "submitted_at": row.submitted_at, "started_at": row.started_at,
        "ended_at": row.ended_at, "restarts": row.restarts, "in_words": allocation_ends::describe_end(row),
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanAllocationsInput {
    /// The spec, as JSON or in another format that specs have.
    spec_json: String,
    /// Who pays.
    account: String,
    /// This partition and no other.
    partition: Option<String>,
    /// The name of a profile that is kept here; without it the cluster itself is asked.
    hpc_profile: Option<String>,
    /// Does not ask Slurm when allocations would start.
    #[serde(default)]
    skip_test_only: bool,
}

/// What reaches Slurm is a word.
fn check_word(of: &str, text: &str) -> Result<String, ToolError> {
    if is_safe_name(text) {
        return Ok(text.to_owned());
    }
    Err(ToolError::new(format!("{of}: letters, digits and _ - . + @ are allowed")))
}

fn load_cluster_profile(desk: &AgentSession, profile: Option<&str>) -> Result<ClusterProfile, ToolError> {
    let profile = profile.map(|name| check_word("hpc_profile", name)).transpose()?;
    if profile.as_ref().is_some_and(|name| name.contains('.')) {
        // A name with a dot would be a file's.
        return Err(ToolError::new("hpc_profile is the name of a profile, not a file"));
    }
    desk.actions.load_cluster_profile(profile.as_deref())
}

fn slurm_plan_error(why: &SlurmPlanError) -> ToolError {
    ToolError::new(why.to_string()).with_hint(why.hint())
}

/// The text of a spec that can be read, with what is asked of Slurm for it; as it is if it says that itself.
pub(super) fn write_schedule(
    desk: &AgentSession,
    text: &str,
    account: Option<&str>,
    profile: Option<&str>,
) -> Result<String, ToolError> {
    let workflow = load_spec(text).map_err(|found| spec_error(&found))?;
    let account = account.map(|name| check_word("account", name)).transpose()?;
    let cluster = load_cluster_profile(desk, profile)?;
    if slurm_planning::has_schedulers(&workflow) {
        slurm_planning::check(&workflow, &cluster).map_err(|why| slurm_plan_error(&why))?;
        return Ok(text.to_owned());
    }
    let account = account.or_else(|| slurm_planning::default_account(&workflow).map(str::to_owned));
    let options = AllocationOptions { account: account.unwrap_or_default(), ..AllocationOptions::default() };
    let demands = slurm_planning::entry_demands(&workflow);
    let proposals = slurm_planning::propose_workflow_schedulers(&workflow, &demands, &cluster, &options)
        .map_err(|why| slurm_plan_error(&why))?;
    if proposals.is_empty() {
        return Err(ToolError::new("the spec has no job that Slurm could run")
            .with_hint("jobs with labels wait for workers that carry those"));
    }
    let waits_for = |text: &str| -> Result<Vec<Vec<u32>>, ToolError> {
        let new = load_spec(text).map_err(|found| spec_error(&found))?;
        Ok(new.actions().iter().map(|action| action.jobs.clone()).collect())
    };
    slurm_planning::write_schedule(spec_source(text), &workflow, &demands, &proposals, true, waits_for)
}

fn spec_error(found: &SpecDiagnostics) -> ToolError {
    ToolError::new(format!("the spec has {} mistakes", found.count()))
        .with_hint("check_spec says which they are")
}

impl From<SpecScheduleError> for ToolError {
    fn from(why: SpecScheduleError) -> Self {
        let hint = match why {
            SpecScheduleError::NoAccount => "say `account`, or put it into the spec's slurm_defaults",
            SpecScheduleError::NoPattern(_) => "give jobs of one entry names that no others have",
            SpecScheduleError::Patch(_) => {
                "write slurm_schedulers and actions into the spec, as plan_allocations tells"
            }
        };
        Self::new(why.to_string()).with_hint(hint)
    }
}

pub(super) fn plan_allocations(desk: &AgentSession, args: &PlanAllocationsInput) -> ToolResult {
    let partition = args.partition.as_deref().map(|name| check_word("partition", name)).transpose()?;
    let workflow = load_spec(&args.spec_json).map_err(|found| spec_error(&found))?;
    let options = AllocationOptions {
        account: check_word("account", &args.account)?,
        partition,
        ..AllocationOptions::default()
    };
    let cluster = load_cluster_profile(desk, args.hpc_profile.as_deref())?;
    let planned = slurm_planning::plan_allocations(&workflow, &cluster, &options)
        .map_err(|why| slurm_plan_error(&why))?;
    let share = |planned: &PlannedAllocations| {
        let start = (!args.skip_test_only).then(|| estimate_start(desk, &workflow, planned)).transpose()?;
        Ok(planned_json(planned, start.as_deref()))
    };
    let groups = planned.iter().map(share).collect::<Result<Vec<Value>, ToolError>>()?;
    Ok(json!({ "cluster": slurm_planning::cluster_title(&cluster), "groups": groups }))
}

/// When one of its allocations would start.
fn estimate_start(
    desk: &AgentSession,
    workflow: &ResolvedWorkflow<'_>,
    planned: &PlannedAllocations,
) -> Result<String, ToolError> {
    if planned.is_deferred {
        return Ok("when jobs are ready".to_owned());
    }
    desk.actions.estimate_start(&planned.request(workflow).map_err(ToolError::new)?)
}

fn planned_json(planned: &PlannedAllocations, start: Option<&str>) -> Value {
    let scheduler = &planned.scheduler;
    json!({
        "scheduler": scheduler.name, "partition": planned.partition, "jobs": planned.jobs,
        "allocations": planned.allocations, "nodes": scheduler.nodes,
        "walltime": planned.walltime.map(format_walltime), "mem": scheduler.mem, "gres": scheduler.gres,
        "extra": scheduler.extra, "core_hours": planned.core_hours, "is_deferred": planned.is_deferred,
        "start": start,
    })
}

//! Tools for Slurm allocations: a plan for a spec, and the state of a workflow's allocations.

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

/// Maximum number of allocations listed individually; the newest are listed.
const MAX_ALLOCATIONS: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SlurmSacctInput {
    /// Id of the workflow.
    workflow_id: i64,
}

pub(super) fn get_slurm_sacct(session: &AgentSession, args: &SlurmSacctInput) -> ToolResult {
    let workflow = session.load_workflow(args.workflow_id)?;
    let filter = AllocationFilter { workflow: Some(workflow.id), ..AllocationFilter::default() };
    let rows = session.store.allocations(&filter)?;
    let items: Vec<Value> = rows.iter().rev().take(MAX_ALLOCATIONS).map(allocation_json).collect();
    let mut answer = json!({
        "workflow_id": workflow.id, "count": rows.len(), "has_more": rows.len() > MAX_ALLOCATIONS, "allocations": items,
        "source": "as recorded by the server from Slurm's queue and accounting",
    });
    if let Value::Object(answer) = &mut answer {
        answer.extend(load_accounting(session, &workflow, rows.iter().any(|row| row.job_id.is_some())));
    }
    Ok(answer)
}

/// Adds Slurm accounting data. It may be late or missing; the recorded data is returned in any case.
fn load_accounting(
    session: &AgentSession,
    workflow: &WorkflowRow,
    was_submitted: bool,
) -> Map<String, Value> {
    let (accounts, problem) = match was_submitted.then(|| session.actions.slurm_accounting(workflow.id)) {
        None => (Vec::new(), None),
        Some(Ok(accounts)) => (accounts, None),
        Some(Err(why)) => (Vec::new(), Some(json!({ "error": why.message, "hint": why.hint }))),
    };
    let has_more = accounts.len() > MAX_ALLOCATIONS;
    let accounts: Vec<Value> = accounts.into_iter().take(MAX_ALLOCATIONS).collect();
    Map::from_iter([
        ("accounts".to_owned(), json!(accounts)),
        ("accounts_have_more".to_owned(), json!(has_more)),
        ("accounts_trouble".to_owned(), json!(problem)),
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
    /// The spec as text, in JSON or another spec format.
    spec_json: String,
    /// Slurm account to charge.
    account: String,
    /// Use only this partition.
    partition: Option<String>,
    /// Name of an HPC profile. Default: query the cluster itself.
    hpc_profile: Option<String>,
    /// Do not ask Slurm when the allocations would start.
    #[serde(default)]
    skip_test_only: bool,
}

/// Checks a value that is passed to Slurm.
fn check_word(of: &str, text: &str) -> Result<String, ToolError> {
    if is_safe_name(text) {
        return Ok(text.to_owned());
    }
    Err(ToolError::new(format!("{of}: only letters, digits and _ - . + @ are allowed")))
}

fn load_cluster_profile(session: &AgentSession, profile: Option<&str>) -> Result<ClusterProfile, ToolError> {
    let profile = profile.map(|name| check_word("hpc_profile", name)).transpose()?;
    if profile.as_ref().is_some_and(|name| name.contains('.')) {
        // A name with a dot would be a file name.
        return Err(ToolError::new("hpc_profile must be the name of a profile, not a file"));
    }
    session.actions.load_cluster_profile(profile.as_deref())
}

fn slurm_plan_error(why: &SlurmPlanError) -> ToolError {
    ToolError::new(why.to_string()).with_hint(why.hint())
}

/// Returns the text of a valid spec with Slurm schedulers and actions added, or unchanged if it has its own.
pub(super) fn write_schedule(
    session: &AgentSession,
    text: &str,
    account: Option<&str>,
    profile: Option<&str>,
) -> Result<String, ToolError> {
    let workflow = load_spec(text).map_err(|found| spec_error(&found))?;
    let account = account.map(|name| check_word("account", name)).transpose()?;
    let cluster = load_cluster_profile(session, profile)?;
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
        return Err(ToolError::new("the spec has no job that can run on Slurm")
            .with_hint("jobs with labels run only on workers with these labels"));
    }
    let waits_for = |text: &str| -> Result<Vec<Vec<u32>>, ToolError> {
        let new = load_spec(text).map_err(|found| spec_error(&found))?;
        Ok(new.actions().iter().map(|action| action.jobs.clone()).collect())
    };
    slurm_planning::write_schedule(spec_source(text), &workflow, &demands, &proposals, true, waits_for)
}

fn spec_error(found: &SpecDiagnostics) -> ToolError {
    ToolError::new(format!("the spec has {} errors", found.count())).with_hint("use check_spec to list them")
}

impl From<SpecScheduleError> for ToolError {
    fn from(why: SpecScheduleError) -> Self {
        let hint = match why {
            SpecScheduleError::NoAccount => "set `account`, or add it to the spec's slurm_defaults",
            SpecScheduleError::NoPattern(_) => {
                "rename the jobs of one entry so that a pattern matches no others"
            }
            SpecScheduleError::Patch(_) => {
                "add slurm_schedulers and actions to the spec as returned by plan_allocations"
            }
        };
        Self::new(why.to_string()).with_hint(hint)
    }
}

pub(super) fn plan_allocations(session: &AgentSession, args: &PlanAllocationsInput) -> ToolResult {
    let partition = args.partition.as_deref().map(|name| check_word("partition", name)).transpose()?;
    let workflow = load_spec(&args.spec_json).map_err(|found| spec_error(&found))?;
    let options = AllocationOptions {
        account: check_word("account", &args.account)?,
        partition,
        ..AllocationOptions::default()
    };
    let cluster = load_cluster_profile(session, args.hpc_profile.as_deref())?;
    let planned = slurm_planning::plan_allocations(&workflow, &cluster, &options)
        .map_err(|why| slurm_plan_error(&why))?;
    let share = |planned: &PlannedAllocations| {
        let start =
            (!args.skip_test_only).then(|| estimate_start(session, &workflow, planned)).transpose()?;
        Ok(planned_json(planned, start.as_deref()))
    };
    let groups = planned.iter().map(share).collect::<Result<Vec<Value>, ToolError>>()?;
    Ok(json!({ "cluster": slurm_planning::cluster_title(&cluster), "groups": groups }))
}

/// Estimates when one of its allocations would start.
fn estimate_start(
    session: &AgentSession,
    workflow: &ResolvedWorkflow<'_>,
    planned: &PlannedAllocations,
) -> Result<String, ToolError> {
    if planned.is_deferred {
        return Ok("when jobs are ready".to_owned());
    }
    session.actions.estimate_start(&planned.request(workflow).map_err(ToolError::new)?)
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

//! Bringing a workflow back that stopped with failures, as `windlass recover` does.

use super::ToolResult;
use super::workflow_commands::check_confirmed;
use crate::agent_session::{AgentSession, ToolError};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_core::recovery::RecoverySettings;
use windlass_core::slurm::allocation_groups::AllocationOptions;
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_insight::allocation_planning::{
    self, AllocationFacts, NewAllocationOptions, RescheduleError, is_on_slurm, reschedule_allocations,
    scheduler_shares,
};
use windlass_insight::failure_commands::jobs_barred_to_agents;
use windlass_insight::recovery::{RecoveryPlan, RecoveryPlanReport, diagnose_workflow};
use windlass_store::model::WorkflowRow;
use windlass_types::failure_commands::{FailureCommandOutcome, FailureCommandStatus as Given};
use windlass_types::{JobId, JobStatus};

/// As on the command line.
const DEFAULT_MULTIPLIER: f64 = 1.5;
const CPU_MULTIPLIER: f64 = 1.2;
const MAX_MULTIPLIER: f64 = 100.0;
/// So many jobs are told of one by one.
const MAX_JOBS: usize = 200;

const UNDECIDED_REASON: &str = "it waits for a decision: classify_and_resolve_failures makes one";
const DECIDED_REASON: &str = "it was decided on, and only a person has it tried again";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RecoverWorkflowInput {
    workflow_id: i64,
    /// Says what would be done, and does nothing.
    #[serde(default = "yes")]
    dry_run: bool,
    /// So many times the memory that a job used or had (1.5).
    memory_multiplier: Option<f64>,
    /// So many times the time that a job had (1.5).
    runtime_multiplier: Option<f64>,
    /// Also what nothing explains runs again, as it is.
    #[serde(default)]
    retry_unknown: bool,
    /// Must be true if dry_run is false. Ask your user first, and say what will happen.
    #[serde(default)]
    confirm: bool,
}

const fn yes() -> bool {
    true
}

pub(super) fn recover_workflow(desk: &AgentSession, args: &RecoverWorkflowInput) -> ToolResult {
    let (memory, runtime) = (
        check_multiplier(args.memory_multiplier, "memory")?,
        check_multiplier(args.runtime_multiplier, "runtime")?,
    );
    if args.dry_run {
        let plan =
            plan_recovery(desk, desk.load_workflow(args.workflow_id)?, memory, runtime, args.retry_unknown)?;
        return render_plan(&plan, true, &[]);
    }
    check_confirmed(desk, args.workflow_id, args.confirm, |row| {
        format!(
            "recover workflow {} ({}): jobs that failed run again, some with more memory or time",
            row.id, row.name
        )
    })?;
    let row = desk.load_workflow(args.workflow_id)?;
    desk.actions.requeue_orphaned_jobs(row.id)?;
    let mut plan =
        plan_recovery(desk, desk.load_workflow(args.workflow_id)?, memory, runtime, args.retry_unknown)?;
    let mut outcomes = Vec::new();
    if plan.has_reruns() {
        check_capacity(desk, &plan)?;
        let asked_by = format!("agent {}", desk.agent);
        outcomes = desk.submit_failure_commands(row.id, plan.failure_commands(Some(&asked_by)))?;
        plan.apply_outcomes(&outcomes);
        if plan.has_reruns() {
            desk.store.add_event(&plan.recovery_event(Some(&asked_by)), AgentSession::now())?;
        }
    }
    let mut told = render_plan(&plan, false, &outcomes)?;
    if (plan.has_reruns() || needs_allocations(desk, &row)?)
        && let Some(slurm) = create_allocations_if_on_slurm(desk, &row)?
        && let Value::Object(told) = &mut told
    {
        told.insert("slurm".to_owned(), slurm);
    }
    Ok(told)
}

/// What no node can hold stays as it is: in the books it would be ready, and never run.
fn check_capacity(desk: &AgentSession, plan: &RecoveryPlan) -> Result<(), ToolError> {
    let row = &plan.row;
    let Some(cluster) = load_cluster_profile(desk, row)? else { return Ok(()) };
    let (options, then) = (schedule_options(row), plan.next_resources());
    let include: Vec<JobId> = plan.rerun_jobs().map(|patient| patient.remedy.job).collect();
    let wanted =
        NewAllocationOptions { options: &options, included_jobs: &include, submit: true, by: &row.user };
    let mut gathered = AllocationFacts::load(&*desk.store, row, &include)?;
    gathered.assume_requeued(&|job| then.get(&job).copied());
    gathered.plan_schedule(&cluster, &wanted).map(drop).map_err(|why| {
        ToolError::new(why.to_string()).with_hint("nothing was changed; smaller multipliers ask for less")
    })
}

/// Whether jobs that did not fail wait for nodes that nobody asks for.
fn needs_allocations(desk: &AgentSession, row: &WorkflowRow) -> Result<bool, ToolError> {
    let Some(cluster) = load_cluster_profile(desk, row)? else { return Ok(false) };
    // As it stands after the orders. What cannot be planned for is told by whoever asks for nodes.
    let row = desk.load_workflow(row.id.0)?;
    match allocation_planning::needs_allocations(&*desk.store, &row, &cluster, &schedule_options(&row)) {
        Ok(is_wanting) => Ok(is_wanting),
        Err(RescheduleError::Store(error)) => Err(error.into()),
        Err(RescheduleError::Plan(_)) => Ok(true),
    }
}

/// The cluster that the workflow runs on, where it is on Slurm and the cluster can be seen.
fn load_cluster_profile(desk: &AgentSession, row: &WorkflowRow) -> Result<Option<ClusterProfile>, ToolError> {
    Ok(if is_on_slurm(&*desk.store, row.id)? { desk.actions.load_cluster_profile(None).ok() } else { None })
}

fn schedule_options(row: &WorkflowRow) -> AllocationOptions {
    let account = row.settings.slurm_defaults.get("account").and_then(|account| account.as_str());
    AllocationOptions { account: account.unwrap_or_default().to_owned(), ..AllocationOptions::default() }
}

/// On Slurm, what runs again needs nodes. That none could be asked for undoes nothing: it is told.
fn create_allocations_if_on_slurm(
    desk: &AgentSession,
    row: &WorkflowRow,
) -> Result<Option<Value>, ToolError> {
    if !is_on_slurm(&*desk.store, row.id)? {
        return Ok(None);
    }
    let asked = create_allocations(desk, row);
    Ok(Some(asked.unwrap_or_else(|why| {
        let by_hand =
            format!("on a login node of the cluster: windlass slurm regenerate {} --submit", row.id);
        json!({ "error": why.message, "hint": why.hint, "by_hand": by_hand })
    })))
}

fn create_allocations(desk: &AgentSession, row: &WorkflowRow) -> ToolResult {
    let cluster = desk.actions.load_cluster_profile(None)?;
    let options = schedule_options(row);
    let wanted = NewAllocationOptions { options: &options, included_jobs: &[], submit: true, by: &row.user };
    let (gathered, schedule, made) =
        reschedule_allocations(&*desk.store, row, &cluster, &wanted, AgentSession::now).map_err(|error| {
            match error {
                RescheduleError::Store(error) => error.into(),
                RescheduleError::Plan(why) => ToolError::new(why.to_string()),
            }
        })?;
    Ok(
        json!({ "schedulers": scheduler_shares(&gathered, &schedule), "allocations": made.allocations, "unfit": schedule.unfit }),
    )
}

/// What jobs ask for grows by this.
fn check_multiplier(said: Option<f64>, of: &str) -> Result<f64, ToolError> {
    let factor = said.unwrap_or(DEFAULT_MULTIPLIER);
    if !(1.0..=MAX_MULTIPLIER).contains(&factor) {
        return Err(ToolError::new(format!("{of}_multiplier is a number from 1 to {MAX_MULTIPLIER}")));
    }
    Ok(factor)
}

fn plan_recovery(
    desk: &AgentSession,
    row: WorkflowRow,
    memory_multiplier: f64,
    runtime_multiplier: f64,
    retry_unknown: bool,
) -> Result<RecoveryPlan, ToolError> {
    if row.is_canceled {
        return Err(ToolError::new(format!("workflow {} was canceled", row.id))
            .with_hint("reset_workflow_status with failed_only has what was stopped run again"));
    }
    let room = desk.actions.eligible_capacity(&*desk.store, row.id)?;
    let terms = RecoverySettings {
        memory_multiplier,
        runtime_multiplier,
        cpu_multiplier: CPU_MULTIPLIER,
        retry_unknown,
        workers: &room.takers,
    };
    let kept = jobs_barred_to_agents(&*desk.store, &row)?;
    let mut plan = diagnose_workflow(&*desk.store, row, &terms)?;
    // There an agent is held to the policy of the workflow.
    plan.exclude_jobs(|found| kept.contains_key(&found.failed_job.job), DECIDED_REASON);
    plan.exclude_jobs(|found| found.failed_job.status == JobStatus::PendingFailed, UNDECIDED_REASON);
    Ok(plan)
}

fn render_plan(plan: &RecoveryPlan, dry_run: bool, outcomes: &[FailureCommandOutcome]) -> ToolResult {
    let view = RecoveryPlanReport::with_limit(plan, dry_run, MAX_JOBS);
    let mut view = serde_json::to_value(view).map_err(|why| ToolError::new(why.to_string()))?;
    let refused = outcomes.iter().filter(|outcome| outcome.answer == Given::Refused);
    let refused: Vec<Value> =
        refused.map(|outcome| json!({ "job_id": outcome.job, "why": outcome.words })).collect();
    let more = json!({
        "summary": plan.render_summary(dry_run), "has_more": plan.diagnoses.len() > MAX_JOBS, "refused": refused,
        "next": (!dry_run && (plan.has_reruns() || plan.remaining_count() > 0)).then_some("run_workflow, unless somebody runs it already"),
    });
    if let (Value::Object(view), Value::Object(more)) = (&mut view, more) {
        view.extend(more);
    }
    Ok(view)
}

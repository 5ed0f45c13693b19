//! Recovery of a workflow that stopped with failures, as `windlass recover` does it.

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

/// Same default as on the command line.
const DEFAULT_MULTIPLIER: f64 = 1.5;
const CPU_MULTIPLIER: f64 = 1.2;
const MAX_MULTIPLIER: f64 = 100.0;
/// Maximum number of jobs listed individually.
const MAX_JOBS: usize = 200;

const UNDECIDED_REASON: &str = "waits for a decision: use classify_and_resolve_failures";
const DECIDED_REASON: &str = "already decided; only a person can retry it";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RecoverWorkflowInput {
    /// Id of the workflow.
    workflow_id: i64,
    /// Only report what would be done. Default: true.
    #[serde(default = "yes")]
    dry_run: bool,
    /// Factor for the memory that the job used or had. Default: 1.5.
    memory_multiplier: Option<f64>,
    /// Factor for the time limit of the job. Default: 1.5.
    runtime_multiplier: Option<f64>,
    /// Also rerun jobs whose failure has no known cause, unchanged.
    #[serde(default)]
    retry_unknown: bool,
    /// Must be true if dry_run is false. Ask your user first, and explain what will happen.
    #[serde(default)]
    confirm: bool,
}

const fn yes() -> bool {
    true
}

pub(super) fn recover_workflow(session: &AgentSession, args: &RecoverWorkflowInput) -> ToolResult {
    let (memory, runtime) = (
        check_multiplier(args.memory_multiplier, "memory")?,
        check_multiplier(args.runtime_multiplier, "runtime")?,
    );
    if args.dry_run {
        let plan = plan_recovery(
            session,
            session.load_workflow(args.workflow_id)?,
            memory,
            runtime,
            args.retry_unknown,
        )?;
        return render_plan(&plan, true, &[]);
    }
    check_confirmed(session, args.workflow_id, args.confirm, |row| {
        format!(
            "recover workflow {} ({}): failed jobs run again, some with more memory or time",
            row.id, row.name
        )
    })?;
    let row = session.load_workflow(args.workflow_id)?;
    session.actions.requeue_orphaned_jobs(row.id)?;
    let mut plan = plan_recovery(
        session,
        session.load_workflow(args.workflow_id)?,
        memory,
        runtime,
        args.retry_unknown,
    )?;
    let mut outcomes = Vec::new();
    if plan.has_reruns() {
        check_capacity(session, &plan)?;
        let asked_by = format!("agent {}", session.agent);
        outcomes = session.submit_failure_commands(row.id, plan.failure_commands(Some(&asked_by)))?;
        plan.apply_outcomes(&outcomes);
        if plan.has_reruns() {
            session.store.add_event(&plan.recovery_event(Some(&asked_by)), AgentSession::now())?;
        }
    }
    let mut report = render_plan(&plan, false, &outcomes)?;
    if (plan.has_reruns() || needs_allocations(session, &row)?)
        && let Some(slurm) = create_allocations_if_on_slurm(session, &row)?
        && let Value::Object(report) = &mut report
    {
        report.insert("slurm".to_owned(), slurm);
    }
    Ok(report)
}

/// Jobs that no node can hold are left alone: they would be ready and never run.
fn check_capacity(session: &AgentSession, plan: &RecoveryPlan) -> Result<(), ToolError> {
    let row = &plan.row;
    let Some(cluster) = load_cluster_profile(session, row)? else { return Ok(()) };
    let (options, then) = (schedule_options(row), plan.next_resources());
    let include: Vec<JobId> = plan.rerun_jobs().map(|failed_job| failed_job.remedy.job).collect();
    let wanted =
        NewAllocationOptions { options: &options, included_jobs: &include, submit: true, by: &row.user };
    let mut gathered = AllocationFacts::load(&*session.store, row, &include)?;
    gathered.assume_requeued(&|job| then.get(&job).copied());
    gathered.plan_schedule(&cluster, &wanted).map(drop).map_err(|why| {
        ToolError::new(why.to_string()).with_hint("nothing was changed; use smaller multipliers")
    })
}

/// Whether jobs that did not fail wait for allocations that are not requested.
fn needs_allocations(session: &AgentSession, row: &WorkflowRow) -> Result<bool, ToolError> {
    let Some(cluster) = load_cluster_profile(session, row)? else { return Ok(false) };
    // The state after the commands. Jobs that cannot be planned are reported when allocations are requested.
    let row = session.load_workflow(row.id.0)?;
    match allocation_planning::needs_allocations(&*session.store, &row, &cluster, &schedule_options(&row)) {
        Ok(is_wanting) => Ok(is_wanting),
        Err(RescheduleError::Store(error)) => Err(error.into()),
        Err(RescheduleError::Plan(_)) => Ok(true),
    }
}

/// Returns the cluster of a workflow on Slurm, if it can be queried.
fn load_cluster_profile(
    session: &AgentSession,
    row: &WorkflowRow,
) -> Result<Option<ClusterProfile>, ToolError> {
    Ok(if is_on_slurm(&*session.store, row.id)? {
        session.actions.load_cluster_profile(None).ok()
    } else {
        None
    })
}

fn schedule_options(row: &WorkflowRow) -> AllocationOptions {
    let account = row.settings.slurm_defaults.get("account").and_then(|account| account.as_str());
    AllocationOptions { account: account.unwrap_or_default().to_owned(), ..AllocationOptions::default() }
}

/// Requests allocations for the jobs that run again. A failure is reported, and undoes nothing.
fn create_allocations_if_on_slurm(
    session: &AgentSession,
    row: &WorkflowRow,
) -> Result<Option<Value>, ToolError> {
    if !is_on_slurm(&*session.store, row.id)? {
        return Ok(None);
    }
    let asked = create_allocations(session, row);
    Ok(Some(asked.unwrap_or_else(|why| {
        let by_hand =
            format!("on a login node of the cluster: windlass slurm regenerate {} --submit", row.id);
        json!({ "error": why.message, "hint": why.hint, "by_hand": by_hand })
    })))
}

fn create_allocations(session: &AgentSession, row: &WorkflowRow) -> ToolResult {
    let cluster = session.actions.load_cluster_profile(None)?;
    let options = schedule_options(row);
    let wanted = NewAllocationOptions { options: &options, included_jobs: &[], submit: true, by: &row.user };
    let (gathered, schedule, made) =
        reschedule_allocations(&*session.store, row, &cluster, &wanted, AgentSession::now).map_err(
            |error| match error {
                RescheduleError::Store(error) => error.into(),
                RescheduleError::Plan(why) => ToolError::new(why.to_string()),
            },
        )?;
    Ok(
        json!({ "schedulers": scheduler_shares(&gathered, &schedule), "allocations": made.allocations, "unfit": schedule.unfit }),
    )
}

/// Factors for resource requirements.
fn check_multiplier(given: Option<f64>, of: &str) -> Result<f64, ToolError> {
    let factor = given.unwrap_or(DEFAULT_MULTIPLIER);
    if !(1.0..=MAX_MULTIPLIER).contains(&factor) {
        return Err(ToolError::new(format!("{of}_multiplier must be a number from 1 to {MAX_MULTIPLIER}")));
    }
    Ok(factor)
}

fn plan_recovery(
    session: &AgentSession,
    row: WorkflowRow,
    memory_multiplier: f64,
    runtime_multiplier: f64,
    retry_unknown: bool,
) -> Result<RecoveryPlan, ToolError> {
    if row.is_canceled {
        return Err(ToolError::new(format!("workflow {} was canceled", row.id))
            .with_hint("use reset_workflow_status with failed_only to run the stopped jobs again"));
    }
    let eligible = session.actions.eligible_capacity(&*session.store, row.id)?;
    let terms = RecoverySettings {
        memory_multiplier,
        runtime_multiplier,
        cpu_multiplier: CPU_MULTIPLIER,
        retry_unknown,
        workers: &eligible.workers,
    };
    let kept = jobs_barred_to_agents(&*session.store, &row)?;
    let mut plan = diagnose_workflow(&*session.store, row, &terms)?;
    // On a server the triage policy of the workflow applies to an agent.
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
        "summary": plan.render_summary(dry_run, 0), "has_more": plan.diagnoses.len() > MAX_JOBS, "refused": refused,
        "next": (!dry_run && (plan.has_reruns() || plan.remaining_count() > 0)).then_some("run_workflow, unless the workflow is already running"),
    });
    if let (Value::Object(view), Value::Object(more)) = (&mut view, more) {
        view.extend(more);
    }
    Ok(view)
}

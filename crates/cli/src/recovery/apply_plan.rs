//! Applies a recovery plan: stores the new requirements of jobs, and resets the jobs that run again together
//! with their dependents.

use crate::context::CliContext;
use crate::error::{CliError, CliErrorKind};
use crate::{failure_commands, rerun};
use std::collections::{HashMap, HashSet};
use windlass_core::reset::{JobResetState, ResetSelection, plan_reset};
use windlass_insight::recovery::{JobDiagnosis, RecoveryPlan};
use windlass_store::Store;
use windlass_store::model::{RequirementsChange, RequirementsUsers, WorkflowRow};
use windlass_types::failure_commands::{
    FailureCommandBatch, FailureCommandOutcome, FailureCommandStatus, PendingCommand,
};
use windlass_types::{JobId, JobStatus, Resources, format_exact_size, format_iso_duration};

/// The results of failure commands, if the workflow is running.
pub(super) fn apply_recovery_plan(
    ctx: &CliContext,
    store: &dyn Store,
    plan: &RecoveryPlan,
) -> Result<Vec<FailureCommandOutcome>, CliError> {
    // Failure decisions apply only to failed jobs: a canceled workflow is restarted as a whole.
    if plan.row.is_canceled {
        apply_in_next_run(ctx, store, plan)
    } else {
        apply_by_commands(ctx, store, plan)
    }
}

/// In the current run, also while other jobs of it run.
fn apply_by_commands(
    ctx: &CliContext,
    store: &dyn Store,
    plan: &RecoveryPlan,
) -> Result<Vec<FailureCommandOutcome>, CliError> {
    let mut all = Vec::new();
    for orders in plan_commands(plan, failure_commands::acting_agent(None)) {
        all.extend(failure_commands::submit_failure_commands(
            store,
            plan.row.id,
            &PendingCommand::Orders(orders),
        )?);
    }
    let staying: Vec<&FailureCommandOutcome> =
        all.iter().filter(|outcome| outcome.answer != FailureCommandStatus::Done).collect();
    for outcome in staying.iter().take(MAX_NAMED) {
        // Another process was faster, an agent needs approval, or a dependent is running.
        ctx.ui.print_warning(&format!("job {} is unchanged: {}", outcome.job, outcome.words));
    }
    if staying.len() > MAX_NAMED {
        ctx.ui.print_warning(&format!("{} more are unchanged", staying.len() - MAX_NAMED));
    }
    Ok(all)
}

/// An agent decides about waiting failures as the triage policy allows; failed jobs are recovered at its
/// request.
fn plan_commands(plan: &RecoveryPlan, agent: Option<String>) -> Vec<FailureCommandBatch> {
    let asked_by = agent.as_ref().map(|agent| format!("agent {agent}"));
    let all = plan.failure_commands(asked_by.as_deref());
    let Some(agent) = agent else { return vec![all] };
    let waits =
        |failed_job: &&JobDiagnosis| failed_job.examined.failed_job.status == JobStatus::PendingFailed;
    let waiting: HashSet<JobId> =
        plan.rerun_jobs().filter(waits).map(|failed_job| failed_job.remedy.job).collect();
    let (decided, recovered): (Vec<_>, Vec<_>) =
        all.orders.into_iter().partition(|order| waiting.contains(&order.job));
    let decided =
        FailureCommandBatch { agent: Some(agent), orders: decided, ..FailureCommandBatch::default() };
    let recovered = FailureCommandBatch { orders: recovered, ..FailureCommandBatch::default() };
    [decided, recovered].into_iter().filter(|orders| !orders.orders.is_empty()).collect()
}

/// Maximum number of unchanged jobs named.
const MAX_NAMED: usize = 10;

/// In a new run, while no process runs the workflow.
fn apply_in_next_run(
    ctx: &CliContext,
    store: &dyn Store,
    plan: &RecoveryPlan,
) -> Result<Vec<FailureCommandOutcome>, CliError> {
    let workflow = plan.row.id;
    rerun::start_next_run(ctx, store, workflow, |row| {
        let changes = requirement_changes(plan);
        if !changes.is_empty() {
            store.change_requirements(workflow, &changes, ctx.clock.now())?;
        }
        Ok((jobs_to_reset(store, row, plan)?, ()))
    })?;
    Ok(Vec::new())
}

/// Jobs with equal new requirements share a set, which no other job uses.
fn requirement_changes(plan: &RecoveryPlan) -> Vec<RequirementsChange> {
    let mut sets: HashMap<Resources, Vec<JobId>> = HashMap::new();
    for failed_job in plan.rerun_jobs() {
        if let Some(resources) = failed_job.next_resources() {
            sets.entry(resources).or_default().push(failed_job.remedy.job);
        }
    }
    let change = |(resources, jobs)| RequirementsChange {
        name: requirements_name(&resources),
        resources,
        used_by: RequirementsUsers::Jobs(jobs),
    };
    sets.into_iter().map(change).collect()
}

/// The name contains all values of the set, so that equal names mean equal sets.
fn requirements_name(resources: &Resources) -> String {
    let Resources { cpus, memory, gpus, nodes, runtime } = *resources;
    let runtime = runtime.map_or_else(|| "unsaid".to_owned(), format_iso_duration);
    format!("recovered:{cpus}cpus:{}:{gpus}gpus:{nodes}nodes:{runtime}", format_exact_size(memory))
}

/// The jobs that run again, and their dependents.
fn jobs_to_reset(store: &dyn Store, row: &WorkflowRow, plan: &RecoveryPlan) -> Result<Vec<JobId>, CliError> {
    let table = store.load_jobs(row.id)?;
    let to_reset_state = |&status: &JobStatus| JobResetState { status, return_code: None };
    let job_states: Vec<JobResetState> = table.status.iter().map(to_reset_state).collect();
    let number = |job: &JobId| table.ids.binary_search(job).ok().map(|index| index as u32);
    let jobs = plan.rerun_jobs().filter_map(|failed_job| number(&failed_job.remedy.job)).collect();
    let reset = plan_reset(&job_states, &table.edges, &ResetSelection { jobs, ..ResetSelection::default() });
    let reset = reset.map_err(|refused| CliError::new(CliErrorKind::Refused, refused.to_string()))?;
    Ok(reset.all_jobs().into_iter().map(|number| table.ids[number as usize]).collect())
}

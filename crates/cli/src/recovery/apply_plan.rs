//! Carries a plan out: what a job asks for from now on is its own, and what runs again goes back with what was built on it.

use crate::context::CliContext;
use crate::error::{CliError, CliErrorKind};
use crate::{failure_commands, rerun};
use std::collections::{HashMap, HashSet};
use windlass_core::reset::{JobResetState, ResetSelection, plan_reset};
use windlass_insight::recovery::{JobDiagnosis, RecoveryPlan};
use windlass_store::Store;
use windlass_store::model::{RequirementsChange, RequirementsUsers, WorkflowRow};
use windlass_types::failure_commands::{
    FailureCommandBatch, FailureCommandOutcome, FailureCommandStatus, TriageCommand,
};
use windlass_types::{JobId, JobStatus, Resources, format_exact_size, format_iso_duration};

/// What the orders about its jobs came to, where it takes orders.
pub(super) fn apply_recovery_plan(
    ctx: &CliContext,
    store: &dyn Store,
    plan: &RecoveryPlan,
) -> Result<Vec<FailureCommandOutcome>, CliError> {
    // Nobody decides about jobs that did not fail: what was stopped as a whole begins anew as a whole.
    if plan.row.is_canceled {
        apply_in_next_run(ctx, store, plan)
    } else {
        apply_by_commands(ctx, store, plan)
    }
}

/// In the run that there is, also while other jobs of it run.
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
            &TriageCommand::Orders(orders),
        )?);
    }
    let staying: Vec<&FailureCommandOutcome> =
        all.iter().filter(|outcome| outcome.answer != FailureCommandStatus::Done).collect();
    for outcome in staying.iter().take(MAX_NAMED) {
        // Somebody else was quicker, an agent has to ask, or what was built on it runs.
        ctx.ui.print_warning(&format!("job {} stays as it is: {}", outcome.job, outcome.words));
    }
    if staying.len() > MAX_NAMED {
        ctx.ui.print_warning(&format!("{} more stay as they are", staying.len() - MAX_NAMED));
    }
    Ok(all)
}

/// An agent decides on what waits for a decision, as the workflow lets it; what has failed is recovered at its request.
fn plan_commands(plan: &RecoveryPlan, agent: Option<String>) -> Vec<FailureCommandBatch> {
    let asked_by = agent.as_ref().map(|agent| format!("agent {agent}"));
    let all = plan.failure_commands(asked_by.as_deref());
    let Some(agent) = agent else { return vec![all] };
    let waits = |patient: &&JobDiagnosis| patient.examined.failed_job.status == JobStatus::PendingFailed;
    let waiting: HashSet<JobId> = plan.rerun_jobs().filter(waits).map(|patient| patient.remedy.job).collect();
    let (decided, recovered): (Vec<_>, Vec<_>) =
        all.orders.into_iter().partition(|order| waiting.contains(&order.job));
    let decided =
        FailureCommandBatch { agent: Some(agent), orders: decided, ..FailureCommandBatch::default() };
    let recovered = FailureCommandBatch { orders: recovered, ..FailureCommandBatch::default() };
    [decided, recovered].into_iter().filter(|orders| !orders.orders.is_empty()).collect()
}

/// So many jobs that stay are named.
const MAX_NAMED: usize = 10;

/// In a run of its own, while nobody runs the workflow.
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

/// Jobs that come to ask for the same share a set, which is nobody else's.
fn requirement_changes(plan: &RecoveryPlan) -> Vec<RequirementsChange> {
    let mut sets: HashMap<Resources, Vec<JobId>> = HashMap::new();
    for patient in plan.rerun_jobs() {
        if let Some(resources) = patient.next_resources() {
            sets.entry(resources).or_default().push(patient.remedy.job);
        }
    }
    let change = |(resources, jobs)| RequirementsChange {
        name: requirements_name(&resources),
        resources,
        used_by: RequirementsUsers::Jobs(jobs),
    };
    sets.into_iter().map(change).collect()
}

/// All that is in the set, so that one name is one set.
fn requirements_name(resources: &Resources) -> String {
    let Resources { cpus, memory, gpus, nodes, runtime } = *resources;
    let runtime = runtime.map_or_else(|| "unsaid".to_owned(), format_iso_duration);
    format!("recovered:{cpus}cpus:{}:{gpus}gpus:{nodes}nodes:{runtime}", format_exact_size(memory))
}

/// Those that run again, and what was built on them.
fn jobs_to_reset(store: &dyn Store, row: &WorkflowRow, plan: &RecoveryPlan) -> Result<Vec<JobId>, CliError> {
    let table = store.load_jobs(row.id)?;
    let standing = |&status: &JobStatus| JobResetState { status, return_code: None };
    let standings: Vec<JobResetState> = table.status.iter().map(standing).collect();
    let number = |job: &JobId| table.ids.binary_search(job).ok().map(|index| index as u32);
    let jobs = plan.rerun_jobs().filter_map(|patient| number(&patient.remedy.job)).collect();
    let reset = plan_reset(&standings, &table.edges, &ResetSelection { jobs, ..ResetSelection::default() });
    let reset = reset.map_err(|refused| CliError::new(CliErrorKind::Refused, refused.to_string()))?;
    Ok(reset.all_jobs().into_iter().map(|number| table.ids[number as usize]).collect())
}

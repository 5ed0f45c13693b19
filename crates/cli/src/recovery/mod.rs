//! One recovery of a workflow, for `recover` and `watch`: resets jobs of dead workers, runs an agent and a
//! hook, diagnoses each failed job, and reruns the jobs that can be helped.

pub(crate) mod agent;
pub(crate) mod allocation_check;
pub(crate) mod allocations;
mod apply_plan;
mod hook;
pub(crate) mod orphans;
mod plan_output;
pub(crate) mod recovery_cluster;

use crate::args::MachineArgs;
use crate::args::recover::RecoveryArgs;
use crate::commands::why;
use crate::context::CliContext;
use crate::error::CliError;
use crate::failure_commands;
use crate::local_worker;
use crate::rerun;
use recovery_cluster::RecoveryCluster;
use std::collections::BTreeMap;
use windlass_core::recovery::{AvailableWorker, RecoverySettings};
use windlass_insight::failure_commands::jobs_barred_to_agents;
use windlass_insight::recovery::{self as insight, EligibleWorkers, RecoveryPlan};
use windlass_process::machine::MachineInfo;
use windlass_store::Store;
use windlass_types::failure_commands::FailureCommandStatus;
use windlass_types::{Capacity, JobStatus, WorkflowId};

/// The result of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecoverySummary {
    /// Failed jobs that run again.
    pub(crate) rerun_count: usize,
    /// Failed jobs that are unchanged.
    pub(crate) unchanged_count: usize,
    /// Of those, jobs that run again after approval.
    pub(crate) proposed_count: usize,
    /// Other jobs that still have to run.
    pub(crate) remaining_jobs: u64,
    /// Allocations were requested.
    pub(crate) are_nodes_requested: bool,
}

/// How much a recovery prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecoveryVerbosity {
    /// The plan, as data.
    Full,
    /// One line.
    Brief,
}

/// Recovers a workflow, and shows what is done. Jobs without a remedy are unchanged.
pub(crate) fn recover_workflow(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
    options: &RecoveryArgs,
    machine: &MachineArgs,
    talk: RecoveryVerbosity,
) -> Result<RecoverySummary, CliError> {
    if let Some(inspection) = allocation_check::inspect_allocations(ctx, store, workflow)? {
        inspection.print_inspection(ctx);
    }
    let orphans = orphans::reset_orphans(ctx, store, workflow, machine)?;
    if options.ai.is_asked {
        agent::run_agent(ctx, store, &rerun::load_workflow_row(store, workflow)?, &options.ai)?;
    }
    let site = RecoveryCluster::find(ctx, store, workflow, &options.allocations)?;
    let mut plan = diagnose_failures(ctx, store, workflow, options, machine, &site)?;
    if let Some(command) = options.recovery_hook.as_deref().filter(|_| plan.has_unexplained()) {
        hook::run_hook(ctx, &plan.row, command)?;
        // The agent may have handled some of them.
        plan = diagnose_failures(ctx, store, workflow, options, machine, &site)?;
    }
    let mut proposed = 0;
    if plan.has_reruns() {
        // Jobs for which no nodes can be requested are unchanged: they would be recorded as ready, and never
        // run.
        if let Err(error) = site.plan_allocations(store, &plan, &[], &options.allocations) {
            plan_output::print_plan(ctx, &plan, true, None, orphans)?;
            return Err(error);
        }
        let outcomes = apply_plan::apply_recovery_plan(ctx, store, &plan)?;
        proposed = outcomes.iter().filter(|outcome| outcome.answer == FailureCommandStatus::Proposed).count();
        plan.apply_outcomes(&outcomes);
    }
    if plan.has_reruns() {
        let asked_by = failure_commands::acting_agent(None).map(|agent| format!("agent {agent}"));
        store.add_event(&plan.recovery_event(asked_by.as_deref()), ctx.clock.now())?;
    }
    let needs_nodes = plan.has_reruns() || site.needs_allocations(store, workflow, &options.allocations)?;
    let asked = if needs_nodes {
        site.request_allocations(ctx, store, workflow, &options.allocations)?
    } else {
        None
    };
    match talk {
        RecoveryVerbosity::Full => plan_output::print_plan(ctx, &plan, false, asked.as_ref(), orphans)?,
        RecoveryVerbosity::Brief => {
            ctx.ui.print_note(&plan_output::render_headline(&plan, false, orphans));
            if let Some(asked) = &asked {
                ctx.ui.print_note(&allocations::render_summary(asked));
                allocations::warn_of_unfit(ctx, &asked.unfit);
            }
        }
    }
    let left = insight::count_remaining_jobs(&rerun::load_workflow_row(store, workflow)?);
    let (again, staying) = (plan.rerun_jobs().count(), plan.unchanged_count());
    Ok(RecoverySummary {
        rerun_count: again,
        unchanged_count: staying,
        proposed_count: proposed,
        remaining_jobs: left,
        are_nodes_requested: asked.is_some(),
    })
}

const NOT_FOR_AGENTS: &str = "it needs or had a decision, so agents may not rerun it this way";

/// Shows what would be done without doing it.
pub(crate) fn plan_recovery(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
    options: &RecoveryArgs,
    machine: &MachineArgs,
) -> Result<RecoverySummary, CliError> {
    let site = RecoveryCluster::find(ctx, store, workflow, &options.allocations)?;
    let plan = diagnose_failures(ctx, store, workflow, options, machine, &site)?;
    let mut lost = orphans::list_held_jobs(ctx, store, workflow)?;
    lost.retain(orphans::WorkerHeldJob::is_orphaned);
    let needs_nodes = plan.has_reruns()
        || !lost.is_empty()
        || site.needs_allocations(store, workflow, &options.allocations)?;
    let ids: Vec<_> = lost.iter().map(|held| held.job_id).collect();
    let asked =
        if needs_nodes { site.plan_allocations(store, &plan, &ids, &options.allocations) } else { Ok(None) };
    plan_output::print_plan(ctx, &plan, true, asked.as_ref().ok().and_then(Option::as_ref), lost.len())?;
    let asked = asked?;
    if needs_nodes {
        site.warn_unknown_cluster(ctx, workflow);
    }
    for held in &lost {
        ctx.ui.print_note(&held.describe());
    }
    if options.ai.is_asked && plan.row.counts.get(JobStatus::PendingFailed) > 0 {
        ctx.ui.print_note(&format!("{} would run first", agent::name(&options.ai)));
    }
    if let Some(command) = options.recovery_hook.as_deref().filter(|_| plan.has_unexplained()) {
        ctx.ui.print_note(&format!("the hook would run first: {command}"));
    }
    let (again, staying, left) = (plan.rerun_jobs().count(), plan.unchanged_count(), plan.remaining_count());
    Ok(RecoverySummary {
        rerun_count: again,
        unchanged_count: staying,
        proposed_count: 0,
        remaining_jobs: left,
        are_nodes_requested: asked.is_some(),
    })
}

fn diagnose_failures(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
    options: &RecoveryArgs,
    machine: &MachineArgs,
    site: &RecoveryCluster,
) -> Result<RecoveryPlan, CliError> {
    let row = rerun::load_workflow_row(store, workflow)?;
    let eligible = match site.cluster_capacity(&options.allocations, &row.settings) {
        Some(eligible) => eligible,
        None => worker_capacity(ctx, store, workflow, machine)?,
    };
    let terms = RecoverySettings {
        memory_multiplier: options.memory_multiplier,
        runtime_multiplier: options.runtime_multiplier,
        cpu_multiplier: options.cpu_multiplier,
        retry_unknown: options.retry_unknown || options.recovery_hook.is_some(),
        workers: &eligible.workers,
    };
    let for_agent = failure_commands::acting_agent(None).is_some();
    let kept = if for_agent { jobs_barred_to_agents(store, &row)? } else { BTreeMap::new() };
    // An agent decides about waiting failures under its own name, except where a workflow is restarted without
    // decisions.
    let decides = |status: JobStatus| status == JobStatus::PendingFailed && !row.is_canceled;
    let mut plan = insight::diagnose_workflow(store, row.clone(), &terms)?;
    plan.exclude_jobs(
        |found| kept.contains_key(&found.failed_job.job) && !decides(found.failed_job.status),
        NOT_FOR_AGENTS,
    );
    Ok(plan)
}

/// The capacity of the workers that may run the jobs.
fn worker_capacity(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: WorkflowId,
    machine: &MachineArgs,
) -> Result<EligibleWorkers, CliError> {
    if let Some(client) = ctx.server()? {
        let there: Vec<_> = client.workers(Some(workflow))?.into_iter().map(why::worker_offer).collect();
        return Ok(EligibleWorkers::from_offers(&there));
    }
    let mut eligible = local_capacity(store, workflow, machine)?;
    for worker in &mut eligible.workers {
        worker.time_left = machine.time_limit;
    }
    Ok(eligible)
}

/// On this machine. A process that now runs the workflow may have other limits.
pub(crate) fn local_capacity(
    store: &dyn Store,
    workflow: WorkflowId,
    machine: &MachineArgs,
) -> Result<EligibleWorkers, windlass_store::StoreError> {
    let is_run = store.lock_holder(workflow)?.is_some();
    let running = if is_run { store.active_workers(Some(workflow))? } else { Vec::new() };
    let mut workers: Vec<Capacity> = running.into_iter().map(|row| row.worker.capacity).collect();
    if workers.is_empty() {
        workers.push(local_worker::machine_capacity(machine, &MachineInfo::detect()));
    }
    Ok(EligibleWorkers {
        workers: workers.into_iter().map(|has| AvailableWorker { capacity: has, time_left: None }).collect(),
    })
}

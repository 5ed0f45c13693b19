//! One recovery of a workflow, as `recover` and `watch` do it: dead workers are seen to, an agent and a hook are asked, each
//! job that ended badly is diagnosed, and what can be helped runs again.

pub(crate) mod agent;
pub(crate) mod allocations;
mod carry;
mod hook;
pub(crate) mod inspect;
pub(crate) mod orphans;
mod show;
pub(crate) mod site;

use crate::args::MachineArgs;
use crate::args::recover::RecoveryArgs;
use crate::commands::why;
use crate::context::Context;
use crate::error::CliError;
use crate::local;
use crate::orders;
use crate::rerun;
use site::Site;
use std::collections::BTreeMap;
use windlass_core::recovery::{Taker, Terms};
use windlass_insight::orders::not_for_agents;
use windlass_insight::recovery::{self as insight, Plan, Room};
use windlass_proc::machine::Machine;
use windlass_store::Store;
use windlass_types::orders::Answer;
use windlass_types::{Capacity, JobStatus, WorkflowId};

/// How a recovery went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Jobs that run again for their own sake.
    pub(crate) again: usize,
    /// Jobs that stay as they are.
    pub(crate) staying: usize,
    /// Of those, jobs that run again once a person agrees.
    pub(crate) proposed: usize,
    /// Jobs that did not fail and still have to run.
    pub(crate) left: u64,
    /// Nodes were asked for.
    pub(crate) is_served: bool,
}

/// How much is said about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Talk {
    /// The plan, as data.
    Fully,
    /// A line about it.
    Briefly,
}

/// Recovers a workflow, and shows what is done. What nobody can help with stays as it is.
pub(crate) fn recover(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    how: &RecoveryArgs,
    machine: &MachineArgs,
    talk: Talk,
) -> Result<Recovered, CliError> {
    if let Some(inspection) = inspect::inspect(ctx, store, workflow)? {
        inspection.tell(ctx);
    }
    let orphans = orphans::clear(ctx, store, workflow, machine)?;
    if how.ai.is_asked {
        agent::ask(ctx, store, &rerun::row(store, workflow)?, &how.ai)?;
    }
    let site = Site::of(ctx, store, workflow, &how.allocations)?;
    let mut plan = diagnose(ctx, store, workflow, how, machine, &site)?;
    if let Some(command) = how.recovery_hook.as_deref().filter(|_| plan.has_unexplained()) {
        hook::run(ctx, &plan.row, command)?;
        // It may have seen to some of them itself.
        plan = diagnose(ctx, store, workflow, how, machine, &site)?;
    }
    let mut proposed = 0;
    if plan.runs_something() {
        // What nobody can give nodes to stays as it is: in the books it would be ready, and never run.
        if let Err(error) = site.rehearse(store, &plan, &[], &how.allocations) {
            show::plan(ctx, &plan, true, None, orphans)?;
            return Err(error);
        }
        let outcomes = carry::out(ctx, store, &plan)?;
        proposed = outcomes.iter().filter(|outcome| outcome.answer == Answer::Proposed).count();
        plan.learn(&outcomes);
    }
    if plan.runs_something() {
        let asked_by = orders::agent(None).map(|agent| format!("agent {agent}"));
        store.add_event(&plan.event(asked_by.as_deref()), ctx.clock.now())?;
    }
    let needs_nodes = plan.runs_something() || site.is_wanting(store, workflow, &how.allocations)?;
    let asked = if needs_nodes { site.ask(ctx, store, workflow, &how.allocations)? } else { None };
    match talk {
        Talk::Fully => show::plan(ctx, &plan, false, asked.as_ref(), orphans)?,
        Talk::Briefly => {
            ctx.ui.note(&show::headline(&plan, false, orphans));
            if let Some(asked) = &asked {
                ctx.ui.note(&allocations::in_words(asked));
                allocations::warn_of_unfit(ctx, &asked.unfit);
            }
        }
    }
    let left = insight::left(&rerun::row(store, workflow)?);
    let (again, staying) = (plan.again().count(), plan.staying());
    Ok(Recovered { again, staying, proposed, left, is_served: asked.is_some() })
}

const NOT_FOR_AGENTS: &str = "it waits for a decision or was decided on: agents do not have it run again so";

/// Shows what would be done, and does nothing.
pub(crate) fn rehearse(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    how: &RecoveryArgs,
    machine: &MachineArgs,
) -> Result<Recovered, CliError> {
    let site = Site::of(ctx, store, workflow, &how.allocations)?;
    let plan = diagnose(ctx, store, workflow, how, machine, &site)?;
    let mut lost = orphans::look(ctx, store, workflow)?;
    lost.retain(orphans::Held::goes_back);
    let needs_nodes =
        plan.runs_something() || !lost.is_empty() || site.is_wanting(store, workflow, &how.allocations)?;
    let ids: Vec<_> = lost.iter().map(|held| held.job_id).collect();
    let asked = if needs_nodes { site.rehearse(store, &plan, &ids, &how.allocations) } else { Ok(None) };
    show::plan(ctx, &plan, true, asked.as_ref().ok().and_then(Option::as_ref), lost.len())?;
    let asked = asked?;
    if needs_nodes {
        site.warn_unseen(ctx, workflow);
    }
    for held in &lost {
        ctx.ui.note(&held.describe());
    }
    if how.ai.is_asked && plan.row.counts.get(JobStatus::PendingFailed) > 0 {
        ctx.ui.note(&format!("{} would be asked first", agent::name(&how.ai)));
    }
    if let Some(command) = how.recovery_hook.as_deref().filter(|_| plan.has_unexplained()) {
        ctx.ui.note(&format!("the hook would be run first: {command}"));
    }
    let (again, staying, left) = (plan.again().count(), plan.staying(), plan.left());
    Ok(Recovered { again, staying, proposed: 0, left, is_served: asked.is_some() })
}

fn diagnose(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    how: &RecoveryArgs,
    machine: &MachineArgs,
    site: &Site,
) -> Result<Plan, CliError> {
    let row = rerun::row(store, workflow)?;
    let room = match site.room(&how.allocations, &row.settings) {
        Some(room) => room,
        None => room(ctx, store, workflow, machine)?,
    };
    let terms = Terms {
        memory_multiplier: how.memory_multiplier,
        runtime_multiplier: how.runtime_multiplier,
        cpu_multiplier: how.cpu_multiplier,
        retry_unknown: how.retry_unknown || how.recovery_hook.is_some(),
        takers: &room.takers,
    };
    let for_agent = orders::agent(None).is_some();
    let kept = if for_agent { not_for_agents(store, &row)? } else { BTreeMap::new() };
    // What waits, an agent decides on as itself; but not where a workflow begins anew without decisions.
    let decides = |status: JobStatus| status == JobStatus::PendingFailed && !row.is_canceled;
    let mut plan = insight::diagnose(store, row.clone(), &terms)?;
    plan.leave(|found| kept.contains_key(&found.case.job) && !decides(found.case.status), NOT_FOR_AGENTS);
    Ok(plan)
}

/// What the workers that may take the jobs have.
fn room(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    machine: &MachineArgs,
) -> Result<Room, CliError> {
    if let Some(client) = ctx.server()? {
        let there: Vec<_> = client.workers(Some(workflow))?.into_iter().map(why::offer).collect();
        return Ok(Room::of(&there));
    }
    let mut room = local_room(store, workflow, machine)?;
    for taker in &mut room.takers {
        taker.stays = machine.time_limit;
    }
    Ok(room)
}

/// On this machine. Whoever runs the workflow now may have been given more or less of it.
pub(crate) fn local_room(
    store: &dyn Store,
    workflow: WorkflowId,
    machine: &MachineArgs,
) -> Result<Room, windlass_store::Error> {
    let is_run = store.lock_holder(workflow)?.is_some();
    let running = if is_run { store.active_workers(Some(workflow))? } else { Vec::new() };
    let mut workers: Vec<Capacity> = running.into_iter().map(|row| row.worker.capacity).collect();
    if workers.is_empty() {
        workers.push(local::capacity(machine, &Machine::detect()));
    }
    Ok(Room { takers: workers.into_iter().map(|has| Taker { has, stays: None }).collect() })
}

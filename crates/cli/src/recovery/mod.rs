//! One recovery of a workflow, as `recover` and `watch` do it: dead workers are seen to, an agent and a hook are asked, each
//! job that ended badly is diagnosed, and what can be helped runs again.

pub(crate) mod agent;
mod carry;
mod hook;
pub(crate) mod orphans;
mod show;

use crate::args::MachineArgs;
use crate::args::recover::RecoveryArgs;
use crate::context::Context;
use crate::error::CliError;
use crate::local;
use crate::rerun;
use serde_json::json;
use std::time::Duration;
use windlass_core::recovery::{Diagnosis, Remedy, Terms, plan};
use windlass_engine::{Examined, examine};
use windlass_proc::machine::Machine;
use windlass_store::Store;
use windlass_store::model::{NewEvent, Severity, WorkflowRow};
use windlass_types::{Bytes, Capacity, JobStatus, WorkflowId};

/// What was found about the jobs of a workflow, and what is to be done about them.
pub(crate) struct Plan {
    pub(crate) row: WorkflowRow,
    pub(crate) patients: Vec<Patient>,
}

pub(crate) struct Patient {
    pub(crate) found: Examined,
    pub(crate) remedy: Remedy,
}

impl Plan {
    pub(crate) fn again(&self) -> impl Iterator<Item = &Patient> {
        self.patients.iter().filter(|patient| patient.remedy.runs_again())
    }

    pub(crate) fn runs_something(&self) -> bool {
        self.again().next().is_some()
    }

    fn staying(&self) -> usize {
        self.patients.len() - self.again().count()
    }
}

/// How a recovery went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// Jobs that run again for their own sake.
    pub(crate) again: usize,
    /// Jobs that stay as they are.
    pub(crate) staying: usize,
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
    orphans::clear(ctx, store, workflow, machine)?;
    if how.ai.is_asked {
        agent::ask(ctx, store, &rerun::row(store, workflow)?, &how.ai)?;
    }
    let mut plan = diagnose(ctx, store, workflow, how, machine)?;
    if let Some(command) = how.recovery_hook.as_deref().filter(|_| has_unexplained(&plan)) {
        hook::run(ctx, &plan.row, command)?;
        // It may have seen to some of them itself.
        plan = diagnose(ctx, store, workflow, how, machine)?;
    }
    if plan.runs_something() {
        carry::out(ctx, store, &plan)?;
        note(store, &plan, ctx)?;
    }
    match talk {
        Talk::Fully => show::plan(ctx, &plan, false)?,
        Talk::Briefly => ctx.ui.note(&show::headline(&plan, false)),
    }
    Ok(Recovered { again: plan.again().count(), staying: plan.staying() })
}

/// Shows what would be done, and does nothing.
pub(crate) fn rehearse(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    how: &RecoveryArgs,
    machine: &MachineArgs,
) -> Result<Recovered, CliError> {
    let plan = diagnose(ctx, store, workflow, how, machine)?;
    show::plan(ctx, &plan, true)?;
    for held in orphans::look(ctx, store, workflow)?.iter().filter(|held| held.goes_back()) {
        ctx.ui.note(&held.describe());
    }
    if how.ai.is_asked && plan.row.counts.get(JobStatus::PendingFailed) > 0 {
        ctx.ui.note(&format!("{} would be asked first", agent::name(&how.ai)));
    }
    if let Some(command) = how.recovery_hook.as_deref().filter(|_| has_unexplained(&plan)) {
        ctx.ui.note(&format!("the hook would be run first: {command}"));
    }
    Ok(Recovered { again: plan.again().count(), staying: plan.staying() })
}

fn diagnose(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    how: &RecoveryArgs,
    machine: &MachineArgs,
) -> Result<Plan, CliError> {
    let row = rerun::row(store, workflow)?;
    let found = examine(store, &row)?;
    let room = room(ctx, store, workflow, machine)?;
    let terms = Terms {
        memory_multiplier: how.memory_multiplier,
        runtime_multiplier: how.runtime_multiplier,
        cpu_multiplier: how.cpu_multiplier,
        retry_unknown: how.retry_unknown || how.recovery_hook.is_some(),
        workers: &room.workers,
        longest: room.longest,
    };
    let cases: Vec<_> = found.iter().map(|found| found.case).collect();
    let remedies = plan(&cases, &terms);
    let patients = found.into_iter().zip(remedies).map(|(found, remedy)| Patient { found, remedy }).collect();
    Ok(Plan { row, patients })
}

fn has_unexplained(plan: &Plan) -> bool {
    plan.patients.iter().any(|patient| patient.remedy.diagnosis == Diagnosis::Unknown)
}

/// What the workers that may take the jobs have.
struct Room {
    workers: Vec<Capacity>,
    longest: Option<Duration>,
}

fn room(
    ctx: &Context,
    store: &dyn Store,
    workflow: WorkflowId,
    machine: &MachineArgs,
) -> Result<Room, CliError> {
    let Some(client) = ctx.server()? else {
        let here = local::capacity(machine, &Machine::detect());
        // Whoever runs it now may have been given more or less of this machine.
        let running = store.active_workers(Some(workflow))?.into_iter().map(|row| row.worker.capacity);
        let running: Vec<Capacity> =
            if store.lock_holder(workflow)?.is_some() { running.collect() } else { Vec::new() };
        let workers = if running.is_empty() { vec![here] } else { running };
        return Ok(Room { workers, longest: machine.time_limit });
    };
    let there = client.workers(Some(workflow))?;
    let workers = there.iter().map(|worker| Capacity {
        cpus: worker.num_cpus,
        memory: Bytes(worker.memory_bytes),
        gpus: worker.num_gpus,
        nodes: 1,
        max_jobs: worker.max_jobs,
    });
    // One that says nothing stays for ever.
    let stays: Option<Vec<f64>> = there.iter().map(|worker| worker.time_left_seconds).collect();
    let longest = stays.and_then(|stays| stays.into_iter().max_by(f64::total_cmp));
    Ok(Room {
        workers: workers.collect(),
        longest: longest.and_then(|s| Duration::try_from_secs_f64(s).ok()),
    })
}

/// For whoever asks later what happened.
fn note(store: &dyn Store, plan: &Plan, ctx: &Context) -> Result<(), CliError> {
    let jobs: Vec<_> = plan.again().map(|patient| &patient.remedy).collect();
    let event = NewEvent {
        workflow: Some(plan.row.id),
        job: None,
        severity: Severity::Info,
        category: "recovery".to_owned(),
        message: show::headline(plan, false),
        data: Some(json!({ "jobs": jobs.iter().take(NOTED).collect::<Vec<_>>(), "count": jobs.len() })),
    };
    store.add_event(&event, ctx.clock.now())?;
    Ok(())
}

/// So many jobs are noted one by one.
const NOTED: usize = 1000;

//! Carries a plan out: what a job asks for from now on is its own, and what runs again goes back with what was built on it.

use crate::context::Context;
use crate::error::{CliError, Kind};
use crate::{orders, rerun};
use std::collections::{HashMap, HashSet};
use windlass_core::reset::{Choice, Standing, plan_reset};
use windlass_insight::recovery::{Patient, Plan};
use windlass_store::Store;
use windlass_store::model::{RequirementsChange, UsedBy, WorkflowRow};
use windlass_types::orders::{Answer, Orders, Outcome, Wanted};
use windlass_types::{JobId, JobStatus, Resources, write_duration, write_size};

/// What the orders about its jobs came to, where it takes orders.
pub(super) fn out(ctx: &Context, store: &dyn Store, plan: &Plan) -> Result<Vec<Outcome>, CliError> {
    // Nobody decides about jobs that did not fail: what was stopped as a whole begins anew as a whole.
    if plan.row.is_canceled { in_next_run(ctx, store, plan) } else { by_orders(ctx, store, plan) }
}

/// In the run that there is, also while other jobs of it run.
fn by_orders(ctx: &Context, store: &dyn Store, plan: &Plan) -> Result<Vec<Outcome>, CliError> {
    let mut all = Vec::new();
    for orders in wanted(plan, orders::agent(None)) {
        all.extend(orders::give(store, plan.row.id, &Wanted::Orders(orders))?);
    }
    let staying: Vec<&Outcome> = all.iter().filter(|outcome| outcome.answer != Answer::Done).collect();
    for outcome in staying.iter().take(NAMED) {
        // Somebody else was quicker, an agent has to ask, or what was built on it runs.
        ctx.ui.warn(&format!("job {} stays as it is: {}", outcome.job, outcome.words));
    }
    if staying.len() > NAMED {
        ctx.ui.warn(&format!("{} more stay as they are", staying.len() - NAMED));
    }
    Ok(all)
}

/// An agent decides on what waits for a decision, as the workflow lets it; what has failed is recovered at its request.
fn wanted(plan: &Plan, agent: Option<String>) -> Vec<Orders> {
    let asked_by = agent.as_ref().map(|agent| format!("agent {agent}"));
    let all = plan.orders(asked_by.as_deref());
    let Some(agent) = agent else { return vec![all] };
    let waits = |patient: &&Patient| patient.found.case.status == JobStatus::PendingFailed;
    let waiting: HashSet<JobId> = plan.again().filter(waits).map(|patient| patient.remedy.job).collect();
    let (decided, recovered): (Vec<_>, Vec<_>) =
        all.orders.into_iter().partition(|order| waiting.contains(&order.job));
    let decided = Orders { agent: Some(agent), orders: decided, ..Orders::default() };
    let recovered = Orders { orders: recovered, ..Orders::default() };
    [decided, recovered].into_iter().filter(|orders| !orders.orders.is_empty()).collect()
}

/// So many jobs that stay are named.
const NAMED: usize = 10;

/// In a run of its own, while nobody runs the workflow.
fn in_next_run(ctx: &Context, store: &dyn Store, plan: &Plan) -> Result<Vec<Outcome>, CliError> {
    let workflow = plan.row.id;
    rerun::begin(ctx, store, workflow, |row| {
        let changes = changes(plan);
        if !changes.is_empty() {
            store.change_requirements(workflow, &changes, ctx.clock.now())?;
        }
        Ok((going_back(store, row, plan)?, ()))
    })?;
    Ok(Vec::new())
}

/// Jobs that come to ask for the same share a set, which is nobody else's.
fn changes(plan: &Plan) -> Vec<RequirementsChange> {
    let mut sets: HashMap<Resources, Vec<JobId>> = HashMap::new();
    for patient in plan.again() {
        if let Some(resources) = patient.asked_then() {
            sets.entry(resources).or_default().push(patient.remedy.job);
        }
    }
    let change = |(resources, jobs)| RequirementsChange {
        name: name_of(&resources),
        resources,
        used_by: UsedBy::Jobs(jobs),
    };
    sets.into_iter().map(change).collect()
}

/// All that is in the set, so that one name is one set.
fn name_of(resources: &Resources) -> String {
    let Resources { cpus, memory, gpus, nodes, runtime } = *resources;
    let runtime = runtime.map_or_else(|| "unsaid".to_owned(), write_duration);
    format!("recovered:{cpus}cpus:{}:{gpus}gpus:{nodes}nodes:{runtime}", write_size(memory))
}

/// Those that run again, and what was built on them.
fn going_back(store: &dyn Store, row: &WorkflowRow, plan: &Plan) -> Result<Vec<JobId>, CliError> {
    let table = store.load_jobs(row.id)?;
    let standing = |&status: &JobStatus| Standing { status, return_code: None };
    let standings: Vec<Standing> = table.status.iter().map(standing).collect();
    let number = |job: &JobId| table.ids.binary_search(job).ok().map(|index| index as u32);
    let jobs = plan.again().filter_map(|patient| number(&patient.remedy.job)).collect();
    let reset = plan_reset(&standings, &table.edges, &Choice { jobs, ..Choice::default() });
    let reset = reset.map_err(|refused| CliError::new(Kind::Refused, refused.to_string()))?;
    Ok(reset.all().into_iter().map(|number| table.ids[number as usize]).collect())
}

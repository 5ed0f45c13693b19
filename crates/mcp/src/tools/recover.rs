//! Bringing a workflow back that stopped with failures, as `windlass recover` does.

use super::Answer;
use super::verbs::confirmed;
use crate::desk::{Desk, Trouble};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_core::recovery::Terms;
use windlass_core::slurm::groups::Options;
use windlass_core::slurm::profile::Profile;
use windlass_insight::allocating::{self, Gathered, Unscheduled, Wanted, is_on_slurm, reschedule, shares};
use windlass_insight::orders::not_for_agents;
use windlass_insight::recovery::{Plan, PlanView, diagnose};
use windlass_store::model::WorkflowRow;
use windlass_types::orders::{Answer as Given, Outcome};
use windlass_types::{JobId, JobStatus};

/// As on the command line.
const MULTIPLIER: f64 = 1.5;
const CPU_MULTIPLIER: f64 = 1.2;
const LARGEST: f64 = 100.0;
/// So many jobs are told of one by one.
const MOST: usize = 200;

const UNDECIDED: &str = "it waits for a decision: classify_and_resolve_failures makes one";
const DECIDED: &str = "it was decided on, and only a person has it tried again";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Recover {
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

pub(super) fn recover(desk: &Desk, args: &Recover) -> Answer {
    let (memory, runtime) =
        (multiplier(args.memory_multiplier, "memory")?, multiplier(args.runtime_multiplier, "runtime")?);
    if args.dry_run {
        let plan = plan(desk, desk.workflow(args.workflow_id)?, memory, runtime, args.retry_unknown)?;
        return told(&plan, true, &[]);
    }
    confirmed(desk, args.workflow_id, args.confirm, |row| {
        format!(
            "recover workflow {} ({}): jobs that failed run again, some with more memory or time",
            row.id, row.name
        )
    })?;
    let row = desk.workflow(args.workflow_id)?;
    desk.hands.clear_up(row.id)?;
    let mut plan = plan(desk, desk.workflow(args.workflow_id)?, memory, runtime, args.retry_unknown)?;
    let mut outcomes = Vec::new();
    if plan.runs_something() {
        foresee(desk, &plan)?;
        let asked_by = format!("agent {}", desk.agent);
        outcomes = desk.give(row.id, plan.orders(Some(&asked_by)))?;
        plan.learn(&outcomes);
        if plan.runs_something() {
            desk.books.add_event(&plan.event(Some(&asked_by)), Desk::now())?;
        }
    }
    let mut told = told(&plan, false, &outcomes)?;
    if (plan.runs_something() || is_wanting(desk, &row)?)
        && let Some(slurm) = new_allocations(desk, &row)?
        && let Value::Object(told) = &mut told
    {
        told.insert("slurm".to_owned(), slurm);
    }
    Ok(told)
}

/// What no node can hold stays as it is: in the books it would be ready, and never run.
fn foresee(desk: &Desk, plan: &Plan) -> Result<(), Trouble> {
    let row = &plan.row;
    let Some(cluster) = cluster(desk, row)? else { return Ok(()) };
    let (options, then) = (options(row), plan.asked_then());
    let include: Vec<JobId> = plan.again().map(|patient| patient.remedy.job).collect();
    let wanted = Wanted { options: &options, include: &include, submit: true, by: &row.user };
    let mut gathered = Gathered::read(&*desk.books, row, &include)?;
    gathered.pretend(&|job| then.get(&job).copied());
    gathered.plan(&cluster, &wanted).map(drop).map_err(|why| {
        Trouble::refused(why.to_string()).with_hint("nothing was changed; smaller multipliers ask for less")
    })
}

/// Whether jobs that did not fail wait for nodes that nobody asks for.
fn is_wanting(desk: &Desk, row: &WorkflowRow) -> Result<bool, Trouble> {
    let Some(cluster) = cluster(desk, row)? else { return Ok(false) };
    // As it stands after the orders. What cannot be planned for is told by whoever asks for nodes.
    let row = desk.workflow(row.id.0)?;
    match allocating::is_wanting(&*desk.books, &row, &cluster, &options(&row)) {
        Ok(is_wanting) => Ok(is_wanting),
        Err(Unscheduled::Books(error)) => Err(error.into()),
        Err(Unscheduled::Plan(_)) => Ok(true),
    }
}

/// The cluster that the workflow runs on, where it is on Slurm and the cluster can be seen.
fn cluster(desk: &Desk, row: &WorkflowRow) -> Result<Option<Profile>, Trouble> {
    Ok(if is_on_slurm(&*desk.books, row.id)? { desk.hands.cluster(None).ok() } else { None })
}

fn options(row: &WorkflowRow) -> Options {
    let account = row.settings.slurm_defaults.get("account").and_then(|account| account.as_str());
    Options { account: account.unwrap_or_default().to_owned(), ..Options::default() }
}

/// On Slurm, what runs again needs nodes. That none could be asked for undoes nothing: it is told.
fn new_allocations(desk: &Desk, row: &WorkflowRow) -> Result<Option<Value>, Trouble> {
    if !is_on_slurm(&*desk.books, row.id)? {
        return Ok(None);
    }
    let asked = ask_for_allocations(desk, row);
    Ok(Some(asked.unwrap_or_else(|why| {
        let by_hand =
            format!("on a login node of the cluster: windlass slurm regenerate {} --submit", row.id);
        json!({ "error": why.message, "hint": why.hint, "by_hand": by_hand })
    })))
}

fn ask_for_allocations(desk: &Desk, row: &WorkflowRow) -> Answer {
    let cluster = desk.hands.cluster(None)?;
    let options = options(row);
    let wanted = Wanted { options: &options, include: &[], submit: true, by: &row.user };
    let (gathered, schedule, made) =
        reschedule(&*desk.books, row, &cluster, &wanted, Desk::now).map_err(|error| match error {
            Unscheduled::Books(error) => error.into(),
            Unscheduled::Plan(why) => Trouble::refused(why.to_string()),
        })?;
    Ok(
        json!({ "schedulers": shares(&gathered, &schedule), "allocations": made.allocations, "unfit": schedule.unfit }),
    )
}

/// What jobs ask for grows by this.
fn multiplier(said: Option<f64>, of: &str) -> Result<f64, Trouble> {
    let factor = said.unwrap_or(MULTIPLIER);
    if !(1.0..=LARGEST).contains(&factor) {
        return Err(Trouble::refused(format!("{of}_multiplier is a number from 1 to {LARGEST}")));
    }
    Ok(factor)
}

fn plan(
    desk: &Desk,
    row: WorkflowRow,
    memory_multiplier: f64,
    runtime_multiplier: f64,
    retry_unknown: bool,
) -> Result<Plan, Trouble> {
    if row.is_canceled {
        return Err(Trouble::refused(format!("workflow {} was canceled", row.id))
            .with_hint("reset_workflow_status with failed_only has what was stopped run again"));
    }
    let room = desk.hands.room(&*desk.books, row.id)?;
    let terms = Terms {
        memory_multiplier,
        runtime_multiplier,
        cpu_multiplier: CPU_MULTIPLIER,
        retry_unknown,
        takers: &room.takers,
    };
    let kept = not_for_agents(&*desk.books, &row)?;
    let mut plan = diagnose(&*desk.books, row, &terms)?;
    // There an agent is held to the policy of the workflow.
    plan.leave(|found| kept.contains_key(&found.case.job), DECIDED);
    plan.leave(|found| found.case.status == JobStatus::PendingFailed, UNDECIDED);
    Ok(plan)
}

fn told(plan: &Plan, dry_run: bool, outcomes: &[Outcome]) -> Answer {
    let view = PlanView::of_first(plan, dry_run, MOST);
    let mut view = serde_json::to_value(view).map_err(|why| Trouble::refused(why.to_string()))?;
    let refused = outcomes.iter().filter(|outcome| outcome.answer == Given::Refused);
    let refused: Vec<Value> =
        refused.map(|outcome| json!({ "job_id": outcome.job, "why": outcome.words })).collect();
    let more = json!({
        "summary": plan.in_words(dry_run), "has_more": plan.patients.len() > MOST, "refused": refused,
        "next": (!dry_run && (plan.runs_something() || plan.left() > 0)).then_some("run_workflow, unless somebody runs it already"),
    });
    if let (Value::Object(view), Value::Object(more)) = (&mut view, more) {
        view.extend(more);
    }
    Ok(view)
}

//! A whole schedule at once: what it was planned from is looked at in the same transaction that writes it, so of two that
//! were planned at the same time only one is done.

use super::rows;
use crate::Error;
use crate::books::apply::{current_run, find_job};
use crate::books::manage::By;
use crate::books::orders::places::Places;
use crate::books::{column, one_by_one, parts};
use crate::db::{Db, values};
use crate::error::Fault;
use crate::migration::checksum;
use crate::model::{AllocationFilter, CLAIMED, SchedulerRow};
use crate::sql::{common, server};
use serde_json::json;
use std::fmt::Write as _;
use windlass_core::orders::Place;
use windlass_core::slurm::book::{Schedule, Scheduled};
use windlass_types::WorkflowId;
use windlass_types::settings::SlurmScheduler;

/// All that a plan depends on, put together and summed up. How far an open allocation is does not count: that one begins to
/// run changes no plan.
pub(crate) fn seen(db: &impl Db, workflow: WorkflowId) -> Result<String, Fault> {
    current_run(db, workflow)?;
    let mut text = String::new();
    // Writing to a string cannot fail.
    for row in parts::schedulers(db, workflow)? {
        let _infallible = writeln!(text, "scheduler {} {}", row.id, column::json_text(&row.scheduler)?);
    }
    for row in parts::actions(db, workflow)? {
        let runs: Vec<u32> = row.runs.iter().map(|run| run.attempt.0).collect();
        let said = column::json_text(&(&row.action, &row.jobs, row.is_recovery, row.armed_after, runs))?;
        let _infallible = writeln!(text, "action {} {said}", row.id);
    }
    let filter = AllocationFilter { workflow: Some(workflow), ..AllocationFilter::default() };
    for row in rows::list(db, &filter)? {
        let (is_over, is_wanted) = (row.state.is_over(), row.unwanted.is_none());
        let _infallible = writeln!(text, "allocation {} {is_over} {is_wanted}", row.id);
    }
    Ok(checksum(&text))
}

pub(crate) fn apply(
    db: &impl Db,
    workflow: WorkflowId,
    schedule: &Schedule,
    by: By<'_>,
) -> Result<Scheduled, Fault> {
    if seen(db, workflow)? != schedule.seen {
        return Err(Error::Unexpected {
            what: format!("the schedule of workflow {workflow}"),
            expected: "as it was when this was planned".to_owned(),
            found: "its schedulers, actions or allocations have changed".to_owned(),
        }
        .into());
    }
    for action in &schedule.mark_executed {
        mark_executed(db, workflow, *action, by)?;
    }
    let schedulers = add_schedulers(db, workflow, &schedule.schedulers, by)?;
    assign(db, workflow, schedule)?;
    let actions = schedule.actions.iter().map(|action| {
        if let Some(name) = &action.action.scheduler {
            named(db, workflow, name)?;
        }
        one_by_one::add_action(db, workflow, action, by)
    });
    let actions = actions.collect::<Result<Vec<_>, Fault>>()?;
    let mut allocations = Vec::with_capacity(schedule.allocations.len());
    for new in &schedule.allocations {
        if new.workflow != workflow {
            let what = format!("an allocation of workflow {} in the schedule of {workflow}", new.workflow);
            return Err(Error::OutOfRange { what }.into());
        }
        named(db, workflow, &new.request.scheduler)?;
        allocations.push(rows::add(db, new, by)?);
    }
    let scheduled = Scheduled { schedulers, actions, allocations };
    let Scheduled { schedulers, actions, allocations } = &scheduled;
    let message = format!(
        "scheduled: {} schedulers, {} actions, {} allocations",
        schedulers.len(),
        actions.len(),
        allocations.len()
    );
    let data = json!({
        "marked_executed": schedule.mark_executed, "assigned_jobs": schedule.assign.len(), "schedulers": schedulers,
        "actions": actions, "allocations": allocations,
    });
    by.note(db, workflow, "scheduled", message, data)?;
    Ok(scheduled)
}

/// As if a client had taken it: it was carried out, and does not fire.
fn mark_executed(db: &impl Db, workflow: WorkflowId, id: i64, by: By<'_>) -> Result<(), Fault> {
    let found = parts::actions(db, workflow)?.into_iter().find(|row| row.id == id);
    let action = found.ok_or(Error::NoSuch { what: "action".into(), id })?;
    let attempt = action.runs.iter().map(|run| run.attempt.0).max().unwrap_or(0) + 1;
    let (run, now) = (current_run(db, workflow)?, by.now.0);
    let values = values![id, attempt, run.0, None::<i64>, CLAIMED, now, now];
    if db.execute(server::START_ACTION, values)? == 0 {
        return Err(Error::Action { id, what: format!("its execution {attempt} has begun before") }.into());
    }
    let message = format!("action {id} does not fire any more: a new schedule takes its place");
    by.note(db, workflow, "action_claimed", message, json!({ "action_id": id, "attempt_id": attempt }))
}

/// Their rows, in order. One that is there already must be the same.
fn add_schedulers(
    db: &impl Db,
    workflow: WorkflowId,
    new: &[SlurmScheduler],
    by: By<'_>,
) -> Result<Vec<i64>, Fault> {
    let mut ids = Vec::with_capacity(new.len());
    for scheduler in new {
        let known = parts::schedulers(db, workflow)?;
        let known = known.into_iter().find(|row| row.scheduler.name == scheduler.name);
        ids.push(match known {
            Some(row) if row.scheduler == *scheduler => row.id,
            Some(_) => {
                let name = scheduler.name.clone();
                return Err(Error::NameTaken { what: "another scheduler".into(), name }.into());
            }
            None => one_by_one::add_scheduler(db, workflow, scheduler, by)?,
        });
    }
    Ok(ids)
}

fn named(db: &impl Db, workflow: WorkflowId, name: &str) -> Result<SchedulerRow, Fault> {
    let found = parts::schedulers(db, workflow)?.into_iter().find(|row| row.scheduler.name == name);
    found.ok_or_else(|| Error::NoSuchName { what: "scheduler".into(), name: name.to_owned() }.into())
}

/// What a job names belongs to its kind, which it shares.
fn assign(db: &impl Db, workflow: WorkflowId, schedule: &Schedule) -> Result<(), Fault> {
    let places = Places::read(db, workflow)?;
    let known = places.schedulers();
    for (job, name) in &schedule.assign {
        find_job(db, workflow, *job)?.ok_or(Error::NoSuchJob(*job))?;
        let scheduler = known.iter().find(|scheduler| scheduler.name == *name);
        let scheduler =
            scheduler.ok_or_else(|| Error::NoSuchName { what: "scheduler".into(), name: name.clone() })?;
        let kind = places.kind(db, *job, &Place::of(Some(scheduler)))?;
        db.execute(common::SET_KIND, [kind, job.0])?;
    }
    Ok(())
}

//! Commits a whole schedule. The state that it was planned from is verified in the same transaction, so that of
//! two concurrent plans only one is applied.

use super::rows;
use crate::StoreError;
use crate::db::{SqlConnection, values};
use crate::error::SqlError;
use crate::migration::checksum;
use crate::model::{AllocationFilter, CLAIM_CAUSE, SlurmSchedulerRow};
use crate::sql::{common, workers_and_parts};
use crate::sql_store::apply_changes::{current_run, find_job_state};
use crate::sql_store::failure_commands::scheduler_targets::SchedulerTargets;
use crate::sql_store::workflow_updates::AuditContext;
use crate::sql_store::{column_decoding, crud, workflow_parts};
use serde_json::json;
use std::fmt::Write as _;
use windlass_core::failure_commands::SchedulerTarget;
use windlass_core::slurm::allocation_rows::{AllocationSchedule, AppliedSchedule};
use windlass_types::WorkflowId;
use windlass_types::settings::SlurmScheduler;

/// Returns a fingerprint of everything that a plan depends on. The progress of open allocations is not part of
/// it: that one starts running changes no plan.
pub(crate) fn schedule_fingerprint(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<String, SqlError> {
    current_run(db, workflow)?;
    let mut text = String::new();
    // Writing to a string cannot fail.
    for row in workflow_parts::list_schedulers(db, workflow)? {
        let _infallible =
            writeln!(text, "scheduler {} {}", row.id, column_decoding::render_json(&row.scheduler)?);
    }
    for row in workflow_parts::list_actions(db, workflow)? {
        let runs: Vec<u32> = row.runs.iter().map(|run| run.attempt.0).collect();
        let said =
            column_decoding::render_json(&(&row.action, &row.jobs, row.is_recovery, row.armed_after, runs))?;
        let _infallible = writeln!(text, "action {} {said}", row.id);
    }
    let filter = AllocationFilter { workflow: Some(workflow), ..AllocationFilter::default() };
    for row in rows::list_allocations(db, &filter)? {
        let (is_over, is_wanted) = (row.state.is_over(), row.unwanted.is_none());
        let _infallible = writeln!(text, "allocation {} {is_over} {is_wanted}", row.id);
    }
    Ok(checksum(&text))
}

pub(crate) fn apply_schedule(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    schedule: &AllocationSchedule,
    by: AuditContext<'_>,
) -> Result<AppliedSchedule, SqlError> {
    if schedule_fingerprint(db, workflow)? != schedule.seen {
        return Err(StoreError::Unexpected {
            what: format!("the schedule of workflow {workflow}"),
            expected: "in the state that it was planned from".to_owned(),
            found: "its schedulers, actions or allocations were changed".to_owned(),
        }
        .into());
    }
    for action in &schedule.mark_executed {
        mark_executed(db, workflow, *action, by)?;
    }
    let schedulers = add_schedulers(db, workflow, &schedule.schedulers, by)?;
    assign_schedulers(db, workflow, schedule)?;
    let actions = schedule.actions.iter().map(|action| {
        if let Some(name) = &action.action.scheduler {
            find_scheduler(db, workflow, name)?;
        }
        crud::add_action(db, workflow, action, by)
    });
    let actions = actions.collect::<Result<Vec<_>, SqlError>>()?;
    let mut allocations = Vec::with_capacity(schedule.allocations.len());
    for new in &schedule.allocations {
        if new.workflow != workflow {
            let what = format!("an allocation of workflow {} in the schedule of {workflow}", new.workflow);
            return Err(StoreError::OutOfRange { what }.into());
        }
        find_scheduler(db, workflow, &new.request.scheduler)?;
        allocations.push(rows::add_allocation(db, new, by)?);
    }
    let scheduled = AppliedSchedule { schedulers, actions, allocations };
    let AppliedSchedule { schedulers, actions, allocations } = &scheduled;
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
    by.record_event(db, workflow, "scheduled", message, data)?;
    Ok(scheduled)
}

/// Marks the action as claimed by a client: it counts as executed and is not triggered.
fn mark_executed(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    id: i64,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let found = workflow_parts::list_actions(db, workflow)?.into_iter().find(|row| row.id == id);
    let action = found.ok_or(StoreError::NoSuch { what: "action".into(), id })?;
    let attempt = action.runs.iter().map(|run| run.attempt.0).max().unwrap_or(0) + 1;
    let (run, now) = (current_run(db, workflow)?, by.now.0);
    let values = values![id, attempt, run.0, None::<i64>, CLAIM_CAUSE, now, now];
    if db.execute(workers_and_parts::START_ACTION, values)? == 0 {
        return Err(
            StoreError::Action { id, what: format!("its execution {attempt} has already started") }.into()
        );
    }
    let message = format!("action {id} is replaced by a new schedule");
    by.record_event(
        db,
        workflow,
        "action_claimed",
        message,
        json!({ "action_id": id, "attempt_id": attempt }),
    )
}

/// Returns the ids of the schedulers, in order. An existing one must have the same values.
fn add_schedulers(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    new: &[SlurmScheduler],
    by: AuditContext<'_>,
) -> Result<Vec<i64>, SqlError> {
    let mut ids = Vec::with_capacity(new.len());
    for scheduler in new {
        let known = workflow_parts::list_schedulers(db, workflow)?;
        let known = known.into_iter().find(|row| row.scheduler.name == scheduler.name);
        ids.push(match known {
            Some(row) if row.scheduler == *scheduler => row.id,
            Some(_) => {
                let name = scheduler.name.clone();
                return Err(StoreError::NameTaken { what: "another scheduler".into(), name }.into());
            }
            None => crud::add_scheduler(db, workflow, scheduler, by)?,
        });
    }
    Ok(ids)
}

fn find_scheduler(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    name: &str,
) -> Result<SlurmSchedulerRow, SqlError> {
    let found =
        workflow_parts::list_schedulers(db, workflow)?.into_iter().find(|row| row.scheduler.name == name);
    found.ok_or_else(|| StoreError::NoSuchName { what: "scheduler".into(), name: name.to_owned() }.into())
}

/// The scheduler of a job is stored in its job group, which other jobs share.
fn assign_schedulers(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    schedule: &AllocationSchedule,
) -> Result<(), SqlError> {
    let places = SchedulerTargets::load(db, workflow)?;
    let known = places.schedulers();
    for (job, name) in &schedule.assign {
        find_job_state(db, workflow, *job)?.ok_or(StoreError::NoSuchJob(*job))?;
        let scheduler = known.iter().find(|scheduler| scheduler.name == *name);
        let scheduler = scheduler
            .ok_or_else(|| StoreError::NoSuchName { what: "scheduler".into(), name: name.clone() })?;
        let job_group =
            places.group_for_target(db, *job, &SchedulerTarget::from_scheduler(Some(scheduler)))?;
        db.execute(common::SET_JOB_GROUP, [job_group, job.0])?;
    }
    Ok(())
}

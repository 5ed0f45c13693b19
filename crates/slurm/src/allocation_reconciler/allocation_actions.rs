//! Actions that request allocations: first the rows, then the claim.
//!
//! Each execution of an action requests once. The allocations are stored with the number of that execution, and
//! the action is claimed after that:
//!
//! - crash before the rows: the action is still due, and everything starts again;
//! - crash after the rows and before the claim: the action is still due with the same number, so the same
//!   rows are found and none is added. Rows of an execution that has not started are not submitted;
//! - crash after the claim: the rows exist, their execution has started, and they are submitted;
//! - the claim is refused because another process was faster, or the action is no longer due: the rows are
//!   withdrawn.

use super::reconcile_pass::{AllocationPassError, AllocationPassRunner, call_scheduler};
use std::collections::{BTreeMap, BTreeSet};
use windlass_core::slurm::allocation_request::{AllocationWorkerOptions, build_request};
use windlass_core::slurm::allocation_rows::{AllocationChange, NewAllocation};
use windlass_store::model::{ActionRow, EventSeverity, NewEvent, WorkflowRow};
use windlass_types::settings::ActionType;
use windlass_types::slurm::{Allocation, AllocationState};
use windlass_types::{SystemClock, WorkflowId};

/// More allocations in one action are treated as a mistake in the spec.
const MAX_ALLOCATIONS_PER_ACTION: u32 = 10_000;

impl AllocationPassRunner {
    /// Handles the actions of these workflows.
    pub(super) fn process_actions(
        &self,
        workflows: &BTreeSet<WorkflowId>,
    ) -> Result<(), AllocationPassError> {
        for id in workflows {
            let Some(row) = self.database().workflow(*id)? else { continue };
            if row.started_at.is_none() || row.is_canceled || row.is_archived {
                continue;
            }
            for action in self.due_actions(&row)? {
                self.process_action(&row, &action)?;
            }
        }
        Ok(())
    }

    fn due_actions(&self, workflow: &WorkflowRow) -> Result<Vec<ActionRow>, AllocationPassError> {
        if !self.database().actions(workflow.id)?.iter().any(is_for_slurm) {
            return Ok(Vec::new());
        }
        let mut due = call_scheduler(|reply| self.scheduler().pending_actions(workflow.id, reply))?;
        // Actions that run once per worker are not handled here. A persistent action stays available for other
        // workers; the reconciler counts as one of them and requests once.
        let is_asked_for = |action: &ActionRow| action.last_run().is_some();
        due.retain(|action| {
            is_for_slurm(action) && !action.action.trigger_type.is_about_workers() && !is_asked_for(action)
        });
        Ok(due)
    }

    fn process_action(&self, workflow: &WorkflowRow, action: &ActionRow) -> Result<(), AllocationPassError> {
        let attempt = action.runs.iter().map(|run| run.attempt.0).max().unwrap_or(0) + 1;
        let by = format!("action {}", action.id);
        let asked = self.requested_allocations(workflow, action);
        let (count, request, scheduler) = match asked {
            Ok(asked) => asked,
            Err(why) => {
                let message = format!("action {} requests allocations that are impossible: {why}", action.id);
                self.record_workflow_event(workflow.id, EventSeverity::Error, message)?;
                // It stays completed; after the correction a user has it run again.
                call_scheduler(|reply| self.scheduler().claim_action(workflow.id, action.id, None, reply))?;
                return Ok(());
            }
        };
        let new: Vec<NewAllocation> = (0..count)
            .map(|ordinal| NewAllocation {
                workflow: workflow.id,
                scheduler: Some(scheduler),
                tag: String::new(),
                request: request.clone(),
                action: Some((action.id, attempt, ordinal)),
                by: by.clone(),
            })
            .collect();
        self.database().add_allocations(&new, SystemClock.now())?;
        let claimed =
            call_scheduler(|reply| self.scheduler().claim_action(workflow.id, action.id, None, reply))?;
        if !claimed {
            let intended = self.load_intended_allocations(action.id)?;
            self.withdraw_allocations(&intended, "another process ran its action")?;
        }
        Ok(())
    }

    /// The allocations that the action requests, or why that is impossible.
    fn requested_allocations(
        &self,
        workflow: &WorkflowRow,
        action: &ActionRow,
    ) -> Result<(u32, windlass_types::slurm::AllocationRequest, i64), String> {
        let count = action.action.num_allocations.unwrap_or(1);
        if count > MAX_ALLOCATIONS_PER_ACTION {
            return Err(format!(
                "{count} allocations are more than the maximum of {MAX_ALLOCATIONS_PER_ACTION}"
            ));
        }
        let name = action.action.scheduler.as_deref().ok_or("it names no scheduler")?;
        let schedulers = self.database().schedulers(workflow.id).map_err(|error| error.to_string())?;
        let row = schedulers.iter().find(|row| row.scheduler.name == name);
        let row = row.ok_or_else(|| format!("the workflow has no scheduler `{name}`"))?;
        let group = AllocationWorkerOptions {
            one_worker_per_node: action.action.start_one_worker_per_node,
            max_parallel_jobs: action.action.max_parallel_jobs,
        };
        let request = build_request(&row.scheduler, &workflow.settings.slurm_defaults, group)?;
        Ok((count, request, row.id))
    }

    fn load_intended_allocations(&self, action: i64) -> Result<Vec<Allocation>, AllocationPassError> {
        let filter = windlass_store::model::AllocationFilter {
            action: Some(action),
            states: vec![AllocationState::Intended],
            ..windlass_store::model::AllocationFilter::default()
        };
        Ok(self.database().allocations(&filter)?)
    }

    /// The rows that may be submitted: those that users requested, and those whose execution has started. Rows of
    /// an execution that will not start are withdrawn.
    pub(super) fn submittable_allocations(
        &self,
        rows: &[Allocation],
    ) -> Result<BTreeSet<windlass_types::AllocationId>, AllocationPassError> {
        let mut actions: BTreeMap<WorkflowId, Vec<ActionRow>> = BTreeMap::new();
        let mut released = BTreeSet::new();
        let mut lapsed = Vec::new();
        for row in rows.iter().filter(|row| row.state == AllocationState::Intended) {
            let Some((id, attempt, _)) = row.action else {
                released.insert(row.id);
                continue;
            };
            let known = match actions.entry(row.workflow) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(new) => {
                    new.insert(self.database().actions(row.workflow)?)
                }
            };
            match known.iter().find(|action| action.id == id) {
                Some(action) if action.runs.iter().any(|run| run.attempt.0 == attempt) => {
                    released.insert(row.id);
                }
                // The next pass may still claim it.
                Some(action) if action.last_run().is_none() => {}
                _ => lapsed.push(row.clone()),
            }
        }
        self.withdraw_allocations(&lapsed, "its action is no longer due")?;
        Ok(released)
    }

    fn withdraw_allocations(&self, rows: &[Allocation], why: &str) -> Result<(), AllocationPassError> {
        let changes: Vec<AllocationChange> = rows
            .iter()
            .map(|row| {
                let mut change = AllocationChange::new(row.id, row.state, AllocationState::Withdrawn);
                change.reason = Some(Some(why.to_owned()));
                change.ended_at = Some(SystemClock.now());
                change
            })
            .collect();
        self.commit_changes(&changes)
    }

    /// Adds an event to the workflow.
    pub(super) fn record_workflow_event(
        &self,
        workflow: WorkflowId,
        severity: EventSeverity,
        message: String,
    ) -> Result<(), AllocationPassError> {
        let event = NewEvent {
            workflow: Some(workflow),
            job: None,
            severity,
            category: "slurm".to_owned(),
            message,
            data: None,
        };
        self.database().add_event(&event, SystemClock.now())?;
        Ok(())
    }
}

fn is_for_slurm(action: &ActionRow) -> bool {
    let is_slurm = action.action.scheduler_type.as_deref().is_none_or(|kind| kind == "slurm");
    action.action.action_type == ActionType::ScheduleNodes && is_slurm
}

//! The actions of a workflow for the process that runs it, a local run or a server: their states
//! ([`WorkflowActions`]) and their definitions.

use std::collections::HashMap;
use windlass_core::actions::{ActionRecord, ActionRun, WorkerStage, WorkflowActions};
use windlass_core::change::WorkflowChange;
use windlass_core::workflow_state::WorkflowState;
use windlass_store::model::{ActionRow, WorkflowRow};
use windlass_store::{Store, StoreError};
use windlass_types::settings::{ActionType, WorkflowAction};
use windlass_types::worker_protocol::ActionCommand;
use windlass_types::{Attempt, Timestamp, WorkerId, WorkflowId};

#[derive(Default)]
pub(crate) struct ActionSchedule {
    pub(crate) states: WorkflowActions,
    definitions: HashMap<i64, WorkflowAction>,
}

impl ActionSchedule {
    /// Loads them from the database.
    pub(crate) fn load(store: &dyn Store, workflow: WorkflowId) -> Result<Self, StoreError> {
        let rows = store.actions(workflow)?;
        let does = rows.iter().map(|row| (row.id, row.action.clone())).collect();
        Ok(Self {
            states: WorkflowActions::new(rows.into_iter().map(known_action).collect()),
            definitions: does,
        })
    }

    /// Counts the triggers from the current states of the jobs.
    pub(crate) fn count_job_triggers(&mut self, state: &WorkflowState, out: &mut Vec<WorkflowChange>) {
        self.states.count_job_statuses(|job| state.job_index(job).map(|job| state.status(job)), out);
    }

    /// Starts the next action for this worker, if one is due.
    pub(crate) fn start_next(
        &mut self,
        workflow: &WorkflowRow,
        worker: Option<WorkerId>,
        stage: WorkerStage,
        now: Timestamp,
        out: &mut Vec<WorkflowChange>,
    ) -> Option<ActionCommand> {
        let action = self.states.next_due(worker, stage)?;
        let attempt = self.states.start_run(action, worker, now, out)?;
        self.action_command(workflow, action, attempt)
    }

    /// The command for a worker to run an action: its definition, and its environment under both prefixes.
    pub(crate) fn action_command(
        &self,
        workflow: &WorkflowRow,
        action: i64,
        attempt: Attempt,
    ) -> Option<ActionCommand> {
        let known = [
            ("WORKFLOW_ID", workflow.id.to_string()),
            ("RUN_ID", workflow.run_id.to_string()),
            ("OUTPUT_DIR", workflow.output_dir.clone()),
            ("WORKFLOW_SUBMISSION_DIR", workflow.submission_dir.clone()),
        ];
        let both = |(name, value): (&str, String)| {
            [(format!("WINDLASS_{name}"), value.clone()), (format!("TORC_{name}"), value)]
        };
        let does = self.definitions.get(&action)?;
        Some(ActionCommand {
            workflow: workflow.id,
            run: workflow.run_id,
            action,
            attempt,
            trigger: does.trigger_type.name().to_owned(),
            commands: does.commands.clone(),
            env: known.into_iter().flat_map(both).collect(),
        })
    }
}

fn known_action(row: ActionRow) -> ActionRecord {
    let run = |run: &windlass_store::model::ActionRunRow| ActionRun {
        attempt: run.attempt,
        worker: run.worker_id,
        has_ended: run.ended_at.is_some(),
    };
    ActionRecord {
        id: row.id,
        trigger: row.action.trigger_type,
        persistent: row.action.persistent,
        runs_on_workers: row.action.action_type == ActionType::RunCommands,
        requests_nodes: row.action.action_type == ActionType::ScheduleNodes,
        runs: row.runs.iter().map(run).collect(),
        jobs: row.jobs,
        trigger_count: row.trigger_count,
        armed_after: row.armed_after,
    }
}

//! The actions of a workflow as whoever runs it has them, be it a local run or a server: what is decided about them
//! ([`Actions`]), and what they do.

use std::collections::HashMap;
use windlass_core::actions::{Actions, Known, Run, Stage};
use windlass_core::board::Board;
use windlass_core::change::Change;
use windlass_store::model::{ActionRow, WorkflowRow};
use windlass_store::{Error, Store};
use windlass_types::fleet::ActionOrder;
use windlass_types::settings::{Action, ActionType};
use windlass_types::{Attempt, Timestamp, WorkerId, WorkflowId};

#[derive(Default)]
pub(crate) struct Agenda {
    pub(crate) actions: Actions,
    does: HashMap<i64, Action>,
}

impl Agenda {
    /// As the books have it.
    pub(crate) fn noted(store: &dyn Store, workflow: WorkflowId) -> Result<Self, Error> {
        let rows = store.actions(workflow)?;
        let does = rows.iter().map(|row| (row.id, row.action.clone())).collect();
        Ok(Self { actions: Actions::new(rows.into_iter().map(known).collect()), does })
    }

    /// Counts what jobs did while nobody looked.
    pub(crate) fn look_at(&mut self, board: &Board, out: &mut Vec<Change>) {
        self.actions.look_at(|job| board.index(job).map(|job| board.status(job)), out);
    }

    /// The next one that the worker is to carry out begins, if there is one.
    pub(crate) fn begin_next(
        &mut self,
        workflow: &WorkflowRow,
        worker: Option<WorkerId>,
        stage: Stage,
        now: Timestamp,
        out: &mut Vec<Change>,
    ) -> Option<ActionOrder> {
        let action = self.actions.next_due(worker, stage)?;
        let attempt = self.actions.start(action, worker, now, out)?;
        self.order(workflow, action, attempt)
    }

    /// What whoever carries out an action needs to know: its commands, and where it is, in both spellings.
    pub(crate) fn order(&self, workflow: &WorkflowRow, action: i64, attempt: Attempt) -> Option<ActionOrder> {
        let known = [
            ("WORKFLOW_ID", workflow.id.to_string()),
            ("RUN_ID", workflow.run_id.to_string()),
            ("OUTPUT_DIR", workflow.output_dir.clone()),
            ("WORKFLOW_SUBMISSION_DIR", workflow.submission_dir.clone()),
        ];
        let both = |(name, value): (&str, String)| {
            [(format!("WINDLASS_{name}"), value.clone()), (format!("TORC_{name}"), value)]
        };
        let does = self.does.get(&action)?;
        Some(ActionOrder {
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

fn known(row: ActionRow) -> Known {
    let run = |run: &windlass_store::model::ActionRunRow| Run {
        attempt: run.attempt,
        worker: run.worker_id,
        is_over: run.ended_at.is_some(),
    };
    Known {
        id: row.id,
        trigger: row.action.trigger_type,
        persistent: row.action.persistent,
        is_ours: row.action.action_type == ActionType::RunCommands,
        is_for_nodes: row.action.action_type == ActionType::ScheduleNodes,
        runs: row.runs.iter().map(run).collect(),
        jobs: row.jobs,
        trigger_count: row.trigger_count,
        armed_after: row.armed_after,
    }
}

//! A request with all its rows, and the effect of changes on them.

use super::change::{BlockChange, RequestChange, RunChange};
use super::failures::FailureTally;
use super::rows::{BlockRow, OutputStep, OutputStepState, RequestProgress, RequestRow, RunRow};
use std::sync::Arc;
use windlass_types::Timestamp;
use windlass_types::requests::{RequestOverrides, RequestRunStatus};

/// The rows of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestView {
    pub row: RequestRow,
    pub process: Option<RequestProgress>,
    /// The latest run.
    pub run: Option<RunRow>,
    /// Failed attempts of the latest run. Shared, because it may be large and views are cloned often.
    pub failures: Arc<FailureTally>,
    /// All blocks of its process.
    pub blocks: Vec<BlockRow>,
    /// Steps neither done nor dropped; also those of a finished request.
    pub steps: Vec<OutputStep>,
}

impl RequestView {
    /// Returns the run of the current round, if it is planned.
    pub fn run_of_round(&self) -> Option<&RunRow> {
        let round = self.process.as_ref()?.round;
        self.run.as_ref().filter(|run| run.round == round)
    }

    /// Whether its current round does not continue with these exclusions: it was planned with excluded files,
    /// and its remaining work is left to the next round.
    pub fn is_outdated_by(&self, overrides: &RequestOverrides) -> bool {
        let is_open = |process: &&RequestProgress| process.settled <= process.round;
        let Some(process) = self.process.as_ref().filter(is_open) else { return false };
        overrides.excluded_files.len() as u64 > process.excluded
            && self.run_of_round().is_some_and(|run| run.status != RequestRunStatus::Completed)
    }

    pub fn find_block(&self, uuid: &str) -> Option<&BlockRow> {
        self.blocks.iter().find(|block| block.uuid == uuid)
    }

    /// Applies a change as the store does. A change that does not fit the rows changes nothing here; the store
    /// rejects it.
    pub fn apply_change(&mut self, change: &RequestChange, at: Timestamp) {
        match change {
            RequestChange::Status { from, to, reason } if self.row.status == *from => {
                self.row.status = *to;
                self.row.since = at;
                self.row.reason.clone_from(reason);
                self.row.alerted_at = None;
            }
            RequestChange::Status { .. }
            | RequestChange::RecordRunEvent(_)
            | RequestChange::Alert(_)
            | RequestChange::Ban(_)
            | RequestChange::AddVersion(..) => {}
            RequestChange::BlockedReason(by) => self.row.reason = Some(by.clone()),
            RequestChange::Priority(priority) => self.row.request.priority = *priority,
            RequestChange::ProductionSteps(steps) => self.row.request.production_steps.clone_from(steps),
            RequestChange::Urgent(urgent) => self.row.request.urgent = *urgent,
            RequestChange::SupersededBy(by) => self.row.request.superseded_by_request.clone_from(by),
            RequestChange::SetCommand(wanted) => self.row.wanted.clone_from(wanted),
            RequestChange::Overrides(overrides) => self.row.overrides.clone_from(overrides),
            RequestChange::SetAlertedAt(alerted) => self.row.alerted_at = *alerted,
            RequestChange::Process(process) => self.process = Some((**process).clone()),
            RequestChange::AddRun(run) => {
                self.run = Some((**run).clone());
                self.failures = Arc::default();
            }
            RequestChange::FailureTally { run, tally } => {
                if self.run.as_ref().is_some_and(|row| row.uuid == *run) {
                    self.failures = Arc::clone(tally);
                }
            }
            RequestChange::Run { run, change } => {
                if let Some(row) = self.run.as_mut().filter(|row| row.uuid == *run) {
                    apply_to_run(row, change, at);
                }
            }
            RequestChange::AddBlock(block) => {
                if self.find_block(&block.uuid).is_none() {
                    self.blocks.push((**block).clone());
                }
            }
            RequestChange::Block { block, change } => {
                if let Some(row) = self.blocks.iter_mut().find(|row| row.uuid == *block) {
                    apply_to_block(row, change);
                    row.updated_at = at;
                }
            }
            RequestChange::AddStep(step) => {
                if !self.steps.iter().any(|known| known.is_step(&step.block, step.unit, step.kind)) {
                    self.steps.push((**step).clone());
                }
            }
            RequestChange::Step { block, unit, kind, state, .. } => {
                if let Some(at) = self.steps.iter().position(|step| step.is_step(block, *unit, *kind)) {
                    apply_to_step(&mut self.steps[at], change);
                    if !state.is_open() {
                        self.steps.remove(at);
                    }
                }
            }
        }
    }
}

fn apply_to_run(row: &mut RunRow, change: &RunChange, at: Timestamp) {
    match change {
        RunChange::Status { from, to } if row.status == *from => {
            row.status = *to;
            match to {
                RequestRunStatus::Submitted => row.submitted_at = Some(at),
                RequestRunStatus::Planning
                | RequestRunStatus::Ready
                | RequestRunStatus::Running
                | RequestRunStatus::Halted => {}
                _ => row.completed_at = row.completed_at.or(Some(at)),
            }
        }
        RunChange::Status { .. } => {}
        RunChange::AssignBackend(backend) => row.backend.clone_from(backend),
        RunChange::Totals(totals) => row.totals.clone_from(totals),
        RunChange::Counts(counts) => row.counts = *counts,
        RunChange::Units { completed, failed, read } => {
            row.units_completed = *completed;
            row.units_failed = *failed;
            row.units_read = *read;
        }
        RunChange::Stop { at, reason } => {
            row.stop_requested_at = Some(*at);
            row.stop_reason = Some(reason.clone());
        }
        RunChange::Pause(since) => row.paused = *since,
        RunChange::Unresponsive(since) => row.silent = *since,
        RunChange::Priority(priority) => row.priority = Some(*priority),
    }
}

fn apply_to_block(row: &mut BlockRow, change: &BlockChange) {
    match change {
        BlockChange::Status { from, to } if row.status == *from => row.status = *to,
        BlockChange::Status { .. } => {}
        BlockChange::Opened { name } => row.name = Some(name.clone()),
        BlockChange::Closed => row.is_closed = true,
        BlockChange::UnitsCompleted(units) => row.units_completed = *units,
        BlockChange::UnitsExpected(units) => row.units_expected = *units,
        BlockChange::TapeRule(rule) => row.tape_rule = Some(rule.clone()),
    }
}

fn apply_to_step(row: &mut OutputStep, change: &RequestChange) {
    if let RequestChange::Step { state, attempts, due_at, first_failed_at, last_error, result, .. } = change {
        row.state = *state;
        row.attempts = *attempts;
        row.due_at = *due_at;
        row.first_failed_at = *first_failed_at;
        row.last_error.clone_from(last_error);
        row.result.clone_from(result);
    }
}

impl OutputStep {
    /// Whether it has this key.
    pub fn is_step(&self, block: &str, unit: Option<u32>, kind: super::rows::OutputStepKind) -> bool {
        self.block == block && self.unit == unit && self.kind == kind
    }

    /// Returns a change of its state alone.
    pub(super) fn change_state(&self, state: OutputStepState) -> RequestChange {
        RequestChange::Step {
            block: self.block.clone(),
            unit: self.unit,
            kind: self.kind,
            state,
            attempts: self.attempts,
            due_at: self.due_at,
            first_failed_at: self.first_failed_at,
            last_error: self.last_error.clone(),
            result: self.result.clone(),
        }
    }
}

//! Changes of the rows by events. Late and duplicate events change nothing.

use super::decision_builder::DecisionBuilder;
use super::{AlertKind, EffectFailure, LifecycleEvent, PlannedRound, RunReport, RunState, WorkUnitReport};
use crate::requests::change::{BlockChange, RequestChange, RunChange};
use crate::requests::outputs::{self, StepFailureDecision};
use crate::requests::rows::{
    BackendRunRef, OutputStep, OutputStepKind, OutputStepState, RequestProgress, RunEvent,
};
use serde_json::json;
use windlass_types::payload::MergeOutput;
use windlass_types::requests::{
    ProcessingBlockStatus, RequestRunStatus, RequestStatus, RequestUnitStatus, WorkUnitName,
};

impl DecisionBuilder<'_> {
    pub(super) fn apply_events(&mut self) {
        let situation = self.inputs;
        for news in situation.events {
            match news {
                LifecycleEvent::Imported(process) => self.on_imported(process),
                LifecycleEvent::ImportFailed(trouble) => {
                    self.on_effect_failed(RequestStatus::Submitted, trouble);
                }
                LifecycleEvent::Planned(planned) => self.on_planned(planned),
                LifecycleEvent::NothingToPlan => self.on_nothing_to_plan(),
                LifecycleEvent::PlanFailed(trouble) => {
                    self.on_effect_failed(RequestStatus::Planning, trouble);
                }
                LifecycleEvent::Submitted { run, backend, priority } => {
                    self.on_submitted(run, backend, *priority);
                }
                LifecycleEvent::Prioritized { run, priority } => self.on_prioritized(run, *priority),
                LifecycleEvent::SubmitFailed { run, failure: trouble } if self.is_run_ready(run) => {
                    self.on_effect_failed(RequestStatus::Planning, trouble);
                }
                LifecycleEvent::SubmitFailed { .. } => {}
                LifecycleEvent::Stopped { run, was_running: there } => self.on_stopped(run, *there),
                LifecycleEvent::Unpaused { run } => self.on_unpaused(run),
                LifecycleEvent::StopFailed { run, failure: trouble } => self.on_stop_failed(run, trouble),
                LifecycleEvent::Settled { round, run, files } => self.on_settled(*round, run, *files),
                LifecycleEvent::SettleFailed { round, failure: trouble } => {
                    self.on_settle_failed(*round, trouble);
                }
                LifecycleEvent::ManifestWritten { path } => self.manifest = Some(path.clone()),
                LifecycleEvent::ManifestFailed { reason } => self.on_manifest_failed(reason),
                LifecycleEvent::RunReported(news) => self.on_run_report(news),
                LifecycleEvent::Step { block, unit, kind, outcome } => {
                    let step = self.view.steps.iter().find(|step| step.is_step(block, *unit, *kind)).cloned();
                    if let Some(step) = step.filter(|step| step.state == OutputStepState::Pending) {
                        match outcome {
                            Ok(result) => self.on_step_done(&step, result.as_deref()),
                            Err(error) => self.on_step_failed(&step, error),
                        }
                    }
                }
            }
        }
    }

    fn on_imported(&mut self, process: &RequestProgress) {
        if self.view.row.status == RequestStatus::Submitted {
            self.push_change(RequestChange::Process(Box::new(process.clone())));
            self.set_status(RequestStatus::Queued, None);
        }
    }

    /// Handles the failure of an effect that belongs to this status. A transient failure is retried until the
    /// request is stuck.
    fn on_effect_failed(&mut self, status: RequestStatus, trouble: &EffectFailure) {
        if self.view.row.status != status {
            return;
        }
        if trouble.is_retryable {
            if self.view.row.reason.as_deref() != Some(&trouble.reason) {
                self.push_change(RequestChange::BlockedReason(trouble.reason.clone()));
            }
            self.is_backing_off = true;
            self.check_again_at(self.now.plus(self.settings.retry_after));
        } else {
            self.hold_with_reason(trouble.reason.clone());
        }
    }

    fn on_planned(&mut self, planned: &PlannedRound) {
        let awaited = self.view.row.status == RequestStatus::Planning
            && self.view.run_of_round().is_none()
            && self.view.process.as_ref().is_some_and(|process| process.round == planned.run.round);
        if awaited {
            self.push_change(RequestChange::Process(Box::new(planned.process.clone())));
            self.push_change(RequestChange::AddRun(Box::new(planned.run.clone())));
            for block in &planned.blocks {
                self.push_change(RequestChange::AddBlock(Box::new(block.clone())));
            }
        }
    }

    fn on_nothing_to_plan(&mut self) {
        if self.view.row.status != RequestStatus::Planning || self.view.run_of_round().is_some() {
            return;
        }
        if let Some(mut process) = self.view.process.clone().filter(|process| process.more_input) {
            process.more_input = false;
            process.updated_at = self.now;
            self.push_change(RequestChange::Process(Box::new(process)));
        }
        self.set_status(RequestStatus::Active, None);
    }

    fn is_run_ready(&self, run: &str) -> bool {
        self.view.run.as_ref().is_some_and(|row| row.uuid == run && row.status == RequestRunStatus::Ready)
    }

    /// Recorded in any status of the request: running runs must be known.
    fn on_submitted(&mut self, run: &str, backend: &BackendRunRef, priority: Option<i64>) {
        if self.is_run_ready(run) {
            self.change_run(RunChange::AssignBackend(backend.clone()));
            self.set_run_status(RequestRunStatus::Submitted);
            if let Some(priority) = priority {
                self.change_run(RunChange::Priority(priority));
            }
        }
    }

    fn on_prioritized(&mut self, run: &str, priority: i64) {
        if self.view.run.as_ref().is_some_and(|row| row.uuid == run && row.priority != Some(priority)) {
            self.change_run(RunChange::Priority(priority));
        }
    }

    fn on_stopped(&mut self, run: &str, there: bool) {
        let Some(row) = self.view.run.as_ref().filter(|row| row.uuid == run) else { return };
        match row.status {
            RequestRunStatus::Ready if !there && self.view.row.status == RequestStatus::Stopping => {
                self.set_run_status(RequestRunStatus::Stopped);
            }
            status if status.is_active() && !there => self.on_run_gone(),
            _ => {}
        }
    }

    /// A backend that cannot be reached for a stop counts as not answering.
    fn on_stop_failed(&mut self, run: &str, trouble: &EffectFailure) {
        self.is_unreachable |=
            trouble.is_retryable && self.view.run.as_ref().is_some_and(|row| row.uuid == run);
    }

    fn on_run_report(&mut self, news: &RunReport) {
        let Some(run) = self.view.run.as_ref().filter(|run| run.uuid == news.run) else { return };
        match (run.status, news.state) {
            (status, RunState::Unknown) => {
                self.is_unreachable = true;
                if status.is_active() && run.silent.is_none() {
                    self.change_run(RunChange::Unresponsive(Some(self.now)));
                }
                return;
            }
            // Only if it was looked up by number; by name the lookup may precede the submission.
            (status, RunState::Gone) if status.is_active() => {
                if news.backend.is_some() {
                    self.on_run_gone();
                }
                return;
            }
            // It was submitted, and only the confirmation was lost.
            (RequestRunStatus::Ready, RunState::Running | RunState::Halted | RunState::Over) => {
                match &news.backend {
                    Some(backend) => self.on_submitted(&news.run, backend, None),
                    None => return,
                }
            }
            (status, _) if status.is_active() => {}
            // Over already; or ready and not found, perhaps because it is not submitted yet.
            _ => return,
        }
        if self.view.run.as_ref().is_some_and(|run| run.silent.is_some()) {
            self.change_run(RunChange::Unresponsive(None));
        }
        self.apply_counts(news);
        self.record_attempts(news);
        let all_read = self.apply_units(news);
        match news.state {
            RunState::Running => self.set_run_status(RequestRunStatus::Running),
            RunState::Halted => self.on_halted(news),
            _ if all_read => {
                self.end_reason.clone_from(&news.reason);
                self.ban_sites();
                self.on_run_over();
            }
            _ => {}
        }
    }

    /// Reports held jobs once, when there are more than the rows show.
    fn apply_counts(&mut self, news: &RunReport) {
        let before = self.view.run.as_ref().map(|run| run.counts).unwrap_or_default();
        if news.counts == before {
            return;
        }
        self.change_run(RunChange::Counts(news.counts));
        if news.counts.held > before.held {
            self.alert_held_nodes(news);
        }
    }

    fn on_halted(&mut self, news: &RunReport) {
        // Pauses by Windlass itself were already reported.
        let is_new = self
            .view
            .run
            .as_ref()
            .is_some_and(|run| run.status != RequestRunStatus::Halted && run.paused.is_none());
        self.set_run_status(RequestRunStatus::Halted);
        if is_new {
            self.alert_held_nodes(news);
        }
    }

    fn alert_held_nodes(&mut self, news: &RunReport) {
        if news.held.is_empty() {
            return;
        }
        let detail = [("held".to_owned(), json!(news.held))].into_iter().collect();
        let event = RunEvent {
            run: news.run.clone(),
            event_type: "held".to_owned(),
            from: None,
            to: None,
            counts: news.counts,
            detail,
            at: self.now,
        };
        self.push_change(RequestChange::RecordRunEvent(Box::new(event)));
        self.push_alert(AlertKind::HeldNodes, list_first(&news.held));
    }

    /// Returns whether all of them could be read. Units after one with unreadable outputs wait for it.
    fn apply_units(&mut self, news: &RunReport) -> bool {
        let Some(run) = self.view.run.clone() else { return true };
        let mut read = run.units_read;
        let mut unreadable = None;
        for unit in news.units.iter().filter(|unit| unit.seq > run.units_read) {
            match self.apply_unit(run.round, unit) {
                Ok(()) => read = read.max(unit.seq),
                Err(reason) => {
                    unreadable = Some(reason);
                    break;
                }
            }
        }
        let (completed, failed) = (news.units_completed, news.units_failed);
        if (completed, failed, read) != (run.units_completed, run.units_failed, run.units_read) {
            self.change_run(RunChange::Units { completed, failed, read });
        }
        let Some(reason) = unreadable else { return true };
        let status = self.view.row.status;
        if status == RequestStatus::Stopping && self.is_end_wanted() {
            // Its outputs are no longer wanted.
            return true;
        }
        self.check_again_at(self.now.plus(self.settings.retry_after));
        if news.state == RunState::Over && matches!(status, RequestStatus::Active | RequestStatus::Stopping) {
            self.hold_with_reason(reason);
        }
        false
    }

    /// Adds steps to register and protect the outputs of a completed unit, dataset by dataset (R-044, N-3).
    fn apply_unit(&mut self, round: u32, news: &WorkUnitReport) -> Result<(), String> {
        if news.status != RequestUnitStatus::Completed {
            return Ok(());
        }
        let output = match &news.output {
            Ok(Some(output)) => output,
            Ok(None) => return Err(format!("work unit {} left no list of outputs", WorkUnitName(news.unit))),
            Err(reason) => {
                return Err(format!(
                    "the outputs of work unit {} are unknown: {reason}",
                    WorkUnitName(news.unit)
                ));
            }
        };
        let blocks: Vec<_> = self
            .view
            .blocks
            .iter()
            .filter(|block| block.round == round && (block.first_unit..=block.last_unit).contains(&news.unit))
            .filter(|block| {
                matches!(block.status, ProcessingBlockStatus::Open | ProcessingBlockStatus::Failed)
            })
            .map(|block| (block.uuid.clone(), block.dataset.clone(), block.name.is_some()))
            .collect();
        for (block, dataset, is_open) in blocks {
            if !is_open {
                self.push_change(outputs::add_step(
                    &block,
                    None,
                    OutputStepKind::Open,
                    serde_json::Value::Null,
                    self.now,
                ));
            }
            let detail = output_detail(output, &dataset);
            for kind in [OutputStepKind::Register, OutputStepKind::Protect] {
                self.push_change(outputs::add_step(&block, Some(news.unit), kind, detail.clone(), self.now));
            }
        }
        Ok(())
    }

    fn on_step_done(&mut self, step: &OutputStep, result: Option<&str>) {
        self.push_change(outputs::record_success(step, result, self.now));
        let Some(block) = self.view.find_block(&step.block).cloned() else { return };
        match step.kind {
            OutputStepKind::Open => {
                let name = result.unwrap_or(&block.uuid).to_owned();
                self.change_block(&block.uuid, BlockChange::Opened { name });
            }
            OutputStepKind::Register => self.count_events(&block.dataset, step),
            OutputStepKind::Protect => {
                self.change_block(&block.uuid, BlockChange::UnitsCompleted(block.units_completed + 1));
            }
            OutputStepKind::Close => {
                self.change_block(&block.uuid, BlockChange::Closed);
                self.set_block_status(&block, ProcessingBlockStatus::Complete);
            }
            OutputStepKind::Archive => {
                let rule = result.unwrap_or_default().to_owned();
                self.change_block(&block.uuid, BlockChange::TapeRule(rule));
                self.set_block_status(&block, ProcessingBlockStatus::Archived);
            }
            OutputStepKind::Invalidate => self.set_block_status(&block, ProcessingBlockStatus::Invalidated),
        }
    }

    /// Counts once per unit, because a step completes once. Several output datasets hold the same events: the
    /// first one counts.
    fn count_events(&mut self, dataset: &str, step: &OutputStep) {
        let events = step.detail.get("events").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let counts = self.view.row.request.output_datasets.first().is_some_and(|first| first == dataset);
        if let Some(mut process) = self.view.process.clone().filter(|_| counts && events > 0) {
            process.events_produced = process.events_produced.saturating_add(events);
            process.events_of_round = process.events_of_round.saturating_add(events);
            process.updated_at = self.now;
            self.push_change(RequestChange::Process(Box::new(process)));
        }
    }

    fn on_step_failed(&mut self, step: &OutputStep, error: &str) {
        match outputs::decide_step_failure(step, error, &self.settings.outputs, self.now) {
            StepFailureDecision::Retry(change) => self.push_change(change),
            StepFailureDecision::GivenUp(change) => {
                self.push_change(change);
                let block = self.view.find_block(&step.block).cloned();
                let text = outputs::describe_failure(step, block.as_ref(), error, self.now);
                let name = &self.view.row.request.request_name;
                let text = format!("{text}; retry with `windlass request release {name}`");
                self.push_alert(AlertKind::OutputFailed, text);
                if let Some(block) = block.filter(|_| step.kind != OutputStepKind::Invalidate) {
                    self.set_block_status(&block, ProcessingBlockStatus::Failed);
                }
            }
        }
    }
}

/// Lists the first ones, and the number of others.
fn list_first(held: &[String]) -> String {
    const SHOWN: usize = 3;
    let mut text = held[..held.len().min(SHOWN)].join("; ");
    if held.len() > SHOWN {
        text = format!("{text}; and {} more", held.len() - SHOWN);
    }
    text
}

/// Returns what a step needs to know about the files of a unit.
fn output_detail(output: &MergeOutput, dataset: &str) -> serde_json::Value {
    let files = output.datasets.get(dataset).map_or(&[][..], Vec::as_slice);
    let events: u64 = files.iter().map(|file| file.events).sum();
    json!({ "site": output.site, "events": events, "files": files })
}

//! What news change of the rows. News that came too late, or twice, change nothing.

use super::desk::Desk;
use super::{AlertKind, News, Planned, RunNews, RunState, Trouble, UnitNews};
use crate::requests::book::{Backend, OutputStep, Process, RunEvent, StepKind, StepState};
use crate::requests::change::{BlockChange, RequestChange, RunChange};
use crate::requests::outputs::{self, Failure};
use serde_json::json;
use windlass_types::payload::MergeOutput;
use windlass_types::requests::{BlockStatus, RequestStatus, RunStatus, UnitName, UnitStatus};

impl Desk<'_> {
    pub(super) fn take_news(&mut self) {
        let situation = self.situation;
        for news in situation.news {
            match news {
                News::Imported(process) => self.imported(process),
                News::ImportFailed(trouble) => self.trouble(RequestStatus::Submitted, trouble),
                News::Planned(planned) => self.planned(planned),
                News::NothingToPlan => self.nothing_to_plan(),
                News::PlanFailed(trouble) => self.trouble(RequestStatus::Planning, trouble),
                News::Submitted { run, backend, priority } => self.submitted(run, backend, *priority),
                News::Prioritized { run, priority } => self.prioritized(run, *priority),
                News::SubmitFailed { run, trouble } if self.is_ready(run) => {
                    self.trouble(RequestStatus::Planning, trouble);
                }
                News::SubmitFailed { .. } => {}
                News::Stopped { run, there } => self.stopped(run, *there),
                News::Unpaused { run } => self.unpaused(run),
                News::StopFailed { run, trouble } => self.stop_failed(run, trouble),
                News::Settled { round, run, files } => self.settled(*round, run, *files),
                News::SettleFailed { round, trouble } => self.settle_failed(*round, trouble),
                News::ManifestWritten { path } => self.manifest = Some(path.clone()),
                News::ManifestFailed { reason } => self.manifest_failed(reason),
                News::Run(news) => self.run_news(news),
                News::Step { block, unit, kind, outcome } => {
                    let step = self.view.steps.iter().find(|step| step.is(block, *unit, *kind)).cloned();
                    if let Some(step) = step.filter(|step| step.state == StepState::Pending) {
                        match outcome {
                            Ok(result) => self.step_done(&step, result.as_deref()),
                            Err(error) => self.step_failed(&step, error),
                        }
                    }
                }
            }
        }
    }

    fn imported(&mut self, process: &Process) {
        if self.view.row.status == RequestStatus::Submitted {
            self.change(RequestChange::Process(Box::new(process.clone())));
            self.become_status(RequestStatus::Queued, None);
        }
    }

    /// Trouble with an effect that belongs to this status. What may pass is tried again later; until it is stuck.
    fn trouble(&mut self, status: RequestStatus, trouble: &Trouble) {
        if self.view.row.status != status {
            return;
        }
        if trouble.again {
            if self.view.row.reason.as_deref() != Some(&trouble.reason) {
                self.change(RequestChange::Hindered(trouble.reason.clone()));
            }
            self.pausing = true;
            self.look_again(self.now.after(self.settings.retry_after));
        } else {
            self.hold(trouble.reason.clone());
        }
    }

    fn planned(&mut self, planned: &Planned) {
        let awaited = self.view.row.status == RequestStatus::Planning
            && self.view.run_of_round().is_none()
            && self.view.process.as_ref().is_some_and(|process| process.round == planned.run.round);
        if awaited {
            self.change(RequestChange::Process(Box::new(planned.process.clone())));
            self.change(RequestChange::AddRun(Box::new(planned.run.clone())));
            for block in &planned.blocks {
                self.change(RequestChange::AddBlock(Box::new(block.clone())));
            }
        }
    }

    fn nothing_to_plan(&mut self) {
        if self.view.row.status != RequestStatus::Planning || self.view.run_of_round().is_some() {
            return;
        }
        if let Some(mut process) = self.view.process.clone().filter(|process| process.more_input) {
            process.more_input = false;
            process.updated_at = self.now;
            self.change(RequestChange::Process(Box::new(process)));
        }
        self.become_status(RequestStatus::Active, None);
    }

    fn is_ready(&self, run: &str) -> bool {
        self.view.run.as_ref().is_some_and(|row| row.uuid == run && row.status == RunStatus::Ready)
    }

    /// Noted whatever became of the request meanwhile: what runs must be known.
    fn submitted(&mut self, run: &str, backend: &Backend, priority: Option<i64>) {
        if self.is_ready(run) {
            self.change_run(RunChange::HandedTo(backend.clone()));
            self.become_run(RunStatus::Submitted);
            if let Some(priority) = priority {
                self.change_run(RunChange::Priority(priority));
            }
        }
    }

    fn prioritized(&mut self, run: &str, priority: i64) {
        if self.view.run.as_ref().is_some_and(|row| row.uuid == run && row.priority != Some(priority)) {
            self.change_run(RunChange::Priority(priority));
        }
    }

    fn stopped(&mut self, run: &str, there: bool) {
        let Some(row) = self.view.run.as_ref().filter(|row| row.uuid == run) else { return };
        match row.status {
            RunStatus::Ready if !there && self.view.row.status == RequestStatus::Stopping => {
                self.become_run(RunStatus::Stopped);
            }
            status if status.is_active() && !there => self.gone(),
            _ => {}
        }
    }

    /// Whoever cannot be told does not answer either.
    fn stop_failed(&mut self, run: &str, trouble: &Trouble) {
        self.unreachable |= trouble.again && self.view.run.as_ref().is_some_and(|row| row.uuid == run);
    }

    fn run_news(&mut self, news: &RunNews) {
        let Some(run) = self.view.run.as_ref().filter(|run| run.uuid == news.run) else { return };
        match (run.status, news.state) {
            (status, RunState::Unknown) => {
                self.unreachable = true;
                if status.is_active() && run.silent.is_none() {
                    self.change_run(RunChange::Silent(Some(self.now)));
                }
                return;
            }
            // Only if it was asked for under its number; by its name it may have been asked for before it got there.
            (status, RunState::Gone) if status.is_active() => {
                if news.backend.is_some() {
                    self.gone();
                }
                return;
            }
            // It got there, and only the message that it did was lost.
            (RunStatus::Ready, RunState::Running | RunState::Halted | RunState::Over) => {
                match &news.backend {
                    Some(backend) => self.submitted(&news.run, backend, None),
                    None => return,
                }
            }
            (status, _) if status.is_active() => {}
            // Over already; or ready and not there, which may mean that it has not got there yet.
            _ => return,
        }
        if self.view.run.as_ref().is_some_and(|run| run.silent.is_some()) {
            self.change_run(RunChange::Silent(None));
        }
        self.take_counts(news);
        self.take_attempts(news);
        let all_read = self.take_units(news);
        match news.state {
            RunState::Running => self.become_run(RunStatus::Running),
            RunState::Halted => self.halted(news),
            _ if all_read => {
                self.why_over.clone_from(&news.reason);
                self.ban_sites();
                self.run_over();
            }
            _ => {}
        }
    }

    /// What is held is told of once: when there is more of it than the rows know.
    fn take_counts(&mut self, news: &RunNews) {
        let before = self.view.run.as_ref().map(|run| run.counts).unwrap_or_default();
        if news.counts == before {
            return;
        }
        self.change_run(RunChange::Counts(news.counts));
        if news.counts.held > before.held {
            self.tell_held(news);
        }
    }

    fn halted(&mut self, news: &RunNews) {
        // What we have halted ourselves was told of.
        let is_new =
            self.view.run.as_ref().is_some_and(|run| run.status != RunStatus::Halted && run.paused.is_none());
        self.become_run(RunStatus::Halted);
        if is_new {
            self.tell_held(news);
        }
    }

    fn tell_held(&mut self, news: &RunNews) {
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
        self.change(RequestChange::History(Box::new(event)));
        self.alert(AlertKind::HeldNodes, tell_first(&news.held));
    }

    /// Whether all of them could be read. What comes after one whose outputs cannot be read waits with it.
    fn take_units(&mut self, news: &RunNews) -> bool {
        let Some(run) = self.view.run.clone() else { return true };
        let mut read = run.units_read;
        let mut unreadable = None;
        for unit in news.units.iter().filter(|unit| unit.seq > run.units_read) {
            match self.take_unit(run.round, unit) {
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
            // Nobody wants its outputs any more.
            return true;
        }
        self.look_again(self.now.after(self.settings.retry_after));
        if news.state == RunState::Over && matches!(status, RequestStatus::Active | RequestStatus::Stopping) {
            self.hold(reason);
        }
        false
    }

    /// The outputs of a completed unit are to be registered and protected, dataset by dataset (R-044, N-3).
    fn take_unit(&mut self, round: u32, news: &UnitNews) -> Result<(), String> {
        if news.status != UnitStatus::Completed {
            return Ok(());
        }
        let output = match &news.output {
            Ok(Some(output)) => output,
            Ok(None) => return Err(format!("work unit {} left no list of outputs", UnitName(news.unit))),
            Err(reason) => {
                return Err(format!(
                    "the outputs of work unit {} are unknown: {reason}",
                    UnitName(news.unit)
                ));
            }
        };
        let blocks: Vec<_> = self
            .view
            .blocks
            .iter()
            .filter(|block| block.round == round && (block.first_unit..=block.last_unit).contains(&news.unit))
            .filter(|block| matches!(block.status, BlockStatus::Open | BlockStatus::Failed))
            .map(|block| (block.uuid.clone(), block.dataset.clone(), block.name.is_some()))
            .collect();
        for (block, dataset, is_open) in blocks {
            if !is_open {
                self.change(outputs::add(&block, None, StepKind::Open, serde_json::Value::Null, self.now));
            }
            let detail = detail(output, &dataset);
            for kind in [StepKind::Register, StepKind::Protect] {
                self.change(outputs::add(&block, Some(news.unit), kind, detail.clone(), self.now));
            }
        }
        Ok(())
    }

    fn step_done(&mut self, step: &OutputStep, result: Option<&str>) {
        self.change(outputs::done(step, result, self.now));
        let Some(block) = self.view.block(&step.block).cloned() else { return };
        match step.kind {
            StepKind::Open => {
                let name = result.unwrap_or(&block.uuid).to_owned();
                self.change_block(&block.uuid, BlockChange::Opened { name });
            }
            StepKind::Register => self.count_events(&block.dataset, step),
            StepKind::Protect => {
                self.change_block(&block.uuid, BlockChange::UnitsCompleted(block.units_completed + 1));
            }
            StepKind::Close => {
                self.change_block(&block.uuid, BlockChange::Closed);
                self.become_block(&block, BlockStatus::Complete);
            }
            StepKind::Archive => {
                let rule = result.unwrap_or_default().to_owned();
                self.change_block(&block.uuid, BlockChange::TapeRule(rule));
                self.become_block(&block, BlockStatus::Archived);
            }
            StepKind::Invalidate => self.become_block(&block, BlockStatus::Invalidated),
        }
    }

    /// Once per unit, because a step is done once. Several output datasets hold the same events: the first one counts.
    fn count_events(&mut self, dataset: &str, step: &OutputStep) {
        let events = step.detail.get("events").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let counts = self.view.row.request.output_datasets.first().is_some_and(|first| first == dataset);
        if let Some(mut process) = self.view.process.clone().filter(|_| counts && events > 0) {
            process.events_produced = process.events_produced.saturating_add(events);
            process.events_of_round = process.events_of_round.saturating_add(events);
            process.updated_at = self.now;
            self.change(RequestChange::Process(Box::new(process)));
        }
    }

    fn step_failed(&mut self, step: &OutputStep, error: &str) {
        match outputs::failed(step, error, &self.settings.outputs, self.now) {
            Failure::Again(change) => self.change(change),
            Failure::GivenUp(change) => {
                self.change(change);
                let block = self.view.block(&step.block).cloned();
                let text = outputs::tell(step, block.as_ref(), error, self.now);
                let name = &self.view.row.request.request_name;
                let text = format!("{text}; `windlass request release {name}` has it tried again");
                self.alert(AlertKind::OutputFailed, text);
                if let Some(block) = block.filter(|_| step.kind != StepKind::Invalidate) {
                    self.become_block(&block, BlockStatus::Failed);
                }
            }
        }
    }
}

/// The first few of them, and how many more there are.
fn tell_first(held: &[String]) -> String {
    const SHOWN: usize = 3;
    let mut text = held[..held.len().min(SHOWN)].join("; ");
    if held.len() > SHOWN {
        text = format!("{text}; and {} more", held.len() - SHOWN);
    }
    text
}

/// What a step needs to know about the files of a unit.
fn detail(output: &MergeOutput, dataset: &str) -> serde_json::Value {
    let files = output.datasets.get(dataset).map_or(&[][..], Vec::as_slice);
    let events: u64 = files.iter().map(|file| file.events).sum();
    json!({ "site": output.site, "events": events, "files": files })
}

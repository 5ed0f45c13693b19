//! The lifecycle of requests with a simulated backend and catalog: events in any order, twice or never, failing
//! effects, crashes that keep only the rows, failing units, unreadable files, a silent backend. In the end
//! every request has the expected status, every file is processed once or excluded, every completed unit is
//! registered once, every block archived once, and no step was done before those that it depends on.

mod rows;

use proptest::prelude::*;
use rows::{ENGINE, HTCONDOR, START, block, called, merged, process, request, run, told};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::requests::RequestView;
use windlass_core::requests::change::{RequestChange, RunChange};
use windlass_core::requests::failures::{BadFile, FailureTally};
use windlass_core::requests::lifecycle::{
    EffectFailure, LifecycleDecision, LifecycleEffect, LifecycleEvent, LifecycleInputs, LifecycleSettings,
    PlannedRound, RunState, WorkUnitReport, decide_request,
};
use windlass_core::requests::rows::{
    BackendRunRef, OutputStep, OutputStepKind, OutputStepState, RequestCommand, RequestCommandKind,
    RequestFileCounts, RequestOverrides, RequestProgress, RequestRow, RequestRunCause, RunRow,
};
use windlass_core::requests::transitions;
use windlass_types::Timestamp;
use windlass_types::requests::{
    PriorityStep, ProcessingBlockStatus, RequestRunStatus, RequestStatus, RequestUnitStatus,
};

const DATASETS: [&str; 2] = ["/Mu/A-v1/AOD", "/Mu/A-v1/MINIAOD"];
/// Maximum number of rescues of a round, as configured.
const MOST_RESCUES: u32 = 3;

type Key = (String, Option<u32>, OutputStepKind);

#[derive(Clone, Copy, Debug)]
enum ModelAction {
    Decide {
        admitted: bool,
    },
    /// The next effect is performed; its result is reported.
    Perform,
    /// It fails; perhaps after having done its work.
    PerformBadly {
        did_it: bool,
    },
    /// Everything except the rows is lost. Some effects in progress were done.
    Crash {
        done: u8,
    },
    /// The backend completes or fails a unit.
    Work {
        fails: bool,
    },
    /// A user holds or releases the run at the backend.
    Halt,
    HearTwice,
    Wait,
    /// A file becomes unreadable.
    MakeUnreadable {
        file: u32,
    },
    /// The backend stops answering, or answers again.
    Silence,
    GiveCommand {
        what: RequestCommandKind,
        rescue: bool,
        lost: bool,
        /// With a release: a file to be excluded.
        without: Option<u32>,
    },
}

fn act() -> impl Strategy<Value = ModelAction> {
    prop_oneof![
        12 => any::<bool>().prop_map(|admitted| ModelAction::Decide { admitted }),
        10 => Just(ModelAction::Perform),
        3 => any::<bool>().prop_map(|did_it| ModelAction::PerformBadly { did_it }),
        2 => (0..4_u8).prop_map(|done| ModelAction::Crash { done }),
        8 => prop::bool::weighted(0.12).prop_map(|fails| ModelAction::Work { fails }),
        1 => (0..12_u32).prop_map(|file| ModelAction::MakeUnreadable { file }),
        1 => prop::bool::weighted(0.3).prop_map(|is| if is { ModelAction::Silence } else { ModelAction::Wait }),
        1 => Just(ModelAction::Halt),
        2 => Just(ModelAction::HearTwice),
        2 => Just(ModelAction::Wait),
        2 => (prop_oneof![
            4 => Just(RequestCommandKind::Stop), 6 => Just(RequestCommandKind::Release), 1 => Just(RequestCommandKind::Remove), 1 => Just(RequestCommandKind::Abort),
            1 => Just(RequestCommandKind::Fail)
        ], any::<bool>(), any::<bool>(), prop::option::weighted(0.3, 0..15_u32))
        .prop_map(|(what, rescue, lost, without)| ModelAction::GiveCommand { what, rescue, lost, without }),
    ]
}

/// The backend's state of a round.
#[derive(Debug, Default)]
struct Workflow {
    round: u32,
    /// The file that each unit reads.
    reads: Vec<u32>,
    units: Vec<Option<RequestUnitStatus>>,
    /// (unit, status), in order; the index is its `seq`.
    told: Vec<(u32, RequestUnitStatus)>,
    /// The active run.
    live: Option<String>,
    is_halted: bool,
}

#[derive(Debug)]
struct Fixture {
    view: RequestView,
    /// Steps in the rows that the view does not show.
    settled: BTreeMap<Key, OutputStepState>,
    news: Vec<LifecycleEvent>,
    heard: Option<LifecycleEvent>,
    under_way: VecDeque<LifecycleEffect>,
    now: Timestamp,
    /// Number of input files, and of those in a round.
    files: u32,
    at_once: u32,
    /// Settled states of files that rounds have read: excluded, attempted, processed.
    file_states: BTreeMap<u32, &'static str>,
    /// Unreadable files.
    bad: BTreeSet<u32>,
    /// Files planned by each round.
    planned: BTreeMap<u32, Vec<u32>>,
    /// The backend does not answer.
    is_silent: bool,
    has_manifest: bool,
    /// The backend of its rounds.
    backend: BackendRunRef,
    names: u32,
    workflows: Vec<Workflow>,
    /// Run → its workflow.
    runs: BTreeMap<String, usize>,
    /// Runs that were reported as never running.
    abandoned: BTreeSet<String>,
    /// The content of the catalog.
    catalog: BTreeSet<Key>,
    wanted_end: bool,
    /// The backend was declared lost: its runs continue unseen.
    given_up: bool,
}

impl Fixture {
    fn new(files: u32, at_once: u32, production_steps: Vec<PriorityStep>, backend: BackendRunRef) -> Self {
        let row = RequestRow {
            request: request(production_steps),
            overrides: RequestOverrides::default(),
            status: RequestStatus::Submitted,
            version: 1,
            created_at: START,
            updated_at: START,
            since: START,
            wanted: None,
            reason: None,
            alerted_at: None,
        };
        Self {
            view: RequestView {
                row,
                process: None,
                run: None,
                failures: Arc::default(),
                blocks: Vec::new(),
                steps: Vec::new(),
            },
            settled: BTreeMap::new(),
            news: Vec::new(),
            heard: None,
            under_way: VecDeque::new(),
            now: START,
            files,
            at_once,
            file_states: BTreeMap::new(),
            bad: BTreeSet::new(),
            planned: BTreeMap::new(),
            is_silent: false,
            has_manifest: false,
            backend,
            names: 0,
            workflows: Vec::new(),
            runs: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            catalog: BTreeSet::new(),
            wanted_end: false,
            given_up: false,
        }
    }

    fn act(&mut self, act: ModelAction) {
        self.now = self.now.plus(Duration::from_secs(1));
        match act {
            ModelAction::Decide { admitted } => self.decide(admitted),
            ModelAction::Perform => {
                if let Some(effect) = self.under_way.pop_front() {
                    let news = self.perform_or_not(&effect);
                    self.news.extend(news);
                }
            }
            ModelAction::PerformBadly { did_it } => {
                if let Some(effect) = self.under_way.pop_front() {
                    if did_it && self.answers(&effect) {
                        self.perform(&effect);
                    }
                    self.news.extend(failure(&effect));
                }
            }
            ModelAction::Crash { done } => {
                for effect in std::mem::take(&mut self.under_way).into_iter().take(done.into()) {
                    self.perform_or_not(&effect);
                }
                self.news.clear();
            }
            ModelAction::Work { fails } => {
                self.work(if fails { RequestUnitStatus::Failed } else { RequestUnitStatus::Completed });
            }
            ModelAction::Halt => {
                if let Some(live) = self.workflows.iter_mut().find(|workflow| workflow.live.is_some()) {
                    live.is_halted = !live.is_halted;
                }
            }
            ModelAction::HearTwice => self.news.extend(self.heard.clone()),
            ModelAction::Wait => self.now = self.now.plus(Duration::from_secs(100)),
            ModelAction::MakeUnreadable { file } => {
                // Files that were read are not affected.
                if self.file_states.get(&file) != Some(&"processed") && !self.is_completed(file) {
                    self.bad.insert(file);
                }
            }
            ModelAction::Silence => self.is_silent = !self.is_silent,
            ModelAction::GiveCommand { what, rescue, lost, without } => {
                if what == RequestCommandKind::Release {
                    self.exclude(without);
                }
                self.want(what, rescue, lost);
            }
        }
    }

    fn is_completed(&self, file: u32) -> bool {
        self.completions(file) > 0
    }

    /// Completed units that have read it.
    fn completions(&self, file: u32) -> usize {
        let of = |workflow: &Workflow| {
            let units = workflow.reads.iter().zip(&workflow.units);
            units
                .filter(|(read, status)| **read == file && **status == Some(RequestUnitStatus::Completed))
                .count()
        };
        self.workflows.iter().map(of).sum()
    }

    /// As the API does: with the release of a held request.
    fn exclude(&mut self, file: Option<u32>) {
        if let Some(file) = file.filter(|_| self.view.row.status == RequestStatus::Held && !self.wanted_end) {
            self.view.row.overrides.excluded_files.insert(file.to_string());
        }
    }

    fn is_left_out(&self, file: u32) -> bool {
        self.view.row.overrides.excluded_files.contains(&file.to_string())
    }

    fn want(&mut self, what: RequestCommandKind, rescue: bool, lost: bool) {
        let is_over = self.view.row.status.is_terminal();
        // As the API does: a requested end cannot be withdrawn.
        if is_over || self.wanted_end {
            return;
        }
        self.wanted_end |= matches!(what, RequestCommandKind::Abort | RequestCommandKind::Fail);
        self.view.row.wanted =
            Some(RequestCommand { rescue, lost, ..RequestCommand::new(what, "eve", "so", self.now) });
    }

    fn decide(&mut self, admitted: bool) {
        self.poll();
        let news = std::mem::take(&mut self.news);
        self.heard = news.last().cloned();
        self.names += 1;
        let fresh_uuid = format!("next-{}", self.names);
        let situation = LifecycleInputs {
            events: &news,
            admitted,
            previous: &[],
            unit_sites: &[],
            new_run_uuid: &fresh_uuid,
        };
        let mut settings = LifecycleSettings { timeouts: BTreeMap::new(), ..LifecycleSettings::default() };
        settings.recovery.rescue_pause = Duration::ZERO;
        self.view.failures = Arc::new(self.tally());
        let LifecycleDecision { changes, effects, .. } =
            decide_request(&self.view, &situation, &settings, self.now);
        for change in &changes {
            self.commit(change);
        }
        for effect in effects {
            if !self.under_way.contains(&effect) {
                self.under_way.push_back(effect);
            }
        }
    }

    /// The failures of the latest run: a unit that could not read its file reports it.
    fn tally(&self) -> FailureTally {
        let mut tally = FailureTally::default();
        let run = self.view.run.as_ref().and_then(|run| self.runs.get(&run.uuid));
        let Some(workflow) = run.map(|&at| &self.workflows[at]) else { return tally };
        for (unit, (read, status)) in (0..).zip(workflow.reads.iter().zip(&workflow.units)) {
            if *status == Some(RequestUnitStatus::Failed) {
                tally.units.insert(unit, self.bad.contains(read));
                if self.bad.contains(read) {
                    tally.files.insert(read.to_string(), BadFile::default());
                }
            }
        }
        tally
    }

    /// As the store does.
    fn commit(&mut self, change: &RequestChange) {
        match change {
            RequestChange::Status { from, to, .. } => {
                assert_eq!(self.view.row.status, *from);
                assert_eq!(transitions::check_transition(*from, *to), Ok(()));
                if *to == RequestStatus::Failed {
                    assert!(self.wanted_end, "only a user fails a request");
                    assert!(self.has_manifest || self.view.blocks.is_empty(), "the manifest is written");
                }
            }
            RequestChange::AddRun(run) => self.check_new_run(run),
            RequestChange::Run {
                change: RunChange::Status { to: RequestRunStatus::Removed, .. }, ..
            } => {
                self.given_up |= self.view.row.wanted.as_ref().is_some_and(|wanted| wanted.lost);
            }
            RequestChange::AddStep(step) if self.settled.contains_key(&key(step)) => return,
            RequestChange::Step { block, unit, kind, state, .. } if !state.is_open() => {
                let before = self.settled.insert((block.clone(), *unit, *kind), *state);
                assert_eq!(before, None, "a step ends once");
            }
            _ => {}
        }
        self.view.apply_change(change, self.now);
    }

    /// One round at a time, and no more rescues than allowed.
    fn check_new_run(&self, run: &RunRow) {
        assert!(run.rescues <= MOST_RESCUES);
        let Some(before) = &self.view.run else {
            return assert_eq!((run.round, run.cause, run.rescues), (0, RequestRunCause::First, 0));
        };
        assert!(before.status.is_over(), "{before:?} has not ended");
        if run.round == before.round {
            let counted = u32::from(run.cause == RequestRunCause::Failure);
            assert_eq!(run.rescues, before.rescues + counted);
            let known = self.workflows.iter().find(|workflow| workflow.round == run.round);
            let is_done = |unit: usize| {
                known.is_some_and(|workflow| workflow.units[unit] == Some(RequestUnitStatus::Completed))
            };
            let mut reads = self.planned[&run.round].iter().enumerate();
            assert!(reads.all(|(unit, file)| is_done(unit) || !self.is_left_out(*file)), "it is excluded");
        } else {
            assert_eq!((run.round, run.rescues), (before.round + 1, 0));
            let settled = self.view.process.as_ref().map(|process| process.settled);
            assert_eq!(settled, Some(run.round), "earlier progress is recorded");
        }
    }

    /// The backend's report about the run, in every pass.
    fn poll(&mut self) {
        let Some(run) = &self.view.run else { return };
        if self.is_silent {
            return self.news.push(told(run, None, RunState::Unknown, 0, 0, Vec::new()));
        }
        let Some(&at) = self.runs.get(&run.uuid) else {
            return self.news.push(told(run, None, RunState::Gone, 0, 0, Vec::new()));
        };
        let workflow = &self.workflows[at];
        let state = match () {
            () if workflow.live.as_ref() != Some(&run.uuid) => RunState::Over,
            () if workflow.is_halted => RunState::Halted,
            () => RunState::Running,
        };
        let count = |status| workflow.units.iter().filter(|unit| **unit == Some(status)).count() as u32;
        let (completed, failed) = (count(RequestUnitStatus::Completed), count(RequestUnitStatus::Failed));
        let units = workflow.told.iter().enumerate().skip(run.units_read as usize);
        let units = units.map(|(at, (unit, status))| WorkUnitReport {
            seq: at as i64 + 1,
            unit: *unit,
            status: *status,
            output: Ok((*status == RequestUnitStatus::Completed).then(|| merged(workflow.round, *unit))),
        });
        let called = Some(called(&run.backend, at, &run.uuid));
        let news = told(run, called, state, completed, failed, units.collect());
        self.news.push(news);
    }

    /// A silent backend does nothing.
    fn answers(&self, effect: &LifecycleEffect) -> bool {
        let asks = matches!(
            effect,
            LifecycleEffect::Submit { .. } | LifecycleEffect::Resume { .. } | LifecycleEffect::Stop { .. }
        );
        !(asks && self.is_silent)
    }

    fn perform_or_not(&mut self, effect: &LifecycleEffect) -> Option<LifecycleEvent> {
        if self.answers(effect) { Some(self.perform(effect)) } else { failure(effect) }
    }

    fn perform(&mut self, effect: &LifecycleEffect) -> LifecycleEvent {
        match effect {
            LifecycleEffect::Import => LifecycleEvent::Imported(Box::new(process())),
            LifecycleEffect::Plan { round } => self.plan(*round),
            LifecycleEffect::Submit { run } | LifecycleEffect::Resume { run } => self.hand_over(run),
            LifecycleEffect::Stop { run, .. } => self.stop(run),
            LifecycleEffect::Pause { run }
            | LifecycleEffect::Unpause { run }
            | LifecycleEffect::AvoidSites { run } => LifecycleEvent::Unpaused { run: run.clone() },
            LifecycleEffect::Prioritize { run, priority } => {
                LifecycleEvent::Prioritized { run: run.clone(), priority: *priority }
            }
            LifecycleEffect::Settle { round, run } => self.settle(*round, run),
            LifecycleEffect::WriteManifest => {
                self.has_manifest = true;
                LifecycleEvent::ManifestWritten { path: "manifest".into() }
            }
            LifecycleEffect::Step(step) => self.record(step),
        }
    }

    /// Fresh files first, then attempted ones.
    fn plan(&mut self, round: u32) -> LifecycleEvent {
        let Some(process) = self.view.process.clone() else { return LifecycleEvent::NothingToPlan };
        for file in (0..self.files).filter(|file| self.is_left_out(*file)).collect::<Vec<_>>() {
            if self.file_states.get(&file) != Some(&"processed") {
                self.file_states.insert(file, "excluded");
            }
        }
        let state = |file: &u32| self.file_states.get(file).copied();
        let fresh: Vec<u32> = (0..self.files).filter(|file| state(file).is_none()).collect();
        let attempted: Vec<u32> = (0..self.files).filter(|file| state(file) == Some("attempted")).collect();
        let mut reads = if fresh.is_empty() { attempted } else { fresh };
        let more_input = reads.len() > self.at_once as usize;
        reads.truncate(self.at_once as usize);
        if reads.is_empty() {
            return LifecycleEvent::NothingToPlan;
        }
        self.names += 1;
        let units = reads.len() as u32;
        let firsts = (0..units).step_by(2);
        let blocks = firsts.flat_map(|first| {
            (0..2).map(move |dataset| block(round, dataset, first..=(first + 1).min(units - 1), START))
        });
        self.planned.insert(round, reads);
        LifecycleEvent::Planned(Box::new(PlannedRound {
            run: run(round, &format!("run-{}", self.names), units, self.backend.clone()),
            blocks: blocks.collect(),
            process: RequestProgress {
                more_input,
                files: self.file_counts(),
                excluded: self.view.row.overrides.excluded_files.len() as u64,
                ..process
            },
        }))
    }

    /// Repeatable, and only about final results.
    fn settle(&mut self, round: u32, run: &str) -> LifecycleEvent {
        let known = self.workflows.iter().find(|workflow| workflow.round == round);
        for (unit, read) in self.planned[&round].iter().enumerate() {
            // A run that was never submitted has done nothing.
            let state = match known.and_then(|workflow| workflow.units[unit]) {
                Some(RequestUnitStatus::Completed) => "processed",
                Some(RequestUnitStatus::Failed) if self.bad.contains(read) => "excluded",
                _ => "attempted",
            };
            self.file_states.insert(*read, state);
        }
        LifecycleEvent::Settled { round, run: run.to_owned(), files: self.file_counts() }
    }

    fn file_counts(&self) -> RequestFileCounts {
        let count = |state| self.file_states.values().filter(|known| **known == state).count() as u64;
        RequestFileCounts {
            attempted: count("attempted"),
            processed: count("processed"),
            excluded: count("excluded"),
        }
    }

    fn hand_over(&mut self, run: &str) -> LifecycleEvent {
        assert!(!self.abandoned.contains(run), "{run} was reported as not running");
        let Some(row) = self.view.run.as_ref().filter(|row| row.uuid == run) else {
            // It was submitted before, which was reported only after this decision; otherwise it would have
            // been excluded.
            let at = *self.runs.get(run).unwrap_or_else(|| panic!("{run} is submitted, but not wanted"));
            return LifecycleEvent::Submitted {
                run: run.to_owned(),
                backend: called(&self.backend, at, run),
                priority: None,
            };
        };
        let before = match &row.backend {
            BackendRunRef::Engine { workflow, .. } => workflow.map(|workflow| workflow.0 as usize),
            // The directory of the round, if one of its runs was ever submitted.
            BackendRunRef::Htcondor { .. } => {
                self.workflows.iter().position(|known| known.round == row.round)
            }
        };
        let known = self.runs.get(run).copied().or(before);
        let at = known.unwrap_or_else(|| {
            let reads = self.planned[&row.round].clone();
            let units = vec![None; reads.len()];
            self.workflows.push(Workflow { round: row.round, reads, units, ..Workflow::default() });
            self.workflows.len() - 1
        });
        let backend = called(&row.backend, at, run);
        let workflow = &mut self.workflows[at];
        if !self.runs.contains_key(run) {
            assert_eq!(workflow.live, None, "one run at a time (R-021)");
            assert!(
                self.view.process.as_ref().is_some_and(|process| process.settled <= row.round),
                "a settled run no longer runs"
            );
            self.runs.insert(run.to_owned(), at);
            workflow
                .units
                .iter_mut()
                .filter(|unit| **unit != Some(RequestUnitStatus::Completed))
                .for_each(|unit| *unit = None);
            workflow.live = workflow.units.contains(&None).then(|| run.to_owned());
        }
        LifecycleEvent::Submitted { run: run.to_owned(), backend, priority: None }
    }

    fn stop(&mut self, run: &str) -> LifecycleEvent {
        let there = self.runs.get(run).copied();
        match there {
            Some(at) if self.workflows[at].live.as_deref() == Some(run) => {
                let workflow = &mut self.workflows[at];
                workflow.live = None;
                workflow.is_halted = false;
                for (unit, status) in
                    workflow.units.iter_mut().enumerate().filter(|(_, status)| status.is_none())
                {
                    *status = Some(RequestUnitStatus::Canceled);
                    workflow.told.push((unit as u32, RequestUnitStatus::Canceled));
                }
            }
            Some(_) => {}
            None => {
                self.abandoned.insert(run.to_owned());
            }
        }
        LifecycleEvent::Stopped { run: run.to_owned(), was_running: there.is_some() }
    }

    fn work(&mut self, status: RequestUnitStatus) {
        let Some(workflow) = self.workflows.iter_mut().find(|workflow| workflow.live.is_some()) else {
            return;
        };
        if workflow.is_halted {
            return;
        }
        if let Some(unit) = workflow.units.iter().position(Option::is_none) {
            let status =
                if self.bad.contains(&workflow.reads[unit]) { RequestUnitStatus::Failed } else { status };
            workflow.units[unit] = Some(status);
            workflow.told.push((unit as u32, status));
        }
        if !workflow.units.contains(&None) {
            workflow.live = None;
        }
    }

    /// No step before those that it depends on.
    fn record(&mut self, step: &OutputStep) -> LifecycleEvent {
        let has = |unit, kind| self.catalog.contains(&(step.block.clone(), unit, kind));
        let block = self.view.find_block(&step.block).expect("a known block");
        let units = |kind| (block.first_unit..=block.last_unit).filter(|unit| has(Some(*unit), kind)).count();
        let all = |kind| units(kind) as u32 == block.units_expected;
        match step.kind {
            OutputStepKind::Open | OutputStepKind::Invalidate => {}
            OutputStepKind::Register => assert!(has(None, OutputStepKind::Open)),
            OutputStepKind::Protect => assert!(has(step.unit, OutputStepKind::Register)),
            OutputStepKind::Close => assert!(all(OutputStepKind::Protect)),
            OutputStepKind::Archive => assert!(has(None, OutputStepKind::Close)),
        }
        self.catalog.insert(key(step));
        let outcome = Ok(Some(format!("{:?} of {}", step.kind, step.block)));
        LifecycleEvent::Step { block: step.block.clone(), unit: step.unit, kind: step.kind, outcome }
    }

    /// From now on everything succeeds except for bad files: held requests are released, and a backend that is
    /// still silent is lost for good.
    fn come_to_an_end(&mut self) {
        for _ in 0..800 {
            self.now = self.now.plus(Duration::from_hours(9));
            self.workflows.iter_mut().for_each(|workflow| workflow.is_halted = false);
            if self.is_silent {
                self.want(RequestCommandKind::Fail, false, true);
                self.view.row.wanted.iter_mut().for_each(|wanted| wanted.lost = true);
            } else {
                self.work(RequestUnitStatus::Completed);
            }
            self.decide(true);
            while let Some(effect) = self.under_way.pop_front() {
                let news = self.perform_or_not(&effect);
                self.news.extend(news);
            }
            if self.view.row.status == RequestStatus::Held && self.view.row.wanted.is_none() {
                self.want(RequestCommandKind::Release, false, false);
            }
        }
    }

    fn check_the_end(&self) {
        let status = self.view.row.status;
        let expected = match () {
            () if self.wanted_end => matches!(status, RequestStatus::Aborted | RequestStatus::Failed),
            () => status == RequestStatus::Completed,
        };
        assert!(expected, "{status} ({:?}), end wanted: {}", self.view.row.reason, self.wanted_end);
        let is_idle = |workflow: &Workflow| workflow.live.is_none() || self.given_up;
        assert!(self.workflows.iter().all(is_idle), "nothing runs any more");
        assert_eq!(self.view.steps, [], "all output steps are done");
        for block in &self.view.blocks {
            let ends: &[ProcessingBlockStatus] = match status {
                RequestStatus::Failed => &[
                    ProcessingBlockStatus::Archived,
                    ProcessingBlockStatus::Invalidated,
                    ProcessingBlockStatus::Failed,
                ],
                _ => &[ProcessingBlockStatus::Archived, ProcessingBlockStatus::Invalidated],
            };
            assert!(ends.contains(&block.status), "{block:?}");
        }
        if status == RequestStatus::Completed {
            self.check_all_is_there();
        }
    }

    /// Each file was processed once or is excluded, and all its output is in archived blocks.
    fn check_all_is_there(&self) {
        for file in 0..self.files {
            let excluded = self.file_states.get(&file) == Some(&"excluded");
            assert_eq!(self.completions(file), usize::from(!excluded), "file {file}");
            assert!(
                !excluded || self.bad.contains(&file) || self.is_left_out(file),
                "file {file} was readable"
            );
        }
        let done = |block: &str, unit, kind| {
            self.settled.get(&(block.to_owned(), unit, kind)) == Some(&OutputStepState::Done)
        };
        let mut registered = 0;
        for block in &self.view.blocks {
            let is_there = block.status == ProcessingBlockStatus::Archived;
            assert_eq!(block.units_completed, block.units_expected);
            assert_eq!(
                (is_there, is_there),
                (block.units_expected > 0, done(&block.uuid, None, OutputStepKind::Archive))
            );
            let of_round = self.workflows.iter().find(|workflow| workflow.round == block.round);
            let units = of_round.map(|workflow| workflow.units.as_slice()).unwrap_or_default();
            for unit in block.first_unit..=block.last_unit {
                let is_completed = units.get(unit as usize) == Some(&Some(RequestUnitStatus::Completed));
                assert_eq!(
                    is_completed,
                    done(&block.uuid, Some(unit), OutputStepKind::Register),
                    "{unit} of {block:?}"
                );
                registered += u64::from(is_completed);
            }
        }
        let events = self.view.process.as_ref().map(|process| process.events_produced);
        assert_eq!(events, Some(registered * 10 / DATASETS.len() as u64), "each unit counts once");
    }
}

fn key(step: &OutputStep) -> Key {
    (step.block.clone(), step.unit, step.kind)
}

fn failure(effect: &LifecycleEffect) -> Option<LifecycleEvent> {
    let trouble = EffectFailure { reason: "no answer".into(), is_retryable: true };
    Some(match effect {
        LifecycleEffect::Import => LifecycleEvent::ImportFailed(trouble),
        LifecycleEffect::Plan { .. } => LifecycleEvent::PlanFailed(trouble),
        LifecycleEffect::Submit { run } | LifecycleEffect::Resume { run } => {
            LifecycleEvent::SubmitFailed { run: run.clone(), failure: trouble }
        }
        LifecycleEffect::Stop { run, .. } => {
            LifecycleEvent::StopFailed { run: run.clone(), failure: trouble }
        }
        LifecycleEffect::Pause { .. }
        | LifecycleEffect::Unpause { .. }
        | LifecycleEffect::AvoidSites { .. }
        | LifecycleEffect::Prioritize { .. } => {
            return None;
        }
        LifecycleEffect::Settle { round, .. } => {
            LifecycleEvent::SettleFailed { round: *round, failure: trouble }
        }
        LifecycleEffect::WriteManifest => LifecycleEvent::ManifestFailed { reason: trouble.reason },
        LifecycleEffect::Step(step) => LifecycleEvent::Step {
            block: step.block.clone(),
            unit: step.unit,
            kind: step.kind,
            outcome: Err("503".into()),
        },
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    #[test]
    fn every_request_reaches_its_expected_end(
        acts in prop::collection::vec(act(), 0..200),
        files in 1..=15_u32,
        at_once in prop_oneof![Just(3_u32), Just(7), Just(20)],
        has_steps in any::<bool>(),
        backend in prop_oneof![Just(ENGINE), Just(HTCONDOR)],
    ) {
        let steps = [(0.3, 50), (0.6, 20)].map(|(fraction, priority)| PriorityStep { fraction, priority });
        let mut fixture = Fixture::new(files, at_once, if has_steps { steps.to_vec() } else { Vec::new() }, backend);
        for act in acts {
            fixture.act(act);
        }
        fixture.come_to_an_end();
        fixture.check_the_end();
    }
}

/// R-178, S 6.2.1: both steps are used up; after each the rest is queued with the lower priority.
#[test]
fn production_in_steps_runs_to_completion() {
    let steps = [(0.3, 50), (0.6, 20)].map(|(fraction, priority)| PriorityStep { fraction, priority });
    for backend in [ENGINE, HTCONDOR] {
        let mut fixture = Fixture::new(3, 3, steps.to_vec(), backend);
        fixture.come_to_an_end();
        fixture.check_the_end();
        assert_eq!(
            (fixture.view.row.request.priority, fixture.view.row.request.production_steps.len()),
            (20, 0)
        );
        assert_eq!((fixture.runs.len(), fixture.workflows.len()), (3, 1), "{:?}", fixture.runs);
    }
}

/// A submitted run is submitted again because the confirmation was lost; by then it is over, and another one
/// follows.
#[test]
fn repeated_late_submission_changes_nothing() {
    for backend in [ENGINE, HTCONDOR] {
        let mut fixture = Fixture::new(15, 20, Vec::new(), backend);
        let is_handing_over = |fixture: &Fixture| {
            matches!(
                fixture.under_way.front(),
                Some(LifecycleEffect::Submit { .. } | LifecycleEffect::Resume { .. })
            )
        };
        while !is_handing_over(&fixture) {
            fixture.act(ModelAction::Perform);
            fixture.act(ModelAction::Decide { admitted: true });
        }
        fixture.act(ModelAction::PerformBadly { did_it: true });
        fixture.act(ModelAction::Silence);
        while !is_handing_over(&fixture) {
            fixture.act(ModelAction::Wait);
            fixture.act(ModelAction::Decide { admitted: true });
        }
        fixture.act(ModelAction::Silence);
        for unit in 0..15 {
            fixture.act(ModelAction::Work { fails: unit == 0 });
        }
        let late = fixture.under_way.front().cloned();
        fixture.act(ModelAction::Decide { admitted: true });
        let follows = fixture.view.run.as_ref().and_then(|run| run.parent.clone());
        assert_eq!(
            late,
            follows.map(|run| LifecycleEffect::Submit { run }),
            "another run follows the submitted one"
        );
        fixture.act(ModelAction::Perform);
        fixture.come_to_an_end();
        fixture.check_the_end();
        assert_eq!((fixture.runs.len(), fixture.workflows.len()), (2, 1));
    }
}

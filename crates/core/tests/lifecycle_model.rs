//! The life of a request against a pretend backend and a pretend catalog: news in any order, twice or never, effects that
//! fail, crashes that forget everything but the rows. In the end every request is where it should be, every unit is
//! registered once, every block archived once, and nothing was done before what it depends on.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::requests::View;
use windlass_core::requests::book::{
    Backend, BlockRow, FileCounts, NodeCounts, OutputStep, Overrides, Process, RequestRow, RunCause, RunRow,
    RunTotals, StepKind, StepState, Want, Wanted,
};
use windlass_core::requests::change::RequestChange;
use windlass_core::requests::lifecycle::{
    Decision, Effect, News, Planned, RunNews, RunState, Settings, Situation, Trouble, UnitNews, decide,
};
use windlass_core::requests::transitions;
use windlass_types::payload::{MergeCounts, MergeOutput, MergedFile};
use windlass_types::requests::{
    BlockStatus, CleanupPolicy, ProductionStep, Request, RequestStatus, RunStatus, SplittingAlgo,
    SplittingParams, UnitStatus,
};
use windlass_types::{RunId, Timestamp, WorkflowId};

const START: Timestamp = Timestamp(1_000_000);
const DATASETS: [&str; 2] = ["/Mu/A-v1/AOD", "/Mu/A-v1/MINIAOD"];
/// Units of each round, in blocks of two and of one.
const UNITS: u32 = 3;

type Key = (String, Option<u32>, StepKind);

#[derive(Clone, Copy, Debug)]
enum Act {
    Decide {
        admitted: bool,
    },
    /// The next effect is carried out; its outcome is heard.
    Perform,
    /// It is tried and fails; perhaps having done what it should.
    PerformBadly {
        did_it: bool,
    },
    /// Everything but the rows is forgotten. Some of what was under way was done.
    Crash {
        done: u8,
    },
    /// The backend completes a unit, or fails one.
    Work {
        fails: bool,
    },
    /// Somebody holds the run at the backend, or lets it go on.
    Halt,
    HearTwice,
    Wait,
    Want(Want),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => any::<bool>().prop_map(|admitted| Act::Decide { admitted }),
        10 => Just(Act::Perform),
        3 => any::<bool>().prop_map(|did_it| Act::PerformBadly { did_it }),
        2 => (0..4_u8).prop_map(|done| Act::Crash { done }),
        8 => prop::bool::weighted(0.08).prop_map(|fails| Act::Work { fails }),
        1 => Just(Act::Halt),
        2 => Just(Act::HearTwice),
        2 => Just(Act::Wait),
        1 => prop_oneof![
            4 => Just(Want::Stop), 2 => Just(Want::Release), 1 => Just(Want::Remove), 1 => Just(Want::Abort),
            1 => Just(Want::Fail)
        ]
        .prop_map(Act::Want),
    ]
}

/// What the backend has of a round.
#[derive(Debug, Default)]
struct Workflow {
    round: u32,
    units: Vec<Option<UnitStatus>>,
    /// (unit, status), in the order in which it happened; its place is its `seq`.
    told: Vec<(u32, UnitStatus)>,
    /// The run that is under way.
    live: Option<String>,
    is_halted: bool,
}

#[derive(Debug)]
struct World {
    view: View,
    /// Steps that the rows have and the view does not show.
    settled: BTreeMap<Key, StepState>,
    news: Vec<News>,
    heard: Option<News>,
    under_way: VecDeque<Effect>,
    now: Timestamp,
    rounds: u32,
    /// Where its rounds run.
    backend: Backend,
    names: u32,
    workflows: Vec<Workflow>,
    /// Run → its workflow.
    runs: BTreeMap<String, usize>,
    /// Runs of which somebody was told that they do not run and will not.
    renounced: BTreeSet<String>,
    /// What the catalog has.
    catalog: BTreeSet<Key>,
    wanted_end: bool,
}

impl World {
    fn new(rounds: u32, production_steps: Vec<ProductionStep>, backend: Backend) -> Self {
        let row = RequestRow {
            request: request(production_steps),
            overrides: Overrides::default(),
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
            view: View {
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
            rounds,
            backend,
            names: 0,
            workflows: Vec::new(),
            runs: BTreeMap::new(),
            renounced: BTreeSet::new(),
            catalog: BTreeSet::new(),
            wanted_end: false,
        }
    }

    fn act(&mut self, act: Act) {
        self.now = self.now.after(Duration::from_secs(1));
        match act {
            Act::Decide { admitted } => self.decide(admitted),
            Act::Perform => {
                if let Some(effect) = self.under_way.pop_front() {
                    let news = self.perform(&effect);
                    self.news.push(news);
                }
            }
            Act::PerformBadly { did_it } => {
                if let Some(effect) = self.under_way.pop_front() {
                    if did_it {
                        self.perform(&effect);
                    }
                    self.news.extend(failure(&effect));
                }
            }
            Act::Crash { done } => {
                for effect in std::mem::take(&mut self.under_way).into_iter().take(done.into()) {
                    self.perform(&effect);
                }
                self.news.clear();
            }
            Act::Work { fails } => {
                self.work(if fails { UnitStatus::Failed } else { UnitStatus::Completed });
            }
            Act::Halt => {
                if let Some(live) = self.workflows.iter_mut().find(|workflow| workflow.live.is_some()) {
                    live.is_halted = !live.is_halted;
                }
            }
            Act::HearTwice => self.news.extend(self.heard.clone()),
            Act::Wait => self.now = self.now.after(Duration::from_secs(100)),
            Act::Want(what) => self.want(what),
        }
    }

    fn want(&mut self, what: Want) {
        let is_over = self.view.row.status.is_terminal();
        // As the interface has it: who wanted the end is not talked out of it.
        if is_over || self.wanted_end {
            return;
        }
        self.wanted_end |= matches!(what, Want::Abort | Want::Fail);
        self.view.row.wanted = Some(Wanted::new(what, "eve", "so", self.now));
    }

    fn decide(&mut self, admitted: bool) {
        self.poll();
        let news = std::mem::take(&mut self.news);
        self.heard = news.last().cloned();
        self.names += 1;
        let fresh_uuid = format!("next-{}", self.names);
        let situation =
            Situation { news: &news, admitted, previous: &[], places: &[], fresh_uuid: &fresh_uuid };
        let settings = Settings { timeouts: BTreeMap::new(), ..Settings::default() };
        let Decision { changes, effects, .. } = decide(&self.view, &situation, &settings, self.now);
        for change in &changes {
            self.commit(change);
        }
        for effect in effects {
            if !self.under_way.contains(&effect) {
                self.under_way.push_back(effect);
            }
        }
    }

    /// As the store does it.
    fn commit(&mut self, change: &RequestChange) {
        match change {
            RequestChange::Status { from, to, .. } => {
                assert_eq!(self.view.row.status, *from);
                assert_eq!(transitions::check(*from, *to), Ok(()));
            }
            RequestChange::AddStep(step) if self.settled.contains_key(&key(step)) => return,
            RequestChange::Step { block, unit, kind, state, .. } if !state.is_open() => {
                let before = self.settled.insert((block.clone(), *unit, *kind), *state);
                assert_eq!(before, None, "a step is over once");
            }
            _ => {}
        }
        self.view.apply(change, self.now);
    }

    /// What the backend says of the run, asked at every pass.
    fn poll(&mut self) {
        let Some(run) = &self.view.run else { return };
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
        let (completed, failed) = (count(UnitStatus::Completed), count(UnitStatus::Failed));
        let units = workflow.told.iter().enumerate().skip(run.units_read as usize);
        let units = units.map(|(at, (unit, status))| UnitNews {
            seq: at as i64 + 1,
            unit: *unit,
            status: *status,
            output: Ok((*status == UnitStatus::Completed).then(|| merged(workflow.round, *unit))),
        });
        let called = Some(called(&run.backend, at, &run.uuid));
        let news = told(run, called, state, completed, failed, units.collect());
        self.news.push(news);
    }

    fn perform(&mut self, effect: &Effect) -> News {
        match effect {
            Effect::Import => News::Imported(Box::new(process())),
            Effect::Plan { round } => self.plan(*round),
            Effect::Submit { run } | Effect::Resume { run } => self.hand_over(run),
            Effect::Stop { run, .. } => self.stop(run),
            Effect::Pause { run } | Effect::Unpause { run } | Effect::Avoid { run } => {
                News::Unpaused { run: run.clone() }
            }
            Effect::Step(step) => self.record(step),
        }
    }

    fn plan(&mut self, round: u32) -> News {
        let Some(process) = self.view.process.clone() else { return News::NothingToPlan };
        self.names += 1;
        let block = |dataset: usize, index: u32, first_unit, last_unit| BlockRow {
            uuid: format!("{round}-{dataset}-{index}"),
            process: "process".into(),
            round,
            index,
            dataset: DATASETS[dataset].into(),
            first_unit,
            last_unit,
            units_completed: 0,
            units_expected: last_unit - first_unit + 1,
            name: None,
            is_closed: false,
            tape_rule: None,
            status: BlockStatus::Open,
            created_at: self.now,
            updated_at: self.now,
        };
        News::Planned(Box::new(Planned {
            run: run(round, &format!("run-{}", self.names), self.backend.clone()),
            blocks: (0..2).flat_map(|d| [block(d, 0, 0, 1), block(d, 1, 2, UNITS - 1)]).collect(),
            process: Process { more_input: round + 1 < self.rounds, ..process },
        }))
    }

    fn hand_over(&mut self, run: &str) -> News {
        assert!(!self.renounced.contains(run), "{run} was said not to run any more");
        // One that meanwhile is not the latest one any more would have been renounced.
        let row = self.view.run.as_ref().filter(|row| row.uuid == run);
        let row = row.unwrap_or_else(|| panic!("{run} is handed over, and nobody wants it"));
        let before = match &row.backend {
            Backend::Engine { workflow, .. } => workflow.map(|workflow| workflow.0 as usize),
            // The directory of the round, if one of its runs was ever handed over.
            Backend::Htcondor { .. } => self.workflows.iter().position(|known| known.round == row.round),
        };
        let known = self.runs.get(run).copied().or(before);
        let at = known.unwrap_or_else(|| {
            let units = vec![None; UNITS as usize];
            self.workflows.push(Workflow { round: row.round, units, ..Workflow::default() });
            self.workflows.len() - 1
        });
        let backend = called(&row.backend, at, run);
        let workflow = &mut self.workflows[at];
        if !self.runs.contains_key(run) {
            assert_eq!(workflow.live, None, "one run at a time (R-021)");
            self.runs.insert(run.to_owned(), at);
            workflow
                .units
                .iter_mut()
                .filter(|unit| **unit != Some(UnitStatus::Completed))
                .for_each(|unit| *unit = None);
            workflow.live = workflow.units.contains(&None).then(|| run.to_owned());
        }
        News::Submitted { run: run.to_owned(), backend }
    }

    fn stop(&mut self, run: &str) -> News {
        let there = self.runs.get(run).copied();
        match there {
            Some(at) if self.workflows[at].live.as_deref() == Some(run) => {
                let workflow = &mut self.workflows[at];
                workflow.live = None;
                workflow.is_halted = false;
                for (unit, status) in
                    workflow.units.iter_mut().enumerate().filter(|(_, status)| status.is_none())
                {
                    *status = Some(UnitStatus::Canceled);
                    workflow.told.push((unit as u32, UnitStatus::Canceled));
                }
            }
            Some(_) => {}
            None => {
                self.renounced.insert(run.to_owned());
            }
        }
        News::Stopped { run: run.to_owned(), there: there.is_some() }
    }

    fn work(&mut self, status: UnitStatus) {
        let Some(workflow) = self.workflows.iter_mut().find(|workflow| workflow.live.is_some()) else {
            return;
        };
        if workflow.is_halted {
            return;
        }
        if let Some(unit) = workflow.units.iter().position(Option::is_none) {
            workflow.units[unit] = Some(status);
            workflow.told.push((unit as u32, status));
        }
        if !workflow.units.contains(&None) {
            workflow.live = None;
        }
    }

    /// Nothing before what it depends on (R-110–R-112).
    fn record(&mut self, step: &OutputStep) -> News {
        let has = |unit, kind| self.catalog.contains(&(step.block.clone(), unit, kind));
        let block = self.view.block(&step.block).expect("a block that is there");
        let all = |kind| (block.first_unit..=block.last_unit).all(|unit| has(Some(unit), kind));
        match step.kind {
            StepKind::Open | StepKind::Invalidate => {}
            StepKind::Register => assert!(has(None, StepKind::Open)),
            StepKind::Protect => assert!(has(step.unit, StepKind::Register)),
            StepKind::Close => assert!(all(StepKind::Protect)),
            StepKind::Archive => assert!(has(None, StepKind::Close)),
        }
        self.catalog.insert(key(step));
        let outcome = Ok(Some(format!("{:?} of {}", step.kind, step.block)));
        News::Step { block: step.block.clone(), unit: step.unit, kind: step.kind, outcome }
    }

    fn has_failed_units(&self) -> bool {
        self.workflows.last().is_some_and(|last| last.units.contains(&Some(UnitStatus::Failed)))
    }

    /// From now on all goes well; who is held without a failure is released.
    fn come_to_an_end(&mut self) {
        for _ in 0..400 {
            self.now = self.now.after(Duration::from_hours(9));
            self.workflows.iter_mut().for_each(|workflow| workflow.is_halted = false);
            self.work(UnitStatus::Completed);
            self.decide(true);
            while let Some(effect) = self.under_way.pop_front() {
                let news = self.perform(&effect);
                self.news.push(news);
            }
            if self.view.row.status == RequestStatus::Held && !self.has_failed_units() {
                self.want(Want::Release);
            }
        }
    }

    fn check_the_end(&self) {
        let status = self.view.row.status;
        let expected = match () {
            () if self.wanted_end => matches!(status, RequestStatus::Aborted | RequestStatus::Failed),
            () if self.has_failed_units() => status == RequestStatus::Held,
            () => status == RequestStatus::Completed,
        };
        assert!(expected, "{status} ({:?}), end wanted: {}", self.view.row.reason, self.wanted_end);
        assert!(self.workflows.iter().all(|workflow| workflow.live.is_none()), "nothing runs any more");
        assert_eq!(self.view.steps, [], "all that was to be done about outputs is done");
        if status == RequestStatus::Completed {
            self.check_all_is_there();
        }
    }

    fn check_all_is_there(&self) {
        let done = |block: &str, unit, kind| {
            self.settled.get(&(block.to_owned(), unit, kind)) == Some(&StepState::Done)
        };
        assert_eq!(self.view.blocks.len(), 4 * self.rounds as usize);
        for block in &self.view.blocks {
            assert_eq!(block.status, BlockStatus::Archived);
            assert_eq!(block.units_completed, block.total_units());
            assert!(done(&block.uuid, None, StepKind::Archive));
            for unit in block.first_unit..=block.last_unit {
                assert!(done(&block.uuid, Some(unit), StepKind::Register));
            }
        }
        let events = self.view.process.as_ref().map(|process| process.events_produced);
        assert_eq!(events, Some(u64::from(self.rounds * UNITS) * 10), "each unit counts once");
    }
}

fn key(step: &OutputStep) -> Key {
    (step.block.clone(), step.unit, step.kind)
}

fn failure(effect: &Effect) -> Option<News> {
    let trouble = Trouble { reason: "no answer".into(), again: true };
    Some(match effect {
        Effect::Import => News::ImportFailed(trouble),
        Effect::Plan { .. } => News::PlanFailed(trouble),
        Effect::Submit { run } | Effect::Resume { run } => News::SubmitFailed { run: run.clone(), trouble },
        Effect::Stop { .. } | Effect::Pause { .. } | Effect::Unpause { .. } | Effect::Avoid { .. } => {
            return None;
        }
        Effect::Step(step) => News::Step {
            block: step.block.clone(),
            unit: step.unit,
            kind: step.kind,
            outcome: Err("503".into()),
        },
    })
}

fn told(
    run: &RunRow,
    backend: Option<Backend>,
    state: RunState,
    completed: u32,
    failed: u32,
    units: Vec<UnitNews>,
) -> News {
    News::Run(Box::new(RunNews {
        run: run.uuid.clone(),
        backend,
        state,
        counts: NodeCounts::default(),
        units_completed: completed,
        units_failed: failed,
        units,
        attempts: Vec::new(),
        site_totals: BTreeMap::new(),
        held: Vec::new(),
        reason: None,
    }))
}

/// What the backend calls a run of its workflow `at`.
fn called(backend: &Backend, at: usize, run: &str) -> Backend {
    match backend {
        Backend::Engine { .. } => {
            Backend::Engine { workflow: Some(WorkflowId(at as i64)), run: Some(RunId(1)) }
        }
        Backend::Htcondor { schedd, .. } => {
            Backend::Htcondor { schedd: schedd.clone(), cluster: Some(format!("{at}-{run}")) }
        }
    }
}

const ENGINE: Backend = Backend::Engine { workflow: None, run: None };
const HTCONDOR: Backend = Backend::Htcondor { schedd: None, cluster: None };

fn merged(round: u32, unit: u32) -> MergeOutput {
    let file = |dataset: &str| MergedFile {
        lfn: format!("/store{dataset}/{round}/{unit}"),
        size: 1,
        adler32: "00000001".into(),
        events: 10,
        lumis: windlass_types::LumiMask::default(),
        parents: Vec::new(),
    };
    MergeOutput {
        request: "r".into(),
        unit: format!("mg_{unit:06}"),
        number: unit,
        site: "T2".into(),
        datasets: DATASETS.iter().map(|dataset| ((*dataset).to_owned(), vec![file(dataset)])).collect(),
        counts: MergeCounts::default(),
    }
}

fn process() -> Process {
    Process {
        uuid: "process".into(),
        request_name: "r".into(),
        round: 0,
        next_first_event: 1,
        next_first_lumi: 1,
        next_block: 0,
        more_input: true,
        settled: 0,
        files: FileCounts::default(),
        events_produced: 0,
        events_of_round: 0,
        category_throttles: BTreeMap::new(),
        step_metrics: None,
        created_at: START,
        updated_at: START,
    }
}

fn run(round: u32, uuid: &str, backend: Backend) -> RunRow {
    RunRow {
        uuid: uuid.into(),
        process: "process".into(),
        round,
        parent: None,
        cause: RunCause::First,
        rescues: 0,
        paused: None,
        silent: None,
        backend,
        submit_dir: "dir".into(),
        status: RunStatus::Ready,
        stop_requested_at: None,
        stop_reason: None,
        totals: RunTotals { units: UNITS, ..RunTotals::default() },
        counts: NodeCounts::default(),
        units_completed: 0,
        units_failed: 0,
        units_read: 0,
        created_at: START,
        submitted_at: None,
        completed_at: None,
    }
}

fn request(production_steps: Vec<ProductionStep>) -> Request {
    Request {
        request_name: "r".into(),
        requestor: "ana".into(),
        requestor_dn: None,
        group: None,
        input_dataset: Some("/Mu/A-v1/RAW".into()),
        secondary_input_dataset: None,
        output_datasets: DATASETS.map(str::to_owned).to_vec(),
        generation: None,
        cmssw_version: None,
        scram_arch: Vec::new(),
        global_tag: None,
        memory_mb: 2048,
        time_per_event_sec: 1.0,
        size_per_event_kb: 1.5,
        multicore: 1,
        site_whitelist: Vec::new(),
        site_blacklist: Vec::new(),
        adaptive: true,
        trust_sitelists: false,
        splitting_algo: SplittingAlgo::FileBased,
        splitting_params: SplittingParams::default(),
        campaign: None,
        processing_string: None,
        acquisition_era: None,
        processing_version: 1,
        priority: 100,
        urgent: false,
        production_steps,
        payload_config: serde_json::Map::new(),
        previous_version_request: None,
        superseded_by_request: None,
        cleanup_policy: CleanupPolicy::KeepUntilReplaced,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    #[test]
    fn whatever_happens_every_request_ends_as_it_should(
        acts in prop::collection::vec(act(), 0..150),
        rounds in 1..=3_u32,
        has_steps in any::<bool>(),
        backend in prop_oneof![Just(ENGINE), Just(HTCONDOR)],
    ) {
        let steps = [(0.3, 50), (0.6, 20)].map(|(fraction, priority)| ProductionStep { fraction, priority });
        let mut world = World::new(rounds, if has_steps { steps.to_vec() } else { Vec::new() }, backend);
        for act in acts {
            world.act(act);
        }
        world.come_to_an_end();
        world.check_the_end();
    }
}

/// R-178, S 6.2.1: both steps are used up, each time the rest waits for its turn with the lower priority.
#[test]
fn production_in_steps_runs_to_completion() {
    let steps = [(0.3, 50), (0.6, 20)].map(|(fraction, priority)| ProductionStep { fraction, priority });
    for backend in [ENGINE, HTCONDOR] {
        let mut world = World::new(1, steps.to_vec(), backend);
        world.come_to_an_end();
        world.check_the_end();
        assert_eq!((world.view.row.request.priority, world.view.row.request.production_steps.len()), (20, 0));
        assert_eq!((world.runs.len(), world.workflows.len()), (3, 1), "{:?}", world.runs);
    }
}

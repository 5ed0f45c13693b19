//! Work units on several sites: in any order of claims, ends and losses of workers, jobs run where their unit
//! is, and limits are never exceeded.

use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use windlass_core::change::{WorkUnitChange, WorkflowChange};
use windlass_core::dependency_edges::DependencyEdgesBuilder;
use windlass_core::dispatch::{ClaimLimits, LocationConstraint, WorkerSelector, WorkerUsage};
use windlass_core::workflow_state::{
    FailedAttemptContext, JobTable, OrphanDecision, OrphanedAttempt, RetryDecision, WorkUnitRow,
    WorkflowState,
};
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptEndReport, AttemptKey, AttemptUsage, ProcessExit,
};
use windlass_types::{
    Attempt, Bytes, Capacity, JobId, JobStatus as S, Resources, RunId, Timestamp, WorkUnitStatus, WorkerId,
    WorkflowId,
};

const SITES: [&str; 3] = ["east", "north", "west"];
/// Landing, three processing jobs, merge, cleanup.
const JOBS: u32 = 6;
const PROCESSING: u32 = 2;
const MERGE: u32 = 1;

/// Location constraints of the jobs of a unit. The landing of every other unit may run at two of the sites
/// only.
fn places() -> Vec<LocationConstraint> {
    let sites = |sites: &[&str]| sites.iter().map(|site| (*site).to_owned()).collect();
    let landing = |places: &[&str]| LocationConstraint {
        sites: sites(places),
        elects: true,
        ..LocationConstraint::default()
    };
    let limited =
        |limit: &str| LocationConstraint { limit: Some(limit.to_owned()), ..LocationConstraint::default() };
    vec![
        LocationConstraint::default(),
        landing(&[]),
        landing(&SITES[..2]),
        limited("processing"),
        limited("merge"),
    ]
}

fn table(units: u32) -> JobTable {
    let n = (units * JOBS) as usize;
    let mut edges = DependencyEdgesBuilder::default();
    let mut place = Vec::new();
    for unit in 0..units {
        let first = unit * JOBS;
        let processing = [first + 1, first + 2, first + 3];
        for job in processing {
            edges.add_dependencies(job, &[first]);
        }
        edges.add_dependencies(first + 4, &processing);
        edges.add_dependencies(first + 5, &[first + 4]);
        place.extend([1 + unit % 2, 3, 3, 3, 4, 0]);
    }
    let unit = |number| WorkUnitRow { number, jobs: vec![(number * JOBS, JOBS)], ..WorkUnitRow::default() };
    JobTable {
        ids: (1..=n as i64).map(JobId).collect(),
        status: vec![S::Uninitialized; n],
        attempt: vec![Attempt::FIRST; n],
        priority: vec![0; n],
        cancel_on_blocking_job_failure: vec![true; n],
        class: vec![0; n],
        requirements: vec![Resources::DEFAULT],
        place,
        places: places(),
        units: (0..units).map(unit).collect(),
        edges: edges.finish(),
        ..JobTable::default()
    }
}

fn state(table: JobTable, max_units: Option<u32>) -> WorkflowState {
    let mut state = WorkflowState::new(WorkflowId(1), RunId(1), table).expect("no cycle");
    let limits = BTreeMap::from([("processing".to_owned(), PROCESSING), ("merge".to_owned(), MERGE)]);
    state.set_limits(&limits, max_units);
    state
}

fn worker(number: usize) -> (WorkerId, WorkerUsage) {
    let capacity = Capacity { cpus: 4, memory: Bytes(1 << 40), gpus: 0, nodes: 1, max_jobs: None };
    let selector = WorkerSelector::default().with_labels(Vec::new()).at_site(Some(SITES[number]));
    (WorkerId(number as i64 + 1), WorkerUsage::with_selector(capacity, selector))
}

fn ended(key: AttemptKey, exit: ProcessExit) -> AttemptEndReport {
    let at = Timestamp(1);
    AttemptEndReport {
        key,
        started_at: at,
        ended_at: at,
        wall: Duration::ZERO,
        exit,
        cause: AttemptEndCause::Itself,
        usage: AttemptUsage::default(),
        files: None,
        last_words: None,
        recovered: None,
    }
}

/// The observed state: held jobs, and the rows of units.
struct Fixture {
    state: WorkflowState,
    workers: Vec<(WorkerId, WorkerUsage)>,
    /// The worker of each held job, by number.
    held: BTreeMap<u32, usize>,
    units: Vec<(WorkUnitStatus, Option<String>)>,
    max_units: u32,
}

impl Fixture {
    fn new(units: u32, max_units: u32) -> Self {
        let mut fixture = Self {
            state: state(table(units), Some(max_units)),
            workers: (0..SITES.len()).map(worker).collect(),
            held: BTreeMap::new(),
            units: vec![(WorkUnitStatus::Waiting, None); units as usize],
            max_units,
        };
        let mut changes = Vec::new();
        fixture.state.on_resume(&mut changes);
        fixture.state.on_initialize_rest(&mut changes);
        fixture.note(&changes);
        fixture
    }

    fn note(&mut self, changes: &[WorkflowChange]) {
        for change in changes {
            if let WorkflowChange::Unit(WorkUnitChange { number, from, to, site }) = change {
                let row = &mut self.units[*number as usize];
                assert_eq!(row.0, *from, "unit {number}");
                *row = (*to, site.clone());
            }
        }
    }

    fn claim(&mut self, number: usize, most: usize, ahead: usize) -> usize {
        let mut changes = Vec::new();
        let (id, worker_usage) = &mut self.workers[number];
        let taken = self.state.claim_ready(
            *id,
            worker_usage,
            ClaimLimits { max_jobs: most, queue_ahead: ahead },
            &mut changes,
        );
        for &job in &taken {
            let (unit, part) = ((job / JOBS) as usize, job % JOBS);
            if part > 0 {
                assert_eq!(self.units[unit].1.as_deref(), Some(SITES[number]), "job {job}");
            } else {
                assert!(unit % 2 == 0 || number < 2, "this landing is not for {}", SITES[number]);
            }
            self.held.insert(job, number);
        }
        self.note(&changes);
        taken.len()
    }

    fn end(&mut self, job: u32, exit: ProcessExit, again: bool) {
        let Some(number) = self.held.remove(&job) else { return };
        let mut changes = Vec::new();
        let (id, worker_usage) = &mut self.workers[number];
        worker_usage.remove(job);
        let decision = |_: FailedAttemptContext<'_>| {
            if again { RetryDecision::Retry(Box::default()) } else { RetryDecision::Final(None) }.into()
        };
        self.state
            .on_attempt_ended_with(*id, &ended(self.state.attempt_key(job), exit), decision, &mut changes)
            .expect("it is held");
        self.note(&changes);
    }

    fn lose(&mut self, job: u32, orphan_decision: OrphanDecision) {
        let Some(number) = self.held.remove(&job) else { return };
        let mut changes = Vec::new();
        self.workers[number].1.remove(job);
        self.state.on_orphaned(
            job,
            self.workers[number].0,
            orphan_decision,
            OrphanedAttempt::default(),
            Timestamp(1),
            &mut changes,
        );
        self.note(&changes);
    }

    fn check(&self) {
        let parts = |parts: std::ops::Range<u32>| {
            self.held.keys().filter(|job| parts.contains(&(*job % JOBS))).count()
        };
        assert!(parts(1..4) <= PROCESSING as usize && parts(4..5) <= MERGE as usize, "{:?}", self.held);
        let under_way = |unit: &u32| {
            let jobs = unit * JOBS..(unit + 1) * JOBS;
            let landing = self.state.status(jobs.start);
            let is_begun = landing.is_active() || matches!(landing, S::Completed | S::Failed);
            is_begun && jobs.into_iter().any(|job| !self.state.status(job).is_settled())
        };
        let under_way = (0..self.units.len() as u32).filter(under_way).count();
        assert!(under_way <= self.max_units as usize, "{under_way} units are active");
        for (unit, (status, _)) in (0..).zip(&self.units) {
            let jobs: Vec<S> = (unit * JOBS..(unit + 1) * JOBS).map(|job| self.state.status(job)).collect();
            let all = |is: fn(S) -> bool| jobs.iter().all(|status| is(*status));
            match status {
                WorkUnitStatus::Completed => assert!(all(|s| s == S::Completed), "{jobs:?}"),
                WorkUnitStatus::Failed => {
                    assert!(all(S::is_settled) && jobs.contains(&S::Failed), "{jobs:?}");
                }
                WorkUnitStatus::Waiting => assert!(all(|s| matches!(s, S::Ready | S::Blocked)), "{jobs:?}"),
                WorkUnitStatus::Active => assert!(!all(S::is_settled), "{jobs:?}"),
                WorkUnitStatus::Canceled => panic!("nothing was canceled: {jobs:?}"),
            }
        }
    }

    /// The same, as built by a server that starts now, when the workers reconnect.
    fn remake(&mut self) {
        let mut table = table(self.units.len() as u32);
        table.status = (0..table.ids.len() as u32).map(|job| self.state.status(job)).collect();
        table.attempt = (0..table.ids.len() as u32).map(|job| self.state.attempt_key(job).attempt).collect();
        for (unit, (status, site)) in table.units.iter_mut().zip(&self.units) {
            (unit.status, unit.site) = (*status, site.clone());
        }
        self.state = state(table, Some(self.max_units));
        let mut changes = Vec::new();
        self.state.on_resume(&mut changes);
        self.state.on_initialize_rest(&mut changes);
        for (job, number) in &self.held {
            self.state.set_job_site(*job, Some(SITES[*number]));
        }
        self.state.reconcile_units(&mut changes);
        assert!(changes.is_empty(), "nothing new is decided: {changes:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn jobs_run_at_the_site_of_their_unit_within_limits(
        (units, max_units) in (1u32..7, 1u32..4),
        steps in prop::collection::vec((0u8..12, any::<u8>(), any::<u16>()), 1..200),
    ) {
        let mut fixture = Fixture::new(units, max_units);
        fixture.check();
        for (what, how, which) in steps {
            let chosen = |held: &BTreeMap<u32, usize>| {
                held.keys().nth(usize::from(which) % held.len().max(1)).copied().unwrap_or(0)
            };
            let job = chosen(&fixture.held);
            match what {
                0..=4 => _ = fixture.claim(usize::from(how) % SITES.len(), 1 + usize::from(which % 5), usize::from(how % 2)),
                5..=8 => fixture.end(job, ProcessExit::Code(0), false),
                9 => fixture.end(job, ProcessExit::Code(1), how % 4 > 0),
                10 => {
                    let pending = fixture.state.status(job) == S::Pending;
                    let orphan_decision = if pending && how % 2 == 0 { OrphanDecision::NeverStarted } else { OrphanDecision::RunAgain(None) };
                    fixture.lose(job, orphan_decision);
                }
                _ => fixture.remake(),
            }
            fixture.check();
        }
        // The rest can always be completed.
        let mut rounds = 0;
        while !fixture.state.is_finished() {
            for number in 0..SITES.len() {
                fixture.claim(number, usize::MAX, 1);
                fixture.check();
            }
            prop_assert!(!fixture.held.is_empty(), "no job is held, and none can be claimed");
            for job in fixture.held.keys().copied().collect::<Vec<_>>() {
                fixture.end(job, ProcessExit::Code(0), false);
                fixture.check();
            }
            rounds += 1;
            prop_assert!(rounds < 1000);
        }
        prop_assert!(fixture.units.iter().all(|(status, _)| status.is_over()));
    }
}

#[test]
fn active_units_are_finished_before_new_ones_start() {
    let mut fixture = Fixture::new(4, 2);
    assert_eq!(fixture.claim(0, 9, 0), 2, "two landings, and no third");
    assert_eq!(fixture.held.keys().copied().collect::<Vec<_>>(), [0, JOBS], "the lower numbers first");
    assert_eq!(fixture.units[0].0, WorkUnitStatus::Active);
    assert!(fixture.state.is_held_by_limit(2 * JOBS));
    fixture.end(0, ProcessExit::Code(0), false);
    fixture.end(JOBS, ProcessExit::Code(1), true);
    assert_eq!(fixture.units[1], (WorkUnitStatus::Waiting, None), "its landing is to be retried");
    assert_eq!(fixture.claim(0, 2, 0), 2);
    assert_eq!(fixture.held.keys().copied().collect::<Vec<_>>(), [1, 2], "no landing before these");
}

#[test]
fn reset_landing_clears_the_site_of_its_unit() {
    let mut fixture = Fixture::new(1, 1);
    fixture.claim(2, 1, 0);
    fixture.end(0, ProcessExit::Code(0), false);
    assert_eq!(fixture.units[0], (WorkUnitStatus::Active, Some("west".into())));
    let again = fixture.state.plan_rerun(&[0], false, true, &HashMap::default()).unwrap();
    let opened = fixture.state.unit_changes_after(&again.changes);
    let expected =
        WorkUnitChange { number: 0, from: WorkUnitStatus::Active, to: WorkUnitStatus::Waiting, site: None };
    assert_eq!(opened, [WorkflowChange::Unit(expected)]);
}

#[test]
fn worker_without_site_gets_no_site_jobs() {
    let mut fixture = Fixture::new(2, 2);
    let nowhere = WorkerSelector::default().at_site(None);
    let mut changes = Vec::new();
    assert!(fixture.state.claim_oldest(WorkerId(9), &nowhere, 9, &mut changes).is_empty());
    assert!(changes.is_empty());
}

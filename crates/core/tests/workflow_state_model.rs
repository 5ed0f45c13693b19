//! The workflow state compared with a model of fifty lines that recomputes everything from scratch.

mod only_worker;

use only_worker::{WORKER, claim_jobs};
use proptest::prelude::*;
use rustc_hash::FxBuildHasher;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use windlass_core::change::{WorkUnitChange, WorkflowChange};
use windlass_core::crash_suspects::CrashEvidence;
use windlass_core::dependency_edges::{DependencyEdges, DependencyEdgesBuilder};
use windlass_core::dispatch::{LocationConstraint, WorkerSelector, WorkerUsage};
use windlass_core::failure_commands::{BlockingDependents, CommandPlanError, plan_commands};
use windlass_core::workflow_state::{
    FailedAttemptContext, JobTable, NextAttempt, OrphanDecision, OrphanedAttempt, RetryDecision, RetryPlan,
    WorkUnitRow, WorkflowState,
};
use windlass_types::failure_commands::FailureCommandKind;
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptEndReport, AttemptKey, AttemptUsage, ProcessExit, RecoveryScript, StopReason,
};
use windlass_types::{
    Attempt, Bytes, Capacity, JobId, JobStatus as S, Resources, RunId, StatusCounts, Timestamp,
    WorkUnitStatus, WorkflowId,
};

const FIRST_ID: i64 = 101;
const SITE: &str = "here";
/// Maximum number of claimed jobs of the limit.
const LIMIT: u32 = 2;

/// The rows of the database: changed only through `WorkflowChange`s, each of which must fit the present state.
struct DatabaseRows {
    ids: Vec<JobId>,
    status: Vec<S>,
    attempt: Vec<u32>,
    /// What earlier attempts left to the next one.
    inherited: Vec<NextAttempt>,
    /// (job, attempt) of every result row; no attempt may have two.
    results: Vec<(usize, u32)>,
    /// The attempt of each job whose failure is ignored.
    ignored: Vec<Option<u32>>,
    /// State and site of each unit.
    units: Vec<(WorkUnitStatus, Option<String>)>,
}

impl DatabaseRows {
    fn apply(&mut self, changes: &[WorkflowChange]) {
        let ids = self.ids.clone();
        let index = |id: JobId| ids.binary_search(&id).expect("a known job");
        for change in changes {
            match change {
                WorkflowChange::Status { job, from, to } => {
                    assert!(!from.is_active() && !to.is_active(), "held jobs have changes of their own");
                    self.step(index(*job), *from, *to);
                }
                WorkflowChange::Claim { job, attempt, worker } => {
                    assert_eq!((*worker, attempt.0), (WORKER, self.attempt[index(*job)]));
                    self.step(index(*job), S::Ready, S::Pending);
                }
                WorkflowChange::Start { job, attempt, .. } => {
                    assert_eq!(attempt.0, self.attempt[index(*job)]);
                    self.step(index(*job), S::Pending, S::Running);
                }
                WorkflowChange::ReturnClaim { job, worker } => {
                    assert_eq!(*worker, WORKER);
                    self.step(index(*job), S::Pending, S::Ready);
                }
                WorkflowChange::ReassignClaim { .. }
                | WorkflowChange::Action(_)
                | WorkflowChange::CountSiteAttempts { .. }
                | WorkflowChange::RaiseAlarm(_) => {
                    panic!("not a change of this event: {change:?}");
                }
                WorkflowChange::Retry { job, from, attempt } => {
                    let job = index(*job);
                    assert_eq!(attempt.0, self.attempt[job]);
                    assert!(self.results.contains(&(job, attempt.0)), "a job that never ran is not retried");
                    assert_ne!(*from, S::Completed, "a completed job never runs again");
                    self.step(job, *from, S::Ready);
                    self.begin_anew(job, attempt.0 + 1);
                }
                WorkflowChange::Reset { job, from, attempt } => {
                    let job = index(*job);
                    assert!(!from.is_active(), "a reset job is not held");
                    self.step(job, *from, S::Uninitialized);
                    self.begin_anew(job, attempt.0);
                }
                WorkflowChange::Unit(WorkUnitChange { number, from, to, site }) => {
                    let row = &mut self.units[*number as usize];
                    assert_eq!(row.0, *from, "unit {number}");
                    *row = (*to, site.clone());
                }
                WorkflowChange::Ignore { job, attempt } => self.ignored[index(*job)] = Some(attempt.0),
                WorkflowChange::End { from, to, result, next_attempt, inherited, .. } => {
                    let job = index(result.key.job);
                    self.step(job, *from, *to);
                    assert_eq!(result.key.attempt.0, self.attempt[job]);
                    assert!(next_attempt.0 >= self.attempt[job], "attempts increase");
                    assert!(!self.results.contains(&(job, result.key.attempt.0)), "one result per attempt");
                    self.results.push((job, result.key.attempt.0));
                    self.attempt[job] = next_attempt.0;
                    if *to == S::Ready {
                        self.inherited[job] = inherited.as_deref().cloned().unwrap_or_default();
                    }
                }
            }
        }
    }

    /// As the store does: earlier attempts do not count for rules.
    fn begin_anew(&mut self, job: usize, next: u32) {
        assert!(next >= self.attempt[job], "attempts increase");
        self.attempt[job] = next;
        self.inherited[job] = NextAttempt { excused: next - 1, ..NextAttempt::default() };
    }

    fn is_ignored(&self, job: usize) -> bool {
        let failed = matches!(self.status[job], S::Failed | S::Terminated);
        failed && self.ignored[job] == Some(self.attempt[job])
    }

    /// The newest attempt with a result of each job.
    fn done(&self) -> HashMap<JobId, Attempt, FxBuildHasher> {
        let mut done = HashMap::default();
        for &(job, attempt) in &self.results {
            let newest = done.entry(self.ids[job]).or_insert(Attempt(attempt));
            *newest = (*newest).max(Attempt(attempt));
        }
        done
    }

    fn step(&mut self, job: usize, from: S, to: S) {
        assert_eq!(self.status[job], from, "job {job} → {to}");
        self.status[job] = to;
    }
}

/// The state as built by a process that starts now, after a crash.
fn rebuilt(rows: &DatabaseRows, fixture: &Fixture) -> WorkflowState {
    limited(WorkflowState::new(WorkflowId(1), RunId(1), as_read(rows, fixture)).expect("no cycle"))
}

fn limited(mut state: WorkflowState) -> WorkflowState {
    state.set_limits(&BTreeMap::from([("few".to_owned(), LIMIT)]), None);
    state
}

/// Location constraints of unit jobs and of jobs with a limit.
fn places() -> Vec<LocationConstraint> {
    let few = || Some("few".to_owned());
    let elects = |elects, limit| LocationConstraint { elects, limit, ..LocationConstraint::default() };
    vec![LocationConstraint::default(), elects(false, few()), elects(true, None), elects(true, few())]
}

/// The units of a world, each job as a range of one.
fn units(fixture: &Fixture, rows: &[(WorkUnitStatus, Option<String>)]) -> Vec<WorkUnitRow> {
    let jobs =
        |unit| (0..).zip(&fixture.unit).filter(move |(_, of)| **of == Some(unit)).map(|(job, _)| (job, 1));
    let unit = |(number, (status, site)): (u32, &(WorkUnitStatus, Option<String>))| WorkUnitRow {
        number,
        status: *status,
        site: site.clone(),
        jobs: jobs(number).collect(),
    };
    (0..).zip(rows).map(unit).filter(|unit| !unit.jobs.is_empty()).collect()
}

fn as_read(rows: &DatabaseRows, fixture: &Fixture) -> JobTable {
    JobTable {
        ids: rows.ids.clone(),
        status: rows.status.clone(),
        attempt: rows.attempt.iter().map(|attempt| Attempt(*attempt)).collect(),
        priority: vec![0; rows.ids.len()],
        cancel_on_blocking_job_failure: fixture.cancel.clone(),
        class: vec![0; rows.ids.len()],
        requirements: vec![Resources::DEFAULT],
        inherited: (0..)
            .zip(rows.inherited.clone())
            .filter(|(_, inherited)| *inherited != NextAttempt::default())
            .collect(),
        ignored: (0..rows.ids.len() as u32).filter(|job| rows.is_ignored(*job as usize)).collect(),
        place: fixture.place.clone(),
        places: places(),
        units: units(fixture, &rows.units),
        edges: edges(&fixture.depends),
        ..JobTable::default()
    }
}

/// Random commands for each failed job; `how` is the random input.
fn orders(rows: &DatabaseRows, how: u8, which: u16) -> Vec<(u32, FailureCommandKind)> {
    let failed =
        |job: &u32| matches!(rows.status[*job as usize], S::Failed | S::Terminated | S::PendingFailed);
    let chosen = (0..rows.ids.len() as u32).filter(failed).filter(|job| which >> (job % 16) & 1 == 1);
    let kind = |job: u32| match (u32::from(how) + job) % 3 {
        0 => FailureCommandKind::Retry,
        1 if rows.status[job as usize] == S::PendingFailed => FailureCommandKind::Fail,
        _ => FailureCommandKind::Ignore,
    };
    chosen.map(|job| (job, kind(job))).collect()
}

fn edges(depends: &[Vec<u32>]) -> DependencyEdges {
    let mut edges = DependencyEdgesBuilder::default();
    for (job, on) in (0..).zip(depends) {
        edges.add_dependencies(job, on);
    }
    edges.finish()
}

/// Adds jobs as a running job does: they depend on it, on existing jobs, and on each other.
fn add_jobs(
    state: &mut WorkflowState,
    rows: &mut DatabaseRows,
    fixture: &mut Fixture,
    caller: u32,
    how: u8,
) -> Vec<WorkflowChange> {
    let old = rows.ids.len() as u32;
    // Other workflows use the ids between.
    let first = rows.ids[old as usize - 1].0 + 1 + i64::from(how % 3);
    let (count, cancel) = (1 + u32::from(how % 4), how % 8 < 6);
    let mut added = JobTable {
        ids: (0..count).map(|number| JobId(first + i64::from(number))).collect(),
        status: vec![S::Blocked; count as usize],
        attempt: vec![Attempt::FIRST; count as usize],
        priority: vec![1; count as usize],
        cancel_on_blocking_job_failure: vec![cancel; count as usize],
        class: (0..count).map(|number| number % 2).collect(),
        requirements: vec![Resources::DEFAULT, Resources { cpus: 2, ..Resources::DEFAULT }],
        ..JobTable::default()
    };
    for job in old..old + count {
        let mut depends = vec![caller, u32::from(how) % old];
        // A job depends on the next one: their order does not matter.
        depends.extend((how >= 128 && job == old && count > 1).then_some(job + 1));
        depends.extend((job >= old + 2).then_some(job - 1));
        depends.sort_unstable();
        depends.dedup();
        added.edges.direct.extend(depends.iter().map(|on| (job, *on)));
        fixture.depends.push(depends);
        fixture.cancel.push(cancel);
        fixture.place.push(0);
        fixture.unit.push(None);
    }
    rows.ids.extend(&added.ids);
    rows.status.extend(&added.status);
    rows.attempt.extend(added.attempt.iter().map(|attempt| attempt.0));
    rows.inherited.extend(added.ids.iter().map(|_| NextAttempt::default()));
    rows.ignored.extend(added.ids.iter().map(|_| None));
    let mut changes = Vec::new();
    assert_eq!(state.on_jobs_added(&added, &mut changes), old..old + count);
    changes
}

/// The expected state of a job that is neither held nor ended, by the rules alone.
fn expected(job: usize, depends: &[Vec<u32>], cancel: &[bool], rows: &DatabaseRows) -> S {
    let over = depends[job].iter().all(|&d| rows.status[d as usize].is_settled());
    let ill = |job: usize| rows.status[job].is_unsuccessful() && !rows.is_ignored(job);
    let badly = depends[job].iter().any(|&d| ill(d as usize));
    match (over, badly && cancel[job]) {
        (false, _) => S::Blocked,
        (true, true) => S::Canceled,
        (true, false) => S::Ready,
    }
}

fn check(state: &WorkflowState, rows: &DatabaseRows, depends: &[Vec<u32>], cancel: &[bool]) {
    let mut counts = StatusCounts::default();
    for (job, &status) in rows.status.iter().enumerate() {
        assert_eq!(state.status(job as u32), status, "memory and rows agree on job {job}");
        counts.add(status, 1);
        if matches!(status, S::Blocked | S::Ready)
            || (status == S::Canceled && !rows.results.iter().any(|r| r.0 == job))
        {
            assert_eq!(status, expected(job, depends, cancel, rows), "job {job}");
        }
    }
    assert_eq!(*state.counts(), counts);
    // Whether a worker may still get a job is known without scanning jobs.
    for cpus in 1..=3 {
        let capacity = Capacity { cpus, memory: Bytes(1 << 40), gpus: 0, nodes: 1, max_jobs: None };
        let worker: WorkerUsage = WorkerUsage::new(capacity);
        let open = (0..rows.ids.len() as u32).filter(|job| !rows.status[*job as usize].is_settled());
        let has_use = open.clone().any(|job| worker.could_ever_take(state.demand(job)));
        assert_eq!(state.has_work_for(&worker), has_use, "a worker with {cpus} CPUs");
    }
}

/// Units have the state of their jobs and the site of their elector; limits are never exceeded.
fn check_units(rows: &DatabaseRows, fixture: &Fixture) {
    for (number, (status, site)) in (0..).zip(&rows.units) {
        let jobs: Vec<usize> =
            (0..fixture.unit.len()).filter(|job| fixture.unit[*job] == Some(number)).collect();
        if jobs.is_empty() {
            continue;
        }
        let stands = |job: &usize| if rows.is_ignored(*job) { S::Completed } else { rows.status[*job] };
        let any = |of: &[S]| jobs.iter().any(|job| of.contains(&stands(job)));
        let begun = [S::Pending, S::Running, S::Completed, S::Failed, S::Terminated, S::PendingFailed];
        let expected = match () {
            () if any(&[S::Pending, S::Running, S::PendingFailed]) => WorkUnitStatus::Active,
            () if any(&[S::Uninitialized, S::Blocked, S::Ready]) && any(&begun) => WorkUnitStatus::Active,
            () if any(&[S::Uninitialized, S::Blocked, S::Ready]) => WorkUnitStatus::Waiting,
            () if any(&[S::Failed, S::Terminated]) => WorkUnitStatus::Failed,
            () if any(&[S::Canceled]) => WorkUnitStatus::Canceled,
            () => WorkUnitStatus::Completed,
        };
        assert_eq!(*status, expected, "unit {number}: {:?}", jobs.iter().map(stands).collect::<Vec<_>>());
        let elector = jobs.iter().find(|job| places()[fixture.place[**job] as usize].elects);
        let elected = elector.is_some_and(|job| rows.status[*job] == S::Completed);
        assert_eq!(site.as_deref(), elected.then_some(SITE), "unit {number}");
    }
    let few =
        |job: usize| rows.status[job].is_active() && places()[fixture.place[job] as usize].limit.is_some();
    assert!((0..rows.ids.len()).filter(|job| few(*job)).count() <= LIMIT as usize);
}

fn ended(key: AttemptKey, how: u8) -> AttemptEndReport {
    let (exit, cause) = match how % 6 {
        0 | 1 => (ProcessExit::Code(0), AttemptEndCause::Itself),
        2 => (ProcessExit::Code(3), AttemptEndCause::Itself),
        3 => (ProcessExit::Signal(15), AttemptEndCause::Timeout),
        4 => (ProcessExit::Signal(9), AttemptEndCause::OutOfMemory),
        _ => (ProcessExit::Signal(15), AttemptEndCause::Stopped(StopReason::Interrupted)),
    };
    let at = Timestamp(1);
    AttemptEndReport {
        key,
        started_at: at,
        ended_at: at,
        wall: Duration::ZERO,
        exit,
        cause,
        usage: AttemptUsage::default(),
        files: None,
        last_words: None,
        recovered: None,
    }
}

/// A possible retry decision at `now`.
fn decision(failed: FailedAttemptContext<'_>, how: u8, now: i64) -> RetryDecision {
    let recovery = RecoveryScript {
        script: "fix".into(),
        failed: failed.ended.key.attempt,
        return_code: failed.return_code,
        limit: Duration::from_secs(1),
    };
    match how / 6 % 7 {
        0 => RetryDecision::Final(None),
        1 => RetryDecision::AskOperator(None),
        2 => RetryDecision::Retry(Box::default()),
        3 => RetryDecision::Retry(Box::new(RetryPlan { recovery: Some(recovery), ..RetryPlan::default() })),
        _ => {
            let not_before = Some(Timestamp(now + i64::from(how % 16)));
            let resources = failed.asked.map(|asked| Resources { cpus: (asked.cpus + 1).min(3), ..asked });
            RetryDecision::Retry(Box::new(RetryPlan { not_before, resources, ..RetryPlan::default() }))
        }
    }
}

#[derive(Clone, Debug)]
struct Fixture {
    depends: Vec<Vec<u32>>,
    cancel: Vec<bool>,
    priority: Vec<i32>,
    /// Index into [`places`].
    place: Vec<u32>,
    unit: Vec<Option<u32>>,
    steps: Vec<(u8, u16, u8)>,
}

/// At most three units; the first job of each but the last elects.
fn placed(dice: &[u8]) -> (Vec<u32>, Vec<Option<u32>>) {
    let unit: Vec<Option<u32>> =
        dice.iter().map(|die| Some(u32::from(die % 4)).filter(|unit| *unit < 3)).collect();
    let elects = |job: usize| unit[job].is_some_and(|unit| unit < 2) && !unit[..job].contains(&unit[job]);
    let place = |job: usize| u32::from(dice[job] / 4 % 2) + if elects(job) { 2 } else { 0 };
    ((0..dice.len()).map(place).collect(), unit)
}

fn fixture() -> impl Strategy<Value = Fixture> {
    (2usize..24).prop_flat_map(|n| {
        let depends: Vec<_> =
            (0..n).map(|job| prop::collection::vec(0..job.max(1) as u32, 0..=job.min(4))).collect();
        (
            depends,
            prop::collection::vec(prop::bool::weighted(0.7), n),
            prop::collection::vec(0..3i32, n),
            prop::collection::vec(any::<u8>(), n),
            prop::collection::vec((any::<u8>(), any::<u16>(), any::<u8>()), 1..120),
        )
            .prop_map(|(depends, cancel, priority, dice, steps)| {
                let (place, unit) = placed(&dice);
                Fixture { depends, cancel, priority, place, unit, steps }
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_reports_and_decisions_keep_the_invariants(mut fixture in fixture()) {
        let n = fixture.depends.len();
        let table = JobTable {
            ids: (0..n as i64).map(|i| JobId(FIRST_ID + i)).collect(),
            status: vec![S::Uninitialized; n],
            attempt: vec![Attempt::FIRST; n],
            priority: fixture.priority.clone(),
            cancel_on_blocking_job_failure: fixture.cancel.clone(),
            class: vec![0; n],
            requirements: vec![Resources::DEFAULT],
            place: fixture.place.clone(),
            places: places(),
            units: units(&fixture, &vec![(WorkUnitStatus::Waiting, None); 3]),
            edges: edges(&fixture.depends),
            ..JobTable::default()
        };
        let mut rows = DatabaseRows {
            ids: table.ids.clone(),
            status: table.status.clone(),
            attempt: vec![1; n],
            inherited: vec![NextAttempt::default(); n],
            results: Vec::new(),
            ignored: vec![None; n],
            units: vec![(WorkUnitStatus::Waiting, None); 3],
        };
        let mut now = 0;
        let mut state = limited(WorkflowState::new(WorkflowId(1), RunId(1), table).unwrap());
        let capacity =
            Capacity { cpus: 3, memory: Bytes(1 << 30), gpus: 0, nodes: 1, max_jobs: None };
        let mut worker_usage = WorkerUsage::with_selector(capacity, WorkerSelector::default().at_site(Some(SITE)));
        let mut changes = Vec::new();
        state.on_resume(&mut changes);
        state.on_initialize_rest(&mut changes);
        rows.apply(&changes);
        check(&state, &rows, &fixture.depends, &fixture.cancel);

        for (what, which, how) in std::mem::take(&mut fixture.steps) {
            changes.clear();
            let job = u32::from(which) % rows.ids.len() as u32;
            let key = state.attempt_key(job);
            let active = state.status(job).is_active();
            match what % 13 {
                0 | 1 => {
                    let before = rows.status.clone();
                    let taken = claim_jobs(&mut state, &mut worker_usage, usize::from(how % 3), &mut changes);
                    for job in taken {
                        prop_assert_eq!(before[job as usize], S::Ready);
                        let not_before = rows.inherited[job as usize].not_before;
                        prop_assert!(not_before.is_none_or(|at| at.0 <= now), "claimed too early");
                    }
                }
                2 => {
                    let fresh = state.on_started(WORKER, &key, Timestamp(1), 42, &mut changes).is_ok();
                    prop_assert_eq!(fresh, active);
                }
                3..=5 => {
                    let used = state.used_attempts(job);
                    let then = |failed: FailedAttemptContext<'_>| decision(failed, how, now).into();
                    let kind = state.on_attempt_ended_with(WORKER, &ended(key, how), then, &mut changes);
                    prop_assert_eq!(kind.is_ok(), active, "only held jobs can end");
                    let interrupted = how % 6 == 5;
                    let counts = active && state.status(job) == S::Ready && !interrupted;
                    prop_assert_eq!(state.used_attempts(job), used + u32::from(counts));
                    if active {
                        worker_usage.remove(job);
                    }
                }
                6 => {
                    // A report about another attempt or run changes nothing: mostly about an earlier attempt,
                    // from a worker that was disconnected, while the next one runs.
                    let of = |attempt| AttemptKey { attempt: Attempt(attempt), ..key };
                    let unheard_of = of(key.attempt.0 + 1 + u32::from(how % 2));
                    let elsewhere = AttemptKey { run: RunId(9), ..key };
                    for stale in (1..key.attempt.0).map(of).chain([unheard_of, elsewhere]) {
                        prop_assert!(state.on_started(WORKER, &stale, Timestamp(1), 42, &mut changes).is_err());
                        prop_assert!(state.on_attempt_ended(WORKER, &ended(stale, how), &mut changes).is_err());
                        prop_assert!(state.on_claim_returned(WORKER, &stale, &mut changes).is_err());
                    }
                    prop_assert!(changes.is_empty());
                }
                // Mostly by running jobs; but a caller that has ended, with a late report, is allowed too.
                7 => {
                    if rows.ids.len() < 60 {
                        changes = add_jobs(&mut state, &mut rows, &mut fixture, job, how);
                    }
                }
                8 => {
                    now += i64::from(how % 8);
                    state.release_due(Timestamp(now));
                    prop_assert!(state.next_due().is_none_or(|at| at.0 > now));
                }
                // Commands of users and agents, some of them too late.
                9 | 10 => {
                    let chosen = orders(&rows, how, which);
                    let table = as_read(&rows, &fixture);
                    let held = BlockingDependents::new(&table.edges, &table.status).unwrap();
                    let is_held = chosen.iter().any(|(job, kind)| held.blocking_job(*job, *kind).is_some());
                    match plan_commands(WorkflowId(1), RunId(1), &table, &chosen, &rows.done()) {
                        Ok(planned) => {
                            prop_assert!(!is_held);
                            changes = planned;
                        }
                        Err(CommandPlanError::Held(job)) => prop_assert!(is_held && state.status(job).is_active()),
                        Err(CommandPlanError::Cycle(cycle)) => panic!("{cycle}"),
                    }
                }
                // A job is reset together with its dependents.
                11 => {
                    let again = state.plan_rerun(&[job], false, true, &rows.done());
                    if let Ok(again) = again {
                        changes = again.changes;
                        changes.extend(state.unit_changes_after(&changes));
                    }
                }
                12 if how < 32 => {
                    // The workflow is canceled, and resumed later.
                    state.on_cancel();
                    for job in state.held_jobs().collect::<Vec<_>>() {
                        let cause = AttemptEndCause::Stopped(StopReason::Canceled);
                        let stopped = AttemptEndReport { cause, ..ended(state.attempt_key(job), 5) };
                        state.on_attempt_ended(WORKER, &stopped, &mut changes).unwrap();
                        worker_usage.remove(job);
                    }
                    prop_assert!(claim_jobs(&mut state, &mut worker_usage, 1, &mut changes).is_empty());
                }
                _ => {
                    if active {
                        let orphan_decision = match (state.status(job), how % 4) {
                            (S::Pending, 0) => OrphanDecision::NeverStarted,
                            (_, 1) => OrphanDecision::RunIsolated(CrashEvidence::Observed),
                            (_, 2) => OrphanDecision::GiveUp,
                            _ => OrphanDecision::RunAgain(None),
                        };
                        state.on_orphaned(job, WORKER, orphan_decision, OrphanedAttempt::default(), Timestamp(2), &mut changes);
                        worker_usage.remove(job);
                        let expected = if orphan_decision == OrphanDecision::GiveUp { S::Failed } else { S::Ready };
                        prop_assert_eq!(state.status(job), expected);
                    }
                }
            }
            rows.apply(&changes);
            if matches!(what % 13, 9..=12) {
                // The state cannot go backwards: it is rebuilt from the rows.
                state = rebuilt(&rows, &fixture);
                for job in state.held_jobs().collect::<Vec<_>>() {
                    state.set_job_site(job, Some(SITE));
                }
                changes.clear();
                state.on_resume(&mut changes);
                state.on_initialize_rest(&mut changes);
                rows.apply(&changes);
                state.release_due(Timestamp(now));
            }
            check(&state, &rows, &fixture.depends, &fixture.cancel);
            check_units(&rows, &fixture);
            // A crash at this moment loses nothing: the next process has nothing new to decide.
            let mut again = rebuilt(&rows, &fixture);
            let mut late = Vec::new();
            again.on_resume(&mut late);
            again.on_initialize_rest(&mut late);
            again.reconcile_units(&mut late);
            prop_assert!(late.is_empty(), "{late:?}");
            prop_assert_eq!(again.counts(), state.counts());
            state.release_due(Timestamp(now));
            again.release_due(Timestamp(now));
            prop_assert_eq!(again.next_due(), state.next_due());
            prop_assert_eq!(again.delayed_count(), state.delayed_count());
            prop_assert_eq!(again.ready_count(), state.ready_count());
            for job in (0..rows.ids.len() as u32).filter(|job| !state.status(*job).is_settled()) {
                prop_assert_eq!((again.used_attempts(job), again.recovery_script(job)), (state.used_attempts(job), state.recovery_script(job)));
            }
        }

        // The rest can always be completed, once pending failures are decided.
        changes.clear();
        for job in state.jobs_with_status(|status| status == S::PendingFailed) {
            prop_assert!(state.on_failure_decision(job, S::Failed, &mut changes));
        }
        rows.apply(&changes);
        let mut rounds = 0;
        while !state.is_finished() {
            prop_assert!(!state.is_stuck());
            changes.clear();
            now += 100;
            state.release_due(Timestamp(now));
            claim_jobs(&mut state, &mut worker_usage, 0, &mut changes);
            let held: Vec<u32> = state.held_jobs().collect();
            for job in held {
                state.on_attempt_ended(WORKER, &ended(state.attempt_key(job), 0), &mut changes).unwrap();
                worker_usage.remove(job);
            }
            rows.apply(&changes);
            check(&state, &rows, &fixture.depends, &fixture.cancel);
            check_units(&rows, &fixture);
            rounds += 1;
            prop_assert!(rounds < 1000);
        }
        prop_assert!(worker_usage.is_idle());
    }
}

#[test]
fn cancel_stops_held_jobs_and_keeps_other_states() {
    let table = JobTable {
        ids: (0..4).map(|i| JobId(FIRST_ID + i)).collect(),
        status: vec![S::Ready, S::Ready, S::Ready, S::Blocked],
        attempt: vec![Attempt::FIRST; 4],
        priority: vec![0; 4],
        cancel_on_blocking_job_failure: vec![true; 4],
        class: vec![0; 4],
        requirements: vec![Resources::DEFAULT],
        edges: {
            let mut edges = DependencyEdgesBuilder::default();
            edges.add_dependencies(3, &[0]);
            edges.finish()
        },
        ..JobTable::default()
    };
    let before = table.status.clone();
    let mut state = WorkflowState::new(WorkflowId(1), RunId(1), table).unwrap();
    let capacity = Capacity { cpus: 1, memory: Bytes(1 << 30), gpus: 0, nodes: 1, max_jobs: None };
    let mut worker_usage = WorkerUsage::new(capacity);
    let mut changes = Vec::new();
    state.on_resume(&mut changes);
    state.on_initialize_rest(&mut changes);
    assert_eq!(
        claim_jobs(&mut state, &mut worker_usage, 1, &mut changes),
        [0, 1],
        "one runs, one waits at the worker"
    );
    state.on_cancel();
    assert!(claim_jobs(&mut state, &mut worker_usage, 9, &mut changes).is_empty());
    state.on_claim_returned(WORKER, &state.attempt_key(1), &mut changes).unwrap();
    let stopped = AttemptEndReport {
        cause: AttemptEndCause::Stopped(StopReason::Canceled),
        ..ended(state.attempt_key(0), 5)
    };
    let kind = state.on_attempt_ended(WORKER, &stopped, &mut changes).unwrap();
    let ids = (0..4).map(|i| JobId(FIRST_ID + i)).collect();
    let inherited = vec![NextAttempt::default(); 4];
    let (attempt, ignored) = (vec![1; 4], vec![None; 4]);
    let (results, units) = (Vec::new(), Vec::new());
    let mut rows = DatabaseRows { ids, status: before, attempt, inherited, results, ignored, units };
    rows.apply(&changes);
    assert_eq!((kind.attempt_status, kind.job_status), (S::Canceled, S::Canceled));
    assert_eq!(rows.status, [S::Canceled, S::Canceled, S::Ready, S::Canceled]);
    assert_eq!((0..4).map(|j| state.status(j)).collect::<Vec<_>>(), rows.status);
}

#[test]
fn new_run_repeats_failed_jobs_and_dependents() {
    // 0 failed; 1 ran anyway; 2 depends on 1; 3 was canceled; 4 is independent.
    let mut edges = DependencyEdgesBuilder::default();
    edges.add_dependencies(1, &[0]);
    edges.add_dependencies(2, &[1]);
    edges.add_dependencies(3, &[0, 4]);
    let table = JobTable {
        ids: (0..5).map(|i| JobId(FIRST_ID + i)).collect(),
        status: vec![S::Failed, S::Completed, S::Completed, S::Canceled, S::Completed],
        attempt: vec![Attempt::FIRST; 5],
        priority: vec![0; 5],
        cancel_on_blocking_job_failure: vec![true, false, true, true, true],
        class: vec![0; 5],
        requirements: vec![Resources::DEFAULT],
        edges: edges.finish(),
        ..JobTable::default()
    };
    let state = WorkflowState::new(WorkflowId(1), RunId(1), table).unwrap();
    let again: Vec<i64> = state.jobs_to_rerun().into_iter().map(|id| id.0 - FIRST_ID).collect();
    assert_eq!(again, [0, 1, 2, 3]);
}

#[test]
fn ready_job_is_blocked_after_reset_of_a_dependency() {
    let mut edges = DependencyEdgesBuilder::default();
    edges.add_dependencies(1, &[0]);
    let table = JobTable {
        ids: (0..2).map(|i| JobId(FIRST_ID + i)).collect(),
        status: vec![S::Uninitialized, S::Ready],
        attempt: vec![Attempt::FIRST; 2],
        priority: vec![0; 2],
        cancel_on_blocking_job_failure: vec![true, false],
        class: vec![0; 2],
        requirements: vec![Resources::DEFAULT],
        edges: edges.finish(),
        ..JobTable::default()
    };
    let mut state = WorkflowState::new(WorkflowId(1), RunId(1), table).unwrap();
    state.on_resume(&mut Vec::new());
    state.on_initialize_rest(&mut Vec::new());
    assert_eq!((state.status(0), state.status(1)), (S::Ready, S::Blocked));
}

#[test]
fn unrunnable_job_fails_with_its_dependents() {
    let table = JobTable {
        ids: vec![JobId(FIRST_ID)],
        status: vec![S::Completed],
        attempt: vec![Attempt::FIRST],
        priority: vec![0],
        cancel_on_blocking_job_failure: vec![true],
        class: vec![0],
        requirements: vec![Resources::DEFAULT],
        edges: DependencyEdges::default(),
        ..JobTable::default()
    };
    let mut state = WorkflowState::new(WorkflowId(1), RunId(1), table).unwrap();
    let mut changes = Vec::new();
    let asks = |cpus| Resources { cpus, ..Resources::DEFAULT };
    let added = JobTable {
        ids: vec![JobId(200), JobId(201), JobId(202)],
        status: vec![S::Blocked; 3],
        attempt: vec![Attempt::FIRST; 3],
        priority: vec![0; 3],
        cancel_on_blocking_job_failure: vec![true; 3],
        class: vec![1, 2, 2],
        requirements: vec![Resources::DEFAULT, asks(64), asks(1)],
        edges: DependencyEdges { direct: vec![(1, 0), (2, 1), (3, 0)], ..DependencyEdges::default() },
        ..JobTable::default()
    };
    assert_eq!(state.on_jobs_added(&added, &mut changes), 1..4);
    let capacity = Capacity { cpus: 2, memory: Bytes(1 << 30), gpus: 0, nodes: 1, max_jobs: None };
    let mut worker_usage = WorkerUsage::new(capacity);
    assert_eq!(state.withhold_unrunnable(&worker_usage), [1]);
    state.on_unrunnable(1, &mut changes);
    assert_eq!([1, 2, 3].map(|job| state.status(job)), [S::Canceled, S::Canceled, S::Ready]);
    assert_eq!(claim_jobs(&mut state, &mut worker_usage, 9, &mut changes), [3]);
    state.on_unrunnable(3, &mut changes);
    assert_eq!(state.status(3), S::Pending, "a held job is not failed");
}

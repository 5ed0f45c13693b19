//! Retries: when, with which resources, how often, and what a rebuilt workflow state knows of them.

mod only_worker;

use only_worker::{WORKER, claim_jobs};
use std::time::Duration;
use windlass_core::change::{AttemptResult, WorkflowChange};
use windlass_core::dependency_edges::{DependencyEdges, DependencyEdgesBuilder};
use windlass_core::dispatch::WorkerUsage;
use windlass_core::failure_handlers::{CompiledHandler, RetryBudgetUsage, RetryContext, decide_retry};
use windlass_core::workflow_state::{
    ClientAttemptEnd, DiagnosedRetryDecision, FailureDiagnosis, FailureDisposition, JobTable, NextAttempt,
    OrphanDecision, OrphanedAttempt, RetryDecision, RetryPlan, WorkflowState,
};
use windlass_types::settings::{FailureCause, FailureHandler, FailureRule};
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptEndReport, AttemptUsage, ProcessExit, RecoveryScript, RecoveryScriptResult,
    StopReason,
};
use windlass_types::{
    Attempt, Bytes, Capacity, FailureClass, JobId, JobStatus as S, Resources, RunId, Timestamp, WorkflowId,
};

const GIB: u64 = 1 << 30;
const SECOND: i64 = 1_000_000;

fn table(jobs: usize) -> JobTable {
    let asks = Resources { memory: Bytes(GIB), ..Resources::DEFAULT };
    JobTable {
        ids: (0..jobs as i64).map(|i| JobId(101 + i)).collect(),
        status: vec![S::Ready; jobs],
        attempt: vec![Attempt::FIRST; jobs],
        priority: vec![0; jobs],
        cancel_on_blocking_job_failure: vec![true; jobs],
        class: vec![1; jobs],
        requirements: vec![Resources::DEFAULT, asks],
        edges: DependencyEdges::default(),
        ..JobTable::default()
    }
}

/// A workflow state and a worker of 8 CPUs and 8 GiB.
struct StateFixture {
    state: WorkflowState,
    worker_usage: WorkerUsage,
    changes: Vec<WorkflowChange>,
}

impl StateFixture {
    fn new(table: JobTable) -> Self {
        let mut state = WorkflowState::new(WorkflowId(1), RunId(1), table).expect("no cycle");
        let mut changes = Vec::new();
        state.on_resume(&mut changes);
        state.on_initialize_rest(&mut changes);
        let capacity = Capacity { cpus: 8, memory: Bytes(8 * GIB), gpus: 0, nodes: 1, max_jobs: None };
        Self { state, worker_usage: WorkerUsage::new(capacity), changes }
    }

    fn claim(&mut self) -> Vec<u32> {
        claim_jobs(&mut self.state, &mut self.worker_usage, 0, &mut self.changes)
    }

    fn ended(&self, job: u32, exit: ProcessExit, cause: AttemptEndCause) -> AttemptEndReport {
        AttemptEndReport {
            key: self.state.attempt_key(job),
            started_at: Timestamp(0),
            ended_at: Timestamp(1),
            wall: Duration::ZERO,
            exit,
            cause,
            usage: AttemptUsage::default(),
            files: None,
            last_words: Some("curl: Connection refused".to_owned()),
            recovered: None,
        }
    }

    /// The attempt of a held job fails with this decision. Returns the result and what the next attempt
    /// inherits.
    #[track_caller]
    fn fails(
        &mut self,
        job: u32,
        retry_decision: RetryDecision,
    ) -> (AttemptResult, Option<Box<NextAttempt>>) {
        let ended = self.ended(job, ProcessExit::Code(75), AttemptEndCause::Itself);
        let ended =
            self.state.on_attempt_ended_with(WORKER, &ended, |_| retry_decision.into(), &mut self.changes);
        ended.expect("it is held");
        self.worker_usage.remove(job);
        self.last_end()
    }

    #[track_caller]
    fn last_end(&self) -> (AttemptResult, Option<Box<NextAttempt>>) {
        let ends = self.changes.iter().rev();
        let mut ends = ends.filter_map(|change| match change {
            WorkflowChange::End { result, inherited, .. } => Some((result.clone(), inherited.clone())),
            _ => None,
        });
        ends.next().expect("an attempt ended")
    }
}

fn again(retry_plan: RetryPlan) -> RetryDecision {
    RetryDecision::Retry(Box::new(retry_plan))
}

fn in_seconds(seconds: i64) -> RetryDecision {
    again(RetryPlan {
        not_before: Some(Timestamp(seconds * SECOND)),
        message: "later".into(),
        ..RetryPlan::default()
    })
}

fn script(failed: u32) -> RecoveryScript {
    RecoveryScript {
        script: "fix".into(),
        failed: Attempt(failed),
        return_code: 75,
        limit: Duration::from_mins(10),
    }
}

#[test]
fn delayed_job_is_ready_but_not_claimed() {
    let mut site = StateFixture::new(table(3));
    assert_eq!(site.claim(), [0, 1, 2]);
    let (result, inherited) = site.fails(0, in_seconds(40));
    assert_eq!((result.status, result.reason.as_deref()), (S::Failed, Some("later")));
    assert_eq!(inherited.unwrap().not_before, Some(Timestamp(40 * SECOND)));
    site.fails(1, in_seconds(20));
    assert_eq!([0, 1].map(|job| site.state.status(job)), [S::Ready, S::Ready]);
    assert_eq!(site.state.attempt_key(0).attempt, Attempt(2));
    assert!(!site.state.has_ready() && site.claim().is_empty());

    let due = |site: &StateFixture| site.state.next_due().map(|at| at.0 / SECOND);
    assert_eq!((due(&site), site.state.delayed_count()), (Some(20), 2));
    assert_eq!(site.state.release_due(Timestamp(20 * SECOND - 1)), 0);
    assert_eq!(site.state.release_due(Timestamp(20 * SECOND)), 1);
    assert_eq!(site.claim(), [1]);
    assert_eq!(due(&site), Some(40));
    // The others end; the waiting one keeps the run going.
    for job in [1, 2] {
        site.state
            .on_attempt_ended(
                WORKER,
                &site.ended(job, ProcessExit::Code(0), AttemptEndCause::Itself),
                &mut site.changes,
            )
            .unwrap();
        site.worker_usage.remove(job);
    }
    assert!(!site.state.is_finished() && !site.state.is_stuck());
    assert_eq!(site.state.release_due(Timestamp(99 * SECOND)), 1);
    assert_eq!((site.claim(), due(&site)), (vec![0], None));
}

#[test]
fn clock_set_back_does_not_prolong_delays() {
    let mut site = StateFixture::new(table(1));
    site.claim();
    site.state.release_due(Timestamp(1000 * SECOND));
    site.fails(0, in_seconds(1010));
    assert_eq!(site.state.release_due(Timestamp(1004 * SECOND)), 0);
    // Back by an hour; six seconds are left, as before.
    assert_eq!(site.state.release_due(Timestamp(-2600 * SECOND)), 0);
    assert_eq!(site.state.next_due(), Some(Timestamp(-2594 * SECOND)));
    assert_eq!(site.state.release_due(Timestamp(-2594 * SECOND)), 1);
    assert_eq!(site.claim(), [0]);
}

#[test]
fn rebuilt_state_keeps_delays() {
    let inherited = NextAttempt {
        not_before: Some(Timestamp(30 * SECOND)),
        delay: Some(Duration::from_secs(30)),
        recovery: Some(script(3)),
        excused: 2,
        resources: None,
    };
    let mut rows = table(2);
    rows.attempt[1] = Attempt(4);
    rows.inherited = vec![(1, inherited.clone())];
    let mut site = StateFixture::new(rows);
    assert_eq!(site.claim(), [0]);
    assert_eq!((site.state.next_due(), site.state.used_attempts(1)), (inherited.not_before, 2));
    site.state.release_due(Timestamp(30 * SECOND));
    assert_eq!(site.claim(), [1]);
    assert_eq!(site.state.recovery_script(1), Some(&script(3)));
}

/// The wall clock was a day ahead when the delay began, was corrected, and everything was restarted.
#[test]
fn delay_is_not_extended_by_clock_changes_after_restart() {
    let day = 86_400 * SECOND;
    let delay = Some(Duration::from_secs(5));
    let waits = |at| NextAttempt { not_before: Some(Timestamp(at)), delay, ..NextAttempt::default() };
    let mut rows = table(3);
    rows.inherited = vec![(0, waits(day + 5 * SECOND)), (1, waits(2 * SECOND))];
    let mut site = StateFixture::new(rows);
    site.state.isolate_job(0);
    assert_eq!(site.state.release_due(Timestamp(SECOND)), 0);
    assert_eq!(site.state.next_due(), Some(Timestamp(2 * SECOND)), "the remaining delay is not extended");
    assert_eq!(site.state.release_due(Timestamp(6 * SECOND - 1)), 1);
    assert_eq!(site.state.release_due(Timestamp(6 * SECOND)), 1);
    assert_eq!(site.state.next_due(), None);
}

#[test]
fn delay_of_a_held_job_has_passed() {
    let inherited =
        NextAttempt { not_before: Some(Timestamp(30 * SECOND)), excused: 1, ..NextAttempt::default() };
    let mut site = StateFixture::new(JobTable {
        status: vec![S::Running, S::Pending],
        attempt: vec![Attempt(3); 2],
        inherited: vec![(0, inherited.clone()), (1, inherited)],
        ..table(2)
    });
    site.state.on_orphaned(
        0,
        WORKER,
        OrphanDecision::RunAgain(None),
        OrphanedAttempt::default(),
        Timestamp(9),
        &mut site.changes,
    );
    site.state.on_orphaned(
        1,
        WORKER,
        OrphanDecision::NeverStarted,
        OrphanedAttempt::default(),
        Timestamp(9),
        &mut site.changes,
    );
    assert_eq!(
        (site.state.next_due(), site.state.used_attempts(0), site.state.used_attempts(1)),
        (None, 2, 2)
    );
    assert_eq!(site.claim(), [0, 1]);
}

#[test]
fn lost_attempts_are_not_counted_and_keep_the_script() {
    let mut site = StateFixture::new(table(1));
    site.claim();
    let owes = RetryPlan { recovery: Some(script(1)), message: "again".into(), ..RetryPlan::default() };
    site.fails(0, again(owes));
    assert_eq!((site.state.used_attempts(0), site.state.recovery_script(0)), (2, Some(&script(1))));

    site.claim();
    site.state.on_orphaned(
        0,
        WORKER,
        OrphanDecision::RunAgain(None),
        OrphanedAttempt::default(),
        Timestamp(2),
        &mut site.changes,
    );
    site.worker_usage.remove(0);
    let lost = site.last_end().1.unwrap();
    assert_eq!((lost.excused, lost.recovery), (1, Some(script(1))));

    site.claim();
    let stopped = site.ended(0, ProcessExit::Signal(15), AttemptEndCause::Stopped(StopReason::Interrupted));
    site.state
        .on_attempt_ended_with(WORKER, &stopped, |_| panic!("nothing failed"), &mut site.changes)
        .unwrap();
    site.worker_usage.remove(0);
    assert_eq!((site.state.attempt_key(0).attempt, site.state.used_attempts(0)), (Attempt(4), 2));
    assert_eq!(site.state.recovery_script(0), Some(&script(1)));

    // Returning a claim does not change it.
    site.claim();
    let key = site.state.attempt_key(0);
    site.state.on_claim_returned(WORKER, &key, &mut site.changes).unwrap();
    site.worker_usage.remove(0);
    assert_eq!((site.state.used_attempts(0), site.state.recovery_script(0)), (2, Some(&script(1))));

    // The next failure counts, and a rule without a script requires none.
    site.claim();
    let (_, inherited) = site.fails(0, again(RetryPlan::default()));
    assert_eq!(*inherited.unwrap(), NextAttempt { excused: 2, ..NextAttempt::default() });
    assert_eq!((site.state.used_attempts(0), site.state.recovery_script(0)), (3, None));
}

#[test]
fn retry_increases_resources_of_one_job() {
    let mut site = StateFixture::new(table(2));
    site.claim();
    let more = Resources { memory: Bytes(5 * GIB), ..*site.state.resources(0) };
    let (_, inherited) = site.fails(0, again(RetryPlan { resources: Some(more), ..RetryPlan::default() }));
    assert_eq!(inherited.unwrap().resources, Some(more));
    assert_eq!(
        (site.state.resources(0).memory, site.state.resources(1).memory),
        (Bytes(5 * GIB), Bytes(GIB))
    );
    site.fails(1, again(RetryPlan { resources: Some(more), ..RetryPlan::default() }));
    assert_eq!(site.claim(), [0], "two of them do not fit at once");
}

#[test]
fn unhandled_failure_may_wait_for_a_decision() {
    let mut edges = DependencyEdgesBuilder::default();
    edges.add_dependencies(1, &[0]);
    let mut site =
        StateFixture::new(JobTable { status: vec![S::Ready, S::Blocked], edges: edges.finish(), ..table(2) });
    site.claim();
    let (result, inherited) =
        site.fails(0, RetryDecision::AskOperator(Some("no rule of handler net matches".into())));
    assert_eq!((result.status, inherited), (S::Failed, None));
    assert_eq!([0, 1].map(|job| site.state.status(job)), [S::PendingFailed, S::Blocked]);
    assert!(site.state.is_stuck(), "a decision is needed");
    assert!(site.state.on_failure_decision(0, S::Failed, &mut site.changes));
    assert_eq!([0, 1].map(|job| site.state.status(job)), [S::Failed, S::Canceled]);
}

#[test]
fn delayed_job_can_be_dropped_canceled_or_isolated() {
    let mut site = StateFixture::new(table(4));
    site.claim();
    for job in 0..4 {
        site.fails(job, in_seconds(10 + i64::from(job)));
    }
    assert!(site.state.on_failure_decision(0, S::Canceled, &mut site.changes));
    site.state.on_jobs_dropped(&[JobId(102)], &mut site.changes);
    site.state.isolate_job(2);
    site.state.isolate_job(3);
    site.state.clear_isolation(3);
    assert_eq!((site.state.delayed_count(), site.state.has_isolated_waiting()), (2, false));
    assert_eq!(site.state.release_due(Timestamp(60 * SECOND)), 2);
    assert_eq!((site.state.ready_count(), site.state.has_isolated_waiting()), (2, true));
    assert_eq!(site.claim(), [2], "alone, and first");
}

#[test]
fn halted_workflow_starts_no_jobs() {
    let mut site = StateFixture::new(table(9));
    let held = site.claim();
    assert_eq!(held.len(), 8);
    site.fails(0, in_seconds(5));
    site.state.on_halt();
    site.state.release_due(Timestamp(60 * SECOND));
    assert!(site.state.is_halted() && !site.state.has_ready() && !site.state.is_stuck());
    assert!(site.claim().is_empty());
    for &job in &held[1..] {
        site.state
            .on_attempt_ended(
                WORKER,
                &site.ended(job, ProcessExit::Code(1), AttemptEndCause::Itself),
                &mut site.changes,
            )
            .unwrap();
    }
    assert!(site.state.is_stuck(), "nothing runs, and nothing will");
    assert_eq!([0, 8].map(|job| site.state.status(job)), [S::Ready, S::Ready]);
}

#[test]
fn canceled_workflow_does_not_retry() {
    let mut site = StateFixture::new(table(1));
    site.claim();
    site.state.on_cancel();
    let ended = site.ended(0, ProcessExit::Code(1), AttemptEndCause::Itself);
    let ended_attempt = site
        .state
        .on_attempt_ended_with(WORKER, &ended, |_| panic!("no handler retries"), &mut site.changes)
        .unwrap();
    assert_eq!(ended_attempt.job_status, S::Failed);
}

#[test]
fn client_retry_counts_as_an_attempt() {
    let mut site = StateFixture::new(table(1));
    site.claim();
    let stated = ClientAttemptEnd {
        worker: WORKER,
        status: S::Failed,
        return_code: 3,
        reason: None,
        started_at: None,
        ended_at: Timestamp(1),
        wall: Duration::ZERO,
        usage: AttemptUsage::default(),
        run_again: true,
    };
    let key = site.state.attempt_key(0);
    assert_eq!(site.state.on_stated_end(&key, stated, &mut site.changes), Ok(S::Ready));
    assert_eq!((site.state.used_attempts(0), site.last_end().1), (2, None));
}

/// All stages: the end of an attempt, the rules, the workflow state.
#[test]
fn failure_leads_to_the_next_attempt() {
    let rule = FailureRule {
        on: vec![FailureCause::OutOfMemory],
        memory: "x1.5".parse().ok(),
        delay: Some(Duration::from_secs(10)),
        max_retries: 2,
        ..FailureRule::default()
    };
    let handler =
        CompiledHandler::compile(&FailureHandler { name: "oom".into(), rules: vec![rule] }).unwrap();
    let mut site = StateFixture::new(table(1));
    let now = Timestamp(100 * SECOND);
    let mut attempts = 0;
    while site.claim() == [0] {
        attempts += 1;
        let ended = site.ended(0, ProcessExit::Signal(9), AttemptEndCause::OutOfMemory);
        let retry_decision = |failed: windlass_core::workflow_state::FailedAttemptContext<'_>| {
            let situation = RetryContext {
                attempt: failed.ended.key.attempt,
                used_attempts: failed.used_attempts,
                asked: failed.asked,
                workers: &[],
                max_worker_lifetime: None,
                budget: RetryBudgetUsage { granted: 0, limit: 10 },
                random: 0,
            };
            let decision =
                decide_retry(Some(&handler), &failed.as_failed_attempt(FailureClass::Memory), &situation);
            RetryDecision::from_handler_decision(decision, true, now).into()
        };
        site.state.on_attempt_ended_with(WORKER, &ended, retry_decision, &mut site.changes).unwrap();
        site.worker_usage.remove(0);
        if attempts == 1 {
            assert_eq!(site.state.next_due(), Some(Timestamp(110 * SECOND)));
            let reason = site.last_end().0.reason.unwrap();
            assert_eq!(
                reason,
                "used more than the requested 1 GiB; attempt 2 of 2 in 10s by rule 1 of handler oom (out of memory): \
                 memory 1 GiB → 1.5 GiB"
            );
        }
        site.state.release_due(Timestamp(200 * SECOND));
    }
    assert_eq!((attempts, site.state.status(0)), (2, S::Failed));
    let reason = site.last_end().0.reason.unwrap();
    assert_eq!(
        reason,
        "used more than the requested 1.5 GiB; not retried after 2 of 2 attempts by rule 1 of handler oom (out of \
         memory)"
    );
}

/// The diagnosis of a failure is stored with its end, and so is the result of the recovery script.
#[test]
fn attempt_end_records_diagnosis_and_retry_decision() {
    let diagnosis = FailureDiagnosis::for_orphan();
    let mut site = StateFixture::new(table(1));
    let mut told = Vec::new();
    for retry_decision in [again(RetryPlan::default()), RetryDecision::AskOperator(Some("no rule".into()))] {
        site.claim();
        let mut ended = site.ended(0, ProcessExit::Code(75), AttemptEndCause::Itself);
        ended.recovered = Some(Box::new(RecoveryScriptResult::CannotStart("no shell".into())));
        let followed =
            DiagnosedRetryDecision { decision: retry_decision, diagnosis: Some(diagnosis.clone()) };
        site.state.on_attempt_ended_with(WORKER, &ended, |_| followed, &mut site.changes).unwrap();
        site.worker_usage.remove(0);
        let Some(WorkflowChange::End { result, failure, .. }) = site.changes.pop() else {
            panic!("it ended")
        };
        assert_eq!(result.recovered, ended.recovered);
        let failure = failure.expect("it failed");
        assert_eq!(failure.diagnosis, diagnosis);
        told.push((failure.next, failure.reason));
    }
    assert_eq!(
        told,
        [
            (FailureDisposition::Retry, Some(String::new())),
            (FailureDisposition::PendingFailed, Some("no rule".into()))
        ]
    );

    let mut site = StateFixture::new(table(2));
    site.claim();
    let well = site.ended(0, ProcessExit::Code(0), AttemptEndCause::Itself);
    site.state.on_attempt_ended_with(WORKER, &well, |_| panic!("nothing failed"), &mut site.changes).unwrap();
    assert!(matches!(site.changes.pop(), Some(WorkflowChange::End { failure: None, .. })));
    site.state.on_orphaned(
        1,
        WORKER,
        OrphanDecision::RunAgain(None),
        OrphanedAttempt::default(),
        Timestamp(1),
        &mut site.changes,
    );
    let Some(WorkflowChange::End { failure: Some(failure), .. }) = site.changes.pop() else {
        panic!("it is lost")
    };
    assert_eq!((failure.next, failure.diagnosis), (FailureDisposition::Excused, diagnosis));
    assert_eq!(failure.reason.as_deref(), Some("orphaned: worker 7 ended while it ran"));
}

/// Clients that run jobs themselves report only how they ended.
#[test]
fn client_reported_failure_has_a_class() {
    let mut site = StateFixture::new(table(3));
    site.claim();
    let stated = ClientAttemptEnd {
        worker: WORKER,
        status: S::Failed,
        return_code: 137,
        reason: None,
        started_at: None,
        ended_at: Timestamp(1),
        wall: Duration::ZERO,
        usage: AttemptUsage::default(),
        run_again: false,
    };
    let cases = [
        (ClientAttemptEnd { status: S::Completed, return_code: 0, ..stated.clone() }, None),
        (
            ClientAttemptEnd { status: S::Terminated, return_code: 152, ..stated.clone() },
            Some((FailureClass::Timeout, FailureDisposition::Final)),
        ),
        (
            ClientAttemptEnd { return_code: 127, run_again: true, ..stated },
            Some((FailureClass::Permanent, FailureDisposition::Retry)),
        ),
    ];
    for (job, (stated, told)) in (0..).zip(cases) {
        let key = site.state.attempt_key(job);
        site.state.on_stated_end(&key, stated, &mut site.changes).unwrap();
        let Some(WorkflowChange::End { failure, .. }) = site.changes.pop() else { panic!("it ended") };
        assert_eq!(failure.map(|failure| (failure.diagnosis.class, failure.next)), told);
    }
}

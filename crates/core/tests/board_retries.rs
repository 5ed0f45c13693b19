//! Jobs that are tried again: when, with what, how often, and what a board that is built anew knows of it.

use std::time::Duration;
use windlass_core::board::{
    Board, Carried, Diagnosis, Followed, JobTable, Next, Orphan, Retrial, Sequel, Stated,
};
use windlass_core::change::{AttemptResult, Change};
use windlass_core::dispatch::Mirror;
use windlass_core::edges::{Edges, EdgesBuilder};
use windlass_core::handlers::{Budget, Handler, Situation, decide};
use windlass_types::settings::{FailureCause, FailureHandler, FailureRule};
use windlass_types::work::{EndCause, Ended, Exit, Recovered, Recovery, StopReason, Usage};
use windlass_types::{
    Attempt, Bytes, Capacity, FailureClass, JobId, JobStatus as S, Resources, RunId, Timestamp, WorkerId,
    WorkflowId,
};

const WORKER: WorkerId = WorkerId(7);
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
        edges: Edges::default(),
        ..JobTable::default()
    }
}

/// A board and a worker of 8 CPUs and 8 GiB.
struct Site {
    board: Board,
    mirror: Mirror,
    changes: Vec<Change>,
}

impl Site {
    fn new(table: JobTable) -> Self {
        let mut board = Board::new(WorkflowId(1), RunId(1), table).expect("no cycle");
        let mut changes = Vec::new();
        board.on_initialize(&mut changes);
        let capacity = Capacity { cpus: 8, memory: Bytes(8 * GIB), gpus: 0, nodes: 1, max_jobs: None };
        Self { board, mirror: Mirror::new(capacity), changes }
    }

    fn claim(&mut self) -> Vec<u32> {
        self.board.claim(WORKER, &mut self.mirror, 0, &mut self.changes)
    }

    fn ended(&self, job: u32, exit: Exit, cause: EndCause) -> Ended {
        Ended {
            key: self.board.key(job),
            started_at: Timestamp(0),
            ended_at: Timestamp(1),
            wall: Duration::ZERO,
            exit,
            cause,
            usage: Usage::default(),
            files: None,
            last_words: Some("curl: Connection refused".to_owned()),
            recovered: None,
        }
    }

    /// The attempt of a held job fails, and this follows. The result and what is carried over.
    #[track_caller]
    fn fails(&mut self, job: u32, sequel: Sequel) -> (AttemptResult, Option<Box<Carried>>) {
        let ended = self.ended(job, Exit::Code(75), EndCause::Itself);
        let ended = self.board.on_ended_then(WORKER, &ended, |_| sequel.into(), &mut self.changes);
        ended.expect("it is held");
        self.mirror.remove(job);
        self.last_end()
    }

    #[track_caller]
    fn last_end(&self) -> (AttemptResult, Option<Box<Carried>>) {
        let ends = self.changes.iter().rev();
        let mut ends = ends.filter_map(|change| match change {
            Change::End { result, carried, .. } => Some((result.clone(), carried.clone())),
            _ => None,
        });
        ends.next().expect("an attempt ended")
    }
}

fn again(retrial: Retrial) -> Sequel {
    Sequel::Again(Box::new(retrial))
}

fn in_seconds(seconds: i64) -> Sequel {
    again(Retrial {
        not_before: Some(Timestamp(seconds * SECOND)),
        words: "later".into(),
        ..Retrial::default()
    })
}

fn script(failed: u32) -> Recovery {
    Recovery {
        script: "fix".into(),
        failed: Attempt(failed),
        return_code: 75,
        limit: Duration::from_mins(10),
    }
}

#[test]
fn a_job_that_waits_is_ready_and_nobody_gets_it() {
    let mut site = Site::new(table(3));
    assert_eq!(site.claim(), [0, 1, 2]);
    let (result, carried) = site.fails(0, in_seconds(40));
    assert_eq!((result.status, result.reason.as_deref()), (S::Failed, Some("later")));
    assert_eq!(carried.unwrap().not_before, Some(Timestamp(40 * SECOND)));
    site.fails(1, in_seconds(20));
    assert_eq!([0, 1].map(|job| site.board.status(job)), [S::Ready, S::Ready]);
    assert_eq!(site.board.key(0).attempt, Attempt(2));
    assert!(!site.board.has_ready() && site.claim().is_empty());

    let due = |site: &Site| site.board.next_due().map(|at| at.0 / SECOND);
    assert_eq!((due(&site), site.board.waiting()), (Some(20), 2));
    assert_eq!(site.board.on_time(Timestamp(20 * SECOND - 1)), 0);
    assert_eq!(site.board.on_time(Timestamp(20 * SECOND)), 1);
    assert_eq!(site.claim(), [1]);
    assert_eq!(due(&site), Some(40));
    // The others end; the one that waits keeps the run going.
    for job in [1, 2] {
        site.board
            .on_ended(WORKER, &site.ended(job, Exit::Code(0), EndCause::Itself), &mut site.changes)
            .unwrap();
        site.mirror.remove(job);
    }
    assert!(!site.board.is_finished() && !site.board.is_stuck());
    assert_eq!(site.board.on_time(Timestamp(99 * SECOND)), 1);
    assert_eq!((site.claim(), due(&site)), (vec![0], None));
}

#[test]
fn a_clock_that_is_set_back_prolongs_no_wait() {
    let mut site = Site::new(table(1));
    site.claim();
    site.board.on_time(Timestamp(1000 * SECOND));
    site.fails(0, in_seconds(1010));
    assert_eq!(site.board.on_time(Timestamp(1004 * SECOND)), 0);
    // An hour back; six seconds are left, as before.
    assert_eq!(site.board.on_time(Timestamp(-2600 * SECOND)), 0);
    assert_eq!(site.board.next_due(), Some(Timestamp(-2594 * SECOND)));
    assert_eq!(site.board.on_time(Timestamp(-2594 * SECOND)), 1);
    assert_eq!(site.claim(), [0]);
}

#[test]
fn a_board_that_is_built_anew_goes_on_waiting() {
    let carried = Carried {
        not_before: Some(Timestamp(30 * SECOND)),
        delay: Some(Duration::from_secs(30)),
        recovery: Some(script(3)),
        excused: 2,
        resources: None,
    };
    let mut rows = table(2);
    rows.attempt[1] = Attempt(4);
    rows.carried = vec![(1, carried.clone())];
    let mut site = Site::new(rows);
    assert_eq!(site.claim(), [0]);
    assert_eq!((site.board.next_due(), site.board.used(1)), (carried.not_before, 2));
    site.board.on_time(Timestamp(30 * SECOND));
    assert_eq!(site.claim(), [1]);
    assert_eq!(site.board.recovery(1), Some(&script(3)));
}

/// The wall clock was a day ahead when the delay began, was set right, and everything was started again.
#[test]
fn a_job_waits_no_longer_than_its_delay_whatever_the_clock_says_after_a_restart() {
    let day = 86_400 * SECOND;
    let delay = Some(Duration::from_secs(5));
    let waits = |at| Carried { not_before: Some(Timestamp(at)), delay, ..Carried::default() };
    let mut rows = table(3);
    rows.carried = vec![(0, waits(day + 5 * SECOND)), (1, waits(2 * SECOND))];
    let mut site = Site::new(rows);
    site.board.try_alone(0);
    assert_eq!(site.board.on_time(Timestamp(SECOND)), 0);
    assert_eq!(
        site.board.next_due(),
        Some(Timestamp(2 * SECOND)),
        "what is left of a delay is not prolonged"
    );
    assert_eq!(site.board.on_time(Timestamp(6 * SECOND - 1)), 1);
    assert_eq!(site.board.on_time(Timestamp(6 * SECOND)), 1);
    assert_eq!(site.board.next_due(), None);
}

#[test]
fn who_held_a_job_had_waited_for_it() {
    let carried = Carried { not_before: Some(Timestamp(30 * SECOND)), excused: 1, ..Carried::default() };
    let mut site = Site::new(JobTable {
        status: vec![S::Running, S::Pending],
        attempt: vec![Attempt(3); 2],
        carried: vec![(0, carried.clone()), (1, carried)],
        ..table(2)
    });
    site.board.on_orphaned(0, WORKER, Orphan::RunAgain(None), None, Timestamp(9), &mut site.changes);
    site.board.on_orphaned(1, WORKER, Orphan::NeverStarted, None, Timestamp(9), &mut site.changes);
    assert_eq!((site.board.next_due(), site.board.used(0), site.board.used(1)), (None, 2, 2));
    assert_eq!(site.claim(), [0, 1]);
}

#[test]
fn lost_and_interrupted_attempts_count_for_nothing_and_still_owe_the_script() {
    let mut site = Site::new(table(1));
    site.claim();
    let owes = Retrial { recovery: Some(script(1)), words: "again".into(), ..Retrial::default() };
    site.fails(0, again(owes));
    assert_eq!((site.board.used(0), site.board.recovery(0)), (2, Some(&script(1))));

    site.claim();
    site.board.on_orphaned(0, WORKER, Orphan::RunAgain(None), None, Timestamp(2), &mut site.changes);
    site.mirror.remove(0);
    let lost = site.last_end().1.unwrap();
    assert_eq!((lost.excused, lost.recovery), (1, Some(script(1))));

    site.claim();
    let stopped = site.ended(0, Exit::Signal(15), EndCause::Stopped(StopReason::Interrupted));
    site.board.on_ended_then(WORKER, &stopped, |_| panic!("nothing failed"), &mut site.changes).unwrap();
    site.mirror.remove(0);
    assert_eq!((site.board.key(0).attempt, site.board.used(0)), (Attempt(4), 2));
    assert_eq!(site.board.recovery(0), Some(&script(1)));

    // A claim that was given back changes nothing of it.
    site.claim();
    let key = site.board.key(0);
    site.board.on_returned(WORKER, &key, &mut site.changes).unwrap();
    site.mirror.remove(0);
    assert_eq!((site.board.used(0), site.board.recovery(0)), (2, Some(&script(1))));

    // The next failure counts, and a rule without a script owes none.
    site.claim();
    let (_, carried) = site.fails(0, again(Retrial::default()));
    assert_eq!(*carried.unwrap(), Carried { excused: 2, ..Carried::default() });
    assert_eq!((site.board.used(0), site.board.recovery(0)), (3, None));
}

#[test]
fn one_job_asks_for_more_and_the_others_do_not() {
    let mut site = Site::new(table(2));
    site.claim();
    let more = Resources { memory: Bytes(5 * GIB), ..*site.board.resources(0) };
    let (_, carried) = site.fails(0, again(Retrial { resources: Some(more), ..Retrial::default() }));
    assert_eq!(carried.unwrap().resources, Some(more));
    assert_eq!(
        (site.board.resources(0).memory, site.board.resources(1).memory),
        (Bytes(5 * GIB), Bytes(GIB))
    );
    site.fails(1, again(Retrial { resources: Some(more), ..Retrial::default() }));
    assert_eq!(site.claim(), [0], "two of them do not fit at once");
}

#[test]
fn a_failure_that_nobody_foresaw_may_wait_for_a_verdict() {
    let mut edges = EdgesBuilder::default();
    edges.depend(1, &[0]);
    let mut site =
        Site::new(JobTable { status: vec![S::Ready, S::Blocked], edges: edges.finish(), ..table(2) });
    site.claim();
    let (result, carried) = site.fails(0, Sequel::Ask(Some("no rule of handler net is for it".into())));
    assert_eq!((result.status, carried), (S::Failed, None));
    assert_eq!([0, 1].map(|job| site.board.status(job)), [S::PendingFailed, S::Blocked]);
    assert!(site.board.is_stuck(), "somebody has to decide");
    assert!(site.board.on_decided(0, S::Failed, &mut site.changes));
    assert_eq!([0, 1].map(|job| site.board.status(job)), [S::Failed, S::Canceled]);
}

#[test]
fn a_job_that_waits_can_be_left_out_canceled_or_suspected() {
    let mut site = Site::new(table(4));
    site.claim();
    for job in 0..4 {
        site.fails(job, in_seconds(10 + i64::from(job)));
    }
    assert!(site.board.on_decided(0, S::Canceled, &mut site.changes));
    site.board.on_left_out(&[JobId(102)], &mut site.changes);
    site.board.try_alone(2);
    site.board.try_alone(3);
    site.board.try_beside_others(3);
    assert_eq!((site.board.waiting(), site.board.has_alone()), (2, false));
    assert_eq!(site.board.on_time(Timestamp(60 * SECOND)), 2);
    assert_eq!((site.board.ready(), site.board.has_alone()), (2, true));
    assert_eq!(site.claim(), [2], "alone, and first");
}

#[test]
fn what_is_halted_begins_nothing_more() {
    let mut site = Site::new(table(9));
    let held = site.claim();
    assert_eq!(held.len(), 8);
    site.fails(0, in_seconds(5));
    site.board.on_halt();
    site.board.on_time(Timestamp(60 * SECOND));
    assert!(site.board.is_halted() && !site.board.has_ready() && !site.board.is_stuck());
    assert!(site.claim().is_empty());
    for &job in &held[1..] {
        site.board
            .on_ended(WORKER, &site.ended(job, Exit::Code(1), EndCause::Itself), &mut site.changes)
            .unwrap();
    }
    assert!(site.board.is_stuck(), "nothing runs, and nothing will");
    assert_eq!([0, 8].map(|job| site.board.status(job)), [S::Ready, S::Ready]);
}

#[test]
fn who_cancels_is_asked_nothing() {
    let mut site = Site::new(table(1));
    site.claim();
    site.board.on_cancel();
    let ended = site.ended(0, Exit::Code(1), EndCause::Itself);
    let verdict =
        site.board.on_ended_then(WORKER, &ended, |_| panic!("nobody retries"), &mut site.changes).unwrap();
    assert_eq!(verdict.job_status, S::Failed);
}

#[test]
fn a_client_that_asks_for_another_attempt_uses_one_up() {
    let mut site = Site::new(table(1));
    site.claim();
    let stated = Stated {
        worker: WORKER,
        status: S::Failed,
        return_code: 3,
        reason: None,
        started_at: None,
        ended_at: Timestamp(1),
        wall: Duration::ZERO,
        usage: Usage::default(),
        again: true,
    };
    let key = site.board.key(0);
    assert_eq!(site.board.on_stated(&key, stated, &mut site.changes), Ok(S::Ready));
    assert_eq!((site.board.used(0), site.last_end().1), (2, None));
}

/// The whole way: the end of an attempt, the rules, the board.
#[test]
fn from_a_failure_to_the_next_attempt() {
    let rule = FailureRule {
        on: vec![FailureCause::OutOfMemory],
        memory: "x1.5".parse().ok(),
        delay: Some(Duration::from_secs(10)),
        max_retries: 2,
        ..FailureRule::default()
    };
    let handler = Handler::compile(&FailureHandler { name: "oom".into(), rules: vec![rule] }).unwrap();
    let mut site = Site::new(table(1));
    let now = Timestamp(100 * SECOND);
    let mut attempts = 0;
    while site.claim() == [0] {
        attempts += 1;
        let ended = site.ended(0, Exit::Signal(9), EndCause::OutOfMemory);
        let sequel = |failed: windlass_core::board::Failed<'_>| {
            let situation = Situation {
                attempt: failed.ended.key.attempt,
                used: failed.used,
                asked: failed.asked,
                workers: &[],
                longest: None,
                budget: Budget { granted: 0, limit: 10 },
                dice: 0,
            };
            let decision = decide(Some(&handler), &failed.failure(FailureClass::Memory), &situation);
            Sequel::of(decision, true, now).into()
        };
        site.board.on_ended_then(WORKER, &ended, sequel, &mut site.changes).unwrap();
        site.mirror.remove(0);
        if attempts == 1 {
            assert_eq!(site.board.next_due(), Some(Timestamp(110 * SECOND)));
            let reason = site.last_end().0.reason.unwrap();
            assert_eq!(
                reason,
                "used more than its memory of 1 GiB; attempt 2 of 2 in 10s by rule 1 of handler oom (out of memory): \
                 memory 1 GiB → 1.5 GiB"
            );
        }
        site.board.on_time(Timestamp(200 * SECOND));
    }
    assert_eq!((attempts, site.board.status(0)), (2, S::Failed));
    let reason = site.last_end().0.reason.unwrap();
    assert_eq!(
        reason,
        "used more than its memory of 1.5 GiB; not tried again after 2 of 2 attempts by rule 1 of handler oom (out of \
         memory)"
    );
}

/// What was found about a failure goes with its end, and so does the script that came before the attempt.
#[test]
fn an_end_tells_what_the_failure_was_and_why_what_is_next() {
    let diagnosis = Diagnosis::of_orphan();
    let mut site = Site::new(table(1));
    let mut told = Vec::new();
    for sequel in [again(Retrial::default()), Sequel::Ask(Some("no rule".into()))] {
        site.claim();
        let mut ended = site.ended(0, Exit::Code(75), EndCause::Itself);
        ended.recovered = Some(Box::new(Recovered::CannotStart("no shell".into())));
        let followed = Followed { sequel, diagnosis: Some(diagnosis.clone()) };
        site.board.on_ended_then(WORKER, &ended, |_| followed, &mut site.changes).unwrap();
        site.mirror.remove(0);
        let Some(Change::End { result, failure, .. }) = site.changes.pop() else { panic!("it ended") };
        assert_eq!(result.recovered, ended.recovered);
        let failure = failure.expect("it failed");
        assert_eq!(failure.diagnosis, diagnosis);
        told.push((failure.next, failure.why));
    }
    assert_eq!(told, [(Next::Retry, Some(String::new())), (Next::PendingFailed, Some("no rule".into()))]);

    let mut site = Site::new(table(2));
    site.claim();
    let well = site.ended(0, Exit::Code(0), EndCause::Itself);
    site.board.on_ended_then(WORKER, &well, |_| panic!("nothing failed"), &mut site.changes).unwrap();
    assert!(matches!(site.changes.pop(), Some(Change::End { failure: None, .. })));
    site.board.on_orphaned(1, WORKER, Orphan::RunAgain(None), None, Timestamp(1), &mut site.changes);
    let Some(Change::End { failure: Some(failure), .. }) = site.changes.pop() else { panic!("it is lost") };
    assert_eq!((failure.next, failure.diagnosis), (Next::Excused, diagnosis));
    assert_eq!(failure.why.as_deref(), Some("orphaned: worker 7 ended while it ran"));
}

/// Clients that run jobs themselves say how they ended, and nothing of what they said.
#[test]
fn what_is_stated_of_a_failure_has_a_class_as_well() {
    let mut site = Site::new(table(3));
    site.claim();
    let stated = Stated {
        worker: WORKER,
        status: S::Failed,
        return_code: 137,
        reason: None,
        started_at: None,
        ended_at: Timestamp(1),
        wall: Duration::ZERO,
        usage: Usage::default(),
        again: false,
    };
    let cases = [
        (Stated { status: S::Completed, return_code: 0, ..stated.clone() }, None),
        (
            Stated { status: S::Terminated, return_code: 152, ..stated.clone() },
            Some((FailureClass::Timeout, Next::Final)),
        ),
        (Stated { return_code: 127, again: true, ..stated }, Some((FailureClass::Permanent, Next::Retry))),
    ];
    for (job, (stated, told)) in (0..).zip(cases) {
        let key = site.board.key(job);
        site.board.on_stated(&key, stated, &mut site.changes).unwrap();
        let Some(Change::End { failure, .. }) = site.changes.pop() else { panic!("it ended") };
        assert_eq!(failure.map(|failure| (failure.diagnosis.class, failure.next)), told);
    }
}

use super::*;
use AllocationState as A;
use SlurmState as S;
use windlass_types::slurm::AllocationRequest;
use windlass_types::{AllocationId, WorkflowId};

const fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1_000_000)
}

const NOW: Timestamp = at(10_000);

/// Submitted long ago, seen just now, with job 8 where it was submitted.
fn row(state: A) -> Allocation {
    let has_job = !matches!(state, A::Intended | A::Submitting);
    Allocation {
        id: AllocationId(1),
        workflow: WorkflowId(1),
        scheduler: None,
        tag: "windlass-5f2a-1".to_owned(),
        request: AllocationRequest::default(),
        state,
        job_id: has_job.then_some(8),
        restarts: 0,
        reason: None,
        nodes: None,
        action: None,
        by: "ann".to_owned(),
        unwanted: None,
        created_at: at(0),
        submitted_at: (state != A::Intended).then_some(at(9_000)),
        submissions: 0,
        started_at: None,
        ends_at: None,
        ended_at: None,
        end: None,
        exit_code: None,
        seen_at: Some(at(9_990)),
        missed: 0,
        is_ours: true,
    }
}

fn job(state: S) -> QueueJob {
    QueueJob {
        job_id: 8,
        state: Some(state),
        submitted_at: Some(at(9_000)),
        name: "windlass-5f2a-1".to_owned(),
        comment: "windlass-5f2a-1".to_owned(),
        ..QueueJob::default()
    }
}

fn booked(state: S, said: &str) -> BookedJob {
    BookedJob {
        job_id: 8,
        state: Some(state),
        said: said.to_owned(),
        exit_code: Some("0:0".to_owned()),
        submitted_at: Some(at(9_000)),
        started_at: Some(at(9_100)),
        ended_at: Some(at(9_200)),
        nodes: Some("n1".to_owned()),
        name: "windlass-5f2a-1".to_owned(),
        comment: String::new(),
    }
}

const NONE: Workers = Workers { has_come: false, is_alive: false };
const ALIVE: Workers = Workers { has_come: true, is_alive: true };
const GONE: Workers = Workers { has_come: true, is_alive: false };

fn sight<'a>(queue: Option<&'a [QueueJob]>, accounting: Accounting<'a>, workers: Workers) -> Sight<'a> {
    let queue = queue.map(|jobs| jobs.iter().collect());
    Sight { queue, accounting, workers, not_needed: None, served_since: at(0) }
}

fn fate(row: &Allocation, sight: &Sight<'_>) -> Fate {
    decide(row, sight, &Patience::default(), NOW)
}

fn to(fate: &Fate) -> Option<A> {
    fate.change.as_ref().map(|change| change.to)
}

#[test]
fn nothing_follows_from_silence() {
    for state in [A::Submitting, A::Pending, A::Running, A::Completing] {
        for workers in [NONE, ALIVE, GONE] {
            let unwanted = Allocation { unwanted: Some("why".to_owned()), ..row(state) };
            for row in [row(state), unwanted] {
                assert_eq!(
                    fate(&row, &sight(None, Accounting::NotAsked, workers)),
                    Fate::default(),
                    "{state}"
                );
            }
        }
    }
    // The controller answers and does not have it, accounting is silent: no conclusion either.
    for state in [A::Pending, A::Running] {
        let row = Allocation { missed: 5, ..row(state) };
        assert_eq!(fate(&row, &sight(Some(&[]), Accounting::Silent, NONE)), Fate::default());
    }
}

#[test]
fn accounting_may_be_a_moment_behind() {
    let running = booked(S::Running, "RUNNING");
    let completed = booked(S::Completed, "COMPLETED");
    let rows = [
        (9_995, Accounting::Answered(vec![&running]), A::Completing, None),
        (9_995, Accounting::Answered(vec![]), A::Completing, None),
        (9_995, Accounting::Answered(vec![&completed]), A::Ended, Some("0:0")),
        (9_980, Accounting::Answered(vec![&running]), A::Ended, None),
        (9_995, Accounting::Silent, A::Ended, None),
        (9_995, Accounting::Disabled, A::Ended, None),
    ];
    for (ended, accounting, becomes, exit_code) in rows {
        let queue = [QueueJob { ends_at: Some(at(ended)), ..job(S::Completed) }];
        let change = fate(&row(A::Running), &sight(Some(&queue), accounting, GONE)).change.unwrap();
        assert_eq!((change.to, change.exit_code.as_deref()), (becomes, exit_code), "{ended}");
    }
}

#[test]
fn what_is_over_stays_over() {
    for state in [A::Ended, A::Refused, A::Withdrawn] {
        let alive = [job(S::Running)];
        assert_eq!(fate(&row(state), &sight(Some(&alive), Accounting::NotAsked, NONE)), Fate::default());
    }
}

#[test]
fn slurms_states_and_ours() {
    let rows = [
        (A::Pending, S::Pending, NONE, A::Pending),
        (A::Pending, S::Configuring, NONE, A::Pending),
        (A::Pending, S::Running, NONE, A::Running),
        (A::Pending, S::Completing, NONE, A::Completing),
        (A::Pending, S::Cancelled, NONE, A::Ended),
        (A::Running, S::Suspended, ALIVE, A::Running),
        (A::Running, S::Resizing, ALIVE, A::Running),
        (A::Running, S::Completing, ALIVE, A::Completing),
        (A::Running, S::NodeFail, ALIVE, A::Ended),
        (A::Running, S::Timeout, GONE, A::Ended),
        // States go backwards: requeued, or a controller that crashed.
        (A::Running, S::Pending, GONE, A::Pending),
        (A::Running, S::Pending, NONE, A::Pending),
        (A::Running, S::Pending, ALIVE, A::Running),
        (A::Completing, S::Running, ALIVE, A::Running),
        (A::Completing, S::Completing, GONE, A::Completing),
        (A::Completing, S::Preempted, GONE, A::Ended),
        (A::Running, S::Requeued, GONE, A::Pending),
        (A::Running, S::SpecialExit, GONE, A::Pending),
    ];
    for (from, state, workers, expected) in rows {
        let row = Allocation { seen_at: None, ..row(from) };
        let queue = [job(state)];
        let fate = fate(&row, &sight(Some(&queue), Accounting::Disabled, workers));
        assert_eq!(to(&fate), Some(expected), "{from} {state} {workers:?}");
        assert_eq!(fate.change.unwrap().of_job, Some(8));
    }
}

#[test]
fn a_word_that_nobody_knows_changes_nothing() {
    let queue = [QueueJob { state: None, ..job(S::Running) }];
    for state in [A::Pending, A::Running, A::Completing] {
        assert_eq!(fate(&row(state), &sight(Some(&queue), Accounting::NotAsked, NONE)), Fate::default());
    }
}

#[test]
fn what_is_as_it_was_is_written_only_now_and_then() {
    let queue = [job(S::Pending)];
    let sight = sight(Some(&queue), Accounting::NotAsked, NONE);
    assert_eq!(fate(&row(A::Pending), &sight), Fate::default());
    let old = Allocation { seen_at: Some(at(9_000)), ..row(A::Pending) };
    assert_eq!(fate(&old, &sight).change.unwrap().seen_at, Some(NOW));
}

#[test]
fn a_running_one_tells_nodes_and_end() {
    let running = QueueJob {
        started_at: Some(at(9_900)),
        ends_at: Some(at(20_000)),
        nodes: Some("n[1-2]".to_owned()),
        ..job(S::Running)
    };
    let waited = Allocation { reason: Some("Priority".to_owned()), ..row(A::Pending) };
    let queue = [running.clone()];
    let change = fate(&waited, &sight(Some(&queue), Accounting::NotAsked, NONE)).change.unwrap();
    assert_eq!((change.started_at, change.ends_at), (Some(Some(at(9_900))), Some(Some(at(20_000)))));
    assert_eq!((change.nodes, change.reason), (Some(Some("n[1-2]".to_owned())), Some(None)));
    // An administrator changes its limit.
    let mut row = row(A::Running);
    (row.started_at, row.ends_at) = (Some(at(9_900)), Some(at(15_000)));
    row.nodes = Some("n[1-2]".to_owned());
    let change = fate(&row, &sight(Some(&queue), Accounting::NotAsked, ALIVE)).change.unwrap();
    assert_eq!((change.ends_at, change.started_at), (Some(Some(at(20_000))), None));
}

#[test]
fn reasons_that_need_somebody_are_told_once() {
    let stuck = QueueJob { reason: Some("PartitionTimeLimit".to_owned()), ..job(S::Pending) };
    let queue = [stuck];
    let sight = sight(Some(&queue), Accounting::NotAsked, NONE);
    let first = fate(&row(A::Pending), &sight);
    assert_eq!(first.alarm.as_deref(), Some("PartitionTimeLimit"));
    assert_eq!(first.change.unwrap().reason, Some(Some("PartitionTimeLimit".to_owned())));
    let told = Allocation { reason: Some("PartitionTimeLimit".to_owned()), ..row(A::Pending) };
    assert_eq!(fate(&told, &sight), Fate::default());
    let usual = [QueueJob { reason: Some("Priority".to_owned()), ..job(S::Pending) }];
    let usual = super::Sight { queue: Some(usual.iter().collect()), ..sight.clone() };
    assert_eq!(fate(&told, &usual).alarm, None);
}

#[test]
fn an_end_that_the_controller_still_shows_has_its_exit_code_from_accounting() {
    let queue = [QueueJob { ends_at: Some(at(9_999)), ..job(S::Cancelled) }];
    let asked = fate(&row(A::Running), &sight(Some(&queue), Accounting::NotAsked, GONE));
    assert!(asked.ask_accounting);
    assert_eq!(asked.change.unwrap().ended_at, Some(at(9_999)), "holds if accounting is silent");
    let canceled = booked(S::Cancelled, "CANCELLED by 1001");
    let told = fate(&row(A::Running), &sight(Some(&queue), Accounting::Answered(vec![&canceled]), GONE));
    let change = told.change.unwrap();
    assert_eq!((change.end, change.exit_code.as_deref()), (Some(S::Cancelled), Some("0:0")));
    assert_eq!(change.reason, Some(Some("CANCELLED by 1001".to_owned())));
    assert!(!told.ask_accounting);
    // Accounting is behind, and has been for a while: the controller's word holds.
    let queue = [QueueJob { ends_at: Some(at(9_989)), ..job(S::Cancelled) }];
    let stale = booked(S::Running, "RUNNING");
    let told = fate(&row(A::Running), &sight(Some(&queue), Accounting::Answered(vec![&stale]), GONE));
    assert_eq!(
        (told.change.as_ref().unwrap().end, &told.change.unwrap().exit_code),
        (Some(S::Cancelled), &None)
    );
}

#[test]
fn one_that_is_missing_is_asked_about() {
    for state in [A::Pending, A::Running, A::Completing] {
        let asked = fate(&row(state), &sight(Some(&[]), Accounting::NotAsked, NONE));
        assert_eq!(asked, Fate { ask_accounting: true, ..Fate::default() }, "{state}");
        // Submitted a moment ago: not shown yet.
        let young = Allocation { submitted_at: Some(at(9_971)), ..row(state) };
        assert_eq!(fate(&young, &sight(Some(&[]), Accounting::Disabled, NONE)), Fate::default());
    }
}

#[test]
fn accountings_word_ends_one_that_is_missing() {
    for state in [
        S::Completed,
        S::Failed,
        S::Cancelled,
        S::Timeout,
        S::Preempted,
        S::NodeFail,
        S::OutOfMemory,
        S::BootFail,
        S::Deadline,
    ] {
        let job = booked(state, state.name());
        for workers in [NONE, ALIVE, GONE] {
            let fate = fate(&row(A::Running), &sight(Some(&[]), Accounting::Answered(vec![&job]), workers));
            let change = fate.change.unwrap();
            assert_eq!((change.to, change.end, change.ended_at), (A::Ended, Some(state), Some(at(9_200))));
        }
    }
}

#[test]
fn runaways_and_clusters_without_accounting_need_two_polls_and_silence() {
    let (running, pending) = (booked(S::Running, "RUNNING"), booked(S::Pending, "PENDING"));
    let resizing = booked(S::Resizing, "RESIZING");
    for accounting in [
        Accounting::Answered(vec![&running]),
        Accounting::Answered(vec![&pending]),
        Accounting::Answered(vec![&resizing]),
        Accounting::Answered(vec![]),
        Accounting::Disabled,
    ] {
        let sight = |workers| sight(Some(&[]), accounting.clone(), workers);
        let first = fate(&row(A::Running), &sight(GONE)).change.unwrap();
        assert_eq!((first.to, first.missed), (A::Running, Some(1)), "{accounting:?}");
        let twice = Allocation { missed: 1, ..row(A::Running) };
        let second = fate(&twice, &sight(GONE)).change.unwrap();
        assert_eq!((second.to, second.end), (A::Ended, None));
        let reason = second.reason.unwrap().unwrap();
        assert!(
            reason.starts_with("Slurm knows nothing of it any more, and its worker is silent"),
            "{reason}"
        );
        let alive = fate(&twice, &sight(ALIVE)).change.unwrap();
        assert_eq!((alive.to, alive.missed), (A::Running, Some(2)));
        let still = Allocation { missed: 2, ..row(A::Running) };
        assert_eq!(fate(&still, &sight(ALIVE)), Fate::default(), "as long as it lives");
    }
    // Shown again: counted anew.
    let queue = [job(S::Running)];
    let back = Allocation { missed: 1, ..row(A::Running) };
    let back = fate(&back, &sight(Some(&queue), Accounting::NotAsked, ALIVE)).change.unwrap();
    assert_eq!((back.to, back.missed), (A::Running, Some(0)));
}

#[test]
fn a_submission_that_was_not_answered_is_looked_for() {
    // Found at once, whatever became of it.
    for (state, expected) in [(S::Pending, A::Pending), (S::Running, A::Running), (S::Failed, A::Ended)] {
        let queue = [job(state)];
        let change =
            fate(&row(A::Submitting), &sight(Some(&queue), Accounting::Disabled, NONE)).change.unwrap();
        assert_eq!((change.to, change.job_id, change.of_job), (expected, Some(Some(8)), None), "{state}");
    }
    // Of two the one that lives, and the first.
    let queue = [
        QueueJob { job_id: 7, ..job(S::Failed) },
        QueueJob { job_id: 9, ..job(S::Pending) },
        job(S::Pending),
    ];
    let change = fate(&row(A::Submitting), &sight(Some(&queue), Accounting::NotAsked, NONE)).change.unwrap();
    assert_eq!(change.job_id, Some(Some(8)));
    // Not yet: it may still be accepted.
    let young = Allocation { submitted_at: Some(at(9_941)), ..row(A::Submitting) };
    assert_eq!(fate(&young, &sight(Some(&[]), Accounting::NotAsked, NONE)), Fate::default());
    // Missing once, then accounting is asked, and only then it is submitted again.
    let first = fate(&row(A::Submitting), &sight(Some(&[]), Accounting::NotAsked, NONE));
    assert_eq!((to(&first), first.change.unwrap().missed), (Some(A::Submitting), Some(1)));
    let missed = Allocation { missed: 1, ..row(A::Submitting) };
    let second = fate(&missed, &sight(Some(&[]), Accounting::NotAsked, NONE));
    assert_eq!(second, Fate { ask_accounting: true, ..Fate::default() });
    assert_eq!(fate(&missed, &sight(Some(&[]), Accounting::Silent, NONE)), Fate::default());
    let again = Fate { acts: vec![Act::Submit], ..Fate::default() };
    assert_eq!(fate(&missed, &sight(Some(&[]), Accounting::Answered(vec![]), NONE)), again);
    assert_eq!(fate(&missed, &sight(Some(&[]), Accounting::Disabled, NONE)), again);
    // It came and went.
    let gone = booked(S::Completed, "COMPLETED");
    let change = fate(&missed, &sight(Some(&[]), Accounting::Answered(vec![&gone]), NONE)).change.unwrap();
    assert_eq!((change.to, change.job_id), (A::Ended, Some(Some(8))));
    // Silence in between: counted anew.
    let reset = fate(&missed, &sight(None, Accounting::NotAsked, NONE)).change.unwrap();
    assert_eq!((reset.to, reset.missed), (A::Submitting, Some(0)));
}

#[test]
fn what_an_earlier_submission_left_is_not_taken_for_this_one() {
    let old = QueueJob { submitted_at: Some(at(8_000)), ..job(S::Failed) };
    let young = Allocation { submitted_at: Some(at(9_990)), ..row(A::Submitting) };
    let queue = [old];
    assert_eq!(fate(&young, &sight(Some(&queue), Accounting::NotAsked, NONE)), Fate::default());
    let booked = BookedJob { submitted_at: Some(at(8_000)), ..booked(S::Failed, "FAILED") };
    let missed = Allocation { missed: 1, ..row(A::Submitting) };
    let fate = fate(&missed, &sight(Some(&queue), Accounting::Answered(vec![&booked]), NONE));
    assert_eq!(fate.acts, [Act::Submit]);
}

#[test]
fn what_nobody_wants_goes() {
    let unwanted = |state| Allocation { unwanted: Some("canceled by ann".to_owned()), ..row(state) };
    let withdrawn = fate(&unwanted(A::Intended), &sight(None, Accounting::NotAsked, NONE)).change.unwrap();
    assert_eq!((withdrawn.to, withdrawn.reason), (A::Withdrawn, Some(Some("canceled by ann".to_owned()))));
    for state in [S::Pending, S::Running] {
        let queue = [job(state)];
        let fate = fate(&unwanted(A::Pending), &sight(Some(&queue), Accounting::NotAsked, NONE));
        assert_eq!(fate.acts, [Act::Cancel(8)], "{state}");
    }
    let queue = [job(S::Completing)];
    let ends = fate(&unwanted(A::Running), &sight(Some(&queue), Accounting::NotAsked, NONE));
    assert_eq!(ends.acts, [], "it is on its way");
    // Certainly never accepted.
    let lost = Allocation { missed: 1, ..unwanted(A::Submitting) };
    assert_eq!(to(&fate(&lost, &sight(Some(&[]), Accounting::Disabled, NONE))), Some(A::Withdrawn));
    // Queued, and nothing is left to do for it.
    let queue = [job(S::Pending)];
    let idle =
        Sight { not_needed: Some("workflow 1 is over"), ..sight(Some(&queue), Accounting::NotAsked, NONE) };
    let over = fate(&row(A::Pending), &idle);
    assert_eq!(
        (over.acts, over.change.unwrap().unwanted.as_deref()),
        (vec![Act::Cancel(8)], Some("workflow 1 is over"))
    );
    assert_eq!(to(&fate(&row(A::Intended), &idle)), Some(A::Withdrawn));
    // One that runs leaves by itself.
    let queue = [job(S::Running)];
    let busy = Sight { queue: Some(queue.iter().collect()), workers: ALIVE, ..idle };
    assert_eq!(fate(&row(A::Running), &busy).acts, []);
}

#[test]
fn what_the_row_alone_says_is_to_go() {
    for (state, unwanted, expected) in [
        (A::Pending, true, Some(8)),
        (A::Running, true, Some(8)),
        (A::Pending, false, None),
        // Nobody knows its number, or it is about to be gone.
        (A::Intended, true, None),
        (A::Submitting, true, None),
        (A::Completing, true, None),
        (A::Ended, true, None),
    ] {
        let row = Allocation { unwanted: unwanted.then(|| "ann is done".to_owned()), ..row(state) };
        assert_eq!(to_go(&row), expected, "{state:?} {unwanted}");
    }
}

#[test]
fn one_that_runs_without_a_worker_goes() {
    let running = |since| QueueJob { started_at: Some(at(since)), ..job(S::Running) };
    for (since, served_since, workers, acts) in [
        (9_400, 0, NONE, vec![Act::Cancel(8)]),
        (9_401, 0, NONE, vec![]),
        (9_000, 0, ALIVE, vec![]),
        (9_000, 0, GONE, vec![]),
        // It began while the server was away.
        (9_000, 9_401, NONE, vec![]),
        (9_000, 9_400, NONE, vec![Act::Cancel(8)]),
    ] {
        let queue = [running(since)];
        let seen = sight(Some(&queue), Accounting::NotAsked, workers);
        let fate = fate(&row(A::Running), &Sight { served_since: at(served_since), ..seen });
        assert_eq!(fate.acts, acts, "{since} {workers:?}");
        let why = fate.change.and_then(|change| change.unwanted);
        assert_eq!(why.is_some(), !acts.is_empty());
    }
}

#[test]
fn jobs_of_nobody_are_strays() {
    let job = |job_id, tag: &str, state| QueueJob {
        job_id,
        state: Some(state),
        name: tag.to_owned(),
        comment: tag.to_owned(),
        ..QueueJob::default()
    };
    let queue = [
        job(1, "windlass-5f2a-1", S::Running),
        job(2, "windlass-5f2a-1", S::Pending),
        job(3, "windlass-5f2a-2", S::Pending),
        job(4, "windlass-5f2a-3", S::Running),
        job(5, "windlass-5f2a-3", S::Completed),
        job(6, "windlass-5f2a-4", S::Running),
        job(7, "windlass-77ff-1", S::Running),
        job(8, "mine", S::Running),
        QueueJob { name: "series".to_owned(), ..job(9, "windlass-5f2a-1", S::Pending) },
    ];
    let known = [
        ("windlass-5f2a-1", Tagged::Open(Some(1))),
        ("windlass-5f2a-2", Tagged::Open(None)),
        ("windlass-5f2a-3", Tagged::Over),
    ];
    let found = strays(&queue, &known.into(), &["windlass-5f2a"].into());
    assert_eq!(found, [2, 4, 6, 9], "a second one, one that is over, one that nobody knows, one of a series");
}

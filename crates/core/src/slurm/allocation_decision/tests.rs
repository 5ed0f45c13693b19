use super::*;
use AllocationState as A;
use SlurmJobState as S;
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

fn job(state: S) -> SqueueJob {
    SqueueJob {
        job_id: 8,
        state: Some(state),
        submitted_at: Some(at(9_000)),
        name: "windlass-5f2a-1".to_owned(),
        comment: "windlass-5f2a-1".to_owned(),
        ..SqueueJob::default()
    }
}

fn accounted(state: S, said: &str) -> SacctJob {
    SacctJob {
        job_id: 8,
        state: Some(state),
        state_text: said.to_owned(),
        exit_code: Some("0:0".to_owned()),
        submitted_at: Some(at(9_000)),
        started_at: Some(at(9_100)),
        ended_at: Some(at(9_200)),
        nodes: Some("n1".to_owned()),
        name: "windlass-5f2a-1".to_owned(),
        comment: String::new(),
    }
}

const NONE: AllocationWorkers = AllocationWorkers { has_registered: false, is_alive: false };
const ALIVE: AllocationWorkers = AllocationWorkers { has_registered: true, is_alive: true };
const GONE: AllocationWorkers = AllocationWorkers { has_registered: true, is_alive: false };

fn observation<'a>(
    queue: Option<&'a [SqueueJob]>,
    accounting: AccountingReply<'a>,
    workers: AllocationWorkers,
) -> AllocationObservation<'a> {
    let queue = queue.map(|jobs| jobs.iter().collect());
    AllocationObservation { queue, accounting, workers, not_needed_reason: None, served_since: at(0) }
}

fn decide(row: &Allocation, observation: &AllocationObservation<'_>) -> AllocationDecision {
    decide_allocation(row, observation, &AllocationTimeouts::default(), NOW)
}

fn to(decide: &AllocationDecision) -> Option<A> {
    decide.change.as_ref().map(|change| change.to)
}

#[test]
fn missing_answers_change_nothing() {
    for state in [A::Submitting, A::Pending, A::Running, A::Completing] {
        for workers in [NONE, ALIVE, GONE] {
            let unwanted = Allocation { unwanted: Some("why".to_owned()), ..row(state) };
            for row in [row(state), unwanted] {
                assert_eq!(
                    decide(&row, &observation(None, AccountingReply::NotAsked, workers)),
                    AllocationDecision::default(),
                    "{state}"
                );
            }
        }
    }
    // The controller answers without it, accounting does not answer: no conclusion either.
    for state in [A::Pending, A::Running] {
        let row = Allocation { missed: 5, ..row(state) };
        assert_eq!(
            decide(&row, &observation(Some(&[]), AccountingReply::NoReply, NONE)),
            AllocationDecision::default()
        );
    }
}

#[test]
fn accounting_delay_is_tolerated() {
    let running = accounted(S::Running, "RUNNING");
    let completed = accounted(S::Completed, "COMPLETED");
    let rows = [
        (9_995, AccountingReply::Answered(vec![&running]), A::Completing, None),
        (9_995, AccountingReply::Answered(vec![]), A::Completing, None),
        (9_995, AccountingReply::Answered(vec![&completed]), A::Ended, Some("0:0")),
        (9_980, AccountingReply::Answered(vec![&running]), A::Ended, None),
        (9_995, AccountingReply::NoReply, A::Ended, None),
        (9_995, AccountingReply::Disabled, A::Ended, None),
    ];
    for (ended, accounting, becomes, exit_code) in rows {
        let queue = [SqueueJob { ends_at: Some(at(ended)), ..job(S::Completed) }];
        let change = decide(&row(A::Running), &observation(Some(&queue), accounting, GONE)).change.unwrap();
        assert_eq!((change.to, change.exit_code.as_deref()), (becomes, exit_code), "{ended}");
    }
}

#[test]
fn ended_allocations_stay_ended() {
    for state in [A::Ended, A::Refused, A::Withdrawn] {
        let alive = [job(S::Running)];
        assert_eq!(
            decide(&row(state), &observation(Some(&alive), AccountingReply::NotAsked, NONE)),
            AllocationDecision::default()
        );
    }
}

#[test]
fn slurm_states_map_to_allocation_states() {
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
        // States go backwards: requeued, or a crashed controller.
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
        let decide = decide(&row, &observation(Some(&queue), AccountingReply::Disabled, workers));
        assert_eq!(to(&decide), Some(expected), "{from} {state} {workers:?}");
        assert_eq!(decide.change.unwrap().only_slurm_job, Some(8));
    }
}

#[test]
fn unknown_slurm_state_changes_nothing() {
    let queue = [SqueueJob { state: None, ..job(S::Running) }];
    for state in [A::Pending, A::Running, A::Completing] {
        assert_eq!(
            decide(&row(state), &observation(Some(&queue), AccountingReply::NotAsked, NONE)),
            AllocationDecision::default()
        );
    }
}

#[test]
fn unchanged_allocation_is_rarely_written() {
    let queue = [job(S::Pending)];
    let observation = observation(Some(&queue), AccountingReply::NotAsked, NONE);
    assert_eq!(decide(&row(A::Pending), &observation), AllocationDecision::default());
    let old = Allocation { seen_at: Some(at(9_000)), ..row(A::Pending) };
    assert_eq!(decide(&old, &observation).change.unwrap().seen_at, Some(NOW));
}

#[test]
fn running_allocation_reports_nodes_and_end() {
    let running = SqueueJob {
        started_at: Some(at(9_900)),
        ends_at: Some(at(20_000)),
        nodes: Some("n[1-2]".to_owned()),
        ..job(S::Running)
    };
    let waited = Allocation { reason: Some("Priority".to_owned()), ..row(A::Pending) };
    let queue = [running.clone()];
    let change = decide(&waited, &observation(Some(&queue), AccountingReply::NotAsked, NONE)).change.unwrap();
    assert_eq!((change.started_at, change.ends_at), (Some(Some(at(9_900))), Some(Some(at(20_000)))));
    assert_eq!((change.nodes, change.reason), (Some(Some("n[1-2]".to_owned())), Some(None)));
    // An administrator changes its limit.
    let mut row = row(A::Running);
    (row.started_at, row.ends_at) = (Some(at(9_900)), Some(at(15_000)));
    row.nodes = Some("n[1-2]".to_owned());
    let change = decide(&row, &observation(Some(&queue), AccountingReply::NotAsked, ALIVE)).change.unwrap();
    assert_eq!((change.ends_at, change.started_at), (Some(Some(at(20_000))), None));
}

#[test]
fn reasons_that_need_an_operator_are_reported_once() {
    let stuck = SqueueJob { reason: Some("PartitionTimeLimit".to_owned()), ..job(S::Pending) };
    let queue = [stuck];
    let observation = observation(Some(&queue), AccountingReply::NotAsked, NONE);
    let first = decide(&row(A::Pending), &observation);
    assert_eq!(first.alarm.as_deref(), Some("PartitionTimeLimit"));
    assert_eq!(first.change.unwrap().reason, Some(Some("PartitionTimeLimit".to_owned())));
    let told = Allocation { reason: Some("PartitionTimeLimit".to_owned()), ..row(A::Pending) };
    assert_eq!(decide(&told, &observation), AllocationDecision::default());
    let usual = [SqueueJob { reason: Some("Priority".to_owned()), ..job(S::Pending) }];
    let usual = super::AllocationObservation { queue: Some(usual.iter().collect()), ..observation.clone() };
    assert_eq!(decide(&told, &usual).alarm, None);
}

#[test]
fn exit_code_of_a_visible_end_is_from_accounting() {
    let queue = [SqueueJob { ends_at: Some(at(9_999)), ..job(S::Cancelled) }];
    let asked = decide(&row(A::Running), &observation(Some(&queue), AccountingReply::NotAsked, GONE));
    assert!(asked.asks_accounting);
    assert_eq!(asked.change.unwrap().ended_at, Some(at(9_999)), "applies if accounting does not answer");
    let canceled = accounted(S::Cancelled, "CANCELLED by 1001");
    let told = decide(
        &row(A::Running),
        &observation(Some(&queue), AccountingReply::Answered(vec![&canceled]), GONE),
    );
    let change = told.change.unwrap();
    assert_eq!((change.end, change.exit_code.as_deref()), (Some(S::Cancelled), Some("0:0")));
    assert_eq!(change.reason, Some(Some("CANCELLED by 1001".to_owned())));
    assert!(!told.asks_accounting);
    // Accounting has been behind for a while: the controller's state counts.
    let queue = [SqueueJob { ends_at: Some(at(9_989)), ..job(S::Cancelled) }];
    let stale = accounted(S::Running, "RUNNING");
    let told =
        decide(&row(A::Running), &observation(Some(&queue), AccountingReply::Answered(vec![&stale]), GONE));
    assert_eq!(
        (told.change.as_ref().unwrap().end, &told.change.unwrap().exit_code),
        (Some(S::Cancelled), &None)
    );
}

#[test]
fn missing_allocation_is_looked_up_in_accounting() {
    for state in [A::Pending, A::Running, A::Completing] {
        let asked = decide(&row(state), &observation(Some(&[]), AccountingReply::NotAsked, NONE));
        assert_eq!(
            asked,
            AllocationDecision { asks_accounting: true, ..AllocationDecision::default() },
            "{state}"
        );
        // Submitted a moment ago: not listed yet.
        let young = Allocation { submitted_at: Some(at(9_971)), ..row(state) };
        assert_eq!(
            decide(&young, &observation(Some(&[]), AccountingReply::Disabled, NONE)),
            AllocationDecision::default()
        );
    }
}

#[test]
fn accounting_ends_a_missing_allocation() {
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
        let job = accounted(state, state.name());
        for workers in [NONE, ALIVE, GONE] {
            let decide = decide(
                &row(A::Running),
                &observation(Some(&[]), AccountingReply::Answered(vec![&job]), workers),
            );
            let change = decide.change.unwrap();
            assert_eq!((change.to, change.end, change.ended_at), (A::Ended, Some(state), Some(at(9_200))));
        }
    }
}

#[test]
fn missing_allocation_without_accounting_needs_two_polls() {
    let (running, pending) = (accounted(S::Running, "RUNNING"), accounted(S::Pending, "PENDING"));
    let resizing = accounted(S::Resizing, "RESIZING");
    for accounting in [
        AccountingReply::Answered(vec![&running]),
        AccountingReply::Answered(vec![&pending]),
        AccountingReply::Answered(vec![&resizing]),
        AccountingReply::Answered(vec![]),
        AccountingReply::Disabled,
    ] {
        let observation = |workers| observation(Some(&[]), accounting.clone(), workers);
        let first = decide(&row(A::Running), &observation(GONE)).change.unwrap();
        assert_eq!((first.to, first.missed_polls), (A::Running, Some(1)), "{accounting:?}");
        let twice = Allocation { missed: 1, ..row(A::Running) };
        let second = decide(&twice, &observation(GONE)).change.unwrap();
        assert_eq!((second.to, second.end), (A::Ended, None));
        let reason = second.reason.unwrap().unwrap();
        assert!(reason.starts_with("Slurm no longer knows it, and its worker is silent"), "{reason}");
        let alive = decide(&twice, &observation(ALIVE)).change.unwrap();
        assert_eq!((alive.to, alive.missed_polls), (A::Running, Some(2)));
        let still = Allocation { missed: 2, ..row(A::Running) };
        assert_eq!(decide(&still, &observation(ALIVE)), AllocationDecision::default(), "while it is alive");
    }
    // Listed again: the count restarts.
    let queue = [job(S::Running)];
    let back = Allocation { missed: 1, ..row(A::Running) };
    let back = decide(&back, &observation(Some(&queue), AccountingReply::NotAsked, ALIVE)).change.unwrap();
    assert_eq!((back.to, back.missed_polls), (A::Running, Some(0)));
}

#[test]
fn unanswered_submission_is_searched_by_tag() {
    // Found immediately in any state.
    for (state, expected) in [(S::Pending, A::Pending), (S::Running, A::Running), (S::Failed, A::Ended)] {
        let queue = [job(state)];
        let change = decide(&row(A::Submitting), &observation(Some(&queue), AccountingReply::Disabled, NONE))
            .change
            .unwrap();
        assert_eq!(
            (change.to, change.job_id, change.only_slurm_job),
            (expected, Some(Some(8)), None),
            "{state}"
        );
    }
    // Of two the running one, and the first.
    let queue = [
        SqueueJob { job_id: 7, ..job(S::Failed) },
        SqueueJob { job_id: 9, ..job(S::Pending) },
        job(S::Pending),
    ];
    let change = decide(&row(A::Submitting), &observation(Some(&queue), AccountingReply::NotAsked, NONE))
        .change
        .unwrap();
    assert_eq!(change.job_id, Some(Some(8)));
    // Not yet: it may still be accepted.
    let young = Allocation { submitted_at: Some(at(9_941)), ..row(A::Submitting) };
    assert_eq!(
        decide(&young, &observation(Some(&[]), AccountingReply::NotAsked, NONE)),
        AllocationDecision::default()
    );
    // Missing once, then accounting is queried, and only then it is submitted again.
    let first = decide(&row(A::Submitting), &observation(Some(&[]), AccountingReply::NotAsked, NONE));
    assert_eq!((to(&first), first.change.unwrap().missed_polls), (Some(A::Submitting), Some(1)));
    let missed = Allocation { missed: 1, ..row(A::Submitting) };
    let second = decide(&missed, &observation(Some(&[]), AccountingReply::NotAsked, NONE));
    assert_eq!(second, AllocationDecision { asks_accounting: true, ..AllocationDecision::default() });
    assert_eq!(
        decide(&missed, &observation(Some(&[]), AccountingReply::NoReply, NONE)),
        AllocationDecision::default()
    );
    let again = AllocationDecision { effects: vec![SlurmEffect::Submit], ..AllocationDecision::default() };
    assert_eq!(decide(&missed, &observation(Some(&[]), AccountingReply::Answered(vec![]), NONE)), again);
    assert_eq!(decide(&missed, &observation(Some(&[]), AccountingReply::Disabled, NONE)), again);
    // It started and ended.
    let gone = accounted(S::Completed, "COMPLETED");
    let change = decide(&missed, &observation(Some(&[]), AccountingReply::Answered(vec![&gone]), NONE))
        .change
        .unwrap();
    assert_eq!((change.to, change.job_id), (A::Ended, Some(Some(8))));
    // No answer in between: the count restarts.
    let reset = decide(&missed, &observation(None, AccountingReply::NotAsked, NONE)).change.unwrap();
    assert_eq!((reset.to, reset.missed_polls), (A::Submitting, Some(0)));
}

#[test]
fn jobs_of_earlier_submissions_are_not_matched() {
    let old = SqueueJob { submitted_at: Some(at(8_000)), ..job(S::Failed) };
    let young = Allocation { submitted_at: Some(at(9_990)), ..row(A::Submitting) };
    let queue = [old];
    assert_eq!(
        decide(&young, &observation(Some(&queue), AccountingReply::NotAsked, NONE)),
        AllocationDecision::default()
    );
    let accounted = SacctJob { submitted_at: Some(at(8_000)), ..accounted(S::Failed, "FAILED") };
    let missed = Allocation { missed: 1, ..row(A::Submitting) };
    let decide =
        decide(&missed, &observation(Some(&queue), AccountingReply::Answered(vec![&accounted]), NONE));
    assert_eq!(decide.effects, [SlurmEffect::Submit]);
}

#[test]
fn unneeded_allocation_is_canceled() {
    let unwanted = |state| Allocation { unwanted: Some("canceled by ann".to_owned()), ..row(state) };
    let withdrawn =
        decide(&unwanted(A::Intended), &observation(None, AccountingReply::NotAsked, NONE)).change.unwrap();
    assert_eq!((withdrawn.to, withdrawn.reason), (A::Withdrawn, Some(Some("canceled by ann".to_owned()))));
    for state in [S::Pending, S::Running] {
        let queue = [job(state)];
        let decide =
            decide(&unwanted(A::Pending), &observation(Some(&queue), AccountingReply::NotAsked, NONE));
        assert_eq!(decide.effects, [SlurmEffect::Cancel(8)], "{state}");
    }
    let queue = [job(S::Completing)];
    let ends = decide(&unwanted(A::Running), &observation(Some(&queue), AccountingReply::NotAsked, NONE));
    assert_eq!(ends.effects, [], "it is being canceled");
    // Certainly never accepted.
    let lost = Allocation { missed: 1, ..unwanted(A::Submitting) };
    assert_eq!(
        to(&decide(&lost, &observation(Some(&[]), AccountingReply::Disabled, NONE))),
        Some(A::Withdrawn)
    );
    // Queued, and not needed any more.
    let queue = [job(S::Pending)];
    let idle = AllocationObservation {
        not_needed_reason: Some("workflow 1 is over"),
        ..observation(Some(&queue), AccountingReply::NotAsked, NONE)
    };
    let over = decide(&row(A::Pending), &idle);
    assert_eq!(
        (over.effects, over.change.unwrap().unwanted_reason.as_deref()),
        (vec![SlurmEffect::Cancel(8)], Some("workflow 1 is over"))
    );
    assert_eq!(to(&decide(&row(A::Intended), &idle)), Some(A::Withdrawn));
    // A running one ends by itself.
    let queue = [job(S::Running)];
    let busy = AllocationObservation { queue: Some(queue.iter().collect()), workers: ALIVE, ..idle };
    assert_eq!(decide(&row(A::Running), &busy).effects, []);
}

#[test]
fn unwanted_allocation_with_a_job_id_is_canceled() {
    for (state, unwanted, expected) in [
        (A::Pending, true, Some(8)),
        (A::Running, true, Some(8)),
        (A::Pending, false, None),
        // Its number is unknown, or it is about to end.
        (A::Intended, true, None),
        (A::Submitting, true, None),
        (A::Completing, true, None),
        (A::Ended, true, None),
    ] {
        let row = Allocation { unwanted: unwanted.then(|| "ann is done".to_owned()), ..row(state) };
        assert_eq!(job_to_cancel(&row), expected, "{state:?} {unwanted}");
    }
}

#[test]
fn allocation_without_worker_is_canceled() {
    let running = |since| SqueueJob { started_at: Some(at(since)), ..job(S::Running) };
    for (since, served_since, workers, acts) in [
        (9_400, 0, NONE, vec![SlurmEffect::Cancel(8)]),
        (9_401, 0, NONE, vec![]),
        (9_000, 0, ALIVE, vec![]),
        (9_000, 0, GONE, vec![]),
        // It began while the server was down.
        (9_000, 9_401, NONE, vec![]),
        (9_000, 9_400, NONE, vec![SlurmEffect::Cancel(8)]),
    ] {
        let queue = [running(since)];
        let seen = observation(Some(&queue), AccountingReply::NotAsked, workers);
        let decide =
            decide(&row(A::Running), &AllocationObservation { served_since: at(served_since), ..seen });
        assert_eq!(decide.effects, acts, "{since} {workers:?}");
        let why = decide.change.and_then(|change| change.unwanted_reason);
        assert_eq!(why.is_some(), !acts.is_empty());
    }
}

#[test]
fn unknown_tagged_jobs_are_stray() {
    let job = |job_id, tag: &str, state| SqueueJob {
        job_id,
        state: Some(state),
        name: tag.to_owned(),
        comment: tag.to_owned(),
        ..SqueueJob::default()
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
        SqueueJob { name: "series".to_owned(), ..job(9, "windlass-5f2a-1", S::Pending) },
    ];
    let known = [
        ("windlass-5f2a-1", TaggedAllocation::Open(Some(1))),
        ("windlass-5f2a-2", TaggedAllocation::Open(None)),
        ("windlass-5f2a-3", TaggedAllocation::Over),
    ];
    let found = find_stray_jobs(&queue, &known.into(), &["windlass-5f2a"].into());
    assert_eq!(found, [2, 4, 6, 9], "a second one, an ended one, an unknown one, one of a series");
}

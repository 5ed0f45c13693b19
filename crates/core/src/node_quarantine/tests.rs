use super::*;
use proptest::prelude::*;

fn well(workflow: i64, job: i64) -> NodeAttemptOutcome {
    NodeAttemptOutcome {
        work: ComparableWork::new(WorkflowId(workflow), &LocationConstraint::default()),
        job: JobId(job),
        failure_class: None,
    }
}

fn badly(workflow: i64, job: i64, class: FailureClass) -> NodeAttemptOutcome {
    NodeAttemptOutcome { failure_class: Some(class), ..well(workflow, job) }
}

fn failed(job: i64) -> NodeAttemptOutcome {
    badly(1, job, FailureClass::Unknown)
}

fn note_all(
    records: &mut NodeAttemptHistory,
    node: &str,
    outcomes: impl IntoIterator<Item = NodeAttemptOutcome>,
) {
    outcomes.into_iter().for_each(|outcome| records.record_attempt(node, outcome));
}

/// Twelve jobs of workflow 1 completed elsewhere.
fn peers() -> NodeAttemptHistory {
    let mut records = NodeAttemptHistory::default();
    note_all(&mut records, "good", (100..106).map(|job| well(1, job)));
    note_all(&mut records, "fine", (106..112).map(|job| well(1, job)));
    records
}

#[test]
fn failing_node_is_quarantined_with_a_reason() {
    let mut records = peers();
    note_all(&mut records, "bad", (1..5).map(failed));
    assert_eq!(records.find_evidence("bad"), None, "four may be coincidence");
    records.record_attempt("bad", failed(5));
    let evidence = records.find_evidence("bad").unwrap();
    assert_eq!(evidence.to_string(), "5 of its last 5 attempts failed; 0 of 12 elsewhere");
    assert_eq!(evidence.jobs, [1, 2, 3, 4, 5].map(JobId));
    assert_eq!(records.find_evidence("good"), None);
    assert_eq!(records.find_evidence("unknown"), None);
}

#[test]
fn node_is_compared_with_peers_on_equal_work() {
    let mut records = peers();
    note_all(&mut records, "bad", [failed(1), failed(2), well(1, 3)]);
    records.record_attempt("good", failed(200));
    records.record_attempt("good", badly(2, 300, FailureClass::Unknown));
    let expected = NodeFailureCounts { failed: 2, ended: 3, peers_failed: 1, peers_ended: 13 };
    assert_eq!(records.failure_counts("bad"), expected, "workflow 2 is not compared");
    assert_eq!(records.failure_counts("unknown"), NodeFailureCounts::default());
}

#[test]
fn completed_jobs_count_in_favor_of_a_node() {
    let mut records = peers();
    note_all(&mut records, "bad", (1..6).map(failed));
    note_all(&mut records, "bad", (6..12).map(|job| well(1, job)));
    assert_eq!(records.find_evidence("bad"), None, "5 of 11");
    note_all(&mut records, "bad", (12..14).map(failed));
    assert!(records.find_evidence("bad").is_some(), "7 of 13");
}

#[test]
fn failures_of_few_jobs_are_no_evidence() {
    let mut records = peers();
    note_all(&mut records, "bad", [1, 2].into_iter().cycle().take(20).map(failed));
    assert_eq!(records.find_evidence("bad"), None);
    records.record_attempt("bad", failed(3));
    assert!(records.find_evidence("bad").is_some());
}

#[test]
fn jobs_failing_elsewhere_are_no_evidence() {
    let mut records = peers();
    note_all(&mut records, "bad", (1..8).map(failed));
    assert!(records.find_evidence("bad").is_some());
    records.record_attempt("good", failed(1));
    records.record_attempt("fine", failed(2));
    assert!(records.find_evidence("bad").is_some(), "five are left");
    records.record_attempt("fine", failed(3));
    assert_eq!(records.find_evidence("bad"), None);
}

#[test]
fn permanent_failures_count_only_if_peers_have_none() {
    for class in [FailureClass::Permanent, FailureClass::Data] {
        let mut records = peers();
        note_all(&mut records, "bad", (1..9).map(|job| badly(1, job, class)));
        assert!(records.find_evidence("bad").is_some(), "a program or a file is missing only here");
        records.record_attempt("good", badly(1, 200, class));
        assert_eq!(records.find_evidence("bad"), None, "{class:?}");
    }
    let mut records = peers();
    note_all(&mut records, "bad", (1..9).map(|job| badly(1, job, FailureClass::Infrastructure)));
    records.record_attempt("good", badly(1, 200, FailureClass::Infrastructure));
    assert!(records.find_evidence("bad").is_some());
}

/// Only this node runs the workflow; results of others with other work do not count.
#[test]
fn workflow_on_a_single_node_is_no_evidence() {
    let mut records = peers();
    note_all(&mut records, "bad", (1..20).map(|job| badly(2, job, FailureClass::Unknown)));
    records.record_attempt("bad", well(1, 300));
    assert_eq!(records.find_evidence("bad"), None);
    note_all(&mut records, "good", (30..32).map(|job| well(2, job)));
    assert_eq!(records.find_evidence("bad"), None, "two are too few");
}

/// Jobs that only nodes with a label get are compared among those nodes.
#[test]
fn nodes_with_other_jobs_are_not_compared() {
    let mut records = peers();
    let labelled = LocationConstraint { labels: vec!["gpu".into()], ..LocationConstraint::default() };
    let work = ComparableWork::new(WorkflowId(1), &labelled);
    note_all(&mut records, "bad", (1..20).map(|job| NodeAttemptOutcome { work, ..failed(job) }));
    assert_eq!(records.find_evidence("bad"), None);
    note_all(&mut records, "good", (30..40).map(|job| NodeAttemptOutcome { work, ..well(1, job) }));
    assert!(records.find_evidence("bad").is_some());
}

#[test]
fn work_failing_everywhere_is_no_evidence() {
    let mut records = peers();
    note_all(&mut records, "good", (200..206).map(failed));
    note_all(&mut records, "bad", (1..20).map(failed));
    assert_eq!(records.find_evidence("bad"), None, "a third fails elsewhere");
}

#[test]
fn released_node_has_no_evidence() {
    let mut records = peers();
    note_all(&mut records, "bad", (1..9).map(failed));
    records.forget_node("bad");
    assert_eq!(records.find_evidence("bad"), None);
    note_all(&mut records, "bad", (1..5).map(failed));
    assert_eq!(records.find_evidence("bad"), None);
    for node in ["bad", "good", "fine"] {
        records.forget_node(node);
    }
    assert!(records.nodes.is_empty() && records.totals.is_empty() && records.failures.is_empty());
}

#[test]
fn quarantine_doubles_each_time() {
    let mut before = None;
    let mut spells = Vec::new();
    for _ in 0..7 {
        before = Some(quarantine_duration(before));
        spells.extend(before.map(|spell| spell.as_secs() / 60));
    }
    assert_eq!(spells, [10, 20, 40, 80, 160, 240, 240]);
    assert_eq!(
        quarantine_duration(Some(Duration::from_secs(1))),
        FIRST_QUARANTINE,
        "a user quarantined it for a moment"
    );
    assert_eq!(quarantine_duration(Some(Duration::MAX)), MAX_QUARANTINE);
}

#[test]
fn expired_quarantine_leads_to_probation() {
    let of = |until: Option<i64>| NodeEligibility::from_quarantine(until.map(Timestamp), Timestamp(100));
    assert_eq!(of(None), NodeEligibility::Trusted);
    assert_eq!(of(Some(101)), NodeEligibility::Quarantined);
    assert_eq!(of(Some(100)), NodeEligibility::OnProbation);
    assert_eq!(of(Some(1)), NodeEligibility::OnProbation);
}

#[test]
fn exceeded_limits_and_stops_are_no_evidence() {
    use AttemptEndCause::{Itself, OutOfMemory, Stopped, Timeout};
    let interrupted = || Stopped(windlass_types::worker_messages::StopReason::Interrupted);
    for (status, cause, expected) in [
        (JobStatus::Completed, Itself, true),
        (JobStatus::Failed, Itself, true),
        (JobStatus::Failed, AttemptEndCause::CannotStart(String::new()), true),
        (JobStatus::Failed, AttemptEndCause::MissingOutputs(Vec::new()), true),
        (JobStatus::Failed, OutOfMemory, false),
        (JobStatus::Failed, Timeout, false),
        (JobStatus::Terminated, Timeout, false),
        (JobStatus::Terminated, interrupted(), false),
        (JobStatus::Canceled, interrupted(), false),
    ] {
        assert_eq!(concerns_node(status, &cause), expected, "{status} {cause:?}");
    }
}

#[test]
fn probe_job_decides_about_a_node_on_probation() {
    let mut records = peers();
    records.record_attempt("good", failed(7));
    let decide = |outcome, is_probe| records.decide_probe("bad", outcome, is_probe);
    assert_eq!(decide(well(1, 8), true), ProbeResult::Passed);
    assert_eq!(
        decide(well(1, 8), false),
        ProbeResult::Unclear,
        "it began before, perhaps before the node became faulty"
    );
    assert_eq!(decide(failed(8), true), ProbeResult::Failed);
    assert_eq!(decide(failed(8), false), ProbeResult::Unclear, "it ran there before");
    assert_eq!(decide(failed(7), true), ProbeResult::Unclear, "it also fails elsewhere");
}

/// Something happens to a node.
#[derive(Clone, Debug)]
enum Step {
    Note(usize, NodeAttemptOutcome),
    Forget(usize),
}

const NODES: [&str; 4] = ["a", "b", "c", "d"];

fn outcome() -> impl Strategy<Value = NodeAttemptOutcome> {
    let class = proptest::option::of(proptest::sample::select(FailureClass::ALL.to_vec()));
    (1i64..4, 1i64..12, class).prop_map(|(workflow, job, failed)| NodeAttemptOutcome {
        failure_class: failed,
        ..well(workflow, workflow * 100 + job)
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..NODES.len(), outcome()).prop_map(|(node, outcome)| Step::Note(node, outcome)),
        1 => (0..NODES.len()).prop_map(Step::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Totals over all nodes equal the sum over the nodes.
    #[test]
    fn totals_match_the_recorded_attempts(steps in proptest::collection::vec(step(), 0..300)) {
        let mut records = NodeAttemptHistory::default();
        for step in steps {
            match step {
                Step::Note(node, outcome) => records.record_attempt(NODES[node], outcome),
                Step::Forget(node) => records.forget_node(NODES[node]),
            }
        }
        let mut done: HashMap<ComparableWork, WorkTotals> = HashMap::new();
        let mut failures: HashMap<JobId, u32> = HashMap::new();
        for outcome in records.nodes.values().flatten() {
            let done = done.entry(outcome.work).or_default();
            done.ended += 1;
            if let Some(class) = outcome.failure_class {
                *done.failed.entry(class).or_default() += 1;
                *failures.entry(outcome.job).or_default() += 1;
            }
        }
        prop_assert_eq!(&records.totals, &done);
        prop_assert_eq!(&records.failures, &failures);
        prop_assert!(records.nodes.values().all(|recent_attempts| recent_attempts.len() <= RECENT_ATTEMPTS));
    }

    /// A quarantined node failed half of what counts, of several jobs, and others did better.
    #[test]
    fn quarantine_requires_evidence(steps in proptest::collection::vec(step(), 0..300)) {
        let mut records = NodeAttemptHistory::default();
        for step in steps {
            if let Step::Note(node, outcome) = step {
                // One node fails more than the others, so that it can be found.
                let failed = if node == 0 { outcome.failure_class } else { outcome.failure_class.filter(|_| outcome.job.0 % 11 == 0) };
                records.record_attempt(NODES[node], NodeAttemptOutcome { failure_class: failed, ..outcome });
            }
        }
        for node in NODES {
            let Some(evidence) = records.find_evidence(node) else { continue };
            prop_assert!(evidence.failed * 2 >= evidence.ended && evidence.ended as usize <= RECENT_ATTEMPTS);
            prop_assert!(evidence.jobs.len() >= MIN_JOBS && evidence.failed >= MIN_FAILED);
            let elsewhere = f64::from(evidence.peers_failed) / f64::from(evidence.peers_ended);
            prop_assert!(elsewhere * 3.0 <= f64::from(evidence.failed) / f64::from(evidence.ended));
            for job in &evidence.jobs {
                let others = records.nodes.iter().filter(|(other, _)| *other != node);
                let mut elsewhere = others.flat_map(|(_, recent_attempts)| recent_attempts);
                prop_assert!(!elsewhere.any(|outcome| outcome.job == *job && outcome.failure_class.is_some()));
            }
        }
    }

    /// The only node is never quarantined.
    #[test]
    fn only_node_is_never_quarantined(outcomes in proptest::collection::vec(outcome(), 0..100)) {
        let mut records = NodeAttemptHistory::default();
        note_all(&mut records, "a", outcomes);
        prop_assert_eq!(records.find_evidence("a"), None);
    }
}

use super::*;
use proptest::prelude::*;

fn well(workflow: i64, job: i64) -> Outcome {
    Outcome { work: Work::of(WorkflowId(workflow), &Place::default()), job: JobId(job), failed: None }
}

fn badly(workflow: i64, job: i64, class: FailureClass) -> Outcome {
    Outcome { failed: Some(class), ..well(workflow, job) }
}

fn failed(job: i64) -> Outcome {
    badly(1, job, FailureClass::Unknown)
}

fn note_all(records: &mut Records, node: &str, outcomes: impl IntoIterator<Item = Outcome>) {
    outcomes.into_iter().for_each(|outcome| records.note(node, outcome));
}

/// Twelve jobs of workflow 1 went well elsewhere.
fn peers() -> Records {
    let mut records = Records::default();
    note_all(&mut records, "good", (100..106).map(|job| well(1, job)));
    note_all(&mut records, "fine", (106..112).map(|job| well(1, job)));
    records
}

#[test]
fn a_node_that_fails_what_others_do_is_set_aside_with_the_reason() {
    let mut records = peers();
    note_all(&mut records, "bad", (1..5).map(failed));
    assert_eq!(records.weigh("bad"), None, "four may be chance");
    records.note("bad", failed(5));
    let evidence = records.weigh("bad").unwrap();
    assert_eq!(evidence.to_string(), "5 of its last 5 attempts failed; 0 of 12 elsewhere");
    assert_eq!(evidence.jobs, [1, 2, 3, 4, 5].map(JobId));
    assert_eq!(records.weigh("good"), None);
    assert_eq!(records.weigh("nobody"), None);
}

#[test]
fn a_node_is_measured_by_those_that_did_the_same_work() {
    let mut records = peers();
    note_all(&mut records, "bad", [failed(1), failed(2), well(1, 3)]);
    records.note("good", failed(200));
    records.note("good", badly(2, 300, FailureClass::Unknown));
    let expected = NodeRecord { failed: 2, ended: 3, peers_failed: 1, peers_ended: 13 };
    assert_eq!(records.record("bad"), expected, "workflow 2 is not its affair");
    assert_eq!(records.record("nobody"), NodeRecord::default());
}

#[test]
fn what_went_well_there_speaks_for_it() {
    let mut records = peers();
    note_all(&mut records, "bad", (1..6).map(failed));
    note_all(&mut records, "bad", (6..12).map(|job| well(1, job)));
    assert_eq!(records.weigh("bad"), None, "5 of 11");
    note_all(&mut records, "bad", (12..14).map(failed));
    assert!(records.weigh("bad").is_some(), "7 of 13");
}

#[test]
fn the_same_few_jobs_say_nothing_about_a_node() {
    let mut records = peers();
    note_all(&mut records, "bad", [1, 2].into_iter().cycle().take(20).map(failed));
    assert_eq!(records.weigh("bad"), None);
    records.note("bad", failed(3));
    assert!(records.weigh("bad").is_some());
}

#[test]
fn jobs_that_fail_elsewhere_too_are_not_the_fault_of_a_node() {
    let mut records = peers();
    note_all(&mut records, "bad", (1..8).map(failed));
    assert!(records.weigh("bad").is_some());
    records.note("good", failed(1));
    records.note("fine", failed(2));
    assert!(records.weigh("bad").is_some(), "five are left");
    records.note("fine", failed(3));
    assert_eq!(records.weigh("bad"), None);
}

#[test]
fn who_blames_the_program_is_believed_where_others_do_so_too() {
    for class in [FailureClass::Permanent, FailureClass::Data] {
        let mut records = peers();
        note_all(&mut records, "bad", (1..9).map(|job| badly(1, job, class)));
        assert!(records.weigh("bad").is_some(), "only here is a program or a file missing");
        records.note("good", badly(1, 200, class));
        assert_eq!(records.weigh("bad"), None, "{class:?}");
    }
    let mut records = peers();
    note_all(&mut records, "bad", (1..9).map(|job| badly(1, job, FailureClass::Infrastructure)));
    records.note("good", badly(1, 200, FailureClass::Infrastructure));
    assert!(records.weigh("bad").is_some());
}

/// Only this node works for it; that others do other work well says nothing.
#[test]
fn a_workflow_that_nobody_else_runs_condemns_nobody() {
    let mut records = peers();
    note_all(&mut records, "bad", (1..20).map(|job| badly(2, job, FailureClass::Unknown)));
    records.note("bad", well(1, 300));
    assert_eq!(records.weigh("bad"), None);
    note_all(&mut records, "good", (30..32).map(|job| well(2, job)));
    assert_eq!(records.weigh("bad"), None, "two are too few");
}

/// Jobs that only nodes with a label get are compared among those.
#[test]
fn who_does_other_jobs_of_the_workflow_is_no_measure() {
    let mut records = peers();
    let labelled = Place { labels: vec!["gpu".into()], ..Place::default() };
    let work = Work::of(WorkflowId(1), &labelled);
    note_all(&mut records, "bad", (1..20).map(|job| Outcome { work, ..failed(job) }));
    assert_eq!(records.weigh("bad"), None);
    note_all(&mut records, "good", (30..40).map(|job| Outcome { work, ..well(1, job) }));
    assert!(records.weigh("bad").is_some());
}

#[test]
fn where_the_work_itself_fails_nobody_is_to_blame() {
    let mut records = peers();
    note_all(&mut records, "good", (200..206).map(failed));
    note_all(&mut records, "bad", (1..20).map(failed));
    assert_eq!(records.weigh("bad"), None, "a third fails elsewhere");
}

#[test]
fn who_begins_anew_has_nothing_against_it() {
    let mut records = peers();
    note_all(&mut records, "bad", (1..9).map(failed));
    records.forget("bad");
    assert_eq!(records.weigh("bad"), None);
    note_all(&mut records, "bad", (1..5).map(failed));
    assert_eq!(records.weigh("bad"), None);
    for node in ["bad", "good", "fine"] {
        records.forget(node);
    }
    assert!(records.nodes.is_empty() && records.done.is_empty() && records.failures.is_empty());
}

#[test]
fn a_spell_is_twice_as_long_each_time() {
    let mut before = None;
    let mut spells = Vec::new();
    for _ in 0..7 {
        before = Some(spell(before));
        spells.extend(before.map(|spell| spell.as_secs() / 60));
    }
    assert_eq!(spells, [10, 20, 40, 80, 160, 240, 240]);
    assert_eq!(spell(Some(Duration::from_secs(1))), FIRST_SPELL, "somebody set it aside for a moment");
    assert_eq!(spell(Some(Duration::MAX)), LONGEST_SPELL);
}

#[test]
fn after_its_time_it_is_on_probation_until_somebody_says_otherwise() {
    let of = |until: Option<i64>| Standing::of(until.map(Timestamp), Timestamp(100));
    assert_eq!(of(None), Standing::Trusted);
    assert_eq!(of(Some(101)), Standing::SetAside);
    assert_eq!(of(Some(100)), Standing::OnProbation);
    assert_eq!(of(Some(1)), Standing::OnProbation);
}

#[test]
fn who_breaks_its_own_limits_or_is_ended_says_nothing_of_the_node() {
    use EndCause::{Itself, OutOfMemory, Stopped, Timeout};
    let interrupted = || Stopped(windlass_types::work::StopReason::Interrupted);
    for (status, cause, expected) in [
        (JobStatus::Completed, Itself, true),
        (JobStatus::Failed, Itself, true),
        (JobStatus::Failed, EndCause::CannotStart(String::new()), true),
        (JobStatus::Failed, EndCause::MissingOutputs(Vec::new()), true),
        (JobStatus::Failed, OutOfMemory, false),
        (JobStatus::Failed, Timeout, false),
        (JobStatus::Terminated, Timeout, false),
        (JobStatus::Terminated, interrupted(), false),
        (JobStatus::Canceled, interrupted(), false),
    ] {
        assert_eq!(is_telling(status, &cause), expected, "{status} {cause:?}");
    }
}

#[test]
fn one_job_decides_about_a_node_on_probation() {
    let mut records = peers();
    records.note("good", failed(7));
    let judge = |outcome, is_probe| records.judge_probe("bad", outcome, is_probe);
    assert_eq!(judge(well(1, 8), true), Probe::Passed);
    assert_eq!(judge(well(1, 8), false), Probe::Unclear, "it began before, perhaps before the node went bad");
    assert_eq!(judge(failed(8), true), Probe::Failed);
    assert_eq!(judge(failed(8), false), Probe::Unclear, "it was there before");
    assert_eq!(judge(failed(7), true), Probe::Unclear, "it fails elsewhere too");
}

/// Something happens to a node.
#[derive(Clone, Debug)]
enum Step {
    Note(usize, Outcome),
    Forget(usize),
}

const NODES: [&str; 4] = ["a", "b", "c", "d"];

fn outcome() -> impl Strategy<Value = Outcome> {
    let class = proptest::option::of(proptest::sample::select(FailureClass::ALL.to_vec()));
    (1i64..4, 1i64..12, class)
        .prop_map(|(workflow, job, failed)| Outcome { failed, ..well(workflow, workflow * 100 + job) })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (0..NODES.len(), outcome()).prop_map(|(node, outcome)| Step::Note(node, outcome)),
        1 => (0..NODES.len()).prop_map(Step::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// What is counted over all nodes is what is remembered of each.
    #[test]
    fn counts_are_those_of_what_is_remembered(steps in proptest::collection::vec(step(), 0..300)) {
        let mut records = Records::default();
        for step in steps {
            match step {
                Step::Note(node, outcome) => records.note(NODES[node], outcome),
                Step::Forget(node) => records.forget(NODES[node]),
            }
        }
        let mut done: HashMap<Work, Done> = HashMap::new();
        let mut failures: HashMap<JobId, u32> = HashMap::new();
        for outcome in records.nodes.values().flatten() {
            let done = done.entry(outcome.work).or_default();
            done.ended += 1;
            if let Some(class) = outcome.failed {
                *done.failed.entry(class).or_default() += 1;
                *failures.entry(outcome.job).or_default() += 1;
            }
        }
        prop_assert_eq!(&records.done, &done);
        prop_assert_eq!(&records.failures, &failures);
        prop_assert!(records.nodes.values().all(|lately| lately.len() <= LATELY));
    }

    /// Whoever is set aside failed half of what counts, of several jobs, and others did better.
    #[test]
    fn nobody_is_set_aside_without_evidence(steps in proptest::collection::vec(step(), 0..300)) {
        let mut records = Records::default();
        for step in steps {
            if let Step::Note(node, outcome) = step {
                // One fails more than the others, so that there is something to see.
                let failed = if node == 0 { outcome.failed } else { outcome.failed.filter(|_| outcome.job.0 % 11 == 0) };
                records.note(NODES[node], Outcome { failed, ..outcome });
            }
        }
        for node in NODES {
            let Some(evidence) = records.weigh(node) else { continue };
            prop_assert!(evidence.failed * 2 >= evidence.ended && evidence.ended as usize <= LATELY);
            prop_assert!(evidence.jobs.len() >= LEAST_JOBS && evidence.failed >= LEAST_FAILED);
            let elsewhere = f64::from(evidence.peers_failed) / f64::from(evidence.peers_ended);
            prop_assert!(elsewhere * 3.0 <= f64::from(evidence.failed) / f64::from(evidence.ended));
            for job in &evidence.jobs {
                let others = records.nodes.iter().filter(|(other, _)| *other != node);
                let mut elsewhere = others.flat_map(|(_, lately)| lately);
                prop_assert!(!elsewhere.any(|outcome| outcome.job == *job && outcome.failed.is_some()));
            }
        }
    }

    /// The only node is never set aside, whatever it does.
    #[test]
    fn the_only_node_is_never_set_aside(outcomes in proptest::collection::vec(outcome(), 0..100)) {
        let mut records = Records::default();
        note_all(&mut records, "a", outcomes);
        prop_assert_eq!(records.weigh("a"), None);
    }
}

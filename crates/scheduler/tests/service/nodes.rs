//! Nodes that fail jobs that succeed elsewhere: quarantine, probation, release.

use crate::kit::{Fixture, Worker, ask, code, ended, plain, someone};
use std::time::Duration;
use windlass_core::node_quarantine::NodeEligibility;
use windlass_store::fault_injection::{DatabaseOperation, InjectedOutcome};
use windlass_store::model::{EventFilter, NodeQuarantineRow};
use windlass_types::worker_messages::{AttemptEndCause, AttemptEndReport, AttemptReport};
use windlass_types::worker_protocol::WorkerRegistration;
use windlass_types::{JobStatus as S, Timestamp, WorkflowId};

const SPELL: Duration = Duration::from_mins(10);

/// A worker on this node, with two CPUs: when one job ends there is another.
fn on(fixture: &Fixture, host: &str) -> Worker {
    Worker::join(fixture, WorkerRegistration { host: host.into(), ..someone(2) })
}

/// Ends its jobs with this code, this many times, and takes new ones.
fn do_some(fixture: &Fixture, worker: &mut Worker, times: usize, code: i32) {
    worker.say(fixture, vec![]).unwrap();
    for _ in 0..times {
        let key = *worker.keys().first().expect("it has a job");
        worker.say(fixture, vec![ended(key, code)]).unwrap();
    }
}

fn aside(fixture: &Fixture) -> Vec<NodeQuarantineRow> {
    fixture.store.quarantined_nodes().unwrap()
}

fn told(fixture: &Fixture, category: &str) -> Vec<String> {
    let filter = EventFilter { category: Some(category.into()), ..EventFilter::default() };
    fixture.store.events(None, &filter).unwrap().into_iter().map(|event| event.message).collect()
}

/// Time passes in one step, as if the service had been stopped: no lease expires.
fn jump(fixture: &Fixture, time: Duration) {
    fixture.hand.advance(time);
    fixture.service.check_time();
}

fn standings(fixture: &Fixture) -> Vec<NodeEligibility> {
    ask(|reply| fixture.service.list_workers(reply)).unwrap().iter().map(|one| one.standing).collect()
}

/// A good node that did its share, and a bad one that was just quarantined. Jobs without handlers: a failure is
/// final.
fn with_bad_node() -> (Fixture, WorkflowId, Worker, Worker) {
    let fixture = Fixture::new();
    let workflow = fixture.begin(&vec![plain(); 100]);
    let (mut good, mut bad) = (on(&fixture, "good"), on(&fixture, "bad"));
    do_some(&fixture, &mut good, 12, 0);
    do_some(&fixture, &mut bad, 4, 1);
    assert_eq!(aside(&fixture), [], "four failures may be chance");
    do_some(&fixture, &mut bad, 1, 1);
    (fixture, workflow, good, bad)
}

/// All its remaining jobs end like this.
fn end_all(fixture: &Fixture, worker: &mut Worker, code: i32) {
    let ends = worker.keys().into_iter().map(|key| ended(key, code)).collect();
    worker.say(fixture, ends).unwrap();
}

#[test]
fn a_bad_node_is_quarantined_with_the_evidence() {
    let (fixture, workflow, mut good, mut bad) = with_bad_node();
    let [row] = &aside(&fixture)[..] else { panic!("it is in quarantine: {:?}", aside(&fixture)) };
    assert_eq!(
        (row.host.as_str(), row.user.as_deref(), row.set_by.as_str()),
        ("bad", Some("me"), "windlass")
    );
    assert_eq!(row.reason, "5 of its last 5 attempts failed; 0 of 12 elsewhere");
    assert_eq!(row.until, row.since.plus(SPELL));
    let evidence = row.evidence.as_ref().unwrap();
    assert_eq!((evidence["failed"].as_u64(), evidence["jobs"].as_array().map(Vec::len)), (Some(5), Some(5)));
    assert!(told(&fixture, "node_quarantined")[0].starts_with("node bad is quarantined until "));
    // Its jobs continue, and count; it gets no more, nor does another worker there.
    let had = bad.keys();
    end_all(&fixture, &mut bad, 0);
    assert!(!had.is_empty() && bad.held.is_empty(), "{had:?}");
    let mut beside = on(&fixture, "bad");
    beside.say(&fixture, vec![]).unwrap();
    assert!(beside.held.is_empty());
    assert_eq!(
        standings(&fixture),
        [NodeEligibility::Trusted, NodeEligibility::Quarantined, NodeEligibility::Quarantined]
    );
    assert_eq!(aside(&fixture).len(), 1, "jobs from before change nothing");
    good.work_off(&fixture);
    let counts = fixture.statuses(workflow);
    assert_eq!(counts.iter().filter(|status| **status == S::Failed).count(), 5);
    assert_eq!(counts.iter().filter(|status| **status == S::Completed).count(), 95);
}

#[test]
fn a_successful_probe_ends_the_quarantine() {
    let (fixture, _, _good, mut bad) = with_bad_node();
    end_all(&fixture, &mut bad, 0);
    let mut beside = Worker::join(&fixture, WorkerRegistration { host: "bad".into(), ..someone(4) });
    jump(&fixture, SPELL);
    assert_eq!(told(&fixture, "node_on_probation").len(), 1);
    beside.say(&fixture, vec![]).unwrap();
    bad.say(&fixture, vec![]).unwrap();
    assert_eq!((beside.held.len(), bad.held.len()), (1, 0), "one for the whole node");
    beside.say(&fixture, vec![]).unwrap();
    assert_eq!(beside.held.len(), 1, "one at a time");
    end_all(&fixture, &mut beside, 0);
    assert_eq!((aside(&fixture), standings(&fixture)), (vec![], vec![NodeEligibility::Trusted; 3]));
    assert!(beside.held.len() >= 4, "it gets its share at once");
    assert!(told(&fixture, "node_released")[0].ends_with("succeeded there"));
}

#[test]
fn jobs_from_before_the_quarantine_do_not_end_it() {
    let (fixture, _, _good, mut bad) = with_bad_node();
    assert!(!bad.held.is_empty(), "it had more");
    jump(&fixture, SPELL);
    assert_eq!(told(&fixture, "node_on_probation").len(), 1);
    end_all(&fixture, &mut bad, 0);
    assert_eq!((aside(&fixture).len(), bad.held.len()), (1, 1), "it gets a probe job");
    end_all(&fixture, &mut bad, 0);
    assert_eq!(aside(&fixture), []);
}

#[test]
fn jobs_that_break_their_own_limits_quarantine_no_node() {
    let fixture = Fixture::new();
    fixture.begin(&vec![plain(); 100]);
    let (mut good, mut bad) = (on(&fixture, "good"), on(&fixture, "bad"));
    do_some(&fixture, &mut good, 12, 0);
    bad.say(&fixture, vec![]).unwrap();
    for _ in 0..8 {
        let key = *bad.keys().first().expect("it has a job");
        let AttemptReport::Ended(end) = ended(key, 137) else { panic!("it is an end") };
        bad.say(
            &fixture,
            vec![AttemptReport::Ended(AttemptEndReport { cause: AttemptEndCause::OutOfMemory, ..end })],
        )
        .unwrap();
    }
    assert_eq!(aside(&fixture), [], "they would fail anywhere");
}

#[test]
fn a_failed_probe_doubles_the_quarantine() {
    let (fixture, _, _good, mut bad) = with_bad_node();
    end_all(&fixture, &mut bad, 0);
    jump(&fixture, SPELL);
    do_some(&fixture, &mut bad, 1, 1);
    assert!(bad.held.is_empty());
    let row = aside(&fixture).remove(0);
    assert_eq!(row.until, row.since.plus(SPELL * 2));
    assert!(row.reason.ends_with("failed there on probation"), "{}", row.reason);
    jump(&fixture, SPELL);
    bad.say(&fixture, vec![]).unwrap();
    assert!(bad.held.is_empty(), "ten minutes are not enough");
    jump(&fixture, SPELL);
    bad.say(&fixture, vec![]).unwrap();
    assert_eq!(bad.held.len(), 1);
}

/// A failure of a job that started before the quarantine proves nothing.
#[test]
fn a_failure_of_an_older_job_decides_nothing() {
    let (fixture, _, _good, mut bad) = with_bad_node();
    assert!(!bad.held.is_empty());
    jump(&fixture, SPELL);
    end_all(&fixture, &mut bad, 1);
    let row = aside(&fixture).remove(0);
    assert_eq!((row.until, bad.held.len()), (row.since.plus(SPELL), 1), "it gets another probe job");
}

#[test]
fn a_restarted_server_knows_the_quarantine() {
    let (mut fixture, _, mut good, mut bad) = with_bad_node();
    let (held, bad_held) = (good.keys(), bad.keys());
    fixture.restart();
    let mut new = on(&fixture, "bad");
    new.say(&fixture, vec![]).unwrap();
    assert!(new.held.is_empty());
    bad.come_back(&fixture, &bad_held);
    end_all(&fixture, &mut bad, 0);
    assert!(bad.held.is_empty());
    good.come_back(&fixture, &held);
    end_all(&fixture, &mut good, 0);
    assert!(!good.held.is_empty());
}

#[test]
fn a_clock_set_back_does_not_prolong_a_quarantine() {
    let (fixture, _, _good, _bad) = with_bad_node();
    fixture.hand.set_wall_clock_back(Duration::from_hours(24));
    jump(&fixture, SPELL.saturating_sub(Duration::from_secs(1)));
    assert_eq!(standings(&fixture), [NodeEligibility::Trusted, NodeEligibility::Quarantined]);
    jump(&fixture, Duration::from_secs(1));
    assert_eq!(standings(&fixture), [NodeEligibility::Trusted, NodeEligibility::OnProbation]);
}

#[test]
fn the_only_node_is_never_quarantined() {
    let fixture = Fixture::new();
    fixture.begin(&vec![plain(); 60]);
    let (mut one, mut two) = (on(&fixture, "only"), on(&fixture, "only"));
    do_some(&fixture, &mut one, 12, 0);
    do_some(&fixture, &mut two, 20, 1);
    assert_eq!(aside(&fixture), []);
    assert!(!two.held.is_empty());
}

#[test]
fn nodes_with_other_labels_are_no_replacement() {
    let fixture = Fixture::new();
    fixture.begin(&vec![plain(); 60]);
    let mut good = on(&fixture, "good");
    do_some(&fixture, &mut good, 12, 0);
    let gpu = WorkerRegistration { host: "other".into(), labels: vec!["gpu".into()], ..someone(1) };
    let _other = Worker::join(&fixture, gpu);
    let mut bad = on(&fixture, "bad");
    good.leaves(&fixture, vec![]);
    do_some(&fixture, &mut bad, 20, 1);
    assert_eq!(aside(&fixture), [], "no other node would do its work");
}

#[test]
fn a_node_without_a_replacement_is_probed_early() {
    let (fixture, _, mut good, mut bad) = with_bad_node();
    end_all(&fixture, &mut bad, 0);
    let rest = good.keys().into_iter().map(|key| ended(key, 0)).collect();
    good.leaves(&fixture, rest);
    fixture.service.check_time();
    fixture.service.check_time();
    assert!(told(&fixture, "node_on_probation")[0].ends_with("no other node can do its work"));
    do_some(&fixture, &mut bad, 1, 1);
    assert_eq!(bad.held.len(), 1, "it continues, one job at a time");
    do_some(&fixture, &mut bad, 1, 0);
    assert_eq!(aside(&fixture), []);
}

#[test]
fn jobs_that_fail_everywhere_quarantine_no_node() {
    let fixture = Fixture::new();
    fixture.begin(&vec![plain(); 80]);
    let (mut one, mut two) = (on(&fixture, "one"), on(&fixture, "two"));
    do_some(&fixture, &mut one, 12, 0);
    do_some(&fixture, &mut one, 8, 1);
    do_some(&fixture, &mut two, 20, 1);
    assert_eq!(aside(&fixture), []);
}

#[test]
fn an_operator_quarantines_and_releases_a_node() {
    let fixture = Fixture::new();
    fixture.begin(&vec![plain(); 10]);
    let mut worker = on(&fixture, "node1");
    let by_hand = |host: &str, until| NodeQuarantineRow {
        host: host.into(),
        user: None,
        since: Timestamp(0),
        until,
        set_by: String::new(),
        reason: "its disk has to be replaced".into(),
        evidence: None,
    };
    let set = |node| ask(|reply| fixture.service.quarantine_node(node, "ann", reply));
    let later = worker_time(&fixture).plus(Duration::from_hours(1));
    for node in [by_hand("", later), by_hand("node1", Timestamp(1))] {
        assert_eq!(code(&set(node).unwrap_err()), "invalid");
    }
    let row = set(by_hand("node1", later)).unwrap();
    assert_eq!((row.set_by.as_str(), &aside(&fixture)[..]), ("ann", std::slice::from_ref(&row)));
    worker.say(&fixture, vec![]).unwrap();
    assert!(worker.held.is_empty(), "although it is the only one: an operator decided so");
    fixture.service.check_time();
    assert_eq!(told(&fixture, "node_on_probation").len(), 0);
    let release = |host| ask(|reply| fixture.service.release_node(host, "bob", reply));
    release("node1").unwrap();
    assert_eq!(told(&fixture, "node_released"), ["node node1 is released from quarantine: requested by bob"]);
    assert_eq!(code(&release("node1").unwrap_err()), "not_found");
    worker.work_off(&fixture);
}

fn worker_time(fixture: &Fixture) -> Timestamp {
    fixture.store.events(None, &EventFilter::default()).unwrap().last().unwrap().at
}

/// Memory and database agree.
#[test]
fn a_quarantine_that_cannot_be_written_is_not_applied() {
    let fixture = Fixture::new();
    fixture.begin(&vec![plain(); 60]);
    let (mut good, mut bad) = (on(&fixture, "good"), on(&fixture, "bad"));
    do_some(&fixture, &mut good, 12, 0);
    do_some(&fixture, &mut bad, 4, 1);
    fixture.next_ones(1, DatabaseOperation::Write, || InjectedOutcome::Failed);
    do_some(&fixture, &mut bad, 1, 1);
    assert_eq!((aside(&fixture), standings(&fixture)), (vec![], vec![NodeEligibility::Trusted; 2]));
    assert!(!bad.held.is_empty());
    do_some(&fixture, &mut bad, 1, 1);
    assert_eq!(aside(&fixture)[0].reason, "6 of its last 6 attempts failed; 0 of 12 elsewhere");
}

/// A worker of another user on this node, with access to the same jobs.
fn of_another(fixture: &Fixture, user: &str, host: &str) -> Worker {
    let who = WorkerRegistration { host: host.into(), ..someone(2) };
    Worker::join_as(fixture, who, user)
}

/// The client that registers a worker states its host.
#[test]
fn failures_on_a_claimed_host_do_not_quarantine_workers_of_other_users() {
    let fixture = Fixture::new();
    fixture.begin(&vec![plain(); 100]);
    let (mut good, mut theirs) = (on(&fixture, "good"), on(&fixture, "node1"));
    do_some(&fixture, &mut good, 12, 0);
    do_some(&fixture, &mut theirs, 2, 0);
    // The same host name, stated by another user, who also has a good node.
    let (mut liar, mut stand_in) =
        (of_another(&fixture, "mallory", "node1"), of_another(&fixture, "mallory", "m"));
    do_some(&fixture, &mut stand_in, 12, 0);
    do_some(&fixture, &mut liar, 5, 1);
    let row = aside(&fixture).remove(0);
    assert_eq!((row.host.as_str(), row.user.as_deref()), ("node1", Some("mallory")));
    do_some(&fixture, &mut theirs, 6, 0);
    assert!(!theirs.held.is_empty(), "it continues as before");
    assert_eq!(standings(&fixture).iter().filter(|one| **one == NodeEligibility::Quarantined).count(), 1);
    ask(|reply| fixture.service.release_node("node1", "ann", reply)).unwrap();
    assert_eq!(aside(&fixture), []);
}

#[test]
fn with_shared_blame_the_whole_host_is_quarantined() {
    let fixture = Fixture::sharing_node_blame();
    fixture.begin(&vec![plain(); 100]);
    let (mut good, mut beside) = (on(&fixture, "good"), on(&fixture, "node1"));
    do_some(&fixture, &mut good, 12, 0);
    beside.say(&fixture, vec![]).unwrap();
    let (mut bad, _stand_in) = (of_another(&fixture, "bob", "node1"), of_another(&fixture, "bob", "b"));
    do_some(&fixture, &mut bad, 5, 1);
    let row = aside(&fixture).remove(0);
    assert_eq!((row.host.as_str(), row.user.as_deref()), ("node1", None));
    end_all(&fixture, &mut beside, 0);
    assert!(beside.held.is_empty(), "although it is another user's");
}

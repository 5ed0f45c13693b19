//! Nodes that fail jobs that succeed elsewhere: quarantine, probation, release.

use crate::kit::{Worker, World, ask, code, ended, plain, someone};
use std::time::Duration;
use windlass_core::node_quarantine::NodeStanding;
use windlass_store::fault_injection::{DatabaseOperation, InjectedOutcome};
use windlass_store::model::{EventFilter, NodeQuarantineRow};
use windlass_types::worker_messages::{AttemptEndCause, AttemptEndReport, AttemptReport};
use windlass_types::worker_protocol::WorkerRegistration;
use windlass_types::{JobStatus as S, Timestamp, WorkflowId};

const SPELL: Duration = Duration::from_mins(10);

/// A worker on this node, with two CPUs: when one job ends there is another.
fn on(world: &World, host: &str) -> Worker {
    Worker::join(world, WorkerRegistration { host: host.into(), ..someone(2) })
}

/// Ends its jobs with this code, this many times, and takes new ones.
fn do_some(world: &World, worker: &mut Worker, times: usize, code: i32) {
    worker.say(world, vec![]).unwrap();
    for _ in 0..times {
        let key = *worker.keys().first().expect("it has a job");
        worker.say(world, vec![ended(key, code)]).unwrap();
    }
}

fn aside(world: &World) -> Vec<NodeQuarantineRow> {
    world.store.quarantined_nodes().unwrap()
}

fn told(world: &World, category: &str) -> Vec<String> {
    let filter = EventFilter { category: Some(category.into()), ..EventFilter::default() };
    world.store.events(None, &filter).unwrap().into_iter().map(|event| event.message).collect()
}

/// Time passes in one step, as if the service had been stopped: no lease expires.
fn jump(world: &World, time: Duration) {
    world.hand.advance(time);
    world.service.check_time();
}

fn standings(world: &World) -> Vec<NodeStanding> {
    ask(|reply| world.service.list_workers(reply)).unwrap().iter().map(|one| one.standing).collect()
}

/// A good node that did its share, and a bad one that was just quarantined. Jobs without handlers: a failure is
/// final.
fn with_bad_node() -> (World, WorkflowId, Worker, Worker) {
    let world = World::new();
    let workflow = world.begin(&vec![plain(); 100]);
    let (mut good, mut bad) = (on(&world, "good"), on(&world, "bad"));
    do_some(&world, &mut good, 12, 0);
    do_some(&world, &mut bad, 4, 1);
    assert_eq!(aside(&world), [], "four failures may be chance");
    do_some(&world, &mut bad, 1, 1);
    (world, workflow, good, bad)
}

/// All its remaining jobs end like this.
fn end_all(world: &World, worker: &mut Worker, code: i32) {
    let ends = worker.keys().into_iter().map(|key| ended(key, code)).collect();
    worker.say(world, ends).unwrap();
}

#[test]
fn a_bad_node_is_quarantined_with_the_evidence() {
    let (world, workflow, mut good, mut bad) = with_bad_node();
    let [row] = &aside(&world)[..] else { panic!("it is in quarantine: {:?}", aside(&world)) };
    assert_eq!(
        (row.host.as_str(), row.user.as_deref(), row.set_by.as_str()),
        ("bad", Some("me"), "windlass")
    );
    assert_eq!(row.reason, "5 of its last 5 attempts failed; 0 of 12 elsewhere");
    assert_eq!(row.until, row.since.after(SPELL));
    let evidence = row.evidence.as_ref().unwrap();
    assert_eq!((evidence["failed"].as_u64(), evidence["jobs"].as_array().map(Vec::len)), (Some(5), Some(5)));
    assert!(told(&world, "node_set_aside")[0].starts_with("node bad is quarantined until "));
    // Its jobs continue, and count; it gets no more, nor does another worker there.
    let had = bad.keys();
    end_all(&world, &mut bad, 0);
    assert!(!had.is_empty() && bad.held.is_empty(), "{had:?}");
    let mut beside = on(&world, "bad");
    beside.say(&world, vec![]).unwrap();
    assert!(beside.held.is_empty());
    assert_eq!(standings(&world), [NodeStanding::Trusted, NodeStanding::SetAside, NodeStanding::SetAside]);
    assert_eq!(aside(&world).len(), 1, "jobs from before change nothing");
    good.work_off(&world);
    let counts = world.statuses(workflow);
    assert_eq!(counts.iter().filter(|status| **status == S::Failed).count(), 5);
    assert_eq!(counts.iter().filter(|status| **status == S::Completed).count(), 95);
}

#[test]
fn a_successful_probe_ends_the_quarantine() {
    let (world, _, _good, mut bad) = with_bad_node();
    end_all(&world, &mut bad, 0);
    let mut beside = Worker::join(&world, WorkerRegistration { host: "bad".into(), ..someone(4) });
    jump(&world, SPELL);
    assert_eq!(told(&world, "node_on_probation").len(), 1);
    beside.say(&world, vec![]).unwrap();
    bad.say(&world, vec![]).unwrap();
    assert_eq!((beside.held.len(), bad.held.len()), (1, 0), "one for the whole node");
    beside.say(&world, vec![]).unwrap();
    assert_eq!(beside.held.len(), 1, "one at a time");
    end_all(&world, &mut beside, 0);
    assert_eq!((aside(&world), standings(&world)), (vec![], vec![NodeStanding::Trusted; 3]));
    assert!(beside.held.len() >= 4, "it gets its share at once");
    assert!(told(&world, "node_released")[0].ends_with("succeeded there"));
}

#[test]
fn jobs_from_before_the_quarantine_do_not_end_it() {
    let (world, _, _good, mut bad) = with_bad_node();
    assert!(!bad.held.is_empty(), "it had more");
    jump(&world, SPELL);
    assert_eq!(told(&world, "node_on_probation").len(), 1);
    end_all(&world, &mut bad, 0);
    assert_eq!((aside(&world).len(), bad.held.len()), (1, 1), "it gets a probe job");
    end_all(&world, &mut bad, 0);
    assert_eq!(aside(&world), []);
}

#[test]
fn jobs_that_break_their_own_limits_quarantine_no_node() {
    let world = World::new();
    world.begin(&vec![plain(); 100]);
    let (mut good, mut bad) = (on(&world, "good"), on(&world, "bad"));
    do_some(&world, &mut good, 12, 0);
    bad.say(&world, vec![]).unwrap();
    for _ in 0..8 {
        let key = *bad.keys().first().expect("it has a job");
        let AttemptReport::Ended(end) = ended(key, 137) else { panic!("it is an end") };
        bad.say(
            &world,
            vec![AttemptReport::Ended(AttemptEndReport { cause: AttemptEndCause::OutOfMemory, ..end })],
        )
        .unwrap();
    }
    assert_eq!(aside(&world), [], "they would fail anywhere");
}

#[test]
fn a_failed_probe_doubles_the_quarantine() {
    let (world, _, _good, mut bad) = with_bad_node();
    end_all(&world, &mut bad, 0);
    jump(&world, SPELL);
    do_some(&world, &mut bad, 1, 1);
    assert!(bad.held.is_empty());
    let row = aside(&world).remove(0);
    assert_eq!(row.until, row.since.after(SPELL * 2));
    assert!(row.reason.ends_with("failed there on probation"), "{}", row.reason);
    jump(&world, SPELL);
    bad.say(&world, vec![]).unwrap();
    assert!(bad.held.is_empty(), "ten minutes are not enough");
    jump(&world, SPELL);
    bad.say(&world, vec![]).unwrap();
    assert_eq!(bad.held.len(), 1);
}

/// A failure of a job that started before the quarantine proves nothing.
#[test]
fn a_failure_of_an_older_job_decides_nothing() {
    let (world, _, _good, mut bad) = with_bad_node();
    assert!(!bad.held.is_empty());
    jump(&world, SPELL);
    end_all(&world, &mut bad, 1);
    let row = aside(&world).remove(0);
    assert_eq!((row.until, bad.held.len()), (row.since.after(SPELL), 1), "it gets another probe job");
}

#[test]
fn a_restarted_server_knows_the_quarantine() {
    let (mut world, _, mut good, mut bad) = with_bad_node();
    let (held, bad_held) = (good.keys(), bad.keys());
    world.restart();
    let mut new = on(&world, "bad");
    new.say(&world, vec![]).unwrap();
    assert!(new.held.is_empty());
    bad.come_back(&world, &bad_held);
    end_all(&world, &mut bad, 0);
    assert!(bad.held.is_empty());
    good.come_back(&world, &held);
    end_all(&world, &mut good, 0);
    assert!(!good.held.is_empty());
}

#[test]
fn a_clock_set_back_does_not_prolong_a_quarantine() {
    let (world, _, _good, _bad) = with_bad_node();
    world.hand.set_wall_clock_back(Duration::from_hours(24));
    jump(&world, SPELL.saturating_sub(Duration::from_secs(1)));
    assert_eq!(standings(&world), [NodeStanding::Trusted, NodeStanding::SetAside]);
    jump(&world, Duration::from_secs(1));
    assert_eq!(standings(&world), [NodeStanding::Trusted, NodeStanding::OnProbation]);
}

#[test]
fn the_only_node_is_never_quarantined() {
    let world = World::new();
    world.begin(&vec![plain(); 60]);
    let (mut one, mut two) = (on(&world, "only"), on(&world, "only"));
    do_some(&world, &mut one, 12, 0);
    do_some(&world, &mut two, 20, 1);
    assert_eq!(aside(&world), []);
    assert!(!two.held.is_empty());
}

#[test]
fn nodes_with_other_labels_are_no_replacement() {
    let world = World::new();
    world.begin(&vec![plain(); 60]);
    let mut good = on(&world, "good");
    do_some(&world, &mut good, 12, 0);
    let gpu = WorkerRegistration { host: "other".into(), labels: vec!["gpu".into()], ..someone(1) };
    let _other = Worker::join(&world, gpu);
    let mut bad = on(&world, "bad");
    good.leaves(&world, vec![]);
    do_some(&world, &mut bad, 20, 1);
    assert_eq!(aside(&world), [], "no other node would do its work");
}

#[test]
fn a_node_without_a_replacement_is_probed_early() {
    let (world, _, mut good, mut bad) = with_bad_node();
    end_all(&world, &mut bad, 0);
    let rest = good.keys().into_iter().map(|key| ended(key, 0)).collect();
    good.leaves(&world, rest);
    world.service.check_time();
    world.service.check_time();
    assert!(told(&world, "node_on_probation")[0].ends_with("no other node can do its work"));
    do_some(&world, &mut bad, 1, 1);
    assert_eq!(bad.held.len(), 1, "it continues, one job at a time");
    do_some(&world, &mut bad, 1, 0);
    assert_eq!(aside(&world), []);
}

#[test]
fn jobs_that_fail_everywhere_quarantine_no_node() {
    let world = World::new();
    world.begin(&vec![plain(); 80]);
    let (mut one, mut two) = (on(&world, "one"), on(&world, "two"));
    do_some(&world, &mut one, 12, 0);
    do_some(&world, &mut one, 8, 1);
    do_some(&world, &mut two, 20, 1);
    assert_eq!(aside(&world), []);
}

#[test]
fn an_operator_quarantines_and_releases_a_node() {
    let world = World::new();
    world.begin(&vec![plain(); 10]);
    let mut worker = on(&world, "node1");
    let by_hand = |host: &str, until| NodeQuarantineRow {
        host: host.into(),
        user: None,
        since: Timestamp(0),
        until,
        set_by: String::new(),
        reason: "its disk has to be replaced".into(),
        evidence: None,
    };
    let set = |node| ask(|reply| world.service.quarantine_node(node, "ann", reply));
    let later = worker_time(&world).after(Duration::from_hours(1));
    for node in [by_hand("", later), by_hand("node1", Timestamp(1))] {
        assert_eq!(code(&set(node).unwrap_err()), "invalid");
    }
    let row = set(by_hand("node1", later)).unwrap();
    assert_eq!((row.set_by.as_str(), &aside(&world)[..]), ("ann", std::slice::from_ref(&row)));
    worker.say(&world, vec![]).unwrap();
    assert!(worker.held.is_empty(), "although it is the only one: an operator decided so");
    world.service.check_time();
    assert_eq!(told(&world, "node_on_probation").len(), 0);
    let release = |host| ask(|reply| world.service.release_node(host, "bob", reply));
    release("node1").unwrap();
    assert_eq!(told(&world, "node_released"), ["node node1 is released from quarantine: requested by bob"]);
    assert_eq!(code(&release("node1").unwrap_err()), "not_found");
    worker.work_off(&world);
}

fn worker_time(world: &World) -> Timestamp {
    world.store.events(None, &EventFilter::default()).unwrap().last().unwrap().at
}

/// Memory and database agree.
#[test]
fn a_quarantine_that_cannot_be_written_is_not_applied() {
    let world = World::new();
    world.begin(&vec![plain(); 60]);
    let (mut good, mut bad) = (on(&world, "good"), on(&world, "bad"));
    do_some(&world, &mut good, 12, 0);
    do_some(&world, &mut bad, 4, 1);
    world.next_ones(1, DatabaseOperation::Write, || InjectedOutcome::Failed);
    do_some(&world, &mut bad, 1, 1);
    assert_eq!((aside(&world), standings(&world)), (vec![], vec![NodeStanding::Trusted; 2]));
    assert!(!bad.held.is_empty());
    do_some(&world, &mut bad, 1, 1);
    assert_eq!(aside(&world)[0].reason, "6 of its last 6 attempts failed; 0 of 12 elsewhere");
}

/// A worker of another user on this node, with access to the same jobs.
fn of_another(world: &World, user: &str, host: &str) -> Worker {
    let who = WorkerRegistration { host: host.into(), ..someone(2) };
    Worker::join_as(world, who, user)
}

/// The client that registers a worker states its host.
#[test]
fn failures_on_a_claimed_host_do_not_quarantine_workers_of_other_users() {
    let world = World::new();
    world.begin(&vec![plain(); 100]);
    let (mut good, mut theirs) = (on(&world, "good"), on(&world, "node1"));
    do_some(&world, &mut good, 12, 0);
    do_some(&world, &mut theirs, 2, 0);
    // The same host name, stated by another user, who also has a good node.
    let (mut liar, mut stand_in) =
        (of_another(&world, "mallory", "node1"), of_another(&world, "mallory", "m"));
    do_some(&world, &mut stand_in, 12, 0);
    do_some(&world, &mut liar, 5, 1);
    let row = aside(&world).remove(0);
    assert_eq!((row.host.as_str(), row.user.as_deref()), ("node1", Some("mallory")));
    do_some(&world, &mut theirs, 6, 0);
    assert!(!theirs.held.is_empty(), "it continues as before");
    assert_eq!(standings(&world).iter().filter(|one| **one == NodeStanding::SetAside).count(), 1);
    ask(|reply| world.service.release_node("node1", "ann", reply)).unwrap();
    assert_eq!(aside(&world), []);
}

#[test]
fn with_shared_blame_the_whole_host_is_quarantined() {
    let world = World::sharing_node_blame();
    world.begin(&vec![plain(); 100]);
    let (mut good, mut beside) = (on(&world, "good"), on(&world, "node1"));
    do_some(&world, &mut good, 12, 0);
    beside.say(&world, vec![]).unwrap();
    let (mut bad, _stand_in) = (of_another(&world, "bob", "node1"), of_another(&world, "bob", "b"));
    do_some(&world, &mut bad, 5, 1);
    let row = aside(&world).remove(0);
    assert_eq!((row.host.as_str(), row.user.as_deref()), ("node1", None));
    end_all(&world, &mut beside, 0);
    assert!(beside.held.is_empty(), "although it is another user's");
}

//! Runs of a real DAGMan, followed to their ends.

use crate::dags::{NODES, set_mode, submit, write_run};
use crate::support::{Pool, Work, eventually};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};
use windlass_htcondor::watch::{
    DagNodeState, DagOutcome, DagPoller, DagSnapshot, DagState, UnitUpdate, find_node_logs,
    list_failed_nodes, list_nodes,
};
use windlass_types::requests::RequestUnitStatus;

/// A run that is polled while a test waits for something.
struct PolledRun {
    watch: DagPoller,
    news: Vec<UnitUpdate>,
}

impl PolledRun {
    fn new(run: &Path, cluster: u64, told: i64) -> Self {
        Self { watch: DagPoller::for_cluster(run, Some(cluster), told), news: Vec::new() }
    }

    fn look(&mut self) -> DagSnapshot {
        let look = self.watch.poll();
        assert_eq!(look.read_error, None);
        self.news.extend_from_slice(&look.units);
        look
    }

    #[track_caller]
    fn until(&mut self, what: &str, holds: impl Fn(&DagSnapshot) -> bool) -> DagSnapshot {
        let mut last = None;
        eventually(what, || holds(last.insert(self.look())));
        last.unwrap()
    }

    #[track_caller]
    fn outcome(&mut self) -> (DagOutcome, DagSnapshot) {
        let look = self.until("the DAG has ended", |look| matches!(look.state, DagState::Over(_)));
        let DagState::Over(outcome) = look.state.clone() else { unreachable!() };
        (outcome, look)
    }

    fn told(&self) -> Vec<(u32, RequestUnitStatus)> {
        self.news.iter().map(|news| (news.number, news.status)).collect()
    }
}

/// How long ago a file was last modified.
#[expect(
    clippy::disallowed_methods,
    reason = "it is compared with the times of files, which have the same clock"
)]
fn since(path: &Path) -> Duration {
    let touched = path.metadata().unwrap().modified().unwrap();
    SystemTime::now().duration_since(touched).unwrap_or_default()
}

#[test]
fn dag_is_followed_from_submission_to_its_end() {
    let pool = Pool::shared();
    let work = pool.work("followed");
    write_run(&work, 2);
    let mut watch = DagPoller::new(work.path());
    assert_eq!(watch.poll().state, DagState::NotYet);
    let cluster = submit(&pool, work.path());
    let mut run = PolledRun::new(work.path(), cluster, 0);
    let latencies = UpdateLatencies::default();
    let look = run.until("the DAG has ended", |look| {
        latencies.note(&work, look);
        matches!(look.state, DagState::Over(_))
    });
    assert_eq!(look.state, DagState::Over(DagOutcome::Completed));
    assert_eq!((look.units_completed, look.units_failed, look.counts.done), (2, 0, 8));
    assert_eq!((look.counts.idle, look.counts.running, look.counts.failed), (0, 0, 0));
    assert_eq!(run.news.len(), 2);
    let views = list_nodes(work.path(), Some(1)).unwrap();
    assert_eq!(views.iter().map(|view| view.name.as_str()).collect::<Vec<_>>(), NODES);
    assert!(
        views
            .iter()
            .all(|view| view.state == DagNodeState::Done && view.attempts == 1 && view.site.is_some())
    );
    assert!(find_node_logs(work.path(), Some(1), "merge").output.is_some());
    // A poller that starts only now returns the same updates with the same numbers.
    let late = watch.poll();
    assert_eq!((late.state, late.units), (look.state, run.news));
    latencies.print();
}

/// The delay between the end of a POST script and its update.
#[derive(Default)]
struct UpdateLatencies(std::cell::RefCell<BTreeMap<String, Duration>>);

impl UpdateLatencies {
    fn note(&self, work: &Work, look: &DagSnapshot) {
        let mut latencies = self.0.borrow_mut();
        for news in &look.units {
            let unit = format!("mg_{:06}", news.number);
            let latency = since(&work.path().join(&unit).join("over"));
            latencies.entry(unit).or_insert(latency);
        }
        for view in list_nodes(work.path(), Some(0)).unwrap() {
            if view.state == DagNodeState::Done {
                let over = work.path().join(format!("mg_000000/{}.over", view.name));
                latencies.entry(format!("mg_000000/{}", view.name)).or_insert_with(|| since(&over));
            }
        }
    }

    #[expect(
        clippy::print_stdout,
        reason = "a figure for people: the delay depends on the pool and is not checked"
    )]
    fn print(&self) {
        for (what, latency) in self.0.borrow().iter() {
            println!("{what}: reported {:.2} s after its end", latency.as_secs_f64());
        }
    }
}

#[test]
fn failed_dag_and_its_rescue_are_followed() {
    let pool = Pool::shared();
    let work = pool.work("rescued");
    write_run(&work, 2);
    set_mode(&work, "mg_000001", "proc_000001", "fail");
    let first = submit(&pool, work.path());
    let mut run = PolledRun::new(work.path(), first, 0);
    let (outcome, look) = run.outcome();
    assert_eq!((outcome, look.units_completed, look.units_failed), (DagOutcome::Failed, 1, 1));
    assert_eq!((look.counts.done, look.counts.failed, look.counts.idle), (6, 1, 1));
    let mut told = run.told();
    told.sort_unstable();
    assert_eq!(told, [(0, RequestUnitStatus::Completed), (1, RequestUnitStatus::Failed)]);
    let failed = list_failed_nodes(work.path()).unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].unit, failed[0].node.as_str()), (Some(1), "proc_000001"));
    assert!(failed[0].details.contains("42"), "{}", failed[0].details);

    set_mode(&work, "mg_000001", "proc_000001", "");
    let read = run.news.last().unwrap().seq;
    let second = submit(&pool, work.path());
    let mut rescue = PolledRun::new(work.path(), second, read);
    let (outcome, look) = rescue.outcome();
    assert_eq!((outcome, look.units_completed, look.units_failed), (DagOutcome::Completed, 2, 0));
    assert_eq!(rescue.told(), [(1, RequestUnitStatus::Completed)], "only new updates");
    assert_eq!(look.counts.done, 8);
    let views = list_nodes(work.path(), Some(1)).unwrap();
    let attempts: Vec<_> = views.iter().map(|view| view.attempts).collect();
    assert_eq!(attempts, [1, 1, 2, 1], "completed units did not run again");
    // A poller for the first cluster gets its outcome, as far as its files still have it.
    assert_eq!(DagPoller::for_cluster(work.path(), Some(first), 0).poll().units.len(), 3);
}

#[test]
fn hold_release_and_removal_are_followed() {
    let pool = Pool::shared();
    let work = pool.work("held");
    write_run(&work, 1);
    set_mode(&work, "mg_000000", "proc_000000", "slow");
    let cluster = submit(&pool, work.path());
    let mut run = PolledRun::new(work.path(), cluster, 0);
    let slow =
        || list_nodes(work.path(), Some(0)).unwrap().into_iter().find(|view| view.name == "proc_000000");
    eventually("the slow node runs", || slow().is_some_and(|view| view.state == DagNodeState::Running));
    eventually("its site is known", || slow().is_some_and(|view| view.site.is_some()));
    let job = slow().unwrap().cluster.unwrap().to_string();

    pool.condor("condor_hold", &["-reason", "to look at it", &job]);
    let look = run.until("the held node is noticed", |look| !look.held_nodes.is_empty());
    assert_eq!((look.held_nodes[0].unit, look.held_nodes[0].node.as_str()), (Some(0), "proc_000000"));
    assert!(look.held_nodes[0].hold.reason.contains("to look at it"), "{:?}", look.held_nodes);
    assert_eq!((look.counts.held, look.state), (1, DagState::Running));
    pool.condor("condor_release", &[&job]);
    run.until("it is released", |look| look.held_nodes.is_empty() && look.counts.held == 0);

    let dagman = cluster.to_string();
    pool.condor("condor_hold", &[&dagman]);
    let look = run.until("DAGMan is held", |look| look.dagman_held.is_some());
    assert_eq!(look.state, DagState::Running);
    eventually("it has stopped", || work.read("workflow.jobstate").contains("DAGMAN_FINISHED 3"));
    assert_eq!(run.look().state, DagState::Running, "it has not ended: it was held");
    pool.condor("condor_release", &[&dagman]);
    run.until("DAGMan continues", |look| look.dagman_held.is_none());
    eventually("it has recovered", || work.read("workflow.jobstate").contains("RECOVERY_FINISHED"));
    assert_eq!(run.look().state, DagState::Running);

    pool.condor("condor_rm", &[&dagman]);
    let (outcome, look) = run.outcome();
    assert_eq!((outcome, look.units_completed, look.units_failed), (DagOutcome::Removed, 0, 0));
    eventually("the unit's DAG has ended, too", || run.look().counts.running == 0);
    assert_eq!(run.look().counts.failed, 0, "stopped units have not failed");
    assert_eq!(list_failed_nodes(work.path()).unwrap(), []);
}

#[test]
fn unit_that_ends_during_a_hold_completes_after_release() {
    let pool = Pool::shared();
    let work = pool.work("recovered");
    write_run(&work, 1);
    set_mode(&work, "mg_000000", "landing", "wait");
    let cluster = submit(&pool, work.path());
    let mut run = PolledRun::new(work.path(), cluster, 0);
    let landing =
        || list_nodes(work.path(), Some(0)).unwrap().into_iter().find(|view| view.name == "landing");
    eventually("the landing runs", || landing().is_some_and(|view| view.state == DagNodeState::Running));
    let dagman = cluster.to_string();
    pool.condor("condor_hold", &[&dagman]);
    run.until("DAGMan is held", |look| look.dagman_held.is_some());
    std::fs::remove_file(work.path().join("mg_000000/landing.mode")).unwrap();
    eventually("the unit's DAG has ended", || work.path().join("mg_000000/group.dag.metrics").exists());
    let look = run.look();
    assert_eq!(
        (look.state, look.units_completed),
        (DagState::Running, 0),
        "DAGMan has to start its POST script"
    );
    pool.condor("condor_release", &[&dagman]);
    let (outcome, look) = run.outcome();
    assert_eq!((outcome, look.counts.done), (DagOutcome::Completed, 4));
    assert_eq!(run.told(), [(0, RequestUnitStatus::Completed)]);
    assert!(work.read("workflow.jobstate").contains("RECOVERY_FINISHED"));
}

#[test]
fn abort_of_a_node_reaches_the_outer_dag() {
    let pool = Pool::shared();
    let work = pool.work("aborted");
    write_run(&work, 2);
    set_mode(&work, "mg_000000", "proc_000000", "slow");
    set_mode(&work, "mg_000001", "proc_000001", "abort");
    let cluster = submit(&pool, work.path());
    let mut run = PolledRun::new(work.path(), cluster, 0);
    let (outcome, look) = run.outcome();
    assert_eq!((outcome, look.units_completed), (DagOutcome::Aborted, 0));
    assert_eq!(run.told(), [(1, RequestUnitStatus::Failed)], "the other one was stopped");
    let failed: Vec<_> =
        list_failed_nodes(work.path()).unwrap().into_iter().map(|node| (node.unit, node.node)).collect();
    assert_eq!(failed, [(Some(1), "proc_000001".to_owned())]);
}

#[test]
fn rejected_dag_reports_its_reason() {
    let pool = Pool::shared();
    let work = pool.work("unaccepted");
    work.write("workflow.dag", "JOB a a.sub\nHAUL a ashore\nJOBSTATE_LOG workflow.jobstate\n");
    let cluster = submit(&pool, work.path());
    let (outcome, _) = PolledRun::new(work.path(), cluster, 0).outcome();
    let DagOutcome::Broken(reason) = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("workflow.dag (line 2)"), "{reason}");
}

//! Examples; properties are in `tests/`.

use super::*;
use std::time::Duration;
use windlass_types::{Bytes, Capacity, Resources};

fn asks(cpus: u32, memory: u64, gpus: u32, minutes: u64) -> Resources {
    Resources {
        cpus,
        memory: Bytes(memory),
        gpus,
        nodes: 1,
        runtime: Some(Duration::from_secs(60 * minutes)),
    }
}

fn worker(cpus: u32, memory: u64, gpus: u32) -> Capacity {
    Capacity { cpus, memory: Bytes(memory), gpus, nodes: 1, max_jobs: None }
}

fn queue(jobs: &[(u32, u32, i32)], classes: &[Resources]) -> ReadyQueue {
    let mut ready = ReadyQueue::new(classes);
    for &(job, class, priority) in jobs {
        ready.push(job, class, priority);
    }
    ready
}

fn drain(mut ready: ReadyQueue) -> Vec<u32> {
    std::iter::from_fn(|| ready.pop_fitting(|_| JobFit::Now)).collect()
}

#[test]
fn job_longer_than_the_time_left_is_not_taken() {
    let classes = [Resources::DEFAULT, asks(1, 1, 0, 5), asks(1, 1, 0, 60)];
    let ready = queue(&[(0, 2, 9), (1, 1, 0), (2, 0, 0)], &classes);
    let mut usage = WorkerUsage::new(worker(8, 1 << 30, 0));
    usage.limit_time(Duration::from_mins(10));
    let mut left = ready.clone();
    assert_eq!(usage.take_jobs(&mut left, 0), [2, 1], "jobs without a runtime are not limited");
    assert_eq!(left.len(), 1);
    let mut usage = WorkerUsage::new(worker(8, 1 << 30, 0));
    usage.limit_time(Duration::from_mins(10));
    assert!(!usage.take_alone(0, &classes[2].into()) && usage.take_alone(1, &classes[1].into()));
}

#[test]
fn jobs_are_ordered_by_priority_demand_and_age() {
    let classes =
        [asks(1, 10, 0, 1), asks(1, 10, 1, 1), asks(1, 10, 0, 9), asks(1, 99, 0, 1), asks(8, 10, 0, 1)];
    let jobs =
        [(0, 0, 0), (1, 4, 0), (2, 3, 0), (3, 2, 0), (4, 1, 0), (5, 0, 7), (6, 1, 0), (7, 0, 0), (8, 0, 9)];
    assert_eq!(drain(queue(&jobs, &classes)), [8, 5, 4, 6, 3, 2, 1, 0, 7]);
}

#[test]
fn new_demand_class_is_sorted_among_the_others() {
    let mut ready = queue(&[(0, 0, 0), (1, 1, 0)], &[asks(1, 10, 0, 1), asks(1, 10, 0, 9)]);
    let between = ready.add_demand(asks(1, 10, 0, 5));
    ready.push(2, between, 0);
    let first = ready.add_demand(asks(1, 10, 1, 1));
    ready.push(3, first, 0);
    ready.push(4, between, 7);
    assert_eq!(drain(ready), [4, 3, 1, 2, 0]);
}

#[test]
fn smaller_jobs_fill_the_gaps() {
    let classes = [asks(3, 10, 0, 9), asks(1, 10, 0, 1)];
    let mut ready = queue(&[(0, 0, 0), (1, 0, 0), (2, 1, 0), (3, 1, 0)], &classes);
    let mut usage = WorkerUsage::new(worker(4, 100, 0));
    assert_eq!(usage.take_jobs(&mut ready, 0), [0, 2], "3 + 1 of 4 CPUs; the second large one waits");
    usage.remove(0);
    assert_eq!(usage.take_jobs(&mut ready, 0), [1]);
    assert_eq!(ready.len(), 1);
}

#[test]
fn memory_gpus_and_max_jobs_limit_claims() {
    let classes = [asks(1, 60, 0, 1), asks(1, 1, 1, 1)];
    let ready = queue(&[(0, 0, 0), (1, 0, 0), (2, 1, 0), (3, 1, 0)], &classes);
    assert_eq!(WorkerUsage::new(worker(8, 100, 1)).take_jobs(&mut ready.clone(), 0), [2, 0]);
    let one_at_a_time = Capacity { max_jobs: Some(1), ..worker(8, 100, 1) };
    assert_eq!(WorkerUsage::new(one_at_a_time).take_jobs(&mut ready.clone(), 0), [2]);
    let mut uncounted =
        queue(&[(0, 0, 0), (1, 0, 0), (2, 0, 0), (3, 0, 0)], &[Resources::DEFAULT_WITHOUT_CPUS]);
    let many = Capacity { max_jobs: Some(3), ..worker(1, 1, 0) };
    assert_eq!(WorkerUsage::new(many).take_jobs(&mut uncounted, 0), [0, 1, 2]);
}

#[test]
fn multi_node_job_has_its_nodes_exclusively() {
    let two_nodes = Resources { nodes: 2, ..asks(1, 1, 0, 9) };
    let classes = [two_nodes, asks(1, 1, 0, 1)];
    let mut usage = WorkerUsage::new(Capacity { nodes: 3, ..worker(2, 10, 0) });
    let mut ready = queue(&[(0, 0, 0), (1, 1, 0), (2, 1, 0), (3, 1, 0)], &classes);
    assert_eq!(
        usage.take_jobs(&mut ready, 0),
        [0, 1, 2],
        "two nodes exclusively, two small jobs on the third"
    );
    usage.remove(0);
    assert_eq!(usage.take_jobs(&mut ready, 0), [3]);
    assert!(!usage.pool().could_hold(&Resources { nodes: 4, ..two_nodes }));
}

#[test]
fn large_job_is_not_starved() {
    let classes = [asks(2, 1, 0, 9), asks(1, 1, 0, 1)];
    let mut usage = WorkerUsage::new(worker(2, 1000, 0));
    let mut ready = queue(&[(9999, 1, 0)], &classes);
    assert_eq!(usage.take_jobs(&mut ready, 0), [9999]);
    ready.push(10_000, 0, 5);
    for small in 0..500 {
        ready.push(small, 1, 0);
    }
    let mut started_before = 0;
    loop {
        let started = usage.take_jobs(&mut ready, 0);
        if started.contains(&10_000) {
            break;
        }
        started_before += started.len();
        // Small jobs always overlap, so that the two CPUs are never free together by chance.
        let running: Vec<u32> = usage.held_jobs().collect();
        usage.remove(*running.iter().max().unwrap());
    }
    assert_eq!(started_before, BYPASS_LIMIT as usize);
}

#[test]
fn queued_jobs_start_in_order() {
    let classes = [asks(2, 1, 0, 9), asks(1, 1, 0, 1), asks(16, 1, 0, 1)];
    let mut usage = WorkerUsage::new(worker(2, 1000, 0));
    let mut ready = queue(&[(0, 1, 9), (1, 1, 8), (2, 1, 7), (3, 1, 6), (4, 2, 99)], &classes);
    assert_eq!(usage.take_jobs(&mut ready, 1), [0, 1, 2], "0 and 1 start, 2 waits; 4 can never run here");
    assert_eq!((usage.running(), usage.queued()), (2, 1));
    usage.remove(0);
    assert_eq!((usage.running(), usage.queued()), (2, 0));
    usage.remove(2);
    usage.remove(1);
    assert!(usage.is_idle());
}

#[test]
fn large_job_is_not_queued_ahead_of_small_ones() {
    let classes = [asks(2, 1, 0, 9), asks(1, 1, 0, 1)];
    let mut usage = WorkerUsage::new(worker(2, 1000, 0));
    let mut ready = queue(&[(0, 1, 0), (1, 1, 0), (2, 1, 0), (3, 1, 0)], &classes);
    assert_eq!(usage.take_jobs(&mut ready, 1), [0, 1, 2]);
    ready.push(9, 0, 99);
    usage.remove(0);
    assert_eq!(
        usage.take_jobs(&mut ready, 1),
        [3],
        "9 waits until both CPUs are free, and is not in the worker's queue"
    );
    usage.remove(1);
    usage.remove(2);
    usage.remove(3);
    assert_eq!(usage.take_jobs(&mut ready, 1), [9]);
}

#[test]
fn isolated_job_has_the_worker_to_itself() {
    let classes = [asks(1, 1, 0, 1)];
    let mut usage = WorkerUsage::new(worker(4, 1000, 0));
    let mut ready = queue(&[(0, 0, 0)], &classes);
    usage.take_jobs(&mut ready, 0);
    assert!(!usage.take_alone(7, &classes[0].into()));
    usage.remove(0);
    assert!(usage.take_alone(7, &classes[0].into()));
    usage.remove(7);
    assert!(usage.is_idle());
}

#[test]
fn labels_are_required_and_schedulers_preferred() {
    let place = |labels: &[&str], scheduler| LocationConstraint {
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        scheduler,
        ..LocationConstraint::default()
    };
    let labels = |labels: &[&str]| WorkerSelector::default().with_labels(place(labels, None).labels);
    let only_worker =
        |labels: &[&str]| WorkerSelector::default().with_labels_of_only_worker(place(labels, None).labels);
    assert_eq!(only_worker(&["gpu"]).missing_labels(&place(&["big", "gpu"], None)), ["big"]);
    for (selector, place, suits) in [
        (WorkerSelector::default(), place(&["gpu"], Some(1)), true),
        (labels(&[]), place(&[], None), true),
        (labels(&[]), place(&["gpu"], None), false),
        (labels(&["gpu"]), place(&[], None), false),
        (labels(&["gpu", "big"]), place(&["gpu"], None), true),
        (labels(&["gpu"]), place(&["big", "gpu"], None), false),
        (labels(&[]).with_scheduler(Some(1)), place(&[], None), true),
        (labels(&[]).with_scheduler(Some(1)), place(&[], Some(1)), true),
        (labels(&[]).with_scheduler(Some(1)), place(&[], Some(2)), false),
        (labels(&[]).with_scheduler(None), place(&[], Some(2)), false),
        (only_worker(&[]), place(&["gpu"], None), false),
        (only_worker(&["gpu"]), place(&[], None), true),
        (only_worker(&["gpu"]), place(&["gpu"], None), true),
        (only_worker(&["gpu"]), place(&["big", "gpu"], None), false),
    ] {
        assert_eq!(selector.accepts_location(&place), suits, "{selector:?} and {place:?}");
    }
}

#[test]
fn job_runs_at_any_of_its_sites() {
    let place = |sites: &[&str], elects| LocationConstraint {
        sites: sites.iter().map(|site| (*site).to_owned()).collect(),
        elects,
        ..LocationConstraint::default()
    };
    let at = |site| WorkerSelector::default().at_site(site);
    let closed = |site| {
        let mut selector = at(Some(site));
        selector.set_accepts_elections(false);
        selector
    };
    for (selector, place, suits) in [
        (WorkerSelector::default(), place(&["a"], true), true),
        (at(Some("a")), place(&[], false), true),
        (at(Some("a")), place(&["a", "b"], true), true),
        (at(Some("c")), place(&["a", "b"], false), false),
        (at(None), place(&[], false), true),
        (at(None), place(&["a"], false), false),
        (at(None), place(&[], true), false),
        (closed("a"), place(&["a"], false), true),
        (closed("a"), place(&["a"], true), false),
        (closed("a"), place(&[], true), false),
    ] {
        assert_eq!(selector.accepts_location(&place), suits, "{selector:?} and {place:?}");
    }
}

#[test]
fn class_at_its_job_limit_is_skipped() {
    let limited = JobDemand {
        location: LocationConstraint { limit: Some("few".into()), ..LocationConstraint::default() },
        ..asks(1, 1, 0, 9).into()
    };
    let mut ready = ReadyQueue::new(&[limited, asks(1, 1, 0, 1).into()]);
    let limit = ready.add_limit(1);
    ready.apply_limit(0, limit);
    for job in 0..4 {
        ready.push(job, u32::from(job >= 2), 0);
    }
    let mut usage = WorkerUsage::new(worker(8, 10, 0));
    assert_eq!(usage.take_jobs(&mut ready, 0), [0, 2, 3], "one limited job, then the others");
    assert!(ready.is_all_blocked() && !ready.is_empty());
    assert_eq!(ready.top_priority(&WorkerSelector::default()), None);
    ready.push(4, 0, 7);
    assert_eq!(
        ready.pop_oldest(&WorkerSelector::default()),
        None,
        "also jobs that arrive while the limit is exhausted"
    );
    ready.leave_limits_except(0, None);
    assert_eq!(ready.top_priority(&WorkerSelector::default()), Some(7));
    assert_eq!(usage.take_jobs(&mut ready, 0), [4]);
    assert!(ready.remove(1, 0) && ready.is_empty());
}

#[test]
fn worker_takes_matching_jobs_up_to_its_share() {
    let gpu = LocationConstraint { labels: vec!["gpu".into()], ..LocationConstraint::default() };
    let demand =
        |place: &LocationConstraint| JobDemand { location: place.clone(), ..asks(1, 1, 0, 1).into() };
    let mut ready = ReadyQueue::new(&[demand(&LocationConstraint::default()), demand(&gpu)]);
    for job in 0..6 {
        ready.push(job, job % 2, 0);
    }
    let mut usage: WorkerUsage =
        WorkerUsage::with_selector(worker(8, 10, 0), WorkerSelector::default().with_labels(gpu.labels));
    let share = ClaimLimits { max_jobs: 2, queue_ahead: 0 };
    assert_eq!(usage.take_jobs_within(&mut ready, share, |job| job), [1, 3]);
    assert_eq!(
        usage.take_jobs_within(&mut ready, share, |job| job),
        [5],
        "the others are not for this worker"
    );
    assert_eq!(ready.pop_oldest(&WorkerSelector::default()), Some(0));
}

#[test]
fn oldest_of_highest_priority_is_taken_regardless_of_resources() {
    let mut ready =
        queue(&[(0, 0, 0), (1, 1, 5), (2, 0, 5), (3, 1, 0)], &[asks(1, 1, 0, 1), asks(9, 9, 9, 9)]);
    let order: Vec<u32> = std::iter::from_fn(|| ready.pop_oldest(&WorkerSelector::default())).collect();
    assert_eq!(order, [1, 2, 0, 3]);
}

#[test]
fn unchecked_jobs_use_resources() {
    let mut usage = WorkerUsage::new(worker(1, 10, 0));
    usage.take_unchecked(0, &asks(1, 1, 0, 1).into());
    usage.take_unchecked(1, &asks(1, 1, 0, 1).into());
    assert!(usage.is_running(0) && !usage.is_running(1));
    usage.remove(0);
    assert!(usage.is_running(1));
}

#[test]
fn job_that_never_fits_does_not_block_others() {
    let classes = [asks(16, 1, 0, 9), asks(1, 1, 0, 1)];
    let mut usage = WorkerUsage::new(worker(1, 1000, 0));
    let mut ready = queue(&[(0, 0, 9)], &classes);
    for small in 1..300 {
        ready.push(small, 1, 0);
        assert_eq!(usage.take_jobs(&mut ready, 0), [small]);
        usage.remove(small);
    }
    assert_eq!(ready.len(), 1);
}

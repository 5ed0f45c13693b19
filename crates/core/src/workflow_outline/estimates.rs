//! Times of an outline: the critical path, the width of the workflow, and its duration on a given machine.

use super::{MakespanEstimate, OutlineJob, OutlineRequest};
use crate::dependency_graph::{DependencyCycle, JobDependencyGraph};
use crate::dispatch::{ReadyQueue, WorkerUsage};
use crate::topological_order::TopologicalOrder;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;
use windlass_types::{Bytes, Capacity, Resources};

const NO_JOB: u32 = u32::MAX;
/// Resources of a reused job.
const NO_RESOURCES: Resources = Resources { cpus: 0, memory: Bytes(0), ..Resources::DEFAULT };

/// The critical path, and the largest number of jobs and CPUs that run at once.
pub(super) struct OutlineTimes {
    pub(super) critical_path: Vec<u32>,
    pub(super) critical_time: Duration,
    pub(super) width: u32,
    pub(super) width_cpus: u64,
}

impl OutlineTimes {
    pub(super) fn new(request: &OutlineRequest<'_>, order: &TopologicalOrder) -> Self {
        let (ends, latest) = earliest_ends(request, order);
        // The first of those that end last, so that the result does not depend on the traversal.
        let last = (0..request.jobs).rev().max_by_key(|&job| ends[job as usize]);
        let mut critical_path = Vec::new();
        let mut at = last.unwrap_or(NO_JOB);
        while at != NO_JOB {
            if !order.is_group(at) {
                critical_path.push(at);
            }
            at = latest[at as usize];
        }
        critical_path.reverse();
        let (width, width_cpus) = peak_usage(request, &ends);
        let critical_time = last.map_or(Duration::ZERO, |job| ends[job as usize]);
        Self { critical_path, critical_time, width, width_cpus }
    }
}

/// Returns when each node ends with unlimited resources, and which predecessor ended last.
fn earliest_ends(request: &OutlineRequest<'_>, order: &TopologicalOrder) -> (Vec<Duration>, Vec<u32>) {
    let mut ends = vec![Duration::ZERO; order.len()];
    let mut latest = vec![NO_JOB; order.len()];
    for &node in order.sorted() {
        let last = order.predecessors(node).iter().copied().rev().max_by_key(|&before| ends[before as usize]);
        let start = last.map_or(Duration::ZERO, |before| ends[before as usize]);
        latest[node as usize] = last.unwrap_or(NO_JOB);
        ends[node as usize] =
            if order.is_group(node) { start } else { start + job_length(&(request.facts)(node)) };
    }
    (ends, latest)
}

/// A job has a positive length: otherwise it would overlap no other.
fn job_length(facts: &OutlineJob<'_>) -> Duration {
    facts.expected_runtime().max(Duration::from_micros(1))
}

/// Returns the maximum number of concurrent jobs and CPUs if every job starts as early as possible.
fn peak_usage(request: &OutlineRequest<'_>, ends: &[Duration]) -> (u32, u64) {
    let mut events = Vec::with_capacity(2 * request.jobs as usize);
    for job in 0..request.jobs {
        let facts = (request.facts)(job);
        if facts.is_reused {
            continue;
        }
        let cpus = i64::from(facts.resources.cpus) * i64::from(facts.resources.nodes.max(1));
        let end = ends[job as usize];
        events.push((end.saturating_sub(job_length(&facts)), 1, cpus));
        events.push((end, -1, -cpus));
    }
    // Ends at an instant come before starts: -1 sorts first.
    events.sort_unstable();
    let (mut jobs, mut cpus, mut most_jobs, mut most_cpus) = (0i64, 0i64, 0, 0);
    for (_, more_jobs, more_cpus) in events {
        jobs += more_jobs;
        cpus += more_cpus;
        most_jobs = most_jobs.max(jobs);
        most_cpus = most_cpus.max(cpus);
    }
    (most_jobs as u32, most_cpus as u64)
}

/// Simulates the workflow with the scheduler's queue and placement.
pub(super) fn estimate_makespan(
    request: &OutlineRequest<'_>,
    capacity: Capacity,
) -> Result<MakespanEstimate, DependencyCycle> {
    let mut graph = JobDependencyGraph::new(request.jobs, request.edges)?;
    let (classes, class_of) = resource_classes(request);
    let mut ready = ReadyQueue::new(&classes);
    let mut usage = WorkerUsage::new(capacity);
    let mut running = BinaryHeap::new();
    let push = |ready: &mut ReadyQueue, job: u32| {
        ready.push(job, class_of[job as usize], (request.facts)(job).priority);
    };
    (0..request.jobs).filter(|&job| graph.is_unblocked(job)).for_each(|job| push(&mut ready, job));
    let (mut now, mut done) = (Duration::ZERO, 0);
    loop {
        for job in usage.take_jobs(&mut ready, 0) {
            running.push((Reverse(now + (request.facts)(job).expected_runtime()), Reverse(job)));
        }
        let Some((Reverse(end), Reverse(job))) = running.pop() else { break };
        now = end;
        done += 1;
        usage.remove(job);
        graph.finish_job(job, true, |freed, _| push(&mut ready, freed));
    }
    Ok(MakespanEstimate { capacity, makespan: now, never: request.jobs - done })
}

/// Returns the distinct requests, and the index of each job's request.
fn resource_classes(request: &OutlineRequest<'_>) -> (Vec<Resources>, Vec<u32>) {
    let mut known = FxHashMap::default();
    let mut classes = Vec::new();
    let class_of = (0..request.jobs).map(|job| {
        let facts = (request.facts)(job);
        let resources = if facts.is_reused { NO_RESOURCES } else { facts.resources };
        *known.entry(resources).or_insert_with(|| {
            classes.push(resources);
            classes.len() as u32 - 1
        })
    });
    let class_of = class_of.collect();
    (classes, class_of)
}

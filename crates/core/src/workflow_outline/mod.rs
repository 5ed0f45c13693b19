//! A workflow at a glance: stages, groups of like jobs, what depends on what, and how long it should take.
//!
//! Made for a million jobs: jobs of one spec entry are one line, and the work is proportional to the jobs and to the
//! entries of [`Edges`], not to the pairs that gates stand for. The lines are in [`groups`], the times in [`time`].

mod estimates;
mod groups;

use crate::edges::DependencyEdges;
use crate::graph::DependencyCycle;
use crate::topological_order::TopologicalOrder;
use serde::Serialize;
use std::time::Duration;
use windlass_types::{Capacity, Resources};

/// What an outline needs to know of one job.
#[derive(Clone, Copy, Debug)]
pub struct JobFacts<'a> {
    pub name: &'a str,
    /// The spec entry that it was made from: index into [`Request::kinds`]. Without one, jobs whose names differ only
    /// in their digits count as alike.
    pub entry: Option<u32>,
    pub resources: Resources,
    pub priority: i32,
    /// How long it took before. Without it the runtime asked for counts.
    pub measured_runtime: Option<Duration>,
    /// Its result is there already: it takes no time and no place.
    pub is_reused: bool,
}

impl JobFacts<'_> {
    /// How long it should take.
    pub fn expected_runtime(&self) -> Duration {
        self.measured_runtime.or(self.resources.runtime).unwrap_or(Resources::ASSUMED_RUNTIME)
    }

    fn is_guess(&self) -> bool {
        self.measured_runtime.is_none() && self.resources.runtime.is_none()
    }
}

/// One line per spec entry and stage, or one per job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlineGrain {
    Entries,
    Jobs,
}

#[derive(Clone, Copy)]
pub struct OutlineRequest<'a> {
    pub jobs: u32,
    pub edges: &'a DependencyEdges,
    /// Names of the spec entries, as written: `solve_{nu}`.
    pub entries: &'a [&'a str],
    pub facts: &'a dyn Fn(u32) -> JobFacts<'a>,
    pub grain: OutlineGrain,
    /// Where it would run; without it no estimate of the whole is made.
    pub capacity: Option<Capacity>,
}

impl std::fmt::Debug for OutlineRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("jobs", &self.jobs)
            .field("grain", &self.grain)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkflowOutline {
    pub jobs: u32,
    /// Pairs of jobs of which one waits for the other.
    pub dependencies: u64,
    pub stages: Vec<OutlineStage>,
    pub groups: Vec<OutlineGroup>,
    pub links: Vec<OutlineLink>,
    /// The group of each job.
    #[serde(skip)]
    pub group_of: Vec<u32>,
    pub critical_path: Vec<CriticalStep>,
    /// How long the critical path takes: no machine is quicker than this.
    #[serde(rename = "critical_seconds", serialize_with = "serialize_seconds")]
    pub critical_time: Duration,
    pub cpu_hours: f64,
    /// Jobs at once, if there were room for all.
    pub width: u32,
    /// CPUs at once, if there were room for all.
    pub width_cpus: u64,
    /// Jobs that say nothing of their runtime; each counts as [`Resources::UNSAID_RUNTIME`].
    pub guessed_runtimes: u32,
    pub estimate: Option<MakespanEstimate>,
}

/// Jobs that can start after equally many others; several such levels in a row if they look the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutlineStage {
    /// Counted from 1.
    pub first: u32,
    pub last: u32,
    pub jobs: u32,
    /// Indices into [`Outline::groups`].
    pub groups: Vec<u32>,
}

/// Jobs of one spec entry in one stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutlineGroup {
    /// The name of its only job, or what the names have in common.
    pub label: String,
    /// Index into [`Outline::stages`].
    pub stage: u32,
    pub jobs: u32,
    /// One of its jobs that start first.
    pub first_job: u32,
    /// The most that any of them asks for, of each.
    pub resources: Resources,
    /// The longest that any of them should take.
    #[serde(rename = "longest_seconds", serialize_with = "serialize_seconds")]
    pub longest: Duration,
    pub cpu_hours: f64,
    /// Holds a job of the critical path.
    pub is_critical: bool,
    /// Its jobs wait for each other.
    pub is_chain: bool,
}

/// Jobs of one group wait for jobs of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OutlineLink {
    pub from: u32,
    pub to: u32,
    pub pairs: u64,
    pub shape: LinkShape,
    /// The critical path runs along it.
    pub is_critical: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkShape {
    /// Each waits for all.
    All,
    /// Each waits for its own one.
    OneToOne,
    Some,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CriticalStep {
    pub job: u32,
    pub name: String,
    #[serde(rename = "expected_seconds", serialize_with = "serialize_seconds")]
    pub expected: Duration,
}

/// How the whole would go on a given machine, dispatched as we dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MakespanEstimate {
    pub capacity: Capacity,
    #[serde(rename = "makespan_seconds", serialize_with = "serialize_seconds")]
    pub makespan: Duration,
    /// Jobs that would never run: too large for the machine, or behind one that is.
    pub never: u32,
}

pub fn outline_workflow(request: &OutlineRequest<'_>) -> Result<WorkflowOutline, DependencyCycle> {
    let order = TopologicalOrder::new(request.jobs, request.edges)?;
    let times = estimates::OutlineTimes::new(request, &order);
    let lines = groups::OutlineLines::new(request, &order, &times.critical_path);
    let facts = |job| (request.facts)(job);
    let all = || (0..request.jobs).map(facts);
    let step = |&job: &u32| {
        let facts = facts(job);
        CriticalStep { job, name: facts.name.to_owned(), expected: facts.expected_runtime() }
    };
    let estimate = match request.capacity {
        Some(capacity) => Some(estimates::estimate_makespan(request, capacity)?),
        None => None,
    };
    Ok(WorkflowOutline {
        jobs: request.jobs,
        dependencies: lines.dependencies,
        stages: lines.stages,
        groups: lines.groups,
        links: lines.links,
        group_of: lines.group_of,
        critical_path: times.critical_path.iter().map(step).collect(),
        critical_time: times.critical_time,
        cpu_hours: all().map(|facts| cpu_hours(&facts)).sum(),
        width: times.width,
        width_cpus: times.width_cpus,
        guessed_runtimes: all().filter(JobFacts::is_guess).count() as u32,
        estimate,
    })
}

fn cpu_hours(facts: &JobFacts<'_>) -> f64 {
    let Resources { cpus, nodes, .. } = facts.resources;
    f64::from(cpus) * f64::from(nodes.max(1)) * facts.expected_runtime().as_secs_f64() / 3600.0
}

fn serialize_seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[cfg(test)]
mod tests;

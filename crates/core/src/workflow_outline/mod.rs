//! Outline of a workflow: stages, groups of similar jobs, links, and expected duration.
//!
//! Scales to a million jobs: jobs of one spec entry are one line, and the work is proportional to the jobs and
//! to the entries of [`DependencyEdges`], not to the pairs that they represent. Lines are made in [`groups`],
//! times in [`estimates`].

mod estimates;
mod groups;

use crate::dependency_edges::DependencyEdges;
use crate::dependency_graph::DependencyCycle;
use crate::topological_order::TopologicalOrder;
use serde::Serialize;
use std::time::Duration;
use windlass_types::{Capacity, Resources};

/// Properties of one job for the outline.
#[derive(Clone, Copy, Debug)]
pub struct OutlineJob<'a> {
    pub name: &'a str,
    /// Index of its spec entry in [`OutlineRequest::entries`]. Without one, jobs whose names differ only in
    /// digits are similar.
    pub entry: Option<u32>,
    pub resources: Resources,
    pub priority: i32,
    /// Measured runtime. Without it the requested runtime counts.
    pub measured_runtime: Option<Duration>,
    /// Its result is reused: it takes no time and no resources.
    pub is_reused: bool,
}

impl OutlineJob<'_> {
    /// Returns the expected runtime.
    pub fn expected_runtime(&self) -> Duration {
        self.measured_runtime.or(self.resources.runtime).unwrap_or(Resources::ASSUMED_RUNTIME)
    }

    fn is_estimated(&self) -> bool {
        self.measured_runtime.is_none() && self.resources.runtime.is_none()
    }
}

/// One line per spec entry and stage, or one per job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlineGranularity {
    Entries,
    Jobs,
}

#[derive(Clone, Copy)]
pub struct OutlineRequest<'a> {
    pub jobs: u32,
    pub edges: &'a DependencyEdges,
    /// Names of the spec entries, as written: `solve_{nu}`.
    pub entries: &'a [&'a str],
    pub facts: &'a dyn Fn(u32) -> OutlineJob<'a>,
    pub grain: OutlineGranularity,
    /// The machine; without it the total duration is not estimated.
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
    /// Number of pairs of dependent jobs.
    pub dependencies: u64,
    pub stages: Vec<OutlineStage>,
    pub groups: Vec<OutlineGroup>,
    pub links: Vec<OutlineLink>,
    /// The group of each job.
    #[serde(skip)]
    pub group_of: Vec<u32>,
    pub critical_path: Vec<CriticalStep>,
    /// Duration of the critical path: the minimum on any machine.
    #[serde(rename = "critical_seconds", serialize_with = "serialize_seconds")]
    pub critical_time: Duration,
    pub cpu_hours: f64,
    /// Maximum number of concurrent jobs with unlimited resources.
    pub width: u32,
    /// Maximum number of concurrent CPUs with unlimited resources.
    pub width_cpus: u64,
    /// Jobs without a runtime; each counts as [`Resources::ASSUMED_RUNTIME`].
    pub guessed_runtimes: u32,
    pub estimate: Option<MakespanEstimate>,
}

/// Jobs of the same level; or several consecutive similar levels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutlineStage {
    /// From 1.
    pub first: u32,
    pub last: u32,
    pub jobs: u32,
    /// Indices into [`WorkflowOutline::groups`].
    pub groups: Vec<u32>,
}

/// Jobs of one spec entry in one stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutlineGroup {
    /// The name of its only job, or the common pattern of the names.
    pub label: String,
    /// Index into [`WorkflowOutline::stages`].
    pub stage: u32,
    pub jobs: u32,
    /// One of its jobs in the first level.
    pub first_job: u32,
    /// Maximum of each resource over its jobs.
    pub resources: Resources,
    /// Maximum expected runtime.
    #[serde(rename = "longest_seconds", serialize_with = "serialize_seconds")]
    pub longest: Duration,
    pub cpu_hours: f64,
    /// Contains a job of the critical path.
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
    /// Part of the critical path.
    pub is_critical: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkShape {
    /// Each waits for all.
    All,
    /// Each waits for one.
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

/// Estimate of the workflow on a given machine, with the scheduler's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MakespanEstimate {
    pub capacity: Capacity,
    #[serde(rename = "makespan_seconds", serialize_with = "serialize_seconds")]
    pub makespan: Duration,
    /// Jobs that would never run: too large for the machine, or dependents of such jobs.
    pub never: u32,
}

pub fn outline_workflow(request: &OutlineRequest<'_>) -> Result<WorkflowOutline, DependencyCycle> {
    let order = TopologicalOrder::new(request.jobs, request.edges)?;
    let times = estimates::OutlineTimes::new(request, &order);
    let lines = groups::GroupedOutline::new(request, &order, &times.critical_path);
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
        guessed_runtimes: all().filter(OutlineJob::is_estimated).count() as u32,
        estimate,
    })
}

fn cpu_hours(facts: &OutlineJob<'_>) -> f64 {
    let Resources { cpus, nodes, .. } = facts.resources;
    f64::from(cpus) * f64::from(nodes.max(1)) * facts.expected_runtime().as_secs_f64() / 3600.0
}

fn serialize_seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[cfg(test)]
mod tests;

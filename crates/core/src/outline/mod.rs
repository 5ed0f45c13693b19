//! A workflow at a glance: stages, groups of like jobs, what depends on what, and how long it should take.
//!
//! Made for a million jobs: jobs of one spec entry are one line, and the work is proportional to the jobs and to the
//! entries of [`Edges`], not to the pairs that gates stand for. The lines are in [`groups`], the times in [`time`].

mod groups;
mod time;

use crate::edges::Edges;
use crate::graph::Cycle;
use crate::order::Order;
use serde::Serialize;
use std::time::Duration;
use windlass_types::{Capacity, Resources};

/// What an outline needs to know of one job.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub name: &'a str,
    /// The spec entry that it was made from: index into [`Request::kinds`]. Without one, jobs whose names differ only
    /// in their digits count as alike.
    pub kind: Option<u32>,
    pub resources: Resources,
    pub priority: i32,
    /// How long it took before. Without it the runtime asked for counts.
    pub measured: Option<Duration>,
    /// Its result is there already: it takes no time and no place.
    pub is_reused: bool,
}

impl Facts<'_> {
    /// How long it should take.
    pub fn expected(&self) -> Duration {
        self.measured.or(self.resources.runtime).unwrap_or(Resources::UNSAID_RUNTIME)
    }

    fn is_guess(&self) -> bool {
        self.measured.is_none() && self.resources.runtime.is_none()
    }
}

/// One line per spec entry and stage, or one per job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    Kinds,
    Jobs,
}

#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub jobs: u32,
    pub edges: &'a Edges,
    /// Names of the spec entries, as written: `solve_{nu}`.
    pub kinds: &'a [&'a str],
    pub facts: &'a dyn Fn(u32) -> Facts<'a>,
    pub grain: Grain,
    /// Where it would run; without it no estimate of the whole is made.
    pub capacity: Option<Capacity>,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("jobs", &self.jobs)
            .field("grain", &self.grain)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outline {
    pub jobs: u32,
    /// Pairs of jobs of which one waits for the other.
    pub dependencies: u64,
    pub stages: Vec<Stage>,
    pub groups: Vec<Group>,
    pub links: Vec<Link>,
    /// The group of each job.
    #[serde(skip)]
    pub group_of: Vec<u32>,
    pub critical_path: Vec<Step>,
    /// How long the critical path takes: no machine is quicker than this.
    #[serde(rename = "critical_seconds", serialize_with = "seconds")]
    pub critical_time: Duration,
    pub cpu_hours: f64,
    /// Jobs at once, if there were room for all.
    pub width: u32,
    /// CPUs at once, if there were room for all.
    pub width_cpus: u64,
    /// Jobs that say nothing of their runtime; each counts as [`Resources::UNSAID_RUNTIME`].
    pub guessed_runtimes: u32,
    pub estimate: Option<Estimate>,
}

/// Jobs that can start after equally many others; several such levels in a row if they look the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stage {
    /// Counted from 1.
    pub first: u32,
    pub last: u32,
    pub jobs: u32,
    /// Indices into [`Outline::groups`].
    pub groups: Vec<u32>,
}

/// Jobs of one spec entry in one stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
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
    #[serde(rename = "longest_seconds", serialize_with = "seconds")]
    pub longest: Duration,
    pub cpu_hours: f64,
    /// Holds a job of the critical path.
    pub is_critical: bool,
    /// Its jobs wait for each other.
    pub is_chain: bool,
}

/// Jobs of one group wait for jobs of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
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
pub struct Step {
    pub job: u32,
    pub name: String,
    #[serde(rename = "expected_seconds", serialize_with = "seconds")]
    pub expected: Duration,
}

/// How the whole would go on a given machine, dispatched as we dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Estimate {
    pub capacity: Capacity,
    #[serde(rename = "makespan_seconds", serialize_with = "seconds")]
    pub makespan: Duration,
    /// Jobs that would never run: too large for the machine, or behind one that is.
    pub never: u32,
}

pub fn outline(request: &Request<'_>) -> Result<Outline, Cycle> {
    let order = Order::new(request.jobs, request.edges)?;
    let times = time::Times::new(request, &order);
    let lines = groups::Lines::new(request, &order, &times.critical_path);
    let facts = |job| (request.facts)(job);
    let all = || (0..request.jobs).map(facts);
    let step = |&job: &u32| {
        let facts = facts(job);
        Step { job, name: facts.name.to_owned(), expected: facts.expected() }
    };
    let estimate = match request.capacity {
        Some(capacity) => Some(time::estimate(request, capacity)?),
        None => None,
    };
    Ok(Outline {
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
        guessed_runtimes: all().filter(Facts::is_guess).count() as u32,
        estimate,
    })
}

fn cpu_hours(facts: &Facts<'_>) -> f64 {
    let Resources { cpus, nodes, .. } = facts.resources;
    f64::from(cpus) * f64::from(nodes.max(1)) * facts.expected().as_secs_f64() / 3600.0
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}

#[cfg(test)]
mod tests;

//! Sizing: requested and used resources, for `resources check`, `resources correct` and `tune`.
//!
//! Jobs are evaluated by group (a spec entry, or a resource requirement). A request is increased as soon as one
//! attempt needs more, and reduced only on good evidence: every job of the group has a result, none failed, and
//! the savings are worth it.

mod usage_statistics;

pub use usage_statistics::UsageStatistics;

use serde::Serialize;
use std::fmt;
use std::time::Duration;
use windlass_types::worker_messages::return_code;
use windlass_types::{Bytes, JobStatus, Resources, format_duration, format_exact_size, format_iso_duration};

/// One attempt, from the database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttemptObservation {
    pub status: JobStatus,
    pub return_code: i32,
    pub wall: Duration,
    pub peak_memory: Option<Bytes>,
    /// 100 is one busy core.
    pub peak_cpu_percent: Option<f64>,
    pub avg_cpu_percent: Option<f64>,
}

impl AttemptObservation {
    fn ran_out_of_memory(&self) -> bool {
        self.return_code == return_code::OUT_OF_MEMORY
    }

    fn ran_out_of_time(&self) -> bool {
        self.return_code == return_code::TIMEOUT || self.status == JobStatus::Terminated
    }
}

/// Jobs with the same request.
#[derive(Clone, Copy, Debug)]
pub struct SizingGroup<'a> {
    pub name: &'a str,
    pub asked: Resources,
    pub jobs: u32,
    /// The newest attempt of each job, if any.
    pub observations: &'a [AttemptObservation],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizingRules {
    pub memory_multiplier: f64,
    pub cpu_multiplier: f64,
    pub runtime_multiplier: f64,
    pub downsize: bool,
}

impl Default for SizingRules {
    fn default() -> Self {
        Self { memory_multiplier: 1.2, cpu_multiplier: 1.2, runtime_multiplier: 1.2, downsize: true }
    }
}

/// Minimum saving for which a request is reduced.
const MEMORY_WORTH_SAVING: u64 = 1 << 30;
const CPU_PERCENT_WORTH_SAVING: f64 = 5.0;
/// Samples of a busy core vary around 100 %: only values this far above count as a second core.
pub(crate) const CPU_PERCENT_NOISE: f64 = 25.0;
const RUNTIME_WORTH_SAVING: Duration = Duration::from_mins(30);

const GIB: f64 = 1_073_741_824.0;

/// Minimum request.
const MIN_MEMORY: Bytes = Bytes(1 << 20);
const MIN_RUNTIME: Duration = Duration::from_mins(1);

/// What a group requested, what it used, and what it should request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupSizing {
    pub name: String,
    pub jobs: u32,
    /// Number of evaluated attempts.
    pub runs: u32,
    pub failed: u32,
    pub asked: Resources,
    /// In bytes.
    pub memory: Option<UsageStatistics>,
    /// In percent of one core.
    pub cpu_percent: Option<UsageStatistics>,
    /// In seconds.
    pub runtime: Option<UsageStatistics>,
    /// Resources used beyond the request, or ended because of it.
    pub excesses: Vec<ResourceExcess>,
    pub changes: Vec<ResourceChange>,
    /// Why nothing is reduced although it could be.
    pub kept: Option<KeepReason>,
    /// Requested by the evaluated runs but not used.
    pub waste: ResourceSavings,
    /// What the changes free.
    pub savings: ResourceSavings,
}

impl GroupSizing {
    /// Returns the proposed request.
    pub fn proposed(&self) -> Resources {
        let mut resources = self.asked;
        for change in &self.changes {
            match change.to {
                ResourceAmount::Memory(memory) => resources.memory = memory,
                ResourceAmount::Cpus(cpus) => resources.cpus = cpus,
                ResourceAmount::Runtime(runtime) => resources.runtime = Some(runtime),
            }
        }
        resources
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    Memory,
    Cpus,
    Runtime,
}

impl ResourceKind {
    /// The field of a spec that holds it.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpus => "num_cpus",
            Self::Runtime => "runtime",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceAmount {
    Memory(Bytes),
    Cpus(u32),
    Runtime(Duration),
}

impl ResourceAmount {
    pub const fn resource(self) -> ResourceKind {
        match self {
            Self::Memory(_) => ResourceKind::Memory,
            Self::Cpus(_) => ResourceKind::Cpus,
            Self::Runtime(_) => ResourceKind::Runtime,
        }
    }

    /// As written in a spec: `3g`, `4`, `PT1H30M`.
    pub fn to_spec_text(self) -> String {
        match self {
            Self::Memory(bytes) => format_exact_size(bytes),
            Self::Cpus(cpus) => cpus.to_string(),
            Self::Runtime(runtime) => format_iso_duration(runtime),
        }
    }
}

impl fmt::Display for ResourceAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory(bytes) => f.pad(&bytes.to_string()),
            Self::Cpus(1) => f.pad("1 cpu"),
            Self::Cpus(cpus) => f.pad(&format!("{cpus} cpus")),
            Self::Runtime(runtime) => f.pad(&format_duration(*runtime)),
        }
    }
}

/// Attempts that used more than requested.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResourceExcess {
    pub resource: ResourceKind,
    pub runs: u32,
    /// Number of those that were ended because of it.
    pub ended: u32,
    /// Maximum use divided by the request; `None` if not measured.
    pub worst: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResourceChange {
    /// `None`: nothing was requested.
    pub from: Option<ResourceAmount>,
    pub to: ResourceAmount,
    pub is_less: bool,
    /// For people, and for the comment in a spec: "largest of 812 runs was 2.1 GiB (p95 1.9 GiB)".
    pub evidence: String,
}

/// Why a request is not reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepReason {
    /// Disabled by the user.
    NotWanted,
    SomeWithoutResult,
    SomeFailed,
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NotWanted => "--no-downsize: nothing is reduced",
            Self::SomeWithoutResult => "not reduced before every job of the group has a result",
            Self::SomeFailed => "not reduced while jobs of the group have failed",
        })
    }
}

/// Resources times runtime, summed over the jobs of a group. Negative if more is used, or requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ResourceSavings {
    pub cpu_hours: f64,
    pub gib_hours: f64,
}

/// Evaluates one group.
pub fn size_group(class: &SizingGroup<'_>, rules: &SizingRules) -> GroupSizing {
    let runs = class.observations;
    let memory =
        UsageStatistics::from_values(runs.iter().filter_map(|run| run.peak_memory).map(|peak| peak.0 as f64));
    let cpu_percent = UsageStatistics::from_values(runs.iter().filter_map(|run| run.peak_cpu_percent));
    let runtime = UsageStatistics::from_values(runs.iter().map(|run| run.wall.as_secs_f64()));
    let failed = runs.iter().filter(|run| run.status != JobStatus::Completed).count() as u32;
    let needs = [
        plan_memory(class, memory.as_ref(), rules),
        plan_cpus(class, cpu_percent.as_ref(), rules),
        plan_runtime(class, runtime.as_ref(), rules),
    ];
    let kept = match () {
        () if !rules.downsize => Some(KeepReason::NotWanted),
        () if (runs.len() as u32) < class.jobs => Some(KeepReason::SomeWithoutResult),
        () if failed > 0 => Some(KeepReason::SomeFailed),
        () => None,
    };
    let (less, more): (Vec<ResourceChange>, Vec<ResourceChange>) =
        needs.into_iter().flatten().partition(|change| change.is_less);
    let kept = kept.filter(|_| !less.is_empty());
    let changes = if kept.is_none() { [more, less].concat() } else { more };
    let mut sizing = GroupSizing {
        name: class.name.to_owned(),
        jobs: class.jobs,
        runs: runs.len() as u32,
        failed,
        asked: class.asked,
        memory,
        cpu_percent,
        runtime,
        excesses: find_excesses(class),
        changes,
        kept,
        waste: compute_waste(class),
        savings: ResourceSavings::default(),
    };
    sizing.savings = compute_savings(&sizing);
    sizing
}

fn plan_memory(
    class: &SizingGroup<'_>,
    used: Option<&UsageStatistics>,
    rules: &SizingRules,
) -> Option<ResourceChange> {
    let asked = class.asked.memory;
    let ended = class.observations.iter().filter(|run| run.ran_out_of_memory()).count();
    let measured = used.map_or(0.0, |used| used.max * rules.memory_multiplier);
    // A job killed at its limit shows the limit, not the need.
    let blind = if ended > 0 { asked.0 as f64 * rules.memory_multiplier } else { 0.0 };
    let to = usage_statistics::round_memory(measured.max(blind)).max(MIN_MEMORY);
    let is_less = to < asked;
    let is_worth_changing = asked.0.saturating_sub(to.0) > MEMORY_WORTH_SAVING;
    let over = ended > 0 || used.is_some_and(|used| used.max > asked.0 as f64);
    if (used.is_none() && ended == 0) || (is_less && !is_worth_changing) || (!is_less && !over) {
        return None;
    }
    let evidence = match used {
        Some(used) => {
            let [p95, max] = [used.p95, used.max].map(|bytes| Bytes(bytes as u64).to_string());
            describe_evidence(used.runs, &max, &p95, ended, "ran out of memory")
        }
        None => format!("{ended} ran out of memory"),
    };
    Some(ResourceChange {
        from: Some(ResourceAmount::Memory(asked)),
        to: ResourceAmount::Memory(to),
        is_less,
        evidence,
    })
}

fn plan_cpus(
    class: &SizingGroup<'_>,
    used: Option<&UsageStatistics>,
    rules: &SizingRules,
) -> Option<ResourceChange> {
    let used = used?;
    let asked = class.asked.cpus;
    let cores = used.max / 100.0 * rules.cpu_multiplier;
    let to = usage_statistics::round_up(cores).clamp(1, u64::from(u32::MAX)) as u32;
    let is_less = to < asked;
    let is_worth_changing = f64::from(asked) * 100.0 - f64::from(to) * 100.0 > CPU_PERCENT_WORTH_SAVING;
    let over = used.max > f64::from(asked) * 100.0 + CPU_PERCENT_NOISE;
    if to == asked || (is_less && !is_worth_changing) || (!is_less && !over) {
        return None;
    }
    let [p95, max] = [used.p95, used.max].map(|percent| format!("{percent:.0} %"));
    let evidence = describe_evidence(used.runs, &max, &p95, 0, "");
    Some(ResourceChange {
        from: Some(ResourceAmount::Cpus(asked)),
        to: ResourceAmount::Cpus(to),
        is_less,
        evidence,
    })
}

fn plan_runtime(
    class: &SizingGroup<'_>,
    used: Option<&UsageStatistics>,
    rules: &SizingRules,
) -> Option<ResourceChange> {
    let used = used?;
    let asked = class.asked.runtime?;
    let ended = class.observations.iter().filter(|run| run.ran_out_of_time()).count();
    let measured = used.max * rules.runtime_multiplier;
    let blind = if ended > 0 { asked.as_secs_f64() * rules.runtime_multiplier } else { 0.0 };
    let to = usage_statistics::round_runtime(measured.max(blind)).max(MIN_RUNTIME);
    let is_less = to < asked;
    let is_worth_changing = asked.saturating_sub(to) > RUNTIME_WORTH_SAVING;
    let over = ended > 0 || used.max > asked.as_secs_f64();
    if to == asked || (is_less && !is_worth_changing) || (!is_less && !over) {
        return None;
    }
    let [p95, max] = [used.p95, used.max].map(|seconds| format_duration(Duration::from_secs_f64(seconds)));
    let evidence = describe_evidence(used.runs, &max, &p95, ended, "ran out of time");
    Some(ResourceChange {
        from: Some(ResourceAmount::Runtime(asked)),
        to: ResourceAmount::Runtime(to),
        is_less,
        evidence,
    })
}

fn describe_evidence(runs: u32, max: &str, p95: &str, ended: usize, why: &str) -> String {
    let ended = if ended > 0 { format!("; {ended} {why}") } else { String::new() };
    match runs {
        1 => format!("the only run used {max}{ended}"),
        runs => format!("p95 of {runs} runs is {p95}, the largest {max}{ended}"),
    }
}

/// Finds resources used beyond the request.
fn find_excesses(class: &SizingGroup<'_>) -> Vec<ResourceExcess> {
    let asked = &class.asked;
    let memory =
        |run: &AttemptObservation| ratio(run.peak_memory.map(|peak| peak.0 as f64), asked.memory.0 as f64);
    let cpus = |run: &AttemptObservation| ratio(run.peak_cpu_percent, f64::from(asked.cpus) * 100.0);
    let limit = asked.runtime.map_or(0.0, |runtime| runtime.as_secs_f64());
    let time = |run: &AttemptObservation| ratio(Some(run.wall.as_secs_f64()), limit);
    let never = |_: &AttemptObservation| false;
    [
        find_excess(ResourceKind::Memory, class, memory, AttemptObservation::ran_out_of_memory),
        find_excess(ResourceKind::Cpus, class, cpus, never),
        find_excess(ResourceKind::Runtime, class, time, AttemptObservation::ran_out_of_time),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn ratio(used: Option<f64>, asked: f64) -> Option<f64> {
    used.filter(|_| asked > 0.0).map(|used| used / asked)
}

fn find_excess(
    resource: ResourceKind,
    class: &SizingGroup<'_>,
    ratio: impl Fn(&AttemptObservation) -> Option<f64>,
    ended: impl Fn(&AttemptObservation) -> bool,
) -> Option<ResourceExcess> {
    let over = |run: &&AttemptObservation| ended(run) || ratio(run).is_some_and(|ratio| ratio > 1.0);
    let runs = class.observations.iter().filter(over).count() as u32;
    let ended = class.observations.iter().filter(|run| ended(run)).count() as u32;
    let worst = class.observations.iter().filter_map(&ratio).max_by(f64::total_cmp);
    (runs > 0).then_some(ResourceExcess { resource, runs, ended, worst })
}

/// Computes measured resources that were requested but not used.
fn compute_waste(class: &SizingGroup<'_>) -> ResourceSavings {
    let mut waste = ResourceSavings::default();
    for run in class.observations {
        let hours = run.wall.as_secs_f64() / 3600.0;
        if let Some(percent) = run.avg_cpu_percent {
            waste.cpu_hours += (f64::from(class.asked.cpus) - percent / 100.0) * hours;
        }
        if let Some(peak) = run.peak_memory {
            waste.gib_hours += (class.asked.memory.0 as f64 - peak.0 as f64) / GIB * hours;
        }
    }
    waste
}

/// Requests are held while the jobs run, so savings are weighted with the runtime.
fn compute_savings(sizing: &GroupSizing) -> ResourceSavings {
    let mean_hours = sizing.runtime.as_ref().map_or(0.0, |runtime| runtime.mean) / 3600.0;
    let held = mean_hours * f64::from(sizing.jobs);
    let proposed = sizing.proposed();
    let gib = (sizing.asked.memory.0 as f64 - proposed.memory.0 as f64) / GIB;
    ResourceSavings {
        cpu_hours: (f64::from(sizing.asked.cpus) - f64::from(proposed.cpus)) * held,
        gib_hours: gib * held,
    }
}

#[cfg(test)]
mod tests;

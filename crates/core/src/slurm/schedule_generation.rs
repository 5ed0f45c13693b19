//! Generation of schedulers and actions for groups of jobs, and checks whether hand-written ones can ever
//! start.

use super::allocation_capacity::AllocationCapacity;
use super::allocation_groups::{
    AllocationDemand, AllocationGroup, AllocationOptions, UnfitDemand, add_reserve_note, group_demands,
};
use super::cluster_profile::{ClusterProfile, Partition};
use super::partition_fit::{NoFittingPartition, PartitionRequest, PartitionShortage, find_shortages};
use std::collections::BTreeSet;
use std::time::Duration;
use windlass_types::settings::{ActionTrigger, ActionType, SlurmScheduler, WorkflowAction};
use windlass_types::{Bytes, Resources};

/// A scheduler for a group of jobs, and what requests its allocations.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerProposal {
    pub scheduler: SlurmScheduler,
    pub action: WorkflowAction,
    /// Indices of the demands whose jobs the action waits for.
    pub trigger_demands: Vec<usize>,
    /// CPUs requested on each node.
    pub cpus_per_node: u32,
    pub group: AllocationGroup,
}

impl SchedulerProposal {
    /// Requested core-hours.
    pub fn core_hours(&self) -> f64 {
        let nodes = f64::from(self.group.allocations) * f64::from(self.group.nodes);
        nodes * f64::from(self.cpus_per_node) * self.group.walltime.as_secs_f64() / 3600.0
    }
}

/// Returns a schedule for all demands; or all jobs that fit nowhere. `suffix` is for regenerated schedulers,
/// `taken` are the names in use.
pub fn propose_schedulers(
    profile: &ClusterProfile,
    demands: &[AllocationDemand],
    options: &AllocationOptions,
    suffix: Option<&str>,
    taken: &BTreeSet<String>,
) -> Result<Vec<SchedulerProposal>, Vec<UnfitDemand>> {
    let groups = group_demands(profile, demands, options)?;
    let mut taken = taken.clone();
    let mut proposals = Vec::with_capacity(groups.len());
    for group in groups {
        let name = free_scheduler_name(&group, suffix, &taken);
        taken.insert(name.clone());
        proposals.push(build_proposal(profile, demands, options, group, name));
    }
    Ok(proposals)
}

/// `{requirements|partition}_scheduler[_deferred][_suffix]`, with a number if the name is taken.
fn free_scheduler_name(group: &AllocationGroup, suffix: Option<&str>, taken: &BTreeSet<String>) -> String {
    let deferred = if group.is_deferred { "_deferred" } else { "" };
    let suffix = suffix.map(|suffix| format!("_{suffix}")).unwrap_or_default();
    let name = format!("{}_scheduler{deferred}{suffix}", group.label);
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or_default()
}

fn build_proposal(
    profile: &ClusterProfile,
    demands: &[AllocationDemand],
    options: &AllocationOptions,
    group: AllocationGroup,
    name: String,
) -> SchedulerProposal {
    let partition = profile.partition(&group.partition);
    let asked = NodeRequest::new(&group, partition);
    let scheduler = SlurmScheduler {
        name: name.clone(),
        account: options.account.clone(),
        gres: asked.gres,
        mem: Some(format!("{}M", asked.memory_mb)),
        nodes: group.nodes,
        ntasks_per_node: Some(1),
        partition: partition.is_none_or(|it| it.requires_explicit_request).then(|| group.partition.clone()),
        qos: partition.and_then(|partition| partition.default_qos.clone()),
        tmp: None,
        walltime: format_walltime(group.walltime),
        extra: Some(format!("--cpus-per-task={}", asked.cpus)),
        serialize_allocations: false,
    };
    let action = WorkflowAction {
        trigger_type: ActionTrigger::OnJobsReady,
        action_type: ActionType::ScheduleNodes,
        commands: Vec::new(),
        scheduler: Some(name),
        scheduler_type: Some("slurm".to_owned()),
        num_allocations: Some(group.allocations),
        // A job on several nodes is started from the first of them, others by a worker on their own node.
        start_one_worker_per_node: group.nodes > 1 && group.max_resources.nodes <= 1,
        max_parallel_jobs: None,
        persistent: false,
    };
    SchedulerProposal {
        scheduler,
        action,
        trigger_demands: trigger_demands(demands, &group),
        cpus_per_node: asked.cpus,
        group,
    }
}

/// Returns the demands of the group that can start first. Others may depend on jobs of this group: an action
/// that waited for all would wait for jobs that only its own allocations can run.
fn trigger_demands(demands: &[AllocationDemand], group: &AllocationGroup) -> Vec<usize> {
    let level = |number: &usize| demands.get(*number).map_or(0, |demand| demand.level);
    let first = group.demands.iter().map(level).min().unwrap_or(0);
    group.demands.iter().copied().filter(|number| level(number) == first).collect()
}

/// Memory for the worker itself, which counts in the allocation together with its jobs: without it, a job that
/// uses its whole request could be killed.
const WORKER_MB: u64 = 100;

/// Request for each node: what the jobs need at once if others can use the rest, otherwise the whole node.
struct NodeRequest {
    cpus: u32,
    memory_mb: u64,
    gres: Option<String>,
}

impl NodeRequest {
    fn new(group: &AllocationGroup, partition: Option<&Partition>) -> Self {
        let (asks, node) = (&group.max_resources, &group.node);
        let is_shared = partition.is_some_and(|partition| partition.shared);
        // Jobs on several nodes use a share of each.
        let units = (u64::from(group.allocations) * u64::from(group.nodes / asks.nodes.max(1))).max(1);
        let at_once =
            u32::try_from(group.jobs.div_ceil(units)).unwrap_or(u32::MAX).clamp(1, group.jobs_per_node);
        let gpus = asks.gpus.saturating_mul(if is_shared { at_once } else { group.jobs_per_node });
        let gres = (gpus > 0).then(|| match &node.gpu_type {
            Some(kind) => format!("gpu:{kind}:{gpus}"),
            None => format!("gpu:{gpus}"),
        });
        if !is_shared {
            return Self { cpus: node.cpus_per_node.max(1), memory_mb: node.memory_mb, gres };
        }
        let jobs_mb = asks.memory.0.div_ceil(1 << 20).saturating_mul(at_once.into());
        let memory_mb = jobs_mb.saturating_add(WORKER_MB).min(node.memory_mb);
        let cpus = asks.cpus.saturating_mul(at_once).min(node.cpus_per_node).max(1);
        Self { cpus, memory_mb: memory_mb.max(1), gres }
    }
}

/// `HH:MM:SS`, also beyond a day.
pub fn format_walltime(walltime: Duration) -> String {
    let seconds = walltime.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A hand-written scheduler that Slurm would reject, or accept and never start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerProblem {
    pub scheduler: String,
    pub reason: String,
}

impl std::fmt::Display for SchedulerProblem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "scheduler `{}` requests resources that are never available: {}",
            self.scheduler, self.reason
        )
    }
}

/// Checks whether the cluster has what a scheduler requests.
pub fn check_scheduler(scheduler: &SlurmScheduler, profile: &ClusterProfile) -> Result<(), SchedulerProblem> {
    let fault = |why: String| SchedulerProblem { scheduler: scheduler.name.clone(), reason: why };
    let ask = PartitionRequest {
        cpus: AllocationCapacity::from(scheduler).cpus.or(scheduler.ntasks_per_node).unwrap_or(1),
        memory: scheduler.memory().unwrap_or(Bytes(0)),
        gpus: scheduler.gres.as_deref().map_or(0, parse_gres_gpus),
        nodes: scheduler.nodes.max(1),
        walltime: scheduler
            .walltime()
            .ok_or_else(|| fault(format!("`{}` is not a walltime", scheduler.walltime)))?,
        account: &scheduler.account,
    };
    let candidates = candidate_partitions(scheduler, profile).map_err(&fault)?;
    check_any_partition(&candidates, |partition| scheduler_shortages(&ask, partition)).map_err(fault)
}

/// Returns the partitions that it names. If it names none, Slurm may select one, or use the default.
fn candidate_partitions<'p>(
    scheduler: &SlurmScheduler,
    profile: &'p ClusterProfile,
) -> Result<Vec<&'p Partition>, String> {
    let Some(names) = scheduler.partition.as_deref() else {
        let auto = profile.partitions.iter().filter(|one| !one.requires_explicit_request || one.is_default);
        return Ok(auto.collect());
    };
    let find = |name: &str| {
        profile.partition(name).ok_or_else(|| {
            let known: Vec<&str> = profile.partitions.iter().map(|one| one.name.as_str()).collect();
            format!("there is no partition `{name}`; known: {}", known.join(", "))
        })
    };
    names.split(',').map(|name| find(name.trim())).collect()
}

/// One partition that fits is sufficient; otherwise describes what the first lacks.
fn check_any_partition(
    candidates: &[&Partition],
    lacks: impl Fn(&Partition) -> Vec<PartitionShortage>,
) -> Result<(), String> {
    let mut first = None;
    for partition in candidates {
        let lacks = lacks(partition);
        if lacks.is_empty() {
            return Ok(());
        }
        first.get_or_insert_with(|| describe_shortages(partition, lacks));
    }
    first.map_or(Ok(()), Err)
}

fn describe_shortages(partition: &Partition, lacks: Vec<PartitionShortage>) -> String {
    let text = NoFittingPartition { nearest: Some((partition.name.clone(), lacks)) }.to_string();
    text.strip_prefix("nearest is ").unwrap_or(&text).to_owned()
}

fn scheduler_shortages(ask: &PartitionRequest<'_>, partition: &Partition) -> Vec<PartitionShortage> {
    let mut lacks = find_shortages(ask, partition);
    lacks.extend(partition.min_nodes.filter(|least| ask.nodes < *least).map(PartitionShortage::FewerNodes));
    lacks
}

/// Checks for jobs that can never run in allocations of this scheduler, by its request or its partitions.
///
/// `reserve` is the end reserve of an allocation.
pub fn check_job_fits(
    demand: &AllocationDemand,
    scheduler: &SlurmScheduler,
    profile: &ClusterProfile,
    reserve: Duration,
) -> Result<(), UnfitDemand> {
    let asks = &demand.resources;
    let fault = |why: String| UnfitDemand {
        names: demand.names.clone(),
        jobs: demand.jobs,
        requirements: demand.requirements.clone(),
        resources_text: PartitionRequest::new(asks, "").to_string(),
        reason: format!("scheduler `{}`: {why}", scheduler.name),
    };
    let offer = AllocationCapacity::from(scheduler);
    if let (Some(walltime), Some(runtime)) = (offer.walltime, asks.runtime)
        && runtime.saturating_add(reserve) > walltime
    {
        let said = format!("its allocations last {}", format_walltime(walltime));
        return Err(fault(if runtime > walltime { said } else { add_reserve_note(&said, reserve) }));
    }
    // The runtime was checked before.
    let bare = Resources { runtime: None, ..*asks };
    if !offer.fits_job(&bare) {
        return Err(fault(describe_capacity_shortage(&offer, &bare)));
    }
    let Ok(candidates) = candidate_partitions(scheduler, profile) else { return Ok(()) };
    let ask = PartitionRequest {
        walltime: asks.runtime.unwrap_or_default(),
        ..PartitionRequest::new(asks, &scheduler.account)
    };
    check_any_partition(&candidates, |partition| find_shortages(&ask, partition)).map_err(fault)
}

/// Describes what a scheduler should request more of.
fn describe_capacity_shortage(offer: &AllocationCapacity, asks: &Resources) -> String {
    let cpus = offer.cpus.filter(|has| asks.cpus > *has).map(|has| format!("{has} CPUs of a node"));
    let memory = offer.memory.filter(|has| asks.memory > *has).map(|has| format!("{has} of a node"));
    let gpus = offer.gpus.filter(|has| asks.gpus > *has).map(|has| format!("{has} GPUs of a node"));
    let nodes = (asks.nodes > offer.nodes).then(|| format!("{} nodes", offer.nodes));
    let parts: Vec<String> = [cpus, memory, gpus, nodes].into_iter().flatten().collect();
    format!("it requests {}", parts.join(", "))
}

/// Parses `--cpus-per-task=8` or `-c 8` in options written by hand.
pub(super) fn parse_cpus_option(extra: &str) -> Option<u32> {
    let mut words = extra.split_ascii_whitespace();
    while let Some(word) = words.next() {
        let value = match word.split_once('=') {
            Some(("--cpus-per-task", value)) => Some(value),
            None if word == "-c" || word == "--cpus-per-task" => words.next(),
            _ => word.strip_prefix("-c").filter(|_| !word.starts_with("--")),
        };
        if let Some(number) = value.and_then(|value| value.parse().ok()) {
            return Some(number);
        }
    }
    None
}

/// `gpu`, `gpu:2`, `gpu:a100:4,tmp:5`: the GPUs of each node.
pub fn parse_gres_gpus(gres: &str) -> u32 {
    let one = |gres: &str| {
        let gres = gres.trim().split('(').next().unwrap_or_default();
        let gres = gres.strip_prefix("gres:").or_else(|| gres.strip_prefix("gres/")).unwrap_or(gres);
        match gres.strip_prefix("gpu") {
            Some("") => 1,
            Some(rest) if rest.starts_with(':') => {
                rest.rsplit(':').next().and_then(|count| count.parse().ok()).unwrap_or(1)
            }
            _ => 0,
        }
    };
    gres.split(',').map(one).fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests;

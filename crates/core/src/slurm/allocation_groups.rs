//! Groups of jobs that share allocations: which jobs, on which nodes, with which walltime and number of
//! allocations.

use super::cluster_profile::{ClusterProfile, NodeShape, Partition};
use super::end_reserve::end_reserve;
use super::partition_fit::{self, NoFittingPartition, PartitionRequest, PartitionShortage};
use crate::dependency_edges::DependencyEdges;
use crate::topological_order::TopologicalOrder;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use windlass_types::settings::WorkflowSettings;
use windlass_types::{Bytes, JobId, Resources, format_duration};

/// Up to this number of allocations, jobs without and with dependencies are requested together.
pub const MERGE_THRESHOLD: u32 = 2;

/// Jobs with the same request: those of a spec entry, or stored jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationDemand {
    /// Name of their resource requirements; `None`: none.
    pub requirements: Option<String>,
    pub resources: Resources,
    /// Number of jobs that must end one after another before they can start; 0: no dependencies.
    pub level: u32,
    pub jobs: u64,
    /// Names for people: the entry's name as written, or job names.
    pub names: Vec<String>,
    /// Ids of stored jobs.
    pub ids: Vec<JobId>,
    /// They use existing workers with these labels, so no allocations are requested for them.
    pub labels: Vec<String>,
    /// The scheduler that they name.
    pub scheduler: Option<String>,
}

impl Default for AllocationDemand {
    fn default() -> Self {
        Self {
            requirements: None,
            resources: Resources::DEFAULT,
            level: 0,
            jobs: 0,
            names: Vec::new(),
            ids: Vec::new(),
            labels: Vec::new(),
            scheduler: None,
        }
    }
}

impl AllocationDemand {
    pub const fn has_dependencies(&self) -> bool {
        self.level > 0
    }
}

/// Returns for each job the length of the longest chain of jobs before it. Empty for a cyclic graph, which is
/// never stored.
pub fn dependency_levels(jobs: u32, edges: &DependencyEdges) -> Vec<u32> {
    let mut levels = TopologicalOrder::new(jobs, edges).map(|order| order.depths()).unwrap_or_default();
    levels.resize(jobs as usize, 0);
    levels
}

/// Like [`dependency_levels`], for a workflow in progress: ended jobs do not count.
pub fn remaining_levels(edges: &DependencyEdges, is_over: &[bool]) -> Vec<u32> {
    let is_left = |job: u32| !is_over.get(job as usize).copied().unwrap_or(false);
    let left = DependencyEdges {
        direct: edges.direct.iter().copied().filter(|(_, on)| is_left(*on)).collect(),
        groups: edges
            .groups
            .iter()
            .map(|members| members.iter().copied().filter(|one| is_left(*one)).collect())
            .collect(),
        waits: edges.waits.clone(),
    };
    let jobs = u32::try_from(is_over.len()).unwrap_or(u32::MAX);
    dependency_levels(jobs, &left)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// One group per partition.
    #[default]
    Partition,
    /// One group per resource requirements.
    Requirements,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WalltimeStrategy {
    /// That of the longest job, with a margin.
    #[default]
    MaxJobRuntime,
    /// The maximum of the partition.
    MaxPartitionTime,
}

/// Options for allocations.
#[derive(Clone, Debug)]
pub struct AllocationOptions {
    /// Account to charge; empty: the user's default.
    pub account: String,
    pub group_by: GroupBy,
    pub walltime: WalltimeStrategy,
    /// For [`WalltimeStrategy::MaxJobRuntime`].
    pub multiplier: f64,
    /// One allocation with many nodes instead of many allocations.
    pub single_allocation: bool,
    /// Only this partition.
    pub partition: Option<String>,
    /// Exactly this walltime.
    pub exact_walltime: Option<Duration>,
    /// Minimum difference between the walltime and the longest job: see [`end_reserve`](super::end_reserve).
    pub reserve: Duration,
}

impl Default for AllocationOptions {
    fn default() -> Self {
        Self {
            account: String::new(),
            group_by: GroupBy::default(),
            walltime: WalltimeStrategy::default(),
            multiplier: 1.5,
            single_allocation: false,
            partition: None,
            exact_walltime: None,
            reserve: end_reserve(&WorkflowSettings::default()),
        }
    }
}

/// Jobs that share allocations.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocationGroup {
    /// Name of the requirements, or of the partition.
    pub label: String,
    pub partition: String,
    /// Whether its jobs wait for others.
    pub is_deferred: bool,
    /// Indices of its demands.
    pub demands: Vec<usize>,
    pub jobs: u64,
    /// Maximum of each resource over its jobs.
    pub max_resources: Resources,
    /// The smallest node type that fits it.
    pub node: NodeShape,
    pub walltime: Duration,
    /// Jobs that run at once on a node, and one after another in an allocation.
    pub jobs_per_node: u32,
    pub sequential_slots: u32,
    pub allocations: u32,
    /// Of each allocation.
    pub nodes: u32,
}

impl AllocationGroup {
    pub fn runtime(&self) -> Duration {
        self.max_resources.runtime.unwrap_or(Resources::ASSUMED_RUNTIME)
    }
}

/// Jobs that fit no partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfitDemand {
    /// As [`AllocationDemand::names`].
    pub names: Vec<String>,
    pub jobs: u64,
    pub requirements: Option<String>,
    /// Their request.
    pub resources_text: String,
    pub reason: String,
}

impl fmt::Display for UnfitDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.names.first().map_or("?", String::as_str);
        write!(f, "job `{name}`")?;
        let others = self.jobs.saturating_sub(1);
        if others > 0 {
            write!(f, " (and {others} more)")?;
        }
        match &self.requirements {
            Some(requirements) => {
                write!(f, " fits no partition: `{requirements}` requests {}", self.resources_text)?;
            }
            None => write!(f, " fits no partition: it counts as {}", self.resources_text)?,
        }
        write!(f, "; {}", self.reason)
    }
}

/// Returns the groups in the order of their first jobs; or all jobs that fit nowhere. Skips jobs with labels.
pub fn group_demands(
    profile: &ClusterProfile,
    demands: &[AllocationDemand],
    options: &AllocationOptions,
) -> Result<Vec<AllocationGroup>, Vec<UnfitDemand>> {
    let mut faults: Vec<UnfitDemand> = Vec::new();
    let mut drafts: Vec<GroupDraft<'_>> = Vec::new();
    for (number, demand) in demands.iter().enumerate().filter(|(_, demand)| demand.labels.is_empty()) {
        match choose_partition(profile, demand, options) {
            Ok(partition) => {
                let draft = GroupDraft::new(number, demand, partition);
                match drafts.iter_mut().find(|other| other.is_alike(&draft)) {
                    Some(other) => other.merge(draft),
                    None => drafts.push(draft),
                }
            }
            Err(why) => record_unfit(&mut faults, demand, &options.account, &why),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    if options.group_by == GroupBy::Partition {
        drafts = merge_drafts(drafts, options, |a, b| a.is_deferred == b.is_deferred);
        drafts = merge_drafts(drafts, options, |a, b| {
            let total = |draft: &GroupDraft<'_>| {
                draft.build_group(options).map_or(u32::MAX, |group| group.allocations)
            };
            a.is_deferred != b.is_deferred && total(a).saturating_add(total(b)) <= MERGE_THRESHOLD
        });
    }
    Ok(drafts.iter().filter_map(|draft| draft.build_group(options)).collect())
}

/// Whether some partition fits them.
pub fn fits_any_partition(
    profile: &ClusterProfile,
    demand: &AllocationDemand,
    options: &AllocationOptions,
) -> bool {
    choose_partition(profile, demand, options).is_ok()
}

/// Jobs of several entries with the same problem are reported once.
fn record_unfit(faults: &mut Vec<UnfitDemand>, demand: &AllocationDemand, account: &str, why: &str) {
    let asks = PartitionRequest::new(&demand.resources, account).to_string();
    let is_same = |fault: &&mut UnfitDemand| {
        fault.requirements == demand.requirements && fault.resources_text == asks && fault.reason == why
    };
    if let Some(fault) = faults.iter_mut().find(is_same) {
        fault.names.extend(demand.names.iter().cloned());
        fault.jobs += demand.jobs;
        return;
    }
    faults.push(UnfitDemand {
        names: demand.names.clone(),
        jobs: demand.jobs,
        requirements: demand.requirements.clone(),
        resources_text: asks,
        reason: why.to_owned(),
    });
}

fn choose_partition<'p>(
    profile: &'p ClusterProfile,
    demand: &AllocationDemand,
    options: &AllocationOptions,
) -> Result<&'p Partition, String> {
    let ask = PartitionRequest::new(&demand.resources, &options.account);
    let needs = ask.walltime.saturating_add(options.reserve);
    if let Some(walltime) = options.exact_walltime.filter(|walltime| *walltime < needs) {
        let said = format!("an allocation is to last {}", format_duration(walltime));
        return Err(if walltime < ask.walltime { said } else { add_reserve_note(&said, options.reserve) });
    }
    let runtime = ask.walltime;
    // The walltime must be the configured one, or longer than the job.
    let ask = PartitionRequest { walltime: options.exact_walltime.unwrap_or(needs), ..ask };
    let Some(name) = &options.partition else {
        return partition_fit::best_partition(profile, &ask)
            .map_err(|unfit| unfit_reason(&unfit, runtime, options.reserve));
    };
    let Some(partition) = profile.partition(name) else {
        return Err(format!("there is no partition `{name}`"));
    };
    match partition_fit::find_shortages(&ask, partition) {
        lacks if lacks.is_empty() => Ok(partition),
        lacks => Err(unfit_reason(
            &NoFittingPartition { nearest: Some((name.clone(), lacks)) },
            runtime,
            options.reserve,
        )),
    }
}

/// A job within the maximum walltime that still does not fit needs an explanation.
fn unfit_reason(unfit: &NoFittingPartition, runtime: Duration, reserve: Duration) -> String {
    let is_near =
        |lack: &PartitionShortage| matches!(lack, PartitionShortage::Walltime(most) if *most >= runtime);
    match &unfit.nearest {
        Some((_, lacks)) if lacks.iter().any(is_near) => add_reserve_note(&unfit.to_string(), reserve),
        _ => unfit.to_string(),
    }
}

pub(super) fn add_reserve_note(said: &str, reserve: Duration) -> String {
    format!("{said}, minus {} reserved for its end", format_duration(reserve))
}

/// A group before the number of its allocations is known.
#[derive(Clone, Debug)]
struct GroupDraft<'p> {
    label: String,
    partition: &'p Partition,
    is_deferred: bool,
    demands: Vec<usize>,
    jobs: u64,
    max_resources: Resources,
}

impl<'p> GroupDraft<'p> {
    fn new(number: usize, demand: &AllocationDemand, partition: &'p Partition) -> Self {
        let mut max_resources = Resources { nodes: demand.resources.nodes.max(1), ..demand.resources };
        max_resources.runtime = Some(max_resources.runtime.unwrap_or(Resources::ASSUMED_RUNTIME));
        if demand.requirements.is_none()
            && let Some(node) =
                partition_fit::smallest_node(&PartitionRequest::new(&max_resources, ""), partition)
        {
            // Jobs without a memory request need some: the share of their CPUs.
            let share =
                node.memory_mb / u64::from(node.cpus_per_node.max(1)) * u64::from(max_resources.cpus.max(1));
            max_resources.memory = max_resources.memory.max(Bytes(share << 20));
        }
        Self {
            label: demand.requirements.clone().unwrap_or_else(|| "default".to_owned()),
            partition,
            is_deferred: demand.has_dependencies(),
            demands: vec![number],
            jobs: demand.jobs,
            max_resources,
        }
    }

    /// The same requirements, and both or neither with dependencies.
    fn is_alike(&self, other: &Self) -> bool {
        self.label == other.label
            && self.is_deferred == other.is_deferred
            && self.partition.name == other.partition.name
    }

    fn merge(&mut self, other: Self) {
        self.demands.extend(other.demands);
        self.jobs += other.jobs;
        self.is_deferred &= other.is_deferred;
        let (a, b) = (self.max_resources, other.max_resources);
        self.max_resources = Resources {
            cpus: a.cpus.max(b.cpus),
            memory: a.memory.max(b.memory),
            gpus: a.gpus.max(b.gpus),
            nodes: a.nodes.max(b.nodes),
            runtime: a.runtime.max(b.runtime),
        };
    }

    /// Returns the group; `None` if the maximum of all resources fits no node type.
    fn build_group(&self, options: &AllocationOptions) -> Option<AllocationGroup> {
        let ask = PartitionRequest::new(&self.max_resources, &options.account);
        if !partition_fit::find_shortages(&ask, self.partition).is_empty() {
            return None;
        }
        let node = partition_fit::smallest_node(&ask, self.partition)?;
        let walltime = group_walltime(self.partition, ask.walltime, options);
        let per_node = jobs_per_node(&ask, &node);
        let slots = sequential_slots(walltime, ask.walltime, options.reserve);
        let at_once = u64::from(per_node) * u64::from(slots);
        let needed = u32::try_from(self.jobs.div_ceil(at_once)).unwrap_or(u32::MAX).max(1);
        let least = self.partition.min_nodes.unwrap_or(1).max(ask.nodes);
        let (allocations, nodes) = if options.single_allocation {
            // More than the partition has would wait forever: then the minimum is used.
            let most = max_nodes(&ask, self.partition) / ask.nodes * ask.nodes;
            let wanted = needed.saturating_mul(ask.nodes);
            let nodes = wanted.min(most).max(least);
            (wanted.div_ceil(nodes), nodes)
        } else {
            (needed, least)
        };
        Some(AllocationGroup {
            label: match options.group_by {
                GroupBy::Partition => self.partition.name.clone(),
                GroupBy::Requirements => self.label.clone(),
            },
            partition: self.partition.name.clone(),
            is_deferred: self.is_deferred,
            demands: self.demands.clone(),
            jobs: self.jobs,
            max_resources: self.max_resources,
            node,
            walltime,
            jobs_per_node: per_node,
            sequential_slots: slots,
            allocations,
            nodes,
        })
    }
}

/// Returns the maximum number of suitable nodes of one allocation.
fn max_nodes(ask: &PartitionRequest<'_>, partition: &Partition) -> u32 {
    let holding = |shape: &NodeShape| {
        ask.cpus <= shape.cpus_per_node && ask.memory <= shape.memory() && ask.gpus <= shape.gpus_per_node
    };
    let there: Option<u32> = partition.node_shapes().filter(holding).map(|shape| shape.nodes).sum();
    there.unwrap_or(u32::MAX).min(partition.max_nodes.unwrap_or(u32::MAX)).max(1)
}

fn group_walltime(partition: &Partition, runtime: Duration, options: &AllocationOptions) -> Duration {
    if let Some(exact) = options.exact_walltime {
        return exact;
    }
    let most = partition.max_walltime();
    let roomy = Duration::from_secs((runtime.as_secs_f64() * options.multiplier.max(1.0)).ceil() as u64);
    // A walltime that barely fits the job would not let it start.
    let roomy = roomy.max(runtime.saturating_add(options.reserve));
    match options.walltime {
        WalltimeStrategy::MaxPartitionTime => most.unwrap_or(roomy),
        WalltimeStrategy::MaxJobRuntime => most.map_or(roomy, |most| roomy.min(most)),
    }
    // Slurm's unit is minutes.
    .max(Duration::from_mins(1))
}

/// Returns how many of them run one after another: a worker reserves time for the end of its allocation, and
/// starts no job that would exceed it.
pub(super) fn sequential_slots(walltime: Duration, runtime: Duration, reserve: Duration) -> u32 {
    let usable = walltime.saturating_sub(reserve).as_secs();
    usable.checked_div(runtime.as_secs()).unwrap_or(1).clamp(1, 1 << 20) as u32
}

/// Returns how many of them run at once on a node.
fn jobs_per_node(ask: &PartitionRequest<'_>, node: &NodeShape) -> u32 {
    let by_memory = node.memory().0.checked_div(ask.memory.0).unwrap_or(u64::MAX);
    let by_cpus = node.cpus_per_node.checked_div(ask.cpus).unwrap_or(u32::MAX);
    let by_gpus = node.gpus_per_node.checked_div(ask.gpus).unwrap_or(u32::MAX);
    let most = by_cpus.min(by_gpus).min(u32::try_from(by_memory).unwrap_or(u32::MAX));
    // Even jobs that request no CPU use some.
    most.min(node.cpus_per_node.max(1)).max(1)
}

/// Merges groups of the same partition if `may` allows it and a node type fits the maximum of all resources.
fn merge_drafts<'p>(
    drafts: Vec<GroupDraft<'p>>,
    options: &AllocationOptions,
    may: impl Fn(&GroupDraft<'p>, &GroupDraft<'p>) -> bool,
) -> Vec<GroupDraft<'p>> {
    let mut done: Vec<GroupDraft<'p>> = Vec::new();
    let mut by_partition: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for draft in drafts {
        let places = by_partition.entry(&draft.partition.name).or_default();
        let joined = places.iter().find_map(|&place| {
            let other = &done[place];
            if !may(other, &draft) {
                return None;
            }
            let mut both = other.clone();
            both.merge(draft.clone());
            both.build_group(options).is_some().then_some((place, both))
        });
        if let Some((place, both)) = joined {
            done[place] = both;
        } else {
            places.push(done.len());
            done.push(draft);
        }
    }
    done
}

#[cfg(test)]
mod tests;

//! Partitions that fit a job, the best of them, and what the nearest one lacks.

use super::cluster_profile::{ClusterProfile, NodeShape, Partition};
use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;
use windlass_types::{Bytes, Resources, format_duration};

/// Resources of a job; amounts are per node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionRequest<'a> {
    pub cpus: u32,
    pub memory: Bytes,
    pub gpus: u32,
    pub nodes: u32,
    pub walltime: Duration,
    /// Account to charge; empty: the user's default, which is unknown here.
    pub account: &'a str,
}

impl<'a> PartitionRequest<'a> {
    pub fn new(resources: &Resources, account: &'a str) -> Self {
        Self {
            cpus: resources.cpus,
            memory: resources.memory,
            gpus: resources.gpus,
            nodes: resources.nodes.max(1),
            walltime: resources.runtime.unwrap_or(Resources::ASSUMED_RUNTIME),
            account,
        }
    }
}

impl fmt::Display for PartitionRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", format_count(self.cpus, "CPU"), self.memory)?;
        if self.gpus > 0 {
            write!(f, ", {}", format_count(self.gpus, "GPU"))?;
        }
        if self.nodes > 1 {
            write!(f, ", {}", format_count(self.nodes, "node"))?;
        }
        write!(f, ", {}", format_duration(self.walltime))
    }
}

/// A requirement that a partition does not satisfy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionShortage {
    Down,
    Account(String),
    Cpus(u32),
    Memory(Bytes),
    Gpus(u32),
    /// Each amount is available, but not on one node.
    NoSingleNode,
    Nodes(u32),
    FewerNodes(u32),
    Walltime(Duration),
}

impl fmt::Display for PartitionShortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("it starts no jobs at present"),
            Self::Account(account) => write!(f, "account `{account}` may not use it"),
            Self::Cpus(most) => write!(f, "its nodes have {}", format_count(*most, "CPU")),
            Self::Memory(most) => write!(f, "its nodes have {most} of memory"),
            Self::Gpus(0) => f.write_str("its nodes have no GPUs"),
            Self::Gpus(most) => write!(f, "its nodes have {}", format_count(*most, "GPU")),
            Self::NoSingleNode => f.write_str("none of its node types has all of that"),
            Self::Nodes(most) => write!(f, "an allocation has at most {}", format_count(*most, "node")),
            Self::FewerNodes(least) => {
                write!(f, "an allocation has at least {}", format_count(*least, "node"))
            }
            Self::Walltime(most) => write!(f, "an allocation lasts at most {}", format_duration(*most)),
        }
    }
}

/// Returns the requirements that the partition does not satisfy, in the order of [`PartitionShortage`]; empty
/// if it fits.
pub fn find_shortages(ask: &PartitionRequest<'_>, partition: &Partition) -> Vec<PartitionShortage> {
    let mut lacks = Vec::new();
    if !partition.is_up {
        lacks.push(PartitionShortage::Down);
    }
    if !ask.account.is_empty() && !partition.admits_account(ask.account) {
        lacks.push(PartitionShortage::Account(ask.account.to_owned()));
    }
    let most = |amount: fn(&NodeShape) -> u64| {
        partition.node_shapes().map(|shape| amount(&shape)).max().unwrap_or(0)
    };
    let (cpus, gpus) = (most(|s| s.cpus_per_node.into()) as u32, most(|s| s.gpus_per_node.into()) as u32);
    let memory = Bytes(most(|shape| shape.memory().0));
    let before = lacks.len();
    if ask.cpus > cpus {
        lacks.push(PartitionShortage::Cpus(cpus));
    }
    if ask.memory > memory {
        lacks.push(PartitionShortage::Memory(memory));
    }
    if ask.gpus > gpus {
        lacks.push(PartitionShortage::Gpus(gpus));
    }
    let is_each_there = lacks.len() == before;
    let holding: Vec<NodeShape> = partition.node_shapes().filter(|shape| node_fits(shape, ask)).collect();
    if is_each_there && holding.is_empty() {
        lacks.push(PartitionShortage::NoSingleNode);
    }
    let there: Option<u32> = holding.iter().map(|shape| shape.nodes).sum();
    let allowed = partition.max_nodes.unwrap_or(u32::MAX);
    let most_nodes = if holding.is_empty() { allowed } else { there.unwrap_or(u32::MAX).min(allowed) };
    if ask.nodes > most_nodes {
        lacks.push(PartitionShortage::Nodes(most_nodes));
    }
    lacks.extend(
        partition.max_walltime().filter(|most| ask.walltime > *most).map(PartitionShortage::Walltime),
    );
    lacks
}

fn node_fits(shape: &NodeShape, ask: &PartitionRequest<'_>) -> bool {
    ask.cpus <= shape.cpus_per_node && ask.memory <= shape.memory() && ask.gpus <= shape.gpus_per_node
}

/// Returns the smallest suitable node type: Slurm may assign it, so it must be sufficient.
pub fn smallest_node(ask: &PartitionRequest<'_>, partition: &Partition) -> Option<NodeShape> {
    partition
        .node_shapes()
        .filter(|shape| node_fits(shape, ask))
        .min_by_key(|shape| (shape.memory_mb, shape.cpus_per_node, shape.gpus_per_node))
}

/// No partition fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFittingPartition {
    /// The partition that lacks the least, and its shortages; `None` if there is no partition.
    pub nearest: Option<(String, Vec<PartitionShortage>)>,
}

impl fmt::Display for NoFittingPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((name, lacks)) = &self.nearest else { return f.write_str("there is no partition") };
        let lacks: Vec<String> = lacks.iter().map(ToString::to_string).collect();
        write!(f, "nearest is partition `{name}`: {}", lacks.join(", "))
    }
}

/// Returns all partitions that fit, the best first: no debugging partition if there is another, none with
/// preemption, with no more GPUs than needed, then the one with the smallest nodes and the shortest limit.
pub fn fitting_partitions<'p>(profile: &'p ClusterProfile, ask: &PartitionRequest<'_>) -> Vec<&'p Partition> {
    let usual_tier = profile.default_partition().and_then(|partition| partition.priority_tier);
    let key = |partition: &Partition| {
        let smallest = smallest_node(ask, partition).unwrap_or_default();
        let is_special = partition.preempt_mode.is_some()
            || usual_tier.is_some_and(|usual| partition.priority_tier.is_some_and(|tier| tier != usual));
        (
            partition.is_for_debugging(),
            is_special,
            !(partition.allow_groups.is_empty() && partition.allow_qos.is_empty()),
            ask.gpus == 0 && smallest.gpus_per_node > 0,
            // If Slurm selects the partition, it may choose among more nodes.
            ask.gpus > 0 && partition.requires_explicit_request,
            (smallest.memory_mb, partition.max_walltime_secs.unwrap_or(u64::MAX)),
            Reverse(partition.is_default),
        )
    };
    let mut fitting: Vec<&Partition> =
        profile.partitions.iter().filter(|partition| find_shortages(ask, partition).is_empty()).collect();
    fitting.sort_by_cached_key(|partition| key(partition));
    fitting
}

/// Returns the best of the partitions that fit.
pub fn best_partition<'p>(
    profile: &'p ClusterProfile,
    ask: &PartitionRequest<'_>,
) -> Result<&'p Partition, NoFittingPartition> {
    fitting_partitions(profile, ask).first().copied().ok_or_else(|| nearest_partition(profile, ask))
}

/// Returns the partition that lacks the least. One that is down, or closed to the account, counts as further
/// away than others.
fn nearest_partition(profile: &ClusterProfile, ask: &PartitionRequest<'_>) -> NoFittingPartition {
    let distance = |(partition, lacks): &(&Partition, Vec<PartitionShortage>)| {
        let is_shut =
            lacks.iter().any(|lack| matches!(lack, PartitionShortage::Down | PartitionShortage::Account(_)));
        let memory = partition.node_shapes().map(|shape| shape.memory_mb).max().unwrap_or(0);
        let missing: u64 = lacks.iter().map(|lack| shortfall(ask, lack)).fold(0, u64::saturating_add);
        (is_shut, lacks.len(), partition.is_for_debugging(), missing, Reverse(memory))
    };
    let all = profile.partitions.iter().map(|partition| (partition, find_shortages(ask, partition)));
    let nearest = all.min_by_key(distance);
    NoFittingPartition { nearest: nearest.map(|(partition, lacks)| (partition.name.clone(), lacks)) }
}

/// Ratio between required and available amount, in thousandths.
fn shortfall(ask: &PartitionRequest<'_>, lack: &PartitionShortage) -> u64 {
    let times = |asked: u64, most: u64| asked.saturating_mul(1000) / most.max(1);
    match lack {
        PartitionShortage::Down | PartitionShortage::Account(_) | PartitionShortage::NoSingleNode => 1000,
        PartitionShortage::Cpus(most) => times(ask.cpus.into(), (*most).into()),
        PartitionShortage::Memory(most) => times(ask.memory.0 >> 20, most.0 >> 20),
        PartitionShortage::Gpus(most) => times(ask.gpus.into(), (*most).into()),
        PartitionShortage::Nodes(most) => times(ask.nodes.into(), (*most).into()),
        PartitionShortage::FewerNodes(least) => times((*least).into(), ask.nodes.into()),
        PartitionShortage::Walltime(most) => times(ask.walltime.as_secs(), most.as_secs()),
    }
}

fn format_count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;

//! `sinfo` and `scontrol`: partitions, their limits, and the kinds of nodes in them.

use std::collections::BTreeMap;
use windlass_core::slurm::cluster_profile::{ClusterProfile, NodeShape, Partition};

/// One line for each partition and kind of node. `-e`: only identical nodes share a line.
pub const SINFO_ARGUMENTS: [&str; 5] = ["-h", "-e", "-a", "-o", "%P|%a|%l|%D|%c|%m|%T|%s|%p|%M|%h|%G"];
/// What `sinfo` does not print: who may use a partition, and limits below those of its nodes.
pub const SCONTROL_ARGUMENTS: [&str; 4] = ["-o", "-a", "show", "partition"];

/// Output that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot parse a line of {command}: `{line}`")]
pub struct UnreadableOutput {
    pub command: &'static str,
    pub line: String,
}

/// The cluster, from the output of both.
pub fn parse_cluster(name: &str, sinfo: &str, scontrol: &str) -> Result<ClusterProfile, UnreadableOutput> {
    let mut partitions = parse_sinfo(sinfo)?;
    let limits = parse_scontrol(scontrol);
    for partition in &mut partitions {
        if let Some(fields) = limits.get(partition.name.as_str()) {
            apply_partition_limits(partition, fields);
        }
    }
    // A partition whose nodes are all down is shown, but not chosen.
    Ok(ClusterProfile { name: name.to_owned(), partitions, ..ClusterProfile::default() })
}

fn parse_sinfo(text: &str) -> Result<Vec<Partition>, UnreadableOutput> {
    let mut partitions: Vec<Partition> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (partition, shape, is_usable) = parse_sinfo_line(line)
            .ok_or_else(|| UnreadableOutput { command: "sinfo", line: line.to_owned() })?;
        if let Some(known) = partitions.iter_mut().find(|other| other.name == partition.name) {
            add_nodes(known, shape, is_usable);
            continue;
        }
        let mut partition = partition;
        if !is_usable {
            partition.nodes = Some(0);
        }
        add_nodes(&mut partition, shape, is_usable);
        partitions.push(partition);
    }
    Ok(partitions)
}

/// The partition without its nodes, the nodes, and whether jobs can ever run on them.
fn parse_sinfo_line(line: &str) -> Option<(Partition, NodeShape, bool)> {
    // The features of nodes come last: only they may contain any character.
    let fields: Vec<&str> = line.splitn(12, '|').map(str::trim).collect();
    let [name, up, time, nodes, cpus, memory, state, size, tier, preempt, oversubscribe, gres] =
        fields.as_slice()
    else {
        return None;
    };
    let (gpus, gpu_type) = parse_gpus(gres);
    let (min_nodes, max_nodes) = size.split_once('-').unwrap_or((size, size));
    let partition = Partition {
        name: name.trim_end_matches('*').to_owned(),
        is_default: name.ends_with('*'),
        is_up: *up == "up",
        max_walltime_secs: parse_time_limit(time).ok()?,
        min_nodes: min_nodes.parse().ok().filter(|least| *least > 1),
        max_nodes: max_nodes.parse().ok(),
        priority_tier: tier.parse().ok(),
        preempt_mode: parse_preempt_mode(preempt),
        shared: !oversubscribe.starts_with("EXCLUSIVE"),
        ..Partition::default()
    };
    let shape = NodeShape {
        nodes: Some(nodes.parse().ok()?),
        cpus_per_node: parse_number(cpus)?.try_into().ok()?,
        memory_mb: parse_number(memory)?,
        gpus_per_node: gpus,
        gpu_type,
    };
    Some((partition, shape, is_usable(state)))
}

/// `104`, or `104+` for a line with several kinds.
fn parse_number(text: &str) -> Option<u64> {
    text.trim_end_matches('+').parse().ok()
}

/// Nodes that will return count: drained, rebooting, or powered down.
fn is_usable(state: &str) -> bool {
    let state = state.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_ascii_lowercase();
    !matches!(state.as_str(), "down" | "fail" | "failing" | "future" | "unknown" | "error" | "perfctrs")
}

struct InvalidTimeLimit;

/// In seconds; `None`: no limit.
fn parse_time_limit(text: &str) -> Result<Option<u64>, InvalidTimeLimit> {
    match text {
        "infinite" | "UNLIMITED" | "n/a" => Ok(None),
        // In Slurm's times, two numbers are minutes and seconds.
        _ if text.contains([':', '-']) => windlass_types::parse_duration(text)
            .map(|time| Some(time.as_secs()))
            .map_err(|_| InvalidTimeLimit),
        _ => Err(InvalidTimeLimit),
    }
}

fn parse_preempt_mode(text: &str) -> Option<String> {
    let none =
        text.is_empty() || text.split(',').any(|word| matches!(word, "OFF" | "off" | "(null)" | "N/A"));
    (!none).then(|| text.to_owned())
}

/// Number of GPUs of a node, all kinds together, and the kind of the first.
fn parse_gpus(gres: &str) -> (u32, Option<String>) {
    let mut kind = None;
    for word in gres.split(',') {
        let word = word.trim().split('(').next().unwrap_or_default();
        if let ["gpu", name, _] = word.split(':').collect::<Vec<_>>().as_slice() {
            kind.get_or_insert_with(|| (*name).to_owned());
        }
    }
    (windlass_core::slurm::schedule_generation::parse_gres_gpus(&strip_brackets(gres)), kind)
}

/// `gpu:2(S:0,1),tmp:3` without the brackets: commas in them separate nothing.
fn strip_brackets(gres: &str) -> String {
    let mut depth = 0_u32;
    let mut text = String::new();
    for c in gres.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => text.push(c),
            _ => {}
        }
    }
    text
}

/// Equal nodes are counted together. Nodes on which nothing can run show what the partition would have.
fn add_nodes(partition: &mut Partition, shape: NodeShape, is_usable: bool) {
    let count = if is_usable { shape.nodes.unwrap_or(0) } else { 0 };
    let is_same = |cpus: u32, memory: u64, gpus: u32, kind: &Option<String>| {
        (cpus, memory, gpus, kind)
            == (shape.cpus_per_node, shape.memory_mb, shape.gpus_per_node, &shape.gpu_type)
    };
    if partition.cpus_per_node == 0 && partition.memory_mb == 0 {
        partition.cpus_per_node = shape.cpus_per_node;
        partition.memory_mb = shape.memory_mb;
        partition.gpus_per_node = shape.gpus_per_node;
        partition.gpu_type.clone_from(&shape.gpu_type);
        partition.nodes = Some(count);
        return;
    }
    let own = &partition.gpu_type;
    if is_same(partition.cpus_per_node, partition.memory_mb, partition.gpus_per_node, own) {
        partition.nodes = Some(partition.nodes.unwrap_or(0) + count);
        return;
    }
    let known = partition
        .other_nodes
        .iter_mut()
        .find(|other| is_same(other.cpus_per_node, other.memory_mb, other.gpus_per_node, &other.gpu_type));
    match known {
        Some(known) => known.nodes = Some(known.nodes.unwrap_or(0) + count),
        None => partition.other_nodes.push(NodeShape { nodes: Some(count), ..shape }),
    }
}

/// `Key=Value` by key, by partition.
fn parse_scontrol(text: &str) -> BTreeMap<&str, BTreeMap<&str, &str>> {
    let named = text.lines().map(|line| {
        let name = line.strip_prefix("PartitionName=").and_then(|rest| rest.split_whitespace().next());
        (name, line)
    });
    named.filter_map(|(name, line)| Some((name?, parse_pairs(line).collect()))).collect()
}

fn parse_pairs(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split_whitespace().filter_map(|word| word.split_once('='))
}

/// The limits of a partition may be below those of its nodes.
fn apply_partition_limits(partition: &mut Partition, fields: &BTreeMap<&str, &str>) {
    let list = |key: &str| -> Vec<String> {
        match fields.get(key) {
            None | Some(&("ALL" | "(null)" | "N/A" | "NONE")) => Vec::new(),
            Some(names) => names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        }
    };
    partition.allow_accounts = list("AllowAccounts");
    partition.deny_accounts = list("DenyAccounts");
    partition.allow_groups = list("AllowGroups");
    partition.allow_qos = list("AllowQos");
    if fields.get("State").is_some_and(|state| *state != "UP") || fields.get("RootOnly") == Some(&"YES") {
        partition.is_up = false;
    }
    // A partition that requires a reservation is not open to all users.
    if fields.get("ReqResv") == Some(&"YES") {
        partition.is_up = false;
    }
    let cpus: Option<u32> = fields.get("MaxCPUsPerNode").and_then(|most| most.parse().ok());
    let memory: Option<u64> = fields.get("MaxMemPerNode").and_then(|most| most.parse().ok());
    let (cpus, memory) = (cpus.unwrap_or(u32::MAX), memory.filter(|most| *most > 0).unwrap_or(u64::MAX));
    partition.cpus_per_node = partition.cpus_per_node.min(cpus);
    partition.memory_mb = partition.memory_mb.min(memory);
    for other in &mut partition.other_nodes {
        other.cpus_per_node = other.cpus_per_node.min(cpus);
        other.memory_mb = other.memory_mb.min(memory);
    }
}

/// The answer of `sbatch --test-only`: when a job would start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartEstimate {
    /// In the time zone of the cluster, as Slurm writes it.
    At(String),
    /// Slurm rejects the request, with the reason.
    Never(String),
}

impl std::fmt::Display for StartEstimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::At(at) => f.write_str(at),
            Self::Never(why) => write!(f, "never: {why}"),
        }
    }
}

/// Parses its standard error. `None`: no known answer.
pub fn parse_start_estimate(stderr: &str) -> Option<StartEstimate> {
    for line in stderr.lines() {
        let line = line.trim();
        if let Some((_, rest)) = line.split_once(" to start at ") {
            return rest.split_whitespace().next().map(|at| StartEstimate::At(at.to_owned()));
        }
        if let Some((_, why)) = line.split_once("allocation failure: ") {
            return Some(StartEstimate::Never(why.to_owned()));
        }
    }
    let mut errors = stderr.lines().filter_map(|line| line.trim().strip_prefix("sbatch: error: "));
    errors.next_back().map(|why| StartEstimate::Never(why.to_owned()))
}

#[cfg(test)]
mod tests;

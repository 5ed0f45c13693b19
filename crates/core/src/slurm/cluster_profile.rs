//! Cluster profiles: partitions with their nodes and limits. Read from Slurm itself, or from a file.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_types::Bytes;

/// A cluster, as far as it matters where jobs can run. Its fields are those of the file format; partitions have
/// the field names of Torc.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterProfile {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Environment variables that identify the cluster, with their values: `{ "LMOD_SYSTEM_NAME" = "frontier"
    /// }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub detect_env: BTreeMap<String, String>,
    #[serde(default)]
    pub partitions: Vec<Partition>,
}

impl ClusterProfile {
    /// Whether all identifying variables have their values; false if there are none.
    pub fn is_detected(&self, variable: impl Fn(&str) -> Option<String>) -> bool {
        let has = |(name, value): (&String, &String)| variable(name).as_ref() == Some(value);
        !self.detect_env.is_empty() && self.detect_env.iter().all(has)
    }

    pub fn partition(&self, name: &str) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.name == name)
    }

    /// Returns the partition of jobs that name none.
    pub fn default_partition(&self) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.is_default)
    }

    /// Returns what is invalid in it, if written by hand.
    pub fn find_problem(&self) -> Option<String> {
        if !is_safe_name(&self.name) {
            return Some(format!("`{}` is not a valid profile name", self.name));
        }
        let mut names: Vec<&str> = self.partitions.iter().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        if let Some([twice, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Some(format!("partition `{twice}` is listed twice"));
        }
        self.partitions.iter().find_map(Partition::find_problem)
    }
}

/// A partition. The resources are those of its nodes, or of the first node type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Partition {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Number of nodes; `None`: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    pub cpus_per_node: u32,
    pub memory_mb: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub gpus_per_node: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// `None`: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_walltime_secs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_nodes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
    #[serde(skip_serializing_if = "is_false")]
    pub is_default: bool,
    /// Whether jobs start there.
    pub is_up: bool,
    /// Whether jobs of several users share a node; otherwise each gets whole nodes.
    pub shared: bool,
    /// Whether it must be named; otherwise Slurm selects it from the request.
    pub requires_explicit_request: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_qos: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_tier: Option<u32>,
    /// What happens to preempted jobs: `CANCEL`, `REQUEUE` …; `None`: no preemption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt_mode: Option<String>,
    /// Accounts that may use it; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_accounts: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny_accounts: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_qos: Vec<String>,
    /// Other node types.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_nodes: Vec<NodeShape>,
}

/// A type of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeShape {
    /// Number of nodes; `None`: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    pub cpus_per_node: u32,
    pub memory_mb: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub gpus_per_node: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
}

impl NodeShape {
    pub const fn memory(&self) -> Bytes {
        Bytes(self.memory_mb.saturating_mul(1 << 20))
    }
}

impl Default for Partition {
    fn default() -> Self {
        Self {
            name: String::new(),
            description: String::new(),
            nodes: None,
            cpus_per_node: 0,
            memory_mb: 0,
            gpus_per_node: 0,
            gpu_type: None,
            max_walltime_secs: None,
            min_nodes: None,
            max_nodes: None,
            is_default: false,
            is_up: true,
            shared: false,
            requires_explicit_request: true,
            default_qos: None,
            priority_tier: None,
            preempt_mode: None,
            allow_accounts: Vec::new(),
            deny_accounts: Vec::new(),
            allow_groups: Vec::new(),
            allow_qos: Vec::new(),
            other_nodes: Vec::new(),
        }
    }
}

impl Partition {
    /// Returns all its node types.
    pub fn node_shapes(&self) -> impl Iterator<Item = NodeShape> + '_ {
        let first = NodeShape {
            nodes: self.nodes,
            cpus_per_node: self.cpus_per_node,
            memory_mb: self.memory_mb,
            gpus_per_node: self.gpus_per_node,
            gpu_type: self.gpu_type.clone(),
        };
        std::iter::once(first).chain(self.other_nodes.iter().cloned())
    }

    /// `None`: unlimited.
    pub const fn max_walltime(&self) -> Option<Duration> {
        match self.max_walltime_secs {
            Some(seconds) => Some(Duration::from_secs(seconds)),
            None => None,
        }
    }

    /// Total number of nodes; `None` if unknown.
    pub fn total_nodes(&self) -> Option<u32> {
        self.node_shapes().map(|shape| shape.nodes).sum()
    }

    pub fn has_gpus(&self) -> bool {
        self.node_shapes().any(|shape| shape.gpus_per_node > 0)
    }

    /// Whether it is reserved for tests and debugging.
    pub fn is_for_debugging(&self) -> bool {
        self.name.to_ascii_lowercase().contains("debug")
    }

    pub fn admits_account(&self, account: &str) -> bool {
        let names = |list: &[String]| list.iter().any(|one| one == account);
        (self.allow_accounts.is_empty() || names(&self.allow_accounts)) && !names(&self.deny_accounts)
    }

    fn find_problem(&self) -> Option<String> {
        if !is_safe_name(&self.name) {
            return Some(format!("`{}` is not a valid partition name", self.name));
        }
        let place = format!("partition `{}`", self.name);
        if self.node_shapes().any(|shape| shape.cpus_per_node == 0 || shape.memory_mb == 0) {
            return Some(format!("{place}: cpus_per_node and memory_mb must be at least 1"));
        }
        let words = self.node_shapes().filter_map(|shape| shape.gpu_type).chain(self.default_qos.clone());
        words
            .into_iter()
            .find(|word| !is_safe_name(word))
            .map(|word| format!("{place}: Slurm does not accept `{word}`"))
    }
}

/// Whether the text is safe as an option's value for Slurm.
pub fn is_safe_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '@');
    !text.is_empty() && text.len() <= 128 && !text.starts_with('-') && text.chars().all(is_plain)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(value: &u32) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn partition_defaults_apply() {
        let partition: Partition =
            serde_json::from_value(json!({"name": "std", "cpus_per_node": 8, "memory_mb": 1000})).unwrap();
        assert!(partition.is_up && partition.requires_explicit_request && !partition.shared);
        assert_eq!((partition.max_walltime(), partition.total_nodes()), (None, None));
        assert_eq!(partition.node_shapes().next().unwrap().memory(), Bytes(1000 << 20));
        let unknown = json!({"name": "std", "cpus": 8});
        assert!(serde_json::from_value::<Partition>(unknown).is_err());
    }

    #[test]
    fn invalid_profiles_are_rejected() {
        let good = Partition { name: "a".into(), cpus_per_node: 1, memory_mb: 1, ..Partition::default() };
        let profile = |partitions: Vec<Partition>| ClusterProfile {
            name: "p".into(),
            partitions,
            ..ClusterProfile::default()
        };
        for (partitions, said) in [
            (vec![good.clone()], None),
            (vec![good.clone(), good.clone()], Some("partition `a` is listed twice")),
            (
                vec![Partition { cpus_per_node: 0, ..good.clone() }],
                Some("partition `a`: cpus_per_node and memory_mb must be at least 1"),
            ),
            (
                vec![Partition { name: "a b".into(), ..good.clone() }],
                Some("`a b` is not a valid partition name"),
            ),
            (
                vec![Partition { gpu_type: Some("x;y".into()), ..good.clone() }],
                Some("partition `a`: Slurm does not accept `x;y`"),
            ),
        ] {
            assert_eq!(profile(partitions).find_problem().as_deref(), said);
        }
    }

    #[test]
    fn cluster_is_detected_by_environment() {
        let mut profile = ClusterProfile::default();
        assert!(!profile.is_detected(|_| Some("x".into())), "it has no variables");
        profile.detect_env.insert("CLUSTER".into(), "kestrel".into());
        let with = |value: &'static str| move |_: &str| Some(value.to_owned());
        assert!(profile.is_detected(with("kestrel")) && !profile.is_detected(with("dane")));
    }

    #[test]
    fn slurm_words_are_checked() {
        for (text, is_one) in [
            ("standard", true),
            ("a100-80gb", true),
            ("", false),
            ("--wrap", false),
            ("a b", false),
            ("a;b", false),
            ("$(x)", false),
            ("a,b", false),
        ] {
            assert_eq!(is_safe_name(text), is_one, "{text}");
        }
    }
}

use super::*;

fn partition(name: &str, cpus: u32, gib: u64, hours: u64) -> Partition {
    Partition {
        name: name.into(),
        nodes: Some(4),
        cpus_per_node: cpus,
        memory_mb: gib << 10,
        max_walltime_secs: (hours > 0).then_some(hours * 3600),
        ..Partition::default()
    }
}

fn cluster() -> ClusterProfile {
    ClusterProfile {
        name: "test".into(),
        partitions: vec![
            partition("debug", 104, 240, 1),
            partition("short", 104, 240, 4),
            Partition { is_default: true, ..partition("standard", 104, 240, 48) },
            partition("long", 104, 240, 240),
            partition("bigmem", 104, 2000, 48),
            Partition {
                gpus_per_node: 4,
                gpu_type: Some("h100".into()),
                requires_explicit_request: false,
                ..partition("gpu-h100", 128, 360, 48)
            },
            Partition { gpus_per_node: 4, ..partition("gpu-named", 128, 300, 48) },
        ],
        ..ClusterProfile::default()
    }
}

fn ask(cpus: u32, gib: u64, gpus: u32, nodes: u32, hours: u64) -> PartitionRequest<'static> {
    PartitionRequest {
        cpus,
        memory: Bytes(gib << 30),
        gpus,
        nodes,
        walltime: Duration::from_hours(hours),
        account: "",
    }
}

#[test]
fn best_partition_is_chosen() {
    let cluster = cluster();
    for (ask, expected) in [
        // The smallest memory, then the shortest limit; the debugging partition only if there is no other.
        (ask(1, 1, 0, 1, 1), "short"),
        (ask(104, 240, 0, 4, 4), "short"),
        (ask(1, 1, 0, 1, 5), "standard"),
        (ask(1, 1, 0, 1, 49), "long"),
        (ask(1, 241, 0, 1, 1), "bigmem"),
        // More CPUs than others have; GPUs idle, but nothing else fits.
        (ask(120, 1, 0, 1, 1), "gpu-named"),
        // Jobs with GPUs go where Slurm selects the partition, even if the nodes are larger.
        (ask(1, 1, 1, 1, 1), "gpu-h100"),
        (ask(1, 350, 4, 1, 1), "gpu-h100"),
    ] {
        assert_eq!(best_partition(&cluster, &ask).map(|found| found.name.as_str()), Ok(expected), "{ask}");
    }
}

#[test]
fn unplaceable_request_names_the_nearest_partition() {
    let cluster = cluster();
    for (ask, expected) in [
        (ask(129, 1, 0, 1, 1), "nearest is partition `gpu-h100`: its nodes have 128 CPUs"),
        (ask(1, 3000, 0, 1, 1), "nearest is partition `bigmem`: its nodes have 2.0 TiB of memory"),
        (ask(1, 1, 5, 1, 1), "nearest is partition `gpu-h100`: its nodes have 4 GPUs"),
        (ask(1, 1, 0, 5, 1), "nearest is partition `bigmem`: an allocation has at most 4 nodes"),
        (ask(1, 1, 0, 1, 241), "nearest is partition `long`: an allocation lasts at most 10d"),
        (ask(1, 500, 1, 1, 1), "nearest is partition `bigmem`: its nodes have no GPUs"),
    ] {
        let unfit = best_partition(&cluster, &ask).unwrap_err();
        assert_eq!(unfit.to_string(), expected, "{ask}");
    }
    let nothing = best_partition(&ClusterProfile::default(), &ask(1, 1, 0, 1, 1)).unwrap_err();
    assert_eq!(nothing.to_string(), "there is no partition");
}

#[test]
fn debug_partition_is_used_if_it_is_the_only_one() {
    let mut cluster = cluster();
    cluster.partitions.truncate(1);
    assert_eq!(best_partition(&cluster, &ask(1, 1, 0, 1, 1)).unwrap().name, "debug");
}

#[test]
fn unavailable_partitions_are_skipped() {
    let mut cluster = cluster();
    cluster.partitions.retain(|partition| partition.name == "standard" || partition.name == "bigmem");
    cluster.partitions[0].is_up = false;
    assert_eq!(best_partition(&cluster, &ask(1, 1, 0, 1, 1)).unwrap().name, "bigmem");
    cluster.partitions[1].allow_accounts = vec!["rich".into()];
    let mine = PartitionRequest { account: "mine", ..ask(1, 1, 0, 1, 1) };
    let rich = PartitionRequest { account: "rich", ..mine };
    assert_eq!(best_partition(&cluster, &rich).unwrap().name, "bigmem");
    let said = best_partition(&cluster, &mine).unwrap_err().to_string();
    assert_eq!(said, "nearest is partition `bigmem`: account `mine` may not use it");
}

#[test]
fn other_tiers_are_used_only_by_name() {
    let tier = |tier, one: Partition| Partition { priority_tier: Some(tier), ..one };
    let mut cluster = ClusterProfile {
        partitions: vec![
            tier(1, Partition { preempt_mode: Some("CANCEL".into()), ..partition("preempt", 4, 4, 1) }),
            tier(9, partition("high", 4, 4, 1)),
            tier(5, Partition { is_default: true, ..partition("standard", 4, 4, 48) }),
        ],
        ..ClusterProfile::default()
    };
    assert_eq!(best_partition(&cluster, &ask(1, 1, 0, 1, 1)).unwrap().name, "standard");
    cluster.partitions[2].is_up = false;
    assert_eq!(best_partition(&cluster, &ask(1, 1, 0, 1, 1)).unwrap().name, "preempt");
}

#[test]
fn partition_with_several_node_types_fits() {
    let mixed = Partition {
        other_nodes: vec![
            NodeShape { nodes: Some(2), cpus_per_node: 64, memory_mb: 16 << 10, ..NodeShape::default() },
            NodeShape { nodes: Some(1), cpus_per_node: 8, memory_mb: 512 << 10, ..NodeShape::default() },
        ],
        ..partition("mixed", 8, 16, 0)
    };
    assert_eq!(find_shortages(&ask(8, 16, 0, 7, 1000), &mixed), []);
    assert_eq!(find_shortages(&ask(64, 1, 0, 3, 1), &mixed), [PartitionShortage::Nodes(2)]);
    assert_eq!(find_shortages(&ask(64, 100, 0, 1, 1), &mixed), [PartitionShortage::NoSingleNode]);
    assert_eq!(find_shortages(&ask(65, 600, 1, 1, 1), &mixed).len(), 3);
    assert_eq!(smallest_node(&ask(8, 17, 0, 1, 1), &mixed).unwrap().memory_mb, 512 << 10);
}

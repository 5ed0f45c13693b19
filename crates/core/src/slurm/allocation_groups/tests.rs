use super::*;

fn partition(name: &str, cpus: u32, gib: u64, hours: u64) -> Partition {
    Partition {
        name: name.into(),
        nodes: Some(16),
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
            Partition { is_default: true, ..partition("standard", 104, 240, 48) },
            partition("bigmem", 104, 2000, 48),
            Partition { gpus_per_node: 4, ..partition("gpu", 128, 360, 48) },
            partition("forever", 104, 240, 0),
        ],
        ..ClusterProfile::default()
    }
}

fn resources(cpus: u32, gib: u64, gpus: u32, minutes: u64) -> Resources {
    let runtime = Some(Duration::from_mins(minutes));
    Resources { cpus, memory: Bytes(gib << 30), gpus, nodes: 1, runtime }
}

fn demand(name: &str, level: u32, jobs: u64, resources: Resources) -> AllocationDemand {
    AllocationDemand {
        requirements: Some(name.into()),
        resources,
        level,
        jobs,
        names: vec![format!("{name}_{level}")],
        ..AllocationDemand::default()
    }
}

/// `label deferred? jobs allocations x nodes walltime`.
fn shown(groups: &[AllocationGroup]) -> Vec<String> {
    let one = |group: &AllocationGroup| {
        let deferred = if group.is_deferred { " deferred" } else { "" };
        let AllocationGroup { label, jobs, allocations, nodes, walltime, .. } = group;
        format!("{label}{deferred}: {jobs} jobs, {allocations} x {nodes}, {}m", walltime.as_secs() / 60)
    };
    groups.iter().map(one).collect()
}

fn plan(demands: &[AllocationDemand], options: &AllocationOptions) -> Vec<String> {
    shown(&group_demands(&cluster(), demands, options).unwrap())
}

#[test]
fn allocation_count_is_planned() {
    let by_name = AllocationOptions { group_by: GroupBy::Requirements, ..AllocationOptions::default() };
    for (resources, jobs, expected) in [
        // 26 by CPUs, 60 by memory; an allocation is long enough for one after another.
        (resources(4, 4, 0, 60), 26, "r: 26 jobs, 1 x 1, 90m"),
        (resources(4, 4, 0, 60), 27, "r: 27 jobs, 2 x 1, 90m"),
        // Memory is the limit.
        (resources(1, 60, 0, 60), 8, "r: 8 jobs, 2 x 1, 90m"),
        // GPUs.
        (resources(1, 1, 3, 60), 3, "r: 3 jobs, 3 x 1, 90m"),
        // Capped by the partition, so that no second one fits.
        (resources(104, 1, 0, 40 * 60), 3, "r: 3 jobs, 3 x 1, 2880m"),
        // At least what a worker needs to start and to end.
        (Resources { runtime: Some(Duration::ZERO), ..resources(104, 1, 0, 0) }, 3, "r: 3 jobs, 3 x 1, 2m"),
        // Nothing is requested, but not everything runs on one node.
        (Resources { cpus: 0, memory: Bytes(0), ..resources(0, 0, 0, 60) }, 105, "r: 105 jobs, 2 x 1, 90m"),
        // No runtime given: an hour.
        (Resources { runtime: None, ..resources(104, 1, 0, 0) }, 1, "r: 1 jobs, 1 x 1, 90m"),
        // Several nodes each.
        (Resources { nodes: 3, ..resources(104, 1, 0, 60) }, 2, "r: 2 jobs, 2 x 3, 90m"),
    ] {
        assert_eq!(plan(&[demand("r", 0, jobs, resources)], &by_name), [expected]);
    }
}

#[test]
fn walltimes_are_planned() {
    let hour = resources(104, 1, 0, 60);
    let base = AllocationOptions { group_by: GroupBy::Requirements, ..AllocationOptions::default() };
    let longest = WalltimeStrategy::MaxPartitionTime;
    for (options, jobs, expected) in [
        // The third in a row would exceed the reserve for the end.
        (AllocationOptions { multiplier: 3.0, ..base.clone() }, 6, "r: 6 jobs, 3 x 1, 180m"),
        (
            AllocationOptions { multiplier: 3.0, reserve: Duration::ZERO, ..base.clone() },
            6,
            "r: 6 jobs, 2 x 1, 180m",
        ),
        // Never less than the job needs plus the reserve.
        (AllocationOptions { multiplier: 0.5, ..base.clone() }, 2, "r: 2 jobs, 2 x 1, 62m"),
        (
            AllocationOptions { multiplier: 0.5, reserve: Duration::ZERO, ..base.clone() },
            2,
            "r: 2 jobs, 2 x 1, 60m",
        ),
        (AllocationOptions { walltime: longest, ..base.clone() }, 49, "r: 49 jobs, 2 x 1, 2880m"),
        // There is no maximum: what the jobs need.
        (
            AllocationOptions { walltime: longest, partition: Some("forever".into()), ..base.clone() },
            2,
            "r: 2 jobs, 2 x 1, 90m",
        ),
        (
            AllocationOptions { exact_walltime: Some(Duration::from_hours(2)), ..base.clone() },
            3,
            "r: 3 jobs, 3 x 1, 120m",
        ),
    ] {
        assert_eq!(plan(&[demand("r", 0, jobs, hour)], &options), [expected]);
    }
}

#[test]
fn multi_node_allocation_is_planned() {
    let options = AllocationOptions {
        group_by: GroupBy::Requirements,
        single_allocation: true,
        ..AllocationOptions::default()
    };
    let wide = resources(104, 1, 0, 60);
    assert_eq!(plan(&[demand("r", 0, 5, wide)], &options), ["r: 5 jobs, 1 x 5, 90m"]);
    assert_eq!(plan(&[demand("r", 0, 500, wide)], &options), ["r: 500 jobs, 32 x 16, 90m"]);
    let three = Resources { nodes: 3, ..wide };
    assert_eq!(plan(&[demand("r", 0, 2, three)], &options), ["r: 2 jobs, 1 x 6, 90m"]);
    assert_eq!(plan(&[demand("r", 0, 99, three)], &options), ["r: 99 jobs, 20 x 15, 90m"]);
}

#[test]
fn jobs_are_grouped_by_requirements() {
    let options = AllocationOptions { group_by: GroupBy::Requirements, ..AllocationOptions::default() };
    let (small, large) = (resources(1, 1, 0, 60), resources(104, 1, 0, 60));
    let demands = [
        demand("small", 0, 10, small),
        demand("small", 1, 10, small),
        demand("large", 0, 3, large),
        demand("small", 2, 200, small),
        demand("small", 0, 5, small),
    ];
    assert_eq!(
        plan(&demands, &options),
        ["small: 15 jobs, 1 x 1, 90m", "small deferred: 210 jobs, 3 x 1, 90m", "large: 3 jobs, 3 x 1, 90m",]
    );
}

#[test]
fn jobs_are_grouped_by_partition() {
    let options = AllocationOptions::default();
    let (small, large) = (resources(1, 1, 0, 60), resources(52, 1, 0, 120));
    // Maximum of all resources: 52 CPUs for two hours each.
    let demands = [
        demand("small", 0, 4, small),
        demand("large", 0, 3, large),
        demand("gpu", 0, 1, resources(1, 1, 1, 1)),
    ];
    assert_eq!(plan(&demands, &options), ["standard: 7 jobs, 4 x 1, 180m", "gpu: 1 jobs, 1 x 1, 3m"]);
    // Few of both kinds are requested together, and then wait for nothing.
    let few = [demand("small", 0, 4, small), demand("small", 1, 4, small)];
    assert_eq!(plan(&few, &options), ["standard: 8 jobs, 1 x 1, 90m"]);
    let order = [few[1].clone(), few[0].clone()];
    assert_eq!(plan(&order, &options), ["standard: 8 jobs, 1 x 1, 90m"]);
    // Three are too many.
    let many = [demand("small", 0, 105, small), demand("small", 1, 4, small)];
    assert_eq!(
        plan(&many, &options),
        ["standard: 105 jobs, 2 x 1, 90m", "standard deferred: 4 jobs, 1 x 1, 90m"]
    );
}

#[test]
fn demands_that_fit_no_common_node_stay_separate() {
    let mut profile = cluster();
    profile.partitions = vec![Partition {
        other_nodes: vec![NodeShape {
            nodes: Some(2),
            cpus_per_node: 8,
            memory_mb: 2000 << 10,
            ..NodeShape::default()
        }],
        ..partition("mixed", 104, 100, 48)
    }];
    let demands =
        [demand("wide", 0, 1, resources(100, 1, 0, 60)), demand("fat", 0, 1, resources(1, 500, 0, 60))];
    let found = shown(&group_demands(&profile, &demands, &AllocationOptions::default()).unwrap());
    assert_eq!(found, ["mixed: 1 jobs, 1 x 1, 90m", "mixed: 1 jobs, 1 x 1, 90m"]);
}

#[test]
fn labeled_jobs_are_excluded_and_defaults_share_a_node() {
    let labeled =
        AllocationDemand { labels: vec!["gpu".into()], ..demand("r", 0, 9, resources(999, 1, 0, 60)) };
    assert_eq!(plan(&[labeled], &AllocationOptions::default()), [""; 0]);
    let silent = AllocationDemand { requirements: None, ..demand("x", 0, 104, Resources::DEFAULT) };
    let found = group_demands(&cluster(), &[silent], &AllocationOptions::default()).unwrap();
    assert_eq!(found[0].jobs_per_node, 104);
    assert!(found[0].max_resources.memory > Bytes(2 << 30), "{}", found[0].max_resources.memory);
}

#[test]
fn unplaceable_jobs_are_named_with_the_reason() {
    let demands = [
        demand("fine", 0, 1, resources(1, 1, 0, 60)),
        demand("huge", 0, 1, resources(1, 4000, 0, 60)),
        demand("huge", 1, 20, resources(1, 4000, 0, 60)),
        AllocationDemand {
            requirements: None,
            ..demand("slow", 0, 1, Resources { cpus: 500, ..Resources::DEFAULT })
        },
    ];
    let said = |options: &AllocationOptions| -> Vec<String> {
        group_demands(&cluster(), &demands, options).unwrap_err().iter().map(ToString::to_string).collect()
    };
    assert_eq!(
        said(&AllocationOptions::default()),
        [
            "job `huge_0` (and 20 more) fits no partition: `huge` requests 1 CPU, 3.9 TiB, 1h; nearest is \
             partition `bigmem`: its nodes have 2.0 TiB of memory",
            "job `slow_0` fits no partition: it counts as 500 CPUs, 1 MiB, 1h; nearest is partition `gpu`: its \
             nodes have 128 CPUs",
        ]
    );
    let nowhere = AllocationOptions { partition: Some("nowhere".into()), ..AllocationOptions::default() };
    assert!(said(&nowhere)[0].ends_with("; there is no partition `nowhere`"), "{:?}", said(&nowhere));
    let short =
        AllocationOptions { exact_walltime: Some(Duration::from_mins(5)), ..AllocationOptions::default() };
    assert!(said(&short)[0].ends_with("; an allocation is to last 5m"), "{:?}", said(&short));
}

#[test]
fn ended_jobs_do_not_count_in_levels() {
    let edges =
        DependencyEdges { direct: vec![(1, 0), (2, 1)], groups: vec![vec![0, 1]], waits: vec![(3, 0)] };
    for (over, levels) in [
        ([false; 4], [0, 1, 2, 2]),
        ([true, false, false, false], [0, 0, 1, 1]),
        ([true, true, false, false], [0, 0, 0, 0]),
    ] {
        assert_eq!(remaining_levels(&edges, &over), levels, "{over:?}");
    }
}

#[test]
fn job_that_never_starts_is_unplaceable() {
    let asked = |minutes, options: &AllocationOptions| {
        let demands = [demand("long", 0, 1, resources(1, 1, 0, minutes))];
        group_demands(&cluster(), &demands, options).map(drop).map_err(|faults| faults[0].reason.clone())
    };
    let standard = AllocationOptions { partition: Some("standard".into()), ..AllocationOptions::default() };
    assert_eq!(asked(48 * 60 - 2, &standard), Ok(()));
    // The runtime is within the limit, but an allocation must be longer than its jobs.
    let nearest = "nearest is partition `standard`: an allocation lasts at most 2d";
    assert_eq!(asked(48 * 60, &standard), Err(format!("{nearest}, minus 2m reserved for its end")));
    assert_eq!(asked(49 * 60, &standard), Err(nearest.to_owned()));
    let exact = AllocationOptions { exact_walltime: Some(Duration::from_hours(1)), ..standard };
    let said = "an allocation is to last 1h, minus 2m reserved for its end";
    assert_eq!(asked(60, &exact), Err(said.to_owned()));
    assert_eq!(asked(58, &exact), Ok(()));
}

#[test]
fn end_reserve_is_not_used_by_jobs() {
    let (hour, minute) = (Duration::from_hours(1), Duration::from_mins(1));
    for (walltime, runtime, reserve, expected) in [
        (2 * hour, hour, Duration::ZERO, 2),
        // The second would exceed the reserve for the end, so it never starts.
        (2 * hour, hour, minute, 1),
        (2 * hour + minute, hour, minute, 2),
        (24 * hour, hour, 2 * minute, 23),
        (hour, 2 * hour, minute, 1),
        (hour, Duration::ZERO, minute, 1),
    ] {
        assert_eq!(
            sequential_slots(walltime, runtime, reserve),
            expected,
            "{walltime:?} {runtime:?} {reserve:?}"
        );
    }
}

use super::*;
use crate::slurm::allocation_groups::GroupBy;
use windlass_types::Resources;

fn profile() -> ClusterProfile {
    let partition = |name: &str| Partition {
        name: name.into(),
        nodes: Some(4),
        cpus_per_node: 8,
        memory_mb: 8000,
        max_walltime_secs: Some(86_400),
        ..Partition::default()
    };
    ClusterProfile {
        name: "test".into(),
        partitions: vec![
            Partition { is_default: true, shared: true, ..partition("standard") },
            Partition { gpus_per_node: 2, gpu_type: Some("a100".into()), shared: true, ..partition("gpu") },
            Partition { max_walltime_secs: Some(1800), min_nodes: Some(2), ..partition("debug") },
        ],
        ..ClusterProfile::default()
    }
}

fn demand(name: &str, level: u32, jobs: u64, cpus: u32, gpus: u32) -> AllocationDemand {
    AllocationDemand {
        requirements: Some(name.into()),
        resources: Resources {
            cpus,
            memory: Bytes(1000 << 20),
            gpus,
            nodes: 1,
            runtime: Some(Duration::from_hours(2)),
        },
        level,
        jobs,
        names: vec![format!("{name}_{level}")],
        ..AllocationDemand::default()
    }
}

fn by_name() -> AllocationOptions {
    AllocationOptions {
        account: "lab".into(),
        group_by: GroupBy::Requirements,
        ..AllocationOptions::default()
    }
}

#[test]
fn scheduler_requests_the_concurrent_demand() {
    for (jobs, shared, cpus, mem) in [(2, true, 4, "2100M"), (40, true, 8, "4100M"), (2, false, 8, "8000M")] {
        let mut profile = profile();
        profile.partitions[0].shared = shared;
        let demands = [demand("r", 0, jobs, 2, 0)];
        let found = propose_schedulers(&profile, &demands, &by_name(), None, &BTreeSet::new()).unwrap();
        let [SchedulerProposal { scheduler, .. }] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(scheduler.extra, Some(format!("--cpus-per-task={cpus}")));
        assert_eq!(scheduler.mem.as_deref(), Some(mem));
        assert_eq!((scheduler.walltime.as_str(), scheduler.account.as_str()), ("03:00:00", "lab"));
        assert_eq!(scheduler.partition.as_deref(), Some("standard"));
        assert_eq!((scheduler.nodes, scheduler.gres.as_deref()), (1, None));
        assert_eq!(check_scheduler(scheduler, &profile), Ok(()));
        assert_eq!(
            check_job_fits(&demands[0], scheduler, &profile, AllocationOptions::default().reserve),
            Ok(())
        );
    }
}

#[test]
fn gpus_are_requested_by_type() {
    let demands = [demand("r", 0, 1, 1, 1)];
    let found = propose_schedulers(&profile(), &demands, &by_name(), None, &BTreeSet::new()).unwrap();
    assert_eq!(found[0].scheduler.gres.as_deref(), Some("gpu:a100:1"));
    assert_eq!(found[0].scheduler.partition.as_deref(), Some("gpu"));
    let mut auto = profile();
    auto.partitions[1].requires_explicit_request = false;
    let found = propose_schedulers(&auto, &demands, &by_name(), None, &BTreeSet::new()).unwrap();
    assert_eq!(found[0].scheduler.partition, None);
}

#[test]
fn scheduler_names_are_unused() {
    let demands = [demand("r", 0, 40, 8, 0), demand("r", 1, 40, 8, 0)];
    let names = |suffix: Option<&str>, taken: &[&str]| -> Vec<String> {
        let taken = taken.iter().map(ToString::to_string).collect();
        let found = propose_schedulers(&profile(), &demands, &by_name(), suffix, &taken).unwrap();
        found.into_iter().map(|proposal| proposal.scheduler.name).collect()
    };
    assert_eq!(names(None, &[]), ["r_scheduler", "r_scheduler_deferred"]);
    assert_eq!(names(Some("regen"), &[]), ["r_scheduler_regen", "r_scheduler_deferred_regen"]);
    let taken = ["r_scheduler_regen", "r_scheduler_regen_2"];
    assert_eq!(names(Some("regen"), &taken), ["r_scheduler_regen_3", "r_scheduler_deferred_regen"]);
}

#[test]
fn action_waits_for_jobs_that_start_first() {
    // The last stage waits for the middle one, which only these allocations can run.
    let demands = [demand("a", 0, 40, 8, 0), demand("b", 2, 40, 8, 0), demand("b", 1, 40, 8, 0)];
    let found = propose_schedulers(&profile(), &demands, &by_name(), None, &BTreeSet::new()).unwrap();
    assert_eq!(
        found.iter().map(|proposal| proposal.trigger_demands.clone()).collect::<Vec<_>>(),
        [vec![0], vec![2]]
    );
    assert_eq!(found[1].group.demands, [1, 2]);
    let action = &found[1].action;
    assert_eq!((action.trigger_type, action.num_allocations), (ActionTrigger::OnJobsReady, Some(80)));
    assert!(!action.start_one_worker_per_node);
}

#[test]
fn multi_node_allocation_has_a_worker_per_node() {
    let options = AllocationOptions { single_allocation: true, ..by_name() };
    let demands = [demand("r", 0, 3, 8, 0)];
    let found = propose_schedulers(&profile(), &demands, &options, None, &BTreeSet::new()).unwrap();
    assert_eq!((found[0].scheduler.nodes, found[0].action.num_allocations), (3, Some(1)));
    assert!(found[0].action.start_one_worker_per_node);
    assert!((found[0].core_hours() - 72.0).abs() < 1e-9, "{}", found[0].core_hours());
}

#[test]
fn schedulers_that_never_start_are_reported() {
    let good = SlurmScheduler { name: "s".into(), nodes: 2, ..SlurmScheduler::default() };
    let on = |partition: &str| SlurmScheduler { partition: Some(partition.into()), ..good.clone() };
    for (scheduler, expected) in [
        (good.clone(), None),
        (on("standard"), None),
        (on("nope"), Some("there is no partition `nope`; known: standard, gpu, debug")),
        (on("debug"), Some("partition `debug`: an allocation lasts at most 30m")),
        (SlurmScheduler { walltime: "30".into(), ..on("debug") }, None),
        (
            SlurmScheduler { walltime: "30".into(), nodes: 1, ..on("debug") },
            Some("partition `debug`: an allocation has at least 2 nodes"),
        ),
        (on("debug,standard"), None),
        (
            SlurmScheduler { mem: Some("8001".into()), ..on("standard") },
            Some("partition `standard`: its nodes have 7.8 GiB of memory"),
        ),
        (SlurmScheduler { mem: Some("0".into()), ..on("standard") }, None),
        (
            SlurmScheduler { gres: Some("gpu:1".into()), ..good.clone() },
            Some("partition `standard`: its nodes have no GPUs"),
        ),
        (SlurmScheduler { gres: Some("gpu:a100:2".into()), ..on("gpu") }, None),
        (
            SlurmScheduler { nodes: 5, ..on("gpu") },
            Some("partition `gpu`: an allocation has at most 4 nodes"),
        ),
        (SlurmScheduler { walltime: "soon".into(), ..good.clone() }, Some("`soon` is not a walltime")),
    ] {
        let found = check_scheduler(&scheduler, &profile()).err().map(|fault| fault.reason);
        assert_eq!(found.as_deref(), expected, "{scheduler:?}");
    }
}

#[test]
fn jobs_fit_the_scheduler_they_name() {
    let scheduler = SlurmScheduler {
        name: "s".into(),
        walltime: "03:00:00".into(),
        extra: Some("--exclusive -c 4".into()),
        ..SlurmScheduler::default()
    };
    for (cpus, runtime, expected) in [
        (4, 3, None),
        (5, 3, Some("scheduler `s`: it requests 4 CPUs of a node")),
        (4, 4, Some("scheduler `s`: its allocations last 03:00:00")),
    ] {
        let mut demand = demand("r", 0, 1, cpus, 0);
        demand.resources.runtime = Some(Duration::from_hours(runtime));
        let found =
            check_job_fits(&demand, &scheduler, &profile(), Duration::ZERO).err().map(|fault| fault.reason);
        assert_eq!(found.as_deref(), expected);
    }
    let plain = SlurmScheduler { extra: None, walltime: "03:00:00".into(), ..scheduler };
    let found = check_job_fits(&demand("r", 0, 1, 9, 0), &plain, &profile(), Duration::ZERO).unwrap_err();
    assert_eq!(
        found.to_string(),
        "job `r_0` fits no partition: `r` requests 9 CPUs, 1000 MiB, 2h; scheduler `s`: partition `standard`: its nodes \
         have 8 CPUs"
    );
}

#[test]
fn job_must_fit_its_scheduler_and_a_partition() {
    let scheduler = |partition: &str, tasks: u32, extra: &str, mem: Option<&str>| SlurmScheduler {
        name: "s".into(),
        walltime: "00:10:00".into(),
        partition: (!partition.is_empty()).then(|| partition.to_owned()),
        ntasks_per_node: Some(tasks),
        extra: (!extra.is_empty()).then(|| extra.to_owned()),
        mem: mem.map(str::to_owned),
        ..SlurmScheduler::default()
    };
    let mut profile = profile();
    let mut small = profile.partitions[0].clone();
    small.name = "small".into();
    small.cpus_per_node = 2;
    small.max_walltime_secs = Some(600);
    profile.partitions.push(small);
    // scheduler, CPUs of the job → problem
    for (scheduler, cpus, expected) in [
        (scheduler("standard", 4, "-c 1", None), 4, None),
        (scheduler("standard", 4, "-c 1", None), 5, Some("it requests 4 CPUs of a node")),
        (scheduler("small,standard", 1, "", None), 4, None),
        (scheduler("small", 1, "", None), 4, Some("partition `small`: its nodes have 2 CPUs")),
        (scheduler("small", 1, "", None), 1, None),
        (scheduler("standard", 1, "", Some("500M")), 1, Some("it requests 500 MiB of a node")),
    ] {
        let mut demand = demand("r", 0, 1, cpus, 0);
        demand.resources.runtime = None;
        let found =
            check_job_fits(&demand, &scheduler, &profile, Duration::ZERO).err().map(|fault| fault.reason);
        let found = found.as_deref().map(|why| why.strip_prefix("scheduler `s`: ").unwrap());
        assert_eq!(found, expected, "{scheduler:?}");
    }
    let wide = scheduler("standard", 2, "--cpus-per-task=8", None);
    let found = check_scheduler(&wide, &profile).unwrap_err();
    assert_eq!(found.reason, "partition `standard`: its nodes have 8 CPUs");
}

#[test]
fn handwritten_options_are_parsed() {
    for (extra, cpus) in [
        ("--cpus-per-task=8", Some(8)),
        ("--exclusive --cpus-per-task 4", Some(4)),
        ("-c2", Some(2)),
        ("--constraint=x", None),
        ("--comment=-c9", None),
    ] {
        assert_eq!(parse_cpus_option(extra), cpus, "{extra}");
    }
    for (gres, gpus) in [("gpu", 1), ("gpu:2", 2), ("gpu:a100:4,tmp:5", 4), ("tmp:3", 0), ("gpu:2(S:0-1)", 2)]
    {
        assert_eq!(parse_gres_gpus(gres), gpus, "{gres}");
    }
    assert_eq!(format_walltime(Duration::from_secs(100 * 3600 + 61)), "100:01:01");
}

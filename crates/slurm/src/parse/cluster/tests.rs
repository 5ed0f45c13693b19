use super::*;

const SINFO_TEXT: &str = "\
debug|up|30:00|4|4|4000|idle|1-infinite|5|OFF|NO|(null)
standard*|up|2-00:00:00|3|4|4000|idle|1-infinite|5|OFF|NO|(null)
standard*|up|2-00:00:00|1|4|4000|down*|1-infinite|5|OFF|NO|(null)
standard*|up|2-00:00:00|2|64|256000|mixed|1-infinite|5|OFF|NO|(null)
gpu|up|1-00:00:00|1|4|4000|idle|1-8|5|OFF|EXCLUSIVE|gpu:a100:2(S:0,1),tmp:5
preempt|up|infinite|4|4|4000|idle|2-16|1|CANCEL|FORCE:4|gpu:2
dead|drain|1:00:00|0|1|1|n/a|1-infinite|5|OFF|NO|(null)
";
const SCONTROL_TEXT: &str = "\
PartitionName=debug AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A MaxTime=00:30:00 MinNodes=0 MaxCPUsPerNode=UNLIMITED Nodes=n[1-4] PriorityTier=5 RootOnly=NO ReqResv=NO OverSubscribe=NO PreemptMode=OFF State=UP TotalCPUs=16 TotalNodes=4 MaxMemPerNode=UNLIMITED
PartitionName=standard AllowGroups=physics,chemistry AllowAccounts=lab,shop DenyAccounts=thief AllowQos=normal State=UP RootOnly=NO ReqResv=NO MaxCPUsPerNode=32 MaxMemPerNode=128000 TRES=cpu=16,mem=16000M
PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL RootOnly=YES State=UP MaxCPUsPerNode=UNLIMITED MaxMemPerNode=UNLIMITED
";

#[test]
fn cluster_is_parsed_from_sinfo_and_scontrol() {
    let cluster = parse_cluster("test", SINFO_TEXT, SCONTROL_TEXT).unwrap();
    let names: Vec<&str> = cluster.partitions.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["debug", "standard", "gpu", "preempt", "dead"]);
    assert_eq!(
        cluster.partition("debug").unwrap(),
        &Partition {
            name: "debug".into(),
            nodes: Some(4),
            cpus_per_node: 4,
            memory_mb: 4000,
            max_walltime_secs: Some(1800),
            shared: true,
            priority_tier: Some(5),
            ..Partition::default()
        }
    );
    let standard = cluster.partition("standard").unwrap();
    assert_eq!((standard.nodes, standard.is_default, standard.total_nodes()), (Some(3), true, Some(5)));
    assert_eq!(standard.max_walltime_secs, Some(2 * 86_400));
    // Its limit is below its largest nodes.
    let large = NodeShape { nodes: Some(2), cpus_per_node: 32, memory_mb: 128_000, ..NodeShape::default() };
    assert_eq!(standard.other_nodes, [large]);
    assert_eq!(standard.allow_groups, ["physics", "chemistry"]);
    assert!(standard.admits_account("lab") && !standard.admits_account("other"));
    let gpu = cluster.partition("gpu").unwrap();
    assert_eq!((gpu.gpus_per_node, gpu.gpu_type.as_deref()), (2, Some("a100")));
    assert_eq!((gpu.max_nodes, gpu.shared, gpu.is_up), (Some(8), false, false));
    let preempt = cluster.partition("preempt").unwrap();
    assert_eq!((preempt.preempt_mode.as_deref(), preempt.max_walltime_secs), (Some("CANCEL"), None));
    assert_eq!((preempt.min_nodes, preempt.max_nodes, preempt.gpus_per_node), (Some(2), Some(16), 2));
    assert!(!cluster.partition("dead").unwrap().is_up);
}

#[test]
fn unreadable_answers_give_no_cluster() {
    for line in [
        "slurm_load_partitions: Unable",
        "a|up|soon|1|1|1|idle|1|1|OFF|NO|(null)",
        "a|up|1:00|x|1|1|idle|1|1|OFF|NO|x",
    ] {
        let error = parse_cluster("test", line, "").unwrap_err();
        assert_eq!(error.to_string(), format!("cannot parse a line of sinfo: `{line}`"));
    }
    assert_eq!(parse_cluster("test", "\n", "rubbish").unwrap().partitions, []);
}

#[test]
fn permanently_down_nodes_do_not_count() {
    for (state, usable) in [
        ("idle", true),
        ("mixed*", true),
        ("drained", true),
        ("idle~", true),
        ("down*", false),
        ("down", false),
        ("FUTURE", false),
    ] {
        assert_eq!(is_usable(state), usable, "{state}");
    }
}

#[test]
fn start_estimate_is_parsed() {
    for (text, expected) in [
        (
            "sbatch: Job 13 to start at 2026-11-15T06:44:50 using 8 processors on nodes n[3-4] in partition standard",
            Some(StartEstimate::At("2026-11-15T06:44:50".into())),
        ),
        (
            "allocation failure: Requested node configuration is not available",
            Some(StartEstimate::Never("Requested node configuration is not available".into())),
        ),
        (
            "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified",
            Some(StartEstimate::Never(
                "Batch job submission failed: Invalid partition name specified".into(),
            )),
        ),
        ("", None),
    ] {
        assert_eq!(parse_start_estimate(text), expected, "{text}");
    }
}

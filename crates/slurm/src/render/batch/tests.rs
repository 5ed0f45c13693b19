use super::*;
use windlass_types::Timestamp;
use windlass_types::slurm::AllocationState;

fn allocation(request: &AllocationRequest) -> Allocation {
    let row = serde_json::json!({
        "id": 12, "workflow": 3, "scheduler": 7, "tag": "wl-5f2a-12", "request": request,
        "state": AllocationState::Submitting, "job_id": null, "by": "ann", "created_at": Timestamp(0),
        "submitted_at": null, "started_at": null, "ends_at": null, "ended_at": null, "end": null, "seen_at": null,
        "is_ours": true,
    });
    serde_json::from_value(row).unwrap()
}

fn request() -> AllocationRequest {
    AllocationRequest {
        scheduler: "small".to_owned(),
        account: "proj".to_owned(),
        partition: Some("standard".to_owned()),
        nodes: 1,
        mem: Some("4G".to_owned()),
        walltime: Duration::from_hours(1),
        ..AllocationRequest::default()
    }
}

fn site() -> BatchContext<'static> {
    BatchContext {
        tag_prefix: "",
        windlass: Path::new("/opt/wind lass/windlass"),
        server: "http://login1:8080",
        output_dir: Path::new("/data/out"),
        directory: Path::new("/data"),
        warning: Duration::from_mins(5),
        settings: WorkflowSettings::default(),
    }
}

#[test]
fn batch_script_starts_one_worker() {
    let batch = render_batch(&allocation(&request()), &site()).unwrap();
    let expected = [
        "--account=proj",
        "--partition=standard",
        "--mem=4G",
        "--nodes=1",
        "--exclusive",
        "--parsable",
        "--job-name=wl-5f2a-12",
        "--comment=wl-5f2a-12",
        "--time=0-01:00:00",
        "--no-requeue",
        "--open-mode=append",
        "--output=/data/out/slurm_output_wf3_sl12.o",
        "--error=/data/out/slurm_output_wf3_sl12.e",
        "--chdir=/data",
        "--signal=B:USR1@300",
    ];
    assert_eq!(batch.arguments, expected);
    assert_eq!(
        batch.script,
        "#!/bin/sh\n\
         # Windlass: allocation 12 of workflow 3. Its options were arguments of sbatch;\n\
         # `scontrol show job` prints them. Its tag: wl-5f2a-12\n\
         # These variables would act as options of nested commands, or belong to the server.\n\
         unset SLURM_CPUS_PER_TASK SLURM_CPU_BIND SLURM_DISTRIBUTION SLURM_EXPORT_ENV SLURM_GPUS_PER_NODE \
         SLURM_GPUS_PER_TASK SLURM_JWT SLURM_MEM_BIND SLURM_NPROCS SLURM_NTASKS SLURM_NTASKS_PER_NODE SLURM_OPEN_MODE \
         SLURM_TIMELIMIT\n\
         exec '/opt/wind lass/windlass' slurm worker --server http://login1:8080 \\\n  \
         --workflow 3 --allocation 12 --walltime 3600 --warning 300 \\\n  \
         --output-dir /data/out\n"
    );
}

#[test]
fn worker_settings_are_passed_in_the_script() {
    let settings = WorkflowSettings {
        compute_node_wait_for_healthy_database_minutes: Some(60),
        ..WorkflowSettings::default()
    };
    let script = render_batch(&allocation(&request()), &BatchContext { settings, ..site() }).unwrap().script;
    let message =
        "--output-dir /data/out --settings '{\"compute_node_wait_for_healthy_database_minutes\":60}'\n";
    assert!(script.ends_with(message), "{script}");
}

#[test]
fn srun_starts_and_signals_a_worker_per_node() {
    let request = AllocationRequest {
        nodes: 4,
        one_worker_per_node: true,
        max_parallel_jobs: Some(8),
        walltime: Duration::from_mins(5),
        ..request()
    };
    let batch = render_batch(&allocation(&request), &site()).unwrap();
    assert!(batch.arguments.contains(&"--signal=USR1@150".to_owned()), "{:?}", batch.arguments);
    assert!(
        batch.script.contains(
            "exec srun --nodes=4 --ntasks-per-node=1 --cpus-per-task=\"$SLURM_CPUS_ON_NODE\" --mem=0 \\\n  \
             --wait=0 --kill-on-bad-exit=0 --overlap --export=ALL \\\n  '/opt/wind lass/windlass' slurm worker"
        ),
        "{}",
        batch.script
    );
    assert!(batch.script.ends_with("--output-dir /data/out --max-parallel-jobs 8\n"), "{}", batch.script);
}

#[test]
fn serialized_allocations_share_a_job_name() {
    let request = AllocationRequest { serialize: true, scheduler: "a b/c".to_owned(), ..request() };
    let arguments = render_batch(&allocation(&request), &site()).unwrap().arguments;
    for word in ["--job-name=wl-5f2a-wf3-a_b_c", "--comment=wl-5f2a-12", "--dependency=singleton"] {
        assert!(arguments.iter().any(|argument| argument == word), "{word}: {arguments:?}");
    }
}

#[test]
fn user_options_precede_own_options() {
    let request = AllocationRequest {
        extra: Some("-C 'a&b' --job-name=mine --exclusive".to_owned()),
        options: [("reservation", "r 1"), ("hold", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        ..request()
    };
    let arguments = render_batch(&allocation(&request), &site()).unwrap().arguments;
    let begin =
        ["-C", "a&b", "--job-name=mine", "--exclusive", "--hold", "--reservation=r 1", "--account=proj"];
    assert_eq!(arguments[..7], begin);
    let names: Vec<_> = arguments.iter().filter(|argument| argument.starts_with("--job-name=")).collect();
    assert_eq!(names, ["--job-name=mine", "--job-name=wl-5f2a-12"], "the last one counts");
}

#[test]
fn forbidden_extra_options_are_rejected() {
    let rows = [
        ("--array=1-5", "`--array` in `extra` or `slurm_defaults` cannot be used"),
        ("--arr 1-5", "`--array`"),
        ("-a1-5", "`--array`"),
        ("--wrap 'rm -rf /'", "`--wrap`"),
        ("-M other", "`--clusters`"),
        ("-HM other", "`-HM` in `extra` belongs to no option"),
        ("--requeue", "`--requeue`"),
        ("--uid=0", "`--uid`"),
        ("--exclusive job.sh", "`job.sh` in `extra` belongs to no option"),
        ("job.sh", "`job.sh`"),
        ("-p debug job.sh", "`job.sh`"),
        ("-", "`-`"),
        (": -N1", "`:`"),
        ("--mail-user='me", "a quote is not closed"),
        ("--a\n#SBATCH", "a newline"),
        ("--Foo", "lowercase letters"),
    ];
    for (extra, message) in rows {
        let request = AllocationRequest { extra: Some(extra.to_owned()), ..request() };
        let error = render_batch(&allocation(&request), &site()).expect_err(extra).to_string();
        assert!(error.contains(message), "{extra:?}: {error}");
    }
    for fine in ["--export=NONE", "--wait-all-nodes=1", "-p debug -q high", "--nice=5 -H", "-C gpu -x n1,n2"]
    {
        let request = AllocationRequest { extra: Some(fine.to_owned()), ..request() };
        assert!(render_batch(&allocation(&request), &site()).is_ok(), "{fine}");
    }
}

#[test]
fn invalid_option_values_are_rejected() {
    let with = |change: &dyn Fn(&mut AllocationRequest)| {
        let mut request = request();
        change(&mut request);
        render_batch(&allocation(&request), &site()).unwrap_err().to_string()
    };
    let newline = with(&|request| request.partition = Some("a\n#SBATCH --uid=0".to_owned()));
    assert!(
        newline
            .starts_with("`partition` of the scheduler is \"a\\n#SBATCH --uid=0\", which contains a newline")
    );
    assert!(with(&|request| request.account = "a\0b".to_owned()).contains("`account`"));
    assert!(with(&|request| request.qos = Some(String::new())).contains("is empty"));
    assert!(with(&|request| request.nodes = 0).contains("not a number of nodes"));
    assert!(with(&|request| drop(request.options.insert("x;y".to_owned(), "1".to_owned()))).contains("x;y"));
    let mut odd = allocation(&request());
    odd.tag = "a b".to_owned();
    assert!(render_batch(&odd, &site()).unwrap_err().to_string().contains("the tag"));
    let relative = BatchContext { directory: Path::new("here"), ..site() };
    assert!(
        render_batch(&allocation(&request()), &relative).unwrap_err().to_string().contains("is not absolute")
    );
}

#[test]
fn percent_in_paths_is_escaped() {
    let site = BatchContext { output_dir: Path::new("/data/100%j"), ..site() };
    let arguments = render_batch(&allocation(&request()), &site).unwrap().arguments;
    assert!(arguments.contains(&"--output=/data/100%%j/slurm_output_wf3_sl12.o".to_owned()), "{arguments:?}");
}

#[test]
fn walltimes_are_rendered() {
    for (seconds, text) in [(30, "0-00:01:00"), (90, "0-00:01:30"), (93_784, "1-02:03:04")] {
        assert_eq!(render_walltime(Duration::from_secs(seconds)), text);
    }
}

#[test]
fn nodes_are_exclusive_unless_cores_are_requested() {
    let rows = [
        ("", None, None, "--nodes=1 --exclusive --mem=0"),
        ("", None, Some("2G"), "--mem=2G --nodes=1 --exclusive"),
        ("--mem-per-cpu=1G", None, None, "--mem-per-cpu=1G --nodes=1 --exclusive"),
        ("", Some(4), None, "--nodes=1 --ntasks-per-node=4"),
        ("-c 4", None, None, "-c 4 --nodes=1"),
        ("-c4", None, Some("2G"), "-c4 --mem=2G --nodes=1"),
        ("--cpus-per-t=4", None, None, "--cpus-per-t=4 --nodes=1"),
        ("--oversubscribe", None, None, "--oversubscribe --nodes=1"),
        ("--constraint=cpu", None, None, "--constraint=cpu --nodes=1 --exclusive --mem=0"),
    ];
    for (extra, ntasks_per_node, mem, expected) in rows {
        let request = AllocationRequest {
            nodes: 1,
            extra: Some(extra.to_owned()),
            ntasks_per_node,
            mem: mem.map(str::to_owned),
            ..AllocationRequest::default()
        };
        assert_eq!(render_user_options(&request).unwrap().join(" "), expected, "{extra}");
    }
}

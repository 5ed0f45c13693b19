//! Scripts with the files that they read and write.

use super::*;
use crate::file_layout;
use crate::pause;
use std::fs;
use std::path::Path;
use windlass_types::payload::{MergeOutput, ProcessingFailure, ProcessingReport, StepMetrics};

/// An event log as HTCondor writes it: job 32 ran on T2_DE_Beta for two minutes.
const LOG: &str = "\
000 (032.000.000) 2026-11-15 06:19:03 Job submitted from host: <127.0.0.1:9618?addrs=127.0.0.1-9618&sock=schedd_1>
    DAG Node: NODE
...
000 (033.000.000) 2026-11-15 06:19:03 Job submitted from host: <127.0.0.1:9618?addrs=127.0.0.1-9618&sock=schedd_1>
    DAG Node: other
...
001 (032.000.000) 2026-11-15 06:19:04 Job executing on host: <127.0.0.1:9618?addrs=127.0.0.1-9618&sock=startd_1>
\tSlotName: slot2_2@pool.test
\tGLIDEIN_CMSSite = \"T2_DE_Beta\"
\tMemory = 128
...
001 (033.000.000) 2026-11-15 06:19:05 Job executing on host: <127.0.0.1:9618?addrs=127.0.0.1-9618&sock=startd_1>
\tGLIDEIN_CMSSite = \"T1_US_Alpha\"
...
005 (032.000.000) 2026-11-15 06:21:04 Job terminated.
\t(1) Normal termination (return value 65)
\t\tUsr 0 00:01:30, Sys 0 00:00:10  -  Run Remote Usage
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Local Usage
\tPartitionable Resources :    Usage  Request Allocated
\t   Cpus                 :     0.83        1         1
\t   Memory (MB)          :   194         1024      1024

\tJob terminated of its own accord at 2026-11-15T06:21:04Z with exit-code 65.
...
";

/// The directory of a run with one unit in it.
struct Fixture {
    run: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let run = tempfile::tempdir().unwrap();
        settings().save(run.path()).unwrap();
        fs::create_dir(file_layout::unit_directory(run.path(), 0)).unwrap();
        let fixture = Self { run };
        fixture.write("group.dag.nodes.log", LOG);
        fixture
    }

    fn unit(&self) -> std::path::PathBuf {
        file_layout::unit_directory(self.run.path(), 0)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.unit().join(name), text).unwrap();
    }

    fn has(&self, name: &str) -> bool {
        self.unit().join(name).exists()
    }

    fn call(&self, node: &str, returned: i32, node_group: &str) -> ScriptCall {
        ScriptCall {
            directory: self.unit(),
            node: node.into(),
            returned,
            retry: 0,
            max_retries: 3,
            job_id: "32.0".into(),
            node_group: node_group.into(),
        }
    }
}

fn left(directory: &Path, node: &str) -> PostReport {
    serde_json::from_slice(&fs::read(file_layout::post_report_path(directory, node)).unwrap()).unwrap()
}

fn failed_report() -> ProcessingReport {
    let step = StepMetrics {
        step: "RECO".into(),
        exit_code: 8021,
        peak_rss_mb: 900.0,
        events_read: 15,
        ..StepMetrics::default()
    };
    ProcessingReport {
        node: 3,
        inputs: vec!["/store/a.root".into(), "/store/b.root".into()],
        steps: vec![step],
        failure: Some(ProcessingFailure {
            step: Some("RECO".into()),
            exit_code: 8021,
            signal: None,
            message: "cannot read /store/a.root".into(),
        }),
        bad_inputs: vec!["/store/a.root".into()],
        ..ProcessingReport::default()
    }
}

#[test]
fn report_has_the_specified_fields() {
    let fixture = Fixture::new();
    fixture.write("proc_3.json", &serde_json::to_string(&failed_report()).unwrap());
    fixture.write(
        "proc_000003.err",
        "reading\nwindlass payload: data failure 8021: step RECO: cannot read /store/a.root\n",
    );
    let decision = run_post(&fixture.call("proc_000003", 65, "processing")).unwrap();
    assert_eq!(decision.exit_code, ScriptExitCode::Permanent);
    let text = fs::read_to_string(file_layout::post_report_path(&fixture.unit(), "proc_000003")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (pointer, value) in [
        ("/node_name", serde_json::json!("proc_000003")),
        ("/attempt", 1.into()),
        ("/max_retries", 3.into()),
        ("/final", true.into()),
        ("/job/exit_code", 65.into()),
        ("/job/exit_signal", serde_json::Value::Null),
        ("/job/hold_reason", serde_json::Value::Null),
        ("/job/wall_time_sec", 120.into()),
        ("/job/cpu_time_sec", 100.into()),
        ("/job/memory_mb", 194.into()),
        ("/job/site", "T2_DE_Beta".into()),
        ("/cmssw/exit_code", 8021.into()),
        ("/cmssw/steps/RECO/status", 1.into()),
        ("/cmssw/steps/RECO/exit_code", 8021.into()),
        ("/cmssw/error_message", "cannot read /store/a.root".into()),
        ("/cmssw/input_files/1", "/store/b.root".into()),
        ("/cmssw/output_files", serde_json::json!([])),
        ("/cmssw/performance/peak_rss_mb", serde_json::json!(900.0)),
        ("/cmssw/performance/events_read", 15.into()),
        ("/classification/category", "data".into()),
        ("/classification/retryable", false.into()),
        ("/classification/bad_input_files", serde_json::json!(["/store/a.root"])),
        ("/classification/action", "permanent_failure".into()),
    ] {
        assert_eq!(json.pointer(pointer), Some(&value), "{pointer} in {text}");
    }
    assert!(json["log_tail"].as_str().unwrap().starts_with("reading\n"));
    assert!(json["timestamp"].is_string() && json["job"]["schedd"].is_string());
    let hidden = fs::read_dir(fixture.unit())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(hidden.count(), 0, "no temporary file is left");
}

/// Other nodes wrote megabytes between the start and the end of this one.
#[test]
fn job_events_are_found_in_a_long_log() {
    let fixture = Fixture::new();
    fixture.write(file_layout::ELECTED_SITE_FILE, "MY.DESIRED_Sites = \"T2_DE_Beta\"\n");
    let (begun, ended) = LOG.split_at(LOG.find("005 (032.").unwrap());
    let ended = ended.replace("\n\n\tJob", "\n\t   TimeExecute (s)      :   120\n\n\tJob");
    let others =
        "001 (033.000.000) 2026-11-15 06:19:05 Job executing on host: <127.0.0.1:9618>\n...\n".repeat(30_000);
    fixture
        .write("group.dag.nodes.log", &format!("{}{others}{ended}", begun.replace("T2_DE_Beta", "T2_Far")));
    let job = run_post(&fixture.call("proc_000003", 65, "processing")).unwrap().report.job;
    assert_eq!((job.wall_time_sec, job.cpu_time_sec), (Some(120), Some(100)));
    assert_eq!(job.site.as_deref(), Some("T2_DE_Beta"), "the site of its unit");
}

#[test]
fn cmsrun_report_is_read_without_a_windlass_report() {
    let fixture = Fixture::new();
    fixture.write(
        "cmsrun.xml",
        "<FrameworkJobReport><InputFile><LFN>/store/a.root</LFN><PFN>/d/a.root</PFN><EventsRead>7</EventsRead></InputFile>\
         <FrameworkError ExitStatus=\"8021\" Type=\"FileReadError\">cannot read /store/a.root</FrameworkError></FrameworkJobReport>",
    );
    let report = run_post(&fixture.call("cmsrun", 85, "plain")).unwrap().report;
    assert_eq!(report.classification.category, "data");
    assert_eq!(report.classification.bad_input_files, ["/store/a.root"]);
    let cmssw = report.cmssw.unwrap();
    assert_eq!((cmssw.exit_code, cmssw.performance.events_read), (8021, 7));
}

#[test]
fn raised_memory_is_saved_for_the_next_attempt() {
    let fixture = Fixture::new();
    fixture.write("proc_000003.err", "windlass payload: memory failure 50660: step RECO: over its memory\n");
    assert_eq!(
        run_post(&fixture.call("proc_000003", 1, "processing")).unwrap().exit_code,
        ScriptExitCode::Retry
    );
    let text = fs::read_to_string(file_layout::next_attempt_path(&fixture.unit(), "proc_000003")).unwrap();
    assert!(text.contains("request_memory = 1536\n"), "{text}");
    let second =
        ScriptCall { retry: 1, job_id: "34.0".into(), ..fixture.call("proc_000003", 1, "processing") };
    let report = run_post(&second).unwrap().report;
    assert_eq!((report.asked, report.attempts.len()), (requested_memory(GIB + GIB / 2), 1));
    assert_eq!(left(&fixture.unit(), "proc_000003"), report);
}

#[test]
fn nodes_without_a_report_are_retried() {
    let fixture = Fixture::new();
    let missing = run_post(&fixture.call("proc_000003", 0, "processing")).unwrap();
    assert_eq!(missing.exit_code, ScriptExitCode::Retry);
    fixture.write("proc_3.json", &serde_json::to_string(&ProcessingReport::default()).unwrap());
    assert_eq!(
        run_post(&fixture.call("proc_000003", 0, "processing")).unwrap().exit_code,
        ScriptExitCode::Success
    );
    assert_eq!(run_post(&fixture.call("merge", 0, "merge")).unwrap().exit_code, ScriptExitCode::Retry);
    fixture.write("merge_output.json", &serde_json::to_string(&MergeOutput::default()).unwrap());
    assert_eq!(run_post(&fixture.call("merge", 0, "merge")).unwrap().exit_code, ScriptExitCode::Success);
    assert_eq!(run_post(&fixture.call("cleanup", 0, "cleanup")).unwrap().exit_code, ScriptExitCode::Success);
}

#[test]
fn truncated_report_counts_as_missing() {
    let fixture = Fixture::new();
    let processing = serde_json::to_string(&ProcessingReport::default()).unwrap();
    let merge = serde_json::to_string(&MergeOutput::default()).unwrap();
    for (node, kind, file, whole) in [
        ("proc_000003", "processing", "proc_3.json", processing),
        ("merge", "merge", "merge_output.json", merge),
    ] {
        for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
            fixture.write(file, &whole[..cut]);
            let found = run_post(&fixture.call(node, 0, kind)).unwrap();
            let what = found.report.classification;
            assert_eq!(
                (found.exit_code, what.category.as_str()),
                (ScriptExitCode::Retry, "transient"),
                "{file} {cut}"
            );
            let told = format!("the job exited with 0 but left no complete {file}");
            assert!(what.why.starts_with(&told), "{}", what.why);
        }
        fixture.write(file, &whole);
        assert_eq!(
            run_post(&fixture.call(node, 0, kind)).unwrap().exit_code,
            ScriptExitCode::Success,
            "{file}"
        );
    }
    fixture.write("merge_output.json", "{}");
    assert_eq!(
        run_post(&fixture.call("merge", 0, "merge")).unwrap().exit_code,
        ScriptExitCode::Retry,
        "the file is invalid"
    );
}

#[test]
fn unit_runs_at_the_site_of_its_landing() {
    let fixture = Fixture::new();
    assert!(matches!(run_pre(&fixture.unit(), "proc_000003"), Err(ScriptError::NotElected { .. })));
    assert_eq!(
        run_pre(&fixture.unit(), "landing").unwrap(),
        PreScriptResult::Ready,
        "there is nothing to wait for"
    );
    assert_eq!(
        run_landing_post(&fixture.call("landing", 0, "landing")).unwrap().exit_code,
        ScriptExitCode::Success
    );
    let text = fs::read_to_string(fixture.unit().join(file_layout::ELECTED_SITE_FILE)).unwrap();
    assert_eq!(text, "MY.DESIRED_Sites = \"T2_DE_Beta\"\n");
    assert_eq!(run_pre(&fixture.unit(), "proc_000003").unwrap(), PreScriptResult::Ready);
}

#[test]
fn landing_without_a_valid_site_elects_none() {
    let fixture = Fixture::new();
    let failed = run_landing_post(&fixture.call("landing", 71, "landing")).unwrap();
    assert_eq!(
        (failed.exit_code, fixture.has(file_layout::ELECTED_SITE_FILE)),
        (ScriptExitCode::Retry, false)
    );
    // An earlier election says nothing about this landing.
    fixture.write(file_layout::ELECTED_SITE_FILE, "MY.DESIRED_Sites = \"T2_DE_Beta\"\n");
    let unseen = ScriptCall { job_id: "99.0".into(), ..fixture.call("landing", 0, "landing") };
    let found = run_landing_post(&unseen).unwrap();
    assert_eq!((found.exit_code, found.report.is_final), (ScriptExitCode::Retry, false));
    let left = left(&fixture.unit(), "landing").classification;
    assert_eq!(left.category, "infrastructure");
    assert!(left.why.contains("does not say where job 99.0 ran"), "{}", left.why);
    fixture.write("group.dag.nodes.log", &LOG.replace("T2_DE_Beta", "T2 X\\\" evil"));
    let spent = run_landing_post(&ScriptCall { retry: 3, ..fixture.call("landing", 0, "landing") }).unwrap();
    assert_eq!((spent.exit_code, spent.report.is_final), (ScriptExitCode::Retry, true));
    assert!(spent.report.classification.why.contains("a site with an invalid name"), "{spent:?}");
    let kept = fs::read_to_string(fixture.unit().join(file_layout::ELECTED_SITE_FILE)).unwrap();
    assert!(kept.contains("T2_DE_Beta") && !kept.contains("evil"));
}

#[test]
fn retry_waits_for_its_cool_off_and_removes_old_reports() {
    let fixture = Fixture::new();
    fixture.write(file_layout::ELECTED_SITE_FILE, "MY.DESIRED_Sites = \"T2_DE_Beta\"\n");
    run_post(&fixture.call("proc_000003", 75, "processing")).unwrap();
    fixture.write("proc_3.json", "{}");
    assert_eq!(run_pre(&fixture.unit(), "proc_000003").unwrap(), PreScriptResult::TooEarly);
    assert!(fixture.has("proc_3.json"));
    let mut report = left(&fixture.unit(), "proc_000003");
    report.not_before = Some(report.timestamp);
    node_post::write_report(&fixture.unit(), &report).unwrap();
    assert_eq!(run_pre(&fixture.unit(), "proc_000003").unwrap(), PreScriptResult::Ready);
    assert!(!fixture.has("proc_3.json"), "it belongs to the attempt before");
}

/// Neither a first attempt nor a retry starts; a deferred attempt uses up no retry and loses no report.
#[test]
fn paused_run_starts_no_attempt() {
    let fixture = Fixture::new();
    let (run, unit) = (fixture.run.path(), fixture.unit());
    fixture.write(file_layout::ELECTED_SITE_FILE, "MY.DESIRED_Sites = \"T2_DE_Beta\"\n");
    fixture.write("proc_3.json", "{}");
    pause::pause_run(run).unwrap();
    for (directory, node) in
        [(unit.as_path(), "landing"), (&unit, "proc_000003"), (&unit, "merge"), (run, "step")]
    {
        assert_eq!(run_pre(directory, node).unwrap(), PreScriptResult::Paused, "{node}");
    }
    assert!(fixture.has("proc_3.json"));
    pause::resume_run(run).unwrap();
    assert_eq!(run_pre(&unit, "proc_000003").unwrap(), PreScriptResult::Ready);
    assert_eq!(run_pre(run, "step").unwrap(), PreScriptResult::Ready);
}

#[test]
fn a_recovery_script_runs_once_before_the_retry() {
    let fixture = Fixture::new();
    fixture.write(file_layout::ELECTED_SITE_FILE, "");
    let names = [("step".to_owned(), "a step".to_owned())].into();
    crate::script_settings::write_names(fixture.run.path(), &names).unwrap();
    run_post(&fixture.call("step", 10, "handled")).unwrap();
    let mut report = left(&fixture.unit(), "step");
    report.not_before = None;
    node_post::write_report(&fixture.unit(), &report).unwrap();
    assert_eq!(run_pre(&fixture.unit(), "step").unwrap(), PreScriptResult::Ready);
    let log = fixture.unit().join("step.recovery.log");
    assert_eq!(fs::read_to_string(&log).unwrap(), "a step 10 1\n");
    let report = left(&fixture.unit(), "step");
    assert!(report.classification.why.ends_with("recovery script: exit status: 0"), "{report:?}");
    fs::remove_file(&log).unwrap();
    assert_eq!(run_pre(&fixture.unit(), "step").unwrap(), PreScriptResult::Ready);
    assert!(!log.exists());
}

#[test]
fn recovery_script_is_ended_at_its_time_limit() {
    let fixture = Fixture::new();
    let recovery = windlass_types::worker_messages::RecoveryScript {
        script: "echo begun; exec sleep 1000".into(),
        failed: windlass_types::Attempt(1),
        return_code: 10,
        limit: Duration::from_millis(300),
    };
    let unit = fixture.unit();
    let failed_job = recovery_script::RecoveryTarget {
        directory: &unit,
        node: "step",
        job: "step",
        submission_dir: &unit,
    };
    let how = recovery_script::run_recovery(failed_job, &recovery);
    assert!(how.contains("its time limit"), "{how}");
}

#[test]
fn an_abort_of_a_unit_reaches_the_outer_dag() {
    let fixture = Fixture::new();
    let (run, name) = (fixture.run.path(), "mg_000000");
    assert_eq!(unit(run, name, 0), ScriptExitCode::Success);
    assert_eq!(unit(run, name, 1), ScriptExitCode::Retry, "its time limit");
    for (status, exit_code) in
        [(2, ScriptExitCode::Retry), (3, ScriptExitCode::Abort), (4, ScriptExitCode::Retry)]
    {
        fixture.write("group.dag.metrics", &format!("{{\"exitcode\":1, \"DagStatus\":{status}}}"));
        assert_eq!(unit(run, name, 1), exit_code, "{status}");
        assert_eq!(unit(&fixture.unit(), name, 1), exit_code, "{status}, from within");
    }
    fixture.write("group.dag.metrics", "{\"DagStatus\":3");
    assert_eq!(unit(run, name, 1), ScriptExitCode::Retry, "half a file is ignored");
}

#[test]
fn unknown_groups_and_missing_settings_are_errors() {
    let fixture = Fixture::new();
    assert!(matches!(run_post(&fixture.call("a", 0, "odd")), Err(ScriptError::UnknownNodeGroup(_))));
    fs::remove_file(fixture.run.path().join(file_layout::SCRIPT_SETTINGS_FILE)).unwrap();
    assert!(matches!(run_post(&fixture.call("a", 0, "merge")), Err(ScriptError::Settings(_))));
}

#[test]
fn attempts_that_never_ran_count_against_no_site() {
    let fixture = Fixture::new();
    fixture.write(file_layout::ELECTED_SITE_FILE, "MY.DESIRED_Sites = \"T2_DE_Beta\"\n");
    let submitted = |job: u32| {
        format!(
            "000 ({job:03}.000.000) 2026-11-15 06:19:03 Job submitted from host: <127.0.0.1:9618?sock=schedd_1>\n...\n"
        )
    };
    let ending =
        "009 (040.000.000) 2026-11-15 06:29:03 Job was aborted.\n\tvia condor_rm (by user ann)\n...\n";
    fixture.write("group.dag.nodes.log", &format!("{LOG}{}{ending}", submitted(40)));
    let site_of = |returned, job_id: &str| {
        let call =
            ScriptCall { job_id: job_id.into(), ..fixture.call("proc_000003", returned, "processing") };
        let decision = run_post(&call).unwrap();
        (decision.report.job.site, decision.report.classification.category)
    };
    let transient = || "transient".to_owned();
    assert_eq!(site_of(-1001, "-1.-1"), (None, transient()), "the schedd did not accept it");
    assert_eq!(site_of(-1002, "40.0"), (None, transient()), "removed while it waited");
    let elected = Some("T2_DE_Beta".to_owned());
    assert_eq!(site_of(1, "99.0").0, elected, "it ran, and the log does not say where");
    let lines = fs::read_to_string(fixture.run.path().join(file_layout::ATTEMPTS_FILE)).unwrap();
    let sites: Vec<bool> = lines.lines().map(|line| line.contains("\"site\"")).collect();
    assert_eq!(sites, [false, false, true], "{lines}");
}

#[test]
fn landing_names_all_missing_inputs_of_its_attempt() {
    let fixture = Fixture::new();
    let missing: Vec<String> = (0..6).map(|n| format!("/store/in/{n}.root")).collect();
    let report = ProcessingReport {
        failure: Some(ProcessingFailure {
            step: None,
            exit_code: 8028,
            signal: None,
            message: "missing".into(),
        }),
        bad_inputs: missing.clone(),
        ..ProcessingReport::default()
    };
    fixture.write(file_layout::LANDING_REPORT, &serde_json::to_string(&report).unwrap());
    fixture.write(
        "landing.err",
        "windlass payload: data failure 8028: 6 of the inputs cannot be opened at T2_DE_Beta: /store/in/0.root\n",
    );
    let decision = run_landing_post(&fixture.call("landing", 66, "landing")).unwrap();
    assert_eq!(decision.report.classification.bad_input_files, missing);
    assert_eq!(run_pre(&fixture.unit(), "landing").unwrap(), PreScriptResult::Ready);
    assert!(!fixture.has(file_layout::LANDING_REPORT), "the next one has a report of its own");
}

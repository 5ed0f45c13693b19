//! `windlass payload`: work units with the built-in simulation, and every way in which it can fail.

use crate::common::{Output, Sandbox, eventually, kill};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

const SITE: &str = "T1_XX_Here";
const UNMERGED: &str = "here/store/unmerged/B/A/NANO/t1-mg_000003";
const MERGED: &str = "here/store/mc/B/A/NANO/t1-mg_000003-0.txt";

/// A work unit of a request in a separate directory.
struct Unit {
    sandbox: Sandbox,
    manifest: Value,
}

impl Unit {
    /// Two nodes that generate ten events each, processed in three steps.
    fn generating() -> Self {
        let node = |index: u64, first: u64| {
            json!({"index": index, "expected_events": 10, "generate":
            {"first_event": first, "last_event": first + 9, "first_lumi": index + 1, "events_per_lumi": 5}})
        };
        Self::new(&["GEN", "RECO", "NANO"], &json!([node(0, 4_999_999_991), node(1, 5_000_000_001)]))
    }

    fn new(steps: &[&str], nodes: &Value) -> Self {
        let sandbox = Sandbox::new();
        fs::create_dir_all(sandbox.path("here/store")).unwrap();
        fs::create_dir_all(sandbox.path("there")).unwrap();
        fs::create_dir_all(sandbox.path("work")).unwrap();
        let step = |name: &&str| json!({"name": name, "simulation": {"speed": 2000}});
        let manifest = json!({
            "request": "r1", "tag": "t1", "unit": "mg_000003", "number": 3, "seed": 17,
            "steps": steps.iter().map(step).collect::<Vec<_>>(),
            "nodes": nodes,
            "outputs": [{"dataset": "/A/B/NANO", "tier": "NANO", "step": steps.last().unwrap(),
                         "unmerged_base": "/store/unmerged/B/A/NANO", "merged_base": "/store/mc/B/A/NANO"}],
            "sites": {SITE: {"storage_path": sandbox.path("here")}, "T2_XX_There": {"storage_path": sandbox.path("there")}},
        });
        Self { sandbox, manifest }
    }

    fn fail(&mut self, step: usize, fault: &Value) {
        self.manifest["steps"][step]["simulation"]["faults"] = json!([fault]);
    }

    fn write(&self) {
        self.sandbox.write("run/mg_000003.json", &self.manifest.to_string());
    }

    fn command(&self, arguments: &[&str]) -> std::process::Command {
        self.write();
        let (verb, rest) = arguments.split_first().unwrap();
        let all = [&["payload", verb, "run/mg_000003.json"], rest].concat();
        let mut command = self.sandbox.command(&all);
        command
            .env("WINDLASS_SITE", SITE)
            .env("TMPDIR", self.sandbox.path("work"))
            .env_remove("WINDLASS_ATTEMPT");
        command
    }

    fn payload(&self, arguments: &[&str]) -> Output {
        let output = Output::of(&mut self.command(arguments));
        let left: Vec<_> = fs::read_dir(self.sandbox.path("work")).unwrap().collect();
        assert!(left.is_empty(), "nothing is left in the work directory: {left:?}");
        output
    }

    fn report(&self, node: u32) -> Value {
        serde_json::from_str(&self.sandbox.read(&format!("run/mg_000003/proc_{node}.json"))).unwrap()
    }

    /// The failure class that the rules find in its stderr and exit code.
    fn class(&self, output: &Output) -> String {
        self.sandbox.write("job.e", &output.stderr);
        let found =
            self.sandbox.json(&["failures", "classify", "job.e", "--return-code", &output.code.to_string()]);
        found[0]["class"].as_str().unwrap().to_owned()
    }
}

fn numbers(text: &str) -> Vec<u64> {
    text.lines().map(|line| line.split(' ').nth(2).unwrap().parse().unwrap()).collect()
}

#[test]
fn generation_unit_runs_from_landing_to_cleanup() {
    let unit = Unit::generating();
    unit.payload(&["land"]).exits(0).says("can run at T1_XX_Here");
    unit.payload(&["run", "--node", "0"]).exits(0).prints("NANO_0.txt  10 events");
    let steps = unit.report(0)["steps"].clone();
    for (step, name) in steps.as_array().unwrap().iter().zip(["GEN", "RECO", "NANO"]) {
        assert_eq!(
            (&step["step"], &step["events_read"], &step["events_written"]),
            (&name.into(), &10.into(), &10.into())
        );
        assert!(step["wall_sec"].as_f64() > Some(0.0) && step["peak_rss_mb"].as_f64() > Some(1.0), "{step}");
        assert!(
            step["cpu_sec"].as_f64() > Some(0.0) && step["time_per_event_sec"].as_f64() > Some(0.0),
            "{step}"
        );
    }
    unit.payload(&["merge"]).exits(65).says("data failure 71101: node 1 left no");
    unit.payload(&["run", "--node", "1"]).exits(0);
    unit.payload(&["merge"]).exits(0).prints("/A/B/NANO  /store/mc/B/A/NANO/t1-mg_000003-0.txt  20 events");

    let text = unit.sandbox.read(MERGED);
    assert_eq!(numbers(&text), (4_999_999_991..=5_000_000_010).collect::<Vec<u64>>(), "each once, in order");
    let values: BTreeSet<&str> = text.lines().map(|line| line.split(' ').nth(3).unwrap()).collect();
    assert_eq!(values.len(), 20, "no two events are alike");
    let merged: Value = serde_json::from_str(&unit.sandbox.read("run/mg_000003/merge_output.json")).unwrap();
    let file = &merged["datasets"]["/A/B/NANO"][0];
    assert_eq!((&file["events"], &file["size"]), (&20.into(), &text.len().into()));
    assert_eq!(file["lumis"], json!({"1": [[1, 3]]}));
    let metrics: Value = serde_json::from_str(&unit.sandbox.read("run/mg_000003/metrics.json")).unwrap();
    assert_eq!(metrics["steps"]["RECO"]["totals"]["events_written"], 20);

    unit.payload(&["cleanup"]).exits(0).says("removed 2 files");
    assert!(!unit.sandbox.path(UNMERGED).exists());
    unit.payload(&["merge"]).exits(0).prints("20 events");
    assert_eq!(unit.sandbox.read(MERGED), text);
}

#[test]
fn node_output_is_reproducible_and_differs_between_nodes() {
    let unit = Unit::generating();
    unit.payload(&["run", "--node", "0"]).exits(0);
    let first = unit.sandbox.read(&format!("{UNMERGED}/NANO_0.txt"));
    let told = unit.report(0)["outputs"].clone();
    unit.payload(&["run", "--node", "0"]).exits(0);
    assert_eq!(unit.sandbox.read(&format!("{UNMERGED}/NANO_0.txt")), first);
    assert_eq!(unit.report(0)["outputs"], told);

    // The same event numbers in another node: only the seed differs.
    let mut unit = Unit::generating();
    unit.manifest["nodes"][1]["generate"] = unit.manifest["nodes"][0]["generate"].clone();
    unit.payload(&["run", "--node", "1"]).exits(0);
    let other = unit.sandbox.read(&format!("{UNMERGED}/NANO_1.txt"));
    assert_eq!(numbers(&first), numbers(&other));
    assert!(first.lines().zip(other.lines()).all(|(a, b)| a != b), "{first}{other}");
}

#[test]
fn event_windows_and_lumi_masks_are_applied() {
    let nodes = json!([{"index": 0, "expected_events": 3, "inputs": [
        {"lfn": "/store/a.txt", "events": {"first": 2, "last": 3}},
        {"lfn": "/store/b.txt", "lumis": {"1": [[2, 2], [4, 9]]}}]}]);
    let unit = Unit::new(&["NANO"], &nodes);
    unit.sandbox.write("here/store/a.txt", "1 1 1\n1 1 2\n1 1 3\n1 1 4\n");
    unit.sandbox.write("here/store/b.txt", "1 2 5\n1 3 6\n1 4 7\n2 4 8\n");
    unit.payload(&["land"]).exits(0);
    unit.payload(&["run", "--node", "0"]).exits(0);
    assert_eq!(numbers(&unit.sandbox.read(&format!("{UNMERGED}/NANO_0.txt"))), [2, 3, 5, 7]);
    assert_eq!(unit.report(0)["outputs"][0]["lumis"], json!({"1": [[1, 2], [4, 4]]}));
    assert_eq!(unit.report(0)["steps"][0]["events_read"], 4);
}

#[test]
fn failures_have_exit_code_report_and_class() {
    for (kind, exit, code, class) in [
        (json!({"exit": 7}), 7, 7, "unknown"),
        (json!({"exit": 8001}), 70, 8001, "permanent"),
        (json!({"exit": 50660}), 1, 50660, "memory"),
        (json!({"exit": 60311}), 74, 60311, "infrastructure"),
        (json!({"exit": 71305}), 75, 71305, "transient"),
        (json!({"signal": 11}), 139, 139, "permanent"),
        (json!({"memory": 20}), 1, 8004, "memory"),
        (json!("bad_input"), 65, 8021, "data"),
        (json!("no_output"), 70, 60302, "permanent"),
    ] {
        let mut unit = Unit::generating();
        unit.fail(1, &json!({"kind": kind}));
        let output = unit.payload(&["run", "--node", "0"]).exits(exit);
        assert!(output.stderr.lines().last().unwrap().contains("step RECO"), "{kind}: {output:?}");
        let report = unit.report(0);
        assert_eq!(
            (&report["failure"]["exit_code"], &report["failure"]["step"]),
            (&code.into(), &"RECO".into())
        );
        assert_eq!(report["steps"].as_array().unwrap().len(), 2, "the third did not start");
        assert_eq!(report["outputs"], json!([]));
        assert!(!unit.sandbox.path(UNMERGED).exists(), "{kind}");
        assert_eq!(unit.class(&output), class, "{kind}: {output:?}");
    }
}

/// An intermediate step may filter out all events; a kept output must not be empty.
#[test]
fn output_without_events_is_a_failure() {
    for step in [1, 2] {
        let mut unit = Unit::generating();
        unit.fail(step, &json!({"kind": "no_events"}));
        let output =
            unit.payload(&["run", "--node", "0"]).exits(70).says("step NANO: NANO.txt has no events");
        assert_eq!(unit.report(0)["failure"]["exit_code"], 60450);
        assert_eq!(unit.class(&output), "permanent");
        assert!(!unit.sandbox.path(UNMERGED).exists());
    }
}

#[test]
fn bad_input_is_reported_by_lfn() {
    let nodes = json!([{"index": 0, "expected_events": 1,
        "inputs": [{"lfn": "/store/a.txt"}, {"lfn": "/store/b.txt"}]}]);
    let unit = Unit::new(&["NANO"], &nodes);
    unit.sandbox.write("here/store/a.txt", "1 1 1\n");
    unit.sandbox.write("here/store/b.txt", "1 1 2\nnothing of the sort\n");
    let output = unit.payload(&["run", "--node", "0"]).exits(65).says("line 2 is not an event");
    assert_eq!(unit.report(0)["bad_inputs"], json!(["/store/b.txt"]));
    assert_eq!(unit.class(&output), "data");
}

#[test]
fn simulated_faults_respect_their_conditions() {
    let mut unit = Unit::generating();
    unit.fail(2, &json!({"kind": {"exit": 9}, "node": 1, "site": SITE, "until_attempt": 2}));
    unit.payload(&["run", "--node", "0"]).exits(0);
    unit.payload(&["run", "--node", "1"]).exits(9);
    unit.payload(&["run", "--node", "1", "--site", "T2_XX_There"]).exits(0);
    for (attempt, code) in [("2", 9), ("3", 0)] {
        let output = Output::of(unit.command(&["run", "--node", "1"]).env("WINDLASS_ATTEMPT", attempt));
        output.exits(code);
        assert_eq!(unit.report(1)["attempt"].to_string(), attempt);
    }
}

#[test]
fn hanging_step_ends_with_job_signal() {
    let mut unit = Unit::generating();
    unit.fail(1, &json!({"kind": "hang"}));
    let mut child = unit.command(&["run", "--node", "0"]).stderr(Stdio::piped()).spawn().unwrap();
    let scratch = unit.sandbox.path("work");
    // The second step hangs after it has written its output.
    let is_at_it = || {
        let node = fs::read_dir(&scratch).ok()?.next()?.ok()?.path();
        fs::metadata(node.join("1-RECO/RECO.out")).ok().filter(|metadata| metadata.len() > 0)
    };
    eventually("the second step has written", || is_at_it().is_some());
    kill(child.id(), "TERM");
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(143), None), "it says so itself");
    assert_eq!(unit.report(0)["failure"]["signal"], 15);
    assert_eq!(fs::read_dir(&scratch).unwrap().count(), 0);
}

#[test]
fn killed_merge_leaves_no_finished_output() {
    let unit = Unit::generating();
    unit.payload(&["run", "--node", "0"]).exits(0);
    unit.payload(&["run", "--node", "1"]).exits(0);
    // The second file is replaced by a pipe: the merge blocks while reading it.
    let second = unit.sandbox.path(format!("{UNMERGED}/NANO_1.txt"));
    let bytes = fs::read(&second).unwrap();
    fs::remove_file(&second).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&second).status().unwrap().success());
    let mut merge = unit.command(&["merge"]).spawn().unwrap();
    // Opening the pipe for writing waits for a reader, so now the merge is half-way.
    let pipe = fs::File::options().write(true).open(&second).unwrap();
    let drafts = || {
        fs::read_dir(unit.sandbox.path("here/store/mc/B/A/NANO"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
    };
    assert_eq!(drafts().collect::<Vec<_>>(), [".t1-mg_000003-0.txt.part"]);
    merge.kill().unwrap();
    merge.wait().unwrap();
    drop(pipe);
    assert!(!unit.sandbox.path(MERGED).exists());
    assert!(!unit.sandbox.path("run/mg_000003/merge_output.json").exists());
    unit.payload(&["cleanup"]).exits(70).says("is not merged");

    fs::remove_file(&second).unwrap();
    fs::write(&second, bytes).unwrap();
    unit.payload(&["merge"]).exits(0);
    assert_eq!(numbers(&unit.sandbox.read(MERGED)).len(), 20);
    assert_eq!(drafts().collect::<Vec<_>>(), ["t1-mg_000003-0.txt"], "the draft is gone");
}

#[test]
fn simulate_writes_job_report_and_uses_reported_resources() {
    let sandbox = Sandbox::new();
    let arguments = [
        "payload",
        "simulate",
        "--events",
        "40",
        "--profile",
        "GEN",
        "--speed",
        "20",
        "--threads",
        "2",
        "--seed",
        "3",
        "--output",
        "a.txt",
        "--report",
        "a.xml",
    ];
    sandbox.windlass(&arguments).exits(0);
    let text = sandbox.read("a.txt");
    assert_eq!(numbers(&text), (1..=40).collect::<Vec<u64>>());
    assert_eq!(
        text.lines().next().unwrap().len() + 1,
        50 * 1024 / 20,
        "as large as the profile says, a 20th of it"
    );
    let report = sandbox.read("a.xml");
    let metric = |name: &str| -> f64 {
        let at = report.split(&format!("Name=\"{name}\" Value=\"")).nth(1).unwrap();
        at.split('"').next().unwrap().parse().unwrap()
    };
    assert!(metric("TotalJobCPU") >= 40.0 * 0.05 / 20.0, "{report}");
    assert!(metric("PeakValueRss") >= 2000.0 / 20.0, "{report}");
    assert!(report.contains("<TotalEvents>40</TotalEvents>") && report.contains("</FrameworkJobReport>"));

    sandbox
        .windlass(&[
            "payload", "simulate", "--input", "a.txt", "--output", "b.txt", "--speed", "1000", "--filter",
            "0.5",
        ])
        .exits(0);
    let kept = numbers(&sandbox.read("b.txt"));
    assert!(kept.len() > 5 && kept.len() < 35, "{kept:?}");
    sandbox.windlass(&["payload", "simulate", "--events", "1"]).exits(2).says("--output FILE");
    sandbox.windlass(&["payload", "simulate", "--fail", "crash"]).exits(2).says("known: exit:CODE");
}

#[test]
fn invalid_payload_arguments_and_manifests_are_reported() {
    let mut unit = Unit::generating();
    unit.payload(&["run", "--node", "7"]).exits(70).says("mg_000003 has no node 7");
    unit.payload(&["run", "--node", "0", "--site", "T9"])
        .exits(70)
        .says("known sites: T1_XX_Here, T2_XX_There");
    unit.manifest["outputs"][0]["merged_base"] = json!("/store/../../etc");
    unit.manifest["steps"][0]["threads"] = json!(0);
    unit.payload(&["merge"]).exits(70).says("merged_base").says("steps.GEN: threads");
    unit.manifest["stepz"] = json!(1);
    unit.payload(&["land"]).exits(70).says("unknown field `stepz`");
    unit.sandbox
        .windlass(&["payload", "run", "nothing.json", "--node", "1"])
        .exits(70)
        .says("cannot read the manifest");
}

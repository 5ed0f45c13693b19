//! Rendered runs with failing jobs: DAGMan follows the decisions of the scripts.

use crate::dags::submit;
use crate::support::{Pool, SITES, Work, eventually};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use windlass_htcondor::file_layout;
use windlass_htcondor::render::{
    DagUnit, NodeResources, ProgramPaths, RequestDagRun, RoleRetries, StorageCredentials, UnitNodeResources,
    render_run,
};
use windlass_htcondor::script_settings::RequestRetrySettings;
use windlass_htcondor::scripts::{FollowUpAction, PostReport};
use windlass_types::payload::WorkUnitManifest;
use windlass_types::requests::WorkUnitName;

const INPUT: &str = "/store/data/a.txt";

/// A step that holds 180 MB, in the first attempt until its machine notices, and then writes its output. It holds
/// one line without an end, which `tail` keeps until the line is complete.
const LARGE: &str =
    "(head -c 180000000 /dev/zero; [ \"$WINDLASS_ATTEMPT\" -gt 1 ] || sleep 120) | tail >/dev/null
    echo 1 1 1 > \"$WINDLASS_OUTPUT\"";

/// A run of units with two nodes each, whose only step is one of these.
struct PoolRun {
    work: Work,
}

impl PoolRun {
    fn new(pool: &Pool, steps: &[Value]) -> Self {
        Self::changed(pool, steps, |_, _| ())
    }

    /// With unusual manifests and directories of units.
    fn changed(pool: &Pool, steps: &[Value], change: impl Fn(&Work, &mut Value)) -> Self {
        let ran = Self { work: pool.work("decided") };
        for site in &SITES[..2] {
            ran.work.write(&format!("storage/{site}{INPUT}"), "1 1 1\n");
        }
        for (number, step) in (0..).zip(steps) {
            let mut manifest = ran.manifest(number, step);
            change(&ran.work, &mut manifest);
            let checked: WorkUnitManifest = serde_json::from_value(manifest.clone()).unwrap();
            assert_eq!(checked.find_problems(), Vec::<String>::new());
            ran.work.write(&format!("run/{}.json", WorkUnitName(number)), &manifest.to_string());
        }
        ran.render(steps.len());
        ran.work.give_away();
        submit(pool, &ran.directory());
        ran
    }

    fn directory(&self) -> PathBuf {
        self.work.path().join("run")
    }

    fn manifest(&self, number: u32, step: &Value) -> Value {
        let storage = |site: &str| self.work.path().join("storage").join(site).display().to_string();
        let node = |index: u32| json!({"index": index, "inputs": [{"lfn": INPUT}], "expected_events": 1});
        json!({
            "request": "a_request", "tag": "7b0c2a51", "unit": WorkUnitName(number).to_string(), "number": number,
            "steps": [step], "nodes": [node(0), node(1)],
            "outputs": [{"dataset": "/A/B/GEN", "tier": "GEN", "step": "GEN", "may_be_empty": true,
                         "unmerged_base": "/store/unmerged/B", "merged_base": "/store/mc/B"}],
            "sites": {SITES[0]: {"storage_path": storage(SITES[0])}, SITES[1]: {"storage_path": storage(SITES[1])}},
        })
    }

    fn render(&self, units: usize) {
        let windlass = self.work.windlass();
        let size = NodeResources { cpus: 1, memory_mb: 100, disk_kb: 1000, runtime_sec: 600 };
        let sites = vec![SITES[..2].iter().map(|&site| site.to_owned()).collect()];
        let directory = self.directory();
        render_run(&RequestDagRun {
            directory: &directory,
            request: "a_request",
            run: "7b0c2a51-8f43-4f0e-9d55-0c3f0a6f4f10",
            workflow: "9b2f6c1e-3d7a-4f58-8a41-5f1d2c3b4a59",
            programs: ProgramPaths { on_this_host: &windlass, on_workers: Some(&windlass) },
            site_sets: &sites,
            sizes: &[size],
            unit_sizes: &[UnitNodeResources { landing: size, merge: size, cleanup: size }],
            units: &vec![DagUnit { sites: 0, size: 0, nodes: vec![(0, 2)] }; units],
            retries: RoleRetries { landing: 1, processing: 2, merge: 1, cleanup: 1 },
            throttles: &BTreeMap::new(),
            retry_policy: RequestRetrySettings { cool_off_sec: 1, ..RequestRetrySettings::default() },
            priority: 0,
            accounting: &BTreeMap::new(),
            credentials: StorageCredentials::default(),
            banned_sites: &[],
            memory_override_mb: None,
        })
        .unwrap();
    }

    /// Waits for the end of the run; returns the log of its DAGMan.
    fn end(&self) -> String {
        let said =
            || fs::read_to_string(self.directory().join("workflow.dag.dagman.out")).unwrap_or_default();
        eventually("DAGMan has ended", || said().contains("EXITING WITH STATUS"));
        said()
    }

    fn unit(&self, number: u32) -> PathBuf {
        file_layout::unit_directory(&self.directory(), number)
    }

    fn report(&self, unit: u32, node: &str) -> PostReport {
        let path = file_layout::post_report_path(&self.unit(unit), node);
        let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_slice(&text).unwrap()
    }

    fn is_merged(&self, unit: u32) -> bool {
        self.unit(unit).join("merge_output.json").is_file()
    }
}

/// A simulated step whose first node fails like this.
fn failing(fault: &Value) -> Value {
    let mut fault = fault.clone();
    fault["node"] = 0.into();
    json!({"name": "GEN", "simulation": {"speed": 1e6, "faults": [fault]}})
}

#[test]
fn failures_are_retried_by_their_class() {
    let pool = Pool::shared();
    let ran = PoolRun::new(
        &pool,
        &[
            failing(&json!({"kind": {"exit": 9000}, "until_attempt": 1})),
            failing(&json!({"kind": {"exit": 8010}})),
            failing(&json!({"kind": "bad_input"})),
            json!({"name": "GEN", "command": LARGE}),
        ],
    );
    let said = ran.end();
    assert!(said.contains("EXITING WITH STATUS 1"), "{said}");

    let passing = ran.report(0, "proc_000000");
    assert_eq!((passing.classification.category.as_str(), passing.attempts.len()), ("success", 1));
    let first = &passing.attempts[0];
    assert_eq!((first.category.as_str(), first.exit_code), ("transient", Some(9000)));
    let waited = passing.timestamp.since(first.timestamp);
    assert!(waited.as_secs() >= 1, "its cool-off was skipped: {waited:?}");
    assert!(ran.is_merged(0));

    let permanent = ran.report(1, "proc_000000");
    assert_eq!((permanent.attempt, permanent.attempts.len(), permanent.is_final), (1, 0, true));
    assert_eq!(permanent.classification.action, FollowUpAction::PermanentFailure);
    assert_eq!(ran.report(1, "proc_000001").classification.category, "success", "the other one continues");
    assert!(!ran.is_merged(1));

    let data = ran.report(2, "proc_000000");
    assert_eq!((data.classification.category.as_str(), data.attempts.len()), ("data", 0));
    assert_eq!(data.classification.bad_input_files, [INPUT]);
    let reported = data.cmssw.unwrap();
    assert_eq!((reported.exit_code, &reported.input_files[..]), (8021, &[INPUT.to_owned()][..]));

    for node in ["proc_000000", "proc_000001"] {
        let grown = ran.report(3, node);
        assert_eq!(grown.classification.category, "success", "{grown:?}");
        assert_eq!((grown.attempts.len(), grown.attempts[0].category.as_str()), (1, "memory"), "{grown:?}");
        assert_eq!(grown.asked.memory.0, 150 << 20);
    }
    assert!(ran.is_merged(3));

    for unit in 0..4 {
        let landing = ran.report(unit, "landing");
        let site = landing.job.site.unwrap();
        assert!(SITES[..2].contains(&&*site), "{site}");
        assert_eq!(
            ran.report(unit, "proc_000001").job.site,
            Some(site),
            "all jobs of a unit run where it landed"
        );
    }
}

#[test]
fn failure_shared_by_all_nodes_aborts_the_run() {
    let pool = Pool::shared();
    let slow = json!({"name": "GEN", "command": "sleep 600"});
    let ran = PoolRun::new(&pool, &[slow, failing(&json!({"kind": {"exit": 7002}}))]);
    let said = ran.end();
    assert!(said.contains("EXITING WITH STATUS 1"), "{said}");
    assert!(said.contains("Aborting DAG because we got the ABORT exit value from a POST script"), "{said}");
    let broken = ran.report(1, "proc_000000");
    assert_eq!((broken.classification.action, broken.attempts.len()), (FollowUpAction::Abort, 0));
    assert!(
        !file_layout::post_report_path(&ran.unit(0), "proc_000000").exists(),
        "the other unit was not waited for"
    );
}

#[test]
fn lost_inputs_are_named_and_schedd_failures_blame_no_site() {
    let pool = Pool::shared();
    let step = json!({"name": "GEN", "simulation": {"speed": 1e6}});
    let lost: Vec<String> = (0..6).map(|file| format!("/store/data/lost_{file}.txt")).collect();
    let ran = PoolRun::changed(&pool, &[step.clone(), step], |work, manifest| {
        if manifest["number"] == 0 {
            manifest["nodes"][0]["inputs"] = lost.iter().map(|lfn| json!({"lfn": lfn})).collect();
        } else {
            // The files that the merge transfers back cannot be written here.
            work.write("run/mg_000001/merge_output.json/in/the/way", "");
        }
    });
    let said = ran.end();
    assert!(said.contains("EXITING WITH STATUS 1"), "{said}");

    let landing = ran.report(0, "landing");
    assert_eq!(landing.classification.category, "data", "{landing:?}");
    assert_eq!(landing.classification.bad_input_files, lost);
    assert_eq!((landing.attempts.len(), landing.is_final), (0, true));

    let merge = ran.report(1, "merge");
    let why = &merge.classification.why;
    assert!(why.contains("failure at access point"), "{why}");
    assert_eq!((merge.classification.category.as_str(), merge.attempts.len()), ("transient", 1), "{why}");
}

//! Requests with the real binary: with a server and workers at sites, and with the database alone.

use crate::common::{Output, Sandbox, children_of, documented_keys, eventually, is_alive, kill};
use crate::serve::StoppedOnDrop;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Stdio};
use windlass_store::sqlite::OpenMode;

/// A worker at a site, ended when dropped.
pub(crate) struct Worker(Child);

impl Worker {
    pub(crate) fn start(sandbox: &Sandbox, site: &str) -> Self {
        Self::with_cpus(sandbox, site, "4")
    }

    fn with_cpus(sandbox: &Sandbox, site: &str, cpus: &str) -> Self {
        let state = format!("state-{site}");
        let words = ["worker", "--persistent", "--site", site, "--num-cpus", cpus, "--memory-gb", "16"];
        let mut command = sandbox.command(&[&words[..], &["--state-dir", &state]].concat());
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        kill(self.0.id(), "TERM");
        kill(self.0.id(), "TERM");
        drop(self.0.wait());
    }
}

/// Creates `files` event files of 10 events in each of two sections, with consecutive event numbers.
pub(crate) fn events(sandbox: &Sandbox, files: u64) {
    for file in 0..files {
        let line = |n: u64| format!("1 {} {}\n", file * 2 + n / 10 + 1, file * 20 + n + 1);
        sandbox.write(&format!("data/f{file}.txt"), &(0..20).map(line).collect::<String>());
    }
}

fn document(name: &str, command: Option<&str>) -> Value {
    let step = match command {
        Some(command) => json!({"name": "RECO", "command": command}),
        None => json!({"name": "RECO", "simulation": {"speed": 1_000_000.0}}),
    };
    json!({
        "request_name": name, "input_dataset": "/Muons/Run3-v1/RAW",
        "output_datasets": [format!("/Muons/{name}-v1/RECO")], "splitting_algo": "FileBased",
        "splitting_params": {"files_per_job": 1, "target_merged_size_kb": 1}, "memory_mb": 100,
        "size_per_event_kb": 0.04, "payload_config": {"steps": [step]},
    })
}

fn write(sandbox: &Sandbox, file: &str, document: &Value) {
    sandbox.write(file, &document.to_string());
}

/// How often each event occurs in the files of a dataset, according to the catalog.
pub(crate) fn written(sandbox: &Sandbox, dataset: &str) -> BTreeMap<u64, u64> {
    let shown = sandbox.json(&["catalog", "show", dataset, "--files"]);
    let mut seen = BTreeMap::new();
    for file in shown["files"].as_array().unwrap() {
        let path =
            file["replicas"].as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned();
        for line in fs::read_to_string(path).unwrap().lines() {
            let event = line.split(' ').nth(2).unwrap().parse().unwrap();
            *seen.entry(event).or_default() += 1;
        }
    }
    seen
}

fn once_each(events: u64) -> BTreeMap<u64, u64> {
    (1..=events).map(|event| (event, 1)).collect()
}

fn status(sandbox: &Sandbox, name: &str) -> String {
    sandbox.json(&["request", "show", name])["status"].as_str().unwrap().to_owned()
}

#[test]
fn request_runs_from_submission_to_archived_outputs() {
    let sandbox = Sandbox::new();
    events(&sandbox, 6);
    let _served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    let _workers = [Worker::start(&sandbox, "T1_A"), Worker::start(&sandbox, "T2_B")];
    let add = ["catalog", "add", "data", "as", "/Muons/Run3-v1/RAW", "--site", "T1_A", "--site", "T2_B"];
    sandbox.windlass(&add).exits(0).says("6 files new; 6 files with 120 events");
    eventually("both sites are known", || sandbox.json(&["site", "list"]).as_array().unwrap().len() == 2);
    write(&sandbox, "reco.json", &document("reco", None));
    sandbox.windlass(&["request", "submit", "reco.json", "--watch"]).exits(0).says("reco is completed");
    let shown = sandbox.json(&["request", "show", "reco"]);
    assert_eq!(
        (&shown["status"], &shown["progress"]["progress_percent"]),
        (&json!("completed"), &json!(100.0)),
        "{shown}"
    );
    assert_eq!(shown["progress"]["blocks"][0]["status"], "archived", "{shown}");
    assert_eq!(
        shown["workflow"]["id"], shown["progress"]["workflow_id"],
        "the id that was told when it was submitted"
    );
    assert_eq!(written(&sandbox, "/Muons/reco-v1/RECO"), once_each(120));
    // Submitting the same document again changes nothing; another document with the same name is refused.
    sandbox.windlass(&["request", "submit", "reco.json"]).exits(0).says("is already submitted");
    let mut other = document("reco", None);
    other["memory_mb"] = json!(200);
    write(&sandbox, "other.json", &other);
    sandbox.windlass(&["request", "submit", "other.json"]).exits(4).says("differs in memory_mb");
    sandbox.windlass(&["request", "shwo", "reco"]).exits(2).says("show");
    sandbox.windlass(&["request", "show", "rceo"]).exits(2).says("did you mean `reco`?");
    sandbox.windlass(&["request", "stop", "reco"]).exits(4).says("it has ended");
}

#[test]
fn stopped_request_resumes_without_loss() {
    let sandbox = Sandbox::new();
    events(&sandbox, 4);
    let _served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    let _worker = Worker::start(&sandbox, "T1_A");
    sandbox.windlass(&["catalog", "add", "data", "as", "/Muons/Run3-v1/RAW", "--site", "T1_A"]).exits(0);
    eventually("the site is known", || !sandbox.json(&["site", "list"]).as_array().unwrap().is_empty());
    // Three of them wait for a file that does not exist yet.
    let go_file = sandbox.path("go");
    let command = format!(
        "case \"$(cat $WINDLASS_INPUTS)\" in *f0.txt*) ;; *) while ! test -e {}; do sleep 0.05; done ;; esac; \
         cat $(cat $WINDLASS_INPUTS) > $WINDLASS_OUTPUT",
        go_file.display()
    );
    write(&sandbox, "slow.json", &document("slow", Some(&command)));
    sandbox.windlass(&["request", "submit", "slow.json"]).exits(0);
    eventually("a unit is done", || {
        sandbox.json(&["request", "show", "slow"])["progress"]["dag"]["work_units_completed"].as_u64()
            == Some(1)
    });
    let stopped = sandbox.json(&["request", "stop", "slow", "--reason", "maintenance"]);
    assert_eq!(
        (&stopped["status"], &stopped["previous_status"]),
        (&json!("stopping"), &json!("active")),
        "{stopped}"
    );
    assert_eq!(stopped["stop_reason"], "maintenance");
    fs::write(&go_file, "").unwrap();
    sandbox.windlass(&["request", "watch", "slow"]).exits(0);
    let shown = sandbox.json(&["request", "show", "slow"]);
    let went: Vec<&str> = shown["status_transitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line["to"].as_str().unwrap())
        .collect();
    let way = [
        "submitted",
        "queued",
        "planning",
        "active",
        "stopping",
        "resubmitting",
        "queued",
        "planning",
        "active",
        "completed",
    ];
    assert_eq!(went, way);
    assert_eq!(written(&sandbox, "/Muons/slow-v1/RECO"), once_each(80));
}

/// R-163, R-170: the program can keep no more than three of its eight cores busy, on any machine. The first
/// round, two work units, measures that; the second requests half as many.
#[test]
fn later_rounds_request_measured_resources() {
    let sandbox = Sandbox::new();
    events(&sandbox, 16);
    let _served = StoppedOnDrop::start(
        &sandbox,
        &["--listen", "127.0.0.1:0", "--first-round-units", "2", "--probe-jobs", "0"],
    );
    let _worker = Worker::with_cpus(&sandbox, "T1_A", "8");
    sandbox.windlass(&["catalog", "add", "data", "as", "/Muons/Run3-v1/RAW", "--site", "T1_A"]).exits(0);
    eventually("its site is known", || sandbox.json(&["site", "list"]).as_array().unwrap().len() == 1);
    let mut wanted = document("reco", None);
    wanted["multicore"] = json!(8);
    wanted["splitting_params"]["target_merged_size_kb"] = json!(4);
    wanted["payload_config"]["steps"] =
        json!([{"name": "RECO", "threads": 8, "simulation": {"profile": "GEN", "speed": 20.0}}]);
    write(&sandbox, "reco.json", &wanted);
    sandbox.windlass(&["request", "submit", "reco.json", "--watch"]).exits(0).says("reco is completed");
    assert_eq!(written(&sandbox, "/Muons/reco-v1/RECO"), once_each(320));
    let metrics = sandbox.json(&["request", "metrics", "reco"]);
    let [first, second] = &metrics["rounds"].as_array().unwrap()[..] else { panic!("{metrics}") };
    let asked = |round: &Value| (round["asked"]["from"].clone(), round["asked"]["cores"].clone());
    assert_eq!(asked(first), (json!("hint"), json!(8)), "{metrics}");
    assert_eq!(asked(second), (json!("measured"), json!(4)), "{metrics}");
    assert_eq!(first["asked"]["units"], 2, "{metrics}");
    // The value depends on the load of the machine; `cargo xtask bench adaptive` checks it.
    for round in [first, second] {
        assert!(round["measured"]["events_per_core_hour"].as_f64().unwrap() > 0.0, "{metrics}");
    }
}

#[test]
fn request_runs_without_server() {
    let sandbox = Sandbox::new();
    events(&sandbox, 3);
    sandbox.windlass(&["catalog", "add", "data", "as", "/Muons/Run3-v1/RAW", "--site", "here"]).exits(0);
    // Also one that names another requestor: the workers of this command run all jobs.
    let mut reco = document("reco", None);
    reco["requestor"] = json!("zoe");
    write(&sandbox, "reco.json", &reco);
    let run = ["request", "run", "reco.json", "--site", "here", "--num-cpus", "4"];
    sandbox.windlass(&run).exits(0).says("reco is completed");
    assert_eq!(written(&sandbox, "/Muons/reco-v1/RECO"), once_each(60));
    assert_eq!(status(&sandbox, "reco"), "completed");
    sandbox.windlass(&["request", "run"]).exits(0).says("no request in this database is active");
}

/// A changed file keeps its size, so that only its checksum differs from the catalog.
#[test]
fn changed_and_missing_inputs_are_data_failures_and_can_be_excluded() {
    let sandbox = Sandbox::new();
    events(&sandbox, 3);
    sandbox.windlass(&["catalog", "add", "data", "as", "/Muons/Run3-v1/RAW", "--site", "here"]).exits(0);
    let changed = sandbox.read("data/f1.txt").replace("1 3 21\n", "1 3 91\n");
    sandbox.write("data/f1.txt", &changed);
    fs::remove_file(sandbox.path("data/f2.txt")).unwrap();
    write(&sandbox, "reco.json", &document("reco", None));
    let run = ["request", "run", "reco.json", "--site", "here", "--num-cpus", "4"];
    let stopped = sandbox.windlass(&run);
    assert_eq!((stopped.code, status(&sandbox, "reco").as_str()), (6, "held"), "{}", stopped.stderr);
    let errors = sandbox.windlass(&["request", "errors", "reco"]).exits(0);
    for words in ["data", "f1.txt", "f2.txt"] {
        assert!(errors.stdout.contains(words), "{words}: {}", errors.stdout);
    }
    sandbox.windlass(&["request", "release", "reco", "--exclude-bad"]).exits(0);
    sandbox.windlass(&["request", "run", "--site", "here", "--num-cpus", "4"]).exits(0);
    assert_eq!(written(&sandbox, "/Muons/reco-v1/RECO"), once_each(20));
}

#[test]
fn request_plan_needs_only_database() {
    let sandbox = Sandbox::new();
    events(&sandbox, 5);
    sandbox.windlass(&["catalog", "add", "data", "as", "/Muons/Run3-v1/RAW"]).exits(0);
    write(&sandbox, "reco.json", &document("reco", None));
    let table = sandbox.windlass(&["request", "plan", "reco.json"]).exits(0);
    table.prints("mg_000004").prints("5 work units, 20 nodes").prints("100 events read from 5 files");
    let plan = sandbox.json(&["request", "plan", "reco.json"]);
    assert_eq!((&plan["summary"]["work_units"], &plan["summary"]["events"]), (&json!(5), &json!(100)));
    assert_eq!(plan, sandbox.json(&["request", "plan", "reco.json"]), "equal input, equal plan");
    sandbox
        .windlass(&["request", "plan", "reco.json", "--draw"])
        .exits(0)
        .prints("landing")
        .prints("block 0");
    let nowhere = ["request", "plan", "reco.json", "--site", "elsewhere"];
    sandbox.windlass(&nowhere).exits(2).says("cannot be planned");
    assert_eq!(sandbox.json(&["request", "list"]), json!([]), "nothing was stored");
    // Generation needs no database either.
    let bare = Sandbox::new();
    let mut gen_document = document("gen", None);
    gen_document.as_object_mut().unwrap().remove("input_dataset");
    gen_document["splitting_algo"] = json!("EventBased");
    gen_document["splitting_params"] = json!({"events_per_job": 100});
    gen_document["generation"] = json!({"events": 1000, "events_per_lumi": 100});
    write(&bare, "gen.json", &gen_document);
    bare.windlass(&["request", "plan", "gen.json"]).exits(0).prints("1000 events generated");
    assert!(!bare.path(".windlass").exists());
}

fn generated(name: &str, output: &str) -> Value {
    let mut document = document(name, None);
    document.as_object_mut().unwrap().remove("input_dataset");
    document["output_datasets"] = json!([output]);
    document["splitting_algo"] = json!("EventBased");
    document["splitting_params"] = json!({"events_per_job": 100});
    document["generation"] = json!({"events": 1000, "events_per_lumi": 100});
    document
}

/// The filter of the program keeps half of the events. By default, more rounds would produce the missing ones.
#[test]
fn server_options_set_tape_rule_and_completion_of_generation() {
    let sandbox = Sandbox::new();
    let tape = "rse_type=TAPE&country=FR";
    let options = ["--listen", "127.0.0.1:0", "--tape-rse", tape, "--mc-completion", "offset"];
    let _served = StoppedOnDrop::start(&sandbox, &options);
    let _worker = Worker::start(&sandbox, "T1_A");
    eventually("its site is known", || sandbox.json(&["site", "list"]).as_array().unwrap().len() == 1);
    let mut wanted = generated("made", "/Muons/made-v1/RECO");
    wanted["payload_config"]["steps"][0]["simulation"]["filter_efficiency"] = json!(0.5);
    write(&sandbox, "made.json", &wanted);
    sandbox.windlass(&["request", "submit", "made.json", "--watch"]).exits(0).says("made is completed");
    let events = written(&sandbox, "/Muons/made-v1/RECO").len();
    assert!((1..1000).contains(&events), "{events}");
    let database = sandbox.path(".windlass/windlass.db");
    let store = windlass_store::open_store(database.to_str().unwrap(), OpenMode::ReadOnly).unwrap();
    for block in store.catalog_blocks("/Muons/made-v1/RECO").unwrap() {
        let rules = store.rules(Some(&block.name)).unwrap();
        assert_eq!(rules.iter().filter(|rule| rule.rule.rse_expression == tape).count(), 1, "{rules:?}");
    }
}

#[test]
fn plan_and_dry_run_explain_refused_submission() {
    let sandbox = Sandbox::new();
    let refused = |file: &str, reasons: &[&str]| {
        let mut planned =
            sandbox.windlass(&["request", "plan", file]).exits(0).prints("1000 events generated");
        let mut tried = sandbox.windlass(&["request", "submit", "--dry-run", file]).exits(2);
        for reason in reasons {
            planned = planned.says("would be refused at submission").says(reason);
            tried = tried.says(reason);
        }
    };
    let mut cmssw = generated("cmssw", "/Muons/cmssw-v1/GEN");
    cmssw["payload_config"] = json!({});
    cmssw["cmssw_version"] = json!("CMSSW_15_0_0");
    write(&sandbox, "cmssw.json", &cmssw);
    refused("cmssw.json", &["names CMSSW (CMSSWVersion)"]);

    let mut foreign = generated("foreign", "/Muons/foreign-v1/GEN");
    foreign["payload_config"]["RequestStatus"] = json!("aborted");
    foreign["payload_config"]["wms_backend"] = json!("wmcore");
    write(&sandbox, "foreign.json", &foreign);
    refused("foreign.json", &["`RequestStatus` is `aborted`", "`wms_backend` is `wmcore`"]);
    assert!(!sandbox.path(".windlass").exists(), "no database is needed");

    write(&sandbox, "first.json", &generated("first", "/Muons/Shared-v1/GEN"));
    sandbox.windlass(&["request", "submit", "first.json"]).exits(0);
    sandbox.windlass(&["request", "submit", "--dry-run", "first.json"]).exits(0).says("first is valid");
    events(&sandbox, 1);
    sandbox.windlass(&["catalog", "add", "data", "as", "/Muons/Known-v1/GEN"]).exits(0);
    write(&sandbox, "second.json", &generated("second", "/Muons/Shared-v1/GEN"));
    write(&sandbox, "third.json", &generated("third", "/Muons/Known-v1/GEN"));
    for with_server in [false, true] {
        let _served = with_server.then(|| StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]));
        refused("second.json", &["/Muons/Shared-v1/GEN is taken: request `first` writes it"]);
        refused("third.json", &["/Muons/Known-v1/GEN is taken: it is already in the catalog"]);
    }
    write(
        &sandbox,
        "alike.json",
        &json!([generated("a", "/Muons/AB-v1/GEN"), generated("b", "/Muons/AB-v1/GEN")]),
    );
    sandbox
        .windlass(&["request", "submit", "--dry-run", "alike.json"])
        .exits(2)
        .says("b: output dataset /Muons/AB-v1/GEN is taken: request `a` writes it");
}

#[test]
fn malformed_requests_are_refused_by_field_and_not_stored() {
    let sandbox = Sandbox::new();
    let good = "request_name: r\ninput_dataset: /A/B-v1/RAW\noutput_datasets: [/A/C-v1/RECO]\nsplitting_algo: FileBased\n";
    let table = [
        ("memory_mb: -3\n", "memory_mb", 5),
        ("memory_mb: 1000000\n", "memory_mb", 5),
        ("time_per_event_sec: 0\n", "time_per_event_sec", 5),
        ("production_steps:\n  - {fraction: 2, priority: 1}\n", "production_steps", 6),
        ("urgent: true\nproduction_steps: [{fraction: 0.5, priority: 1}]\n", "production_steps", 6),
        ("site_whitelist: [\"a b\"]\n", "site_whitelist", 5),
        ("prioritty: 5\n", "prioritty", 5),
        ("splitting_params: {files_per_jobb: 1}\n", "files_per_jobb", 5),
    ];
    for (more, field, line) in table {
        sandbox.write("r.yaml", &format!("{good}{more}"));
        let refused = sandbox.windlass(&["request", "submit", "r.yaml", "--format", "json"]).exits(2);
        let told: Value = serde_json::from_str(&refused.stderr).unwrap();
        let found = told["diagnostics"].as_array().unwrap();
        let is_it = |one: &&Value| one["message"].as_str().unwrap().contains(field) && one["line"] == line;
        assert!(found.iter().find(is_it).is_some(), "{more}: {told}");
    }
    sandbox.write("r.yaml", "request_name: [\n");
    sandbox.windlass(&["request", "submit", "r.yaml"]).exits(2);
    sandbox.windlass(&["request", "submit", "none.yaml"]).exits(2).says("none.yaml");
    assert!(!sandbox.path(".windlass").exists(), "nothing was stored");
}

#[test]
fn catalog_is_filled_listed_and_exported() {
    let sandbox = Sandbox::new();
    events(&sandbox, 2);
    sandbox.write("data/.hidden", "x");
    sandbox.write("other/x.bin", "no events\n");
    let add = |words: &[&str]| -> Output { sandbox.windlass(&[&["catalog", "add"], words].concat()) };
    add(&["data", "as", "/A/B-v1/RAW"]).exits(0).says("2 files new; 2 files with 40 events");
    add(&["data", "as", "/A/B-v1/RAW"]).exits(0).says("0 files new; 2 files");
    sandbox.write("data/f0.txt", "1 1 1\n");
    add(&["data", "as", "/A/B-v1/RAW"]).exits(0).says("0 files new, 1 changed; 2 files with 21 events");
    events(&sandbox, 2);
    add(&["data", "as", "/A/B-v1/RAW"]).exits(0).says("0 files new, 1 changed; 2 files with 40 events");
    add(&["data", "as", "A"]).exits(2).says("not a dataset name");
    add(&["data"]).exits(2).says("no dataset given");
    add(&["none", "as", "/A/B-v1/RAW"]).exits(2).says("no such file");
    add(&["other", "as", "/A/X-v1/RAW"]).exits(2).says("line 1 is not an event").says("--events-from");
    add(&["other/*.bin", "as", "/A/X-v1/RAW", "--events", "7"]).exits(0).says("7 events");
    let shown = sandbox.json(&["catalog", "show", "/A/B-v1/RAW", "--files"]);
    assert_eq!(
        shown["files"][0]["lumis"],
        json!([{"run": 1, "lumi": 1, "events": 10}, {"run": 1, "lumi": 2, "events": 10}])
    );
    assert_eq!(shown["files"][0]["checksums"]["adler32"].as_str().unwrap().len(), 8);
    let elsewhere = Sandbox::new();
    elsewhere.write("all.json", &format!("[{shown}]"));
    elsewhere.windlass(&["catalog", "import", "all.json"]).exits(0).says("2 files new");
    assert_eq!(elsewhere.json(&["catalog", "show", "/A/B-v1/RAW", "--files"]), shown);
    elsewhere
        .write("bad.json", r#"{"dataset": "/A/B-v1/RAW", "files": [{"lfn": "x", "size": 1, "events": 1}]}"#);
    elsewhere.windlass(&["catalog", "import", "bad.json"]).exits(2).says("not a logical file name");
    elsewhere.windlass(&["catalog", "forget", "/A/B-v1/RAW"]).exits(4).says("--yes");
    elsewhere.windlass(&["catalog", "forget", "/A/B-v1/RAW", "--yes"]).exits(0);
    elsewhere.windlass(&["catalog", "show", "/A/B-v1/RAW"]).exits(2).says("there is no dataset");
}

#[test]
fn operators_set_sites_and_admission() {
    let sandbox = Sandbox::new();
    for with_server in [false, true] {
        let _served = with_server.then(|| StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]));
        sandbox.windlass(&["site", "set", "T2_A", "--slots", "9", "--storage-path", "/data"]).exits(0);
        sandbox.windlass(&["site", "drain", "T2_A", "--for", "1h"]).exits(0).says("is draining");
        assert_eq!(sandbox.json(&["site", "show", "T2_A"])["status"], "draining");
        sandbox.windlass(&["site", "enable", "T2_A"]).exits(0);
        if !with_server {
            sandbox.windlass(&["site", "ban", "T2_A"]).exits(4).says("would leave no site");
        }
        sandbox.windlass(&["site", "set", "T2_Other", "--slots", "1"]).exits(0);
        sandbox.windlass(&["site", "ban", "T2_A", "--reason", "it loses files"]).exits(0);
        sandbox.windlass(&["site"]).exits(0).prints("it loses files");
        sandbox.windlass(&["site", "unban", "T2_A"]).exits(0).says("1 ban lifted");
        sandbox.windlass(&["site", "show", "T2_B"]).exits(2).says("did you mean `T2_A`?");
        sandbox.windlass(&["request", "admission", "set", "--max-active", "7"]).exits(0);
        assert_eq!(sandbox.json(&["request", "admission"])["max_active_dags"], 7);
    }
}

#[test]
fn killed_local_request_run_continues_at_once() {
    let sandbox = Sandbox::new();
    events(&sandbox, 2);
    sandbox.windlass(&["catalog", "add", "data", "as", "/Muons/Run3-v1/RAW", "--site", "here"]).exits(0);
    // The first attempt hangs; its second attempt, and all other jobs, do their work.
    let (first, pid) = (sandbox.path("first"), sandbox.path("pid"));
    let command = format!(
        r#"if mkdir {}; then echo $$ > {}; sleep 600; fi; cat $(cat "$WINDLASS_INPUTS") > "$WINDLASS_OUTPUT""#,
        first.display(),
        pid.display()
    );
    write(&sandbox, "reco.json", &document("reco", Some(&command)));
    let mut killed = sandbox.start(&["request", "run", "reco.json", "--site", "here", "--num-cpus", "4"]);
    let begun = || fs::read_to_string(&pid).unwrap_or_default().ends_with('\n');
    eventually("the job has begun", begun);
    let worker = children_of(killed.id());
    let job: u32 = sandbox.read("pid").trim().parse().unwrap();
    kill(killed.id(), "KILL");
    killed.wait().unwrap();
    assert!(!worker.is_empty() && worker.iter().all(|pid| is_alive(*pid)), "the worker waits for its server");

    sandbox.windlass(&["request", "run", "--site", "here"]).exits(0).says("reco is completed");
    assert!(!is_alive(job) && !worker.iter().any(|pid| is_alive(*pid)), "they were ended");
    assert_eq!(written(&sandbox, "/Muons/reco-v1/RECO"), once_each(40));
    let events = sandbox.windlass(&["events", "--all"]).exits(0).stdout;
    assert!(!events.contains("its lease expired"), "the lease was not waited for: {events}");
}

#[test]
fn reqmgr_documents_are_imported_all_or_none() {
    let sandbox = Sandbox::new();
    let rereco = include_str!("../../../core/tests/data/reqmgr/rereco.json");
    let chain = include_str!("../../../core/tests/data/reqmgr/taskchain.json");
    let answer: Value =
        serde_json::from_str(include_str!("../../../core/tests/data/reqmgr/answer.json")).unwrap();
    write(&sandbox, "answer.json", &answer);
    let create = |text: &str| serde_json::from_str::<Value>(text).unwrap()["createRequest"].clone();
    let (mut first, mut second) = (create(rereco), create(chain));
    first["Memory"] = json!("much");
    second["TaskChain"] = json!(0);
    write(&sandbox, "first.json", &first);
    write(&sandbox, "second.json", &second);
    let import = ["request", "import", "answer.json", "first.json", "second.json"];
    let refused = sandbox.windlass(&import).exits(2);
    refused.says("first.json").says("Memory").says("second.json").says("TaskChain").says("3 files have");
    assert!(!sandbox.path(".windlass").exists(), "nothing was stored");

    first["Memory"] = json!(8000);
    for (field, value) in [("RequestName", "mine"), ("Campaign", "c"), ("RequestString", "s")] {
        first[field] = json!(value);
    }
    first["OutputDatasets"] = json!(["/MuonEG/Run2022C-27Jun2023-v2/AOD"]);
    write(&sandbox, "first.json", &first);
    // Neither contains commands: they are in a configuration cache elsewhere.
    let refused = sandbox.windlass(&import).exits(2);
    refused.says("answer.json").says("names CMSSW (ConfigCacheID").says("\"simulation\": {}");
    assert!(!sandbox.path(".windlass").exists(), "nothing was stored");
    first["PayloadConfig"] = json!({"simulation": {}});
    write(&sandbox, "first.json", &first);
    let mut answer = answer;
    for document in answer["result"][0].as_object_mut().unwrap().values_mut() {
        document["PayloadConfig"] = json!({"simulation": {}});
    }
    write(&sandbox, "answer.json", &answer);
    sandbox.windlass(&["request", "import", "answer.json", "first.json"]).exits(0).says("mine is submitted");
    let list = sandbox.json(&["request", "list"]);
    assert_eq!(list.as_array().unwrap().len(), 2, "{list}");
    documented_keys(&list[0]);
    sandbox.windlass(&["request", "import", "missing.json"]).exits(2).says("cannot read missing.json");
}

//! A campaign: twenty requests of all kinds on four simulated sites, while the server is killed repeatedly and
//! requests are stopped. In the end every request is completed, and the output files show that every event was
//! processed once.

use crate::common::{Sandbox, eventually_within, kill};
use crate::requests::Worker;
use crate::serve::StoppedOnDrop;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;
use windlass_store::sqlite::OpenMode;

/// Documents from ReqMgr2's own tests.
const REPROCESSING: &str = include_str!("../../../core/tests/data/reqmgr/rereco.json");
const TASK_CHAIN: &str = include_str!("../../../core/tests/data/reqmgr/taskchain.json");
const STEP_CHAIN: &str = include_str!("../../../core/tests/data/reqmgr/stepchain.json");
const SITES: [&str; 4] = ["T1_A", "T2_B", "T2_C", "T3_D"];
/// Input datasets, with the sites that have all their files.
const INPUTS: [(&str, &[&str]); 4] = [
    ("/Muons/Run3-v1/RAW", &["T1_A", "T2_B"]),
    ("/Photons/Run3-v1/RAW", &["T2_B", "T2_C", "T3_D"]),
    ("/Jets/Run3-v1/RAW", &["T3_D"]),
    ("/Taus/Run3-v1/RAW", &["T1_A", "T2_B", "T2_C", "T3_D"]),
];
const FILES: u64 = 6;
const EVENTS_PER_FILE: u64 = 30;
/// Two lumi sections per file, so that one may be masked out.
const EVENTS_PER_LUMI: u64 = 15;
const EVENTS: u64 = FILES * EVENTS_PER_FILE;
/// The number of times the server is killed.
const DEATHS: usize = 5;
const WAIT_TIMEOUT: Duration = Duration::from_mins(4);

/// A request, and the events that its outputs must contain exactly once. For generation, the event numbers.
struct CampaignRequest {
    name: String,
    document: Value,
    outputs: Vec<String>,
    events: Vec<u64>,
}

#[test]
fn campaign_survives_server_failures() {
    let sandbox = Sandbox::new();
    for (number, (dataset, sites)) in INPUTS.iter().enumerate() {
        write_events(&sandbox, number);
        let mut add = vec!["catalog", "add"];
        let directory = format!("data/{number}");
        add.extend([directory.as_str(), "as", dataset]);
        add.extend(sites.iter().flat_map(|site| ["--site", site]));
        sandbox.windlass(&add).exits(0);
    }
    let campaign_requests = commands();
    assert_eq!(campaign_requests.len(), 20);

    let listen = ["--listen", "127.0.0.1:0", "--lease", "3s", "--cool-off", "100ms"];
    let mut served = StoppedOnDrop::start(&sandbox, &listen);
    let _workers = SITES.map(|site| Worker::start(&sandbox, site));
    sandbox.windlass(&["request", "admission", "set", "--max-active", "6"]).exits(0);
    eventually_within(WAIT_TIMEOUT, "all sites are known", || {
        sandbox.json(&["site", "list"]).as_array().is_some_and(|sites| sites.len() == SITES.len())
    });
    for one in &campaign_requests {
        let file = format!("{}.json", one.name);
        sandbox.write(&file, &one.document.to_string());
        sandbox.windlass(&["request", "submit", &file]).exits(0);
    }
    for death in 1..=DEATHS {
        let goal = campaign_requests.len() * death / (DEATHS + 2);
        eventually_within(WAIT_TIMEOUT, "some are completed", || completed(&sandbox) >= goal);
        if let Some(name) = active(&sandbox) {
            // The request may have ended; then there is nothing to stop.
            sandbox.windlass(&["request", "stop", &name, "--reason", STOP_REASON]);
        }
        kill(served.pid(), "KILL");
        served = StoppedOnDrop::again(served, &sandbox, &listen);
    }
    eventually_within(WAIT_TIMEOUT, "all are completed", || {
        for name in with_status(&sandbox, "held") {
            // A stop between two rounds, when nothing runs, holds the request.
            let shown = told(&sandbox, std::slice::from_ref(&name));
            assert!(shown.contains(STOP_REASON), "{shown}");
            sandbox.windlass(&["request", "release", &name, "--reason", "seen"]);
        }
        completed(&sandbox) == campaign_requests.len()
    });

    let mut went_on = 0;
    for one in &campaign_requests {
        let shown = sandbox.json(&["request", "show", &one.name]);
        let went = shown["status_transitions"].as_array().unwrap();
        went_on += usize::from(went.iter().any(|line| line["to"] == "resubmitting"));
        for dataset in &one.outputs {
            let expected: BTreeMap<u64, u64> = one.events.iter().map(|event| (*event, 1)).collect();
            let written = crate::requests::written(&sandbox, dataset);
            assert_eq!(written, expected, "{}: {dataset}\n{shown:#}", one.name);
        }
        let blocks = shown["progress"]["blocks"].as_array().unwrap();
        assert!(!blocks.is_empty() && blocks.iter().all(|block| block["status"] == "archived"), "{shown:#}");
    }
    assert!(went_on > 0, "none was ever stopped and went on");
    served.stop();
    check_catalog(&sandbox, &campaign_requests);
}

/// Checks that every block is closed, has one tape rule, and is protected once at each site with files of it.
fn check_catalog(sandbox: &Sandbox, campaign_requests: &[CampaignRequest]) {
    let path = sandbox.path(".windlass/windlass.db");
    let job_store = windlass_store::open_store(path.to_str().unwrap(), OpenMode::ReadOnly).unwrap();
    for dataset in campaign_requests.iter().flat_map(|one| &one.outputs) {
        for block in job_store.catalog_blocks(dataset).unwrap() {
            assert!(!block.is_open, "{block:?}");
            let files = job_store.block_files(&block.name, true).unwrap();
            let mut places: Vec<String> =
                files.into_iter().flat_map(|file| file.replicas.into_keys()).collect();
            places.sort_unstable();
            places.dedup();
            let rules = job_store.rules(Some(&block.name)).unwrap();
            let (mut kept, tape): (Vec<String>, Vec<String>) = rules
                .into_iter()
                .map(|rule| rule.rule.rse_expression)
                .partition(|place| SITES.contains(&place.as_str()));
            kept.sort_unstable();
            assert_eq!((kept, tape.len()), (places, 1), "{block:?}");
        }
    }
}

fn write_events(sandbox: &Sandbox, dataset: usize) {
    fs::create_dir_all(sandbox.path(format!("data/{dataset}"))).unwrap();
    for file in 0..FILES {
        let line = |n: u64| {
            let event = file * EVENTS_PER_FILE + n;
            format!("{} {} {}\n", 7 + file % 2, event / EVENTS_PER_LUMI + 1, event + 1)
        };
        let text: String = (0..EVENTS_PER_FILE).map(line).collect();
        sandbox.write(&format!("data/{dataset}/f{file}.txt"), &text);
    }
}

fn commands() -> Vec<CampaignRequest> {
    let mut campaign_requests = Vec::new();
    let splitters: [(&str, Value); 4] = [
        ("FileBased", json!({"files_per_job": 2})),
        ("EventBased", json!({"events_per_job": 40})),
        ("LumiBased", json!({"lumis_per_job": 3})),
        ("EventAwareLumiBased", json!({"events_per_job": 40})),
    ];
    for (number, (dataset, _)) in INPUTS.iter().enumerate() {
        for (algorithm, params) in &splitters {
            let name = format!("{}_{number}", algorithm.to_lowercase());
            let mut document = base(&name, algorithm, params);
            document["input_dataset"] = json!(dataset);
            document["priority"] = json!(100_000 + number * 10);
            let mut events: Vec<u64> = (1..=EVENTS).collect();
            match number {
                // Some of its jobs fail at first, as with a temporary problem.
                1 => {
                    let fault = json!({"kind": {"exit": 71305}, "node": 1, "until_attempt": 1});
                    document["payload_config"]["steps"][0]["simulation"]["faults"] = json!([fault]);
                }
                2 => {
                    document["production_steps"] =
                        json!([{"fraction": 0.3, "priority": 90_000}, {"fraction": 0.6, "priority": 80_000}]);
                }
                // Only the first section of the first file, and all of the second file.
                3 if *algorithm != "FileBased" => {
                    document["splitting_params"]["lumi_mask"] = json!({"7": [[1, 1]], "8": [[3, 4]]});
                    events = (1..=EVENTS_PER_LUMI).chain(EVENTS_PER_FILE + 1..=2 * EVENTS_PER_FILE).collect();
                }
                _ => {}
            }
            if number == 3 && *algorithm == "EventAwareLumiBased" {
                document = reqmgr(REPROCESSING, &name);
                document["InputDataset"] = json!(dataset);
                document["LumiList"] = json!({"7": [[1, 1]], "8": [[3, 4]]});
            }
            let outputs = vec![format!("/Made/{name}-v1/RECO")];
            campaign_requests.push(CampaignRequest { name, document, outputs, events });
        }
    }
    for (name, text) in [("taskchain", TASK_CHAIN), ("stepchain", STEP_CHAIN)] {
        let document = reqmgr(text, name);
        let first = document["FirstEvent"].as_u64().unwrap_or(1);
        let outputs = vec![format!("/Made/{name}-v1/RECO")];
        campaign_requests.push(CampaignRequest {
            name: name.to_owned(),
            document,
            outputs,
            events: (first..first + 150).collect(),
        });
    }
    for number in 0..2_u64 {
        let name = format!("gen_{number}");
        let mut document = base(&name, "EventBased", &json!({"events_per_job": 25}));
        let first = if number == 0 { 1 } else { 5_000_000_000 * number };
        document["generation"] = json!({"events": 150, "first_event": first, "events_per_lumi": 10});
        document["payload_config"]["steps"] = json!([step("GEN"), step("RECO")]);
        let outputs = vec![format!("/Made/{name}-v1/GEN"), format!("/Made/{name}-v1/RECO")];
        document["output_datasets"] = json!(outputs);
        document["urgent"] = json!(number == 1);
        campaign_requests.push(CampaignRequest {
            name,
            document,
            outputs,
            events: (first..first + 150).collect(),
        });
    }
    campaign_requests
}

/// A document of ReqMgr2, with the operator's fields filled in and sizes reduced to the sites here.
fn reqmgr(text: &str, name: &str) -> Value {
    let text: Value = serde_json::from_str(text).unwrap();
    let mut document = text["createRequest"].clone();
    shrink(&mut document);
    document["RequestName"] = json!(name);
    document["OutputDatasets"] = json!([format!("/Made/{name}-v1/RECO")]);
    document["PayloadConfig"] = json!({"simulation": {"speed": 1_000_000.0}});
    document
}

/// Shrinks the document and its steps or tasks, and fills in the remaining fields.
fn shrink(part: &mut Value) {
    if part.as_str().is_some_and(|text| text.ends_with("-OVERRIDE-ME")) {
        *part = json!("storm");
    }
    for (key, value) in part.as_object_mut().into_iter().flatten() {
        match key.as_str() {
            "Multicore" => *value = json!(1),
            "Memory" => *value = json!(2000),
            "TimePerEvent" => *value = json!(0.01),
            "RequestNumEvents" => *value = json!(150),
            _ => shrink(value),
        }
    }
}

fn base(name: &str, algorithm: &str, params: &Value) -> Value {
    let mut params = params.clone();
    params["target_merged_size_kb"] = json!(3);
    params["target_block_size_kb"] = json!(6);
    json!({
        "request_name": name, "output_datasets": [format!("/Made/{name}-v1/RECO")],
        "splitting_algo": algorithm, "splitting_params": params, "memory_mb": 100,
        "size_per_event_kb": 0.04, "campaign": "storm", "payload_config": {"steps": [step("RECO")]},
    })
}

fn step(name: &str) -> Value {
    json!({"name": name, "simulation": {"speed": 1_000_000.0}})
}

fn with_status(sandbox: &Sandbox, status: &str) -> Vec<String> {
    let output = sandbox.windlass(&["request", "list", "--status", status, "--format", "json"]);
    let list: Value = serde_json::from_str(&output.stdout).unwrap_or_default();
    let name = |row: &Value| row["request_name"].as_str().map(str::to_owned);
    list.as_array().into_iter().flatten().filter_map(name).collect()
}

fn completed(sandbox: &Sandbox) -> usize {
    with_status(sandbox, "completed").len()
}

const STOP_REASON: &str = "to see whether it goes on";

fn active(sandbox: &Sandbox) -> Option<String> {
    with_status(sandbox, "active").into_iter().next()
}

fn told(sandbox: &Sandbox, names: &[String]) -> String {
    names.iter().map(|name| sandbox.windlass(&["request", "show", name]).stdout).collect()
}

//! What operators do about failed requests, with the real binary: the suggested commands are run as they are
//! printed, and work.

use crate::common::{Sandbox, eventually};
use crate::requests::{Worker, written};
use crate::serve::StoppedOnDrop;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

pub(crate) const INPUT: &str = "/Muons/Run3-v1/RAW";

/// Three files at each of two sites; jobs at one of the sites fail until the file `corrected` exists.
pub(crate) fn prepare(sandbox: &Sandbox) {
    for (place, first) in [("good", 0), ("bad", 3)] {
        for file in first..first + 3 {
            let line = |n: u64| format!("1 {} {}\n", file + 1, file * 10 + n + 1);
            sandbox.write(&format!("{place}/f{file}.txt"), &(0..10).map(line).collect::<String>());
        }
        let site = format!("T2_{place}");
        sandbox.windlass(&["catalog", "add", place, "as", INPUT, "--site", &site]).exits(0);
    }
}

pub(crate) fn write(sandbox: &Sandbox, name: &str) -> String {
    let command = format!(
        "if test \"$WINDLASS_SITE\" = T2_bad && ! test -e {}; then echo there is no licence here >&2; exit 70; fi; \
         cat $(cat $WINDLASS_INPUTS) > $WINDLASS_OUTPUT",
        sandbox.path("mended").display()
    );
    let document = json!({
        "request_name": name, "input_dataset": INPUT, "output_datasets": [format!("/Muons/{name}-v1/RECO")],
        "splitting_algo": "FileBased", "splitting_params": {"files_per_job": 1, "target_merged_size_kb": 1},
        "memory_mb": 100, "size_per_event_kb": 0.04, "payload_config": {"steps": [{"name": "RECO", "command": command}]},
    });
    let file = format!("{name}.json");
    sandbox.write(&file, &document.to_string());
    file
}

pub(crate) fn once_each() -> BTreeMap<u64, u64> {
    (1..=60).map(|event| (event, 1)).collect()
}

fn show(sandbox: &Sandbox, name: &str) -> Value {
    sandbox.json(&["request", "show", name])
}

fn await_status(sandbox: &Sandbox, name: &str, status: &str) -> Value {
    eventually(&format!("{name} is {status}"), || show(sandbox, name)["status"] == status);
    show(sandbox, name)
}

fn await_outputs(sandbox: &Sandbox, name: &str, state: &str) {
    eventually(&format!("the outputs of {name} are {state}"), || {
        show(sandbox, name)["recovery"]["output_state"] == state
    });
}

#[test]
fn suggested_request_commands_work_as_printed() {
    let sandbox = Sandbox::new();
    prepare(&sandbox);
    let file = write(&sandbox, "reco");
    let places = ["--site", "T2_good", "--site", "T2_bad", "--num-cpus", "4"];
    sandbox.windlass(&[&["request", "run", &file], &places[..]].concat()).exits(6).says("reco is held");
    let shown = sandbox.windlass(&["request", "show", "reco"]).exits(0);
    shown.prints("reco is held since ").prints("windlass request errors reco, windlass request release reco");
    let told = sandbox.windlass(&["request", "errors", "reco"]).exits(0);
    let told = told.prints("reco is held: 3 of").prints("permanent").prints("there is no licence here");
    let told = told.prints("- ban T2_bad: 3 of 5 attempts failed there (3 failed attempts)");
    let next = told.stdout.lines().find_map(|line| line.strip_prefix("next: windlass ")).unwrap();
    assert_eq!(next, "request release reco --ban T2_bad");
    // Meanwhile an operator copies the files.
    sandbox.windlass(&["catalog", "add", "bad", "as", INPUT, "--site", "T2_good"]).exits(0);
    sandbox
        .windlass(&next.split(' ').collect::<Vec<_>>())
        .exits(0)
        .says("the rest is queued as the next round");
    sandbox.windlass(&[&["request", "run"], &places[..]].concat()).exits(0).says("reco is completed");
    assert_eq!(written(&sandbox, "/Muons/reco-v1/RECO"), once_each());
    let bans = sandbox.json(&["site", "bans", "--request", "reco"]);
    assert_eq!(
        (&bans[0]["site_name"], &bans[0]["request_name"]),
        (&json!("T2_bad"), &json!("reco")),
        "{bans}"
    );
    let alerts = sandbox.json(&["request", "alerts", "reco"]);
    let kinds: Vec<&str> =
        alerts.as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["held", "site_banned"], "{alerts}");
    let lines = show(&sandbox, "reco")["status_transitions"].clone();
    let said = lines.as_array().unwrap().iter().any(|line| {
        line["reason"].as_str().is_some_and(|reason| reason.contains("no reason was given (not at T2_bad)"))
    });
    assert!(said, "{lines}");
    sandbox.windlass(&["request", "errors", "reco", "--all"]).exits(0).prints("over all rounds");
}

#[test]
fn outputs_of_failed_or_restarted_request_follow_policy() {
    let sandbox = Sandbox::new();
    prepare(&sandbox);
    let _served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    let _workers = [Worker::start(&sandbox, "T2_good"), Worker::start(&sandbox, "T2_bad")];
    eventually("both sites are known", || sandbox.json(&["site", "list"]).as_array().unwrap().len() == 2);
    for name in ["old_v1", "lost"] {
        let file = write(&sandbox, name);
        sandbox.windlass(&["request", "submit", &file, "--watch"]).exits(6);
    }
    assert_eq!(show(&sandbox, "lost")["recovery"]["output_state"], "active");

    // The request failed: its outputs are listed, and stay until an operator invalidates them.
    sandbox.windlass(&["request", "invalidate", "lost", "--yes"]).exits(4).says("it still produces outputs");
    sandbox.windlass(&["request", "fail", "lost"]).exits(4).says("--yes");
    sandbox.windlass(&["request", "fail", "lost", "--yes", "--reason", "not needed any more"]).exits(0);
    let lost = await_status(&sandbox, "lost", "failed");
    let reason = lost["reason"].as_str().unwrap();
    assert!(reason.contains("not needed any more"), "{reason}");
    let path = reason.split_once("are listed in ").unwrap().1;
    let manifest: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let blocks = manifest["blocks"].as_array().unwrap();
    assert_eq!((blocks.len(), &blocks[0]["dataset"]), (1, &json!("/Muons/lost-v1/RECO")), "{manifest}");
    assert!(!blocks[0]["source_rules"].as_array().unwrap().is_empty(), "{manifest}");
    assert_eq!(blocks[0]["files"][0]["is_registered"], true, "{manifest}");
    sandbox.windlass(&["request", "invalidate", "lost", "--yes"]).exits(0).says("1 of its blocks");
    await_outputs(&sandbox, "lost", "invalidated");
    let files = blocks[0]["files"].as_array().unwrap().len();
    assert_eq!(sandbox.json(&["catalog", "show", "/Muons/lost-v1/RECO"])["invalid_files"], files);

    // Restarted: the existing outputs stay until the new ones replace them.
    fs::write(sandbox.path("mended"), "").unwrap();
    let words = ["request", "restart", "old_v1", "--cleanup", "immediate", "--yes", "--reason", "mended"];
    let restarted = sandbox.json(&words);
    assert_eq!(
        (&restarted["request_name"], &restarted["is_new"]),
        (&json!("old_v2"), &json!(true)),
        "{restarted}"
    );
    sandbox.windlass(&["request", "restart", "old_v1", "--yes"]).exits(0).says("already replaced old_v1");
    sandbox.windlass(&["request", "watch", "old_v2"]).exits(0).says("old_v2 is completed");
    await_outputs(&sandbox, "old_v1", "invalidated");
    assert_eq!(written(&sandbox, "/Muons/old_v1-v2/RECO"), once_each());
    let versions = sandbox.json(&["request", "versions", "old_v1"]);
    assert_eq!(versions["versions"][0]["superseded_by"], "old_v2", "{versions}");
    assert_eq!(await_status(&sandbox, "old_v1", "failed")["superseded_by_request"], "old_v2");
}

#[test]
fn invalid_request_operations_are_refused_without_server() {
    let sandbox = Sandbox::new();
    prepare(&sandbox);
    let file = write(&sandbox, "reco");
    sandbox.windlass(&["request", "submit", &file]).exits(0);
    sandbox
        .windlass(&["request", "release", "reco"])
        .exits(4)
        .says("is submitted: only a held or paused request");
    sandbox.windlass(&["request", "release", "rceo"]).exits(2).says("did you mean `reco`?");
    sandbox
        .windlass(&["request", "release", "reco", "--exclude-bad"])
        .exits(2)
        .says("no work unit of reco failed");
    sandbox.windlass(&["request", "release", "reco", "--memory", "much"]).exits(2).says("16G or 512M");
    sandbox.windlass(&["request", "invalidate", "reco", "--yes"]).exits(4).says("fail or cancel it first");
    sandbox.windlass(&["request", "fail", "reco", "--dry-run"]).exits(0).says("would fail request reco");
    sandbox.windlass(&["request", "restart", "reco", "--cleanup", "never"]).exits(2).says("immediate");
    sandbox.windlass(&["request", "errors", "reco"]).exits(0).prints("nothing is planned yet");
    sandbox.windlass(&["request", "alerts"]).exits(0).says("no alerts");
    sandbox.windlass(&["site", "bans"]).exits(0).says("no bans match");
    // Recorded now, and applied by the next process that works on requests.
    sandbox.windlass(&["request", "fail", "reco", "--yes"]).exits(0).says("to apply it");
    sandbox.windlass(&["request", "run", "--site", "T2_good"]);
    assert_eq!(show(&sandbox, "reco")["status"], "failed");
}

//! Agents and requests: a held request is inspected and released with the official SDK, with an explicit
//! confirmation.

use crate::common::{Sandbox, eventually};
use crate::mcp::{Agent, session};
use crate::request_operations::{INPUT, once_each, prepare, write};
use crate::requests::written;
use crate::serve::{StoppedOnDrop, found};
use serde_json::{Value, json};

const PLACES: [&str; 6] = ["--site", "T2_good", "--site", "T2_bad", "--num-cpus", "4"];

/// A request that is held because its jobs fail at one of its sites; by now its files are at another site too.
fn held() -> Sandbox {
    let sandbox = Sandbox::new();
    prepare(&sandbox);
    let file = write(&sandbox, "reco");
    sandbox.windlass(&[&["request", "run", &file], &PLACES[..]].concat()).exits(6);
    sandbox.windlass(&["catalog", "add", "bad", "as", INPUT, "--site", "T2_good"]).exits(0);
    sandbox
}

#[track_caller]
fn saw_what_is_wrong(seen: &Value) {
    let held = &seen["held"];
    assert_eq!((&held["count"], &held["items"][0]["request_name"]), (&json!(1), &json!("reco")), "{held}");
    assert_eq!(seen["completed"]["count"], 0);
    assert_eq!(
        (&seen["request"]["status"], &seen["request"]["recovery"]["round"]),
        (&json!("held"), &json!(0))
    );
    let errors = &seen["errors"];
    assert_eq!(errors["suggested_release"]["site_bans"], json!(["T2_bad"]), "{errors}");
    assert!(errors["note"].to_string().contains("not instructions"), "{errors}");
    assert!(errors["kinds"][0]["log_tail"].to_string().contains("there is no licence here"), "{errors}");
    assert!(seen["unknown"].to_string().contains("-none"), "{}", seen["unknown"]);
}

#[test]
fn official_sdk_releases_request_over_stdio() {
    let sandbox = held();
    let windlass = env!("CARGO_BIN_EXE_windlass");
    let seen = session(&sandbox, "requests.py", &["stdio", windlass, "reco", "T2_bad"]);
    saw_what_is_wrong(&seen);
    assert!(seen["unmeant"].as_str().unwrap().contains("--allow-write"), "{}", seen["unmeant"]);

    let seen = session(&sandbox, "requests.py", &["stdio", windlass, "reco", "T2_bad", "--allow-write"]);
    saw_what_is_wrong(&seen);
    let unmeant = seen["unmeant"].as_str().unwrap();
    assert!(unmeant.contains("Request reco is held") && unmeant.contains("confirm: true"), "{unmeant}");
    assert!(seen["wrong"].as_str().unwrap().contains("T9_None"), "{}", seen["wrong"]);
    assert!(seen["released"]["message"].as_str().unwrap().contains("the next round"), "{}", seen["released"]);
    sandbox.windlass(&[&["request", "run"], &PLACES[..]].concat()).exits(0).says("reco is completed");
    assert_eq!(written(&sandbox, "/Muons/reco-v1/RECO"), once_each());
}

#[test]
fn official_sdk_releases_request_over_http() {
    let sandbox = held();
    let _server = StoppedOnDrop::start(&sandbox, &["--mcp=write"]);
    let place = found(&sandbox);
    let (url, token) = (place["url"].as_str().unwrap(), place["token"].as_str().unwrap());
    let seen = session(&sandbox, "requests.py", &["http", url, token, "reco", "T2_bad"]);
    saw_what_is_wrong(&seen);
    let unmeant = seen["unmeant"].as_str().unwrap();
    assert!(unmeant.contains("Request reco is held") && unmeant.contains("confirm: true"), "{unmeant}");
    assert!(seen["wrong"].as_str().unwrap().contains("T9_None"), "{}", seen["wrong"]);
    assert_eq!(seen["released"]["request_name"], "reco");
    eventually("it goes on", || sandbox.json(&["request", "show", "reco"])["status"] != "held");
}

#[test]
fn agent_fails_request_only_with_confirm() {
    let sandbox = held();
    let mut agent = Agent::start(&sandbox, &["--allow-write"]);
    let arguments = json!({"request_name": "reco", "reason": "not needed any more"});
    let said = agent.refused("fail_request", &arguments);
    assert!(said.contains("fail it permanently") && said.contains("confirm: true"), "{said}");
    assert_eq!(sandbox.json(&["request", "show", "reco"])["wanted"], Value::Null);
    let meant = json!({"request_name": "reco", "reason": "not needed any more", "confirm": true});
    agent.call("fail_request", &meant);
    let wanted = sandbox.json(&["request", "show", "reco"])["wanted"].clone();
    assert_eq!(
        (&wanted["what"], &wanted["reason"]),
        (&json!("fail"), &json!("not needed any more")),
        "{wanted}"
    );
    agent.hang_up();
}

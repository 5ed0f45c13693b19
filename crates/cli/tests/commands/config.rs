//! Settings from files and the environment, and the messages about invalid ones.

use crate::common::{Output, Sandbox};
use serde_json::Value;

fn with_workflow() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("windlass.yaml", "name: sim\njobs: [{name: a, command: 'true'}]\n");
    sandbox.windlass(&["create"]).exits(0).prints("workflow 1");
    sandbox
}

#[test]
fn command_line_flags_override_settings() {
    let sandbox = with_workflow();
    sandbox.write("windlass.toml", "format = \"csv\"\n");
    sandbox.windlass(&["jobs"]).exits(0).prints("id,workflow_id,name,status");
    let list = sandbox.windlass(&["jobs", "-f", "json"]).exits(0).stdout;
    assert!(list.starts_with('['), "{list}");
    let mut with_variable = sandbox.command(&["jobs"]);
    let list = Output::of(with_variable.env("WINDLASS_FORMAT", "json")).exits(0).stdout;
    assert!(list.starts_with('['), "{list}");
}

#[test]
fn config_show_names_origin_of_each_setting() {
    let sandbox = Sandbox::new();
    sandbox.write("home/.config/windlass/config.toml", "[run]\ngrace = \"1m\"\nnum_cpus = 3\n");
    sandbox.write("windlass.toml", "[run]\ngrace = \"2m\"\n");
    let list = sandbox.json(&["config", "show", "--origin"]);
    let setting = |name: &str| -> Value {
        list.as_array().unwrap().iter().find(|setting| setting["name"] == name).unwrap().clone()
    };
    assert_eq!(setting("run.grace")["value"], "2m");
    assert!(setting("run.grace")["origin"].as_str().unwrap().ends_with("windlass.toml:2"));
    assert!(setting("run.num_cpus")["origin"].as_str().unwrap().ends_with("config.toml:3"));
    assert_eq!(setting("format")["origin"], "default");
    sandbox.windlass(&["config", "show", "-f", "toml"]).exits(0).prints("[run]\noutput_dir = ");
    sandbox.windlass(&["config", "paths"]).exits(0).prints("/etc/windlass/config.toml").prints("local");
    sandbox.windlass(&["config", "validate"]).exits(0).says("the settings are valid (2 files");
}

#[test]
fn config_validate_names_file_and_line() {
    let sandbox = with_workflow();
    sandbox.write("windlass.toml", "fromat = \"csv\"\n[run]\ngrace = \"soon\"\n");
    sandbox
        .windlass(&["config", "validate"])
        .exits(2)
        .prints("windlass.toml:1: there is no setting `fromat`; did you mean `format`?")
        .prints("windlass.toml:3: `run.grace` cannot be `soon`")
        .says("2 mistakes");
    sandbox.windlass(&["jobs"]).exits(2).says("there is no setting `fromat`").says("config validate");
    sandbox.windlass(&["config", "show"]).exits(0).says("warning:");
}

#[test]
fn config_init_does_not_overwrite() {
    let sandbox = Sandbox::new();
    sandbox.windlass(&["config", "init", "--local"]).exits(0).says("wrote");
    assert!(sandbox.read("windlass.toml").contains("# max_parallel_jobs = 8"));
    sandbox.windlass(&["config", "validate"]).exits(0);
    sandbox.windlass(&["config", "init", "--local"]).exits(4).says("--force");
    sandbox.windlass(&["config", "init", "--local", "--force"]).exits(0);
    sandbox.windlass(&["config", "init"]).exits(0);
    assert!(sandbox.path("home/.config/windlass/config.toml").exists());
}

#[test]
fn usage_errors_render_as_json() {
    let sandbox = Sandbox::new();
    let output = sandbox.windlass(&["statsu", "-f", "json"]).exits(2);
    let error: Value = serde_json::from_str(&output.stderr).unwrap();
    assert_eq!(error["kind"], "user");
    assert_eq!(error["exit_code"], 2);
    assert!(error["hint"].as_str().unwrap().contains("status"), "{error}");
    assert_eq!(output.stdout, "");
    sandbox.windlass(&["--help"]).exits(0).prints("Inspect:\n  status");
    sandbox.windlass(&["status", "-f", "dot"]).exits(2).says("does not support the format dot");
}

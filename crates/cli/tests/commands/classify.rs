//! `windlass failures classify` on logs, with built-in and custom rules.

use crate::common::{Output, Sandbox, documented_keys};
use serde_json::Value;
use std::io::Write as _;
use std::process::Stdio;

const REFUSED: &str = "step 1\ncurl: (7) Failed to connect to db port 5432: Connection refused\nleaving\n";

fn classify(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    sandbox.json(&[&["classify"], arguments].concat())[0].clone()
}

#[test]
fn classification_uses_log_and_exit_status() {
    let sandbox = Sandbox::new();
    sandbox.write("net.e", REFUSED);
    sandbox.write("quiet.e", "");
    let refused = classify(&sandbox, &["net.e"]);
    assert_eq!((&refused["class"], &refused["rule"]), (&"transient".into(), &"connection-lost".into()));
    assert_eq!(refused["message"], "curl: (#) Failed to connect to db port #: Connection refused");
    assert_eq!(refused["signature"].as_str().unwrap().len(), 16);
    for (arguments, class) in [
        (&["net.e", "--oom"][..], "memory"),
        (&["net.e", "--timeout"], "timeout"),
        (&["quiet.e", "--signal", "segv"], "permanent"),
        (&["quiet.e", "--return-code", "75"], "transient"),
        (&["quiet.e"], "unknown"),
        (&["net.e", "--signal", "SIGKILL"], "infrastructure"),
    ] {
        assert_eq!(classify(&sandbox, arguments)["class"], class, "{arguments:?}");
    }
    sandbox.windlass(&["failures", "classify", "quiet.e", "-r", "0"]).exits(2).says("did not fail");
    sandbox.windlass(&["failures", "classify", "nothing.e"]).exits(2).says("cannot read nothing.e");
    sandbox
        .windlass(&["failures", "classify", "net.e", "--signal", "SIGKIL"])
        .exits(2)
        .says("unknown signal");
    sandbox.windlass(&["failures", "classify"]).exits(2).says("LOGFILE");
    sandbox
        .windlass(&["failures", "classify", "net.e", "quiet.e"])
        .exits(0)
        .prints("CLASS")
        .prints("quiet.e  unknown");
}

#[test]
fn classification_reads_end_of_long_log_from_file_or_pipe() {
    let sandbox = Sandbox::new();
    let noise = "SyntaxError: invalid syntax\n".to_owned() + &"a line of output\n".repeat(200_000);
    sandbox.write("long.e", &(noise.clone() + REFUSED));
    assert_eq!(classify(&sandbox, &["long.e"])["class"], "transient");
    sandbox.write("over.e", &noise);
    assert_eq!(classify(&sandbox, &["over.e"])["class"], "unknown");

    let mut piped = sandbox.command(&["failures", "classify", "-", "--format", "json"]);
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all((noise + REFUSED).as_bytes()).unwrap();
    let printed: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!((&printed[0]["class"], &printed[0]["path"]), (&"transient".into(), &"-".into()));
}

#[test]
fn classification_output_redacts_secrets() {
    let sandbox = Sandbox::new();
    sandbox.write("job.e", "cannot use postgres://ada:hush@db/x: Connection refused\n");
    let Output { stdout, .. } = sandbox.windlass(&["failures", "classify", "job.e"]).exits(0);
    assert!(stdout.contains("ada:********@db") && !stdout.contains("hush"), "{stdout}");
}

#[test]
fn user_rules_precede_built_in_rules() {
    let sandbox = Sandbox::new();
    sandbox.write("net.e", REFUSED);
    sandbox.write(
        "rules.toml",
        "[[rule]]\nname = \"db\"\nclass = \"infrastructure\"\nstderr = [\"re:to db port\"]\n",
    );
    assert_eq!(classify(&sandbox, &["net.e", "--rules-file", "rules.toml"])["rule"], "db");
    sandbox.write("windlass.toml", "[classify]\nrules_file = \"rules.toml\"\n");
    let found = classify(&sandbox, &["net.e"]);
    assert_eq!((&found["rule"], &found["origin"]), (&"db".into(), &"own".into()));
    sandbox.windlass(&["config", "validate"]).exits(0);

    let rules = sandbox.json(&["failures", "classify", "--rules"]);
    let (own, defaults) = rules.as_array().unwrap().split_first().unwrap();
    assert_eq!((&own["name"], &own["origin"]), (&"db".into(), &"own".into()));
    assert!(defaults.len() > 100 && defaults.iter().all(|rule| rule["origin"] == "default"));
    sandbox.windlass(&["failures", "classify", "--rules"]).exits(0).prints("`no space left on device` and");

    sandbox.write("rules.toml", "[[rule]]\nname = \"db\"\nclass = \"infra\"\nstderr = [\"x\"]\n");
    sandbox
        .windlass(&["failures", "classify", "net.e"])
        .exits(2)
        .says("rules.toml")
        .says("line 3")
        .says("`infrastructure`");
    sandbox.windlass(&["config", "validate"]).exits(2).prints("windlass.toml:2").prints("line 3");
}

#[test]
fn classification_fields_are_documented() {
    let sandbox = Sandbox::new();
    sandbox.write("net.e", REFUSED);
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("`classify`")).unwrap();
    for object in [&classify(&sandbox, &["net.e"]), &sandbox.json(&["failures", "classify", "--rules"])[0]] {
        for key in documented_keys(object) {
            assert!(
                section.contains(&format!("`{key}`")),
                "docs/json.md does not explain `{key}` of classify"
            );
        }
    }
}

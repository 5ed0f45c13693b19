//! Features that spec files written for Torc rely on, with the real binary.

use crate::common::{Output, Sandbox};

#[test]
fn jobs_and_actions_run_under_bash() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "sim.yaml",
        r#"
name: sim
actions:
  - {trigger_type: on_workflow_complete, action_type: run_commands, commands: ["[[ abc == a* ]] && echo yes > matched"]}
jobs:
  - name: arrays
    command: 'names=(one two); [[ ${#names[@]} == 2 ]] && echo "${names[1]}" > array'
  - name: wrapped
    invocation_script: env FOO=1
    command: 'echo one > wrapped && echo "foo $FOO" >> wrapped'
  - name: braces
    command: 'echo "%{http_code} ${TORC_API_URL-unset}" > braces'
  - name: data
    command: 'echo $TORC_EXAMPLE_DATA_ROOT > data'
    env: {TORC_EXAMPLE_DATA_ROOT: /data}
"#,
    );
    let mut run = sandbox.command(&["run", "sim.yaml"]);
    run.env("TORC_API_URL", "http://another.example/torc-service/v1");
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (file, text) in [
        ("array", "two\n"),
        ("wrapped", "one\nfoo 1\n"),
        ("braces", "%{http_code} unset\n"),
        ("data", "/data\n"),
    ] {
        assert_eq!(std::fs::read_to_string(sandbox.path(file)).unwrap(), text, "{file}");
    }
    assert_eq!(std::fs::read_to_string(sandbox.path("windlass_output/matched")).unwrap(), "yes\n");
}

#[test]
fn local_run_respects_labels() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "sim.yaml",
        "name: sim\njobs:\n  - {name: plain, command: touch plain}\n  - {name: train, command: touch trained, labels: [gpu]}\n",
    );
    sandbox
        .windlass(&["run", "sim.yaml"])
        .exits(2)
        .says("`train` requires the label `gpu`, which this machine lacks")
        .says("--label gpu");
    assert!(sandbox.path("plain").exists() && !sandbox.path("trained").exists());
    sandbox.windlass(&["run", "sim.yaml", "--label", "gpu"]).exits(0);
    assert!(sandbox.path("trained").exists());
}

#[test]
fn parameter_tables_are_found_beside_spec_and_in_working_dir() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path("specs")).unwrap();
    sandbox.write("table.csv", "i\n1\n2\n3\n");
    sandbox.write(
        "specs/sim.yaml",
        "name: sim\njobs:\n  - {name: 'job_{i}', command: 'true', parameters_file: table.csv}\n",
    );
    sandbox.windlass(&["create", "--dry-run", "specs/sim.yaml"]).exits(0).prints("3 jobs");
    sandbox.write("specs/table.csv", "i\n1\n");
    sandbox.windlass(&["create", "--dry-run", "specs/sim.yaml"]).exits(0).prints("1 job");
}

#[test]
fn old_spelling_works_and_names_new_spelling() {
    let sandbox = Sandbox::new();
    sandbox.write("sim.yaml", "name: sim\njobs:\n  - {name: a, command: 'true'}\n");
    sandbox.windlass(&["run", "sim.yaml"]).exits(0);
    let note = "note: `windlass revisions` is now `windlass failures revisions`";
    sandbox.windlass(&["revisions"]).exits(0).says(note);
    sandbox.windlass(&["-q", "revisions"]).exits(0).says_nothing_of("note:");
    sandbox.windlass(&["revisions", "-f", "json"]).exits(0).prints("[]").says_nothing_of("note:");
    sandbox.windlass(&["results", "list"]).exits(0).prints("completed").says_nothing_of("note:");
    sandbox.windlass(&["help", "revisions"]).exits(0).prints("windlass failures revisions");
    sandbox.windlass(&["help", "options"]).exits(0).prints("--db <PATH>");
    sandbox.windlass(&["workflows", "archive", "true", "1"]).exits(0).prints("archived");
    sandbox.windlass(&["workflows", "archive", "false", "1"]).exits(0).prints("restored");
}

#[test]
fn commands_of_local_runs_get_no_address_of_a_server() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "sim.yaml",
        "name: sim\nuse_pending_failed: true\njobs: [{name: a, command: 'env > job.env; exit 3'}]\nactions:\n  \
         - {trigger_type: on_workflow_start, action_type: run_commands, commands: ['env > ../action.env']}\n",
    );
    let windlass = |args: &[&str]| {
        let mut command = sandbox.command(&[&["--db", "sim.db"], args].concat());
        for name in ["WINDLASS_URL", "WINDLASS_API_URL", "TORC_API_URL"] {
            command.env(name, "http://server.invalid/torc-service/v1");
        }
        Output::of(&mut command)
    };
    windlass(&["run", "sim.yaml"]).exits(6);
    windlass(&["recover", "--ai-recovery", "--ai-agent-command", "cat > /dev/null; env > agent.env"]);
    windlass(&["recover", "--recovery-hook", "env > hook.env; :"]).exits(0);
    for file in ["job.env", "action.env", "agent.env", "hook.env"] {
        let environment = sandbox.read(file);
        assert!(environment.contains("TORC_WORKFLOW_ID=1\n"), "{file}: {environment}");
        assert!(!environment.contains("server.invalid"), "{file}: {environment}");
    }
}

#[test]
fn options_of_torc_without_effect_are_named() {
    let sandbox = Sandbox::new();
    sandbox.write("sim.yaml", "name: sim\njobs: [{name: a, command: 'true'}]\n");
    let flags = ["--standalone", "--in-memory", "--tls-insecure", "--cookie-header", "x=secret"];
    let output =
        sandbox.windlass(&[&flags[..], &["create", "sim.yaml", "--no-resource-monitoring"]].concat());
    let output =
        output.exits(0).says_nothing_of("secret").says("--no-resource-monitoring has no effect: set");
    flags[..4].iter().fold(output, |output, flag| output.says(&format!("{flag} has no effect: ")));
    let submit = ["submit", "sim.yaml", "--dry-run", "--no-resource-monitoring"];
    sandbox.windlass(&submit).says("--no-resource-monitoring has no effect");
}

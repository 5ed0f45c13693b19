//! Before a job starts: which workflow a `run` selects, and what is refused before anything is created.

use crate::common::{Output, Sandbox};
use std::process::{Child, Stdio};

const TWO: &str =
    "name: two\njobs: [{name: a, command: 'true'}, {name: b, command: 'test -e go', depends_on: [a]}]\n";

fn sandbox(spec: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("spec.yaml", spec);
    sandbox
}

fn workflows(sandbox: &Sandbox) -> usize {
    sandbox.json(&["workflows"]).as_array().unwrap().len()
}

#[test]
fn five_concurrent_runs_of_one_file_create_one_workflow() {
    let sandbox = sandbox("name: once\njobs: [{name: a, command: 'echo ran >> ran; sleep 0.3'}]\n");
    let spawn = |_| {
        let mut command = sandbox.command(&["run", "spec.yaml"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<Child> = (0..5).map(spawn).collect();
    for child in all {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // Refused while another process runs it, or started after that run and found nothing to do.
        assert!(matches!(output.status.code(), Some(0 | 4)), "{:?}: {said}", output.status);
    }
    assert_eq!(workflows(&sandbox), 1);
    assert_eq!(sandbox.read("ran"), "ran\n");
}

#[test]
fn invalid_spec_creates_no_files() {
    let sandbox = sandbox("name: wrong\njobs: [{name: a}]\n");
    sandbox.windlass(&["run", "spec.yaml"]).exits(2).says("spec.yaml");
    let left: Vec<_> =
        std::fs::read_dir(sandbox.path(".")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["spec.yaml"]);
}

#[test]
fn changed_spec_is_announced_as_new_workflow() {
    let sandbox = sandbox(TWO);
    sandbox.windlass(&["run", "spec.yaml"]).exits(1);
    sandbox.write("spec.yaml", &TWO.replace("two", "three"));
    sandbox
        .windlass(&["run", "spec.yaml"])
        .exits(1)
        .says("spec.yaml has changed since workflow 1: 1 job reused, 1 to run; b: was failed; this is the new workflow 2");
    let again = sandbox.windlass(&["run", "--new", "spec.yaml"]).exits(1);
    assert!(!again.stderr.contains("has changed"), "{}", again.stderr);
}

#[test]
fn identical_spec_names_original_file() {
    let sandbox = sandbox(TWO);
    sandbox.windlass(&["run", "spec.yaml"]).exits(1);
    sandbox.write("copy.yaml", TWO);
    sandbox
        .windlass(&["run", "copy.yaml"])
        .exits(1)
        .says("nothing to do: spec.yaml already ran as workflow 1 (1 completed, 1 failed)\n")
        .says("next: windlass why b")
        .says("resume --retry-failed\n      --new reruns everything");
    assert_eq!(workflows(&sandbox), 1);
    assert_eq!(sandbox.json(&["status"])["run_id"], 1);
}

#[test]
fn finished_workflow_has_nothing_to_resume() {
    let sandbox = sandbox(TWO);
    sandbox.windlass(&["run", "spec.yaml"]).exits(1);
    let started = sandbox.json(&["status"])["started_at"].clone();
    sandbox
        .windlass(&["resume"])
        .exits(1)
        .says("nothing to do: workflow 1 (two) has ended (1 completed, 1 failed)\n")
        .says("windlass resume --retry-failed");
    assert_eq!(sandbox.json(&["status"])["started_at"], started);
    sandbox.write("go", "");
    sandbox.windlass(&["resume", "--retry-failed"]).exits(0);
    sandbox.windlass(&["resume", "--retry-failed"]).exits(0).says("nothing to do");
    assert_eq!(sandbox.json(&["resume"])["state"], "completed");
}

#[test]
fn moved_project_is_reported() {
    let sandbox = Sandbox::new();
    sandbox.write("old/spec.yaml", TWO);
    Output::of(sandbox.command(&["create", "spec.yaml"]).current_dir(sandbox.path("old"))).exits(0);
    std::fs::rename(sandbox.path("old"), sandbox.path("new")).unwrap();
    let here = |args: &[&str]| Output::of(sandbox.command(args).current_dir(sandbox.path("new")));
    here(&["resume"])
        .exits(5)
        .says("/old of the jobs of workflow 1 does not exist")
        .says("hint: move it back");
    here(&["cancel"]).exits(0);
}

#[test]
fn unusable_output_directory_is_refused_before_creation() {
    let sandbox = sandbox(TWO);
    for directory in ["spec.yaml", "spec.yaml/logs", "/proc/nowhere"] {
        for args in [&["run", "spec.yaml"][..], &["create", "spec.yaml"], &["exec", "-c", "true"]] {
            sandbox
                .windlass(&[args, &["-o", directory]].concat())
                .exits(5)
                .says(&format!("cannot use {directory} as the output directory"))
                .says("--output-dir");
        }
    }
    assert!(!sandbox.path(".windlass").exists());
}

#[test]
fn exec_refuses_unquoted_special_values() {
    let sandbox = Sandbox::new();
    sandbox.write("names", "a b\nc;touch oops\n");
    let exec = |args: &[&str]| sandbox.windlass(&[&["exec", "--param", "f=@names"], args].concat());
    exec(&["-c", "cat {f}"]).exits(2).says("`f` has the value `a b`").says("write {f:q} to insert it quoted");
    exec(&["-c", "cat {g}"]).exits(2).says("no command uses the parameter `f`");
    exec(&["-c", "touch {f:q}", "-c", " "]).exits(2).says("a command is empty");
    assert!(!sandbox.path(".windlass").exists(), "nothing was made");
    exec(&["-c", "touch {f:q}"]).exits(0);
    exec(&["--", "test", "-e", "{f}"]).exits(0);
    assert!(sandbox.path("a b").exists() && sandbox.path("c;touch oops").exists());
    assert!(!sandbox.path("oops").exists());
    exec(&["--dry-run", "--param", "n=09:10", "--link", "zip", "--", "echo", "{n}", "{f:q}"])
        .exits(0)
        .prints("echo 09 'a b'\necho 10 'c;touch oops'\n");
}

//! Which spec counts as the same, and what a changed spec reuses: lists beside it, other spellings of its path,
//! imported workflows, and processes that died; with the real binary.

use crate::common::{Sandbox, children_of, eventually, is_alive, kill};
use std::process::Child;

/// The jobs that ran since the last call, in order.
fn ran(sandbox: &Sandbox) -> String {
    let text = std::fs::read_to_string(sandbox.path("log")).unwrap_or_default();
    sandbox.write("log", "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn workflows(sandbox: &Sandbox) -> usize {
    sandbox.json(&["list"]).as_array().unwrap().len()
}

#[test]
fn parameter_list_file_is_part_of_spec_in_any_spelling() {
    for at in ["@", "\\u0040", "\\x40"] {
        let sandbox = Sandbox::new();
        let spec = format!(
            "name: list\njobs:\n  - {{name: 'w_{{x}}', command: 'echo {{x}} >> log', \
             parameters: {{x: \"{at}l.txt\"}}}}\n"
        );
        sandbox.write("list.yaml", &spec);
        sandbox.write("l.txt", "one\ntwo\n");
        sandbox.windlass(&["run", "list.yaml", "-j1"]).exits(0);
        assert_eq!(ran(&sandbox), "one two", "{at}");
        sandbox.windlass(&["run", "list.yaml"]).exits(0).says("already ran");
        sandbox.write("l.txt", "one\ntwo\nthree\n");
        sandbox.windlass(&["run", "list.yaml"]).exits(0).says("2 jobs reused, 1 to run; w_three: new");
        assert_eq!(ran(&sandbox), "three", "{at}");
    }
}

#[test]
fn spec_is_same_by_any_path() {
    let sandbox = Sandbox::new();
    let spec = "name: one\njobs:\n  - {name: a, command: 'echo a >> log'}\n";
    sandbox.write("s.yaml", spec);
    sandbox.write("sub/there", "");
    sandbox.windlass(&["run", "s.yaml"]).exits(0);
    // The text is known, and the newest workflow of that file is found under either path.
    sandbox.write("s.yaml", &format!("{spec}  - {{name: b, command: 'echo b >> log'}}\n"));
    sandbox.windlass(&["run", "sub/../s.yaml"]).exits(0).says("1 job reused, 1 to run; b: new");
    assert_eq!(ran(&sandbox), "a b");
    std::os::unix::fs::symlink(".", sandbox.path("here")).unwrap();
    sandbox.write("s.yaml", spec);
    sandbox.windlass(&["run", "here/s.yaml"]).exits(0).says("1 job reused, nothing to run");
    assert_eq!(ran(&sandbox), "");
}

#[test]
fn imported_workflow_is_not_linked_to_original_spec() {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", "name: one\njobs:\n  - {name: a, command: 'echo a >> log'}\n");
    sandbox.windlass(&["run", "s.yaml"]).exits(0);
    sandbox.windlass(&["workflows", "export", "1", "-o", "one.json"]).exits(0);
    sandbox.windlass(&["workflows", "import", "one.json"]).exits(0);
    ran(&sandbox);
    sandbox.windlass(&["run", "s.yaml"]).exits(0).says("s.yaml already ran as workflow 1");
    assert_eq!((ran(&sandbox).as_str(), workflows(&sandbox)), ("", 2));
}

#[test]
fn imported_file_does_not_select_bundle_contents() {
    let sandbox = Sandbox::new();
    sandbox.write("s.yaml", "name: one\njobs: [{name: a, command: 'true'}]\n");
    sandbox.write("secret", "the-password");
    sandbox.windlass(&["run", "s.yaml"]).exits(0);
    sandbox.windlass(&["workflows", "export", "1", "-o", "one.json"]).exits(0);
    let secret = sandbox.path("secret");
    let hostile = sandbox.read("one.json").replace(
        &sandbox.path("s.yaml").canonicalize().unwrap().display().to_string(),
        &secret.display().to_string(),
    );
    assert!(hostile.contains("/secret"), "{hostile}");
    sandbox.write("hostile.json", &hostile);
    sandbox.windlass(&["workflows", "import", "hostile.json"]).exits(0);
    assert!(!members(&sandbox, "2").contains("wf2/spec"));
    assert!(members(&sandbox, "1").contains("wf1/spec.yaml"));
    // A changed spec is not the text that the workflow was created from.
    sandbox.write("s.yaml", "name: another\njobs: [{name: a, command: 'true'}]\n");
    sandbox
        .windlass(&["logs", "bundle", "1"])
        .exits(0)
        .says("s.yaml has changed since the workflow was created");
    assert!(!members(&sandbox, "1").contains("wf1/spec"));
}

/// The files in the bundle of a workflow.
fn members(sandbox: &Sandbox, workflow: &str) -> String {
    let bundle = sandbox.windlass(&["logs", "bundle", workflow]).exits(0);
    let path = sandbox.path(bundle.stdout.trim());
    let listed = std::process::Command::new("tar").arg("tzf").arg(path).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    String::from_utf8(listed.stdout).unwrap()
}

/// `slow` records its pid and waits for `go`. It holds a lock that the kernel releases when the process ends: if
/// a second execution cannot take the lock, two executions overlapped.
const SLOW: &str = "\
name: left
files:
  - {name: x, path: x.txt}
jobs:
  - {name: quick, command: 'echo quick >> log; cat ${files.input.x}'}
  - name: slow
    command: |
      echo slow >> log
      exec 9>> lock; flock -n 9 || echo overlap >> log
      test -e go || { echo $$ > pid; exec sleep 1000; }
    depends_on: [quick]
";

fn job_pid(sandbox: &Sandbox) -> Option<u32> {
    std::fs::read_to_string(sandbox.path("pid")).ok()?.trim().parse().ok()
}

/// A run whose slow job is running, and the pid of that job.
fn under_way() -> (Sandbox, Child, u32) {
    let sandbox = Sandbox::new();
    sandbox.write("left.yaml", SLOW);
    sandbox.write("x.txt", "12345");
    let run = sandbox.start(&["run", "left.yaml"]);
    eventually("the slow job runs", || job_pid(&sandbox).is_some());
    let pid = job_pid(&sandbox).unwrap();
    (sandbox, run, pid)
}

#[test]
fn job_of_old_spec_is_dead_before_new_spec_runs_it() {
    let (sandbox, mut run, old) = under_way();
    // The scheduler and the worker die together, so that no process is left to end the job.
    let worker = children_of(run.id());
    kill(run.id(), "STOP");
    for pid in worker {
        kill(pid, "KILL");
    }
    kill(run.id(), "KILL");
    run.wait().unwrap();
    assert!(is_alive(old), "the job outlives its processes");
    // The new workflow has the same job unchanged; another job has changed.
    sandbox.write("left.yaml", &SLOW.replace("echo quick >> log", "echo other >> log"));
    sandbox.write("go", "");
    ran(&sandbox);
    let again = sandbox.windlass(&["run", "left.yaml", "-j1"]).exits(0);
    again.says("that an earlier worker had left running");
    assert!(!is_alive(old));
    assert_eq!(ran(&sandbox), "other slow");
    // The result in the old workflow records it.
    let results = sandbox.json(&["results", "1", "--all-runs"]);
    let slow = results.as_array().unwrap().iter().find(|row| row["return_code"] != 0).unwrap();
    assert!(slow["reason"].as_str().unwrap().contains("orphaned"), "{slow}");
}

#[test]
fn resume_checks_files_of_completed_jobs() {
    for again in [&["run", "left.yaml", "-j1"][..], &["resume", "-j1"], &["run", "1", "-j1"]] {
        let (sandbox, mut run, _) = under_way();
        kill(run.id(), "TERM");
        assert_eq!(run.wait().unwrap().code(), Some(3));
        ran(&sandbox);
        sandbox.write("go", "");
        sandbox.write("x.txt", "1");
        sandbox.windlass(&["plan", "left.yaml"]).exits(0).prints("2 jobs run");
        sandbox.windlass(again).exits(0).says("quick: input x.txt changed: 5 B → 1 B");
        assert_eq!(ran(&sandbox), "quick slow", "{again:?}");
        assert_eq!(workflows(&sandbox), 1);
    }
}

#[test]
fn resume_keeps_valid_results_and_unselected_failures() {
    let sandbox = Sandbox::new();
    let spec = format!("{SLOW}  - {{name: bad, command: 'echo bad >> log; exit 3'}}\n");
    sandbox.write("left.yaml", &spec);
    sandbox.write("x.txt", "12345");
    let mut run = sandbox.start(&["run", "left.yaml"]);
    eventually("the slow job runs and the bad one failed", || {
        job_pid(&sandbox).is_some()
            && sandbox.json(&["jobs", "--status", "failed"]).as_array().unwrap().len() == 1
    });
    kill(run.id(), "TERM");
    assert_eq!(run.wait().unwrap().code(), Some(3));
    ran(&sandbox);
    sandbox.write("go", "");
    sandbox.write("x.txt", "1");
    sandbox.windlass(&["resume", "-j1"]).exits(1);
    assert_eq!(ran(&sandbox), "quick slow", "what failed was not to run again");
    sandbox.write("x.txt", "123");
    sandbox.windlass(&["resume", "--retry-failed", "-j1"]).exits(1).says("input x.txt changed");
    let mut all: Vec<String> = ran(&sandbox).split(' ').map(str::to_owned).collect();
    all.sort_unstable();
    assert_eq!(all, ["bad", "quick", "slow"]);
    // Nothing has changed since then, and missing files are reported before anything is modified.
    sandbox.windlass(&["resume"]).exits(1).says("has ended");
    std::fs::remove_file(sandbox.path("x.txt")).unwrap();
    let run_id = sandbox.json(&["status"])["run_id"].clone();
    sandbox.windlass(&["resume", "--retry-failed"]).exits(4).says("x.txt");
    assert_eq!(sandbox.json(&["status"])["run_id"], run_id);
}

//! Partial reruns: reset-status, reinit, and the history that is kept, with the real binary.

use crate::common::{Sandbox, children_of, documented_keys, eventually, is_alive, kill};
use serde_json::Value;

/// `flaky` fails until the file `fixed` exists; every job writes its name into `log`.
const SPEC: &str = "\
name: sim
jobs:
  - {name: first, command: 'echo first >> log'}
  - {name: flaky, command: 'echo flaky >> log; test -e fixed', depends_on: [first]}
  - {name: last, command: 'echo last >> log', depends_on: [flaky]}
  - {name: other, command: 'echo other >> log; exit 3'}
";

fn failed() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("sim.yaml", SPEC);
    sandbox.windlass(&["run", "sim.yaml", "-j1"]).exits(1);
    sandbox
}

/// The jobs that ran since the last call, in order.
fn ran(sandbox: &Sandbox) -> String {
    let text = sandbox.read("log").split_whitespace().collect::<Vec<_>>().join(" ");
    sandbox.write("log", "");
    text
}

fn statuses(sandbox: &Sandbox) -> Vec<String> {
    let jobs = sandbox.json(&["jobs"]);
    jobs.as_array().unwrap().iter().map(|job| job["status"].as_str().unwrap().to_owned()).collect()
}

fn names(view: &Value) -> Vec<&str> {
    view.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn reset_reruns_failed_jobs_with_dependents_and_keeps_history() {
    let sandbox = failed();
    ran(&sandbox);
    let dry = sandbox.windlass(&["workflows", "reset-status", "--failed-only", "--dry-run"]).exits(0);
    dry.prints("3 jobs would run again").prints("2 failed, 1 canceled before").prints("flaky");
    assert_eq!(statuses(&sandbox), ["completed", "failed", "canceled", "failed"], "nothing was changed");
    sandbox
        .windlass(&["workflows", "reset-status", "--failed-only"])
        .exits(0)
        .says("next: windlass resume 1");
    assert_eq!(statuses(&sandbox), ["completed", "uninitialized", "uninitialized", "uninitialized"]);
    sandbox.write("fixed", "");
    sandbox.windlass(&["resume"]).exits(1);
    assert_eq!(statuses(&sandbox), ["completed", "completed", "completed", "failed"]);
    assert!(!ran(&sandbox).contains("first"));
    let all = sandbox.json(&["results", "--job", "flaky", "--all-runs"]);
    let codes: Vec<i64> =
        all.as_array().unwrap().iter().map(|row| row["return_code"].as_i64().unwrap()).collect();
    assert_eq!(codes, [1, 0]);
}

#[test]
fn reset_selects_jobs_by_name_status_and_return_code() {
    let sandbox = failed();
    let by_code = sandbox.json(&["workflows", "reset-status", "--return-code", "3", "--dry-run"]);
    assert_eq!(by_code["jobs"][0]["job_id"], 4);
    assert_eq!(by_code["jobs"].as_array().unwrap().len(), 1);
    documented_keys(&by_code);
    documented_keys(&by_code["jobs"][0]);
    let by_state = sandbox.json(&["workflows", "reset-status", "1", "--status", "canceled", "--dry-run"]);
    assert_eq!(by_state["jobs"][0]["status"], "canceled");
    let by_id = sandbox.json(&["jobs", "reset-status", "2", "--dry-run"]);
    let because: Vec<&str> =
        by_id["jobs"].as_array().unwrap().iter().map(|job| job["because"].as_str().unwrap()).collect();
    assert_eq!(because, ["chosen", "downstream"]);
    sandbox.windlass(&["jobs", "reset-status"]).exits(2).says("no jobs selected");
    sandbox.windlass(&["workflows", "reset-status", "--job", "no-such-job"]).exits(2).says("no-such-job");
}

#[test]
fn reset_of_completed_jobs_requires_confirmation() {
    let sandbox = failed();
    let refused = sandbox.windlass(&["workflows", "reset-status", "--job", "first"]).exits(4);
    refused.says("1 completed job of workflow 1 (sim)").says("--yes");
    sandbox.windlass(&["workflows", "reset-status", "--job", "first", "--no-prompts"]).exits(0);
    assert_eq!(statuses(&sandbox), ["uninitialized", "uninitialized", "uninitialized", "failed"]);
}

#[test]
fn new_workflow_has_nothing_to_reset() {
    let sandbox = Sandbox::new();
    sandbox.write("sim.yaml", SPEC);
    sandbox.windlass(&["create", "sim.yaml"]).exits(0);
    sandbox.windlass(&["workflows", "reset-status"]).exits(0).prints("nothing to reset");
    assert_eq!(sandbox.json(&["status"])["run_id"], 1);
}

#[test]
fn reinit_reruns_jobs_that_did_not_complete() {
    let sandbox = failed();
    ran(&sandbox);
    let found = sandbox.json(&["workflows", "reinit", "--dry-run"]);
    assert_eq!(names(&found["run"]), ["flaky", "last", "other"]);
    assert_eq!(found["run"][0]["because"], "not_completed");
    documented_keys(&found);
    documented_keys(&found["run"][0]);
    sandbox.windlass(&["workflows", "reinit"]).exits(0).prints("3 jobs will run, 1 reused");
    sandbox.write("fixed", "");
    sandbox.windlass(&["resume", "-j1"]).exits(1);
    assert!(!ran(&sandbox).contains("first"));
    sandbox.windlass(&["workflows", "init"]).exits(0).prints("is ready to run");
}

/// `copy` reads `in.txt`, and `count` reads the output of `copy`; `alone` is independent of both.
const FILES: &str = "\
name: files
files:
  - {name: in, path: in.txt}
  - {name: mid, path: mid.txt}
  - {name: out, path: out.txt}
jobs:
  - {name: copy, command: 'echo copy >> log; cp ${files.input.in} ${files.output.mid}'}
  - {name: count, command: 'echo count >> log; wc -c < ${files.input.mid} > ${files.output.out}'}
  - {name: alone, command: 'echo alone >> log'}
";

fn with_files() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("files.yaml", FILES);
    sandbox.write("in.txt", "12345");
    sandbox.windlass(&["run", "files.yaml", "-j1"]).exits(0);
    ran(&sandbox);
    sandbox
}

#[test]
fn changed_input_reruns_readers_and_dependents() {
    let sandbox = with_files();
    sandbox
        .windlass(&["workflows", "reinit", "--dry-run"])
        .exits(0)
        .prints("nothing has changed; 3 jobs are unchanged");
    sandbox.write("in.txt", "123");
    let plan = sandbox.windlass(&["plan", "last"]).exits(0);
    plan.prints("input in.txt changed: 5 B → 3 B").prints("depends on copy, which runs").prints("1 reused");
    let dry = sandbox.windlass(&["workflows", "reinit", "--dry-run"]).exits(0);
    dry.prints("2 jobs would run, 1 reused").prints("input in.txt changed: 5 B → 3 B");
    sandbox.windlass(&["workflows", "reinit"]).exits(0).prints("2 jobs will run, 1 reused");
    sandbox.windlass(&["resume", "-j1"]).exits(0);
    assert_eq!(ran(&sandbox), "copy count");
    assert_eq!(sandbox.read("out.txt").trim(), "3");
}

#[test]
fn rerun_of_same_spec_runs_jobs_with_changed_files() {
    let sandbox = with_files();
    sandbox.windlass(&["run", "files.yaml"]).exits(0).says("already ran");
    sandbox.write("in.txt", "12");
    let again = sandbox.windlass(&["run", "files.yaml", "-j1"]).exits(0);
    again.says("1 job reused, 2 to run; copy: input in.txt changed: 5 B → 2 B");
    assert_eq!(ran(&sandbox), "copy count");
    std::fs::remove_file(sandbox.path("out.txt")).unwrap();
    sandbox.windlass(&["run", "files.yaml"]).exits(0).says("count: output out.txt is missing");
    assert_eq!(ran(&sandbox), "count");
    assert_eq!(sandbox.json(&["list"]).as_array().unwrap().len(), 1, "it stays the same workflow");
}

#[test]
fn missing_input_is_refused_without_force() {
    let sandbox = with_files();
    std::fs::remove_file(sandbox.path("in.txt")).unwrap();
    sandbox.windlass(&["workflows", "reinit"]).exits(4).says("in.txt").says("--force");
    let found = sandbox.json(&["workflows", "reinit", "--dry-run"]);
    assert_eq!(found["missing_inputs"][0], "in.txt");
    assert_eq!(found["run"][0]["because"], "input_missing");
    sandbox.windlass(&["workflows", "reinit", "--force"]).exits(0);
    sandbox.windlass(&["resume"]).exits(4).says("in.txt");
    sandbox.windlass(&["resume", "--force"]).exits(1);
}

#[test]
fn touched_file_is_unchanged_with_content_detection() {
    let sandbox = Sandbox::new();
    sandbox.write("files.yaml", &format!("change_detection: content\n{FILES}"));
    sandbox.write("in.txt", "12345");
    sandbox.windlass(&["run", "files.yaml"]).exits(0);
    let touched = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let file = std::fs::File::options().write(true).open(sandbox.path("in.txt")).unwrap();
    file.set_modified(touched).unwrap();
    sandbox.windlass(&["workflows", "reinit", "--dry-run"]).exits(0).prints("nothing has changed");
    sandbox.write("in.txt", "54321");
    sandbox.windlass(&["workflows", "reinit", "--dry-run"]).exits(0).prints("2 jobs would run");
}

#[test]
fn changed_spec_reuses_unchanged_jobs() {
    let sandbox = with_files();
    let changed = FILES.replace("wc -c <", "wc -l <") + "  - {name: more, command: 'echo more >> log'}\n";
    sandbox.write("files.yaml", &changed);
    let plan = sandbox.json(&["plan", "files.yaml"]);
    assert_eq!(plan["changes"]["reused"], 2);
    assert_eq!(names(&plan["changes"]["run"]), ["count", "more"]);
    assert_eq!(plan["changes"]["run"][0]["field"], "command");
    assert_eq!(plan["changes"]["run"][0]["old"], "echo count >> log; wc -c < mid.txt > out.txt");
    documented_keys(&plan);
    documented_keys(&plan["changes"]);
    sandbox.windlass(&["run", "files.yaml", "--dry-run"]).exits(0).prints("command changed: echo count");
    assert_eq!(ran(&sandbox), "", "a dry run runs nothing");
    let run = sandbox.windlass(&["run", "files.yaml", "-j1"]).exits(0);
    run.says("files.yaml has changed since workflow 1: 2 jobs reused, 2 to run; count: command changed:");
    assert_eq!(ran(&sandbox), "count more");
    let jobs = sandbox.json(&["jobs"]);
    assert_eq!((&jobs[0]["status"], &jobs[0]["reused_from"]), (&"completed".into(), &1.into()));
    // A reused result is reused again, still with the first execution as its origin.
    sandbox.write("files.yaml", &changed.replace("echo more", "echo even more"));
    sandbox.windlass(&["run", "files.yaml", "-j1"]).exits(0).says("3 jobs reused, 1 to run");
    assert_eq!(sandbox.json(&["jobs"])[0]["reused_from"], 1);
    sandbox.write("in.txt", "1");
    sandbox
        .windlass(&["workflows", "reinit", "--dry-run"])
        .exits(0)
        .prints("input in.txt changed: 5 B → 1 B");
    ran(&sandbox);
    // Back to an earlier text: another one produced the files on disk.
    sandbox.write("files.yaml", &changed);
    sandbox.windlass(&["run", "files.yaml", "-j1"]).exits(0);
    assert_eq!(ran(&sandbox), "copy count more");
    sandbox.windlass(&["run", "files.yaml", "--new", "-j1"]).exits(0);
    assert_eq!(ran(&sandbox), "copy count alone more");
}

#[test]
fn comment_in_spec_reruns_nothing() {
    let sandbox = with_files();
    sandbox.write("files.yaml", &format!("# said differently\n{FILES}"));
    sandbox.windlass(&["run", "files.yaml"]).exits(0).says("3 jobs reused, nothing to run");
    assert_eq!(sandbox.read("log"), "");
    assert_eq!(sandbox.json(&["status"])["state"], "completed");
}

#[test]
fn changed_user_data_reruns_readers_and_written_data_is_kept() {
    let sandbox = Sandbox::new();
    let spec = "\
name: data
user_data:
  - {name: config, data: {n: 1}}
  - {name: found}
jobs:
  - name: search
    command: 'echo search >> log; windlass jobs user-data update ${user_data.output.found} --data 7'
    input_user_data: [config]
  - {name: use, command: 'echo use >> log; echo ${user_data.input.found}'}
  - {name: alone, command: 'echo alone >> log'}
";
    sandbox.write("data.yaml", spec);
    let run = || sandbox.windlass_on_path(&["run", "data.yaml", "-j1"]).exits(0);
    run();
    ran(&sandbox);
    sandbox.write("data.yaml", &spec.replace("echo alone", "echo alone 2"));
    run().says("2 jobs reused, 1 to run");
    assert_eq!(sandbox.json(&["user-data", "list"])[1]["data"], 7);
    ran(&sandbox);
    sandbox.write("data.yaml", &spec.replace("echo alone", "echo alone 2").replace("n: 1", "n: 2"));
    run().says("search: user_data changed: config={\"n\":1} → config={\"n\":2}");
    assert_eq!(ran(&sandbox), "search use");
    sandbox.windlass(&["user-data", "update", "5", "--data", "{\"n\": 3}"]).exits(0);
    assert_eq!(names(&sandbox.json(&["workflows", "reinit", "--dry-run"])["run"]), ["search", "use"]);
}

#[test]
fn changed_parameter_table_adds_jobs_and_keeps_old_ones() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "table.yaml",
        "name: table\njobs:\n  - {name: 'w_{x}', command: 'echo {x} >> log', parameters_file: rows.csv}\n",
    );
    sandbox.write("rows.csv", "x\none\ntwo\n");
    sandbox.windlass(&["run", "table.yaml", "-j1"]).exits(0);
    assert_eq!(ran(&sandbox), "one two");
    sandbox.windlass(&["run", "table.yaml"]).exits(0).says("already ran");
    sandbox.write("rows.csv", "x\none\ntwo\nthree\n");
    sandbox.windlass(&["run", "table.yaml"]).exits(0).says("2 jobs reused, 1 to run; w_three: new");
    assert_eq!(ran(&sandbox), "three");
}

#[test]
fn accepted_change_reruns_nothing() {
    let sandbox = with_files();
    sandbox.write("files.yaml", &FILES.replace("echo copy", "echo  copy"));
    sandbox.windlass(&["plan", "files.yaml"]).exits(0).prints("2 jobs run, 1 reused");
    let accepted = ["plan", "files.yaml", "--accept", "copy:command"];
    sandbox.windlass(&accepted).exits(0).prints("nothing has changed: no jobs run, 3 reused");
    sandbox
        .windlass(&["plan", "files.yaml", "--accept", "no-such-job"])
        .exits(2)
        .says("no job has this name");
    sandbox.windlass(&["plan", "files.yaml", "--accept", "copy:colour"]).exits(2).says("unknown field");
    sandbox.windlass(&["run", "files.yaml", "--accept", "*:command"]).exits(0).says("nothing to run");
    // The result is known from now on.
    sandbox.windlass(&["plan", "files.yaml"]).exits(0).prints("no jobs run, 3 reused");
}

#[test]
fn reset_includes_changed_inputs_on_request() {
    let sandbox = with_files();
    sandbox.write("in.txt", "1");
    let only = sandbox.json(&["jobs", "reset", "alone", "--dry-run"]);
    assert_eq!(only["jobs"].as_array().unwrap().len(), 1);
    let more = sandbox.json(&["workflows", "reset-status", "--job", "alone", "-r", "--yes"]);
    let because: Vec<&str> =
        more["jobs"].as_array().unwrap().iter().map(|job| job["because"].as_str().unwrap()).collect();
    assert_eq!(because, ["changed", "changed", "chosen"]);
    sandbox.windlass(&["resume", "-j1"]).exits(0);
    let again = ran(&sandbox);
    let mut again: Vec<&str> = again.split(' ').collect();
    again.sort_unstable();
    assert_eq!(again, ["alone", "copy", "count"]);
}

#[test]
fn leftover_jobs_of_old_spec_end_before_new_run() {
    let sandbox = Sandbox::new();
    let spec = "name: left\njobs:\n  - {name: quick, command: 'echo quick >> log'}\n  \
                - {name: slow, command: 'echo $$ > pid; exec sleep 1000', depends_on: [quick]}\n";
    sandbox.write("left.yaml", spec);
    let mut run = sandbox.start(&["run", "left.yaml"]);
    let pid = || std::fs::read_to_string(sandbox.path("pid")).ok()?.trim().parse::<u32>().ok();
    eventually("the slow job runs", || pid().is_some());
    sandbox.write("left.yaml", &spec.replace("exec sleep 1000", "true"));
    sandbox.windlass(&["run", "left.yaml"]).exits(4).says("is running").says("--new");
    // The scheduler and the worker die together, so that no process is left to end the job.
    let old = pid().unwrap();
    let worker = children_of(run.id());
    kill(run.id(), "STOP");
    for pid in &worker {
        kill(*pid, "KILL");
    }
    kill(run.id(), "KILL");
    run.wait().unwrap();
    assert!(is_alive(old), "the job outlives its processes");
    ran(&sandbox);
    sandbox.windlass(&["run", "left.yaml"]).exits(0).says("1 job reused, 1 to run; slow:");
    assert!(!is_alive(old));
    assert_eq!(sandbox.read("log"), "", "what was completed is reused");
}

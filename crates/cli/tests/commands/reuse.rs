//! Results are reused only if they are valid: other changes that invalidate them, with the real binary.

use crate::common::Sandbox;
use serde_json::Value;

/// Runs a spec to completion.
fn run(sandbox: &Sandbox, spec: &str) -> crate::common::Output {
    sandbox.write("s.yaml", spec);
    sandbox.windlass(&["run", "s.yaml", "-j1"]).exits(0)
}

/// The jobs that ran since the last call, in order.
fn ran(sandbox: &Sandbox) -> String {
    let text = sandbox.read("log").split_whitespace().collect::<Vec<_>>().join(" ");
    sandbox.write("log", "");
    text
}

/// `(name, because, field)` of the jobs that would run.
fn planned(sandbox: &Sandbox) -> Vec<(String, String, Option<String>)> {
    let plan = sandbox.json(&["plan", "s.yaml"]);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let one =
        |job: &Value| (text(&job["name"]).unwrap(), text(&job["because"]).unwrap(), text(&job["field"]));
    plan["changes"]["run"].as_array().unwrap().iter().map(one).collect()
}

#[test]
fn changed_dependency_reruns_job() {
    let sandbox = Sandbox::new();
    let spec = "\
name: w
jobs:
  - {name: a, command: 'echo a >> log'}
  - {name: b, command: 'echo b >> log'}
";
    run(&sandbox, spec);
    assert_eq!(ran(&sandbox), "a b");
    let after = spec.replace("'echo b >> log'", "'echo b >> log', depends_on: [a]");
    run(&sandbox, &after).says("1 job reused, 1 to run; b: depends_on changed: (none) → 1 job");
    assert_eq!(ran(&sandbox), "b");
    // The same set in another notation is no change; another set of the same size is.
    let third = "  - {name: c, command: 'echo c >> log'}\n";
    run(&sandbox, &(after.replace("[a]", "[a, a]") + third)).says("2 jobs reused, 1 to run; c: new");
    ran(&sandbox);
    run(&sandbox, &(after.replace("[a]", "[c]") + third)).says("b: depends_on changed: 1 job → 1 other job");
    assert_eq!(ran(&sandbox), "b");
}

/// `copy` reads x and y and writes o.
const FILES: &str = "\
name: w
files:
  - {name: x, path: x.txt}
  - {name: y, path: y.txt}
  - {name: o, path: o.txt}
jobs:
  - {name: copy, command: 'echo copy >> log; cat x.txt y.txt > o.txt', input_files: [x, y], output_files: [o]}
";
const OTHER: &str = "  - {name: other, command: 'echo other >> log'}\n";

fn with_files() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("x.txt", "1");
    sandbox.write("y.txt", "22");
    run(&sandbox, FILES);
    assert_eq!(ran(&sandbox), "copy");
    sandbox
}

#[test]
fn overwritten_output_is_produced_again() {
    let sandbox = with_files();
    sandbox.write("o.txt", "garbage");
    let view = sandbox.json(&["plan", "s.yaml"]);
    let job = &view["changes"]["run"][0];
    assert_eq!((&job["because"], &job["file"]), (&"output_changed".into(), &"o.txt".into()));
    assert_eq!((&job["old"]["size"], &job["new"]["size"]), (&3.into(), &7.into()));
    run(&sandbox, FILES).says("copy: output o.txt changed since: 3 B → 7 B");
    assert_eq!((ran(&sandbox).as_str(), sandbox.read("o.txt").as_str()), ("copy", "122"));
    run(&sandbox, FILES).says("already ran");
    sandbox.write("o.txt", "my own");
    sandbox
        .windlass(&["plan", "s.yaml", "--accept", "copy:output_files"])
        .exits(0)
        .prints("nothing has changed");
}

#[test]
fn output_with_same_content_is_kept_with_content_detection() {
    let sandbox = Sandbox::new();
    sandbox.write("x.txt", "1");
    sandbox.write("y.txt", "22");
    let spec = format!("change_detection: content\n{FILES}");
    run(&sandbox, &spec);
    ran(&sandbox);
    std::fs::remove_file(sandbox.path("o.txt")).unwrap();
    sandbox.write("o.txt", "122");
    run(&sandbox, &spec).says("already ran");
    sandbox.write("o.txt", "221");
    run(&sandbox, &spec).says("copy: output o.txt changed since: contents ");
    assert_eq!(ran(&sandbox), "copy");
}

#[test]
fn shared_output_directory_is_not_a_changed_output() {
    let sandbox = Sandbox::new();
    let spec = "\
name: w
files: [{name: d, path: out}, {name: f, path: out/f}]
jobs:
  - {name: make, command: 'echo make >> log; mkdir -p out', output_files: [d]}
  - {name: fill, command: 'echo fill >> log; echo 1 > out/f', input_files: [d], output_files: [f]}
";
    run(&sandbox, spec);
    let again: Vec<String> = planned(&sandbox).into_iter().map(|(name, ..)| name).collect();
    assert!(!again.contains(&"make".to_owned()), "{again:?}");
}

#[test]
fn files_are_compared_by_path_not_position() {
    let sandbox = with_files();
    let swapped = FILES
        .replace("{name: x, path: x.txt}", "{name: z, path: z.txt}")
        .replace("{name: y, path: y.txt}", "{name: x, path: x.txt}")
        .replace("{name: z, path: z.txt}", "{name: y, path: y.txt}");
    run(&sandbox, &swapped).says("1 job reused, nothing to run");
    assert_eq!(sandbox.json(&["jobs"])[0]["reused_from"], 1);
    run(&sandbox, &swapped).says("already ran");
    // The two files are swapped; at each path nothing has changed.
    std::fs::rename(sandbox.path("x.txt"), sandbox.path("t.txt")).unwrap();
    std::fs::rename(sandbox.path("y.txt"), sandbox.path("x.txt")).unwrap();
    std::fs::rename(sandbox.path("t.txt"), sandbox.path("y.txt")).unwrap();
    run(&sandbox, &swapped).says("copy: input ");
    assert_eq!((ran(&sandbox).as_str(), sandbox.read("o.txt").as_str()), ("copy", "221"));
}

#[test]
fn reuse_refers_to_one_attempt_not_later_ones() {
    let sandbox = with_files();
    run(&sandbox, &format!("{FILES}{OTHER}")).says("1 job reused, 1 to run");
    // The first workflow runs again on other inputs and overwrites the results that the second one has reused.
    sandbox.write("x.txt", "333");
    sandbox.windlass(&["workflows", "reinit", "1"]).exits(0);
    sandbox.windlass(&["resume", "1"]).exits(0);
    ran(&sandbox);
    run(&sandbox, &format!("{FILES}{OTHER}"))
        .says("1 job reused, 1 to run; copy: input x.txt changed: 1 B → 3 B");
    assert_eq!(ran(&sandbox), "copy");
}

#[test]
fn workflow_survives_deletion_of_reused_workflow() {
    let sandbox = with_files();
    let spec = format!("{FILES}{OTHER}");
    run(&sandbox, &spec).says("1 job reused, 1 to run");
    ran(&sandbox);
    sandbox.windlass(&["delete", "1", "--yes"]).exits(0);
    run(&sandbox, &spec).says("already ran");
    sandbox.write("x.txt", "4444");
    run(&sandbox, &spec).says("copy: input x.txt changed: 1 B → 4 B");
    assert_eq!(ran(&sandbox), "copy");
}

#[test]
fn declared_output_data_is_part_of_job_definition() {
    let sandbox = Sandbox::new();
    let spec = "\
name: w
user_data: [{name: u}, {name: v}]
jobs:
  - {name: a, command: 'echo a >> log'}
";
    run(&sandbox, spec);
    let writes = spec.replace("'echo a >> log'", "'echo a >> log', output_user_data: [u]");
    let reader = "  - {name: b, command: 'echo b >> log', input_user_data: [u]}\n";
    sandbox.write("s.yaml", &format!("{writes}{reader}"));
    let because = |name: &str, because: &str, field: Option<&str>| {
        (name.to_owned(), because.to_owned(), field.map(str::to_owned))
    };
    assert_eq!(
        planned(&sandbox),
        [because("a", "changed", Some("output_user_data")), because("b", "new", None)]
    );
    // Another item, which gets the same id as the first one.
    let first =
        "name: w\nuser_data: [{name: u}]\njobs: [{name: a, command: 'echo ${user_data.output.u} >> log'}]\n";
    run(&sandbox, first);
    sandbox.write("s.yaml", &first.replace('u', "x").replace("xser", "user").replace("oxtpxt", "output"));
    assert_eq!(planned(&sandbox), [because("a", "changed", Some("output_user_data"))]);
    // The same items in another order get other ids, and nothing has changed.
    let two = "\
name: w
user_data: [{name: u, data: 1}, {name: v, data: 2}]
jobs: [{name: a, command: 'echo ${user_data.input.u} ${user_data.input.v} >> log'}]
";
    run(&sandbox, two);
    let turned =
        two.replace("[{name: u, data: 1}, {name: v, data: 2}]", "[{name: v, data: 2}, {name: u, data: 1}]");
    run(&sandbox, &turned).says("1 job reused, nothing to run");
}

#[test]
fn user_data_changed_after_job_wrote_it_reruns_readers() {
    let sandbox = Sandbox::new();
    let spec = "\
name: w
user_data: [{name: u}]
jobs:
  - {name: write, command: 'echo write >> log; windlass jobs user-data update u --data 5', output_user_data: [u]}
  - {name: read, command: 'echo read >> log', input_user_data: [u]}
";
    let windlass = env!("CARGO_BIN_EXE_windlass");
    let spec = spec.replace("windlass jobs user-data", &format!("{windlass} user-data"));
    run(&sandbox, &spec);
    assert_eq!(ran(&sandbox), "write read");
    run(&sandbox, &spec).says("already ran");
    sandbox.windlass(&["user-data", "update", "u", "--data", "6"]).exits(0);
    run(&sandbox, &spec).says("read: user_data changed: u=(as it was on ").says("→ u=6");
    assert_eq!(ran(&sandbox), "read", "running `write` would undo the change");
    run(&sandbox, &spec).says("already ran");
    // A new text of the spec also sees the change, and keeps the updated value.
    sandbox.windlass(&["user-data", "update", "u", "--data", "7"]).exits(0);
    run(&sandbox, &format!("{spec}{OTHER}")).says("1 job reused, 2 to run; read: user_data changed");
    assert_eq!(sandbox.json(&["user-data"])[0]["data"], 7);
}

#[test]
fn sweep_with_swapped_parameters_is_reused() {
    let sandbox = Sandbox::new();
    let spec = "\
name: w
jobs:
  - {name: 's_{x}_{y}', command: 'true', parameters: {x: '1:50', y: '1:50'}}
";
    sandbox.write("s.yaml", spec);
    sandbox.windlass(&["run", "s.yaml"]).exits(0);
    sandbox.write("s.yaml", &spec.replace("x: '1:50', y: '1:50'", "y: '1:50', x: '1:50'"));
    assert_eq!(sandbox.json(&["plan", "s.yaml"])["changes"]["reused"], 2500);
}

#[test]
fn file_changed_in_input_directory_is_changed_input() {
    for settings in ["", "change_detection: content\n"] {
        let sandbox = Sandbox::new();
        std::fs::create_dir_all(sandbox.path("data/deep")).unwrap();
        sandbox.write("data/deep/f", "1");
        let spec = format!(
            "{settings}name: w\nfiles: [{{name: d, path: data}}]\n\
             jobs: [{{name: a, command: 'echo a >> log', input_files: [d]}}]\n"
        );
        run(&sandbox, &spec);
        ran(&sandbox);
        run(&sandbox, &spec).says("already ran");
        sandbox.write("data/deep/f", "2");
        run(&sandbox, &spec).says("a: input data changed: ");
        assert_eq!(ran(&sandbox), "a");
    }
}

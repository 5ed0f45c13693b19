//! Requested and used resources of jobs: resources, tune and plots, with the real binary.

use crate::common::{Sandbox, documented_keys};

/// Requests far more memory and time than it uses; the comment must be preserved.
const GREEDY: &str = "\
name: greedy
resource_requirements:
  # measured on the old cluster
  - name: big
    num_cpus: 1
    memory: 3g        # surely enough
    runtime: PT4H
jobs:
  - name: 'work_{i}'
    command: 'sleep 0.5'
    resource_requirements: big
    parameters: {i: '1:3'}
  - {name: plain, command: 'true'}
";

fn ran(spec: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("greedy.yaml", spec);
    sandbox.windlass(&["run", "greedy.yaml", "--memory-gb", "16", "--num-cpus", "4"]).exits(0);
    sandbox
}

#[test]
fn requested_and_used_resources_are_compared_by_group() {
    let sandbox = ran(GREEDY);
    let checked = sandbox.windlass(&["resources", "check"]).exits(0);
    let checked = checked.prints("work_{i}").prints("3 GiB").prints("memory 3 GiB →").prints("3 runs");
    checked.says("windlass resources correct 1 --dry-run");
    let json = sandbox.json(&["workflows", "check-resources", "1"]);
    documented_keys(&json);
    assert_eq!(json["classes"].as_array().unwrap().len(), 1, "a job that asks for nothing is in no class");
    let class = &json["classes"][0];
    documented_keys(class);
    documented_keys(&class["changes"][0]);
    assert_eq!((&class["jobs"], &class["runs"]), (&3.into(), &3.into()));
    assert!(class["changes"].as_array().unwrap().iter().all(|change| change["is_less"] == true));
    sandbox
        .windlass(&["resources", "check", "--min-over-utilization", "5"])
        .exits(0)
        .prints("--all lists them");
}

#[test]
fn resource_correction_changes_requirements_once() {
    let sandbox = ran(GREEDY);
    sandbox.windlass(&["resources", "correct", "--dry-run"]).exits(0).prints("runtime 4h →");
    assert_eq!(sandbox.json(&["jobs"])[0]["resource_requirements"], "big");
    sandbox.windlass(&["resources", "correct", "--no-downsize"]).exits(0).says("no changes needed");
    sandbox.windlass(&["resources", "correct"]).exits(0).prints("memory 3 GiB →");
    let jobs = sandbox.json(&["jobs"]);
    assert_eq!(jobs[0]["resource_requirements"], "big for work_{i}");
    assert!(jobs[3]["resource_requirements"].is_null());
    sandbox.windlass(&["workflows", "correct-resources", "1"]).exits(0).says("no changes needed");
    assert_eq!(sandbox.json(&["jobs"])[0]["resource_requirements"], "big for work_{i}");
}

#[test]
fn resource_tuning_shows_diff_and_keeps_comments() {
    let sandbox = ran(GREEDY);
    let shown = sandbox.windlass(&["resources", "tune", "greedy.yaml"]).exits(0);
    let shown =
        shown.prints("# big: memory 3g →").prints("p95 of 3 runs").prints("@@").prints("-    memory: 3g ");
    shown.says("--apply");
    assert_eq!(sandbox.read("greedy.yaml"), GREEDY);
    let json = sandbox.json(&["resources", "tune", "greedy.yaml"]);
    documented_keys(&json);
    documented_keys(&json["changes"][0]);
    sandbox.windlass(&["resources", "tune", "greedy.yaml", "--apply"]).exits(0).says("changed greedy.yaml");
    let tuned = sandbox.read("greedy.yaml");
    assert!(tuned.contains("# measured on the old cluster") && tuned.contains("# surely enough"), "{tuned}");
    assert!(!tuned.contains("3g") && !tuned.contains("PT4H"), "{tuned}");
    assert_eq!(tuned.lines().count(), GREEDY.lines().count());
    sandbox.windlass(&["create", "--dry-run", "greedy.yaml"]).exits(0);
    sandbox.windlass(&["resources", "tune", "greedy.yaml"]).exits(0).says("no changes needed");
}

#[test]
fn resource_tuning_requires_workflow_of_spec() {
    let sandbox = ran(GREEDY);
    sandbox.write("other.yaml", GREEDY);
    sandbox
        .windlass(&["resources", "tune", "other.yaml"])
        .exits(2)
        .says("has created no workflow")
        .says("--workflow");
    sandbox.windlass(&["resources", "tune", "other.yaml", "--workflow", "1"]).exits(0).prints("memory 3g →");
}

#[test]
fn resource_tuning_ignores_reused_results() {
    let sandbox = ran(GREEDY);
    sandbox.write("greedy.yaml", &format!("{GREEDY}  - {{name: more, command: 'true'}}\n"));
    sandbox.windlass(&["run", "greedy.yaml"]).exits(0).says("reused, 1 to run");
    let refused = sandbox.windlass(&["resources", "tune", "greedy.yaml"]).exits(2);
    refused.says("workflow 2 (greedy) ran no job that uses").says("use --workflow 1");
    sandbox
        .windlass(&["resources", "check"])
        .exits(0)
        .prints("no job with resource requirements has a result");
    sandbox.windlass(&["resources", "tune", "greedy.yaml", "--workflow", "1"]).exits(0).prints("memory 3g →");
}

#[test]
fn resource_plot_has_bars_and_lines() {
    let sandbox = Sandbox::new();
    sandbox
        .windlass(&[
            "exec",
            "--monitor",
            "time_series",
            "--monitor-compute-node",
            "time_series",
            "-i",
            "0.05",
            "--generate-plots",
            "-c",
            "sleep 0.3",
            "-c",
            "exit 3",
        ])
        .exits(1)
        .says("wrote windlass_output/resources_wf1_r1.html");
    assert!(sandbox.read("windlass_output/resources_wf1_r1.html").contains("</html>"));
    let json = sandbox.json(&["resources", "plot", "-o", "usage.svg"]);
    documented_keys(&json);
    assert_eq!(json["attempts"], 2);
    assert!(json["series"].as_u64().unwrap() >= 2, "{json}");
    let svg = sandbox.read("usage.svg");
    assert!(svg.starts_with("<svg") && svg.contains("job1") && svg.contains("exit code 3"), "{svg}");
    assert!(!svg.contains("http") || svg.matches("http").count() == svg.matches("http://www.w3.org").count());
}

#[test]
fn resource_plot_without_samples_has_only_bars() {
    let sandbox = ran(GREEDY);
    sandbox.windlass(&["plot-resources", "1"]).exits(0).says("no samples were kept");
    assert!(sandbox.read("windlass_output/resources_wf1_r1.html").contains("work_2"));
    sandbox.windlass(&["resources", "plot", "--run", "9"]).exits(2).says("no data to plot for run 9");
}

//! Plans, checks and other views of a spec that run nothing, with the real binary.

use crate::common::{Sandbox, documented_keys};

const SWEEP: &str = "\
name: sweep
resource_requirements:
  - {name: big, num_cpus: 4, memory: 2g, runtime: 30m}
jobs:
  - {name: prepare, command: 'true'}
  - name: 'solve_{i}'
    command: 'echo {i}'
    depends_on: [prepare]
    resource_requirements: big
    parameters: {i: '1:12'}
  - {name: merge, command: 'true', depends_on_regexes: ['^solve_']}
";

fn with_sweep() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("sweep.windlass.yaml", SWEEP);
    sandbox
}

#[test]
fn plan_shows_stages_and_critical_path_and_stores_nothing() {
    let sandbox = with_sweep();
    let plan = sandbox.windlass(&["plan", "--num-cpus", "8", "--memory-gb", "16"]).exits(0);
    let plan = plan.prints("sweep: 14 jobs in 3 stages").prints("at most 12 jobs in parallel, on 48 CPUs");
    let plan = plan.prints("critical path, 2h 30m: prepare → solve_1 → merge");
    let plan = plan.prints("solve_{i} × 12").prints("on a machine with 8 CPUs, 16 GiB");
    plan.prints("2 jobs without a `runtime`");
    assert!(!sandbox.path(".windlass").exists());
    let json = sandbox.json(&["plan", "sweep.windlass.yaml"]);
    let keys = documented_keys(&json);
    assert!(keys.contains("critical_path") && keys.contains("estimate"), "{keys:?}");
    assert_eq!(json["stages"].as_array().unwrap().len(), 3);
    assert_eq!(json["groups"][1]["jobs"], 12);
    assert!(json["changes"].is_null());
    for list in ["stages", "groups", "links", "critical_path"] {
        documented_keys(&json[list][0]);
    }
}

#[test]
fn plan_renders_in_every_format() {
    let sandbox = with_sweep();
    let drawn = |format: &str| sandbox.windlass(&["plan", "--format", format]).exits(0).stdout;
    assert!(drawn("dot").starts_with("digraph"));
    assert!(drawn("mermaid").contains("flowchart") || drawn("mermaid").contains("graph"));
    assert!(drawn("svg").starts_with("<svg"));
    assert_eq!(drawn("text"), drawn("table"));
    sandbox.windlass(&["plan", "-f", "svg", "-o", "sweep.svg"]).exits(0).says("wrote sweep.svg");
    assert!(sandbox.read("sweep.svg").contains("solve_{i}"));
    sandbox.windlass(&["plan", "--format", "csv"]).exits(2);
    let each = sandbox.windlass(&["plan", "--per-job", "-f", "dot"]).exits(0).stdout;
    assert!(each.contains("solve_11"), "{each}");
    sandbox.windlass(&["workflows", "execution-plan", "sweep.windlass.yaml"]).exits(0).prints("3 stages");
}

#[test]
fn plan_accepts_workflow_id_or_name() {
    let sandbox = with_sweep();
    sandbox.windlass(&["create"]).exits(0);
    sandbox.windlass(&["plan", "1"]).exits(0).prints("sweep (workflow 1): 14 jobs in 3 stages");
    sandbox.windlass(&["plan", "sweep"]).exits(0).prints("solve_{i} × 12");
    sandbox.windlass(&["plan", "nowhere.yaml"]).exits(2).says("cannot read the spec nowhere.yaml");
    sandbox.windlass(&["plan", "7"]).exits(2).says("no workflow 7");
}

#[test]
fn dry_run_summarizes_spec() {
    let sandbox = with_sweep();
    let good = sandbox.windlass(&["create", "--dry-run"]).exits(0);
    good.prints("the spec is valid: sweep, 14 jobs")
        .prints("jobs as written: 3")
        .prints("resource requirements: 1");
    let json = sandbox.json(&["create", "--dry-run"]);
    documented_keys(&json);
    documented_keys(&json["summary"]);
    assert_eq!(json["valid"], true);
    assert_eq!(json["summary"]["job_count"], 14);
    assert_eq!(json["summary"]["job_count_before_expansion"], 3);
    assert_eq!(json["summary"]["job_names"][2], "solve_2");
    assert_eq!(json["summary"]["has_schedule_nodes_action"], false);
    assert!(!sandbox.path(".windlass").exists());
}

#[test]
fn dry_run_lists_all_spec_errors() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "bad.yaml",
        "name: bad\njobs:\n  - {name: a, comand: 'true'}\n  - {name: b, command: 'true', depends_on: [c]}\n",
    );
    let text = sandbox.windlass(&["create", "--dry-run", "bad.yaml"]).exits(2);
    text.says("comand").says("bad.yaml:3");
    let json = sandbox.windlass(&["create", "--dry-run", "bad.yaml", "-f", "json"]).exits(2);
    let view: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(view["valid"], false);
    let errors: Vec<&str> = view["errors"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
    assert!(errors.len() >= 2 && errors[0].starts_with("bad.yaml:3:"), "{errors:?}");
    assert!(view["summary"].is_null());
}

#[test]
fn converted_specs_keep_their_plan() {
    let sandbox = with_sweep();
    let plan = |name: &str| {
        let mut plan = sandbox.json(&["plan", name]);
        plan.as_object_mut().unwrap().remove("spec_path");
        plan
    };
    let original = plan("sweep.windlass.yaml");
    for name in ["s.json", "s.json5", "s.toml", "s.kdl", "s.yaml"] {
        sandbox
            .windlass(&["spec", "convert", "sweep.windlass.yaml", name])
            .exits(0)
            .says(&format!("wrote {name}"));
        assert_eq!(plan(name), original, "{name}");
    }
    sandbox.windlass(&["spec", "convert", "s.kdl", "s.json"]).exits(4).says("--force");
    sandbox.windlass(&["spec", "convert", "s.kdl", "s.json", "--force"]).exits(0);
    sandbox.windlass(&["spec", "convert", "s.kdl", "--to", "toml"]).exits(0).prints("[[jobs]]");
    sandbox.windlass(&["spec", "convert", "s.kdl", "s.txt"]).exits(2).says("--to");
    sandbox.windlass(&["spec", "convert", "s.kdl"]).exits(2);
}

#[test]
fn spec_schema_and_reference_are_printed() {
    let sandbox = Sandbox::new();
    let schema: serde_json::Value =
        serde_json::from_str(&sandbox.windlass(&["spec", "schema"]).exits(0).stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    sandbox.windlass(&["spec", "reference", "-o", "spec.md"]).exits(0).says("wrote spec.md");
    assert!(sandbox.read("spec.md").contains("depends_on_regexes"));
}

#[test]
fn spec_format_keeps_comments() {
    let sandbox = Sandbox::new();
    let untidy = "name:   sim   # the name\njobs:\n    - {name: a,    command: 'true'}\n";
    sandbox.write("a.yaml", untidy);
    sandbox.windlass(&["spec", "format", "--check", "a.yaml"]).exits(1).says("a.yaml is not formatted");
    assert_eq!(sandbox.read("a.yaml"), untidy);
    sandbox.windlass(&["spec", "format", "a.yaml"]).exits(0).says("formatted a.yaml");
    let tidy = sandbox.read("a.yaml");
    assert!(tidy.contains("# the name") && tidy != untidy, "{tidy}");
    sandbox.windlass(&["spec", "format", "--check", "a.yaml"]).exits(0);
    sandbox.write("b.yaml", "name: [\n");
    sandbox.write("a.yaml", untidy);
    sandbox.windlass(&["spec", "format", "a.yaml", "b.yaml"]).exits(2).says("b.yaml");
    assert_eq!(sandbox.read("a.yaml"), untidy, "a mistake in one file leaves the others as they were");
}

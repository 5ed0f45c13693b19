//! Every example runs on a machine without other services, and means the same in every format. The same holds for
//! four typical Torc specs (`tests/torc`).

use crate::common::Sandbox;
use std::fs;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
const FORMATS: [&str; 5] = ["yaml", "json", "json5", "toml", "kdl"];

/// Examples that show failures, with their exit codes.
const ENDS_BADLY: [(&str, i32); 3] =
    [("permanent_error.yaml", 1), ("pending_failed.yaml", 6), ("retry_budget.yaml", 6)];

/// Labels that the worker gets for an example.
const LABELS: [(&str, &str); 2] = [("labels.yaml", "gpu"), ("labels.yaml", "site-b")];

/// A sandbox with all examples and their tables, where jobs find `windlass`.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    for file in fs::read_dir(EXAMPLES).unwrap().map(|entry| entry.unwrap().path()) {
        fs::copy(&file, sandbox.path(file.file_name().unwrap())).unwrap();
    }
    sandbox
}

/// The names of all example specs.
fn specs() -> Vec<String> {
    let is_spec = |path: &PathBuf| {
        path.extension()
            .and_then(|extension| extension.to_str())
            .is_some_and(|extension| FORMATS.contains(&extension))
    };
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let paths = fs::read_dir(EXAMPLES).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = paths.filter(is_spec).map(|path| name(&path)).collect();
    names.sort();
    assert!(names.len() >= 15, "only {names:?}");
    names
}

#[test]
fn every_example_runs() {
    let here = Path::new(env!("CARGO_BIN_EXE_windlass")).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(here.to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    )
    .unwrap();
    for spec in specs() {
        let sandbox = sandbox();
        let mut command = sandbox.command(&["run", &spec]);
        let labels = LABELS.iter().filter(|(name, _)| *name == spec);
        command.args(labels.flat_map(|(_, label)| ["--label", label]));
        let output = command.env("PATH", &path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        if let Some((_, code)) = ENDS_BADLY.iter().find(|(name, _)| *name == spec) {
            assert_eq!(output.status.code(), Some(*code), "{spec}: {said}");
            continue;
        }
        assert!(output.status.success(), "{spec}: {said}");
        let jobs = sandbox.json(&["status"])["jobs"].clone();
        assert_eq!(jobs["completed"], jobs["total"], "{spec}: {jobs}");
    }
}

#[test]
fn examples_have_same_plan_in_every_format() {
    let sandbox = sandbox();
    for spec in specs() {
        let plan = plan_of(&sandbox, &spec);
        for format in FORMATS {
            let converted = format!("converted.{format}");
            sandbox.windlass(&["spec", "convert", "--force", &spec, &converted]).exits(0);
            assert_eq!(plan_of(&sandbox, &converted), plan, "{spec} as {format}");
        }
    }
}

/// The plan of a spec without the path of the file.
fn plan_of(sandbox: &Sandbox, spec: &str) -> serde_json::Value {
    let mut plan = sandbox.json(&["plan", spec]);
    assert!(plan.as_object_mut().unwrap().remove("spec_path").is_some());
    plan
}

const TORC: [(&str, &str); 4] = [
    ("tile_mosaic", include_str!("../torc/tile_mosaic.yaml")),
    ("viscosity_grid", include_str!("../torc/viscosity_grid.yaml")),
    ("shaky_solver", include_str!("../torc/shaky_solver.yaml")),
    ("two_phase_cluster", include_str!("../torc/two_phase_cluster.yaml")),
];

/// Writes the spec as YAML and converts it to each of the other formats. Returns the names of the files.
fn in_every_format(sandbox: &Sandbox, name: &str, text: &str) -> Vec<String> {
    let original = format!("{name}.yaml");
    sandbox.write(&original, text);
    let convert = |format: &&str| {
        let file = format!("{name}.{format}");
        sandbox.windlass(&["spec", "convert", &original, &file]).exits(0);
        file
    };
    let converted: Vec<String> = FORMATS.iter().filter(|format| **format != "yaml").map(convert).collect();
    [vec![original], converted].concat()
}

#[test]
fn torc_specs_have_expected_plan_in_every_format() {
    // Jobs, stages, dependencies.
    let expected = [(4, 3, 4), (14, 3, 24), (3, 2, 2), (41, 2, 40)];
    for ((name, text), (jobs, stages, dependencies)) in TORC.into_iter().zip(expected) {
        let sandbox = Sandbox::new();
        for file in in_every_format(&sandbox, name, text) {
            let plan = plan_of(&sandbox, &file);
            assert_eq!(plan["jobs"], jobs, "{file}");
            assert_eq!(plan["stages"].as_array().unwrap().len(), stages, "{file}");
            assert_eq!(plan["dependencies"], dependencies, "{file}");
        }
    }
}

#[test]
fn torc_specs_run_in_every_format() {
    let [(mosaic, mosaic_text), (grid, grid_text), ..] = TORC;
    let formats = in_every_format(&Sandbox::new(), mosaic, mosaic_text).len();
    for number in 0..formats {
        let sandbox = Sandbox::new();
        let files = in_every_format(&sandbox, mosaic, mosaic_text);
        sandbox.write("work/scene.txt", "3\n1\n2\n5\n4\n9\n8\n7\n6\n0\n");
        sandbox.windlass(&["run", &files[number]]).exits(0);
        assert_eq!(sandbox.read("work/mosaic.txt"), "1\n2\n3\n4\n5\n9\n8\n7\n6\n0\n", "{}", files[number]);

        let files = in_every_format(&sandbox, grid, grid_text);
        sandbox.windlass(&["run", &files[number]]).exits(0);
        let table = sandbox.read("out/table.csv");
        assert_eq!(table.lines().count(), 12, "{table}");
        assert!(table.contains("0.1,1\n") && table.contains("0.3,4\n"), "no rounding dirt: {table}");
    }
}

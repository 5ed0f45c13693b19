//! The examples run on a bare machine, every one of them, and mean the same in every format.

use crate::common::Sandbox;
use std::fs;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
const FORMATS: [&str; 5] = ["yaml", "json", "json5", "toml", "kdl"];

/// A sandbox with all of the examples in it, tables and all, where jobs find `windlass`.
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
        let output = sandbox.command(&["run", &spec]).env("PATH", &path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{spec}: {said}");
        let jobs = sandbox.json(&["status"])["jobs"].clone();
        assert_eq!(jobs["completed"], jobs["total"], "{spec}: {jobs}");
    }
}

#[test]
fn every_example_gives_the_same_plan_in_every_format() {
    let sandbox = sandbox();
    for spec in specs() {
        let plan = sandbox.json(&["plan", &spec]);
        for format in FORMATS {
            let converted = format!("converted.{format}");
            sandbox.windlass(&["spec", "convert", &spec, &converted]).exits(0);
            assert_eq!(sandbox.json(&["plan", &converted]), plan, "{spec} as {format}");
        }
    }
}

//! What is written about the server is what it does.

use crate::bench::Bench;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

#[test]
fn the_document_that_is_checked_in_is_up_to_date() {
    let made = windlass_server::openapi().to_pretty_json().unwrap() + "\n";
    let path = docs("reference/openapi.json");
    if std::env::var_os("WINDLASS_UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == made, "docs/reference/openapi.json is out of date: run `cargo xtask docs`");
}

#[test]
fn the_document_is_served_and_shown() {
    let bench = Bench::new();
    let served: serde_json::Value = bench.get("/api/v1/openapi.json").send().unwrap().json().unwrap();
    assert_eq!(served["openapi"], "3.1.0");
    let page = bench.get("/api/v1/docs").send().unwrap();
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    let page = page.text().unwrap();
    assert!(page.contains("/api/v1/workers/{id}/exchange") && !page.contains("<script"), "{page}");
}

#[test]
fn every_figure_is_explained() {
    let bench = Bench::new();
    // So that figures with labels are there too.
    assert_eq!(bench.get("/api/v1/nothing").send().unwrap().status(), 404);
    let page = bench.get("/metrics").send().unwrap().text().unwrap();
    let names: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() > 8, "{names:?}");
    let reference = std::fs::read_to_string(docs("reference/metrics.md")).unwrap();
    for name in names {
        assert!(reference.contains(&format!("`{name}")), "docs/reference/metrics.md does not explain {name}");
    }
}

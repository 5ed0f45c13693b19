//! Units as a real DAGMan left them.

use super::*;
use tempfile::TempDir;

fn group(files: &[(&str, &[u8])]) -> TempDir {
    let run = tempfile::tempdir().unwrap();
    let directory = run.path().join("mg_000001");
    std::fs::create_dir(&directory).unwrap();
    for (name, bytes) in files {
        std::fs::write(directory.join(name), bytes).unwrap();
    }
    run
}

fn of(views: &[DagNodeView], name: &str) -> DagNodeView {
    views.iter().find(|view| view.name == name).unwrap().clone()
}

#[test]
fn nodes_of_a_completed_unit_are_listed() {
    let run = group(&[
        ("group.status", include_bytes!("../../../tests/data/group.dag.status.done")),
        ("group.jobstate", include_bytes!("../../../tests/data/group.jobstate.log")),
    ]);
    let views = list_nodes(run.path(), Some(1)).unwrap();
    assert_eq!(views.len(), 6);
    assert!(views.iter().all(|view| view.state == DagNodeState::Done));
    let retried = of(&views, "proc_000001");
    assert_eq!((retried.attempts, retried.cluster), (2, Some(36)));
    assert_eq!(of(&views, "merge").attempts, 1);
}

#[test]
fn attempts_are_counted_across_rescues_and_releases() {
    // A rescue continues the numbers of attempts, unless there was no rescue file; a release always does.
    let log = b"1 INTERNAL *** DAGMAN_STARTED 7.0 ***\n2 merge SUBMIT 8.0 - - 5\n\
        3 INTERNAL *** DAGMAN_STARTED 7.0 ***\n4 merge EXECUTE 8.0 - - 5\n5 merge SUBMIT 9.0 - - 6\n\
        6 INTERNAL *** DAGMAN_STARTED 10.0 ***\n7 merge SUBMIT 11.0 - - 6\n8 merge EXECUTE 11.0 - - 6\n";
    let run = group(&[("group.jobstate", log)]);
    let views = list_nodes(run.path(), Some(1)).unwrap();
    assert_eq!((of(&views, "merge").attempts, of(&views, "merge").cluster), (3, Some(11)));
}

#[test]
fn the_log_is_newer_than_the_status_file() {
    use DagNodeState::{Done, Idle, Post, Pre, Running, Waiting};
    let log = include_bytes!("../../../tests/data/group.jobstate.log");
    let text = str::from_utf8(log).unwrap();
    let mut states = Vec::new();
    for (end, _) in text.match_indices('\n') {
        let run = group(&[("group.jobstate", &log[..=end])]);
        let views = list_nodes(run.path(), Some(1)).unwrap();
        let state = views.iter().find(|view| view.name == "proc_000001").map(|view| view.state);
        if states.last() != Some(&state) {
            states.push(state);
        }
    }
    let states: Vec<_> = states.into_iter().flatten().collect();
    assert_eq!(
        states,
        [Pre, Waiting, Idle, Running, Post, Waiting, Pre, Waiting, Idle, Running, Post, Done],
        "an attempt that failed, and one that did not"
    );
}

#[test]
fn failed_nodes_differ_from_stopped_nodes() {
    let run = group(&[
        ("group.status", include_bytes!("../../../tests/data/group.dag.status.aborted")),
        ("proc_000001.post.json", b"{}"),
    ]);
    let views = list_nodes(run.path(), Some(1)).unwrap();
    let state = |name: &str| of(&views, name).state;
    assert_eq!(state("proc_000000"), DagNodeState::Stopped);
    assert_eq!(state("proc_000001"), DagNodeState::Failed);
    assert_eq!(state("merge"), DagNodeState::Futile);
    let outer = "[\n  Type = \"DagStatus\";\n  DagStatus = 6;\n  NodesTotal = 3;\n  NodesDone = 0;\n]\n\
        [\n  Type = \"NodeStatus\";\n  Node = \"mg_000001\";\n  NodeStatus = 6;\n  StatusDetails = \"failed\";\n]\n\
        [\n  Type = \"NodeStatus\";\n  Node = \"mg_000002\";\n  NodeStatus = 6;\n  StatusDetails = \"Was STATUS_SUBMITTED\";\n]\n\
        [\n  Type = \"NodeStatus\";\n  Node = \"mg_000003\";\n  NodeStatus = 6;\n  StatusDetails = \"exited with 1\";\n]\n";
    std::fs::write(run.path().join("workflow.status"), outer).unwrap();
    let refused = run.path().join("mg_000003");
    std::fs::create_dir(&refused).unwrap();
    let words = include_bytes!("../../../tests/data/unparsable.dag.dagman.out");
    std::fs::write(refused.join("group.dag.dagman.out"), words).unwrap();
    let failed = list_failed_nodes(run.path()).unwrap();
    let told: Vec<_> =
        failed.iter().map(|node| (node.unit, node.node.as_str(), node.report.is_some())).collect();
    assert_eq!(told, [(Some(1), "proc_000001", true), (None, "mg_000003", false)]);
    assert!(failed[0].details.contains("POST Script failed with status 43"));
    assert!(
        failed[1].details.starts_with("exited with 1: workflow.dag (line 2): ERROR"),
        "{}",
        failed[1].details
    );
}

#[test]
fn site_and_hold_reason_of_nodes_are_listed() {
    let run = group(&[
        ("group.jobstate", b"1 landing SUBMIT 23.0 - - 1\n2 landing EXECUTE 23.0 - - 1\n"),
        ("group.dag.nodes.log", include_bytes!("../../../tests/data/group.dag.nodes.log")),
    ]);
    let views = list_nodes(run.path(), Some(1)).unwrap();
    assert_eq!(views[0].site.as_deref(), Some("T2_DE_Beta"));
    assert_eq!((views[0].state, views[0].held.clone()), (DagNodeState::Running, None));
    let held = group(&[
        ("group.jobstate", b"1 a SUBMIT 108.0 - - 1\n2 a JOB_HELD 108.0 - - 1\n"),
        ("group.dag.nodes.log", include_bytes!("../../../tests/data/held.nodes.log")),
    ]);
    let views = list_nodes(held.path(), Some(1)).unwrap();
    assert_eq!(views[0].held.as_ref().map(|hold| hold.code), Some(21));
}

#[test]
fn existing_node_logs_are_found() {
    let run = group(&[("proc_000001.err", b""), ("group.dag.dagman.out", b"")]);
    let logs = find_node_logs(run.path(), Some(1), "proc_000001");
    assert_eq!(logs.error, Some(run.path().join("mg_000001/proc_000001.err")));
    assert!(logs.dagman.is_some());
    assert_eq!((logs.output, logs.report, logs.events), (None, None, None));
}

#[test]
fn missing_files_list_no_nodes_and_unreadable_ones_fail() {
    let run = group(&[]);
    assert_eq!(list_nodes(run.path(), Some(1)).unwrap(), []);
    assert_eq!(list_nodes(run.path(), None).unwrap(), []);
    assert_eq!(list_failed_nodes(run.path()).unwrap(), []);
    std::fs::create_dir(run.path().join("workflow.status")).unwrap();
    assert!(list_nodes(run.path(), None).is_err());
}

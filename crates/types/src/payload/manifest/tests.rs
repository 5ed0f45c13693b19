use super::*;
use serde_json::json;

fn small() -> WorkUnitManifest {
    serde_json::from_value(json!({
        "request": "r1", "tag": "4f1c", "unit": "mg_000012", "number": 12,
        "steps": [{"name": "GEN", "simulation": {}}, {"name": "RECO", "command": "reco", "threads": 4}],
        "nodes": [
            {"index": 0, "generate": {"first_event": 1, "last_event": 10}},
            {"index": 1, "inputs": [{"lfn": "/store/a.txt", "events": {"first": 1, "last": 5}, "lumis": {"1": [[1, 3]]}}]},
        ],
        "outputs": [{"dataset": "/A/B-v1/RECO", "tier": "RECO", "step": "RECO",
                     "unmerged_base": "/store/unmerged/B/A/RECO/v1", "merged_base": "/store/mc/B/A/RECO/v1"}],
        "sites": {"T1": {"storage_path": "/data/t1"}},
    }))
    .unwrap()
}

#[test]
fn small_manifest_is_valid_and_round_trips() {
    let manifest = small();
    assert_eq!(manifest.find_problems(), Vec::<String>::new());
    assert_eq!(manifest.steps[0].threads, 1);
    let text = serde_json::to_string(&manifest).unwrap();
    assert_eq!(serde_json::from_str::<WorkUnitManifest>(&text).unwrap(), manifest);
}

#[test]
fn files_are_named_after_run_unit_and_node() {
    let manifest = small();
    let output = &manifest.outputs[0];
    assert_eq!(manifest.unmerged_lfn(output, 3), "/store/unmerged/B/A/RECO/v1/4f1c-mg_000012/RECO_3.txt");
    assert_eq!(manifest.merged_lfn(output, 0), "/store/mc/B/A/RECO/v1/4f1c-mg_000012-0.txt");
}

#[test]
fn manifest_check_reports_all_errors() {
    let mut manifest = small();
    manifest.tag = "../x".to_owned();
    manifest.steps.push(manifest.steps[0].clone());
    manifest.steps[0].simulation = None;
    manifest.steps[1].reads = Some("NANO".to_owned());
    manifest.outputs[0].step = "MINI".to_owned();
    manifest.outputs[0].unmerged_base = "/store/../../etc".to_owned();
    manifest.nodes[1].inputs[0].events = Some(EventWindow { first: 0, last: 3 });
    manifest.nodes[0].generate = None;
    manifest.sites.insert("T2".to_owned(), ManifestSite { storage_path: "data".to_owned() });
    let faults = manifest.find_problems();
    for part in [
        "tag",
        "steps.GEN: there is no command",
        "steps.RECO",
        "occurs twice",
        "unknown step `MINI`",
        "unmerged_base",
        "nodes.1",
        "nodes.0",
        "sites.T2",
    ] {
        assert!(faults.iter().any(|fault| fault.contains(part)), "{part}: {faults:#?}");
    }
    assert_eq!(faults.len(), 9, "{faults:#?}");
}

#[test]
fn simulated_failures_are_parsed() {
    let fault: SimulatedFailure =
        serde_json::from_value(json!({"kind": {"exit": 8021}, "until_attempt": 1})).unwrap();
    assert_eq!(fault.kind, SimulatedFailureKind::Exit(8021));
    let fault: SimulatedFailure = serde_json::from_value(json!({"kind": "no_output", "node": 3})).unwrap();
    assert_eq!((fault.kind, fault.node), (SimulatedFailureKind::NoOutput, Some(3)));
}

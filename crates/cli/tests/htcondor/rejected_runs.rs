//! Runs of requests that DAGMan rejects.

use crate::queries::{await_completion, directory, last, runs};
use crate::support::{Pool, eventually};
use crate::test_server::House;
use serde_json::Value;

/// A `condor_submit_dag` that corrupts the DAG first, until it is repaired.
fn breaking(pool: &Pool, house: &House) -> String {
    let (bin, mended) = (pool.bin(), house.work.path().join("mended"));
    format!(
        "#!/bin/sh\nsed -i '/CHILD no_such_node/d' workflow.dag\n\
         [ -e {} ] || echo 'PARENT mg_000000 CHILD no_such_node' >> workflow.dag\n\
         exec {}/condor_submit_dag \"$@\"\n",
        mended.display(),
        bin.display()
    )
}

fn submissions(run: &Value) -> Vec<Value> {
    let record = std::fs::read_to_string(directory(run).join("submission.json")).unwrap();
    serde_json::from_str::<Value>(&record).unwrap()["submissions"].as_array().unwrap().clone()
}

#[test]
fn refused_dagman_run_is_resubmitted_on_release() {
    let pool = Pool::shared();
    let mut house = House::open(&pool, "rejected");
    let script = breaking(&pool, &house);
    house.work.write_script("tools/condor_submit_dag", &script);
    house.kill_server();
    house.prefer_tools("tools");
    house.serve();
    house.submit("rejected", ":");
    let refused = |house: &House, times: usize| {
        eventually("it is held", || {
            house.status("rejected") == "held" && submissions(&last(house, "rejected")).len() == times
        });
        let said = house.request("rejected").to_string();
        assert!(said.contains("rejected the DAG") && said.contains("no_such_node"), "{said}");
    };
    refused(&house, 1);
    // If it is released too early, it is only rejected again.
    house.windlass(&["request", "release", "rejected"]);
    refused(&house, 2);
    house.kill_server();
    house.serve();
    house.work.write("mended", "");
    house.windlass(&["request", "release", "rejected"]);
    await_completion(&house, "rejected");
    house.check_outputs("rejected");
    let only = runs(&house, "rejected");
    assert_eq!(only.len(), 1, "{only:?}");
    let submissions = submissions(&only[0]);
    let rejected: Vec<_> = submissions.iter().map(|one| !one["rejected"].is_null()).collect();
    assert_eq!(rejected, [true, true, false], "{submissions:?}");
    assert!(submissions.iter().all(|one| one["number"] == 1), "{submissions:?}");
}

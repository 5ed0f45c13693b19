//! Runs of requests that DAGMan rejects.

use crate::queries::{await_completion, directory, last, runs};
use crate::support::{Pool, eventually};
use crate::test_server::TestServer;
use serde_json::Value;

/// A `condor_submit_dag` that corrupts the DAG first, until it is repaired.
fn breaking(pool: &Pool, test_server: &TestServer) -> String {
    let (bin, corrected) = (pool.bin(), test_server.work.path().join("mended"));
    format!(
        "#!/bin/sh\nsed -i '/CHILD no_such_node/d' workflow.dag\n\
         [ -e {} ] || echo 'PARENT mg_000000 CHILD no_such_node' >> workflow.dag\n\
         exec {}/condor_submit_dag \"$@\"\n",
        corrected.display(),
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
    let mut test_server = TestServer::open(&pool, "rejected");
    let script = breaking(&pool, &test_server);
    test_server.work.write_script("tools/condor_submit_dag", &script);
    test_server.kill_server();
    test_server.prefer_tools("tools");
    test_server.serve();
    test_server.submit("rejected", ":");
    let refused = |test_server: &TestServer, times: usize| {
        eventually("it is held", || {
            test_server.status("rejected") == "held"
                && submissions(&last(test_server, "rejected")).len() == times
        });
        let said = test_server.request("rejected").to_string();
        assert!(said.contains("rejected the DAG") && said.contains("no_such_node"), "{said}");
    };
    refused(&test_server, 1);
    // If it is released too early, it is only rejected again.
    test_server.windlass(&["request", "release", "rejected"]);
    refused(&test_server, 2);
    test_server.kill_server();
    test_server.serve();
    test_server.work.write("mended", "");
    test_server.windlass(&["request", "release", "rejected"]);
    await_completion(&test_server, "rejected");
    test_server.check_outputs("rejected");
    let only = runs(&test_server, "rejected");
    assert_eq!(only.len(), 1, "{only:?}");
    let submissions = submissions(&only[0]);
    let rejected: Vec<_> = submissions.iter().map(|one| !one["rejected"].is_null()).collect();
    assert_eq!(rejected, [true, true, false], "{submissions:?}");
    assert!(submissions.iter().all(|one| one["number"] == 1), "{submissions:?}");
}

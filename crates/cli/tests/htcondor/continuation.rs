//! Requests that need several runs: stopped, repaired and rescued, moved from a site; and a server that is killed
//! while it submits them.

use crate::queries::{directory, runs};
use crate::step_commands::{unless, until};
use crate::support::{Pool, eventually};
use crate::test_server::{INPUT, TestServer, fails_with};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn completed(run: &Value) -> u64 {
    run["work_units_completed"].as_u64().unwrap()
}

/// How often jobs were submitted in a unit.
fn submissions(run: &Value, unit: &str) -> usize {
    let log = directory(run).join(unit).join("group.dag.nodes.log");
    let log = std::fs::read_to_string(log).unwrap();
    log.lines().filter(|line| line.starts_with("000 (")).count()
}

/// Three units of three nodes; the step of a node that reads one of these files runs a command first.
fn submit(test_server: &TestServer, name: &str, troubles: &[(&str, String)]) {
    submit_also(test_server, name, troubles, &json!({}));
}

fn submit_also(test_server: &TestServer, name: &str, troubles: &[(&str, String)], also: &Value) {
    let cases: Vec<_> = troubles.iter().map(|(file, trouble)| format!("*{file}*) {trouble} ;; ")).collect();
    let cases = cases.concat();
    let command = format!(
        "case \"$(cat $WINDLASS_INPUTS)\" in {cases}esac; cat $(cat $WINDLASS_INPUTS) > $WINDLASS_OUTPUT"
    );
    test_server.submit_also(name, INPUT, 3, &json!({"name": "RECO", "command": command}), also);
}

/// The priorities of a run's jobs that are now in the queue, except for DAGs.
fn priorities(pool: &Pool, run: &Value) -> Vec<String> {
    let batch = format!("windlass-{}", directory(run).file_name().unwrap().to_string_lossy());
    let constraint = format!("JobUniverse == 5 && JobBatchName == \"{batch}\"");
    let told = pool.condor("condor_q", &["-constraint", &constraint, "-autoformat", "JobPrio"]);
    told.lines().map(str::to_owned).collect()
}

/// A small version of R-178: a third is completed; two thirds after a rescue, which is a production step, so that
/// it stops by itself and continues with a lower priority; a stop keeps completed units; and the next run
/// completes all.
#[test]
fn request_completes_over_rescue_step_and_stop() {
    let pool = Pool::shared();
    let test_server = TestServer::open(&pool, "chain");
    let fails = unless(&test_server, "mended", &fails_with(8501));
    let fails_then_waits = format!("{fails}; {}", until(&test_server, "go"));
    // An adaptive request would end its round at the step; others are stopped there.
    let steps = json!({"priority": 9000, "adaptive": false, "production_steps": [{"fraction": 0.5, "priority": 400}]});
    submit_also(&test_server, "chain", &[("f4.txt", fails), ("f7.txt", fails_then_waits)], &steps);
    eventually("two of its units fail", || test_server.status("chain") == "held");
    let first = runs(&test_server, "chain").pop().unwrap();
    assert_eq!((completed(&first), &first["work_units_failed"]), (1, &json!(2)), "{first:#}");
    let done_once = submissions(&first, "mg_000000");
    let steps_left = || test_server.request("chain")["production_steps"].as_array().map_or(0, Vec::len);
    assert_eq!(
        (&test_server.request("chain")["priority"], steps_left()),
        (&json!(9000), 1),
        "too little is completed"
    );

    test_server.work.write("mended", "");
    test_server.windlass(&["request", "dag", "rescue", "chain", "--reason", "it is fixed"]);
    eventually("it reaches its step and continues", || runs(&test_server, "chain").len() == 3);
    let second = runs(&test_server, "chain")[1].clone();
    assert_eq!((&second["status"], completed(&second)), (&json!("stopped"), 2), "{second:#}");
    let reason = test_server.json(&["request", "dag", "show", second["id"].as_str().unwrap()])["stop_reason"]
        .to_string();
    assert!(reason.contains("past the production step at 50 %"), "{reason}");
    assert_eq!(
        (&test_server.request("chain")["priority"], steps_left()),
        (&json!(400), 0),
        "the step is used up"
    );
    eventually("remaining jobs have the current priority", || priorities(&pool, &second) == ["400"]);

    test_server.windlass(&["request", "stop", "chain", "--reason", "others first"]);
    eventually("it is stopped and continues", || runs(&test_server, "chain").len() == 4);
    assert_eq!(runs(&test_server, "chain")[2]["status"], "stopped");

    test_server.work.write("go", "");
    eventually("all of it is completed", || test_server.is_completed("chain"));
    let chain = runs(&test_server, "chain");
    assert_eq!(chain.iter().map(completed).collect::<Vec<_>>(), [1, 2, 2, 3]);
    for pair in chain.windows(2) {
        assert_eq!(pair[1]["parent_dag_id"], pair[0]["id"]);
        assert_eq!(pair[1]["submit_dir"], pair[0]["submit_dir"], "it is the same DAG");
        assert_ne!(pair[1]["dagman_cluster_id"], pair[0]["dagman_cluster_id"]);
    }
    assert_eq!(submissions(&first, "mg_000000"), done_once, "completed units do not run again");
    test_server.check_outputs("chain");
}

/// DESIGN 6.8.
#[test]
fn unit_leaves_banned_site() {
    let pool = Pool::shared();
    let test_server = TestServer::open(&pool, "banned");
    submit(&test_server, "banned", &[("f4.txt", unless(&test_server, "mended", &fails_with(8501)))]);
    eventually("one of its units fails", || test_server.status("banned") == "held");
    let bad = test_server.node_in_trouble("banned")["site"].as_str().unwrap().to_owned();
    test_server.windlass(&["site", "ban", &bad, "--for", "1d", "--reason", "it loses files"]);
    test_server.work.write("mended", "");
    test_server.windlass(&["request", "dag", "rescue", "banned"]);
    eventually("it is completed elsewhere", || test_server.is_completed("banned"));
    let node = test_server.node_in_trouble("banned");
    assert_ne!(node["site"], json!(bad), "{node:#}");
    let unit = directory(&runs(&test_server, "banned")[1]).join("mg_000001");
    assert!(unit.join("elected.inc.aside").exists(), "its old site is kept for inspection");
    test_server.check_outputs("banned");
}

/// A file that exists at a certain moment of a submission.
fn moments(run: &Path) -> [(&'static str, PathBuf); 3] {
    [
        ("planned", run.join("run.json")),
        ("about to be submitted", run.join("submission.json")),
        ("in the queue", run.join("workflow.dag.dagman.log")),
    ]
}

/// The directory of the only run of a request, as soon as there is one.
fn only_run(test_server: &TestServer, name: &str) -> Option<PathBuf> {
    let requests = test_server.work.path().join(".windlass/requests").join(name);
    Some(std::fs::read_dir(requests).ok()?.flatten().next()?.path())
}

/// The number of DAGMan jobs that were ever submitted for a run.
fn dags(pool: &Pool, run: &Path) -> usize {
    let batch = format!("windlass-{}", run.file_name().unwrap().to_string_lossy());
    let constraint = format!("JobUniverse == 7 && DAGManJobId =?= undefined && JobBatchName == \"{batch}\"");
    let ask = |tool| pool.condor(tool, &["-constraint", &constraint, "-autoformat", "ClusterId"]);
    ask("condor_q").lines().chain(ask("condor_history").lines()).count()
}

#[test]
fn server_killed_during_submission_recovers_run() {
    let pool = Pool::shared();
    let mut test_server = TestServer::open(&pool, "killed");
    for (number, (moment, _)) in moments(Path::new("")).iter().enumerate() {
        let name = format!("killed{number}");
        submit(&test_server, &name, &[]);
        eventually(moment, || {
            only_run(&test_server, &name).is_some_and(|run| moments(&run)[number].1.exists())
        });
        test_server.kill_server();
        test_server.serve();
    }
    for number in 0..3 {
        let name = format!("killed{number}");
        eventually("it is completed all the same", || test_server.is_completed(&name));
        test_server.check_outputs(&name);
        let only = runs(&test_server, &name);
        assert_eq!(only.len(), 1, "{only:?}");
        assert_eq!(dags(&pool, &directory(&only[0])), 1, "neither lost nor duplicated");
    }
}

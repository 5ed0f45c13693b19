//! Requests that do not get through in one run: stopped, mended and rescued, kept from a site; and a server that is killed
//! while it hands them over.

use crate::house::{House, fails_with};
use crate::support::{Pool, eventually};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// All runs of a request, the oldest first.
fn runs(house: &House, name: &str) -> Vec<Value> {
    house.json(&["dag", "list", "--request", name]).as_array().unwrap().clone()
}

fn directory(run: &Value) -> PathBuf {
    PathBuf::from(run["submit_dir"].as_str().unwrap())
}

fn completed(run: &Value) -> u64 {
    run["work_units_completed"].as_u64().unwrap()
}

/// How often jobs were submitted in a unit.
fn submissions(run: &Value, unit: &str) -> usize {
    let log = directory(run).join(unit).join("group.dag.nodes.log");
    let log = std::fs::read_to_string(log).unwrap();
    log.lines().filter(|line| line.starts_with("000 (")).count()
}

/// Three units of three nodes; the step of a node that reads one of these files does something before.
fn submit(house: &House, name: &str, troubles: &[(&str, String)]) {
    let cases: Vec<_> = troubles.iter().map(|(file, trouble)| format!("*{file}*) {trouble} ;; ")).collect();
    let cases = cases.concat();
    let command = format!(
        "case \"$(cat $WINDLASS_INPUTS)\" in {cases}esac; cat $(cat $WINDLASS_INPUTS) > $WINDLASS_OUTPUT"
    );
    house.submit_step(name, &json!({"name": "RECO", "command": command}));
}

fn unless(house: &House, file: &str, what: &str) -> String {
    format!("[ -e {} ] || {{ {what}; }}", house.work.path().join(file).display())
}

fn until(house: &House, file: &str) -> String {
    format!("until [ -e {} ]; do sleep 0.1; done", house.work.path().join(file).display())
}

/// R-178 in small: a third is done, two thirds after a rescue, a stop keeps them, and the next run makes all of it.
#[test]
fn a_third_then_two_then_a_stop_then_all_of_it() {
    let pool = Pool::shared();
    let house = House::open(&pool, "chain");
    let fails = unless(&house, "mended", &fails_with(8501));
    let fails_then_waits = format!("{fails}; {}", until(&house, "go"));
    submit(&house, "chain", &[("f4.txt", fails), ("f7.txt", fails_then_waits)]);
    eventually("two of its units fail", || house.status("chain") == "held");
    let first = runs(&house, "chain").pop().unwrap();
    assert_eq!((completed(&first), &first["work_units_failed"]), (1, &json!(2)), "{first:#}");
    let done_once = submissions(&first, "mg_000000");

    house.work.write("mended", "");
    house.windlass(&["dag", "rescue", "chain", "--reason", "it is mended"]);
    let second = || runs(&house, "chain").get(1).cloned().filter(|run| completed(run) == 2);
    eventually("the rescue completes another one", || second().is_some());
    house.windlass(&["request", "stop", "chain", "--reason", "others first"]);
    eventually("it is stopped and goes on", || runs(&house, "chain").len() == 3);
    assert_eq!(runs(&house, "chain")[1]["status"], "stopped");

    house.work.write("go", "");
    eventually("all of it is made", || house.is_completed("chain"));
    let chain = runs(&house, "chain");
    assert_eq!(chain.iter().map(completed).collect::<Vec<_>>(), [1, 2, 3]);
    for pair in chain.windows(2) {
        assert_eq!(pair[1]["parent_dag_id"], pair[0]["id"]);
        assert_eq!(pair[1]["submit_dir"], pair[0]["submit_dir"], "it is the same DAG");
        assert_ne!(pair[1]["dagman_cluster_id"], pair[0]["dagman_cluster_id"]);
    }
    assert_eq!(submissions(&first, "mg_000000"), done_once, "what is completed is not done again");
    house.check_outputs("chain");
}

/// DESIGN 6.8.
#[test]
fn a_unit_does_not_stay_at_a_site_that_was_banned() {
    let pool = Pool::shared();
    let house = House::open(&pool, "banned");
    submit(&house, "banned", &[("f4.txt", unless(&house, "mended", &fails_with(8501)))]);
    eventually("one of its units fails", || house.status("banned") == "held");
    let bad = house.node_in_trouble("banned")["site"].as_str().unwrap().to_owned();
    house.windlass(&["site", "ban", &bad, "--for", "1d", "--reason", "it loses files"]);
    house.work.write("mended", "");
    house.windlass(&["dag", "rescue", "banned"]);
    eventually("it is completed elsewhere", || house.is_completed("banned"));
    let node = house.node_in_trouble("banned");
    assert_ne!(node["site"], json!(bad), "{node:#}");
    let unit = directory(&runs(&house, "banned")[1]).join("mg_000001");
    assert!(unit.join("elected.inc.aside").exists(), "where it was is kept for whoever wants to know");
    house.check_outputs("banned");
}

/// A file that is there at a certain moment of handing a run over.
fn moments(run: &Path) -> [(&'static str, PathBuf); 3] {
    [
        ("planned", run.join("run.json")),
        ("about to be submitted", run.join("submission.json")),
        ("in the queue", run.join("workflow.dag.dagman.log")),
    ]
}

/// The directory of the only run of a request, as soon as there is one.
fn only_run(house: &House, name: &str) -> Option<PathBuf> {
    let requests = house.work.path().join(".windlass/requests").join(name);
    Some(std::fs::read_dir(requests).ok()?.flatten().next()?.path())
}

/// So many DAGMan jobs were ever submitted for a run.
fn dags(pool: &Pool, run: &Path) -> usize {
    let batch = format!("windlass-{}", run.file_name().unwrap().to_string_lossy());
    let constraint = format!("JobUniverse == 7 && DAGManJobId =?= undefined && JobBatchName == \"{batch}\"");
    let ask = |tool| pool.condor(tool, &["-constraint", &constraint, "-autoformat", "ClusterId"]);
    ask("condor_q").lines().chain(ask("condor_history").lines()).count()
}

#[test]
fn a_server_that_is_killed_while_it_hands_a_run_over() {
    let pool = Pool::shared();
    let mut house = House::open(&pool, "killed");
    for (number, (moment, _)) in moments(Path::new("")).iter().enumerate() {
        let name = format!("killed{number}");
        submit(&house, &name, &[]);
        eventually(moment, || only_run(&house, &name).is_some_and(|run| moments(&run)[number].1.exists()));
        house.kill_server();
        house.serve();
    }
    for number in 0..3 {
        let name = format!("killed{number}");
        eventually("it is completed all the same", || house.is_completed(&name));
        house.check_outputs(&name);
        let only = runs(&house, &name);
        assert_eq!(only.len(), 1, "{only:?}");
        assert_eq!(dags(&pool, &directory(&only[0])), 1, "neither lost nor doubled");
    }
}

//! Requests with failures: rescued, held and released, failed, moved from bad sites and files; and one whose
//! schedd is lost.

use crate::queries::{alerts, attempts, await_completion, await_status, directory, last, left, runs, way};
use crate::step_commands::{path, reading, submit, until};
use crate::support::{Pool, SITES, eventually};
use crate::test_server::{HOMES, TestServer, fails_with};
use serde_json::{Value, json};
use std::fs;

/// A site that most tests do not use: jobs that wait there do not block others.
const OTHER: &str = SITES[3];

#[test]
fn few_failures_and_bad_files_recover_without_operator() {
    let pool = Pool::shared();
    let test_server = TestServer::open(&pool, "rescued");
    submit_few_failures(&test_server);
    let lfn = submit_bad_file(&test_server);
    few_failures_are_rescued(&test_server);
    a_bad_file_is_excluded_and_the_rest_of_its_unit_follows(&test_server, &lfn);
}

/// E 3.2: one failed unit of six is acceptable. One request fails for as long as its first run has attempts; the
/// other has a unit at a site that cannot store its outputs.
fn submit_few_failures(test_server: &TestServer) {
    test_server.add_files("six", 0..6, "/Muons/Six-v1/RAW", &HOMES);
    test_server.add_files("here", 0..5, "/Muons/Apart-v1/RAW", &[SITES[0]]);
    test_server.add_files("there", 5..6, "/Muons/Apart-v1/RAW", &[SITES[1], SITES[2]]);
    let count = path(test_server, "count");
    let unlucky = format!("echo >> {count}; [ $(wc -l < {count}) -gt 4 ] || {{ {}; }}", fails_with(8015));
    submit(test_server, "unlucky", "/Muons/Six-v1/RAW", 1, &reading("f4", &unlucky));
    let bad = path(test_server, "bad");
    let full = format!(
        "[ -e {bad} ] || echo $WINDLASS_SITE > {bad}; [ $(cat {bad}) != $WINDLASS_SITE ] || {{ {}; }}",
        fails_with(60311)
    );
    submit(test_server, "astray", "/Muons/Apart-v1/RAW", 1, &reading("f5", &full));
}

fn few_failures_are_rescued(test_server: &TestServer) {
    for name in ["unlucky", "astray"] {
        await_completion(test_server, name);
        test_server.check_files(name, 0..6);
        let shown = test_server.request(name);
        assert_eq!(shown["recovery"]["rescues_used"], 1, "{shown:#}");
        let chain = runs(test_server, name);
        let [first, second] = &chain[..] else { panic!("{chain:#?}") };
        assert_eq!((&first["work_units_completed"], &first["work_units_failed"]), (&5.into(), &1.into()));
        assert_eq!(second["work_units_completed"], 6, "over all of them: {second:#}");
        assert_eq!((&second["parent_dag_id"], &second["submit_dir"]), (&first["id"], &first["submit_dir"]));
        assert!(!way(test_server, name).iter().any(|status| status == "held"), "{shown:#}");
        // The failed unit is not the one that is tried once.
        let once = attempts(second).into_iter().filter(|attempt| attempt["unit"] == 0);
        assert_eq!(once.count(), 4, "completed units do not run again");
    }
    assert_eq!(test_server.json(&["site", "bans", "--request", "unlucky"]), json!([]), "no site caused it");
    let bans = test_server.json(&["site", "bans", "--request", "astray"]);
    let bad = fs::read_to_string(path(test_server, "bad")).unwrap();
    assert_eq!((&bans[0]["site_name"], bans.as_array().unwrap().len()), (&json!(bad.trim()), 1), "{bans:#}");
    assert_eq!(alerts(test_server, "astray"), ["site_banned"]);
    let other = if bad.trim() == SITES[1] { SITES[2] } else { SITES[1] };
    let merge = attempts(&last(test_server, "astray"))
        .into_iter()
        .find(|it| it["unit"] == 5 && it["node"] == "merge");
    assert_eq!(merge.unwrap()["site"], other, "the rescue ran at another site");
}

/// E 3.4, 4.2: after any failure an operator decides.
#[test]
fn request_with_all_units_failed_waits_for_operator() {
    let pool = Pool::shared();
    let test_server = TestServer::open(&pool, "decided");
    test_server.add_files("three", 0..3, "/Muons/Three-v1/RAW", &[OTHER, SITES[1]]);
    test_server.windlass(&[
        "site",
        "ban",
        SITES[1],
        "--for",
        "1d",
        "--reason",
        "so that all of it is at one site",
    ]);
    let broken = format!("[ $WINDLASS_SITE != {} ] || {{ {}; }}", OTHER, fails_with(8501));
    submit(&test_server, "banished", "/Muons/Three-v1/RAW", 1, &broken);
    let wait_command = until(&test_server, "never");
    let waits = format!("{}; {}", reading("f1", &wait_command), reading("f2", &wait_command));
    submit(&test_server, "given", "/Muons/Three-v1/RAW", 1, &waits);

    await_status(&test_server, "banished", "held");
    let run = last(&test_server, "banished");
    assert_eq!((&run["work_units_failed"], &run["work_units_completed"]), (&3.into(), &0.into()), "{run:#}");
    assert!(
        !way(&test_server, "banished").iter().any(|status| status == "failed" || status == "resubmitting")
    );
    test_server.windlass(&["site", "unban", SITES[1]]);
    test_server.windlass(&["request", "release", "banished", "--ban", OTHER, "--reason", "elsewhere"]);
    await_completion(&test_server, "banished");
    test_server.check_files("banished", 0..3);
    let second = last(&test_server, "banished");
    assert_eq!(second["round"], 1, "{second:#}");
    assert!(attempts(&second).iter().all(|attempt| attempt["site"] == SITES[1]));

    given_up(&pool, &test_server);
}

/// Running jobs are removed, and outputs are listed.
fn given_up(pool: &Pool, test_server: &TestServer) {
    let archived = || test_server.written("given").len() == 20;
    eventually("a third of it is completed", || {
        last(test_server, "given")["work_units_completed"] == 1 && archived()
    });
    let run = last(test_server, "given");
    assert!(left(pool, &run) > 0);
    test_server.windlass(&["request", "fail", "given", "--yes", "--reason", "no longer needed"]);
    await_status(test_server, "given", "failed");
    eventually("none of its jobs are in the queue", || left(pool, &run) == 0);
    let shown = test_server.request("given");
    let reason = shown["reason"].as_str().unwrap();
    let manifest = reason.split_once("are listed in ").unwrap_or_else(|| panic!("{shown:#}")).1;
    let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    let files = manifest["blocks"][0]["files"].as_array().unwrap();
    assert!(files.len() == 1 && files[0]["is_registered"] == true, "{manifest:#}");
}

/// An unreadable file is excluded; other files of the unit are not. Returns the name of the bad file.
fn submit_bad_file(test_server: &TestServer) -> String {
    let input = "/Muons/Twelve-v1/RAW";
    test_server.add_files("twelve", 0..12, input, &HOMES);
    let lfn = format!("/store/local{input}/f4.txt");
    let unreadable = fails_with(8016).replace("as it was asked to", &format!("cannot read {lfn}"));
    submit(test_server, "unreadable", input, 2, &reading("f4", &unreadable));
    lfn
}

fn a_bad_file_is_excluded_and_the_rest_of_its_unit_follows(test_server: &TestServer, lfn: &str) {
    await_completion(test_server, "unreadable");
    test_server.check_files("unreadable", (0..12).filter(|file| *file != 4));
    let excluded =
        test_server.json(&["request", "files", "unreadable", "--state", "excluded"])["items"].clone();
    assert_eq!((excluded.as_array().unwrap().len(), &excluded[0]["lfn"]), (1, &json!(lfn)), "{excluded:#}");
    assert_eq!(alerts(test_server, "unreadable"), ["files_excluded"]);
    let rounds: Vec<_> = runs(test_server, "unreadable").iter().map(|run| run["round"].clone()).collect();
    assert_eq!(rounds, [0, 1], "no attempts were wasted");
}

/// A configuration that is broken everywhere does not use up the retries of started units.
#[test]
fn uniform_failures_pause_run_until_repaired() {
    let pool = Pool::shared();
    let test_server =
        TestServer::open_with(&pool, "alike", &["--cool-off", "3s", "--similar-failure-count", "4"]);
    let input = "/Muons/Four-v1/RAW";
    // At two sites, so that neither of them is banned.
    test_server.add_files("here", 0..2, input, &[SITES[0]]);
    test_server.add_files("there", 2..4, input, &[SITES[1]]);
    let broken = format!("[ -e {} ] || {{ {}; }}", path(&test_server, "mended"), fails_with(8015));
    submit(&test_server, "alike", input, 2, &broken);

    eventually("it is paused", || test_server.request("alike")["recovery"]["paused_since"].is_string());
    let run = last(&test_server, "alike");
    eventually("the run is halted", || last(&test_server, "alike")["status"] == "halted");
    // Jobs that started just before have ended; the DAGs of the run and of its units stay.
    await_questions(&run, 2);
    eventually("started jobs have ended", || left(&pool, &run) == 3);
    let failed = attempts(&run).len();
    await_questions(&run, 6);
    assert_eq!((attempts(&run).len(), left(&pool, &run)), (failed, 3), "no jobs have started");
    assert_eq!(test_server.status("alike"), "active");

    test_server.work.write("mended", "");
    test_server.windlass(&["request", "dag", "release", "alike", "--reason", "it is fixed"]);
    await_completion(&test_server, "alike");
    test_server.check_files("alike", 0..4);
    let chain = runs(&test_server, "alike");
    assert_eq!(
        (chain.len(), &chain[0]["work_units_failed"]),
        (1, &json!(0)),
        "it is still the same run: {chain:#?}"
    );
    let processing =
        attempts(&run).into_iter().filter(|it| it["node"].as_str().unwrap().starts_with("proc_"));
    let landings = 2;
    assert_eq!(processing.count(), failed - landings + 4, "each node was tried once more");
}

/// Waits until the PRE scripts of both units have run this many more times.
fn await_questions(run: &Value, more: usize) {
    for unit in ["mg_000000", "mg_000001"] {
        let log = directory(run).join(unit).join("group.dag.dagman.out");
        let asked = || {
            let said = fs::read_to_string(&log).unwrap();
            said.lines().filter(|line| line.contains("Running PRE script of Node proc_")).count()
        };
        let before = asked();
        eventually("nodes are deferred", || asked() >= before + more);
    }
}

/// a schedd that is gone for good.
#[test]
fn request_restarts_without_lost_schedd() {
    let pool = Pool::private();
    let known = pool.condor("condor_status", &["-schedd", "-autoformat", "Name"]);
    let (lost, stays): (Vec<_>, Vec<_>) = known.lines().partition(|name| name.starts_with("second@"));
    let (lost, stays) = (lost[0], stays[0]);
    let options = ["--cool-off", "1s", "--schedd", lost, "--schedd", stays];
    let mut test_server = TestServer::open_with(&pool, "lost", &options);
    let input = "/Muons/Two-v1/RAW";
    test_server.add_files("two", 0..2, input, &HOMES);
    submit(&test_server, "first_v1", input, 1, &until(&test_server, "go"));
    eventually("it is running", || last(&test_server, "first_v1")["nodes_running"].as_u64() > Some(0));
    submit(&test_server, "second_v1", input, 1, ":");
    eventually("the other one is running, too", || {
        last(&test_server, "second_v1")["nodes_running"].as_u64() > Some(0)
    });
    let at = |test_server: &TestServer, name: &str| last(test_server, name)["schedd_name"].clone();
    let places = (at(&test_server, "first_v1"), at(&test_server, "second_v1"));
    assert_eq!(places, (json!(lost), json!(stays)), "each has one of them");

    pool.condor("condor_off", &["-fast", "-daemon", "schedd2"]);
    // A server that starts while the schedd is gone asks at once; a running one would within a minute.
    test_server.kill_server();
    test_server.serve();
    eventually("the missing schedd is reported", || {
        test_server.request("first_v1")["recovery"]["backend_silent_since"].is_string()
    });
    assert_eq!(test_server.status("first_v1"), "active", "it is not known to have failed");
    test_server.work.write("go", "");
    test_server.windlass(&[
        "request",
        "restart",
        "first_v1",
        "--lost",
        "--yes",
        "--reason",
        "its machine is lost",
    ]);
    await_status(&test_server, "first_v1", "failed");
    await_completion(&test_server, "second_v1");
    test_server.check_files("second_v1", 0..2);
    await_completion(&test_server, "first_v2");
    assert_eq!(at(&test_server, "first_v2"), json!(stays));
}

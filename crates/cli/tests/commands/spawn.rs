//! Jobs that add jobs to their own workflow, with the real binary.

use crate::common::{Output, Sandbox, documented_keys};
use serde_json::Value;

fn run(sandbox: &Sandbox, spec: &str) -> Output {
    sandbox.write("grow.yaml", spec);
    sandbox.windlass_on_path(&["run", "grow.yaml"])
}

#[test]
fn spawned_jobs_run_after_their_job() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "next.yaml",
        "lineage: rounds\nstate: {best: 0.5}\njobs:\n  - {name: part_1, command: echo one > one, description: The first part}\n  \
         - {name: sum, command: cat one > sum, depends_on: [part_1]}\n",
    );
    let spec = "name: grow\njobs:\n  - {name: seed, command: 'windlass jobs spawn next.yaml -f json > said; \
                windlass -f json jobs spawn next.yaml > again'}\n";
    run(&sandbox, spec).exits(0);
    assert_eq!(sandbox.read("sum"), "one\n");
    let said: Value = serde_json::from_str(&sandbox.read("said")).unwrap();
    documented_keys(&said);
    assert_eq!((&said["iteration"], &said["is_replay"]), (&1.into(), &false.into()));
    let again: Value = serde_json::from_str(&sandbox.read("again")).unwrap();
    assert_eq!(again["is_replay"], true);
    assert_eq!(again["spawned_job_ids"], said["spawned_job_ids"]);
    let jobs = sandbox.json(&["jobs"]);
    assert_eq!(jobs.as_array().unwrap().len(), 3);
    assert_eq!(jobs[2]["origin"], "spawn");
    assert_eq!((&jobs[1]["description"], &jobs[2]["description"]), (&"The first part".into(), &Value::Null));
}

#[test]
fn spawned_rounds_stop_at_max_iterations() {
    let sandbox = Sandbox::new();
    let spec =
        "name: grow\ndynamic_jobs: {max_iterations: 3}\njobs:\n  - {name: round_0, command: sh round.sh}\n";
    sandbox.write(
        "round.sh",
        "n=$(ls round_*.done 2>/dev/null | wc -l)\ntouch round_$n.done\n\
         printf '{\"jobs\": [{\"name\": \"round_%d\", \"command\": \"sh round.sh\"}]}' $((n + 1)) \
         | windlass jobs spawn - 2>> errors || true\n",
    );
    run(&sandbox, spec).exits(0);
    assert_eq!(sandbox.json(&["jobs"]).as_array().unwrap().len(), 4, "{}", sandbox.read("errors"));
    assert!(sandbox.read("errors").contains('3'), "{}", sandbox.read("errors"));
}

#[test]
fn invalid_spawns_are_rejected_with_reason() {
    let sandbox = Sandbox::new();
    sandbox.write("next.yaml", "jobs: [{name: a, command: 'true'}]\n");
    sandbox.windlass(&["jobs", "spawn", "next.yaml"]).exits(2).says("only a running job can add jobs");
    let spec = "name: grow\njobs:\n  - {name: seed, command: 'windlass jobs spawn next.yaml'}\n";
    sandbox
        .write("next.yaml", "jobs: [{name: a, command: 'true', depends_on: [b]}, {name: a, command: x}]\n");
    run(&sandbox, spec).exits(1);
    let said = sandbox.windlass(&["logs", "seed", "--stderr"]).exits(0);
    said.prints("two jobs of the batch are named `a`").prints("`b`, which is not in the batch");
}

#[test]
fn spawning_job_finds_database_from_other_directory() {
    let sandbox = Sandbox::new();
    sandbox.write("elsewhere/next.yaml", "jobs: [{name: late, command: touch late}]\n");
    sandbox.write(
        "grow.yaml",
        "name: grow\njobs: [{name: seed, command: 'cd elsewhere && windlass jobs spawn next.yaml'}]\n",
    );
    sandbox.windlass_on_path(&["--db", "store.db", "run", "grow.yaml"]).exits(0);
    assert!(sandbox.path("late").exists() && !sandbox.path(".windlass").exists());
}

#[test]
fn spawn_with_invalid_environment_is_refused() {
    let sandbox = Sandbox::new();
    let spec = "name: grow\njobs:\n  - {name: seed, command: 'for f in bad_*; do ! windlass jobs spawn $f || exit 9; done'}\n";
    let bad = [
        r#"{"jobs": [{"name": "a", "command": "true", "env": {"A=B": "1"}}]}"#,
        r#"{"jobs": [{"name": "b", "command": "true", "env": {"": "1"}}]}"#,
        r#"{"jobs": [{"name": "c", "command": "true", "env": {"N": null}}]}"#,
        r#"{"jobs": [{"name": "d", "command": ""}]}"#,
        r#"{"lineage": "", "jobs": [{"name": "e", "command": "true"}]}"#,
        r#"{"jobs": [{"name": "f\u0000", "command": "true"}]}"#,
        r#"{"jobs": [{"name": "g", "command": "true \u0000"}]}"#,
    ];
    for (number, text) in bad.iter().enumerate() {
        sandbox.write(&format!("bad_{number}.json"), text);
    }
    run(&sandbox, spec).exits(0);
    assert_eq!(sandbox.json(&["jobs"]).as_array().unwrap().len(), 1);
    let mut said = sandbox.windlass(&["logs", "seed", "--stderr"]).exits(0);
    for text in ["`A=B`", "variable ``", "variable `N`", "job `d` has no command", "lineage is empty", "NUL"]
    {
        said = said.prints(text);
    }
}

/// `seed` spawns the jobs in `next.yaml`, if the file exists; the added jobs write to `log`.
const AGAIN: &str = "\
name: grow
files: [{name: x, path: x.txt}]
jobs:
  - name: seed
    command: test ! -e next.yaml || windlass jobs spawn next.yaml >> said
    input_files: [x]
";

/// Writes one job for each pair of a name and a word.
fn ask_for(sandbox: &Sandbox, jobs: &[(&str, &str)]) {
    let jobs = jobs
        .iter()
        .map(|(name, word)| format!("  - {{name: {name}, command: 'echo {word} >> log', depends_on: []}}\n"));
    sandbox.write("next.yaml", &format!("state: {{at: 1}}\njobs:\n{}", jobs.collect::<String>()));
}

fn run_seed(sandbox: &Sandbox, x: &str) {
    sandbox.write("log", "");
    sandbox.write("x.txt", x);
    run(sandbox, AGAIN).exits(0);
}

/// The jobs that ran, and the statuses of all jobs.
fn outcome(sandbox: &Sandbox) -> (String, String) {
    let mut words: Vec<String> = sandbox.read("log").split_whitespace().map(str::to_owned).collect();
    words.sort_unstable();
    let jobs = sandbox.json(&["jobs"]);
    let jobs = jobs.as_array().unwrap().iter().skip(1);
    let said =
        jobs.map(|job| format!("{}={}", job["name"].as_str().unwrap(), job["status"].as_str().unwrap()));
    (words.join(" "), said.collect::<Vec<_>>().join(" "))
}

fn first_time() -> Sandbox {
    let sandbox = Sandbox::new();
    ask_for(&sandbox, &[("s1", "one"), ("s2", "two")]);
    run_seed(&sandbox, "1");
    assert_eq!(outcome(&sandbox), ("one two".to_owned(), "s1=completed s2=completed".to_owned()));
    sandbox
}

#[test]
fn rerun_job_with_same_spawn_keeps_its_jobs() {
    let sandbox = first_time();
    run_seed(&sandbox, "12");
    assert_eq!(outcome(&sandbox), ("one two".to_owned(), "s1=completed s2=completed".to_owned()));
    let results = sandbox.json(&["results", "--job", "s1", "--all-runs"]);
    assert_eq!(results.as_array().unwrap().len(), 2);
    assert!(sandbox.read("said").contains("already added"));
}

#[test]
fn rerun_job_with_changed_spawn_changes_its_jobs() {
    let sandbox = first_time();
    ask_for(&sandbox, &[("s1", "changed"), ("s2", "two"), ("s3", "three")]);
    run_seed(&sandbox, "12");
    let (ran, jobs) = outcome(&sandbox);
    assert_eq!(ran, "changed three two");
    assert_eq!(jobs, "s1~1=disabled s2~1=disabled s1=completed s2=completed s3=completed");
    // Their results are kept.
    assert_eq!(sandbox.json(&["results", "--job", "s1~1", "--all-runs"]).as_array().unwrap().len(), 1);
    assert!(
        sandbox.read("said").lines().all(|line| line.starts_with("iteration 1:")),
        "{}",
        sandbox.read("said")
    );
    // Fewer jobs again.
    ask_for(&sandbox, &[("s2", "two")]);
    run_seed(&sandbox, "123");
    let (ran, jobs) = outcome(&sandbox);
    assert_eq!(ran, "two");
    assert!(jobs.ends_with("s1~2=disabled s2~2=disabled s3~1=disabled s2=completed"), "{jobs}");
}

#[test]
fn spawned_jobs_missing_in_rerun_are_disabled() {
    let sandbox = first_time();
    std::fs::remove_file(sandbox.path("next.yaml")).unwrap();
    run_seed(&sandbox, "12");
    assert_eq!(outcome(&sandbox), (String::new(), "s1=disabled s2=disabled".to_owned()));
    ask_for(&sandbox, &[("s1", "one"), ("s2", "two")]);
    run_seed(&sandbox, "123");
    assert_eq!(outcome(&sandbox), ("one two".to_owned(), "s1=completed s2=completed".to_owned()));
}

#[test]
fn rerun_of_spawned_round_reruns_later_rounds() {
    let sandbox = Sandbox::new();
    // Each round spawns the next until there are as many as `x.txt` has characters; they print its content.
    sandbox.write(
        "round.sh",
        "x=$(cat x.txt); echo $1:$x >> log; [ $1 -ge ${#x} ] && exit 0; n=$(($1 + 1))\n\
         printf '{\"state\": %d, \"jobs\": [{\"name\": \"round_%d\", \"command\": \"sh round.sh %d # %s\"}]}' \
         $n $n $n $x | windlass jobs spawn - >> said\n",
    );
    let spec = "name: grow\ndynamic_jobs: {max_iterations: 3}\nfiles: [{name: x, path: x.txt}]\njobs:\n  \
                - {name: round_0, command: sh round.sh 0, input_files: [x]}\n";
    for (x, ran) in
        [("aaa", "0:aaa 1:aaa 2:aaa 3:aaa"), ("bb", "0:bb 1:bb 2:bb"), ("ccc", "0:ccc 1:ccc 2:ccc 3:ccc")]
    {
        sandbox.write("log", "");
        sandbox.write("x.txt", x);
        run(&sandbox, spec).exits(0);
        assert_eq!(sandbox.read("log").split_whitespace().collect::<Vec<_>>().join(" "), ran);
    }
    let jobs = sandbox.json(&["jobs", "--status", "completed"]);
    assert_eq!(jobs.as_array().unwrap().len(), 4);
    let data = sandbox.json(&["user-data", "list"]);
    let named = |name: &str| data.as_array().unwrap().iter().filter(|row| row["name"] == name).count();
    assert_eq!((named("round_0/3"), named("round_0/1~1")), (1, 1), "{data}");
}

#[test]
fn second_attempt_replaces_spawned_jobs() {
    let sandbox = Sandbox::new();
    // The first attempt spawns and kills its worker; the second spawns other jobs.
    let spec = "name: grow\njobs:\n  - {name: seed, command: exec sh seed.sh}\n  - {name: other, command: echo other >> log}\n";
    sandbox.write(
        "seed.sh",
        "if [ $WINDLASS_ATTEMPT = 1 ]; then windlass jobs spawn one.yaml; kill -9 $PPID; sleep 60; fi\n\
         windlass jobs spawn two.yaml\n",
    );
    sandbox.write(
        "one.yaml",
        "jobs:\n  - {name: a, command: echo old >> log}\n  - {name: b, command: echo b >> log}\n",
    );
    sandbox.write(
        "two.yaml",
        "jobs:\n  - {name: a, command: echo new >> log}\n  - {name: c, command: echo c >> log}\n",
    );
    run(&sandbox, spec).exits(0);
    let mut ran: Vec<String> = sandbox.read("log").split_whitespace().map(str::to_owned).collect();
    ran.sort_unstable();
    assert_eq!(ran, ["c", "new", "other"]);
}

#[test]
fn changed_spec_keeps_spawned_jobs() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "next.yaml",
        "jobs:\n  - {name: s1, command: 'echo s1 >> log; test -e fixed'}\n  - {name: s2, command: echo s2 >> log}\n",
    );
    let spec = "name: grow\njobs:\n  - {name: seed, command: windlass jobs spawn next.yaml}\n  \
                - {name: same, command: echo same >> log}\n  - {name: z, command: echo z >> log}\n";
    run(&sandbox, spec).exits(1);
    sandbox.write("log", "");
    sandbox.write("fixed", "");
    let changed = spec.replace("echo z", "echo other");
    sandbox.write("grow.yaml", &changed);
    let plan = sandbox.json(&["plan", "grow.yaml"]);
    assert_eq!(plan["changes"]["run"][0]["because"], "has_added", "{plan}");
    let again = run(&sandbox, &changed).exits(0);
    again.says("1 job reused, 2 to run; seed: it added jobs, which are not in the spec");
    let mut ran: Vec<String> = sandbox.read("log").split_whitespace().map(str::to_owned).collect();
    ran.sort_unstable();
    assert_eq!(ran, ["other", "s1", "s2"]);
    // Within the workflow they are ordinary jobs: nothing has changed.
    sandbox.windlass(&["plan", "grow.yaml"]).exits(0).prints("no jobs run, 3 reused");
    sandbox.windlass(&["run", "grow.yaml"]).exits(0).says("already ran");
    sandbox.windlass(&["workflows", "reinit", "--dry-run"]).exits(0).prints("nothing has changed");
}

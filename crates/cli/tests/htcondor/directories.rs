//! `windlass request dag` on a directory: workflow specs as DAGs, without a server.

use crate::support::{Pool, Work, eventually};
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Output};

/// A job that ends at once, and one that waits for a file.
const SPEC: &str = "name: two\njobs:\n  - name: first\n    command: echo first\n  - name: second\n    \
    command: 'until [ -e HERE/go ]; do sleep 0.1; done'\n    depends_on: [first]\n";

/// A directory of the pool's user, and commands that run as that user.
struct PoolUserDirectory {
    work: Work,
    environment: Vec<(&'static str, String)>,
}

impl PoolUserDirectory {
    fn new(pool: &Pool, name: &str) -> Self {
        let work = pool.work(name);
        work.write("two.yaml", &SPEC.replace("HERE", work.path().to_str().unwrap()));
        Self { work, environment: pool.environment() }
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(self.work.windlass());
        Pool::as_user(&mut command, &self.environment);
        command.env_remove("WINDLASS_DB").env_remove("WINDLASS_URL").env_remove("WINDLASS_TOKEN");
        command.args(words).current_dir(self.work.path()).output().unwrap()
    }

    #[track_caller]
    fn json(&self, words: &[&str]) -> Value {
        let told = self.run(&[words, &["--format", "json"]].concat());
        let said = String::from_utf8_lossy(&told.stderr);
        assert!(told.status.success(), "{words:?}: {said}");
        serde_json::from_slice(&told.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}: {told:?}"))
    }

    /// Runs a command that must fail; returns its exit code and messages.
    #[track_caller]
    fn refused(&self, words: &[&str]) -> (i32, String) {
        let told = self.run(words);
        assert!(!told.status.success(), "{words:?}: {told:?}");
        (told.status.code().unwrap(), String::from_utf8(told.stderr).unwrap())
    }

    fn submit(&self) -> Value {
        self.json(&["submit", "two.yaml", "--backend", "htcondor", "--dir", "d"])
    }

    fn is(&self, state: &str) -> bool {
        self.json(&["request", "dag", "show", "d"])["state"] == state
    }

    fn status_of(&self, node: &str) -> Value {
        let nodes = self.json(&["request", "dag", "nodes", "d"]);
        let found = nodes.as_array().unwrap().iter().find(|found| found["name"] == node);
        found.map_or(Value::Null, |found| found["status"].clone())
    }

    /// The names of all files of the DAG.
    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.work.path().join("d")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }
}

#[test]
fn dag_is_held_released_removed_and_rescued() {
    let pool = Pool::shared();
    let place = PoolUserDirectory::new(&pool, "directory");
    assert!(place.refused(&["request", "dag", "show", "d"]).1.contains('d'), "there is none yet");
    let first = place.submit()["cluster"].clone();
    eventually("its second job runs", || place.status_of("second") == "running");
    assert_eq!(place.status_of("first"), "done");
    // DAGMan counts the completed nodes and updates the file every few seconds.
    eventually("the completed node is counted", || {
        let shown = place.json(&["request", "dag", "show", "d"]);
        (&shown["dagman"], &shown["state"], &shown["nodes"]["done"]) == (&first, &json!("running"), &json!(1))
    });

    let logs = place.json(&["request", "dag", "logs", "d", "first"])["files"].to_string();
    assert!(logs.contains("first.out") && logs.contains("first.post.json"), "{logs}");

    for (node, told) in [("fisrt", "there is no node fisrt"), ("../d/first", "is not a valid node name")] {
        let (code, said) = place.refused(&["request", "dag", "logs", "d", node]);
        assert!(code == 2 && said.contains(told), "{code}: {said}");
    }
    assert!(
        place.json(&["request", "dag", "logs", "d"])["files"].to_string().contains("workflow.dag.dagman.out")
    );

    // A running DAG is not changed.
    let before = place.files();
    let (code, said) = place.refused(&["request", "dag", "rescue", "d"]);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains(&format!("DAGMan {first} still runs this DAG")), "{said}");
    let lock = "workflow.dag.lock".to_owned();
    assert!(before.contains(&lock) && place.files().contains(&lock), "{:?}", place.files());
    assert!(!place.files().iter().any(|name| name.contains(".rescue")), "{:?}", place.files());

    let held = place.json(&["request", "dag", "hold", "d", "--reason", "to see it"]);
    let told = format!("DAGMan {first} was asked to hold");
    assert_eq!(
        (&held["verb"], &held["dagman"], &held["done"], &held["message"]),
        (&json!("hold"), &first, &json!(true), &json!(told))
    );
    eventually("it is held", || {
        place.json(&["request", "dag", "show", "d"])["held"].to_string().contains("to see it")
    });
    assert_eq!(place.json(&["request", "dag", "hold", "d"])["done"], false, "it is held already");
    assert_eq!(place.json(&["request", "dag", "release", "d"])["done"], true);
    eventually("it continues", || place.json(&["request", "dag", "show", "d"])["held"] == json!([]));

    assert_eq!(place.json(&["request", "dag", "remove", "d", "--yes"])["verb"], "remove");
    eventually("it is removed", || place.is("removed"));
    // The schedd may take a moment to forget it.
    let mut second = Value::Null;
    eventually("it continues again", || {
        let told = place.run(&["request", "dag", "rescue", "d", "--format", "json"]);
        second = serde_json::from_slice(&told.stdout).unwrap_or_default();
        told.status.success()
    });
    assert_ne!(second["dagman"], first);
    assert_eq!((&second["verb"], &second["done"]), (&json!("rescue"), &json!(true)), "{second}");
    place.work.write("go", "");
    eventually("it is completed", || place.is("completed"));
    assert_eq!(place.status_of("second"), "done");
    let nodes = place.json(&["request", "dag", "nodes", "d", "--status", "done"]);
    let attempts: Vec<_> = nodes.as_array().unwrap().iter().map(|node| node["attempt"].clone()).collect();
    assert_eq!(attempts, [1, 2], "completed nodes do not run again: {nodes:#}");
    let (code, said) = place.refused(&["request", "dag", "rescue", "d"]);
    assert!(code == 4 && said.contains("the DAG is completed"), "{said}");
}

#[test]
fn repaired_dag_is_resubmitted_after_dagman_refusal() {
    let pool = Pool::shared();
    let place = PoolUserDirectory::new(&pool, "refused");
    place.work.write("go", "");
    // Rendered, and not submitted.
    let submit = ["submit", "two.yaml", "--backend", "htcondor", "--dir", "d"];
    place.refused(&[&submit[..], &["--schedd", "unknown@nowhere.example"]].concat());
    let good = place.work.read("d/workflow.dag");
    place.work.write("d/workflow.dag", &format!("{good}PARENT first CHILD no_such_node\n"));
    for words in [&submit[..], &["dag", "rescue", "d"]] {
        let mut said = String::new();
        // DAGMan may be gone from the queue a moment after it ended.
        eventually("it is rejected", || {
            said = place.refused(words).1;
            !said.contains("still")
        });
        assert!(said.contains("rejected the DAG") && said.contains("no_such_node"), "{said}");
        assert!(said.contains("`windlass request dag rescue") && said.contains("submits it again"), "{said}");
    }
    place.work.write("d/workflow.dag", &good);
    eventually("it is submitted", || place.run(&["request", "dag", "rescue", "d"]).status.success());
    eventually("it is completed", || place.is("completed"));
}

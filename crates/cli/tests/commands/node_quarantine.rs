//! A real server with workers on two nodes, of which one fails jobs that the other completes. The nodes are
//! simulated: each worker sees a different host name.

use crate::common::{Sandbox, eventually, kill};
use crate::serve::StoppedOnDrop;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};

/// Fails on one node until the file `cured` exists; other jobs run before a job is retried. The last hundred
/// start only after that.
const JOB_FAILING_ON_ONE_NODE: &str = r#"name: picky
retry_budget: 100000
failure_handlers: [{name: again, rules: [{match_all_exit_codes: true, max_retries: 10000, delay: 300ms}]}]
jobs:
  - {name: "early_{i}", command: 'test -e cured || test "$(uname -n)" != bad-node && sleep 0.1', failure_handler: again, parameters: {i: "1:60"}}
  - name: gate
    command: 'test -e cured || test "$(uname -n)" != bad-node && while [ ! -e cured ]; do sleep 0.05; done'
    failure_handler: again
  - {name: "late_{i}", command: sleep 0.1, depends_on: [gate], failure_handler: again, parameters: {i: "1:100"}}
"#;

/// A worker on a node of this name, ended when dropped.
struct NodeWorker(Child);

impl NodeWorker {
    fn node(sandbox: &Sandbox, name: &str) -> Self {
        let worker = sandbox.command(&["worker", "--persistent", "--num-cpus", "2"]);
        let mut command = Command::new("unshare");
        command.args([
            "--user",
            "--map-root-user",
            "--uts",
            "sh",
            "-c",
            r#"hostname "$0" && exec "$@""#,
            name,
        ]);
        command.arg(worker.get_program()).args(worker.get_args()).current_dir(sandbox.path(""));
        for (key, value) in worker.get_envs() {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("`unshare` of util-linux is here"))
    }
}

impl Drop for NodeWorker {
    fn drop(&mut self) {
        // SIGTERM ends its jobs too; it may have exited already.
        kill(self.0.id(), "TERM");
        drop(self.0.wait());
    }
}

#[test]
fn bad_node_is_quarantined_probed_and_released() {
    let sandbox = Sandbox::new();
    let _served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    sandbox.write("picky.yaml", JOB_FAILING_ON_ONE_NODE);
    sandbox.windlass(&["submit", "picky.yaml"]).exits(0);
    let _bad = NodeWorker::node(&sandbox, "bad-node");
    let good = NodeWorker::node(&sandbox, "good-node");

    let aside = || sandbox.json(&["worker", "nodes"]).as_array().unwrap().clone();
    let mut found: Vec<Value> = Vec::new();
    eventually("the bad one is in quarantine", || {
        found = aside();
        !found.is_empty()
    });
    let node = &found[0];
    assert_eq!(
        (found.len(), &node["host"], &node["standing"], &node["set_by"]),
        (1, &json!("bad-node"), &json!("quarantined"), &json!("windlass")),
        "{found:?}"
    );
    assert!(node["evidence"]["failed"].as_u64().unwrap() >= 5, "{node}");
    assert_eq!(node["evidence"]["peers_failed"], 0, "{node}");

    // No other worker is left: a probe job runs on the node and completes.
    sandbox.write("cured", "");
    drop(good);
    eventually("it is trusted again", || aside().is_empty());
    eventually("all is done", || sandbox.json(&["status"])["state"] == "completed");
    let events = sandbox.windlass(&["events", "--all"]).exits(0).stdout;
    assert!(events.contains("succeeded there"), "{events}");
}

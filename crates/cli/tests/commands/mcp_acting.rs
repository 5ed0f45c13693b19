//! Actions of agents through `windlass mcp`: recovering a workflow, and decisions while another process runs
//! it.

use crate::common::{Sandbox, eventually};
use crate::mcp::{Agent, job};
use serde_json::json;

/// One job needs more memory than it requests; the failure of the other has no known cause.
const WORN: &str = "
name: worn
resource_requirements: [{name: little, num_cpus: 1, memory: 60m}]
jobs:
  - {name: hungry, command: '(head -c 150000000 /dev/zero; sleep 1) | tail -c 150000000 | wc -c', resource_requirements: little}
  - {name: odd, command: 'test -e mended', resource_requirements: little}
  - {name: after, command: echo then, depends_on: [hungry]}
";

#[test]
fn agent_recovers_out_of_memory_jobs_with_confirm() {
    let sandbox = Sandbox::new();
    sandbox.write("worn.yaml", WORN);
    sandbox.windlass(&["run", "worn.yaml", "--quiet"]).exits(1);
    let mut agent = Agent::start(&sandbox, &["--allow-write"]);
    let would = agent.call("recover_workflow", &json!({"workflow_id": 1}));
    assert_eq!(
        (&would["dry_run"], &would["run_again"], &would["stay"]),
        (&json!(true), &json!(1), &json!(1))
    );
    assert_eq!(
        (&would["jobs"][0]["diagnosis"], &would["jobs"][0]["changes"][0]["resource"]),
        (&json!("out_of_memory"), &json!("memory")),
        "{would}"
    );
    let said = agent.refused("recover_workflow", &json!({"workflow_id": 1, "dry_run": false}));
    assert!(said.starts_with("nothing was done"), "{said}");
    assert_eq!(sandbox.json(&["status"])["jobs"]["failed"], 2, "nothing was done");
    let done = agent.call(
        "recover_workflow",
        &json!({"workflow_id": 1, "dry_run": false, "confirm": true, "memory_multiplier": 8.0}),
    );
    assert_eq!((&done["dry_run"], &done["run_again"]), (&json!(false), &json!(1)), "{done}");
    assert_eq!(agent.call("check_offline_journals", &json!({"workflow_id": 1}))["undelivered"], 0);
    agent.hang_up();
    sandbox.windlass(&["resume", "--quiet"]).exits(1);
    let jobs = &sandbox.json(&["status"])["jobs"];
    assert_eq!((&jobs["completed"], &jobs["failed"]), (&json!(2), &json!(1)), "{jobs}");
}

/// Two jobs that wait for a decision while a third is running.
const UNDER_WAY: &str = "
name: under way
use_pending_failed: true
jobs:
  - {name: long, command: 'until test -e enough; do sleep 0.05; done'}
  - {name: bad, command: 'test -e mended'}
  - {name: after, command: echo then, depends_on: [long]}
";

#[test]
fn agent_decides_while_workflow_runs() {
    let sandbox = Sandbox::new();
    sandbox.write("way.yaml", UNDER_WAY);
    let mut run = sandbox.start(&["run", "way.yaml", "--quiet"]);
    let status = || sandbox.windlass(&["status", "--format", "json"]).stdout;
    eventually("one waits for a decision", || status().contains("\"pending_failed\": 1"));
    let mut agent = Agent::start(&sandbox, &["--allow-write"]);
    let (bad, after) = (job(&sandbox, "bad"), job(&sandbox, "after"));
    let more = agent.call(
        "update_job_resources",
        &json!({"job_id": after, "num_cpus": 1, "memory": "77m", "reason": "it grew"}),
    );
    assert_eq!(more["now"]["memory"], "77 MiB", "{more}");
    sandbox.write("mended", "");
    let retry = json!([{"job_id": bad, "action": "retry", "reason": "it is there now"}]);
    let told = agent.call(
        "classify_and_resolve_failures",
        &json!({"workflow_id": 1, "confirm": true, "classifications": retry}),
    );
    assert_eq!((&told["errors"], &told["results"][0]["status"]), (&json!(0), &json!("applied")), "{told}");
    eventually("it runs again beside the other", || sandbox.json(&["status"])["jobs"]["completed"] == 1);
    assert_eq!(sandbox.json(&["status"])["jobs"]["running"], 1);
    agent.hang_up();
    sandbox.write("enough", "");
    assert_eq!(run.wait().unwrap().code(), Some(0));
    let revisions = sandbox.json(&["failures", "revisions", "list"]);
    assert!(revisions.to_string().contains("requested by agent t: it grew"), "{revisions}");
    let report = sandbox.json(&["failures", "report"]);
    assert_eq!((&report[0]["is_agent"], &report[0]["decisions"]), (&json!(true), &json!(1)), "{report}");
}

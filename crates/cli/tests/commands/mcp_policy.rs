//! Limits for agents: the triage policy of a workflow cannot be bypassed, and secrets are not visible.

use crate::common::{Output, Sandbox};
use crate::mcp::{Agent, job};
use serde_json::{Value, json};

const WATCHED: &str = r#"
name: watched
use_pending_failed: true
triage: {min_confidence: 0.8, max_agent_retries: 1, require_evidence: true}
jobs:
  - {name: bad, command: 'echo "mesh: element 4711 is inside out" >&2; exit 3'}
"#;

fn resolve(agent: &mut Agent, decision: &Value) -> Value {
    let told = agent.call(
        "classify_and_resolve_failures",
        &json!({"workflow_id": 1, "confirm": true, "classifications": [decision]}),
    );
    told["results"][0].clone()
}

/// Runs a command as an agent started by `recover --ai-recovery`.
fn robot(sandbox: &Sandbox, args: &[&str]) -> Output {
    let mut command = sandbox.command(args);
    Output::of(command.env("WINDLASS_AGENT", "robot"))
}

#[test]
fn tools_and_commands_cannot_bypass_triage_policy() {
    let sandbox = Sandbox::new();
    sandbox.write("watched.yaml", WATCHED);
    sandbox.windlass(&["run", "watched.yaml", "--quiet"]).exits(6);
    let bad = job(&sandbox, "bad");
    let mut command = sandbox.command(&["mcp", "--allow-write"]);
    command.env("WINDLASS_AGENT", "robot");
    let mut agent = Agent::begin(command, "");

    let reset = json!({"workflow_id": 1, "failed_only": true, "confirm": true});
    let said = agent.refused("reset_workflow_status", &reset);
    assert!(said.contains("it waits for a decision") && said.contains("classify_and_resolve"), "{said}");
    for line in [&["reset-status", "--failed-only", "--yes"][..], &["resume", "--retry-failed"]] {
        robot(&sandbox, line).exits(4).says("it waits for a decision").says("windlass failures pending");
    }
    let decision = |action: &str| {
        json!({"job_id": bad, "action": action, "confidence": 0.9,
            "evidence": ["mesh: element 4711 is inside out"]})
    };
    assert_eq!(resolve(&mut agent, &decision("retry"))["status"], "applied");
    robot(&sandbox, &["resume", "--quiet"]).exits(6);
    let again = resolve(&mut agent, &decision("retry"));
    assert!(again["error"].as_str().unwrap().contains("the maximum is 1"), "{again}");

    // The same holds for a failure that the agent decided on itself.
    assert_eq!(resolve(&mut agent, &decision("fail"))["status"], "applied");
    let recover = json!({"workflow_id": 1, "dry_run": false, "confirm": true, "retry_unknown": true});
    let told = agent.call("recover_workflow", &recover);
    assert_eq!((&told["run_again"], &told["stay"]), (&json!(0), &json!(1)), "{told}");
    assert!(agent.refused("reset_workflow_status", &reset).contains("only a person"));
    agent.hang_up();
    robot(&sandbox, &["recover", "--retry-unknown"]);
    robot(&sandbox, &["reset-status", "--failed-only", "--yes"]).exits(4).says("only a person");
    assert_eq!(sandbox.json(&["status"])["jobs"]["failed"], 1);

    let report = sandbox.json(&["failures", "report"]);
    let told = (&report[0]["made_by"], &report[0]["decisions"], &report[0]["overruled"]);
    assert_eq!(
        told,
        (&json!("robot"), &json!(2), &json!(0)),
        "one agent, by tools and by commands: {report}"
    );
    assert_eq!(report.as_array().unwrap().len(), 1, "and nothing in the name of a person: {report}");
    sandbox.windlass(&["workflows", "reset-status", "--failed-only", "--yes"]).exits(0);
}

/// A job runs without the restrictions of the agent, so its command could approve what the agent proposes.
#[test]
fn command_changes_by_agents_wait_for_approval() {
    let sandbox = Sandbox::new();
    sandbox.write("watched.yaml", WATCHED);
    sandbox.windlass(&["run", "watched.yaml", "--quiet"]).exits(6);
    for line in [
        &["jobs", "update", "bad", "--command", "true"][..],
        &["jobs", "requirements", "create", "-n", "big"],
    ] {
        robot(&sandbox, line).exits(4).says("agents may not use this command");
    }
    let (evil, quote) = ("windlass failures approve 1", "mesh: element 4711 is inside out");
    let words = ["failures", "retry", "bad", "--command", evil, "--confidence", "1", "--evidence", quote];
    robot(&sandbox, &words).exits(6).prints("waits for a person").prints(evil);
    sandbox.windlass(&["failures", "pending"]).exits(0).prints(&format!("retry with command `{evil}`"));
    assert_eq!(sandbox.json(&["status"])["jobs"]["pending_failed"], 1);
}

#[test]
fn allowed_reset_by_agent_is_recorded_with_its_name() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.yaml", "name: bad\njobs: [{name: bad, command: exit 3}]");
    sandbox.windlass(&["run", "bad.yaml", "--quiet"]).exits(1);
    robot(&sandbox, &["reset-status", "--failed-only", "--yes"]).exits(0);
    let events = sandbox.json(&["events", "list"]).to_string();
    assert!(events.contains("agent `robot`: reset 1 job to run again"), "{events}");
}

#[test]
fn evidence_must_quote_shown_log_lines() {
    let sandbox = Sandbox::new();
    let says = "for i in $(seq 60); do echo \\\"step $i of the long way\\\" >&2; done; echo \\\"out of luck here\\\"; exit 3";
    let policy = "triage: {require_evidence: true}";
    sandbox.write(
        "long.yaml",
        &format!(
            "name: long\nuse_pending_failed: true\n{policy}\njobs: [{{name: bad, command: \"{says}\"}}]"
        ),
    );
    sandbox.windlass(&["run", "long.yaml", "--quiet"]).exits(6);
    let bad = job(&sandbox, "bad");
    let mut agent = Agent::start(&sandbox, &["--allow-write"]);
    let shown = agent.call("list_pending_failed_jobs", &json!({"workflow_id": 1}));
    assert!(shown["jobs"][0]["stderr_tail"].as_str().unwrap().contains("step 12 of"), "{shown}");
    let with = |quotes: &[&str]| json!({"job_id": bad, "action": "fail", "evidence": quotes});
    for wrong in [&["e"][..], &["step 61 of the long way"], &["step 12 of the long way", "way"], &[]] {
        let told = resolve(&mut agent, &with(wrong));
        assert_eq!(told["status"], "error", "{wrong:?}: {told}");
    }
    let quotes = ["step 12 of the long way", "step 20 of", "out of luck here"];
    assert_eq!(resolve(&mut agent, &with(&quotes))["status"], "applied");
    agent.hang_up();
}

#[test]
fn mcp_answers_are_short_and_redacted() {
    let sandbox = Sandbox::new();
    let spec = r#"
name: loud
use_pending_failed: true
env: {DB_PASSWORD: correct-horse}
jobs:
  - name: loud_{i}
    parameters: {i: "1:40"}
    command: 'for n in $(seq 60); do head -c 2000 /dev/zero | tr "\0" x >&2; echo >&2; done; echo correct-horse >&2; exit 3'
"#;
    sandbox.write("loud.yaml", spec);
    sandbox.windlass(&["run", "loud.yaml", "--quiet"]).exits(6);
    let mut agent = Agent::start(&sandbox, &[]);
    let lists = [
        ("list_pending_failed_jobs", json!({"workflow_id": 1, "limit": 40})),
        ("list_jobs_by_status", json!({"workflow_id": 1, "status": "pending_failed"})),
        ("get_workflow_status", json!({"workflow_id": 1})),
        ("list_results", json!({"workflow_id": 1})),
        ("analyze_workflow_logs", json!({"workflow_id": 1})),
        ("get_job_details", json!({"job_id": job(&sandbox, "loud_1")})),
    ];
    for (tool, arguments) in lists {
        let answer = agent.call(tool, &arguments).to_string();
        assert!(!answer.contains("correct-horse"), "{tool}: {}", &answer[..2000.min(answer.len())]);
        assert!(answer.len() < 300 << 10, "{tool}: {} bytes", answer.len());
    }
    let list = agent.call("list_pending_failed_jobs", &json!({"workflow_id": 1, "limit": 40}));
    assert_eq!((&list["count"], &list["has_more"]), (&json!(40), &json!(false)), "all of them have a share");
    agent.hang_up();
}

#[test]
fn revision_changes_group_and_keeps_other_jobs() {
    let sandbox = Sandbox::new();
    let spec = "
name: shared
resource_requirements: [{name: small, num_cpus: 1, memory: 100m, runtime: PT5M}]
jobs:
  - {name: one, command: exit 1, resource_requirements: small}
  - {name: two, command: exit 1, resource_requirements: small}
";
    sandbox.write("shared.yaml", spec);
    sandbox.windlass(&["run", "shared.yaml", "--quiet"]).exits(1);
    let (one, two) = (job(&sandbox, "one"), job(&sandbox, "two"));
    let mut agent = Agent::start(&sandbox, &["--allow-write"]);
    let mut regroup = |cpus: u32, memory: &str, runtime: &str, dry_run: bool| {
        let groups = json!([{"name": "small", "memory": memory, "num_cpus": cpus, "runtime": runtime,
            "job_ids": [one]}]);
        agent.call("regroup_job_resources", &json!({"workflow_id": 1, "groups": groups, "dry_run": dry_run}))
    };
    for (cpus, memory, runtime) in [(0, "1g", "PT1H"), (1, "0", "PT1H"), (1, "1g", "PT0S")] {
        let told = regroup(cpus, memory, runtime, false);
        assert_eq!(told["groups"][0]["refused"][0]["job_id"], one, "{told}");
    }
    assert_eq!(regroup(2, "300m", "PT1H", true)["groups"][0]["changed"], 1);
    assert_eq!(sandbox.json(&["failures", "revisions"]), json!([]), "nothing was done yet");
    assert_eq!(regroup(2, "300m", "PT1H", false)["groups"][0]["changed"], 1);
    let mut memory = |job: i64| {
        agent.call("get_job_details", &json!({"job_id": job}))["resource_requirements"]["memory"].clone()
    };
    assert_eq!((memory(one), memory(two)), (json!("300 MiB"), json!("100 MiB")));
    let revisions = sandbox.json(&["failures", "revisions"]);
    assert_eq!(revisions[0]["reason"], "requested by agent t: small", "{revisions}");
    sandbox.windlass(&["failures", "undo", "1"]).exits(0);
    assert_eq!(memory(one), "100 MiB");
    agent.hang_up();

    sandbox.windlass(&["jobs", "update", "two", "--priority", "5", "-c", "true"]).exits(0);
    let revisions = sandbox.json(&["failures", "revisions"]);
    assert_eq!(revisions[2]["change"], "another command, priority 0 → 5", "{revisions}");
}

//! Agents: `windlass mcp` and `/mcp` of a server, used with raw JSON lines and with the official SDK.

use crate::common::{Sandbox, eventually};
use crate::serve::{StoppedOnDrop, found};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Two jobs: one completes, one prints its secret and the cause of its failure. Its dependent is canceled.
const SHAKY: &str = r#"
name: shaky
env: {API_TOKEN: s3same-open}
resource_requirements: [{name: small, num_cpus: 1, memory: 100m, runtime: PT5M}]
jobs:
  - {name: good, command: echo fine, resource_requirements: small}
  - {name: bad, command: 'echo "it is $API_TOKEN" >&2; echo "Connection refused" >&2; exit 7', resource_requirements: small}
  - {name: after, command: echo never, depends_on: [bad]}
"#;

/// The same failure, which waits for a decision.
const UNDECIDED: &str = r#"
name: undecided
use_pending_failed: true
jobs:
  - {name: bad, command: 'echo "Connection refused" >&2; test -e mended || exit 7'}
  - {name: worse, command: 'echo "SyntaxError: invalid syntax" >&2; exit 1'}
  - {name: after_bad, command: echo then, depends_on: [bad]}
  - {name: after_worse, command: echo never, depends_on: [worse]}
"#;

/// An MCP client that sends raw JSON.
pub(crate) struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    number: u64,
}

impl Agent {
    pub(crate) fn start(sandbox: &Sandbox, args: &[&str]) -> Self {
        Self::begin(sandbox.command(&[&["mcp"], args].concat()), "t")
    }

    /// Starts the server `command` and opens a session with the client name `name`.
    pub(crate) fn begin(mut command: Command, name: &str) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut agent = Self { child, stdin, stdout, number: 0 };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": name, "version": "1"}});
        let welcome = agent.ask("initialize", &hello);
        assert_eq!(welcome["result"]["serverInfo"]["name"], "windlass");
        agent.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        agent
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.number += 1;
        let id = self.number;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(crate) fn tools(&mut self) -> BTreeSet<String> {
        let answer = self.ask("tools/list", &json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn try_call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))
    }

    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self.try_call(tool, arguments);
        assert_eq!(answer["result"]["isError"], false, "{tool}: {answer}");
        answer["result"]["structuredContent"].clone()
    }

    /// The message of a refused call.
    #[track_caller]
    pub(crate) fn refused(&mut self, tool: &str, arguments: &Value) -> String {
        let answer = self.try_call(tool, arguments);
        assert_eq!(answer["result"]["isError"], true, "{tool}: {answer}");
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Closes the input, at which the server exits.
    pub(crate) fn hang_up(mut self) {
        drop(self.stdin.take());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

fn shaky() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("shaky.yaml", SHAKY);
    sandbox.windlass(&["run", "shaky.yaml", "--quiet"]).exits(1);
    sandbox
}

/// The id of the job with this name.
pub(crate) fn job(sandbox: &Sandbox, name: &str) -> i64 {
    let jobs = sandbox.json(&["jobs", "list"]);
    let mut jobs = jobs["items"].as_array().or(jobs.as_array()).unwrap().iter();
    jobs.find(|job| job["name"] == name).unwrap()["id"].as_i64().unwrap()
}

#[test]
fn agent_without_database_is_told_how_to_name_one() {
    Sandbox::new().windlass(&["mcp"]).exits(2).says("there is no database").says("windlass mcp --db PATH");
}

#[test]
fn failed_includes_timeouts() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "slow.yaml",
        "name: slow\nresource_requirements: [{name: short, num_cpus: 1, memory: 100m, runtime: PT1S}]\n\
         jobs: [{name: slow, command: sleep 1000, resource_requirements: short}]\n",
    );
    sandbox.windlass(&["run", "slow.yaml", "--quiet"]).exits(1);
    let mut agent = Agent::start(&sandbox, &[]);
    let failed = json!({"workflow_id": 1, "status": "failed"});
    let jobs = agent.call("list_jobs_by_status", &failed);
    assert_eq!((&jobs["items"][0]["status"], &jobs["total_in_status"]), (&json!("terminated"), &json!(1)));
    assert_eq!(agent.call("list_results", &failed)["items"][0]["status"], "terminated");
    agent.hang_up();
}

#[test]
fn read_only_agent_sees_state_without_secrets() {
    let sandbox = shaky();
    let mut agent = Agent::start(&sandbox, &[]);
    let tools = agent.tools();
    assert!(tools.contains("explain_job") && !tools.contains("cancel_workflow"), "{tools:?}");
    let told = agent.try_call("cancel_workflow", &json!({"workflow_id": 1, "confirm": true}));
    assert!(told["error"]["message"].as_str().unwrap().contains("--allow-write"), "{told}");

    let bad = job(&sandbox, "bad");
    let list = agent.call("list_workflows", &json!({"state": "failed"}));
    assert_eq!((&list["count"], &list["items"][0]["jobs"]["failed"]), (&json!(1), &json!(1)));
    assert_eq!(agent.call("list_workflows", &json!({"name_contains": "else"}))["count"], 0);
    let status = agent.call("get_workflow_status", &json!({"workflow_id": 1}));
    assert_eq!((&status["state"], &status["failed"][0]["name"]), (&json!("failed"), &json!("bad")));
    let summary = agent.call("get_workflow_summary", &json!({"workflow_id": 1}));
    assert_eq!((&summary["attempts"], &summary["failed_attempts"]), (&json!(2), &json!(1)));
    let jobs = agent.call("list_jobs_by_status", &json!({"workflow_id": 1, "status": "canceled"}));
    assert_eq!((&jobs["items"][0]["name"], &jobs["total_in_status"]), (&json!("after"), &json!(1)));
    let details = agent.call("get_job_details", &json!({"job_id": bad}));
    assert_eq!(
        (&details["attempts"][0]["return_code"], &details["resource_requirements"]["name"]),
        (&json!(7), &json!("small"))
    );
    let results = agent.call("list_results", &json!({"workflow_id": 1, "failed_only": true, "limit": 1}));
    assert_eq!((&results["count"], &results["has_more"]), (&json!(1), &json!(false)));
    let failed = agent.call("list_failed_jobs", &json!({"workflow_id": 1}));
    assert_eq!(
        (&failed["total"], &failed["groups"][0]["failure"]["class"]),
        (&json!(1), &json!("transient"))
    );
    let why = agent.call("explain_job", &json!({"job_id": bad}));
    assert_eq!(why["explanation"]["headline"], "failed with exit code 7");

    let log = agent.call("get_job_logs", &json!({"workflow_id": 1, "job_id": bad, "log_type": "stderr"}));
    assert_eq!(log["log"]["text"], "it is ********\nConnection refused\n");
    assert!(log["log"]["note"].as_str().unwrap().contains("not instructions"), "{log}");
    let last = json!({"workflow_id": 1, "job_id": bad, "run_id": 1, "attempt_id": 1, "log_type": "stderr", "tail_lines": 1});
    assert_eq!(agent.call("get_job_logs", &last)["log"]["text"], "Connection refused\n");
    let found = agent.call("analyze_workflow_logs", &json!({"workflow_id": 1}));
    assert_eq!(found["findings"][0]["text"], "Connection refused");
    let uri = format!("windlass://logs/1/{bad}/1/1/stderr");
    let resource = agent.ask("resources/read", &json!({"uri": uri}));
    assert!(
        !resource.to_string().contains("s3same") && resource.to_string().contains("refused"),
        "{resource}"
    );

    agent.call("check_resource_utilization", &json!({"workflow_id": 1}));
    let used = agent.call("analyze_resource_usage", &json!({"workflow_id": 1}));
    assert_eq!((&used["count"], &used["items"][0]["jobs"]), (&json!(1), &json!(2)), "{used}");
    assert_eq!(agent.call("list_pending_failed_jobs", &json!({"workflow_id": 1}))["total"], 0);
    agent.hang_up();
}

#[test]
fn spec_check_and_plan_store_nothing() {
    let sandbox = shaky();
    let mut agent = Agent::start(&sandbox, &[]);
    let good = agent.call("check_spec", &json!({"spec": SHAKY}));
    assert_eq!((&good["valid"], &good["summary"]["job_count"]), (&json!(true), &json!(3)));
    let bad = agent.call("check_spec", &json!({"spec": "name: x\njobs: [{name: a, comand: b}]"}));
    assert_eq!((&bad["valid"], &bad["errors"][0]["line"]), (&json!(false), &json!(2)));
    for what in [json!(SHAKY), json!("1"), json!(1)] {
        let plan = agent.call("get_execution_plan", &json!({"spec_or_id": what}));
        assert_eq!((&plan["plan"]["jobs"], &plan["name"]), (&json!(3), &json!("shaky")));
    }
    let examples = agent.call("list_examples", &json!({}));
    for example in examples["examples"].as_array().unwrap() {
        let text = agent.call("get_example", &json!({"name": example["name"], "format": "json"}));
        serde_json::from_str::<Value>(text["spec"].as_str().unwrap()).unwrap();
    }
    let topics = agent.call("get_docs", &json!({}));
    for topic in topics["topics"].as_array().unwrap() {
        assert!(
            agent.call("get_docs", &json!({"topic": topic["topic"]}))["text"].as_str().unwrap().len() > 500
        );
    }
    assert!(agent.refused("get_docs", &json!({"topic": "nothing"})).contains("without a topic"));
    assert_eq!(agent.call("list_workflows", &json!({}))["count"], 1);
    agent.hang_up();
}

#[test]
fn agent_write_tools_require_confirm() {
    let sandbox = shaky();
    let mut agent = Agent::start(&sandbox, &["--allow-write"]);
    let bad = job(&sandbox, "bad");
    for tool in ["run_workflow", "cancel_workflow", "reset_workflow_status"] {
        let said = agent.refused(tool, &json!({"workflow_id": 1}));
        assert!(said.starts_with("nothing was done") && said.contains("confirm: true"), "{said}");
    }
    let more = agent.call("update_job_resources", &json!({"job_id": bad, "memory": "200m"}));
    assert_eq!(more["now"]["memory"], "200 MiB", "{more}");
    let groups = json!([{"memory": "1g", "num_cpus": 2, "runtime": "PT1H", "job_ids": [bad]}]);
    agent.call("regroup_job_resources", &json!({"workflow_id": 1, "groups": groups, "dry_run": true}));
    let asked = agent.call("get_job_details", &json!({"job_id": bad}));
    assert_eq!(asked["resource_requirements"]["memory"], "200 MiB", "{asked}");

    let reset =
        agent.call("reset_workflow_status", &json!({"workflow_id": 1, "failed_only": true, "confirm": true}));
    assert_eq!(reset["run_id"], 2, "{reset}");
    agent.call("run_workflow", &json!({"workflow_id": 1, "confirm": true}));
    eventually("it ran again", || {
        sandbox.json(&["results", "list", "--all-runs"]).to_string().contains("\"run_id\":2")
    });

    let spec = "name: slow\njobs: [{name: long, command: sleep 600}]";
    let made = agent.call("create_workflow", &json!({"spec_json": spec, "action": "create_workflow"}));
    assert_eq!((&made["workflow_id"], &made["jobs"]), (&json!(2), &json!(1)));
    agent.call("run_workflow", &json!({"workflow_id": 2, "confirm": true}));
    agent.call("cancel_workflow", &json!({"workflow_id": 2, "confirm": true}));
    eventually("it is canceled", || {
        agent.call("get_workflow_status", &json!({"workflow_id": 2}))["state"] == "canceled"
    });

    let save = json!({"spec_json": spec, "action": "save_spec_file", "output_path": "slow.yaml"});
    agent.call("create_workflow", &save);
    assert_eq!(sandbox.read("slow.yaml"), spec);
    assert!(agent.refused("create_workflow", &save).contains("exists"));
    let outside = json!({"spec_json": spec, "action": "save_spec_file", "output_path": "../slow.yaml"});
    assert!(agent.refused("create_workflow", &outside).contains("not inside"));
    agent.hang_up();
}

#[test]
fn symlinked_log_is_not_read() {
    let sandbox = shaky();
    let bad = job(&sandbox, "bad");
    let log = sandbox.path(format!("windlass_output/job_stdio/job_wf1_j{bad}_r1_a1.e"));
    std::fs::remove_file(&log).unwrap();
    sandbox.write("private", "between us");
    std::os::unix::fs::symlink(sandbox.path("private"), &log).unwrap();
    let mut agent = Agent::start(&sandbox, &[]);
    let said = agent.refused("get_job_logs", &json!({"workflow_id": 1, "job_id": bad, "log_type": "stderr"}));
    assert!(said.contains("cannot read") && !said.contains("between us"), "{said}");
    agent.hang_up();
}

#[test]
fn decisions_are_validated_before_execution() {
    let sandbox = Sandbox::new();
    sandbox.write("undecided.yaml", UNDECIDED);
    let _server = StoppedOnDrop::start(&sandbox, &[]);
    sandbox.windlass(&["submit", "undecided.yaml"]).exits(0);
    let mut worker = sandbox.start(&["worker"]);
    let waiting = || sandbox.json(&["status"])["jobs"]["pending_failed"] == 2;
    eventually("two wait for a decision", waiting);
    let (bad, worse) = (job(&sandbox, "bad"), job(&sandbox, "worse"));

    let mut agent = Agent::start(&sandbox, &["--allow-write"]);
    let list = agent.call("list_pending_failed_jobs", &json!({"workflow_id": 1}));
    assert_eq!(
        (&list["total"], &list["jobs"][0]["stderr_tail"]),
        (&json!(2), &json!("Connection refused\n"))
    );
    assert_eq!(list["jobs"][0]["rules_say"]["class"], "transient");
    let failed = agent.call("list_failed_jobs", &json!({"workflow_id": 1}));
    assert_eq!((&failed["total"], &failed["waiting_for_a_decision"]), (&json!(2), &json!(2)), "{failed}");
    let retry = json!({"job_id": bad, "action": "retry", "reason": "it passes", "confidence": 0.9, "evidence": ["Connection refused"]});
    let wrong = json!([
        {"job_id": bad, "action": "retry", "evidence": ["Connection reset"]},
        {"job_id": worse, "action": "fail", "memory": "1g"},
        {"job_id": 4711, "action": "fail"},
        {"job_id": job(&sandbox, "after_bad"), "action": "retry"},
        {"job_id": worse, "action": "fail", "confidence": 2.0},
    ]);
    let told = agent.call(
        "classify_and_resolve_failures",
        &json!({"workflow_id": 1, "confirm": true, "classifications": wrong}),
    );
    assert_eq!((&told["errors"], &told["resolved"]), (&json!(5), &json!(0)), "{told}");
    let would = json!({"workflow_id": 1, "classifications": [retry], "dry_run": true});
    let told = agent.call("classify_and_resolve_failures", &would);
    assert_eq!(told["results"][0]["status"], "would_apply", "{told}");
    assert!(waiting(), "a dry run does nothing");
    let unconfirmed = json!({"workflow_id": 1, "classifications": [retry]});
    let told = agent.call("classify_and_resolve_failures", &unconfirmed);
    assert_eq!(
        (&told["results"][0]["status"], &told["dry_run"]),
        (&json!("would_apply"), &json!(true)),
        "{told}"
    );
    assert!(told["next"].as_str().unwrap().contains("confirm: true") && waiting(), "{told}");
    let absurd = json!([{"job_id": bad, "action": "retry", "memory": "100000g"}]);
    let absurd = json!({"workflow_id": 1, "confirm": true, "classifications": absurd});
    let told = agent.call("classify_and_resolve_failures", &absurd);
    let why = told["results"][0]["error"].as_str().unwrap();
    assert!(why.contains("97.7 TiB of memory, and no worker has more than"), "{told}");
    assert!(waiting(), "it is refused");

    sandbox.write("mended", "");
    let both =
        json!([retry, {"job_id": worse, "action": "fail", "evidence": ["SyntaxError: invalid syntax"]}]);
    let told = agent.call(
        "classify_and_resolve_failures",
        &json!({"workflow_id": 1, "confirm": true, "classifications": both}),
    );
    assert_eq!((&told["errors"], &told["results"][1]["status"]), (&json!(0), &json!("applied")), "{told}");
    eventually("the one succeeds and what hangs on the other is canceled", || {
        let jobs = &sandbox.json(&["status"])["jobs"];
        jobs["completed"] == 2 && jobs["failed"] == 1 && jobs["canceled"] == 1
    });
    agent.hang_up();
    worker.kill().unwrap();
    worker.wait().unwrap();
}

/// The Python with the official SDK, and the path of a script for it.
#[track_caller]
fn sdk(script: &str) -> (PathBuf, PathBuf) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("../../target"), PathBuf::from);
    let python = target.join("torc-client/bin/python");
    assert!(python.exists(), "{} is missing: `cargo xtask test` installs it", python.display());
    (python, root.join("tests/mcp").join(script))
}

/// The output of a script that uses the official SDK.
#[track_caller]
pub(crate) fn session(sandbox: &Sandbox, script: &str, arguments: &[&str]) -> Value {
    let (python, script) = sdk(script);
    let output = Command::new(python)
        .arg(script)
        .args(arguments)
        .current_dir(sandbox.path("."))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn saw_the_failure(seen: &Value) {
    assert_eq!((&seen["job"]["name"], &seen["job"]["return_code"]), (&json!("bad"), &json!(7)));
    assert_eq!(seen["log"]["log"]["text"], "it is ********\nConnection refused\n");
    assert_eq!(seen["why"]["explanation"]["headline"], "failed with exit code 7");
    assert!(seen["resource"].as_str().unwrap().contains("not instructions"));
    assert_eq!(
        (&seen["guide"], &seen["prompts"]),
        (&json!("# AI agents (MCP)"), &json!(["triage", "debug", "plan"]))
    );
}

#[test]
fn official_sdk_works_over_stdio() {
    let sandbox = shaky();
    let windlass = env!("CARGO_BIN_EXE_windlass");
    let seen = session(&sandbox, "session.py", &["stdio", windlass, "1"]);
    saw_the_failure(&seen);
    assert!(seen["refusal"].as_str().unwrap().contains("--allow-write"), "{}", seen["refusal"]);
    let seen = session(&sandbox, "session.py", &["stdio", windlass, "1", "--allow-write"]);
    assert!(seen["refusal"].as_str().unwrap().contains("confirm: true"), "{}", seen["refusal"]);
}

#[test]
fn official_sdk_works_over_http_with_token() {
    let sandbox = shaky();
    let _server = StoppedOnDrop::start(&sandbox, &["--mcp"]);
    let place = found(&sandbox);
    let (url, token) = (place["url"].as_str().unwrap(), place["token"].as_str().unwrap());
    let seen = session(&sandbox, "session.py", &["http", url, token, "1"]);
    saw_the_failure(&seen);
    assert!(seen["refusal"].as_str().unwrap().contains("--allow-write"), "{}", seen["refusal"]);
}

/// One job needs more memory than it requests; the other fails with any amount of memory.
const HUNGRY: &str = r#"
name: hungry
use_pending_failed: true
resource_requirements: [{name: little, num_cpus: 1, memory: 60m}]
jobs:
  - {name: hungry, command: '(head -c 150000000 /dev/zero; sleep 1) | tail -c 150000000 | wc -c', resource_requirements: little}
  - {name: wrong, command: 'echo "SyntaxError: invalid syntax" >&2; exit 1', resource_requirements: little}
  - {name: after_hungry, command: echo then, depends_on: [hungry]}
  - {name: after_wrong, command: echo never, depends_on: [wrong]}
"#;

#[test]
fn official_sdk_decisions_take_effect() {
    let sandbox = Sandbox::new();
    sandbox.write("hungry.yaml", HUNGRY);
    sandbox.windlass(&["run", "hungry.yaml", "--quiet"]).exits(6);
    let seen = session(&sandbox, "decide.py", &[env!("CARGO_BIN_EXE_windlass"), "1"]);
    assert_eq!(seen["names"], json!(["hungry", "wrong"]));
    let statuses = |told: &Value| -> Vec<String> {
        let results = told["results"].as_array().unwrap().iter();
        results.map(|result| result["status"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(statuses(&seen["would"]), ["would_apply"; 2], "{seen}");
    assert_eq!(statuses(&seen["told"]), ["applied"; 2], "{seen}");

    sandbox.windlass(&["resume", "--quiet"]).exits(1);
    let jobs = &sandbox.json(&["status"])["jobs"];
    let counts = ["completed", "failed", "canceled"].map(|status| jobs[status].as_u64().unwrap());
    assert_eq!(
        counts,
        [2, 1, 1],
        "the retried one succeeds, and what waits for the other is canceled: {jobs}"
    );
    let results = sandbox.json(&["results", "list"]);
    let results = results["items"].as_array().or(results.as_array()).unwrap();
    let hungry = results.iter().filter(|row| row["job_name"] == "hungry");
    assert_eq!(hungry.map(|row| &row["out_of_memory"]).collect::<Vec<_>>(), [&json!(true), &json!(false)]);
}

#[test]
fn watch_continues_after_mcp_agent_decision() {
    let sandbox = Sandbox::new();
    sandbox.write("hungry.yaml", HUNGRY);
    sandbox.windlass(&["run", "hungry.yaml", "--quiet"]).exits(6);
    let (python, script) = sdk("decide.py");
    let agent =
        format!("'{}' '{}' '{}' 1", python.display(), script.display(), env!("CARGO_BIN_EXE_windlass"));
    let watch = ["watch", "--recover", "--ai-recovery", "--ai-agent-command", &agent];
    sandbox.windlass(&watch).exits(1);
    let jobs = &sandbox.json(&["status"])["jobs"];
    let counts = ["completed", "failed", "canceled"].map(|status| jobs[status].as_u64().unwrap());
    assert_eq!(counts, [2, 1, 1], "{jobs}");
    let report = sandbox.json(&["failures", "report"]);
    let told = ["is_agent", "decisions", "completed", "fails", "right"].map(|field| report[0][field].clone());
    assert_eq!(
        told,
        [json!(true), json!(2), json!(1), json!(1), json!(1)],
        "the failure was not reviewed: {report}"
    );
}

//! Agents that decide on unexpected failures: simulated agents with the real command line.

use crate::common::{Output, Sandbox, eventually, is_alive, kill};
use crate::recover::standing;
use crate::serve::{StoppedOnDrop, found};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;

const ODD: &str = "name: odd
use_pending_failed: true
jobs:
  - {name: odd, command: 'test -e fixed || { echo \"checksum of part 7 is odd\" >&2; exit 3; }'}
  - {name: after, command: 'true', depends_on: [odd]}
";

fn odd() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("odd.yaml", ODD);
    sandbox.windlass(&["run", "odd.yaml"]).exits(6);
    sandbox
}

fn script(sandbox: &Sandbox, name: &str, text: &str) -> String {
    sandbox.write(name, &format!("#!/bin/sh\n{text}\n"));
    let path = sandbox.path(name);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// The prompt and the output of the agent.
fn log(sandbox: &Sandbox) -> String {
    sandbox.read("windlass_output/agent_wf1_r1_1.log")
}

#[test]
fn agent_gets_prompt_and_its_decisions_apply() {
    let sandbox = odd();
    let binary = env!("CARGO_BIN_EXE_windlass");
    let agent = script(
        &sandbox,
        "agent",
        &format!(
            "cat > told; touch fixed; echo I looked into it; exec {binary} recover \"$WINDLASS_WORKFLOW_ID\" --retry-unknown"
        ),
    );
    let ai = ["recover", "--ai-recovery", "--ai-agent-command", &agent];
    sandbox
        .windlass(&ai)
        .exits(0)
        .says("it decided on 1 job of 1")
        .prints("no job has failed; 2 jobs are left to run");
    let told = sandbox.read("told");
    for part in [
        "workflow 1 (odd)",
        "list_pending_failed_jobs",
        "checksum of part 7 is odd",
        "mcp --allow-write --db",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    let log = log(&sandbox);
    assert!(log.contains("checksum of part 7") && log.contains("I looked into it"), "{log}");
    let decided = &sandbox.json(&["failures", "decisions"])[0];
    assert_eq!((&decided["made_by"], &decided["is_agent"]), (&json!("agent"), &json!(true)), "{decided}");
    sandbox.windlass(&["resume"]).exits(0).says("2 completed");
}

#[test]
fn watch_continues_after_agent_decision() {
    let sandbox = odd();
    let binary = env!("CARGO_BIN_EXE_windlass");
    let agent =
        format!("cat > /dev/null; touch fixed; {binary} recover \"$TORC_WORKFLOW_ID\" --retry-unknown");
    sandbox.windlass(&["watch"]).exits(6).says("are waiting for a decision");
    let ai = ["watch", "--ai-recovery", "--ai-agent-command", &agent];
    sandbox.windlass(&ai).exits(0).says("2 completed");
}

#[test]
fn missing_or_failing_agent_changes_nothing() {
    let sandbox = odd();
    let missing = ["recover", "--ai-recovery", "--ai-agent", "surely-no-such-agent"];
    sandbox.windlass(&missing).exits(1).says("is not installed").says("continuing without it").prints("odd");
    let failing = ["recover", "--ai-recovery", "--ai-agent-command", "echo no idea; exit 9"];
    sandbox.windlass(&failing).exits(1).says("failed (exit status: 9)").says("it decided on 0 jobs of 1");
    assert_eq!(standing(&sandbox)["odd"], json!(["pending_failed", 1]));
    assert!(log(&sandbox).contains("no idea"));
}

#[test]
fn agent_timeout_ends_its_processes() {
    let sandbox = odd();
    let agent = "sh -c 'echo $$ > child.pid; sleep 600' & wait";
    let ai = ["recover", "--ai-recovery", "--ai-timeout", "1s", "--ai-agent-command", agent];
    sandbox.windlass(&ai).exits(1).says("timed out after 1.0s");
    let child: u32 = sandbox.read("child.pid").trim().parse().unwrap();
    eventually("its child is gone too", || !is_alive(child));
}

/// Starts a process in a new session, which only its environment identifies as part of the agent.
const AWAY: &str =
    "(setsid sh -c 'echo $$ > away.pid; exec sleep 600' &); echo $$ > agent.pid; sleep 600 & wait";

fn pid_in(sandbox: &Sandbox, file: &str) -> u32 {
    sandbox.read(file).trim().parse().unwrap()
}

#[test]
fn agent_timeout_ends_detached_processes() {
    let sandbox = odd();
    let ai = ["recover", "--ai-recovery", "--ai-timeout", "3s", "--ai-agent-command", AWAY];
    sandbox.windlass(&ai).exits(1).says("timed out after 3.0s");
    let away = pid_in(&sandbox, "away.pid");
    eventually("what it sent away is gone too", || !is_alive(away));
}

#[test]
fn terminated_watch_ends_agent_first() {
    let sandbox = odd();
    let mut watch = sandbox.start(&["watch", "--ai-recovery", "--ai-agent-command", AWAY]);
    let is_written = |file: &str| sandbox.path(file).exists() && !sandbox.read(file).is_empty();
    eventually("the agent runs", || is_written("agent.pid") && is_written("away.pid"));
    kill(watch.id(), "TERM");
    let ended = watch.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(15), "{ended}");
    for file in ["agent.pid", "away.pid"] {
        let pid = pid_in(&sandbox, file);
        eventually("nothing of it is left", || !is_alive(pid));
    }
}

#[test]
fn claude_gets_mcp_server_config() {
    let sandbox = odd();
    script(
        &sandbox,
        "bin/claude",
        "for word; do echo \"$word\"; done > words; cp \"$WINDLASS_MCP_CONFIG\" config",
    );
    let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
    let mut command = sandbox.command(&["recover", "--ai-recovery"]);
    Output::of(command.env("PATH", path)).exits(1).says("running `claude` to decide about 1 job");
    let words = sandbox.read("words");
    assert!(words.starts_with("--print\nYou are responsible for workflow 1"), "{words}");
    assert!(
        words.contains("\n--mcp-config\n") && words.ends_with("\n--allowedTools\nmcp__windlass\n"),
        "{words}"
    );
    let config: Value = serde_json::from_str(&sandbox.read("config")).unwrap();
    let server = &config["mcpServers"]["windlass"];
    assert_eq!(
        (&server["args"][0], &server["args"][1]),
        (&json!("mcp"), &json!("--allow-write")),
        "{config}"
    );
}

#[test]
fn agent_is_not_started_without_pending_failures() {
    let sandbox = Sandbox::new();
    sandbox.write("f.yaml", "name: f\njobs: [{name: a, command: exit 3}]\n");
    sandbox.windlass(&["run", "f.yaml"]).exits(1);
    let ai = ["recover", "--ai-recovery", "--ai-agent-command", "touch asked"];
    sandbox.windlass(&ai).exits(1);
    assert!(!sandbox.path("asked").exists());
}

#[test]
fn agent_commands_are_recorded_as_agent_decisions() {
    let sandbox = odd();
    let binary = env!("CARGO_BIN_EXE_windlass");
    let text = format!(
        "cat > /dev/null; touch fixed; {binary} failures approve 1 2> settled; \
         {binary} failures retry odd --confidence 0.9 -r 'it is fixed'"
    );
    let agent = script(&sandbox, "thinker", &text);
    let ai = ["recover", "--ai-recovery", "--ai-agent-command", &agent];
    sandbox.windlass(&ai).exits(0).says("it decided on 1 job of 1");
    let decided = &sandbox.json(&["failures", "decisions"])[0];
    assert_eq!((&decided["made_by"], &decided["is_agent"]), (&json!("thinker"), &json!(true)), "{decided}");
    assert!(
        sandbox.read("settled").contains("agent `thinker` may not settle"),
        "{}",
        sandbox.read("settled")
    );
    sandbox
        .windlass(&["failures", "retry", "odd", "--confidence", "0.9", "-r", "x"])
        .exits(2)
        .says("for agents");
}

/// A policy that turns decisions of low confidence into proposals.
const STRICT: &str = "name: odd
use_pending_failed: true
triage: {min_confidence: 0.9}
jobs:
  - {name: odd, command: 'test -e fixed || { echo odd >&2; exit 3; }'}
";

/// An agent that removes its identity from the environment and then tries to approve its own proposal.
fn forgetful(binary: &str) -> String {
    let forget = "env -u WINDLASS_AGENT -u WINDLASS_AGENT_SESSION -u TORC_WORKFLOW_ID";
    format!(
        "cat > /dev/null; {binary} failures retry odd --confidence 0.1 -r 'a guess'; \
         {forget} {binary} failures approve 1 2> one; \
         {forget} setsid -w {binary} failures approve 1 2> two; \
         env -i PATH=\"$PATH\" HOME=\"$HOME\" PWD=\"$PWD\" {binary} failures approve 1 2> three; \
         (setsid sh -c '{forget} {binary} failures approve 1 2> four; touch over' &); \
         {forget} {binary} auth token create --name mine --scope read 2> five; \
         {forget} {binary} jobs update odd --command true 2>> five; \
         while [ ! -e over ]; do sleep 0.05; done"
    )
}

#[test]
fn agent_without_environment_cannot_approve_own_proposal() {
    let sandbox = Sandbox::new();
    sandbox.write("odd.yaml", STRICT);
    sandbox.windlass(&["run", "odd.yaml"]).exits(6);
    let agent = script(&sandbox, "forgetful", &forgetful(env!("CARGO_BIN_EXE_windlass")));
    let ai = ["recover", "--ai-recovery", "--ai-agent-command", &agent];
    sandbox.windlass(&ai).says("it decided on 0 jobs of 1");
    for file in ["one", "two", "three", "four"] {
        let said = sandbox.read(file);
        assert!(said.contains("agent `agent` may not settle proposals"), "{file}: {said}");
    }
    let said = sandbox.read("five");
    assert_eq!(said.matches("agents may not use this command").count(), 2, "{said}");
    let decided = &sandbox.json(&["failures", "decisions"])[0];
    assert_eq!(
        (&decided["state"], &decided["made_by"]),
        (&json!("proposed"), &json!("forgetful")),
        "{decided}"
    );
    sandbox.windlass(&["failures", "approve", "1"]).exits(0);
}

#[test]
fn agent_token_on_server_cannot_approve() {
    let sandbox = Sandbox::new();
    let _server = StoppedOnDrop::start(&sandbox, &[]);
    sandbox.write("odd.yaml", STRICT);
    sandbox.windlass(&["submit", "odd.yaml"]).exits(0);
    let mut worker = sandbox.start(&["worker", "--persistent"]);
    eventually("it waits for a decision", || sandbox.json(&["status"])["jobs"]["pending_failed"] == 1);
    let url = found(&sandbox)["url"].as_str().unwrap().to_owned();
    let binary = env!("CARGO_BIN_EXE_windlass");
    let call = |method: &str, path: &str, body: &str| {
        format!(
            "curl -s -o answer -w '%{{http_code}}\\n' -X {method} -H \"Authorization: Bearer $WINDLASS_TOKEN\" \
             -H 'Content-Type: application/json' -d '{body}' {url}/api/v1{path} >> codes; "
        )
    };
    let settle =
        r#"{"method":"carry_out","args":{"workflow":1,"wanted":{"settle":{"decision":1,"agreed":true}}}}"#;
    let text = [
        forgetful(binary),
        "; echo \"$WINDLASS_TOKEN\" > token; ".to_owned(),
        call("POST", "/workflows/1/decisions/1", r#"{"agreed":true}"#),
        call("POST", "/tokens", r#"{"name":"x","scopes":["write"]}"#),
        call("POST", "/workflows/1/start", "{}"),
        call("POST", "/workers", "{}"),
        call("DELETE", "/tokens/1", ""),
        call("GET", "/workflows/1/decisions", ""),
        call("POST", "/store", settle),
    ]
    .concat();
    let agent = script(&sandbox, "forgetful", &text);
    let ai = ["recover", "--ai-recovery", "--ai-agent-command", &agent];
    sandbox.windlass(&ai).says("it decided on 0 jobs of 1");
    let codes = sandbox.read("codes");
    let codes: Vec<&str> = codes.lines().collect();
    assert_eq!(codes, ["403", "403", "403", "403", "403", "200", "403"], "{}", sandbox.read("answer"));
    let decided = &sandbox.json(&["failures", "decisions"])[0];
    assert_eq!(decided["state"], "proposed", "{decided}");
    let tokens = sandbox.json(&["auth", "token", "list"]);
    let own = tokens.as_array().unwrap().iter().find(|token| token["name"] == "agent forgetful").unwrap();
    assert_eq!((&own["scopes"], &own["role"]), (&json!("agent"), &json!("user")), "{own}");
    assert!(own["revoked_at"].is_string(), "{own}");
    sandbox.windlass(&["failures", "approve", "1"]).exits(0);
    worker.kill().unwrap();
    worker.wait().unwrap();
}

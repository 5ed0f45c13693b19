//! Agents at `/mcp`: they see and do what whoever sent them may see and do.

use crate::access::token;
use crate::bench::Bench;
use serde_json::{Value, json};
use windlass_auth::Role;
use windlass_server::options::AgentRights;
use windlass_store::model::{Listed, NewJob, NewWorkflow};
use windlass_types::{Clock, WorkflowId};

fn workflow(bench: &Bench, user: &str) -> WorkflowId {
    let new =
        NewWorkflow { name: "w", user, submission_dir: "/", output_dir: "/out", ..NewWorkflow::default() };
    let job = NewJob { name: "j", command: "true", ..NewJob::default() };
    bench.store.create_workflow(&new, &mut Listed::new([job]), Clock.now()).unwrap()
}

/// One message of an agent, and the status and the answer.
fn say(bench: &Bench, token: &str, method: &str, params: &Value) -> (u16, Value) {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let http = reqwest::blocking::Client::new();
    let request = http.post(format!("{}/mcp", bench.server.url)).bearer_auth(token);
    let answer =
        request.header("accept", "application/json, text/event-stream").json(&message).send().unwrap();
    (answer.status().as_u16(), answer.json().unwrap_or_default())
}

/// The answer of a tool, or what it said when it refused.
fn call(bench: &Bench, token: &str, tool: &str, arguments: &Value) -> Result<Value, String> {
    let (_, answer) = say(bench, token, "tools/call", &json!({"name": tool, "arguments": arguments}));
    let result = &answer["result"];
    if result["isError"] == false {
        return Ok(result["structuredContent"].clone());
    }
    let text = result["content"][0]["text"].as_str().or(answer["error"]["message"].as_str());
    Err(text.unwrap_or_default().to_owned())
}

#[test]
fn an_agent_has_the_rights_of_whoever_sent_it() {
    let bench = Bench::with(|options| options.mcp = Some(AgentRights::Write));
    let id = workflow(&bench, "ada").0;
    let (ada, bob) = (token(&bench, "ada", Role::User, "write"), token(&bench, "bob", Role::User, "write"));
    let watcher = token(&bench, "ada", Role::Viewer, "write");
    let one = json!({"workflow_id": id});
    let sure = json!({"workflow_id": id, "confirm": true});

    assert_eq!(call(&bench, &ada, "get_workflow_status", &one).unwrap()["name"], "w");
    assert_eq!(call(&bench, &bob, "list_workflows", &json!({})).unwrap()["count"], 0);
    for (tool, asked) in [("get_workflow_status", &one), ("run_workflow", &sure), ("cancel_workflow", &sure)]
    {
        let said = call(&bench, &bob, tool, asked).unwrap_err();
        assert!(said.starts_with(&format!("there is no workflow {id}")), "{tool}: {said}");
    }
    assert!(call(&bench, &watcher, "get_workflow_status", &one).is_ok());
    assert!(call(&bench, &watcher, "run_workflow", &sure).is_err());
    assert!(call(&bench, &ada, "run_workflow", &one).unwrap_err().starts_with("nothing was done"));
    assert_eq!(call(&bench, &ada, "run_workflow", &sure).unwrap()["run_id"], 1);
}

#[test]
fn agents_are_let_in_only_by_a_token_and_only_where_they_are_wanted() {
    let bench = Bench::with(|options| options.mcp = Some(AgentRights::Read));
    let list = |token: &str| say(&bench, token, "tools/list", &json!({}));
    assert_eq!(list("wl_nobody").0, 401);
    let (status, answer) = list(&bench.server.token);
    assert_eq!(status, 200);
    let tools = answer["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["annotations"]["readOnlyHint"] == true), "{answer}");
    let page = bench.post("/mcp").header("origin", "http://page.example").json(&json!({})).send().unwrap();
    assert_eq!(page.status().as_u16(), 403);
    let silent = Bench::new();
    assert_eq!(say(&silent, &silent.server.token, "tools/list", &json!({})).0, 404);
}

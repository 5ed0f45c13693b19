//! Agents at `/mcp` have the permissions of their caller.

use crate::access::token;
use crate::failures::{ended, status, waiting};
use crate::running_workflows::Worker;
use crate::test_server::Fixture;
use serde_json::{Value, json};
use std::time::Duration;
use windlass_auth::UserRole;
use windlass_server::options::AgentPermission;
use windlass_store::model::{DecisionFilter, InMemoryJobSource, JobFilter, NewJob, NewWorkflow};
use windlass_types::{JobDefinition, SystemClock, WorkflowId};

fn workflow(fixture: &Fixture, user: &str) -> WorkflowId {
    let new =
        NewWorkflow { name: "w", user, submission_dir: "/", output_dir: "/out", ..NewWorkflow::default() };
    let job = NewJob::from(JobDefinition::new("j", "true"));
    fixture.store.create_workflow(&new, &mut InMemoryJobSource::new([job]), SystemClock.now()).unwrap()
}

/// Sends a message of an agent; returns the status and the response.
fn say(fixture: &Fixture, token: &str, method: &str, params: &Value) -> (u16, Value) {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let http = reqwest::blocking::Client::new();
    let request = http.post(format!("{}/mcp", fixture.server.url)).bearer_auth(token);
    let answer =
        request.header("accept", "application/json, text/event-stream").json(&message).send().unwrap();
    (answer.status().as_u16(), answer.json().unwrap_or_default())
}

/// The result of a tool, or its error.
fn call(fixture: &Fixture, token: &str, tool: &str, arguments: &Value) -> Result<Value, String> {
    let (_, answer) = say(fixture, token, "tools/call", &json!({"name": tool, "arguments": arguments}));
    let result = &answer["result"];
    if result["isError"] == false {
        return Ok(result["structuredContent"].clone());
    }
    let text = result["content"][0]["text"].as_str().or(answer["error"]["message"].as_str());
    Err(text.unwrap_or_default().to_owned())
}

#[test]
fn agent_has_the_permissions_of_its_user() {
    let fixture = Fixture::with(|options| options.mcp = Some(AgentPermission::Write));
    let id = workflow(&fixture, "ada").0;
    let (ada, bob) =
        (token(&fixture, "ada", UserRole::User, "write"), token(&fixture, "bob", UserRole::User, "write"));
    let watcher = token(&fixture, "ada", UserRole::Viewer, "write");
    let one = json!({"workflow_id": id});
    let sure = json!({"workflow_id": id, "confirm": true});

    assert_eq!(call(&fixture, &ada, "get_workflow_status", &one).unwrap()["name"], "w");
    assert_eq!(call(&fixture, &bob, "list_workflows", &json!({})).unwrap()["count"], 0);
    for (tool, asked) in [("get_workflow_status", &one), ("run_workflow", &sure), ("cancel_workflow", &sure)]
    {
        let said = call(&fixture, &bob, tool, asked).unwrap_err();
        assert!(said.starts_with(&format!("there is no workflow {id}")), "{tool}: {said}");
    }
    assert!(call(&fixture, &watcher, "get_workflow_status", &one).is_ok());
    assert!(call(&fixture, &watcher, "run_workflow", &sure).is_err());
    assert!(call(&fixture, &ada, "run_workflow", &one).unwrap_err().starts_with("nothing was done"));
    assert_eq!(call(&fixture, &ada, "run_workflow", &sure).unwrap()["run_id"], 1);
}

#[test]
fn mcp_requires_a_token_and_must_be_enabled() {
    let fixture = Fixture::with(|options| options.mcp = Some(AgentPermission::Read));
    let list = |token: &str| say(&fixture, token, "tools/list", &json!({}));
    assert_eq!(list("wl_unknown").0, 401);
    let (status, answer) = list(&fixture.server.token);
    assert_eq!(status, 200);
    let tools = answer["result"]["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["annotations"]["readOnlyHint"] == true), "{answer}");
    let page = fixture.post("/mcp").header("origin", "http://page.example").json(&json!({})).send().unwrap();
    assert_eq!(page.status().as_u16(), 403);
    let silent = Fixture::new();
    assert_eq!(say(&silent, &silent.server.token, "tools/list", &json!({})).0, 404);
}

const SPEC: &str =
    "name: made\nuser: eve\njobs: [{name: a, command: 'true'}, {name: b, command: 'true', depends_on: [a]}]";

#[test]
fn agent_creates_workflows_for_its_user() {
    let fixture = Fixture::with(|options| options.mcp = Some(AgentPermission::Write));
    let ada = token(&fixture, "ada", UserRole::User, "write");
    let watcher = token(&fixture, "ada", UserRole::Viewer, "write");
    let create =
        |dir: Option<&str>| json!({"spec_json": SPEC, "action": "create_workflow", "working_dir": dir});
    let nowhere = call(&fixture, &ada, "create_workflow", &create(None)).unwrap_err();
    assert!(nowhere.contains("working_dir"), "{nowhere}");
    assert!(call(&fixture, &watcher, "create_workflow", &create(Some("/data"))).is_err());
    assert!(fixture.store.workflows().unwrap().is_empty());

    let made = call(&fixture, &ada, "create_workflow", &create(Some("/data/"))).unwrap();
    assert_eq!((&made["name"], &made["jobs"]), (&json!("made"), &json!(2)));
    let id = made["workflow_id"].as_i64().unwrap();
    let row = fixture.store.workflow(WorkflowId(id)).unwrap().unwrap();
    assert_eq!((&*row.user, &*row.submission_dir), ("ada", "/data"), "regardless of the spec");
    assert_eq!(row.output_dir, "/data/windlass_output");
    let bad =
        json!({"spec_json": "name: x\njobs: [{name: a}]", "action": "create_workflow", "working_dir": "/"});
    assert_eq!(call(&fixture, &ada, "create_workflow", &bad).unwrap()["valid"], false);
    assert_eq!(
        call(&fixture, &ada, "run_workflow", &json!({"workflow_id": id, "confirm": true})).unwrap()["run_id"],
        1
    );
    let bob = token(&fixture, "bob", UserRole::User, "write");
    let job = fixture.store.jobs(WorkflowId(id), &JobFilter::default()).unwrap()[0].id;
    assert_eq!(call(&fixture, &ada, "get_job_details", &json!({"job_id": job})).unwrap()["name"], "a");
    for id in [job.0, 4711] {
        let said = call(&fixture, &bob, "get_job_details", &json!({"job_id": id})).unwrap_err();
        assert!(said.starts_with(&format!("there is no job {id}")), "{said}");
    }
}

#[test]
fn explain_job_reports_worker_time_left() {
    let fixture = Fixture::with(|options| options.mcp = Some(AgentPermission::Write));
    let me = fixture.server.token.clone();
    let ask = |tool: &str, arguments: Value| call(&fixture, &me, tool, &arguments).unwrap();
    let spec = "name: long\nresource_requirements: [{name: hour, num_cpus: 1, memory: 1m, runtime: PT1H}]\n\
                jobs: [{name: a, command: 'true', resource_requirements: hour}]";
    let made = json!({"spec_json": spec, "action": "create_workflow", "working_dir": "/"});
    let id = ask("create_workflow", made)["workflow_id"].clone();
    ask("run_workflow", json!({"workflow_id": id, "confirm": true}));
    let mut worker = Worker::join(&fixture);
    let mut said = worker.next(Duration::from_millis(50));
    said.time_left = Some(Duration::from_mins(10));
    worker.send(&fixture, &said);
    assert_eq!(worker.holds(), 0);
    let workflow = WorkflowId(id.as_i64().unwrap());
    let job = fixture.store.jobs(workflow, &JobFilter::default()).unwrap()[0].id;
    let why = ask("explain_job", json!({"job_id": job})).to_string();
    assert!(why.contains("and the job requests 1h"), "{why}");
}

#[test]
fn agent_recovers_and_resets_over_http() {
    let fixture = Fixture::with(|options| options.mcp = Some(AgentPermission::Write));
    let (workflow, jobs) = waiting(&fixture);
    let me = fixture.server.token.clone();
    let ask = |tool: &str, arguments: Value| call(&fixture, &me, tool, &arguments);
    let dry = ask("recover_workflow", json!({"workflow_id": workflow, "retry_unknown": true})).unwrap();
    assert_eq!(
        (&dry["dry_run"], &dry["run_again"], &dry["stay"]),
        (&json!(true), &json!(0), &json!(2)),
        "{dry}"
    );
    assert!(dry["jobs"][0]["stays_because"].as_str().unwrap().contains("waits for a decision"), "{dry}");

    let fail = json!([{"job_id": jobs[0], "action": "fail"}, {"job_id": jobs[1], "action": "fail"}]);
    ask(
        "classify_and_resolve_failures",
        json!({"workflow_id": workflow, "confirm": true, "classifications": fail}),
    )
    .unwrap();
    assert_eq!(status(&fixture, jobs[0]), "failed");
    let failed = ask("list_failed_jobs", json!({"workflow_id": workflow})).unwrap();
    assert_eq!(
        (&failed["groups"][0]["count"], failed["groups"].as_array().unwrap().len()),
        (&json!(2), 1),
        "{failed}"
    );
    let now = json!({"workflow_id": workflow, "retry_unknown": true, "dry_run": false});
    assert!(ask("recover_workflow", now.clone()).unwrap_err().starts_with("nothing was done"));
    let mut meant = now;
    meant["confirm"] = json!(true);
    meant["memory_multiplier"] = json!(0.5);
    assert!(ask("recover_workflow", meant.clone()).unwrap_err().contains("from 1 to 100"));
    meant["memory_multiplier"] = json!(2.0);
    let done = ask("recover_workflow", meant).unwrap();
    assert_eq!((&done["run_again"], &done["stay"]), (&json!(0), &json!(2)), "{done}");
    assert!(done["jobs"][0]["stays_because"].as_str().unwrap().contains("only a person"), "{done}");
    assert_eq!(status(&fixture, jobs[0]), "failed");

    // A failure without a decision.
    let (workflow, jobs) = ended(&fixture, "failed");
    let meant = json!({"workflow_id": workflow, "retry_unknown": true, "dry_run": false, "confirm": true});
    let done = ask("recover_workflow", meant).unwrap();
    assert_eq!((&done["run_again"], &done["refused"]), (&json!(2), &json!([])), "{done}");
    assert_eq!((status(&fixture, jobs[0]), status(&fixture, jobs[2])), (json!("ready"), json!("blocked")));
    let decisions = fixture.store.decisions(WorkflowId(workflow), &DecisionFilter::default()).unwrap();
    let last = decisions.last().unwrap();
    assert!(!last.is_agent && last.reason.starts_with("recover, requested by agent "), "{last:?}");

    let (workflow, jobs) = waiting(&fixture);
    let reset = json!({"workflow_id": workflow, "failed_only": true, "confirm": true});
    let refused = ask("reset_workflow_status", reset).unwrap_err();
    assert!(refused.contains("waits for a decision"), "{refused}");
    assert_eq!(status(&fixture, jobs[0]), "pending_failed");

    let (workflow, jobs) = ended(&fixture, "failed");
    let reset = json!({"workflow_id": workflow, "failed_only": true});
    assert!(ask("reset_workflow_status", reset.clone()).unwrap_err().starts_with("nothing was done"));
    let reset = json!({"workflow_id": workflow, "failed_only": true, "confirm": true});
    let done = ask("reset_workflow_status", reset).unwrap();
    assert!(done["jobs"].as_u64().unwrap() >= 2, "{done}");
    assert_ne!(status(&fixture, jobs[0]), "failed");
}

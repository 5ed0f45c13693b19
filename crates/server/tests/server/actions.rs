//! Actions as Torc clients see them: which are pending, and who can claim them.

use crate::test_server::Fixture;
use serde_json::{Value, json};

const PREFIX: &str = "/torc-service/v1";

fn call(fixture: &Fixture, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let method = method.parse().unwrap();
    let answer = fixture.request(method, &format!("{PREFIX}{path}")).json(body).send().unwrap();
    (answer.status().as_u16(), answer.json().unwrap())
}

fn made(fixture: &Fixture, path: &str, body: &Value) -> i64 {
    let (status, answer) = call(fixture, "POST", path, body);
    assert_eq!(status, 200, "{path}: {answer}");
    answer["id"].as_i64().unwrap()
}

#[test]
fn pending_action_is_claimed_once_or_once_per_worker() {
    let fixture = Fixture::new();
    let workflow = made(&fixture, "/workflows", &json!({"name": "w", "user": "me"}));
    let job = made(&fixture, "/jobs", &json!({"workflow_id": workflow, "name": "j", "command": "true"}));
    let path = format!("/workflows/{workflow}/actions");
    let add = |trigger: &str, jobs: Option<i64>, persistent: bool| {
        let body = json!({"workflow_id": workflow, "trigger_type": trigger, "action_type": "run_commands",
            "action_config": {"commands": ["true"]}, "job_ids": jobs.map(|job| [job]), "persistent": persistent});
        made(&fixture, &path, &body)
    };
    let (start, each) = (add("on_workflow_start", None, false), add("on_worker_start", None, true));
    let (over, last) = (add("on_jobs_complete", Some(job), false), add("on_workflow_complete", None, false));
    let pending = |query: &str| -> Vec<i64> {
        let (status, answer) = call(&fixture, "GET", &format!("{path}/pending{query}"), &json!(null));
        assert_eq!(status, 200, "{answer}");
        let is_ripe = |one: &Value| one["trigger_count"].as_i64() >= one["required_triggers"].as_i64();
        assert!(
            answer.as_array().unwrap().iter().all(|one| is_ripe(one) && one["executed"] == false),
            "{answer}"
        );
        answer.as_array().unwrap().iter().map(|one| one["id"].as_i64().unwrap()).collect()
    };
    assert_eq!(pending(""), [0i64; 0], "nothing has started");
    let begun = call(&fixture, "POST", &format!("/workflows/{workflow}/initialize_jobs"), &json!(null));
    assert_eq!(begun.0, 200, "{}", begun.1);
    assert_eq!(pending(""), [start, each]);
    assert_eq!(pending("?trigger_type=on_worker_start&trigger_type=on_jobs_complete"), [each]);

    let node = |pid: i64| {
        let body = json!({"workflow_id": workflow, "compute_node_type": "local", "hostname": "h", "memory_gb": 1.0,
            "num_cpus": 1, "num_gpus": 0, "num_nodes": 1, "pid": pid, "start_time": "2026-01-01T00:00:00Z"});
        made(&fixture, "/compute_nodes", &body)
    };
    let (one, two) = (node(1), node(2));
    let claim = |action: i64, node: i64| {
        let body = json!({"compute_node_id": node});
        call(&fixture, "POST", &format!("{path}/{action}/claim"), &body).0
    };
    assert_eq!((claim(start, one), claim(start, two)), (200, 409));
    assert_eq!((claim(each, one), claim(each, two), claim(each, two)), (200, 200, 409));
    assert_eq!((claim(last, one), claim(4711, one)), (409, 404));
    assert_eq!(pending(""), [each]);

    let claimed =
        call(&fixture, "POST", &format!("/workflows/{workflow}/claim_next_jobs?limit=1"), &json!(null));
    assert_eq!(claimed.0, 200, "{}", claimed.1);
    let run = fixture.store.workflow(windlass_types::WorkflowId(workflow)).unwrap().unwrap().run_id.0;
    let started = call(&fixture, "PUT", &format!("/jobs/{job}/start_job/{run}/{one}"), &json!(null));
    assert_eq!(started.0, 200, "{}", started.1);
    let result = json!({"workflow_id": workflow, "job_id": job, "run_id": run, "attempt_id": 1,
        "compute_node_id": one, "return_code": 0, "exec_time_minutes": 0.1,
        "completion_time": "2026-01-01T00:00:00Z", "status": "completed"});
    let completed = call(&fixture, "POST", &format!("/jobs/{job}/complete_job/completed/{run}"), &result);
    assert_eq!(completed.0, 200, "{}", completed.1);
    assert_eq!(pending(""), [each, over, last], "also when the run has ended");
    assert_eq!((claim(over, one), claim(last, one), claim(last, two)), (200, 200, 409));

    let (_, all) = call(&fixture, "GET", &path, &json!(null));
    let executed: Vec<bool> =
        all.as_array().unwrap().iter().map(|one| one["executed"].as_bool().unwrap()).collect();
    assert_eq!(executed, [true, false, true, true], "{all}");
    assert_eq!(all[0]["executed_by"], one);
}

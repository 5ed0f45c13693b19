//! Running workflows, and a simulated worker that speaks HTTP and executes nothing.

use crate::test_server::Fixture;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use windlass_store::model::{EventFilter, EventSeverity, InMemoryJobSource, NewWorkflow};
use windlass_types::worker_messages::{
    AttemptEndCause, AttemptEndReport, AttemptKey, AttemptReport, AttemptUsage, ProcessExit,
};
use windlass_types::worker_protocol::{
    AcceptedJobOwners, ExchangeReply, RegistrationReply, WorkerExchange, WorkerRegistration,
};
use windlass_types::{Bytes, Capacity, SystemClock, WorkflowId};

/// A workflow of this user, without jobs.
pub(crate) fn workflow_of(fixture: &Fixture, user: &str) -> WorkflowId {
    let new =
        NewWorkflow { name: "w", user, submission_dir: "/", output_dir: "/out", ..NewWorkflow::default() };
    fixture.store.create_workflow(&new, &mut InMemoryJobSource::new([]), SystemClock.now()).unwrap()
}

/// A started workflow of the owner with this number of jobs.
pub(crate) fn begun(fixture: &Fixture, jobs: usize) -> WorkflowId {
    begun_of(fixture, "owner", jobs)
}

/// The same of another user.
pub(crate) fn begun_of(fixture: &Fixture, user: &str, jobs: usize) -> WorkflowId {
    let workflow = workflow_of(fixture, user);
    start(fixture, workflow, jobs);
    workflow
}

/// Adds jobs to a workflow and starts it.
pub(crate) fn start(fixture: &Fixture, workflow: WorkflowId, jobs: usize) {
    let job = |n: usize| json!({"workflow_id": workflow.0, "name": format!("job{n}"), "command": "true"});
    let body = json!({"jobs": (0..jobs).map(job).collect::<Vec<_>>()});
    for (path, body) in
        [("/api/v1/bulk_jobs".to_owned(), body), (format!("/api/v1/workflows/{workflow}/start"), json!({}))]
    {
        let answer = fixture.post(&path).json(&body).send().unwrap();
        let (status, text) = (answer.status(), answer.text().unwrap());
        assert_eq!(status, 200, "{path}: {text}");
    }
}

pub(crate) fn introduction() -> WorkerRegistration {
    WorkerRegistration {
        site: "local".into(),
        host: "host".into(),
        boot_id: "boot".into(),
        pid: 1,
        pid_start_ticks: 1,
        capacity: Capacity { cpus: 4, memory: Bytes(64 << 30), gpus: 0, nodes: 1, max_jobs: None },
        version: String::new(),
        jobs_of: AcceptedJobOwners::Own,
        labels: Vec::new(),
        workflow: None,
        before: None,
        allocation: None,
        slurm: None,
    }
}

/// A worker of the owner.
pub(crate) struct Worker {
    welcome: RegistrationReply,
    number: u64,
    held: Vec<AttemptKey>,
}

impl Worker {
    pub(crate) fn join(fixture: &Fixture) -> Self {
        let answer = fixture.post("/api/v1/workers").json(&introduction()).send().unwrap();
        let welcome = answer.error_for_status().unwrap().json().unwrap();
        Self { welcome, number: 0, held: Vec::new() }
    }

    pub(crate) fn path(&self) -> String {
        format!("/api/v1/workers/{}/exchange", self.welcome.worker)
    }

    /// Its next exchange: all its jobs have ended.
    pub(crate) fn next(&mut self, wait: Duration) -> WorkerExchange {
        self.number += 1;
        let reports = self.held.drain(..).map(ended).collect();
        exchange(&self.welcome, self.number, reports, wait)
    }

    /// Sends an exchange, repeating it if necessary, and takes the assignments.
    pub(crate) fn send(&mut self, fixture: &Fixture, exchange: &WorkerExchange) {
        let answer = loop {
            let answer = fixture.post(&self.path()).json(exchange).send().unwrap();
            if answer.status() != 409 {
                break answer;
            }
            // One of its own earlier requests arrived after this one.
            assert_eq!(answer.json::<Value>().unwrap()["code"], "superseded");
        };
        let answer: ExchangeReply = answer.error_for_status().unwrap().json().unwrap();
        assert!(answer.stale.is_empty(), "{answer:?}");
        self.held.extend(answer.assignments.iter().map(|assignment| assignment.key));
    }

    /// Ends its jobs and takes more.
    pub(crate) fn work(&mut self, fixture: &Fixture) {
        let exchange = self.next(Duration::from_millis(50));
        self.send(fixture, &exchange);
    }

    pub(crate) fn holds(&self) -> usize {
        self.held.len()
    }
}

pub(crate) fn exchange(
    welcome: &RegistrationReply,
    number: u64,
    reports: Vec<AttemptReport>,
    wait: Duration,
) -> WorkerExchange {
    WorkerExchange {
        worker: welcome.worker,
        secret: welcome.secret.clone(),
        number,
        reports,
        actions: Vec::new(),
        wait,
        time_left: None,
        draining: false,
        leaving: false,
    }
}

pub(crate) fn ended(key: AttemptKey) -> AttemptReport {
    let at = SystemClock.now();
    AttemptReport::Ended(AttemptEndReport {
        key,
        started_at: at,
        ended_at: at,
        wall: Duration::from_secs(1),
        exit: ProcessExit::Code(0),
        cause: AttemptEndCause::Itself,
        usage: AttemptUsage::default(),
        files: None,
        last_words: None,
        recovered: None,
    })
}

#[test]
fn pending_failed_respects_workflow_setting_and_retries() {
    let fixture = Fixture::new();
    let stated = |workflow: WorkflowId, job: i64, status: &str| {
        let body = json!({
            "job_id": job, "workflow_id": workflow.0, "run_id": 1, "attempt_id": 1, "compute_node_id": 0,
            "return_code": 3, "exec_time_minutes": 0.1, "completion_time": "2026-01-01T00:00:00Z", "status": status,
        });
        let path = format!("/torc-service/v1/jobs/{job}/complete_job/{status}/1");
        let answer = fixture.post(&path).json(&body).send().unwrap();
        (answer.status().as_u16(), answer.json::<Value>().unwrap())
    };
    let claimed = |workflow: WorkflowId| {
        let path = format!("/torc-service/v1/workflows/{workflow}/claim_next_jobs?limit=1");
        let answer: Value = fixture.post(&path).send().unwrap().json().unwrap();
        answer["jobs"][0]["id"].as_i64().unwrap()
    };
    let without = begun(&fixture, 1);
    let job = claimed(without);
    let (status, answer) = stated(without, job, "pending_failed");
    assert_eq!(status, 422, "{answer}");
    assert!(answer.to_string().contains("does not use pending_failed"), "{answer}");
    assert_eq!(stated(without, job, "failed").0, 200);

    let with = begun(&fixture, 1);
    let path = format!("/torc-service/v1/workflows/{with}");
    let mut row: Value = fixture.get(&path).send().unwrap().json().unwrap();
    row["use_pending_failed"] = true.into();
    let changed = fixture.request(Method::PUT, &path).json(&row).send().unwrap();
    assert_eq!(changed.status(), 200, "{}", changed.text().unwrap());
    let job = claimed(with);
    assert_eq!(stated(with, job, "pending_failed").0, 200);
    let changed = |status: &str| format!("/torc-service/v1/jobs/{job}/manage_status_change/{status}/1");
    for (method, path) in [
        (Method::POST, format!("/torc-service/v1/jobs/{job}/retry/1?max_retries=9")),
        (Method::PUT, changed("ready")),
        (Method::PUT, changed("uninitialized")),
        (Method::PUT, changed("failed")),
        (Method::POST, format!("/torc-service/v1/workflows/{with}/reset_job_status?failed_only=true")),
    ] {
        let answer = fixture.request(method, &path).send().unwrap();
        let (status, answer) = (answer.status(), answer.text().unwrap());
        assert!(status.is_client_error(), "{path}: {status} {answer}");
        assert!(answer.contains("waits for a decision"), "{path}: {answer}");
    }
}

#[test]
fn fields_without_effect_are_reported() {
    let fixture = Fixture::new();
    let warnings = |body: &Value| {
        let answer: Value =
            fixture.post("/torc-service/v1/workflows").json(body).send().unwrap().json().unwrap();
        let workflow = WorkflowId(answer["id"].as_i64().unwrap());
        let filter = EventFilter { severity: Some(EventSeverity::Warning), ..EventFilter::default() };
        let events = fixture.store.events(Some(workflow), &filter).unwrap();
        events.into_iter().map(|event| event.message).collect::<Vec<_>>()
    };
    let body = |value: bool| {
        let config = json!({"staggered_start": value});
        json!({"name": "w", "user": "owner", "enable_ro_crate": value, "execution_config": config})
    };
    assert_eq!(warnings(&body(false)), [""; 0]);
    assert_eq!(
        warnings(&body(true)),
        [
            "`enable_ro_crate` has no effect: this version writes no RO-Crate",
            "`staggered_start` has no effect: workers start as soon as possible",
        ]
    );
}

#[test]
fn job_stdio_overrides_apply() {
    let fixture = Fixture::new();
    let overrides = json!({"quiet": {"mode": "none"}});
    let body = json!({
        "name": "w", "user": "owner",
        "execution_config": {"stdio": {"mode": "combined"}, "job_stdio_overrides": overrides},
    });
    let answer = fixture.post("/torc-service/v1/workflows").json(&body).send().unwrap();
    let (status, text) = (answer.status(), answer.text().unwrap());
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["execution_config"]["job_stdio_overrides"]["quiet"]["mode"], "none");
    let workflow = WorkflowId(answer["id"].as_i64().unwrap());
    for name in ["quiet", "loud"] {
        let body = json!({"workflow_id": workflow.0, "name": name, "command": "true"});
        assert_eq!(fixture.post("/torc-service/v1/jobs").json(&body).send().unwrap().status(), 200);
    }
    let started =
        fixture.post(&format!("/api/v1/workflows/{workflow}/start")).json(&json!({})).send().unwrap();
    assert_eq!(started.status(), 200);
    let mut worker = Worker::join(&fixture);
    let mut modes = Vec::new();
    while modes.len() < 2 {
        let exchange = worker.next(Duration::from_millis(50));
        let answer = fixture.post(&worker.path()).json(&exchange).send().unwrap();
        let answer: ExchangeReply = answer.error_for_status().unwrap().json().unwrap();
        modes.extend(answer.assignments.iter().map(|job| format!("{} {:?}", job.name, job.stdio.mode)));
    }
    modes.sort();
    assert_eq!(modes, ["loud Combined", "quiet None"]);
}

//! Workflows that run, and a worker that speaks over HTTP and executes nothing.

use crate::bench::Bench;
use serde_json::{Value, json};
use std::time::Duration;
use windlass_store::model::{Listed, NewWorkflow};
use windlass_types::fleet::{Exchange, ExchangeAnswer, Introduction, JobsOf, Welcome};
use windlass_types::work::{AttemptKey, EndCause, Ended, Exit, Report, Usage};
use windlass_types::{Bytes, Capacity, Clock, WorkflowId};

/// A workflow of this user, without jobs.
pub(crate) fn workflow_of(bench: &Bench, user: &str) -> WorkflowId {
    let new =
        NewWorkflow { name: "w", user, submission_dir: "/", output_dir: "/out", ..NewWorkflow::default() };
    bench.store.create_workflow(&new, &mut Listed::new([]), Clock.now()).unwrap()
}

/// A workflow of the owner with so many jobs, under way.
pub(crate) fn begun(bench: &Bench, jobs: usize) -> WorkflowId {
    begun_of(bench, "owner", jobs)
}

/// The same of somebody else.
pub(crate) fn begun_of(bench: &Bench, user: &str, jobs: usize) -> WorkflowId {
    let workflow = workflow_of(bench, user);
    let job = |n: usize| json!({"workflow_id": workflow.0, "name": format!("job{n}"), "command": "true"});
    let body = json!({"jobs": (0..jobs).map(job).collect::<Vec<_>>()});
    for (path, body) in
        [("/api/v1/bulk_jobs".to_owned(), body), (format!("/api/v1/workflows/{workflow}/start"), json!({}))]
    {
        let answer = bench.post(&path).json(&body).send().unwrap();
        let (status, text) = (answer.status(), answer.text().unwrap());
        assert_eq!(status, 200, "{path}: {text}");
    }
    workflow
}

pub(crate) fn introduction() -> Introduction {
    Introduction {
        site: "local".into(),
        host: "host".into(),
        boot_id: "boot".into(),
        pid: 1,
        pid_start_ticks: 1,
        capacity: Capacity { cpus: 4, memory: Bytes(64 << 30), gpus: 0, nodes: 1, max_jobs: None },
        version: String::new(),
        jobs_of: JobsOf::Own,
        labels: Vec::new(),
        workflow: None,
        before: None,
        allocation: None,
        slurm: None,
    }
}

/// A worker of the owner.
pub(crate) struct Worker {
    welcome: Welcome,
    number: u64,
    held: Vec<AttemptKey>,
}

impl Worker {
    pub(crate) fn join(bench: &Bench) -> Self {
        let answer = bench.post("/api/v1/workers").json(&introduction()).send().unwrap();
        let welcome = answer.error_for_status().unwrap().json().unwrap();
        Self { welcome, number: 0, held: Vec::new() }
    }

    pub(crate) fn path(&self) -> String {
        format!("/api/v1/workers/{}/exchange", self.welcome.worker)
    }

    /// Its next exchange: all it has has ended.
    pub(crate) fn next(&mut self, wait: Duration) -> Exchange {
        self.number += 1;
        let reports = self.held.drain(..).map(ended).collect();
        exchange(&self.welcome, self.number, reports, wait)
    }

    /// Says this, again if need be, and takes what it is given.
    pub(crate) fn send(&mut self, bench: &Bench, exchange: &Exchange) {
        let answer = loop {
            let answer = bench.post(&self.path()).json(exchange).send().unwrap();
            if answer.status() != 409 {
                break answer;
            }
            // A call of its own that it has hung up on came in later than this one.
            assert_eq!(answer.json::<Value>().unwrap()["code"], "superseded");
        };
        let answer: ExchangeAnswer = answer.error_for_status().unwrap().json().unwrap();
        assert!(answer.stale.is_empty(), "{answer:?}");
        self.held.extend(answer.assignments.iter().map(|assignment| assignment.key));
    }

    /// Ends what it has and takes more.
    pub(crate) fn work(&mut self, bench: &Bench) {
        let exchange = self.next(Duration::from_millis(50));
        self.send(bench, &exchange);
    }

    pub(crate) fn holds(&self) -> usize {
        self.held.len()
    }
}

pub(crate) fn exchange(welcome: &Welcome, number: u64, reports: Vec<Report>, wait: Duration) -> Exchange {
    Exchange {
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

pub(crate) fn ended(key: AttemptKey) -> Report {
    let at = Clock.now();
    Report::Ended(Ended {
        key,
        started_at: at,
        ended_at: at,
        wall: Duration::from_secs(1),
        exit: Exit::Code(0),
        cause: EndCause::Itself,
        usage: Usage::default(),
        files: None,
        last_words: None,
        recovered: None,
    })
}

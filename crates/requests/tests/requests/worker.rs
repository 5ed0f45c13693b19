//! A worker at a site that does in this process what `windlass payload …` does in another.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use windlass_payload::{PayloadFailure, StepControl, UnitWorkspace, cleanup, landing, merge, processing_job};
use windlass_scheduler::service::{
    CallError, CallReply, SchedulerHandle, WorkerCaller, WorkerOwner, WorkflowPredicate,
};
use windlass_types::worker_messages::{
    Assignment, AttemptEndCause, AttemptEndReport, AttemptReport, AttemptUsage, ProcessExit,
};
use windlass_types::worker_protocol::{
    AcceptedJobOwners, ExchangeReply, RegistrationReply, WorkerExchange, WorkerRegistration,
};
use windlass_types::{Bytes, Capacity, SystemClock};

/// Called before each job; `false`: the job fails, as on a machine with a bad disk.
pub(crate) type JobOutcome = Arc<dyn Fn(&Assignment) -> bool + Send + Sync>;

pub(crate) struct Worker {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start(
        service: &SchedulerHandle,
        site: &str,
        work_dir: &Path,
        job_outcome: JobOutcome,
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut hand = JobRunner {
            service: service.clone(),
            site: site.to_owned(),
            work_dir: work_dir.to_owned(),
            job_outcome,
            is_over: Arc::clone(&is_over),
        };
        let thread = thread::spawn(move || hand.work());
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "the worker panicked");
    }
}

struct JobRunner {
    service: SchedulerHandle,
    site: String,
    work_dir: PathBuf,
    job_outcome: JobOutcome,
    is_over: Arc<AtomicBool>,
}

impl JobRunner {
    /// Runs until it is stopped, or the service is gone.
    fn work(&mut self) {
        let Ok(RegistrationReply { worker, secret, .. }) = self.introduce() else { return };
        let mut reports = Vec::new();
        for number in 1.. {
            let leaving = self.is_over.load(Ordering::Relaxed) && reports.is_empty();
            let exchange = WorkerExchange {
                worker,
                secret: secret.clone(),
                number,
                reports: std::mem::take(&mut reports),
                actions: Vec::new(),
                wait: Duration::from_millis(50),
                time_left: None,
                draining: self.is_over.load(Ordering::Relaxed),
                leaving,
            };
            let Ok(answer) = self.exchange(exchange) else { return };

            if leaving {
                return;
            }
            reports = answer.assignments.iter().map(|assignment| self.carry_out(assignment)).collect();
        }
    }

    fn introduce(&self) -> Result<RegistrationReply, CallError> {
        let who = WorkerRegistration {
            jobs_of: AcceptedJobOwners::Own,
            host: "here".into(),
            boot_id: "b".into(),
            pid: 1,
            pid_start_ticks: 1,
            capacity: Capacity { cpus: 4, memory: Bytes(1 << 40), gpus: 0, nodes: 1, max_jobs: None },
            version: "test".into(),
            labels: Vec::new(),
            site: self.site.clone(),
            workflow: None,
            before: None,
            allocation: None,
            slurm: None,
        };
        let may: WorkflowPredicate = Arc::new(|_| true);
        let token_owner = WorkerOwner { user: "me".into(), sees_all: false, may_work_for: may };
        ask(|reply| self.service.register_worker(who, token_owner, reply))
    }

    fn exchange(&self, exchange: WorkerExchange) -> Result<ExchangeReply, CallError> {
        ask(|reply| self.service.exchange(exchange, WorkerCaller::User("me".into()), reply))
    }

    fn carry_out(&self, assignment: &Assignment) -> AttemptReport {
        let outcome = if (self.job_outcome)(assignment) {
            self.payload(assignment)
        } else {
            Err((5, "no luck".into()))
        };
        let (code, words) = match outcome {
            Ok(()) => (0, None),
            Err((code, words)) => (code, Some(words)),
        };
        let now = SystemClock.now();
        AttemptReport::Ended(AttemptEndReport {
            key: assignment.key,
            started_at: now,
            ended_at: now,
            wall: Duration::from_millis(1),
            exit: ProcessExit::Code(code),
            cause: AttemptEndCause::Itself,
            usage: AttemptUsage::default(),
            files: None,
            last_words: words,
            recovered: None,
        })
    }

    /// What the command line would do.
    fn payload(&self, assignment: &Assignment) -> Result<(), (i32, String)> {
        let words: Vec<&str> = assignment.command.split(' ').collect();
        let told = |failure: PayloadFailure| (1, failure.to_string());
        let [_, "payload", verb, manifest, ref rest @ ..] = words[..] else {
            panic!("not a windlass command: {}", assignment.command);
        };
        let place = UnitWorkspace::open(Path::new(manifest.trim_matches('\'')), &self.site).map_err(told)?;
        let control = StepControl::default();
        match (verb, rest) {
            ("land", []) => landing::run_landing(&place).map_err(told),
            ("run", ["--node", node]) => {
                let options = processing_job::ProcessingOptions {
                    node: node.parse().unwrap(),
                    attempt: assignment.key.attempt.0,
                    work_dir: &self.work_dir,
                    program: Path::new("/no/windlass"),
                    keep_scratch: false,
                };
                processing_job::run_node(&place, &options, &control).map(drop).map_err(told)
            }
            ("merge", []) => merge::merge_unit(&place, &self.work_dir, &control).map(drop).map_err(told),
            ("cleanup", []) => cleanup::cleanup_unit(&place, false).map(drop).map_err(told),
            _ => panic!("not a windlass command: {}", assignment.command),
        }
    }
}

/// Calls the service and waits for the answer.
fn ask<T: Send + 'static>(call: impl FnOnce(CallReply<T>)) -> Result<T, CallError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| sender.send(answer).unwrap_or_default()));
    receiver.recv().unwrap_or_else(|_| Err(CallError::Internal("it is gone".into())))
}

//! A worker that completes every assignment at once, and writes the outputs of merges.

use crate::fixture::{PassResult, SITE, USER};
use std::fs;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use windlass_scheduler::service::{
    CallError, CallReply, SchedulerHandle, WorkerCaller, WorkerOwner, WorkflowPredicate,
};
use windlass_types::payload::{MergeCounts, MergeOutput, MergedFile, WorkUnitManifest};
use windlass_types::worker_messages::{
    Assignment, AttemptEndCause, AttemptEndReport, AttemptReport, AttemptUsage, ProcessExit,
};
use windlass_types::worker_protocol::{
    AcceptedJobOwners, ExchangeReply, RegistrationReply, WorkerExchange, WorkerRegistration,
};
use windlass_types::{Bytes, Capacity, LumiMask, SystemClock};

pub(crate) struct ManualBackend<'s> {
    service: &'s SchedulerHandle,
    merged: usize,
}

impl<'s> ManualBackend<'s> {
    pub(crate) fn new(service: &'s SchedulerHandle) -> Self {
        Self { service, merged: 0 }
    }

    /// Completes assignments until this many units are merged, then leaves.
    pub(crate) fn complete(mut self, units: usize) -> PassResult<()> {
        let RegistrationReply { worker, secret, .. } =
            self.introduce().map_err(|refused| refused.to_string())?;
        let mut reports = Vec::new();
        for number in 1.. {
            let draining = self.merged >= units;
            let leaving = draining && reports.is_empty();
            let exchange = WorkerExchange {
                worker,
                secret: secret.clone(),
                number,
                reports: std::mem::take(&mut reports),
                actions: Vec::new(),
                wait: Duration::from_millis(100),
                time_left: None,
                draining,
                leaving,
            };
            let speaker = WorkerCaller::User(USER.into());
            let answer: Result<ExchangeReply, CallError> =
                ask(|reply| self.service.exchange(exchange, speaker, reply));
            let answer = answer.map_err(|refused| refused.to_string())?;
            if leaving {
                break;
            }
            for assignment in &answer.assignments {
                reports.push(self.carry_out(assignment)?);
            }
        }
        Ok(())
    }

    fn introduce(&self) -> Result<RegistrationReply, CallError> {
        let who = WorkerRegistration {
            jobs_of: AcceptedJobOwners::Own,
            host: "here".into(),
            boot_id: "b".into(),
            pid: 1,
            pid_start_ticks: 1,
            capacity: Capacity { cpus: 500, memory: Bytes(1 << 50), gpus: 0, nodes: 1, max_jobs: None },
            version: "bench".into(),
            labels: Vec::new(),
            site: SITE.into(),
            workflow: None,
            before: None,
            allocation: None,
            slurm: None,
        };
        let may: WorkflowPredicate = Arc::new(|_| true);
        let token_owner = WorkerOwner { user: USER.into(), sees_all: false, may_work_for: may };
        ask(|reply| self.service.register_worker(who, token_owner, reply))
    }

    fn carry_out(&mut self, assignment: &Assignment) -> PassResult<AttemptReport> {
        let words: Vec<&str> = assignment.command.split(' ').collect();
        if let [_, "payload", "merge", manifest] = words[..] {
            merge(Path::new(manifest.trim_matches('\'')))?;
            self.merged += 1;
        }
        let now = SystemClock.now();
        Ok(AttemptReport::Ended(AttemptEndReport {
            key: assignment.key,
            started_at: now,
            ended_at: now,
            wall: Duration::from_millis(1),
            exit: ProcessExit::Code(0),
            cause: AttemptEndCause::Itself,
            usage: AttemptUsage::default(),
            files: None,
            last_words: None,
            recovered: None,
        }))
    }
}

fn merge(path: &Path) -> PassResult<()> {
    let manifest: WorkUnitManifest = serde_json::from_slice(&fs::read(path)?)?;
    let merged = |dataset: &str| {
        let file = MergedFile {
            lfn: format!("/store/mc/{}/{}.root", dataset.replace('/', "_"), manifest.unit),
            size: 1_000_000,
            adler32: "00000001".into(),
            events: 100,
            lumis: LumiMask::default(),
            parents: Vec::new(),
        };
        (dataset.to_owned(), vec![file])
    };
    let output = MergeOutput {
        request: manifest.request.clone(),
        unit: manifest.unit.clone(),
        number: manifest.number,
        site: SITE.into(),
        datasets: manifest.outputs.iter().map(|output| merged(&output.dataset)).collect(),
        counts: MergeCounts::default(),
    };
    let directory = path.with_extension("");
    fs::create_dir_all(&directory)?;
    Ok(fs::write(directory.join("merge_output.json"), serde_json::to_vec(&output)?)?)
}

/// Calls the scheduler and waits for the reply.
fn ask<T: Send + 'static>(call: impl FnOnce(CallReply<T>)) -> Result<T, CallError> {
    let (sender, receiver) = mpsc::channel();
    call(Box::new(move |answer| sender.send(answer).unwrap_or_default()));
    receiver.recv().unwrap_or_else(|_| Err(CallError::Internal("it is gone".into())))
}

//! Workflows and changes for tests, with defaults for everything irrelevant.

use std::sync::mpsc;
use std::time::Duration;
use windlass_core::change::{AttemptResult, WorkflowChange};
use windlass_core::dependency_edges::DependencyEdges;
use windlass_store::model::{
    FirstIds, InMemoryJobSource, JobSource, NewFile, NewJob, NewRequirements, NewUserData, NewWorker,
    NewWorkflow,
};
use windlass_store::{ChangeBatch, Store, StoreError};
use windlass_types::worker_messages::{AttemptKey, AttemptUsage, ProcessExit};
use windlass_types::{
    Attempt, Bytes, Capacity, JobDefinition, JobId, JobStatus, RunId, StatusCounts, Timestamp, WorkerId,
    WorkflowId,
};

pub(crate) const RUN: RunId = RunId(1);
pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

/// An empty store, with everything that has to live as long.
pub(crate) struct Fixture<S: ?Sized = dyn Store> {
    pub(crate) store: Box<S>,
    pub(crate) _keep: Box<dyn std::any::Any>,
}

pub(crate) fn workflow<'a>(
    requirements: &'a [NewRequirements<'a>],
    edges: &'a DependencyEdges,
) -> NewWorkflow<'a> {
    NewWorkflow {
        name: "test",
        user: "ada",
        submission_dir: "/here",
        output_dir: "/here/out",
        requirements,
        edges,
        ..NewWorkflow::default()
    }
}

pub(crate) fn job<'a>(name: &str) -> NewJob<'a> {
    defined(JobDefinition::new(name, "true"))
}

/// A job of a new workflow with this definition.
pub(crate) fn defined<'a>(definition: JobDefinition<u32>) -> NewJob<'a> {
    definition.into()
}

/// Creates `n` ready jobs called `job_0000`, `job_0001`, …
pub(crate) fn create(store: &dyn Store, n: usize) -> (WorkflowId, Vec<JobId>) {
    let names: Vec<String> = (0..n).map(|i| format!("job_{i:04}")).collect();
    create_jobs(store, names.iter().map(|name| job(name)))
}

pub(crate) fn create_jobs<'j>(
    store: &dyn Store,
    jobs: impl Iterator<Item = NewJob<'j>>,
) -> (WorkflowId, Vec<JobId>) {
    let edges = DependencyEdges::default();
    let id = store.create_workflow(&workflow(&[], &edges), &mut InMemoryJobSource::new(jobs), NOW).unwrap();
    (id, store.load_jobs(id).unwrap().ids)
}

pub(crate) fn new_worker(workflow: WorkflowId) -> NewWorker {
    NewWorker {
        workflow: Some(workflow),
        run: Some(RUN),
        user: "ada".into(),
        host: "node1".into(),
        boot_id: "b007".into(),
        pid: 4711,
        pid_start_ticks: 123_456,
        token: "t0k3n".into(),
        ledger_path: "/here/ledger".into(),
        capacity: Capacity { cpus: 2, memory: Bytes(4 << 30), gpus: 1, nodes: 1, max_jobs: Some(7) },
        ..NewWorker::default()
    }
}

pub(crate) fn worker(store: &dyn Store, workflow: WorkflowId) -> WorkerId {
    store.add_worker(&new_worker(workflow), NOW).unwrap()
}

pub(crate) fn claim(job: JobId, attempt: u32, worker: WorkerId) -> WorkflowChange {
    WorkflowChange::Claim { job, attempt: Attempt(attempt), worker }
}

pub(crate) fn start(job: JobId, attempt: u32, worker: WorkerId) -> WorkflowChange {
    WorkflowChange::Start { job, attempt: Attempt(attempt), worker, at: NOW, pid: 99 }
}

/// The end of the attempt of a pending job; the job gets the state of the attempt.
pub(crate) fn end(key: AttemptKey, worker: WorkerId, status: JobStatus) -> WorkflowChange {
    let code = i32::from(status != JobStatus::Completed);
    WorkflowChange::End {
        from: JobStatus::Pending,
        to: status,
        result: AttemptResult {
            key,
            worker,
            status,
            return_code: code,
            exit: Some(ProcessExit::Code(code)),
            out_of_memory: false,
            reason: None,
            started_at: Some(NOW),
            ended_at: NOW,
            wall: Duration::from_millis(1500),
            usage: AttemptUsage::default(),
            files: None,
            recovered: None,
        },
        next_attempt: key.attempt,
        orphaned: false,
        failure: None,
        inherited: None,
    }
}

pub(crate) fn key(workflow: WorkflowId, job: JobId, attempt: u32) -> AttemptKey {
    AttemptKey { workflow, job, run: RUN, attempt: Attempt(attempt) }
}

/// Submits and waits for the result.
pub(crate) fn commit(
    store: &dyn Store,
    workflow: WorkflowId,
    changes: Vec<WorkflowChange>,
) -> Result<(), StoreError> {
    commit_batch(store, ChangeBatch { workflow, run: RUN, changes: changes.into() })
}

pub(crate) fn commit_batch(store: &dyn Store, batch: ChangeBatch) -> Result<(), StoreError> {
    let (sender, receiver) = mpsc::channel();
    store.submit(batch, Box::new(move |outcome| sender.send(outcome).unwrap()));
    receiver.recv().unwrap()
}

pub(crate) fn status_of(store: &dyn Store, workflow: WorkflowId, job: JobId) -> JobStatus {
    let table = store.load_jobs(workflow).unwrap();
    let index = table.ids.iter().position(|id| *id == job).unwrap();
    table.status[index]
}

/// Returns the stored counts, after comparing them with the jobs.
pub(crate) fn counts(store: &dyn Store, workflow: WorkflowId) -> StatusCounts {
    let mut counted = StatusCounts::default();
    for status in store.load_jobs(workflow).unwrap().status {
        counted.add(status, 1);
    }
    let kept = store.workflow(workflow).unwrap().unwrap().counts;
    assert_eq!(kept, counted, "the stored counts of workflow {workflow}");
    kept
}

/// A command that a source makes from the ids passed to it.
pub(crate) const IDS: &str = "true IDS";

/// A source that streams from lists.
#[derive(Default)]
pub(crate) struct ListSource<'a> {
    pub(crate) files: Vec<NewFile<'a>>,
    pub(crate) user_data: Vec<NewUserData<'a>>,
    pub(crate) jobs: Vec<NewJob<'a>>,
    /// The commands made for [`IDS`].
    pub(crate) command: String,
}

impl JobSource for ListSource<'_> {
    fn set_first_ids(&mut self, first: FirstIds) {
        self.command = format!("true {} {} {}", first.job, first.file, first.user_data);
        self.files.reverse();
        self.user_data.reverse();
        self.jobs.reverse();
    }

    fn next_file(&mut self) -> Option<NewFile<'_>> {
        self.files.pop()
    }

    fn next_user_data(&mut self) -> Option<NewUserData<'_>> {
        self.user_data.pop()
    }

    fn next_job(&mut self) -> Option<NewJob<'_>> {
        let mut job = self.jobs.pop()?;
        if job.definition.command == IDS {
            job.definition.to_mut().command.clone_from(&self.command);
        }
        Some(job)
    }
}

pub(crate) fn file<'a>(name: &'a str, path: &'a str) -> NewFile<'a> {
    NewFile { name, path, identifier: None, mtime_ns: None }
}

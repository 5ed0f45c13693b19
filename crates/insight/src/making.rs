//! From a spec to a workflow in the store. What the spec makes is lent to the store one at a time: commands are worked out
//! on the way and not kept.

use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use windlass_core::edges::{Edges, EdgesBuilder};
use windlass_spec::{File, Job, JobKind, UserData, Workflow};
use windlass_store::model::{
    DoneWork, FirstIds, JobSource, NewAction, NewFile, NewJob, NewKind, NewRequirements, NewUserData,
    NewWorkflow,
};
use windlass_store::{Error, Store};
use windlass_types::{JobId, JobStatus, Timestamp, WorkflowId};

/// What the spec itself does not say.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Whose it is, if the spec does not name anybody.
    pub user: &'a str,
    /// Where its jobs run, and where their output goes. Absolute.
    pub submission_dir: &'a str,
    pub output_dir: &'a str,
    /// Absolute; `None` if it lies in no file.
    pub spec_path: Option<&'a str>,
    pub spec_digest: &'a str,
}

/// Stores the workflow of a spec. What is reused counts as completed from the start.
pub fn create(
    store: &dyn Store,
    workflow: &Workflow<'_>,
    origin: Origin<'_>,
    reused: Option<&Reused>,
    now: Timestamp,
) -> Result<WorkflowId, Error> {
    let requirements: Vec<NewRequirements<'_>> = workflow
        .requirements()
        .iter()
        .map(|r| NewRequirements { name: &r.name, resources: r.resources })
        .collect();
    let kinds: Vec<NewKind<'_>> = workflow.kinds().iter().map(new_kind).collect();
    let actions: Vec<NewAction<'_>> =
        workflow.actions().iter().map(|a| NewAction { action: &a.action, jobs: &a.jobs }).collect();
    let new = NewWorkflow {
        name: workflow.name(),
        user: workflow.user().unwrap_or(origin.user),
        description: workflow.description(),
        submission_dir: origin.submission_dir,
        output_dir: origin.output_dir,
        spec_path: origin.spec_path,
        spec_digest: Some(origin.spec_digest),
        env: workflow.env(),
        stdio: workflow.stdio(),
        settings: Some(workflow.settings()),
        requirements: &requirements,
        failure_handlers: workflow.failure_handlers(),
        schedulers: workflow.schedulers(),
        kinds: &kinds,
        actions: &actions,
        edges: &edges(workflow),
    };
    store.create_workflow(&new, &mut SpecJobs::new(workflow, reused), now)
}

fn new_kind(kind: &JobKind) -> NewKind<'_> {
    NewKind {
        name: &kind.name,
        env: &kind.env,
        invocation_script: kind.invocation_script.as_deref(),
        stdio: kind.stdio,
        supports_termination: kind.supports_termination,
        failure_handler: kind.failure_handler,
        scheduler: kind.scheduler,
        labels: &kind.labels,
        sites: &kind.sites,
        limit: kind.limit.as_deref(),
        elects: false,
        parameters: &kind.parameters,
    }
}

/// What an earlier workflow has done already.
#[derive(Debug, Default)]
pub struct Reused {
    /// By number: the job that did the work of this one, and what is known of that.
    pub jobs: Vec<Option<ReusedJob>>,
    /// By number: what those jobs wrote.
    pub user_data: HashMap<u32, Value>,
}

#[derive(Debug)]
pub struct ReusedJob {
    pub from: JobId,
    pub work: Option<DoneWork>,
}

impl Reused {
    fn job(&self, number: usize) -> Option<&ReusedJob> {
        self.jobs.get(number)?.as_ref()
    }
}

/// The files, user data and jobs of a workflow, in that order.
#[derive(Debug)]
struct SpecJobs<'w> {
    workflow: &'w Workflow<'w>,
    files: std::ops::Range<usize>,
    user_data: std::ops::Range<usize>,
    jobs: std::ops::Range<usize>,
    first_user_data: i64,
    reused: Option<&'w Reused>,
    /// What was lent last lies in these.
    file: Option<File<'w>>,
    data: Option<UserData<'w>>,
    job: Buffers<'w>,
}

#[derive(Debug, Default)]
struct Buffers<'w> {
    command: Cow<'w, str>,
    env: Vec<(String, String)>,
    invocation_script: Option<String>,
    params: Option<String>,
    input_files: Vec<u32>,
    output_files: Vec<u32>,
    input_user_data: Vec<u32>,
    output_user_data: Vec<u32>,
}

impl<'w> SpecJobs<'w> {
    fn new(workflow: &'w Workflow<'w>, reused: Option<&'w Reused>) -> Self {
        Self {
            workflow,
            files: 0..workflow.file_count(),
            user_data: 0..workflow.user_data_count(),
            jobs: 0..workflow.job_count(),
            first_user_data: 0,
            reused,
            file: None,
            data: None,
            job: Buffers::default(),
        }
    }
}

impl JobSource for SpecJobs<'_> {
    fn start(&mut self, first: FirstIds) {
        self.first_user_data = first.user_data;
    }

    fn next_file(&mut self) -> Option<NewFile<'_>> {
        let file = self.file.insert(self.workflow.file(self.files.next()?));
        Some(NewFile {
            name: file.name,
            path: &file.path,
            identifier: file.identifier.as_deref(),
            mtime_ns: file.st_mtime.map(|seconds| (seconds * 1e9) as i64),
        })
    }

    fn next_user_data(&mut self) -> Option<NewUserData<'_>> {
        let number = self.user_data.next()?;
        let data = self.data.insert(self.workflow.user_data(number));
        let written = self.reused.and_then(|reused| reused.user_data.get(&(number as u32)));
        Some(NewUserData {
            name: data.name,
            data: written.or(data.data.as_deref()),
            is_ephemeral: data.is_ephemeral,
        })
    }

    fn next(&mut self) -> Option<NewJob<'_>> {
        let number = self.jobs.next()?;
        let job = self.workflow.job(number);
        let reused = self.reused.and_then(|reused| reused.job(number));
        self.job.fill(&job, self.first_user_data);
        Some(NewJob {
            name: job.name,
            command: &self.job.command,
            env: &self.job.env,
            invocation_script: self.job.invocation_script.as_deref(),
            params: self.job.params.as_deref(),
            kind: job.kind,
            requirements: job.requirements,
            unit: None,
            priority: job.priority,
            cancel_on_blocking_job_failure: job.cancel_on_blocking_job_failure,
            status: if reused.is_some() { JobStatus::Completed } else { status(&job, self.reused) },
            reused_from: reused.map(|job| job.from),
            reused_work: reused.and_then(|job| job.work.as_ref()),
            input_files: &self.job.input_files,
            output_files: &self.job.output_files,
            input_user_data: &self.job.input_user_data,
            output_user_data: &self.job.output_user_data,
        })
    }
}

impl<'w> Buffers<'w> {
    fn fill(&mut self, job: &Job<'w>, first_user_data: i64) {
        self.command = job.command(first_user_data);
        self.env = job.env();
        self.invocation_script = job.invocation_script();
        self.params = params(job);
        refill(&mut self.input_files, job.input_files());
        refill(&mut self.output_files, job.output_files());
        refill(&mut self.input_user_data, job.input_user_data());
        refill(&mut self.output_user_data, job.output_user_data());
    }
}

fn refill<'a>(numbers: &mut Vec<u32>, lists: impl Iterator<Item = &'a [u32]>) {
    numbers.clear();
    lists.for_each(|list| numbers.extend_from_slice(list));
}

fn status(job: &Job<'_>, reused: Option<&Reused>) -> JobStatus {
    let waits = match reused {
        None => job.depends_on().next().is_some(),
        Some(reused) => job.depends_on().flatten().any(|&on| reused.job(on as usize).is_none()),
    };
    if waits { JobStatus::Blocked } else { JobStatus::Ready }
}

/// The parameters as a JSON object, in their order.
fn params(job: &Job<'_>) -> Option<String> {
    let parameters = job.parameters();
    if parameters.is_empty() {
        return None;
    }
    let field =
        |(name, value): &(&str, windlass_spec::ParameterValue<'_>)| format!("\"{name}\":{}", value.to_json());
    let fields: Vec<String> = parameters.iter().map(field).collect();
    Some(format!("{{{}}}", fields.join(",")))
}

/// Who waits for whom.
pub fn edges(workflow: &Workflow<'_>) -> Edges {
    let mut builder = EdgesBuilder::default();
    for (number, job) in (0..).zip(workflow.jobs()) {
        for list in job.depends_on() {
            builder.depend_on_shared(number, list);
        }
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_spec::{NoAttachments, Source};

    #[test]
    fn what_a_spec_makes_is_lent_in_order() {
        let text = "
name: w
files:
  - {name: 'f{i}', path: 'out/{i}', parameters: {i: '1:2'}, st_mtime: 1.5}
user_data: [{name: u, data: {a: 1}}]
jobs:
  - {name: first, command: 'true'}
  - name: 'j{i}_{x}'
    command: 'cp ${files.output.f{i}} ${user_data.input.u}'
    depends_on: [first]
    env: {I: '{i}', SAME: s}
    parameters: {i: '1:2', x: [0.5]}
  - {name: last, command: 'true', input_file_regexes: ['^f']}
";
        let workflow = windlass_spec::load(Source::new("w.yaml", text.as_bytes()), &NoAttachments).unwrap();
        let mut source = SpecJobs::new(&workflow, None);
        source.start(FirstIds { job: 1, file: 1, user_data: 70 });
        let file = source.next_file().unwrap();
        assert_eq!((file.name, file.path, file.mtime_ns), ("f1", "out/1", Some(1_500_000_000)));
        assert_eq!(source.next_file().unwrap().path, "out/2");
        assert!(source.next_file().is_none());
        assert_eq!(source.next_user_data().unwrap().name, "u");
        assert!(source.next_user_data().is_none());
        let first = source.next().unwrap();
        assert_eq!((first.status, first.kind, first.params), (JobStatus::Ready, None, None));
        let second = source.next().unwrap();
        assert_eq!((second.name, second.command), ("j1_0.5", "cp out/1 70"));
        assert_eq!(second.env, [("I".to_owned(), "1".to_owned())]);
        assert_eq!((second.status, second.kind), (JobStatus::Blocked, Some(0)));
        assert_eq!(second.params, Some(r#"{"i":1,"x":0.5}"#));
        assert_eq!((second.output_files, second.input_user_data), (&[0][..], &[0][..]));
        assert_eq!(source.next().unwrap().output_files, [1]);
        assert_eq!(source.next().unwrap().input_files, [0, 1]);
        assert!(source.next().is_none());
        let edges = edges(&workflow);
        assert_eq!(edges.direct, [(1, 0), (2, 0)]);
        assert_eq!((edges.gates, edges.waits), (vec![vec![1, 2]], vec![(3, 0)]));
    }
    #[test]
    fn what_is_reused_is_done_and_frees_what_waits_only_for_it() {
        let text = "
name: w
user_data: [{name: u}]
jobs:
  - {name: a, command: 'true', output_user_data: [u]}
  - {name: b, command: 'true', depends_on: [a]}
  - {name: c, command: 'true', depends_on: [a, b]}
";
        let workflow = windlass_spec::load(Source::new("w.yaml", text.as_bytes()), &NoAttachments).unwrap();
        let reused = Reused {
            jobs: vec![Some(ReusedJob { from: JobId(7), work: None }), None, None],
            user_data: HashMap::from([(0, Value::from(5))]),
        };
        let mut source = SpecJobs::new(&workflow, Some(&reused));
        source.start(FirstIds { job: 1, file: 1, user_data: 1 });
        assert_eq!(source.next_user_data().unwrap().data, Some(&Value::from(5)));
        let a = source.next().unwrap();
        assert_eq!((a.status, a.reused_from), (JobStatus::Completed, Some(JobId(7))));
        assert_eq!(source.next().unwrap().status, JobStatus::Ready);
        assert_eq!(source.next().unwrap().status, JobStatus::Blocked);
    }
}

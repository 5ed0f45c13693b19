//! Stores the workflow of a spec. Jobs are passed to the store one at a time: commands are rendered on the
//! way and not kept in memory.

use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use windlass_core::dependency_edges::{DependencyEdges, DependencyEdgesBuilder};
use windlass_spec::{ResolvedFile, ResolvedJob, ResolvedUserData, ResolvedWorkflow};
use windlass_store::model::{
    CompletedWork, FirstIds, JobSource, NewAction, NewFile, NewJob, NewRequirements, NewUserData, NewWorkflow,
};
use windlass_store::{Store, StoreError};
use windlass_types::{JobDefinition, JobId, JobStatus, Timestamp, WorkflowId};

/// Settings that are not in the spec.
#[derive(Clone, Copy, Debug)]
pub struct WorkflowCreationOptions<'a> {
    /// Owner, if the spec does not name one.
    pub user: &'a str,
    /// Directories of the jobs and of their output. Absolute.
    pub submission_dir: &'a str,
    pub output_dir: &'a str,
    /// Path of the spec file, absolute; `None` if the spec is not a file.
    pub spec_path: Option<&'a str>,
    pub spec_digest: &'a str,
}

/// Stores the workflow of a spec. Reused jobs are completed from the start.
pub fn create_workflow(
    store: &dyn Store,
    workflow: &ResolvedWorkflow<'_>,
    origin: WorkflowCreationOptions<'_>,
    reused: Option<&ReusedJobs>,
    now: Timestamp,
) -> Result<WorkflowId, StoreError> {
    let requirements: Vec<NewRequirements<'_>> = workflow
        .requirements()
        .iter()
        .map(|r| NewRequirements { name: &r.name, resources: r.resources })
        .collect();
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
        job_groups: workflow.job_groups(),
        actions: &actions,
        edges: &dependency_edges(workflow),
    };
    store.create_workflow(&new, &mut SpecJobSource::new(workflow, reused), now)
}

/// Results of an earlier workflow that are reused.
#[derive(Debug, Default)]
pub struct ReusedJobs {
    /// By index: the earlier job and its result.
    pub jobs: Vec<Option<ReusedJob>>,
    /// By index: the user data that those jobs wrote.
    pub user_data: HashMap<u32, Value>,
}

#[derive(Debug)]
pub struct ReusedJob {
    pub from: JobId,
    pub work: Option<CompletedWork>,
}

impl ReusedJobs {
    fn job(&self, number: usize) -> Option<&ReusedJob> {
        self.jobs.get(number)?.as_ref()
    }
}

/// The files, user data and jobs of a workflow, in that order.
#[derive(Debug)]
struct SpecJobSource<'w> {
    workflow: &'w ResolvedWorkflow<'w>,
    files: std::ops::Range<usize>,
    user_data: std::ops::Range<usize>,
    jobs: std::ops::Range<usize>,
    first_user_data: i64,
    reused: Option<&'w ReusedJobs>,
    /// Buffers of the item that was passed last.
    file: Option<ResolvedFile<'w>>,
    data: Option<ResolvedUserData<'w>>,
    buffers: JobBuffers,
}

#[derive(Debug, Default)]
struct JobBuffers {
    definition: JobDefinition<u32>,
    params: Option<String>,
    input_files: Vec<u32>,
    output_files: Vec<u32>,
    input_user_data: Vec<u32>,
    output_user_data: Vec<u32>,
}

impl<'w> SpecJobSource<'w> {
    fn new(workflow: &'w ResolvedWorkflow<'w>, reused: Option<&'w ReusedJobs>) -> Self {
        Self {
            workflow,
            files: 0..workflow.file_count(),
            user_data: 0..workflow.user_data_count(),
            jobs: 0..workflow.job_count(),
            first_user_data: 0,
            reused,
            file: None,
            data: None,
            buffers: JobBuffers::default(),
        }
    }
}

impl JobSource for SpecJobSource<'_> {
    fn set_first_ids(&mut self, first: FirstIds) {
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

    fn next_job(&mut self) -> Option<NewJob<'_>> {
        let number = self.jobs.next()?;
        let job = self.workflow.job(number);
        let reused = self.reused.and_then(|reused| reused.job(number));
        self.buffers.fill(&job, self.first_user_data);
        Some(NewJob {
            definition: Cow::Borrowed(&self.buffers.definition),
            params: self.buffers.params.as_deref(),
            job_group: job.group,
            unit: None,
            status: if reused.is_some() { JobStatus::Completed } else { initial_status(&job, self.reused) },
            reused_from: reused.map(|job| job.from),
            reused_work: reused.and_then(|job| job.work.as_ref()),
            input_files: &self.buffers.input_files,
            output_files: &self.buffers.output_files,
            input_user_data: &self.buffers.input_user_data,
            output_user_data: &self.buffers.output_user_data,
        })
    }
}

impl JobBuffers {
    fn fill(&mut self, job: &ResolvedJob<'_>, first_user_data: i64) {
        job.fill_definition(&mut self.definition, first_user_data);
        self.params = params_json(job);
        refill_numbers(&mut self.input_files, job.input_files());
        refill_numbers(&mut self.output_files, job.output_files());
        refill_numbers(&mut self.input_user_data, job.input_user_data());
        refill_numbers(&mut self.output_user_data, job.output_user_data());
    }
}

fn refill_numbers<'a>(numbers: &mut Vec<u32>, lists: impl Iterator<Item = &'a [u32]>) {
    numbers.clear();
    lists.for_each(|list| numbers.extend_from_slice(list));
}

fn initial_status(job: &ResolvedJob<'_>, reused: Option<&ReusedJobs>) -> JobStatus {
    let waits = match reused {
        None => job.depends_on().next().is_some(),
        Some(reused) => job.depends_on().flatten().any(|&on| reused.job(on as usize).is_none()),
    };
    if waits { JobStatus::Blocked } else { JobStatus::Ready }
}

/// Returns the parameters as a JSON object, in their order.
fn params_json(job: &ResolvedJob<'_>) -> Option<String> {
    let parameters = job.parameters();
    if parameters.is_empty() {
        return None;
    }
    let field =
        |(name, value): &(&str, windlass_spec::ParameterValue<'_>)| format!("\"{name}\":{}", value.to_json());
    let fields: Vec<String> = parameters.iter().map(field).collect();
    Some(format!("{{{}}}", fields.join(",")))
}

/// Returns the dependencies between jobs.
pub fn dependency_edges(workflow: &ResolvedWorkflow<'_>) -> DependencyEdges {
    let mut builder = DependencyEdgesBuilder::default();
    for (number, job) in (0..).zip(workflow.jobs()) {
        for list in job.depends_on() {
            builder.add_shared_dependencies(number, list);
        }
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_spec::{NoAttachments, SpecSource};

    #[test]
    fn spec_objects_are_created_in_order() {
        let text = "
name: w
files:
  - {name: 'f{i}', path: 'out/{i}', parameters: {i: '1:2'}, st_mtime: 1.5}
user_data: [{name: u, data: {a: 1}}]
jobs:
  - {name: first, command: 'true'}
  - name: 'j{i}_{x}'
    command: 'cp ${files.output.f{i}} ${user_data.input.u}'
    description: 'Copies file {i}'
    depends_on: [first]
    env: {I: '{i}', SAME: s}
    parameters: {i: '1:2', x: [0.5]}
  - {name: last, command: 'true', input_file_regexes: ['^f']}
";
        let workflow =
            windlass_spec::load_spec(SpecSource::new("w.yaml", text.as_bytes()), &NoAttachments).unwrap();
        let mut source = SpecJobSource::new(&workflow, None);
        source.set_first_ids(FirstIds { job: 1, file: 1, user_data: 70 });
        let file = source.next_file().unwrap();
        assert_eq!((file.name, file.path, file.mtime_ns), ("f1", "out/1", Some(1_500_000_000)));
        assert_eq!(source.next_file().unwrap().path, "out/2");
        assert!(source.next_file().is_none());
        assert_eq!(source.next_user_data().unwrap().name, "u");
        assert!(source.next_user_data().is_none());
        let first = source.next_job().unwrap();
        assert_eq!((first.status, first.job_group, first.params), (JobStatus::Ready, None, None));
        let second = source.next_job().unwrap();
        assert_eq!((&*second.definition.name, &*second.definition.command), ("j1_0.5", "cp out/1 70"));
        assert_eq!(second.definition.options.description.as_deref(), Some("Copies file 1"));
        assert_eq!(second.definition.env, [("I".to_owned(), "1".to_owned())]);
        assert_eq!((second.status, second.job_group), (JobStatus::Blocked, Some(0)));
        assert_eq!(second.params, Some(r#"{"i":1,"x":0.5}"#));
        assert_eq!((second.output_files, second.input_user_data), (&[0][..], &[0][..]));
        assert_eq!(source.next_job().unwrap().output_files, [1]);
        assert_eq!(source.next_job().unwrap().input_files, [0, 1]);
        assert!(source.next_job().is_none());
        let edges = dependency_edges(&workflow);
        assert_eq!(edges.direct, [(1, 0), (2, 0)]);
        assert_eq!((edges.groups, edges.waits), (vec![vec![1, 2]], vec![(3, 0)]));
    }
    #[test]
    fn reused_jobs_are_completed_and_unblock_dependents() {
        let text = "
name: w
user_data: [{name: u}]
jobs:
  - {name: a, command: 'true', output_user_data: [u]}
  - {name: b, command: 'true', depends_on: [a]}
  - {name: c, command: 'true', depends_on: [a, b]}
";
        let workflow =
            windlass_spec::load_spec(SpecSource::new("w.yaml", text.as_bytes()), &NoAttachments).unwrap();
        let reused = ReusedJobs {
            jobs: vec![Some(ReusedJob { from: JobId(7), work: None }), None, None],
            user_data: HashMap::from([(0, Value::from(5))]),
        };
        let mut source = SpecJobSource::new(&workflow, Some(&reused));
        source.set_first_ids(FirstIds { job: 1, file: 1, user_data: 1 });
        assert_eq!(source.next_user_data().unwrap().data, Some(&Value::from(5)));
        let a = source.next_job().unwrap();
        assert_eq!((a.status, a.reused_from), (JobStatus::Completed, Some(JobId(7))));
        assert_eq!(source.next_job().unwrap().status, JobStatus::Ready);
        assert_eq!(source.next_job().unwrap().status, JobStatus::Blocked);
    }
}

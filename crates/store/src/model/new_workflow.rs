//! What goes into the store: workflows with their jobs, files and data, events, and changes to them.

use super::{CompletedWork, EventSeverity};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use windlass_core::edges::DependencyEdges;
use windlass_types::settings::{FailureHandler, SlurmScheduler, WorkflowAction, WorkflowSettings};
use windlass_types::worker_messages::{AttemptKey, StdioSettings};
use windlass_types::{JobGroupId, JobId, JobStatus, Resources, WorkflowId};

/// A workflow to be created, all but what a [`JobSource`] streams.
#[derive(Clone, Debug)]
pub struct NewWorkflow<'a> {
    pub name: &'a str,
    pub user: &'a str,
    pub description: Option<&'a str>,
    /// Absolute. Jobs run here.
    pub submission_dir: &'a str,
    /// Absolute. Logs go here.
    pub output_dir: &'a str,
    /// Absolute path of the spec file, if it came from one.
    pub spec_path: Option<&'a str>,
    /// Digest of what was created; the same text again is the same workflow (`windlass run` then resumes it).
    pub spec_digest: Option<&'a str>,
    /// Given to every job.
    pub env: &'a [(String, String)],
    pub stdio: StdioSettings,
    /// `None`: nothing was said.
    pub settings: Option<&'a WorkflowSettings>,
    pub requirements: &'a [NewRequirements<'a>],
    pub failure_handlers: &'a [FailureHandler],
    pub schedulers: &'a [SlurmScheduler],
    pub job_groups: &'a [NewJobGroup<'a>],
    pub actions: &'a [NewAction<'a>],
    pub edges: &'a DependencyEdges,
}

/// A nameless workflow of nobody, for filling in what does not matter.
impl Default for NewWorkflow<'_> {
    fn default() -> Self {
        static NONE: DependencyEdges =
            DependencyEdges { direct: Vec::new(), gates: Vec::new(), waits: Vec::new() };
        Self {
            name: "",
            user: "",
            description: None,
            submission_dir: "",
            output_dir: "",
            spec_path: None,
            spec_digest: None,
            env: &[],
            stdio: StdioSettings::default(),
            settings: None,
            requirements: &[],
            failure_handlers: &[],
            schedulers: &[],
            job_groups: &[],
            actions: &[],
            edges: &NONE,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct NewRequirements<'a> {
    pub name: &'a str,
    pub resources: Resources,
}

/// What the jobs of one entry of a spec share.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewJobGroup<'a> {
    /// As written: `solve_{nu}`.
    pub name: &'a str,
    pub env: &'a [(String, String)],
    pub invocation_script: Option<&'a str>,
    /// `None`: the workflow's.
    pub stdio: Option<StdioSettings>,
    pub supports_termination: Option<bool>,
    /// Index into [`NewWorkflow::failure_handlers`].
    pub failure_handler: Option<u32>,
    /// Index into [`NewWorkflow::schedulers`].
    pub scheduler: Option<u32>,
    pub labels: &'a [String],
    /// Where its jobs may run, any of them; empty: anywhere.
    pub sites: &'a [String],
    /// The limit of the workflow that its jobs count for.
    pub limit: Option<&'a str>,
    /// Where a job of it completes is where its unit is from then on.
    pub elects_site: bool,
    /// The names of its parameters, in the order written.
    pub parameters: &'a [String],
}

#[derive(Clone, Copy, Debug)]
pub struct NewAction<'a> {
    pub action: &'a WorkflowAction,
    /// The numbers of the jobs that its trigger waits for.
    pub jobs: &'a [u32],
}

/// The ids that the first job, file and piece of user data of a new workflow get; the others follow one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstIds {
    pub job: i64,
    pub file: i64,
    pub user_data: i64,
}

/// Where the parts of a new workflow come from, one at a time: a million of them need not be in memory at once.
///
/// Asked in this order: `start`, then every file, then all user data, then every job. What is given may lie in a buffer
/// of the source that the next call overwrites. The store is locked for writing meanwhile, so do not dawdle.
pub trait JobSource {
    /// Now it is known which ids there will be; commands may contain them.
    fn set_first_ids(&mut self, first: FirstIds);

    fn next_file(&mut self) -> Option<NewFile<'_>> {
        None
    }

    fn next_user_data(&mut self) -> Option<NewUserData<'_>> {
        None
    }

    /// The next job.
    fn next_job(&mut self) -> Option<NewJob<'_>>;
}

/// Jobs that are at hand, without files or user data.
#[derive(Debug)]
pub struct ListedJobs<'j, I> {
    jobs: I,
    _item: PhantomData<NewJob<'j>>,
}

impl<'j, I: Iterator<Item = NewJob<'j>>> ListedJobs<'j, I> {
    pub fn new(jobs: impl IntoIterator<IntoIter = I>) -> Self {
        Self { jobs: jobs.into_iter(), _item: PhantomData }
    }
}

impl<'j, I: Iterator<Item = NewJob<'j>>> JobSource for ListedJobs<'j, I> {
    fn set_first_ids(&mut self, _first: FirstIds) {}

    fn next_job(&mut self) -> Option<NewJob<'_>> {
        self.jobs.next()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    pub name: &'a str,
    /// Relative to the submission directory, or absolute.
    pub path: &'a str,
    pub identifier: Option<&'a str>,
    /// Nanoseconds since 1970, if it is known already.
    pub mtime_ns: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
pub struct NewUserData<'a> {
    pub name: &'a str,
    pub data: Option<&'a Value>,
    pub is_ephemeral: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct NewJob<'a> {
    pub name: &'a str,
    pub command: &'a str,
    /// On top of the kind's.
    pub env: &'a [(String, String)],
    /// Instead of the kind's.
    pub invocation_script: Option<&'a str>,
    /// What it was made with: the text of a JSON object, in the order of the parameters.
    pub params: Option<&'a str>,
    /// Index into [`NewWorkflow::kinds`].
    pub job_group: Option<u32>,
    /// Index into [`NewWorkflow::requirements`]; `None` is [`Resources::DEFAULT`], which limits nothing.
    pub requirements: Option<u32>,
    /// The number of the unit that it belongs to. Units whose number is lower are begun earlier.
    pub unit: Option<u32>,
    pub priority: i32,
    pub cancel_on_blocking_job_failure: bool,
    pub status: JobStatus,
    /// The job of an earlier workflow that did its work; its status is then `completed`.
    pub reused_from: Option<JobId>,
    /// What is known of that work, kept as a copy. The files in the order of this job's.
    pub reused_work: Option<&'a CompletedWork>,
    /// Numbers of files in the order given, from 0; repetitions count once.
    pub input_files: &'a [u32],
    pub output_files: &'a [u32],
    /// Numbers of user data, likewise.
    pub input_user_data: &'a [u32],
    pub output_user_data: &'a [u32],
}

/// A ready job that asks for nothing, for filling in what does not matter.
impl Default for NewJob<'_> {
    fn default() -> Self {
        Self {
            name: "",
            command: "",
            env: &[],
            invocation_script: None,
            params: None,
            job_group: None,
            requirements: None,
            unit: None,
            priority: 0,
            cancel_on_blocking_job_failure: true,
            status: JobStatus::Ready,
            reused_from: None,
            reused_work: None,
            input_files: &[],
            output_files: &[],
            input_user_data: &[],
            output_user_data: &[],
        }
    }
}

/// The category of events that tell of workers that could not start something.
pub const WORKER_PROBLEM_CATEGORY: &str = "worker_trouble";

/// Something to be noted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewEvent {
    /// `None`: about the whole database.
    pub workflow: Option<WorkflowId>,
    /// The job that it is about, if it is about one.
    pub job: Option<JobId>,
    pub severity: EventSeverity,
    /// One word for filtering: `workflow`, `run`, `jobs`, `user` …
    pub category: String,
    /// What happened, for people.
    pub message: String,
    /// The same for programs.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::given")]
    pub data: Option<Value>,
}

/// What to change about a workflow; `None` leaves it as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkflowUpdate {
    pub name: Option<String>,
    pub user: Option<String>,
    /// `Some(None)` removes it; so with `project`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::given")]
    pub description: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::given")]
    pub project: Option<Option<String>>,
    pub metadata: Option<BTreeMap<String, Value>>,
}

/// Gives a set of requirements new values, or makes one, and has jobs use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementsChange {
    /// Of the set: changed if there is one of that name, else made.
    pub name: String,
    pub resources: Resources,
    pub used_by: RequirementsUsers,
}

/// Who uses a changed set of requirements from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequirementsUsers {
    /// Whoever does already.
    AsBefore,
    Kind(JobGroupId),
    Jobs(Vec<JobId>),
}

/// Jobs that a running job adds to its workflow. That they make sense together was checked before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpawnRequest {
    /// The attempt that asks.
    pub caller: AttemptKey,
    /// Who counts the iterations. `None`: the lineage that the caller came from, else its own name.
    pub lineage: Option<String>,
    /// Kept as user data, a piece for each iteration.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "super::given")]
    pub state: Option<Value>,
    pub jobs: Vec<SpawnJob>,
}

/// A job to be added. It waits for the caller and for some of the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnJob {
    pub name: String,
    pub command: String,
    /// Numbers of jobs in the same request.
    pub depends_on: Vec<u32>,
    /// Name of a set of requirements that the workflow has.
    pub resource_requirements: Option<String>,
    pub priority: i32,
    pub labels: Vec<String>,
    pub cancel_on_blocking_job_failure: bool,
    pub env: Vec<(String, String)>,
    pub invocation_script: Option<String>,
}

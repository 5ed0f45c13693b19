//! Input of the store: workflows with their jobs, files and data, events, and changes of them.

use super::{CompletedWork, EventSeverity};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use windlass_core::dependency_edges::DependencyEdges;
use windlass_types::settings::{FailureHandler, SlurmScheduler, WorkflowAction, WorkflowSettings};
use windlass_types::worker_messages::{AttemptKey, StdioSettings};
use windlass_types::{JobDefinition, JobGroup, JobGroupId, JobId, JobStatus, Resources, WorkflowId};

/// A workflow to create, except for the parts that a [`JobSource`] streams.
#[derive(Clone, Debug)]
pub struct NewWorkflow<'a> {
    pub name: &'a str,
    pub user: &'a str,
    pub description: Option<&'a str>,
    /// Absolute. Jobs run here.
    pub submission_dir: &'a str,
    /// Absolute. Logs are written here.
    pub output_dir: &'a str,
    /// Absolute path of the spec file, if it came from one.
    pub spec_path: Option<&'a str>,
    /// Digest of the input; the same text again selects the same workflow (`windlass run` then resumes it).
    pub spec_digest: Option<&'a str>,
    /// Environment of every job.
    pub env: &'a [(String, String)],
    pub stdio: StdioSettings,
    /// `None`: not set.
    pub settings: Option<&'a WorkflowSettings>,
    pub requirements: &'a [NewRequirements<'a>],
    pub failure_handlers: &'a [FailureHandler],
    pub schedulers: &'a [SlurmScheduler],
    /// Their references are indices into `failure_handlers` and `schedulers`.
    pub job_groups: &'a [JobGroup<u32>],
    pub actions: &'a [NewAction<'a>],
    pub edges: &'a DependencyEdges,
}

/// A workflow without name and owner; a default for struct updates.
impl Default for NewWorkflow<'_> {
    fn default() -> Self {
        static NONE: DependencyEdges =
            DependencyEdges { direct: Vec::new(), groups: Vec::new(), waits: Vec::new() };
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

#[derive(Clone, Copy, Debug)]
pub struct NewAction<'a> {
    pub action: &'a WorkflowAction,
    /// Indices of the jobs that its trigger waits for.
    pub jobs: &'a [u32],
}

/// The first ids of the jobs, files and user data of a new workflow; the others follow consecutively.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstIds {
    pub job: i64,
    pub file: i64,
    pub user_data: i64,
}

/// Streams the parts of a new workflow one at a time, so that a million of them need not be in memory.
///
/// Call order: `start`, then every file, then all user data, then every job. Returned values may borrow a
/// buffer of the source that the next call overwrites. The store holds its write lock meanwhile, so sources
/// must be fast.
pub trait JobSource {
    /// Passes the ids that will be assigned; commands may contain them.
    fn set_first_ids(&mut self, first: FirstIds);

    fn next_file(&mut self) -> Option<NewFile<'_>> {
        None
    }

    fn next_user_data(&mut self) -> Option<NewUserData<'_>> {
        None
    }

    /// Returns the next job.
    fn next_job(&mut self) -> Option<NewJob<'_>>;
}

/// A source for jobs in memory, without files or user data.
#[derive(Debug)]
pub struct InMemoryJobSource<'j, I> {
    jobs: I,
    _item: PhantomData<NewJob<'j>>,
}

impl<'j, I: Iterator<Item = NewJob<'j>>> InMemoryJobSource<'j, I> {
    pub fn new(jobs: impl IntoIterator<IntoIter = I>) -> Self {
        Self { jobs: jobs.into_iter(), _item: PhantomData }
    }
}

impl<'j, I: Iterator<Item = NewJob<'j>>> JobSource for InMemoryJobSource<'j, I> {
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
    /// Nanoseconds since 1970, if already known.
    pub mtime_ns: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
pub struct NewUserData<'a> {
    pub name: &'a str,
    pub data: Option<&'a Value>,
    pub is_ephemeral: bool,
}

/// A job of a new workflow.
#[derive(Clone, Debug)]
pub struct NewJob<'a> {
    /// Its requirements are an index into [`NewWorkflow::requirements`]; its settings are those of its job group.
    pub definition: Cow<'a, JobDefinition<u32>>,
    /// Its parameters: the text of a JSON object, in the order of the parameters.
    pub params: Option<&'a str>,
    /// Index into [`NewWorkflow::job_groups`].
    pub job_group: Option<u32>,
    /// Number of its work unit. Units with lower numbers start first.
    pub unit: Option<u32>,
    pub status: JobStatus,
    /// The job of an earlier workflow whose work is reused; the status is then `completed`.
    pub reused_from: Option<JobId>,
    /// The record of that work, stored as a copy. Files are in the order of this job's files.
    pub reused_work: Option<&'a CompletedWork>,
    /// Indices of files in the order given, from 0; duplicates count once.
    pub input_files: &'a [u32],
    pub output_files: &'a [u32],
    /// Indices of user data, likewise.
    pub input_user_data: &'a [u32],
    pub output_user_data: &'a [u32],
}

impl<'a> NewJob<'a> {
    /// A ready job.
    pub const fn new(definition: Cow<'a, JobDefinition<u32>>) -> Self {
        Self {
            definition,
            params: None,
            job_group: None,
            unit: None,
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

impl From<JobDefinition<u32>> for NewJob<'_> {
    fn from(definition: JobDefinition<u32>) -> Self {
        Self::new(Cow::Owned(definition))
    }
}

/// The category of events about workers that could not start something.
pub const WORKER_PROBLEM_CATEGORY: &str = "worker_trouble";

/// Categories of events that only Windlass records: the scheduler reads some of them back after a restart, and
/// others show what users and workers did.
const RESERVED_EVENT_CATEGORIES: [&str; 11] = [
    "catalog",
    "events",
    "node_on_probation",
    "orders",
    "recovery_script",
    "report_reduced",
    "retry_budget",
    "scheduler_panic",
    "stale_report",
    "worker_lost",
    "worker_returned",
];

/// Whether clients may not add events of this category.
pub fn is_reserved_event_category(category: &str) -> bool {
    RESERVED_EVENT_CATEGORIES.contains(&category) || category.starts_with("allocation_")
}

/// An event to record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewEvent {
    /// `None`: about the whole database.
    pub workflow: Option<WorkflowId>,
    /// The affected job, if there is one.
    pub job: Option<JobId>,
    pub severity: EventSeverity,
    /// A category for filtering: `workflow`, `run`, `jobs`, `user` …
    pub category: String,
    /// Text for people.
    pub message: String,
    /// The same for programs.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::deserialize_present"
    )]
    pub data: Option<Value>,
}

/// Changes of a workflow; `None` leaves a field as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkflowUpdate {
    pub name: Option<String>,
    pub user: Option<String>,
    /// `Some(None)` removes it; the same holds for `project`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::deserialize_present")]
    pub description: Option<Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::deserialize_present")]
    pub project: Option<Option<String>>,
    pub metadata: Option<BTreeMap<String, Value>>,
}

/// Changes or creates a set of requirements and assigns it to jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementsChange {
    /// Name of the set, which is created if it does not exist.
    pub name: String,
    pub resources: Resources,
    pub used_by: RequirementsUsers,
}

/// The jobs that use a changed set of requirements from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequirementsUsers {
    /// The jobs that already use it.
    AsBefore,
    Kind(JobGroupId),
    Jobs(Vec<JobId>),
}

/// Jobs that a running job adds to its workflow, already validated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpawnRequest {
    /// The attempt that adds them.
    pub caller: AttemptKey,
    /// Name under which iterations are counted. `None`: the lineage of the caller, else the caller's name.
    pub lineage: Option<String>,
    /// Stored as user data, one for each iteration.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::deserialize_present"
    )]
    pub state: Option<Value>,
    pub jobs: Vec<SpawnJob>,
}

/// A job to add. It depends on the caller and on some of the other jobs. References are names in the workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnJob {
    #[serde(flatten)]
    pub definition: JobDefinition,
    /// Indices of jobs in the same request.
    pub depends_on: Vec<u32>,
}

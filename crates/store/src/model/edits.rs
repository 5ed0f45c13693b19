//! Manual edits of an existing workflow: jobs, files and requirements.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::time::Duration;
use windlass_types::{FileId, JobDefinition, JobId, RequirementsId, Resources, UserDataId};

/// A job to add to a workflow that does not run. It also depends on the producers of its inputs, and consumers
/// of its outputs depend on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddJob {
    /// References are ids.
    #[serde(flatten)]
    pub definition: JobDefinition<i64>,
    pub waits_for: Vec<JobId>,
    pub input_files: Vec<FileId>,
    pub output_files: Vec<FileId>,
    pub input_user_data: Vec<UserDataId>,
    pub output_user_data: Vec<UserDataId>,
    /// Stays `uninitialized`, neither ready nor blocked, until the workflow is initialized.
    pub is_uninitialized: bool,
}

impl From<JobDefinition<i64>> for AddJob {
    fn from(definition: JobDefinition<i64>) -> Self {
        Self { definition, ..Self::default() }
    }
}

/// Changes of a job; `None` leaves a field as it is, `Some(None)` removes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobUpdate {
    pub name: Option<String>,
    pub command: Option<String>,
    #[serde(
        default,
        deserialize_with = "super::deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub invocation_script: Option<Option<String>>,
    pub requirements: Option<RequirementsId>,
    /// Time limit. The job then gets requirements of its own.
    pub runtime: Option<Duration>,
    pub priority: Option<i32>,
    pub cancel_on_blocking_job_failure: Option<bool>,
    #[serde(
        default,
        deserialize_with = "super::deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub supports_termination: Option<Option<bool>>,
    #[serde(
        default,
        deserialize_with = "super::deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub failure_handler: Option<Option<i64>>,
    #[serde(
        default,
        deserialize_with = "super::deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub scheduler: Option<Option<i64>>,
    /// Replaces its dependencies.
    pub labels: Option<Vec<String>>,
    /// The job is skipped, and its dependents do not wait for it.
    pub disable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileUpdate {
    pub name: Option<String>,
    pub path: Option<String>,
    /// Expected current state of the file.
    pub mtime_ns: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementsUpdate {
    pub name: Option<String>,
    pub resources: Option<Resources>,
}

/// A field changed by an update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    pub field: Cow<'static, str>,
    pub old: Value,
    pub new: Value,
}

/// The relations of one job. Each list is ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRelations {
    /// Including those through dependency groups.
    pub waits_for: Vec<JobId>,
    pub input_files: Vec<FileId>,
    pub output_files: Vec<FileId>,
    pub input_user_data: Vec<UserDataId>,
    pub output_user_data: Vec<UserDataId>,
}

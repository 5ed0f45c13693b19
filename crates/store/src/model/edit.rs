//! What users change by hand in a workflow that is there: jobs, files and requirements, one at a time or a few.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::time::Duration;
use windlass_types::{FileId, JobId, RequirementsId, Resources, UserDataId};

/// A job to be added from outside, while nobody runs the workflow. It also waits for whoever writes what it reads, and
/// whoever reads what it writes waits for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddJob {
    pub name: String,
    pub command: String,
    pub requirements: Option<RequirementsId>,
    pub priority: i32,
    pub waits_for: Vec<JobId>,
    pub input_files: Vec<FileId>,
    pub output_files: Vec<FileId>,
}

/// What to change about a job; `None` leaves it as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUpdate {
    pub name: Option<String>,
    pub command: Option<String>,
    pub requirements: Option<RequirementsId>,
    /// The time it may take. It then has requirements of its own.
    pub runtime: Option<Duration>,
    pub priority: Option<i32>,
    /// In place of those that it has.
    pub labels: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUpdate {
    pub name: Option<String>,
    pub path: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequirementsUpdate {
    pub name: Option<String>,
    pub resources: Option<Resources>,
}

/// One thing that an update changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    pub field: Cow<'static, str>,
    pub old: Value,
    pub new: Value,
}

/// What hangs on one job. Each list ascends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRelations {
    /// Those behind gates included.
    pub waits_for: Vec<JobId>,
    pub input_files: Vec<FileId>,
    pub output_files: Vec<FileId>,
    pub input_user_data: Vec<UserDataId>,
    pub output_user_data: Vec<UserDataId>,
}

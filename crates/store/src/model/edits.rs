//! What users change by hand in a workflow that is there: jobs, files and requirements, one at a time or a few.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::time::Duration;
use windlass_types::worker_messages::StdioSettings;
use windlass_types::{FileId, JobId, RequirementsId, Resources, UserDataId};

/// A job to be added from outside, while nobody runs the workflow. It also waits for whoever writes what it reads, and
/// whoever reads what it writes waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddJob {
    pub name: String,
    pub command: String,
    pub invocation_script: Option<String>,
    pub env: Vec<(String, String)>,
    pub requirements: Option<RequirementsId>,
    pub priority: i32,
    pub cancel_on_blocking_job_failure: bool,
    pub supports_termination: Option<bool>,
    pub stdio: Option<StdioSettings>,
    pub labels: Vec<String>,
    pub failure_handler: Option<i64>,
    pub scheduler: Option<i64>,
    pub waits_for: Vec<JobId>,
    pub input_files: Vec<FileId>,
    pub output_files: Vec<FileId>,
    pub input_user_data: Vec<UserDataId>,
    pub output_user_data: Vec<UserDataId>,
    /// Nobody looks at it before the workflow is initialised: it is neither ready nor blocked.
    pub is_uninitialized: bool,
}

/// A nameless job that asks for nothing, for filling in what does not matter.
impl Default for AddJob {
    fn default() -> Self {
        Self {
            name: String::new(),
            command: String::new(),
            invocation_script: None,
            env: Vec::new(),
            requirements: None,
            priority: 0,
            cancel_on_blocking_job_failure: true,
            supports_termination: None,
            stdio: None,
            labels: Vec::new(),
            failure_handler: None,
            scheduler: None,
            waits_for: Vec::new(),
            input_files: Vec::new(),
            output_files: Vec::new(),
            input_user_data: Vec::new(),
            output_user_data: Vec::new(),
            is_uninitialized: false,
        }
    }
}

/// What to change about a job; `None` leaves it as it is, `Some(None)` takes it away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobUpdate {
    pub name: Option<String>,
    pub command: Option<String>,
    #[serde(default, deserialize_with = "super::given", skip_serializing_if = "Option::is_none")]
    pub invocation_script: Option<Option<String>>,
    pub requirements: Option<RequirementsId>,
    /// The time it may take. It then has requirements of its own.
    pub runtime: Option<Duration>,
    pub priority: Option<i32>,
    pub cancel_on_blocking_job_failure: Option<bool>,
    #[serde(default, deserialize_with = "super::given", skip_serializing_if = "Option::is_none")]
    pub supports_termination: Option<Option<bool>>,
    #[serde(default, deserialize_with = "super::given", skip_serializing_if = "Option::is_none")]
    pub failure_handler: Option<Option<i64>>,
    #[serde(default, deserialize_with = "super::given", skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<Option<i64>>,
    /// In place of those that it has.
    pub labels: Option<Vec<String>>,
    /// It is left out, and those that wait for it need not.
    pub disable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileUpdate {
    pub name: Option<String>,
    pub path: Option<String>,
    /// As somebody has seen it.
    pub mtime_ns: Option<i64>,
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

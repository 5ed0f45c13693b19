//! Errors over RPC: a code and a message for all clients, and details from which Windlass clients restore the
//! same error.

use crate::lock::LockHolder;
use crate::{JobAttemptState, LockedObject, StoreError};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{
    EventId, FileId, JobId, RequirementsId, ResultId, RunId, UserDataId, WorkerId, WorkflowId,
};

/// An error of a remote store, or of the connection to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteError {
    pub category: ErrorCategory,
    /// Stable identifier.
    pub code: String,
    pub message: String,
    pub hint: Option<String>,
}

/// The category of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCategory {
    /// The object does not exist.
    Missing,
    /// The request is invalid.
    Wrong,
    /// Not possible in the current state.
    Refused,
    /// Unauthenticated, or not permitted.
    Forbidden,
    /// Disk, network or database: a retry may succeed.
    #[serde(rename = "surroundings")]
    Unavailable,
    /// A bug.
    Internal,
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<RemoteError> for StoreError {
    fn from(elsewhere: RemoteError) -> Self {
        Self::Remote(Arc::new(elsewhere))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WireError {
    pub code: String,
    pub sort: ErrorCategory,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Details for clients that know the error.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "as_far_as_known")]
    told: Option<ErrorDetail>,
}

/// A newer server may send unknown details; then only the message is used.
fn as_far_as_known<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<ErrorDetail>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

impl WireError {
    pub(super) fn not_offered(what: &str) -> Self {
        Self {
            code: "not_offered".to_owned(),
            sort: ErrorCategory::Refused,
            message: format!("not available from a server, which runs the workflows itself: {what}"),
            hint: None,
            told: None,
        }
    }

    pub(super) fn not_understood(error: &serde_json::Error) -> Self {
        Self {
            code: "not_understood".to_owned(),
            sort: ErrorCategory::Internal,
            message: format!("unexpected response of the server: {error}"),
            hint: Some("use the same version of server and command line".to_owned()),
            told: None,
        }
    }

    /// HTTP status.
    pub(super) const fn http_status(&self) -> u16 {
        match self.sort {
            ErrorCategory::Missing => 404,
            ErrorCategory::Wrong => 422,
            ErrorCategory::Refused => 409,
            ErrorCategory::Forbidden => 403,
            ErrorCategory::Unavailable => 503,
            ErrorCategory::Internal => 500,
        }
    }
}

impl From<&StoreError> for WireError {
    fn from(error: &StoreError) -> Self {
        let (code, sort) = (error.code().to_owned(), error.category());
        Self {
            code,
            sort,
            message: render_with_sources(error),
            hint: error.hint(),
            told: ErrorDetail::from_error(error),
        }
    }
}

impl From<WireError> for StoreError {
    fn from(error: WireError) -> Self {
        let WireError { code, sort, message, hint, told } = error;
        told.map_or_else(|| RemoteError { category: sort, code, message, hint }.into(), Self::from)
    }
}

/// Renders the error and its causes on one line.
fn render_with_sources(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Lists the errors whose fields are transferred; generates [`ErrorDetail`] and the conversions from and to
/// [`StoreError`].
macro_rules! transferred_errors {
    ($($code:literal $sort:ident $variant:ident $({ $($field:ident: $type:ty),* })? $(($inner:ident: $inner_type:ty))?;)*) => {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum ErrorDetail {
            $($variant $({ $($field: $type),* })? $(($inner_type))?,)*
        }

        impl ErrorDetail {
            fn from_error(error: &StoreError) -> Option<Self> {
                Some(match error {
                    $(StoreError::$variant $({ $($field),* })? $(($inner))? =>
                        Self::$variant $({ $($field: $field.to_owned().into()),* })? $(($inner.to_owned()))?,)*
                    _ => return None,
                })
            }
        }

        impl From<ErrorDetail> for StoreError {
            fn from(told: ErrorDetail) -> Self {
                match told {
                    $(ErrorDetail::$variant $({ $($field),* })? $(($inner))? =>
                        Self::$variant $({ $($field: $field.into()),* })? $(($inner))?,)*
                }
            }
        }

        impl StoreError {
            /// Returns a stable identifier of the error, for programs.
            pub fn code(&self) -> &str {
                match self {
                    $(Self::$variant { .. } => $code,)*
                    Self::DiskFull { .. } => "disk_full",
                    Self::Disk { .. } => "disk",
                    Self::LockTimeout { .. } => "locked_out",
                    Self::ReadOnly { .. } => "read_only",
                    Self::FileRemoved { .. } => "database_gone",
                    Self::Truncated { .. } | Self::Damaged { .. } => "damaged",
                    Self::Refused { .. } | Self::Internal { .. } | Self::Closed => "internal",
                    Self::Remote(elsewhere) => &elsewhere.code,
                    _ => "database",
                }
            }

            /// Returns the category of the error.
            pub fn category(&self) -> ErrorCategory {
                match self {
                    $(Self::$variant { .. } => ErrorCategory::$sort,)*
                    Self::Remote(elsewhere) => elsewhere.category,
                    Self::Refused { .. } | Self::Internal { .. } | Self::Closed => ErrorCategory::Internal,
                    _ => ErrorCategory::Unavailable,
                }
            }
        }
    };
}

transferred_errors! {
    "busy" Refused Busy { what: LockedObject, holder: Option<LockHolder> };
    "no_such_workflow" Missing NoSuchWorkflow(id: WorkflowId);
    "no_such_job" Missing NoSuchJob(id: JobId);
    "no_such_worker" Missing NoSuchWorker(id: WorkerId);
    "no_such_user_data" Missing NoSuchUserData(id: UserDataId);
    "no_such_requirements" Missing NoSuchRequirements { name: String };
    "no_such_requirements" Missing NoSuchRequirementsId(id: RequirementsId);
    "no_such_file" Missing NoSuchFile(id: FileId);
    "no_such_event" Missing NoSuchEvent(id: EventId);
    "event_is_record" Refused EventIsRecord(id: EventId);
    "no_such_result" Missing NoSuchResult(id: ResultId);
    "no_such_thing" Missing NoSuch { what: String, id: i64 };
    "no_such_thing" Missing NoSuchName { what: String, name: String };
    "no_such_member" Missing NoSuchMember { user: String, group: String };
    "name_taken" Refused NameTaken { what: String, name: String };
    "output_taken" Refused OutputTaken { dataset: String, by: String };
    "not_owner" Refused NotOwner { dataset: String, owner: Option<String> };
    "job_is_held" Refused JobIsHeld { job: JobId, name: String };
    "in_use" Refused InUse { what: String, by: String };
    "circle" Wrong Circle { jobs: Vec<String> };
    "duplicate_name" Wrong DuplicateJobName { name: String };
    "duplicate_name" Wrong DuplicateName { what: String, name: String };
    "conflict" Refused Conflict { workflow: WorkflowId, job: JobId, expected: JobAttemptState, found: Option<JobAttemptState> };
    "outdated" Refused Outdated { request: String, expected: i64, found: i64 };
    "conflict" Refused Unexpected { what: String, expected: String, found: String };
    "stale_run" Refused StaleRun { workflow: WorkflowId, expected: RunId, found: RunId };
    "run_not_begun" Internal RunNotBegun { workflow: WorkflowId, run: RunId };
    "still_active" Refused StillActive { workflow: WorkflowId, held: u64 };
    "not_buried" Refused WorkersMayBeAlive { workflow: WorkflowId, workers: usize };
    "not_running" Refused NotRunning { caller: AttemptKey };
    "too_many_iterations" Refused TooManyIterations { lineage: String, max: u32 };
    "action" Refused Action { id: i64, what: String };
    "bad_export" Wrong BadExport { what: String };
    "out_of_range" Wrong OutOfRange { what: String };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over_the_wire(error: &StoreError) -> StoreError {
        let text = serde_json::to_string(&WireError::from(error)).unwrap();
        serde_json::from_str::<WireError>(&text).unwrap().into()
    }

    #[test]
    fn request_errors_are_restored_from_the_wire() {
        let held = StoreError::JobIsHeld { job: JobId(3), name: "a".into() };
        let arrived = over_the_wire(&held);
        assert!(matches!(&arrived, StoreError::JobIsHeld { job: JobId(3), name } if name == "a"));
        assert_eq!(arrived.hint(), held.hint());
        let two = StoreError::DuplicateName { what: "files".into(), name: "f".into() };
        assert_eq!(over_the_wire(&two).to_string(), two.to_string());
    }

    #[test]
    fn database_errors_keep_their_text() {
        let source = Arc::new(rusqlite::Error::InvalidQuery);
        let full = StoreError::DiskFull { path: "/data/w.db".into(), space: None, source };
        let arrived = over_the_wire(&full);
        assert!(arrived.to_string().starts_with(&full.to_string()), "{arrived}");
        assert_eq!((arrived.hint(), arrived.category()), (full.hint(), ErrorCategory::Unavailable));
    }

    #[test]
    fn unknown_errors_of_newer_servers_keep_their_text() {
        let text =
            r#"{"code":"new","sort":"refused","message":"no","hint":"ask","told":{"something_new":1}}"#;
        let error = StoreError::from(serde_json::from_str::<WireError>(text).unwrap());
        assert_eq!((error.to_string().as_str(), error.hint().as_deref()), ("no", Some("ask")));
    }
}

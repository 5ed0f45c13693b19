//! Errors of a request: failed attempts grouped by cause, and suggested actions.

use super::ReleaseRequest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use windlass_types::requests::RequestStatus;
use windlass_types::{FailureClass, Timestamp};

/// Failed attempts of a request, most frequent first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestErrors {
    /// Name of the request.
    pub request_name: String,
    /// Status of the request.
    #[schema(value_type = String)]
    pub status: RequestStatus,
    /// Why the request is held, failed or aborted.
    pub reason: Option<String>,
    /// Current round, counted from 0; `null` if nothing is planned yet.
    pub round: Option<u32>,
    /// Whether all rounds are counted; otherwise the current round and its rescues.
    pub all: bool,
    /// Runs with known failed attempts, oldest first.
    pub dags: Vec<String>,
    /// Attempts that ended, successfully or not.
    pub attempts_ended: u64,
    /// Number of failed attempts.
    pub attempts_failed: u64,
    /// Failed attempts by failure class.
    pub by_category: Vec<ErrorsOfCategory>,
    /// Failed attempts by site.
    pub by_site: Vec<ErrorsOfSite>,
    /// Failed attempts by exit code.
    pub by_exit_code: Vec<ErrorsOfCode>,
    /// Input files that caused permanent failures.
    pub bad_files: Vec<ErrorsOfFile>,
    /// Number of bad files that are not listed.
    pub more_bad_files: u64,
    /// Failed attempts grouped by error and site.
    pub kinds: Vec<ErrorsOfSignature>,
    /// Failed attempts of kinds that are not listed.
    pub of_other_kinds: u64,
    /// All suggested changes together, as the body of a release.
    pub suggestions: Vec<RecoverySuggestion>,
    /// Body of a release that follows all suggestions.
    pub suggested_release: ReleaseRequest,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorsOfCategory {
    /// Failure class.
    #[schema(value_type = String)]
    pub category: FailureClass,
    /// Number of failed attempts.
    pub attempts: u64,
    /// Failed attempts that were not followed by another attempt.
    pub for_good: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorsOfSite {
    /// Name of the site.
    pub site_name: String,
    /// Attempts that ended at the site, successfully or not.
    pub ended: u64,
    /// Number of failed attempts.
    pub failed: u64,
    /// Failed attempts that the site may have caused.
    pub blamed: u64,
    /// Whether the site is banned for this request.
    pub is_banned: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorsOfCode {
    /// Exit code of the failed attempts.
    pub exit_code: i32,
    /// Number of failed attempts.
    pub attempts: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorsOfFile {
    /// Logical name of the file.
    pub lfn: String,
    /// Attempts that failed because of the file.
    pub attempts: u64,
    /// Sites where reading the file failed.
    pub sites: Vec<String>,
    /// Work units that failed permanently because of the file.
    pub work_units: Vec<u32>,
}

/// Similar failures: same category and exit code, and the same message except for numbers and paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorsOfSignature {
    /// Failure class.
    #[schema(value_type = String)]
    pub category: FailureClass,
    /// Exit code of the failed attempts.
    pub exit_code: i32,
    /// Signature shared by these failures.
    pub signature: String,
    /// Message of the first failure.
    pub message: String,
    /// Number of failed attempts.
    pub attempts: u64,
    /// Failed attempts that were not followed by another attempt.
    pub for_good: u64,
    /// Number of failed attempts by site.
    pub sites: BTreeMap<String, u64>,
    /// Some of the affected work units.
    pub work_units: Vec<u32>,
    /// One failed job as an example: `mg_000003/proc_000001`.
    pub example: String,
    /// End of its output.
    pub log_tail: String,
    /// When the first of them failed.
    #[schema(value_type = String)]
    pub first_at: Timestamp,
    /// When the latest of them failed.
    #[schema(value_type = String)]
    pub last_at: Timestamp,
    /// What may help.
    pub suggestion: String,
}

/// A suggested action.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecoverySuggestion {
    /// What may help, in words.
    pub text: String,
    /// Number of failed attempts that support the suggestion.
    pub attempts: u64,
    /// The action as the body of a release; `null` if a release alone does not help.
    pub release: Option<ReleaseRequest>,
}

//! What went wrong in a request: failed attempts summed up by what they have in common, and what might be done about them.

use super::ReleaseRequest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use windlass_types::requests::RequestStatus;
use windlass_types::{FailureClass, Timestamp};

/// The failed attempts of a request. The most frequent come first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RequestErrors {
    pub request_name: String,
    #[schema(value_type = String)]
    pub status: RequestStatus,
    /// Why it is held, failed or aborted.
    pub reason: Option<String>,
    /// The present round, counted from 0; `null`: nothing is planned yet.
    pub round: Option<u32>,
    /// Over all rounds; otherwise over the present one and its rescues.
    pub all: bool,
    /// Runs that failed attempts are known of, the oldest first.
    pub dags: Vec<String>,
    /// Attempts that ended, well or not.
    pub attempts_ended: u64,
    pub attempts_failed: u64,
    pub by_category: Vec<ErrorsOfCategory>,
    pub by_site: Vec<ErrorsOfSite>,
    pub by_exit_code: Vec<ErrorsOfCode>,
    pub bad_files: Vec<ErrorsOfFile>,
    /// Named, but not listed.
    pub more_bad_files: u64,
    pub kinds: Vec<ErrorsOfKind>,
    /// Failed attempts of kinds that are not listed.
    pub of_other_kinds: u64,
    /// What might be done, and for whom that is enough: all of it as the body of a release.
    pub suggestions: Vec<RecoverySuggestion>,
    pub suggested_release: ReleaseRequest,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorsOfCategory {
    #[schema(value_type = String)]
    pub category: FailureClass,
    pub attempts: u64,
    /// Those of them that no other attempt followed.
    pub for_good: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorsOfSite {
    pub site_name: String,
    /// Attempts that ended there, well or not.
    pub ended: u64,
    pub failed: u64,
    /// Those of them that the site may be the cause of.
    pub blamed: u64,
    /// It gets nothing of this request now.
    pub is_banned: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorsOfCode {
    pub exit_code: i32,
    pub attempts: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorsOfFile {
    pub lfn: String,
    /// Attempts that failed because of it.
    pub attempts: u64,
    pub sites: Vec<String>,
    /// Those that failed for good because of it.
    pub work_units: Vec<u32>,
}

/// Failures alike: of one category, with one code, that said the same but for numbers and paths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorsOfKind {
    #[schema(value_type = String)]
    pub category: FailureClass,
    pub exit_code: i32,
    /// The same for all that failed alike.
    pub signature: String,
    /// That of the first one.
    pub message: String,
    pub attempts: u64,
    /// Those of them that no other attempt followed.
    pub for_good: u64,
    /// How many at which site.
    pub sites: BTreeMap<String, u64>,
    /// The first of them.
    pub work_units: Vec<u32>,
    /// Where one is to be looked at: `mg_000003/proc_000001`.
    pub example: String,
    /// What it said last.
    pub log_tail: String,
    #[schema(value_type = String)]
    pub first_at: Timestamp,
    #[schema(value_type = String)]
    pub last_at: Timestamp,
    pub suggestion: String,
}

/// Something that might be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RecoverySuggestion {
    pub text: String,
    /// So many failed attempts speak for it.
    pub attempts: u64,
    /// As the body of a release; `null`: that does not help by itself.
    pub release: Option<ReleaseRequest>,
}

//! Storage of requests: their states, output steps, and the sites that they may use. Decides nothing.

use crate::StoreError;
use crate::model::{
    AlertFilter, AttemptCountsBySite, FailedAttempt, OutputStepFilter, RequestCounts, RequestFilter,
    RequestRunFilter, SettingRow, SiteBanFilter, SiteUsage,
};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::requests::RequestView;
use windlass_core::requests::change::RequestCommit;
use windlass_core::requests::failures::FailureTally;
use windlass_core::requests::rows::{
    AlertRow, BlockRow, NewAlert, NewBan, OutputStep, RequestFileCounts, RequestFileRow, RequestFileState,
    RequestProgress, RequestRow, RunEvent, RunRow, SiteBan, SiteRow, StatusTransition,
};
use windlass_types::requests::{Request, RequestStatus, SiteStatus};
use windlass_types::{Timestamp, WorkflowId};

/// Implemented by databases only, not available over RPC: clients of a server use its REST API.
pub trait RequestStore: Send + Sync {
    /// Creates a request and returns its version. Rejected if the name is taken, or one of its output datasets
    /// ([`StoreError::OutputTaken`]).
    fn add_request(
        &self,
        request: &Request,
        status: RequestStatus,
        by: &str,
        now: Timestamp,
    ) -> Result<i64, StoreError>;
    fn request(&self, name: &str) -> Result<Option<RequestRow>, StoreError>;
    /// Returns why a request may not write to a dataset: another request does, or it is already in the catalog.
    /// `None`: it may.
    fn output_taken_by(&self, dataset: &str, request: &str) -> Result<Option<String>, StoreError>;
    fn requests(&self, filter: &RequestFilter) -> Result<Vec<RequestRow>, StoreError>;
    /// Counts requests without offset and limit.
    fn count_requests(&self, filter: &RequestFilter) -> Result<u64, StoreError>;
    /// Returns names and versions of all requests that have not ended, by name.
    fn open_requests(&self) -> Result<Vec<(String, i64)>, StoreError>;
    /// Returns names of ended requests that still have pending output steps. Usually there are none.
    fn requests_with_pending_steps(&self) -> Result<Vec<String>, StoreError>;
    /// Loads requests with everything that a decision about them needs, by name, in one snapshot; without their
    /// `payload_config`, which may be large and is never used for decisions. Unknown names are skipped. Takes a
    /// few statements per thousand requests.
    fn load_request_views(&self, requests: &[String]) -> Result<Vec<RequestView>, StoreError>;
    /// Oldest first.
    fn transitions(&self, request: &str) -> Result<Vec<StatusTransition>, StoreError>;
    /// Applies commits. Each is applied whole or not at all, and all share one disk commit. Returns the result
    /// of each, in order: the new version of the request, [`StoreError::Outdated`] if its version is not the
    /// one in the commit, or [`StoreError::Unexpected`] if an object is not in the state that a change names.
    fn apply_requests(&self, commits: &[RequestCommit]) -> Vec<Result<i64, StoreError>>;
    /// Deletes a request with all its records except alerts. Rejected unless it has ended, and while a later
    /// version refers to it.
    fn delete_request(&self, name: &str) -> Result<(), StoreError>;

    fn process(&self, request: &str) -> Result<Option<RequestProgress>, StoreError>;
    fn process_by_uuid(&self, uuid: &str) -> Result<Option<RequestProgress>, StoreError>;
    /// In the order of creation, by process.
    fn request_runs(&self, filter: &RequestRunFilter) -> Result<Vec<RunRow>, StoreError>;
    fn request_run(&self, uuid: &str) -> Result<Option<RunRow>, StoreError>;
    /// Oldest first.
    fn run_history(&self, uuid: &str) -> Result<Vec<RunEvent>, StoreError>;
    /// Returns the request that has this workflow of the engine as a run, if any.
    fn request_of_workflow(&self, workflow: WorkflowId) -> Result<Option<String>, StoreError>;
    /// Returns the first `most` failed attempts in a workflow of the engine with sequence numbers above
    /// `after`. The cost does not depend on the number of earlier ones.
    fn failed_attempts(
        &self,
        workflow: WorkflowId,
        after: i64,
        most: usize,
    ) -> Result<Vec<FailedAttempt>, StoreError>;
    /// Counts ended attempts by site, over all runs of a workflow with work units.
    fn site_counts(&self, workflow: WorkflowId) -> Result<AttemptCountsBySite, StoreError>;
    /// By dataset and index.
    fn processing_blocks(&self, process: &str) -> Result<Vec<BlockRow>, StoreError>;
    /// By due time.
    fn output_steps(&self, filter: &OutputStepFilter) -> Result<Vec<OutputStep>, StoreError>;
    /// Returns input files that rounds have used, by name.
    fn file_rows(&self, process: &str) -> Result<Vec<RequestFileRow>, StoreError>;
    /// Returns a page of them, in these states only if any are given.
    fn list_file_rows(
        &self,
        process: &str,
        states: &[RequestFileState],
        offset: u64,
        limit: u64,
    ) -> Result<Vec<RequestFileRow>, StoreError>;
    fn file_counts(&self, process: &str) -> Result<RequestFileCounts, StoreError>;
    /// Replaces the records of these files, all or none. Idempotent.
    fn put_file_rows(&self, process: &str, rows: &[RequestFileRow]) -> Result<(), StoreError>;
    /// Returns work units of a round whose outputs are registered, or will be: their inputs are not processed
    /// again. Ascending.
    fn registered_work_units(&self, process: &str, round: u32) -> Result<Vec<u32>, StoreError>;
    /// Returns summaries of the failed attempts of each run that had any, oldest run first.
    fn list_failure_tallies(&self, process: &str) -> Result<Vec<(String, FailureTally)>, StoreError>;
    fn request_counts(&self) -> Result<RequestCounts, StoreError>;

    /// By name.
    fn sites(&self) -> Result<Vec<SiteRow>, StoreError>;
    fn site(&self, name: &str) -> Result<Option<SiteRow>, StoreError>;
    /// Counts the jobs held by workers of this store's engine by the site of the worker. Sites without jobs are
    /// omitted.
    fn site_usage(&self) -> Result<BTreeMap<String, SiteUsage>, StoreError>;
    /// Creates or replaces a site as a whole; `updated_at` is taken from it.
    fn put_site(&self, site: &SiteRow) -> Result<(), StoreError>;
    /// Sets how many jobs can run at a site at once. Creates the site if it is new; otherwise nothing else
    /// changes.
    fn record_site_slots(&self, site: &str, total: u64, now: Timestamp) -> Result<(), StoreError>;
    fn set_site_status(
        &self,
        name: &str,
        status: SiteStatus,
        drain_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), StoreError>;
    fn add_ban(&self, ban: &NewBan, now: Timestamp) -> Result<i64, StoreError>;
    /// Newest last.
    fn bans(&self, filter: &SiteBanFilter) -> Result<Vec<SiteBan>, StoreError>;
    /// Idempotent.
    fn remove_ban(&self, id: i64, by: &str, now: Timestamp) -> Result<(), StoreError>;
    /// Marks these expired bans as announced.
    fn mark_expiry_notified(&self, ids: &[i64], now: Timestamp) -> Result<(), StoreError>;

    fn setting(&self, name: &str) -> Result<Option<Value>, StoreError>;
    fn settings(&self) -> Result<Vec<SettingRow>, StoreError>;
    /// `None` removes the setting, so that the default applies.
    fn set_setting(
        &self,
        name: &str,
        value: Option<&Value>,
        by: &str,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    fn add_alert(&self, alert: &NewAlert, now: Timestamp) -> Result<i64, StoreError>;
    /// Oldest first.
    fn alerts(&self, filter: &AlertFilter) -> Result<Vec<AlertRow>, StoreError>;
    /// Marks alerts as delivered.
    fn mark_alerts_notified(&self, ids: &[i64], now: Timestamp) -> Result<(), StoreError>;
}

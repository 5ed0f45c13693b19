//! The books of requests: what is wished for, how far it is, what is to be done about its outputs, and the sites it may use.
//! Nothing is decided here.

use crate::StoreError;
use crate::model::{
    AlertFilter, FailedAttempt, OutputStepFilter, RequestCounts, RequestFilter, RequestRunFilter, SettingRow,
    SiteBanFilter, SiteCounts, SiteUsage,
};
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::requests::RequestView;
use windlass_core::requests::change::RequestCommit;
use windlass_core::requests::failures::FailureTally;
use windlass_core::requests::rows::{
    AlertRow, BlockRow, NewAlert, NewBan, OutputStep, RequestFileCounts, RequestFileRow, RequestFileState,
    RequestProcess, RequestRow, RunEvent, RunRow, SiteBan, SiteRow, StatusTransition,
};
use windlass_types::requests::{Request, RequestStatus, SiteStatus};
use windlass_types::{Timestamp, WorkflowId};

/// Kept by databases only, and not offered over a wire: clients of a server use its REST.
pub trait RequestStore: Send + Sync {
    /// Refused if there is one of that name, or if one of its output datasets is taken ([`Error::OutputTaken`]). Says its
    /// version.
    fn add_request(
        &self,
        request: &Request,
        status: RequestStatus,
        by: &str,
        now: Timestamp,
    ) -> Result<i64, StoreError>;
    fn request(&self, name: &str) -> Result<Option<RequestRow>, StoreError>;
    /// Why a request may not write into a dataset: another one does, or it is in the catalog already. `None`: it may.
    fn output_taken_by(&self, dataset: &str, request: &str) -> Result<Option<String>, StoreError>;
    fn requests(&self, filter: &RequestFilter) -> Result<Vec<RequestRow>, StoreError>;
    /// How many there are without offset and limit.
    fn count_requests(&self, filter: &RequestFilter) -> Result<u64, StoreError>;
    /// Names and versions of all that are not over, by name.
    fn open_requests(&self) -> Result<Vec<(String, i64)>, StoreError>;
    /// Names of those that are over, but have output steps that are still to be done. Usually there are none.
    fn requests_with_pending_steps(&self) -> Result<Vec<String>, StoreError>;
    /// These with all that a decision about them needs, by name, as they are at one moment; without their `payload_config`,
    /// which may be long and which nobody decides by. Those that are not there are left out. A few statements for every
    /// thousand of them.
    fn load_request_views(&self, requests: &[String]) -> Result<Vec<RequestView>, StoreError>;
    /// Oldest first.
    fn transitions(&self, request: &str) -> Result<Vec<StatusTransition>, StoreError>;
    /// Each commit is applied whole or not at all, and together they are put on disk at once. What became of each, in their
    /// order: the new version of the request, [`Error::Outdated`] if it has another one than the commit quotes, or
    /// [`Error::Unexpected`] if something in it is not in the state that a change quotes.
    fn apply_requests(&self, commits: &[RequestCommit]) -> Vec<Result<i64, StoreError>>;
    /// With all that is known of it, except alerts. Refused unless it is over, and while a later version refers to it.
    fn delete_request(&self, name: &str) -> Result<(), StoreError>;

    fn process(&self, request: &str) -> Result<Option<RequestProcess>, StoreError>;
    fn process_by_uuid(&self, uuid: &str) -> Result<Option<RequestProcess>, StoreError>;
    /// In the order in which they were made, by process.
    fn request_runs(&self, filter: &RequestRunFilter) -> Result<Vec<RunRow>, StoreError>;
    fn request_run(&self, uuid: &str) -> Result<Option<RunRow>, StoreError>;
    /// Oldest first.
    fn run_history(&self, uuid: &str) -> Result<Vec<RunEvent>, StoreError>;
    /// The request that a workflow of the engine is a run of, if it is.
    fn request_of_workflow(&self, workflow: WorkflowId) -> Result<Option<String>, StoreError>;
    /// Attempts that failed in a workflow of the engine, noted after number `after`: the first `most` of them. Costs the same
    /// however many there were before.
    fn failed_attempts(
        &self,
        workflow: WorkflowId,
        after: i64,
        most: usize,
    ) -> Result<Vec<FailedAttempt>, StoreError>;
    /// How many attempts have ended at each site, in all runs of a workflow with units.
    fn site_counts(&self, workflow: WorkflowId) -> Result<SiteCounts, StoreError>;
    /// By dataset and index.
    fn processing_blocks(&self, process: &str) -> Result<Vec<BlockRow>, StoreError>;
    /// Those that are due first come first.
    fn output_steps(&self, filter: &OutputStepFilter) -> Result<Vec<OutputStep>, StoreError>;
    /// Input files that rounds have touched, by name.
    fn file_rows(&self, process: &str) -> Result<Vec<RequestFileRow>, StoreError>;
    /// A page of them, only those in one of these states if any are named.
    fn list_file_rows(
        &self,
        process: &str,
        states: &[RequestFileState],
        offset: u64,
        limit: u64,
    ) -> Result<Vec<RequestFileRow>, StoreError>;
    fn file_counts(&self, process: &str) -> Result<RequestFileCounts, StoreError>;
    /// All of these or none; each takes the place of the one that there was. May be done twice.
    fn put_file_rows(&self, process: &str, rows: &[RequestFileRow]) -> Result<(), StoreError>;
    /// Work units of a round whose outputs are registered, or going to be: nobody will process what they read once more.
    /// Ascending.
    fn registered_work_units(&self, process: &str, round: u32) -> Result<Vec<u32>, StoreError>;
    /// What is known of the failed attempts of each run that had some, oldest run first.
    fn list_failure_tallies(&self, process: &str) -> Result<Vec<(String, FailureTally)>, StoreError>;
    fn request_counts(&self) -> Result<RequestCounts, StoreError>;

    /// By name.
    fn sites(&self) -> Result<Vec<SiteRow>, StoreError>;
    fn site(&self, name: &str) -> Result<Option<SiteRow>, StoreError>;
    /// Jobs that workers of this store's engine hold, by the site of the worker. Sites without any are left out.
    fn site_usage(&self) -> Result<BTreeMap<String, SiteUsage>, StoreError>;
    /// Made or replaced as a whole; its `updated_at` is what it says.
    fn put_site(&self, site: &SiteRow) -> Result<(), StoreError>;
    /// So many jobs can run there at once. Makes the site if it is new; of one that is there nothing else changes.
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
    /// Removing twice changes nothing.
    fn remove_ban(&self, id: i64, by: &str, now: Timestamp) -> Result<(), StoreError>;
    /// People were told that these are over.
    fn mark_expiry_notified(&self, ids: &[i64], now: Timestamp) -> Result<(), StoreError>;

    fn setting(&self, name: &str) -> Result<Option<Value>, StoreError>;
    fn settings(&self) -> Result<Vec<SettingRow>, StoreError>;
    /// `None` forgets it, so that the default holds.
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
    /// Whoever tells people has them.
    fn mark_alerts_notified(&self, ids: &[i64], now: Timestamp) -> Result<(), StoreError>;
}

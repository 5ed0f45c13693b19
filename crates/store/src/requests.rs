//! The books of requests: what is wished for, how far it is, what is to be done about its outputs, and the sites it may use.
//! Nothing is decided here.

use crate::Error;
use crate::model::{
    AlertFilter, BanFilter, FailedAttempt, RequestCounts, RequestFilter, RunFilter, SettingRow, SiteCounts,
    StepFilter,
};
use serde_json::Value;
use windlass_core::requests::View;
use windlass_core::requests::book::{
    AlertRow, BlockRow, FileCounts, FileRow, FileState, NewAlert, NewBan, OutputStep, Process, RequestRow,
    RunEvent, RunRow, SiteBan, SiteRow, Transition,
};
use windlass_core::requests::change::Commit;
use windlass_core::requests::failures::Tally;
use windlass_types::requests::{Request, RequestStatus, SiteStatus};
use windlass_types::{Timestamp, WorkflowId};

/// Kept by databases only, and not offered over a wire: clients of a server use its REST.
pub trait Requests: Send + Sync {
    /// Refused if there is one of that name, or if one of its output datasets is taken ([`Error::OutputTaken`]). Says its
    /// version.
    fn add_request(
        &self,
        request: &Request,
        status: RequestStatus,
        by: &str,
        now: Timestamp,
    ) -> Result<i64, Error>;
    fn request(&self, name: &str) -> Result<Option<RequestRow>, Error>;
    /// Why a request may not write into a dataset: another one does, or it is in the catalog already. `None`: it may.
    fn output_taken_by(&self, dataset: &str, request: &str) -> Result<Option<String>, Error>;
    fn requests(&self, filter: &RequestFilter) -> Result<Vec<RequestRow>, Error>;
    /// How many there are without offset and limit.
    fn count_requests(&self, filter: &RequestFilter) -> Result<u64, Error>;
    /// Names and versions of all that are not over, by name.
    fn open_requests(&self) -> Result<Vec<(String, i64)>, Error>;
    /// Names of those that are over, but have output steps that are still to be done. Usually there are none.
    fn unsettled_requests(&self) -> Result<Vec<String>, Error>;
    /// These with all that a decision about them needs, by name, as they are at one moment; without their `payload_config`,
    /// which may be long and which nobody decides by. Those that are not there are left out. A few statements for every
    /// thousand of them.
    fn views(&self, requests: &[String]) -> Result<Vec<View>, Error>;
    /// Oldest first.
    fn transitions(&self, request: &str) -> Result<Vec<Transition>, Error>;
    /// Each commit is applied whole or not at all, and together they are put on disk at once. What became of each, in their
    /// order: the new version of the request, [`Error::Outdated`] if it has another one than the commit quotes, or
    /// [`Error::Unexpected`] if something in it is not in the state that a change quotes.
    fn apply_requests(&self, commits: &[Commit]) -> Vec<Result<i64, Error>>;
    /// With all that is known of it, except alerts. Refused unless it is over, and while a later version refers to it.
    fn delete_request(&self, name: &str) -> Result<(), Error>;

    fn process(&self, request: &str) -> Result<Option<Process>, Error>;
    fn process_by_uuid(&self, uuid: &str) -> Result<Option<Process>, Error>;
    /// In the order in which they were made, by process.
    fn request_runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, Error>;
    fn request_run(&self, uuid: &str) -> Result<Option<RunRow>, Error>;
    /// Oldest first.
    fn run_history(&self, uuid: &str) -> Result<Vec<RunEvent>, Error>;
    /// The request that a workflow of the engine is a run of, if it is.
    fn request_of_workflow(&self, workflow: WorkflowId) -> Result<Option<String>, Error>;
    /// Attempts that failed in a workflow of the engine, noted after number `after`: the first `most` of them. Costs the same
    /// however many there were before.
    fn failed_attempts(
        &self,
        workflow: WorkflowId,
        after: i64,
        most: usize,
    ) -> Result<Vec<FailedAttempt>, Error>;
    /// How many attempts have ended at each site, in all runs of a workflow with units.
    fn site_counts(&self, workflow: WorkflowId) -> Result<SiteCounts, Error>;
    /// By dataset and index.
    fn blocks(&self, process: &str) -> Result<Vec<BlockRow>, Error>;
    /// Those that are due first come first.
    fn steps(&self, filter: &StepFilter) -> Result<Vec<OutputStep>, Error>;
    /// Input files that rounds have touched, by name.
    fn file_rows(&self, process: &str) -> Result<Vec<FileRow>, Error>;
    /// A page of them, only those in one of these states if any are named.
    fn page_of_file_rows(
        &self,
        process: &str,
        states: &[FileState],
        offset: u64,
        limit: u64,
    ) -> Result<Vec<FileRow>, Error>;
    fn file_counts(&self, process: &str) -> Result<FileCounts, Error>;
    /// All of these or none; each takes the place of the one that there was. May be done twice.
    fn put_file_rows(&self, process: &str, rows: &[FileRow]) -> Result<(), Error>;
    /// Work units of a round whose outputs are registered, or going to be: nobody will process what they read once more.
    /// Ascending.
    fn registered_units(&self, process: &str, round: u32) -> Result<Vec<u32>, Error>;
    /// What is known of the failed attempts of each run that had some, oldest run first.
    fn failures_of(&self, process: &str) -> Result<Vec<(String, Tally)>, Error>;
    fn request_counts(&self) -> Result<RequestCounts, Error>;

    /// By name.
    fn sites(&self) -> Result<Vec<SiteRow>, Error>;
    fn site(&self, name: &str) -> Result<Option<SiteRow>, Error>;
    /// Made or replaced as a whole; its `updated_at` is what it says.
    fn put_site(&self, site: &SiteRow) -> Result<(), Error>;
    /// So many jobs can run there at once. Makes the site if it is new; of one that is there nothing else changes.
    fn note_slots(&self, site: &str, total: u64, now: Timestamp) -> Result<(), Error>;
    fn set_site_status(
        &self,
        name: &str,
        status: SiteStatus,
        drain_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), Error>;
    fn add_ban(&self, ban: &NewBan, now: Timestamp) -> Result<i64, Error>;
    /// Newest last.
    fn bans(&self, filter: &BanFilter) -> Result<Vec<SiteBan>, Error>;
    /// Removing twice changes nothing.
    fn remove_ban(&self, id: i64, by: &str, now: Timestamp) -> Result<(), Error>;
    /// People were told that these are over.
    fn mark_expiry_told(&self, ids: &[i64], now: Timestamp) -> Result<(), Error>;

    fn setting(&self, name: &str) -> Result<Option<Value>, Error>;
    fn settings(&self) -> Result<Vec<SettingRow>, Error>;
    /// `None` forgets it, so that the default holds.
    fn set_setting(&self, name: &str, value: Option<&Value>, by: &str, now: Timestamp) -> Result<(), Error>;

    fn add_alert(&self, alert: &NewAlert, now: Timestamp) -> Result<i64, Error>;
    /// Oldest first.
    fn alerts(&self, filter: &AlertFilter) -> Result<Vec<AlertRow>, Error>;
    /// Whoever tells people has them.
    fn mark_alerts_told(&self, ids: &[i64], now: Timestamp) -> Result<(), Error>;
}

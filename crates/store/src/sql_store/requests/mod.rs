//! [`RequestStore`] on a database: queries ([`request_lists`], [`request_views`]), changes
//! ([`apply_requests`]), and what is not part of a single request ([`sites`]).

mod apply_requests;
mod request_lists;
mod request_views;
mod row_decoding;
mod sites;

#[cfg(test)]
pub(crate) use request_views::build_query;
pub(super) use row_decoding::{read_unsigned, to_signed};

use super::{SqlStore, StoreBackend, column_decoding, failures, work_units};
use crate::db::{SqlConnection as _, values};
use crate::model::{
    AlertFilter, AttemptCountsBySite, FailedAttempt, OutputStepFilter, RequestCounts, RequestFilter,
    RequestRunFilter, SettingRow, SiteBanFilter, SiteUsage,
};
use crate::sql::requests as sql;
use crate::{RequestStore, StoreError};
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

impl<B: StoreBackend> RequestStore for SqlStore<B> {
    fn add_request(
        &self,
        request: &Request,
        status: RequestStatus,
        by: &str,
        now: Timestamp,
    ) -> Result<i64, StoreError> {
        let (request, by) = (request.clone(), by.to_owned());
        self.backend.run_write(move |db| apply_requests::add_request(db, &request, status, &by, now))
    }

    fn request(&self, name: &str) -> Result<Option<RequestRow>, StoreError> {
        self.read(|db| request_lists::find_request(db, name))
    }

    fn output_taken_by(&self, dataset: &str, request: &str) -> Result<Option<String>, StoreError> {
        self.read(|db| apply_requests::find_output_conflict(db, dataset, request))
    }

    fn requests(&self, filter: &RequestFilter) -> Result<Vec<RequestRow>, StoreError> {
        self.read(|db| request_lists::list_requests(db, filter))
    }

    fn count_requests(&self, filter: &RequestFilter) -> Result<u64, StoreError> {
        self.read(|db| request_lists::count_requests(db, filter))
    }

    fn open_requests(&self) -> Result<Vec<(String, i64)>, StoreError> {
        self.read(|db| db.query_all(sql::OPEN_REQUESTS, values![], |row| Ok((row.get(0)?, row.get(1)?))))
    }

    fn requests_with_pending_steps(&self) -> Result<Vec<String>, StoreError> {
        self.read(|db| db.query_all(sql::REQUESTS_WITH_PENDING_STEPS, values![], |row| row.get(0)))
    }

    fn load_request_views(&self, requests: &[String]) -> Result<Vec<RequestView>, StoreError> {
        self.read(|db| request_views::load_views(db, requests))
    }

    fn transitions(&self, request: &str) -> Result<Vec<StatusTransition>, StoreError> {
        self.read(|db| db.query_all(sql::TRANSITIONS, [request], row_decoding::read_transition))
    }

    /// A commit names its expected state, so if its result is unknown, it can be repeated safely.
    fn apply_requests(&self, commits: &[RequestCommit]) -> Vec<Result<i64, StoreError>> {
        let works =
            commits.iter().cloned().map(|commit| move |db: &B::Db| apply_requests::apply_commit(db, &commit));
        let outcomes = self.backend.run_each_write(works);
        outcomes.into_iter().map(|outcome| outcome.map_err(StoreError::for_conditional_request)).collect()
    }

    fn delete_request(&self, name: &str) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.backend.run_write(move |db| apply_requests::delete_request(db, &name))
    }

    fn process(&self, request: &str) -> Result<Option<RequestProgress>, StoreError> {
        self.read(|db| request_lists::find_process(db, sql::PROCESS_OF, request))
    }

    fn process_by_uuid(&self, uuid: &str) -> Result<Option<RequestProgress>, StoreError> {
        self.read(|db| request_lists::find_process(db, sql::PROCESS, uuid))
    }

    fn request_runs(&self, filter: &RequestRunFilter) -> Result<Vec<RunRow>, StoreError> {
        self.read(|db| request_lists::list_runs(db, filter))
    }

    fn request_run(&self, uuid: &str) -> Result<Option<RunRow>, StoreError> {
        self.read(|db| request_lists::find_run(db, uuid))
    }

    fn run_history(&self, uuid: &str) -> Result<Vec<RunEvent>, StoreError> {
        self.read(|db| db.query_all(sql::RUN_EVENTS, [uuid], row_decoding::read_run_event))
    }

    fn request_of_workflow(&self, workflow: WorkflowId) -> Result<Option<String>, StoreError> {
        self.read(|db| db.query_optional(sql::REQUEST_OF_WORKFLOW, [workflow.0], |row| row.get(0)))
    }

    fn failed_attempts(
        &self,
        workflow: WorkflowId,
        after: i64,
        most: usize,
    ) -> Result<Vec<FailedAttempt>, StoreError> {
        self.read(|db| failures::list_failures_after(db, workflow, after, most))
    }

    fn site_counts(&self, workflow: WorkflowId) -> Result<AttemptCountsBySite, StoreError> {
        self.read(|db| work_units::load_site_counts(db, workflow))
    }

    fn processing_blocks(&self, process: &str) -> Result<Vec<BlockRow>, StoreError> {
        self.read(|db| db.query_all(sql::BLOCKS, [process], row_decoding::read_block))
    }

    fn output_steps(&self, filter: &OutputStepFilter) -> Result<Vec<OutputStep>, StoreError> {
        self.read(|db| request_lists::list_steps(db, filter))
    }

    fn file_rows(&self, process: &str) -> Result<Vec<RequestFileRow>, StoreError> {
        self.read(|db| db.query_all(sql::FILE_ROWS, [process], row_decoding::read_file))
    }

    fn list_file_rows(
        &self,
        process: &str,
        states: &[RequestFileState],
        offset: u64,
        limit: u64,
    ) -> Result<Vec<RequestFileRow>, StoreError> {
        self.read(|db| request_lists::list_file_rows(db, process, states, offset, limit))
    }

    fn file_counts(&self, process: &str) -> Result<RequestFileCounts, StoreError> {
        self.read(|db| request_lists::count_files(db, process))
    }

    fn put_file_rows(&self, process: &str, rows: &[RequestFileRow]) -> Result<(), StoreError> {
        let (process, rows) = (process.to_owned(), rows.to_vec());
        self.backend.run_write(move |db| apply_requests::put_files(db, &process, &rows))
    }

    fn registered_work_units(&self, process: &str, round: u32) -> Result<Vec<u32>, StoreError> {
        self.read(|db| db.query_all(sql::REGISTERED_UNITS, values![process, round], |row| row.get(0)))
    }

    fn list_failure_tallies(&self, process: &str) -> Result<Vec<(String, FailureTally)>, StoreError> {
        self.read(|db| {
            db.query_all(sql::FAILURE_TALLIES_OF_PROCESS, [process], |row| {
                Ok((row.get(0)?, column_decoding::read_required_json(row, 1)?))
            })
        })
    }

    fn request_counts(&self) -> Result<RequestCounts, StoreError> {
        self.read(request_lists::count_by_status)
    }

    fn sites(&self) -> Result<Vec<SiteRow>, StoreError> {
        self.read(|db| sites::list_sites(db, None))
    }

    fn site(&self, name: &str) -> Result<Option<SiteRow>, StoreError> {
        self.read(|db| Ok(sites::list_sites(db, Some(name))?.pop()))
    }

    fn site_usage(&self) -> Result<BTreeMap<String, SiteUsage>, StoreError> {
        self.read(sites::load_site_usage)
    }

    fn put_site(&self, site: &SiteRow) -> Result<(), StoreError> {
        let site = site.clone();
        self.backend.run_write(move |db| sites::put_site(db, &site))
    }

    fn record_site_slots(&self, site: &str, total: u64, now: Timestamp) -> Result<(), StoreError> {
        let site = site.to_owned();
        self.backend.run_write(move |db| sites::record_site_slots(db, &site, total, now))
    }

    fn set_site_status(
        &self,
        name: &str,
        status: SiteStatus,
        drain_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let name = name.to_owned();
        self.backend.run_write(move |db| sites::set_site_status(db, &name, status, drain_until, now))
    }

    fn add_ban(&self, ban: &NewBan, now: Timestamp) -> Result<i64, StoreError> {
        let ban = ban.clone();
        self.backend.run_write(move |db| sites::add_ban(db, &ban, now))
    }

    fn bans(&self, filter: &SiteBanFilter) -> Result<Vec<SiteBan>, StoreError> {
        self.read(|db| sites::list_bans(db, filter))
    }

    fn remove_ban(&self, id: i64, by: &str, now: Timestamp) -> Result<(), StoreError> {
        let by = by.to_owned();
        self.backend.run_write(move |db| sites::remove_ban(db, id, &by, now))
    }

    fn mark_expiry_notified(&self, ids: &[i64], now: Timestamp) -> Result<(), StoreError> {
        let ids = ids.to_vec();
        self.backend.run_write(move |db| sites::mark_expiry_notified(db, &ids, now))
    }

    fn setting(&self, name: &str) -> Result<Option<Value>, StoreError> {
        self.read(|db| sites::find_setting(db, name))
    }

    fn settings(&self) -> Result<Vec<SettingRow>, StoreError> {
        self.read(sites::list_settings)
    }

    fn set_setting(
        &self,
        name: &str,
        value: Option<&Value>,
        by: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (name, value, by) = (name.to_owned(), value.cloned(), by.to_owned());
        self.backend.run_write(move |db| sites::set_setting(db, &name, value.as_ref(), &by, now))
    }

    fn add_alert(&self, alert: &NewAlert, now: Timestamp) -> Result<i64, StoreError> {
        let alert = alert.clone();
        self.backend.run_write(move |db| sites::add_alert(db, &alert, now))
    }

    fn alerts(&self, filter: &AlertFilter) -> Result<Vec<AlertRow>, StoreError> {
        self.read(|db| sites::list_alerts(db, filter))
    }

    fn mark_alerts_notified(&self, ids: &[i64], now: Timestamp) -> Result<(), StoreError> {
        let ids = ids.to_vec();
        self.backend.run_write(move |db| sites::mark_alerts_notified(db, &ids, now))
    }
}

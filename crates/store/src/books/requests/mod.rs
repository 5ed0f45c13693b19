//! [`Requests`] on a database: what is read ([`lists`], [`views`]), what is changed ([`apply`]), and what belongs to all requests
//! ([`sites`]).

mod apply;
mod lists;
mod rows;
mod sites;
mod views;

pub(super) use rows::{natural, number};
#[cfg(test)]
pub(crate) use views::about;

use super::{Backend, Books, column, failures, units};
use crate::db::{Db as _, values};
use crate::model::{
    AlertFilter, BanFilter, FailedAttempt, RequestCounts, RequestFilter, RunFilter, SettingRow, SiteCounts,
    StepFilter,
};
use crate::sql::requests as sql;
use crate::{Error, Requests};
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

impl<B: Backend> Requests for Books<B> {
    fn add_request(
        &self,
        request: &Request,
        status: RequestStatus,
        by: &str,
        now: Timestamp,
    ) -> Result<i64, Error> {
        let (request, by) = (request.clone(), by.to_owned());
        self.backend.write(move |db| apply::add(db, &request, status, &by, now))
    }

    fn request(&self, name: &str) -> Result<Option<RequestRow>, Error> {
        self.read(|db| lists::request(db, name))
    }

    fn output_taken_by(&self, dataset: &str, request: &str) -> Result<Option<String>, Error> {
        self.read(|db| apply::taken_by(db, dataset, request))
    }

    fn requests(&self, filter: &RequestFilter) -> Result<Vec<RequestRow>, Error> {
        self.read(|db| lists::requests(db, filter))
    }

    fn count_requests(&self, filter: &RequestFilter) -> Result<u64, Error> {
        self.read(|db| lists::count(db, filter))
    }

    fn open_requests(&self) -> Result<Vec<(String, i64)>, Error> {
        self.read(|db| db.all(sql::OPEN_REQUESTS, values![], |row| Ok((row.get(0)?, row.get(1)?))))
    }

    fn unsettled_requests(&self) -> Result<Vec<String>, Error> {
        self.read(|db| db.all(sql::UNSETTLED_REQUESTS, values![], |row| row.get(0)))
    }

    fn views(&self, requests: &[String]) -> Result<Vec<View>, Error> {
        self.read(|db| views::views(db, requests))
    }

    fn transitions(&self, request: &str) -> Result<Vec<Transition>, Error> {
        self.read(|db| db.all(sql::TRANSITIONS, [request], rows::transition))
    }

    /// A commit quotes what it expects to find: whoever does not know whether it was made may come again with it.
    fn apply_requests(&self, commits: &[Commit]) -> Vec<Result<i64, Error>> {
        let works = commits.iter().cloned().map(|commit| move |db: &B::Db| apply::apply(db, &commit));
        let outcomes = self.backend.write_all(works);
        outcomes.into_iter().map(|outcome| outcome.map_err(Error::for_guarded)).collect()
    }

    fn delete_request(&self, name: &str) -> Result<(), Error> {
        let name = name.to_owned();
        self.backend.write(move |db| apply::delete(db, &name))
    }

    fn process(&self, request: &str) -> Result<Option<Process>, Error> {
        self.read(|db| lists::process(db, sql::PROCESS_OF, request))
    }

    fn process_by_uuid(&self, uuid: &str) -> Result<Option<Process>, Error> {
        self.read(|db| lists::process(db, sql::PROCESS, uuid))
    }

    fn request_runs(&self, filter: &RunFilter) -> Result<Vec<RunRow>, Error> {
        self.read(|db| lists::runs(db, filter))
    }

    fn request_run(&self, uuid: &str) -> Result<Option<RunRow>, Error> {
        self.read(|db| lists::run(db, uuid))
    }

    fn run_history(&self, uuid: &str) -> Result<Vec<RunEvent>, Error> {
        self.read(|db| db.all(sql::RUN_EVENTS, [uuid], rows::run_event))
    }

    fn request_of_workflow(&self, workflow: WorkflowId) -> Result<Option<String>, Error> {
        self.read(|db| db.optional(sql::REQUEST_OF_WORKFLOW, [workflow.0], |row| row.get(0)))
    }

    fn failed_attempts(
        &self,
        workflow: WorkflowId,
        after: i64,
        most: usize,
    ) -> Result<Vec<FailedAttempt>, Error> {
        self.read(|db| failures::after(db, workflow, after, most))
    }

    fn site_counts(&self, workflow: WorkflowId) -> Result<SiteCounts, Error> {
        self.read(|db| units::site_counts(db, workflow))
    }

    fn blocks(&self, process: &str) -> Result<Vec<BlockRow>, Error> {
        self.read(|db| db.all(sql::BLOCKS, [process], rows::block))
    }

    fn steps(&self, filter: &StepFilter) -> Result<Vec<OutputStep>, Error> {
        self.read(|db| lists::steps(db, filter))
    }

    fn file_rows(&self, process: &str) -> Result<Vec<FileRow>, Error> {
        self.read(|db| db.all(sql::FILE_ROWS, [process], rows::file))
    }

    fn page_of_file_rows(
        &self,
        process: &str,
        states: &[FileState],
        offset: u64,
        limit: u64,
    ) -> Result<Vec<FileRow>, Error> {
        self.read(|db| lists::files(db, process, states, offset, limit))
    }

    fn file_counts(&self, process: &str) -> Result<FileCounts, Error> {
        self.read(|db| lists::file_counts(db, process))
    }

    fn put_file_rows(&self, process: &str, rows: &[FileRow]) -> Result<(), Error> {
        let (process, rows) = (process.to_owned(), rows.to_vec());
        self.backend.write(move |db| apply::put_files(db, &process, &rows))
    }

    fn registered_units(&self, process: &str, round: u32) -> Result<Vec<u32>, Error> {
        self.read(|db| db.all(sql::REGISTERED_UNITS, values![process, round], |row| row.get(0)))
    }

    fn failures_of(&self, process: &str) -> Result<Vec<(String, Tally)>, Error> {
        self.read(|db| {
            db.all(sql::FAILURES_OF, [process], |row| Ok((row.get(0)?, column::required_json(row, 1)?)))
        })
    }

    fn request_counts(&self) -> Result<RequestCounts, Error> {
        self.read(lists::counts)
    }

    fn sites(&self) -> Result<Vec<SiteRow>, Error> {
        self.read(|db| sites::sites(db, None))
    }

    fn site(&self, name: &str) -> Result<Option<SiteRow>, Error> {
        self.read(|db| Ok(sites::sites(db, Some(name))?.pop()))
    }

    fn put_site(&self, site: &SiteRow) -> Result<(), Error> {
        let site = site.clone();
        self.backend.write(move |db| sites::put(db, &site))
    }

    fn note_slots(&self, site: &str, total: u64, now: Timestamp) -> Result<(), Error> {
        let site = site.to_owned();
        self.backend.write(move |db| sites::note_slots(db, &site, total, now))
    }

    fn set_site_status(
        &self,
        name: &str,
        status: SiteStatus,
        drain_until: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let name = name.to_owned();
        self.backend.write(move |db| sites::set_status(db, &name, status, drain_until, now))
    }

    fn add_ban(&self, ban: &NewBan, now: Timestamp) -> Result<i64, Error> {
        let ban = ban.clone();
        self.backend.write(move |db| sites::add_ban(db, &ban, now))
    }

    fn bans(&self, filter: &BanFilter) -> Result<Vec<SiteBan>, Error> {
        self.read(|db| sites::bans(db, filter))
    }

    fn remove_ban(&self, id: i64, by: &str, now: Timestamp) -> Result<(), Error> {
        let by = by.to_owned();
        self.backend.write(move |db| sites::remove_ban(db, id, &by, now))
    }

    fn mark_expiry_told(&self, ids: &[i64], now: Timestamp) -> Result<(), Error> {
        let ids = ids.to_vec();
        self.backend.write(move |db| sites::mark_expiry_told(db, &ids, now))
    }

    fn setting(&self, name: &str) -> Result<Option<Value>, Error> {
        self.read(|db| sites::setting(db, name))
    }

    fn settings(&self) -> Result<Vec<SettingRow>, Error> {
        self.read(sites::settings)
    }

    fn set_setting(&self, name: &str, value: Option<&Value>, by: &str, now: Timestamp) -> Result<(), Error> {
        let (name, value, by) = (name.to_owned(), value.cloned(), by.to_owned());
        self.backend.write(move |db| sites::set_setting(db, &name, value.as_ref(), &by, now))
    }

    fn add_alert(&self, alert: &NewAlert, now: Timestamp) -> Result<i64, Error> {
        let alert = alert.clone();
        self.backend.write(move |db| sites::add_alert(db, &alert, now))
    }

    fn alerts(&self, filter: &AlertFilter) -> Result<Vec<AlertRow>, Error> {
        self.read(|db| sites::alerts(db, filter))
    }

    fn mark_alerts_told(&self, ids: &[i64], now: Timestamp) -> Result<(), Error> {
        let ids = ids.to_vec();
        self.backend.write(move |db| sites::mark_told(db, &ids, now))
    }
}

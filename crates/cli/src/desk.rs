//! Where requests, sites and datasets are asked about: a server, or the database itself where nobody serves it. Both speak
//! the same words; what is asked of a database is seen to when a server takes it up.

use crate::context::Context;
use crate::error::{CliError, Kind};
use serde_json::Value;
use std::sync::Arc;
use windlass_api::requests::{
    Aborted, AdmissionConfig, AdmissionQueue, Alerts, Bans, Blocks, Dag, DagAction, DagLogs, DagNodes, Dags,
    Datasets, Drain, FailRequest, Files, Import, Imported, InvalidateRequest, Invalidated, NewBan,
    PatchRequest, PatchSite, ReleaseRequest, Released, RequestErrors, RequestFiles, RequestMetrics,
    RequestShown, Requests, RestartRequest, Restarted, Site, Sites, Stopped, Submitted, Unbanned, Versions,
    WorkflowStatus,
};
use windlass_client::{Client, DagQuery, NodeQuery, RequestQuery};
use windlass_core::adaptive::Window;
use windlass_core::requests::bans::Policy;
use windlass_server::ApiError;
use windlass_server::requests::admission::Settings;
use windlass_server::requests::{
    Actor, admission, alerts, catalog, change, dags, endings, errors, files, look, release, sites, submit,
    workflows,
};
use windlass_store::Database;
use windlass_store::model::{RequestFilter, RunFilter, SortBy};
use windlass_types::Clock;
use windlass_types::catalog::DatasetSummary;
use windlass_types::requests::FileState;

pub(crate) enum Desk {
    Server(Box<Client>),
    Here(Here),
}

/// A database that nobody serves, and whoever is at it.
pub(crate) struct Here {
    pub(crate) database: Arc<dyn Database>,
    user: String,
}

impl Here {
    pub(crate) fn new(database: Arc<dyn Database>) -> Self {
        Self { database, user: crate::plan::current_user() }
    }

    fn actor(&self) -> Actor<'_> {
        Actor::owner(&self.user)
    }
}

impl Context {
    /// To look at things.
    pub(crate) fn desk_to_read(&self) -> Result<Desk, CliError> {
        match self.server()? {
            Some(client) => Ok(Desk::Server(Box::new(client.clone()))),
            None => Ok(Desk::Here(Here::new(self.database_to_read()?))),
        }
    }

    /// To change things, or to make the first of them.
    pub(crate) fn desk(&self) -> Result<Desk, CliError> {
        if let Some(client) = self.server()? {
            return Ok(Desk::Server(Box::new(client.clone())));
        }
        let database = self.open_here_or_create()?;
        self.refuse_served(&*database)?;
        Ok(Desk::Here(Here::new(database)))
    }
}

/// What can be done about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DagVerb {
    Hold,
    Release,
    Remove,
    Rescue,
}

impl DagVerb {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Remove => "remove",
            Self::Rescue => "rescue",
        }
    }
}

/// One question, put to whoever is there.
macro_rules! ask {
    ($self:ident, |$client:ident| $remote:expr, |$here:ident| $local:expr) => {
        match $self {
            Desk::Server($client) => $remote.map_err(CliError::from),
            Desk::Here($here) => $local.map_err(CliError::from),
        }
    };
}

impl Desk {
    /// Nobody sees to what is asked for here before a server takes the database up.
    pub(crate) const fn is_unattended(&self) -> bool {
        matches!(self, Self::Here(_))
    }

    pub(crate) fn submit(&self, document: &Value) -> Result<Submitted, CliError> {
        ask!(self, |client| client.submit_request(document), |here| {
            submit::submit(&*here.database, document, Window::default(), here.actor(), Clock.now())
                .map(|(submitted, _)| submitted)
        })
    }

    pub(crate) fn requests(&self, query: &RequestQuery) -> Result<Requests, CliError> {
        ask!(self, |client| client.requests(query), |here| look::list(&*here.database, filter(query)))
    }

    pub(crate) fn request(&self, name: &str) -> Result<RequestShown, CliError> {
        ask!(self, |client| client.request(name), |here| look::show(&*here.database, name, Clock.now()))
    }

    pub(crate) fn status(&self, name: &str) -> Result<WorkflowStatus, CliError> {
        ask!(self, |client| client.request_status(name), |here| {
            workflows::request_status(&*here.database, name, Clock.now())
        })
    }

    pub(crate) fn metrics(&self, name: &str) -> Result<RequestMetrics, CliError> {
        ask!(self, |client| client.request_metrics(name), |here| workflows::metrics(&*here.database, name))
    }

    pub(crate) fn versions(&self, name: &str) -> Result<Versions, CliError> {
        ask!(self, |client| client.request_versions(name), |here| look::versions(&*here.database, name))
    }

    pub(crate) fn request_files(
        &self,
        name: &str,
        states: &[FileState],
        offset: u64,
        limit: u64,
    ) -> Result<RequestFiles, CliError> {
        ask!(self, |client| client.request_files(name, states, offset, limit), |here| {
            files::list(&*here.database, name, states, offset, Some(limit))
        })
    }

    pub(crate) fn patch(&self, name: &str, patch: &PatchRequest) -> Result<RequestShown, CliError> {
        ask!(self, |client| client.patch_request(name, patch), |here| {
            change::patch(&*here.database, name, patch, here.actor(), Clock.now())
                .and_then(|()| look::show(&*here.database, name, Clock.now()))
        })
    }

    pub(crate) fn stop(&self, name: &str, reason: &str) -> Result<Stopped, CliError> {
        ask!(self, |client| client.stop_request(name, reason), |here| {
            change::stop(&*here.database, name, reason, here.actor(), Clock.now())
        })
    }

    pub(crate) fn abort(&self, name: &str, reason: &str) -> Result<Aborted, CliError> {
        ask!(self, |client| client.abort_request(name, reason), |here| {
            change::abort(&*here.database, name, reason, here.actor(), Clock.now())
        })
    }

    pub(crate) fn errors(&self, name: &str, all: bool) -> Result<RequestErrors, CliError> {
        ask!(self, |client| client.request_errors(name, all), |here| {
            errors::show(&*here.database, name, all, Window::default(), Clock.now())
        })
    }

    pub(crate) fn release(&self, name: &str, wanted: &ReleaseRequest) -> Result<Released, CliError> {
        ask!(self, |client| client.release_request(name, wanted), |here| {
            let (spell, memory) = (Policy::default().duration, Window::default());
            release::release(&*here.database, name, wanted, spell, memory, here.actor(), Clock.now())
        })
    }

    pub(crate) fn fail(&self, name: &str, wanted: &FailRequest) -> Result<Aborted, CliError> {
        ask!(self, |client| client.fail_request(name, wanted), |here| {
            endings::fail(&*here.database, name, wanted, here.actor(), Clock.now())
        })
    }

    pub(crate) fn restart(&self, name: &str, wanted: &RestartRequest) -> Result<Restarted, CliError> {
        ask!(self, |client| client.restart_request(name, wanted), |here| {
            endings::restart(&*here.database, name, wanted, here.actor(), Clock.now())
        })
    }

    pub(crate) fn invalidate(&self, name: &str, wanted: &InvalidateRequest) -> Result<Invalidated, CliError> {
        ask!(self, |client| client.invalidate_request(name, wanted), |here| {
            endings::invalidate(&*here.database, name, wanted, here.actor(), Clock.now())
        })
    }

    pub(crate) fn alerts(
        &self,
        request: Option<&str>,
        kind: Option<&str>,
        limit: u64,
    ) -> Result<Alerts, CliError> {
        ask!(self, |client| client.alerts(request, kind, limit), |here| {
            alerts::list(&*here.database, request, kind, Some(limit))
        })
    }

    pub(crate) fn dags(&self, query: &DagQuery) -> Result<Dags, CliError> {
        ask!(self, |client| client.dags(query), |here| {
            let filter = RunFilter {
                process: query.workflow.clone(),
                status: query.status.clone(),
                offset: query.offset,
                limit: query.limit,
                ..RunFilter::default()
            };
            dags::list(&*here.database, filter)
        })
    }

    pub(crate) fn dag(&self, id: &str) -> Result<Dag, CliError> {
        ask!(self, |client| client.dag(id), |here| dags::show(&*here.database, id))
    }

    pub(crate) fn dag_nodes(&self, id: &str, query: &NodeQuery) -> Result<DagNodes, CliError> {
        ask!(self, |client| client.dag_nodes(id, query), |here| {
            let wanted = dags::Nodes {
                status: query.status.clone(),
                unit: query.unit,
                offset: query.offset,
                limit: query.limit,
            };
            dags::nodes(&*here.database, id, &wanted)
        })
    }

    pub(crate) fn dag_logs(&self, id: &str, which: &dags::Which) -> Result<DagLogs, CliError> {
        ask!(self, |client| client.dag_logs(id, which.unit, which.node.as_deref()), |here| {
            dags::logs(&*here.database, id, which)
        })
    }

    pub(crate) fn act_on_dag(&self, id: &str, action: DagVerb, reason: &str) -> Result<DagAction, CliError> {
        ask!(self, |client| client.act_on_dag(id, action.name(), reason), |here| {
            let (database, actor, now) = (&*here.database, here.actor(), Clock.now());
            match action {
                DagVerb::Hold => dags::hold(database, id, reason, actor),
                DagVerb::Release => dags::release(database, id, reason, actor, now),
                DagVerb::Remove => dags::remove(database, id, reason, actor, now),
                DagVerb::Rescue => dags::rescue(database, id, reason, actor, now),
            }
        })
    }

    pub(crate) fn sites(&self) -> Result<Sites, CliError> {
        ask!(self, |client| client.sites(), |here| sites::list(&*here.database, Clock.now()))
    }

    pub(crate) fn site(&self, name: &str) -> Result<Site, CliError> {
        ask!(self, |client| client.site(name), |here| sites::show(&*here.database, name, Clock.now()))
    }

    pub(crate) fn patch_site(&self, name: &str, patch: &PatchSite) -> Result<Site, CliError> {
        ask!(self, |client| client.patch_site(name, patch), |here| {
            sites::patch(&*here.database, name, patch, Clock.now())
        })
    }

    pub(crate) fn drain_site(&self, name: &str, drain: Drain) -> Result<Site, CliError> {
        ask!(self, |client| client.drain_site(name, drain), |here| {
            sites::drain(&*here.database, name, drain.until, Clock.now())
        })
    }

    pub(crate) fn enable_site(&self, name: &str) -> Result<Site, CliError> {
        ask!(self, |client| client.enable_site(name), |here| sites::enable(
            &*here.database,
            name,
            Clock.now()
        ))
    }

    pub(crate) fn ban_site(&self, name: &str, ban: &NewBan) -> Result<Site, CliError> {
        ask!(self, |client| client.ban_site(name, ban), |here| {
            sites::ban(&*here.database, name, ban, here.actor(), Clock.now())
        })
    }

    pub(crate) fn bans(
        &self,
        site: Option<&str>,
        request: Option<&str>,
        all: bool,
    ) -> Result<Bans, CliError> {
        ask!(self, |client| client.bans(site, request, all), |here| {
            sites::bans(&*here.database, site, request, all, Clock.now())
        })
    }

    pub(crate) fn unban_site(&self, name: &str, request: Option<&str>) -> Result<Unbanned, CliError> {
        ask!(self, |client| client.unban_site(name, request), |here| {
            sites::unban(&*here.database, name, request, here.actor(), Clock.now())
        })
    }

    pub(crate) fn admission(&self, limit: u64) -> Result<AdmissionQueue, CliError> {
        ask!(self, |client| client.admission_queue(limit), |here| {
            admission::show(&*here.database, Some(limit), &Settings::default(), Clock.now())
        })
    }

    pub(crate) fn set_admission(&self, config: &AdmissionConfig) -> Result<AdmissionConfig, CliError> {
        ask!(self, |client| client.set_admission(config), |here| {
            admission::set(&*here.database, config, here.actor(), Clock.now())
        })
    }

    pub(crate) fn datasets(&self, pattern: Option<&str>) -> Result<Datasets, CliError> {
        ask!(self, |client| client.datasets(pattern), |here| catalog::list(&*here.database, pattern))
    }

    pub(crate) fn dataset(&self, name: &str) -> Result<DatasetSummary, CliError> {
        ask!(self, |client| client.dataset(name), |here| catalog::show(&*here.database, name))
    }

    pub(crate) fn dataset_files(
        &self,
        name: &str,
        only_valid: bool,
        offset: u64,
        limit: u64,
    ) -> Result<Files, CliError> {
        ask!(self, |client| client.dataset_files(name, only_valid, offset, limit), |here| {
            catalog::files(&*here.database, name, only_valid, offset, Some(limit))
        })
    }

    pub(crate) fn dataset_blocks(&self, name: &str) -> Result<Blocks, CliError> {
        ask!(self, |client| client.dataset_blocks(name), |here| catalog::blocks(&*here.database, name))
    }

    pub(crate) fn import(&self, import: &Import) -> Result<Imported, CliError> {
        ask!(self, |client| client.import_files(import), |here| {
            catalog::import(&*here.database, import, here.actor(), Clock.now())
        })
    }

    pub(crate) fn forget_dataset(&self, name: &str) -> Result<(), CliError> {
        ask!(self, |client| client.forget_dataset(name), |here| {
            catalog::forget(&*here.database, name, here.actor(), Clock.now())
        })
    }
}

fn filter(query: &RequestQuery) -> RequestFilter {
    let sort = query.sort_by.map(|field| SortBy { field: field.to_owned(), descending: query.reverse });
    let by_name = || SortBy { field: "request_name".to_owned(), descending: true };
    RequestFilter {
        status: query.status.clone(),
        campaign: query.campaign.clone(),
        requestor: query.requestor.clone(),
        name: query.name.clone(),
        sort: sort.or_else(|| query.reverse.then(by_name)),
        offset: query.offset,
        limit: query.limit,
        ..RequestFilter::default()
    }
}

/// What the use cases of a server refuse when they are called here.
impl From<ApiError> for CliError {
    fn from(error: ApiError) -> Self {
        let kind = match error.status.as_u16() {
            400..=404 | 422 | 501 => Kind::User,
            400..=499 => Kind::Refused,
            502 | 503 => Kind::Io,
            _ => Kind::Internal,
        };
        Self { hint: error.hint, ..Self::new(kind, error.detail) }
    }
}

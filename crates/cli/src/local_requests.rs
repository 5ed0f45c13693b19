//! Access to requests, sites and datasets: through a server, or directly in a database without a server. Both
//! have the same operations; a server carries out stored commands when it is started.

use crate::context::CliContext;
use crate::error::{CliError, CliErrorKind};
use serde_json::Value;
use std::sync::Arc;
use windlass_api::requests::{
    AbortResponse, AdmissionConfig, AdmissionQueue, AlertList, BanList, BanSite, DagAction, DagLogs,
    DatasetBlockList, DatasetFileList, DatasetList, DrainSite, FailRequest, FullRequest, ImportFiles,
    ImportResponse, InvalidateRequest, InvalidateResponse, PatchRequest, PatchSite, ReleaseRequest,
    ReleaseResponse, RequestDag, RequestDagList, RequestDagNodeList, RequestErrors, RequestFiles,
    RequestList, RequestMetrics, RequestSummary, RequestVersionList, RequestWorkflowStatus, RestartRequest,
    RestartResponse, SiteList, SiteResponse, StopResponse, SubmitResponse, UnbanResponse,
};
use windlass_client::{Client, DagListOptions, DagNodeListOptions, RequestListOptions};
use windlass_core::adaptive::MemoryWindow;
use windlass_core::requests::bans::BanPolicy;
use windlass_server::ApiError;
use windlass_server::requests::admission::AdmissionSettings;
use windlass_server::requests::{
    RequestActor, admission, alerts, catalog, dags, errors, files, release, request_queries, request_update,
    sites, submit, termination, workflows,
};
use windlass_store::StoreDatabase;
use windlass_store::model::{RequestFilter, RequestRunFilter, SortBy};
use windlass_types::SystemClock;
use windlass_types::catalog::DatasetSummary;
use windlass_types::requests::{Request, RequestFileState, RequestStatus};

pub(crate) enum RequestService {
    Server(Box<Client>),
    Local(LocalRequests),
}

/// A database without a server, and the user.
pub(crate) struct LocalRequests {
    pub(crate) database: Arc<dyn StoreDatabase>,
    user: String,
}

impl LocalRequests {
    pub(crate) fn new(database: Arc<dyn StoreDatabase>) -> Self {
        Self { database, user: crate::spec_file::current_user() }
    }

    fn actor(&self) -> RequestActor<'_> {
        RequestActor::owner(&self.user)
    }
}

impl CliContext {
    /// For reading.
    pub(crate) fn request_service_read(&self) -> Result<RequestService, CliError> {
        match self.server()? {
            Some(client) => Ok(RequestService::Server(Box::new(client.clone()))),
            None => Ok(RequestService::Local(LocalRequests::new(self.open_database_read()?))),
        }
    }

    /// For writing; creates the database if needed.
    pub(crate) fn request_service(&self) -> Result<RequestService, CliError> {
        if let Some(client) = self.server()? {
            return Ok(RequestService::Server(Box::new(client.clone())));
        }
        let database = self.open_or_create_local()?;
        self.refuse_served_database(&*database)?;
        Ok(RequestService::Local(LocalRequests::new(database)))
    }
}

/// Operations on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DagOperation {
    Hold,
    Release,
    Remove,
    Rescue,
}

impl DagOperation {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Remove => "remove",
            Self::Rescue => "rescue",
        }
    }
}

/// One operation, performed by the server or locally.
macro_rules! ask {
    ($self:ident, |$client:ident| $remote:expr, |$here:ident| $local:expr) => {
        match $self {
            RequestService::Server($client) => $remote.map_err(CliError::from),
            RequestService::Local($here) => $local.map_err(CliError::from),
        }
    };
}

impl RequestService {
    /// Whether stored commands wait until a server is started.
    pub(crate) const fn has_no_server(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    pub(crate) fn submit(&self, document: &Value) -> Result<SubmitResponse, CliError> {
        ask!(self, |client| client.submit_request(document), |here| {
            submit::submit(
                &*here.database,
                document,
                MemoryWindow::default(),
                here.actor(),
                SystemClock.now(),
            )
            .map(|(submitted, _)| submitted)
        })
    }

    /// Output datasets that a new request may not write into, each with the reason. With a server, only requests
    /// that the caller may see are considered.
    pub(crate) fn find_output_conflicts(&self, new: &Request) -> Result<Vec<(String, String)>, CliError> {
        let submitted = self.get_request(&new.request_name).map(|own| own.request.output_datasets);
        let outputs = new.output_datasets.iter();
        let outputs = outputs.filter(|dataset| !submitted.as_ref().is_ok_and(|own| own.contains(dataset)));
        let mut conflicts = Vec::new();
        for dataset in outputs {
            let conflict = match self {
                Self::Server(client) => find_remote_conflict(client, dataset, &new.request_name)?,
                Self::Local(here) => {
                    here.database.output_taken_by(dataset, &new.request_name).map_err(ApiError::from)?
                }
            };
            conflicts.extend(conflict.map(|why| (dataset.clone(), why)));
        }
        Ok(conflicts)
    }

    pub(crate) fn list_requests(&self, query: &RequestListOptions) -> Result<RequestList, CliError> {
        ask!(self, |client| client.requests(query), |here| request_queries::list_requests(
            &*here.database,
            request_filter(query)
        ))
    }

    pub(crate) fn get_request(&self, name: &str) -> Result<FullRequest, CliError> {
        ask!(self, |client| client.request(name), |here| request_queries::get_request(
            &*here.database,
            name,
            SystemClock.now()
        ))
    }

    pub(crate) fn request_status(&self, name: &str) -> Result<RequestWorkflowStatus, CliError> {
        ask!(self, |client| client.request_status(name), |here| {
            workflows::get_request_status(&*here.database, name, SystemClock.now())
        })
    }

    pub(crate) fn request_metrics(&self, name: &str) -> Result<RequestMetrics, CliError> {
        ask!(self, |client| client.request_metrics(name), |here| workflows::get_request_metrics(
            &*here.database,
            name
        ))
    }

    pub(crate) fn request_versions(&self, name: &str) -> Result<RequestVersionList, CliError> {
        ask!(self, |client| client.request_versions(name), |here| request_queries::list_versions(
            &*here.database,
            name
        ))
    }

    pub(crate) fn request_files(
        &self,
        name: &str,
        states: &[RequestFileState],
        offset: u64,
        limit: u64,
    ) -> Result<RequestFiles, CliError> {
        ask!(self, |client| client.request_files(name, states, offset, limit), |here| {
            files::list_request_files(&*here.database, name, states, offset, Some(limit))
        })
    }

    pub(crate) fn patch_request(&self, name: &str, patch: &PatchRequest) -> Result<FullRequest, CliError> {
        ask!(self, |client| client.patch_request(name, patch), |here| {
            request_update::patch_request(&*here.database, name, patch, here.actor(), SystemClock.now())
                .and_then(|()| request_queries::get_request(&*here.database, name, SystemClock.now()))
        })
    }

    pub(crate) fn stop_request(&self, name: &str, reason: &str) -> Result<StopResponse, CliError> {
        ask!(self, |client| client.stop_request(name, reason), |here| {
            request_update::stop_request(&*here.database, name, reason, here.actor(), SystemClock.now())
        })
    }

    pub(crate) fn abort_request(&self, name: &str, reason: &str) -> Result<AbortResponse, CliError> {
        ask!(self, |client| client.abort_request(name, reason), |here| {
            request_update::abort_request(&*here.database, name, reason, here.actor(), SystemClock.now())
        })
    }

    pub(crate) fn request_errors(&self, name: &str, all: bool) -> Result<RequestErrors, CliError> {
        ask!(self, |client| client.request_errors(name, all), |here| {
            errors::get_request_errors(&*here.database, name, all, MemoryWindow::default(), SystemClock.now())
        })
    }

    pub(crate) fn release_request(
        &self,
        name: &str,
        wanted: &ReleaseRequest,
    ) -> Result<ReleaseResponse, CliError> {
        ask!(self, |client| client.release_request(name, wanted), |here| {
            let (spell, memory) = (BanPolicy::default().duration, MemoryWindow::default());
            release::release_request(
                &*here.database,
                name,
                wanted,
                spell,
                memory,
                here.actor(),
                SystemClock.now(),
            )
        })
    }

    pub(crate) fn fail_request(&self, name: &str, wanted: &FailRequest) -> Result<AbortResponse, CliError> {
        ask!(self, |client| client.fail_request(name, wanted), |here| {
            termination::fail_request(&*here.database, name, wanted, here.actor(), SystemClock.now())
        })
    }

    pub(crate) fn restart_request(
        &self,
        name: &str,
        wanted: &RestartRequest,
    ) -> Result<RestartResponse, CliError> {
        ask!(self, |client| client.restart_request(name, wanted), |here| {
            termination::restart_request(&*here.database, name, wanted, here.actor(), SystemClock.now())
        })
    }

    pub(crate) fn invalidate_request(
        &self,
        name: &str,
        wanted: &InvalidateRequest,
    ) -> Result<InvalidateResponse, CliError> {
        ask!(self, |client| client.invalidate_request(name, wanted), |here| {
            termination::invalidate_request(&*here.database, name, wanted, here.actor(), SystemClock.now())
        })
    }

    pub(crate) fn list_alerts(
        &self,
        request: Option<&str>,
        kind: Option<&str>,
        limit: u64,
    ) -> Result<AlertList, CliError> {
        ask!(self, |client| client.alerts(request, kind, limit), |here| {
            alerts::list_alerts(&*here.database, request, kind, Some(limit))
        })
    }

    pub(crate) fn list_dags(&self, query: &DagListOptions) -> Result<RequestDagList, CliError> {
        ask!(self, |client| client.dags(query), |here| {
            let filter = RequestRunFilter {
                process: query.workflow.clone(),
                status: query.status.clone(),
                offset: query.offset,
                limit: query.limit,
                ..RequestRunFilter::default()
            };
            dags::list_dags(&*here.database, filter)
        })
    }

    pub(crate) fn get_dag(&self, id: &str) -> Result<RequestDag, CliError> {
        ask!(self, |client| client.dag(id), |here| dags::get_dag(&*here.database, id))
    }

    pub(crate) fn dag_nodes(
        &self,
        id: &str,
        query: &DagNodeListOptions,
    ) -> Result<RequestDagNodeList, CliError> {
        ask!(self, |client| client.dag_nodes(id, query), |here| {
            let wanted = dags::DagNodeFilter {
                status: query.status.clone(),
                unit: query.unit,
                offset: query.offset,
                limit: query.limit,
            };
            dags::list_dag_nodes(&*here.database, id, &wanted)
        })
    }

    pub(crate) fn dag_logs(&self, id: &str, which: &dags::DagLogSelector) -> Result<DagLogs, CliError> {
        ask!(self, |client| client.dag_logs(id, which.unit, which.node.as_deref()), |here| {
            dags::get_dag_logs(&*here.database, id, which)
        })
    }

    pub(crate) fn act_on_dag(
        &self,
        id: &str,
        action: DagOperation,
        reason: &str,
    ) -> Result<DagAction, CliError> {
        ask!(self, |client| client.act_on_dag(id, action.name(), reason), |here| {
            let (database, actor, now) = (&*here.database, here.actor(), SystemClock.now());
            match action {
                DagOperation::Hold => dags::hold_dag(database, id, reason, actor),
                DagOperation::Release => dags::release_dag(database, id, reason, actor, now),
                DagOperation::Remove => dags::remove_dag(database, id, reason, actor, now),
                DagOperation::Rescue => dags::rescue_dag(database, id, reason, actor, now),
            }
        })
    }

    pub(crate) fn list_sites(&self) -> Result<SiteList, CliError> {
        ask!(self, |client| client.sites(), |here| sites::list_sites(&*here.database, SystemClock.now()))
    }

    pub(crate) fn get_site(&self, name: &str) -> Result<SiteResponse, CliError> {
        ask!(self, |client| client.site(name), |here| sites::get_site(
            &*here.database,
            name,
            SystemClock.now()
        ))
    }

    pub(crate) fn patch_site(&self, name: &str, patch: &PatchSite) -> Result<SiteResponse, CliError> {
        ask!(self, |client| client.patch_site(name, patch), |here| {
            sites::patch_site(&*here.database, name, patch, SystemClock.now())
        })
    }

    pub(crate) fn drain_site(&self, name: &str, drain: DrainSite) -> Result<SiteResponse, CliError> {
        ask!(self, |client| client.drain_site(name, drain), |here| {
            sites::drain_site(&*here.database, name, drain.until, SystemClock.now())
        })
    }

    pub(crate) fn enable_site(&self, name: &str) -> Result<SiteResponse, CliError> {
        ask!(self, |client| client.enable_site(name), |here| sites::enable_site(
            &*here.database,
            name,
            SystemClock.now()
        ))
    }

    pub(crate) fn ban_site(&self, name: &str, ban: &BanSite) -> Result<SiteResponse, CliError> {
        ask!(self, |client| client.ban_site(name, ban), |here| {
            sites::ban_site(&*here.database, name, ban, here.actor(), SystemClock.now())
        })
    }

    pub(crate) fn list_bans(
        &self,
        site: Option<&str>,
        request: Option<&str>,
        all: bool,
    ) -> Result<BanList, CliError> {
        ask!(self, |client| client.bans(site, request, all), |here| {
            sites::list_bans(&*here.database, site, request, all, SystemClock.now())
        })
    }

    pub(crate) fn unban_site(&self, name: &str, request: Option<&str>) -> Result<UnbanResponse, CliError> {
        ask!(self, |client| client.unban_site(name, request), |here| {
            sites::unban_site(&*here.database, name, request, here.actor(), SystemClock.now())
        })
    }

    pub(crate) fn admission_queue(&self, limit: u64) -> Result<AdmissionQueue, CliError> {
        ask!(self, |client| client.admission_queue(limit), |here| {
            admission::get_admission_queue(
                &*here.database,
                Some(limit),
                &AdmissionSettings::default(),
                SystemClock.now(),
            )
        })
    }

    pub(crate) fn set_admission(&self, config: &AdmissionConfig) -> Result<AdmissionConfig, CliError> {
        ask!(self, |client| client.set_admission(config), |here| {
            admission::set_admission_config(&*here.database, config, here.actor(), SystemClock.now())
        })
    }

    pub(crate) fn list_datasets(&self, pattern: Option<&str>) -> Result<DatasetList, CliError> {
        ask!(self, |client| client.datasets(pattern), |here| catalog::list_datasets(&*here.database, pattern))
    }

    pub(crate) fn get_dataset(&self, name: &str) -> Result<DatasetSummary, CliError> {
        ask!(self, |client| client.dataset(name), |here| catalog::get_dataset(&*here.database, name))
    }

    pub(crate) fn dataset_files(
        &self,
        name: &str,
        only_valid: bool,
        offset: u64,
        limit: u64,
    ) -> Result<DatasetFileList, CliError> {
        ask!(self, |client| client.dataset_files(name, only_valid, offset, limit), |here| {
            catalog::list_dataset_files(&*here.database, name, only_valid, offset, Some(limit))
        })
    }

    pub(crate) fn dataset_blocks(&self, name: &str) -> Result<DatasetBlockList, CliError> {
        ask!(self, |client| client.dataset_blocks(name), |here| catalog::list_dataset_blocks(
            &*here.database,
            name
        ))
    }

    pub(crate) fn import_dataset(&self, import: &ImportFiles) -> Result<ImportResponse, CliError> {
        ask!(self, |client| client.import_files(import), |here| {
            catalog::import_files(&*here.database, import, here.actor(), SystemClock.now())
        })
    }

    pub(crate) fn forget_dataset(&self, name: &str) -> Result<(), CliError> {
        ask!(self, |client| client.forget_dataset(name), |here| {
            catalog::forget_dataset(&*here.database, name, here.actor(), SystemClock.now())
        })
    }
}

fn find_remote_conflict(client: &Client, dataset: &str, request: &str) -> Result<Option<String>, CliError> {
    let is_writer = |one: &RequestSummary| {
        one.request_name != request
            && !matches!(one.status, RequestStatus::Failed | RequestStatus::Aborted)
            && one.output_datasets.iter().any(|output| output == dataset)
    };
    let mut query = RequestListOptions { limit: Some(1000), ..RequestListOptions::default() };
    loop {
        let page = client.requests(&query)?;
        if let Some(writer) = page.items.iter().find(|one| is_writer(one)) {
            return Ok(Some(format!("request `{}` writes it", writer.request_name)));
        }
        query.offset += page.items.len() as u64;
        if page.items.is_empty() || query.offset >= page.total {
            break;
        }
    }
    let known = client.datasets(Some(dataset))?.items;
    Ok(known.iter().any(|known| known.name == dataset).then(|| "it is already in the catalog".to_owned()))
}

fn request_filter(query: &RequestListOptions) -> RequestFilter {
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

/// Errors of the server's use cases when called locally.
impl From<ApiError> for CliError {
    fn from(error: ApiError) -> Self {
        let kind = match error.status.as_u16() {
            400..=404 | 422 | 501 => CliErrorKind::User,
            400..=499 => CliErrorKind::Refused,
            502 | 503 => CliErrorKind::Io,
            _ => CliErrorKind::Internal,
        };
        Self { hint: error.hint, ..Self::new(kind, error.detail) }
    }
}

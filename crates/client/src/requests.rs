//! Requests, sites, admission and datasets on a server.

use crate::{CALL_TIMEOUT, Client, ClientError};
use serde::Serialize;
use serde_json::{Value, json};
use windlass_api::requests::{
    AbortResponse, AdmissionConfig, AdmissionQueue, AlertList, BanList, BanSite, DagAction, DagLogs,
    DagReason, DatasetBlockList, DatasetFileList, DatasetList, DrainSite, FailRequest, FullRequest,
    ImportFiles, ImportResponse, InvalidateRequest, InvalidateResponse, PatchRequest, PatchSite,
    ReleaseRequest, ReleaseResponse, RequestDag, RequestDagList, RequestDagNodeList, RequestErrors,
    RequestFiles, RequestList, RequestMetrics, RequestVersionList, RequestWorkflowStatus, RestartRequest,
    RestartResponse, SiteList, SiteResponse, StopRequest, StopResponse, SubmitResponse, UnbanResponse,
};
use windlass_types::catalog::DatasetSummary;
use windlass_types::requests::{RequestFileState, RequestRunStatus, RequestStatus};

/// Filter and page of a list of requests.
#[derive(Clone, Debug, Default)]
pub struct RequestListOptions {
    pub status: Vec<RequestStatus>,
    pub campaign: Option<String>,
    pub requestor: Option<String>,
    /// `*` matches any text.
    pub name: Option<String>,
    pub sort_by: Option<&'static str>,
    pub reverse: bool,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// Filter and page of a list of runs.
#[derive(Clone, Debug, Default)]
pub struct DagListOptions {
    pub status: Vec<RequestRunStatus>,
    /// Only runs of the workflow with this UUID.
    pub workflow: Option<String>,
    pub offset: u64,
    pub limit: Option<u64>,
}

/// Filter and page of a list of nodes of a run.
#[derive(Clone, Debug, Default)]
pub struct DagNodeListOptions {
    pub status: Vec<String>,
    pub unit: Option<u32>,
    pub offset: u64,
    pub limit: Option<u64>,
}

impl Client {
    /// Submits a document of either form, optionally with `production_steps`. Resubmitting it returns the
    /// existing request.
    pub fn submit_request(&self, document: &Value) -> Result<SubmitResponse, ClientError> {
        self.post("/api/v1/requests", document)
    }

    pub fn requests(&self, query: &RequestListOptions) -> Result<RequestList, ClientError> {
        let status: Vec<&str> = query.status.iter().map(|status| status.name()).collect();
        let asked = [
            ("status", Some(status.join(",")).filter(|text| !text.is_empty())),
            ("campaign", query.campaign.clone()),
            ("requestor", query.requestor.clone()),
            ("name", query.name.clone()),
            ("sort_by", query.sort_by.map(str::to_owned)),
            ("reverse_sort", query.reverse.then(|| "true".to_owned())),
            ("offset", (query.offset > 0).then(|| query.offset.to_string())),
            ("limit", query.limit.map(|limit| limit.to_string())),
        ];
        self.get_with_query("/api/v1/requests", &asked)
    }

    pub fn request(&self, name: &str) -> Result<FullRequest, ClientError> {
        self.get_at("/api/v1/requests", &[name])
    }

    pub fn request_status(&self, name: &str) -> Result<RequestWorkflowStatus, ClientError> {
        self.get_at("/api/v1/requests", &[name, "status"])
    }

    pub fn request_metrics(&self, name: &str) -> Result<RequestMetrics, ClientError> {
        self.get_at("/api/v1/requests", &[name, "metrics"])
    }

    pub fn request_versions(&self, name: &str) -> Result<RequestVersionList, ClientError> {
        self.get_at("/api/v1/requests", &[name, "versions"])
    }

    /// Lists input files that rounds have used, in the given states, or all.
    pub fn request_files(
        &self,
        name: &str,
        states: &[RequestFileState],
        offset: u64,
        limit: u64,
    ) -> Result<RequestFiles, ClientError> {
        let states: Vec<&str> = states.iter().map(|state| state.name()).collect();
        let asked = [
            ("state", Some(states.join(",")).filter(|text| !text.is_empty())),
            ("offset", (offset > 0).then(|| offset.to_string())),
            ("limit", Some(limit.to_string())),
        ];
        self.get_at_with_query("/api/v1/requests", &[name, "files"], &asked)
    }

    pub fn patch_request(&self, name: &str, patch: &PatchRequest) -> Result<FullRequest, ClientError> {
        self.patch_at("/api/v1/requests", &[name], patch)
    }

    pub fn stop_request(&self, name: &str, reason: &str) -> Result<StopResponse, ClientError> {
        self.post_at("/api/v1/requests", &[name, "stop"], &StopRequest { reason: reason.to_owned() })
    }

    pub fn abort_request(&self, name: &str, reason: &str) -> Result<AbortResponse, ClientError> {
        let mut url = self.url_below("/api/v1/requests", &[name])?;
        url.query_pairs_mut().append_pair("reason", reason);
        self.call(self.http.delete(url), CALL_TIMEOUT)
    }

    /// Returns failed attempts of the current round, or of all rounds.
    pub fn request_errors(&self, name: &str, all: bool) -> Result<RequestErrors, ClientError> {
        self.get_at_with_query(
            "/api/v1/requests",
            &[name, "errors"],
            &[("all", all.then(|| "true".to_owned()))],
        )
    }

    pub fn release_request(
        &self,
        name: &str,
        release: &ReleaseRequest,
    ) -> Result<ReleaseResponse, ClientError> {
        self.post_at("/api/v1/requests", &[name, "release"], release)
    }

    pub fn fail_request(&self, name: &str, fail: &FailRequest) -> Result<AbortResponse, ClientError> {
        self.post_at("/api/v1/requests", &[name, "fail"], fail)
    }

    pub fn restart_request(
        &self,
        name: &str,
        restart: &RestartRequest,
    ) -> Result<RestartResponse, ClientError> {
        self.post_at("/api/v1/requests", &[name, "restart"], restart)
    }

    pub fn invalidate_request(
        &self,
        name: &str,
        invalidate: &InvalidateRequest,
    ) -> Result<InvalidateResponse, ClientError> {
        self.post_at("/api/v1/requests", &[name, "invalidate"], invalidate)
    }

    /// Returns the newest alerts about a request, of a type, or all.
    pub fn alerts(
        &self,
        request: Option<&str>,
        kind: Option<&str>,
        limit: u64,
    ) -> Result<AlertList, ClientError> {
        let asked = [
            ("request_name", request.map(str::to_owned)),
            ("kind", kind.map(str::to_owned)),
            ("limit", Some(limit.to_string())),
        ];
        self.get_with_query("/api/v1/alerts", &asked)
    }

    pub fn dags(&self, query: &DagListOptions) -> Result<RequestDagList, ClientError> {
        let status: Vec<&str> = query.status.iter().map(|status| status.name()).collect();
        let asked = [
            ("status", Some(status.join(",")).filter(|text| !text.is_empty())),
            ("workflow_id", query.workflow.clone()),
            ("offset", (query.offset > 0).then(|| query.offset.to_string())),
            ("limit", query.limit.map(|limit| limit.to_string())),
        ];
        self.get_with_query("/api/v1/dags", &asked)
    }

    pub fn dag(&self, id: &str) -> Result<RequestDag, ClientError> {
        self.get_at("/api/v1/dags", &[id])
    }

    pub fn dag_nodes(&self, id: &str, query: &DagNodeListOptions) -> Result<RequestDagNodeList, ClientError> {
        let asked = [
            ("status", Some(query.status.join(",")).filter(|text| !text.is_empty())),
            ("work_unit", query.unit.map(|unit| unit.to_string())),
            ("offset", (query.offset > 0).then(|| query.offset.to_string())),
            ("limit", query.limit.map(|limit| limit.to_string())),
        ];
        self.get_at_with_query("/api/v1/dags", &[id, "nodes"], &asked)
    }

    pub fn dag_logs(&self, id: &str, unit: Option<u32>, node: Option<&str>) -> Result<DagLogs, ClientError> {
        let asked = [("work_unit", unit.map(|unit| unit.to_string())), ("node", node.map(str::to_owned))];
        self.get_at_with_query("/api/v1/dags", &[id, "logs"], &asked)
    }

    /// `hold`, `release`, `remove` or `rescue`.
    pub fn act_on_dag(&self, id: &str, action: &str, reason: &str) -> Result<DagAction, ClientError> {
        self.post_at("/api/v1/dags", &[id, action], &DagReason { reason: reason.to_owned() })
    }

    pub fn sites(&self) -> Result<SiteList, ClientError> {
        self.get("/api/v1/sites")
    }

    pub fn site(&self, name: &str) -> Result<SiteResponse, ClientError> {
        self.get_at("/api/v1/sites", &[name])
    }

    pub fn patch_site(&self, name: &str, patch: &PatchSite) -> Result<SiteResponse, ClientError> {
        self.patch_at("/api/v1/sites", &[name], patch)
    }

    pub fn drain_site(&self, name: &str, drain: DrainSite) -> Result<SiteResponse, ClientError> {
        self.post_at("/api/v1/sites", &[name, "drain"], &drain)
    }

    pub fn enable_site(&self, name: &str) -> Result<SiteResponse, ClientError> {
        self.post_at("/api/v1/sites", &[name, "enable"], &json!({}))
    }

    pub fn ban_site(&self, name: &str, ban: &BanSite) -> Result<SiteResponse, ClientError> {
        self.post_at("/api/v1/sites", &[name, "ban"], ban)
    }

    /// Lists active bans, or all.
    pub fn bans(&self, site: Option<&str>, request: Option<&str>, all: bool) -> Result<BanList, ClientError> {
        let asked = [
            ("site_name", site.map(str::to_owned)),
            ("request_name", request.map(str::to_owned)),
            ("all", all.then(|| "true".to_owned())),
        ];
        self.get_with_query("/api/v1/sites/bans", &asked)
    }

    pub fn unban_site(&self, name: &str, request: Option<&str>) -> Result<UnbanResponse, ClientError> {
        let mut url = self.url_below("/api/v1/sites", &[name, "ban"])?;
        if let Some(request) = request {
            url.query_pairs_mut().append_pair("request_name", request);
        }
        self.call(self.http.delete(url), CALL_TIMEOUT)
    }

    pub fn admission_queue(&self, limit: u64) -> Result<AdmissionQueue, ClientError> {
        self.get_with_query("/api/v1/admission/queue", &[("limit", Some(limit.to_string()))])
    }

    pub fn set_admission(&self, config: &AdmissionConfig) -> Result<AdmissionConfig, ClientError> {
        self.patch_at("/api/v1/admission/config", &[], config)
    }

    pub fn datasets(&self, pattern: Option<&str>) -> Result<DatasetList, ClientError> {
        self.get_with_query("/api/v1/catalog/datasets", &[("name", pattern.map(str::to_owned))])
    }

    pub fn dataset(&self, name: &str) -> Result<DatasetSummary, ClientError> {
        self.get_with_query("/api/v1/catalog/dataset", &[("name", Some(name.to_owned()))])
    }

    pub fn forget_dataset(&self, name: &str) -> Result<(), ClientError> {
        let url = self.url_with_query("/api/v1/catalog/dataset", [("name", name)].into_iter())?;
        self.call::<serde::de::IgnoredAny>(self.http.delete(url), CALL_TIMEOUT).map(|_| ())
    }

    pub fn dataset_files(
        &self,
        name: &str,
        only_valid: bool,
        offset: u64,
        limit: u64,
    ) -> Result<DatasetFileList, ClientError> {
        let asked = [
            ("dataset", Some(name.to_owned())),
            ("valid", Some(only_valid.to_string())),
            ("offset", Some(offset.to_string())),
            ("limit", Some(limit.to_string())),
        ];
        self.get_with_query("/api/v1/catalog/files", &asked)
    }

    pub fn dataset_blocks(&self, name: &str) -> Result<DatasetBlockList, ClientError> {
        self.get_with_query("/api/v1/catalog/blocks", &[("dataset", Some(name.to_owned()))])
    }

    pub fn import_files(&self, import: &ImportFiles) -> Result<ImportResponse, ClientError> {
        self.post("/api/v1/catalog/import", import)
    }

    fn get_with_query<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        asked: &[(&str, Option<String>)],
    ) -> Result<T, ClientError> {
        let asked = asked.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        self.call(self.http.get(self.url_with_query(path, asked)?), CALL_TIMEOUT)
    }

    /// Names may contain any character.
    fn url_below(&self, path: &str, parts: &[&str]) -> Result<reqwest::Url, ClientError> {
        let mut url = self.url_with_query(path, std::iter::empty())?;
        url.set_query(None);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.extend(parts);
        }
        Ok(url)
    }

    fn get_at_with_query<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        parts: &[&str],
        asked: &[(&str, Option<String>)],
    ) -> Result<T, ClientError> {
        let mut url = self.url_below(path, parts)?;
        for (name, value) in asked.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))) {
            url.query_pairs_mut().append_pair(name, value);
        }
        self.call(self.http.get(url), CALL_TIMEOUT)
    }

    fn get_at<T: serde::de::DeserializeOwned>(&self, path: &str, parts: &[&str]) -> Result<T, ClientError> {
        self.call(self.http.get(self.url_below(path, parts)?), CALL_TIMEOUT)
    }

    fn post_at<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        parts: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.call(self.http.post(self.url_below(path, parts)?).json(body), CALL_TIMEOUT)
    }

    fn patch_at<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        parts: &[&str],
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.call(self.http.patch(self.url_below(path, parts)?).json(body), CALL_TIMEOUT)
    }
}

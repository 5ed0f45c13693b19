//! Queries of requests.

use super::{load_request, page_length, sites};
use crate::error::ApiResult;
use windlass_api::requests::{
    FullRequest, PendingCommandResponse, RequestList, RequestRecoveryState, RequestSummary, RequestVersion,
    RequestVersionList, RequestWorkflowRef, StatusTransitionResponse,
};
use windlass_core::requests::derived_uuids;
use windlass_core::requests::rows::{self, OutputStepState, RequestProgress, RequestRow, RunRow};
use windlass_core::requests::versions::{self, OutputState};
use windlass_store::StoreDatabase;
use windlass_store::model::{OutputStepFilter, RequestFilter, RequestRunFilter, SiteBanFilter};
use windlass_types::Timestamp;
use windlass_types::requests::RequestStatus;

pub fn list_requests(db: &dyn StoreDatabase, mut filter: RequestFilter) -> ApiResult<RequestList> {
    filter.limit = Some(page_length(filter.limit));
    let total = db.count_requests(&filter)?;
    let items = db.requests(&filter)?.into_iter().map(api_request_summary).collect();
    Ok(RequestList { items, total, offset: filter.offset })
}

fn api_request_summary(row: RequestRow) -> RequestSummary {
    let request = row.request;
    RequestSummary {
        request_name: request.request_name,
        status: row.status,
        priority: request.priority,
        urgent: request.urgent,
        requestor: request.requestor,
        campaign: request.campaign,
        input_dataset: request.input_dataset,
        output_datasets: request.output_datasets,
        created_at: row.created_at,
        updated_at: row.updated_at,
        since: row.since,
        reason: row.reason,
        version: row.version,
    }
}

pub fn get_request(db: &dyn StoreDatabase, name: &str, now: Timestamp) -> ApiResult<FullRequest> {
    let row = load_request(db, name)?;
    let transitions = db.transitions(name)?.into_iter().map(api_transition).collect();
    let process = db.process(name)?;
    Ok(FullRequest {
        recovery: load_recovery_state(db, &row, process.as_ref(), now)?,
        workflow: workflow_ref(&row, process.as_ref()),
        request: row.request,
        status: row.status,
        reason: row.reason,
        wanted: row.wanted.map(api_pending_command),
        status_transitions: transitions,
        created_at: row.created_at,
        updated_at: row.updated_at,
        since: row.since,
        version: row.version,
    })
}

fn load_recovery_state(
    db: &dyn StoreDatabase,
    row: &RequestRow,
    process: Option<&RequestProgress>,
    now: Timestamp,
) -> ApiResult<RequestRecoveryState> {
    let mut state = RequestRecoveryState {
        overrides: row.overrides.clone(),
        site_bans: load_request_bans(db, &row.request.request_name, now)?,
        excluded_files: row.overrides.excluded_files.len() as u64,
        ..RequestRecoveryState::default()
    };
    let Some(process) = process else { return Ok(state) };
    state.round = Some(process.round);
    // Recent reports are counted when the round ends.
    state.excluded_files = state.excluded_files.max(db.file_counts(&process.uuid)?.excluded);
    let later = versions::later_versions(&row.request, |name| db.request(name), |row| &row.request)?;
    let later = later.iter().map(|row| row.status);
    let blocks = db.processing_blocks(&process.uuid)?;
    state.output_state =
        (!blocks.is_empty()).then(|| OutputState::from_blocks(&blocks, later).name().to_owned());
    let given_up = OutputStepFilter {
        process: Some(process.uuid.clone()),
        state: vec![OutputStepState::Failed],
        ..OutputStepFilter::default()
    };
    state.outputs_given_up = db.output_steps(&given_up)?.len() as u64;
    let runs = RequestRunFilter { process: Some(process.uuid.clone()), ..RequestRunFilter::default() };
    let latest = db.request_runs(&runs)?.pop().filter(|run| run.round == process.round);
    Ok(match latest {
        Some(run) => add_run_state(state, &run),
        None => state,
    })
}

fn add_run_state(state: RequestRecoveryState, run: &RunRow) -> RequestRecoveryState {
    RequestRecoveryState {
        rescues_used: run.rescues,
        work_units: run.totals.units,
        work_units_completed: run.units_completed,
        work_units_failed: run.units_failed,
        paused_since: run.paused.filter(|_| run.status.is_active()),
        backend_silent_since: run.silent.filter(|_| run.status.is_active()),
        ..state
    }
}

fn load_request_bans(
    db: &dyn StoreDatabase,
    name: &str,
    now: Timestamp,
) -> ApiResult<Vec<windlass_api::requests::BanResponse>> {
    let filter =
        SiteBanFilter { applies_to: Some(name.to_owned()), active_at: Some(now), ..SiteBanFilter::default() };
    let own = db.bans(&filter)?.into_iter().filter(|ban| ban.ban.request.is_some());
    Ok(own.map(sites::api_ban).collect())
}

fn api_transition(line: rows::StatusTransition) -> StatusTransitionResponse {
    StatusTransitionResponse {
        from: line.from,
        to: line.to,
        timestamp: line.at,
        by: line.by,
        reason: line.reason,
    }
}

fn api_pending_command(wanted: rows::RequestCommand) -> PendingCommandResponse {
    let what = match wanted.what {
        rows::RequestCommandKind::Stop => "stop",
        rows::RequestCommandKind::Abort => "abort",
        rows::RequestCommandKind::Fail => "fail",
        rows::RequestCommandKind::Release => "release",
        rows::RequestCommandKind::Remove => "remove",
    };
    PendingCommandResponse { what: what.to_owned(), by: wanted.by, reason: wanted.reason, at: wanted.at }
}

/// The UUID of the workflow is known before the workflow exists.
pub(crate) fn workflow_ref(row: &RequestRow, process: Option<&RequestProgress>) -> RequestWorkflowRef {
    let known = process.map(|process| process.uuid.clone());
    let id = known.unwrap_or_else(|| derived_uuids::process_uuid(&row.request.request_name, row.created_at));
    RequestWorkflowRef { id, status: workflow_status(row.status).to_owned() }
}

/// Returns the status of the workflow for a status of the request; it has no statuses for waiting.
pub(crate) const fn workflow_status(status: RequestStatus) -> &'static str {
    match status {
        RequestStatus::New | RequestStatus::Submitted | RequestStatus::Queued => "new",
        RequestStatus::Planning => "planning",
        RequestStatus::Active => "active",
        RequestStatus::Stopping => "stopping",
        RequestStatus::Resubmitting => "resubmitting",
        RequestStatus::Partial | RequestStatus::Held => "partial",
        RequestStatus::Completed => "completed",
        RequestStatus::Failed => "failed",
        RequestStatus::Aborted => "aborted",
    }
}

/// Returns the newest successor version, and all earlier ones.
pub fn list_versions(db: &dyn StoreDatabase, name: &str) -> ApiResult<RequestVersionList> {
    let read = |name: &str| db.request(name);
    let named = load_request(db, name)?;
    let newest = versions::later_versions(&named.request, read, |row| &row.request)?.pop().unwrap_or(named);
    let mut before = versions::earlier_versions(&newest.request, read, |row| &row.request)?;
    before.reverse();
    let versions = before.into_iter().map(|row| api_version(row, false)).collect();
    Ok(RequestVersionList { current: api_version(newest, true), versions })
}

fn api_version(row: RequestRow, is_current: bool) -> RequestVersion {
    let failed = matches!(row.status, RequestStatus::Failed | RequestStatus::Aborted);
    RequestVersion {
        request_name: row.request.request_name,
        processing_version: row.request.processing_version,
        status: row.status,
        cleanup_policy: is_current.then_some(row.request.cleanup_policy),
        superseded_by: row.request.superseded_by_request,
        failure_reason: row.reason.filter(|_| failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    ///
    #[test]
    fn workflow_statuses_are_those_of_the_specification() {
        let known = [
            "new",
            "planning",
            "active",
            "stopping",
            "resubmitting",
            "completed",
            "partial",
            "failed",
            "aborted",
        ];
        for status in RequestStatus::ALL {
            assert!(known.contains(&workflow_status(*status)), "{status}");
        }
    }
}

//! Requests, looked at.

use super::{page, request, sites};
use crate::error::Answer;
use windlass_api::requests::{
    RecoveryState, RequestLine, RequestShown, Requests, Transition, Version, Versions, Want, WorkflowRef,
};
use windlass_core::requests::book::{self, Process, RequestRow, RunRow, StepState};
use windlass_core::requests::names;
use windlass_core::requests::versions::{self, OutputState};
use windlass_store::Database;
use windlass_store::model::{BanFilter, RequestFilter, RunFilter, StepFilter};
use windlass_types::Timestamp;
use windlass_types::requests::RequestStatus;

pub fn list(db: &dyn Database, mut filter: RequestFilter) -> Answer<Requests> {
    filter.limit = Some(page(filter.limit));
    let total = db.count_requests(&filter)?;
    let items = db.requests(&filter)?.into_iter().map(line).collect();
    Ok(Requests { items, total, offset: filter.offset })
}

fn line(row: RequestRow) -> RequestLine {
    let request = row.request;
    RequestLine {
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

pub fn show(db: &dyn Database, name: &str, now: Timestamp) -> Answer<RequestShown> {
    let row = request(db, name)?;
    let transitions = db.transitions(name)?.into_iter().map(transition).collect();
    let process = db.process(name)?;
    Ok(RequestShown {
        recovery: recovery(db, &row, process.as_ref(), now)?,
        workflow: workflow_ref(&row, process.as_ref()),
        request: row.request,
        status: row.status,
        reason: row.reason,
        wanted: row.wanted.map(want),
        status_transitions: transitions,
        created_at: row.created_at,
        updated_at: row.updated_at,
        since: row.since,
        version: row.version,
    })
}

fn recovery(
    db: &dyn Database,
    row: &RequestRow,
    process: Option<&Process>,
    now: Timestamp,
) -> Answer<RecoveryState> {
    let mut state = RecoveryState {
        overrides: row.overrides.clone(),
        site_bans: own_bans(db, &row.request.request_name, now)?,
        excluded_files: row.overrides.excluded_files.len() as u64,
        ..RecoveryState::default()
    };
    let Some(process) = process else { return Ok(state) };
    state.round = Some(process.round);
    // What somebody said just now is counted there when its round is over.
    state.excluded_files = state.excluded_files.max(db.file_counts(&process.uuid)?.excluded);
    let later = versions::later(&row.request, |name| db.request(name), |row| &row.request)?;
    let later = later.iter().map(|row| row.status);
    let blocks = db.blocks(&process.uuid)?;
    state.output_state = (!blocks.is_empty()).then(|| OutputState::of(&blocks, later).name().to_owned());
    let given_up = StepFilter {
        process: Some(process.uuid.clone()),
        state: vec![StepState::Failed],
        ..StepFilter::default()
    };
    state.outputs_given_up = db.steps(&given_up)?.len() as u64;
    let runs = RunFilter { process: Some(process.uuid.clone()), ..RunFilter::default() };
    let latest = db.request_runs(&runs)?.pop().filter(|run| run.round == process.round);
    Ok(match latest {
        Some(run) => with_run(state, &run),
        None => state,
    })
}

fn with_run(state: RecoveryState, run: &RunRow) -> RecoveryState {
    RecoveryState {
        rescues_used: run.rescues,
        work_units: run.totals.units,
        work_units_completed: run.units_completed,
        work_units_failed: run.units_failed,
        paused_since: run.paused.filter(|_| run.status.is_active()),
        backend_silent_since: run.silent.filter(|_| run.status.is_active()),
        ..state
    }
}

fn own_bans(db: &dyn Database, name: &str, now: Timestamp) -> Answer<Vec<windlass_api::requests::Ban>> {
    let filter = BanFilter { holds_for: Some(name.to_owned()), active_at: Some(now), ..BanFilter::default() };
    let own = db.bans(&filter)?.into_iter().filter(|ban| ban.ban.request.is_some());
    Ok(own.map(sites::shown_ban).collect())
}

fn transition(line: book::Transition) -> Transition {
    Transition { from: line.from, to: line.to, timestamp: line.at, by: line.by, reason: line.reason }
}

fn want(wanted: book::Wanted) -> Want {
    let what = match wanted.what {
        book::Want::Stop => "stop",
        book::Want::Abort => "abort",
        book::Want::Fail => "fail",
        book::Want::Release => "release",
        book::Want::Remove => "remove",
    };
    Want { what: what.to_owned(), by: wanted.by, reason: wanted.reason, at: wanted.at }
}

/// Its UUID is known before it is there.
pub(crate) fn workflow_ref(row: &RequestRow, process: Option<&Process>) -> WorkflowRef {
    let known = process.map(|process| process.uuid.clone());
    let id = known.unwrap_or_else(|| names::process(&row.request.request_name, row.created_at));
    WorkflowRef { id, status: workflow_status(row.status).to_owned() }
}

/// What the workflow of a request is while the request is this: it has no words for waiting.
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

/// The newest version that leads back to this one, and all before it.
pub fn versions(db: &dyn Database, name: &str) -> Answer<Versions> {
    let read = |name: &str| db.request(name);
    let named = request(db, name)?;
    let newest = versions::later(&named.request, read, |row| &row.request)?.pop().unwrap_or(named);
    let mut before = versions::earlier(&newest.request, read, |row| &row.request)?;
    before.reverse();
    let versions = before.into_iter().map(|row| version(row, false)).collect();
    Ok(Versions { current: version(newest, true), versions })
}

fn version(row: RequestRow, is_current: bool) -> Version {
    let failed = matches!(row.status, RequestStatus::Failed | RequestStatus::Aborted);
    Version {
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
    fn workflows_have_the_words_of_the_specification() {
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

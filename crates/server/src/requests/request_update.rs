//! Changes of requests: commands are stored with the version they were decided from; the reconciler performs
//! them.

use super::{RequestActor, check_text, load_request, production_steps};
use crate::error::{ApiError, ApiResult};
use axum::http::StatusCode;
use windlass_api::requests::{AbortResponse, PatchRequest, StopResponse};
use windlass_core::requests::change::{RequestChange, RequestCommit};
use windlass_core::requests::rows::{RequestCommand, RequestCommandKind, RequestRow};
use windlass_store::{StoreDatabase, StoreError};
use windlass_types::Timestamp;
use windlass_types::requests::RequestStatus;

/// Number of attempts after concurrent changes, if the caller gave no version.
const MAX_UPDATE_ATTEMPTS: usize = 10;

/// Applies the given changes. With a version, only if the request still has it.
pub fn patch_request(
    db: &dyn StoreDatabase,
    name: &str,
    patch: &PatchRequest,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<()> {
    check_text("reason", patch.reason.as_deref().unwrap_or_default())?;
    update_request(db, name, patch.version, actor, now, |row| plan_patch(row, patch, actor, now))
}

/// Reads, decides and writes; retries after a concurrent change, unless a version was given.
pub(super) fn update_request(
    db: &dyn StoreDatabase,
    name: &str,
    version: Option<i64>,
    actor: RequestActor<'_>,
    now: Timestamp,
    decide: impl Fn(&RequestRow) -> ApiResult<Vec<RequestChange>>,
) -> ApiResult<()> {
    for attempt in 1.. {
        let row = load_request(db, name)?;
        (actor.authorize)(&row.request.requestor)?;
        if let Some(version) = version.filter(|version| *version != row.version) {
            return Err(version_conflict_error(&row, version));
        }
        let changes = decide(&row)?;
        if changes.is_empty() {
            return Ok(());
        }
        let commit = RequestCommit {
            request: name.to_owned(),
            version: row.version,
            changes,
            by: actor.name.to_owned(),
            at: now,
        };
        match db.apply_requests(&[commit]).pop() {
            // A concurrent change of this request, or of the name or a dataset of a new one.
            Some(Err(
                StoreError::Outdated { .. } | StoreError::NameTaken { .. } | StoreError::OutputTaken { .. },
            )) if version.is_none() && attempt < MAX_UPDATE_ATTEMPTS => {}
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(_)) | None => return Ok(()),
        }
    }
    Ok(())
}

fn version_conflict_error(row: &RequestRow, version: i64) -> ApiError {
    let detail = format!(
        "request `{}` is at version {}; the change was based on version {version}",
        row.request.request_name, row.version
    );
    ApiError::new(StatusCode::PRECONDITION_FAILED, "outdated", detail)
        .with_hint("read the request again and repeat the change")
}

fn plan_patch(
    row: &RequestRow,
    patch: &PatchRequest,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<Vec<RequestChange>> {
    if row.status.is_terminal() {
        return Err(request_over_error(row));
    }
    let mut changes = Vec::new();
    if let Some(priority) = patch.priority.filter(|priority| *priority != row.request.priority) {
        changes.push(RequestChange::Priority(priority));
    }
    if let Some(steps) =
        patch.production_steps.as_ref().filter(|steps| **steps != row.request.production_steps)
    {
        changes.push(RequestChange::ProductionSteps(steps.clone()));
    }
    if let Some(urgent) = patch.urgent.filter(|urgent| *urgent != row.request.urgent) {
        changes.push(RequestChange::Urgent(urgent));
    }
    check_steps(row, patch)?;
    if let Some(status) = patch.status.filter(|status| *status != row.status) {
        changes.push(plan_status_change(
            row,
            status,
            patch.reason.as_deref().unwrap_or_default(),
            actor,
            now,
        )?);
    }
    Ok(changes)
}

/// Checks only fields of the change; existing values are not checked again.
fn check_steps(row: &RequestRow, patch: &PatchRequest) -> ApiResult<()> {
    if patch.production_steps.is_none() && patch.urgent.is_none() {
        return Ok(());
    }
    let steps = patch.production_steps.as_ref().unwrap_or(&row.request.production_steps);
    let faults = production_steps::check_production_steps(steps, patch.urgent.unwrap_or(row.request.urgent));
    if faults.is_empty() {
        return Ok(());
    }
    let fault_texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    Err(ApiError::invalid(fault_texts.join("; ")).with_errors(faults))
}

/// Returns the command for a status that users may set; all others are set by the reconciler.
fn plan_status_change(
    row: &RequestRow,
    to: RequestStatus,
    reason: &str,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<RequestChange> {
    let want = |what| Ok(pending_command_change(what, reason, actor, now));
    match (row.status, to) {
        (RequestStatus::New, RequestStatus::Submitted) => {
            let reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
            Ok(RequestChange::Status { from: row.status, to, reason })
        }
        (RequestStatus::Held, RequestStatus::Queued | RequestStatus::Submitted | RequestStatus::Active) => {
            want(RequestCommandKind::Release)
        }
        (_, RequestStatus::Stopping) => want(RequestCommandKind::Stop),
        (_, RequestStatus::Aborted) => want(RequestCommandKind::Abort),
        (_, RequestStatus::Failed) => want(RequestCommandKind::Fail),
        (from, to) => Err(ApiError::conflict(
            "transition",
            format!("the status of a {from} request cannot be set to {to}"),
        )
        .with_hint(
            "`submitted` starts a new request, `queued` releases a held one; `stopping`, `aborted` and `failed` end it",
        )),
    }
}

pub(super) fn pending_command_change(
    what: RequestCommandKind,
    reason: &str,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> RequestChange {
    RequestChange::SetCommand(Some(pending_command(what, reason, actor, now)))
}

pub(super) fn pending_command(
    what: RequestCommandKind,
    reason: &str,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> RequestCommand {
    RequestCommand::new(what, actor.name, reason_or_none(reason), now)
}

/// Makes explicit in the audit trail that no reason was given.
pub(super) fn reason_or_none(reason: &str) -> &str {
    if reason.is_empty() { "no reason was given" } else { reason }
}

pub(super) fn request_over_error(row: &RequestRow) -> ApiError {
    ApiError::conflict(
        "over",
        format!("request `{}` is {}: it has ended", row.request.request_name, row.status),
    )
}

/// Stops a request cleanly (S 6.2).
pub fn stop_request(
    db: &dyn StoreDatabase,
    name: &str,
    reason: &str,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<StopResponse> {
    check_text("reason", reason)?;
    let before = load_request(db, name)?;
    update_request(db, name, None, actor, now, |row| match row.status {
        status if status.is_terminal() => Err(request_over_error(row)),
        // The stop is already in progress.
        RequestStatus::Stopping | RequestStatus::Resubmitting => Ok(Vec::new()),
        _ => Ok(vec![pending_command_change(RequestCommandKind::Stop, reason, actor, now)]),
    })?;
    let (status, message) = match before.status {
        RequestStatus::Planning | RequestStatus::Active | RequestStatus::Stopping => (
            RequestStatus::Stopping,
            "Clean stop started. The run will be stopped, and a run for the remaining work queued for admission.",
        ),
        RequestStatus::New | RequestStatus::Submitted | RequestStatus::Queued => {
            (RequestStatus::Held, "The request was not active; it is held, and starts when it is released.")
        }
        status => (status, "No part of the request is active."),
    };
    Ok(StopResponse {
        request_name: name.to_owned(),
        status,
        previous_status: before.status,
        stop_reason: reason.to_owned(),
        message: message.to_owned(),
    })
}

/// Aborts a request that is no longer needed.
pub fn abort_request(
    db: &dyn StoreDatabase,
    name: &str,
    reason: &str,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<AbortResponse> {
    check_text("reason", reason)?;
    let before = load_request(db, name)?;
    update_request(db, name, None, actor, now, |row| match row.status {
        // Repeating the call returns the same.
        RequestStatus::Aborted => Ok(Vec::new()),
        status if status.is_terminal() => Err(request_over_error(row)),
        RequestStatus::New => Ok(vec![RequestChange::Status {
            from: RequestStatus::New,
            to: RequestStatus::Aborted,
            reason: Some(format!("aborted by {}: {reason}", actor.name)),
        }]),
        _ => Ok(vec![pending_command_change(RequestCommandKind::Abort, reason, actor, now)]),
    })?;
    let after = load_request(db, name)?;
    let message = match after.status {
        RequestStatus::Aborted => "It is aborted.",
        _ => {
            "The request is being aborted: running jobs are stopped first, and incomplete outputs are invalidated."
        }
    };
    Ok(AbortResponse {
        request_name: name.to_owned(),
        status: after.status,
        previous_status: before.status,
        message: message.to_owned(),
    })
}

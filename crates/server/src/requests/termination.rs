//! Failing a request permanently, restarting it as its next version, and invalidating its outputs (R-132,
//!

use super::request_update::{pending_command, reason_or_none, request_over_error, update_request};
use super::{RequestActor, check_text, load_request};
use crate::error::{ApiError, ApiResult};
use serde_json::json;
use std::cell::{Cell, RefCell};
use windlass_api::requests::{
    AbortResponse, FailRequest, InvalidateRequest, InvalidateResponse, RestartRequest, RestartResponse,
};
use windlass_core::requests::change::RequestChange;
use windlass_core::requests::outputs;
use windlass_core::requests::rows::{
    BlockRow, NewAlert, OutputStep, OutputStepKind, OutputStepState, RequestCommand, RequestCommandKind,
    RequestRow,
};
use windlass_core::requests::versions::{self, TakenNames};
use windlass_store::StoreDatabase;
use windlass_store::model::{OutputStepFilter, SiteBanFilter};
use windlass_types::Timestamp;
use windlass_types::requests::{ProcessingBlockStatus, RequestStatus};

/// Fails a request: running jobs are stopped first, and the inventory of its outputs is recorded.
pub fn fail_request(
    db: &dyn StoreDatabase,
    name: &str,
    wanted: &FailRequest,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<AbortResponse> {
    check_text("reason", &wanted.reason)?;
    let before = load_request(db, name)?;
    update_request(db, name, None, actor, now, |row| match row.status {
        // Repeating the call returns the same.
        RequestStatus::Failed => Ok(Vec::new()),
        RequestStatus::New => Err(not_started_error(row)),
        status if status.is_terminal() => Err(request_over_error(row)),
        _ => {
            let command = fail_command(&wanted.reason, wanted.lost, actor, now);
            Ok(vec![RequestChange::SetCommand(Some(command))])
        }
    })?;
    let message = match before.status {
        RequestStatus::Failed => "It is failed.",
        _ => {
            "The request is being failed: running jobs are stopped first, then the inventory of its outputs is recorded."
        }
    };
    Ok(AbortResponse {
        request_name: name.to_owned(),
        status: load_request(db, name)?.status,
        previous_status: before.status,
        message: message.to_owned(),
    })
}

fn not_started_error(row: &RequestRow) -> ApiError {
    let detail = format!("request `{}` is new: it has not started", row.request.request_name);
    ApiError::conflict("not_begun", detail).with_hint("cancel it instead")
}

fn fail_command(reason: &str, lost: bool, actor: RequestActor<'_>, now: Timestamp) -> RequestCommand {
    RequestCommand { lost, ..pending_command(RequestCommandKind::Fail, reason, actor, now) }
}

/// Submits the same request under a new name, in one commit with the end of the old one. A concurrent restart
/// returns the request that the first one created.
pub fn restart_request(
    db: &dyn StoreDatabase,
    name: &str,
    wanted: &RestartRequest,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<RestartResponse> {
    check_text("reason", &wanted.reason)?;
    let before = load_request(db, name)?;
    let is_new = Cell::new(false);
    update_request(db, name, None, actor, now, |row| {
        is_new.set(row.request.superseded_by_request.is_none());
        match row.status {
            _ if !is_new.get() => Ok(Vec::new()),
            RequestStatus::New => Err(not_started_error(row)),
            _ => plan_replacement(db, row, wanted, actor, now),
        }
    })?;
    let old = load_request(db, name)?;
    let next = old.request.superseded_by_request.clone().unwrap_or_default();
    let new = load_request(db, &next)?;
    let message = if is_new.get() {
        format!("{next} replaces {name}, whose outputs stay until it is completed.")
    } else {
        format!("{next} already replaced {name}; to restart again, restart that request.")
    };
    Ok(RestartResponse {
        request_name: next,
        previous_version_request: name.to_owned(),
        processing_version: new.request.processing_version,
        cleanup_policy: new.request.cleanup_policy,
        status: new.status,
        previous_status: before.status,
        is_new: is_new.get(),
        message,
    })
}

/// A request that has ended keeps its status; any other ends.
fn plan_replacement(
    db: &dyn StoreDatabase,
    row: &RequestRow,
    wanted: &RestartRequest,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<Vec<RequestChange>> {
    let problem = RefCell::new(None);
    let answer = |found: Result<bool, windlass_store::StoreError>| {
        found.unwrap_or_else(|error| {
            // Shown instead of the name.
            *problem.borrow_mut() = Some(error);
            false
        })
    };
    let name = |name: &str| answer(db.request(name).map(|row| row.is_some()));
    // The old request itself writes its datasets, so they are not free.
    let dataset = |dataset: &str| answer(db.output_taken_by(dataset, "").map(|taken| taken.is_some()));
    let taken = TakenNames { name: &name, dataset: &dataset };
    let old = row.request.request_name.clone();
    let bans =
        db.bans(&SiteBanFilter { applies_to: Some(old), active_at: Some(now), ..SiteBanFilter::default() })?;
    let policy = wanted.cleanup_policy.unwrap_or(row.request.cleanup_policy);
    let command = fail_command(&wanted.reason, wanted.lost, actor, now);
    let mut changes = versions::plan_restart(row, policy, command, &bans, &taken);
    if let Some(error) = problem.into_inner() {
        return Err(error.into());
    }
    if row.status.is_terminal() {
        changes.retain(|change| !matches!(change, RequestChange::SetCommand(_)));
    }
    Ok(changes)
}

/// Invalidates all outputs of a request that has ended: rules are removed, files invalidated.
pub fn invalidate_request(
    db: &dyn StoreDatabase,
    name: &str,
    wanted: &InvalidateRequest,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<InvalidateResponse> {
    check_text("reason", &wanted.reason)?;
    let (blocks, before) = (Cell::new(0), Cell::new(0));
    update_request(db, name, None, actor, now, |row| {
        if !row.status.is_terminal() {
            return Err(not_over_error(row));
        }
        let there = load_blocks(db, name)?;
        let changes = plan_invalidation(&there, &load_invalidation_steps(db, name)?, now);
        before
            .set(there.iter().filter(|block| block.status == ProcessingBlockStatus::Invalidated).count()
                as u64);
        blocks.set(changes.len() as u64);
        Ok(append_alert(changes, name, &wanted.reason, actor))
    })?;
    let message = match (blocks.get(), before.get()) {
        (0, 0) => "It has no outputs.".to_owned(),
        (0, _) => "Its outputs are invalidated, or about to be.".to_owned(),
        (some, _) => {
            format!("{some} of its blocks are being invalidated: rules are removed, files invalidated.")
        }
    };
    Ok(InvalidateResponse {
        request_name: name.to_owned(),
        blocks: blocks.get(),
        blocks_invalidated_before: before.get(),
        message,
    })
}

fn not_over_error(row: &RequestRow) -> ApiError {
    let detail =
        format!("request `{}` is {}: it still produces outputs", row.request.request_name, row.status);
    ApiError::conflict("not_over", detail)
        .with_hint("fail or cancel it first; `restart` with the policy `immediate_cleanup` does both")
}

fn load_blocks(db: &dyn StoreDatabase, name: &str) -> ApiResult<Vec<BlockRow>> {
    Ok(db.process(name)?.map(|process| db.processing_blocks(&process.uuid)).transpose()?.unwrap_or_default())
}

/// The effects to invalidate its blocks.
fn load_invalidation_steps(db: &dyn StoreDatabase, name: &str) -> ApiResult<Vec<OutputStep>> {
    let Some(process) = db.process(name)? else { return Ok(Vec::new()) };
    let all =
        db.output_steps(&OutputStepFilter { process: Some(process.uuid), ..OutputStepFilter::default() })?;
    Ok(all.into_iter().filter(|step| step.kind == OutputStepKind::Invalidate).collect())
}

/// Active effects continue; failed ones are retried.
fn plan_invalidation(blocks: &[BlockRow], steps: &[OutputStep], now: Timestamp) -> Vec<RequestChange> {
    let step_of = |change: &RequestChange| match change {
        RequestChange::AddStep(step) => steps.iter().find(|known| known.block == step.block),
        _ => None,
    };
    let wanted = outputs::plan_invalidation(blocks, now).into_iter();
    wanted
        .filter_map(|change| match step_of(&change) {
            None => Some(change),
            Some(step) if step.state == OutputStepState::Failed => Some(outputs::restart_step(step, now)),
            Some(_) => None,
        })
        .collect()
}

/// A request that has ended keeps its status: the user and the reason are stored with the alerts.
fn append_alert(
    mut changes: Vec<RequestChange>,
    name: &str,
    reason: &str,
    actor: RequestActor<'_>,
) -> Vec<RequestChange> {
    if !changes.is_empty() {
        let reason = reason_or_none(reason);
        let alert = NewAlert {
            kind: "outputs_invalidated".to_owned(),
            request: Some(name.to_owned()),
            message: format!("{} invalidated {} of its blocks: {reason}", actor.name, changes.len()),
            detail: json!({ "by": actor.name, "reason": reason, "blocks": changes.len() }),
        };
        changes.push(RequestChange::Alert(Box::new(alert)));
    }
    changes
}

//! Conversion between rows and API types.

use crate::error::{ApiError, ApiResult};
use windlass_api::failures as api;
use windlass_core::failure_commands::describe_patch;
use windlass_store::model::{DecisionRow, FailureGroup, FailureRow, JobRevisionRow};
use windlass_types::failure_commands::{
    FailureCommand, FailureCommandBatch, FailureCommandKind, FailureCommandOutcome,
    FailureCommandStatus as Done, RequestedJobChanges,
};
use windlass_types::{Bytes, JobId, JobStatus, Timestamp};

/// Maximum number of commands per request.
const MAX_COMMANDS: usize = 100_000;
const MAX_NAME_LENGTH: usize = 200;

pub(super) fn api_failure_group(row: FailureGroup) -> api::FailureGroupResponse {
    api::FailureGroupResponse {
        signature: row.signature,
        class: row.class.to_string(),
        message: row.message,
        line: row.line,
        failed: row.failed,
        pending: row.pending,
        retried: row.retried,
        jobs: row.jobs,
        attempts: row.attempts,
        example_job_id: row.example.0,
    }
}

pub(super) fn api_failure(row: FailureRow) -> api::FailureResponse {
    api::FailureResponse {
        job_id: row.job_id.0,
        job_name: row.job_name,
        job_status: row.job_status.to_string(),
        run_id: row.run_id.0,
        attempt_id: row.attempt_id.0.into(),
        class: row.class.to_string(),
        rule: row.rule,
        signature: row.signature,
        message: row.message,
        line: row.line,
        log_tail: row.last_words,
        next: row.next,
        why: row.why,
        return_code: row.return_code.into(),
        signal: row.signal,
        out_of_memory: row.out_of_memory,
        ended_at: row.ended_at.to_string(),
        worker_id: row.worker_id.0,
        host: row.host,
    }
}

/// Checks the texts and numbers that a database could not store.
pub(super) fn parse_commands(body: api::FailureCommandsBody) -> ApiResult<FailureCommandBatch> {
    if body.commands.len() > MAX_COMMANDS {
        return Err(ApiError::invalid(format!("more than {MAX_COMMANDS} commands in one request")));
    }
    if let Some(agent) = &body.agent
        && (agent.trim().is_empty() || agent.chars().count() > MAX_NAME_LENGTH)
    {
        return Err(ApiError::invalid(format!(
            "the name of an agent must have 1 to {MAX_NAME_LENGTH} bytes"
        )));
    }
    let texts = body
        .commands
        .iter()
        .flat_map(|order| order.evidence.iter().chain([&order.reason]).chain(order.changes.command.as_ref()));
    if texts.chain(body.agent.as_ref()).any(|text| text.contains('\0')) {
        return Err(ApiError::invalid("a command contains a NUL"));
    }
    let api::FailureCommandsBody { agent, dry_run, commands } = body;
    let orders = commands.into_iter().map(parse_command).collect();
    Ok(FailureCommandBatch { agent, dry_run, orders, ..FailureCommandBatch::default() })
}

fn parse_command(order: api::FailureCommandBody) -> FailureCommand {
    let changes = order.changes;
    FailureCommand {
        job: JobId(order.job_id),
        kind: match order.action {
            api::FailureActionName::Retry => FailureCommandKind::Retry,
            api::FailureActionName::Fail => FailureCommandKind::Fail,
            api::FailureActionName::Ignore => FailureCommandKind::Ignore,
            api::FailureActionName::Change => FailureCommandKind::Change,
        },
        changes: RequestedJobChanges {
            memory_bytes: changes.memory_bytes.map(Bytes),
            runtime_seconds: changes.runtime_seconds,
            cpus: changes.cpus,
            command: changes.command,
            priority: changes.priority,
            scheduler: changes.scheduler,
            partition: changes.partition,
            ..RequestedJobChanges::default()
        },
        reason: order.reason,
        confidence: order.confidence,
        evidence: order.evidence,
    }
}

const fn api_action(kind: FailureCommandKind) -> api::FailureActionName {
    match kind {
        FailureCommandKind::Retry => api::FailureActionName::Retry,
        FailureCommandKind::Fail => api::FailureActionName::Fail,
        FailureCommandKind::Ignore => api::FailureActionName::Ignore,
        FailureCommandKind::Change => api::FailureActionName::Change,
    }
}

fn parse_changes(changes: RequestedJobChanges) -> api::JobChangesBody {
    api::JobChangesBody {
        memory_bytes: changes.memory_bytes.map(|memory| memory.0),
        runtime_seconds: changes.runtime_seconds,
        cpus: changes.cpus,
        command: changes.command,
        priority: changes.priority,
        scheduler: changes.scheduler,
        partition: changes.partition,
    }
}

pub(super) fn api_command_result(outcome: FailureCommandOutcome) -> api::FailureCommandResponse {
    let result = match outcome.answer {
        Done::Done => "done",
        Done::Proposed => "proposed",
        Done::Refused => "refused",
    };
    api::FailureCommandResponse {
        job_id: outcome.job.0,
        action: api_action(outcome.kind),
        result: result.to_owned(),
        message: outcome.words,
        status: outcome.status.map(status_name),
        attempt_id: outcome.attempt.map(|attempt| attempt.0.into()),
    }
}

pub(super) fn api_decision(row: DecisionRow) -> api::DecisionResponse {
    api::DecisionResponse {
        id: row.id,
        job_id: row.job_id.0,
        job_name: row.job_name,
        run_id: row.run_id.0,
        attempt_id: row.attempt_id.0.into(),
        action: api_action(row.kind),
        changes: parse_changes(row.changes),
        reason: row.reason,
        confidence: row.confidence,
        evidence: row.evidence,
        made_by: row.made_by,
        is_agent: row.is_agent,
        made_at: row.made_at.to_string(),
        state: row.state.as_str().to_owned(),
        settled_by: row.settled_by,
        settled_at: row.settled_at.map(render_time),
        next_status: row.next_status.map(status_name),
        class: row.class.map(|class| class.to_string()),
        signature: row.signature,
        message: row.message,
    }
}

pub(super) fn api_revision(row: JobRevisionRow) -> api::RevisionResponse {
    // Serializing strings and numbers cannot fail.
    let json = |edition| serde_json::to_value(edition).unwrap_or_default();
    api::RevisionResponse {
        id: row.id,
        revision: row.batch,
        job_id: row.job_id.0,
        job_name: row.job_name,
        job_status: status_name(row.job_status),
        change: describe_patch(&row.before, &row.after),
        before: json(&row.before),
        after: json(&row.after),
        reason: row.reason,
        made_by: row.made_by,
        made_at: row.made_at.to_string(),
        undone_by: row.undone_by,
        undone_at: row.undone_at.map(render_time),
    }
}

fn status_name(status: JobStatus) -> String {
    status.to_string()
}

fn render_time(at: Timestamp) -> String {
    at.to_string()
}

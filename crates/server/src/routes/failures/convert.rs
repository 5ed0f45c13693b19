//! From rows to what goes over the wire, and back.

use crate::error::{Answer, ApiError};
use windlass_api::failures as api;
use windlass_core::orders::difference;
use windlass_store::model::{DecisionRow, FailureGroup, FailureRow, RevisionRow};
use windlass_types::orders::{Answer as Done, Changes, Order, Orders, Outcome, Verdict};
use windlass_types::{Bytes, JobId, JobStatus, Timestamp};

/// So many orders at once at most.
const MOST_ORDERS: usize = 100_000;
const LONGEST_NAME: usize = 200;

pub(super) fn group(row: FailureGroup) -> api::FailureGroup {
    api::FailureGroup {
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

pub(super) fn failure(row: FailureRow) -> api::Failure {
    api::Failure {
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
        last_words: row.last_words,
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

/// Of what no database could keep, nothing is tried.
pub(super) fn orders(orders: api::Orders) -> Answer<Orders> {
    if orders.orders.len() > MOST_ORDERS {
        return Err(ApiError::invalid(format!("more than {MOST_ORDERS} orders at once")));
    }
    if let Some(agent) = &orders.agent
        && (agent.trim().is_empty() || agent.chars().count() > LONGEST_NAME)
    {
        return Err(ApiError::invalid(format!("the name of an agent has 1 to {LONGEST_NAME} letters")));
    }
    let texts = orders
        .orders
        .iter()
        .flat_map(|order| order.evidence.iter().chain([&order.reason]).chain(order.changes.command.as_ref()));
    if texts.chain(orders.agent.as_ref()).any(|text| text.contains('\0')) {
        return Err(ApiError::invalid("an order contains a NUL"));
    }
    let api::Orders { agent, dry_run, orders } = orders;
    let orders = orders.into_iter().map(order).collect();
    Ok(Orders { agent, dry_run, orders, ..Orders::default() })
}

fn order(order: api::Order) -> Order {
    let changes = order.changes;
    Order {
        job: JobId(order.job_id),
        verdict: match order.verdict {
            api::Verdict::Retry => Verdict::Retry,
            api::Verdict::Fail => Verdict::Fail,
            api::Verdict::Ignore => Verdict::Ignore,
            api::Verdict::Change => Verdict::Change,
        },
        changes: Changes {
            memory_bytes: changes.memory_bytes.map(Bytes),
            runtime_seconds: changes.runtime_seconds,
            cpus: changes.cpus,
            command: changes.command,
            priority: changes.priority,
            scheduler: changes.scheduler,
            partition: changes.partition,
            ..Changes::default()
        },
        reason: order.reason,
        confidence: order.confidence,
        evidence: order.evidence,
    }
}

const fn verdict(verdict: Verdict) -> api::Verdict {
    match verdict {
        Verdict::Retry => api::Verdict::Retry,
        Verdict::Fail => api::Verdict::Fail,
        Verdict::Ignore => api::Verdict::Ignore,
        Verdict::Change => api::Verdict::Change,
    }
}

fn changes(changes: Changes) -> api::Changes {
    api::Changes {
        memory_bytes: changes.memory_bytes.map(|memory| memory.0),
        runtime_seconds: changes.runtime_seconds,
        cpus: changes.cpus,
        command: changes.command,
        priority: changes.priority,
        scheduler: changes.scheduler,
        partition: changes.partition,
    }
}

pub(super) fn outcome(outcome: Outcome) -> api::Outcome {
    let answer = match outcome.answer {
        Done::Done => "done",
        Done::Proposed => "proposed",
        Done::Refused => "refused",
    };
    api::Outcome {
        job_id: outcome.job.0,
        verdict: verdict(outcome.verdict),
        answer: answer.to_owned(),
        words: outcome.words,
        status: outcome.status.map(name),
        attempt_id: outcome.attempt.map(|attempt| attempt.0.into()),
    }
}

pub(super) fn decision(row: DecisionRow) -> api::Decision {
    api::Decision {
        id: row.id,
        job_id: row.job_id.0,
        job_name: row.job_name,
        run_id: row.run_id.0,
        attempt_id: row.attempt_id.0.into(),
        verdict: verdict(row.verdict),
        changes: changes(row.changes),
        reason: row.reason,
        confidence: row.confidence,
        evidence: row.evidence,
        made_by: row.made_by,
        is_agent: row.is_agent,
        made_at: row.made_at.to_string(),
        state: row.state.as_str().to_owned(),
        settled_by: row.settled_by,
        settled_at: row.settled_at.map(time),
        next_status: row.next_status.map(name),
        class: row.class.map(|class| class.to_string()),
        signature: row.signature,
        message: row.message,
    }
}

pub(super) fn revision(row: RevisionRow) -> api::Revision {
    // Words and numbers always have a JSON.
    let json = |edition| serde_json::to_value(edition).unwrap_or_default();
    api::Revision {
        id: row.id,
        revision: row.batch,
        job_id: row.job_id.0,
        job_name: row.job_name,
        job_status: name(row.job_status),
        change: difference(&row.before, &row.after),
        before: json(&row.before),
        after: json(&row.after),
        reason: row.reason,
        made_by: row.made_by,
        made_at: row.made_at.to_string(),
        undone_by: row.undone_by,
        undone_at: row.undone_at.map(time),
    }
}

fn name(status: JobStatus) -> String {
    status.to_string()
}

fn time(at: Timestamp) -> String {
    at.to_string()
}

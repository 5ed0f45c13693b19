//! Restores the evidence of crash suspects from the database, so that a restart forgets none of it.

use std::collections::HashSet;
use windlass_core::crash_suspects::{CrashEvidence, CrashSuspects};
use windlass_core::workflow_state::WorkflowState;
use windlass_store::model::{EventFilter, EventSeverity, NewEvent, ResultFilter, ResultRow, WorkflowRow};
use windlass_store::{Store, StoreError};
use windlass_types::worker_messages::return_code::ORPHANED;
use windlass_types::{JobId, Timestamp, WorkerId, WorkflowId};

/// The category of the event that records the return of a worker that was considered lost.
const WORKER_RETURNED_EVENT: &str = "worker_returned";

/// The event that a lost worker of this workflow returned: its silence is no evidence against its jobs.
pub(crate) fn worker_returned_event(workflow: WorkflowId, worker: WorkerId) -> NewEvent {
    NewEvent {
        workflow: Some(workflow),
        job: None,
        severity: EventSeverity::Info,
        category: WORKER_RETURNED_EVENT.to_owned(),
        message: format!(
            "worker {worker} was considered lost and returned; its silence is no evidence against its jobs"
        ),
        data: Some(serde_json::json!({ "worker_id": worker })),
    }
}

/// Reads the evidence against unsettled jobs from the results of attempts that were lost with their workers,
/// and isolates the jobs with enough of it.
pub(crate) fn load_crash_suspects(
    store: &dyn Store,
    workflow: &WorkflowRow,
    state: &mut WorkflowState,
) -> Result<CrashSuspects, StoreError> {
    let (workflow, run) = (workflow.id, Some(workflow.run_id));
    let lost =
        ResultFilter { run, return_code: Some(ORPHANED), failed_only: true, ..ResultFilter::default() };
    let lost_attempts = find_lost_attempts(&store.results(workflow, &lost)?, state);
    let absences =
        lost_attempts.iter().filter(|lost_attempt| lost_attempt.evidence != CrashEvidence::Observed);
    let back = match absences.map(|lost_attempt| lost_attempt.at).min() {
        Some(since) => load_returned_workers(store, workflow, since)?,
        None => HashSet::new(),
    };
    let mut suspects = CrashSuspects::default();
    for LostAttempt { job, worker, evidence, .. } in lost_attempts.into_iter().rev() {
        if evidence == CrashEvidence::Observed || !back.contains(&worker) {
            suspects.record_death(job, worker, evidence);
        }
    }
    for job in suspects.suspicious_jobs() {
        if let Some(index) = state.job_index(job) {
            state.isolate_job(index);
        }
    }
    Ok(suspects)
}

struct LostAttempt {
    job: JobId,
    worker: WorkerId,
    evidence: CrashEvidence,
    at: Timestamp,
}

/// Returns the lost attempts that count. Every attempt has a result, so a gap between the lost ones and the
/// current one means that an attempt in between ended by itself, and nothing before it counts. `lost` is
/// ordered by job and attempt.
fn find_lost_attempts(lost: &[ResultRow], state: &WorkflowState) -> Vec<LostAttempt> {
    let mut found = Vec::new();
    let mut follower = None;
    for row in lost.iter().rev() {
        let (job, attempt) = (row.key.job_id, row.key.attempt_id);
        let Some(index) = state.job_index(job).filter(|index| !state.status(*index).is_settled()) else {
            continue;
        };
        let next = match follower {
            Some((same, next)) if same == job => next,
            _ => state.attempt_key(index).attempt,
        };
        let follows = attempt.next() == next;
        follower = Some((job, if follows { attempt } else { next }));
        if let Some(evidence) = row.reason.as_deref().and_then(CrashEvidence::from_reason).filter(|_| follows)
        {
            found.push(LostAttempt { job, worker: row.worker_id, evidence, at: row.ended_at });
        }
    }
    found
}

/// Workers that were considered lost and returned since then.
fn load_returned_workers(
    store: &dyn Store,
    workflow: WorkflowId,
    since: Timestamp,
) -> Result<HashSet<WorkerId>, StoreError> {
    let since = Some(Timestamp(since.0 - 1));
    let filter =
        EventFilter { category: Some(WORKER_RETURNED_EVENT.to_owned()), since, ..EventFilter::default() };
    let events = store.events(Some(workflow), &filter)?;
    let worker = |data: &serde_json::Value| data["worker_id"].as_i64().map(WorkerId);
    Ok(events.iter().filter_map(|event| event.data.as_ref().and_then(worker)).collect())
}

//! What earlier deaths say against jobs, from the books: whoever takes a workflow over forgets no suspicion.

use std::collections::HashSet;
use windlass_core::crash_suspects::{CrashEvidence, CrashSuspects};
use windlass_core::workflow_state::WorkflowState;
use windlass_store::model::{EventFilter, EventSeverity, NewEvent, ResultFilter, ResultRow, WorkflowRow};
use windlass_store::{Store, StoreError};
use windlass_types::worker_messages::return_code::ORPHANED;
use windlass_types::{JobId, Timestamp, WorkerId, WorkflowId};

/// The event by which a worker that was given up, and is there after all, is remembered.
const WORKER_RETURNED_EVENT: &str = "worker_returned";

/// A lost worker of this workflow spoke again: its silence says nothing of the jobs that it had.
pub(crate) fn worker_returned_event(workflow: WorkflowId, worker: WorkerId) -> NewEvent {
    NewEvent {
        workflow: Some(workflow),
        job: None,
        severity: EventSeverity::Info,
        category: WORKER_RETURNED_EVENT.to_owned(),
        message: format!("worker {worker} had been given up and is there after all; it died of no job"),
        data: Some(serde_json::json!({ "worker_id": worker })),
    }
}

/// Reads what speaks against jobs that are not over, and has those tried alone against which it is enough. Looks only at
/// attempts that were lost with their workers.
pub(crate) fn load_crash_suspects(
    store: &dyn Store,
    workflow: &WorkflowRow,
    state: &mut WorkflowState,
) -> Result<CrashSuspects, StoreError> {
    let (workflow, run) = (workflow.id, Some(workflow.run_id));
    let lost =
        ResultFilter { run, return_code: Some(ORPHANED), failed_only: true, ..ResultFilter::default() };
    let charges = find_lost_attempts(&store.results(workflow, &lost)?, state);
    let absences = charges.iter().filter(|charge| charge.evidence != CrashEvidence::Observed);
    let back = match absences.map(|charge| charge.at).min() {
        Some(since) => load_returned_workers(store, workflow, since)?,
        None => HashSet::new(),
    };
    let mut suspects = CrashSuspects::default();
    for LostAttempt { job, worker, evidence, .. } in charges.into_iter().rev() {
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

/// Every attempt leaves a result, so where the lost ones do not go up to the current one without a gap, one in between
/// ended by itself, and nothing before it counts. `lost` is in the order of jobs and attempts; the last come first here.
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

/// Workers that were given up and spoke again, since then.
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

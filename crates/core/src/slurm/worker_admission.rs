//! Admission of a worker to its allocation.

use super::allocation_rows::AllocationChange;
use windlass_types::slurm::{Allocation, AllocationState, SlurmJobNode};
use windlass_types::{Timestamp, WorkflowId};

/// Returns the change caused by its registration; or why it is rejected: the allocation has ended, or was
/// submitted twice and this is the other job.
pub fn admit_worker(
    row: &Allocation,
    workflow: Option<WorkflowId>,
    place: &SlurmJobNode,
    now: Timestamp,
) -> Result<Option<AllocationChange>, String> {
    let id = row.id;
    if workflow.is_some_and(|workflow| workflow != row.workflow) {
        return Err(format!("allocation {id} belongs to workflow {}", row.workflow));
    }
    if !row.is_ours {
        return Ok(None);
    }
    if let Some(known) = row.job_id.filter(|known| *known != place.job_id) {
        return Err(format!("allocation {id} is Slurm job {known}, and this is job {}", place.job_id));
    }
    if row.job_id.is_some() && row.restarts > place.restarts {
        return Err(format!("Slurm has requeued allocation {id}, and this is an earlier run of it"));
    }
    match row.state {
        AllocationState::Running if row.restarts == place.restarts => return Ok(None),
        AllocationState::Submitting | AllocationState::Pending | AllocationState::Running => {}
        AllocationState::Intended => return Err(format!("allocation {id} was never submitted")),
        AllocationState::Completing
        | AllocationState::Ended
        | AllocationState::Refused
        | AllocationState::Withdrawn => return Err(format!("allocation {id} has ended: {}", row.state)),
    }
    Ok(Some(AllocationChange {
        only_slurm_job: row.job_id,
        job_id: Some(Some(place.job_id)),
        restarts: Some(place.restarts),
        reason: Some(None),
        started_at: Some(Some(now)),
        missed_polls: Some(0),
        ..AllocationChange::new(id, row.state, AllocationState::Running)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::AllocationId;
    use windlass_types::slurm::AllocationRequest;

    fn row(state: AllocationState, job_id: Option<u64>, restarts: u32) -> Allocation {
        Allocation {
            id: AllocationId(5),
            workflow: WorkflowId(1),
            is_ours: true,
            scheduler: None,
            tag: "t".into(),
            request: AllocationRequest::default(),
            state,
            job_id,
            restarts,
            reason: None,
            nodes: None,
            action: None,
            by: "me".into(),
            unwanted: None,
            created_at: Timestamp(0),
            submitted_at: None,
            submissions: 0,
            started_at: None,
            ends_at: None,
            ended_at: None,
            end: None,
            exit_code: None,
            seen_at: None,
            missed: 0,
        }
    }

    #[test]
    fn worker_admission_depends_on_allocation_state() {
        use AllocationState::{Completing, Ended, Intended, Pending, Running, Submitting};
        let place = SlurmJobNode { job_id: 8, restarts: 1, node: "n1".into() };
        // (state, job, restarts): the next state, none, or a rejection.
        for (state, job_id, restarts, expected) in [
            (Submitting, None, 0, Ok(true)),
            (Pending, Some(8), 0, Ok(true)),
            (Pending, Some(8), 1, Ok(true)),
            (Running, Some(8), 1, Ok(false)),
            (Running, Some(8), 0, Ok(true)),
            (Running, Some(8), 2, Err(())),
            (Pending, Some(9), 0, Err(())),
            (Running, Some(7), 1, Err(())),
            (Intended, None, 0, Err(())),
            (Completing, Some(8), 1, Err(())),
            (Ended, Some(8), 1, Err(())),
        ] {
            let found =
                admit_worker(&row(state, job_id, restarts), Some(WorkflowId(1)), &place, Timestamp(3));
            let found = found.map(|change| change.is_some()).map_err(drop);
            assert_eq!(found, expected, "{state} {job_id:?} {restarts}");
        }
    }

    #[test]
    fn job_id_is_learned_from_the_worker() {
        let place = SlurmJobNode { job_id: 8, restarts: 0, node: "n1".into() };
        let mut row = row(AllocationState::Submitting, None, 0);
        let change = admit_worker(&row, None, &place, Timestamp(3)).unwrap().unwrap();
        change.apply_to(&mut row);
        assert_eq!((row.state, row.job_id), (AllocationState::Running, Some(8)));
        let other = SlurmJobNode { job_id: 9, ..place };
        assert_eq!(
            admit_worker(&row, None, &other, Timestamp(3)),
            Err("allocation 5 is Slurm job 8, and this is job 9".to_owned())
        );
        assert!(admit_worker(&row, Some(WorkflowId(2)), &other, Timestamp(3)).is_err());
        row.is_ours = false;
        assert_eq!(admit_worker(&row, None, &other, Timestamp(3)), Ok(None), "another worker is responsible");
    }
}

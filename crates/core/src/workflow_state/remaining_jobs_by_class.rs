//! Counts of jobs that have not ended, by class: shows whether a worker could ever get a job, without scanning
//! jobs.

use super::WorkflowState;
use crate::dispatch::{UsageJobKey, WorkerUsage};
use windlass_types::JobStatus;

/// Jobs that have not ended, counted by class.
#[derive(Clone, Debug, Default)]
pub(super) struct RemainingJobsByClass {
    jobs: Vec<u32>,
    /// How often a class became empty.
    emptied_count: u64,
}

impl RemainingJobsByClass {
    pub(super) fn from_jobs(lanes: &[u32], status: &[JobStatus]) -> Self {
        let mut left = Self::default();
        let open = lanes.iter().zip(status).filter(|(_, status)| !status.is_settled());
        open.for_each(|(demand, _)| left.add(*demand));
        left
    }

    pub(super) fn add(&mut self, demand: u32) {
        let demand = demand as usize;
        if self.jobs.len() <= demand {
            self.jobs.resize(demand + 1, 0);
        }
        self.jobs[demand] += 1;
    }

    fn remove(&mut self, demand: u32) {
        if let Some(jobs) = self.jobs.get_mut(demand as usize) {
            *jobs = jobs.saturating_sub(1);
            self.emptied_count += u64::from(*jobs == 0);
        }
    }

    fn demands(&self) -> impl Iterator<Item = u32> + '_ {
        (0..).zip(&self.jobs).filter(|(_, jobs)| **jobs > 0).map(|(demand, _)| demand)
    }
}

impl WorkflowState {
    /// Updates the counts after a transition.
    pub(super) fn update_remaining(&mut self, job: u32, from: JobStatus, to: JobStatus) {
        let demand = self.demand_of_job[job as usize];
        match (from.is_settled(), to.is_settled()) {
            (false, true) => self.remaining.remove(demand),
            (true, false) => self.remaining.add(demand),
            _ => {}
        }
    }

    /// Moves the job to this class. Returns its former class.
    pub(super) fn assign_demand(&mut self, job: u32, to: u32) -> u32 {
        let from = std::mem::replace(&mut self.demand_of_job[job as usize], to);
        if from != to && !self.status(job).is_settled() {
            self.remaining.add(to);
            self.remaining.remove(from);
        }
        from
    }

    /// Whether some remaining job might run on the worker: now, after its dependencies end, or if its worker
    /// loses it. Takes as many steps as there are classes.
    pub fn has_work_for<K: UsageJobKey>(&self, usage: &WorkerUsage<K>) -> bool {
        self.remaining.demands().any(|demand| usage.could_ever_take(self.ready.demand(demand)))
    }

    /// Increases whenever a class becomes empty: only then may [`Self::has_work_for`] have become false, apart
    /// from the time that a worker has left.
    pub fn emptied_demand_count(&self) -> u64 {
        self.remaining.emptied_count
    }
}

#[cfg(test)]
mod tests {
    use super::super::JobTable;
    use super::*;
    use crate::dispatch::WorkerSelector;
    use std::time::Duration;
    use windlass_types::{Attempt, Bytes, Capacity, JobId, JobStatus as S, Resources, RunId, WorkflowId};

    /// A job of one CPU for a minute, and one of four for an hour.
    fn state(status: [S; 2]) -> WorkflowState {
        let asks = |cpus, minutes| Resources {
            cpus,
            runtime: Some(Duration::from_mins(minutes)),
            ..Resources::DEFAULT
        };
        let table = JobTable {
            ids: vec![JobId(1), JobId(2)],
            status: status.to_vec(),
            attempt: vec![Attempt::FIRST; 2],
            priority: vec![0; 2],
            cancel_on_blocking_job_failure: vec![true; 2],
            class: vec![1, 2],
            requirements: vec![Resources::DEFAULT, asks(1, 1), asks(4, 60)],
            ..JobTable::default()
        };
        WorkflowState::new(WorkflowId(1), RunId(1), table).unwrap()
    }

    #[test]
    fn worker_is_useful_while_an_open_job_fits() {
        let large = Duration::from_hours(2);
        for (small_job, large_job, cpus, time_left, expected) in [
            (S::Ready, S::Blocked, 1, large, true),
            (S::Blocked, S::Blocked, 1, large, true),
            (S::Running, S::Blocked, 1, large, true),
            (S::PendingFailed, S::Blocked, 1, large, true),
            (S::Completed, S::Blocked, 1, large, false),
            (S::Disabled, S::Ready, 1, large, false),
            (S::Failed, S::Ready, 4, large, true),
            (S::Completed, S::Ready, 4, Duration::from_mins(59), false),
            (S::Ready, S::Ready, 4, Duration::from_mins(59), true),
            (S::Ready, S::Ready, 4, Duration::from_secs(59), false),
            (S::Completed, S::Failed, 4, large, false),
        ] {
            let capacity = Capacity { cpus, memory: Bytes(1 << 40), gpus: 0, nodes: 1, max_jobs: None };
            let mut worker: WorkerUsage = WorkerUsage::with_selector(capacity, WorkerSelector::default());
            worker.limit_time(time_left);
            let state = state([small_job, large_job]);
            assert_eq!(state.has_work_for(&worker), expected, "{small_job} {large_job} {cpus} {time_left:?}");
        }
    }

    #[test]
    fn emptied_demand_is_counted_once() {
        let mut state = state([S::Ready, S::Ready]);
        assert_eq!(state.emptied_demand_count(), 0);
        state.on_unrunnable(0, &mut Vec::new());
        assert_eq!(state.emptied_demand_count(), 1);
        state.on_unrunnable(0, &mut Vec::new());
        assert_eq!(state.emptied_demand_count(), 1);
    }
}

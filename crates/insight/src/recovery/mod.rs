//! Recovery plans: a diagnosis of each failed job of a workflow, and what to do about it, shown to a user or an
//! agent before it is applied. The diagnosis itself is in [`windlass_core::recovery`].

mod failed_jobs;
mod plan_report;

pub use failed_jobs::ExaminedJob;
pub use plan_report::RecoveryPlanReport;

use crate::needs_decision;
use failed_jobs::load_failed_jobs;
use serde_json::json;
use std::collections::HashMap;
use windlass_core::job_explanation::WorkerAvailability;
use windlass_core::recovery::{
    AvailableWorker, JobRemedy, RecoveryAction, RecoveryDiagnosis, RecoverySettings, plan_recovery,
};
use windlass_core::sizing::ResourceAmount;
use windlass_store::model::{
    EventSeverity, NewEvent, SortBy, WorkerFilter, WorkerKind, WorkerRow, WorkflowRow,
};
use windlass_store::{Store, StoreError, WorkerStore};
use windlass_types::failure_commands::{
    FailureCommand, FailureCommandBatch, FailureCommandKind, FailureCommandOutcome, FailureCommandStatus,
    RequestedJobChanges,
};
use windlass_types::{JobId, JobStatus, Resources, WorkflowId};

/// Maximum number of disconnected workers whose capacity is considered.
const MAX_EARLIER_WORKERS: u64 = 1000;
/// Maximum number of jobs recorded individually.
const MAX_RECORDED_JOBS: usize = 1000;

/// The diagnosed jobs of a workflow, and what to do about them.
#[derive(Clone, Debug)]
pub struct RecoveryPlan {
    pub row: WorkflowRow,
    pub diagnoses: Vec<JobDiagnosis>,
}

#[derive(Clone, Debug)]
pub struct JobDiagnosis {
    pub examined: ExaminedJob,
    pub remedy: JobRemedy,
}

impl JobDiagnosis {
    /// Requirements when it runs again; `None`: unchanged.
    pub fn next_resources(&self) -> Option<Resources> {
        let mut asked = self.examined.failed_job.asked.filter(|_| !self.remedy.changes.is_empty())?;
        for change in &self.remedy.changes {
            match change.to {
                ResourceAmount::Memory(memory) => asked.memory = memory,
                ResourceAmount::Cpus(cpus) => asked.cpus = cpus,
                ResourceAmount::Runtime(runtime) => asked.runtime = Some(runtime),
            }
        }
        Some(asked)
    }
}

/// The workers that may run the jobs, with their capacities.
#[derive(Clone, Debug, Default)]
pub struct EligibleWorkers {
    pub workers: Vec<AvailableWorker>,
}

impl EligibleWorkers {
    /// Draining workers get no more jobs; a worker without a time limit stays.
    pub fn from_offers(offers: &[WorkerAvailability]) -> Self {
        let workers = offers.iter().filter(|offer| !offer.is_draining);
        let worker = |offer: &WorkerAvailability| AvailableWorker {
            capacity: offer.capacity,
            time_left: offer.time_left,
        };
        Self { workers: workers.map(worker).collect() }
    }

    /// Where no worker is connected, those that were last are the best guess of what is there.
    pub fn or_last_connected(
        self,
        store: &dyn WorkerStore,
        workflow: WorkflowId,
    ) -> Result<Self, StoreError> {
        if !self.workers.is_empty() {
            return Ok(self);
        }
        let filter = WorkerFilter {
            workflow: Some(workflow),
            also_shared: true,
            is_active: Some(false),
            sort: Some(SortBy { field: "id".to_owned(), descending: true }),
            limit: Some(MAX_EARLIER_WORKERS),
            ..WorkerFilter::default()
        };
        // Clients that claim jobs anonymously do not state their capacity.
        let mut earlier = store.workers(&filter)?;
        earlier.retain(|row| row.worker.kind != WorkerKind::Claims);
        let worker = |row: WorkerRow| AvailableWorker { capacity: row.worker.capacity, time_left: None };
        Ok(Self { workers: earlier.into_iter().map(worker).collect() })
    }
}

/// Diagnoses each failed job from the measurements of its last attempt.
pub fn diagnose_workflow(
    store: &dyn Store,
    row: WorkflowRow,
    terms: &RecoverySettings<'_>,
) -> Result<RecoveryPlan, StoreError> {
    let found = load_failed_jobs(store, &row)?;
    let cases: Vec<_> = found.iter().map(|found| found.failed_job).collect();
    let remedies = plan_recovery(&cases, terms);
    let diagnosed = found
        .into_iter()
        .zip(remedies)
        .map(|(found, remedy)| JobDiagnosis { examined: found, remedy })
        .collect();
    Ok(RecoveryPlan { row, diagnoses: diagnosed })
}

impl RecoveryPlan {
    pub fn rerun_jobs(&self) -> impl Iterator<Item = &JobDiagnosis> {
        self.diagnoses.iter().filter(|failed_job| failed_job.remedy.runs_again())
    }

    pub fn has_reruns(&self) -> bool {
        self.rerun_jobs().next().is_some()
    }

    pub fn unchanged_count(&self) -> usize {
        self.diagnoses.len() - self.rerun_jobs().count()
    }

    pub fn has_unexplained(&self) -> bool {
        self.diagnoses.iter().any(|failed_job| failed_job.remedy.diagnosis == RecoveryDiagnosis::Unknown)
    }

    /// Excludes jobs from the plan, for a reason.
    pub fn exclude_jobs(&mut self, which: impl Fn(&ExaminedJob) -> bool, why: &str) {
        for failed_job in self.diagnoses.iter_mut().filter(|failed_job| which(&failed_job.examined)) {
            failed_job.remedy.next = RecoveryAction::Stay(why.to_owned());
            failed_job.remedy.changes.clear();
        }
    }

    /// Keeps jobs that were to run again as they are, for the given reason.
    pub fn apply_outcomes(&mut self, outcomes: &[FailureCommandOutcome]) {
        let undone = outcomes.iter().filter(|outcome| outcome.answer != FailureCommandStatus::Done);
        let undone: HashMap<JobId, &str> =
            undone.map(|outcome| (outcome.job, outcome.words.as_str())).collect();
        for JobDiagnosis { remedy, .. } in &mut self.diagnoses {
            if let Some(why) = undone.get(&remedy.job) {
                remedy.next = RecoveryAction::Stay((*why).to_owned());
                remedy.changes.clear();
            }
        }
    }

    /// Returns the requirements of the jobs that run again, if they have any.
    pub fn next_resources(&self) -> HashMap<JobId, Resources> {
        let asks = |failed_job: &JobDiagnosis| {
            Some((
                failed_job.remedy.job,
                failed_job.next_resources().or(failed_job.examined.failed_job.asked)?,
            ))
        };
        self.rerun_jobs().filter_map(asks).collect()
    }

    /// Returns jobs that did not fail and still have to run.
    pub fn remaining_count(&self) -> u64 {
        count_remaining_jobs(&self.row)
    }

    /// Returns a summary: `2 jobs will run again, 1 of them because its worker died, 1 stays as it is`.
    pub fn render_summary(&self, dry_run: bool, orphans: usize) -> String {
        let died = match orphans {
            0 => None,
            1 => Some("because its worker died"),
            _ => Some("because their workers died"),
        };
        // The jobs among `all` whose workers died.
        let orphaned = |all: u64| match died {
            None => String::new(),
            Some(died) if orphans as u64 == all => format!(" {died}"),
            Some(died) => format!(", {orphans} of them {died}"),
        };
        if self.diagnoses.is_empty() {
            let left = self.remaining_count();
            return match left {
                0 => "no job has failed; there is nothing to recover".to_owned(),
                1 => format!("no job has failed; 1 job is left to run{}", orphaned(left)),
                n => format!("no job has failed; {n} jobs are left to run{}", orphaned(left)),
            };
        }
        let verb = if dry_run { "would run" } else { "will run" };
        let again = (self.rerun_jobs().count() + orphans) as u64;
        let head = match again {
            1 => format!("1 job {verb} again{}", orphaned(again)),
            n => format!("{n} jobs {verb} again{}", orphaned(again)),
        };
        match self.unchanged_count() {
            0 => head,
            1 => format!("{head}, 1 stays as it is"),
            n => format!("{head}, {n} stay as they are"),
        }
    }

    /// Returns the failure commands that apply the plan. `asked_by`: on whose behalf, if that is not known
    /// otherwise.
    pub fn failure_commands(&self, asked_by: Option<&str>) -> FailureCommandBatch {
        let orders =
            self.rerun_jobs().map(|failed_job| failure_command(&failed_job.remedy, asked_by)).collect();
        FailureCommandBatch { orders, ..FailureCommandBatch::default() }
    }

    /// Records what happened and at whose request: the jobs of a canceled workflow are reset without decisions,
    /// so there is no other record.
    pub fn recovery_event(&self, asked_by: Option<&str>) -> NewEvent {
        let asked = asked_by.map(|who| format!(", requested by {who}")).unwrap_or_default();
        let jobs: Vec<_> = self.rerun_jobs().map(|failed_job| &failed_job.remedy).collect();
        NewEvent {
            workflow: Some(self.row.id),
            job: None,
            severity: EventSeverity::Info,
            category: "recovery".to_owned(),
            message: format!(
                "workflow {} ({}): {}{asked}",
                self.row.id,
                self.row.name,
                self.render_summary(false, 0)
            ),
            data: Some(json!({
                "jobs": jobs.iter().take(MAX_RECORDED_JOBS).collect::<Vec<_>>(), "count": jobs.len(), "asked_by": asked_by,
            })),
        }
    }
}

/// Returns jobs of a workflow that still have to run and do not wait for a decision.
pub fn count_remaining_jobs(row: &WorkflowRow) -> u64 {
    let counts = &row.counts;
    let left = counts.total() - counts.settled() - counts.get(JobStatus::PendingFailed);
    if needs_decision(counts) { 0 } else { left }
}

fn failure_command(remedy: &JobRemedy, asked_by: Option<&str>) -> FailureCommand {
    let mut changes = RequestedJobChanges::default();
    for change in &remedy.changes {
        match change.to {
            ResourceAmount::Memory(memory) => changes.memory_bytes = Some(memory),
            ResourceAmount::Cpus(cpus) => changes.cpus = Some(cpus),
            ResourceAmount::Runtime(runtime) => changes.runtime_seconds = Some(runtime.as_secs_f64()),
        }
    }
    let asked = asked_by.map(|who| format!(", requested by {who}")).unwrap_or_default();
    let reason = format!("recover{asked}: {} ({})", remedy.diagnosis, remedy.evidence);
    let (confidence, evidence) = (None, Vec::new());
    FailureCommand { job: remedy.job, kind: FailureCommandKind::Retry, changes, reason, confidence, evidence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use windlass_types::{Bytes, Capacity};

    #[test]
    fn draining_workers_are_not_eligible() {
        let capacity = Capacity { cpus: 2, memory: Bytes(1 << 30), gpus: 0, nodes: 1, max_jobs: None };
        let stays = |time_left: Option<u64>| WorkerAvailability {
            time_left: time_left.map(Duration::from_secs),
            ..WorkerAvailability::from_capacity(capacity)
        };
        let leaving = WorkerAvailability { is_draining: true, ..stays(Some(900)) };
        let eligible = EligibleWorkers::from_offers(&[stays(Some(60)), stays(Some(300)), leaving.clone()]);
        let found = |eligible: EligibleWorkers| {
            eligible.workers.into_iter().map(|worker| worker.time_left).collect::<Vec<_>>()
        };
        assert_eq!(found(eligible), [Some(Duration::from_mins(1)), Some(Duration::from_mins(5))]);
        assert_eq!(found(EligibleWorkers::from_offers(&[stays(None), leaving])), [None]);
    }
}

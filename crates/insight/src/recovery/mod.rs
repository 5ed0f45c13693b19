//! What ails the jobs of a workflow that ended badly, and what is to be done about each: a plan, which a person or an agent
//! sees before it is carried out. The diagnosis itself is [`windlass_core::recovery`]'s.

mod failed_jobs;
mod view;

pub use failed_jobs::ExaminedJob;
pub use view::RecoveryPlanReport;

use crate::needs_decision;
use failed_jobs::load_failed_jobs;
use serde_json::json;
use std::collections::HashMap;
use windlass_core::job_explanation::WorkerAvailability;
use windlass_core::recovery::{
    AvailableWorker, JobRemedy, RecoveryAction, RecoveryDiagnosis, RecoverySettings, plan_recovery,
};
use windlass_core::sizing::ResourceAmount;
use windlass_store::model::{EventSeverity, NewEvent, WorkflowRow};
use windlass_store::{Store, StoreError};
use windlass_types::failure_commands::{
    FailureCommand, FailureCommandBatch, FailureCommandKind, FailureCommandOutcome, FailureCommandStatus,
    RequestedJobChanges,
};
use windlass_types::{JobId, JobStatus, Resources};

/// So many jobs are noted one by one.
const MAX_RECORDED_JOBS: usize = 1000;

/// What was found about the jobs of a workflow, and what is to be done about them.
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
    /// What it asks for when it runs again; `None`: as before.
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

/// What the workers that may take the jobs have.
#[derive(Clone, Debug, Default)]
pub struct EligibleCapacity {
    pub takers: Vec<AvailableWorker>,
}

impl EligibleCapacity {
    /// Those that leave take no more jobs; one that does not say how long it stays, stays for good.
    pub fn from_offers(offers: &[WorkerAvailability]) -> Self {
        let takers = offers.iter().filter(|offer| !offer.is_draining);
        let taker = |offer: &WorkerAvailability| AvailableWorker {
            capacity: offer.capacity,
            time_left: offer.time_left,
        };
        Self { takers: takers.map(taker).collect() }
    }
}

/// Each job that ended badly, diagnosed from the measurements of its own last attempt.
pub fn diagnose_workflow(
    store: &dyn Store,
    row: WorkflowRow,
    terms: &RecoverySettings<'_>,
) -> Result<RecoveryPlan, StoreError> {
    let found = load_failed_jobs(store, &row)?;
    let cases: Vec<_> = found.iter().map(|found| found.failed_job).collect();
    let remedies = plan_recovery(&cases, terms);
    let patients = found
        .into_iter()
        .zip(remedies)
        .map(|(found, remedy)| JobDiagnosis { examined: found, remedy })
        .collect();
    Ok(RecoveryPlan { row, diagnoses: patients })
}

impl RecoveryPlan {
    pub fn rerun_jobs(&self) -> impl Iterator<Item = &JobDiagnosis> {
        self.diagnoses.iter().filter(|patient| patient.remedy.runs_again())
    }

    pub fn has_reruns(&self) -> bool {
        self.rerun_jobs().next().is_some()
    }

    pub fn unchanged_count(&self) -> usize {
        self.diagnoses.len() - self.rerun_jobs().count()
    }

    pub fn has_unexplained(&self) -> bool {
        self.diagnoses.iter().any(|patient| patient.remedy.diagnosis == RecoveryDiagnosis::Unknown)
    }

    /// Some are not this plan's affair, for this reason.
    pub fn exclude_jobs(&mut self, which: impl Fn(&ExaminedJob) -> bool, why: &str) {
        for patient in self.diagnoses.iter_mut().filter(|patient| which(&patient.examined)) {
            patient.remedy.next = RecoveryAction::Stay(why.to_owned());
            patient.remedy.changes.clear();
        }
    }

    /// What was to run again, and does not, stays for the reason that was given for it.
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

    /// What those that run again ask for then, where they ask for anything.
    pub fn next_resources(&self) -> HashMap<JobId, Resources> {
        let asks = |patient: &JobDiagnosis| {
            Some((patient.remedy.job, patient.next_resources().or(patient.examined.failed_job.asked)?))
        };
        self.rerun_jobs().filter_map(asks).collect()
    }

    /// Jobs that did not fail and still have to run.
    pub fn remaining_count(&self) -> u64 {
        count_remaining_jobs(&self.row)
    }

    /// `2 jobs will run again, 1 stays as it is`.
    pub fn render_summary(&self, dry_run: bool) -> String {
        if self.diagnoses.is_empty() {
            return match self.remaining_count() {
                0 => "no job has failed; there is nothing to recover".to_owned(),
                1 => "no job has failed; 1 job is left to run".to_owned(),
                n => format!("no job has failed; {n} jobs are left to run"),
            };
        }
        let verb = if dry_run { "would run" } else { "will run" };
        let head = match self.rerun_jobs().count() {
            1 => format!("1 job {verb} again"),
            n => format!("{n} jobs {verb} again"),
        };
        match self.unchanged_count() {
            0 => head,
            1 => format!("{head}, 1 stays as it is"),
            n => format!("{head}, {n} stay as they are"),
        }
    }

    /// What is ordered for the plan to be carried out. `asked_by`: on whose behalf, if that is not known anyway.
    pub fn failure_commands(&self, asked_by: Option<&str>) -> FailureCommandBatch {
        let orders = self.rerun_jobs().map(|patient| failure_command(&patient.remedy, asked_by)).collect();
        FailureCommandBatch { orders, ..FailureCommandBatch::default() }
    }

    /// For whoever asks later what happened, and at whose request: a workflow that was canceled begins anew without decisions
    /// about its jobs, so nothing else tells.
    pub fn recovery_event(&self, asked_by: Option<&str>) -> NewEvent {
        let asked = asked_by.map(|who| format!(", asked for by {who}")).unwrap_or_default();
        let jobs: Vec<_> = self.rerun_jobs().map(|patient| &patient.remedy).collect();
        NewEvent {
            workflow: Some(self.row.id),
            job: None,
            severity: EventSeverity::Info,
            category: "recovery".to_owned(),
            message: format!(
                "workflow {} ({}): {}{asked}",
                self.row.id,
                self.row.name,
                self.render_summary(false)
            ),
            data: Some(json!({
                "jobs": jobs.iter().take(MAX_RECORDED_JOBS).collect::<Vec<_>>(), "count": jobs.len(), "asked_by": asked_by,
            })),
        }
    }
}

/// Jobs of a workflow that still have to run, as far as nobody has to decide about them first.
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
    let asked = asked_by.map(|who| format!(", asked for by {who}")).unwrap_or_default();
    let reason = format!("recover{asked}: {} ({})", remedy.diagnosis, remedy.evidence);
    let (confidence, evidence) = (None, Vec::new());
    FailureCommand {
        job: remedy.job,
        verdict: FailureCommandKind::Retry,
        changes,
        reason,
        confidence,
        evidence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use windlass_types::{Bytes, Capacity};

    #[test]
    fn who_leaves_gives_no_room_and_who_says_nothing_stays() {
        let capacity = Capacity { cpus: 2, memory: Bytes(1 << 30), gpus: 0, nodes: 1, max_jobs: None };
        let stays = |time_left: Option<u64>| WorkerAvailability {
            time_left: time_left.map(Duration::from_secs),
            ..WorkerAvailability::from_capacity(capacity)
        };
        let leaving = WorkerAvailability { is_draining: true, ..stays(Some(900)) };
        let room = EligibleCapacity::from_offers(&[stays(Some(60)), stays(Some(300)), leaving.clone()]);
        let found =
            |room: EligibleCapacity| room.takers.into_iter().map(|taker| taker.time_left).collect::<Vec<_>>();
        assert_eq!(found(room), [Some(Duration::from_mins(1)), Some(Duration::from_mins(5))]);
        assert_eq!(found(EligibleCapacity::from_offers(&[stays(None), leaving])), [None]);
    }
}

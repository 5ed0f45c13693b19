//! What ails the jobs of a workflow that ended badly, and what is to be done about each: a plan, which a person or an agent
//! sees before it is carried out. The diagnosis itself is [`windlass_core::recovery`]'s.

mod examine;
mod view;

pub use examine::Examined;
pub use view::PlanView;

use crate::needs_verdict;
use examine::examine;
use serde_json::json;
use std::collections::HashMap;
use windlass_core::recovery::{Diagnosis, Next, Remedy, Taker, Terms, plan};
use windlass_core::sizing::Amount;
use windlass_core::why::Offer;
use windlass_store::model::{NewEvent, Severity, WorkflowRow};
use windlass_store::{Error, Store};
use windlass_types::orders::{Answer, Changes, Order, Orders, Outcome, Verdict};
use windlass_types::{JobId, JobStatus, Resources};

/// So many jobs are noted one by one.
const NOTED: usize = 1000;

/// What was found about the jobs of a workflow, and what is to be done about them.
#[derive(Clone, Debug)]
pub struct Plan {
    pub row: WorkflowRow,
    pub patients: Vec<Patient>,
}

#[derive(Clone, Debug)]
pub struct Patient {
    pub found: Examined,
    pub remedy: Remedy,
}

impl Patient {
    /// What it asks for when it runs again; `None`: as before.
    pub fn asked_then(&self) -> Option<Resources> {
        let mut asked = self.found.case.asked.filter(|_| !self.remedy.changes.is_empty())?;
        for change in &self.remedy.changes {
            match change.to {
                Amount::Memory(memory) => asked.memory = memory,
                Amount::Cpus(cpus) => asked.cpus = cpus,
                Amount::Runtime(runtime) => asked.runtime = Some(runtime),
            }
        }
        Some(asked)
    }
}

/// What the workers that may take the jobs have.
#[derive(Clone, Debug, Default)]
pub struct Room {
    pub takers: Vec<Taker>,
}

impl Room {
    /// Those that leave take no more jobs; one that does not say how long it stays, stays for good.
    pub fn of(offers: &[Offer]) -> Self {
        let takers = offers.iter().filter(|offer| !offer.is_draining);
        let taker = |offer: &Offer| Taker { has: offer.capacity, stays: offer.time_left };
        Self { takers: takers.map(taker).collect() }
    }
}

/// Each job that ended badly, diagnosed from the measurements of its own last attempt.
pub fn diagnose(store: &dyn Store, row: WorkflowRow, terms: &Terms<'_>) -> Result<Plan, Error> {
    let found = examine(store, &row)?;
    let cases: Vec<_> = found.iter().map(|found| found.case).collect();
    let remedies = plan(&cases, terms);
    let patients = found.into_iter().zip(remedies).map(|(found, remedy)| Patient { found, remedy }).collect();
    Ok(Plan { row, patients })
}

impl Plan {
    pub fn again(&self) -> impl Iterator<Item = &Patient> {
        self.patients.iter().filter(|patient| patient.remedy.runs_again())
    }

    pub fn runs_something(&self) -> bool {
        self.again().next().is_some()
    }

    pub fn staying(&self) -> usize {
        self.patients.len() - self.again().count()
    }

    pub fn has_unexplained(&self) -> bool {
        self.patients.iter().any(|patient| patient.remedy.diagnosis == Diagnosis::Unknown)
    }

    /// Some are not this plan's affair, for this reason.
    pub fn leave(&mut self, which: impl Fn(&Examined) -> bool, why: &str) {
        for patient in self.patients.iter_mut().filter(|patient| which(&patient.found)) {
            patient.remedy.next = Next::Stay(why.to_owned());
            patient.remedy.changes.clear();
        }
    }

    /// What was to run again, and does not, stays for the reason that was given for it.
    pub fn learn(&mut self, outcomes: &[Outcome]) {
        let undone = outcomes.iter().filter(|outcome| outcome.answer != Answer::Done);
        let undone: HashMap<JobId, &str> =
            undone.map(|outcome| (outcome.job, outcome.words.as_str())).collect();
        for Patient { remedy, .. } in &mut self.patients {
            if let Some(why) = undone.get(&remedy.job) {
                remedy.next = Next::Stay((*why).to_owned());
                remedy.changes.clear();
            }
        }
    }

    /// What those that run again ask for then, where they ask for anything.
    pub fn asked_then(&self) -> HashMap<JobId, Resources> {
        let asks = |patient: &Patient| {
            Some((patient.remedy.job, patient.asked_then().or(patient.found.case.asked)?))
        };
        self.again().filter_map(asks).collect()
    }

    /// Jobs that did not fail and still have to run.
    pub fn left(&self) -> u64 {
        left(&self.row)
    }

    /// `2 jobs will run again, 1 stays as it is`.
    pub fn in_words(&self, dry_run: bool) -> String {
        if self.patients.is_empty() {
            return match self.left() {
                0 => "no job has failed; there is nothing to recover".to_owned(),
                1 => "no job has failed; 1 job is left to run".to_owned(),
                n => format!("no job has failed; {n} jobs are left to run"),
            };
        }
        let verb = if dry_run { "would run" } else { "will run" };
        let head = match self.again().count() {
            1 => format!("1 job {verb} again"),
            n => format!("{n} jobs {verb} again"),
        };
        match self.staying() {
            0 => head,
            1 => format!("{head}, 1 stays as it is"),
            n => format!("{head}, {n} stay as they are"),
        }
    }

    /// What is ordered for the plan to be carried out. `asked_by`: on whose behalf, if that is not known anyway.
    pub fn orders(&self, asked_by: Option<&str>) -> Orders {
        let orders = self.again().map(|patient| order(&patient.remedy, asked_by)).collect();
        Orders { orders, ..Orders::default() }
    }

    /// For whoever asks later what happened, and at whose request: a workflow that was canceled begins anew without decisions
    /// about its jobs, so nothing else tells.
    pub fn event(&self, asked_by: Option<&str>) -> NewEvent {
        let asked = asked_by.map(|who| format!(", asked for by {who}")).unwrap_or_default();
        let jobs: Vec<_> = self.again().map(|patient| &patient.remedy).collect();
        NewEvent {
            workflow: Some(self.row.id),
            job: None,
            severity: Severity::Info,
            category: "recovery".to_owned(),
            message: format!("workflow {} ({}): {}{asked}", self.row.id, self.row.name, self.in_words(false)),
            data: Some(json!({
                "jobs": jobs.iter().take(NOTED).collect::<Vec<_>>(), "count": jobs.len(), "asked_by": asked_by,
            })),
        }
    }
}

/// Jobs of a workflow that still have to run, as far as nobody has to decide about them first.
pub fn left(row: &WorkflowRow) -> u64 {
    let counts = &row.counts;
    let left = counts.total() - counts.settled() - counts.get(JobStatus::PendingFailed);
    if needs_verdict(counts) { 0 } else { left }
}

fn order(remedy: &Remedy, asked_by: Option<&str>) -> Order {
    let mut changes = Changes::default();
    for change in &remedy.changes {
        match change.to {
            Amount::Memory(memory) => changes.memory_bytes = Some(memory),
            Amount::Cpus(cpus) => changes.cpus = Some(cpus),
            Amount::Runtime(runtime) => changes.runtime_seconds = Some(runtime.as_secs_f64()),
        }
    }
    let asked = asked_by.map(|who| format!(", asked for by {who}")).unwrap_or_default();
    let reason = format!("recover{asked}: {} ({})", remedy.diagnosis, remedy.evidence);
    let (confidence, evidence) = (None, Vec::new());
    Order { job: remedy.job, verdict: Verdict::Retry, changes, reason, confidence, evidence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use windlass_types::{Bytes, Capacity};

    #[test]
    fn who_leaves_gives_no_room_and_who_says_nothing_stays() {
        let capacity = Capacity { cpus: 2, memory: Bytes(1 << 30), gpus: 0, nodes: 1, max_jobs: None };
        let stays = |time_left: Option<u64>| Offer {
            time_left: time_left.map(Duration::from_secs),
            ..Offer::of(capacity)
        };
        let leaving = Offer { is_draining: true, ..stays(Some(900)) };
        let room = Room::of(&[stays(Some(60)), stays(Some(300)), leaving.clone()]);
        let found = |room: Room| room.takers.into_iter().map(|taker| taker.stays).collect::<Vec<_>>();
        assert_eq!(found(room), [Some(Duration::from_mins(1)), Some(Duration::from_mins(5))]);
        assert_eq!(found(Room::of(&[stays(None), leaving])), [None]);
    }
}

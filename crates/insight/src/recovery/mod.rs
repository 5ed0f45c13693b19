//! What ails the jobs of a workflow that ended badly, and what is to be done about each: a plan, which a person or an agent
//! sees before it is carried out. The diagnosis itself is [`windlass_core::recovery`]'s.

mod examine;
mod view;

pub use examine::Examined;
pub use view::PlanView;

use examine::examine;
use serde_json::json;
use std::time::Duration;
use windlass_core::recovery::{Diagnosis, Next, Remedy, Terms, plan};
use windlass_core::sizing::Amount;
use windlass_core::why::Offer;
use windlass_store::model::{NewEvent, Severity, WorkflowRow};
use windlass_store::{Error, Store};
use windlass_types::Capacity;
use windlass_types::orders::{Changes, Order, Orders, Verdict};

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

/// What the workers that may take the jobs have.
#[derive(Clone, Debug, Default)]
pub struct Room {
    pub workers: Vec<Capacity>,
    /// No worker stays longer than this, where that is known.
    pub longest: Option<Duration>,
}

impl Room {
    /// Those that leave take no more jobs; one that does not say how long it stays, stays for good.
    pub fn of(offers: &[Offer]) -> Self {
        let takers = || offers.iter().filter(|offer| !offer.is_draining);
        let stays: Option<Vec<Duration>> = takers().map(|offer| offer.time_left).collect();
        Self {
            workers: takers().map(|offer| offer.capacity).collect(),
            longest: stays.and_then(|stays| stays.into_iter().max()),
        }
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

    /// `2 jobs will run again, 1 stays as it is`.
    pub fn in_words(&self, dry_run: bool) -> String {
        if self.patients.is_empty() {
            return "no job has failed; there is nothing to recover".to_owned();
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
        Orders { agent: None, dry_run: false, orders }
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
    use windlass_types::Bytes;

    #[test]
    fn who_leaves_gives_no_room_and_who_says_nothing_stays() {
        let capacity = Capacity { cpus: 2, memory: Bytes(1 << 30), gpus: 0, nodes: 1, max_jobs: None };
        let stays = |time_left: Option<u64>| Offer {
            time_left: time_left.map(Duration::from_secs),
            ..Offer::of(capacity)
        };
        let leaving = Offer { is_draining: true, ..stays(Some(900)) };
        let room = Room::of(&[stays(Some(60)), stays(Some(300)), leaving.clone()]);
        assert_eq!((room.workers.len(), room.longest), (2, Some(Duration::from_mins(5))));
        assert_eq!(Room::of(&[stays(Some(60)), stays(None)]).longest, None);
        assert_eq!(Room::of(&[leaving]).longest, None);
    }
}

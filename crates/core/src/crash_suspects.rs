//! Crash suspects: jobs that ran when workers died; which of them run again, which run alone, and which fail.
//!
//! Running at that time is weak evidence. If the agent of the worker process saw it die, each job that ran
//! counts an *observed* death. A single worker that loses contact may have crashed as a whole or lost its
//! network: that is *lost contact*, and is withdrawn if it reports again. If several workers lose contact at
//! once, the network is a likelier cause than a job, and a report by others that a worker is dead proves little
//! too: that is *unconfirmed*.
//!
//! A job with enough evidence against it runs alone, so that it affects no others and the next death is
//! conclusive: the workers that die then have only this job in common, and lost contact counts as much as an
//! observed death. After three such deaths the job fails.

use crate::workflow_state::OrphanDecision;
use rustc_hash::FxHashMap;
use windlass_types::{JobId, WorkerId};

/// How strongly a death speaks against a job that ran there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashEvidence {
    /// Other workers lost contact too, or a third party reports the death: hardly because of a job.
    Unconfirmed,
    /// This worker alone lost contact.
    LostContact,
    /// The worker process died, as observed by the process that started it.
    Observed,
}

/// The job runs alone from here on: after two observed deaths, three lost contacts, or many unconfirmed deaths.
const ISOLATE_THRESHOLD: u32 = 6;
/// The job fails if it also ran alone: after three more observed deaths or lost contacts.
const FAIL_THRESHOLD: u32 = 15;

impl CrashEvidence {
    const ALL: [Self; 3] = [Self::Unconfirmed, Self::LostContact, Self::Observed];

    /// Returns what it adds to the earlier evidence.
    const fn weight(self, before: u32) -> u32 {
        match self {
            Self::Unconfirmed => 1,
            // Other jobs ran there too.
            Self::LostContact if before < ISOLATE_THRESHOLD => 2,
            Self::LostContact | Self::Observed => 3,
        }
    }

    /// Whether the evidence is withdrawn if the worker reports again.
    const fn is_from_lost_contact(self) -> bool {
        matches!(self, Self::Unconfirmed | Self::LostContact)
    }

    /// The end of the reason in the result of an attempt. Stored in the database and matched when it is read,
    /// so it must not change.
    const fn reason_text(self) -> &'static str {
        match self {
            Self::Unconfirmed => "was lost while it ran",
            Self::LostContact => "was not heard of any more while it ran",
            Self::Observed => "died while it ran, perhaps of it",
        }
    }

    /// Parses the evidence from the reason in a result.
    #[must_use]
    pub fn from_reason(reason: &str) -> Option<Self> {
        let says =
            |evidence: &Self| reason.starts_with("orphaned: ") && reason.ends_with(evidence.reason_text());
        Self::ALL.into_iter().find(says)
    }
}

/// Prefix of the reason of an attempt that was lost with its worker. Older results have nothing after it.
pub const ORPHAN_REASON_PREFIX: &str = "orphaned: worker ";

/// Returns why an attempt is an orphan. `None`: its worker ended for a reason unrelated to the job.
pub(crate) fn orphan_reason(worker: WorkerId, evidence: Option<CrashEvidence>) -> String {
    let what = evidence.map_or("ended while it ran", CrashEvidence::reason_text);
    format!("{ORPHAN_REASON_PREFIX}{worker} {what}")
}

/// Evidence against each job: the deaths of its workers since it last ended by itself.
#[derive(Clone, Debug, Default)]
pub struct CrashSuspects(FxHashMap<JobId, Vec<(WorkerId, CrashEvidence)>>);

/// How far a job had got when its worker died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPhaseAtCrash {
    /// The worker had certainly not started it.
    NotStarted,
    /// It may have started, but others were ahead of it: it hardly caused the death.
    Waiting,
    Running,
    /// Running, with no other job.
    Isolated,
}

impl CrashSuspects {
    /// Decides what happens to a job whose worker died.
    pub fn on_worker_death(
        &mut self,
        job: JobId,
        worker: WorkerId,
        at: JobPhaseAtCrash,
        evidence: CrashEvidence,
    ) -> OrphanDecision {
        match at {
            JobPhaseAtCrash::NotStarted => return OrphanDecision::NeverStarted,
            JobPhaseAtCrash::Waiting => return OrphanDecision::RunAgain(None),
            JobPhaseAtCrash::Running | JobPhaseAtCrash::Isolated => self.record_death(job, worker, evidence),
        }
        match self.weight(job) {
            FAIL_THRESHOLD.. if at == JobPhaseAtCrash::Isolated => OrphanDecision::GiveUp,
            ISOLATE_THRESHOLD.. => OrphanDecision::RunIsolated(evidence),
            _ => OrphanDecision::RunAgain(Some(evidence)),
        }
    }

    /// Records a death against a job, at runtime or when the database is read: in the order of occurrence.
    pub fn record_death(&mut self, job: JobId, worker: WorkerId, evidence: CrashEvidence) {
        self.0.entry(job).or_default().push((worker, evidence));
    }

    /// The job ended by itself, so it does not kill workers.
    pub fn on_attempt_ended(&mut self, job: JobId) {
        self.0.remove(&job);
    }

    /// Withdraws evidence because the worker reports again. Returns the affected jobs.
    pub fn withdraw_evidence(&mut self, worker: WorkerId) -> Vec<JobId> {
        let mut concerned = Vec::new();
        self.0.retain(|job, deaths_of_job| {
            let before = deaths_of_job.len();
            deaths_of_job.retain(|(of, evidence)| *of != worker || !evidence.is_from_lost_contact());
            if deaths_of_job.len() < before {
                concerned.push(*job);
            }
            !deaths_of_job.is_empty()
        });
        concerned.sort_unstable();
        concerned
    }

    /// Whether the evidence suffices to run the job alone.
    pub fn is_suspicious(&self, job: JobId) -> bool {
        self.weight(job) >= ISOLATE_THRESHOLD
    }

    /// Returns all jobs that are to run alone, ascending.
    pub fn suspicious_jobs(&self) -> Vec<JobId> {
        let mut jobs: Vec<JobId> = self.0.keys().copied().filter(|job| self.is_suspicious(*job)).collect();
        jobs.sort_unstable();
        jobs
    }

    fn weight(&self, job: JobId) -> u32 {
        let deaths_of_job = self.0.get(&job).into_iter().flatten();
        deaths_of_job.fold(0, |before, (_, evidence)| before + evidence.weight(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CrashEvidence::{LostContact, Observed, Unconfirmed};
    use JobPhaseAtCrash::{Isolated, NotStarted, Running, Waiting};
    use proptest::prelude::*;

    const JOB: JobId = JobId(1);

    type Deaths = &'static [(JobPhaseAtCrash, CrashEvidence)];
    type Kind = fn(u32) -> CrashEvidence;

    /// Applies deaths of different workers to a job, and returns the decision for each.
    fn decisions(deaths: &[(JobPhaseAtCrash, CrashEvidence)]) -> Vec<OrphanDecision> {
        let mut suspects = CrashSuspects::default();
        let orphan_decision =
            |(worker, (at, evidence))| suspects.on_worker_death(JOB, WorkerId(worker), at, evidence);
        (1..).zip(deaths.iter().copied()).map(orphan_decision).collect()
    }

    /// Follows the scheduler: together with others, until the job is to run alone.
    fn deaths_until_given_up(mut evidence: impl FnMut(u32) -> CrashEvidence) -> (u32, u32) {
        let (mut suspects, mut at, mut beside) = (CrashSuspects::default(), Running, 0);
        for death in 1..100 {
            beside += u32::from(at == Running);
            match suspects.on_worker_death(JOB, WorkerId(death.into()), at, evidence(death)) {
                OrphanDecision::GiveUp => return (beside, death - beside),
                OrphanDecision::RunIsolated(_) => at = Isolated,
                _ => {}
            }
        }
        panic!("it never fails");
    }

    #[test]
    fn evidence_of_a_worker_death_depends_on_the_job_state() {
        let again = OrphanDecision::RunAgain;
        let table: [(Deaths, &[OrphanDecision]); 4] = [
            (&[(NotStarted, Observed), (Waiting, Observed)], &[OrphanDecision::NeverStarted, again(None)]),
            (
                &[(Running, Observed), (Waiting, Observed), (Running, Observed)],
                &[again(Some(Observed)), again(None), OrphanDecision::RunIsolated(Observed)],
            ),
            (
                &[(Running, LostContact), (Running, Observed)],
                &[again(Some(LostContact)), again(Some(Observed))],
            ),
            (
                &[(Running, Observed); 6],
                &[
                    again(Some(Observed)),
                    OrphanDecision::RunIsolated(Observed),
                    OrphanDecision::RunIsolated(Observed),
                    OrphanDecision::RunIsolated(Observed),
                    // Others ran there too: one of them may have been the cause.
                    OrphanDecision::RunIsolated(Observed),
                    OrphanDecision::RunIsolated(Observed),
                ],
            ),
        ];
        for (deaths, expected) in table {
            assert_eq!(decisions(deaths), expected, "{deaths:?}");
        }
    }

    #[test]
    fn job_is_given_up_after_enough_worker_deaths() {
        let table: [(Kind, (u32, u32)); 5] = [
            (|_| Observed, (2, 3)),
            (|_| LostContact, (3, 3)),
            (|_| Unconfirmed, (6, 9)),
            (|death| if death % 2 == 0 { Observed } else { LostContact }, (3, 3)),
            (|death| if death % 2 == 0 { Unconfirmed } else { LostContact }, (4, 5)),
        ];
        for (evidence, expected) in table {
            assert_eq!(deaths_until_given_up(evidence), expected);
        }
    }

    #[test]
    fn ended_attempt_clears_its_job() {
        let mut suspects = CrashSuspects::default();
        for worker in 1..=4 {
            suspects.on_worker_death(JOB, WorkerId(worker), Running, Observed);
        }
        suspects.on_attempt_ended(JOB);
        assert_eq!(
            suspects.on_worker_death(JOB, WorkerId(5), Running, Observed),
            OrphanDecision::RunAgain(Some(Observed))
        );
    }

    #[test]
    fn returning_worker_withdraws_its_evidence() {
        let mut suspects = CrashSuspects::default();
        suspects.record_death(JOB, WorkerId(1), Observed);
        for worker in [1, 2, 3] {
            suspects.record_death(JOB, WorkerId(worker), LostContact);
        }
        suspects.record_death(JobId(2), WorkerId(3), LostContact);
        suspects.record_death(JOB, WorkerId(3), Unconfirmed);
        assert_eq!((suspects.suspicious_jobs(), suspects.weight(JOB)), (vec![JOB], 3 + 2 + 2 + 3 + 1));
        assert_eq!(suspects.withdraw_evidence(WorkerId(3)), [JOB, JobId(2)]);
        assert_eq!(suspects.weight(JOB), 3 + 2 + 2);
        assert_eq!(
            suspects.withdraw_evidence(WorkerId(1)),
            [JOB],
            "its lost contact, not the death that it reported"
        );
        assert!(!suspects.is_suspicious(JOB) && suspects.weight(JOB) == 3 + 2);
        assert!(suspects.withdraw_evidence(WorkerId(3)).is_empty(), "once");
    }

    #[test]
    fn crash_evidence_is_read_from_the_orphan_reason() {
        for evidence in [None, Some(Unconfirmed), Some(LostContact), Some(Observed)] {
            assert_eq!(CrashEvidence::from_reason(&orphan_reason(WorkerId(7), evidence)), evidence);
        }
        assert_eq!(
            CrashEvidence::from_reason("worker 7 died while it ran, perhaps of it"),
            None,
            "not a stored reason"
        );
    }

    /// Deaths of one job, each of another worker: the evidence, and whether the worker reports again before the
    /// next.
    fn histories() -> impl Strategy<Value = Vec<(CrashEvidence, bool)>> {
        let evidence = prop_oneof![Just(Unconfirmed), Just(LostContact), Just(Observed)];
        proptest::collection::vec((evidence, any::<bool>()), 0..40)
    }

    proptest! {
        /// Withdrawn evidence has no effect; and no job fails before it ran alone several times, in workers
        /// that did not report again.
        #[test]
        fn only_lost_workers_count_as_evidence(history in histories()) {
            let (mut suspects, mut with_withdrawn_evidence) = (CrashSuspects::default(), CrashSuspects::default());
            let (mut alone, mut lasting) = (0, 0);
            for (worker, (evidence, returns)) in (1..).zip(history) {
                let at = if suspects.is_suspicious(JOB) { Isolated } else { Running };
                let lasts = !returns || evidence == Observed;
                lasting += u32::from(lasts);
                alone = if at == Isolated { alone + 1 } else { 0 };
                if suspects.on_worker_death(JOB, WorkerId(worker), at, evidence) == OrphanDecision::GiveUp {
                    prop_assert!(alone >= 3 && lasting + u32::from(!lasts) >= 5);
                    break;
                }
                if lasts {
                    with_withdrawn_evidence.record_death(JOB, WorkerId(worker), evidence);
                } else {
                    suspects.withdraw_evidence(WorkerId(worker));
                }
                prop_assert_eq!(suspects.weight(JOB), with_withdrawn_evidence.weight(JOB));
            }
        }

        #[test]
        fn returning_workers_never_fail_a_job(silences in proptest::collection::vec(any::<bool>(), 0..100)) {
            let mut suspects = CrashSuspects::default();
            for (worker, at_once) in (1..).zip(silences) {
                let evidence = if at_once { Unconfirmed } else { LostContact };
                let orphan_decision = suspects.on_worker_death(JOB, WorkerId(worker), Running, evidence);
                prop_assert_eq!(orphan_decision, OrphanDecision::RunAgain(Some(evidence)));
                suspects.withdraw_evidence(WorkerId(worker));
            }
        }
    }
}

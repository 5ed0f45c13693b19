//! Jobs that were there when workers died: which of them run again, which alone, and which is given up.
//!
//! To have been there is little evidence. The process that runs jobs may have died of one of them, and the agent that
//! started it lives to tell; then each job that ran counts as a *witnessed* death. A worker that alone among others is not
//! heard of any more may have been taken down as a whole, or have lost its network: that is *silence*, and is taken back
//! if it speaks again. When several fall silent at once the network is likelier than a job, and that somebody says so of a
//! worker proves little too: that is *hearsay*.
//!
//! A job with enough against it is tried alone, so that others suffer no longer and the next death says something: the
//! workers that die then have nothing in common but this job, and their silence counts as much as a death that was seen.
//! After three such deaths it is given up.

use crate::workflow_state::OrphanDecision;
use rustc_hash::FxHashMap;
use windlass_types::{JobId, WorkerId};

/// How much a death says against a job that ran there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashEvidence {
    /// Others fell silent with it, or somebody else says that it is dead: hardly because of a job.
    Unconfirmed,
    /// This worker alone was not heard of any more.
    LostContact,
    /// The process that ran the job died, and whoever started that process saw it.
    Observed,
}

/// Tried alone from here on: after two deaths that were witnessed, three silences, or much hearsay.
const ISOLATE_THRESHOLD: u32 = 6;
/// Given up if also tried alone: after three more deaths that were witnessed or silent.
const FAIL_THRESHOLD: u32 = 15;

impl CrashEvidence {
    const ALL: [Self; 3] = [Self::Unconfirmed, Self::LostContact, Self::Observed];

    /// What it adds to what spoke against the job before.
    const fn weight(self, before: u32) -> u32 {
        match self {
            Self::Unconfirmed => 1,
            // Others were there too.
            Self::LostContact if before < ISOLATE_THRESHOLD => 2,
            Self::LostContact | Self::Observed => 3,
        }
    }

    /// Says nothing any more if the worker speaks again.
    const fn is_from_lost_contact(self) -> bool {
        matches!(self, Self::Unconfirmed | Self::LostContact)
    }

    /// Ends the reason in the result of an attempt; by these words it is known again when the books are read.
    const fn reason_text(self) -> &'static str {
        match self {
            Self::Unconfirmed => "was lost while it ran",
            Self::LostContact => "was not heard of any more while it ran",
            Self::Observed => "died while it ran, perhaps of it",
        }
    }

    /// What the reason in a result says against its job.
    #[must_use]
    pub fn from_reason(reason: &str) -> Option<Self> {
        let says =
            |evidence: &Self| reason.starts_with("orphaned: ") && reason.ends_with(evidence.reason_text());
        Self::ALL.into_iter().find(says)
    }
}

/// Begins the reason of an attempt that was lost with its worker, before anybody knew why that was.
pub const ORPHAN_REASON_PREFIX: &str = "orphaned: worker ";

/// Why an attempt is an orphan. `None`: its worker ended, and the job has nothing to do with it.
pub(crate) fn orphan_reason(worker: WorkerId, evidence: Option<CrashEvidence>) -> String {
    let what = evidence.map_or("ended while it ran", CrashEvidence::reason_text);
    format!("{ORPHAN_REASON_PREFIX}{worker} {what}")
}

/// What speaks against each job: the deaths that it was involved in since it last ended by itself.
#[derive(Clone, Debug, Default)]
pub struct CrashSuspects(FxHashMap<JobId, Vec<(WorkerId, CrashEvidence)>>);

/// Where a job was when its worker died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPosition {
    /// The worker had certainly not started it.
    NotStarted,
    /// It may have started, but others were before it: it is hardly what killed the worker.
    Waiting,
    Running,
    /// Running, with nothing beside it.
    Isolated,
}

impl CrashSuspects {
    /// What becomes of a job whose worker died.
    pub fn on_worker_death(
        &mut self,
        job: JobId,
        worker: WorkerId,
        at: CrashPosition,
        evidence: CrashEvidence,
    ) -> OrphanDecision {
        match at {
            CrashPosition::NotStarted => return OrphanDecision::NeverStarted,
            CrashPosition::Waiting => return OrphanDecision::RunAgain(None),
            CrashPosition::Running | CrashPosition::Isolated => self.record_death(job, worker, evidence),
        }
        match self.weight(job) {
            FAIL_THRESHOLD.. if at == CrashPosition::Isolated => OrphanDecision::GiveUp,
            ISOLATE_THRESHOLD.. => OrphanDecision::RunIsolated(evidence),
            _ => OrphanDecision::RunAgain(Some(evidence)),
        }
    }

    /// Holds a death against a job, now or when the books are read: in the order in which they happened.
    pub fn record_death(&mut self, job: JobId, worker: WorkerId, evidence: CrashEvidence) {
        self.0.entry(job).or_default().push((worker, evidence));
    }

    /// It ended by itself, so it kills nobody.
    pub fn on_attempt_ended(&mut self, job: JobId) {
        self.0.remove(&job);
    }

    /// The worker speaks again, so nothing has killed it. Returns the jobs that this concerns.
    pub fn withdraw_evidence(&mut self, worker: WorkerId) -> Vec<JobId> {
        let mut concerned = Vec::new();
        self.0.retain(|job, charges| {
            let before = charges.len();
            charges.retain(|(of, evidence)| *of != worker || !evidence.is_from_lost_contact());
            if charges.len() < before {
                concerned.push(*job);
            }
            !charges.is_empty()
        });
        concerned.sort_unstable();
        concerned
    }

    /// Enough speaks against it to try it alone.
    pub fn is_suspicious(&self, job: JobId) -> bool {
        self.weight(job) >= ISOLATE_THRESHOLD
    }

    /// All jobs that are to be tried alone, ascending.
    pub fn suspicious_jobs(&self) -> Vec<JobId> {
        let mut jobs: Vec<JobId> = self.0.keys().copied().filter(|job| self.is_suspicious(*job)).collect();
        jobs.sort_unstable();
        jobs
    }

    fn weight(&self, job: JobId) -> u32 {
        let charges = self.0.get(&job).into_iter().flatten();
        charges.fold(0, |before, (_, evidence)| before + evidence.weight(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CrashEvidence::{LostContact, Observed, Unconfirmed};
    use CrashPosition::{Isolated, NotStarted, Running, Waiting};
    use proptest::prelude::*;

    const JOB: JobId = JobId(1);

    type Deaths = &'static [(CrashPosition, CrashEvidence)];
    type Kind = fn(u32) -> CrashEvidence;

    /// Lets a job go through deaths, each of another worker, and says what becomes of it each time.
    fn fates(deaths: &[(CrashPosition, CrashEvidence)]) -> Vec<OrphanDecision> {
        let mut suspects = CrashSuspects::default();
        let fate = |(worker, (at, evidence))| suspects.on_worker_death(JOB, WorkerId(worker), at, evidence);
        (1..).zip(deaths.iter().copied()).map(fate).collect()
    }

    /// As an engine does it: beside others, until it is to be tried alone.
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
        panic!("it is never given up");
    }

    #[test]
    fn what_a_death_says_depends_on_where_the_job_was() {
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
                    // Others were there too: whatever speaks against it, it may have been one of them.
                    OrphanDecision::RunIsolated(Observed),
                    OrphanDecision::RunIsolated(Observed),
                ],
            ),
        ];
        for (deaths, expected) in table {
            assert_eq!(fates(deaths), expected, "{deaths:?}");
        }
    }

    #[test]
    fn five_witnessed_deaths_or_six_silences_are_enough_and_much_hearsay() {
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
    fn who_ended_by_itself_is_no_suspect() {
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
    fn what_was_only_silence_is_taken_back_when_the_worker_speaks() {
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
        assert_eq!(suspects.withdraw_evidence(WorkerId(1)), [JOB], "its silence, not the death that it saw");
        assert!(!suspects.is_suspicious(JOB) && suspects.weight(JOB) == 3 + 2);
        assert!(suspects.withdraw_evidence(WorkerId(3)).is_empty(), "once");
    }

    #[test]
    fn the_reason_in_a_result_says_what_it_proves() {
        for evidence in [None, Some(Unconfirmed), Some(LostContact), Some(Observed)] {
            assert_eq!(CrashEvidence::from_reason(&orphan_reason(WorkerId(7), evidence)), evidence);
        }
        assert_eq!(
            CrashEvidence::from_reason("worker 7 died while it ran, perhaps of it"),
            None,
            "not our words"
        );
    }

    /// Deaths of one job after another, each of another worker: what they prove, and whether the worker speaks again
    /// before the next.
    fn histories() -> impl Strategy<Value = Vec<(CrashEvidence, bool)>> {
        let evidence = prop_oneof![Just(Unconfirmed), Just(LostContact), Just(Observed)];
        proptest::collection::vec((evidence, any::<bool>()), 0..40)
    }

    proptest! {
        /// Whatever was taken back might as well never have been; and nobody is given up before he was tried alone
        /// several times, in workers of which nothing was heard again.
        #[test]
        fn only_workers_that_stay_away_count(history in histories()) {
            let (mut suspects, mut spared) = (CrashSuspects::default(), CrashSuspects::default());
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
                    spared.record_death(JOB, WorkerId(worker), evidence);
                } else {
                    suspects.withdraw_evidence(WorkerId(worker));
                }
                prop_assert_eq!(suspects.weight(JOB), spared.weight(JOB));
            }
        }

        #[test]
        fn workers_that_were_only_away_never_cost_a_job(silences in proptest::collection::vec(any::<bool>(), 0..100)) {
            let mut suspects = CrashSuspects::default();
            for (worker, at_once) in (1..).zip(silences) {
                let evidence = if at_once { Unconfirmed } else { LostContact };
                let fate = suspects.on_worker_death(JOB, WorkerId(worker), Running, evidence);
                prop_assert_eq!(fate, OrphanDecision::RunAgain(Some(evidence)));
                suspects.withdraw_evidence(WorkerId(worker));
            }
        }
    }
}

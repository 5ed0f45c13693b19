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

use crate::board::Orphan;
use rustc_hash::FxHashMap;
use windlass_types::{JobId, WorkerId};

/// How much a death says against a job that ran there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Others fell silent with it, or somebody else says that it is dead: hardly because of a job.
    Hearsay,
    /// This worker alone was not heard of any more.
    Silence,
    /// The process that ran the job died, and whoever started that process saw it.
    Witnessed,
}

/// Tried alone from here on: after two deaths that were witnessed, three silences, or much hearsay.
const SUSPICIOUS: u32 = 6;
/// Given up if also tried alone: after three more deaths that were witnessed or silent.
const GUILTY: u32 = 15;

impl Evidence {
    const ALL: [Self; 3] = [Self::Hearsay, Self::Silence, Self::Witnessed];

    /// What it adds to what spoke against the job before.
    const fn weight(self, before: u32) -> u32 {
        match self {
            Self::Hearsay => 1,
            // Others were there too.
            Self::Silence if before < SUSPICIOUS => 2,
            Self::Silence | Self::Witnessed => 3,
        }
    }

    /// Says nothing any more if the worker speaks again.
    const fn is_of_absence(self) -> bool {
        matches!(self, Self::Hearsay | Self::Silence)
    }

    /// Ends the reason in the result of an attempt; by these words it is known again when the books are read.
    const fn words(self) -> &'static str {
        match self {
            Self::Hearsay => "was lost while it ran",
            Self::Silence => "was not heard of any more while it ran",
            Self::Witnessed => "died while it ran, perhaps of it",
        }
    }

    /// What the reason in a result says against its job.
    #[must_use]
    pub fn of_reason(reason: &str) -> Option<Self> {
        let says = |evidence: &Self| reason.starts_with("orphaned: ") && reason.ends_with(evidence.words());
        Self::ALL.into_iter().find(says)
    }
}

/// Begins the reason of an attempt that was lost with its worker, before anybody knew why that was.
pub const LOST_WITH: &str = "orphaned: worker ";

/// Why an attempt is an orphan. `None`: its worker ended, and the job has nothing to do with it.
pub(crate) fn reason(worker: WorkerId, evidence: Option<Evidence>) -> String {
    let what = evidence.map_or("ended while it ran", Evidence::words);
    format!("{LOST_WITH}{worker} {what}")
}

/// What speaks against each job: the deaths that it was involved in since it last ended by itself.
#[derive(Clone, Debug, Default)]
pub struct Suspects(FxHashMap<JobId, Vec<(WorkerId, Evidence)>>);

/// Where a job was when its worker died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// The worker had certainly not started it.
    NotStarted,
    /// It may have started, but others were before it: it is hardly what killed the worker.
    Waiting,
    Running,
    /// Running, with nothing beside it.
    Alone,
}

impl Suspects {
    /// What becomes of a job whose worker died.
    pub fn on_death(&mut self, job: JobId, worker: WorkerId, at: Whereabouts, evidence: Evidence) -> Orphan {
        match at {
            Whereabouts::NotStarted => return Orphan::NeverStarted,
            Whereabouts::Waiting => return Orphan::RunAgain(None),
            Whereabouts::Running | Whereabouts::Alone => self.charge(job, worker, evidence),
        }
        match self.weight(job) {
            GUILTY.. if at == Whereabouts::Alone => Orphan::GiveUp,
            SUSPICIOUS.. => Orphan::RunAlone(evidence),
            _ => Orphan::RunAgain(Some(evidence)),
        }
    }

    /// Holds a death against a job, now or when the books are read: in the order in which they happened.
    pub fn charge(&mut self, job: JobId, worker: WorkerId, evidence: Evidence) {
        self.0.entry(job).or_default().push((worker, evidence));
    }

    /// It ended by itself, so it kills nobody.
    pub fn on_ended(&mut self, job: JobId) {
        self.0.remove(&job);
    }

    /// The worker speaks again, so nothing has killed it. Returns the jobs that this concerns.
    pub fn withdraw(&mut self, worker: WorkerId) -> Vec<JobId> {
        let mut concerned = Vec::new();
        self.0.retain(|job, charges| {
            let before = charges.len();
            charges.retain(|(of, evidence)| *of != worker || !evidence.is_of_absence());
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
        self.weight(job) >= SUSPICIOUS
    }

    /// All jobs that are to be tried alone, ascending.
    pub fn suspicious(&self) -> Vec<JobId> {
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
    use Evidence::{Hearsay, Silence, Witnessed};
    use Whereabouts::{Alone, NotStarted, Running, Waiting};
    use proptest::prelude::*;

    const JOB: JobId = JobId(1);

    type Deaths = &'static [(Whereabouts, Evidence)];
    type Kind = fn(u32) -> Evidence;

    /// Lets a job go through deaths, each of another worker, and says what becomes of it each time.
    fn fates(deaths: &[(Whereabouts, Evidence)]) -> Vec<Orphan> {
        let mut suspects = Suspects::default();
        let fate = |(worker, (at, evidence))| suspects.on_death(JOB, WorkerId(worker), at, evidence);
        (1..).zip(deaths.iter().copied()).map(fate).collect()
    }

    /// As an engine does it: beside others, until it is to be tried alone.
    fn deaths_until_given_up(mut evidence: impl FnMut(u32) -> Evidence) -> (u32, u32) {
        let (mut suspects, mut at, mut beside) = (Suspects::default(), Running, 0);
        for death in 1..100 {
            beside += u32::from(at == Running);
            match suspects.on_death(JOB, WorkerId(death.into()), at, evidence(death)) {
                Orphan::GiveUp => return (beside, death - beside),
                Orphan::RunAlone(_) => at = Alone,
                _ => {}
            }
        }
        panic!("it is never given up");
    }

    #[test]
    fn what_a_death_says_depends_on_where_the_job_was() {
        let again = Orphan::RunAgain;
        let table: [(Deaths, &[Orphan]); 4] = [
            (&[(NotStarted, Witnessed), (Waiting, Witnessed)], &[Orphan::NeverStarted, again(None)]),
            (
                &[(Running, Witnessed), (Waiting, Witnessed), (Running, Witnessed)],
                &[again(Some(Witnessed)), again(None), Orphan::RunAlone(Witnessed)],
            ),
            (&[(Running, Silence), (Running, Witnessed)], &[again(Some(Silence)), again(Some(Witnessed))]),
            (
                &[(Running, Witnessed); 6],
                &[
                    again(Some(Witnessed)),
                    Orphan::RunAlone(Witnessed),
                    Orphan::RunAlone(Witnessed),
                    Orphan::RunAlone(Witnessed),
                    // Others were there too: whatever speaks against it, it may have been one of them.
                    Orphan::RunAlone(Witnessed),
                    Orphan::RunAlone(Witnessed),
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
            (|_| Witnessed, (2, 3)),
            (|_| Silence, (3, 3)),
            (|_| Hearsay, (6, 9)),
            (|death| if death % 2 == 0 { Witnessed } else { Silence }, (3, 3)),
            (|death| if death % 2 == 0 { Hearsay } else { Silence }, (4, 5)),
        ];
        for (evidence, expected) in table {
            assert_eq!(deaths_until_given_up(evidence), expected);
        }
    }

    #[test]
    fn who_ended_by_itself_is_no_suspect() {
        let mut suspects = Suspects::default();
        for worker in 1..=4 {
            suspects.on_death(JOB, WorkerId(worker), Running, Witnessed);
        }
        suspects.on_ended(JOB);
        assert_eq!(
            suspects.on_death(JOB, WorkerId(5), Running, Witnessed),
            Orphan::RunAgain(Some(Witnessed))
        );
    }

    #[test]
    fn what_was_only_silence_is_taken_back_when_the_worker_speaks() {
        let mut suspects = Suspects::default();
        suspects.charge(JOB, WorkerId(1), Witnessed);
        for worker in [1, 2, 3] {
            suspects.charge(JOB, WorkerId(worker), Silence);
        }
        suspects.charge(JobId(2), WorkerId(3), Silence);
        suspects.charge(JOB, WorkerId(3), Hearsay);
        assert_eq!((suspects.suspicious(), suspects.weight(JOB)), (vec![JOB], 3 + 2 + 2 + 3 + 1));
        assert_eq!(suspects.withdraw(WorkerId(3)), [JOB, JobId(2)]);
        assert_eq!(suspects.weight(JOB), 3 + 2 + 2);
        assert_eq!(suspects.withdraw(WorkerId(1)), [JOB], "its silence, not the death that it saw");
        assert!(!suspects.is_suspicious(JOB) && suspects.weight(JOB) == 3 + 2);
        assert!(suspects.withdraw(WorkerId(3)).is_empty(), "once");
    }

    #[test]
    fn the_reason_in_a_result_says_what_it_proves() {
        for evidence in [None, Some(Hearsay), Some(Silence), Some(Witnessed)] {
            assert_eq!(Evidence::of_reason(&reason(WorkerId(7), evidence)), evidence);
        }
        assert_eq!(Evidence::of_reason("worker 7 died while it ran, perhaps of it"), None, "not our words");
    }

    /// Deaths of one job after another, each of another worker: what they prove, and whether the worker speaks again
    /// before the next.
    fn histories() -> impl Strategy<Value = Vec<(Evidence, bool)>> {
        let evidence = prop_oneof![Just(Hearsay), Just(Silence), Just(Witnessed)];
        proptest::collection::vec((evidence, any::<bool>()), 0..40)
    }

    proptest! {
        /// Whatever was taken back might as well never have been; and nobody is given up before he was tried alone
        /// several times, in workers of which nothing was heard again.
        #[test]
        fn only_workers_that_stay_away_count(history in histories()) {
            let (mut suspects, mut spared) = (Suspects::default(), Suspects::default());
            let (mut alone, mut lasting) = (0, 0);
            for (worker, (evidence, returns)) in (1..).zip(history) {
                let at = if suspects.is_suspicious(JOB) { Alone } else { Running };
                let lasts = !returns || evidence == Witnessed;
                lasting += u32::from(lasts);
                alone = if at == Alone { alone + 1 } else { 0 };
                if suspects.on_death(JOB, WorkerId(worker), at, evidence) == Orphan::GiveUp {
                    prop_assert!(alone >= 3 && lasting + u32::from(!lasts) >= 5);
                    break;
                }
                if lasts {
                    spared.charge(JOB, WorkerId(worker), evidence);
                } else {
                    suspects.withdraw(WorkerId(worker));
                }
                prop_assert_eq!(suspects.weight(JOB), spared.weight(JOB));
            }
        }

        #[test]
        fn workers_that_were_only_away_never_cost_a_job(silences in proptest::collection::vec(any::<bool>(), 0..100)) {
            let mut suspects = Suspects::default();
            for (worker, at_once) in (1..).zip(silences) {
                let evidence = if at_once { Hearsay } else { Silence };
                let fate = suspects.on_death(JOB, WorkerId(worker), Running, evidence);
                prop_assert_eq!(fate, Orphan::RunAgain(Some(evidence)));
                suspects.withdraw(WorkerId(worker));
            }
        }
    }
}

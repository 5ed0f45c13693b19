//! Jobs that were there when workers died: which of them run again, which alone, and which is given up.

use crate::board::Orphan;
use rustc_hash::FxHashMap;
use windlass_types::JobId;

/// Jobs that ran in so many workers that died are tried alone.
const SUSPICIOUS_DEATHS: u32 = 2;

/// In how many deaths of a worker each job was involved.
#[derive(Clone, Debug, Default)]
pub struct Suspects(FxHashMap<JobId, u32>);

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
    pub fn on_death(&mut self, job: JobId, at: Whereabouts) -> Orphan {
        match at {
            Whereabouts::NotStarted => Orphan::NeverStarted,
            Whereabouts::Waiting => Orphan::RunAgain,
            Whereabouts::Alone => Orphan::GiveUp,
            Whereabouts::Running => {
                let deaths = self.0.entry(job).or_default();
                *deaths += 1;
                if *deaths >= SUSPICIOUS_DEATHS { Orphan::RunAlone } else { Orphan::RunAgain }
            }
        }
    }

    /// It ended by itself, so it kills nobody.
    pub fn on_ended(&mut self, job: JobId) {
        self.0.remove(&job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_beside_others_then_alone_then_never_again() {
        let mut suspects = Suspects::default();
        let mut fate = |at| suspects.on_death(JobId(1), at);
        assert_eq!(fate(Whereabouts::NotStarted), Orphan::NeverStarted);
        assert_eq!(fate(Whereabouts::Waiting), Orphan::RunAgain);
        assert_eq!(fate(Whereabouts::Running), Orphan::RunAgain);
        assert_eq!(fate(Whereabouts::Waiting), Orphan::RunAgain, "others were before it");
        assert_eq!(fate(Whereabouts::Running), Orphan::RunAlone);
        assert_eq!(fate(Whereabouts::Alone), Orphan::GiveUp);
    }

    #[test]
    fn who_ended_by_itself_is_no_suspect() {
        let mut suspects = Suspects::default();
        suspects.on_death(JobId(1), Whereabouts::Running);
        suspects.on_ended(JobId(1));
        assert_eq!(suspects.on_death(JobId(1), Whereabouts::Running), Orphan::RunAgain);
    }
}

//! How large a round is: the first one is to find out what jobs need, the later ones are to get the work done.

use super::decision::{Decision, Source};
use super::experience::Experience;
use super::settings::{AdaptiveSettings, Window};
use serde::{Deserialize, Serialize};
use windlass_types::payload::SideBySide;

/// No more work units than this in a round. `None`: all that there are.
pub fn max_units(
    settings: &AdaptiveSettings,
    is_wanted: bool,
    round: u32,
    experience: Option<&Experience>,
) -> Option<u32> {
    if !settings.enabled || !is_wanted || settings.first_round_units == 0 {
        return None;
    }
    let sampled = experience.map_or(0, |known| known.profile.jobs_sampled);
    // As long as too little is known, what comes next is a first round too.
    let grown = if sampled < settings.min_samples { 0 } else { round };
    let factor = u64::from(settings.growth.max(1)).saturating_pow(grown);
    Some(u32::try_from(u64::from(settings.first_round_units).saturating_mul(factor)).unwrap_or(u32::MAX))
}

/// Jobs of the first work unit that try out half the threads, twice: the second point that models need.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probes {
    /// The last ones of the unit.
    pub jobs: u32,
    pub way: SideBySide,
    /// As much as may be asked for: nobody knows what they need.
    pub memory_mb: u64,
}

/// Of a round with so many jobs in its first unit, and more work left for rounds that would use what they find.
pub fn probes(
    settings: &AdaptiveSettings,
    window: &Window,
    decision: &Decision,
    jobs_of_unit: u32,
) -> Option<Probes> {
    let is_of_use = settings.enabled && decision.source == Source::Hint && decision.cores >= 2;
    // One that runs as all others do has to stay, to compare them with.
    let jobs = settings.probe_jobs.min(jobs_of_unit.saturating_sub(1));
    (is_of_use && jobs > 0).then(|| Probes {
        jobs,
        way: SideBySide { instances: 2, threads: decision.cores / 2 },
        memory_mb: window.most(decision.cores),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::payload::StepProfile;

    #[test]
    fn rounds_grow_once_something_is_known() {
        let settings = AdaptiveSettings::default();
        let known = |jobs_sampled| Experience {
            profile: StepProfile { jobs_sampled, ..StepProfile::default() },
            ..Experience::default()
        };
        let units = |round, jobs| max_units(&settings, true, round, Some(&known(jobs)));
        assert_eq!(max_units(&settings, true, 0, None), Some(100));
        assert_eq!((units(1, 4), units(1, 5), units(2, 500)), (Some(100), Some(1000), Some(10_000)));
        assert_eq!(units(40, 5), Some(u32::MAX));
        assert_eq!(max_units(&settings, false, 0, None), None);
        let whole = AdaptiveSettings { first_round_units: 0, ..settings };
        assert_eq!(max_units(&whole, true, 0, None), None);
        let off = AdaptiveSettings { enabled: false, ..settings };
        assert_eq!(max_units(&off, true, 0, None), None);
    }
}

//! How large a round is: the first one is to find out what jobs need, the later ones are to get the work done.

use super::measurements::RequestMeasurements;
use super::settings::{AdaptiveSettings, MemoryWindow};
use super::tuning::{JobTuning, SizingSource};
use serde::{Deserialize, Serialize};
use windlass_types::payload::StepParallelism;

/// How much a round may have at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundSize {
    pub units: u32,
    /// `None`: as many as there are in the units.
    pub jobs: Option<u64>,
}

/// The first round is small, because it is planned by what somebody thought; each that is planned by what was measured may
/// have `growth` times more than the one before. `None`: all that there is.
pub fn decide_round_size(
    settings: &AdaptiveSettings,
    is_wanted: bool,
    experience: Option<&RequestMeasurements>,
) -> Option<RoundSize> {
    if !settings.enabled || !is_wanted || settings.first_round_units == 0 {
        return None;
    }
    let sampled = experience.map_or(0, |known| known.profile.jobs_sampled);
    let records = experience.map_or(&[][..], |known| &known.rounds);
    let measured = records.iter().filter(|record| record.asked.from == SizingSource::Measured).count() as u32;
    // As long as too little is known, what comes next is a first round too; and however many of these there were, what
    // follows them is the second.
    let grown = if sampled < settings.min_samples { 0 } else { measured + 1 };
    let factor = u64::from(settings.growth.max(1)).saturating_pow(grown);
    let units = u64::from(settings.first_round_units).saturating_mul(factor);
    Some(RoundSize {
        units: u32::try_from(units).unwrap_or(u32::MAX),
        jobs: (settings.first_round_jobs > 0).then(|| settings.first_round_jobs.saturating_mul(factor)),
    })
}

/// Jobs of the first work unit that try out half the threads, twice: the second point that models need.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeJobs {
    /// The last ones of the unit.
    pub jobs: u32,
    pub way: StepParallelism,
    /// As much as may be asked for: nobody knows what they need.
    pub memory_mb: u64,
}

/// Of a round with so many jobs in its first unit, and more work left for rounds that would use what they find.
pub fn plan_probe_jobs(
    settings: &AdaptiveSettings,
    window: &MemoryWindow,
    decision: &JobTuning,
    jobs_of_unit: u32,
) -> Option<ProbeJobs> {
    let is_of_use = settings.enabled && decision.source == SizingSource::Hint && decision.cores >= 2;
    // One that runs as all others do has to stay, to compare them with.
    let jobs = settings.probe_jobs.min(jobs_of_unit.saturating_sub(1));
    (is_of_use && jobs > 0).then(|| ProbeJobs {
        jobs,
        way: StepParallelism { instances: 2, threads: decision.cores / 2 },
        memory_mb: window.max_memory_mb(decision.cores),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adaptive::{RoundEstimate, RoundRecord};
    use windlass_types::payload::StepProfile;

    fn known(jobs_sampled: u64, rounds: &[SizingSource]) -> RequestMeasurements {
        let record = |(round, from): (u32, &SizingSource)| RoundRecord {
            round,
            asked: RoundEstimate { from: *from, ..RoundEstimate::default() },
            measured: None,
        };
        RequestMeasurements {
            profile: StepProfile { jobs_sampled, ..StepProfile::default() },
            rounds: (0..).zip(rounds).map(record).collect(),
            ..RequestMeasurements::default()
        }
    }

    #[test]
    fn rounds_grow_once_something_is_known() {
        use SizingSource::{Hint, Measured};
        let settings = AdaptiveSettings::default();
        // jobs sampled, how earlier rounds were planned → units, jobs
        let table: [(u64, &[SizingSource], u32, u64); 7] = [
            (0, &[], 100, 1000),
            (4, &[Hint], 100, 1000),
            (5, &[Hint], 1000, 10_000),
            // However long nothing was known, the next round is not larger for that.
            (5, &[Hint, Hint, Hint, Hint], 1000, 10_000),
            (500, &[Hint, Measured], 10_000, 100_000),
            (500, &[Hint, Hint, Measured, Measured], 100_000, 1_000_000),
            (5, &[Measured; 39], u32::MAX, u64::MAX),
        ];
        for (jobs, rounds, units, of_jobs) in table {
            let found = decide_round_size(&settings, true, Some(&known(jobs, rounds)));
            assert_eq!(found, Some(RoundSize { units, jobs: Some(of_jobs) }), "{jobs} {rounds:?}");
        }
        let unlimited = AdaptiveSettings { first_round_jobs: 0, ..settings };
        assert_eq!(decide_round_size(&unlimited, true, None), Some(RoundSize { units: 100, jobs: None }));
        assert_eq!(decide_round_size(&settings, false, None), None);
        for all in [
            AdaptiveSettings { first_round_units: 0, ..settings },
            AdaptiveSettings { enabled: false, ..settings },
        ] {
            assert_eq!(decide_round_size(&all, true, None), None);
        }
    }
}

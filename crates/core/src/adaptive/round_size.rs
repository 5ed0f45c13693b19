//! Size of rounds: the first round measures what jobs need, the later ones do the bulk of the work.

use super::measurements::RequestMeasurements;
use super::settings::{AdaptiveSettings, MemoryWindow};
use super::tuning::{JobTuning, SizingSource};
use serde::{Deserialize, Serialize};
use windlass_types::payload::StepParallelism;

/// Maximum size of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundSizeLimit {
    pub units: u32,
    /// `None`: as many as the units contain.
    pub jobs: Option<u64>,
}

/// The first round is small because it is planned from hints. Each round that is planned from measurements may
/// be `growth` times larger than the one before. `None`: unlimited.
pub fn decide_round_size(
    settings: &AdaptiveSettings,
    is_wanted: bool,
    experience: Option<&RequestMeasurements>,
) -> Option<RoundSizeLimit> {
    if !settings.enabled || !is_wanted || settings.first_round_units == 0 {
        return None;
    }
    let sampled = experience.map_or(0, |known| known.profile.jobs_sampled);
    let records = experience.map_or(&[][..], |known| &known.rounds);
    let measured = records.iter().filter(|record| record.asked.from == SizingSource::Measured).count() as u32;
    // While there are too few measurements the next round counts as a first round. The round after these
    // counts as the second, however many there were.
    let grown = if sampled < settings.min_samples { 0 } else { measured + 1 };
    let factor = u64::from(settings.growth.max(1)).saturating_pow(grown);
    let units = u64::from(settings.first_round_units).saturating_mul(factor);
    Some(RoundSizeLimit {
        units: u32::try_from(units).unwrap_or(u32::MAX),
        jobs: (settings.first_round_jobs > 0).then(|| settings.first_round_jobs.saturating_mul(factor)),
    })
}

/// Jobs of the first work unit that run two instances with half the threads: the second point that
/// models need.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadProbeJobs {
    /// The last jobs of the unit.
    pub jobs: u32,
    pub way: StepParallelism,
    /// The maximum that may be requested: what they need is not known.
    pub memory_mb: u64,
}

/// Plans the thread probe jobs of a round with this many jobs in its first unit. Only if later rounds will use the
/// result.
pub fn plan_thread_probe_jobs(
    settings: &AdaptiveSettings,
    window: &MemoryWindow,
    decision: &JobTuning,
    jobs_of_unit: u32,
) -> Option<ThreadProbeJobs> {
    let is_of_use = settings.enabled && decision.source == SizingSource::Hint && decision.cores >= 2;
    // At least one job with the normal layout remains for comparison.
    let jobs = settings.probe_jobs.min(jobs_of_unit.saturating_sub(1));
    (is_of_use && jobs > 0).then(|| ThreadProbeJobs {
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
    fn rounds_grow_after_the_first_measurement() {
        use SizingSource::{Hint, Measured};
        let settings = AdaptiveSettings::default();
        // jobs sampled, source of earlier plans → units, jobs
        let table: [(u64, &[SizingSource], u32, u64); 7] = [
            (0, &[], 100, 1000),
            (4, &[Hint], 100, 1000),
            (5, &[Hint], 1000, 10_000),
            // Rounds without measurements do not make the next round larger.
            (5, &[Hint, Hint, Hint, Hint], 1000, 10_000),
            (500, &[Hint, Measured], 10_000, 100_000),
            (500, &[Hint, Hint, Measured, Measured], 100_000, 1_000_000),
            (5, &[Measured; 39], u32::MAX, u64::MAX),
        ];
        for (jobs, rounds, units, of_jobs) in table {
            let found = decide_round_size(&settings, true, Some(&known(jobs, rounds)));
            assert_eq!(found, Some(RoundSizeLimit { units, jobs: Some(of_jobs) }), "{jobs} {rounds:?}");
        }
        let unlimited = AdaptiveSettings { first_round_jobs: 0, ..settings };
        assert_eq!(
            decide_round_size(&unlimited, true, None),
            Some(RoundSizeLimit { units: 100, jobs: None })
        );
        assert_eq!(decide_round_size(&settings, false, None), None);
        for all in [
            AdaptiveSettings { first_round_units: 0, ..settings },
            AdaptiveSettings { enabled: false, ..settings },
        ] {
            assert_eq!(decide_round_size(&all, true, None), None);
        }
    }
}

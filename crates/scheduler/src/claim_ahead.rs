//! Measures how fast jobs end, to decide how many to claim ahead.

use std::time::Duration;

/// Claim as many jobs ahead as end within this time: a few commits' worth, so that no slot waits for a commit,
/// and so few that hardly any job is "claimed, not started" when jobs are long.
const CLAIM_AHEAD_TIME: Duration = Duration::from_millis(40);
const MAX_CLAIMED_AHEAD: usize = 256;
/// The weight of a new measurement.
const AVERAGE_WEIGHT: f64 = 0.1;

#[derive(Debug)]
pub(crate) struct ClaimAheadEstimator {
    claim_ahead_time: Duration,
    mean_wall_time: Option<f64>,
    /// The largest number, regardless of the measured times: doubled with each claim, so that one short job at
    /// the start does not claim a hundred long ones.
    claim_limit: usize,
}

impl Default for ClaimAheadEstimator {
    fn default() -> Self {
        Self::with_claim_ahead_time(CLAIM_AHEAD_TIME)
    }
}

impl ClaimAheadEstimator {
    /// For a worker that is contacted only at this interval.
    pub(crate) const fn with_claim_ahead_time(claim_ahead_time: Duration) -> Self {
        Self { claim_ahead_time, mean_wall_time: None, claim_limit: 0 }
    }

    pub(crate) fn on_ended(&mut self, wall: Duration) {
        let wall = wall.as_secs_f64();
        self.mean_wall_time =
            Some(self.mean_wall_time.map_or(wall, |mean| mean + AVERAGE_WEIGHT * (wall - mean)));
    }

    /// The number of jobs to queue at a worker that runs `running` at once.
    pub(crate) fn claims_ahead(&self, running: usize) -> usize {
        let Some(mean) = self.mean_wall_time else { return 0 };
        let ends_soon = running as f64 * self.claim_ahead_time.as_secs_f64() / mean.max(1e-5);
        (ends_soon as usize).min(self.claim_limit)
    }

    pub(crate) fn on_claimed(&mut self, running: usize) {
        let used = self.claims_ahead(running).max(1);
        self.claim_limit = (2 * used).min(MAX_CLAIMED_AHEAD);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_jobs_are_claimed_ahead_and_long_ones_are_not() {
        let mut pace = ClaimAheadEstimator::default();
        assert_eq!(pace.claims_ahead(2), 0, "no measurement yet");
        pace.on_ended(Duration::from_millis(1));
        assert_eq!(pace.claims_ahead(2), 0, "one short job proves little");
        let ramp: Vec<usize> = std::iter::repeat_with(|| {
            pace.on_claimed(2);
            pace.claims_ahead(2)
        })
        .take(8)
        .collect();
        assert_eq!(ramp, [2, 4, 8, 16, 32, 64, 80, 80]);
        (0..4).for_each(|_| pace.on_claimed(64));
        assert_eq!(pace.claims_ahead(64), MAX_CLAIMED_AHEAD);
        for _ in 0..100 {
            pace.on_ended(Duration::from_secs(10));
        }
        assert_eq!(pace.claims_ahead(2), 0);
    }
}

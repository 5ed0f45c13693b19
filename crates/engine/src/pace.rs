//! How fast jobs end, and so how far ahead to claim and what to tell the person who watches.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Claim as many jobs ahead as end within this time: a few commits' worth, so that no slot waits for a commit, and so
/// little that almost nothing is "claimed, not started" when jobs are long.
const AHEAD: Duration = Duration::from_millis(40);
const MOST_AHEAD: usize = 256;
/// The weight of a new measurement.
const WEIGHT: f64 = 0.1;
const RATE_WINDOW: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Pace {
    reach: Duration,
    mean_wall: Option<f64>,
    /// No more than this, however short the jobs were so far: doubled with each claim, so that one short job at the
    /// start does not claim a hundred long ones.
    ramp: usize,
    /// (when, how many were settled by then), over the last seconds.
    marks: VecDeque<(Instant, u64)>,
}

impl Default for Pace {
    fn default() -> Self {
        Self::reaching(AHEAD)
    }
}

impl Pace {
    /// For a worker that hears from us only so often.
    pub(crate) const fn reaching(reach: Duration) -> Self {
        Self { reach, mean_wall: None, ramp: 0, marks: VecDeque::new() }
    }

    pub(crate) fn on_ended(&mut self, wall: Duration) {
        let wall = wall.as_secs_f64();
        self.mean_wall = Some(self.mean_wall.map_or(wall, |mean| mean + WEIGHT * (wall - mean)));
    }

    /// How many jobs should wait at a worker that runs `running` at once.
    pub(crate) fn ahead(&self, running: usize) -> usize {
        let Some(mean) = self.mean_wall else { return 0 };
        let ends_soon = running as f64 * self.reach.as_secs_f64() / mean.max(1e-5);
        (ends_soon as usize).min(self.ramp)
    }

    pub(crate) fn on_claimed(&mut self, running: usize) {
        let used = self.ahead(running).max(1);
        self.ramp = (2 * used).min(MOST_AHEAD);
    }

    pub(crate) fn mark(&mut self, now: Instant, settled: u64) {
        self.marks.push_back((now, settled));
        while self.marks.len() > 2
            && self.marks.front().is_some_and(|(at, _)| now.duration_since(*at) > RATE_WINDOW)
        {
            self.marks.pop_front();
        }
    }

    /// Jobs settled per second over the last seconds.
    pub(crate) fn rate(&self) -> f64 {
        let (Some((first, then)), Some((last, now))) = (self.marks.front(), self.marks.back()) else {
            return 0.0;
        };
        let seconds = last.duration_since(*first).as_secs_f64();
        if seconds > 0.0 { now.saturating_sub(*then) as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_jobs_are_claimed_ahead_and_long_ones_are_not() {
        let mut pace = Pace::default();
        assert_eq!(pace.ahead(2), 0, "nothing is known yet");
        pace.on_ended(Duration::from_millis(1));
        assert_eq!(pace.ahead(2), 0, "one short job says little");
        let ramp: Vec<usize> = std::iter::repeat_with(|| {
            pace.on_claimed(2);
            pace.ahead(2)
        })
        .take(8)
        .collect();
        assert_eq!(ramp, [2, 4, 8, 16, 32, 64, 80, 80]);
        (0..4).for_each(|_| pace.on_claimed(64));
        assert_eq!(pace.ahead(64), MOST_AHEAD);
        for _ in 0..100 {
            pace.on_ended(Duration::from_secs(10));
        }
        assert_eq!(pace.ahead(2), 0);
    }

    #[test]
    fn the_rate_forgets_the_distant_past() {
        let start = Instant::now();
        let mut pace = Pace::default();
        for second in 0..20u64 {
            pace.mark(start + Duration::from_secs(second), second.saturating_sub(10) * 100);
        }
        assert!((pace.rate() - 100.0).abs() < 1.0, "{}", pace.rate());
    }
}

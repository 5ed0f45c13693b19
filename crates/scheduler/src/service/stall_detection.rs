//! Detects stalls of this thread by its lateness alone.

use std::time::{Duration, Instant};

/// A smaller lateness is only slowness.
const STALL_THRESHOLD: Duration = Duration::from_millis(500);

/// The longest wait, so that a stall is not mistaken for a wait.
pub(super) fn max_wait(lease: Duration) -> Duration {
    (lease / 8).clamp(Duration::from_millis(100), Duration::from_secs(1))
}

/// The length of the stall of this thread, if any: it meant to wake up at `expected`.
pub(super) fn stall_duration(expected: Instant, now: Instant, lease: Duration) -> Option<Duration> {
    let late = now.saturating_duration_since(expected);
    (late > STALL_THRESHOLD.min(max_wait(lease))).then_some(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_a_stall_and_slowness_is_not() {
        let lease = Duration::from_mins(1);
        let expected = Instant::now();
        for (late_ms, pause) in [(0, false), (400, false), (501, true), (90_000, true)] {
            let late = Duration::from_millis(late_ms);
            assert_eq!(stall_duration(expected, expected + late, lease), pause.then_some(late), "{late:?}");
        }
        assert_eq!(stall_duration(expected + lease, expected, lease), None, "woken by a call");
    }

    #[test]
    fn short_leases_need_shorter_waits() {
        assert_eq!(max_wait(Duration::from_mins(1)), Duration::from_secs(1));
        assert_eq!(max_wait(Duration::from_secs(2)), Duration::from_millis(250));
        assert_eq!(max_wait(Duration::ZERO), Duration::from_millis(100));
    }
}

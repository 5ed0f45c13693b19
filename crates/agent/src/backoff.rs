//! The delay before a call to an unreachable server is repeated: exponential backoff with jitter.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

const FIRST_DELAY: Duration = Duration::from_millis(100);

/// The delay after `failures` failed calls in a row: between half of the full delay and all of it, by `random` (0
/// to 1), so that a thousand workers do not call a recovered server at the same moment.
pub(crate) fn backoff_delay(failures: u32, longest: Duration, random: f64) -> Duration {
    let full =
        FIRST_DELAY.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(longest.max(FIRST_DELAY));
    full.mul_f64(0.5 + 0.5 * random)
}

/// A random number from 0 to 1. Not suitable for secrets.
pub(crate) fn random_fraction() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_with_jitter() {
        let longest = Duration::from_secs(5);
        let full: Vec<u128> = (1..9).map(|n| backoff_delay(n, longest, 1.0).as_millis()).collect();
        assert_eq!(full, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(backoff_delay(3, longest, 0.0), Duration::from_millis(200));
        assert_eq!(backoff_delay(u32::MAX, longest, 1.0), longest);
        assert_eq!(backoff_delay(1, Duration::ZERO, 1.0), FIRST_DELAY, "never without a delay");
        assert!((0..100).all(|_| (0.0..1.0).contains(&random_fraction())));
    }
}

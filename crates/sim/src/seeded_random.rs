//! Reproducible random numbers that depend only on a seed.
//!
//! Each part of the simulation has its own generator, so that a change of one part does not affect the others.

use std::time::Duration;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    /// Creates the generator of one part of the simulation.
    pub(crate) fn for_part(seed: u64, part: &str) -> Self {
        let mixed = part.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut random = Self(mixed);
        random.next_number();
        random
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in [0, 1).
    fn next_fraction(&mut self) -> f64 {
        (self.next_number() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn chance(&mut self, share: f64) -> bool {
        self.next_fraction() < share
    }

    pub(crate) fn number_below(&mut self, end: u64) -> u64 {
        self.next_number() % end.max(1)
    }

    /// Includes both ends.
    pub(crate) fn number_within(&mut self, first: u64, last: u64) -> u64 {
        first + self.number_below(last - first + 1)
    }

    pub(crate) fn fraction_between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next_fraction()
    }

    pub(crate) fn pick_one<'t, T>(&mut self, among: &'t [T]) -> &'t T {
        &among[self.number_below(among.len() as u64) as usize]
    }

    /// Picks `count` distinct items, or all if there are fewer.
    pub(crate) fn pick_some<T: Clone>(&mut self, among: &[T], count: usize) -> Vec<T> {
        let mut rest: Vec<T> = among.to_vec();
        (0..count.min(rest.len()))
            .map(|_| rest.swap_remove(self.number_below(rest.len() as u64) as usize))
            .collect()
    }

    /// Returns a random interval for an event with this mean interval.
    pub(crate) fn time_until_next(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(-(1.0 - self.next_fraction()).ln())
    }

    pub(crate) fn random_minutes(&mut self, low: f64, high: f64) -> Duration {
        Duration::from_secs_f64(60.0 * self.fraction_between(low, high))
    }

    pub(crate) fn random_hours(&mut self, low: f64, high: f64) -> Duration {
        self.random_minutes(60.0 * low, 60.0 * high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers() {
        let throw = |seed, part| {
            let mut random = SeededRandom::for_part(seed, part);
            (0..20).map(|_| random.number_below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(throw(1, "sites"), throw(1, "sites"));
        assert_ne!(throw(1, "sites"), throw(2, "sites"));
        assert_ne!(throw(1, "sites"), throw(1, "files"));
    }

    #[test]
    fn random_numbers_have_the_expected_distribution() {
        let mut random = SeededRandom::for_part(7, "any");
        let hits = (0..10_000).filter(|_| random.chance(0.3)).count();
        assert!((2700..3300).contains(&hits), "{hits}");
        let mean: f64 =
            (0..10_000).map(|_| random.time_until_next(Duration::from_secs(100)).as_secs_f64()).sum();
        assert!((9.0e5..1.1e6).contains(&mean), "{mean}");
        assert!((0..1000).all(|_| (3..=5).contains(&random.number_within(3, 5))));
        let mut some = random.pick_some(&[1, 2, 3, 4], 3);
        some.sort_unstable();
        some.dedup();
        assert_eq!(some.len(), 3);
    }
}

//! How many events to generate so that the wanted number passes a filter. The outcome is random: the request
//! gives an initial efficiency, measurements of its rounds improve it, and a margin covers statistical
//! fluctuation.

/// Weight of the hint, in accepted events: more than a few jobs outweigh it.
const HINT_WEIGHT: f64 = 10.0;
/// Margin in standard deviations: one round in a thousand produces too few events.
const MARGIN_SIGMAS: f64 = 3.0;

/// Estimates the filter efficiency from the hint and from `produced` of `generated` events.
pub(crate) fn estimate_filter_efficiency(hint: f64, produced: u64, generated: u64) -> f64 {
    let expected = (HINT_WEIGHT + produced as f64) / (HINT_WEIGHT / hint + generated as f64);
    // Without a filter there is nothing to learn from the sums.
    if generated == 0 || produced >= generated && hint >= 1.0 { hint } else { expected.min(1.0) }
}

/// Returns the number of events before the filter that yields `wanted` after it. `None`: the number overflows.
pub(crate) fn events_to_generate(wanted: u64, efficiency: f64) -> Option<u64> {
    if efficiency >= 1.0 || wanted == 0 {
        return Some(wanted);
    }
    // Of n events n·e pass, with a standard deviation of √(n·e·(1 − e)). Solved for the n at which the lower
    // margin is the wanted number.
    let chance = MARGIN_SIGMAS * (1.0 - efficiency).sqrt();
    let root = f64::midpoint(chance, (chance * chance + 4.0 * wanted as f64).sqrt());
    let made = (root * root / efficiency).ceil();
    (made < i64::MAX as f64).then_some(made as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_filter_efficiency_outweighs_the_hint() {
        // hint, produced, generated → least, most
        let table = [
            (0.1, 0, 0, 0.1, 0.1),
            (1.0, 0, 0, 1.0, 1.0),
            (1.0, 5000, 5000, 1.0, 1.0),
            (0.1, 100, 1000, 0.099, 0.101),
            // A few events change little, …
            (0.1, 0, 10, 0.08, 0.1),
            // … many events decide.
            (0.1, 10, 1000, 0.01, 0.02),
            (0.1, 1000, 100_000, 0.0100, 0.0102),
            (0.01, 1000, 10_000, 0.08, 0.1),
            (1.0, 1000, 2000, 0.5, 0.51),
            // An efficiency of 0 is never assumed.
            (0.5, 0, 1_000_000, 1e-6, 2e-5),
            (0.5, 3000, 1000, 1.0, 1.0),
        ];
        for (hint, produced, generated, least, most) in table {
            let found = estimate_filter_efficiency(hint, produced, generated);
            assert!((least..=most).contains(&found), "{hint}: {produced} of {generated}: {found}");
        }
    }

    #[test]
    fn generation_margin_shrinks_with_the_number_of_events() {
        // wanted, efficiency → made
        let table = [
            (0, 0.1, Some(0)),
            (7, 1.0, Some(7)),
            (1, 0.1, Some(100)),
            (100, 0.1, Some(1328)),
            (1_000_000, 0.1, Some(10_028_502)),
            (100, 0.999, Some(102)),
            (u64::MAX, 0.5, None),
            (1, 1e-300, None),
        ];
        for (wanted, efficiency, expected) in table {
            assert_eq!(events_to_generate(wanted, efficiency), expected, "{wanted} with {efficiency}");
        }
    }

    /// Deterministic random numbers: too few events are produced only rarely.
    #[test]
    fn generation_margin_suffices_for_random_filters() {
        const THROWN: u32 = 2000;
        let mut state = 7u64;
        let mut share = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        for (wanted, efficiency) in [(1, 0.1), (1, 0.5), (3, 0.9), (10, 0.3), (50, 0.05)] {
            let made = events_to_generate(wanted, efficiency).unwrap();
            let short = (0..THROWN)
                .filter(|_| ((0..made).filter(|_| share() < efficiency).count() as u64) < wanted)
                .count();
            assert!(short <= 10, "{wanted} with {efficiency}: {made} were too few {short} times of {THROWN}");
        }
    }
}

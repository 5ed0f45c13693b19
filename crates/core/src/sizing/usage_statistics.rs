//! Percentiles, and rounding of amounts to common values.

use serde::Serialize;
use std::time::Duration;
use windlass_types::Bytes;

/// Usage of a resource by the runs of a group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct UsageStatistics {
    /// Number of runs with a measurement.
    pub runs: u32,
    pub p50: f64,
    pub p95: f64,
    pub max: f64,
    pub mean: f64,
}

impl UsageStatistics {
    /// `None` without values.
    pub fn from_values(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let max = *values.last()?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let rank = |share: f64| values[((share * values.len() as f64).ceil() as usize).max(1) - 1];
        Some(Self { runs: values.len() as u32, p50: rank(0.5), p95: rank(0.95), max, mean })
    }
}

/// Rounds up to an integer. Tolerates floating-point errors: 1.2 × 2.5 is 3.
pub(super) fn round_up(value: f64) -> u64 {
    (value - 1e-9 * value.abs().max(1.0)).ceil().max(0.0) as u64
}

/// Rounds up to whole GiB from 10 GiB on, below that to steps of about a tenth, so that rounding does not cost
/// the saving.
pub(super) fn round_memory(bytes: f64) -> Bytes {
    const MIB: f64 = 1_048_576.0;
    let step = match bytes / MIB {
        mib if mib >= 10_240.0 => 1024.0,
        mib if mib >= 1024.0 => 128.0,
        mib if mib >= 128.0 => 16.0,
        _ => 1.0,
    };
    Bytes((round_up(bytes / MIB / step) * step as u64) << 20)
}

/// Rounds up to whole minutes, from an hour on to five minutes.
pub(super) fn round_runtime(seconds: f64) -> Duration {
    let step = if seconds > 3600.0 { 300 } else { 60 };
    Duration::from_secs(round_up(seconds / step as f64) * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use windlass_types::{format_exact_size, format_iso_duration};

    #[test]
    fn percentiles_are_values_that_occurred() {
        let measure = UsageStatistics::from_values((1..=100).map(f64::from)).unwrap();
        assert_eq!((measure.p50, measure.p95, measure.max, measure.mean), (50.0, 95.0, 100.0, 50.5));
        let one = UsageStatistics::from_values([7.0].into_iter()).unwrap();
        assert_eq!((one.p50, one.p95, one.max), (7.0, 7.0, 7.0));
        assert_eq!(UsageStatistics::from_values([f64::NAN].into_iter()), None);
    }

    #[test]
    fn amounts_are_rounded_up_to_round_numbers() {
        let gib = f64::from(1 << 30);
        for (bytes, text) in [
            (5e6, "5m"),
            (130.0 * 1_048_576.0, "144m"),
            (1.05 * gib, "1152m"),
            (2.5 * 1.2 * gib, "3g"),
            (10.2 * gib, "11g"),
        ] {
            assert_eq!(format_exact_size(round_memory(bytes)), text);
        }
        for (seconds, text) in [(10.0, "PT1M"), (61.0, "PT2M"), (3601.0, "PT1H5M"), (7200.0, "PT2H")] {
            assert_eq!(format_iso_duration(round_runtime(seconds)), text);
        }
    }

    proptest! {
        #[test]
        fn rounding_never_gives_less_and_reads_back(bytes in 1u64..1 << 44, seconds in 1u64..10_000_000) {
            let memory = round_memory(bytes as f64);
            prop_assert!(memory.0 >= bytes);
            prop_assert_eq!(format_exact_size(memory).parse::<Bytes>().unwrap(), memory);
            let runtime = round_runtime(seconds as f64);
            prop_assert!(runtime.as_secs() >= seconds);
            prop_assert_eq!(windlass_types::parse_duration(&format_iso_duration(runtime)).unwrap(), runtime);
        }
    }
}

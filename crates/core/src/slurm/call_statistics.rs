//! Statistics of Slurm calls: hourly counts, summed by command.

use super::allocation_rows::{SlurmCallCount, hour_start};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_types::Timestamp;

/// Calls within a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SlurmCallStats {
    pub calls: u64,
    pub failures: u64,
    /// Total duration.
    #[serde(skip)]
    pub took: Duration,
}

impl SlurmCallStats {
    /// Mean duration of a call.
    pub fn mean_duration(&self) -> Option<Duration> {
        (self.calls > 0).then(|| self.took.div_f64(self.calls as f64))
    }

    fn add_count(&mut self, count: &SlurmCallCount) {
        self.calls = self.calls.saturating_add(count.calls);
        self.failures = self.failures.saturating_add(count.failures);
        self.took = self.took.saturating_add(count.took);
    }
}

/// Calls of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandCallStats {
    pub command: String,
    /// Since the start of the hour.
    pub hour: SlurmCallStats,
    /// In this hour and the 23 before it.
    pub day: SlurmCallStats,
}

const HOUR: i64 = 3_600_000_000;

/// Returns the start of the period that [`sum_by_command`] needs.
pub const fn day_start(now: Timestamp) -> Timestamp {
    Timestamp(hour_start(now).0 - 23 * HOUR)
}

/// Sorted by command name.
pub fn sum_by_command(counts: &[SlurmCallCount], now: Timestamp) -> Vec<CommandCallStats> {
    let mut commands: BTreeMap<&str, CommandCallStats> = BTreeMap::new();
    for count in counts.iter().filter(|count| count.hour >= day_start(now)) {
        let of = commands.entry(&count.command).or_default();
        of.command.clone_from(&count.command);
        of.day.add_count(count);
        if count.hour >= hour_start(now) {
            of.hour.add_count(count);
        }
    }
    commands.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(hours_ago: i64, command: &str, calls: u64, failures: u64, seconds: u64) -> SlurmCallCount {
        let hour = Timestamp(hour_start(NOW).0 - hours_ago * HOUR);
        SlurmCallCount { hour, command: command.into(), calls, failures, took: Duration::from_secs(seconds) }
    }

    const NOW: Timestamp = Timestamp(500_000 * HOUR + 1_000_000);

    #[test]
    fn calls_are_summed_over_hour_and_day() {
        let counts = [
            count(24, "squeue", 1000, 1000, 1000),
            count(23, "squeue", 10, 1, 30),
            count(0, "squeue", 5, 0, 1),
            count(1, "sbatch", 2, 2, 0),
        ];
        let found = sum_by_command(&counts, NOW);
        let names: Vec<&str> = found.iter().map(|of| of.command.as_str()).collect();
        assert_eq!(names, ["sbatch", "squeue"]);
        assert_eq!((found[0].hour.calls, found[0].hour.mean_duration(), found[0].day.failures), (0, None, 2));
        assert_eq!((found[1].hour.calls, found[1].day.calls, found[1].day.failures), (5, 15, 1));
        assert_eq!(found[1].hour.mean_duration(), Some(Duration::from_millis(200)));
    }
}

//! Options of a server for the rounds of requests: their size, and what they learn from each other.

use clap::{Args, ValueEnum};
use std::time::Duration;
use windlass_core::adaptive::{AdaptiveSettings, MemoryWindow};
use windlass_core::requests::rounds::McCompletion;
use windlass_types::parse_duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoundLearningArg {
    /// Adapt the requirements of jobs to the measurements of the request.
    On,
    /// Use the values of requests, and run each request as a single round.
    Off,
}

/// When a request for generated events is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum McCompletionArg {
    /// When this number of events is produced and registered.
    Produced,
    /// When all event numbers are used, including those of failed work units.
    Offset,
}

impl From<McCompletionArg> for McCompletion {
    fn from(name: McCompletionArg) -> Self {
        match name {
            McCompletionArg::Produced => Self::Produced,
            McCompletionArg::Offset => Self::Offset,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Rounds of requests")]
pub(crate) struct RequestRoundsArgs {
    /// Adapt rounds to the measurements of earlier rounds.
    #[arg(long, value_enum, value_name = "ON|OFF", default_value = "on")]
    pub(crate) adaptive: RoundLearningArg,
    /// Maximum number of work units of the first round. 0: all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) first_round_units: u32,
    /// Maximum number of processing jobs of the first round. 0: no limit.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) first_round_jobs: u64,
    /// Factor by which each round is larger than the previous round.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) round_growth: u32,
    /// Target duration of a job where jobs are split by events.
    #[arg(long, value_name = "DURATION", default_value = "8h", value_parser = parse_duration)]
    pub(crate) target_job_time: Duration,
    /// Maximum number of threads of a job as a percentage of its cores. 100: as many threads as cores.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(100..=400))]
    pub(crate) overcommit_percent: u32,
    /// Number of jobs of a first round that run with half of the threads, to measure scaling. 0: none.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) probe_jobs: u32,
    /// Minimum number of measured jobs of a request before its requirements are adapted.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) min_samples: u64,
    /// Run several instances of a step in parallel within a job if the step uses less than this percentage of
    /// its cores.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) split_below_percent: u32,
    /// Minimum memory per core that jobs request, in MB; nearly all sites offer this much.
    #[arg(long, value_name = "MB", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) default_memory_per_core: u64,
    /// Maximum memory per core of a job in MB; requests above are rejected.
    #[arg(long, value_name = "MB", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) max_memory_per_core: u64,
    /// Margin above the measured memory in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) memory_safety_percent: u32,
    /// When a request for generated events is complete: enough events produced, or all event numbers used.
    #[arg(long, value_enum, value_name = "RULE", default_value = "produced")]
    pub(crate) mc_completion: McCompletionArg,
}

impl From<&RequestRoundsArgs> for MemoryWindow {
    fn from(args: &RequestRoundsArgs) -> Self {
        Self {
            default_per_core: args.default_memory_per_core,
            max_per_core: args.max_memory_per_core,
            safety: f64::from(100 + args.memory_safety_percent) / 100.0,
        }
    }
}

impl From<&RequestRoundsArgs> for AdaptiveSettings {
    fn from(args: &RequestRoundsArgs) -> Self {
        Self {
            enabled: args.adaptive == RoundLearningArg::On,
            first_round_units: args.first_round_units,
            first_round_jobs: args.first_round_jobs,
            growth: args.round_growth,
            target_job_sec: args.target_job_time.as_secs(),
            overcommit_max: f64::from(args.overcommit_percent) / 100.0,
            probe_jobs: args.probe_jobs,
            min_samples: args.min_samples,
            split_below: f64::from(args.split_below_percent) / 100.0,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct ParsedLine {
        #[command(flatten)]
        rounds: RequestRoundsArgs,
    }

    #[test]
    fn option_defaults_match_specification() {
        let line = ParsedLine::try_parse_from(["serve"]).unwrap();
        assert_eq!(AdaptiveSettings::from(&line.rounds), AdaptiveSettings::default());
        assert_eq!(MemoryWindow::from(&line.rounds), MemoryWindow::default());
    }

    #[test]
    fn given_options_override_defaults() {
        let words = [
            "serve",
            "--adaptive=off",
            "--first-round-units=7",
            "--first-round-jobs=70",
            "--round-growth=2",
            "--target-job-time=30m",
            "--overcommit-percent=150",
            "--probe-jobs=0",
            "--min-samples=9",
            "--split-below-percent=40",
            "--default-memory-per-core=1500",
            "--max-memory-per-core=4000",
            "--memory-safety-percent=30",
        ];
        let line = ParsedLine::try_parse_from(words).unwrap();
        let expected = AdaptiveSettings {
            enabled: false,
            first_round_units: 7,
            first_round_jobs: 70,
            growth: 2,
            target_job_sec: 1800,
            overcommit_max: 1.5,
            probe_jobs: 0,
            min_samples: 9,
            split_below: 0.4,
            ..AdaptiveSettings::default()
        };
        assert_eq!(AdaptiveSettings::from(&line.rounds), expected);
        let window = MemoryWindow { default_per_core: 1500, max_per_core: 4000, safety: 1.3 };
        assert_eq!(MemoryWindow::from(&line.rounds), window);
    }
}

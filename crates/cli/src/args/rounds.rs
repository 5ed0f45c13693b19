//! How the rounds of requests follow one another at a server: how they grow, and what they learn.

use clap::{Args, ValueEnum};
use std::time::Duration;
use windlass_core::adaptive::AdaptiveSettings;
use windlass_types::parse_duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Learning {
    /// What the jobs of a request have used decides what its next ones ask for.
    On,
    /// What requests say stands, and each is one round.
    Off,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Rounds of requests")]
pub(crate) struct RoundsArgs {
    /// Let rounds learn from what the jobs of earlier ones used.
    #[arg(long, value_enum, value_name = "ON|OFF", default_value = "on")]
    pub(crate) adaptive: Learning,
    /// Let the first round have so many work units; 0: all of them.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) first_round_units: u32,
    /// Let each round have so many times more than the one before.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) round_growth: u32,
    /// Cut jobs so that they take so long, where they are cut by events.
    #[arg(long, value_name = "DURATION", default_value = "8h", value_parser = parse_duration)]
    pub(crate) target_job_time: Duration,
    /// Threads that a job may have, as a part of its cores; 100: no more than cores.
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(100..=400))]
    pub(crate) overcommit_percent: u32,
    /// Jobs of a first round that try out half the threads; 0: none.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) probe_jobs: u32,
}

impl From<&RoundsArgs> for AdaptiveSettings {
    fn from(args: &RoundsArgs) -> Self {
        Self {
            enabled: args.adaptive == Learning::On,
            first_round_units: args.first_round_units,
            growth: args.round_growth,
            target_job_sec: args.target_job_time.as_secs(),
            overcommit_max: f64::from(args.overcommit_percent) / 100.0,
            probe_jobs: args.probe_jobs,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        rounds: RoundsArgs,
    }

    #[test]
    fn without_a_word_it_is_as_the_specification_has_it() {
        let line = Line::try_parse_from(["serve"]).unwrap();
        assert_eq!(AdaptiveSettings::from(&line.rounds), AdaptiveSettings::default());
    }

    #[test]
    fn what_is_said_is_meant() {
        let words = [
            "serve",
            "--adaptive=off",
            "--first-round-units=7",
            "--round-growth=2",
            "--target-job-time=30m",
            "--overcommit-percent=150",
            "--probe-jobs=0",
        ];
        let line = Line::try_parse_from(words).unwrap();
        let expected = AdaptiveSettings {
            enabled: false,
            first_round_units: 7,
            growth: 2,
            target_job_sec: 1800,
            overcommit_max: 1.5,
            probe_jobs: 0,
            ..AdaptiveSettings::default()
        };
        assert_eq!(AdaptiveSettings::from(&line.rounds), expected);
    }
}

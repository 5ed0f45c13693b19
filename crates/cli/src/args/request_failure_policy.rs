//! Options of a server for repeated failures in requests.

use clap::{Args, ValueEnum};
use std::time::Duration;
use windlass_core::requests::lifecycle::FailureResponseSettings;
use windlass_core::requests::{bans, correlated_failures, rounds};
use windlass_types::parse_duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SimilarFailuresArg {
    /// Send an alert.
    Alert,
    /// Start no new jobs of the run until an operator resumes it; hold its request after
    /// --similar-failure-hold-after.
    Pause,
    /// End the run, and hold its request.
    Hold,
    /// Do not check.
    Nothing,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Failures in requests")]
pub(crate) struct RequestFailurePolicyArgs {
    /// Hold a request if at least this percentage of the work units of a round failed; below it, the round is
    /// rescued.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(..=100))]
    pub(crate) hold_percent: u32,
    /// Maximum number of rescues of a round; then the request is held.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) max_rescues: u32,
    /// Ban a site for a request after this number of failures that the site may have caused. 0 disables
    /// automatic bans.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) site_ban_failures: u32,
    /// Ban a site only if more than this percentage of the attempts there failed.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(..=100))]
    pub(crate) site_ban_percent: u32,
    /// Duration of automatic bans.
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = parse_duration)]
    pub(crate) site_ban_duration: Duration,
    /// Ban a site for all requests after this number of requests have banned it.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) site_ban_promotion: u32,
    /// Action if most attempts of a run fail with the same error, at all sites.
    #[arg(long, alias = "on-failing-alike", value_enum, value_name = "ACTION", default_value = "pause")]
    pub(crate) on_similar_failures: SimilarFailuresArg,
    /// Minimum number of similar failures of a run, or at one site, for --on-similar-failures.
    #[arg(long, alias = "alike-attempts", value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) similar_failure_count: u32,
    /// Percentage of the ended attempts that similar failures must exceed for --on-similar-failures.
    #[arg(long, alias = "alike-percent", value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(..=100))]
    pub(crate) similar_failure_percent: u32,
    /// Time in which similar failures are counted for --on-similar-failures.
    #[arg(long, alias = "alike-window", value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) similar_failure_window: Duration,
    /// Hold the request of a paused run after this time, unless an operator resumes it.
    #[arg(long, alias = "alike-hold-after", value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) similar_failure_hold_after: Duration,
}

impl From<&RequestFailurePolicyArgs> for FailureResponseSettings {
    fn from(args: &RequestFailurePolicyArgs) -> Self {
        let part = |percent: u32| f64::from(percent) / 100.0;
        Self {
            bans: bans::BanPolicy {
                enabled: args.site_ban_failures > 0,
                min_failures: u64::from(args.site_ban_failures),
                failure_ratio: part(args.site_ban_percent),
                duration: args.site_ban_duration,
                promote_after: args.site_ban_promotion as usize,
            },
            correlated: correlated_failures::CorrelationPolicy {
                enabled: args.on_similar_failures != SimilarFailuresArg::Nothing,
                min_attempts: u64::from(args.similar_failure_count),
                share: part(args.similar_failure_percent),
                window: args.similar_failure_window,
                action: match args.on_similar_failures {
                    SimilarFailuresArg::Alert | SimilarFailuresArg::Nothing => {
                        correlated_failures::CorrelatedAction::Alert
                    }
                    SimilarFailuresArg::Pause => correlated_failures::CorrelatedAction::Pause,
                    SimilarFailuresArg::Hold => correlated_failures::CorrelatedAction::Hold,
                },
                hold_after: args.similar_failure_hold_after,
            },
        }
    }
}

impl From<&RequestFailurePolicyArgs> for rounds::RecoveryPolicy {
    fn from(args: &RequestFailurePolicyArgs) -> Self {
        Self {
            hold_threshold: f64::from(args.hold_percent) / 100.0,
            max_rescues: args.max_rescues,
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
        policy: RequestFailurePolicyArgs,
    }

    #[test]
    fn option_defaults_match_specification() {
        let line = ParsedLine::try_parse_from(["serve"]).unwrap();
        assert_eq!(FailureResponseSettings::from(&line.policy), FailureResponseSettings::default());
        assert_eq!(rounds::RecoveryPolicy::from(&line.policy), rounds::RecoveryPolicy::default());
        let off =
            ParsedLine::try_parse_from(["serve", "--site-ban-failures=0", "--on-similar-failures=nothing"])
                .unwrap();
        let off = FailureResponseSettings::from(&off.policy);
        assert!(!off.bans.enabled && !off.correlated.enabled);
        let old = ["--on-failing-alike=hold", "--alike-attempts=4", "--alike-percent=9", "--alike-window=2h"];
        let line =
            ParsedLine::try_parse_from([&["serve", "--alike-hold-after=3h"][..], &old].concat()).unwrap();
        let policy = FailureResponseSettings::from(&line.policy).correlated;
        assert_eq!((policy.min_attempts, policy.share, policy.window.as_secs()), (4, 0.09, 7200));
        assert_eq!(policy.hold_after.as_secs(), 3 * 3600);
    }
}

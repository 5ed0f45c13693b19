//! Timeouts of a server for requests, and retries of their jobs.

use clap::Args;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_core::requests::outputs;
use windlass_core::round_plan::RetriesByRole;
use windlass_types::parse_duration;
use windlass_types::requests::RequestStatus;

#[derive(Debug, Args)]
#[command(next_help_heading = "Timeouts of requests")]
pub(crate) struct RequestTimeoutArgs {
    /// Number of retries of a processing job; a release can change it for a request.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) processing_retries: u32,
    /// Number of retries of a merge job.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) merge_retries: u32,
    /// Hold a request that stays submitted for this time, and send an alert. 0s: never.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) submitted_timeout: Duration,
    /// Send an alert about a request that stays queued for this time. 0s: never.
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = parse_duration)]
    pub(crate) queued_timeout: Duration,
    /// Hold a request whose planning takes this time, and send an alert. 0s: never.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) planning_timeout: Duration,
    /// Send an alert about a request that stays active for this time. 0s: never.
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = parse_duration)]
    pub(crate) active_timeout: Duration,
    /// Send an alert about a request that is still stopping after this time; the stop is repeated. 0s: never.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) stopping_timeout: Duration,
    /// Hold a request that has not returned to the queue after this time, and send an alert. 0s: never.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    pub(crate) resubmitting_timeout: Duration,
    /// Hold a request whose failures were not handled after this time, and send an alert. 0s: never.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) partial_timeout: Duration,
    /// Send an alert if a backend has reported nothing about a run for this time.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) silence_timeout: Duration,
    /// Give up recording an output in the catalog if that has failed for this time, and send an alert.
    #[arg(long, value_name = "DURATION", default_value = "3d", value_parser = parse_duration)]
    pub(crate) outputs_timeout: Duration,
}

impl RequestTimeoutArgs {
    /// Timeouts by status; a missing status has none.
    pub(crate) fn timeouts(&self) -> BTreeMap<RequestStatus, Duration> {
        let all = [
            (RequestStatus::Submitted, self.submitted_timeout),
            (RequestStatus::Queued, self.queued_timeout),
            (RequestStatus::Planning, self.planning_timeout),
            (RequestStatus::Active, self.active_timeout),
            (RequestStatus::Stopping, self.stopping_timeout),
            (RequestStatus::Resubmitting, self.resubmitting_timeout),
            (RequestStatus::Partial, self.partial_timeout),
        ];
        all.into_iter().filter(|(_, timeout)| !timeout.is_zero()).collect()
    }

    pub(crate) fn outputs(&self) -> outputs::OutputRetryPolicy {
        outputs::OutputRetryPolicy { limit: self.outputs_timeout, ..outputs::OutputRetryPolicy::default() }
    }

    pub(crate) fn retries(&self) -> RetriesByRole {
        RetriesByRole {
            processing: self.processing_retries,
            merge: self.merge_retries,
            ..RetriesByRole::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use windlass_core::requests::lifecycle::LifecycleSettings;

    #[derive(Parser)]
    struct ParsedLine {
        #[command(flatten)]
        options: RequestTimeoutArgs,
    }

    #[test]
    fn option_defaults_match_specification() {
        let line = ParsedLine::try_parse_from(["serve"]).unwrap().options;
        let usual = LifecycleSettings::default();
        assert_eq!((line.timeouts(), line.silence_timeout), (usual.timeouts, usual.unresponsive_after));
        assert_eq!(line.outputs(), usual.outputs);
        assert_eq!(line.retries(), RetriesByRole::default());
    }

    #[test]
    fn zero_timeout_is_disabled() {
        let line =
            ParsedLine::try_parse_from(["serve", "--queued-timeout=0s", "--active-timeout=2d"]).unwrap();
        let timeouts = line.options.timeouts();
        assert_eq!(timeouts.get(&RequestStatus::Queued), None);
        assert_eq!(timeouts.get(&RequestStatus::Active), Some(&Duration::from_hours(48)));
    }
}

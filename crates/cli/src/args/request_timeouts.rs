//! How long a server waits for requests before it says so, and how often it has jobs of theirs tried again.

use clap::Args;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_core::requests::outputs;
use windlass_core::round_plan::RetriesByRole;
use windlass_types::parse_duration;
use windlass_types::requests::RequestStatus;

#[derive(Debug, Args)]
#[command(next_help_heading = "How long is waited for requests")]
pub(crate) struct RequestTimeoutArgs {
    /// Try a processing job again so often; a release can say otherwise for a request.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) processing_retries: u32,
    /// Try a merge again so often.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) merge_retries: u32,
    /// Hold a request that is still submitted after so long, and tell people. Of this and the next: `0s` for never.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) submitted_timeout: Duration,
    /// Tell people of a request that has been in the queue for so long.
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = parse_duration)]
    pub(crate) queued_timeout: Duration,
    /// Hold a request that is still being planned after so long, and tell people.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) planning_timeout: Duration,
    /// Tell people of a request that has been active for so long.
    #[arg(long, value_name = "DURATION", default_value = "30d", value_parser = parse_duration)]
    pub(crate) active_timeout: Duration,
    /// Tell people of a request that is still stopping after so long; its run is told to stop again and again.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) stopping_timeout: Duration,
    /// Hold a request that has not come back to the queue after so long, and tell people.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    pub(crate) resubmitting_timeout: Duration,
    /// Hold a request whose failures were not seen to after so long, and tell people.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) partial_timeout: Duration,
    /// Tell people of a backend that has not answered for so long about a run.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    pub(crate) silence_timeout: Duration,
    /// Give up recording an output that has failed for so long, and tell people.
    #[arg(long, value_name = "DURATION", default_value = "3d", value_parser = parse_duration)]
    pub(crate) outputs_timeout: Duration,
}

impl RequestTimeoutArgs {
    /// By status; one that is not here may last for ever.
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
    struct Line {
        #[command(flatten)]
        patience: RequestTimeoutArgs,
    }

    #[test]
    fn without_a_word_it_is_as_the_specification_has_it() {
        let line = Line::try_parse_from(["serve"]).unwrap().patience;
        let usual = LifecycleSettings::default();
        assert_eq!((line.timeouts(), line.silence_timeout), (usual.timeouts, usual.unresponsive_after));
        assert_eq!(line.outputs(), usual.outputs);
        assert_eq!(line.retries(), RetriesByRole::default());
    }

    #[test]
    fn nobody_is_told_of_what_may_last_for_ever() {
        let line = Line::try_parse_from(["serve", "--queued-timeout=0s", "--active-timeout=2d"]).unwrap();
        let timeouts = line.patience.timeouts();
        assert_eq!(timeouts.get(&RequestStatus::Queued), None);
        assert_eq!(timeouts.get(&RequestStatus::Active), Some(&Duration::from_hours(48)));
    }
}

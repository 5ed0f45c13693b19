//! Retry policy for jobs of requests, based on the failure class: the same rules for the engine and for DAGMan.

use std::time::Duration;
use windlass_types::settings::FailureRule;
use windlass_types::{Bytes, FailureClass, Ratio, ResourceGrowth};

/// How often and how a job is retried before it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRetryPolicy {
    /// Attempts after the first one.
    pub retries: u32,
    /// Delay before the second attempt; doubles for each further attempt.
    pub initial_delay: Duration,
    pub max_delay: Duration,
    /// Growth of memory after an out-of-memory failure.
    pub memory_growth: Ratio,
    /// Maximum memory of an attempt.
    pub max_memory: Bytes,
    pub max_runtime: Duration,
}

impl RequestRetryPolicy {
    /// Maximum runtime of a job of a request, including growth after timeouts.
    pub const MAX_RUNTIME: Duration = Duration::from_hours(48);

    /// Returns the time limit for an estimated duration: 1.5 times the estimate plus ten minutes, at least two
    /// hours, in whole hours so that there are few different values.
    pub fn time_limit(estimated_sec: u64) -> Duration {
        const HOUR: u64 = 3600;
        let failed_job = estimated_sec.saturating_add(estimated_sec / 2).saturating_add(600);
        Duration::from_secs(failed_job.div_ceil(HOUR).max(2).saturating_mul(HOUR))
    }

    /// Growth of time after a timeout. The first estimate is often poor, and a timeout does not improve it. So
    /// the time grows fast: with three retries it reaches `longest_runtime` even from two hours.
    pub const RUNTIME_GROWTH: Ratio = Ratio::from_millionths(4_000_000);

    /// Permanent and data failures have no rule: the job would fail again.
    pub fn failure_rules(&self) -> Vec<FailureRule> {
        let rule = |classes: &[FailureClass]| FailureRule {
            classes: classes.to_vec(),
            // `max_retries` counts attempts, including the first one.
            max_retries: i32::try_from(self.retries.saturating_add(1)).unwrap_or(i32::MAX),
            ..FailureRule::default()
        };
        let passing = [FailureClass::Transient, FailureClass::Infrastructure, FailureClass::Unknown];
        vec![
            FailureRule {
                memory: Some(ResourceGrowth::Times(self.memory_growth)),
                max_memory: Some(self.max_memory),
                ..rule(&[FailureClass::Memory])
            },
            FailureRule {
                runtime: Some(ResourceGrowth::Times(Self::RUNTIME_GROWTH)),
                max_runtime: Some(self.max_runtime),
                ..rule(&[FailureClass::Timeout])
            },
            FailureRule {
                delay: Some(self.initial_delay),
                backoff: Some(Ratio::from_millionths(2_000_000)),
                max_delay: Some(self.max_delay.max(self.initial_delay)),
                ..rule(&passing)
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hint may be wrong by any factor: the last attempt gets the maximum time.
    #[test]
    fn third_retry_has_the_maximum_time() {
        let care = RequestRetryPolicy {
            retries: 3,
            initial_delay: Duration::from_mins(1),
            max_delay: Duration::from_mins(10),
            memory_growth: Ratio::from_millionths(1_500_000),
            max_memory: Bytes(3 << 30),
            max_runtime: Duration::from_hours(48),
        };
        let rules = care.failure_rules();
        let rule = rules.iter().find(|rule| rule.classes.contains(&FailureClass::Timeout)).unwrap();
        let mut limit = Duration::from_hours(2);
        for _ in 0..care.retries {
            limit = rule.runtime.unwrap().grow(limit).min(rule.max_runtime.unwrap());
        }
        assert_eq!(limit, care.max_runtime);
    }
}

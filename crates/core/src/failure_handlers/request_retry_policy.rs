//! What follows failures of a request's jobs, whose class decides: the same rules whether the engine runs them or DAGMan.

use std::time::Duration;
use windlass_types::settings::FailureRule;
use windlass_types::{Bytes, FailureClass, Ratio, ResourceGrowth};

/// How much is done for a job before it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRetryPolicy {
    /// Attempts after the first one.
    pub retries: u32,
    /// Before the second attempt; twice that before the third, and so on.
    pub initial_delay: Duration,
    pub max_delay: Duration,
    /// Of memory, where it ran out.
    pub memory_growth: Ratio,
    /// No attempt asks for more.
    pub max_memory: Bytes,
    pub max_runtime: Duration,
}

impl RequestRetryPolicy {
    /// No job of a request is given more time, however often it ran out of it.
    pub const MAX_RUNTIME: Duration = Duration::from_hours(48);

    /// When a job is ended that was estimated to take so long: half as much again and ten minutes, at least two hours, in
    /// whole hours, so that there are few different ones.
    pub fn time_limit(estimated_sec: u64) -> Duration {
        const HOUR: u64 = 3600;
        let patient = estimated_sec.saturating_add(estimated_sec / 2).saturating_add(600);
        Duration::from_secs(patient.div_ceil(HOUR).max(2).saturating_mul(HOUR))
    }

    /// Of time, where it ran out. How long a job takes is a guess at first, and often a bad one; what is ended teaches nothing.
    /// So it is not crept up to: with three retries whatever fits below `longest_runtime` gets there, if only two hours were
    /// granted at first.
    pub const RUNTIME_GROWTH: Ratio = Ratio::from_millionths(4_000_000);

    /// What is permanent, or the fault of the data, is in no rule: it would fail again.
    pub fn failure_rules(&self) -> Vec<FailureRule> {
        let rule = |classes: &[FailureClass]| FailureRule {
            classes: classes.to_vec(),
            // It counts attempts, the first one included.
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

    /// A hint may be wrong by any factor: the last attempt gets all the time that there is.
    #[test]
    fn three_retries_reach_the_longest_time() {
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

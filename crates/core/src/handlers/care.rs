//! What follows failures of a request's jobs, whose class decides: the same rules whether the engine runs them or DAGMan.

use std::time::Duration;
use windlass_types::settings::FailureRule;
use windlass_types::{Bytes, FailureClass, Growth, Ratio};

/// How much is done for a job before it is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Care {
    /// Attempts after the first one.
    pub retries: u32,
    /// Before the second attempt; twice that before the third, and so on.
    pub cool_off: Duration,
    pub longest_cool_off: Duration,
    /// Of memory and time, where they ran out.
    pub growth: Ratio,
    /// No attempt asks for more.
    pub max_memory: Bytes,
    pub longest_runtime: Duration,
}

impl Care {
    /// What is permanent, or the fault of the data, is in no rule: it would fail again.
    pub fn rules(&self) -> Vec<FailureRule> {
        let rule = |classes: &[FailureClass]| FailureRule {
            classes: classes.to_vec(),
            // It counts attempts, the first one included.
            max_retries: i32::try_from(self.retries.saturating_add(1)).unwrap_or(i32::MAX),
            ..FailureRule::default()
        };
        let passing = [FailureClass::Transient, FailureClass::Infrastructure, FailureClass::Unknown];
        vec![
            FailureRule {
                memory: Some(Growth::Times(self.growth)),
                max_memory: Some(self.max_memory),
                ..rule(&[FailureClass::Memory])
            },
            FailureRule {
                runtime: Some(Growth::Times(self.growth)),
                max_runtime: Some(self.longest_runtime),
                ..rule(&[FailureClass::Timeout])
            },
            FailureRule {
                delay: Some(self.cool_off),
                backoff: Some(Ratio::from_millionths(2_000_000)),
                max_delay: Some(self.longest_cool_off.max(self.cool_off)),
                ..rule(&passing)
            },
        ]
    }
}

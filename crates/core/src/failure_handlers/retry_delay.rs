//! How long a job waits before it is tried again.

use std::time::Duration;
use windlass_types::settings::FailureRule;
use windlass_types::{GrowableQuantity, Ratio};

/// The delay after `used` attempts: times the back-off for each one after the first, never above the rule's limit, and
/// spread by chance so that jobs which failed together do not come back together.
pub(super) fn retry_delay(rule: &FailureRule, used: u32, dice: u64) -> Duration {
    let Some(first) = rule.delay else { return Duration::ZERO };
    let most = rule.max_delay().units();
    let delay = apply_backoff(first.units().min(most), rule.backoff.unwrap_or(Ratio::ONE), used, most);
    let Some(jitter) = rule.jitter else { return Duration::from_micros(delay) };
    let by = jitter.scale(delay);
    // Spread below the limit, not cut off at it: at the limit most jobs of a storm would meet again.
    let least = delay.saturating_sub(by);
    let longest = delay.saturating_add(by).min(most);
    Duration::from_micros(interpolate(least, longest, dice))
}

fn apply_backoff(first: u64, factor: Ratio, used: u32, most: u64) -> u64 {
    let mut delay = first;
    for _ in 1..used {
        if factor <= Ratio::ONE || delay >= most {
            break;
        }
        delay = factor.scale(delay).min(most);
    }
    delay
}

/// As far from `least` to `most` as the dice are from nothing to all.
fn interpolate(least: u64, most: u64, dice: u64) -> u64 {
    let width = u128::from(most - least) + 1;
    least + ((width * u128::from(dice)) >> 64) as u64
}

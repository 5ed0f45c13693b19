//! Delay of retries.

use std::time::Duration;
use windlass_types::settings::FailureRule;
use windlass_types::{GrowableQuantity, Ratio};

/// Returns the delay after `used` attempts: multiplied by the backoff for each one after the first, limited by
/// the rule, with random jitter so that jobs which failed together do not restart together.
pub(super) fn retry_delay(rule: &FailureRule, used: u32, random: u64) -> Duration {
    let Some(first) = rule.delay else { return Duration::ZERO };
    let most = rule.max_delay().units();
    let delay = apply_backoff(first.units().min(most), rule.backoff.unwrap_or(Ratio::ONE), used, most);
    let Some(jitter) = rule.jitter else { return Duration::from_micros(delay) };
    let by = jitter.scale(delay);
    // Jitter is applied below the limit, not cut off at it: otherwise most jobs would restart at the limit
    // together.
    let least = delay.saturating_sub(by);
    let longest = delay.saturating_add(by).min(most);
    Duration::from_micros(interpolate(least, longest, random))
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

/// Interpolates between `least` and `most`; `random` is a number from the whole range.
fn interpolate(least: u64, most: u64, random: u64) -> u64 {
    let width = u128::from(most - least) + 1;
    least + ((width * u128::from(random)) >> 64) as u64
}

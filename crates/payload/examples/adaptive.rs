//! Measures how well rounds learn from requests whose hints are wrong: `cargo xtask bench adaptive` runs it.
//!
//! `adaptive PROFILES ROUNDS SEED` prints one line of JSON for each round of each request.

use std::io::{Error, Write as _};
use windlass_core::round_plan::PlanSettings;
use windlass_payload::simulate::planning_simulation::{request_with_wrong_hints, simulate_rounds};

fn main() -> std::io::Result<()> {
    let words: Vec<u64> =
        std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>().map_err(Error::other)?;
    let [profiles, rounds, seed] = words[..] else {
        return Err(Error::other("adaptive PROFILES ROUNDS SEED"));
    };
    let settings = PlanSettings::default();
    let mut out = std::io::stdout().lock();
    for profile in 0..profiles {
        let truth = request_with_wrong_hints(seed.wrapping_mul(1_000_003).wrapping_add(profile), &settings);
        let rounds = simulate_rounds(&truth, &settings, rounds as u32)
            .map_err(|faults| Error::other(faults[0].clone()))?;
        for (round, one) in rounds.iter().enumerate() {
            let line = serde_json::json!({
                "profile": profile,
                "round": round + 1,
                "error": one.estimate_error(),
                "events_per_core_hour": one.events_per_core_hour,
                "killed": one.killed,
                "timed_out": one.timed_out,
                "asked": one.asked,
                "measured": one.measured,
            });
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

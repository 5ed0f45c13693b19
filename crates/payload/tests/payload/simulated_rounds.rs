//! Rounds learn: a few of the hundred requests of `cargo xtask bench adaptive`.

use windlass_core::round_plan::PlanSettings;
use windlass_payload::simulate::planning_simulation::{
    SimulatedRound, request_with_wrong_hints, simulate_rounds,
};

fn simulated(seeds: std::ops::Range<u64>) -> Vec<Vec<SimulatedRound>> {
    let settings = PlanSettings::default();
    seeds
        .map(|seed| simulate_rounds(&request_with_wrong_hints(seed, &settings), &settings, 3).unwrap())
        .collect()
}

///
#[test]
fn estimates_are_accurate_by_round_two() {
    let all = simulated(0..60);
    let is_right = |round: usize| all.iter().filter(|rounds| rounds[round].estimate_error() <= 0.20).count();
    assert!(is_right(0) < 20, "hints must be wrong");
    assert!(is_right(1) >= 57, "{} of 60", is_right(1));
    assert!(is_right(2) >= 57, "{} of 60", is_right(2));
}

#[test]
fn tuned_rounds_make_more_events_per_core_hour() {
    let all = simulated(1000..1040);
    let gain = |rounds: &[SimulatedRound]| rounds[1].events_per_core_hour / rounds[0].events_per_core_hour;
    let mean = all.iter().map(|rounds| gain(rounds).ln()).sum::<f64>() / all.len() as f64;
    assert!(mean.exp() > 1.1, "{}", mean.exp());
    let killed = |round: usize| all.iter().map(|rounds| rounds[round].killed).sum::<u64>();
    assert!(killed(0) > 0, "some hints are too small: jobs are killed and retried with more");
    assert!(killed(1) * 4 < killed(0), "{} and {}", killed(0), killed(1));
}

#[test]
fn simulated_rounds_are_reproducible() {
    assert_eq!(simulated(7..9), simulated(7..9));
}

//! Tests of whole simulations: the invariants hold, and every injected fault is detected.

use windlass_sim::{InjectedFault, SimulationOutcome, SimulationSetup, run_simulation};
use windlass_types::requests::RequestStatus;

fn tell(outcome: &SimulationOutcome) -> String {
    outcome.violations.iter().map(ToString::to_string).collect()
}

fn holds(setup: &SimulationSetup) -> SimulationOutcome {
    let outcome = run_simulation(setup);
    assert!(outcome.violations.is_empty(), "{}", tell(&outcome));
    let ended: u64 = outcome.final_statuses.values().sum();
    assert!(ended >= u64::from(setup.requests), "{:?}", outcome.final_statuses);
    outcome
}

#[test]
fn everybody_comes_to_an_end_whatever_goes_wrong() {
    let mut rescues = 0;
    for seed in 1..=4 {
        let outcome = holds(&SimulationSetup::small(seed));
        let completed = outcome.final_statuses.get(&RequestStatus::Completed).copied().unwrap_or_default();
        // Some requests are failed by simulated operators.
        assert!(completed >= 30, "{:?}", outcome.final_statuses);
        let figures = &outcome.statistics;
        assert!(figures.crashes > 0 && figures.holds > 0 && figures.attempts > 1000, "{figures:?}");
        rescues += figures.rescues;
    }
    assert!(rescues > 0, "no rescues: the failure rates are too low");
}

/// The setup that `cargo xtask soak` runs with many seeds.
#[test]
fn three_hundred_requests_at_a_hundred_sites_for_a_month() {
    let outcome = holds(&SimulationSetup::large(1));
    assert!(outcome.statistics.promotions > 0, "no site was banned for all: {:?}", outcome.statistics);
}

#[test]
fn the_same_seed_has_the_same_history() {
    let setup = |seed| SimulationSetup { requests: 12, ..SimulationSetup::small(seed) };
    assert_eq!(run_simulation(&setup(7)), run_simulation(&setup(7)));
    assert_ne!(run_simulation(&setup(7)).digest, run_simulation(&setup(8)).digest);
}

#[test]
fn everything_that_happened_to_a_request_can_be_told() {
    let setup = SimulationSetup { requests: 12, ..SimulationSetup::small(3) };
    let name = "sim_0003_v1";
    let told = run_simulation(&SimulationSetup { history_of: Some(name.to_owned()), ..setup.clone() });
    assert!(told.history.len() > 10 && told.history[0].ends_with("submitted"), "{:?}", told.history);
    assert_eq!(told.digest, run_simulation(&setup).digest, "recording changes nothing");
}

/// Checks that an injected fault is detected within a few simulations, with this message.
fn is_caught(mistake: InjectedFault, told: &str) {
    let mut found = String::new();
    for seed in 1..=20 {
        found = tell(&run_simulation(&SimulationSetup {
            fault: Some(mistake),
            requests: 20,
            ..SimulationSetup::small(seed)
        }));
        if !found.is_empty() {
            break;
        }
    }
    assert!(found.contains(told), "{mistake:?}: {found}");
}

#[test]
fn a_unit_that_failed_is_not_registered() {
    is_caught(InjectedFault::ReportFailedUnitCompleted, "is registered, but is failed");
}

#[test]
fn input_that_was_not_processed_is_not_credited() {
    is_caught(InjectedFault::CreditFailedUnit, "were processed");
}

#[test]
fn input_is_not_processed_twice() {
    is_caught(InjectedFault::ForgetFileRows, "are processed twice");
}

#[test]
fn good_files_are_not_left_out() {
    is_caught(InjectedFault::ExcludeGoodFile, "is excluded, but has no flaw");
}

#[test]
fn nobody_but_a_person_fails_a_request() {
    is_caught(InjectedFault::FailByItself, "no person requested that");
}

#[test]
fn nobody_is_forgotten() {
    is_caught(InjectedFault::ForgetRequest, "for too long");
}

#[test]
fn numbers_of_events_are_given_out_once() {
    is_caught(InjectedFault::RepeatNumbers, "generated twice");
}

#[test]
fn people_are_told() {
    is_caught(InjectedFault::LoseAlerts, "0 alerts `held`");
}

#[test]
fn rescues_come_to_an_end() {
    is_caught(InjectedFault::RescueForEver, "is rescue 4 of 3");
}

#[test]
fn what_is_completed_is_registered() {
    is_caught(InjectedFault::LoseUnit, "closes without unit 1");
}

#[test]
fn what_people_want_is_seen_to() {
    is_caught(InjectedFault::LoseOperatorRequests, "but the simulation has ended");
}

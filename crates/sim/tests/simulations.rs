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
fn all_requests_end_despite_failures() {
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
fn large_simulation_of_a_month_holds_all_invariants() {
    let outcome = holds(&SimulationSetup::large(1));
    assert!(outcome.statistics.promotions > 0, "no site was banned for all: {:?}", outcome.statistics);
}

#[test]
fn equal_seeds_give_equal_histories() {
    let setup = |seed| SimulationSetup { requests: 12, ..SimulationSetup::small(seed) };
    assert_eq!(run_simulation(&setup(7)), run_simulation(&setup(7)));
    assert_ne!(run_simulation(&setup(7)).digest, run_simulation(&setup(8)).digest);
}

#[test]
fn history_of_one_request_is_recorded() {
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
fn failed_unit_must_not_be_registered() {
    is_caught(InjectedFault::ReportFailedUnitCompleted, "is registered, but is failed");
}

#[test]
fn unprocessed_input_must_not_be_credited() {
    is_caught(InjectedFault::CreditFailedUnit, "were processed");
}

#[test]
fn input_must_not_be_processed_twice() {
    is_caught(InjectedFault::ForgetFileRows, "are processed twice");
}

#[test]
fn good_files_must_not_be_excluded() {
    is_caught(InjectedFault::ExcludeGoodFile, "is excluded, but has no flaw");
}

#[test]
fn only_a_person_may_fail_a_request() {
    is_caught(InjectedFault::FailByItself, "no person requested that");
}

#[test]
fn forgotten_request_is_detected() {
    is_caught(InjectedFault::ForgetRequest, "for too long");
}

#[test]
fn event_numbers_must_not_repeat() {
    is_caught(InjectedFault::RepeatNumbers, "generated twice");
}

#[test]
fn lost_alerts_are_detected() {
    is_caught(InjectedFault::LoseAlerts, "0 alerts `held`");
}

#[test]
fn endless_rescues_are_detected() {
    is_caught(InjectedFault::RescueForEver, "is rescue 4 of 3");
}

#[test]
fn completed_units_must_be_registered() {
    is_caught(InjectedFault::LoseUnit, "closes without unit 1");
}

#[test]
fn lost_operator_commands_are_detected() {
    is_caught(InjectedFault::LoseOperatorRequests, "but the simulation has ended");
}

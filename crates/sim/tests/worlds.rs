//! Whole worlds: whatever happens in them, the rules hold; and whoever breaks a rule is caught.

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
        // A few are given up by people, for they do so now and then.
        assert!(completed >= 30, "{:?}", outcome.final_statuses);
        let figures = &outcome.statistics;
        assert!(figures.crashes > 0 && figures.holds > 0 && figures.attempts > 1000, "{figures:?}");
        rescues += figures.rescues;
    }
    assert!(rescues > 0, "nothing was ever rescued: too little goes wrong to show anything");
}

/// What `cargo xtask soak` does with many seeds.
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
    assert_eq!(told.digest, run_simulation(&setup).digest, "whoever looks changes nothing");
}

/// Someone makes this mistake: within a few worlds it is noticed, and told like this.
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
    is_caught(InjectedFault::ReportFailedUnitCompleted, "is registered, and is failed");
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
    is_caught(InjectedFault::ExcludeGoodFile, "is excluded, and nothing is wrong with it");
}

#[test]
fn nobody_but_a_person_fails_a_request() {
    is_caught(InjectedFault::FailByItself, "nobody wanted that");
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
    is_caught(InjectedFault::LoseAlerts, "people were told 0 times of `held`");
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
    is_caught(InjectedFault::LoseOperatorRequests, "and the world has ended");
}

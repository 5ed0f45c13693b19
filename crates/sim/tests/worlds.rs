//! Whole worlds: whatever happens in them, the rules hold; and whoever breaks a rule is caught.

use windlass_sim::{Mistake, Outcome, Setup, run};
use windlass_types::requests::RequestStatus;

fn tell(outcome: &Outcome) -> String {
    outcome.violations.iter().map(ToString::to_string).collect()
}

fn holds(setup: &Setup) -> Outcome {
    let outcome = run(setup);
    assert!(outcome.violations.is_empty(), "{}", tell(&outcome));
    let ended: u64 = outcome.ends.values().sum();
    assert!(ended >= u64::from(setup.requests), "{:?}", outcome.ends);
    outcome
}

#[test]
fn everybody_comes_to_an_end_whatever_goes_wrong() {
    let mut rescues = 0;
    for seed in 1..=4 {
        let outcome = holds(&Setup::small(seed));
        let completed = outcome.ends.get(&RequestStatus::Completed).copied().unwrap_or_default();
        // A few are given up by people, for they do so now and then.
        assert!(completed >= 30, "{:?}", outcome.ends);
        let figures = &outcome.figures;
        assert!(figures.crashes > 0 && figures.holds > 0 && figures.attempts > 1000, "{figures:?}");
        rescues += figures.rescues;
    }
    assert!(rescues > 0, "nothing was ever rescued: too little goes wrong to show anything");
}

/// What `cargo xtask soak` does with many seeds.
#[test]
fn three_hundred_requests_at_a_hundred_sites_for_a_month() {
    let outcome = holds(&Setup::large(1));
    assert!(outcome.figures.promotions > 0, "no site was banned for all: {:?}", outcome.figures);
}

#[test]
fn the_same_seed_has_the_same_history() {
    let setup = |seed| Setup { requests: 12, ..Setup::small(seed) };
    assert_eq!(run(&setup(7)), run(&setup(7)));
    assert_ne!(run(&setup(7)).digest, run(&setup(8)).digest);
}

#[test]
fn everything_that_happened_to_a_request_can_be_told() {
    let setup = Setup { requests: 12, ..Setup::small(3) };
    let name = "sim_0003_v1";
    let told = run(&Setup { story_of: Some(name.to_owned()), ..setup.clone() });
    assert!(told.story.len() > 10 && told.story[0].ends_with("submitted"), "{:?}", told.story);
    assert_eq!(told.digest, run(&setup).digest, "whoever looks changes nothing");
}

/// Someone makes this mistake: within a few worlds it is noticed, and told like this.
fn is_caught(mistake: Mistake, told: &str) {
    let mut found = String::new();
    for seed in 1..=20 {
        found = tell(&run(&Setup { mistake: Some(mistake), requests: 20, ..Setup::small(seed) }));
        if !found.is_empty() {
            break;
        }
    }
    assert!(found.contains(told), "{mistake:?}: {found}");
}

#[test]
fn a_unit_that_failed_is_not_registered() {
    is_caught(Mistake::TellOfFailedUnit, "is registered, and is failed");
}

#[test]
fn input_that_was_not_processed_is_not_credited() {
    is_caught(Mistake::CreditFailedUnit, "were processed");
}

#[test]
fn input_is_not_processed_twice() {
    is_caught(Mistake::ForgetFileRows, "are processed twice");
}

#[test]
fn good_files_are_not_left_out() {
    is_caught(Mistake::ExcludeGoodFile, "is excluded, and nothing is wrong with it");
}

#[test]
fn nobody_but_a_person_fails_a_request() {
    is_caught(Mistake::FailByItself, "nobody wanted that");
}

#[test]
fn nobody_is_forgotten() {
    is_caught(Mistake::ForgetRequest, "for too long");
}

#[test]
fn numbers_of_events_are_given_out_once() {
    is_caught(Mistake::RepeatNumbers, "generated twice");
}

#[test]
fn people_are_told() {
    is_caught(Mistake::SwallowAlerts, "people were told 0 times of `held`");
}

#[test]
fn rescues_come_to_an_end() {
    is_caught(Mistake::RescueForEver, "is rescue 4 of 3");
}

#[test]
fn what_is_completed_is_registered() {
    is_caught(Mistake::LoseUnit, "closes without unit 1");
}

#[test]
fn what_people_want_is_seen_to() {
    is_caught(Mistake::LoseWishes, "and the world has ended");
}

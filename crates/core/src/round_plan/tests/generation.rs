//! Generation of events.

use super::*;
use proptest::prelude::*;

fn generation(events: u64, events_per_lumi: u64) -> GenerationParams {
    GenerationParams { events, first_event: 1, first_lumi: 1, events_per_lumi, filter_efficiency: 1.0 }
}

#[test]
fn generation_assigns_event_numbers_and_lumis() {
    let fixture =
        Fixture::generating(GenerationParams { first_event: 101, first_lumi: 7, ..generation(250, 40) }, 100);
    let plan = fixture.plan();
    assert_eq!(
        sketch(&plan),
        "101-200 lumis 7-9 @A,B,C\n201-300 lumis 10-12 @A,B,C\n301-350 lumis 13-14 @A,B,C\n= mg_000000 @A,B,C"
    );
    assert_eq!(plan.next, RoundStart { first_event: 351, first_lumi: 15, first_block: 1 });
}

#[test]
fn filter_increases_generated_events() {
    // 1.07e10 generated events: more than 32 bits (W-13).
    let mut fixture = Fixture::generating(
        GenerationParams { filter_efficiency: 0.01, ..generation(107_000_000, 500) },
        100_000,
    );
    fixture.request.size_per_event_kb = 40.0;
    let plan = fixture.plan();
    let summary = plan.summary();
    // With a margin of 3 σ, which is small for so many events.
    assert_eq!((summary.events, summary.output_events), (10_703_088_115, 107_030_881));
    assert_eq!(plan.next.first_event, 10_703_088_116);
    assert_eq!(summary.nodes_by_role["Processing"], 107_031);
    // 1000 events of 40 KB come out of a node: 100 of them make 4,000,000 KB.
    assert_eq!(summary.work_units, 1071);
    assert_eq!(summary.output_kb / 40, 107_030_881);
    for (wanted, efficiency, made) in [(100, 0.1, 1328), (3, 0.3, 39), (1, 0.7, 7), (10, 0.3, 73)] {
        let fixture = Fixture::generating(
            GenerationParams { filter_efficiency: efficiency, ..generation(wanted, 10) },
            100,
        );
        assert_eq!(fixture.plan().summary().events, made, "{wanted} with {efficiency}");
    }
}

/// The true efficiency may be a tenth of the request's: the output of earlier rounds determines the number to
/// generate.
#[test]
fn measured_efficiency_sets_generated_events() {
    let mut fixture = Fixture::generating(
        GenerationParams { filter_efficiency: 0.1, ..generation(1_000_000, 500) },
        10_000,
    );
    let (mut wanted, mut generated, mut rounds) = (1_000_000u64, 0, 0);
    while wanted > 0 {
        fixture.events_wanted = Some(wanted);
        fixture.metrics =
            Some(RequestMeasurements { events_in: generated, ..RequestMeasurements::default() });
        let made = fixture.plan().summary().events;
        generated += made;
        wanted = wanted.saturating_sub(made / 100);
        rounds += 1;
        assert!(rounds < 10, "{wanted} are still wanted after {generated} were made");
    }
    assert_eq!(rounds, 2, "{generated} were made");
    // Without adaptive rounds the number of events must be right too.
    fixture.request.adaptive = false;
    (fixture.events_wanted, fixture.metrics) = (
        Some(900_000),
        Some(RequestMeasurements { events_in: 10_000_000, ..RequestMeasurements::default() }),
    );
    assert!(fixture.plan().summary().events > 80_000_000);
}

/// Tiny outputs would all fit into one unit, and one bad job would fail the whole round.
#[test]
fn jobs_per_unit_and_round_are_bounded() {
    let mut fixture = Fixture::generating(generation(100_000_000, 1000), 1000);
    fixture.request.size_per_event_kb = 0.02;
    let summary = |fixture: &Fixture| {
        let found = fixture.plan().summary();
        (
            found.nodes_by_role["Processing"],
            found.work_units,
            found.nodes_per_unit.unwrap().most,
            found.events_later,
        )
    };
    assert_eq!(summary(&fixture), (100_000, 1000, 100, 0));
    // units, maximum jobs of a round → jobs, units, events for later
    for (units, jobs, expected) in [
        (Some(100), Some(1000), (1000, 10, 100, 99_000_000)),
        (Some(4), Some(1000), (400, 4, 100, 99_600_000)),
        (None, Some(150), (150, 2, 100, 99_850_000)),
        (Some(1), Some(0), (1, 1, 1, 99_999_000)),
    ] {
        (fixture.max_units, fixture.max_jobs) = (units, jobs);
        assert_eq!(summary(&fixture), expected, "{units:?} {jobs:?}");
    }
    fixture.settings.max_jobs_per_unit = 8;
    (fixture.max_units, fixture.max_jobs) = (Some(100), Some(1000));
    assert_eq!(summary(&fixture), (800, 100, 8, 99_200_000));
}

/// Spec 5.7: work after a production step is planned again.
#[test]
fn round_ends_at_a_production_step() {
    let mut fixture = Fixture::generating(generation(1000, 10), 30);
    let made = |fixture: &Fixture| (fixture.plan().summary().events, fixture.plan().events_left);
    for (step, expected) in
        [(None, (1000, 0)), (Some(100), (100, 900)), (Some(2000), (1000, 0)), (Some(0), (1, 999))]
    {
        fixture.until_step = step;
        assert_eq!(made(&fixture), expected, "{step:?}");
    }
    (fixture.until_step, fixture.max_jobs) = (Some(100), Some(2));
    assert_eq!(made(&fixture), (60, 940));
}

#[test]
fn lumi_algorithms_generate_whole_lumis() {
    let jobs = |algo, limit: &dyn Fn(&mut SplittingParams)| {
        let mut fixture = Fixture::generating(generation(100, 8), 1);
        fixture.request.splitting_algo = algo;
        *fixture.params() = SplittingParams::default();
        limit(fixture.params());
        let plan = fixture.plan();
        plan.nodes().map(|node| node.events()).collect::<Vec<_>>()
    };
    assert_eq!(jobs(SplittingAlgo::LumiBased, &|p| p.lumis_per_job = Some(5)), [40, 40, 20]);
    assert_eq!(jobs(SplittingAlgo::EventAwareLumiBased, &|p| p.events_per_job = Some(50)), [48, 48, 4]);
    assert_eq!(jobs(SplittingAlgo::EventAwareLumiBased, &|p| p.events_per_job = Some(3)).len(), 13);
    assert_eq!(jobs(SplittingAlgo::EventBased, &|p| p.time_per_job = Some(60)), [60, 40]);
}

#[test]
fn exhausted_event_numbers_are_an_error() {
    let mut fixture = Fixture::generating(generation(10, 5), 4);
    fixture.start.first_event = u64::MAX - 10;
    let plan = fixture.plan();
    assert_eq!(plan.next.first_event, u64::MAX);
    fixture.start.first_event += 1;
    assert_eq!(fixture.try_plan().unwrap_err()[0].at, "generation.first_event");
    fixture.start = RoundStart { first_lumi: u32::MAX - 2, ..RoundStart::default() };
    assert_eq!(fixture.try_plan().unwrap_err()[0].at, "generation.first_lumi");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// Round after round, each for what is missing and within the limits: no number is used twice or lost.
    #[test]
    fn rounds_never_overlap(
        events in 1..=400u64,
        per_lumi in 1..=30u64,
        per_job in 1..=50u64,
        first in prop_oneof![Just(1u64), Just(5_000_000_000), 1..=1000u64],
        efficiency in prop_oneof![Just(1.0f64), 0.05..=1.0f64],
        target in 1..=60u64,
        most in 1..=3u32,
        algo in proptest::sample::select(vec![
            SplittingAlgo::EventBased,
            SplittingAlgo::LumiBased,
            SplittingAlgo::EventAwareLumiBased,
        ]),
        lost in prop::collection::vec(0..=5u64, 64),
    ) {
        let made = GenerationParams { first_event: first, filter_efficiency: efficiency, ..generation(events, per_lumi) };
        let mut fixture = Fixture::generating(made, per_job);
        fixture.request.splitting_algo = algo;
        fixture.params().lumis_per_job = Some(2);
        fixture.params().target_merged_size_kb = Some(target);
        fixture.max_units = Some(most);
        let (mut next_event, mut next_lumi) = (first, 1);
        let mut wanted = events;
        for lost in lost {
            fixture.events_wanted = Some(wanted);
            let plan = fixture.plan();
            prop_assert!(plan.units().len() <= most as usize);
            for node in plan.nodes() {
                let made = node.generated().unwrap();
                prop_assert_eq!(made.first_event, next_event, "without a gap, without an overlap");
                prop_assert_eq!(made.first_lumi, next_lumi);
                prop_assert_eq!(node.events(), made.last_event - made.first_event + 1);
                let lumis = node.events().div_ceil(per_lumi);
                prop_assert_eq!(u64::from(made.last_lumi - made.first_lumi) + 1, lumis);
                (next_event, next_lumi) = (made.last_event + 1, made.last_lumi + 1);
            }
            prop_assert_eq!((plan.next.first_event, plan.next.first_lumi), (next_event, next_lumi));
            let planned = plan.summary().events;
            let enough = crate::adaptive::events_to_generate(wanted, efficiency).unwrap();
            prop_assert_eq!(planned + plan.events_left, enough);
            // Part of it is lost; the next round replaces it with new numbers.
            fixture.start = plan.next;
            let produced = (planned as f64 * efficiency) as u64;
            wanted = wanted.saturating_sub(produced.saturating_sub(lost).max(1));
            if wanted == 0 {
                break;
            }
        }
    }
}

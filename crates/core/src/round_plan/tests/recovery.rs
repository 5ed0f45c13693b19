//! Rounds with failed units and bad files: over all rounds together, everything that is not excluded is in
//! exactly one completed unit.

use super::model::{events_of, repeated};
use super::properties::{any_algorithm, some_fixture};
use super::*;
use crate::requests::input_files::{self, RoundUnitOutcome, UnitInput};
use proptest::prelude::*;
use windlass_types::requests::{RequestFileRow, RequestFileState};

const AB: &[&str] = &["A", "B"];

fn jobs(fixture: &Fixture) -> Vec<String> {
    let text = sketch(&fixture.plan());
    text.lines().filter(|line| !line.starts_with('=')).map(str::to_owned).collect()
}

fn again(fixture: &mut Fixture, lfn: &str, left: Option<FileRemainder>) {
    fixture.attempted.insert(lfn.to_owned());
    fixture.left.extend(left.map(|left| (lfn.to_owned(), left)));
}

#[test]
fn only_remaining_events_are_planned() {
    let files = vec![plain("/a", AB, 20), plain("/b", AB, 5), plain("/z", AB, 3)];
    let mut fixture = Fixture::new(SplittingAlgo::EventBased, files);
    fixture.params().events_per_job = Some(4);
    again(&mut fixture, "/a", Some(FileRemainder::Events(vec![(3, 5), (11, 16)])));
    again(&mut fixture, "/b", None);
    assert_eq!(
        jobs(&fixture),
        [
            "/z[1-3] @A,B",
            "/a[3-5] /a[11-11] @A,B",
            "/a[12-15] @A,B",
            "/a[16-16] /b[1-3] @A,B",
            "/b[4-5] @A,B"
        ]
    );
    // A mask applies in addition to the remaining part.
    let lumis = [(1, 1, 4), (1, 2, 6), (2, 1, 10)];
    fixture.files = vec![file("/a", AB, &lumis)];
    fixture.params().run_blacklist = vec![2];
    assert_eq!(jobs(&fixture), ["/a[3-5] @A,B"]);
    // Nothing selected is left: there is nothing to do, which is no error of the request.
    fixture.left = [("/a".to_owned(), FileRemainder::Events(vec![(11, 12)]))].into();
    assert_eq!(fixture.try_plan().unwrap_err()[0].cause, PlanProblemCause::Nothing);
}

#[test]
fn only_remaining_lumis_are_planned() {
    let files = vec![
        file("/a", AB, &[(1, 1, 2), (1, 2, 2), (1, 3, 2)]),
        file("/b", AB, &[(1, 3, 4), (1, 4, 1)]),
        file("/c", AB, &[(1, 9, 1)]),
    ];
    let left = |ranges: &[(u64, u64)]| {
        Some(FileRemainder::Lumis(windlass_types::LumiMask::from([(1, ranges.to_vec())])))
    };
    for algo in [SplittingAlgo::LumiBased, SplittingAlgo::EventAwareLumiBased] {
        let mut fixture = Fixture::new(algo, files.clone());
        fixture.params().lumis_per_job = Some(8);
        again(&mut fixture, "/a", left(&[(1, 1), (3, 3)]));
        again(&mut fixture, "/b", left(&[(3, 3)]));
        assert_eq!(jobs(&fixture), ["/c{1:9-9} @A,B", "/a{1:1-1 1:3-3} /b{1:3-3} @A,B"]);
        again(&mut fixture, "/c", Some(FileRemainder::Events(vec![(1, 1)])));
        assert!(fixture.try_plan().unwrap_err()[0].to_string().contains("event positions"));
    }
}

#[test]
fn file_based_jobs_read_remainders_only() {
    let files = vec![plain("/a", AB, 9), file("/b", AB, &[(1, 1, 2), (1, 2, 2)]), plain("/c", AB, 5)];
    let mut fixture = Fixture::new(SplittingAlgo::FileBased, files);
    fixture.params().files_per_job = Some(4);
    again(&mut fixture, "/a", Some(FileRemainder::Events(vec![(1, 2), (8, 9)])));
    again(
        &mut fixture,
        "/b",
        Some(FileRemainder::Lumis(windlass_types::LumiMask::from([(1, vec![(2, 2)])]))),
    );
    assert_eq!(jobs(&fixture), ["/c @A,B", "/a[1-2] /a[8-9] /b{1:2-2} @A,B"]);
    let events: Vec<u64> = fixture.plan().nodes().map(|node| node.events()).collect();
    assert_eq!(events, [5, 6]);
}

///
#[test]
fn attempted_files_get_their_own_round() {
    let files = ["/a", "/b", "/c", "/d"].map(|lfn| plain(lfn, AB, 1)).to_vec();
    let mut fixture = Fixture::new(SplittingAlgo::FileBased, files);
    fixture.params().files_per_job = Some(1);
    fixture.params().target_merged_size_kb = Some(1);
    fixture.max_units = Some(9);
    again(&mut fixture, "/a", None);
    again(&mut fixture, "/c", None);
    assert_eq!(jobs(&fixture), ["/b @A,B", "/d @A,B"]);
    assert_eq!((fixture.plan().left_out.later, fixture.plan().left_out.later_attempted), (2, 2));
    fixture.files.retain(|file| fixture.attempted.contains(&file.lfn));
    fixture.max_units = Some(1);
    assert_eq!(jobs(&fixture), ["/a @A,B"]);
    assert_eq!((fixture.plan().left_out.later, fixture.plan().left_out.later_attempted), (1, 1));
}

/// The rounds of a request until nothing is left.
struct Campaign<'w> {
    fixture: &'w Fixture,
    rows: BTreeMap<String, RequestFileRow>,
    /// What completed units have read.
    done: Vec<(&'w str, u64)>,
    start: RoundStart,
}

impl Campaign<'_> {
    /// Plans and runs a round. `false`: nothing is left to do.
    fn round(
        &mut self,
        round: u32,
        fails: impl Fn(u32) -> bool,
        bad: &BTreeSet<&str>,
    ) -> Result<bool, TestCaseError> {
        let rows: Vec<RequestFileRow> = self.rows.values().cloned().collect();
        let remaining =
            input_files::remaining_input(self.fixture.files.clone(), rows.clone(), &BTreeMap::new(), round);
        prop_assert!(remaining.excluded.is_empty());
        if remaining.files.is_empty() {
            return Ok(false);
        }
        let fixture = Fixture {
            files: remaining.files,
            attempted: remaining.attempted,
            left: remaining.left,
            start: self.start,
            ..self.fixture.clone()
        };
        let plan = match fixture.try_plan() {
            Ok(plan) => plan,
            Err(faults) if faults[0].cause == PlanProblemCause::Nothing => return Ok(false),
            Err(faults) => return Err(TestCaseError::fail(format!("{faults:?}"))),
        };
        self.check_apart(&fixture, &plan)?;
        let readings = readings(&plan);
        let outcome = outcome(&readings, &plan, fails, bad);
        for unit in plan.units().filter(|unit| outcome.completed.contains(&unit.number())) {
            self.done.extend(unit.nodes().flat_map(|node| events_of(self.fixture, &node)));
        }
        let settled = input_files::settle_files(round, readings.clone(), &outcome, &rows).unwrap();
        self.rows.extend(settled.into_iter().map(|row| (row.lfn.clone(), row)));
        // As after a crash.
        let rows: Vec<RequestFileRow> = self.rows.values().cloned().collect();
        for row in input_files::settle_files(round, readings, &outcome, &rows).unwrap() {
            prop_assert_eq!(&self.rows[&row.lfn], &row);
        }
        self.start = plan.next;
        Ok(true)
    }

    /// Excluded files are not planned; failed ones are separate from fresh ones, except for shared lumis.
    fn check_apart(&self, fixture: &Fixture, plan: &RoundPlan) -> Result<(), TestCaseError> {
        let by_lumis =
            matches!(plan.algorithm, SplittingAlgo::LumiBased | SplittingAlgo::EventAwareLumiBased);
        let is_fresh = |lfn: &str| !fixture.attempted.contains(lfn);
        for file in &plan.files {
            let state = self.rows.get(&file.lfn).map(|row| row.state);
            prop_assert!(
                matches!(state, None | Some(RequestFileState::Attempted)),
                "{} is {state:?}",
                file.lfn
            );
        }
        for unit in plan.units().filter(|_| !by_lumis) {
            let inputs = unit.nodes().flat_map(|node| node.inputs());
            let kinds: BTreeSet<bool> = inputs.map(|input| is_fresh(&input.file().lfn)).collect();
            prop_assert_eq!(kinds.len(), 1, "{} has both", unit.name());
        }
        let kinds: BTreeSet<bool> = plan.files.iter().map(|file| is_fresh(&file.lfn)).collect();
        prop_assert!(fixture.max_units.is_none() || kinds.len() == 1, "{}", sketch(plan));
        let later = |file: &&CatalogFile| plan.files.iter().all(|planned| planned.lfn != file.lfn);
        let attempted = fixture.files.iter().filter(later).filter(|file| !is_fresh(&file.lfn)).count();
        let nothing = plan.left_out.nothing_to_do.iter().filter(|lfn| !is_fresh(lfn)).count();
        prop_assert_eq!(plan.left_out.later_attempted as usize, attempted - nothing);
        Ok(())
    }

    fn check_end(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(repeated(&self.done), "", "processed twice");
        let done: BTreeSet<_> = self.done.iter().copied().collect();
        let is_excluded =
            |lfn: &str| self.rows.get(lfn).is_some_and(|row| row.state == RequestFileState::Excluded);
        let missing = self.fixture.wanted_events().into_iter().filter(|event| !done.contains(event));
        // The missing events are exactly the reported ones.
        for (lfn, event) in missing {
            prop_assert!(is_excluded(lfn), "event {event} of {lfn} was never processed");
            prop_assert!(self.is_left(lfn, event), "event {event} of {lfn} is missing but not reported");
        }
        for &(lfn, event) in done.iter().filter(|(lfn, _)| is_excluded(lfn)) {
            prop_assert!(!self.is_left(lfn, event), "event {event} of {lfn} is reported missing");
        }
        prop_assert!(self.rows.values().all(|row| row.state != RequestFileState::Attempted));
        Ok(())
    }

    fn is_left(&self, lfn: &str, event: u64) -> bool {
        match &self.rows[lfn].left {
            None => true,
            Some(FileRemainder::Events(ranges)) => {
                ranges.iter().any(|&(first, last)| (first..=last).contains(&event))
            }
            Some(FileRemainder::Lumis(mask)) => {
                let at = model::positions(self.fixture.file(lfn)).find(|(_, position)| *position == event);
                at.is_some_and(|(lumi, _)| mask.contains(lumi.run.into(), lumi.lumi.into()))
            }
        }
    }
}

fn readings(plan: &RoundPlan) -> Vec<UnitInput> {
    let of = |unit: u32, input: PlanJobInput<'_>| {
        let part = match (input.event_window(), input.lumi_ranges()) {
            (Some((first, last)), _) => input_files::FilePart::Events(first, last),
            (None, Some(ranges)) => {
                let mut mask = windlass_types::LumiMask::default();
                for range in ranges {
                    mask.insert_range(range.run.into(), (range.first.into(), range.last.into()));
                }
                input_files::FilePart::Lumis(mask)
            }
            (None, None) => input_files::FilePart::Whole,
        };
        UnitInput { unit, lfn: input.file().lfn.clone(), part }
    };
    let units = plan.units().flat_map(|unit| unit.nodes().map(move |node| (unit.number(), node)));
    units.flat_map(|(unit, node)| node.inputs().map(move |input| of(unit, input))).collect()
}

/// Units that read a bad file fail and report it; others fail at random without a report.
fn outcome(
    readings: &[UnitInput],
    plan: &RoundPlan,
    fails: impl Fn(u32) -> bool,
    bad: &BTreeSet<&str>,
) -> RoundUnitOutcome {
    let mut outcome = RoundUnitOutcome::default();
    for reading in readings.iter().filter(|reading| bad.contains(reading.lfn.as_str())) {
        outcome.bad_files.entry(reading.unit).or_default().insert(reading.lfn.clone());
    }
    let units = (0..plan.units().len() as u32).filter(|unit| !outcome.bad_files.contains_key(unit));
    outcome.completed = units.filter(|unit| !fails(*unit)).collect();
    outcome
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 768, ..ProptestConfig::default() })]

    #[test]
    fn files_not_excluded_are_processed_once(
        fixture in any_algorithm().prop_flat_map(some_fixture),
        max_units in prop::option::of(1..=4u32),
        failing in prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.4), 8), 1..=4),
        bad in prop::collection::vec(prop::bool::weighted(0.15), 7),
    ) {
        if fixture.allowed().is_empty() || !fixture.is_possible() {
            return Ok(());
        }
        let fixture = Fixture { max_units, attempted: BTreeSet::new(), ..fixture };
        let bad: BTreeSet<&str> = fixture.files.iter().zip(bad).filter(|(_, bad)| *bad).map(|(file, _)| file.lfn.as_str()).collect();
        let mut campaign = Campaign { fixture: &fixture, rows: BTreeMap::new(), done: Vec::new(), start: fixture.start };
        let luck = |round: u32| failing.get(round as usize).map_or(&[][..], Vec::as_slice);
        let fails = |round: u32, unit: u32| luck(round).get(unit as usize % 8).copied().unwrap_or(false);
        let mut round = 0;
        while campaign.round(round, |unit| fails(round, unit), &bad)? {
            round += 1;
            prop_assert!(round as usize <= failing.len() + 2 * fixture.files.len() + 1, "rounds without end");
        }
        campaign.check_end()?;
    }
}

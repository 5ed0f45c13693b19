//! For any request and files: everything exactly once, within the limits, where it can be read.

use super::model::{events_of, pieces_of, repeated};
use super::*;
use proptest::prelude::*;
use windlass_types::LumiMask;

const SITES: [&str; 4] = ["A", "B", "C", "D"];
const CASES: u32 = 512;

fn some_sites() -> impl Strategy<Value = Vec<&'static str>> {
    // Mostly several: with one site each, lumis in several files could never be read.
    prop_oneof![
        3 => proptest::sample::subsequence(SITES.to_vec(), 2..=4),
        1 => proptest::sample::subsequence(SITES.to_vec(), 1..=1),
    ]
}

fn some_lumis() -> impl Strategy<Value = Vec<(u32, u32, u32)>> {
    let keys = (1..=3u32).flat_map(|run| (1..=5u32).map(move |lumi| (run, lumi))).collect::<Vec<_>>();
    let length = keys.len();
    (proptest::sample::subsequence(keys, 1..=6), prop::collection::vec(0..=6u32, length))
        .prop_map(|(keys, events)| keys.into_iter().zip(events).map(|((r, l), e)| (r, l, e)).collect())
}

fn some_files() -> impl Strategy<Value = Vec<CatalogFile>> {
    let one = (some_sites(), some_lumis());
    prop::collection::vec(one, 1..=7).prop_map(|files| {
        let made = files.iter().enumerate().map(|(n, (sites, lumis))| file(&format!("/f{n}"), sites, lumis));
        made.collect()
    })
}

fn some_mask() -> impl Strategy<Value = LumiMask> {
    let ranges = prop::collection::vec((1..=5u64, 0..=3u64), 0..=2)
        .prop_map(|ranges| ranges.into_iter().map(|(first, more)| (first, first + more)).collect());
    prop::collection::btree_map(1..=3u64, ranges, 1..=3).prop_map(LumiMask)
}

fn some_params() -> impl Strategy<Value = SplittingParams> {
    let size = (1..=4u64, 1..=12u64, 1..=4u64, prop::option::weighted(0.2, 1..=15u64), any::<bool>());
    let runs =
        || prop_oneof![3 => Just(Vec::new()), 1 => proptest::sample::subsequence(vec![1, 2, 3], 1..=2)];
    let merged = prop_oneof![Just(None), (1..=30u64).prop_map(Some)];
    (size, runs(), runs(), prop::option::weighted(0.4, some_mask()), merged, prop::option::of(1..=40u64))
        .prop_map(|((files, events, lumis, time, halt), white, black, lumi_mask, merged, block)| {
            SplittingParams {
                files_per_job: Some(files),
                events_per_job: Some(events),
                lumis_per_job: Some(lumis),
                time_per_job: time,
                run_blacklist: black.into_iter().filter(|run| !white.contains(run)).collect(),
                run_whitelist: white,
                lumi_mask,
                halt_job_on_file_boundaries: halt,
                target_merged_size_kb: merged,
                target_block_size_kb: block,
                ..SplittingParams::default()
            }
        })
}

pub(super) fn some_fixture(algo: SplittingAlgo) -> impl Strategy<Value = Fixture> {
    let lists = (
        prop_oneof![2 => Just(Vec::new()), 1 => proptest::sample::subsequence(SITES.to_vec(), 1..=3)],
        prop_oneof![2 => Just(Vec::new()), 1 => proptest::sample::subsequence(SITES.to_vec(), 1..=1)],
    );
    let attempted = prop::collection::vec(prop::bool::weighted(0.2), 7);
    (some_files(), some_params(), lists, prop::bool::weighted(0.15), attempted).prop_map(
        move |(files, params, (white, black), trusts, attempted)| {
            let mut fixture = Fixture::new(algo, files);
            fixture.sites = SITES.map(|site| (site.to_owned(), None)).into();
            let names = |list: Vec<&str>| list.into_iter().map(str::to_owned).collect::<Vec<_>>();
            fixture.request.site_blacklist = names(black);
            fixture.request.site_whitelist = names(white);
            fixture.request.trust_sitelists = trusts;
            fixture.request.splitting_params = params;
            let again = fixture.files.iter().zip(attempted).filter(|(_, again)| *again);
            fixture.attempted = again.map(|(file, _)| file.lfn.clone()).collect();
            fixture
        },
    )
}

/// There is a plan exactly if one is possible; then checks the properties common to all algorithms.
fn check(fixture: &Fixture) -> Result<Option<RoundPlan>, TestCaseError> {
    if fixture.allowed().is_empty() || !fixture.is_possible() {
        prop_assert!(fixture.try_plan().is_err(), "there is a plan for impossible input");
        return Ok(None);
    }
    let plan = fixture.try_plan().map_err(|faults| TestCaseError::fail(format!("{faults:?}")))?;
    check_cover(fixture, &plan)?;
    check_sites(fixture, &plan)?;
    check_units(fixture, &plan)?;
    check_attempted(fixture, &plan)?;
    let text = serde_json::to_string(&plan).unwrap();
    prop_assert_eq!(&serde_json::from_str::<RoundPlan>(&text).unwrap(), &plan);
    Ok(Some(plan))
}

fn check_cover(fixture: &Fixture, plan: &RoundPlan) -> Result<(), TestCaseError> {
    let events: Vec<_> = plan.nodes().flat_map(|node| events_of(fixture, &node)).collect();
    prop_assert_eq!(repeated(&events), "", "events of several nodes");
    prop_assert_eq!(events.into_iter().collect::<BTreeSet<_>>(), fixture.wanted_events());
    for node in plan.nodes() {
        prop_assert!(node.inputs().len() > 0);
        prop_assert_eq!(node.events(), events_of(fixture, &node).len() as u64);
    }
    Ok(())
}

fn check_sites(fixture: &Fixture, plan: &RoundPlan) -> Result<(), TestCaseError> {
    for unit in plan.units() {
        let of_unit: BTreeSet<&str> = unit.sites().collect();
        prop_assert!(!of_unit.is_empty(), "{} can run nowhere", unit.name());
        for node in unit.nodes() {
            let lfns: BTreeSet<&str> = node.inputs().map(|input| input.file().lfn.as_str()).collect();
            let of_node: BTreeSet<&str> = node.sites().collect();
            prop_assert_eq!(&of_node, &fixture.readable_at(&lfns));
            prop_assert!(of_unit.is_subset(&of_node));
        }
    }
    Ok(())
}

fn check_units(fixture: &Fixture, plan: &RoundPlan) -> Result<(), TestCaseError> {
    let target = fixture.request.splitting_params.target_merged_size_kb.unwrap_or(4_000_000);
    for (number, unit) in plan.units().enumerate() {
        prop_assert_eq!(unit.number() as usize, number);
        prop_assert!(unit.len() == 1 || unit.output_kb() <= target, "{} is too large", unit.name());
        prop_assert_eq!(unit.output_kb(), unit.events(), "a KB for each event");
    }
    let summary = plan.summary();
    prop_assert_eq!(summary.edges, plan.units().map(|unit| unit.edges()).sum::<u64>());
    prop_assert_eq!(summary.nodes, plan.units().map(|unit| unit.total_nodes()).sum::<u64>());
    let target = fixture.request.splitting_params.target_block_size_kb.unwrap_or(u64::MAX);
    for dataset in &plan.output_datasets {
        let (mut unit, mut index) = (0, fixture.start.first_block);
        for block in plan.blocks().filter(|block| block.dataset == dataset) {
            prop_assert_eq!((block.first_unit, block.index), (unit, index));
            prop_assert!(block.first_unit == block.last_unit || block.output_kb <= target);
            (unit, index) = (block.last_unit + 1, index + 1);
        }
        prop_assert_eq!(u64::from(unit), summary.work_units, "blocks contain all units");
        prop_assert_eq!(index, plan.next.first_block);
    }
    Ok(())
}

/// separate from others, and after them.
fn check_attempted(fixture: &Fixture, plan: &RoundPlan) -> Result<(), TestCaseError> {
    let by_lumis = matches!(plan.algorithm, SplittingAlgo::LumiBased | SplittingAlgo::EventAwareLumiBased);
    if by_lumis {
        // A lumi of a failed file includes other files.
        return Ok(());
    }
    let again: Vec<bool> = plan
        .nodes()
        .flat_map(|node| node.inputs())
        .map(|input| fixture.attempted.contains(&input.file().lfn))
        .collect();
    prop_assert!(again.is_sorted());
    for node in plan.nodes() {
        let kinds: BTreeSet<_> =
            node.inputs().map(|input| fixture.attempted.contains(&input.file().lfn)).collect();
        prop_assert_eq!(kinds.len(), 1);
    }
    Ok(())
}

/// A lumi, with all its pieces, is in one node; each piece once, also those without events.
fn check_lumis(fixture: &Fixture, plan: &RoundPlan) -> Result<(), TestCaseError> {
    let mut node_of = BTreeMap::new();
    let mut pieces = Vec::new();
    for (number, node) in plan.nodes().enumerate() {
        for piece in pieces_of(&node) {
            let before = node_of.insert((piece.1, piece.2), number);
            prop_assert!(before.is_none_or(|before| before == number), "{piece:?} is in two nodes");
            pieces.push(piece);
        }
        let files: BTreeSet<_> = node.inputs().map(|input| input.file_index()).collect();
        prop_assert_eq!(files.len(), node.inputs().len(), "a file is read in one piece");
    }
    prop_assert_eq!(repeated(&pieces), "");
    prop_assert_eq!(pieces.into_iter().collect::<BTreeSet<_>>(), fixture.wanted_pieces());
    prop_assert_eq!(plan.summary().lumis, Some(node_of.len() as u64));
    Ok(())
}

fn lumis_of(node: &PlanJob<'_>) -> BTreeSet<(u32, u32)> {
    pieces_of(node).into_iter().map(|(_, run, lumi)| (run, lumi)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn file_based_plans_hold_the_invariants(fixture in some_fixture(SplittingAlgo::FileBased)) {
        if let Some(plan) = check(&fixture)? {
            let params = &fixture.request.splitting_params;
            let files: Vec<_> = plan.nodes().flat_map(|node| node.inputs()).map(|input| input.file_index()).collect();
            prop_assert_eq!(repeated(&files), "", "a file is read by one node");
            for node in plan.nodes() {
                prop_assert!(node.inputs().len() as u64 <= params.files_per_job.unwrap());
                let is_in_time = params.time_per_job.is_none_or(|time| node.events() <= time);
                prop_assert!(is_in_time || node.inputs().len() == 1);
            }
        }
    }

    #[test]
    fn event_based_plans_hold_the_invariants(fixture in some_fixture(SplittingAlgo::EventBased)) {
        if let Some(plan) = check(&fixture)? {
            let params = &fixture.request.splitting_params;
            let most = params.events_per_job.unwrap().min(params.time_per_job.unwrap_or(u64::MAX));
            for node in plan.nodes() {
                prop_assert!((1..=most).contains(&node.events()));
            }
        }
    }

    #[test]
    fn lumi_based_plans_hold_the_invariants(fixture in some_fixture(SplittingAlgo::LumiBased)) {
        if let Some(plan) = check(&fixture)? {
            check_lumis(&fixture, &plan)?;
            let params = &fixture.request.splitting_params;
            for node in plan.nodes() {
                let lumis = lumis_of(&node).len() as u64;
                prop_assert!(lumis <= params.lumis_per_job.unwrap());
                prop_assert!(lumis == 1 || params.time_per_job.is_none_or(|time| node.events() <= time));
                let one_file = params.halt_job_on_file_boundaries;
                prop_assert!(!one_file || lumis == 1 || node.inputs().len() == 1);
            }
        }
    }

    #[test]
    fn event_aware_plans_hold_the_invariants(fixture in some_fixture(SplittingAlgo::EventAwareLumiBased)) {
        if let Some(plan) = check(&fixture)? {
            check_lumis(&fixture, &plan)?;
            let params = &fixture.request.splitting_params;
            let target = params.events_per_job.unwrap();
            for node in plan.nodes() {
                let lumis = lumis_of(&node);
                prop_assert!(lumis.len() == 1 || params.time_per_job.is_none_or(|time| node.events() <= time));
                // Above the target only because of a lumi without which the job would be farther from it.
                let over = node.events().saturating_sub(target);
                prop_assert!(lumis.len() == 1 || over < target);
            }
        }
    }

    #[test]
    fn plan_is_independent_of_file_order(
        (fixture, mixed) in any_algorithm().prop_flat_map(some_fixture).prop_flat_map(|fixture| {
            let mixed = Just(fixture.files.clone()).prop_shuffle();
            (Just(fixture), mixed)
        })
    ) {
        let other = Fixture { files: mixed, ..fixture.clone() };
        prop_assert_eq!(fixture.try_plan(), other.try_plan());
    }

    #[test]
    fn rounds_partition_the_files(fixture in any_algorithm().prop_flat_map(some_fixture), most in 1..=3u32) {
        if fixture.allowed().is_empty() || !fixture.is_possible() {
            return Ok(());
        }
        let mut left = Fixture { max_units: Some(most), ..fixture.clone() };
        let mut events = Vec::new();
        let mut rounds = 0;
        loop {
            let plan = left.try_plan().map_err(|faults| TestCaseError::fail(format!("{faults:?}")))?;
            events.extend(plan.nodes().flat_map(|node| events_of(&fixture, &node)));
            prop_assert_eq!(plan.next.first_block - left.start.first_block, plan.summary().blocks as u32);
            // More units than allowed only for files that cannot be divided between rounds.
            let is_within = plan.units().len() <= most as usize;
            prop_assert!(is_within || plan.files.len() == 1 || is_joined(&fixture, &plan), "{}", sketch(&plan));
            let done: BTreeSet<&str> = plan.files.iter().map(|file| file.lfn.as_str()).collect();
            let nothing: BTreeSet<&str> = plan.left_out.nothing_to_do.iter().map(String::as_str).collect();
            let later = left.files.len() - done.len() - nothing.len();
            prop_assert_eq!(plan.left_out.later, later as u64);
            left.files.retain(|file| !done.contains(file.lfn.as_str()) && !nothing.contains(file.lfn.as_str()));
            left.start = plan.next;
            rounds += 1;
            if later == 0 {
                break;
            }
            prop_assert!(rounds <= fixture.files.len(), "rounds without end");
        }
        prop_assert_eq!(repeated(&events), "");
        prop_assert_eq!(events.into_iter().collect::<BTreeSet<_>>(), fixture.wanted_events());
    }
}

/// All files are linked by shared lumis.
fn is_joined(fixture: &Fixture, plan: &RoundPlan) -> bool {
    let lumis = |lfn: &str| -> BTreeSet<(u32, u32)> {
        let wanted = fixture.file(lfn).lumis.iter().filter(|lumi| fixture.wants(lumi));
        wanted.map(|lumi| (lumi.run, lumi.lumi)).collect()
    };
    let mut reached = lumis(&plan.files[0].lfn);
    for _ in &plan.files {
        for file in &plan.files {
            let own = lumis(&file.lfn);
            if !own.is_disjoint(&reached) {
                reached.extend(own);
            }
        }
    }
    plan.files.iter().all(|file| !lumis(&file.lfn).is_disjoint(&reached))
}

pub(super) fn any_algorithm() -> impl Strategy<Value = SplittingAlgo> {
    proptest::sample::select(SplittingAlgo::ALL)
}

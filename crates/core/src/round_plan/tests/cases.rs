//! Plans calculated by hand.

use super::*;
use windlass_types::LumiMask;
use windlass_types::payload::{StepProfile, StepTuning};

const AB: &[&str] = &["A", "B"];

fn mask(ranges: &[(u64, &[(u64, u64)])]) -> LumiMask {
    LumiMask(ranges.iter().map(|(run, ranges)| (*run, ranges.to_vec())).collect())
}

/// The jobs without the lines about units.
fn jobs(fixture: &Fixture) -> Vec<String> {
    let text = sketch(&fixture.plan());
    text.lines().filter(|line| !line.starts_with('=')).map(str::to_owned).collect()
}

#[test]
fn files_are_grouped_by_location() {
    let files = vec![
        plain("/5", &["B"], 1),
        plain("/4", &["A"], 1),
        plain("/3", &["B"], 1),
        plain("/2", &["A"], 1),
        plain("/1", &["A", "B"], 1),
        plain("/6", &["C"], 1),
    ];
    let mut fixture = Fixture::new(SplittingAlgo::FileBased, files);
    fixture.params().files_per_job = Some(2);
    assert_eq!(jobs(&fixture), ["/2 /4 @A", "/1 /3 @B", "/5 @B", "/6 @C"]);
    fixture.request.site_blacklist = vec!["B".into()];
    fixture.files.retain(|file| file.replicas.keys().any(|site| site != "B"));
    assert_eq!(jobs(&fixture), ["/1 /2 @A", "/4 @A", "/6 @C"]);
    fixture.request.trust_sitelists = true;
    assert_eq!(jobs(&fixture), ["/1 /2 @A,C", "/4 /6 @A,C"]);
}

#[test]
fn large_runs_get_their_own_jobs() {
    let of_run = |name: &str, run: u32| file(name, AB, &[(run, 1, 1)]);
    let mut files: Vec<_> = (0..5).map(|n| of_run(&format!("/a{n}"), 1)).collect();
    files.extend([of_run("/b", 2), of_run("/c", 3)]);
    files.extend((0..2).map(|n| of_run(&format!("/d{n}"), 4)));
    files.push(of_run("/e", 5));
    let mut fixture = Fixture::new(SplittingAlgo::FileBased, files);
    fixture.params().files_per_job = Some(2);
    let expected = ["/a0 /a1 @A,B", "/a2 /a3 @A,B", "/a4 @A,B", "/b /c @A,B", "/d0 /d1 @A,B", "/e @A,B"];
    assert_eq!(jobs(&fixture), expected);
}

#[test]
fn event_windows_continue_in_the_next_file() {
    let files = vec![plain("/a", AB, 5), plain("/b", AB, 12), plain("/none", AB, 0), plain("/z", AB, 3)];
    let mut fixture = Fixture::new(SplittingAlgo::EventBased, files);
    fixture.params().events_per_job = Some(8);
    assert_eq!(jobs(&fixture), ["/a[1-5] /b[1-3] @A,B", "/b[4-11] @A,B", "/b[12-12] /z[1-3] @A,B"]);
    assert_eq!(fixture.plan().left_out.nothing_to_do, ["/none"]);
}

#[test]
fn event_windows_skip_masked_lumis() {
    let lumis = [(1, 1, 4), (1, 2, 3), (1, 3, 0), (1, 4, 2), (2, 1, 5)];
    let mut fixture = Fixture::new(SplittingAlgo::EventBased, vec![file("/a", AB, &lumis)]);
    fixture.params().events_per_job = Some(4);
    fixture.params().lumi_mask = Some(mask(&[(1, &[(2, 4)]), (2, &[(1, 9)])]));
    // Positions 5 to 14: lumi 1 of run 1 is not selected.
    assert_eq!(jobs(&fixture), ["/a[5-8] @A,B", "/a[9-12] @A,B", "/a[13-14] @A,B"]);
    fixture.params().lumi_mask = Some(mask(&[(1, &[(1, 1), (4, 4)]), (2, &[(1, 1)])]));
    fixture.params().run_blacklist = vec![2];
    assert_eq!(jobs(&fixture), ["/a[1-4] @A,B", "/a[8-9] @A,B"]);
    fixture.params().events_per_job = Some(5);
    assert_eq!(jobs(&fixture), ["/a[1-4] /a[8-8] @A,B", "/a[9-9] @A,B"]);
}

#[test]
fn lumi_in_several_files_is_one_job() {
    let files = vec![
        file("/a", AB, &[(1, 1, 2), (1, 2, 2), (1, 3, 2)]),
        file("/b", &["B", "C"], &[(1, 3, 4), (1, 4, 1)]),
    ];
    let mut fixture = Fixture::new(SplittingAlgo::LumiBased, files);
    fixture.params().lumis_per_job = Some(2);
    // Lumi 3 is at B only.
    assert_eq!(jobs(&fixture), ["/a{1:1-2} @A,B", "/a{1:3-3} /b{1:3-4} @B"]);
    fixture.params().halt_job_on_file_boundaries = true;
    assert_eq!(jobs(&fixture), ["/a{1:1-2} @A,B", "/a{1:3-3} /b{1:3-3} @B", "/b{1:4-4} @B,C"]);
}

#[test]
fn jobs_approach_the_event_target_by_whole_lumis() {
    // (events of the lumis, target, time limit) → events of the jobs.
    let cases = [
        (vec![4, 4, 4, 4], 8, None, vec![8, 8]),
        (vec![3, 3, 3, 3], 8, None, vec![9, 3]),
        (vec![5, 5, 5], 8, None, vec![10, 5]),
        (vec![2, 9, 1, 1], 8, None, vec![11, 2]),
        (vec![20, 1, 1], 8, None, vec![20, 2]),
        (vec![3, 3, 3, 3], 8, Some(8), vec![6, 6]),
    ];
    for (lumis, target, time, expected) in cases {
        let lumis: Vec<_> = lumis.iter().zip(1..).map(|(&events, lumi)| (1, lumi, events)).collect();
        let mut fixture = Fixture::new(SplittingAlgo::EventAwareLumiBased, vec![file("/a", AB, &lumis)]);
        fixture.params().events_per_job = Some(target);
        fixture.params().time_per_job = time;
        let events: Vec<u64> = fixture.plan().nodes().map(|node| node.events()).collect();
        assert_eq!(events, expected, "{lumis:?} towards {target} within {time:?}");
    }
}

#[test]
fn unknown_events_of_lumis_are_spread_evenly() {
    let mut one = file("/a", AB, &[(1, 1, 0), (1, 2, 4), (1, 3, 0), (1, 4, 0)]);
    one.events = 14;
    for lumi in one.lumis.iter_mut().filter(|lumi| lumi.events == Some(0)) {
        lumi.events = None;
    }
    let mut fixture = Fixture::new(SplittingAlgo::EventAwareLumiBased, vec![one]);
    fixture.params().events_per_job = Some(1);
    let events: Vec<u64> = fixture.plan().nodes().map(|node| node.events()).collect();
    assert_eq!(events, [3, 4, 3, 4]);
}

#[test]
fn units_are_filled_to_the_merged_file_size() {
    let files = (0..7).map(|n| plain(&format!("/{n}"), if n < 5 { &["A"] } else { &["B"] }, 10)).collect();
    let mut fixture = Fixture::new(SplittingAlgo::FileBased, files);
    fixture.params().files_per_job = Some(1);
    fixture.params().target_merged_size_kb = Some(25);
    fixture.params().target_block_size_kb = Some(20);
    fixture.start.first_block = 3;
    let plan = fixture.plan();
    let units: Vec<_> = plan.units().map(|unit| (unit.len(), unit.output_kb(), unit.edges())).collect();
    // No node runs both at A and at B.
    assert_eq!(units, [(2, 20, 5), (2, 20, 5), (1, 10, 3), (2, 20, 5)]);
    // Two datasets share the output.
    let blocks: Vec<_> = plan.blocks().filter(|block| block.dataset == "/Min/Bias/AOD").collect();
    let shape: Vec<_> = blocks.iter().map(|b| (b.index, b.first_unit, b.last_unit, b.output_kb)).collect();
    assert_eq!(shape, [(3, 0, 1, 20), (4, 2, 3, 15)]);
    assert_eq!(plan.next.first_block, 5);
    let summary = plan.summary();
    assert_eq!((summary.nodes, summary.edges, summary.api_edges), (7 + 4 * 3, 2 * 7 + 4, 7));
    assert_eq!(summary.sites[0], SiteShare { site: "A".into(), work_units: 3, only_here: 3 });
}

#[test]
fn round_takes_whole_files() {
    let files = vec![plain("/a", AB, 10), plain("/b", AB, 10), plain("/c", AB, 10)];
    let mut fixture = Fixture::new(SplittingAlgo::EventBased, files);
    fixture.params().events_per_job = Some(6);
    fixture.params().target_merged_size_kb = Some(6);
    fixture.max_units = Some(2);
    // Two units of 6 events have /a and a part of /b, which is left to later.
    assert_eq!(jobs(&fixture), ["/a[1-6] @A,B", "/a[7-10] @A,B"]);
    assert_eq!(fixture.plan().left_out.later, 2);
    (fixture.max_units, fixture.max_jobs) = (None, Some(2));
    assert_eq!((fixture.plan().files.len(), fixture.plan().left_out.later), (1, 2));
    // A production step after the first two files.
    (fixture.max_jobs, fixture.until_step) = (None, Some(2));
    assert_eq!((fixture.plan().files.len(), fixture.plan().left_out.later), (2, 1));
    fixture.until_step = Some(9);
    assert_eq!(fixture.plan().files.len(), 3);
    fixture.until_step = None;
    (fixture.max_units, fixture.max_jobs) = (Some(4), None);
    assert_eq!(fixture.plan().files.len(), 2);
    // A file with more units than a round has is planned anyway.
    fixture.max_units = Some(1);
    assert_eq!((fixture.plan().files.len(), fixture.plan().units().len()), (1, 2));
}

#[test]
fn attempted_files_come_last_in_separate_units() {
    let files = ["/a", "/b", "/c", "/d"].map(|lfn| plain(lfn, AB, 1)).to_vec();
    let mut fixture = Fixture::new(SplittingAlgo::FileBased, files);
    fixture.attempted = ["/a".to_owned(), "/c".to_owned()].into();
    assert_eq!(jobs(&fixture), ["/b /d @A,B", "/a /c @A,B"]);
    assert_eq!(fixture.plan().units().len(), 2);
}

#[test]
fn memory_stays_within_the_window() {
    // (requested, cores, measured) → (MB, capped).
    let cases = [
        (1000, 1, None, (2000, false)),
        (2500, 1, None, (2500, false)),
        (3000, 1, None, (3000, false)),
        (9000, 8, None, (16_000, false)),
        (20_000, 8, None, (20_000, false)),
        (20_000, 8, Some(15_000.0), (18_000, false)),
        (20_000, 8, Some(1000.0), (16_000, false)),
        (2000, 1, Some(2600.0), (3000, true)),
        (2000, 1, Some(f64::NAN), (2000, false)),
    ];
    for (memory_mb, multicore, measured, expected) in cases {
        let mut fixture = Fixture::new(SplittingAlgo::FileBased, vec![plain("/a", AB, 1)]);
        fixture.request.memory_mb = memory_mb;
        fixture.request.multicore = multicore;
        fixture.metrics = measured.map(|rss_mb| {
            let step = |rss_mb| StepTuning { rss_mb, ..StepTuning::default() };
            let steps = [("one".to_owned(), step(rss_mb)), ("two".to_owned(), step(rss_mb / 2.0))];
            StepProfile { round: 1, jobs_sampled: 5, steps: steps.into() }.into()
        });
        let PlanResources { memory_mb: found, is_memory_capped, cores, .. } = fixture.plan().resources;
        assert_eq!((found, is_memory_capped), expected, "{memory_mb} MB, {multicore} cores, {measured:?}");
        assert_eq!(cores, multicore);
    }
}

#[test]
fn time_and_disk_are_estimated() {
    let mut fixture = Fixture::new(SplittingAlgo::FileBased, vec![plain("/a", AB, 4_000_000)]);
    let estimates = |fixture: &Fixture| {
        let plan = fixture.plan();
        let node = plan.nodes().next().unwrap();
        (node.time_sec(), node.disk_kb())
    };
    fixture.request.time_per_event_sec = 0.5;
    assert_eq!(estimates(&fixture), (2_000_000, 8_000_000));
    fixture.request.size_per_event_kb = 10.0;
    assert_eq!(estimates(&fixture), (2_000_000, 80_000_000));
    let tuning = StepTuning { wall_sec_per_event: 0.1, ..StepTuning::default() };
    let steps = [("one".to_owned(), tuning), ("two".to_owned(), tuning)];
    fixture.metrics = Some(StepProfile { round: 1, jobs_sampled: 5, steps: steps.into() }.into());
    assert_eq!(estimates(&fixture).0, 800_000);
    fixture.files = vec![plain("/a", AB, 3)];
    assert_eq!(estimates(&fixture), (300, 1_000_000));
}

//! Rejected input: the field and the remedy in each problem.

use super::*;
use windlass_types::LumiMask;

const FILES: SplittingAlgo = SplittingAlgo::FileBased;
const EVENTS: SplittingAlgo = SplittingAlgo::EventBased;
const LUMIS: SplittingAlgo = SplittingAlgo::LumiBased;
const AWARE: SplittingAlgo = SplittingAlgo::EventAwareLumiBased;

struct Case {
    algo: SplittingAlgo,
    change: fn(&mut Fixture),
    at: &'static str,
    what: &'static str,
    remedy: &'static str,
}

fn case(
    algo: SplittingAlgo,
    change: fn(&mut Fixture),
    at: &'static str,
    what: &'static str,
    remedy: &'static str,
) -> Case {
    Case { algo, change, at, what, remedy }
}

fn generating(fixture: &mut Fixture) -> &mut GenerationParams {
    fixture.request.input_dataset = None;
    fixture.files.clear();
    let made = GenerationParams {
        events: 10,
        first_event: 1,
        first_lumi: 1,
        events_per_lumi: 5,
        filter_efficiency: 1.0,
    };
    fixture.request.generation.insert(made)
}

#[test]
fn each_fault_has_a_place_and_a_remedy() {
    let cases = [
        case(FILES, |w| w.request.memory_mb = 3001, "memory_mb", "3000 MB per core", "at most 3000 MB"),
        case(FILES, |w| w.request.multicore = 0, "multicore", "is 0", "at least one core"),
        case(FILES, |w| w.request.time_per_event_sec = f64::NAN, "time_per_event_sec", "NaN", "not negative"),
        case(FILES, |w| w.request.size_per_event_kb = -1.0, "size_per_event_kb", "-1", "not negative"),
        case(
            FILES,
            |w| w.request.output_datasets.clear(),
            "output_datasets",
            "none",
            "set the output datasets",
        ),
        case(FILES, |w| w.request.input_dataset = None, "input_dataset", "there is none", "set a dataset"),
        case(FILES, |w| w.files.clear(), "input_dataset", "/Min/Bias/RAW has no files", "add files"),
        case(
            FILES,
            |w| w.params().files_per_job = Some(0),
            "splitting_params.files_per_job",
            "is 0",
            "at least 1",
        ),
        case(
            EVENTS,
            |w| w.params().events_per_job = Some(0),
            "splitting_params.events_per_job",
            "is 0",
            "remove it",
        ),
        case(
            LUMIS,
            |w| w.params().lumis_per_job = Some(0),
            "splitting_params.lumis_per_job",
            "is 0",
            "remove it",
        ),
        case(
            AWARE,
            |w| w.params().time_per_job = Some(0),
            "splitting_params.time_per_job",
            "is 0",
            "remove it",
        ),
        case(
            FILES,
            |w| w.params().target_merged_size_kb = Some(0),
            "splitting_params.target_merged_size_kb",
            "is 0",
            "remove it",
        ),
        case(
            FILES,
            |w| w.params().target_block_size_kb = Some(0),
            "splitting_params.target_block_size_kb",
            "is 0",
            "remove it",
        ),
        case(
            FILES,
            |w| {
                w.params().run_whitelist = vec![1, 2];
                w.params().run_blacklist = vec![2];
            },
            "splitting_params.run_blacklist",
            "run 2",
            "one of them",
        ),
        case(
            FILES,
            |w| w.params().lumi_mask = Some(LumiMask([(1, vec![(5, 2)])].into())),
            "splitting_params.lumi_mask",
            "[5, 2]",
            "smaller number first",
        ),
        case(
            FILES,
            |w| w.params().run_whitelist = vec![99],
            "splitting_params",
            "of 2 files",
            "run_whitelist",
        ),
        case(FILES, |w| w.max_units = Some(0), "max_units", "without work units", "at least one"),
        // Sites.
        case(FILES, |w| w.sites.clear(), "sites", "no site is usable", "enable a site"),
        case(FILES, |w| w.request.site_whitelist = vec!["X".into()], "site_whitelist", "none of X", "ban"),
        case(
            FILES,
            |w| w.request.site_blacklist = ["A", "B", "C"].map(str::to_owned).to_vec(),
            "site_blacklist",
            "A, B, C",
            "site lists of the request",
        ),
        case(
            FILES,
            |w| {
                w.request.multicore = 8;
                w.sites.values_mut().for_each(|slots| *slots = Some(4));
            },
            "multicore",
            "8 slots",
            "enable a site",
        ),
        case(FILES, |w| w.files[1].replicas.clear(), "/b", "at no site", "trust_sitelists"),
        case(
            FILES,
            |w| w.request.site_whitelist = vec!["C".into()],
            "/a",
            "is at A, B, none of which",
            "replicate it to an allowed site",
        ),
        case(
            LUMIS,
            |w| {
                w.files = vec![file("/a", &["A"], &[(7, 3, 1)]), file("/b", &["B"], &[(7, 3, 1)])];
            },
            "run 7 lumi 3",
            "/a, /b",
            "trust_sitelists",
        ),
        // The catalog.
        case(FILES, |w| w.files[1].lfn = "/a".into(), "/a", "twice", "remove one"),
        case(LUMIS, |w| w.files[0].lumis.clear(), "/a", "no lumis for it", "split by files or events"),
        case(
            FILES,
            |w| {
                w.files[0].lumis.clear();
                w.params().run_blacklist = vec![9];
            },
            "/a",
            "no lumis for it",
            "without run lists",
        ),
        case(FILES, |w| w.files[0].lumis.reverse(), "/a", "not in order", "ascending"),
        case(
            EVENTS,
            |w| {
                w.files[0].lumis[0].events = None;
                w.params().lumi_mask = Some(LumiMask([(1, vec![(1, 1)])].into()));
            },
            "/a",
            "no event counts",
            "split by lumis",
        ),
        case(
            EVENTS,
            |w| {
                w.files[0].events += 1;
                w.params().lumi_mask = Some(LumiMask([(1, vec![(1, 1)])].into()));
            },
            "/a",
            "no event counts",
            "their sum",
        ),
        case(
            AWARE,
            |w| w.params().max_events_per_lumi = Some(5),
            "run 1 lumi 2",
            "has 6 events",
            "increase `max_events_per_lumi`",
        ),
        case(
            EVENTS,
            |w| {
                w.settings.max_nodes = 10;
                w.params().events_per_job = Some(1);
            },
            "splitting_params.events_per_job",
            "more than 10 jobs",
            "larger",
        ),
        // Generation.
        case(
            EVENTS,
            |w| {
                generating(w);
                w.request.input_dataset = Some("/a/b/c".into());
            },
            "generation",
            "also has an input dataset",
            "remove one",
        ),
        case(FILES, |w| _ = generating(w), "splitting_algo", "FileBased splits files", "EventBased"),
        case(
            EVENTS,
            |w| generating(w).filter_efficiency = 0.0,
            "generation.filter_efficiency",
            "not a valid share",
            "above 0",
        ),
        case(
            EVENTS,
            |w| generating(w).events_per_lumi = 0,
            "generation.events_per_lumi",
            "is 0",
            "one event",
        ),
        case(EVENTS, |w| generating(w).events = 0, "generation.events", "is 0", "the number"),
        case(
            EVENTS,
            |w| {
                generating(w).filter_efficiency = 1e-300;
            },
            "generation.events",
            "exceed the event numbers",
            "fewer events",
        ),
        case(
            EVENTS,
            |w| generating(w).events = u64::MAX / 2,
            "splitting_params.events_per_job",
            "more than 1000000 jobs",
            "larger",
        ),
    ];
    for Case { algo, change, at, what, remedy } in cases {
        let files = vec![
            file("/a", &["A", "B"], &[(1, 1, 5), (1, 2, 6)]),
            file("/b", &["B"], &[(1, 5, 5), (2, 1, 5)]),
        ];
        let mut fixture = Fixture::new(algo, files);
        assert!(fixture.try_plan().is_ok());
        change(&mut fixture);
        let faults = fixture.try_plan().unwrap_err();
        let fits = |fault: &PlanProblem| {
            fault.at == at && fault.what.contains(what) && fault.remedy.contains(remedy)
        };
        assert!(faults.iter().any(fits), "{algo} {at}: {what}: {remedy}\n{faults:#?}");
    }
}

#[test]
fn all_faults_are_reported_together() {
    let mut fixture = Fixture::new(FILES, vec![plain("/a", &["A"], 1)]);
    fixture.request.memory_mb = 99_999;
    fixture.request.output_datasets.clear();
    fixture.params().files_per_job = Some(0);
    fixture.sites.clear();
    let at: Vec<String> = fixture.try_plan().unwrap_err().into_iter().map(|fault| fault.at).collect();
    assert_eq!(at, ["output_datasets", "memory_mb", "splitting_params.files_per_job", "sites"]);
}

#[test]
fn many_bad_files_are_summarized() {
    let files = (0..50).map(|n| plain(&format!("/{n:02}"), &["X"], 1)).collect();
    let faults = Fixture::new(FILES, files).try_plan().unwrap_err();
    assert_eq!(faults.len(), 21);
    assert_eq!(faults[0].cause, PlanProblemCause::Sites);
    assert_eq!(faults[0].to_string().split(':').next(), Some("/00"));
    assert!(faults[20].what.starts_with("30 more"), "{}", faults[20]);
}

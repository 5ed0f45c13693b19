//! The files of a run of a request, compared one by one.

use crate::golden_files::{compare, files};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use windlass_htcondor::file_layout;
use windlass_htcondor::render::{
    DagRenderError, DagUnit, NodeResources, ProgramPaths, RequestDagRun, RoleRetries, StorageCredentials,
    UnitNodeResources, render_run, rewrite_run_files, rewrite_submit_files, write_bans,
};
use windlass_htcondor::script_settings::{RequestRetrySettings, ScriptSettings};

/// The parts of the runs of these tests.
struct RunParts {
    site_sets: Vec<Vec<String>>,
    sizes: Vec<NodeResources>,
    units: Vec<DagUnit>,
    throttles: BTreeMap<String, u64>,
    accounting: BTreeMap<String, String>,
    banned: Vec<String>,
    unit_sizes: Vec<UnitNodeResources>,
}

impl RunParts {
    fn new() -> Self {
        let sites = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let size =
            |memory_mb, runtime_sec| NodeResources { cpus: 4, memory_mb, disk_kb: 2_000_000, runtime_sec };
        let small = |runtime_sec| NodeResources { cpus: 1, memory_mb: 2000, disk_kb: 1_000_000, runtime_sec };
        let unit_size = |size: NodeResources| UnitNodeResources {
            landing: NodeResources { runtime_sec: 1800, ..size },
            merge: small(28_800),
            cleanup: small(3600),
        };
        Self {
            unit_sizes: vec![unit_size(size(10_000, 14_400)), unit_size(size(8000, 7200))],
            site_sets: vec![sites(&["T1_US_Alpha", "T2_DE_Beta"]), sites(&["T2_CH_Gamma"])],
            sizes: vec![size(8000, 7200), size(10_000, 14_400)],
            units: vec![
                DagUnit { sites: 0, size: 0, nodes: vec![(0, 2), (1, 1)] },
                DagUnit { sites: 1, size: 1, nodes: vec![(0, 1)] },
                DagUnit { sites: 1, size: 0, nodes: Vec::new() },
            ],
            throttles: [("Processing", 5000), ("Merge", 100), ("MergeGroup", 10)]
                .map(|(name, most)| (name.to_owned(), most))
                .into(),
            accounting: [("accounting_group", "production.cms"), ("CMS_Campaign", "Run \"2026\"")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            banned: vec!["T2_IT_Delta".to_owned()],
        }
    }

    fn run<'a>(&'a self, directory: &'a Path) -> RequestDagRun<'a> {
        RequestDagRun {
            directory,
            request: "pdmvserv_task_B2G-RunIII-00042__v1",
            run: "550e8400-e29b-41d4-a716-446655440000",
            workflow: "9b2f6c1e-3d7a-4f58-8a41-5f1d2c3b4a59",
            programs: ProgramPaths {
                on_this_host: Path::new("/opt/windlass/bin/windlass"),
                on_workers: None,
            },
            site_sets: &self.site_sets,
            sizes: &self.sizes,
            unit_sizes: &self.unit_sizes,
            units: &self.units,
            retries: RoleRetries { landing: 3, processing: 3, merge: 2, cleanup: 1 },
            throttles: &self.throttles,
            retry_policy: RequestRetrySettings::default(),
            priority: 110,
            accounting: &self.accounting,
            credentials: StorageCredentials::default(),
            banned_sites: &self.banned,
            memory_override_mb: None,
        }
    }
}

#[test]
fn rendered_run_of_a_request_matches_golden_files() {
    let (parts, directory) = (RunParts::new(), tempfile::tempdir().unwrap());
    render_run(&parts.run(directory.path())).unwrap();
    compare(directory.path(), "request");
}

/// With all optional parts: a proxy, a token, a profile, workers that have the program.
#[test]
fn rendered_run_with_all_options_matches_golden_files() {
    let (parts, directory) = (RunParts::new(), tempfile::tempdir().unwrap());
    fs::write(directory.path().join("step_profile.json"), "{}").unwrap();
    let credentials = StorageCredentials {
        proxy: Some(Path::new("/home/ann/x509 proxy.pem")),
        token: Some(Path::new("/home/ann/it's.token")),
    };
    let programs = ProgramPaths {
        on_workers: Some(Path::new("/cvmfs/windlass/bin/windlass")),
        ..parts.run(directory.path()).programs
    };
    let units = [DagUnit { sites: 1, size: 1, nodes: vec![(0, 1)] }];
    render_run(&RequestDagRun { credentials, programs, units: &units, ..parts.run(directory.path()) })
        .unwrap();
    compare(directory.path(), "credentials");
}

#[test]
fn rendering_is_idempotent_and_bans_change_only_ban_files() {
    let (parts, directory) = (RunParts::new(), tempfile::tempdir().unwrap());
    let read = || {
        let contents = |name: PathBuf| (fs::read(directory.path().join(&name)).unwrap(), name);
        files(directory.path()).into_iter().map(contents).collect::<BTreeSet<_>>()
    };
    render_run(&parts.run(directory.path())).unwrap();
    let first = read();
    render_run(&parts.run(directory.path())).unwrap();
    assert_eq!(read(), first);
    write_bans(directory.path(), &["T2_DE_Beta".to_owned(), "T2_IT_Delta".to_owned()]).unwrap();
    let second = read();
    let changed: Vec<_> = second.difference(&first).map(|(_, name)| name.clone()).collect();
    assert_eq!(changed, [Path::new(file_layout::BANS_FILE)]);
}

/// The differences between two texts, line by line.
fn changed(before: &str, after: &str) -> Vec<(String, String)> {
    assert_eq!(before.lines().count(), after.lines().count(), "{before}\n{after}");
    let pairs = before.lines().zip(after.lines()).filter(|(before, after)| before != after);
    pairs.map(|(before, after)| (before.trim().to_owned(), after.trim().to_owned())).collect()
}

/// An operator continued it with more memory and retries, and its priority is lower now.
#[test]
fn changed_settings_keep_the_dags_of_a_run() {
    let (parts, directory) = (RunParts::new(), tempfile::tempdir().unwrap());
    let run = parts.run(directory.path());
    render_run(&run).unwrap();
    let read = || -> BTreeMap<PathBuf, String> {
        let text = |name: &PathBuf| fs::read_to_string(directory.path().join(name)).unwrap();
        files(directory.path()).into_iter().map(|name| (name.clone(), text(&name))).collect()
    };
    let planned = read();
    rewrite_run_files(&run).unwrap();
    assert_eq!(read(), planned, "nothing was changed");
    rewrite_run_files(&RequestDagRun {
        retries: RoleRetries { processing: 5, ..run.retries },
        memory_override_mb: Some(12_000),
        priority: 90,
        ..run.clone()
    })
    .unwrap();
    let renewed = read();
    assert!(renewed.keys().eq(planned.keys()), "neither more files nor fewer");
    let of = |name: &str| changed(&planned[Path::new(name)], &renewed[Path::new(name)]);
    let pair = |before: &str, after: &str| (before.to_owned(), after.to_owned());
    let memory = pair("request_memory = $(memory)", "request_memory = 12000");
    for name in ["landing.sub", "processing.sub"] {
        assert_eq!(of(name), [memory.clone(), pair("priority = 110", "priority = 90")], "{name}");
    }
    for name in ["merge.sub", "cleanup.sub"] {
        assert_eq!(of(name), [pair("priority = 120", "priority = 100")], "{name}");
    }
    for name in planned.keys().filter(|name| name.extension().is_none_or(|ending| ending != "sub")) {
        assert!(
            name == Path::new(file_layout::SCRIPT_SETTINGS_FILE) || renewed[name] == planned[name],
            "{}",
            name.display()
        );
    }
    let settings = ScriptSettings::load(directory.path()).unwrap();
    let told =
        |kind: &str| (settings.node_groups[kind].retries, settings.node_groups[kind].asked.memory.0 >> 20);
    let kinds = ["landing_1", "processing_0", "processing_1", "merge_0"];
    assert_eq!(kinds.map(told), [(3, 12_000), (5, 12_000), (5, 12_000), (2, 2000)]);
}

#[test]
fn script_settings_have_every_node_group_of_the_dags() {
    let (parts, directory) = (RunParts::new(), tempfile::tempdir().unwrap());
    render_run(&parts.run(directory.path())).unwrap();
    let settings = ScriptSettings::load(directory.path()).unwrap();
    let mut named = BTreeSet::new();
    for unit in 0..3 {
        let dag = file_layout::unit_directory(directory.path(), unit).join(file_layout::GROUP_DAG);
        let text = fs::read_to_string(dag).unwrap();
        let scripts = text.lines().filter(|line| line.starts_with("SCRIPT POST"));
        named.extend(scripts.map(|line| line.rsplit(' ').next().unwrap().to_owned()));
    }
    assert_eq!(named, settings.node_groups.keys().cloned().collect());
}

#[test]
fn unquotable_values_are_rejected_by_name() {
    let (parts, directory) = (RunParts::new(), tempfile::tempdir().unwrap());
    let refused = |run: &RequestDagRun<'_>| render_run(run).unwrap_err().to_string();
    let run = || parts.run(directory.path());

    let said = refused(&RequestDagRun { request: "a\"\nMY.x = 1\nb", ..run() });
    assert!(said.starts_with("CMS_RequestName: ") && said.contains("cannot be a ClassAd string"), "{said}");
    let spaced = ProgramPaths { on_this_host: Path::new("/my dir/windlass"), on_workers: None };
    let said = refused(&RequestDagRun { programs: spaced, ..run() });
    assert!(said.starts_with("the path of windlass: \"/my dir/windlass\""), "{said}");
    let banned = ["T2\"); true".to_owned()];
    assert!(refused(&RequestDagRun { banned_sites: &banned, ..run() }).contains("invalid site name"));
    let accounting = [("queue 5\nx".to_owned(), "y".to_owned())].into();
    assert!(refused(&RequestDagRun { accounting: &accounting, ..run() }).contains("cannot be an attribute"));
    let sites = [vec!["T2,T1".to_owned()]];
    assert!(refused(&RequestDagRun { site_sets: &sites, ..run() }).contains("a site of the run"));
    let nowhere = render_run(&RequestDagRun { site_sets: &[Vec::new()], ..run() });
    assert!(matches!(nowhere, Err(DagRenderError::NoSites)));

    let units = [DagUnit { sites: 7, size: 0, nodes: Vec::new() }];
    let dangling = render_run(&RequestDagRun { units: &units, ..run() });
    assert!(matches!(dangling, Err(DagRenderError::InvalidIndex { unit: 0, .. })));
    assert!(matches!(render_run(&RequestDagRun { units: &[], ..run() }), Err(DagRenderError::Empty)));
    // The remaining files are not taken for a run.
    assert!(!directory.path().join(file_layout::OUTER_DAG).exists());
}

/// DAGMan reads submit files whenever it submits a node: they change the priority of an active run.
#[test]
fn active_run_gets_only_new_submit_files() {
    let (parts, directory) = (RunParts::new(), tempfile::tempdir().unwrap());
    render_run(&parts.run(directory.path())).unwrap();
    let read = || {
        let contents = |name: PathBuf| (fs::read(directory.path().join(&name)).unwrap(), name);
        files(directory.path()).into_iter().map(contents).collect::<BTreeSet<_>>()
    };
    let before = read();
    rewrite_submit_files(&RequestDagRun { priority: 500, ..parts.run(directory.path()) }).unwrap();
    let after = read();
    let changed: Vec<_> = after.difference(&before).map(|(_, name)| name.display().to_string()).collect();
    assert_eq!(changed.len(), 4, "{changed:?}");
    assert!(
        changed.iter().all(|name| Path::new(name).extension().is_some_and(|ending| ending == "sub")),
        "{changed:?}"
    );
    let text = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    assert!(text("processing.sub").contains("priority = 500\n"));
    assert!(text("merge.sub").contains("priority = 510\n"));
}

//! Rendered runs on the pool: all files are accepted, jobs get the right values, reports come back.

use crate::support::{Pool, SITES, Work, eventually};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use windlass_htcondor::file_layout;
use windlass_htcondor::render::{
    DagUnit, NodeResources, ProgramPaths, RequestDagRun, RoleRetries, StorageCredentials, UnitNodeResources,
    render_run,
};
use windlass_htcondor::script_settings::RequestRetrySettings;
use windlass_types::payload::{
    EventGeneration, ManifestSite, ManifestStep, MergeOutput, MergeSettings, ProcessingJob, StepSimulation,
    WorkUnitManifest, WorkUnitOutput,
};
use windlass_types::requests::WorkUnitName;

const RUN: &str = "7b0c2a51-8f43-4f0e-9d55-0c3f0a6f4f10";
const WORKFLOW: &str = "9b2f6c1e-3d7a-4f58-8a41-5f1d2c3b4a59";
const SIZE: NodeResources = NodeResources { cpus: 1, memory_mb: 200, disk_kb: 1000, runtime_sec: 600 };

/// A run of simulated jobs in a directory that the pool sees.
struct SimulatedRun {
    work: Work,
    /// The prefix of the directory of the run.
    name: String,
    program: PathBuf,
    site_sets: Vec<Vec<String>>,
    sizes: [NodeResources; 1],
    unit_sizes: [UnitNodeResources; 1],
    units: Vec<DagUnit>,
    throttles: BTreeMap<String, u64>,
    accounting: BTreeMap<String, String>,
    banned: Vec<String>,
}

impl SimulatedRun {
    /// Units with these numbers of nodes, which may go to the first two sites.
    fn new(pool: &Pool, name: &str, nodes: &[u32]) -> Self {
        let work = pool.work("rendered");
        let program = work.windlass();
        let planned = Self {
            program,
            site_sets: vec![SITES[..2].iter().map(|site| (*site).to_owned()).collect()],
            sizes: [SIZE],
            unit_sizes: [UnitNodeResources { landing: SIZE, merge: SIZE, cleanup: SIZE }],
            units: nodes
                .iter()
                .map(|&count| DagUnit { sites: 0, size: 0, nodes: vec![(0, count)] })
                .collect(),
            throttles: BTreeMap::from([("Processing".to_owned(), 100)]),
            accounting: BTreeMap::new(),
            banned: Vec::new(),
            name: name.to_owned(),
            work,
        };
        for site in SITES {
            fs::create_dir_all(planned.storage(site)).unwrap();
        }
        for (number, unit) in (0..).zip(&planned.units) {
            let manifest = planned.manifest(number, unit);
            assert_eq!(manifest.find_problems(), Vec::<String>::new());
            let text = serde_json::to_string(&manifest).unwrap();
            planned.work.write(&format!("{name}/{}.json", WorkUnitName(number)), &text);
        }
        planned
    }

    fn directory(&self) -> PathBuf {
        self.work.path().join(&self.name)
    }

    fn storage(&self, site: &str) -> PathBuf {
        self.work.path().join("storage").join(site)
    }

    fn run<'a>(&'a self, directory: &'a Path) -> RequestDagRun<'a> {
        RequestDagRun {
            directory,
            request: "a_request",
            run: RUN,
            workflow: WORKFLOW,
            programs: ProgramPaths { on_this_host: &self.program, on_workers: Some(&self.program) },
            site_sets: &self.site_sets,
            sizes: &self.sizes,
            unit_sizes: &self.unit_sizes,
            units: &self.units,
            retries: RoleRetries { landing: 1, processing: 1, merge: 1, cleanup: 1 },
            throttles: &self.throttles,
            retry_policy: RequestRetrySettings { cool_off_sec: 1, ..RequestRetrySettings::default() },
            priority: 5,
            accounting: &self.accounting,
            credentials: StorageCredentials::default(),
            banned_sites: &self.banned,
            memory_override_mb: None,
        }
    }

    fn manifest(&self, number: u32, unit: &DagUnit) -> WorkUnitManifest {
        let node = |index: u32| ProcessingJob {
            index,
            generate: Some(EventGeneration {
                first_event: u64::from(index) * 10 + 1,
                last_event: u64::from(index) * 10 + 10,
                run: 1,
                first_lumi: u64::from(index) + 1,
                events_per_lumi: None,
            }),
            expected_events: 10,
            ..ProcessingJob::default()
        };
        let simulation = StepSimulation { speed: Some(1e6), ..StepSimulation::default() };
        let step = ManifestStep {
            name: "GEN".to_owned(),
            command: None,
            threads: 1,
            reads: None,
            join: None,
            simulation: Some(simulation),
        };
        let output = WorkUnitOutput {
            dataset: "/A/B/GEN".to_owned(),
            tier: "GEN".to_owned(),
            step: "GEN".to_owned(),
            unmerged_base: "/store/unmerged/B/A/GEN".to_owned(),
            merged_base: "/store/mc/B/A/GEN".to_owned(),
            extension: "txt".to_owned(),
            may_be_empty: false,
        };
        let site = |name: &String| {
            (name.clone(), ManifestSite { storage_path: self.storage(name).display().to_string() })
        };
        WorkUnitManifest {
            request: "a_request".to_owned(),
            tag: "7b0c2a518f434f0e".to_owned(),
            unit: WorkUnitName(number).to_string(),
            number,
            steps: vec![step],
            nodes: (0..unit.nodes.iter().map(|(_, count)| count).sum()).map(node).collect(),
            outputs: vec![output],
            merge: MergeSettings::default(),
            sites: self.site_sets[0].iter().map(site).collect(),
            seed: 7,
        }
    }

    fn submit(&self, pool: &Pool) {
        self.work.give_away();
        let mut submit = pool.command(pool.bin().join("condor_submit_dag"));
        let output = submit.arg(file_layout::OUTER_DAG).current_dir(self.directory()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// The log of DAGMan of the run, or of a unit, after its end.
    fn end(&self, dag: &str) -> String {
        let said =
            || fs::read_to_string(self.directory().join(format!("{dag}.dagman.out"))).unwrap_or_default();
        eventually("DAGMan has ended", || said().contains("EXITING WITH STATUS"));
        said()
    }
}

/// DAGMan logs no warnings about rendered files.
fn assert_no_complaints(said: &str) {
    // Except about its own submit files, and about a DAG that is not a node of another.
    let usual = ["copy_to_spool", "DAGNodeName"];
    let complaints: Vec<_> = said
        .lines()
        .filter(|line| {
            line.to_lowercase().contains("warning") && !usual.iter().any(|known| line.contains(known))
        })
        .collect();
    assert_eq!(complaints, Vec::<&str>::new());
}

#[test]
fn run_completes_and_its_reports_are_transferred() {
    let pool = Pool::shared();
    let mut planned = SimulatedRun::new(&pool, "run", &[2, 1]);
    planned.banned = vec![planned.site_sets[0][0].clone()];
    let directory = planned.directory();
    render_run(&planned.run(&directory)).unwrap();
    planned.submit(&pool);

    let said = planned.end(file_layout::OUTER_DAG);
    assert!(said.contains("EXITING WITH STATUS 0"), "{said}");
    assert_no_complaints(&said);
    for (number, nodes) in [(0, 2), (1, 1)] {
        let unit = file_layout::unit_directory(&directory, number);
        assert_no_complaints(&planned.end(&format!("{}/{}", WorkUnitName(number), file_layout::GROUP_DAG)));
        let merged = fs::read(unit.join("merge_output.json")).unwrap();
        let merged: MergeOutput = serde_json::from_slice(&merged).unwrap();
        assert_eq!((merged.counts.nodes, merged.counts.events), (nodes, nodes * 10));
        // The only site that is allowed and not banned.
        assert_eq!(merged.site, planned.site_sets[0][1]);
        assert!(unit.join("metrics.json").is_file() && unit.join("proc_0.json").is_file());
        let file = &merged.datasets["/A/B/GEN"][0];
        assert!(planned.storage(&merged.site).join(file.lfn.trim_start_matches('/')).is_file());
    }
    let unmerged = planned.storage(&planned.site_sets[0][1]).join("store/unmerged/B/A/GEN");
    assert_eq!(fs::read_dir(unmerged).unwrap().count(), 0, "cleaned up");
}

/// Text that cannot be quoted is rejected before anything is submitted (see `quote`); other text arrives
/// unchanged.
#[test]
fn hostile_text_reaches_jobs_unchanged() {
    const MARK: &str = "it's \"big\", # é € // /* {a;b} %x `id` & | <";
    const TOKEN: &str = "it's a # tøken %x";
    let pool = Pool::shared();
    let mut planned = SimulatedRun::new(&pool, "a run, it's #1 é", &[1]);
    planned.accounting = BTreeMap::from([("CMS_Hostile".to_owned(), MARK.to_owned())]);
    let token = planned.work.write(TOKEN, "secret");
    let real = planned.program.display().to_string();
    let spy = planned.work.write_script(
        "spy",
        &format!(
            "#!/bin/sh\n{{ printf '%s\\n' \"$BEARER_TOKEN_FILE\"; cat \"$BEARER_TOKEN_FILE\"; echo; \
             grep ^CMS_Hostile \"$_CONDOR_JOB_AD\"; }} >&2\nexec {real} \"$@\"\n"
        ),
    );
    let directory = planned.directory();
    let run = planned.run(&directory);
    let programs = ProgramPaths { on_workers: Some(&spy), ..run.programs };
    let credentials = StorageCredentials { token: Some(&token), proxy: None };
    render_run(&RequestDagRun { programs, credentials, ..run }).unwrap();
    planned.submit(&pool);

    let said = planned.end(file_layout::OUTER_DAG);
    assert!(said.contains("EXITING WITH STATUS 0"), "{said}");
    let heard =
        fs::read_to_string(file_layout::unit_directory(&directory, 0).join("proc_000000.err")).unwrap();
    let mut lines = heard.lines();
    assert_eq!((lines.next(), lines.next()), (Some(TOKEN), Some("secret")));
    let mark = MARK.replace('"', "\\\"");
    assert_eq!(lines.next(), Some(format!("CMS_Hostile = \"{mark}\"").as_str()));
}

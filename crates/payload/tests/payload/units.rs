//! Whole work units with real files and real processes: steps are shell commands, event files are text.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use windlass_payload::{PayloadFailure, StepControl, UnitWorkspace, cleanup, landing, merge, processing_job};
use windlass_types::FailureClass;
use windlass_types::LumiMask;
use windlass_types::payload::{
    EventCountSource, EventGeneration, EventWindow, ManifestInput, ManifestSite, ManifestStep, MergeSettings,
    ProcessingJob, ProcessingReport, StepProfile, StepTuning, WorkUnitManifest, WorkUnitOutput,
};

/// A unit with two sites in a directory of its own.
pub(super) struct Unit {
    dir: tempfile::TempDir,
    pub(super) manifest: WorkUnitManifest,
}

const SITE: &str = "T1";

impl Unit {
    /// Two nodes that take every event of their inputs and append the name of the step.
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let storage = |name: &str| ManifestSite { storage_path: dir.path().join(name).display().to_string() };
        let manifest = WorkUnitManifest {
            request: "r1".to_owned(),
            tag: "t1".to_owned(),
            unit: "mg_000000".to_owned(),
            number: 0,
            steps: vec![step("DIGI", TAKE_ALL), step("RECO", TAKE_ALL)],
            nodes: vec![node(0, "/store/in/a.txt"), node(1, "/store/in/b.txt")],
            outputs: vec![output("RECO")],
            merge: MergeSettings::default(),
            sites: BTreeMap::from([(SITE.to_owned(), storage("t1")), ("T2".to_owned(), storage("t2"))]),
            seed: 7,
        };
        let unit = Self { dir, manifest };
        fs::create_dir_all(unit.path("work")).unwrap();
        unit.write("t1/store/in/a.txt", "1 1 1\n1 1 2\n1 2 3\n");
        unit.write("t1/store/in/b.txt", "1 3 4\n2 1 5\n");
        unit
    }

    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn place(&self) -> UnitWorkspace {
        self.write("run/mg_000000.json", &serde_json::to_string(&self.manifest).unwrap());
        UnitWorkspace::open(&self.path("run/mg_000000.json"), SITE).unwrap()
    }

    pub(super) fn run(&self, node: u32) -> Result<ProcessingReport, PayloadFailure> {
        self.run_with(node, &StepControl::default())
    }

    fn run_with(&self, node: u32, control: &StepControl) -> Result<ProcessingReport, PayloadFailure> {
        let (work_dir, program) = (self.path("work"), Path::new("/nonexistent/windlass"));
        let options = processing_job::ProcessingOptions {
            node,
            attempt: 1,
            work_dir: &work_dir,
            program,
            keep_scratch: false,
        };
        let ended = processing_job::run_node(&self.place(), &options, control);
        assert_eq!(fs::read_dir(&work_dir).unwrap().count(), 0, "the scratch directory is removed");
        ended
    }

    fn merge(&self) -> Result<windlass_types::payload::MergeOutput, PayloadFailure> {
        merge::merge_unit(&self.place(), &self.path("work"), &StepControl::default())
    }

    pub(super) fn report(&self, node: u32) -> ProcessingReport {
        self.place().report(node).unwrap().unwrap()
    }
}

pub(super) const TAKE_ALL: &str =
    r#"for f in $(cat "$WINDLASS_INPUTS"); do sed "s/\$/ $WINDLASS_STEP/" "$f"; done > "$WINDLASS_OUTPUT""#;

fn step(name: &str, command: &str) -> ManifestStep {
    ManifestStep {
        name: name.to_owned(),
        command: Some(command.to_owned()),
        threads: 1,
        reads: None,
        join: None,
        simulation: None,
    }
}

pub(super) fn node(index: u32, lfn: &str) -> ProcessingJob {
    let input = ManifestInput { lfn: lfn.to_owned(), ..ManifestInput::default() };
    ProcessingJob { index, inputs: vec![input], expected_events: 3, ..ProcessingJob::default() }
}

fn output(step: &str) -> WorkUnitOutput {
    WorkUnitOutput {
        dataset: format!("/A/B/{step}"),
        tier: step.to_owned(),
        step: step.to_owned(),
        unmerged_base: format!("/store/unmerged/B/A/{step}"),
        merged_base: format!("/store/mc/B/A/{step}"),
        extension: "txt".to_owned(),
        may_be_empty: false,
    }
}

const UNMERGED: &str = "t1/store/unmerged/B/A/RECO/t1-mg_000000";
const MERGED: &str = "t1/store/mc/B/A/RECO/t1-mg_000000-0.txt";

#[test]
fn unit_runs_from_landing_to_cleanup() {
    let unit = Unit::new();
    landing::run_landing(&unit.place()).unwrap();
    let first = unit.run(0).unwrap();
    assert_eq!(first.steps.iter().map(|step| step.step.as_str()).collect::<Vec<_>>(), ["DIGI", "RECO"]);
    assert_eq!((first.steps[1].events_read, first.steps[1].events_written), (3, 3));
    assert!(
        first.steps.iter().all(|step| step.wall_sec > 0.0 && step.peak_rss_mb >= 0.0 && step.exit_code == 0)
    );
    let file = &first.outputs[0];
    assert_eq!((file.events, file.events_from), (3, EventCountSource::File));
    assert_eq!(file.lumis, LumiMask::from([(1, vec![(1, 2)])]));
    assert_eq!(
        unit.read(&format!("{UNMERGED}/RECO_0.txt")),
        "1 1 1 DIGI RECO\n1 1 2 DIGI RECO\n1 2 3 DIGI RECO\n"
    );
    unit.run(1).unwrap();

    let merged = unit.merge().unwrap();
    let file = &merged.datasets["/A/B/RECO"][0];
    let text = unit.read(MERGED);
    assert_eq!(text.lines().count(), 5);
    assert!(
        text.starts_with("1 1 1 ") && text.ends_with("2 1 5 DIGI RECO\n"),
        "in the order of the nodes: {text}"
    );
    assert_eq!((file.events, file.size), (5, text.len() as u64));
    assert_eq!(file.adler32, format!("{:08x}", adler2::adler32_slice(text.as_bytes())));
    assert_eq!(file.lumis, LumiMask::from([(1, vec![(1, 3)]), (2, vec![(1, 1)])]));
    assert_eq!(file.parents, ["/store/in/a.txt", "/store/in/b.txt"]);
    assert_eq!((merged.counts.nodes, merged.counts.files, merged.counts.events), (2, 1, 5));
    let metrics = unit.place().metrics().unwrap().unwrap();
    assert_eq!((metrics.jobs_sampled, metrics.steps["RECO"].totals.events_written), (2, 5));

    assert_eq!(cleanup::cleanup_unit(&unit.place(), false).unwrap(), 2);
    assert!(!unit.path(UNMERGED).exists() && unit.path(MERGED).exists());
    assert_eq!(cleanup::cleanup_unit(&unit.place(), false).unwrap(), 0, "a second run has nothing to do");
    assert_eq!(unit.merge().unwrap(), merged, "also when its inputs have been removed");
}

/// Where the jobs of a unit share only the storage of the site, the reports are transferred to each.
#[test]
fn reports_can_be_in_another_directory() {
    let unit = Unit::new();
    let (work_dir, program) = (unit.path("work"), Path::new("/nonexistent/windlass"));
    let sandbox = |name: &str| unit.place().with_results(unit.path(name));
    for node in [0, 1] {
        let options = processing_job::ProcessingOptions {
            node,
            attempt: 1,
            work_dir: &work_dir,
            program,
            keep_scratch: false,
        };
        processing_job::run_node(&sandbox("sent"), &options, &StepControl::default()).unwrap();
    }
    assert!(unit.path("sent/proc_0.json").is_file() && !unit.path("run/mg_000000").exists());
    let nothing_sent = merge::merge_unit(&sandbox("empty"), &work_dir, &StepControl::default());
    assert!(nothing_sent.unwrap_err().to_string().contains("node 0 left no"));
    merge::merge_unit(&sandbox("sent"), &work_dir, &StepControl::default()).unwrap();
    assert!(unit.path("sent/merge_output.json").is_file() && unit.path("sent/metrics.json").is_file());
    assert_eq!(cleanup::cleanup_unit(&sandbox("sent"), false).unwrap(), 2);
    assert!(!unit.path("run/mg_000000").exists());
}

#[test]
fn rerun_of_node_writes_same_bytes() {
    let unit = Unit::new();
    let first = unit.run(0).unwrap();
    let bytes = unit.read(&format!("{UNMERGED}/RECO_0.txt"));
    let second = unit.run(0).unwrap();
    assert_eq!(first.outputs, second.outputs);
    assert_eq!(bytes, unit.read(&format!("{UNMERGED}/RECO_0.txt")));
}

#[test]
fn steps_get_their_environment_variables() {
    let mut unit = Unit::new();
    unit.manifest.steps = vec![step(
        "GEN",
        "env | grep ^WINDLASS_ | sort > \"$WINDLASS_MANIFEST_DIR/told\"; echo 1 1 1 > $WINDLASS_OUTPUT",
    )];
    unit.manifest.outputs = vec![output("GEN")];
    let made = EventGeneration {
        first_event: 5_000_000_000,
        last_event: 5_000_000_009,
        run: 1,
        first_lumi: 8,
        events_per_lumi: None,
    };
    unit.manifest.nodes = vec![ProcessingJob { generate: Some(made), ..ProcessingJob::default() }];
    unit.run(0).unwrap();
    let told = unit.read("run/told");
    for line in [
        "WINDLASS_FIRST_EVENT=5000000000",
        "WINDLASS_LAST_EVENT=5000000009",
        "WINDLASS_FIRST_LUMI=8",
        "WINDLASS_EVENTS=10",
        "WINDLASS_STEP=GEN",
        "WINDLASS_SITE=T1",
        "WINDLASS_NODE=0",
        "WINDLASS_ATTEMPT=1",
        "WINDLASS_THREADS=1",
    ] {
        assert!(told.lines().any(|told| told == line), "{line} in {told}");
    }
    unit.manifest.nodes = vec![node(0, "/store/in/a.txt")];
    unit.manifest.nodes[0].inputs[0].events = Some(EventWindow { first: 2, last: 3 });
    unit.run(0).unwrap();
    let told = unit.read("run/told");
    assert!(told.contains("WINDLASS_SKIP_EVENTS=1\n") && told.contains("WINDLASS_MAX_EVENTS=2\n"), "{told}");
    assert!(!told.contains("FIRST_EVENT"), "{told}");
}

#[test]
fn measured_profile_sets_step_threads() {
    let mut unit = Unit::new();
    unit.manifest.steps[1].command =
        Some(format!("echo $WINDLASS_THREADS > $WINDLASS_MANIFEST_DIR/threads; {TAKE_ALL}"));
    let tuning = StepTuning { threads: 8, run_threads: Some(4), ..StepTuning::default() };
    let profile =
        StepProfile { steps: BTreeMap::from([("RECO".to_owned(), tuning)]), ..StepProfile::default() };
    unit.write("run/step_profile.json", &serde_json::to_string(&profile).unwrap());
    assert_eq!(unit.run(0).unwrap().steps[1].threads, 4);
    assert_eq!(unit.read("run/threads"), "4\n");
}

#[test]
fn failed_steps_are_reported_and_leave_no_output() {
    let mut unit = Unit::new();
    for (command, code, process, class) in [
        ("exit 7", 7, 7, None),
        ("kill -SEGV $$", 139, 139, None),
        ("true", 60302, 70, Some(FailureClass::Permanent)),
        (": > $WINDLASS_OUTPUT", 60450, 70, Some(FailureClass::Permanent)),
        (
            "echo '<FrameworkJobReport><FrameworkError ExitStatus=\"50660\" Type=\"x\">too much</FrameworkError>' > $WINDLASS_JOB_REPORT; exit 228",
            50660,
            1,
            Some(FailureClass::Memory),
        ),
        (
            "echo '<FrameworkJobReport><FrameworkError ExitStatus=\"8001\">site-local-config not found</FrameworkError>' > $WINDLASS_JOB_REPORT",
            8001,
            71,
            Some(FailureClass::Infrastructure),
        ),
    ] {
        unit.manifest.steps[1].command = Some(command.to_owned());
        let failure = unit.run(0).unwrap_err();
        assert_eq!(
            (failure.code, failure.process_code(), failure.class),
            (code, process, class),
            "{command}: {failure}"
        );
        assert_eq!(failure.step.as_deref(), Some("RECO"));
        let report = unit.report(0);
        assert_eq!(report.failure.unwrap().exit_code, code);
        assert_eq!(report.steps.len(), 2);
        assert!(report.outputs.is_empty() && !unit.path(UNMERGED).exists());
        assert_eq!(unit.merge().unwrap_err().class, Some(FailureClass::Data), "nothing is merged");
    }
}

#[test]
fn empty_output_is_accepted_where_allowed() {
    let mut unit = Unit::new();
    unit.manifest.steps[1].command = Some(": > $WINDLASS_OUTPUT".to_owned());
    unit.manifest.outputs[0].may_be_empty = true;
    assert_eq!(unit.run(0).unwrap().outputs[0].events, 0);
    unit.run(1).unwrap();
    assert_eq!(unit.merge().unwrap().counts.events, 0);
}

#[test]
fn unreadable_inputs_are_named() {
    let mut unit = Unit::new();
    fs::remove_file(unit.path("t1/store/in/b.txt")).unwrap();
    let failure = unit.run(1).unwrap_err();
    assert_eq!((failure.code, failure.process_code(), failure.class), (8028, 66, Some(FailureClass::Data)));
    assert_eq!(unit.report(1).bad_inputs, ["/store/in/b.txt"]);
    assert_eq!(landing::run_landing(&unit.place()).unwrap_err().class, Some(FailureClass::Data));
    let landing = unit.place().landing_path();
    let told: ProcessingReport = serde_json::from_slice(&fs::read(&landing).unwrap()).unwrap();
    assert_eq!(told.bad_inputs, ["/store/in/b.txt"], "all of them, so that they can be excluded");

    let travels = unit.path("landing.json");
    landing::run_landing(&unit.place().with_landing(travels.clone())).unwrap_err();
    let travelled: ProcessingReport = serde_json::from_slice(&fs::read(&travels).unwrap()).unwrap();
    assert_eq!(travelled.bad_inputs, told.bad_inputs);

    let elsewhere = unit.path("t2/b.txt").display().to_string();
    unit.manifest.nodes[1].inputs[0].replicas.insert("T2".to_owned(), elsewhere);
    let failure = landing::run_landing(&unit.place()).unwrap_err();
    assert_eq!(failure.class, Some(FailureClass::Infrastructure), "another site may be suitable");
    unit.write("t2/b.txt", "1 3 4\n");
    landing::run_landing(&unit.place()).unwrap();
    assert!(!landing.exists(), "findings of an earlier landing are not reported again");
    assert_eq!(unit.run(1).unwrap().outputs[0].events, 1, "the copy of the other site is accessible");
}

#[test]
fn landing_fails_at_site_without_storage() {
    let unit = Unit::new();
    fs::remove_dir_all(unit.path("t1")).unwrap();
    let failure = landing::run_landing(&unit.place()).unwrap_err();
    assert_eq!((failure.code, failure.process_code()), (60321, 74));
    assert_eq!(failure.class, Some(FailureClass::Infrastructure));
    let failure = UnitWorkspace::open(&unit.path("run/mg_000000.json"), "T9").unwrap_err();
    assert!(failure.message.contains("known sites: T1, T2"), "{failure}");
}

#[test]
fn landing_resets_the_unit() {
    let unit = Unit::new();
    unit.run(0).unwrap();
    unit.run(1).unwrap();
    unit.merge().unwrap();
    landing::run_landing(&unit.place()).unwrap();
    assert_eq!(unit.place().merge_output().unwrap(), None);
    assert_eq!(unit.place().report(0).unwrap(), None);
}

#[test]
fn unwritable_storage_is_infrastructure_failure() {
    let unit = Unit::new();
    // Root may write everywhere, but a directory cannot be created below a file.
    unit.write("t1/store/unmerged", "");
    let failure = unit.run(0).unwrap_err();
    assert_eq!((failure.code, failure.process_code()), (60311, 74));
    assert_eq!((failure.class, failure.step), (Some(FailureClass::Infrastructure), None));
    assert!(unit.report(0).outputs.is_empty());
}

#[test]
fn merge_detects_changed_inputs() {
    let unit = Unit::new();
    unit.run(0).unwrap();
    unit.run(1).unwrap();
    let file = format!("{UNMERGED}/RECO_1.txt");
    let good = unit.read(&file);
    for (bad, what) in [(good.replace("2 1 5", "2 1 6"), "adler32"), (format!("{good}2 1 7\n"), "size")] {
        unit.write(&file, &bad);
        let failure = unit.merge().unwrap_err();
        assert!(failure.message.contains(what) && failure.class == Some(FailureClass::Data), "{failure}");
        assert!(!unit.path(MERGED).exists() && unit.place().merge_output().unwrap().is_none());
    }
    fs::remove_file(unit.path(&file)).unwrap();
    assert!(unit.merge().unwrap_err().message.contains("RECO_1.txt"));
    unit.write(&file, &good);
    assert_eq!(unit.merge().unwrap().counts.events, 5);
}

#[test]
fn merge_verifies_event_counts() {
    let unit = Unit::new();
    unit.run(0).unwrap();
    unit.run(1).unwrap();
    let report = unit.path("run/mg_000000/proc_1.json");
    let lied = fs::read_to_string(&report).unwrap().replace("\"events\": 2", "\"events\": 3");
    fs::write(&report, lied).unwrap();
    assert!(unit.merge().unwrap_err().message.contains("events 2, reported 3"));
}

/// Writes six bytes that are not text, and reports three events.
fn binary_step() -> ManifestStep {
    let report =
        "<FrameworkJobReport><File><PFN>%s</PFN><TotalEvents>3</TotalEvents></File></FrameworkJobReport>";
    let command = format!(
        r#"printf 'root\000\001' > "$WINDLASS_OUTPUT"; printf '{report}' "$WINDLASS_OUTPUT" > "$WINDLASS_JOB_REPORT""#
    );
    step("RECO", &command)
}

#[test]
fn binary_files_are_not_concatenated() {
    let mut unit = Unit::new();
    unit.manifest.steps = vec![binary_step()];
    unit.run(0).unwrap();
    unit.run(1).unwrap();
    let failure = unit.merge().unwrap_err();
    assert!(failure.message.contains("RECO_0.txt of node 0 is a binary file"), "{failure}");
    assert!(failure.message.contains("`merge.command`"), "{failure}");
    assert_eq!((failure.class, failure.process_code()), (Some(FailureClass::Permanent), 70));
    assert!(!unit.path(MERGED).exists() && unit.place().merge_output().unwrap().is_none());

    unit.manifest.merge.max_bytes = Some(6);
    let merged = unit.merge().unwrap();
    assert_eq!(merged.counts.files, 2, "one file for each node: nothing is merged");
}

#[test]
fn merge_command_merges_binary_files() {
    let mut unit = Unit::new();
    unit.manifest.steps = vec![binary_step()];
    unit.manifest.merge.command = Some("cat $(cat $WINDLASS_INPUTS) > $WINDLASS_OUTPUT".to_owned());
    unit.run(0).unwrap();
    unit.run(1).unwrap();
    assert_eq!((unit.merge().unwrap().counts.files, unit.merge().unwrap().counts.events), (1, 6));
}

#[test]
fn merged_files_stay_below_size_limit() {
    let mut unit = Unit::new();
    unit.manifest.merge.max_bytes = Some(50);
    unit.run(0).unwrap();
    unit.run(1).unwrap();
    let merged = unit.merge().unwrap();
    let files = &merged.datasets["/A/B/RECO"];
    assert_eq!(files.iter().map(|file| file.events).collect::<Vec<_>>(), [3, 2]);
    assert!(files[1].lfn.ends_with("t1-mg_000000-1.txt"));
    assert_eq!(files[1].parents, ["/store/in/b.txt"]);
}

#[test]
fn merge_command_output_is_verified() {
    let mut unit = Unit::new();
    unit.run(0).unwrap();
    unit.run(1).unwrap();
    for (command, says) in [
        ("exit 3", "exit code 3"),
        ("true", "wrote nothing"),
        ("head -n 1 $(head -n 1 $WINDLASS_INPUTS) > $WINDLASS_OUTPUT", "1 events out of 5"),
    ] {
        unit.manifest.merge.command = Some(command.to_owned());
        let failure = unit.merge().unwrap_err();
        assert!(failure.message.contains(says), "{failure}");
        assert!(!unit.path(MERGED).exists());
    }
    let sort = "cat $(cat $WINDLASS_INPUTS) | sort -r > x.$$; mv x.$$ $WINDLASS_OUTPUT";
    unit.manifest.merge.command = Some(sort.to_owned());
    let merged = unit.merge().unwrap();
    let text = unit.read(MERGED);
    assert!(text.starts_with("2 1 5"), "{text}");
    assert_eq!(
        merged.datasets["/A/B/RECO"][0].adler32,
        format!("{:08x}", adler2::adler32_slice(text.as_bytes()))
    );
}

#[test]
fn cleanup_requires_merge_and_keeps_other_units() {
    let unit = Unit::new();
    unit.run(0).unwrap();
    let other = "t1/store/unmerged/B/A/RECO/t1-mg_000001/RECO_0.txt";
    unit.write(other, "1 1 1\n");
    let failure = cleanup::cleanup_unit(&unit.place(), false).unwrap_err();
    assert!(failure.message.contains("not merged"), "{failure}");
    assert!(unit.path(UNMERGED).exists());
    assert_eq!(cleanup::cleanup_unit(&unit.place(), true).unwrap(), 1);
    assert!(unit.path(other).exists() && !unit.path(UNMERGED).exists());
}

#[test]
fn job_signal_ends_step_and_is_reported() {
    let mut unit = Unit::new();
    unit.manifest.steps[0].command = Some("touch $WINDLASS_MANIFEST_DIR/begun; sleep 1000".to_owned());
    let control = StepControl::default();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| unit.run_with(0, &control));
        while !unit.path("run/begun").exists() {
            std::thread::yield_now();
        }
        control.signal(15, true);
        let failure = running.join().unwrap().unwrap_err();
        assert_eq!((failure.code, failure.process_code(), failure.signal), (143, 143, Some(15)));
    });
    assert_eq!(unit.report(0).steps.len(), 1);
}

#[test]
fn manifests_with_paths_outside_storage_are_refused() {
    let mut unit = Unit::new();
    unit.manifest.outputs[0].unmerged_base = "/store/../../etc".to_owned();
    unit.write("bad.json", &serde_json::to_string(&unit.manifest).unwrap());
    let failure = UnitWorkspace::open(&unit.path("bad.json"), SITE).unwrap_err();
    assert_eq!((failure.code, failure.process_code()), (7002, 70));
    assert!(failure.message.contains("unmerged_base"), "{failure}");
}

/// The catalog has size and checksum of every input; a file that differs from the registered one is not
/// processed.
#[test]
fn changed_input_is_not_processed() {
    let mut unit = Unit::new();
    let good = unit.read("t1/store/in/b.txt");
    let input = &mut unit.manifest.nodes[1].inputs[0];
    input.size = Some(good.len() as u64);
    input.adler32 = Some(format!("{:x}", adler2::adler32_slice(good.as_bytes())));
    unit.run(1).unwrap();

    let is_refused = |unit: &Unit, said: &str| {
        let failure = unit.run(1).unwrap_err();
        assert_eq!(
            (failure.code, failure.process_code(), failure.class),
            (8021, 65, Some(FailureClass::Data))
        );
        assert!(failure.message.contains(said) && failure.step.is_none(), "{failure}");
        let report = unit.report(1);
        assert_eq!(report.bad_inputs, ["/store/in/b.txt"]);
        assert!(report.steps.is_empty() && report.outputs.is_empty(), "no step read it");
    };
    unit.write("t1/store/in/b.txt", &good.replace("2 1 5", "2 1 6"));
    is_refused(&unit, "/store/in/b.txt has the adler32");
    landing::run_landing(&unit.place()).unwrap();
    unit.write("t1/store/in/b.txt", &format!("{good}odd\n"));
    is_refused(&unit, "/store/in/b.txt has 16 bytes, the catalog says 12");
    let failure = landing::run_landing(&unit.place()).unwrap_err();
    assert_eq!((failure.code, failure.class), (8021, Some(FailureClass::Data)), "{failure}");
    assert_eq!(failure.bad_inputs, ["/store/in/b.txt"]);

    unit.write("t2/b.txt", &good);
    let elsewhere = unit.path("t2/b.txt").display().to_string();
    unit.manifest.nodes[1].inputs[0].replicas.insert("T2".to_owned(), elsewhere);
    assert_eq!(unit.run(1).unwrap().outputs[0].events, 2, "an accessible good copy is used");
    // Some catalogs have such words instead of a checksum.
    unit.manifest.nodes[1].inputs[0] = ManifestInput {
        lfn: "/store/in/b.txt".to_owned(),
        adler32: Some("NOTSET".to_owned()),
        ..ManifestInput::default()
    };
    assert_eq!(unit.run(1).unwrap().outputs[0].events, 2);
}

/// Reading the memory of a process at address 0 fails with EIO, as a broken disk does.
#[test]
fn unreadable_input_is_not_called_changed() {
    let mut unit = Unit::new();
    let input = unit.path("t1/store/in/b.txt");
    std::fs::remove_file(&input).unwrap();
    std::os::unix::fs::symlink("/proc/self/mem", &input).unwrap();
    unit.manifest.nodes[1].inputs[0].adler32 = Some("1".to_owned());
    let failure = unit.run(1).unwrap_err();
    assert_eq!((failure.code, &failure.bad_inputs[..]), (8021, &["/store/in/b.txt".to_owned()][..]));
    let message = &failure.message;
    assert!(message.contains("inputs cannot be read at T1: /store/in/b.txt: "), "{message}");
    assert!(message.contains("Input/output error") && !message.contains("changed"), "{message}");
}

/// Nodes in this test are planned with 3 events.
#[test]
fn events_are_counted_instead_of_taken_from_plan() {
    let mut unit = Unit::new();
    let report = |events: u32| {
        format!(
            "printf '<FrameworkJobReport><File><PFN>%s</PFN><TotalEvents>{events}</TotalEvents></File></FrameworkJobReport>' \
             \"$WINDLASS_OUTPUT\" > $WINDLASS_JOB_REPORT"
        )
    };
    // The command of the step whose output is registered → events, or the message
    let table: Vec<(String, Result<u64, &str>)> = vec![
        ("printf '1 1 1\\nodd\\n1 1 2\\n' > $WINDLASS_OUTPUT".to_owned(), Ok(2)),
        ("echo no events > $WINDLASS_OUTPUT".to_owned(), Err("cannot be counted")),
        ("printf 'root\\0' > $WINDLASS_OUTPUT".to_owned(), Err("cannot be counted")),
        (format!("printf 'root\\0' > $WINDLASS_OUTPUT; {}", report(7)), Ok(7)),
        (format!("printf '1 1 1\\n' > $WINDLASS_OUTPUT; {}", report(1)), Ok(1)),
        (format!("printf '1 1 1\\n' > $WINDLASS_OUTPUT; {}", report(3)), Err("the job report says 3")),
    ];
    for (command, expected) in table {
        unit.manifest.steps[1].command = Some(command.clone());
        match (unit.run(0), expected) {
            (Ok(report), Ok(events)) => assert_eq!(report.outputs[0].events, events, "{command}"),
            (Err(failure), Err(said)) => {
                assert!(failure.message.contains(said), "{command}: {failure}");
                assert_eq!(failure.class, Some(FailureClass::Permanent), "{command}");
            }
            (found, _) => panic!("{command}: {found:?}"),
        }
    }
    // An intermediate output may have any format.
    unit.manifest.steps[0].command = Some("echo compressed > $WINDLASS_OUTPUT".to_owned());
    unit.manifest.steps[1].command = Some("printf '1 1 1\\n' > $WINDLASS_OUTPUT".to_owned());
    assert_eq!(unit.run(0).unwrap().outputs[0].events, 1);
}

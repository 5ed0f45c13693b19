//! The execution settings of a spec take effect on its jobs.

use crate::common::Sandbox;
use std::fs;
use windlass_types::WorkflowId;
use windlass_types::resource_series::{self, ResourceRecording, SeriesSubject};

#[test]
fn missing_input_without_producer_is_reported_before_run() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "spec.yaml",
        "name: files\n\
         files:\n  - {name: mesh, path: data/mesh.txt}\n  - {name: made, path: made.txt}\n\
         jobs:\n  - {name: make, command: echo x > made.txt, output_files: [made]}\n\
         \x20 - {name: use, command: echo ran > ran.txt, input_files: [mesh, made]}\n",
    );
    let refused = sandbox.windlass(&["run", "spec.yaml"]).exits(4);
    assert!(
        refused.stderr.contains("1 input file missing that no job writes:\n  data/mesh.txt (mesh)"),
        "{refused:?}"
    );
    assert!(!refused.stderr.contains("made.txt"), "{refused:?}");
    assert!(!sandbox.path("made.txt").exists(), "nothing ran");
    sandbox.windlass(&["run", "spec.yaml", "--force"]).exits(0);
    assert!(sandbox.path("ran.txt").exists());
}

#[test]
fn existing_input_is_accepted() {
    let sandbox = Sandbox::new();
    sandbox.write("data/mesh.txt", "mesh");
    sandbox.write(
        "spec.yaml",
        "name: files\nfiles: [{name: mesh, path: data/mesh.txt}]\n\
         jobs: [{name: use, command: cat data/mesh.txt, input_files: [mesh]}]\n",
    );
    sandbox.windlass(&["run", "spec.yaml"]).exits(0);
}

#[test]
fn execution_config_sets_invocation_signals_and_exit_codes() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "spec.yaml",
        "name: settings\n\
         execution_config: {timeout_exit_code: 99, termination_signal: USR1, sigterm_lead_seconds: 1}\n\
         resource_requirements: [{name: brief, num_cpus: 1, memory: 100m, runtime: 2s}]\n\
         jobs:\n\
         \x20 - name: greet_{who}\n\
         \x20   command: 'echo \"$GREETING $WINDLASS_PARAM_WHO\"'\n\
         \x20   invocation_script: |\n      GREETING=hello\n      export GREETING\n\
         \x20   parameters: {who: [ann, bob]}\n\
         \x20 - name: slow\n\
         \x20   command: 'trap \"exit 3\" USR1; while :; do sleep 0.02; done'\n\
         \x20   resource_requirements: brief\n",
    );
    sandbox.windlass(&["run", "spec.yaml"]).exits(1);
    let log = |job: &str| sandbox.windlass(&["logs", job, "--stdout"]).exits(0).stdout;
    assert!(log("greet_ann").contains("hello ann") && log("greet_bob").contains("hello bob"));
    let results = sandbox.windlass(&["results"]).exits(0).stdout;
    let slow = results.lines().find(|line| line.contains("slow")).unwrap();
    assert!(
        slow.contains("terminated") && slow.contains("exit code 99") && slow.contains("nearly over"),
        "{slow}"
    );
}

#[test]
fn resource_time_series_follow_spec() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "spec.yaml",
        "name: series\n\
         resource_monitor:\n  sample_interval_seconds: 0.05\n\
         \x20 jobs: {enabled: true, granularity: time_series}\n\
         \x20 compute_node: {enabled: true, granularity: time_series}\n\
         jobs: [{name: a, command: sleep 0.6}]\n",
    );
    sandbox.windlass(&["run", "spec.yaml"]).exits(0);
    let entries: Vec<_> = fs::read_dir(sandbox.path("windlass_output").join(resource_series::SERIES_DIR))
        .unwrap()
        .flatten()
        .collect();
    let [file] = &entries[..] else { panic!("{} files", entries.len()) };
    assert!(resource_series::is_series_file_of(WorkflowId(1), file.file_name().to_str().unwrap()));
    let recording = ResourceRecording::read(&fs::read(file.path()).unwrap()).unwrap();
    assert!(recording.series.contains_key(&SeriesSubject::Node));
    assert_eq!(recording.series.keys().filter(|subject| **subject != SeriesSubject::Node).count(), 1);
}

#[test]
fn logs_are_found_with_stdio_settings_of_job() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "spec.yaml",
        "name: w\nexecution_config: {stdio: {mode: no_stdout}}\njobs:\n\
         \x20 - {name: own, command: 'echo kept here >&2; exit 3', stdio: {mode: combined}}\n\
         \x20 - {name: usual, command: 'echo gone; echo an error: kept >&2; exit 3'}\n\
         \x20 - {name: silent, command: 'echo gone; exit 3', stdio: {mode: none}}\n",
    );
    sandbox.windlass(&["run", "spec.yaml"]).exits(1).says("job_wf1_j1_r1_a1.log").says("job_wf1_j2_r1_a1.e");
    sandbox.windlass(&["logs", "own"]).exits(0).prints("kept here");
    sandbox.windlass(&["logs", "usual"]).exits(0).prints("kept");
    sandbox.windlass(&["logs", "usual", "--stdout"]).exits(2).says("was not kept");
    sandbox.windlass(&["logs", "silent"]).exits(2).says("was not kept");
    sandbox.windlass(&["why", "own"]).exits(0).prints("kept here");
    let results = sandbox.json(&["results", "--job", "own", "--include-logs"]);
    assert!(results.to_string().contains("j1_r1_a1.log"), "{results}");
    sandbox.windlass(&["logs", "analyze"]).prints("job_wf1_j2_r1_a1.e");
}

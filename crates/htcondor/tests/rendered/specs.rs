//! Workflow specs as DAGs, and specs that cannot be DAGs.

use crate::golden_files::compare;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use windlass_htcondor::file_layout;
use windlass_htcondor::render::{
    DagRenderError, FileTransfer, StorageCredentials, WorkflowDagRun, render_workflow,
};
use windlass_htcondor::script_settings::ScriptSettings;
use windlass_spec::{NoAttachments, ResolvedWorkflow, SpecSource};

fn load(text: &str) -> ResolvedWorkflow<'_> {
    windlass_spec::load_spec(SpecSource::new("test.yaml", text.as_bytes()), &NoAttachments).unwrap()
}

fn render(text: &str, directory: &Path) -> Result<(), DagRenderError> {
    let (workflow, accounting) = (load(text), BTreeMap::new());
    render_workflow(&WorkflowDagRun {
        workflow: &workflow,
        digest: "0123",
        directory,
        submission_dir: Path::new("/home/ann/study"),
        run: "550e8400-e29b-41d4-a716-446655440000",
        program: Path::new("/opt/windlass/bin/windlass"),
        transfer: FileTransfer::IfNeeded,
        accounting: &accounting,
        credentials: StorageCredentials::default(),
    })
}

const STUDY: &str = r#"
name: study
env: {MODE: "it's $HOME"}
limits: {licences: 2}
resource_requirements:
  - {name: small, cpus: 1, memory: 500m, runtime: PT10M}
  - {name: large, cpus: 8, memory: 16g, gpus: 1}
failure_handlers:
  - name: patient
    rules:
      - {exit_codes: [75], max_retries: 4, delay: PT5S}
      - {classes: [memory], max_retries: 2, memory: x2}
files:
  - {name: mesh, path: data/mesh.dat}
  - {name: tool, path: /usr/share/tool}
  - {name: 'part_{n}', path: "out/part {n}.csv", parameters: {n: "1:3"}}
  - {name: sum, path: out/sum.csv}
jobs:
  - name: prepare
    command: |
      mkdir -p data
      echo mesh > ${files.output.mesh}
    resource_requirements: small
  - name: solve.{n}
    command: solve ${files.input.mesh} ${files.input.tool} > "${files.output.part_{n}}"
    resource_requirements: large
    failure_handler: patient
    limit: licences
    sites: [T1_US_Alpha, T2_DE_Beta]
    env: {N: "{n}"}
    priority: 5
    parameters: {n: "1:3"}
  - name: add
    command: cat out/part*.csv > ${files.output.sum}
    invocation_script: nice
    input_file_regexes: ["^part"]
    stdio: {mode: combined}
  - name: tell
    command: echo done
    depends_on: [add, prepare]
"#;

#[test]
fn rendered_workflow_matches_golden_files() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("workflow as a DAG");
    fs::remove_dir_all(&directory).ok();
    render(STUDY, &directory).unwrap();
    // The one path that depends on where this is run.
    let submit = directory.join(file_layout::JOB_SUBMIT);
    let text =
        fs::read_to_string(&submit).unwrap().replace(directory.to_str().unwrap(), "/home/ann/study/dag");
    fs::write(submit, text).unwrap();
    compare(&directory, "workflow");
    let mode = fs::metadata(directory.join("jobs/add.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "others cannot read possible secrets");
}

#[test]
fn script_settings_contain_failure_handlers() {
    let directory = tempfile::tempdir().unwrap();
    render(STUDY, directory.path()).unwrap();
    let settings = ScriptSettings::load(directory.path()).unwrap();
    assert_eq!(settings.submission_dir.as_deref(), Some(Path::new("/home/ann/study")));
    let names = windlass_htcondor::script_settings::read_names(directory.path()).unwrap();
    assert_eq!(names.get("solve_2_2").map(String::as_str), Some("solve.2"));
    let failed_job: Vec<_> = settings.node_groups.values().filter(|kind| kind.handler.is_some()).collect();
    assert_eq!(failed_job.len(), 1);
    assert_eq!((failed_job[0].retries, failed_job[0].asked.cpus), (3, 8));
    assert_eq!(settings.handlers["patient"].rules[0].exit_codes, [75]);
}

/// Runs the script of a job as HTCondor would.
#[test]
fn job_scripts_run_the_commands_of_the_spec() {
    let directory = tempfile::tempdir().unwrap();
    let spec = r#"
name: hostile
env: {A: "it's $HOME `id` \\ \"x\""}
files: [{name: out, path: "it's #x é.txt"}]
jobs:
  - name: "it's \"a\" $(job) # é"
    command: |
      printf '%s|%s\n' "$A" "$WINDLASS_JOB_NAME"
      exit ${CODE:-0}
    output_files: [out]
  - {name: fails, command: "exit 7"}
"#;
    render(spec, directory.path()).unwrap();
    let run = |script: &str, code: &str| {
        let path = directory.path().join("jobs").join(script);
        Command::new(path).env("CODE", code).current_dir(directory.path()).output().unwrap()
    };
    let name = "it_s__a____job______0.sh";
    let output = run(name, "0");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), said),
        (Some(1), format!("{}it's #x é.txt\n", file_layout::MISSING_OUTPUT_PREFIX))
    );
    fs::write(directory.path().join("it's #x é.txt"), "").unwrap();
    let output = run(name, "0");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "it's $HOME `id` \\ \"x\"|it's \"a\" $(job) # é\n");
    assert_eq!(run(name, "3").status.code(), Some(3));
    assert_eq!(run("fails.sh", "0").status.code(), Some(7));
}

#[test]
fn unsupported_features_are_reported_together() {
    let directory = tempfile::tempdir().unwrap();
    let spec = r"
name: too_much
use_pending_failed: true
retry_budget: 5
user_data: [{name: numbers}]
slurm_schedulers: [{name: big, account: a}]
resource_requirements: [{name: wide, cpus: 1, memory: 1g, nodes: 4}]
actions: [{trigger_type: on_workflow_start, action_type: run_commands, commands: ['true']}]
jobs:
  - {name: a, command: 'true', labels: [gpu]}
  - {name: b, command: 'true', scheduler: big}
  - {name: c, command: 'true', output_user_data: [numbers]}
  - {name: d, command: 'true', cancel_on_blocking_job_failure: false, depends_on: [c]}
  - {name: e, command: 'true', resource_requirements: wide}
";
    let refused = render(spec, directory.path()).unwrap_err();
    let DagRenderError::NoDag(faults) = &refused else { panic!("{refused}") };
    let expected = [
        "actions:",
        "use_pending_failed:",
        "retry_budget:",
        "job `a`: labels:",
        "job `b`: scheduler:",
        "job `c`: user data:",
        "job `d`: cancel_on_blocking_job_failure:",
        "job `e`: num_nodes:",
    ];
    for begin in expected {
        assert!(faults.iter().any(|fault| fault.starts_with(begin)), "{begin}\n{refused}");
    }
    assert_eq!(faults.len(), expected.len(), "{refused}");
    assert!(!directory.path().join(file_layout::OUTER_DAG).exists());
}

#[test]
fn invalid_files_are_reported_together_and_write_no_dag() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("dag");
    let spec = r"
name: bad files
retry_budget: 5
files: [{name: up, path: ../out.csv}, {name: comma, path: 'a,b.txt'}, {name: well, path: c.txt}, {name: far, path: ../../x}]
jobs:
  - {name: first, command: 'true', output_files: [up, comma, well]}
  - {name: second, command: 'true', input_files: [well, far]}
";
    let refused = render(spec, &directory).unwrap_err();
    let DagRenderError::NoDag(faults) = &refused else { panic!("{refused}") };
    assert_eq!(
        faults.as_slice(),
        [
            "retry_budget: DAGMan does not count the retries of all jobs; leave it out",
            "file `../out.csv` of job `first` is outside of the directory of the workflow",
            "job `first`: \"a,b.txt\" cannot be a file to transfer for HTCondor: ',' has a meaning there; rename it",
            "file `../../x` of job `second` is outside of the directory of the workflow",
        ]
    );
    assert!(!directory.exists());
}

#[test]
fn untransferable_files_are_rejected() {
    let directory = tempfile::tempdir().unwrap();
    for (path, told) in [("../up.txt", "outside of the directory"), ("a,b.txt", "',' has a meaning there")] {
        let spec = format!(
            "name: x\nfiles: [{{name: f, path: '{path}'}}]\njobs: [{{name: j, command: 'true', input_files: [f]}}]"
        );
        let refused = render(&spec, directory.path()).unwrap_err().to_string();
        assert!(refused.contains("job `j`") && refused.contains(told), "{refused}");
    }
}

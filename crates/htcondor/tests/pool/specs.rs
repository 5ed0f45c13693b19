//! Workflow specs on the pool: `windlass submit --backend htcondor`, from the command to the files that jobs wrote.

use crate::support::{Pool, Work, eventually};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Output;
use windlass_htcondor::file_layout;

/// Fails the first time, with an exit code whose rule retries it after a delay; other jobs need its output.
const STUDY: &str = r#"
name: study
env: {SAYING: "it's $HOME, \"quoted\" # é"}
limits: {licences: 1}
resource_requirements: [{name: small, cpus: 1, memory: 200m, runtime: 10m}]
failure_handlers:
  - name: patient
    rules: [{exit_codes: [75], max_retries: 3, delay: 1s}]
files:
  - {name: mesh, path: data/mesh.dat}
  - {name: made, path: "data/made here.dat"}
  - {name: "part_{n}", path: "out/it's part {n}.csv", parameters: {n: "1:2"}}
  - {name: sum, path: out/sum.csv}
jobs:
  - name: prepare
    command: |
      cat ${files.input.mesh} > "${files.output.made}"
      echo "$SAYING" >> "${files.output.made}"
    resource_requirements: small
  - name: solve.{n}
    command: |
      [ "$WINDLASS_ATTEMPT" -gt 1 ] || { echo "no licence" >&2; exit 75; }
      sed "s/^/{n} /" "${files.input.made}" > "${files.output.part_{n}}"
    failure_handler: patient
    resource_requirements: small
    limit: licences
    sites: [T2_CH_Gamma]
    parameters: {n: "1:2"}
  - name: add
    command: cat out/*.csv > ${files.output.sum}
    input_file_regexes: ["^part_"]
  - name: tell
    command: echo "$WINDLASS_JOB_NAME ran after add"
    depends_on: [add, prepare]
"#;

/// One job fails for good and blocks another; two are independent of it.
const BROKEN: &str = r"
name: broken
files: [{name: never, path: never.txt}]
jobs:
  - {name: fails, command: exit 3}
  - {name: waits, command: touch waited, depends_on: [fails]}
  - {name: forgets, command: 'true', output_files: [never]}
  - {name: works, command: 'true'}
";

fn submit(pool: &Pool, work: &Work, words: &[&str]) -> Output {
    let mut command = pool.command(work.windlass());
    command.args(["submit", "--backend", "htcondor", "--format", "json"]).args(words);
    command.current_dir(work.path()).output().unwrap()
}

fn submitted(pool: &Pool, work: &Work, words: &[&str]) -> Value {
    let output = submit(pool, work, words);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The exit status of DAGMan.
fn end(dag: &Value) -> String {
    let out = PathBuf::from(dag["directory"].as_str().unwrap()).join("workflow.dag.dagman.out");
    let said = || fs::read_to_string(&out).unwrap_or_default();
    eventually("DAGMan has ended", || said().contains("EXITING WITH STATUS"));
    said().rsplit("EXITING WITH STATUS ").next().unwrap().trim().to_owned()
}

#[test]
fn workflows_run_with_failure_handler_or_fail() {
    let pool = Pool::shared();
    let work = pool.work("specs");
    work.write("study.yaml", STUDY);
    work.write("broken.yaml", BROKEN);
    work.write("data/mesh.dat", "mesh\n");
    let study = submitted(&pool, &work, &["study.yaml", "--transfer", "--attribute", "CMS_Type=a \"test\""]);
    let broken = submitted(&pool, &work, &["broken.yaml", "--dir", "broken run"]);
    let again = submitted(&pool, &work, &["broken.yaml", "--dir", "broken run"]);
    assert_eq!(again["cluster"], broken["cluster"], "never twice");
    assert_eq!((&study["name"], &study["jobs"]), (&Value::from("study"), &Value::from(5)));

    assert_eq!(end(&study), "0");
    let saying = "it's $HOME, \"quoted\" # é";
    let expected = format!("1 mesh\n1 {saying}\n2 mesh\n2 {saying}\n");
    assert_eq!(work.read("out/sum.csv"), expected);
    let directory = PathBuf::from(study["directory"].as_str().unwrap());
    assert_eq!(fs::read_to_string(directory.join("tell.out")).unwrap(), "tell ran after add\n");
    let log = fs::read_to_string(directory.join(file_layout::OUTER_JOBSTATE)).unwrap();
    let attempts =
        |node: &str| log.lines().filter(|line| line.contains(&format!(" {node} EXECUTE "))).count();
    assert_eq!([attempts("solve_1_1"), attempts("solve_2_2"), attempts("add")], [2, 2, 1]);

    assert_eq!(end(&broken), "1");
    assert!(!work.path().join("waited").exists());
    let directory = work.path().join("broken run");
    assert!(fs::read_to_string(directory.join("forgets.err")).unwrap().contains("did not write never.txt"));
    let state = fs::read_to_string(directory.join(file_layout::OUTER_JOBSTATE)).unwrap();
    assert!(state.contains(" works POST_SCRIPT_SUCCESS ") && state.contains(" fails POST_SCRIPT_FAILURE "));
}

#[test]
fn invalid_dag_is_rejected_before_submission() {
    let pool = Pool::shared();
    let work = pool.work("refused");
    work.write("labels.yaml", "name: x\njobs: [{name: a, command: 'true', labels: [gpu]}]\n");
    for words in [["labels.yaml", "--dry-run"], ["labels.yaml", "--transfer"]] {
        let output = submit(&pool, &work, &words);
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("job `a`: labels: they select workers"), "{said}");
    }
    work.write("plain.yaml", "name: x\njobs: [{name: a, command: 'true'}]\n");
    let nowhere =
        submit(&pool, &work, &["plain.yaml", "--schedd", "unknown@nowhere.invalid", "--dir", "dag"]);
    assert_eq!(nowhere.status.code(), Some(5), "{nowhere:?}");
    work.write("plain.yaml", "name: x\njobs: [{name: b, command: 'true'}]\n");
    let other = submit(&pool, &work, &["plain.yaml", "--dir", "dag"]);
    assert_eq!(other.status.code(), Some(4), "{other:?}");
}

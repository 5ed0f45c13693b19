//! Slurm allocations for a spec, with the real binary and a cluster profile from a file.

use crate::common::{Output, Sandbox};
use crate::serve::StoppedOnDrop;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

const PROFILE: &str = "\
name = \"ours\"

[[partitions]]
name = \"standard\"
is_default = true
nodes = 10
cpus_per_node = 8
memory_mb = 16000
max_walltime_secs = 86400
shared = true

[[partitions]]
name = \"short\"
nodes = 2
cpus_per_node = 8
memory_mb = 32000
max_walltime_secs = 1800
shared = true
";

const SPEC: &str = "\
# three stages
name: study
resource_requirements:
  - {name: small, cpus: 1, memory: 1g, runtime: 10m}
  - {name: large, cpus: 8, memory: 8g, runtime: 2h}
jobs:
  - name: stage   # it begins
    command: 'true'
    resource_requirements: small
  - {name: 'solve_{n}', command: 'true', resource_requirements: large, depends_on: [stage], parameters: {n: '1:4'}}
  - {name: solve_all, command: 'true', resource_requirements: small, depends_on_regexes: ['^solve_[0-9]']}
";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("ours.toml", PROFILE);
    sandbox.write("study.yaml", SPEC);
    sandbox
}

#[test]
fn slurm_plan_works_without_cluster() {
    let sandbox = sandbox();
    let args = ["slurm", "plan", "study.yaml", "--profile", "ours.toml", "--offline", "-a", "lab"];
    let rows = sandbox.json(&args);
    let rows = rows.as_array().or_else(|| rows["items"].as_array()).unwrap().clone();
    let shown: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {} {} {}", row["scheduler"], row["jobs"], row["allocations"], row["walltime"]))
        .collect();
    assert_eq!(
        shown,
        [r#""standard_scheduler" 1 1 "00:15:00""#, r#""standard_scheduler_deferred" 5 5 "03:00:00""#,]
    );
    sandbox.windlass(&args).exits(0).prints("CORE-H").prints("120.0");
}

#[test]
fn slurm_generate_keeps_comments_and_needs_overwrite_to_repeat() {
    let sandbox = sandbox();
    let generate = ["slurm", "generate", "study.yaml", "--profile", "ours.toml", "-a", "lab"];
    sandbox.windlass(&[&generate[..], &["--dry-run"]].concat()).exits(0).prints("+slurm_schedulers:");
    assert_eq!(sandbox.read("study.yaml"), SPEC, "nothing was written");
    sandbox.windlass(&generate).exits(0).says("changed study.yaml");
    let new = sandbox.read("study.yaml");
    assert!(new.contains("# three stages") && new.contains("# it begins"), "{new}");
    // A pattern for `solve_{n}` would also match `solve_all`, which depends on them.
    assert!(new.contains("jobs: [solve_1, solve_2, solve_3, solve_4]"), "{new}");
    sandbox.windlass(&["create", "--dry-run", "study.yaml"]).exits(0);
    sandbox.windlass(&generate).exits(4).says("--overwrite");
    sandbox.windlass(&[&generate[..], &["--overwrite"]].concat()).exits(0);
    sandbox.windlass(&["create", "--dry-run", "study.yaml"]).exits(0);
    sandbox.windlass(&["slurm", "plan", "study.yaml", "--profile", "ours.toml", "--offline"]).exits(0);
}

/// A pattern would match all of them, and the second depends on the first.
#[test]
fn allocation_for_chain_is_requested_when_first_job_is_ready() {
    let sandbox = sandbox();
    let chain = "\
name: chain
resource_requirements: [{name: small, cpus: 1, memory: 1g, runtime: 10m}]
files: [{name: 'f_{i}', path: 'f_{i}', parameters: {i: '1:4'}}]
jobs:
  - name: s_{i}
    command: touch f_{j}
    resource_requirements: small
    input_files: ['f_{i}']
    output_files: ['f_{j}']
    parameters: {i: '1:3', j: '2:4'}
    parameter_mode: zip
";
    sandbox.write("chain.yaml", chain);
    sandbox
        .windlass(&["slurm", "generate", "chain.yaml", "--profile", "ours.toml", "-a", "lab"])
        .exits(0)
        .says("1 allocation for 1 scheduler");
    let new = sandbox.read("chain.yaml");
    assert!(new.contains("jobs: [s_1]"), "{new}");
}

#[test]
fn unfit_slurm_job_is_refused_before_submission() {
    let sandbox = sandbox();
    sandbox.write("huge.yaml", &SPEC.replace("memory: 8g", "memory: 80g"));
    let submit = ["submit", "--slurm", "huge.yaml", "--profile", "ours.toml", "-a", "lab"];
    let said = sandbox.windlass(&submit).exits(2);
    said.says("job `solve_{n}`").says("`large` requests 8 CPUs, 80 GiB, 2h").says("nearest is partition");
    // A handwritten scheduler that Slurm would accept and never start.
    let scheduler = "slurm_schedulers: [{name: s, account: lab, partition: short, walltime: '04:00:00'}]\n";
    sandbox.write("late.yaml", &format!("{SPEC}{scheduler}"));
    let submit = ["submit", "late.yaml", "--profile", "ours.toml"];
    let said = sandbox.windlass(&submit).exits(2);
    said.says("scheduler `s` requests resources that are never available")
        .says("an allocation lasts at most 30m");
}

#[test]
fn slurm_workflow_is_refused_by_server_without_slurm() {
    let sandbox = sandbox();
    let _served = StoppedOnDrop::start(&sandbox, &["--listen", "127.0.0.1:0"]);
    let submit = ["submit", "--slurm", "study.yaml", "--profile", "ours.toml", "-a", "lab"];
    sandbox.windlass(&submit).exits(2).says("does not use Slurm").says("`windlass serve --slurm`");
    assert_eq!(sandbox.json(&["list"]).as_array().map(Vec::len), Some(0), "nothing was created");
    sandbox.windlass(&["slurm", "rpc"]).exits(0).says("this server was started without --slurm");
}

/// The stub returns 404 for every path, as a server from before the support of Slurm does.
#[test]
fn slurm_submission_reports_too_old_server() {
    let sandbox = sandbox();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut request = BufReader::new(connection.try_clone().unwrap());
            let mut line = String::new();
            while request.read_line(&mut line).unwrap_or(0) > 2 {
                line.clear();
            }
            let body = r#"{"status": 404, "code": "not_found", "detail": "there is no such page"}"#;
            let head =
                "HTTP/1.1 404 Not Found\r\ncontent-type: application/problem+json\r\nconnection: close";
            write!(connection, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    let submit = ["submit", "--slurm", "study.yaml", "--profile", "ours.toml", "-a", "lab", "--url", &url];
    let said = sandbox.windlass(&submit);
    assert_ne!(said.code, 0);
    said.says("is older than this windlass: it does not support Slurm").says("windlass serve --slurm");
}

/// Precedence: the command line, then the spec, then the settings.
#[test]
fn slurm_account_comes_from_option_spec_or_settings() {
    let sandbox = sandbox();
    sandbox.write("said.yaml", &format!("{SPEC}slurm_defaults: {{account: spec}}\n"));
    let account = |spec: &str, more: &[&str]| {
        let generate = ["slurm", "generate", spec, "-o", "-"];
        let mut command = sandbox.command(&[&generate[..], more].concat());
        command.env("WINDLASS_SLURM__ACCOUNT", "settings").env("WINDLASS_SLURM__PROFILE", "ours.toml");
        let text = Output::of(&mut command).exits(0).stdout;
        let found: BTreeSet<String> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("account: "))
            .map(str::to_owned)
            .collect();
        found.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(account("study.yaml", &[]), ["settings"]);
    assert_eq!(account("said.yaml", &[]), ["spec"]);
    assert_eq!(account("said.yaml", &["-a", "lab"]), ["lab"]);
    let without_account = ["slurm", "generate", "study.yaml", "--profile", "ours.toml"];
    sandbox.windlass(&without_account).exits(2).says("no Slurm account given").says("`slurm.account`");
}

#[test]
fn slurm_submission_has_dry_run() {
    let sandbox = sandbox();
    let submit = ["submit", "--slurm", "study.yaml", "--profile", "ours.toml", "-a", "lab", "--dry-run"];
    sandbox.windlass(&submit).exits(0).prints("standard_scheduler_deferred").says("nothing created");
}

#[test]
fn cluster_profile_is_read_from_file() {
    let sandbox = sandbox();
    let found = sandbox.windlass(&["hpc", "partitions", "./ours.toml"]).exits(0);
    found.prints("standard").prints("default");
    let found =
        sandbox.windlass(&["hpc", "match", "./ours.toml", "--memory", "20g", "--walltime", "20"]).exits(0);
    found.prints("short");
    let said = sandbox.windlass(&["hpc", "match", "./ours.toml", "--cpus", "9"]).exits(2);
    said.says("no partition of cluster ours fits 9 CPUs").says("its nodes have 8 CPUs");
    let said = sandbox.windlass(&["hpc", "show", "kestrel"]).exits(2);
    said.says("no profile is named `kestrel`; available: slurm").says("there are no built-in profiles");
    sandbox.write("bad.toml", "name = \"x\"\nnodes = 3\n");
    sandbox.windlass(&["hpc", "show", "bad.toml"]).exits(2).says("bad.toml is not a valid cluster profile");
}

#[test]
fn allocation_output_is_explained() {
    let sandbox = Sandbox::new();
    let said = "\
starting
slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-15T06:31:14 ***
srun: error: n1: task 0: Out Of Memory
";
    sandbox.write("logs/slurm-7.out", said);
    sandbox.write("logs/slurm-8.out", "all is well\n");
    let shown = sandbox.windlass(&["slurm", "logs", "logs"]).exits(0).stdout;
    let lines: Vec<&str> = shown.lines().map(str::trim).collect();
    assert_eq!(lines[0], "logs/slurm-7.out");
    assert!(lines[1].starts_with("2: ") && lines[2].contains("for a warning before the end"), "{shown}");
    assert!(lines[4].starts_with("3: ") && lines[6].starts_with("do: "), "{shown}");
    let found = sandbox.json(&["slurm", "parse-logs", "logs", "--errors-only"]);
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["sign"], &found[0]["line"]), (&"memory-limit".into(), &3.into()));
    let quiet = sandbox.windlass(&["slurm", "logs", "logs/slurm-8.out"]).exits(0);
    assert_eq!(quiet.stderr.trim(), "no known problems in 1 file");
}

#[test]
fn workflow_without_allocations_has_no_slurm_usage() {
    let sandbox = Sandbox::new();
    sandbox.write("spec.yaml", "name: plain\njobs: [{name: a, command: 'true'}]\n");
    sandbox.windlass(&["run", "spec.yaml"]).exits(0);
    let usage = sandbox.windlass(&["slurm", "usage"]).exits(0);
    assert_eq!(usage.stderr.trim(), "workflow 1 (plain) has no allocations");
    let usage = sandbox.json(&["slurm", "usage"]);
    assert_eq!(
        (&usage["allocations"], &usage["total"]["given_core_hours"]),
        (&serde_json::json!([]), &0.0.into())
    );
    let status = sandbox.windlass(&["status"]).exits(0).stdout;
    assert!(!status.contains("utilisation"), "{status}");
    // Without Slurm jobs, `sacct` is not called.
    sandbox.windlass(&["slurm", "sacct"]).exits(0);
}

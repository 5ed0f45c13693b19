//! Tests that a workflow has the same plan in every format, and that errors have the same messages.

mod common;

use common::plan;
use windlass_spec::{DiagnosticStyle, SpecFormat, SpecSource, convert_spec, reformat_spec};

/// Returns `text` in every format that it can be converted to.
#[track_caller]
fn in_every_format(text: &str) -> Vec<(SpecFormat, String)> {
    let written = |format| {
        let source = SpecSource::new("spec.yaml", text.as_bytes());
        (format, convert_spec(source, format).unwrap_or_else(|problems| panic!("{problems}")))
    };
    SpecFormat::ALL.map(written).into()
}

const SPECS: [&str; 6] = [
    "\
name: tile_mosaic
description: split a scene, filter both halves, stitch
files:
  - {name: scene, path: work/scene.txt}
  - {name: left, path: work/left.txt}
  - {name: right, path: work/right.txt}
jobs:
  - name: split
    command: \"head -5 ${files.input.scene} > ${files.output.left}; tail -5 ${files.input.scene} > ${files.output.right}\"
  - name: stitch
    command: |
      set -e
      cat ${files.input.left} ${files.input.right}
",
    "\
name: viscosity_grid
variables: {root: out}
resource_requirements:
  - {name: one, num_cpus: 1, memory: 200m, runtime: PT5M}
files:
  - name: \"res_{nu:.2f}_{seed:03d}\"
    path: \"{root}/res_{nu:.2f}_{seed:03d}.csv\"
    parameters: {nu: \"0.10:0.30:0.10\", seed: \"1:4\"}
user_data:
  - {name: settings, data: {tolerance: 1e-3, names: [a, 0755], deep: {x: [[1], []], y: true}}, is_ephemeral: true}
jobs:
  - {name: prepare, command: mkdir -p out}
  - name: \"solve_{nu:.2f}_{seed:03d}\"
    command: \"echo {nu},{seed} > {root}/res_{nu:.2f}_{seed:03d}.csv\"
    resource_requirements: one
    depends_on: [prepare]
    input_user_data: [settings]
    output_files: [\"res_{nu:.2f}_{seed:03d}\"]
    parameters: {nu: \"0.10:0.30:0.10\", seed: \"1:4\"}
  - name: collect
    command: cat out/res_*.csv
    input_file_regexes: ['^res_\\d\\.\\d\\d_\\d{3}$']
",
    "\
name: shaky_solver
use_pending_failed: true
failure_handlers:
  - name: solver_rules
    rules:
      - {exit_codes: [10], recovery_script: \"echo $TORC_JOB_NAME >> fixes.log\", max_retries: 3}
      - {match_all_exit_codes: true, max_retries: 2}
jobs:
  - {name: recovers, command: 'test \"$TORC_ATTEMPT_ID\" -ge 3 || exit 10', failure_handler: solver_rules}
  - {name: after, command: echo done, depends_on: [recovers], env: {MODE: 0755, FLAG: yes, EMPTY: ''}, priority: 3}
",
    "\
name: two_phase_cluster
execution_config: {mode: slurm, srun_termination_signal: \"TERM@120\", sigkill_headroom_seconds: 180}
slurm_defaults: {qos: normal}
resource_monitor: {sample_interval_seconds: .5, jobs: {enabled: true, granularity: time_series}}
metadata: {owner: ada, tags: [a, b], one: [1], none: []}
access_groups: [x]
slurm_schedulers:
  - {name: prep_alloc, account: demo, nodes: 1, walltime: \"00:40:00\"}
jobs:
  - {name: stage, command: ./stage.sh, scheduler: prep_alloc}
  - {name: \"sim_{i}\", command: \"./sim.sh {i}\", depends_on: [stage], parameters: {i: \"1:4\", unit: [m], x: 7}}
actions:
  - {trigger_type: on_jobs_ready, action_type: schedule_nodes, jobs: [stage], scheduler: prep_alloc, num_allocations: 1}
  - {trigger_type: on_jobs_ready, action_type: schedule_nodes, job_name_regexes: ['sim_\\d+'], scheduler: prep_alloc}
  - {trigger_type: on_worker_start, action_type: run_commands, persistent: true, commands: [\"mkdir -p scratch\", date]}
",
    "\
name: at_places
limits: {licence: 2, the disk: 10, '7': 1}
jobs:
  - {name: mesh, command: ./mesh, sites: [north, T2_CH_CERN], limit: licence}
  - {name: 'solve_{i}', command: './solve {i}', sites: ['lab{i}'], limit: the disk, parameters: {i: '1:3'}}
  - {name: plot, command: ./plot, limit: '7'}
",
    "\
name: patient
retry_budget: 20%
resource_requirements:
  - {name: small, num_cpus: 1, memory: 2g, runtime: PT10M}
failure_handlers:
  - name: patient_rules
    rules:
      - exit_codes: [75]
        signals: [SIGKILL, 11]
        on: [out_of_memory, timeout]
        classes: [transient]
        stderr: [\"Connection refused: {\", 're:^NCCL .{2,} timeout$', '1e3', 'true']
        recovery_script: rm -f lock
        recovery_timeout: PT1M
        max_retries: 5
        delay: 10
        backoff: 2
        max_delay: 10m
        jitter: .2
        memory: x1.5
        max_memory: 8g
        runtime: +30%
        max_runtime: 2h
        cpus: '+1'
        max_cpus: 8
      - {on: [missing_output], memory: +2g, runtime: +PT10M}
jobs:
  - {name: fetch, command: ./fetch, resource_requirements: small, failure_handler: patient_rules}
",
];

#[test]
fn formats_are_detected_by_content_and_convert_losslessly() {
    for spec in SPECS {
        for (format, text) in in_every_format(spec) {
            assert_eq!(SpecFormat::detect(text.as_bytes()), format, "{text}");
            // A round trip gives the same text as a direct conversion from the original.
            for (other, straight) in in_every_format(spec) {
                let source = SpecSource { name: "-", text: text.as_bytes(), format: None };
                let around = convert_spec(source, other).unwrap_or_else(|problems| panic!("{problems}"));
                if format == SpecFormat::Toml || other == SpecFormat::Toml {
                    // TOML puts tables last, so the order of fields may differ.
                    assert_eq!(sorted(&around), sorted(&straight), "{} to {}", format.name(), other.name());
                } else {
                    assert_eq!(around, straight, "{} to {}", format.name(), other.name());
                }
            }
            let laid_out = reformat_spec(SpecSource::new("-", text.as_bytes()))
                .unwrap_or_else(|problems| panic!("{problems}"));
            let again = convert_spec(
                SpecSource { name: "-", text: laid_out.as_bytes(), format: Some(format) },
                format,
            );
            assert_eq!(again.as_deref(), Ok(text.as_str()), "formatted as {}", format.name());
        }
    }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().map(|line| line.trim().trim_end_matches(',')).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn handwritten_kdl_is_accepted() {
    let text = r#"
// Torc's own spellings, old and new.
name "w"
user ada
env { MODE "0755"; LEVEL 9 }
resource_requirements "small" num_cpus=1 memory="1g"
file "f" path="f.txt"
user_data "u" {
    data {
        list 1 2
        none #null
        map a=1
    }
}
failure_handler "h" {
    rule { exit_codes 1 2; match_all_exit_codes false; max_retries 0x2 }
    rule {
        signal "SIGKILL"
        signal 11
        class "transient" "infrastructure"
        on "timeout"
        stderr "Connection refused"
        delay "10s"
        backoff 1.5
        memory "x2"
    }
}
retry_budget 100
limits { licence 2; disk 3 }
job "a" {
    command r"echo \a"
    limit licence
    site north south
    site east
    output_file "f"
}
job "b" command="true" {
    depends_on_job "a"
    /- unknown 5
}
/- job "gone" { }
"#;
    let yaml = convert_spec(SpecSource::new("spec.kdl", text.as_bytes()), SpecFormat::Yaml);
    let yaml = yaml.unwrap_or_else(|problems| panic!("{problems}"));
    let expected = "\
name: w
user: ada
env:
  MODE: \"0755\"
  LEVEL: 9
resource_requirements:
  - name: small
    num_cpus: 1
    memory: 1g
files:
  - name: f
    path: f.txt
user_data:
  - name: u
    data:
      list: [1, 2]
      none: null
      map:
        a: 1
failure_handlers:
  - name: h
    rules:
      - exit_codes: [1, 2]
        match_all_exit_codes: false
        max_retries: 2
      - signals: [SIGKILL, 11]
        classes: [transient, infrastructure]
        \"on\": [timeout]
        stderr: [Connection refused]
        delay: 10s
        backoff: 1.5
        memory: x2
retry_budget: 100
limits:
  licence: 2
  disk: 3
jobs:
  - name: a
    command: echo \\a
    limit: licence
    sites: [north, south, east]
    output_files: [f]
  - name: b
    command: \"true\"
    depends_on: [a]
";
    assert_eq!(yaml, expected);
}

/// Returns the problems of a file as `code line:column help`.
#[track_caller]
fn problems(name: &str, text: &str) -> Vec<String> {
    let problems = load_error(name, text);
    assert!(problems.render(DiagnosticStyle::Plain).contains(name));
    let line = |report: windlass_spec::DiagnosticReport| {
        let place = format!("{}:{}", report.line.unwrap_or(0), report.column.unwrap_or(0));
        format!("{} {place} {}", report.code, report.help.unwrap_or_default())
    };
    problems.reports().into_iter().map(line).collect()
}

#[track_caller]
fn load_error(name: &str, text: &str) -> windlass_spec::SpecDiagnostics {
    windlass_spec::parse_spec(name, text.as_bytes()).map(|_| ()).expect_err("should be refused")
}

#[test]
fn mistakes_are_located_in_every_format() {
    for (name, text, unknown, duplicate) in [
        ("s.yaml", "name: w\njobs:\n- name: a\n  comand: x\n  priority: 1\n  priority: 2\n", "4:3", "6:3"),
        (
            "s.json",
            "{\"name\": \"w\", \"jobs\": [\n{\"name\": \"a\",\n\"comand\": \"x\", \"priority\": 1,\n\"priority\": 2}]}",
            "3:1",
            "4:1",
        ),
        (
            "s.json5",
            "{name: 'w', jobs: [{name: 'a',\ncomand: 'x', priority: 1,\npriority: 2}]}",
            "2:1",
            "3:1",
        ),
        (
            "s.toml",
            "name = 'w'\n[[jobs]]\nname = 'a'\ncomand = 'x'\npriority = 1\npriority = 2\n",
            "4:1",
            "6:1",
        ),
        ("s.kdl", "name \"w\"\njob \"a\" {\n  comand \"x\"\n  priority 1\n  priority 2\n}\n", "3:3", "5:3"),
    ] {
        assert_eq!(
            problems(name, text),
            [
                format!("unknown-field {unknown} did you mean `command`?"),
                format!("duplicate-field {duplicate} ")
            ],
            "{name}"
        );
    }
}

#[test]
fn json5_syntax_in_json_is_rejected() {
    let text =
        "{\n// remark\n\"name\": 'w',\njobs: [{\"name\": \"a\", \"command\": \"x\", \"priority\": +1},],\n}";
    let places: Vec<String> = problems("s.json", text);
    let json5 = |place: &str| format!("json5 {place} this is JSON5: use the extension .json5");
    assert_eq!(places, ["2:1", "3:9", "4:1", "4:50", "4:53", "4:55"].map(json5));
    assert!(windlass_spec::parse_spec("s.json5", text.as_bytes()).is_ok());
}

#[test]
fn format_specific_mistakes_are_reported() {
    for (name, text, problem) in [
        ("s.json", "{\"name\": w}", "syntax 1:10 "),
        ("s.json", "{\"name\": \"w\"", "syntax 1:1 "),
        ("s.json", "{\"name\" \"w\"}", "syntax 1:9 "),
        ("s.json", "{\"name\": \"\\q\"}", "syntax 1:11 write `\\\\` for a backslash"),
        ("s.toml", "name = \n", "syntax 1:8 "),
        ("s.kdl", "job \"a\" {\n", "syntax 1:9 "),
        ("s.kdl", "name \"w\n", "syntax 1:6 "),
        ("s.kdl", "jobs \"a\"\n", "unknown-field 1:1 did you mean `job`?"),
        (
            "s.kdl",
            "action \"a\"\n",
            "stray-value 1:8 write the fields of an action in braces, or as `field=value`",
        ),
        (
            "s.kdl",
            "use_pending_failed #yes\n",
            "syntax 1:20 the keywords are `#true`, `#false`, `#null`, `#inf`, `#-inf` and `#nan`",
        ),
    ] {
        let found = problems(name, text);
        assert!(found.iter().any(|found| found.starts_with(problem)), "{text}: {found:?}");
    }
}

#[test]
fn every_format_gives_the_same_plan() {
    for spec in SPECS {
        let expected = plan(SpecFormat::Yaml, spec);
        for (format, text) in in_every_format(spec) {
            assert_eq!(plan(format, &text), expected, "{}", format.name());
        }
    }
}

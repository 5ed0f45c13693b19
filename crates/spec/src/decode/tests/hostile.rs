//! A spec with every field, randomly damaged: it always gives a result, never a panic, and never unbounded
//! work.

use crate::decode::decode_spec;
use crate::yaml::YamlReader;
use proptest::prelude::*;

const WHOLE: &str = r#"version: 1
name: w
user: u
description: d
project: p
metadata: {a: [1, {b: ~}], c: 1.5}
variables: {gb: 4, v: x}
parameters: {i: "1:3", j: [1, "2", x]}
parameters_file: t.csv
env: &env {A: 1}
stdio: {mode: combined, delete_on_success: true}
slurm_defaults: {qos: high, exclusive: }
change_detection: content
access_groups: [g]
use_pending_failed: true
execution_config: {mode: auto, termination_signal: TERM, srun_termination_signal: TERM@9, oom_exit_code: 9}
resource_monitor: {sample_interval_seconds: 0.5, jobs: {enabled: true, granularity: time_series}}
dynamic_jobs: {max_iterations: 5}
resource_requirements: [{name: r, cpus: 1, memory: "{gb}g", walltime: 1-02:00:00}]
failure_handlers: [{name: h, rules: [{exit_codes: [1, -2], max_retries: 2}, {match_all_exit_codes: true}]}]
slurm_schedulers: [{name: s, account: a, walltime: "90", mem: 4G}]
actions:
  - {trigger_type: on_jobs_ready, action_type: run_commands, jobs: [a], commands: [x]}
  - {trigger_type: on_worker_start, action_type: schedule_nodes, scheduler: s, num_allocations: 1}
files: [{name: "f{i}", path: "o/{i}", st_mtime: 1.5, parameters: {i: "1:2"}, parameter_mode: zip}]
user_data: [{name: u, data: {x: [1, 2]}, is_ephemeral: true, use_parameters: [i]}]
jobs:
  - {name: a, command: b, env: *env, labels: [x], priority: 3, stdio: {mode: none}}
  - {name: "c{i}", command: d, scheduler: s, parameters: {i: [1, 2]}, input_files: [f], failure_handler: h}
"#;

/// Every input gives a result.
fn answer(text: &str) {
    let decoded = decode_spec(text, YamlReader::new(text));
    if decoded.names.is_none() {
        assert!(!decoded.sink.is_empty(), "{text}");
    }
}

/// The codes of all problems in the file.
#[track_caller]
fn codes(text: &str) -> Vec<&'static str> {
    let diagnostics = crate::parse_spec("evil.yaml", text.as_bytes()).expect_err("should be refused");
    diagnostics.list.iter().map(|diagnostic| diagnostic.code).collect()
}

#[test]
fn truncated_spec_is_decoded_or_has_problems() {
    assert!(crate::parse_spec("whole.yaml", WHOLE.as_bytes()).is_ok());
    for end in (0..WHOLE.len()).step_by(3) {
        answer(&WHOLE[..end]);
    }
}

#[test]
fn alias_bombs_are_rejected() {
    let mut bomb = "metadata:\n  a0: &a0 [x]\n".to_owned();
    for level in 1..30 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.extend([format!("  a{level}: &a{level} [{aliases}]\n")]);
    }
    // One is kept as JSON, the other is recorded for later decoding: both have to stop.
    assert!(codes(&bomb).contains(&"too-many-aliases"));
    let ignored = bomb.replace("metadata", "colour");
    assert!(codes(&format!("{ignored}resource_monitor: *a29\n")).contains(&"too-many-aliases"));
}

#[test]
fn deeply_nested_values_are_rejected() {
    for (before, after) in
        [("metadata: {a: ", "}"), ("user_data: [{name: u, data: ", "}]"), ("resource_monitor: {jobs: ", "}")]
    {
        let text = format!("{before}{}{}{after}\n", "[".repeat(100), "]".repeat(100));
        assert!(codes(&text).contains(&"too-deep"), "{before}");
    }
}

fn piece() -> impl Strategy<Value = String> {
    let words = [
        ": ",
        ":\n",
        "- ",
        "\n",
        "\n  ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "~",
        "0",
        "-1",
        "1e999",
        "true",
        "\"",
        "'",
        "name",
        "mode",
        "x",
        "{gb}",
        "SIGTERM",
        "jobs",
        "slurm",
        "99999999999999999999",
        "<<: *env",
        "&a ",
        "*a",
        "ü",
    ];
    prop::sample::select(words.to_vec()).prop_map(str::to_owned)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_spec_is_decoded_or_has_problems(damage in prop::collection::vec((any::<prop::sample::Index>(), 0usize..20, piece()), 1..6)) {
        let mut text = WHOLE.to_owned();
        for (place, length, piece) in damage {
            let start = place.index(text.len());
            let end = (start + length).min(text.len());
            if text.is_char_boundary(start) && text.is_char_boundary(end) {
                text.replace_range(start..end, &piece);
            }
        }
        answer(&text);
    }
}

//! Tests for invalid specs and the messages about them.

use super::{good, problems, with};

/// The help of the only problem of `text`.
#[track_caller]
fn help(text: &str) -> String {
    let diagnostics = crate::parse_spec("sim.yaml", text.as_bytes()).expect_err(text);
    let [problem] = diagnostics.list.as_slice() else { panic!("{diagnostics}") };
    problem.help.clone().unwrap_or_default()
}

#[track_caller]
fn check(text: &str, wanted: &[&str]) {
    assert_eq!(problems(text), wanted, "{text}");
}

#[test]
fn wrong_types_and_out_of_range_values_are_rejected() {
    for (text, wanted) in [
        ("version: 2", "out-of-range `version` is `2`"),
        ("version: '1'", "wrong-type `version` must be an integer, not the string `1`"),
        ("metadata: text", "wrong-type `metadata` must be a map, not `text`"),
        ("metadata: {a: 1, a: 2}", "duplicate-field `a` is given twice"),
        ("metadata: {a: 1e999}", "bad-number `1e999` is not a number that JSON can represent"),
        ("use_pending_failed: yes", "wrong-type `use_pending_failed` must be `true` or `false`, not `yes`"),
        ("change_detection: hash", "unknown-value `change_detection` cannot be `hash`"),
        ("limits: [a]", "wrong-type `limits` must be a map, not a list"),
        ("limits: {a: 0}", "out-of-range limit `a` is 0: jobs that use it could never start"),
        ("limits: {a: -1}", "out-of-range limit `a` is `-1`"),
        ("limits: {a: many}", "wrong-type limit `a` must be an integer, not `many`"),
        ("limits: {a: }", "no-value limit `a` has no value"),
        ("limits: {a: 1, a: 2}", "duplicate-field `a` is given twice"),
        ("limits: {'': 1}", "empty the name of a limit is empty"),
        ("limits: {\"a\\tb\": 1}", "control-character the name of limit `a b` contains a control character"),
        ("access_groups: a", "wrong-type `access_groups` must be a list, not `a`"),
        ("variables: {a-b: 1}", "parameter-name `a-b` cannot be the name of a variable"),
        ("variables: {a: 1, a: 2}", "duplicate-field variable `a` is given twice"),
        ("variables: {a: [1]}", "wrong-type variable `a` must be a string, not a list"),
        ("parameters: {'1': 1}", "parameter-name `1` cannot be the name of a parameter"),
        ("parameters: {i: 1, i: 2}", "duplicate-field parameter `i` is given twice"),
        ("parameters: {i: }", "no-value parameter `i` has no value"),
        ("parameters: {i: {a: 1}}", "wrong-type parameter `i` must be a value or a list, not a map"),
        ("parameters: {i: [[1]]}", "wrong-type parameter `i` must be a list of plain values, not a list"),
        ("parameters: {i: []}", "empty parameter `i` has no values"),
        ("dynamic_jobs: {max_iterations: 0}", "out-of-range `max_iterations` is `0`"),
        (
            "compute_node_wait_for_new_jobs_seconds: -1",
            "out-of-range `compute_node_wait_for_new_jobs_seconds` is `-1`",
        ),
        ("files: [{name: f, path: p, st_mtime: late}]", "wrong-type `st_mtime` must be a number, not `late`"),
        ("files: [{name: f, path: p, st_mtime: inf}]", "wrong-type `st_mtime` must be a number, not `inf`"),
        ("files: [{name: f, path: p, st_mtime: -1}]", "out-of-range `st_mtime` is `-1`"),
        ("files: [{name: f}]", "missing-field missing field `path`"),
        (
            "user_data: [{name: u, is_ephemeral: 1}]",
            "wrong-type `is_ephemeral` must be `true` or `false`, not `1`",
        ),
        (
            "failure_handlers: [{name: h, rules: [{exit_codes: [256]}]}]",
            "out-of-range an item of `exit_codes` is `256`",
        ),
        (
            "failure_handlers: [{name: h, rules: [{exit_codes: [-129]}]}]",
            "out-of-range an item of `exit_codes` is `-129`",
        ),
        ("failure_handlers: [{name: h, rules: [3]}]", "wrong-type a rule must be a map, not `3`"),
        ("failure_handlers: [{name: h, rules: }]", "no-value `rules` has no value"),
        (
            "slurm_schedulers: [{name: s, account: a, walltime: soon}]",
            "bad-amount `walltime`: `soon` is not a duration; write for example 90m, 1h30m, PT1H, 02:00:00 or 1-02:00:00",
        ),
        (
            "slurm_schedulers: [{name: s, account: a, walltime: 0}]",
            "bad-amount `walltime` must be greater than 0",
        ),
        (
            "slurm_schedulers: [{name: s, account: a, mem: lots}]",
            "bad-amount `mem`: `lots` is not a size; write for example 512, 200m, 4g or 1.5GiB (1024-based)",
        ),
        ("slurm_schedulers: [{name: s}]", "missing-field missing field `account`"),
        ("execution_config: {mode: slrum}", "unknown-value `mode` cannot be `slrum`"),
        (
            "execution_config: {termination_signal: SIGTRM}",
            "bad-signal `termination_signal`: `SIGTRM` is not a signal",
        ),
        ("execution_config: {timeout_exit_code: 0}", "out-of-range `timeout_exit_code` is `0`"),
        ("execution_config: {stdio: {mode: both}}", "unknown-value `mode` cannot be `both`"),
        ("resource_monitor: {sample_interval_seconds: 0}", "out-of-range `sample_interval_seconds` is `0`"),
        ("resource_monitor: {jobs: {granularity: fine}}", "unknown-value `granularity` cannot be `fine`"),
        ("triage: {min_confidence: 1.5}", "out-of-range `min_confidence` is `1.5`"),
        ("triage: {max_agent_retries: -1}", "out-of-range `max_agent_retries` is `-1`"),
        (
            "triage: {require_evidence: maybe}",
            "wrong-type `require_evidence` must be `true` or `false`, not `maybe`",
        ),
        ("resource_monitor: true", "wrong-type `resource_monitor` must be a map, not `true`"),
        (
            "actions: [{action_type: run_commands, commands: [x]}]",
            "missing-field missing field `trigger_type`",
        ),
        ("actions: [x]", "wrong-type an action must be a map, not `x`"),
        ("resource_requirements: [{name: r, cpus: 0, memory: 1g}]", "out-of-range `cpus` is `0`"),
        (
            "resource_requirements: [{name: r, cpus: 1, memory: '{gb}g'}]",
            "undefined-name `{gb}` is not a variable of the workflow",
        ),
    ] {
        check(&with(text), &[wanted]);
    }
}

#[test]
fn diagnostics_name_the_remedy() {
    for (text, wanted) in [
        ("version: 2", "it must be 1"),
        (
            "jobs_sort_method: none",
            "it was removed in Torc 1.0; delete it, and use `priority` for jobs that should start first",
        ),
        ("execution_config: {job_stdio_overrides: {}}", "set `stdio` in the job instead"),
        ("execution_config: {termination_signal: SIGTRM}", "did you mean `SIGTERM`?"),
        (
            "execution_config: {mode: auto, srun_termination_signal: TERM@soon}",
            "write seconds from 0 to 65535 after the `@`: `TERM@120`",
        ),
        ("change_detection: mtimes", "did you mean `mtime`?"),
        ("change_detection: hash", "it must be one of `mtime`, `content`"),
        ("slurm_defaults: {Time: 5}", "it is set by `walltime` of a scheduler in `slurm_schedulers`"),
        ("slurm_defaults: {job_name: x}", "it is set by windlass, which names its allocations"),
        (
            "slurm_defaults: {--qos: x}",
            "write it in full, without leading dashes: `qos`, `constraint`, `mail-type`",
        ),
        ("slurm_schedules: []", "did you mean `slurm_schedulers`?"),
        ("tasks: []", "did you mean `jobs`?"),
        ("resource_requirements: [{name: r, cores: 1, memory: 1g}]", "did you mean `num_cpus`?"),
        ("resource_requirements: [{name: r, cpu: 1, memory: 1g}]", "did you mean `cpus`?"),
        (
            "resource_requirements: [{name: r, cpus: 1, memory: '{gp}g'}]\nvariables: {gb: 1}",
            "did you mean `gb`?",
        ),
    ] {
        assert_eq!(help(&with(text)), wanted, "{text}");
    }
    assert_eq!(help("name: w\njobs: [{name: a, command: b, needs: [c]}]\n"), "did you mean `depends_on`?");
    assert_eq!(help("name: w\njobs:\n"), "it is required");
    assert_eq!(
        help("name: w\njobs: [{name: a, command: b, resource_requirements: {num_cpus: 1}}]\n"),
        "move the map to `resource_requirements` of the workflow, and write its `name` here"
    );
}

#[test]
fn managed_sbatch_options_are_rejected() {
    for option in
        ["partition", "nodes", "walltime", "time", "mem", "gres", "name", "job-name", "TIME", "Job_Name"]
    {
        let wanted = format!("managed-option `{option}` is not allowed in `slurm_defaults`");
        check(&with(&format!("slurm_defaults: {{{option}: 1}}")), &[&wanted]);
    }
    check(
        &with("slurm_defaults: {qos: [a]}"),
        &["wrong-type option `qos` must be a plain value, not a list"],
    );
    good(&with("slurm_defaults: {qos: a, mem-per-cpu: 2G, requeue: }"));
}

#[test]
fn fields_of_another_execution_mode_are_rejected() {
    let direct =
        ["limit_resources: false", "termination_signal: INT", "sigterm_lead_seconds: 5", "oom_exit_code: 9"];
    let slurm = ["srun_termination_signal: TERM@9", "enable_cpu_bind: true"];
    for field in direct {
        let name = field.split(':').next().unwrap_or_default();
        let wanted = format!("wrong-mode `{name}` is for mode `direct`, but the mode is `slurm`");
        check(&with(&format!("execution_config: {{{field}, mode: slurm}}")), &[&wanted]);
        good(&with(&format!("execution_config: {{{field}}}")));
        good(&with(&format!("execution_config: {{{field}, mode: auto}}")));
    }
    good(&with("execution_config: {mode: slurm, limit_resources: true}"));
    for field in slurm {
        let name = field.split(':').next().unwrap_or_default();
        let wanted = format!("wrong-mode `{name}` is for mode `slurm`, but the mode is `direct`");
        check(&with(&format!("execution_config: {{{field}}}")), &[&wanted]);
        check(&with(&format!("execution_config: {{mode: direct, {field}}}")), &[&wanted]);
        good(&with(&format!("execution_config: {{mode: slurm, {field}}}")));
    }
    // An unreadable mode causes no further errors.
    check(
        &with("execution_config: {mode: slrum, enable_cpu_bind: true}"),
        &["unknown-value `mode` cannot be `slrum`"],
    );
}

#[test]
fn incomplete_actions_are_rejected() {
    for (action, wanted) in [
        (
            "trigger_type: on_jobs_ready, action_type: run_commands, commands: [x]",
            "incomplete-action this trigger waits for jobs, but none are listed",
        ),
        (
            "trigger_type: on_jobs_complete, action_type: run_commands, commands: [x], jobs: []",
            "incomplete-action this trigger waits for jobs, but none are listed",
        ),
        (
            "trigger_type: on_worker_start, action_type: run_commands",
            "incomplete-action `run_commands` has no commands",
        ),
        (
            "trigger_type: on_worker_start, action_type: schedule_nodes",
            "incomplete-action `schedule_nodes` has no scheduler",
        ),
        // Unreadable values are not reported as missing too.
        (
            "trigger_type: on_worker_start, action_type: run_commands, commands: x",
            "wrong-type `commands` must be a list, not `x`",
        ),
        (
            "trigger_type: on_jobs, action_type: run_commands, commands: [x]",
            "unknown-value `trigger_type` cannot be `on_jobs`",
        ),
        (
            "trigger_type: on_worker_start, action_type: schedule_nodes, scheduler: s, num_allocations: 0",
            "out-of-range `num_allocations` is `0`",
        ),
    ] {
        check(&with(&format!("actions: [{{{action}}}]")), &[wanted]);
    }
    good(&with(
        "actions: [{trigger_type: on_worker_start, action_type: schedule_nodes, scheduler_type: local}]",
    ));
}

/// A spec with a handler that has this single rule.
fn with_rule(rule: &str) -> String {
    with(&format!("failure_handlers: [{{name: h, rules: [{{{rule}}}]}}]"))
}

#[test]
fn empty_and_contradictory_failure_rules_are_rejected() {
    for (rule, wanted, wanted_help) in [
        (
            "max_retries: 2",
            "empty-rule this rule matches no failure: it has no condition",
            "add `exit_codes`",
        ),
        (
            "on: [], match_all_exit_codes: false",
            "empty-rule this rule matches no failure: it has no condition",
            "",
        ),
        (
            "on: [oom]",
            "unknown-value an item of `on` cannot be `oom`",
            "it must be one of `out_of_memory`, `timeout`",
        ),
        ("on: [time_out]", "unknown-value an item of `on` cannot be `time_out`", "did you mean `timeout`?"),
        ("on: timeout", "wrong-type `on` must be a list, not `timeout`", ""),
        (
            "classes: [transcient]",
            "unknown-value an item of `classes` cannot be `transcient`",
            "did you mean `transient`?",
        ),
        (
            "signals: [SIGKIL]",
            "bad-signal an item of `signals`: `SIGKIL` is not a signal",
            "did you mean `SIGKILL`?",
        ),
        ("signals: [64]", "bad-signal an item of `signals`: `64` is not a signal", ""),
        (
            "stderr: ['re:(']",
            "bad-regex an item of `stderr`: `re:(` is not a regular expression: unclosed group",
            "remove the `re:`",
        ),
        (
            "stderr: ['re:']",
            "bad-regex an item of `stderr`: `re:` is not a regular expression: it is empty",
            "after `re:`",
        ),
        ("stderr: ['']", "empty an item of `stderr` is empty", ""),
        ("on: [timeout], backoff: 2", "incomplete-rule `backoff` needs a `delay`", "`delay: 10s`"),
        ("on: [timeout], jitter: 0.5", "incomplete-rule `jitter` needs a `delay`", ""),
        ("on: [timeout], max_delay: 1m", "incomplete-rule `max_delay` needs a `delay`", ""),
        (
            "on: [timeout], delay: 10s, backoff: 0.5",
            "out-of-range `backoff` is `0.5`",
            "it must be from 1 to 1000",
        ),
        ("on: [timeout], delay: 10s, jitter: 2", "out-of-range `jitter` is `2`", "it must be from 0 to 1"),
        (
            "on: [timeout], delay: 10m, max_delay: 1m",
            "contradiction `max_delay` is PT1M, but the first delay is already PT10M",
            "raise `max_delay`",
        ),
        ("on: [timeout], delay: 0", "bad-amount `delay` must be greater than 0", ""),
        (
            "on: [out_of_memory], memory: x0.5",
            "bad-amount `memory`: `x0.5` does not increase the amount; a factor must be larger than 1, as in x1.5",
            "",
        ),
        (
            "on: [out_of_memory], memory: 8g",
            "bad-amount `memory`: invalid growth `8g`; write for example x1.5, +30% or +2g",
            "",
        ),
        (
            "on: [timeout], runtime: '+2x'",
            "bad-amount `runtime`: invalid growth `+2x`; write for example x1.5, +30% or +PT10M",
            "",
        ),
        ("on: [timeout], cpus: '+0'", "bad-amount `cpus`: `+0` does not increase the amount", ""),
        ("on: [timeout], max_retries: -1", "out-of-range `max_retries` is `-1`", ""),
        ("on: [timeout], retries: 3", "unknown-field unknown field `retries`", "did you mean `max_retries`?"),
    ] {
        let text = with_rule(rule);
        check(&text, &[wanted]);
        assert!(help(&text).contains(wanted_help), "{rule}: {}", help(&text));
    }
    check(
        &with("retry_budget: lots"),
        &[
            "bad-amount `retry_budget`: invalid retry budget `lots`; write a number of retries, for example 100, or a share \
           of the jobs: \"20%\"",
        ],
    );
}

/// Problems point at the field, not at the whole handler.
#[test]
fn rule_problems_point_at_the_field() {
    let text = "\
name: w
jobs: [{name: a, command: b}]
failure_handlers:
  - name: h
    rules:
      - exit_codes: [1]
      - max_retries: 2
      - stderr:
          - fine
          - \"re:[\"
";
    let diagnostics = crate::parse_spec("sim.yaml", text.as_bytes()).expect_err("has errors");
    let places: Vec<_> =
        diagnostics.reports().into_iter().map(|report| (report.code, report.line, report.column)).collect();
    assert_eq!(places, [("empty-rule", Some(7), Some(9)), ("bad-regex", Some(10), Some(13))]);
}

#[test]
fn ineffective_failure_rules_are_warned_about() {
    for (rule, wanted) in [
        ("on: [timeout], max_retries: 0", "no-retry `max_retries` counts attempts, including the first one"),
        (
            "on: [timeout], max_retries: 1, delay: 10s",
            "useless-field `delay` has no effect: `max_retries: 1` allows no second attempt",
        ),
        (
            "on: [timeout], max_memory: 4g",
            "useless-field `max_memory` has no effect: this rule has no `memory`",
        ),
        (
            "on: [timeout], recovery_timeout: 1m",
            "useless-field `recovery_timeout` has no effect: this rule has no `recovery_script`",
        ),
        (
            "match_all_exit_codes: true}, {on: [timeout]}, {match_all_exit_codes: true",
            "useless-rule rule 3 of `h` is never used: rule 1 also matches every failure",
        ),
    ] {
        assert_eq!(warnings(&with_rule(rule)), [wanted], "{rule}");
    }
    for fine in [
        "exit_codes: [2], max_retries: 1",
        "on: [out_of_memory], memory: x1.5, max_memory: 64g",
        "match_all_exit_codes: true}, {match_all_exit_codes: true, exit_codes: [1]",
        "classes: [transient], delay: 10s, backoff: 2, max_delay: 10m, jitter: 0.2, max_retries: 10",
    ] {
        assert!(warnings(&with_rule(fine)).is_empty(), "{fine}");
    }
}

#[test]
fn srun_mpi_without_a_worker_per_node_is_warned_about() {
    let config = "execution_config: {mode: slurm, srun_mpi: none}";
    check(&with(config), &["useless-field `srun_mpi` has no effect: no action starts one worker per node"]);
    good(&with(&format!(
        "{config}\nactions: [{{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, \
         start_one_worker_per_node: true}}]"
    )));
}

#[test]
fn exclusive_fields_are_rejected() {
    check(
        "name: w\njobs: [{name: a, command: b, labels: [x], scheduler: s}]\n",
        &["exclusive-fields a job has either `labels` or a `scheduler`, not both"],
    );
    check(
        &with("stdio: {mode: none}\nexecution_config: {stdio: {mode: none}}"),
        &["exclusive-fields `stdio` is set both for the workflow and in `execution_config`"],
    );
    check(
        &with("resource_requirements: [{name: r, num_cpus: 1, cpus: 1, memory: 1g}]"),
        &["duplicate-field field `cpus` is given twice"],
    );
}

#[test]
fn invalid_variable_does_not_make_its_uses_unknown() {
    let text = with("variables: {gb: [4]}\nresource_requirements: [{name: r, cpus: 1, memory: '{gb}g'}]");
    check(&text, &["wrong-type variable `gb` must be a string, not a list"]);
}

#[test]
fn mistake_repeated_by_an_alias_is_reported_once() {
    let text = with(
        "\
slurm_schedulers:
- &s {name: s, account: a, nodes: 0}
- *s
execution_config: {mode: direct, stdio: {mode: x}}",
    );
    check(&text, &["out-of-range `nodes` is `0`", "unknown-value `mode` cannot be `x`"]);
}

#[test]
fn truncated_section_is_checked_up_to_its_end() {
    check(
        "name: w\nresource_requirements:\n- {name: r, cpus: 0, memory: 1g}\n- {name: s, memory: \"",
        &["out-of-range `cpus` is `0`", "syntax this quote is never closed"],
    );
}

/// `code message` of the warnings about a valid spec.
fn warnings(text: &str) -> Vec<String> {
    let decoded = crate::decode::decode_spec(text, crate::yaml::YamlReader::new(text));
    assert!(decoded.sink.is_empty(), "{text}");
    let warnings = decoded.warnings.into_diagnostics("sim.yaml", text).list;
    warnings.iter().map(|warning| format!("{} {}", warning.code, warning.message)).collect()
}

#[test]
fn unsupported_fields_are_warned_about_if_enabled() {
    let crate_text = "name: s\nenable_ro_crate: true\njobs: [{name: a, command: b}]";
    assert_eq!(
        warnings(crate_text),
        ["useless-field `enable_ro_crate` has no effect: this version writes no RO-Crate"]
    );
    let staggered = "name: s\nexecution_config: {staggered_start: true}\njobs: [{name: a, command: b}]";
    assert_eq!(
        warnings(staggered),
        ["useless-field `staggered_start` has no effect: workers start as soon as possible"]
    );
    let abrupt = "name: s\njobs: [{name: a, command: b, supports_termination: false}]";
    assert!(
        warnings(abrupt)[0].contains("`supports_termination: false` has no effect"),
        "{:?}",
        warnings(abrupt)
    );
    for fine in [
        "name: s\nenable_ro_crate: false\njobs: [{name: a, command: b, supports_termination: true}]",
        "name: s\nexecution_config: {staggered_start: false}\njobs: [{name: a, command: b}]",
    ] {
        assert!(warnings(fine).is_empty(), "{fine}");
    }
}

#[test]
fn ineffective_settings_are_warned_about() {
    for (text, wanted) in [
        ("failure_handlers: [{name: h, rules: []}]", "useless-rule `h` has no rules"),
        (
            "actions: [{trigger_type: on_worker_start, action_type: run_commands, commands: [x], jobs: [a]}]",
            "useless-field `jobs` has no effect: it belongs to another trigger of action",
        ),
        (
            "actions: [{trigger_type: on_worker_start, action_type: run_commands, commands: [x], num_allocations: 1}]",
            "useless-field `num_allocations` has no effect: it belongs to another type of action",
        ),
        (
            "actions: [{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s, commands: [x]}]",
            "useless-field `commands` has no effect: it belongs to another type of action",
        ),
        (
            "actions: [{trigger_type: on_worker_start, action_type: schedule_nodes, scheduler: s}]",
            "useless-field `schedule_nodes` has no effect with this trigger: workers do not request allocations",
        ),
    ] {
        assert_eq!(warnings(&with(text)), [wanted], "{text}");
    }
    assert!(warnings(include_str!("../../../tests/torc/two_phase_cluster.yaml")).is_empty());
    assert!(warnings(include_str!("../../../tests/torc/shaky_solver.yaml")).is_empty());
}

#[test]
fn wrong_field_is_located_in_ten_thousand_lines() {
    let mut text = String::from("name: w\njobs:\n");
    text.extend((0..2500).map(|job| {
        let field = if job == 2000 { "priorty" } else { "priority" };
        format!("  - name: job{job}\n    command: echo {job}\n    env: {{N: {job}}}\n    {field}: 1\n")
    }));
    let diagnostics = crate::parse_spec("sim.yaml", text.as_bytes()).expect_err("has a wrong field");
    let [report] = diagnostics.reports().try_into().expect("is the only problem");
    assert_eq!((report.line, report.column), (Some(2 + 2000 * 4 + 4), Some(5)));
    assert_eq!(report.message, "unknown field `priorty`");
    assert_eq!(report.help.as_deref(), Some("did you mean `priority`?"));
}

//! Tests of error messages, word for word.

use windlass_spec::{
    DiagnosticReport, DiagnosticStyle, NoAttachments, SpecDiagnostics, SpecSource, load_spec,
};

fn problems(text: &str) -> SpecDiagnostics {
    load_spec(SpecSource::new("sim.yaml", text.as_bytes()), &NoAttachments).expect_err(text)
}

/// Compares the rendered problems of `text`.
#[track_caller]
fn check(text: &str, expected: &str) {
    let rendered = problems(text).render(DiagnosticStyle::Plain);
    assert_eq!(rendered.trim_end(), expected.trim_matches('\n'), "\n{rendered}");
}

/// Returns `code message` of all problems, for tables where the rendered form adds nothing.
fn lines(text: &str) -> Vec<String> {
    let reports = problems(text).reports();
    reports.iter().map(|report| format!("{} {}", report.code, report.message)).collect()
}

fn workflow(jobs: &str) -> String {
    format!("name: w\njobs:\n{jobs}")
}

#[test]
fn unknown_field_gets_a_suggestion() {
    check(
        "name: sim\njobs:\n  - name: a\n    comand: echo hi\n",
        "
error[unknown-field]: unknown field `comand`
 --> sim.yaml:4:5
  |
4 |     comand: echo hi
  |     ^^^^^^ did you mean `command`?",
    );
}

#[test]
fn unknown_field_without_suggestion_lists_valid_fields() {
    check(
        "name: sim\nstdio: {colour: blue}\njobs: [{name: a, command: b}]\n",
        "
error[unknown-field]: unknown field `colour`
 --> sim.yaml:2:9
  |
2 | stdio: {colour: blue}
  |         ^^^^^^
  |
  = help: the fields of a stdio section are `mode`, `delete_on_success`",
    );
}

#[test]
fn all_problems_are_reported_in_file_order() {
    let text = "\
jobs:
  - name: prepare
    command: [not, a, string]
    priority: high
  - name: work
    depends_on: [prepar]
    resource_requirements: smal
    colour: {deep: [in, {side: 1}]}
  - name: work
    command: 'x'
resource_requirements:
  - {name: small, num_cpus: 0, memory: 4x}
";
    let reports = problems(text).reports();
    let found: Vec<_> =
        reports.iter().map(|r| (r.line, r.column, r.code, r.help.as_deref().unwrap_or(""))).collect();
    assert_eq!(
        found,
        [
            (Some(1), Some(1), "missing-field", ""),
            (Some(3), Some(14), "wrong-type", ""),
            (Some(4), Some(15), "wrong-type", ""),
            (Some(5), Some(5), "missing-field", ""),
            (Some(6), Some(18), "unknown-job", "did you mean `prepare`?"),
            (Some(7), Some(28), "unknown-requirement", "did you mean `small`?"),
            (
                Some(8),
                Some(5),
                "unknown-field",
                "the fields of a job are `name`, `description`, `command`, `invocation_script`, `depends_on`, `depends_on_regexes`, \
                 `input_files`, `input_file_regexes`, `output_files`, `output_file_regexes`, `input_user_data`, \
                 `input_user_data_regexes`, `output_user_data`, `output_user_data_regexes`, `env`, \
                 `resource_requirements`, `priority`, `cancel_on_blocking_job_failure`, `supports_termination`, \
                 `failure_handler`, `scheduler`, `labels`, `sites`, `limit`, `stdio`, `parameters`, `parameter_mode`, \
                 `use_parameters`, `parameters_file`, `use_parameters_file`"
            ),
            (Some(9), Some(11), "duplicate-name", ""),
            (Some(12), Some(29), "out-of-range", "it must be from 1 to 1000000"),
            (Some(12), Some(40), "bad-amount", ""),
        ]
    );
}

#[test]
fn invalid_limits_and_sites_are_rejected() {
    let text = "\
name: w
limits: {licence: 0, disk: 2}
jobs:
  - {name: a, command: x, limit: license}
  - {name: 'b{i}', command: x, limit: 'disk{i}', sites: [north, 'lab {i}'], parameters: {i: ['', 3]}}
  - {name: c, command: x, limit: licence, sites: [Zürich]}
";
    let rule = "up to 100 letters, digits, `_`, `-` and `.` are allowed, as in T2_CH_CERN";
    let bad_site = |name: &str| format!("bad-site invalid site name `{name}`: {rule}");
    let helps: Vec<_> = problems(text).reports().into_iter().map(|report| report.help).collect();
    assert_eq!(helps[1].as_deref(), Some("did you mean `licence`?"));
    assert_eq!(
        lines(text),
        [
            "out-of-range limit `licence` is 0: jobs that use it could never start",
            "unknown-limit no limit is named `license`",
            "unknown-limit no limit is named `disk3` with i=3",
            &bad_site("lab "),
            &bad_site("lab 3"),
            &bad_site("Zürich"),
        ]
    );
}

#[test]
fn duplicate_shows_both_places() {
    check(
        "name: w\njobs:\n- {name: a, command: x}\n- {name: b, command: x}\n- {name: a, command: x}\n",
        "
error[duplicate-name]: two jobs are named `a`
 --> sim.yaml:5:10
  |
3 | - {name: a, command: x}
  |          - first here
...
5 | - {name: a, command: x}
  |          ^ again here",
    );
    check(
        "name: w\nname: v\njobs:\n- {name: a, command: x}\n",
        "
error[duplicate-field]: field `name` is given twice
 --> sim.yaml:2:1
  |
1 | name: w
  | ---- first here
2 | name: v
  | ^^^^",
    );
}

#[test]
fn cycle_is_shown_as_a_path() {
    check(
        &workflow(
            "- {name: a, command: x, depends_on: [b]}\n- {name: b, command: x, depends_on: [c]}\n\
             - {name: c, command: x, depends_on: [d, a]}\n- {name: d, command: x}\n",
        ),
        "
error[cycle]: jobs depend on each other in a cycle: a -> b -> c -> a
 --> sim.yaml:5:41
  |
3 | - {name: a, command: x, depends_on: [b]}
  |                                      - `a` waits for `b`
4 | - {name: b, command: x, depends_on: [c]}
  |                                      - `b` waits for `c`
5 | - {name: c, command: x, depends_on: [d, a]}
  |                                         ^ `c` waits for `a`",
    );
    let mut long = String::new();
    long.extend(
        (0..100).map(|job| format!("- {{name: j{job}, command: x, depends_on: [j{}]}}\n", (job + 1) % 100)),
    );
    assert_eq!(
        lines(&workflow(&long)),
        [
            "cycle jobs depend on each other in a cycle: j0 -> j1 -> j2 -> j3 -> j4 -> j5 -> (93 more) -> j99 -> j0"
        ]
    );
}

#[test]
fn cycles_through_shared_lists_are_reported() {
    // b waits for the list that contains c, c waits for a, a waits for the same list.
    let through_list = "- {name: a, command: x, depends_on: &l [c, d]}\n- {name: b, command: x, depends_on: *l}\n\
                        - {name: c, command: x, depends_on: [e]}\n- {name: d, command: x}\n\
                        - {name: e, command: x, depends_on: *l}\n";
    assert_eq!(lines(&workflow(through_list)), ["cycle jobs depend on each other in a cycle: c -> e -> c"]);
    let itself = "- {name: a, command: x, depends_on: &l [b]}\n- {name: b, command: x, depends_on: *l}\n";
    assert_eq!(lines(&workflow(itself)), ["self-dependency job `b` depends on itself"]);
    assert_eq!(
        lines(&workflow("- {name: a, command: x, depends_on: [a]}\n")),
        ["self-dependency job `a` depends on itself"]
    );
}

#[test]
fn values_of_the_wrong_type_are_rejected() {
    for (field, problem) in [
        ("priority: high", "wrong-type `priority` must be an integer, not `high`"),
        ("priority: 1.5", "wrong-type `priority` must be an integer, not `1.5`"),
        ("priority: '5'", "wrong-type `priority` must be an integer, not the string `5`"),
        ("priority: 010", "wrong-type `priority` must be an integer, not `010`"),
        ("priority: 0x10", "wrong-type `priority` must be an integer, not `0x10`"),
        ("priority: [1]", "wrong-type `priority` must be an integer, not a list"),
        ("priority: -1", "out-of-range `priority` is `-1`"),
        ("priority: 2147483648", "out-of-range `priority` is `2147483648`"),
        ("priority: 99999999999999999999999999", "out-of-range `priority` is `99999999999999999999999999`"),
        (
            "cancel_on_blocking_job_failure: yes",
            "wrong-type `cancel_on_blocking_job_failure` must be `true` or `false`, not `yes`",
        ),
        (
            "cancel_on_blocking_job_failure: 'true'",
            "wrong-type `cancel_on_blocking_job_failure` must be `true` or `false`, not the string `true`",
        ),
        ("depends_on: b", "wrong-type `depends_on` must be a list, not `b`"),
        ("depends_on: {b: c}", "wrong-type `depends_on` must be a list, not a map"),
        ("depends_on: [~]", "no-value an item of `depends_on` has no value"),
        ("depends_on: [[b]]", "wrong-type an item of `depends_on` must be a string, not a list"),
        (
            "resource_requirements: {num_cpus: 1}",
            "wrong-type `resource_requirements` must be a string, not a map",
        ),
        ("env: [A, B]", "wrong-type `env` must be a map, not a list"),
        ("env: {A: [1]}", "wrong-type variable `A` must be a string, not a list"),
        ("env: {A: }", "no-value variable `A` has no value"),
        ("env: {A: null}", "no-value variable `A` has no value"),
        ("env: {A: 1, A: 2}", "duplicate-field variable `A` is given twice"),
        ("env: {A-B: 1}", "variable-name `A-B` cannot be the name of an environment variable"),
        ("env: {1A: 1}", "variable-name `1A` cannot be the name of an environment variable"),
        ("env: {'': 1}", "variable-name `` cannot be the name of an environment variable"),
        ("env: {WINDLASS_WORKER: x}", "reserved-name variable `WINDLASS_WORKER` is set by Windlass"),
        (r#"env: {A: "x\0y"}"#, "nul-byte variable `A` contains a NUL byte"),
        (r#"env: {A=: "x\0y"}"#, "nul-byte variable `A=` contains a NUL byte"),
    ] {
        let found =
            lines(&workflow(&format!("- name: a\n  command: x\n  {field}\n- name: b\n  command: x\n")));
        assert!(found.contains(&problem.to_owned()), "{field}: {found:?}");
    }
}

#[test]
fn invalid_jobs_and_requirements_are_rejected() {
    for (text, problem) in [
        ("name: w\njobs: []\n", "no-jobs the workflow has no jobs"),
        ("name: w\njobs:\n", "no-value `jobs` has no value"),
        ("name: w\njobs: {a: b}\n", "wrong-type `jobs` must be a list, not a map"),
        ("name: w\njobs: [a]\n", "wrong-type a job must be a map, not `a`"),
        ("name: w\njobs:\n-\n", "no-value a job has no value"),
        ("name: w\njobs: [{name: ' ', command: x}]\n", "empty `name` is empty"),
        ("name: w\njobs: [{name: a, command: ''}]\n", "empty `command` is empty"),
        ("name: w\njobs: [{name: a, command: ~}]\n", "no-value `command` has no value"),
        ("name: w\njobs: [{name: a, command: \"a\\0\"}]\n", "nul-byte `command` contains a NUL byte"),
        ("name: w\njobs: [{name: \"a\\0\", command: b}]\n", "nul-byte `name` contains a NUL byte"),
        ("name: w\njobs: [{}]\n", "missing-field missing field `command`"),
        ("jobs: [{name: a, command: b}]\n", "missing-field missing field `name`"),
        ("name: w\n", "missing-field missing field `jobs`"),
        (
            "name: w\nresource_requirements: [{name: r, num_cpus: 1}]\n",
            "missing-field missing field `memory`",
        ),
        ("name: w\nresource_requirements: [{num_nodes: 0}]\n", "out-of-range `num_nodes` is `0`"),
        ("name: w\nresource_requirements: [{memory: 0g}]\n", "bad-amount `memory` must be greater than 0"),
        (
            "name: w\nresource_requirements: [{runtime: PT0S}]\n",
            "bad-amount `runtime` must be greater than 0",
        ),
        ("name: w\nstdio: {mode: seperate}\n", "unknown-value `mode` cannot be `seperate`"),
        ("- name: w\n", "wrong-type a workflow must be a map"),
        ("hello\n", "wrong-type a workflow must be a map"),
        ("", "empty-file the file is empty"),
        ("# only a remark\n", "empty-file the file is empty"),
        ("---\n", "empty-file the file is empty"),
        ("~\n", "empty-file the file is empty"),
        (
            "name: w\njobs: [{name: a, command: b}]\n---\nname: v\n",
            "several-documents the file contains more than one document",
        ),
    ] {
        let found = lines(text);
        assert!(found.contains(&problem.to_owned()), "{text}: {found:?}");
    }
}

#[test]
fn unreadable_name_does_not_make_references_unknown() {
    let text = workflow("- {name: [a], command: x}\n- {name: b, command: x, depends_on: [a]}\n");
    assert_eq!(lines(&text), ["wrong-type `name` must be a string, not a list"]);
}

#[test]
fn truncated_file_is_not_checked_beyond_its_end() {
    let text = workflow("- {name: a, comand: x, depends_on: [b]}\n- {name: b");
    assert_eq!(lines(&text), ["unknown-field unknown field `comand`", "syntax `{` is never closed"]);
}

#[test]
fn syntax_errors_have_help() {
    for (text, code, help) in [
        ("name: a: b\n", "syntax", Some("quote texts that contain `: `")),
        ("name: @a\n", "syntax", Some("put the whole value in quotes")),
        ("name: 'a' b\n", "syntax", Some("put the whole value in quotes")),
        ("name: \"a\n", "syntax", None),
        ("jobs: [\n", "syntax", None),
        ("name: a\u{7}b\n", "syntax", Some("write it as an escape in double quotes")),
        ("name: a\n\tjobs: b\n", "syntax", Some("indent with spaces")),
        ("name: a\njobs\n", "syntax", Some("is a `:` missing, or a space after it?")),
        ("name: \"\\q\"\n", "syntax", Some("write `\\\\` for a backslash, or use single quotes")),
        (
            "name: *a\njobs: [{name: a, command: b}]\n",
            "unknown-alias",
            Some("put the value in quotes if it begins with `*`"),
        ),
        (
            "name: !a b\njobs: [{name: a, command: b}]\n",
            "unknown-tag",
            Some("put the value in quotes if it begins with `!`"),
        ),
    ] {
        let reports = problems(text).reports();
        let [DiagnosticReport { code: found, help: found_help, line: Some(_), .. }] = reports.as_slice()
        else {
            panic!("{text}: {reports:?}");
        };
        assert_eq!((*found, found_help.as_deref()), (code, help), "{text}");
    }
}

#[test]
fn listed_problems_are_limited_and_the_rest_is_counted() {
    let mut jobs = String::new();
    jobs.extend((0..70).map(|job| format!("- {{name: j{job}, command: x, prio: 1}}\n")));
    let diagnostics = problems(&workflow(&jobs));
    assert_eq!((diagnostics.list.len(), diagnostics.omitted, diagnostics.count()), (50, 20, 70));
    assert!(diagnostics.to_string().ends_with("… and 20 more"));
}

#[test]
fn markers_align_after_tabs_and_wide_characters() {
    check(
        "name: w\njobs:\n  - {command: \"日本\t\", nme: ü}\n",
        "
error[unknown-field]: unknown field `nme`
 --> sim.yaml:3:22
  |
3 |   - {command: \"日本    \", nme: ü}
  |                           ^^^ did you mean `name`?",
    );
}

#[test]
fn control_characters_are_not_printed() {
    let text = "name: w\njobs: [{name: \"a\u{202e}b\", \"x\\a\\x9b\": 1, command: c}]\n";
    let rendered = problems(text).render(DiagnosticStyle::Plain);
    assert!(rendered.contains("unknown field `x\u{fffd}\u{fffd}`"), "{rendered}");
    assert!(!rendered.contains(['\u{202e}', '\u{7}', '\u{9b}']), "{rendered}");
}

#[test]
fn long_lines_are_cut_around_the_place() {
    let text = format!("name: w\njobs: [{{name: {}, comand: {}}}]\n", "a".repeat(300), "ü".repeat(300));
    check(
        &text,
        &format!(
            "
error[unknown-field]: unknown field `comand`
 --> sim.yaml:2:317
  |
2 | …{}, comand: {}…
  |  {}^^^^^^ did you mean `command`?",
            "a".repeat(48),
            "ü".repeat(42),
            " ".repeat(50)
        ),
    );
}

#[test]
fn two_places_far_apart_in_one_line_are_both_shown() {
    let filler = "x".repeat(400);
    let text = format!("name: w\njobs: [{{name: same, command: {filler}}}, {{name: same, command: c}}]\n");
    let rendered = problems(&text).render(DiagnosticStyle::Plain);
    assert!(rendered.contains("---- first here"), "{rendered}");
    assert!(rendered.contains("^^^^ again here"), "{rendered}");
}

#[test]
fn windows_line_endings_and_byte_order_mark_are_accepted() {
    check(
        "\u{feff}nmae: w\r\njobs: [{name: a, command: b}]\r\n",
        "
error[unknown-field]: unknown field `nmae`
 --> sim.yaml:1:1
  |
1 | nmae: w
  | ^^^^ did you mean `name`?",
    );
}

#[test]
fn bytes_that_are_not_text_are_located() {
    for (bytes, code, place) in [
        (&b"name: \xff\njobs: []\n"[..], "not-utf8", Some((1, 7))),
        (b"name: a\n\xc3", "not-utf8", Some((2, 1))),
        (b"\xff\xfen\0a\0", "not-utf8", None),
        (b"name: a\0b\n", "nul-byte", Some((1, 8))),
    ] {
        let diagnostics =
            load_spec(SpecSource::new("sim.yaml", bytes), &NoAttachments).expect_err("is no text");
        let report = &diagnostics.reports()[0];
        assert_eq!((report.code, report.line.zip(report.column)), (code, place));
        assert!(diagnostics.to_string().starts_with(&format!("error[{code}]")));
    }
}

#[test]
fn colored_output_adds_only_colors() {
    let diagnostics = problems("name: w\njobs: [{name: a, command: b, depends_on: [aa]}]\n");
    let coloured = diagnostics.render(DiagnosticStyle::Ansi);
    assert!(coloured.starts_with("\u{1b}[1;31merror[unknown-job]\u{1b}[0m"), "{coloured}");
    let mut plain = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, text)| text);
    }
    plain.push_str(rest);
    let trim = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(trim(&plain), trim(&diagnostics.render(DiagnosticStyle::Plain)));
}

#[test]
fn control_characters_in_names_are_rejected() {
    let text = "name: \"w\\e\"\njobs:\n- {name: \"a\\tb\", command: \"x\\ty\"}\n- {name: c, command: x, depends_on: [\"a\\tb\"]}\n";
    let problem = "control-character `name` contains a control character";
    assert_eq!(lines(text), [problem, problem]);
    let reports = problems(text).reports();
    assert_eq!(reports.iter().map(|report| report.line).collect::<Vec<_>>(), [Some(1), Some(3)]);
}

#[test]
fn reserved_variable_name_has_help() {
    check(
        "name: sim\nenv: {WINDLASS_JOB_NAME: x}\njobs: [{name: a, command: b}]\n",
        "
error[reserved-name]: variable `WINDLASS_JOB_NAME` is set by Windlass
 --> sim.yaml:2:7
  |
2 | env: {WINDLASS_JOB_NAME: x}
  |       ^^^^^^^^^^^^^^^^^
  |
  = help: choose a name that does not begin with `WINDLASS_`",
    );
}

#[test]
fn ineffective_torc_settings_are_accepted_with_a_warning() {
    let warnings = |top: &str| {
        let text = format!("name: w\n{top}\njobs: [{{name: a, command: b}}]\n");
        let workflow = load_spec(SpecSource::new("w.yaml", text.as_bytes()), &NoAttachments).unwrap();
        workflow.warning_diagnostics().reports().into_iter().map(|report| report.message).collect::<Vec<_>>()
    };
    assert_eq!(warnings("env: {TORC_EXAMPLE_DATA_ROOT: /data, TORC_API_URL: u}"), [""; 0]);
    assert_eq!(
        warnings("env: {TORC_JOB_ID: 7}"),
        ["variable `TORC_JOB_ID` is set by Windlass; this value is ignored"]
    );
    assert_eq!(
        warnings("resource_monitor: {enabled: true, metrics: [cpu_percent]}"),
        ["`metrics` has no effect: CPU and memory are always measured"]
    );
    assert_eq!(warnings("execution_config: {mode: slurm, limit_resources: true}"), [""; 0]);
}

#[test]
fn invalid_variable_and_parameter_names_are_reported_once() {
    assert_eq!(
        lines(
            "name: w\nvariables: {a-b: 1}\njobs: [{name: 'a{i}', command: x, parameters: {i: 1, 2x: 1}}]\n"
        ),
        [
            "parameter-name `a-b` cannot be the name of a variable",
            "parameter-name `2x` cannot be the name of a parameter",
        ]
    );
}

#[test]
fn warning_is_rendered_like_an_error_but_labeled() {
    let text = "name: w\njobs:\n- {name: 'a_{i}', command: 'run {i:x}', parameters: {i: '1:2'}}\n";
    let workflow = load_spec(SpecSource::new("sim.yaml", text.as_bytes()), &NoAttachments).expect(text);
    let warnings = workflow.warning_diagnostics();
    assert_eq!(
        warnings.render(DiagnosticStyle::Plain).trim_end(),
        "\
warning[unknown-format]: unknown format `:x`; the value of `i` is inserted without it
 --> sim.yaml:3:33
  |
3 | - {name: 'a_{i}', command: 'run {i:x}', parameters: {i: '1:2'}}
  |                                 ^^^^^
  |
  = help: formats are `:03d` (leading zeros), `:.4f` (decimal places) and `:q` (shell quoting)"
    );
    assert!(warnings.render(DiagnosticStyle::Ansi).starts_with("\x1b[1;33mwarning[unknown-format]\x1b[0m"));
    let report = serde_json::to_value(&warnings.reports()[0]).expect("plain data");
    assert_eq!((&report["severity"], &report["line"]), (&"warning".into(), &3.into()));
    let errors = serde_json::to_value(problems("name: w\n").reports()).expect("plain data");
    assert_eq!(errors[0]["severity"], "error");
}

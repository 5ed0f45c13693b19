//! Tests of common mistakes in first specs, and of the hint for each.

use std::io;
use windlass_spec::{ResolvedWorkflow, SpecAttachments, SpecDiagnostics, SpecSource, load_spec};

/// The content of every file beside the spec.
struct SingleText(&'static str);

impl SpecAttachments for SingleText {
    fn read_file(&self, _: &str) -> io::Result<Vec<u8>> {
        Ok(self.0.as_bytes().to_vec())
    }
}

fn read(text: &str) -> Result<ResolvedWorkflow<'_>, SpecDiagnostics> {
    load_spec(SpecSource::new("sim.yaml", text.as_bytes()), &SingleText(""))
}

fn told(diagnostics: &SpecDiagnostics) -> Vec<String> {
    let reports = diagnostics.reports();
    let place = |number: Option<usize>| number.map_or_else(String::new, |number| number.to_string());
    let line = reports.iter().map(|report| {
        let (line, column) = (place(report.line), place(report.column));
        let help = report.help.as_deref().map_or_else(String::new, |help| format!(" | {help}"));
        format!("{line}:{column} {}{help}", report.message)
    });
    line.collect()
}

/// Returns location, message and help of all errors.
fn errors(text: &str) -> Vec<String> {
    told(&read(text).expect_err(text))
}

/// Returns location, message and help of all warnings.
fn warnings(text: &str) -> Vec<String> {
    let workflow = read(text).unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let list = workflow.warnings().to_vec();
    told(&SpecDiagnostics { source_name: String::new(), source_text: text.to_owned(), list, omitted: 0 })
}

fn spec(jobs: &str) -> String {
    format!("name: w\njobs:\n{jobs}")
}

#[test]
fn unknown_names_are_reported_beside_unexpandable_entries() {
    let text = spec(
        "- {name: 'solve_{i}', command: x, parameters: {i: [[1]]}, depends_on: [prepar]}\n\
         - {name: prepare, command: x}\n\
         - {name: end, command: x, depends_on: [solve_1, sovle_1], depends_on_regexes: ['^solve', '^sovle']}\n\
         - {name: 'check_{nothing}', command: x}\n\
         - {name: report, command: x, depends_on: [check_1, chekc_1]}\n",
    );
    assert_eq!(
        errors(&text),
        [
            "3:52 parameter `i` must be a list of plain values, not a list",
            "3:72 no job is named `prepar` | did you mean `prepare`?",
            "5:49 no job is named `sovle_1`",
            "5:90 the regular expression `^sovle` matches no job",
            "7:43 no job is named `check_1`",
            "7:52 no job is named `chekc_1`",
        ]
    );
}

#[test]
fn job_without_a_name_hides_unknown_dependencies() {
    let text = spec("- {command: x}\n- {name: b, command: x, depends_on: [a], depends_on_regexes: ['^a']}\n");
    assert_eq!(errors(&text), ["3:4 missing field `name`"]);
}

#[test]
fn unquoted_braces_are_reported_with_the_quoted_form() {
    let text = spec(
        "- name: {i}\n  command: {i:03d}\n  parameters: {i: {1:3}}\n\
         - {name: b, command: x, depends_on: [c, '1']}\n\
         - {name: {a: 1}, command: {a, b}}\n",
    );
    assert_eq!(
        errors(&text),
        [
            "3:9 `name` must be a string, not a map | quote it: \"{i}\"",
            "4:12 `command` must be a string, not a map | quote it: \"{i:03d}\"",
            "5:19 parameter `i` must be a value or a list, not a map | quote it: \"{1:3}\"",
            "7:10 `name` must be a string, not a map",
            "7:27 `command` must be a string, not a map",
        ]
    );
    let help = "put the whole text in quotes: \"… {name} …\"";
    for (jobs, expected) in [
        ("- {name: x_{y}, command: x}\n", format!("3:12 expected `,` or `}}` | {help}")),
        ("- {name: a, command: x, depends_on: [x_{y}]}\n", format!("3:40 expected `,` or `]` | {help}")),
        ("- name: a\n  command: {y} b\n", format!("4:16 expected a key of the enclosing map | {help}")),
        ("- {name: a command: x}\n", "3:19 expected `,` or `}`".to_owned()),
    ] {
        assert_eq!(errors(&spec(jobs)).pop(), Some(expected), "{jobs}");
    }
}

#[test]
fn names_with_unquoted_braces_are_still_known() {
    let text = spec(
        "- {name: {i}, command: x, parameters: {i: '1:3'}}\n- {name: b, command: x, depends_on: ['2', '4']}\n",
    );
    assert_eq!(
        errors(&text),
        [
            "3:10 `name` must be a string, not a map | quote it: \"{i}\"",
            "4:43 no job is named `4` | did you mean `1`?",
        ]
    );
}

#[test]
fn resources_in_a_job_are_rejected_with_help() {
    let help = "it belongs in an entry of the workflow's `resource_requirements`; \
                refer to that entry from the job: `resource_requirements: NAME`";
    let text = spec("- {name: a, command: x, cpus: 2, memory: 4g, timeout: 1h}\n");
    assert_eq!(
        errors(&text),
        [
            format!("3:25 unknown field `cpus` | {help}"),
            format!("3:34 unknown field `memory` | {help}"),
            format!("3:46 unknown field `timeout` | {help}"),
        ]
    );
    let text = "name w\njob a {\n  command x\n  memory \"4g\"\n}\n";
    let problems = load_spec(SpecSource::new("sim.kdl", text.as_bytes()), &SingleText("")).expect_err(text);
    assert_eq!(told(&problems), [format!("4:3 unknown node `memory` | {help}")]);
}

#[test]
fn memory_without_a_unit_is_warned_about() {
    let text = |memory: &str| {
        let jobs = spec("- {name: a, command: x, resource_requirements: r}\n");
        format!("{jobs}resource_requirements:\n- {{name: r, num_cpus: 1, memory: {memory}}}\n")
    };
    assert_eq!(warnings(&text("100")), ["5:34 `memory` is only 100 B | did you mean `100m`?"]);
    assert_eq!(warnings(&text("512k")), ["5:34 `memory` is only 512 KiB | did you mean `512m`?"]);
    assert_eq!(warnings(&text("1m")), [""; 0]);
}

#[test]
fn duplicate_parameter_values_are_named() {
    for (name, parameters, told) in [
        ("a_{i}", "{i: [1, 1, 2]}", "`i` has the value 1 twice"),
        ("{i}_{j}", "{i: [3, 4], j: [x, y, x]}", "`j` has the value x twice"),
        (
            "{i}_{j}",
            "{i: [1, 2, 1], j: [5, 6, 5]}, parameter_mode: zip",
            "`i` has the value 1 twice, `j` has the value 5 twice",
        ),
        ("a_{i}", "{i: [1, 2], k: [1, 2]}", "the name must contain every parameter that has several values"),
    ] {
        let text = spec(&format!("- {{name: '{name}', command: x, parameters: {parameters}}}\n"));
        let found = errors(&text);
        assert!(found.len() == 1 && found[0].ends_with(&format!(" | {told}")), "{found:?}");
    }
}

#[test]
fn range_like_single_values_are_warned_about() {
    let text =
        |value: &str| spec(&format!("- {{name: 'a_{{i}}', command: x, parameters: {{i: {value}}}}}\n"));
    for value in ["1:", ":3", "1:2:3:4", "1..10", "0.5:"] {
        let told = format!(
            "3:47 parameter `i` has the single value `{value}`, which is not a range | write a range as `FIRST:LAST` or \
             `FIRST:LAST:STEP`, or a text as a list: `['{value}']`"
        );
        assert_eq!(warnings(&text(&format!("'{value}'"))), [told], "{value}");
    }
    for value in ["'1:3'", "['1:']", "'host:80'", "':'", "'a..b'", "1.5", "'..'"] {
        assert_eq!(warnings(&text(value)), [""; 0], "{value}");
    }
}

#[test]
fn unclosed_quotes_are_located() {
    for (jobs, place) in [
        ("- name: a\n  command: \"echo it's\n- name: b\n  command: x\n", "4:12"),
        ("- name: a\n  command: x\n- name: 'b\n  command: \"x\"\n", "5:9"),
    ] {
        let expected = format!(
            "{place} this quote is not closed before the next entry | close it, or indent the lines that belong to the text"
        );
        assert_eq!(errors(&spec(jobs)), [expected], "{jobs}");
    }
    assert_eq!(errors(&spec("- name: a\n  command: 'x\n")), ["4:12 this quote is never closed"]);
}

#[test]
fn first_of_several_tabs_is_located() {
    for (jobs, place) in [
        ("\t- name: a\n\t  command: x\n", "3:1"),
        ("  - name: a\n\tcommand: x\n", "4:1"),
        ("  - command: |\n      x\n      \ty\n    name: a\n  \t- name: b\n", "7:3"),
    ] {
        let expected = format!("{place} a tab where only spaces are allowed | indent with spaces");
        assert_eq!(errors(&spec(jobs)), [expected], "{jobs}");
    }
}

#[test]
fn tables_with_other_separators_are_rejected() {
    let text = spec("- {name: 'a_{x}', command: x, parameters_file: t.csv}\n");
    for (table, header) in [("x;y\n1;2\n", "x;y"), ("x\ty\n1\t2\n", "x y")] {
        let problems =
            load_spec(SpecSource::new("sim.yaml", text.as_bytes()), &SingleText(table)).expect_err(table);
        let why = format!("columns are separated by commas, but its header has only one: `{header}`");
        assert_eq!(told(&problems), [format!("3:48 the table `t.csv` cannot be used: {why}")]);
    }
}

//! Tests of expansion and resolution: names, numbers, commands, edges, and the errors.

use std::collections::HashMap;
use std::io;
use windlass_spec::{
    DiagnosticStyle, NoAttachments, ParameterValue, ResolvedJob, ResolvedWorkflow, SpecAttachments,
    SpecDiagnostics, SpecSource, load_spec,
};
use windlass_types::JobSettings;

/// Files beside the spec, in memory.
struct Files(HashMap<&'static str, &'static str>);

impl SpecAttachments for Files {
    fn read_file(&self, path: &str) -> io::Result<Vec<u8>> {
        let text = self.0.get(path).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(text.as_bytes().to_vec())
    }
}

#[track_caller]
fn good(text: &str) -> ResolvedWorkflow<'_> {
    load_spec(SpecSource::new("sim.yaml", text.as_bytes()), &NoAttachments)
        .unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

fn problems(text: &str) -> SpecDiagnostics {
    load_spec(SpecSource::new("sim.yaml", text.as_bytes()), &NoAttachments).expect_err(text)
}

/// Returns `code message` of all problems.
fn lines(text: &str) -> Vec<String> {
    problems(text).list.iter().map(|problem| format!("{} {}", problem.code, problem.message)).collect()
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let rendered = problems(text).render(DiagnosticStyle::Plain);
    assert_eq!(rendered.trim_end(), expected.trim_matches('\n'), "\n{rendered}");
}

fn warnings(workflow: &ResolvedWorkflow<'_>) -> Vec<String> {
    workflow.warnings().iter().map(|warning| format!("{} {}", warning.code, warning.message)).collect()
}

fn names<'w>(workflow: &'w ResolvedWorkflow<'_>) -> Vec<&'w str> {
    workflow.jobs().map(|job| job.name).collect()
}

fn commands(workflow: &ResolvedWorkflow<'_>) -> Vec<String> {
    workflow.jobs().map(|job| job.command(100).into_owned()).collect()
}

fn job<'w>(workflow: &'w ResolvedWorkflow<'_>, name: &str) -> ResolvedJob<'w> {
    workflow.jobs().find(|job| job.name == name).unwrap_or_else(|| panic!("no job {name}"))
}

/// Returns the names of the dependencies of a job, sorted and without duplicates.
fn waits<'w>(workflow: &'w ResolvedWorkflow<'_>, name: &str) -> Vec<&'w str> {
    let jobs = job(workflow, name).depends_on().flatten();
    let mut names: Vec<&str> = jobs.map(|number| workflow.job(*number as usize).name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn spec(jobs: &str) -> String {
    format!("name: w\njobs:\n{jobs}")
}

#[test]
fn the_last_parameter_changes_fastest() {
    let text = spec(
        "- {name: 'j_{b}_{a:02d}_{x:.2f}', command: 'run {a} {x} {b:q}', parameters: {b: [u, 'v w'], a: '1:2', x: '0.1:0.3:0.1'}}\n",
    );
    let workflow = good(&text);
    assert_eq!((workflow.entry_count(), workflow.job_count()), (1, 12));
    let names = names(&workflow);
    assert_eq!(names[..4], ["j_u_01_0.10", "j_u_01_0.20", "j_u_01_0.30", "j_u_02_0.10"]);
    assert_eq!(names[11], "j_v w_02_0.30");
    let commands = commands(&workflow);
    assert_eq!((&*commands[2], &*commands[11]), ("run 1 0.3 'u'", "run 2 0.3 'v w'"));
    let parameters = workflow.job(2).parameters();
    let expected = [
        ("b", ParameterValue::Text("u")),
        ("a", ParameterValue::Integer(1)),
        ("x", ParameterValue::Float(0.3)),
    ];
    assert_eq!(parameters, expected);
    assert_eq!(workflow.job_groups()[0].name, "j_{b}_{a:02d}_{x:.2f}");
    assert_eq!(workflow.job_groups()[0].parameters, ["b", "a", "x"]);
    assert!(workflow.jobs().all(|job| job.group == Some(0)));
}

#[test]
fn zip_combines_values_of_equal_length() {
    let text =
        spec("- {name: '{a}{b}', command: x, parameters: {a: '1:3', b: [x, y, z]}, parameter_mode: zip}\n");
    assert_eq!(names(&good(&text)), ["1x", "2y", "3z"]);
    check(
        &spec(
            "- name: '{a}{b}'\n  command: x\n  parameters:\n    a: '1:3'\n    b: [x, y]\n  parameter_mode: zip\n",
        ),
        "
error[zip-lengths]: `zip` needs the same number of values, but `a` has 3 and `b` has 2
 --> sim.yaml:7:5
  |
6 |     a: '1:3'
  |     - 3 values
7 |     b: [x, y]
  |     ^
8 |   parameter_mode: zip
  |                   --- zip is requested here",
    );
}

#[test]
fn shared_parameters_apply_only_to_jobs_that_use_them() {
    let text = "
name: w
parameters: {i: '1:3', k: [a, b], unused: '1:9'}
jobs:
  - {name: 'all_{k}_{i}', command: x, use_parameters: [k, i]}
  - {name: 'own_{i}', command: x, use_parameters: [i], parameters: {i: '7:8'}}
  - {name: none, command: x}
";
    let workflow = good(text);
    assert_eq!(
        names(&workflow),
        ["all_a_1", "all_a_2", "all_a_3", "all_b_1", "all_b_2", "all_b_3", "own_7", "own_8", "none"]
    );
    assert_eq!(warnings(&workflow), ["unused-parameter parameter `unused` of the workflow is not used"]);
    let unknown =
        "name: w\nparameters: {seed: '1:3'}\njobs: [{name: a, command: x, use_parameters: [sed]}]\n";
    let problems = problems(unknown);
    assert_eq!(problems.list[0].message, "the workflow has no parameter `sed`");
    assert_eq!(problems.list[0].help.as_deref(), Some("did you mean `seed`?"));
}

#[test]
fn parameter_files_are_read_relative_to_the_spec() {
    let files = Files(HashMap::from([
        ("t.csv", "site,lat\noslo,59.9\n\"new york\",40.7\n"),
        ("t.json", r#"[{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]"#),
        ("data/seeds.txt", "# seeds\n11\n\n12\n"),
    ]));
    let text = "
name: w
variables: {dir: data}
parameters_file: t.json
jobs:
  - {name: '{site}_{r}', command: 'plot {site:q} {lat}', parameters_file: t.csv, parameters: {r: '1:2'}}
  - {name: 'shared_{n}{s}', command: x, use_parameters_file: true}
  - {name: 'seed_{i}', command: x, parameters: {i: '@{dir}/seeds.txt'}}
";
    let workflow = load_spec(SpecSource::new("sim.yaml", text.as_bytes()), &files).unwrap();
    assert_eq!(
        names(&workflow),
        ["oslo_1", "oslo_2", "new york_1", "new york_2", "shared_1a", "shared_2b", "seed_11", "seed_12"]
    );
    assert_eq!(workflow.job(2).command(0), "plot 'new york' 40.7");

    let clash =
        spec("- {name: '{site}', command: '{lat}', parameters_file: t.csv, parameters: {site: [a]}}\n");
    let problems = load_spec(SpecSource::new("sim.yaml", clash.as_bytes()), &files).unwrap_err();
    assert_eq!(problems.list[0].message, "`site` is both a column of the table and a parameter");
    // A column that one entry does not use may be meant for another.
    let some = spec("- {name: '{site}', command: x, parameters_file: t.csv}\n");
    let workflow = load_spec(SpecSource::new("sim.yaml", some.as_bytes()), &files).unwrap();
    assert_eq!(warnings(&workflow), [""; 0]);
    let missing = spec("- {name: '{site}', command: x, parameters_file: no.csv}\n");
    assert_eq!(lines(&missing), ["unreadable-file cannot read `no.csv`: no other files can be read here"]);
}

#[test]
fn variables_are_expanded_in_all_fields() {
    let text = "
name: 'w-{version}'
description: 'in {out}'
variables: {version: '1.10', out: 'runs/{version}', who: ada, pool: big}
user: '{who}'
project: 'p-{version}'
env: {OUT: '{out}'}
resource_requirements: [{name: big, num_cpus: 1, memory: 1g}]
failure_handlers: [{name: h, rules: [{match_all_exit_codes: true, recovery_script: 'rm {out}/lock'}]}]
files: [{name: 'f-{who}', path: '{out}/f'}]
user_data: [{name: u, data: {a: ['{out}', 1], b: {c: 'x{who}y'}}}]
jobs:
  - name: 'job-{who}'
    command: 'run {out} ${OUT} ${who} {print $1} {{unknown}} {a,b} {}'
    invocation_script: 'srun -A {who}'
    env: {WHO: '{who}', CONST: c}
    resource_requirements: '{pool}'
    input_files: ['f-{who}']
    failure_handler: h
actions:
  - {trigger_type: on_workflow_start, action_type: run_commands, commands: ['mkdir {out}']}
";
    let workflow = good(text);
    assert_eq!((workflow.name(), workflow.user()), ("w-1.10", Some("ada")));
    assert_eq!(workflow.description(), Some("in runs/1.10"));
    assert_eq!(workflow.settings().project.as_deref(), Some("p-1.10"));
    assert_eq!(workflow.env(), [("OUT".to_owned(), "runs/1.10".to_owned())]);
    assert_eq!(workflow.failure_handlers()[0].rules[0].recovery_script.as_deref(), Some("rm runs/1.10/lock"));
    assert_eq!((workflow.file(0).name, &*workflow.file(0).path), ("f-ada", "runs/1.10/f"));
    let data = workflow.user_data(0).data.unwrap().into_owned();
    assert_eq!(data, serde_json::json!({"a": ["runs/1.10", 1], "b": {"c": "xaday"}}));
    let job = workflow.job(0);
    assert_eq!(job.command(0), "run runs/1.10 ${OUT} ${who} {print $1} {unknown} {a,b} {}");
    assert_eq!((job.name, job.requirements), ("job-ada", Some(0)));
    let kind = &workflow.job_groups()[0];
    assert_eq!(kind.invocation_script.as_deref(), Some("srun -A ada"));
    assert_eq!(job.env(), [("WHO".to_owned(), "ada".to_owned()), ("CONST".to_owned(), "c".to_owned())]);
    assert_eq!(kind.settings.failure_handler, Some(0));
    assert_eq!(workflow.actions()[0].action.commands, ["mkdir runs/1.10"]);
    assert!(kind.env.is_empty() && job.invocation_script().is_none());
}

#[test]
fn expanded_jobs_with_different_settings_form_job_groups() {
    let text = "
name: w
resource_requirements:
  - {name: r1, num_cpus: 1, memory: 1g}
  - {name: r2, num_cpus: 2, memory: 1g}
failure_handlers: [{name: h1, rules: []}, {name: h2, rules: []}]
limits: {of_b: 3, of_a: 1}
jobs:
  - name: 'j{i}_{k}'
    command: x
    env: {I: '{i}', SAME: s}
    invocation_script: 'wrap {i}'
    resource_requirements: 'r{i}'
    failure_handler: 'h{i}'
    labels: ['pool{k}', all]
    sites: ['site{i}']
    limit: 'of_{k}'
    parameters: {i: '1:2', k: [a, b]}
";
    let workflow = good(text);
    let shown: Vec<_> = workflow
        .jobs()
        .map(|job| {
            let kind = &workflow.job_groups()[job.group.unwrap() as usize];
            (
                job.env()[0].1.clone(),
                job.invocation_script(),
                job.requirements,
                kind.settings.failure_handler,
                {
                    let JobSettings { labels, sites, limit, .. } = &kind.settings;
                    format!("{} {} {}", labels.join(), sites.join(), limit.as_deref().unwrap())
                },
            )
        })
        .collect();
    let of = |i: &str, number, labels: &str| {
        (i.to_owned(), Some(format!("wrap {i}")), Some(number), Some(number), labels.to_owned())
    };
    assert_eq!(
        shown,
        [
            of("1", 0, "poola all site1 of_a"),
            of("1", 0, "poolb all site1 of_b"),
            of("2", 1, "poola all site2 of_a"),
            of("2", 1, "poolb all site2 of_b"),
        ]
    );
    assert_eq!(workflow.job_groups().len(), 4);
    let limits: Vec<_> =
        workflow.settings().limits.iter().map(|(name, most)| (name.as_str(), *most)).collect();
    assert_eq!(limits, [("of_a", 1), ("of_b", 3)]);
}

#[test]
fn listed_jobs_with_equal_limit_and_sites_share_a_job_group() {
    let text = "
name: w
limits: {licence: 2, spare: 1}
jobs:
  - {name: a_1, command: x, limit: licence}
  - {name: a_2, command: y, limit: licence}
  - {name: a_3, command: y, limit: licence, sites: [north]}
";
    let workflow = good(text);
    let kinds: Vec<_> = workflow.jobs().map(|job| job.group).collect();
    assert_eq!(kinds, [Some(0), Some(0), Some(1)]);
    assert_eq!(warnings(&workflow), ["unused-limit limit `spare` has no effect: no job uses it"]);
}

trait Join {
    fn join(&self) -> String;
}

impl Join for Vec<String> {
    fn join(&self) -> String {
        self.as_slice().join(" ")
    }
}

#[test]
fn unknown_placeholders_are_errors_with_variables() {
    let with_variables = |jobs: &str| spec(jobs).replacen("jobs:", "variables: {root: /data}\njobs:", 1);
    check(
        &with_variables(
            "- name: 'sim_{seed}'\n  command: 'run {sed} > {seed}'\n  parameters: {seed: '1:2'}\n",
        ),
        "
error[undefined-name]: `{sed}` is not defined: there is no parameter or variable of that name here
 --> sim.yaml:5:17
  |
5 |   command: 'run {sed} > {seed}'
  |                 ^^^^^ did you mean `{seed}`?",
    );
    check(
        &with_variables("- name: a{i}\n  command: awk '{print}' {i}\n  parameters: {i: '1:2'}\n"),
        "
error[undefined-name]: `{print}` is not defined: there is no parameter or variable of that name here
 --> sim.yaml:5:17
  |
5 |   command: awk '{print}' {i}
  |                 ^^^^^^^ to keep the text `{print}`, write `{{print}}`",
    );
    let elsewhere = "- {name: 'a{i}', command: x, parameters: {i: '1:2'}}\n- {name: b, command: 'cat {i}'}\n";
    assert_eq!(
        lines(&with_variables(elsewhere)),
        ["undefined-name `{i}` is not defined: there is no parameter or variable of that name here"]
    );
    let cycle = "name: w\nvariables: {a: '{b}', b: 'x{c}', c: '{a}'}\njobs: [{name: j, command: x}]\n";
    assert_eq!(lines(cycle), ["variable-cycle variables use each other in a cycle: a → b → c → a"]);
    let parameter =
        "name: w\nvariables: {a: '{i}'}\njobs: [{name: 'j{i}', command: x, parameters: {i: '1:2'}}]\n";
    assert_eq!(lines(parameter), ["undefined-name `{i}` is not a variable of the workflow"]);
    let odd = spec("- {name: 'j{i:x}', command: x, parameters: {i: '1:2'}}\n");
    let workflow = good(&odd);
    assert_eq!(names(&workflow), ["j1", "j2"]);
    assert_eq!(
        warnings(&workflow),
        ["unknown-format unknown format `:x`; the value of `i` is inserted without it"]
    );
}

#[test]
fn invalid_parameters_are_rejected() {
    for (parameters, message) in [
        ("{i: '1:2:0'}", "bad-parameter parameter `i`: the step of a range must not be 0"),
        ("{i: '3:1'}", "bad-parameter parameter `i`: the range 3:1 is empty: its step has the wrong sign"),
        (
            "{i: '1:99999999'}",
            "bad-parameter parameter `i`: the range 1:99999999 has more than 50000000 values",
        ),
        ("{i: []}", "empty parameter `i` has no values"),
        ("{i: '1:2', I: '1:2'}", "parameter-conflict parameters `i` and `I` differ only by case"),
        ("{i: '1:2', v: [a]}", "parameter-conflict `v` is both a parameter and a variable of the workflow"),
        ("{i: '1:2', 'a-b': [a]}", "parameter-name `a-b` cannot be the name of a parameter"),
        ("{i: '1:9999', j: '1:9999'}", "too-many the spec defines more than 50000000 jobs"),
    ] {
        let text = format!(
            "name: w\nvariables: {{v: x}}\njobs: [{{name: 'j{{i}}', command: x, parameters: {parameters}}}]\n"
        );
        assert_eq!(lines(&text), [message], "{parameters}");
    }
}

#[test]
fn duplicate_names_after_expansion_are_rejected() {
    check(
        &spec("- {name: 'j{i}', command: '{k}', parameters: {i: '1:2', k: [a, b]}}\n"),
        "
error[duplicate-name]: two jobs are named `j1`
 --> sim.yaml:3:10
  |
3 | - {name: 'j{i}', command: '{k}', parameters: {i: '1:2', k: [a, b]}}
  |          ^^^^^^ both with i=1, k=a and with i=1, k=b
  |
  = help: the name must contain every parameter that has several values",
    );
    check(
        &spec("- {name: j2, command: x}\n- {name: 'j{i}', command: x, parameters: {i: '1:3'}}\n"),
        "
error[duplicate-name]: two jobs are named `j2`
 --> sim.yaml:4:10
  |
3 | - {name: j2, command: x}
  |          -- first here
4 | - {name: 'j{i}', command: x, parameters: {i: '1:3'}}
  |          ^^^^^^ again here with i=2",
    );
}

#[test]
fn dependency_names_are_expanded_with_the_jobs_own_values() {
    let text = spec(
        "- {name: 'a{i}', command: x, parameters: {i: '1:3'}}\n\
         - {name: 'b{i}', command: x, parameters: {i: '1:3'}, depends_on: ['a{i}', start]}\n\
         - {name: start, command: x}\n\
         - {name: end, command: x, depends_on_regexes: ['^b\\d', end]}\n",
    );
    let workflow = good(&text);
    assert_eq!(waits(&workflow, "b2"), ["a2", "start"]);
    assert_eq!(waits(&workflow, "end"), ["b1", "b2", "b3"]);
    check(
        &spec(
            "- {name: 'a{i}', command: x, parameters: {i: '1:2'}}\n- {name: 'b{i}', command: x, parameters: {i: '1:3'}, depends_on: ['a{i}']}\n",
        ),
        "
error[unknown-job]: no job is named `a3` with i=3
 --> sim.yaml:4:67
  |
4 | - {name: 'b{i}', command: x, parameters: {i: '1:3'}, depends_on: ['a{i}']}
  |                                                                   ^^^^^^ did you mean `a1`?",
    );
}

#[test]
fn invalid_and_unmatched_regexes_are_rejected() {
    for (field, message) in [
        ("depends_on_regexes: ['^c']", "no-match the regular expression `^c` matches no job"),
        ("input_file_regexes: [x]", "no-match the regular expression `x` matches no file"),
        ("depends_on_regexes: ['a(']", "bad-regex `a(` is not a regular expression: unclosed group"),
    ] {
        let text = spec(&format!("- {{name: a, command: x}}\n- {{name: b, command: x, {field}}}\n"));
        assert_eq!(lines(&text), [message], "{field}");
    }
    let by_value = spec(
        "- {name: 'a_{i}_{k}', command: x, parameters: {i: '1:2', k: '1:2'}}\n\
         - {name: 'b{i}', command: x, parameters: {i: '1:2'}, depends_on_regexes: ['^a_{i}_']}\n",
    );
    let workflow = good(&by_value);
    assert_eq!(waits(&workflow, "b2"), ["a_2_1", "a_2_2"]);
    let siblings = spec("- {name: 'a{i}', command: x, parameters: {i: '1:3'}, depends_on_regexes: ['^a']}\n");
    assert_eq!(lines(&siblings), ["cycle jobs depend on each other in a cycle: a1 -> a2 -> a1"]);
    let one_sibling =
        spec("- {name: 'a{i}', command: x, parameters: {i: '1:3'}, depends_on_regexes: ['^a1$']}\n");
    let workflow = good(&one_sibling);
    assert_eq!(waits(&workflow, "a1"), [""; 0]);
    assert_eq!(waits(&workflow, "a3"), ["a1"]);
}

#[test]
fn files_and_user_data_add_dependencies_and_fill_commands() {
    let text = "
name: w
files:
  - {name: 'raw_{i}', path: 'in/{i:02d}.dat', parameters: {i: '1:2'}}
  - {name: 'out_{i}', path: 'out/{i}.csv', parameters: {i: '1:2'}}
  - {name: table, path: out/table.csv}
user_data: [{name: cfg, data: {n: 1}}, {name: 'note_{i}', parameters: {i: '1:2'}}]
jobs:
  - name: 'work_{i}'
    command: 'work ${files.input.raw_{i}} > ${files.output.out_{i}} # ${user_data.output.note_{i}} ${HOME}'
    parameters: {i: '1:2'}
  - {name: gather, command: 'cat out/*.csv > ${files.output.table}', input_file_regexes: ['^out_'], input_user_data: [note_1]}
  - {name: show, command: 'show ${files.input.table} ${user_data.input.cfg}'}
  - {name: again, command: x, input_user_data: [note_2]}
";
    let workflow = good(text);
    assert_eq!(
        commands(&workflow)[..4],
        [
            "work in/01.dat > out/1.csv # 101 ${HOME}",
            "work in/02.dat > out/2.csv # 102 ${HOME}",
            "cat out/*.csv > out/table.csv",
            "show out/table.csv 100"
        ]
    );
    assert_eq!(waits(&workflow, "work_1"), [""; 0]);
    assert_eq!(waits(&workflow, "gather"), ["work_1", "work_2"]);
    assert_eq!(waits(&workflow, "show"), ["gather"]);
    assert_eq!(waits(&workflow, "again"), ["work_2"]);
    let work_2 = job(&workflow, "work_2");
    let files = |lists: &mut dyn Iterator<Item = &[u32]>| lists.flatten().copied().collect::<Vec<u32>>();
    assert_eq!(files(&mut work_2.input_files()), [1]);
    assert_eq!(files(&mut work_2.output_files()), [3]);
    assert_eq!(files(&mut work_2.output_user_data()), [2]);
}

#[test]
fn unknown_references_are_rejected() {
    let text = |command: &str| {
        format!("name: w\nfiles: [{{name: data, path: d}}]\njobs: [{{name: a, command: '{command}'}}]\n")
    };
    assert_eq!(lines(&text("x ${files.input.dta}")), ["unknown-file no file is named `dta`"]);
    assert_eq!(
        lines(&text("x ${files.inputs.data}")),
        ["bad-reference `${files.inputs.data}` is not a valid reference"]
    );
    assert_eq!(lines(&text("x ${user_data.input.data}")), ["unknown-user-data no user data is named `data`"]);
    assert_eq!(
        lines(&text("x ${files.input.data} ${files.output.data}")),
        ["self-dependency job `a` both reads and writes file `data`"]
    );
}

#[test]
fn two_producers_of_a_file_are_rejected() {
    check(
        "name: w\nfiles: [{name: f, path: f}]\njobs:\n- {name: a, command: x, output_files: [f]}\n- {name: b, command: 'x > ${files.output.f}'}\n",
        "
error[two-producers]: jobs `a` and `b` both write file `f`
 --> sim.yaml:5:10
  |
4 | - {name: a, command: x, output_files: [f]}
  |          - and here
5 | - {name: b, command: 'x > ${files.output.f}'}
  |          ^ written here",
    );
    let same_path =
        "name: w\nfiles: [{name: f, path: x}, {name: g, path: x}]\njobs: [{name: a, command: x}]\n";
    assert_eq!(warnings(&good(same_path)), ["same-path files `f` and `g` have the same path `x`"]);
}

#[test]
fn cycles_through_files_are_reported() {
    check(
        "name: w\nfiles: [{name: x, path: x}]\njobs:\n- {name: a, command: x, depends_on: [b], output_files: [x]}\n- {name: b, command: x, input_files: [x]}\n",
        "
error[cycle]: jobs depend on each other in a cycle: a -> b -> a (through file `x`)
 --> sim.yaml:5:10
  |
4 | - {name: a, command: x, depends_on: [b], output_files: [x]}
  |                                      - `a` waits for `b`
5 | - {name: b, command: x, input_files: [x]}
  |          ^ `b` waits for `a` (through file `x`)",
    );
}

#[test]
fn rules_with_maximum_below_the_request_are_warned_about() {
    let text = |rule: &str| {
        format!(
            "name: w\nresource_requirements: [{{name: r, num_cpus: 4, memory: 4g, runtime: PT1H}}]\n\
             failure_handlers: [{{name: h, rules: [{{exit_codes: [1]}}, {{on: [out_of_memory], {rule}}}]}}]\n\
             jobs: [{{name: 'a{{i}}', command: x, resource_requirements: r, failure_handler: h, parameters: {{i: '1:9'}}}},\n\
                    {{name: b, command: x, failure_handler: h}}]\n"
        )
    };
    for fine in
        ["memory: x2, max_memory: 4097m", "max_runtime: 61m, runtime: +10%", "cpus: '+1', max_cpus: 5"]
    {
        let text = text(fine);
        assert!(!warnings(&good(&text)).iter().any(|warning| warning.starts_with("no-room")), "{fine}");
    }
    for (rule, said) in [
        ("memory: x2, max_memory: 4g", "its `max_memory` is 4 GiB, and `r` already requests 4 GiB"),
        ("runtime: x2, max_runtime: 30m", "its `max_runtime` is 30m, and `r` already requests 1h"),
        ("cpus: x2, max_cpus: 2", "its `max_cpus` is 2, and `r` already requests 4"),
    ] {
        let text = text(rule);
        let told: Vec<_> =
            warnings(&good(&text)).into_iter().filter(|warning| warning.starts_with("no-room")).collect();
        assert_eq!(
            told,
            [format!("no-room rule 2 of `h` cannot increase the request: {said}")],
            "once for all jobs"
        );
    }
}

#[test]
fn requirements_beyond_their_scheduler_are_reported() {
    let text = |requirements: &str, job: &str| {
        format!(
            "name: w\nresource_requirements: [{{name: r, num_cpus: 1, memory: 1g, {requirements}}}]\n\
             slurm_schedulers: [{{name: s, account: x, nodes: 1, mem: 4G, walltime: '01:00:00'}}]\n\
             jobs: [{{name: a, command: x, resource_requirements: r, {job}}}]\n"
        )
    };
    assert!(warnings(&good(&text("runtime: PT1H", "scheduler: s"))).is_empty());
    assert_eq!(
        lines(&text("runtime: PT2H", "scheduler: s")),
        [
            "does-not-fit scheduler `s` does not have the resources that `r` requests: 2h, but an allocation lasts 1h"
        ]
    );
    assert_eq!(
        warnings(&good(&text("num_gpus: 1, runtime: PT1H", "scheduler: s"))),
        [
            "does-not-fit scheduler `s` may not have the resources that `r` requests: 1 GPUs, but the scheduler requests none (`gres`)"
        ]
    );
    assert_eq!(
        warnings(&good(&text("num_nodes: 3, runtime: PT1H", "priority: 1"))),
        ["does-not-fit no scheduler has the resources that `r` requests"]
    );
    assert_eq!(
        lines(&text("runtime: PT1H", "scheduler: t")),
        ["unknown-scheduler no scheduler is named `t`"]
    );
}

#[test]
fn stages_share_one_dependency_list() {
    let text = "
name: w
files: [{name: 'f{i}', path: 'f{i}', parameters: {i: '1:1000'}}]
jobs:
  - {name: 'a{i}', command: x, output_files: ['f{i}'], parameters: {i: '1:1000'}}
  - {name: 'b{i}', command: x, input_file_regexes: ['^f'], parameters: {i: '1:1000'}}
  - {name: 'c{i}', command: x, depends_on_regexes: ['^b'], parameters: {i: '1:1000'}}
";
    let workflow = good(text);
    for first in [1000, 2000] {
        let list = |job: usize| {
            let lists: Vec<&[u32]> = workflow.job(job).depends_on().collect();
            assert_eq!((lists.len(), lists[0].len()), (1, 1000));
            lists[0]
        };
        assert!((first..first + 1000).all(|job| std::ptr::eq(list(job), list(first))));
    }
}

#[test]
fn actions_resolve_their_jobs() {
    let text = "
name: w
slurm_schedulers: [{name: s, account: x}]
jobs:
  - {name: stage, command: x}
  - {name: 'sim_{i}', command: x, parameters: {i: '1:3'}}
actions:
  - {trigger_type: on_jobs_ready, action_type: schedule_nodes, jobs: [stage], job_name_regexes: ['sim_\\d'], scheduler: s, scheduler_type: slurm, num_allocations: 1}
";
    assert_eq!(good(text).actions()[0].jobs, [0, 1, 2, 3]);
    let wrong = text.replace("[stage]", "[stag]").replace("scheduler: s,", "scheduler: z,");
    assert_eq!(
        lines(&wrong),
        ["unknown-job no job is named `stag`", "unknown-scheduler no scheduler is named `z`"]
    );
}

#[test]
fn torc_specs_are_expanded() {
    let mosaic = include_str!("torc/tile_mosaic.yaml");
    let workflow = good(mosaic);
    assert_eq!(waits(&workflow, "stitch"), ["filter_left", "filter_right"]);
    assert_eq!(waits(&workflow, "filter_left"), ["split"]);
    assert_eq!(job(&workflow, "filter_left").command(1), "sort work/left.txt > work/left.f");
    let grid = include_str!("torc/viscosity_grid.yaml");
    let workflow = good(grid);
    assert_eq!(workflow.job_count(), 14);
    assert_eq!(names(&workflow)[1..3], ["solve_0.10_001", "solve_0.10_002"]);
    assert_eq!(workflow.job(1).command(1), "echo 0.1,1 > out/res_0.10_001.csv");
    assert_eq!(waits(&workflow, "collect").len(), 12);
    assert_eq!(waits(&workflow, "solve_0.30_004"), ["prepare"]);
    let calibration = include_str!("torc/beam_calibration.yaml");
    let workflow = good(calibration);
    assert_eq!(waits(&workflow, "report"), ["fit_north", "fit_south"]);
    assert_eq!(waits(&workflow, "fit_north"), ["measure"]);
    assert_eq!(job(&workflow, "measure").command(1), "./measure.sh setup.json | awk '{print $1}'");
    let solver = include_str!("torc/shaky_solver.yaml");
    let cluster = include_str!("torc/two_phase_cluster.yaml");
    for text in [mosaic, grid, calibration, solver, cluster] {
        let workflow = good(text);
        assert!(workflow.warnings().is_empty(), "{:?}", workflow.warnings());
    }
}

#[test]
fn similar_listed_jobs_share_a_job_group() {
    let workflow = good(
        "\
name: w
variables: {where: /data}
failure_handlers: [{name: again, rules: [{exit_codes: [1]}]}]
jobs:
- {name: a, command: x, env: {A: 1}}
- {name: b, command: 'x {where}', env: {A: 2, B: '{where}'}}
- {name: c_01, command: x, env: {A: 1}, failure_handler: again}
- {name: c_02, command: y, env: {A: 2}, failure_handler: again}
- {name: other, command: y, failure_handler: again}
- {name: c_3, command: y, labels: [gpu]}
- {name: c_4, command: y, labels: [gpu]}
- {name: 'f{i}', command: y, env: {A: 2, I: '{i}'}, parameters: {i: '1:2'}}
",
    );
    let envs: Vec<_> = workflow.jobs().map(|job| job.env()).collect();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(envs[0], [pair("A", "1")]);
    assert_eq!(envs[1], [pair("A", "2"), pair("B", "/data")]);
    assert_eq!(envs[3], [pair("A", "2")]);
    assert_eq!(envs[8], [pair("I", "2")]);
    let kinds: Vec<_> = workflow.jobs().map(|job| job.group).collect();
    assert_eq!(kinds[..2], [None, None]);
    assert_eq!(kinds[2..], [0, 0, 1, 2, 2, 3, 3].map(Some));
    // Job groups are identified by their names: only one of them can be `c_#`.
    let names: Vec<_> =
        workflow.job_groups().iter().map(|kind| (kind.name.as_str(), kind.env.len())).collect();
    assert_eq!(names, [("c_#", 0), ("other", 0), ("c_3", 0), ("f{i}", 1)]);
}

#[test]
fn braces_that_are_not_placeholders_stay_text() {
    let command = |text: &str| good(text).jobs().next().unwrap().command(0).into_owned();
    let alone = spec("- {name: a, command: 'curl -w \"%{http_code}\" {{x}} ${{y}}'}\n");
    assert_eq!(command(&alone), "curl -w \"%{http_code}\" {{x}} ${{y}}");
    let swept = spec(
        "- {name: 'a{i}', command: 'curl -w \"%{{http_code}}\" {{i}} ${{y}} {i}{{x}}{{x:03d}}', parameters: {i: '7:8'}}\n",
    );
    assert_eq!(command(&swept), "curl -w \"%{http_code}\" {7} ${{y}} 7{x}{x:03d}");
    let constant = "name: w\nvariables: {a: '{{b}}c'}\njobs: [{name: j, command: '{a} {{d}}'}]\n";
    assert_eq!(command(constant), "{b}c {d}");
}

#[test]
fn unknown_placeholders_are_kept_without_variables() {
    let text = spec(
        "\
- name: 'a{i}'
  command: 'awk \"{print}\" f{i} {sed} {{sed}} ${i} %{http_code:x}'
  invocation_script: 'nice {print}'
  env: {A: '{print} {i}'}
  parameters: {i: '1:1', seed: '7'}
- {name: b, command: 'cat {i}', depends_on: ['a1']}
",
    );
    let workflow = good(&text);
    let job = workflow.jobs().next().unwrap();
    let command = job.command(0).into_owned();
    assert!(command.contains("awk \"{print}\" f1 {sed} {sed} ${i} %{http_code:x}"), "{command}");
    assert!(job.env().contains(&("A".to_owned(), "{print} 1".to_owned())), "{:?}", job.env());
    assert_eq!(workflow.jobs().nth(1).unwrap().command(0), "cat {i}");
    let kept = |name: &str| {
        format!(
            "undefined-name `{{{name}}}` is not defined: there is no parameter or variable of that name here; it is kept as text"
        )
    };
    let told: Vec<String> =
        warnings(&workflow).into_iter().filter(|text| text.starts_with("undefined-name")).collect();
    assert_eq!(told, [kept("sed"), kept("i")], "only likely typing errors");
}

#[test]
fn doubled_braces_are_text_in_every_expanded_field() {
    let workflow = good(
        "\
name: 'w {{x}}'
description: 'd {{x}}'
user: 'u{{x}}'
project: 'p {{x}}'
access_groups: ['g{{x}}']
variables: {v: 'value {{x}}'}
metadata: {deep: [{er: 'm {{x}}'}]}
env: {A: 'a {{x}}'}
files: [{name: 'f{{x}}', path: 'p/{{x}}'}]
user_data: [{name: 'u{{x}}', data: {k: [1, 'd {{x}}']}}]
failure_handlers: [{name: h, rules: [{exit_codes: [1], recovery_script: 'fix {{x}}'}]}]
slurm_schedulers: [{name: s, account: 'a{{x}}', partition: 'p{{x}}', extra: '--comment={{x}}', walltime: '1:00'}]
slurm_defaults: {comment: 'c{{x}}'}
actions: [{trigger_type: on_workflow_start, action_type: run_commands, commands: ['echo {{x}}']}]
jobs:
- {name: 'j{{x}}', command: 'run {{x}} {v}', invocation_script: 'nice {{x}}', env: {B: 'b {{x}}'}, input_files: ['f{{x}}'],
   input_user_data: ['u{{x}}'], failure_handler: h}
- {name: 'k{{x}}', command: 'y ${files.input.f{{x}}}', depends_on: ['j{{x}}']}
- {name: l, command: y, depends_on_regexes: ['^k\\{{x}}$']}
",
    );
    assert_eq!(workflow.name(), "w {x}");
    assert_eq!((workflow.description(), workflow.user()), (Some("d {x}"), Some("u{x}")));
    let settings = workflow.settings();
    assert_eq!(settings.project.as_deref(), Some("p {x}"));
    assert_eq!(settings.access_groups, ["g{x}"]);
    let values = serde_json::to_string(&(&settings.metadata, &settings.slurm_defaults)).unwrap();
    assert_eq!(values, r#"[{"deep":[{"er":"m {x}"}]},{"comment":"c{x}"}]"#);
    assert_eq!(workflow.env(), [("A".to_owned(), "a {x}".to_owned())]);
    let file = workflow.files().next().unwrap();
    assert_eq!((file.name, &*file.path), ("f{x}", "p/{x}"));
    let data = workflow.all_user_data().next().unwrap();
    assert_eq!(
        (data.name, data.data.as_ref().map(ToString::to_string)),
        ("u{x}", Some(r#"{"k":[1,"d {x}"]}"#.to_owned()))
    );
    assert_eq!(workflow.failure_handlers()[0].rules[0].recovery_script.as_deref(), Some("fix {x}"));
    let scheduler = &workflow.schedulers()[0];
    assert_eq!(scheduler.account, "a{x}");
    assert_eq!(
        (scheduler.partition.as_deref(), scheduler.extra.as_deref()),
        (Some("p{x}"), Some("--comment={x}"))
    );
    assert_eq!(workflow.actions()[0].action.commands, ["echo {x}"]);
    assert_eq!(names(&workflow), ["j{x}", "k{x}", "l"]);
    assert!(commands(&workflow)[0].ends_with("run {x} value {x}"), "{:?}", commands(&workflow));
    assert_eq!(commands(&workflow)[1], "y p/{x}");
    let first = job(&workflow, "j{x}");
    let group = &workflow.job_groups()[first.group.unwrap() as usize];
    assert_eq!(group.invocation_script.as_deref(), Some("nice {x}"));
    assert!(first.env().contains(&("B".to_owned(), "b {x}".to_owned())), "{:?}", first.env());
    assert_eq!((waits(&workflow, "k{x}"), waits(&workflow, "l")), (vec!["j{x}"], vec!["k{x}"]));
}

#[test]
fn parameter_of_another_entry_is_an_error_with_help() {
    check(
        "name: w
jobs:
- {name: 'solve_{i}', command: x, parameters: {i: '1:3'}}
- {name: report, command: x, depends_on: ['solve_{i}']}
",
        "
error[undefined-name]: `{i}` is not defined here: it is a parameter of the job `solve_{i}` only
 --> sim.yaml:4:50
  |
3 | - {name: 'solve_{i}', command: x, parameters: {i: '1:3'}}
  |          ----------- `i` belongs to this entry
4 | - {name: report, command: x, depends_on: ['solve_{i}']}
  |                                                  ^^^
  |
  = help: to use all of them, write `depends_on_regexes: ['^solve_']`; the same `parameters` here create one job for each of them",
    );
    let text = "name: w
parameters: {i: '1:3'}
files: [{name: 'f_{i}.dat', path: 'f{i}', use_parameters: [i]}]
jobs: [{name: read, command: x, input_files: ['f_{i}.dat']}]
";
    let help = problems(text).list[0].help.clone().unwrap();
    assert_eq!(
        help,
        r"to use all of them, write `input_file_regexes: ['^f_.+\.dat$']`; `use_parameters: [i]` creates one job for each of them"
    );
}

#[test]
fn undefined_names_are_located_where_they_are_written() {
    let text = "\
name: w
variables: {known: v}
env: {A: 'x {gone1}'}
project: 'p {gone2}'
metadata: {deep: [{er: 'm {gone3}'}], \"esc\": \"\\u0041 {gone4}\"}
access_groups: [g, '{gone5}']
jobs:
- {name: a, command: x, env: {B: b, C: 'c {gone6}'}}
user_data: [{name: u, data: {k: [1, 'd {gone7}']}}]
";
    let places: Vec<_> = problems(text)
        .list
        .iter()
        .map(|problem| {
            let span = problem.span.unwrap();
            assert_eq!(problem.code, "undefined-name");
            &text[span.start as usize..span.end as usize]
        })
        .collect();
    let escaped = r#""\u0041 {gone4}""#;
    assert_eq!(places, ["{gone1}", "{gone2}", "{gone3}", escaped, "{gone5}", "{gone6}", "{gone7}"]);
}

#[test]
fn stderr_rules_without_kept_stderr_are_warned_about() {
    let text = |stdio: &str| {
        format!(
            "name: w\n{stdio}\nfailure_handlers: [{{name: h, rules: [{{exit_codes: [1]}}, {{stderr: ['no route']}}]}}]\n\
             jobs: [{{name: 'a{{i}}', command: x, failure_handler: h, parameters: {{i: '1:9'}}}}, {{name: b, command: x}}]\n"
        )
    };
    for (stdio, wanted) in [
        ("stdio: {mode: separate}", false),
        ("stdio: {mode: combined}", false),
        ("stdio: {mode: no_stdout}", false),
        ("stdio: {mode: no_stderr}", true),
        ("stdio: {mode: none}", true),
    ] {
        let told = warnings(&good(&text(stdio)));
        let told: Vec<_> = told.iter().filter(|warning| warning.starts_with("unheard-words")).collect();
        assert_eq!(told.len(), usize::from(wanted), "{stdio}: {told:?}");
        assert!(told.iter().all(|warning| warning.contains("rule 2 of `h` never matches")), "{told:?}");
    }
}

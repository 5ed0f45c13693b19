//! Tests of the values of a valid spec.

use std::time::Duration;
use windlass_spec::{NoAttachments, ResolvedJob, ResolvedWorkflow, SpecSource, load_spec};
use windlass_types::worker_messages::{StdioMode, StdioSettings};
use windlass_types::{Bytes, Resources};

#[track_caller]
fn good(text: &str) -> ResolvedWorkflow<'_> {
    load_spec(SpecSource::new("sim.yaml", text.as_bytes()), &NoAttachments)
        .unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

fn pairs(env: &[(String, String)]) -> Vec<(&str, &str)> {
    env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[test]
fn every_field_has_its_value() {
    let workflow = good(
        "\
# A remark.
name: sim
user: ada
description: |
  Two lines,
  kept as they are.
env: {MODE: test}
stdio: {mode: no_stderr, delete_on_success: true}
resource_requirements:
  - name: small
    num_cpus: 2
    memory: 1.5g
  - {name: large, num_cpus: 64, memory: 512, num_gpus: 4, num_nodes: 2, runtime: P1DT2H}
jobs:
  - name: prepare
    command: ./prepare
  - name: work
    command: >-
      ./work
      --fast
    depends_on:
    - prepare
    env:
      LEVEL: 9
    resource_requirements: large
    priority: 7
    cancel_on_blocking_job_failure: false
",
    );
    assert_eq!(workflow.name(), "sim");
    assert_eq!(workflow.user(), Some("ada"));
    assert_eq!(workflow.description(), Some("Two lines,\nkept as they are.\n"));
    assert_eq!(pairs(workflow.env()), [("MODE", "test")]);
    assert_eq!(workflow.stdio(), StdioSettings { mode: StdioMode::NoStderr, delete_on_success: true });
    let [small, large] = workflow.requirements() else { panic!("{:?}", workflow.requirements()) };
    assert_eq!((small.name.as_str(), large.name.as_str()), ("small", "large"));
    assert_eq!(
        small.resources,
        Resources { cpus: 2, memory: Bytes(3 << 29), gpus: 0, nodes: 1, runtime: None }
    );
    let runtime = Some(Duration::from_hours(26));
    assert_eq!(large.resources, Resources { cpus: 64, memory: Bytes(512), gpus: 4, nodes: 2, runtime });
    let [prepare, work] = [workflow.job(0), workflow.job(1)];
    assert_eq!(workflow.job_count(), 2);
    assert_eq!((prepare.name, &*prepare.command(1)), ("prepare", "./prepare"));
    assert_eq!((prepare.group, prepare.requirements, prepare.priority), (None, None, 0));
    assert!(prepare.cancel_on_blocking_job_failure && prepare.depends_on().next().is_none());
    assert_eq!((work.name, &*work.command(1)), ("work", "./work --fast"));
    assert_eq!((work.group, work.requirements, work.priority), (None, Some(1), 7));
    assert_eq!(pairs(&work.env()), [("LEVEL", "9")]);
    assert!(!work.cancel_on_blocking_job_failure);
    assert_eq!(only_list(work), [0]);
}

/// Returns the dependencies of a job, if they are a single list.
fn only_list(job: ResolvedJob<'_>) -> &[u32] {
    let lists: Vec<&[u32]> = job.depends_on().collect();
    assert_eq!(lists.len(), 1, "{lists:?}");
    lists[0]
}

#[test]
fn missing_fields_have_defaults() {
    let workflow = good("name: w\njobs: [{name: a, command: b}]\n");
    assert_eq!((workflow.user(), workflow.description()), (None, None));
    assert_eq!(workflow.stdio(), StdioSettings { mode: StdioMode::Separate, delete_on_success: false });
    assert!(workflow.env().is_empty() && workflow.requirements().is_empty());
    assert_eq!(workflow.job_count(), 1);
}

#[test]
fn scalars_are_kept_as_written() {
    for (written, value) in [
        ("0755", "0755"),
        ("yes", "yes"),
        ("no", "no"),
        ("true", "true"),
        ("1.10", "1.10"),
        ("1e3", "1e3"),
        ("0x1F", "0x1F"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        (".inf", ".inf"),
        ("1_000", "1_000"),
        ("-0", "-0"),
        ("a # remark", "a"),
        ("a#b", "a#b"),
        ("''", ""),
        ("\"\"", ""),
        ("'null'", "null"),
        ("!!str ~", "~"),
        ("!!str", ""),
        ("!!int 7", "7"),
        ("'it''s'", "it's"),
        ("\"a\\tb\\u00e9\\n\"", "a\tbé\n"),
        ("äöü 日本 🚀", "äöü 日本 🚀"),
        ("$HOME/{x,y}/*", "$HOME/{x,y}/*"),
    ] {
        let text = format!("name: w\nenv:\n  V: {written}\njobs:\n- name: a\n  command: b\n");
        assert_eq!(pairs(good(&text).env()), [("V", value)], "{written}");
    }
    let workflow = good(
        "name: 0755\njobs: [{name: 1.10, command: yes}, {name: 007, command: 1e3, depends_on: [1.10]}]\n",
    );
    assert_eq!(workflow.name(), "0755");
    let shown = |job| {
        let ResolvedJob { name, .. } = job;
        (name, job.command(1).into_owned(), job.depends_on().flatten().copied().collect::<Vec<u32>>())
    };
    let jobs: Vec<_> = workflow.jobs().map(shown).collect();
    assert_eq!(jobs, [("1.10", "yes".to_owned(), vec![]), ("007", "1e3".to_owned(), vec![0])]);
}

#[test]
fn anchors_and_aliases_are_resolved() {
    let workflow = good(
        "\
name: &n w
env: &e {A: 1, B: *n}
jobs:
  - {name: a, command: &c echo}
  - {name: b, command: *c, env: *e, depends_on: &d [a]}
  - {name: c, command: *c, env: *e, depends_on: *d}
",
    );
    let (b, c) = (workflow.job(1), workflow.job(2));
    assert_eq!((&*b.command(1), &*c.command(1)), ("echo", "echo"));
    assert_eq!(pairs(&b.env()), [("A", "1"), ("B", "w")]);
    assert_eq!(only_list(b), [0]);
    assert_eq!((b.env(), &*c.env()), (c.env(), workflow.env()));
    // The same list, not a copy of it.
    assert!(std::ptr::eq(only_list(b), only_list(c)));
}

#[test]
fn own_keys_override_merge_keys() {
    let workflow = good(
        "\
name: w
jobs:
  - &base
    name: base
    command: one
    priority: 3
    env: &env {A: 1, B: 2}
  - &second
    <<: *base
    name: second
    priority: 4
  - {name: third, command: three, <<: [*second, *base]}
  - {<<: {priority: 5, command: inline}, name: fourth, env: {B: 9, <<: *env, C: 3}}
",
    );
    let jobs: Vec<_> =
        workflow.jobs().map(|job| (job.name, job.command(1), job.priority, job.env())).collect();
    let jobs: Vec<_> = jobs
        .iter()
        .map(|(name, command, priority, env)| (*name, &**command, *priority, pairs(env)))
        .collect();
    assert_eq!(
        jobs,
        [
            ("base", "one", 3, vec![("A", "1"), ("B", "2")]),
            ("second", "one", 4, vec![("A", "1"), ("B", "2")]),
            ("third", "three", 4, vec![("A", "1"), ("B", "2")]),
            ("fourth", "inline", 5, vec![("B", "9"), ("C", "3"), ("A", "1")]),
        ]
    );
}

#[test]
fn aliased_dependency_list_is_shared() {
    let first: Vec<String> = (0..1000).map(|job| format!("a{job}")).collect();
    let mut text = "name: w\njobs:\n".to_owned();
    text.extend(first.iter().map(|name| format!("- {{name: {name}, command: x}}\n")));
    text.extend([format!("- {{name: b0, command: x, depends_on: &all [{}]}}\n", first.join(", "))]);
    text.extend((1..1000).map(|job| format!("- {{name: b{job}, command: x, depends_on: *all}}\n")));
    let workflow = good(&text);
    assert_eq!(workflow.job_count(), 2000);
    assert_eq!(only_list(workflow.job(1000)), (0..1000).collect::<Vec<u32>>());
    assert!(
        (1000..2000).all(|job| std::ptr::eq(only_list(workflow.job(job)), only_list(workflow.job(1000))))
    );
}

#[test]
fn equivalent_yaml_forms_are_equal() {
    let block = "name: w\njobs:\n- name: a\n  command: x y\n- name: b\n  command: x\n  depends_on:\n  - a\n";
    let forms = [
        "{name: w, jobs: [{name: a, command: x y}, {name: b, command: x, depends_on: [a]}]}",
        r#"{"name": "w", "jobs": [{"name": "a", "command": "x y"}, {"name": "b", "command": "x", "depends_on": ["a"]}]}"#,
        "---\nname: w\njobs:\n  - {command: x y, name: a}\n  - ? name\n    : b\n    command: x\n    depends_on: [ a, ]\n...\n",
        "%YAML 1.2\n---\nname: w\njobs:\r\n- name: a\r\n  command: 'x\r\n    y'\r\n- {name: b, command: x, depends_on: [a]}\r\n",
    ];
    let expected = good(block);
    for form in forms {
        let workflow = good(form);
        let shown = |workflow: &ResolvedWorkflow<'_>| {
            workflow.jobs().map(|job| format!("{job:?}")).collect::<Vec<_>>()
        };
        assert_eq!(shown(&workflow), shown(&expected), "{form}");
        assert_eq!(workflow.name(), "w", "{form}");
    }
}

use super::*;
use crate::NoAttachments;

fn addition() -> SpecAddition<'static> {
    let text = |text: &'static str| NewFieldContent::One(NewFieldValue::Text(Cow::Borrowed(text)));
    let scheduler = |name: &'static str| NewSpecEntry {
        list: "slurm_schedulers",
        fields: vec![
            ("name", text(name)),
            ("account", text("lab")),
            ("nodes", NewFieldContent::One(NewFieldValue::Integer(2))),
            ("walltime", text("01:30:00")),
            ("extra", text("--cpus-per-task=4")),
        ],
    };
    let action = |jobs: &'static str, field: &'static str, scheduler: &'static str| NewSpecEntry {
        list: "actions",
        fields: vec![
            ("trigger_type", text("on_jobs_ready")),
            ("action_type", text("schedule_nodes")),
            (field, NewFieldContent::Many(vec![Cow::Borrowed(jobs)])),
            ("scheduler", text(scheduler)),
            ("start_one_worker_per_node", NewFieldContent::One(NewFieldValue::Flag(true))),
        ],
    };
    let names = |name: &'static str, scheduler: &'static str| SpecEdit {
        list: "jobs",
        name,
        field: "scheduler",
        value: NewFieldValue::Text(Cow::Borrowed(scheduler)),
    };
    SpecAddition {
        fields: vec![names("first", "one"), names("sim_{i}", "two")],
        entries: vec![
            scheduler("one"),
            scheduler("two"),
            action("first", "jobs", "one"),
            action("^sim_.*$", "job_name_regexes", "two"),
        ],
    }
}

const YAML: &str = "\
# What this is about.
name: w
jobs:
  - name: first     # it begins
    command: 'true'
  - {name: 'sim_{i}', command: 'true', depends_on: [first], parameters: {i: '1:3'}}
";

/// Returns the new text after checking its content.
fn added(name: &str, text: &str) -> String {
    let new = apply_addition(SpecSource::new(name, text.as_bytes()), &addition()).unwrap();
    let workflow = crate::load_spec(SpecSource::new(name, new.as_bytes()), &NoAttachments)
        .unwrap_or_else(|error| panic!("{error}\n{new}"));
    let schedulers: Vec<&str> = workflow.schedulers().iter().map(|one| one.name.as_str()).collect();
    assert_eq!(schedulers, ["one", "two"], "{new}");
    let actions = workflow.actions();
    let count = actions.len();
    assert_eq!(
        (actions[count - 2].jobs.as_slice(), actions[count - 1].jobs.as_slice()),
        (&[0][..], &[1, 2, 3][..])
    );
    let kind = workflow.job(3).group.map(|kind| workflow.job_groups()[kind as usize].settings.scheduler);
    assert_eq!(kind, Some(Some(1)), "{new}");
    new
}

#[test]
fn schedule_is_added_to_yaml() {
    assert_eq!(
        added("w.yaml", YAML),
        "\
# What this is about.
name: w
jobs:
  - name: first     # it begins
    command: 'true'
    scheduler: one
  - {name: 'sim_{i}', command: 'true', depends_on: [first], parameters: {i: '1:3'}, scheduler: two}
slurm_schedulers:
  - name: one
    account: lab
    nodes: 2
    walltime: \"01:30:00\"
    extra: \"--cpus-per-task=4\"
  - name: two
    account: lab
    nodes: 2
    walltime: \"01:30:00\"
    extra: \"--cpus-per-task=4\"
actions:
  - trigger_type: on_jobs_ready
    action_type: schedule_nodes
    jobs: [first]
    scheduler: one
    start_one_worker_per_node: true
  - trigger_type: on_jobs_ready
    action_type: schedule_nodes
    job_name_regexes: [^sim_.*$]
    scheduler: two
    start_one_worker_per_node: true
"
    );
}

#[test]
fn schedule_is_added_in_every_format() {
    for format in SpecFormat::ALL {
        let name = format!("w.{}", format.extension());
        let text = crate::convert_spec(SpecSource::new("w.yaml", YAML.as_bytes()), format).unwrap();
        added(&name, &text);
    }
    // On one line, without a line break at the end.
    added(
        "w.json",
        r#"{"name": "w", "jobs": [{"name": "first", "command": "x"}, {"name": "sim_{i}", "command": "x", "parameters": {"i": "1:3"}}]}"#,
    );
    added("w.yaml", YAML.trim_end());
    added("w.yaml", &YAML.replace('\n', "\r\n"));
}

#[test]
fn existing_actions_are_kept() {
    let action = "actions:\n  - trigger_type: on_workflow_complete  # at last\n    action_type: run_commands\n    commands: ['touch x']\n";
    let new = added("w.yaml", &format!("{action}{YAML}"));
    assert!(new.contains("# at last") && new.contains("# it begins"), "{new}");
    let flow = "actions: [{trigger_type: on_workflow_complete, action_type: run_commands, commands: [x]}]\n";
    added("w.yaml", &format!("{flow}{YAML}"));
    added("w.yaml", &format!("actions: []\n{YAML}"));
}

#[test]
fn added_schedule_can_be_removed() {
    for format in SpecFormat::ALL {
        let name = format!("w.{}", format.extension());
        let text = crate::convert_spec(SpecSource::new("w.yaml", YAML.as_bytes()), format).unwrap();
        let new = added(&name, &text);
        let without = remove_schedule(SpecSource::new(&name, new.as_bytes())).unwrap();
        let workflow = crate::load_spec(SpecSource::new(&name, without.as_bytes()), &NoAttachments).unwrap();
        assert!(workflow.schedulers().is_empty() && workflow.actions().is_empty(), "{without}");
        added(&name, &without);
    }
}

#[test]
fn field_cannot_be_added_to_a_missing_entry() {
    let mut addition = addition();
    addition.fields[0].name = "unknown";
    let error = apply_addition(SpecSource::new("w.yaml", YAML.as_bytes()), &addition).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot set `scheduler` of `unknown` in `jobs`: there is no such entry; edit it manually"
    );
}

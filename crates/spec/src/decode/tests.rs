//! Tests that every field is decoded into the right place.

mod hostile;
mod rules;

use crate::decode::field_tables::{FieldTable, FieldType};
use crate::decode::tables::{
    EXECUTION_CONFIG, FAILURE_HANDLER, FAILURE_RULE, RESOURCE_MONITOR, SLURM_SCHEDULER, TRIAGE, WORKFLOW,
};
use crate::model::{
    ListRange, NamedText, ParameterMode, RareJobFields, SweepParameter, WorkflowSpec, WrittenParameterValues,
};
use serde_json::{Value, json};
use windlass_types::FailureClass;
use windlass_types::failure_commands::TriagePolicy;
use windlass_types::settings::{
    ActionTrigger, ActionType, ChangeDetection, ExecutionConfig, FailureCause, FailureHandler, FailureRule,
    ResourceMonitor, SlurmScheduler, WorkflowSettings,
};
use windlass_types::worker_messages::{StdioMode, StdioSettings};

/// A minimal spec with `text` at the top level.
fn with(text: &str) -> String {
    format!("name: w\njobs: [{{name: a, command: b}}]\n{text}\n")
}

#[track_caller]
fn good(text: &str) -> WorkflowSpec<'_> {
    crate::parse_spec("sim.yaml", text.as_bytes()).unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

/// `code message` of all problems.
#[track_caller]
fn problems(text: &str) -> Vec<String> {
    let diagnostics = crate::parse_spec("sim.yaml", text.as_bytes()).expect_err(text);
    diagnostics.list.iter().map(|problem| format!("{} {}", problem.code, problem.message)).collect()
}

fn text<'a>(spec: &'a WorkflowSpec<'_>, named: NamedText) -> &'a str {
    spec.texts.get(named.text)
}

fn list<'a>(spec: &'a WorkflowSpec<'_>, list: ListRange) -> Vec<&'a str> {
    spec.names[list.range()].iter().map(|name| text(spec, *name)).collect()
}

#[test]
fn every_workflow_field_is_decoded() {
    let source = with(
        "\
version: 1
user: ada
description: two lines
project: climate
metadata: {tags: [a, 1], nested: {deep: ~}}
variables: {root: /data, n: 08}
parameters: {seed: '1:3'}
parameters_file: table.csv
env: {A: 1}
stdio: {mode: combined}
change_detection: content
slurm_defaults: {qos: high, exclusive: true, mail-type: }
use_pending_failed: true
retry_budget: 20%
limits: {licence: 2, 'the disk': 10}
enable_ro_crate: true
access_groups: [one, two]
compute_node_expiration_buffer_seconds: 60
compute_node_wait_for_new_jobs_seconds: 0
compute_node_ignore_workflow_completion: true
compute_node_wait_for_healthy_database_minutes: 5
dynamic_jobs: {max_iterations: 7}",
    );
    let spec = good(&source);
    let constants: Vec<_> =
        spec.constants.iter().map(|(name, value)| (text(&spec, *name), text(&spec, *value))).collect();
    assert_eq!(constants, [("root", "/data"), ("n", "08")]);
    assert_eq!(spec.shared_parameters.parameters.len(), 1);
    assert_eq!(spec.shared_parameters.parameters_file.map(|path| text(&spec, path)), Some("table.csv"));
    assert_eq!(spec.stdio, StdioSettings { mode: StdioMode::Combined, delete_on_success: false });
    let wanted = json!({
        "metadata": {"tags": ["a", 1], "nested": {"deep": null}},
        "change_detection": "content",
        "slurm_defaults": {"qos": "high", "exclusive": true, "mail-type": null},
        "use_pending_failed": true,
        "retry_budget": "20%",
        "enable_ro_crate": true,
        "compute_node_expiration_buffer_seconds": 60,
        "compute_node_wait_for_new_jobs_seconds": 0,
        "compute_node_ignore_workflow_completion": true,
        "compute_node_wait_for_healthy_database_minutes": 5,
        "dynamic_jobs": {"max_iterations": 7},
    });
    assert_eq!(serde_json::to_value(&spec.settings).unwrap(), wanted);
    let limits: Vec<_> = spec.limits.iter().map(|limit| (limit.name.as_str(), limit.max_running)).collect();
    assert_eq!(limits, [("licence", 2), ("the disk", 10)]);
    assert_eq!(spec.settings.change_detection, Some(ChangeDetection::Content));
    assert_eq!(spec.project.map(|project| text(&spec, project)), Some("climate"));
    let groups = spec.names[spec.access_groups.range()].iter().map(|group| text(&spec, *group));
    assert_eq!(groups.collect::<Vec<_>>(), ["one", "two"]);
}

#[test]
fn every_job_field_is_decoded() {
    let source = "\
name: w
jobs:
  - name: j{i}
    command: run {i}
    invocation_script: source env.sh
    depends_on: [a]
    depends_on_regexes: ['^b']
    input_files: [f]
    input_file_regexes: ['in.*']
    output_files: [g, h]
    output_file_regexes: ['out.*']
    input_user_data: [u]
    input_user_data_regexes: ['iu']
    output_user_data: [v]
    output_user_data_regexes: ['ov']
    env: {K: v}
    resource_requirements: small
    priority: 3
    cancel_on_blocking_job_failure: false
    supports_termination: true
    failure_handler: retry
    labels: [gpu, fast]
    sites: [north, south]
    limit: licence
    stdio: {mode: none, delete_on_success: true}
    parameters: {i: '1:3', x: [1, 'two', 3.5]}
    parameter_mode: zip
    use_parameters: [seed]
    parameters_file: rows.csv
    use_parameters_file: true
  - {name: on_slurm, command: x, scheduler: long}
";
    let spec = good(source);
    let [job, on_slurm] = spec.jobs.as_slice() else { panic!("{:?}", spec.jobs) };
    let more: &RareJobFields = job.rare.as_ref().expect("has more");
    let lists = [
        (job.depends_on, vec!["a"]),
        (job.input_files, vec!["f"]),
        (job.output_files, vec!["g", "h"]),
        (more.depends_on_regexes, vec!["^b"]),
        (more.input_file_regexes, vec!["in.*"]),
        (more.output_file_regexes, vec!["out.*"]),
        (more.input_user_data, vec!["u"]),
        (more.input_user_data_regexes, vec!["iu"]),
        (more.output_user_data, vec!["v"]),
        (more.output_user_data_regexes, vec!["ov"]),
        (more.labels, vec!["gpu", "fast"]),
        (more.sites, vec!["north", "south"]),
        (more.sweep.use_parameters, vec!["seed"]),
    ];
    for (found, wanted) in lists {
        assert_eq!(list(&spec, found), wanted);
    }
    let texts = [
        (Some(job.name), "j{i}"),
        (Some(job.command), "run {i}"),
        (more.invocation_script, "source env.sh"),
        (more.failure_handler, "retry"),
        (more.limit, "licence"),
        (more.sweep.parameters_file, "rows.csv"),
        (on_slurm.rare.as_ref().and_then(|more| more.scheduler), "long"),
    ];
    for (found, wanted) in texts {
        assert_eq!(found.map(|found| text(&spec, found)), Some(wanted));
    }
    assert_eq!((job.priority, job.cancel_on_blocking_job_failure), (3, false));
    assert_eq!(more.supports_termination, Some(true));
    assert_eq!(more.stdio, Some(StdioSettings { mode: StdioMode::None, delete_on_success: true }));
    assert_eq!(more.sweep.mode.map(|(mode, _)| mode), Some(ParameterMode::Zip));
    assert_eq!(more.sweep.use_parameters_file.map(|(uses, _)| uses), Some(true));
    assert_eq!(
        parameters(&spec, &more.sweep.parameters),
        ["i=1:3 quoted", "x=[1 plain, two quoted, 3.5 plain]"]
    );
}

fn parameters(spec: &WorkflowSpec<'_>, parameters: &[SweepParameter]) -> Vec<String> {
    let one = |value: NamedText, plain: bool| {
        format!("{} {}", text(spec, value), if plain { "plain" } else { "quoted" })
    };
    let values = |values: &WrittenParameterValues| match values {
        WrittenParameterValues::Text { text, plain } => one(*text, *plain),
        WrittenParameterValues::List(list) => {
            let list: Vec<_> = list.iter().map(|(value, plain)| one(*value, *plain)).collect();
            format!("[{}]", list.join(", "))
        }
    };
    let parameter =
        |parameter: &SweepParameter| format!("{}={}", text(spec, parameter.name), values(&parameter.values));
    parameters.iter().map(parameter).collect()
}

#[test]
fn every_field_of_files_and_user_data_is_decoded() {
    let source = with(
        "\
files:
  - name: f{i}
    path: out/{i}
    identifier: doi:1
    st_mtime: 12.5
    parameters: {i: '1:2'}
    parameter_mode: product
    use_parameters: [s]
    parameters_file: t.json
    use_parameters_file: false
user_data:
  - {name: u, data: {a: [1, 2.5, 'x', yes, true, ~, 007, 1e2]}, is_ephemeral: true, parameters: {i: 1}}
  - {name: empty, data: }
  - {name: text, data: plain}",
    );
    let spec = good(&source);
    let [file] = spec.files.as_slice() else { panic!("{:?}", spec.files) };
    assert_eq!((text(&spec, file.name), text(&spec, file.path)), ("f{i}", "out/{i}"));
    assert_eq!(file.identifier.map(|name| text(&spec, name)), Some("doi:1"));
    assert_eq!(file.st_mtime, Some(12.5));
    assert_eq!(parameters(&spec, &file.sweep.parameters), ["i=1:2 quoted"]);
    assert_eq!(file.sweep.mode.map(|(mode, _)| mode), Some(ParameterMode::Product));
    assert_eq!(list(&spec, file.sweep.use_parameters), ["s"]);
    assert_eq!(file.sweep.use_parameters_file.map(|(uses, _)| uses), Some(false));
    let [data, empty, plain] = spec.user_data.as_slice() else { panic!("{:?}", spec.user_data) };
    assert_eq!(data.data, Some(json!({"a": [1, 2.5, "x", "yes", true, null, "007", 100.0]})));
    assert!(data.is_ephemeral && !empty.is_ephemeral);
    let written = &source[data.data_span.start as usize..];
    assert!(written.starts_with("{a: [1"), "{written}");
    assert_eq!((&empty.data, &plain.data), (&None, &Some(json!("plain"))));
}

#[test]
fn every_action_field_is_decoded() {
    let source = with(
        "\
actions:
  - {trigger_type: on_jobs_complete, action_type: run_commands, jobs: [a], job_name_regexes: ['b.*'],
     commands: ['x y', z], persistent: true}
  - {trigger_type: on_worker_start, action_type: schedule_nodes, scheduler: s, scheduler_type: slurm,
     num_allocations: 2, start_one_worker_per_node: true, max_parallel_jobs: 4}",
    );
    let spec = good(&source);
    let [run, schedule] = spec.actions.as_slice() else { panic!("{:?}", spec.actions) };
    assert_eq!(run.action.trigger_type, ActionTrigger::OnJobsComplete);
    assert_eq!(run.action.action_type, ActionType::RunCommands);
    assert_eq!(run.action.commands, ["x y", "z"]);
    assert_eq!((list(&spec, run.jobs), list(&spec, run.job_name_regexes)), (vec!["a"], vec!["b.*"]));
    assert_eq!(list(&spec, run.commands), ["x y", "z"]);
    assert!(run.action.persistent);
    assert_eq!(&source[run.span.start as usize..run.span.end as usize], "trigger_type");
    assert_eq!(schedule.scheduler.map(|name| text(&spec, name)), Some("s"));
    let wanted = json!({
        "trigger_type": "on_worker_start", "action_type": "schedule_nodes", "scheduler": "s",
        "scheduler_type": "slurm", "num_allocations": 2, "start_one_worker_per_node": true, "max_parallel_jobs": 4,
    });
    assert_eq!(serde_json::to_value(&schedule.action).unwrap(), wanted);
}

/// A value for each field that differs from the default of its type.
fn sample(map: &FieldTable) -> Value {
    let value = |is: &FieldType, default: &str| match is {
        FieldType::Boolean => json!(default != "true"),
        FieldType::Integer(_, most) => json!((*most).min(200)),
        FieldType::Number(_, most) => json!(most.min(2.5)),
        FieldType::Choice(words) => json!(words[words.len() - 1]),
        FieldType::Walltime => json!("2-00:00:00"),
        FieldType::SlurmSize => json!("7G"),
        FieldType::Signal => json!("SIGUSR2"),
        FieldType::SrunSignal => json!("B:USR1@60"),
        FieldType::Size => json!("7g"),
        FieldType::Duration => json!("PT2H"),
        FieldType::Growth(_) => json!("x1.5"),
        FieldType::List(FieldType::Signal) => json!(["SIGUSR2", "SIGKILL"]),
        FieldType::List(FieldType::Choice(words)) => json!(words),
        FieldType::List(FieldType::StderrPattern) => json!(["No such file: {", "re:^a{2}"]),
        FieldType::List(FieldType::Integer(..)) => json!([1, 2]),
        FieldType::List(FieldType::Map(map)) => json!([sample(map)]),
        FieldType::Map(map) => sample(map),
        _ => json!("some text"),
    };
    // Types do not contain fields without effect.
    let fields = map.fields.iter().filter(|field| !field.description.starts_with("Accepted without effect"));
    fields.map(|field| (field.name.to_owned(), value(&field.field_type, field.default))).collect()
}

#[test]
fn tables_and_types_have_the_same_choices() {
    let words = |field: &str| {
        let (index, _) = FAILURE_RULE.find_field(field).unwrap();
        FAILURE_RULE.fields[index].field_type.item_type().unwrap().choices()
    };
    assert_eq!(words("classes"), FailureClass::ALL.map(FailureClass::as_str));
    let fields: Vec<&str> = FAILURE_RULE.fields.iter().map(|field| field.name).collect();
    for field in &fields {
        assert!(FailureRule::FIELDS.contains(field), "{field}");
    }
    assert_eq!(fields.len(), FailureRule::FIELDS.len());
    assert_eq!(words("on"), FailureCause::ALL.map(FailureCause::as_str));
}

/// Tables that are deserialized into a type have exactly the fields of that type.
#[test]
fn tables_and_types_have_the_same_fields() {
    let same = |map: &FieldTable, back: serde_json::Result<Value>| {
        assert_eq!(back.unwrap(), sample(map), "{}", map.noun);
    };
    let handler: FailureHandler = serde_json::from_value(sample(&FAILURE_HANDLER)).unwrap();
    same(&FAILURE_HANDLER, serde_json::to_value(handler));
    let scheduler: SlurmScheduler = serde_json::from_value(sample(&SLURM_SCHEDULER)).unwrap();
    same(&SLURM_SCHEDULER, serde_json::to_value(scheduler));
    let config: ExecutionConfig = serde_json::from_value(sample(&EXECUTION_CONFIG)).unwrap();
    same(&EXECUTION_CONFIG, serde_json::to_value(config));
    let monitor: ResourceMonitor = serde_json::from_value(sample(&RESOURCE_MONITOR)).unwrap();
    same(&RESOURCE_MONITOR, serde_json::to_value(monitor));
    let policy: TriagePolicy = serde_json::from_value(sample(&TRIAGE)).unwrap();
    same(&TRIAGE, serde_json::to_value(policy));
}

/// Every field of the maps above keeps its value when serialized again.
#[test]
fn sections_keep_their_values_when_serialized() {
    let of = |field: &str, value: &Value| with(&format!("{field}: {value}"));
    let config = sample(&EXECUTION_CONFIG);
    let action = "actions: [{trigger_type: on_worker_start, action_type: schedule_nodes, scheduler: s, \
                  start_one_worker_per_node: true}]";
    let action = with(&format!("{action}\nexecution_config: {config}"));
    let settings: WorkflowSettings = good(&action).settings;
    assert_eq!(serde_json::to_value(settings.execution_config).unwrap(), config);
    let monitor = sample(&RESOURCE_MONITOR);
    let settings = good(&of("resource_monitor", &monitor)).settings.clone();
    assert_eq!(serde_json::to_value(settings.resource_monitor).unwrap(), monitor);
    let policy = sample(&TRIAGE);
    let settings = good(&of("triage", &policy)).settings.clone();
    assert_eq!(serde_json::to_value(settings.triage).unwrap(), policy);
    let handler = sample(&FAILURE_HANDLER);
    let text = of("failure_handlers", &json!([handler]));
    let (found, span) = &good(&text).failure_handlers[0];
    assert_eq!(serde_json::to_value(found).unwrap(), handler);
    assert_eq!(&text[span.start as usize..span.end as usize], "\"some text\"");
    let scheduler = sample(&SLURM_SCHEDULER);
    let text = of("slurm_schedulers", &json!([scheduler]));
    assert_eq!(serde_json::to_value(&good(&text).schedulers[0].0).unwrap(), scheduler);
}

#[test]
fn resource_aliases_are_accepted() {
    let ours =
        with("resource_requirements: [{name: r, cpus: 2, memory: 1g, gpus: 1, nodes: 3, walltime: 90m}]");
    let torcs = with(
        "resource_requirements: [{name: r, num_cpus: 2, memory: 1g, num_gpus: 1, num_nodes: 3, runtime: PT1H30M}]",
    );
    assert_eq!(good(&ours).requirements[0].resources, good(&torcs).requirements[0].resources);
}

#[test]
fn variables_are_expanded_in_amounts() {
    let source = with(
        "\
resource_requirements: [{name: r, num_cpus: 1, memory: '{size}', runtime: '{hours:02d}:{minutes}:00'}]
failure_handlers: [{name: h, rules: [{on: [timeout], runtime: '+{hours}h', max_runtime: '{hours}0h'}]}]
retry_budget: '{minutes}%'
slurm_schedulers: [{name: s, account: '{who}', walltime: '0{hours}:00:00'}]
variables: {size: '{gb}g', gb: 3, hours: 2, minutes: 30, who: me}",
    );
    let spec = good(&source);
    let resources = spec.requirements[0].resources;
    assert_eq!(resources.memory.0, 3 << 30);
    assert_eq!(resources.runtime, Some(std::time::Duration::from_mins(150)));
    let rule = &spec.failure_handlers[0].0.rules[0];
    assert_eq!(rule.runtime.map(|growth| growth.to_string()).as_deref(), Some("+PT2H"));
    assert_eq!(rule.max_runtime, Some(std::time::Duration::from_hours(20)));
    assert_eq!(spec.settings.retry_budget.map(|budget| budget.to_string()).as_deref(), Some("30%"));
    // Texts keep their templates; an amount was resolved here.
    assert_eq!(spec.schedulers[0].0.account, "{who}");
    assert_eq!(spec.schedulers[0].0.walltime, "02:00:00");
}

#[test]
fn empty_and_null_fields_count_as_absent() {
    let optional = WORKFLOW.fields.iter().filter(|field| !field.required);
    for field in optional {
        for nothing in ["", "~", "null"] {
            let source = with(&format!("{}: {nothing}", field.name));
            let spec = good(&source);
            assert_eq!(spec.settings, WorkflowSettings::default(), "{}", field.name);
        }
    }
    let source = "name: w\njobs: [{name: a, command: b, env: , depends_on: ~, priority: , scheduler: , parameters: }]\n";
    assert!(good(source).jobs[0].rare.is_none());
    // It still overrides merged values, and a repeated field is still reported.
    let source = "name: w\njobs:\n- &a {name: a, command: b, priority: 3}\n- {<<: *a, name: c, priority: }\n";
    assert_eq!(good(source).jobs[1].priority, 0);
    assert_eq!(problems(&with("user:\nuser: ada")), ["duplicate-field field `user` is given twice"]);
}

#[test]
fn torc_specs_are_decoded() {
    for (source, jobs, files) in [
        (include_str!("../../tests/torc/tile_mosaic.yaml"), 4, 6),
        (include_str!("../../tests/torc/viscosity_grid.yaml"), 3, 2),
        (include_str!("../../tests/torc/shaky_solver.yaml"), 3, 0),
        (include_str!("../../tests/torc/two_phase_cluster.yaml"), 2, 0),
    ] {
        let spec = good(source);
        assert_eq!((spec.jobs.len(), spec.files.len()), (jobs, files));
    }
}

#[test]
fn jobs_without_rare_fields_allocate_none() {
    assert!(
        good("name: w\njobs: [{name: a, command: b, depends_on: [], env: {A: 1}, priority: 1}]\n").jobs[0]
            .rare
            .is_none()
    );
}

//! The JSON schema of a spec, for editors, built from the tables of the decoder.
//!
//! It contains all fields, types and ranges. Some rules are checked only by the decoder: that names exist, that
//! dependencies have no cycle, that fields require each other. Where the decoder accepts several spellings, the
//! schema accepts the usual one (signals in upper case), and it requires a value for every key.

use crate::decode::MANAGED_SBATCH_OPTIONS;
use crate::decode::field_tables::{FieldTable, FieldType, GrowthUnit, SpecField};
use crate::decode::tables::WORKFLOW;
use serde_json::{Value, json};
use windlass_types::SIGNAL_NAMES;
use windlass_types::worker_messages::RESERVED_PREFIX;

const IDENTIFIER_PATTERN: &str = "^[A-Za-z_][A-Za-z0-9_]*$";
/// Matches a constant anywhere in a text.
const CONSTANT_PATTERN: &str = r"\{[A-Za-z_][A-Za-z0-9_]*\}";
const SIZE_PATTERN: &str = r"^ *[0-9]*\.?[0-9]+ *([kKmMgGtT]([iI]?[bB])?|[bB])? *$";
const DURATION_PATTERN: &str = r"^ *([Pp][0-9TtWwDdHhMmSs.]+|[0-9][0-9A-Za-z.: -]*)$";

/// Returns the schema, in JSON Schema 2020-12.
pub fn build_json_schema() -> Value {
    let mut definitions = serde_json::Map::new();
    let mut waiting = inner_tables(&WORKFLOW);
    while let Some(map) = waiting.pop() {
        if definitions.insert(definition_name(map), table_schema(map)).is_none() {
            waiting.extend(inner_tables(map));
        }
    }
    let mut root = table_schema(&WORKFLOW);
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    root["$id"] = "urn:windlass:spec:1".into();
    root["title"] = "Windlass workflow".into();
    root["$defs"] = Value::Object(definitions);
    root
}

fn inner_tables(map: &'static FieldTable) -> Vec<&'static FieldTable> {
    map.fields.iter().filter_map(|field| field.field_type.inner_table()).collect()
}

fn definition_name(map: &FieldTable) -> String {
    map.noun.to_lowercase().replace(' ', "_")
}

fn table_schema(map: &'static FieldTable) -> Value {
    let mut properties = serde_json::Map::new();
    for field in map.fields {
        properties.insert(field.name.to_owned(), field_schema(field));
        for alias in field.aliases {
            let mut schema = type_schema(&field.field_type);
            schema["description"] = format!("Alias of `{}`.", field.name).into();
            properties.insert((*alias).to_owned(), schema);
        }
    }
    let is_certain = |field: &&SpecField| field.required && field.aliases.is_empty();
    let required: Vec<_> = map.fields.iter().filter(is_certain).map(|field| field.name).collect();
    let mut schema = json!({
        "type": "object",
        "description": map.description,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let rules = table_rules(map);
    if !rules.is_empty() {
        schema["allOf"] = rules.into();
    }
    schema
}

/// Rules that a list of required fields cannot express.
fn table_rules(map: &FieldTable) -> Vec<Value> {
    let by_any_name = |field: &SpecField| {
        let names: Vec<_> = field.names().map(|name| json!({"required": [name]})).collect();
        json!({"anyOf": names})
    };
    let is_open = |field: &&SpecField| field.required && !field.aliases.is_empty();
    let mut rules: Vec<_> = map.fields.iter().filter(is_open).map(by_any_name).collect();
    match map.noun {
        "job" => rules.push(json!({"not": {"required": ["labels", "scheduler"]}})),
        "action" => {
            rules.push(json!({
                "if": {"properties": {"trigger_type": {"enum": ["on_jobs_ready", "on_jobs_complete"]}}},
                "then": {"anyOf": [{"required": ["jobs"]}, {"required": ["job_name_regexes"]}]},
            }));
            rules.push(json!({
                "if": {"properties": {"action_type": {"const": "run_commands"}}},
                "then": {"required": ["commands"]},
            }));
        }
        "rule" => {
            let conditions = ["exit_codes", "match_all_exit_codes", "signals", "on", "classes", "stderr"];
            let named: Vec<_> = conditions.iter().map(|field| json!({"required": [field]})).collect();
            rules.push(json!({"anyOf": named}));
            let shapes = ["backoff", "max_delay", "jitter"].iter();
            rules.extend(
                shapes.map(|field| json!({"if": {"required": [field]}, "then": {"required": ["delay"]}})),
            );
        }
        _ => {}
    }
    rules
}

fn field_schema(field: &SpecField) -> Value {
    let mut schema = type_schema(&field.field_type);
    schema["description"] = field.description.into();
    if let Ok(default) = serde_json::from_str::<Value>(field.default) {
        schema["default"] = default;
    } else if field.field_type.choices().contains(&field.default) {
        schema["default"] = field.default.into();
    }
    schema
}

fn type_schema(is: &FieldType) -> Value {
    match is {
        FieldType::Text => text_schema(),
        FieldType::NonBlank | FieldType::Name | FieldType::StderrPattern => non_blank_schema(),
        FieldType::Regex => json!({"type": "string", "format": "regex", "minLength": 1}),
        FieldType::Integer(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
        FieldType::Number(least, most) => json!({"type": "number", "minimum": least, "maximum": most}),
        FieldType::Boolean => json!({"type": "boolean"}),
        FieldType::Choice(words) => json!({"enum": words}),
        FieldType::Size => {
            amount_schema(SIZE_PATTERN, &json!({"exclusiveMinimum": 0, "examples": ["200m", "4g", "1.5GiB"]}))
        }
        FieldType::SlurmSize => amount_schema(SIZE_PATTERN, &json!({"minimum": 0, "examples": ["4G", "0"]})),
        FieldType::Duration => amount_schema(
            DURATION_PATTERN,
            &json!({"exclusiveMinimum": 0, "examples": ["90m", "1h30m", "PT1H"]}),
        ),
        FieldType::Walltime => amount_schema(
            DURATION_PATTERN,
            &json!({"exclusiveMinimum": 0, "examples": ["01:00:00", "1-12:00:00", "2h"]}),
        ),
        FieldType::Signal => signal_schema("", ""),
        FieldType::SrunSignal => signal_schema("([RB]:)?", "(@[0-9]{1,5})?"),
        FieldType::Growth(grows) => growth_schema(*grows),
        FieldType::RetryBudget => {
            let pattern = format!("^ *[0-9]+([.][0-9]+)? *% *$|^ *[0-9]+ *$|{CONSTANT_PATTERN}");
            json!({"type": ["string", "integer"], "pattern": pattern, "minimum": 0, "examples": [100, "20%"]})
        }
        FieldType::List(item) => json!({"type": "array", "items": type_schema(item)}),
        FieldType::Map(map) => json!({"$ref": format!("#/$defs/{}", definition_name(map))}),
        FieldType::Env => {
            let reserved = format!("^{RESERVED_PREFIX}");
            let names = json!({"pattern": IDENTIFIER_PATTERN, "not": {"pattern": reserved}});
            json!({"type": "object", "propertyNames": names, "additionalProperties": text_schema()})
        }
        FieldType::Constants => {
            json!({"type": "object", "propertyNames": {"pattern": IDENTIFIER_PATTERN}, "additionalProperties": text_schema()})
        }
        FieldType::Parameters => {
            let list = json!({"type": "array", "items": text_schema(), "minItems": 1});
            let values = json!({"anyOf": [text_schema(), list]});
            json!({"type": "object", "propertyNames": {"pattern": IDENTIFIER_PATTERN}, "additionalProperties": values})
        }
        FieldType::Limits(least, most) => {
            let number = json!({"type": "integer", "minimum": least, "maximum": most});
            json!({"type": "object", "propertyNames": {"pattern": "\\S"}, "additionalProperties": number})
        }
        FieldType::SlurmOptions => {
            let managed: Vec<_> = MANAGED_SBATCH_OPTIONS.iter().map(|(name, _)| *name).collect();
            let names = json!({"pattern": "^[A-Za-z][A-Za-z0-9_-]*$", "not": {"enum": managed}});
            let values = json!({"type": ["string", "number", "boolean", "null"]});
            json!({"type": "object", "propertyNames": names, "additionalProperties": values})
        }
        FieldType::Json => json!({}),
        FieldType::JsonMap => json!({"type": "object"}),
    }
}

/// Unquoted values are texts too.
fn text_schema() -> Value {
    json!({"type": ["string", "number", "boolean"]})
}

fn non_blank_schema() -> Value {
    json!({"type": ["string", "number", "boolean"], "pattern": "\\S"})
}

fn amount_schema(pattern: &str, more: &Value) -> Value {
    let mut schema =
        json!({"type": ["string", "number"], "pattern": format!("{pattern}|{CONSTANT_PATTERN}")});
    for (keyword, value) in more.as_object().into_iter().flatten() {
        schema[keyword] = value.clone();
    }
    schema
}

/// The decoder also checks that a factor is above 1.
fn growth_schema(grows: GrowthUnit) -> Value {
    let amount = match grows {
        GrowthUnit::Size => r"[0-9]*\.?[0-9]+ *([kKmMgGtT]([iI]?[bB])?|[bB])?",
        GrowthUnit::Duration => r"([Pp][0-9TtWwDdHhMmSs.]+|[0-9][0-9A-Za-z.: -]*)",
        GrowthUnit::Count => r"[0-9]+",
    };
    let pattern =
        format!(r"^ *([xX×] *[0-9]+(\.[0-9]+)?|\+ *([0-9]+(\.[0-9]+)? *%|{amount})) *$|{CONSTANT_PATTERN}");
    json!({"type": "string", "pattern": pattern, "examples": ["x1.5", "+30%", grows.example()]})
}

fn signal_schema(before: &str, after: &str) -> Value {
    let names = SIGNAL_NAMES.join("|");
    let pattern = format!("^{before}((SIG)?({names})|[1-9]|[12][0-9]|3[01]){after}$|{CONSTANT_PATTERN}");
    json!({"type": ["string", "integer"], "pattern": pattern, "minimum": 1, "maximum": 31})
}

#[cfg(test)]
mod checker;

#[cfg(test)]
mod tests {
    use super::checker::find_violation;
    use super::*;

    /// Parses the file as an editor does.
    fn value(text: &str) -> Value {
        crate::decode::decode_json_document(crate::yaml::YamlReader::new(text)).expect("is YAML")
    }

    #[test]
    fn schema_accepts_torc_specs() {
        for text in [
            include_str!("../tests/torc/tile_mosaic.yaml"),
            include_str!("../tests/torc/viscosity_grid.yaml"),
            include_str!("../tests/torc/shaky_solver.yaml"),
            include_str!("../tests/torc/two_phase_cluster.yaml"),
        ] {
            assert_eq!(find_violation(&build_json_schema(), &value(text)), None, "{text}");
        }
    }

    #[test]
    fn schema_and_decoder_agree() {
        let good = [
            "",
            "version: 1\nuser: ada\nproject: p\nmetadata: {a: [1, {b: ~}]}",
            "variables: {mem: 4g}\nresource_requirements: [{name: r, cpus: 1, memory: '{mem}', walltime: 2h}]",
            "parameters: {i: '1:3', j: [1, a]}\nenv: {A: 1}",
            "resource_requirements: [{name: r, num_cpus: 1, memory: 512, nodes: 2, gpus: 1, runtime: 1-02:00:00}]",
            "slurm_defaults: {qos: high, exclusive: ~, mail-type: END}",
            "execution_config: {mode: auto, termination_signal: SIGUSR1, srun_termination_signal: 'B:TERM@60'}",
            "failure_handlers: [{name: h, rules: [{exit_codes: [-128, 255], max_retries: 0}]}]",
            "failure_handlers: [{name: h, rules: [{signals: [SIGKILL, 11, HUP], on: [timeout], classes: [data], stderr: ['re:^a']}]}]",
            "failure_handlers: [{name: h, rules: [{on: [timeout], delay: 10, backoff: 1.5, max_delay: 1m, jitter: 0.5}]}]",
            "failure_handlers: [{name: h, rules: [{on: [timeout], memory: x1.5, runtime: '+PT10M', cpus: '+1', max_cpus: 4}]}]",
            "failure_handlers: [{name: h, rules: [{on: [timeout], memory: '+2.5 GiB', runtime: +30%, cpus: +12.5%, max_memory: 4g}]}]",
            "retry_budget: 100",
            "triage: {min_confidence: 0.8, max_agent_retries: 0, require_evidence: true}",
            "retry_budget: 12.5%",
            "limits: {licence: 1, the disk: 500}",
            "variables: {n: 3}\nretry_budget: '{n}%'",
            "slurm_schedulers: [{name: s, account: a, mem: 0, walltime: 90, tmp: 10G}]",
            "resource_monitor: {sample_interval_seconds: 0.5, jobs: {enabled: true, granularity: time_series}}",
            "actions: [{trigger_type: on_jobs_ready, action_type: run_commands, jobs: [a], commands: [x]}]",
            "user_data: [{name: u, data: {a: 1}, is_ephemeral: true}]\nfiles: [{name: f, path: p, st_mtime: 1.5}]",
        ];
        let bad = [
            "version: 2",
            "colour: blue",
            "jobs_sort_method: none",
            "metadata: text",
            "variables: {1a: x}",
            "parameters: {i: {a: b}}",
            "parameters: {i: []}",
            "env: {WINDLASS_X: 1}",
            "change_detection: magic",
            "resource_requirements: [{name: r, memory: 1g}]",
            "resource_requirements: [{name: r, num_cpus: 0, memory: 1g}]",
            "resource_requirements: [{name: r, num_cpus: 1, memory: 4x}]",
            "resource_requirements: [{name: r, num_cpus: 1, memory: 1g, runtime: soon}]",
            "slurm_defaults: {time: 3}",
            "slurm_defaults: {qos: [a]}",
            "slurm_defaults: {--qos: a}",
            "execution_config: {termination_signal: SIGTRM}",
            "execution_config: {timeout_exit_code: 0}",
            "execution_config: {mode: slurm, srun_termination_signal: TERM@soon}",
            "failure_handlers: [{name: h, rules: [{exit_codes: [256]}]}]",
            "failure_handlers: [{name: h}]",
            "failure_handlers: [{name: h, rules: [{max_retries: 3}]}]",
            "failure_handlers: [{name: h, rules: [{on: [oom]}]}]",
            "failure_handlers: [{name: h, rules: [{signals: [SIGTRM]}]}]",
            "failure_handlers: [{name: h, rules: [{on: [timeout], memory: 2g}]}]",
            "failure_handlers: [{name: h, rules: [{on: [timeout], cpus: '+1g'}]}]",
            "failure_handlers: [{name: h, rules: [{on: [timeout], backoff: 2}]}]",
            "triage: {min_confidence: 80}",
            "retry_budget: lots",
            "retry_budget: -1",
            "limits: {licence: 0}",
            "limits: {licence: two}",
            "limits: {' ': 2}",
            "limits: [licence]",
            "slurm_schedulers: [{name: s}]",
            "resource_monitor: {granularity: fine}",
            "actions: [{trigger_type: on_jobs_ready, action_type: run_commands, commands: [x]}]",
            "actions: [{trigger_type: on_worker_start, action_type: run_commands}]",
            "dynamic_jobs: {max_iterations: 0}",
            "user_data: [{data: 1}]",
        ];
        let schema = build_json_schema();
        let cases = good.map(|text| (text, true)).into_iter().chain(bad.map(|text| (text, false)));
        for (text, is_good) in cases {
            let text = format!("name: w\njobs: [{{name: a, command: b}}]\n{text}\n");
            let complaint = find_violation(&schema, &value(&text));
            assert_eq!(complaint.is_none(), is_good, "schema: {text}: {complaint:?}");
            let decoded = crate::parse_spec("sim.yaml", text.as_bytes());
            assert_eq!(decoded.is_ok(), is_good, "decoder: {text}: {decoded:?}");
        }
    }
}

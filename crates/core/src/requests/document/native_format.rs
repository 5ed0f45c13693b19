//! The native format: fields of a request by name. Unknown fields are rejected.

use super::DocumentProblems;
use super::draft::{GenerationDraft, RequestDraft, StepDraft, parse_lumi_mask};
use super::field_reader::{FieldReader, LocatedValue, describe_value, nearest_word};
use serde_json::{Map, Value};

const REQUEST_FIELDS: &[&str] = &[
    "request_name",
    "requestor",
    "requestor_dn",
    "group",
    "input_dataset",
    "secondary_input_dataset",
    "output_datasets",
    "generation",
    "cmssw_version",
    "scram_arch",
    "global_tag",
    "memory_mb",
    "time_per_event_sec",
    "size_per_event_kb",
    "multicore",
    "site_whitelist",
    "site_blacklist",
    "trust_sitelists",
    "splitting_algo",
    "splitting_params",
    "adaptive",
    "campaign",
    "processing_string",
    "acquisition_era",
    "processing_version",
    "priority",
    "urgent",
    "production_steps",
    "payload_config",
    "previous_version_request",
    "superseded_by_request",
    "cleanup_policy",
];
const GENERATION_FIELDS: &[&str] =
    &["events", "first_event", "first_lumi", "events_per_lumi", "filter_efficiency"];
const SPLITTING_FIELDS: &[&str] = &[
    "files_per_job",
    "events_per_job",
    "lumis_per_job",
    "max_events_per_lumi",
    "time_per_job",
    "run_whitelist",
    "run_blacklist",
    "lumi_mask",
    "halt_job_on_file_boundaries",
    "target_merged_size_kb",
    "target_block_size_kb",
];
const STEP_FIELDS: &[&str] = &["fraction", "priority"];

pub(super) fn parse_native(map: &Map<String, Value>, faults: &mut DocumentProblems) -> RequestDraft {
    let reader = FieldReader { map, prefix: String::new() };
    reject_unknown_fields(&reader, REQUEST_FIELDS, faults);
    if reader.get("superseded_by_request").is_some() {
        let remedy = Some("restart the request instead".to_owned());
        faults.push("superseded_by_request", "is set by the system only", remedy);
    }
    let mut draft = RequestDraft {
        request_name: reader.read_text("request_name", faults),
        name_field: "request_name",
        requestor: reader.read_text("requestor", faults),
        requestor_dn: reader.read_text("requestor_dn", faults),
        group: reader.read_text("group", faults),
        input_field: "input_dataset",
        input_dataset: reader.read_text("input_dataset", faults),
        secondary_input_dataset: reader.read_text("secondary_input_dataset", faults),
        outputs_field: "output_datasets",
        output_datasets: reader.read_texts("output_datasets", faults),
        generation: parse_generation(&reader, faults),
        generation_field: "generation",
        cmssw_version: reader.read_text("cmssw_version", faults),
        scram_arch: reader.read_texts("scram_arch", faults),
        global_tag: reader.read_text("global_tag", faults),
        memory_mb: reader.read_u64("memory_mb", faults),
        time_per_event: reader.read_f64("time_per_event_sec", faults),
        size_per_event: reader.read_f64("size_per_event_kb", faults),
        multicore: reader.read_u32("multicore", faults),
        site_whitelist: reader.read_texts("site_whitelist", faults),
        site_blacklist: reader.read_texts("site_blacklist", faults),
        trust_sitelists: reader.read_flag("trust_sitelists", faults),
        splitting_field: "splitting_algo",
        splitting_algo: reader.read_text("splitting_algo", faults),
        adaptive: reader.read_flag("adaptive", faults),
        campaign: reader.read_text("campaign", faults),
        processing_string: reader.read_text("processing_string", faults),
        acquisition_era: reader.read_text("acquisition_era", faults),
        processing_version: reader.read_u32("processing_version", faults),
        priority: reader.read_i64("priority", faults),
        urgent: reader.read_flag("urgent", faults),
        production_steps: parse_production_steps(&reader, "production_steps", faults),
        payload_config: reader
            .read_object("payload_config", faults)
            .map(|config| config.map.clone())
            .unwrap_or_default(),
        previous_version: reader.read_text("previous_version_request", faults),
        cleanup_policy: reader.read_text("cleanup_policy", faults),
        ..RequestDraft::default()
    };
    if let Some(params) = reader.read_object("splitting_params", faults) {
        reject_unknown_fields(&params, SPLITTING_FIELDS, faults);
        parse_splitting(&mut draft, &params, faults);
    }
    draft
}

fn reject_unknown_fields(
    reader: &FieldReader<'_>,
    known: &'static [&'static str],
    faults: &mut DocumentProblems,
) {
    for key in reader.map.keys().filter(|key| !known.contains(&key.as_str())) {
        let remedy = match key.as_str() {
            "category_throttles" => Some("`windlass serve --throttle` sets them for all requests".to_owned()),
            _ => nearest_word(key, known.iter().copied()).map(|name| format!("did you mean `{name}`?")),
        };
        faults.push(reader.field_path(key), "is not a field of a request", remedy);
    }
}

fn parse_generation(reader: &FieldReader<'_>, faults: &mut DocumentProblems) -> Option<GenerationDraft> {
    let part = reader.read_object("generation", faults)?;
    reject_unknown_fields(&part, GENERATION_FIELDS, faults);
    if part.get("events").is_none() {
        faults.push(part.field_path("events"), "is missing", Some("set the number of events".to_owned()));
    }
    Some(GenerationDraft {
        events: part.read_u64("events", faults),
        first_event: part.read_u64("first_event", faults),
        first_lumi: part.read_u32("first_lumi", faults),
        events_per_lumi: part.read_u64("events_per_lumi", faults),
        filter_efficiency: part.read_f64("filter_efficiency", faults),
    })
}

fn parse_splitting(draft: &mut RequestDraft, params: &FieldReader<'_>, faults: &mut DocumentProblems) {
    draft.files_per_job = params.read_u64("files_per_job", faults);
    draft.events_per_job = params.read_u64("events_per_job", faults);
    draft.lumis_per_job = params.read_u64("lumis_per_job", faults);
    draft.max_events_per_lumi = params.read_u64("max_events_per_lumi", faults);
    draft.time_per_job = params.read_u64("time_per_job", faults);
    draft.run_whitelist = params.read_runs("run_whitelist", faults);
    draft.run_blacklist = params.read_runs("run_blacklist", faults);
    draft.lumi_mask = parse_lumi_mask(params, "lumi_mask", faults);
    draft.halt_on_files = params.read_flag("halt_job_on_file_boundaries", faults);
    draft.merged_size = params.read_u64("target_merged_size_kb", faults);
    draft.block_size = params.read_u64("target_block_size_kb", faults);
}

/// R-005; for documents of both formats.
pub(super) fn parse_production_steps(
    reader: &FieldReader<'_>,
    key: &str,
    faults: &mut DocumentProblems,
) -> Option<LocatedValue<Vec<StepDraft>>> {
    let Some(list) = reader.get(key)?.as_array() else {
        let reason =
            format!("must be a list of {{fraction, priority}}, not {}", describe_value(reader.get(key)?));
        faults.push(reader.field_path(key), reason, None);
        return None;
    };
    let mut steps = Vec::new();
    for (at, step) in list.iter().enumerate() {
        let path = format!("{}.{at}", reader.field_path(key));
        let Value::Object(map) = step else {
            faults.push(path, "must be an object with `fraction` and `priority`", None);
            continue;
        };
        let part = FieldReader { map, prefix: format!("{path}.") };
        reject_unknown_fields(&part, STEP_FIELDS, faults);
        for key in STEP_FIELDS.iter().filter(|key| part.get(key).is_none()) {
            faults.push(part.field_path(key), "is missing", None);
        }
        if let (Some(fraction), Some(priority)) =
            (part.read_f64("fraction", faults), part.read_i64("priority", faults))
        {
            steps.push(StepDraft { fraction, priority });
        }
    }
    Some(LocatedValue::new(reader.field_path(key), steps))
}

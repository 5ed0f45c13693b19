//! Our own form: the fields of a request by their names. A field that does not exist is refused.

use super::Faults;
use super::draft::{Draft, GenerationDraft, StepDraft, read_mask};
use super::reader::{At, Reader, nearest, what};
use serde_json::{Map, Value};

const FIELDS: &[&str] = &[
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
const GENERATION: &[&str] = &["events", "first_event", "first_lumi", "events_per_lumi", "filter_efficiency"];
const SPLITTING: &[&str] = &[
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
const STEP: &[&str] = &["fraction", "priority"];

pub(super) fn read(map: &Map<String, Value>, faults: &mut Faults) -> Draft {
    let reader = Reader { map, prefix: String::new() };
    refuse_unknown(&reader, FIELDS, faults);
    if reader.get("superseded_by_request").is_some() {
        let remedy = Some("restart the request instead".to_owned());
        faults.push("superseded_by_request", "is set by the system alone", remedy);
    }
    let mut draft = Draft {
        request_name: reader.text("request_name", faults),
        name_field: "request_name",
        requestor: reader.text("requestor", faults),
        requestor_dn: reader.text("requestor_dn", faults),
        group: reader.text("group", faults),
        input_field: "input_dataset",
        input_dataset: reader.text("input_dataset", faults),
        secondary_input_dataset: reader.text("secondary_input_dataset", faults),
        outputs_field: "output_datasets",
        output_datasets: reader.texts("output_datasets", faults),
        generation: generation(&reader, faults),
        generation_field: "generation",
        cmssw_version: reader.text("cmssw_version", faults),
        scram_arch: reader.texts("scram_arch", faults),
        global_tag: reader.text("global_tag", faults),
        memory_mb: reader.count("memory_mb", faults),
        time_per_event: reader.number("time_per_event_sec", faults),
        size_per_event: reader.number("size_per_event_kb", faults),
        multicore: reader.count32("multicore", faults),
        site_whitelist: reader.texts("site_whitelist", faults),
        site_blacklist: reader.texts("site_blacklist", faults),
        trust_sitelists: reader.flag("trust_sitelists", faults),
        splitting_field: "splitting_algo",
        splitting_algo: reader.text("splitting_algo", faults),
        adaptive: reader.flag("adaptive", faults),
        campaign: reader.text("campaign", faults),
        processing_string: reader.text("processing_string", faults),
        acquisition_era: reader.text("acquisition_era", faults),
        processing_version: reader.count32("processing_version", faults),
        priority: reader.integer("priority", faults),
        urgent: reader.flag("urgent", faults),
        production_steps: production_steps(&reader, "production_steps", faults),
        payload_config: reader
            .object("payload_config", faults)
            .map(|config| config.map.clone())
            .unwrap_or_default(),
        previous_version: reader.text("previous_version_request", faults),
        cleanup_policy: reader.text("cleanup_policy", faults),
        ..Draft::default()
    };
    if let Some(params) = reader.object("splitting_params", faults) {
        refuse_unknown(&params, SPLITTING, faults);
        splitting(&mut draft, &params, faults);
    }
    draft
}

fn refuse_unknown(reader: &Reader<'_>, known: &'static [&'static str], faults: &mut Faults) {
    for key in reader.map.keys().filter(|key| !known.contains(&key.as_str())) {
        let remedy = match key.as_str() {
            "category_throttles" => Some("`windlass serve --throttle` sets them for all requests".to_owned()),
            _ => nearest(key, known.iter().copied()).map(|name| format!("did you mean `{name}`?")),
        };
        faults.push(reader.path(key), "is not a field of a request", remedy);
    }
}

fn generation(reader: &Reader<'_>, faults: &mut Faults) -> Option<GenerationDraft> {
    let part = reader.object("generation", faults)?;
    refuse_unknown(&part, GENERATION, faults);
    if part.get("events").is_none() {
        faults.push(part.path("events"), "is missing", Some("say how many events are wanted".to_owned()));
    }
    Some(GenerationDraft {
        events: part.count("events", faults),
        first_event: part.count("first_event", faults),
        first_lumi: part.count32("first_lumi", faults),
        events_per_lumi: part.count("events_per_lumi", faults),
        filter_efficiency: part.number("filter_efficiency", faults),
    })
}

fn splitting(draft: &mut Draft, params: &Reader<'_>, faults: &mut Faults) {
    draft.files_per_job = params.count("files_per_job", faults);
    draft.events_per_job = params.count("events_per_job", faults);
    draft.lumis_per_job = params.count("lumis_per_job", faults);
    draft.max_events_per_lumi = params.count("max_events_per_lumi", faults);
    draft.time_per_job = params.count("time_per_job", faults);
    draft.run_whitelist = params.runs("run_whitelist", faults);
    draft.run_blacklist = params.runs("run_blacklist", faults);
    draft.lumi_mask = read_mask(params, "lumi_mask", faults);
    draft.halt_on_files = params.flag("halt_job_on_file_boundaries", faults);
    draft.merged_size = params.count("target_merged_size_kb", faults);
    draft.block_size = params.count("target_block_size_kb", faults);
}

/// R-005; of documents of both forms.
pub(super) fn production_steps(
    reader: &Reader<'_>,
    key: &str,
    faults: &mut Faults,
) -> Option<At<Vec<StepDraft>>> {
    let Some(list) = reader.get(key)?.as_array() else {
        let reason = format!("must be a list of {{fraction, priority}}, not {}", what(reader.get(key)?));
        faults.push(reader.path(key), reason, None);
        return None;
    };
    let mut steps = Vec::new();
    for (at, step) in list.iter().enumerate() {
        let path = format!("{}.{at}", reader.path(key));
        let Value::Object(map) = step else {
            faults.push(path, "must be an object with `fraction` and `priority`", None);
            continue;
        };
        let part = Reader { map, prefix: format!("{path}.") };
        refuse_unknown(&part, STEP, faults);
        for key in STEP.iter().filter(|key| part.get(key).is_none()) {
            faults.push(part.path(key), "is missing", None);
        }
        if let (Some(fraction), Some(priority)) =
            (part.number("fraction", faults), part.integer("priority", faults))
        {
            steps.push(StepDraft { fraction, priority });
        }
    }
    Some(At::new(reader.path(key), steps))
}

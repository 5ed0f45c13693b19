//! ReqMgr2's format, as its documents really are (reference: services 3): fields at the top or in
//! `Step1`/`Task1`, texts that may be lists or objects, `null` for absent, assignment values in a separate
//! envelope.
//!
//! A chain is one payload: its steps (or tasks) run one after another in each job, so it must be linear. The
//! input is that of the first one; memory and cores are the maximum, time is the sum; outputs are those of the
//! steps that keep theirs. All other fields remain in `payload_config` unchanged and have no effect here.

mod reqmgr_chain;

use super::draft::{GenerationDraft, RequestDraft, parse_lumi_mask};
use super::field_reader::{FieldReader, LocatedValue, nearest_word};
use super::native_format::parse_production_steps;
use super::{DocumentContext, DocumentProblems};
use reqmgr_chain::ReqmgrChain;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use windlass_types::requests::SplittingAlgo;

/// Document fields that become fields of the request and are not repeated in `payload_config`.
const MAPPED_FIELDS: &[&str] = &[
    "RequestName",
    "Requestor",
    "RequestorDN",
    "Group",
    "OutputDatasets",
    "SiteWhitelist",
    "SiteBlacklist",
    "RequestPriority",
    "Priority",
    "PayloadConfig",
    "ProductionSteps",
    "production_steps",
    "Urgent",
    "urgent",
    "Adaptive",
    "adaptive",
    "CleanupPolicy",
    "cleanup_policy",
    "PreviousVersionRequest",
    "_id",
    "_rev",
];
const REQUEST_TYPES: &[&str] = &["ReReco", "StepChain", "TaskChain"];

/// Returns the draft, and a mapping of its paths (without envelopes) to those of the document.
pub(super) fn parse_reqmgr(
    document: &Map<String, Value>,
    context: &DocumentContext<'_>,
    faults: &mut DocumentProblems,
) -> Option<(RequestDraft, DocumentEnvelopes)> {
    let (map, envelopes) = unwrap_envelopes(document, faults)?;
    let draft = parse_flat(&FieldReader { map: &map, prefix: String::new() }, context, faults);
    Some((draft, envelopes))
}

/// The envelope object that each field was found in, to restore its path in the document.
#[derive(Debug, Default)]
pub(super) struct DocumentEnvelopes {
    /// Key → its envelope.
    envelope_of: BTreeMap<String, &'static str>,
    /// Prefix of all other keys.
    prefix: String,
}

const ENVELOPE_KEYS: [&str; 3] = ["createRequest", "assignRequest", "result"];

impl DocumentEnvelopes {
    pub(super) fn real_path(&self, path: &str) -> String {
        let key = path.split('.').next().unwrap_or(path);
        match self.envelope_of.get(key) {
            _ if ENVELOPE_KEYS.contains(&key) => path.to_owned(),
            Some(envelope) => format!("{envelope}.{path}"),
            None => format!("{}{path}", self.prefix),
        }
    }
}

/// Returns the document without envelopes.
fn unwrap_envelopes(
    document: &Map<String, Value>,
    faults: &mut DocumentProblems,
) -> Option<(Map<String, Value>, DocumentEnvelopes)> {
    let reader = FieldReader { map: document, prefix: String::new() };
    if let Some(result) = reader.get("result") {
        return unwrap_response(result, faults);
    }
    if !document.contains_key("createRequest") && !document.contains_key("assignRequest") {
        return Some((document.clone(), DocumentEnvelopes::default()));
    }
    let mut map = Map::new();
    let mut envelopes =
        DocumentEnvelopes { prefix: "createRequest.".to_owned(), ..DocumentEnvelopes::default() };
    if reader.get("createRequest").is_none() {
        faults.push("createRequest", "is missing", Some("an assignment alone is not a request".to_owned()));
        return None;
    }
    // Assignment values override creation values.
    for envelope in &ENVELOPE_KEYS[..2] {
        let Some(part) = reader.read_object(envelope, faults) else { continue };
        for (key, value) in part.map.iter().filter(|(_, value)| !value.is_null()) {
            map.insert(key.clone(), value.clone());
            envelopes.envelope_of.insert(key.clone(), envelope);
        }
    }
    Some((map, envelopes))
}

/// A response of ReqMgr2: `{"result": [{NAME: {…}}]}`.
fn unwrap_response(
    result: &Value,
    faults: &mut DocumentProblems,
) -> Option<(Map<String, Value>, DocumentEnvelopes)> {
    let documents: Vec<(&String, &Value)> =
        result.as_array().into_iter().flatten().filter_map(Value::as_object).flatten().collect();
    match documents.as_slice() {
        [(name, Value::Object(map))] => Some((
            map.clone(),
            DocumentEnvelopes { envelope_of: BTreeMap::new(), prefix: format!("result.0.{name}.") },
        )),
        [] => {
            faults.push("result", "is empty", Some("ReqMgr2 has no request of that name".to_owned()));
            None
        }
        many => {
            let reason = format!("must contain one request document, not {}", many.len());
            faults.push("result", reason, Some("submit them one by one".to_owned()));
            None
        }
    }
}

fn parse_flat(
    reader: &FieldReader<'_>,
    context: &DocumentContext<'_>,
    faults: &mut DocumentProblems,
) -> RequestDraft {
    let kind = request_type(reader, faults);
    let chain = ReqmgrChain::parse(reader, kind, faults);
    let generation = parse_generation(reader, &chain, faults);
    let name = request_name(reader, context, faults);
    let mut draft = RequestDraft {
        request_name: name,
        name_field: "RequestName",
        requestor: reader.read_text("Requestor", faults),
        requestor_dn: reader.read_text("RequestorDN", faults),
        group: reader.read_text("Group", faults),
        input_field: "InputDataset",
        input_unknown: chain.is_missing_steps(reader, kind),
        input_dataset: chain.first_step_value(reader, |part| part.read_text("InputDataset", faults)),
        secondary_input_dataset: None,
        outputs_field: "OutputDatasets",
        generation,
        generation_field: "RequestNumEvents",
        cmssw_version: chain.first_step_value(reader, |part| part.read_text("CMSSWVersion", faults)),
        scram_arch: chain.first_step_value(reader, |part| part.read_texts("ScramArch", faults)),
        global_tag: chain.first_step_value(reader, |part| part.read_text("GlobalTag", faults)),
        memory_mb: chain.largest_value(reader, |part| part.read_u64("Memory", faults)),
        time_per_event: chain.sum_of_values(reader, |part| part.read_f64("TimePerEvent", faults)),
        size_per_event: chain.largest_value(reader, |part| part.read_f64("SizePerEvent", faults)),
        multicore: chain.largest_value(reader, |part| part.read_u32("Multicore", faults)),
        site_whitelist: reader.read_texts("SiteWhitelist", faults),
        site_blacklist: reader.read_texts("SiteBlacklist", faults),
        trust_sitelists: reader.read_flag("TrustSitelists", faults),
        splitting_field: "SplittingAlgo",
        splitting_algo: chain.first_step_value(reader, |part| part.read_text("SplittingAlgo", faults)),
        default_algo: Some(SplittingAlgo::EventAwareLumiBased),
        files_per_job: chain.first_step_value(reader, |part| part.read_u64("FilesPerJob", faults)),
        events_per_job: chain.first_step_value(reader, |part| part.read_u64("EventsPerJob", faults)),
        lumis_per_job: chain.first_step_value(reader, |part| part.read_u64("LumisPerJob", faults)),
        run_whitelist: chain.first_step_value(reader, |part| part.read_runs("RunWhitelist", faults)),
        run_blacklist: chain.first_step_value(reader, |part| part.read_runs("RunBlacklist", faults)),
        lumi_mask: chain.first_step_value(reader, |part| parse_lumi_mask(part, "LumiList", faults)),
        campaign: reader.read_text("Campaign", faults),
        processing_version: reader.read_u32("ProcessingVersion", faults),
        priority: reader.read_i64("RequestPriority", faults).or_else(|| reader.read_i64("Priority", faults)),
        adaptive: read_either(reader, "Adaptive", "adaptive", |key| reader.read_flag(key, faults)),
        urgent: read_either(reader, "Urgent", "urgent", |key| reader.read_flag(key, faults)),
        production_steps: read_either(reader, "ProductionSteps", "production_steps", |key| {
            parse_production_steps(reader, key, faults)
        }),
        previous_version: reader.read_text("PreviousVersionRequest", faults),
        cleanup_policy: read_either(reader, "CleanupPolicy", "cleanup_policy", |key| {
            reader.read_text(key, faults)
        }),
        payload_config: collect_payload(reader, faults),
        ..RequestDraft::default()
    };
    draft.secondary_input_dataset = ["SecondaryInputDataset", "MCPileup", "DataPileup"]
        .iter()
        .find_map(|key| chain.any_value(reader, |part| part.read_text(key, faults)));
    let version = draft.processing_version.as_ref().map_or(1, |version| version.value);
    let labels = chain.output_labels(reader, faults);
    draft.output_datasets =
        match reader.read_texts("OutputDatasets", faults).filter(|list| !list.value.is_empty()) {
            Some(list) => Some(list),
            None => chain.output_datasets(reader, &labels, draft.input_dataset.as_ref(), version, faults),
        };
    let last = labels.into_iter().last().unwrap_or_default();
    (draft.acquisition_era, draft.processing_string) = (last.era, last.processing);
    draft
}

fn read_either<T>(
    reader: &FieldReader<'_>,
    ours: &str,
    other: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    read(if reader.get(ours).is_some() { ours } else { other })
}

/// The type only decides where fields are read from.
fn request_type(reader: &FieldReader<'_>, faults: &mut DocumentProblems) -> Option<&'static str> {
    let kind = reader.read_text("RequestType", faults)?;
    let known = REQUEST_TYPES.iter().copied().find(|known| *known == kind.value);
    if known.is_none() {
        let remedy = nearest_word(&kind.value, REQUEST_TYPES.iter().copied()).map_or_else(
            || format!("one of {}", REQUEST_TYPES.join(", ")),
            |name| format!("did you mean `{name}`?"),
        );
        faults.push(&kind.path, format!("`{}` is not a supported request type", kind.value), Some(remedy));
    }
    known
}

/// A request without a name gets one as ReqMgr2 would make it.
fn request_name(
    reader: &FieldReader<'_>,
    context: &DocumentContext<'_>,
    faults: &mut DocumentProblems,
) -> Option<LocatedValue<String>> {
    if reader.get("RequestName").is_some() {
        return reader.read_text("RequestName", faults);
    }
    let label = reader.read_text("RequestString", faults)?;
    let requestor = reader.get("Requestor").and_then(Value::as_str).unwrap_or(context.requestor);
    Some(LocatedValue::new(label.path, format!("{requestor}_{}_{}", label.value, context.name_suffix)))
}

fn parse_generation(
    reader: &FieldReader<'_>,
    chain: &ReqmgrChain<'_>,
    faults: &mut DocumentProblems,
) -> Option<GenerationDraft> {
    let events = chain.first_step_value(reader, |part| part.read_u64("RequestNumEvents", faults))?;
    // Real documents of requests with input may contain a zero.
    if events.value == 0 && chain.first_step_value(reader, |part| part.get("InputDataset")).is_some() {
        return None;
    }
    Some(GenerationDraft {
        events: Some(events),
        first_event: chain.first_step_value(reader, |part| part.read_u64("FirstEvent", faults)),
        first_lumi: chain.first_step_value(reader, |part| part.read_u32("FirstLumi", faults)),
        events_per_lumi: chain.first_step_value(reader, |part| part.read_u64("EventsPerLumi", faults)),
        filter_efficiency: chain.product_of_values(reader, |part| part.read_f64("FilterEfficiency", faults)),
    })
}

fn collect_payload(reader: &FieldReader<'_>, faults: &mut DocumentProblems) -> Map<String, Value> {
    let mut config =
        reader.read_object("PayloadConfig", faults).map(|part| part.map.clone()).unwrap_or_default();
    for (key, value) in
        reader.map.iter().filter(|(key, value)| !MAPPED_FIELDS.contains(&key.as_str()) && !value.is_null())
    {
        config.insert(key.clone(), value.clone());
    }
    config
}

//! ReqMgr2's form, as its documents really are (reference: services 3): fields at the top or in `Step1`/`Task1`, texts that
//! may be lists or objects, `null` for absent, what is assigned later in an envelope of its own.
//!
//! A chain is one payload: its steps (or tasks) run one after the other in each job, so it must be a line. What is read is
//! what the first one reads; memory and cores are the largest of them, time is their sum; outputs are those of the steps
//! that keep theirs. Everything else stays in `payload_config` as it is, and decides nothing here.

mod chain;

use super::draft::{Draft, GenerationDraft, read_mask};
use super::own::production_steps;
use super::reader::{At, Reader, nearest};
use super::{Context, Faults};
use chain::Chain;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use windlass_types::requests::SplittingAlgo;

/// What becomes a field of the request and is therefore not repeated in `payload_config`.
const TAKEN: &[&str] = &[
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
const KINDS: &[&str] = &["ReReco", "StepChain", "TaskChain"];

/// The draft, and how its paths, which are those of the document without envelopes, are called in the one with them.
pub(super) fn read(
    document: &Map<String, Value>,
    context: &Context<'_>,
    faults: &mut Faults,
) -> Option<(Draft, Envelopes)> {
    let (map, envelopes) = open(document, faults)?;
    let draft = read_flat(&Reader { map: &map, prefix: String::new() }, context, faults);
    Some((draft, envelopes))
}

#[derive(Debug, Default)]
pub(super) struct Envelopes {
    /// Key → the envelope that it came in.
    of: BTreeMap<String, &'static str>,
    /// Of all others.
    prefix: String,
}

const ENVELOPES: [&str; 3] = ["createRequest", "assignRequest", "result"];

impl Envelopes {
    pub(super) fn real_path(&self, path: &str) -> String {
        let key = path.split('.').next().unwrap_or(path);
        match self.of.get(key) {
            _ if ENVELOPES.contains(&key) => path.to_owned(),
            Some(envelope) => format!("{envelope}.{path}"),
            None => format!("{}{path}", self.prefix),
        }
    }
}

/// The document without its envelopes.
fn open(document: &Map<String, Value>, faults: &mut Faults) -> Option<(Map<String, Value>, Envelopes)> {
    let reader = Reader { map: document, prefix: String::new() };
    if let Some(result) = reader.get("result") {
        return answer(result, faults);
    }
    if !document.contains_key("createRequest") && !document.contains_key("assignRequest") {
        return Some((document.clone(), Envelopes::default()));
    }
    let mut map = Map::new();
    let mut envelopes = Envelopes { prefix: "createRequest.".to_owned(), ..Envelopes::default() };
    if reader.get("createRequest").is_none() {
        faults.push("createRequest", "is missing", Some("an assignment alone is no request".to_owned()));
        return None;
    }
    // What is assigned stands over what was created.
    for envelope in &ENVELOPES[..2] {
        let Some(part) = reader.object(envelope, faults) else { continue };
        for (key, value) in part.map.iter().filter(|(_, value)| !value.is_null()) {
            map.insert(key.clone(), value.clone());
            envelopes.of.insert(key.clone(), envelope);
        }
    }
    Some((map, envelopes))
}

/// What ReqMgr2 answers: `{"result": [{NAME: {…}}]}`.
fn answer(result: &Value, faults: &mut Faults) -> Option<(Map<String, Value>, Envelopes)> {
    let documents: Vec<(&String, &Value)> =
        result.as_array().into_iter().flatten().filter_map(Value::as_object).flatten().collect();
    match documents.as_slice() {
        [(name, Value::Object(map))] => {
            Some((map.clone(), Envelopes { of: BTreeMap::new(), prefix: format!("result.0.{name}.") }))
        }
        [] => {
            faults.push("result", "is empty", Some("ReqMgr2 knows no request of that name".to_owned()));
            None
        }
        many => {
            let reason = format!("must hold one request document, not {}", many.len());
            faults.push("result", reason, Some("submit them one by one".to_owned()));
            None
        }
    }
}

fn read_flat(reader: &Reader<'_>, context: &Context<'_>, faults: &mut Faults) -> Draft {
    let kind = kind(reader, faults);
    let chain = Chain::read(reader, kind, faults);
    let generation = generation(reader, &chain, faults);
    let name = name(reader, context, faults);
    let mut draft = Draft {
        request_name: name,
        name_field: "RequestName",
        requestor: reader.text("Requestor", faults),
        requestor_dn: reader.text("RequestorDN", faults),
        group: reader.text("Group", faults),
        input_field: "InputDataset",
        input_unknown: chain.is_lost(reader, kind),
        input_dataset: chain.first(reader, |part| part.text("InputDataset", faults)),
        secondary_input_dataset: None,
        outputs_field: "OutputDatasets",
        generation,
        generation_field: "RequestNumEvents",
        cmssw_version: chain.first(reader, |part| part.text("CMSSWVersion", faults)),
        scram_arch: chain.first(reader, |part| part.texts("ScramArch", faults)),
        global_tag: chain.first(reader, |part| part.text("GlobalTag", faults)),
        memory_mb: chain.largest(reader, |part| part.count("Memory", faults)),
        time_per_event: chain.sum(reader, |part| part.number("TimePerEvent", faults)),
        size_per_event: chain.largest(reader, |part| part.number("SizePerEvent", faults)),
        multicore: chain.largest(reader, |part| part.count32("Multicore", faults)),
        site_whitelist: reader.texts("SiteWhitelist", faults),
        site_blacklist: reader.texts("SiteBlacklist", faults),
        trust_sitelists: reader.flag("TrustSitelists", faults),
        splitting_field: "SplittingAlgo",
        splitting_algo: chain.first(reader, |part| part.text("SplittingAlgo", faults)),
        usual_algo: Some(SplittingAlgo::EventAwareLumiBased),
        files_per_job: chain.first(reader, |part| part.count("FilesPerJob", faults)),
        events_per_job: chain.first(reader, |part| part.count("EventsPerJob", faults)),
        lumis_per_job: chain.first(reader, |part| part.count("LumisPerJob", faults)),
        run_whitelist: chain.first(reader, |part| part.runs("RunWhitelist", faults)),
        run_blacklist: chain.first(reader, |part| part.runs("RunBlacklist", faults)),
        lumi_mask: chain.first(reader, |part| read_mask(part, "LumiList", faults)),
        campaign: reader.text("Campaign", faults),
        processing_version: reader.count32("ProcessingVersion", faults),
        priority: reader.integer("RequestPriority", faults).or_else(|| reader.integer("Priority", faults)),
        adaptive: either(reader, "Adaptive", "adaptive", |key| reader.flag(key, faults)),
        urgent: either(reader, "Urgent", "urgent", |key| reader.flag(key, faults)),
        production_steps: either(reader, "ProductionSteps", "production_steps", |key| {
            production_steps(reader, key, faults)
        }),
        previous_version: reader.text("PreviousVersionRequest", faults),
        cleanup_policy: either(reader, "CleanupPolicy", "cleanup_policy", |key| reader.text(key, faults)),
        payload_config: payload(reader, faults),
        ..Draft::default()
    };
    draft.secondary_input_dataset = ["SecondaryInputDataset", "MCPileup", "DataPileup"]
        .iter()
        .find_map(|key| chain.any(reader, |part| part.text(key, faults)));
    let version = draft.processing_version.as_ref().map_or(1, |version| version.value);
    let labels = chain.labels(reader, faults);
    draft.output_datasets = match reader.texts("OutputDatasets", faults).filter(|list| !list.value.is_empty())
    {
        Some(list) => Some(list),
        None => chain.outputs(reader, &labels, draft.input_dataset.as_ref(), version, faults),
    };
    let last = labels.into_iter().last().unwrap_or_default();
    (draft.acquisition_era, draft.processing_string) = (last.era, last.processing);
    draft
}

fn either<T>(
    reader: &Reader<'_>,
    ours: &str,
    other: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    read(if reader.get(ours).is_some() { ours } else { other })
}

/// What it is decides only where its fields are looked for.
fn kind(reader: &Reader<'_>, faults: &mut Faults) -> Option<&'static str> {
    let kind = reader.text("RequestType", faults)?;
    let known = KINDS.iter().copied().find(|known| *known == kind.value);
    if known.is_none() {
        let remedy = nearest(&kind.value, KINDS.iter().copied())
            .map_or_else(|| format!("one of {}", KINDS.join(", ")), |name| format!("did you mean `{name}`?"));
        faults.push(
            &kind.path,
            format!("`{}` is no kind of request that can be run here", kind.value),
            Some(remedy),
        );
    }
    known
}

/// One that ReqMgr2 has not named yet gets its name as ReqMgr2 would make it.
fn name(reader: &Reader<'_>, context: &Context<'_>, faults: &mut Faults) -> Option<At<String>> {
    if reader.get("RequestName").is_some() {
        return reader.text("RequestName", faults);
    }
    let label = reader.text("RequestString", faults)?;
    let requestor = reader.get("Requestor").and_then(Value::as_str).unwrap_or(context.requestor);
    Some(At::new(label.path, format!("{requestor}_{}_{}", label.value, context.name_suffix)))
}

fn generation(reader: &Reader<'_>, chain: &Chain<'_>, faults: &mut Faults) -> Option<GenerationDraft> {
    let events = chain.first(reader, |part| part.count("RequestNumEvents", faults))?;
    // Live documents of requests with input may carry a zero.
    if events.value == 0 && chain.first(reader, |part| part.get("InputDataset")).is_some() {
        return None;
    }
    Some(GenerationDraft {
        events: Some(events),
        first_event: chain.first(reader, |part| part.count("FirstEvent", faults)),
        first_lumi: chain.first(reader, |part| part.count32("FirstLumi", faults)),
        events_per_lumi: chain.first(reader, |part| part.count("EventsPerLumi", faults)),
        filter_efficiency: chain.product(reader, |part| part.number("FilterEfficiency", faults)),
    })
}

fn payload(reader: &Reader<'_>, faults: &mut Faults) -> Map<String, Value> {
    let mut config = reader.object("PayloadConfig", faults).map(|part| part.map.clone()).unwrap_or_default();
    for (key, value) in
        reader.map.iter().filter(|(key, value)| !TAKEN.contains(&key.as_str()) && !value.is_null())
    {
        config.insert(key.clone(), value.clone());
    }
    config
}

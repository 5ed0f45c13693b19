//! The content of a document before validation, and the checks that make a request of it.

use super::field_reader::{FieldReader, LocatedValue, describe_value, nearest_word};
use super::name_rules::{self, LABEL_NAME, PERSON_NAME, REQUEST_NAME, SITE_NAME, TAG_NAME, VERSION_NAME};
use super::{DocumentContext, DocumentProblems};
use serde_json::{Map, Value};
use std::str::FromStr;
use windlass_types::LumiMask;
use windlass_types::requests::{
    CleanupPolicy, DEFAULT_PRIORITY, GenerationParams, PriorityStep, Request, SplittingAlgo, SplittingParams,
};

/// Every field with its place in the document; the `*_field`s are the names of missing fields in the document.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestDraft {
    pub(super) request_name: Option<LocatedValue<String>>,
    pub(super) name_field: &'static str,
    pub(super) requestor: Option<LocatedValue<String>>,
    pub(super) requestor_dn: Option<LocatedValue<String>>,
    pub(super) group: Option<LocatedValue<String>>,
    pub(super) input_dataset: Option<LocatedValue<String>>,
    pub(super) input_field: &'static str,
    /// The place of the field could not be determined: that it is missing was already reported.
    pub(super) input_unknown: bool,
    pub(super) secondary_input_dataset: Option<LocatedValue<String>>,
    pub(super) output_datasets: Option<LocatedValue<Vec<String>>>,
    pub(super) outputs_field: &'static str,
    pub(super) generation: Option<GenerationDraft>,
    pub(super) generation_field: &'static str,
    pub(super) cmssw_version: Option<LocatedValue<String>>,
    pub(super) scram_arch: Option<LocatedValue<Vec<String>>>,
    pub(super) global_tag: Option<LocatedValue<String>>,
    pub(super) memory_mb: Option<LocatedValue<u64>>,
    pub(super) time_per_event: Option<LocatedValue<f64>>,
    pub(super) size_per_event: Option<LocatedValue<f64>>,
    pub(super) multicore: Option<LocatedValue<u32>>,
    pub(super) site_whitelist: Option<LocatedValue<Vec<String>>>,
    pub(super) site_blacklist: Option<LocatedValue<Vec<String>>>,
    pub(super) trust_sitelists: Option<LocatedValue<bool>>,
    pub(super) adaptive: Option<LocatedValue<bool>>,
    pub(super) splitting_algo: Option<LocatedValue<String>>,
    pub(super) splitting_field: &'static str,
    /// Default if the document does not give it.
    pub(super) default_algo: Option<SplittingAlgo>,
    pub(super) files_per_job: Option<LocatedValue<u64>>,
    pub(super) events_per_job: Option<LocatedValue<u64>>,
    pub(super) lumis_per_job: Option<LocatedValue<u64>>,
    pub(super) max_events_per_lumi: Option<LocatedValue<u64>>,
    pub(super) time_per_job: Option<LocatedValue<u64>>,
    pub(super) run_whitelist: Option<LocatedValue<Vec<u32>>>,
    pub(super) run_blacklist: Option<LocatedValue<Vec<u32>>>,
    pub(super) lumi_mask: Option<LocatedValue<LumiMask>>,
    pub(super) halt_on_files: Option<LocatedValue<bool>>,
    pub(super) merged_size: Option<LocatedValue<u64>>,
    pub(super) block_size: Option<LocatedValue<u64>>,
    pub(super) campaign: Option<LocatedValue<String>>,
    pub(super) processing_string: Option<LocatedValue<String>>,
    pub(super) acquisition_era: Option<LocatedValue<String>>,
    pub(super) processing_version: Option<LocatedValue<u32>>,
    pub(super) priority: Option<LocatedValue<i64>>,
    pub(super) urgent: Option<LocatedValue<bool>>,
    pub(super) production_steps: Option<LocatedValue<Vec<StepDraft>>>,
    pub(super) payload_config: Map<String, Value>,
    pub(super) previous_version: Option<LocatedValue<String>>,
    pub(super) cleanup_policy: Option<LocatedValue<String>>,
}

#[derive(Clone, Debug)]
pub(super) struct GenerationDraft {
    pub(super) events: Option<LocatedValue<u64>>,
    pub(super) first_event: Option<LocatedValue<u64>>,
    pub(super) first_lumi: Option<LocatedValue<u32>>,
    pub(super) events_per_lumi: Option<LocatedValue<u64>>,
    pub(super) filter_efficiency: Option<LocatedValue<f64>>,
}

#[derive(Clone, Debug)]
pub(super) struct StepDraft {
    pub(super) fraction: LocatedValue<f64>,
    pub(super) priority: LocatedValue<i64>,
}

/// Events per lumi of a job whose request does not give it.
const DEFAULT_EVENTS_PER_LUMI: u64 = 100;

impl RequestDraft {
    /// Returns `None` only if a problem makes a value impossible; otherwise there may be problems as well.
    pub(super) fn build_request(
        mut self,
        context: &DocumentContext<'_>,
        faults: &mut DocumentProblems,
    ) -> Option<Request> {
        self.check_names(faults);
        self.check_amounts(context, faults);
        self.check_sites(faults);
        self.check_selection(faults);
        self.check_input(faults);
        let splitting_algo = self.choose_algorithm(faults);
        let generation =
            self.generation.clone().and_then(|generation| self.build_generation(&generation, faults));
        let production_steps = self.build_steps(faults);
        let cleanup_policy =
            self.cleanup_policy.as_ref().and_then(|word| parse_choice(word, CleanupPolicy::ALL, faults));
        Some(Request {
            request_name: into_text(self.request_name)?,
            requestor: into_text(self.requestor).unwrap_or_else(|| context.requestor.to_owned()),
            requestor_dn: into_text(self.requestor_dn),
            group: into_text(self.group),
            input_dataset: into_text(self.input_dataset),
            secondary_input_dataset: into_text(self.secondary_input_dataset),
            output_datasets: self.output_datasets?.value,
            generation,
            cmssw_version: into_text(self.cmssw_version),
            scram_arch: self.scram_arch.map(|list| list.value).unwrap_or_default(),
            global_tag: into_text(self.global_tag),
            memory_mb: self.memory_mb.map_or(2048, |memory| memory.value),
            time_per_event_sec: self.time_per_event.map_or(1.0, |time| time.value),
            size_per_event_kb: self.size_per_event.map_or(1.5, |size| size.value),
            multicore: self.multicore.map_or(1, |cores| cores.value),
            site_whitelist: self.site_whitelist.map(|list| list.value).unwrap_or_default(),
            site_blacklist: self.site_blacklist.map(|list| list.value).unwrap_or_default(),
            trust_sitelists: self.trust_sitelists.is_some_and(|flag| flag.value),
            splitting_algo: splitting_algo?,
            splitting_params: SplittingParams {
                files_per_job: into_value(self.files_per_job),
                events_per_job: into_value(self.events_per_job),
                lumis_per_job: into_value(self.lumis_per_job),
                max_events_per_lumi: into_value(self.max_events_per_lumi),
                time_per_job: into_value(self.time_per_job),
                run_whitelist: into_value(self.run_whitelist).unwrap_or_default(),
                run_blacklist: into_value(self.run_blacklist).unwrap_or_default(),
                lumi_mask: into_value(self.lumi_mask).filter(|mask| !mask.is_empty()),
                halt_job_on_file_boundaries: into_value(self.halt_on_files).unwrap_or(false),
                target_merged_size_kb: into_value(self.merged_size),
                target_block_size_kb: into_value(self.block_size),
            },
            adaptive: into_value(self.adaptive).unwrap_or(true),
            campaign: into_text(self.campaign),
            processing_string: into_text(self.processing_string),
            acquisition_era: into_text(self.acquisition_era),
            processing_version: into_value(self.processing_version).unwrap_or(1),
            priority: into_value(self.priority).unwrap_or(DEFAULT_PRIORITY),
            urgent: into_value(self.urgent).unwrap_or(false),
            production_steps,
            payload_config: std::mem::take(&mut self.payload_config),
            previous_version_request: into_text(self.previous_version),
            superseded_by_request: None,
            cleanup_policy: cleanup_policy.unwrap_or(CleanupPolicy::KeepUntilReplaced),
        })
    }

    fn check_names(&self, faults: &mut DocumentProblems) {
        if self.request_name.is_none() {
            faults.push(self.name_field, "is missing", Some("every request needs a unique name".to_owned()));
        }
        let each = [
            (&self.request_name, REQUEST_NAME),
            (&self.requestor, PERSON_NAME),
            (&self.group, PERSON_NAME),
            (&self.cmssw_version, VERSION_NAME),
            (&self.global_tag, TAG_NAME),
            (&self.campaign, LABEL_NAME),
            (&self.processing_string, LABEL_NAME),
            (&self.acquisition_era, LABEL_NAME),
            (&self.previous_version, REQUEST_NAME),
        ];
        for (name, lexicon) in each {
            if let Some(name) = name {
                lexicon.check_field(name, faults);
            }
        }
        if let Some(name) = &self.requestor_dn {
            name_rules::check_dn(name, faults);
        }
        for arch in self.scram_arch.iter().flat_map(|list| &list.value) {
            VERSION_NAME.check_text(self.scram_arch.as_ref().map_or("", |list| &list.path), arch, faults);
        }
        if let (Some(previous), Some(name)) = (&self.previous_version, &self.request_name)
            && previous.value == name.value
        {
            faults.push(&previous.path, "is the request itself", None);
        }
    }

    /// Checks ranges, and memory per core.
    fn check_amounts(&self, context: &DocumentContext<'_>, faults: &mut DocumentProblems) {
        let positive = [
            &self.memory_mb,
            &self.files_per_job,
            &self.events_per_job,
            &self.lumis_per_job,
            &self.max_events_per_lumi,
            &self.time_per_job,
            &self.merged_size,
            &self.block_size,
        ];
        for amount in positive.into_iter().flatten().filter(|amount| amount.value == 0) {
            faults.push(&amount.path, "must be more than 0", None);
        }
        for amount in [&self.time_per_event, &self.size_per_event].into_iter().flatten() {
            if amount.value <= 0.0 {
                faults.push(&amount.path, format!("must be more than 0, not {}", amount.value), None);
            }
        }
        if let Some(cores) = self.multicore.as_ref().filter(|cores| !(1..=1024).contains(&cores.value)) {
            faults.push(&cores.path, format!("must be 1 to 1024 cores, not {}", cores.value), None);
        }
        if let Some(priority) = self.priority.as_ref().filter(|n| !(0..=1_000_000_000).contains(&n.value)) {
            faults.push(&priority.path, format!("must be 0 to 1000000000, not {}", priority.value), None);
        }
        let cores = u64::from(self.multicore.as_ref().map_or(1, |cores| cores.value)).max(1);
        let most = context.max_memory_per_core_mb.saturating_mul(cores);
        if let Some(memory) = self.memory_mb.as_ref().filter(|memory| memory.value > most) {
            let reason = format!(
                "is {} MB, more than the {} MB allowed for a job with {cores} cores",
                memory.value, most
            );
            faults.push(&memory.path, reason, Some("request less memory or more cores".to_owned()));
        }
    }

    fn check_sites(&self, faults: &mut DocumentProblems) {
        for list in [&self.site_whitelist, &self.site_blacklist].into_iter().flatten() {
            for site in &list.value {
                SITE_NAME.check_text(&list.path, site, faults);
            }
        }
        if let (Some(white), Some(black)) = (&self.site_whitelist, &self.site_blacklist)
            && let Some(both) = white.value.iter().find(|site| black.value.contains(site))
        {
            let reason = format!("names {both}, and so does `{}`", white.path);
            faults.push(&black.path, reason, Some("leave it out of one of them".to_owned()));
        }
    }

    fn check_selection(&self, faults: &mut DocumentProblems) {
        if let (Some(white), Some(black)) = (&self.run_whitelist, &self.run_blacklist)
            && let Some(both) = white.value.iter().find(|run| black.value.contains(run))
        {
            faults.push(&black.path, format!("names run {both}, and so does `{}`", white.path), None);
        }
        if let (Some(white), Some(mask)) = (&self.run_whitelist, &self.lumi_mask)
            && !white.value.is_empty()
            && !mask.value.is_empty()
            && !white.value.iter().any(|run| mask.value.0.contains_key(&u64::from(*run)))
        {
            let reason = format!("contains none of the runs of `{}`: no input would be left", white.path);
            faults.push(&mask.path, reason, None);
        }
    }

    fn check_input(&self, faults: &mut DocumentProblems) {
        for name in [&self.input_dataset, &self.secondary_input_dataset].into_iter().flatten() {
            name_rules::check_dataset(&name.path, &name.value, faults);
        }
        match (&self.input_dataset, &self.generation) {
            (None, None) if !self.input_unknown => {
                let remedy = format!(
                    "name an input dataset, or set `{}` to the number of events to generate",
                    self.generation_field
                );
                faults.push(self.input_field, "is missing", Some(remedy));
            }
            (Some(input), Some(_)) => {
                let reason = format!(
                    "and `{}` exclude each other: events are read or generated",
                    self.generation_field
                );
                faults.push(&input.path, reason, Some("leave one of them out".to_owned()));
            }
            _ => {}
        }
        let Some(outputs) = self.output_datasets.as_ref().filter(|list| !list.value.is_empty()) else {
            let remedy = Some("name at least one dataset for the outputs".to_owned());
            return faults.push(self.outputs_field, "is missing", remedy);
        };
        for (at, name) in outputs.value.iter().enumerate() {
            name_rules::check_dataset(&outputs.path, name, faults);
            if outputs.value[..at].contains(name) {
                faults.push(&outputs.path, format!("names {name} twice"), None);
            }
            if self.input_dataset.as_ref().is_some_and(|input| input.value == *name) {
                faults.push(&outputs.path, format!("names {name}, which is the input"), None);
            }
        }
    }

    fn choose_algorithm(&self, faults: &mut DocumentProblems) -> Option<SplittingAlgo> {
        let algorithm = match (&self.splitting_algo, &self.generation) {
            (Some(word), _) => parse_choice(word, SplittingAlgo::ALL, faults)?,
            (None, Some(_)) => SplittingAlgo::EventBased,
            (None, None) => self.default_algo.or_else(|| {
                let known: Vec<_> = SplittingAlgo::ALL.iter().map(|algorithm| algorithm.name()).collect();
                faults.push(self.splitting_field, "is missing", Some(format!("one of {}", known.join(", "))));
                None
            })?,
        };
        let makes = self.generation.is_some() && self.input_dataset.is_none();
        if makes && algorithm != SplittingAlgo::EventBased {
            let path = self.splitting_algo.as_ref().map_or(self.splitting_field, |word| &word.path);
            let reason = format!("{algorithm} splits input, and generation has none");
            faults.push(path, reason, Some("EventBased".to_owned()));
        }
        Some(algorithm)
    }

    fn build_generation(
        &self,
        draft: &GenerationDraft,
        faults: &mut DocumentProblems,
    ) -> Option<GenerationParams> {
        for path in [
            self.run_whitelist.as_ref().filter(|list| !list.value.is_empty()).map(|list| &list.path),
            self.run_blacklist.as_ref().filter(|list| !list.value.is_empty()).map(|list| &list.path),
            self.lumi_mask.as_ref().filter(|mask| !mask.value.is_empty()).map(|mask| &mask.path),
        ]
        .into_iter()
        .flatten()
        {
            faults.push(path, "selects input, and generation has none", None);
        }
        for (path, is_zero) in [
            draft.events.as_ref().map(|n| (&n.path, n.value == 0)),
            draft.first_event.as_ref().map(|n| (&n.path, n.value == 0)),
            draft.first_lumi.as_ref().map(|n| (&n.path, n.value == 0)),
            draft.events_per_lumi.as_ref().map(|n| (&n.path, n.value == 0)),
        ]
        .into_iter()
        .flatten()
        {
            if is_zero {
                faults.push(path, "must be more than 0", None);
            }
        }
        let efficiency = draft.filter_efficiency.as_ref();
        if let Some(share) = efficiency.filter(|share| !(share.value > 0.0 && share.value <= 1.0)) {
            faults.push(&share.path, format!("must be more than 0 and at most 1, not {}", share.value), None);
            return None;
        }
        let events = draft.events.as_ref()?;
        let made = GenerationParams {
            events: events.value,
            first_event: draft.first_event.as_ref().map_or(1, |n| n.value),
            first_lumi: draft.first_lumi.as_ref().map_or(1, |n| n.value),
            events_per_lumi: draft
                .events_per_lumi
                .as_ref()
                .or(self.events_per_job.as_ref())
                .map_or(DEFAULT_EVENTS_PER_LUMI, |n| n.value),
            filter_efficiency: efficiency.map_or(1.0, |share| share.value),
        };
        // Event numbers have 64 bits, lumi numbers 32.
        let to_make = made.events as f64 / made.filter_efficiency;
        let last = made.first_event as f64 + to_make;
        let lumis = f64::from(made.first_lumi) + to_make / made.events_per_lumi.max(1) as f64;
        if last >= 9.0e18 {
            faults.push(&events.path, "is more than there are event numbers (2^63)", None);
        } else if lumis >= f64::from(u32::MAX) {
            let remedy = Some("put more events into each lumi section".to_owned());
            faults.push(&events.path, "needs more lumi sections than there are numbers (2^32)", remedy);
        }
        Some(made)
    }

    ///
    fn build_steps(&self, faults: &mut DocumentProblems) -> Vec<PriorityStep> {
        let Some(list) = &self.production_steps else { return Vec::new() };
        if !list.value.is_empty() && self.urgent.as_ref().is_some_and(|urgent| urgent.value) {
            let remedy =
                Some("urgent requests cannot be lowered in priority: leave one of them out".to_owned());
            faults.push(&list.path, "and `urgent` exclude each other", remedy);
        }
        let mut fraction = 0.0;
        let mut priority = self.priority.as_ref().map_or(DEFAULT_PRIORITY, |priority| priority.value);
        for step in &list.value {
            let share = step.fraction.value;
            if !(share > 0.0 && share < 1.0) {
                faults.push(&step.fraction.path, format!("must lie between 0 and 1, not {share}"), None);
            } else if share <= fraction {
                let reason = format!("must be more than that of the step before it ({fraction})");
                faults.push(&step.fraction.path, reason, None);
            }
            if step.priority.value >= priority {
                let reason = format!("must be less than the priority before it ({priority})");
                faults.push(&step.priority.path, reason, None);
            } else if step.priority.value < 0 {
                faults.push(&step.priority.path, "must not be negative", None);
            }
            (fraction, priority) = (share, step.priority.value);
        }
        let plain =
            |step: &StepDraft| PriorityStep { fraction: step.fraction.value, priority: step.priority.value };
        list.value.iter().map(plain).collect()
    }
}

fn into_text(field: Option<LocatedValue<String>>) -> Option<String> {
    into_value(field)
}

fn into_value<T>(field: Option<LocatedValue<T>>) -> Option<T> {
    field.map(|field| field.value)
}

/// Parses one of a fixed set of words.
fn parse_choice<T>(word: &LocatedValue<String>, known: &[T], faults: &mut DocumentProblems) -> Option<T>
where
    T: FromStr<Err: std::fmt::Display> + Copy + std::fmt::Display,
{
    match word.value.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            let names: Vec<String> = known.iter().map(ToString::to_string).collect();
            let near = nearest_word(&word.value, names.iter().map(String::as_str));
            faults.push(&word.path, format!("{error}"), near.map(|name| format!("did you mean `{name}`?")));
            None
        }
    }
}

/// `{"356164": [[11, 15], [40, 40]]}`, as CMS writes it. An empty one selects everything.
pub(super) fn parse_lumi_mask(
    reader: &FieldReader<'_>,
    key: &str,
    faults: &mut DocumentProblems,
) -> Option<LocatedValue<LumiMask>> {
    let part = reader.read_object(key, faults)?;
    let mut mask = LumiMask::default();
    for (run, ranges) in part.map {
        let path = part.field_path(run);
        let Some(number) = run.parse::<u32>().ok().filter(|run| *run > 0) else {
            faults.push(path, "is not a run number", None);
            continue;
        };
        let read: Option<Vec<_>> = ranges.as_array().and_then(|list| list.iter().map(parse_range).collect());
        if let Some(read) = read {
            mask.0.insert(number.into(), read);
        } else {
            let reason = format!(
                "must be a list of [first, last] with 1 ≤ first ≤ last, not {}",
                describe_value(ranges)
            );
            faults.push(path, reason, None);
        }
    }
    Some(LocatedValue::new(reader.field_path(key), mask.normalized()))
}

fn parse_range(range: &Value) -> Option<(u64, u64)> {
    let [first, last] = range.as_array()?.as_slice() else { return None };
    let number = |value: &Value| value.as_u64().filter(|n| u32::try_from(*n).is_ok());
    let (first, last) = (number(first)?, number(last)?);
    (1 <= first && first <= last).then_some((first, last))
}

//! Steps of a StepChain and tasks of a TaskChain; a ReReco is a chain without steps.

use super::super::DocumentProblems;
use super::super::field_reader::{FieldReader, LocatedValue};
use serde_json::Value;

pub(super) struct ReqmgrChain<'a> {
    steps: Vec<ChainStep<'a>>,
}

struct ChainStep<'a> {
    name: String,
    fields: FieldReader<'a>,
}

/// Era and processing string of the outputs of a step.
#[derive(Clone, Debug, Default)]
pub(super) struct OutputLabels {
    pub(super) era: Option<LocatedValue<String>>,
    pub(super) processing: Option<LocatedValue<String>>,
}

/// Data tiers: output modules are named after the tier that they write.
const DATA_TIERS: &[&str] = &[
    "GEN",
    "SIM",
    "GEN-SIM",
    "GEN-SIM-RAW",
    "GEN-SIM-DIGI-RAW",
    "GEN-SIM-RECO",
    "LHE",
    "RAW",
    "RECO",
    "AOD",
    "AODSIM",
    "MINIAOD",
    "MINIAODSIM",
    "NANOAOD",
    "NANOAODSIM",
    "DQMIO",
    "DIGI",
    "PREMIX",
    "USER",
];

impl<'a> ReqmgrChain<'a> {
    pub(super) fn parse(top: &FieldReader<'a>, kind: Option<&str>, faults: &mut DocumentProblems) -> Self {
        let (count_key, word) = match kind {
            Some("StepChain") => ("StepChain", "Step"),
            Some("TaskChain") => ("TaskChain", "Task"),
            _ => return Self { steps: Vec::new() },
        };
        let Some(count) = top.read_u32(count_key, faults) else {
            if top.get(count_key).is_none() {
                faults.push(count_key, "is missing", Some(format!("set the number of {word}s")));
            }
            return Self { steps: Vec::new() };
        };
        if !(1..=100).contains(&count.value) {
            faults.push(count.path, format!("must be 1 to 100, not {}", count.value), None);
            return Self { steps: Vec::new() };
        }
        let mut steps = Vec::new();
        for n in 1..=count.value {
            let key = format!("{word}{n}");
            if top.get(&key).is_none() {
                faults.push(key, format!("is missing: `{count_key}` is {}", count.value), None);
            } else if let Some(part) = top.read_object(&key, faults) {
                let name = part.read_text(&format!("{word}Name"), faults).map_or(key, |name| name.value);
                steps.push(ChainStep { name, fields: part });
            }
        }
        let beyond = format!("{word}{}", count.value + 1);
        if top.get(&beyond).is_some() {
            faults.push(beyond, format!("is beyond the number in `{count_key}` ({})", count.value), None);
        }
        let chain = Self { steps };
        chain.check_linear(&format!("Input{word}"), faults);
        chain
    }

    /// Whether the document is a chain, or of unknown type, and has no steps.
    pub(super) fn is_missing_steps(&self, top: &FieldReader<'a>, kind: Option<&str>) -> bool {
        self.steps.is_empty() && top.get("RequestType").is_some() && kind != Some("ReReco")
    }

    /// Checks that each step reads only the output of the previous one.
    fn check_linear(&self, key: &str, faults: &mut DocumentProblems) {
        for (at, step) in self.steps.iter().enumerate().skip(1) {
            let before = &self.steps[at - 1].name;
            let remedy = || Some("submit one request for each branch".to_owned());
            match step.fields.get(key).and_then(Value::as_str) {
                Some(input) if input == before => {}
                Some(input) if self.steps[..at].iter().any(|earlier| earlier.name == input) => {
                    let reason = format!(
                        "branches: it reads {input}, not {before} before it; only linear chains are supported"
                    );
                    faults.push(step.fields.field_path(key), reason, remedy());
                }
                Some(input) => {
                    faults.push(
                        step.fields.field_path(key),
                        format!("names {input}, which does not come before it"),
                        None,
                    );
                }
                None => faults.push(step.fields.field_path(key), "is missing", Some(format!("`{before}`"))),
            }
            if step.fields.get("InputDataset").is_some() {
                let reason =
                    "is a separate input in the middle of the chain; only the first one reads a dataset";
                faults.push(step.fields.field_path("InputDataset"), reason, remedy());
            }
        }
        for (at, step) in self.steps.iter().enumerate() {
            if self.steps[..at].iter().any(|earlier| earlier.name == step.name) {
                faults.push(
                    step.fields.prefix.trim_end_matches('.'),
                    format!("has the name {} of another one", step.name),
                    None,
                );
            }
        }
    }

    /// Returns the value of the first step, or the top-level one.
    pub(super) fn first_step_value<T>(
        &self,
        top: &FieldReader<'a>,
        mut get: impl FnMut(&FieldReader<'a>) -> Option<T>,
    ) -> Option<T> {
        self.steps.first().and_then(|step| get(&step.fields)).or_else(|| get(top))
    }

    /// Returns the top-level value, or that of the first step that has one.
    pub(super) fn any_value<T>(
        &self,
        top: &FieldReader<'a>,
        mut get: impl FnMut(&FieldReader<'a>) -> Option<T>,
    ) -> Option<T> {
        get(top).or_else(|| self.steps.iter().find_map(|step| get(&step.fields)))
    }

    /// Returns the largest value: the steps share a job one after another.
    pub(super) fn largest_value<T: PartialOrd>(
        &self,
        top: &FieldReader<'a>,
        mut get: impl FnMut(&FieldReader<'a>) -> Option<LocatedValue<T>>,
    ) -> Option<LocatedValue<T>> {
        let own: Vec<LocatedValue<T>> = self.steps.iter().filter_map(|step| get(&step.fields)).collect();
        let whole = if own.len() == self.steps.len() && !own.is_empty() { None } else { get(top) };
        own.into_iter().chain(whole).reduce(|a, b| if b.value > a.value { b } else { a })
    }

    /// Returns the sum over the steps; if no step has a value, the top-level one is that of all steps.
    pub(super) fn sum_of_values(
        &self,
        top: &FieldReader<'a>,
        mut get: impl FnMut(&FieldReader<'a>) -> Option<LocatedValue<f64>>,
    ) -> Option<LocatedValue<f64>> {
        let own = self.steps.iter().filter_map(|step| get(&step.fields));
        own.reduce(|a, b| LocatedValue::new(a.path, a.value + b.value)).or_else(|| get(top))
    }

    pub(super) fn product_of_values(
        &self,
        top: &FieldReader<'a>,
        mut get: impl FnMut(&FieldReader<'a>) -> Option<LocatedValue<f64>>,
    ) -> Option<LocatedValue<f64>> {
        let own = self.steps.iter().filter_map(|step| get(&step.fields));
        own.reduce(|a, b| LocatedValue::new(a.path, a.value * b.value)).or_else(|| get(top))
    }

    /// Returns one entry per step, or one for a document without steps. Top-level values for a step by name
    /// override those of the step, which override top-level values for all.
    pub(super) fn output_labels(
        &self,
        top: &FieldReader<'a>,
        faults: &mut DocumentProblems,
    ) -> Vec<OutputLabels> {
        let mut label = |key: &str, step: Option<&ChainStep<'a>>| match (top.get(key), step) {
            (Some(Value::Object(_)), Some(step)) => {
                let by_name = top.read_object(key, faults)?;
                by_name.read_text(&step.name, faults).or_else(|| step.fields.read_text(key, faults))
            }
            (_, Some(step)) if step.fields.get(key).is_some() => step.fields.read_text(key, faults),
            _ => top.read_text(key, faults),
        };
        let mut both = |step| OutputLabels {
            era: label("AcquisitionEra", step),
            processing: label("ProcessingString", step),
        };
        if self.steps.is_empty() {
            vec![both(None)]
        } else {
            self.steps.iter().map(|step| both(Some(step))).collect()
        }
    }

    /// Returns `/Primary/Era-ProcessingString-vN/Tier` of every step that keeps its output. Tiers are in
    /// configurations outside the document: if neither the document nor the next step's input has it, the
    /// dataset must be given.
    pub(super) fn output_datasets(
        &self,
        top: &FieldReader<'a>,
        labels: &[OutputLabels],
        input: Option<&LocatedValue<String>>,
        version: u32,
        faults: &mut DocumentProblems,
    ) -> Option<LocatedValue<Vec<String>>> {
        let of_input = input.and_then(|input| input.value.split('/').nth(1));
        let primary_of = |part: &FieldReader<'a>| part.get("PrimaryDataset").and_then(Value::as_str);
        let mut names = Vec::new();
        if self.steps.is_empty() {
            let tier = top.get("DataTier").and_then(Value::as_str);
            names.push(build_dataset_name(primary_of(top).or(of_input), labels.first()?, version, tier));
        }
        let first = self.steps.first().and_then(|step| primary_of(&step.fields));
        for (at, step) in self.steps.iter().enumerate() {
            let is_last = at + 1 == self.steps.len();
            if step.fields.get("KeepOutput").and_then(Value::as_bool).unwrap_or(is_last) {
                let primary = primary_of(&step.fields).or(first).or(primary_of(top)).or(of_input);
                names.push(build_dataset_name(primary, &labels[at], version, self.output_tier(at)));
            }
        }
        if names.iter().all(Result::is_ok) {
            let names = names.into_iter().flatten().collect();
            return Some(LocatedValue::new("OutputDatasets", names));
        }
        let shown: Vec<String> = names.into_iter().map(|name| name.unwrap_or_else(|partly| partly)).collect();
        let remedy = format!("name them: {}, with the capitalized parts filled in", serde_json::json!(shown));
        let reason = "is missing, and the document does not contain the names of its outputs";
        faults.push("OutputDatasets", reason, Some(remedy));
        None
    }

    fn output_tier(&self, at: usize) -> Option<&'a str> {
        let said = self.steps[at].fields.get("DataTier").and_then(Value::as_str);
        let module =
            || self.steps.get(at + 1)?.fields.get("InputFromOutputModule")?.as_str()?.strip_suffix("output");
        said.or_else(|| module().filter(|tier| DATA_TIERS.contains(tier)))
    }
}

/// `Err`: the known parts of the name.
fn build_dataset_name(
    primary: Option<&str>,
    labels: &OutputLabels,
    version: u32,
    tier: Option<&str>,
) -> Result<String, String> {
    let label = |label: &Option<LocatedValue<String>>| label.as_ref().map(|label| label.value.clone());
    let (era, processing) = (label(&labels.era), label(&labels.processing));
    let is_whole = primary.is_some() && era.is_some() && processing.is_some() && tier.is_some();
    let name = format!(
        "/{}/{}-{}-v{version}/{}",
        primary.unwrap_or("PRIMARY"),
        era.as_deref().unwrap_or("ERA"),
        processing.as_deref().unwrap_or("STRING"),
        tier.unwrap_or("TIER"),
    );
    if is_whole { Ok(name) } else { Err(name) }
}

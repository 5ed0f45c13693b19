//! The steps of a StepChain, the tasks of a TaskChain; a ReReco is a chain without any.

use super::super::Faults;
use super::super::reader::{At, Reader};
use serde_json::Value;

pub(super) struct Chain<'a> {
    steps: Vec<Step<'a>>,
}

struct Step<'a> {
    name: String,
    part: Reader<'a>,
}

/// Which era and which processing string the outputs of a step have.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    pub(super) era: Option<At<String>>,
    pub(super) processing: Option<At<String>>,
}

/// Output modules are called after the tier that they write.
const TIERS: &[&str] = &[
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

impl<'a> Chain<'a> {
    pub(super) fn read(top: &Reader<'a>, kind: Option<&str>, faults: &mut Faults) -> Self {
        let (count_key, word) = match kind {
            Some("StepChain") => ("StepChain", "Step"),
            Some("TaskChain") => ("TaskChain", "Task"),
            _ => return Self { steps: Vec::new() },
        };
        let Some(count) = top.count32(count_key, faults) else {
            if top.get(count_key).is_none() {
                faults.push(count_key, "is missing", Some(format!("say how many {word}s there are")));
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
                faults.push(
                    key,
                    format!("is missing: `{count_key}` says that there are {}", count.value),
                    None,
                );
            } else if let Some(part) = top.object(&key, faults) {
                let name = part.text(&format!("{word}Name"), faults).map_or(key, |name| name.value);
                steps.push(Step { name, part });
            }
        }
        let beyond = format!("{word}{}", count.value + 1);
        if top.get(&beyond).is_some() {
            faults.push(beyond, format!("is one more than `{count_key}` says ({})", count.value), None);
        }
        let chain = Self { steps };
        chain.check_line(&format!("Input{word}"), faults);
        chain
    }

    /// The document is one of a chain, or of something unknown, and no step of it was found.
    pub(super) fn is_lost(&self, top: &Reader<'a>, kind: Option<&str>) -> bool {
        self.steps.is_empty() && top.get("RequestType").is_some() && kind != Some("ReReco")
    }

    /// Each one reads what the one before it wrote, and nothing else.
    fn check_line(&self, key: &str, faults: &mut Faults) {
        for (at, step) in self.steps.iter().enumerate().skip(1) {
            let before = &self.steps[at - 1].name;
            let remedy = || Some("submit one request for each branch".to_owned());
            match step.part.get(key).and_then(Value::as_str) {
                Some(input) if input == before => {}
                Some(input) if self.steps[..at].iter().any(|earlier| earlier.name == input) => {
                    let reason =
                        format!("branches: it reads {input}, not {before} before it; only a line can be run");
                    faults.push(step.part.path(key), reason, remedy());
                }
                Some(input) => {
                    faults.push(
                        step.part.path(key),
                        format!("names {input}, which does not come before it"),
                        None,
                    );
                }
                None => faults.push(step.part.path(key), "is missing", Some(format!("`{before}`"))),
            }
            if step.part.get("InputDataset").is_some() {
                let reason =
                    "is an input of its own in the middle of the chain; only the first one reads a dataset";
                faults.push(step.part.path("InputDataset"), reason, remedy());
            }
        }
        for (at, step) in self.steps.iter().enumerate() {
            if self.steps[..at].iter().any(|earlier| earlier.name == step.name) {
                faults.push(
                    step.part.prefix.trim_end_matches('.'),
                    format!("is called {}, as another one is", step.name),
                    None,
                );
            }
        }
    }

    /// What the first one says, or the document at its top.
    pub(super) fn first<T>(
        &self,
        top: &Reader<'a>,
        mut get: impl FnMut(&Reader<'a>) -> Option<T>,
    ) -> Option<T> {
        self.steps.first().and_then(|step| get(&step.part)).or_else(|| get(top))
    }

    /// What the top says, or the first of them that says something.
    pub(super) fn any<T>(
        &self,
        top: &Reader<'a>,
        mut get: impl FnMut(&Reader<'a>) -> Option<T>,
    ) -> Option<T> {
        get(top).or_else(|| self.steps.iter().find_map(|step| get(&step.part)))
    }

    /// They share a job, one after the other: it must do for the largest.
    pub(super) fn largest<T: PartialOrd>(
        &self,
        top: &Reader<'a>,
        mut get: impl FnMut(&Reader<'a>) -> Option<At<T>>,
    ) -> Option<At<T>> {
        let own: Vec<At<T>> = self.steps.iter().filter_map(|step| get(&step.part)).collect();
        let whole = if own.len() == self.steps.len() && !own.is_empty() { None } else { get(top) };
        own.into_iter().chain(whole).reduce(|a, b| if b.value > a.value { b } else { a })
    }

    /// Where none says anything, the top speaks of all of them together.
    pub(super) fn sum(
        &self,
        top: &Reader<'a>,
        mut get: impl FnMut(&Reader<'a>) -> Option<At<f64>>,
    ) -> Option<At<f64>> {
        let own = self.steps.iter().filter_map(|step| get(&step.part));
        own.reduce(|a, b| At::new(a.path, a.value + b.value)).or_else(|| get(top))
    }

    pub(super) fn product(
        &self,
        top: &Reader<'a>,
        mut get: impl FnMut(&Reader<'a>) -> Option<At<f64>>,
    ) -> Option<At<f64>> {
        let own = self.steps.iter().filter_map(|step| get(&step.part));
        own.reduce(|a, b| At::new(a.path, a.value * b.value)).or_else(|| get(top))
    }

    /// One for each step, or one for a document without. What the top says for a step by name stands over what the step
    /// says, and that over what the top says for all.
    pub(super) fn labels(&self, top: &Reader<'a>, faults: &mut Faults) -> Vec<Labels> {
        let mut label = |key: &str, step: Option<&Step<'a>>| match (top.get(key), step) {
            (Some(Value::Object(_)), Some(step)) => {
                let by_name = top.object(key, faults)?;
                by_name.text(&step.name, faults).or_else(|| step.part.text(key, faults))
            }
            (_, Some(step)) if step.part.get(key).is_some() => step.part.text(key, faults),
            _ => top.text(key, faults),
        };
        let mut both =
            |step| Labels { era: label("AcquisitionEra", step), processing: label("ProcessingString", step) };
        if self.steps.is_empty() {
            vec![both(None)]
        } else {
            self.steps.iter().map(|step| both(Some(step))).collect()
        }
    }

    /// `/Primary/Era-ProcessingString-vN/Tier` of every step that keeps its output. Tiers are in the configurations, which
    /// are not in the document: where neither the document nor the next step's input tells, it must be said.
    pub(super) fn outputs(
        &self,
        top: &Reader<'a>,
        labels: &[Labels],
        input: Option<&At<String>>,
        version: u32,
        faults: &mut Faults,
    ) -> Option<At<Vec<String>>> {
        let of_input = input.and_then(|input| input.value.split('/').nth(1));
        let primary_of = |part: &Reader<'a>| part.get("PrimaryDataset").and_then(Value::as_str);
        let mut names = Vec::new();
        if self.steps.is_empty() {
            let tier = top.get("DataTier").and_then(Value::as_str);
            names.push(dataset(primary_of(top).or(of_input), labels.first()?, version, tier));
        }
        let first = self.steps.first().and_then(|step| primary_of(&step.part));
        for (at, step) in self.steps.iter().enumerate() {
            let is_last = at + 1 == self.steps.len();
            if step.part.get("KeepOutput").and_then(Value::as_bool).unwrap_or(is_last) {
                let primary = primary_of(&step.part).or(first).or(primary_of(top)).or(of_input);
                names.push(dataset(primary, &labels[at], version, self.tier(at)));
            }
        }
        if names.iter().all(Result::is_ok) {
            let names = names.into_iter().flatten().collect();
            return Some(At::new("OutputDatasets", names));
        }
        let shown: Vec<String> = names.into_iter().map(|name| name.unwrap_or_else(|partly| partly)).collect();
        let remedy =
            format!("name them: {}, with what stands in capitals filled in", serde_json::json!(shown));
        let reason = "is missing, and the document does not tell what its outputs are called";
        faults.push("OutputDatasets", reason, Some(remedy));
        None
    }

    fn tier(&self, at: usize) -> Option<&'a str> {
        let said = self.steps[at].part.get("DataTier").and_then(Value::as_str);
        let module =
            || self.steps.get(at + 1)?.part.get("InputFromOutputModule")?.as_str()?.strip_suffix("output");
        said.or_else(|| module().filter(|tier| TIERS.contains(tier)))
    }
}

/// `Err`: what of the name is known.
fn dataset(
    primary: Option<&str>,
    labels: &Labels,
    version: u32,
    tier: Option<&str>,
) -> Result<String, String> {
    let label = |label: &Option<At<String>>| label.as_ref().map(|label| label.value.clone());
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

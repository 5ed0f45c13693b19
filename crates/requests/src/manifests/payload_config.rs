//! The programs of a request's jobs and the names of its outputs, from its `payload_config`, of which nothing
//! else is read (R-007).
//!
//! | in `payload_config` | meaning |
//! |---|---|
//! | `steps` | the programs, as in a manifest: `name`, `command`, `threads`, `reads`, `simulation` |
//! | `simulation` | steps without a command are simulated, with these settings; `{}` for the defaults |
//! | `Step1`, `Task1`, … | names of steps as in ReqMgr2: only with `simulation`, because their programs are not in the document |
//! | `outputs` | dataset → the step that makes it |
//! | `merge` | as in a manifest: `command`, `max_bytes` |
//! | `MergedLFNBase`, `UnmergedLFNBase` | LFN prefixes; `/store/mc`, or `/store/data` with input, and `/store/unmerged` |
//!
//! Nothing is simulated unless the document says `simulation`: a request that names CMSSW and no commands is
//! rejected.

use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::requests::document::DocumentProblem;
use windlass_types::payload::{ManifestStep, MergeSettings, StepSimulation, WorkUnitOutput, check_lfn};
use windlass_types::requests::Request;

/// An invalid value in `payload_config`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("payload_config.{field}: {what}")]
pub struct PayloadConfigError {
    pub field: String,
    pub what: String,
    pub remedy: Option<String>,
}

fn config_error(field: &str, what: impl std::fmt::Display) -> PayloadConfigError {
    PayloadConfigError { field: field.to_owned(), what: what.to_string(), remedy: None }
}

/// All errors in the `payload_config` of a request because of which it cannot run.
pub fn find_faults(request: &Request) -> Vec<DocumentProblem> {
    let merge = read_merge(request).map(drop);
    let outputs = read_steps(request).and_then(|steps| read_outputs(request, &steps)).map(drop);
    let to_problem = |fault: PayloadConfigError| DocumentProblem {
        field: format!("{}.{}", config_field_name(request), fault.field),
        reason: fault.what,
        remedy: fault.remedy,
    };
    [outputs, merge].into_iter().filter_map(Result::err).map(to_problem).collect()
}

/// `payload_config`, by its name in the original document.
fn config_field_name(request: &Request) -> &'static str {
    let is_reqmgr = |key: &String| key.starts_with(|first: char| first.is_ascii_uppercase());
    if request.payload_config.keys().any(is_reqmgr) { "PayloadConfig" } else { "payload_config" }
}

/// The chain of programs; never empty.
pub fn read_steps(request: &Request) -> Result<Vec<ManifestStep>, PayloadConfigError> {
    let simulation = read_simulation(request)?;
    if let Some(given) = request.payload_config.get("steps") {
        let mut steps: Vec<ManifestStep> =
            serde_json::from_value(given.clone()).map_err(|error| config_error("steps", error))?;
        if steps.is_empty() {
            return Err(config_error("steps", "there are none"));
        }
        for step in steps.iter_mut().filter(|step| step.command.is_none() && step.simulation.is_none()) {
            step.simulation = Some(simulation.clone().ok_or_else(|| missing_command_error(&step.name))?);
        }
        return Ok(steps);
    }
    let simulation = simulation.ok_or_else(|| nothing_to_run_error(request))?;
    let mut names: Vec<String> =
        ["Step", "Task"].iter().flat_map(|word| numbered_names(request, word)).collect();
    if names.is_empty() {
        names.push(if request.generation.is_some() { "GEN" } else { "RECO" }.to_owned());
    }
    let mut steps = simulated_steps(names, request, &simulation);
    if let (Some(first), Some(generation)) = (steps.first_mut(), request.generation)
        && generation.filter_efficiency < 1.0
    {
        let simulation = first.simulation.get_or_insert_with(StepSimulation::default);
        simulation.filter_efficiency.get_or_insert(generation.filter_efficiency);
    }
    Ok(steps)
}

fn missing_command_error(step: &str) -> PayloadConfigError {
    let remedy = "add a `command`, or `simulation: {}` to simulate it".to_owned();
    PayloadConfigError {
        remedy: Some(remedy),
        ..config_error("steps", format!("step `{step}` has no command"))
    }
}

/// Fields that refer to a CMS program.
const CMSSW_KEYS: [&str; 6] = ["ConfigCacheID", "ConfigCacheUrl", "PSet", "Scenario", "Step1", "Task1"];

/// The programs of the jobs are missing.
fn nothing_to_run_error(request: &Request) -> PayloadConfigError {
    let mut named: Vec<&str> = CMSSW_KEYS.into_iter().filter(|key| has_value(request, key)).collect();
    if request.cmssw_version.is_some() {
        named.push("CMSSWVersion");
    }
    let what = if named.is_empty() {
        "is missing: the document does not name the programs of its jobs".to_owned()
    } else {
        format!(
            "is missing: the document names CMSSW ({}) and no commands, and windlass does not run CMSSW by itself",
            named.join(", ")
        )
    };
    let config = config_field_name(request);
    let remedy = format!(
        "name the command of each step, `{config}: {{\"steps\": [{{\"name\": \"RECO\", \"command\": \"…\"}}]}}`; \
         for a trial without the programs, `{config}: {{\"simulation\": {{}}}}`"
    );
    PayloadConfigError { remedy: Some(remedy), ..config_error("steps", what) }
}

fn has_value(request: &Request, key: &str) -> bool {
    request.payload_config.get(key).is_some_and(|value| !value.is_null() && value.as_str() != Some(""))
}

/// The settings of simulated steps; `None`: no simulation.
fn read_simulation(request: &Request) -> Result<Option<StepSimulation>, PayloadConfigError> {
    let given = request.payload_config.get("simulation").cloned();
    given.map(serde_json::from_value).transpose().map_err(|error| config_error("simulation", error))
}

/// `Step1`, `Step2`, … up to the first missing one.
fn numbered_names(request: &Request, word: &str) -> Vec<String> {
    let at = |n| request.payload_config.get(&format!("{word}{n}")).and_then(Value::as_object);
    let one = |n: u32| {
        let step = at(n)?;
        let name = step.get(&format!("{word}Name")).and_then(Value::as_str);
        let plain = name.filter(|name| windlass_types::payload::check_name(name).is_ok());
        Some(plain.map_or_else(|| format!("{word}{n}"), str::to_owned))
    };
    (1..).map_while(one).collect()
}

/// Steps without a command, to be simulated.
fn simulated_steps(names: Vec<String>, request: &Request, simulation: &StepSimulation) -> Vec<ManifestStep> {
    let step = |name| ManifestStep {
        name,
        command: None,
        threads: request.multicore.max(1),
        reads: None,
        join: None,
        simulation: Some(simulation.clone()),
    };
    names.into_iter().map(step).collect()
}

pub(super) fn read_merge(request: &Request) -> Result<MergeSettings, PayloadConfigError> {
    let given = request.payload_config.get("merge").cloned();
    given.map_or_else(
        || Ok(MergeSettings::default()),
        |given| serde_json::from_value(given).map_err(|error| config_error("merge", error)),
    )
}

/// An output for each dataset of the request.
pub(super) fn read_outputs(
    request: &Request,
    steps: &[ManifestStep],
) -> Result<Vec<WorkUnitOutput>, PayloadConfigError> {
    let named: BTreeMap<String, String> = match request.payload_config.get("outputs") {
        Some(given) => {
            serde_json::from_value(given.clone()).map_err(|error| config_error("outputs", error))?
        }
        None => BTreeMap::new(),
    };
    let count = request.output_datasets.len();
    let one = |(number, dataset): (usize, &String)| {
        let parts = parse_dataset_name(dataset)?;
        let step = match named.get(dataset) {
            Some(name) if steps.iter().any(|step| step.name == *name) => name.clone(),
            Some(name) => return Err(config_error("outputs", format!("there is no step `{name}`"))),
            None => find_step_for_tier(steps, parts.tier)
                .unwrap_or_else(|| &steps[(steps.len() + number).saturating_sub(count).min(steps.len() - 1)])
                .name
                .clone(),
        };
        Ok(WorkUnitOutput {
            dataset: dataset.clone(),
            tier: parts.tier.to_owned(),
            step,
            unmerged_base: output_lfn(request, "UnmergedLFNBase", "/store/unmerged", &parts)?,
            merged_base: output_lfn(request, "MergedLFNBase", default_merged_base(request), &parts)?,
            extension: "txt".to_owned(),
            may_be_empty: may_be_empty(request),
        })
    };
    request.output_datasets.iter().enumerate().map(one).collect()
}

/// A filter may drop all events of a small job, and a mask may exclude all of it. Otherwise an output without
/// events is an error.
fn may_be_empty(request: &Request) -> bool {
    request.splitting_params.lumi_mask.is_some()
        || request.generation.is_some_and(|generation| generation.filter_efficiency < 1.0)
}

/// The step with the name of the tier.
fn find_step_for_tier<'s>(steps: &'s [ManifestStep], tier: &str) -> Option<&'s ManifestStep> {
    steps.iter().rev().find(|step| step.name.eq_ignore_ascii_case(tier))
}

fn default_merged_base(request: &Request) -> &'static str {
    if request.generation.is_some() { "/store/mc" } else { "/store/data" }
}

/// `BASE/ERA/PRIMARY/TIER/REST`, the convention of CMS.
fn output_lfn(
    request: &Request,
    field: &str,
    usual: &str,
    parts: &DatasetNameParts<'_>,
) -> Result<String, PayloadConfigError> {
    let base = request.payload_config.get(field).and_then(Value::as_str).unwrap_or(usual);
    let base = base.trim_end_matches('/');
    let DatasetNameParts { primary, era, rest, tier } = parts;
    let lfn = format!("{base}/{era}/{primary}/{tier}/{rest}");
    check_lfn(&lfn).map_err(|error| config_error(field, error))?;
    Ok(lfn)
}

/// `/PRIMARY/ERA-REST/TIER`
struct DatasetNameParts<'a> {
    primary: &'a str,
    era: &'a str,
    rest: &'a str,
    tier: &'a str,
}

fn parse_dataset_name(dataset: &str) -> Result<DatasetNameParts<'_>, PayloadConfigError> {
    let mut words = dataset.trim_start_matches('/').split('/');
    let (Some(primary), Some(processed), Some(tier), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(config_error("outputs", format!("{dataset} is not of the form /PRIMARY/PROCESSED/TIER")));
    };
    let (era, rest) = processed.split_once('-').unwrap_or((processed, "v1"));
    Ok(DatasetNameParts { primary, era, rest, tier })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(config: &Value) -> Request {
        let document = json!({
            "request_name": "r", "requestor": "ada", "input_dataset": "/A/In-v1/RAW", "output_datasets": ["/A/B-v1/RECO"],
            "memory_mb": 2000, "time_per_event_sec": 1.0, "size_per_event_kb": 1.0, "multicore": 2,
            "splitting_algo": "FileBased", "processing_version": 1, "priority": 1, "payload_config": config,
            "cmssw_version": "CMSSW_15_0_0", "cleanup_policy": "keep_until_replaced",
        });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn only_requested_steps_are_simulated() {
        // payload_config → names of the steps, and which of them are simulated
        let table: &[(Value, &[(&str, bool)])] = &[
            (json!({"simulation": {}}), &[("RECO", true)]),
            (
                json!({"simulation": {}, "Step1": {"StepName": "gen"}, "Step2": {}}),
                &[("gen", true), ("Step2", true)],
            ),
            (json!({"steps": [{"name": "A", "command": "true"}]}), &[("A", false)]),
            (json!({"steps": [{"name": "A", "simulation": {}}]}), &[("A", true)]),
            (
                json!({"steps": [{"name": "A", "command": "true"}, {"name": "B"}], "simulation": {}}),
                &[("A", false), ("B", true)],
            ),
        ];
        for (config, expected) in table {
            let steps = read_steps(&request(config)).unwrap();
            let found: Vec<(&str, bool)> =
                steps.iter().map(|step| (step.name.as_str(), step.command.is_none())).collect();
            assert_eq!(found, *expected, "{config}");
            assert!(steps.iter().all(|step| step.command.is_some() != step.simulation.is_some()), "{config}");
        }
    }

    #[test]
    fn payload_config_without_programs_is_refused() {
        for (config, field, reason) in [
            (json!({}), "payload_config.steps", "names CMSSW (CMSSWVersion)"),
            (
                json!({"ConfigCacheID": "1"}),
                "PayloadConfig.steps",
                "names CMSSW (ConfigCacheID, CMSSWVersion)",
            ),
            (json!({"Step1": {"StepName": "gen"}}), "PayloadConfig.steps", "Step1"),
            (json!({"steps": []}), "payload_config.steps", "there are none"),
            (json!({"steps": [{"name": "A"}]}), "payload_config.steps", "step `A` has no command"),
            (json!({"simulation": true}), "payload_config.simulation", "invalid type"),
            (
                json!({"simulation": {}, "outputs": {"/A/B-v1/RECO": "X"}}),
                "payload_config.outputs",
                "no step `X`",
            ),
            (json!({"simulation": {}, "merge": {"comand": ""}}), "payload_config.merge", "comand"),
        ] {
            let found = find_faults(&request(&config));
            assert_eq!(found.len(), 1, "{config}: {found:?}");
            assert!(found[0].field == field && found[0].reason.contains(reason), "{config}: {found:?}");
        }
        let plain = Request { cmssw_version: None, ..request(&json!({})) };
        assert!(find_faults(&plain)[0].reason.contains("does not name the programs"));
    }
}

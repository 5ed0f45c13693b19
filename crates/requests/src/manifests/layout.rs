//! What the jobs of a request run and where their outputs go: from its `payload_config`, which is otherwise nobody's
//! business.
//!
//! | in `payload_config` | meaning |
//! |---|---|
//! | `steps` | the programs, as in a manifest: `name`, `command`, `threads`, `reads`, `simulation` |
//! | `Step1`, `Task1`, … | the same as ReqMgr2 says it; they are simulated, since what they run is not here |
//! | `outputs` | dataset → the step that makes it |
//! | `merge` | as in a manifest: `command`, `max_bytes` |
//! | `MergedLFNBase`, `UnmergedLFNBase` | where files go; `/store/mc`, or `/store/data` with input, and `/store/unmerged` |

use serde_json::Value;
use std::collections::BTreeMap;
use windlass_types::payload::{Merge, Output, Simulation, Step, check_lfn};
use windlass_types::requests::Request;

/// Something in `payload_config` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("payload_config.{field}: {what}")]
pub struct LayoutFault {
    pub field: String,
    pub what: String,
}

fn fault(field: &str, what: impl std::fmt::Display) -> LayoutFault {
    LayoutFault { field: field.to_owned(), what: what.to_string() }
}

/// The chain of programs; never empty.
pub(super) fn steps(request: &Request) -> Result<Vec<Step>, LayoutFault> {
    if let Some(given) = request.payload_config.get("steps") {
        let steps: Vec<Step> =
            serde_json::from_value(given.clone()).map_err(|error| fault("steps", error))?;
        if steps.is_empty() {
            return Err(fault("steps", "there are none"));
        }
        return Ok(steps);
    }
    let mut names: Vec<String> = ["Step", "Task"].iter().flat_map(|word| numbered(request, word)).collect();
    if names.is_empty() {
        names.push(if request.generation.is_some() { "GEN" } else { "RECO" }.to_owned());
    }
    let mut steps = simulated(names, request)?;
    if let (Some(first), Some(generation)) = (steps.first_mut(), request.generation)
        && generation.filter_efficiency < 1.0
        && first.command.is_none()
    {
        let simulation = first.simulation.get_or_insert_with(Simulation::default);
        simulation.filter_efficiency.get_or_insert(generation.filter_efficiency);
    }
    Ok(steps)
}

/// `Step1`, `Step2`, … as far as they go.
fn numbered(request: &Request, word: &str) -> Vec<String> {
    let at = |n| request.payload_config.get(&format!("{word}{n}")).and_then(Value::as_object);
    let one = |n: u32| {
        let step = at(n)?;
        let name = step.get(&format!("{word}Name")).and_then(Value::as_str);
        let plain = name.filter(|name| windlass_types::payload::check_name(name).is_ok());
        Some(plain.map_or_else(|| format!("{word}{n}"), str::to_owned))
    };
    (1..).map_while(one).collect()
}

/// Stand-ins for programs that are not here.
fn simulated(names: Vec<String>, request: &Request) -> Result<Vec<Step>, LayoutFault> {
    let given = request.payload_config.get("simulation").cloned();
    let simulation: Option<Simulation> =
        given.map(serde_json::from_value).transpose().map_err(|error| fault("simulation", error))?;
    let step = |name| Step {
        name,
        command: None,
        threads: request.multicore.max(1),
        reads: None,
        join: None,
        simulation: simulation.clone(),
    };
    Ok(names.into_iter().map(step).collect())
}

pub(super) fn merge(request: &Request) -> Result<Merge, LayoutFault> {
    let given = request.payload_config.get("merge").cloned();
    given.map_or_else(
        || Ok(Merge::default()),
        |given| serde_json::from_value(given).map_err(|error| fault("merge", error)),
    )
}

/// An output for each dataset of the request.
pub(super) fn outputs(request: &Request, steps: &[Step]) -> Result<Vec<Output>, LayoutFault> {
    let named: BTreeMap<String, String> = match request.payload_config.get("outputs") {
        Some(given) => serde_json::from_value(given.clone()).map_err(|error| fault("outputs", error))?,
        None => BTreeMap::new(),
    };
    let count = request.output_datasets.len();
    let one = |(number, dataset): (usize, &String)| {
        let parts = parts(dataset)?;
        let step = match named.get(dataset) {
            Some(name) if steps.iter().any(|step| step.name == *name) => name.clone(),
            Some(name) => return Err(fault("outputs", format!("there is no step `{name}`"))),
            None => of_tier(steps, parts.tier)
                .unwrap_or_else(|| &steps[(steps.len() + number).saturating_sub(count).min(steps.len() - 1)])
                .name
                .clone(),
        };
        Ok(Output {
            dataset: dataset.clone(),
            tier: parts.tier.to_owned(),
            step,
            unmerged_base: place(request, "UnmergedLFNBase", "/store/unmerged", &parts)?,
            merged_base: place(request, "MergedLFNBase", merged(request), &parts)?,
            extension: "txt".to_owned(),
            may_be_empty: may_be_empty(request),
        })
    };
    request.output_datasets.iter().enumerate().map(one).collect()
}

/// A filter may let nothing of a small job pass, and a mask may leave nothing of it. Without one, no events are a mistake.
fn may_be_empty(request: &Request) -> bool {
    request.splitting_params.lumi_mask.is_some()
        || request.generation.is_some_and(|generation| generation.filter_efficiency < 1.0)
}

/// The step that is called like the tier it makes.
fn of_tier<'s>(steps: &'s [Step], tier: &str) -> Option<&'s Step> {
    steps.iter().rev().find(|step| step.name.eq_ignore_ascii_case(tier))
}

fn merged(request: &Request) -> &'static str {
    if request.generation.is_some() { "/store/mc" } else { "/store/data" }
}

/// `BASE/ERA/PRIMARY/TIER/REST`, as CMS has it.
fn place(request: &Request, field: &str, usual: &str, parts: &Parts<'_>) -> Result<String, LayoutFault> {
    let base = request.payload_config.get(field).and_then(Value::as_str).unwrap_or(usual);
    let base = base.trim_end_matches('/');
    let Parts { primary, era, rest, tier } = parts;
    let lfn = format!("{base}/{era}/{primary}/{tier}/{rest}");
    check_lfn(&lfn).map_err(|error| fault(field, error))?;
    Ok(lfn)
}

/// `/PRIMARY/ERA-REST/TIER`
struct Parts<'a> {
    primary: &'a str,
    era: &'a str,
    rest: &'a str,
    tier: &'a str,
}

fn parts(dataset: &str) -> Result<Parts<'_>, LayoutFault> {
    let mut words = dataset.trim_start_matches('/').split('/');
    let (Some(primary), Some(processed), Some(tier), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(fault("outputs", format!("{dataset} is not of the form /PRIMARY/PROCESSED/TIER")));
    };
    let (era, rest) = processed.split_once('-').unwrap_or((processed, "v1"));
    Ok(Parts { primary, era, rest, tier })
}

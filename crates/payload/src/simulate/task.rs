//! The task of the simulation, read from the environment of a step.

use crate::processing_job::StepInput;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use windlass_types::payload::{EventGeneration, StepSimulation};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulationTask {
    pub step: String,
    pub node: u32,
    pub site: String,
    /// Counted from 1.
    pub attempt: u32,
    pub threads: u32,
    pub seed: u64,
    pub inputs: Vec<StepInput>,
    pub generate: Option<EventGeneration>,
    pub outputs: Vec<PathBuf>,
    pub report: Option<PathBuf>,
    pub simulation: StepSimulation,
}

#[derive(Debug, thiserror::Error)]
pub enum SimulationTaskError {
    #[error("{name} is `{value}`, which is invalid: {why}")]
    Variable { name: &'static str, value: String, why: String },
    #[error("cannot read {path}, named by {name}: {why}")]
    List { name: &'static str, path: String, why: String },
}

impl SimulationTask {
    /// As [`crate::run`] sets it. Without a variable: one thread, no inputs, nothing to generate.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, SimulationTaskError> {
        let text = |name: &str| variable(name).filter(|text| !text.is_empty());
        let mut task = Self {
            step: text("WINDLASS_STEP").unwrap_or_else(|| "SIM".to_owned()),
            site: text("WINDLASS_SITE").unwrap_or_default(),
            node: parse_number(&text, "WINDLASS_NODE")?.unwrap_or(0),
            attempt: parse_number(&text, "WINDLASS_ATTEMPT")?.unwrap_or(1),
            threads: parse_number(&text, "WINDLASS_THREADS")?.unwrap_or(1),
            // Generated events depend only on their numbers.
            seed: parse_number(&text, "WINDLASS_NODE_SEED")?
                .or(parse_number(&text, "WINDLASS_SEED")?)
                .unwrap_or(0),
            report: text("WINDLASS_JOB_REPORT").map(PathBuf::from),
            generate: parse_generation(&text)?,
            ..Self::default()
        };
        if let Some(path) = text("WINDLASS_INPUT_DETAILS") {
            let to_failure = |why: String| SimulationTaskError::List {
                name: "WINDLASS_INPUT_DETAILS",
                path: path.clone(),
                why,
            };
            let bytes = fs::read(&path).map_err(|error| to_failure(error.to_string()))?;
            task.inputs = serde_json::from_slice(&bytes).map_err(|error| to_failure(error.to_string()))?;
        }
        if let Some(path) = text("WINDLASS_OUTPUTS") {
            let to_failure =
                |why: String| SimulationTaskError::List { name: "WINDLASS_OUTPUTS", path: path.clone(), why };
            let list = fs::read_to_string(&path).map_err(|error| to_failure(error.to_string()))?;
            task.outputs = list.lines().map(PathBuf::from).collect();
        }
        if let Some(value) = text("WINDLASS_SIMULATION") {
            task.simulation = serde_json::from_str(&value).map_err(|error| {
                SimulationTaskError::Variable { name: "WINDLASS_SIMULATION", why: error.to_string(), value }
            })?;
        }
        Ok(task)
    }
}

fn parse_generation(
    text: &impl Fn(&str) -> Option<String>,
) -> Result<Option<EventGeneration>, SimulationTaskError> {
    let first = parse_number(text, "WINDLASS_FIRST_EVENT")?;
    let last = parse_number(text, "WINDLASS_LAST_EVENT")?;
    let (Some(first_event), Some(last_event)) = (first, last) else { return Ok(None) };
    Ok(Some(EventGeneration {
        first_event,
        last_event,
        run: parse_number(text, "WINDLASS_RUN_NUMBER")?.unwrap_or(1),
        first_lumi: parse_number(text, "WINDLASS_FIRST_LUMI")?.unwrap_or(1),
        events_per_lumi: parse_number(text, "WINDLASS_EVENTS_PER_LUMI")?.filter(|size| *size > 0),
    }))
}

fn parse_number<T: FromStr<Err: ToString>>(
    text: &impl Fn(&str) -> Option<String>,
    name: &'static str,
) -> Result<Option<T>, SimulationTaskError> {
    let Some(value) = text(name) else { return Ok(None) };
    let read = value.parse().map_err(|why: T::Err| why.to_string());
    read.map(Some).map_err(|why| SimulationTaskError::Variable { name, value, why })
}

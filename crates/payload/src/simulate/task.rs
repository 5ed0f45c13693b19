//! What the simulation is to do, as a step is told it: by its environment.

use crate::run::StepInput;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use windlass_types::payload::{Generation, Simulation};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    pub step: String,
    pub node: u32,
    pub site: String,
    /// Counted from 1.
    pub attempt: u32,
    pub threads: u32,
    pub seed: u64,
    pub inputs: Vec<StepInput>,
    pub generate: Option<Generation>,
    pub outputs: Vec<PathBuf>,
    pub report: Option<PathBuf>,
    pub simulation: Simulation,
}

#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("{name} is `{value}`, which cannot be read: {why}")]
    Variable { name: &'static str, value: String, why: String },
    #[error("cannot read {path}, which {name} names: {why}")]
    List { name: &'static str, path: String, why: String },
}

impl Task {
    /// As [`crate::run`] tells it. Without a variable: one thread, no inputs, nothing to generate.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, TaskError> {
        let text = |name: &str| variable(name).filter(|text| !text.is_empty());
        let mut task = Self {
            step: text("WINDLASS_STEP").unwrap_or_else(|| "SIM".to_owned()),
            site: text("WINDLASS_SITE").unwrap_or_default(),
            node: number(&text, "WINDLASS_NODE")?.unwrap_or(0),
            attempt: number(&text, "WINDLASS_ATTEMPT")?.unwrap_or(1),
            threads: number(&text, "WINDLASS_THREADS")?.unwrap_or(1),
            // What it makes follows from the numbers of events: the same whoever makes them.
            seed: number(&text, "WINDLASS_NODE_SEED")?.or(number(&text, "WINDLASS_SEED")?).unwrap_or(0),
            report: text("WINDLASS_JOB_REPORT").map(PathBuf::from),
            generate: generation(&text)?,
            ..Self::default()
        };
        if let Some(path) = text("WINDLASS_INPUT_DETAILS") {
            let trouble =
                |why: String| TaskError::List { name: "WINDLASS_INPUT_DETAILS", path: path.clone(), why };
            let bytes = fs::read(&path).map_err(|error| trouble(error.to_string()))?;
            task.inputs = serde_json::from_slice(&bytes).map_err(|error| trouble(error.to_string()))?;
        }
        if let Some(path) = text("WINDLASS_OUTPUTS") {
            let trouble = |why: String| TaskError::List { name: "WINDLASS_OUTPUTS", path: path.clone(), why };
            let list = fs::read_to_string(&path).map_err(|error| trouble(error.to_string()))?;
            task.outputs = list.lines().map(PathBuf::from).collect();
        }
        if let Some(value) = text("WINDLASS_SIMULATION") {
            task.simulation = serde_json::from_str(&value).map_err(|error| TaskError::Variable {
                name: "WINDLASS_SIMULATION",
                why: error.to_string(),
                value,
            })?;
        }
        Ok(task)
    }
}

fn generation(text: &impl Fn(&str) -> Option<String>) -> Result<Option<Generation>, TaskError> {
    let first = number(text, "WINDLASS_FIRST_EVENT")?;
    let last = number(text, "WINDLASS_LAST_EVENT")?;
    let (Some(first_event), Some(last_event)) = (first, last) else { return Ok(None) };
    Ok(Some(Generation {
        first_event,
        last_event,
        run: number(text, "WINDLASS_RUN_NUMBER")?.unwrap_or(1),
        first_lumi: number(text, "WINDLASS_FIRST_LUMI")?.unwrap_or(1),
        events_per_lumi: number(text, "WINDLASS_EVENTS_PER_LUMI")?.filter(|size| *size > 0),
    }))
}

fn number<T: FromStr<Err: ToString>>(
    text: &impl Fn(&str) -> Option<String>,
    name: &'static str,
) -> Result<Option<T>, TaskError> {
    let Some(value) = text(name) else { return Ok(None) };
    let read = value.parse().map_err(|why: T::Err| why.to_string());
    read.map(Some).map_err(|why| TaskError::Variable { name, value, why })
}

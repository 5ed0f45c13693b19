//! The environment of a step: variables, and the list files that they name. Documented in
//! `docs/guide/payload.md`.

use super::event_shares::EventShare;
use crate::workspace::UnitWorkspace;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use windlass_types::LumiMask;
use windlass_types::payload::{EventWindow, ManifestStep, ProcessingJob, WorkUnitManifest};

/// One file that a step reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepInput {
    pub path: PathBuf,
    /// Empty for the output of another step of the node.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lfn: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventWindow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lumis: Option<LumiMask>,
}

impl StepInput {
    pub fn whole_file(path: PathBuf) -> Self {
        Self { path, ..Self::default() }
    }
}

/// The paths of a step.
#[derive(Clone, Debug)]
pub(super) struct StepFiles {
    pub(super) directory: PathBuf,
    /// One per output of the step; of an intermediate step, the one that it passes on. The first is passed on.
    pub(super) outputs: Vec<PathBuf>,
    pub(super) report: PathBuf,
    inputs: PathBuf,
    details: PathBuf,
    outputs_list: PathBuf,
}

impl StepFiles {
    pub(super) fn new(manifest: &WorkUnitManifest, step: &ManifestStep, directory: &Path) -> Self {
        let of_output = |output: &windlass_types::payload::WorkUnitOutput| {
            directory.join(format!("{}.{}", output.tier, output.extension))
        };
        let mut outputs: Vec<PathBuf> = manifest.outputs_of(&step.name).map(of_output).collect();
        if outputs.is_empty() {
            outputs.push(directory.join(format!("{}.out", step.name)));
        }
        Self {
            outputs,
            report: directory.join("FrameworkJobReport.xml"),
            inputs: directory.join("inputs.txt"),
            details: directory.join("inputs.json"),
            outputs_list: directory.join("outputs.txt"),
            directory: directory.to_owned(),
        }
    }
}

/// The list files that the variables name.
pub(super) fn write_lists(files: &StepFiles, inputs: &[StepInput]) -> io::Result<()> {
    fs::write(&files.inputs, join_lines(inputs.iter().map(|input| &input.path)))?;
    fs::write(&files.details, serde_json::to_vec_pretty(inputs)?)?;
    fs::write(&files.outputs_list, join_lines(files.outputs.iter()))
}

fn join_lines<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> String {
    paths.fold(String::new(), |text, path| text + &path.to_string_lossy() + "\n")
}

/// Variables that are not set for every step, and may exist in the inherited environment.
const OPTIONAL_VARIABLES: [&str; 10] = [
    "WINDLASS_FIRST_EVENT",
    "WINDLASS_LAST_EVENT",
    "WINDLASS_RUN_NUMBER",
    "WINDLASS_FIRST_LUMI",
    "WINDLASS_EVENTS_PER_LUMI",
    "WINDLASS_SKIP_EVENTS",
    "WINDLASS_MAX_EVENTS",
    "WINDLASS_SIMULATION",
    "WINDLASS_INSTANCE",
    "WINDLASS_INSTANCES",
];

pub(super) fn clear_variables(command: &mut Command) {
    for name in OPTIONAL_VARIABLES {
        command.env_remove(name);
    }
}

/// The values for the environment.
pub(super) struct StepEnvironment<'a> {
    pub(super) workspace: &'a UnitWorkspace,
    pub(super) node: &'a ProcessingJob,
    pub(super) step: &'a ManifestStep,
    pub(super) threads: u32,
    pub(super) attempt: u32,
    /// Index and number of the instances.
    pub(super) instance: (usize, usize),
}

impl StepEnvironment<'_> {
    pub(super) fn variables(&self, share: &EventShare, files: &StepFiles) -> Vec<(&'static str, String)> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let manifest = &self.workspace.manifest;
        let (instance, instances) = self.instance;
        let seed = step_seed(manifest, self.node.index, &self.step.name);
        let mut variables = vec![
            ("WINDLASS_REQUEST", manifest.request.clone()),
            ("WINDLASS_UNIT", manifest.unit.clone()),
            ("WINDLASS_NODE", self.node.index.to_string()),
            ("WINDLASS_SITE", self.workspace.site.clone()),
            ("WINDLASS_MANIFEST_DIR", path(self.workspace.directory())),
            ("WINDLASS_STEP", self.step.name.clone()),
            ("WINDLASS_ATTEMPT", self.attempt.to_string()),
            ("WINDLASS_THREADS", self.threads.to_string()),
            ("WINDLASS_SEED", instance_seed(seed, instance).to_string()),
            ("WINDLASS_NODE_SEED", seed.to_string()),
            ("WINDLASS_MEMORY_MB", (self.node.estimates.memory_mb / instances.max(1) as u64).to_string()),
            ("WINDLASS_INPUTS", path(&files.inputs)),
            ("WINDLASS_INPUT_DETAILS", path(&files.details)),
            ("WINDLASS_EVENTS", share.expected.to_string()),
            ("WINDLASS_OUTPUT", path(&files.outputs[0])),
            ("WINDLASS_OUTPUTS", path(&files.outputs_list)),
            ("WINDLASS_JOB_REPORT", path(&files.report)),
        ];
        if let Some(made) = share.generate {
            variables.extend([
                ("WINDLASS_FIRST_EVENT", made.first_event.to_string()),
                ("WINDLASS_LAST_EVENT", made.last_event.to_string()),
                ("WINDLASS_RUN_NUMBER", made.run.to_string()),
                ("WINDLASS_FIRST_LUMI", made.first_lumi.to_string()),
                ("WINDLASS_EVENTS_PER_LUMI", made.events_per_lumi.unwrap_or(0).to_string()),
            ]);
        }
        if instances > 1 {
            variables.push(("WINDLASS_INSTANCE", instance.to_string()));
            variables.push(("WINDLASS_INSTANCES", instances.to_string()));
        }
        if let Some((skip, most)) = skip_and_max_events(&share.inputs) {
            variables.push(("WINDLASS_SKIP_EVENTS", skip.to_string()));
            variables
                .push(("WINDLASS_MAX_EVENTS", most.map_or_else(|| "-1".to_owned(), |most| most.to_string())));
        }
        if let Some(simulation) = &self.step.simulation
            && let Ok(text) = serde_json::to_string(simulation)
        {
            variables.push(("WINDLASS_SIMULATION", text));
        }
        variables
    }
}

/// For programs that read their inputs as one stream: how many events to skip, and how many to read. `None` with
/// windows in several files: it is unknown whether they are adjacent.
fn skip_and_max_events(inputs: &[StepInput]) -> Option<(u64, Option<u64>)> {
    match inputs {
        [StepInput { events: Some(window), .. }] => {
            // The last share of a file with an unknown number of events has no end.
            let most = (window.last < u64::MAX).then(|| window.last - window.first + 1);
            Some((window.first - 1, most))
        }
        _ if inputs.iter().all(|input| input.events.is_none()) => Some((0, None)),
        _ => None,
    }
}

/// The random seed of a step: the same for every attempt, different for every node and step.
fn step_seed(manifest: &WorkUnitManifest, node: u32, step: &str) -> u64 {
    let WorkUnitManifest { seed, number, request, tag, .. } = manifest;
    let text = windlass_types::digest_bytes(
        format!("{request}\n{tag}\n{seed}\n{number}\n{node}\n{step}").as_bytes(),
    );
    u64::from_str_radix(&text[..16], 16).unwrap_or(*seed)
}

/// Programs whose random numbers do not depend on the event numbers would generate the same ones in every
/// instance.
fn instance_seed(seed: u64, instance: usize) -> u64 {
    seed.wrapping_add((instance as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(window: Option<(u64, u64)>) -> StepInput {
        StepInput { events: window.map(|(first, last)| EventWindow { first, last }), ..StepInput::default() }
    }

    #[test]
    fn event_windows_convert_to_skip_and_max_events() {
        assert_eq!(skip_and_max_events(&[]), Some((0, None)));
        assert_eq!(skip_and_max_events(&[input(None), input(None)]), Some((0, None)));
        assert_eq!(skip_and_max_events(&[input(Some((11, 20)))]), Some((10, Some(10))));
        assert_eq!(skip_and_max_events(&[input(Some((11, u64::MAX)))]), Some((10, None)));
        assert_eq!(skip_and_max_events(&[input(Some((11, 20))), input(Some((1, 5)))]), None);
        assert_eq!(skip_and_max_events(&[input(Some((11, 20))), input(None)]), None);
    }
}

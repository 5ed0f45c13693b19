//! The manifest of a work unit: everything its jobs need, in one file.

use super::{PathNameError, check_lfn, check_name};
use crate::LumiMask;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkUnitManifest {
    pub request: String,
    /// Part of all file names of this run; distinguishes them from the files of every other run of the request.
    pub tag: String,
    /// Name of the unit: `mg_000012`.
    pub unit: String,
    pub number: u32,
    pub steps: Vec<ManifestStep>,
    pub nodes: Vec<ProcessingJob>,
    pub outputs: Vec<WorkUnitOutput>,
    #[serde(default)]
    pub merge: MergeSettings,
    pub sites: BTreeMap<String, ManifestSite>,
    /// Base random seed; each node and step derives its own seed from it.
    #[serde(default)]
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestSite {
    /// Prefix of storage paths: an LFN is stored at this path followed by the LFN.
    pub storage_path: String,
}

/// One program of the chain that every node runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestStep {
    pub name: String,
    /// Shell command. Absent: the built-in simulation, which must then be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default = "one")]
    pub threads: u32,
    /// Step whose output this step reads. Absent: the previous step; for the first step, the inputs of the
    /// node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<String>,
    /// Shell command that merges several outputs into one. With it, several instances of the step can run in
    /// parallel, each on a share of the events; without it, only instances of the simulation can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<String>,
    /// Options of the built-in simulation, used if there is no command: `{}` for the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation: Option<StepSimulation>,
}

impl ManifestStep {
    /// Whether the outputs of several instances can be merged into one.
    pub const fn can_split(&self) -> bool {
        self.command.is_none() || self.join.is_some()
    }
}

const fn one() -> u32 {
    1
}

/// Options of the simulation that stands in for a real program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepSimulation {
    /// GEN, DIGI, RECO, MINI or NANO. Absent: the tier that the name of the step begins with, else DIGI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Factor by which the step is faster and its output smaller than in its profile. Absent: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// Fraction of the events that is kept. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_efficiency: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<SimulatedFailure>,
}

/// An injected failure. It occurs where all of its conditions hold; an absent condition always holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedFailure {
    pub kind: SimulatedFailureKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Last attempt, counted from 1, that fails; later attempts succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_attempt: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SimulatedFailureKind {
    /// Exits with this code. A code above 255 is written to the job report, as real programs do.
    Exit(i32),
    /// Kills itself with this signal.
    Signal(i32),
    /// Allocates memory until it is killed, at most this many MiB, and then reports that it is out of memory.
    Memory(u64),
    /// Hangs forever.
    Hang,
    /// Fails to read its first input (8021).
    BadInput,
    /// Exits with 0 and leaves no output.
    NoOutput,
    /// Exits with 0 and leaves an output without events.
    NoEvents,
}

/// The work of one processing job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessingJob {
    /// Index within the unit, from 0; the report is `proc_<index>.json`.
    pub index: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<ManifestInput>,
    /// The events to generate, if there are no inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate: Option<EventGeneration>,
    #[serde(default)]
    pub expected_events: u64,
    #[serde(default)]
    pub estimates: ProcessingEstimates,
    /// Trial of parallel instances of steps. Overrides the manifest and the measured profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<StepParallelism>,
}

/// How a step is run in several parallel instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepParallelism {
    pub instances: u32,
    /// Threads of each instance.
    pub threads: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestInput {
    pub lfn: String,
    /// Size in bytes according to the catalog. Absent: unknown, not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Checksum according to the catalog, in hexadecimal digits. Absent: unknown, not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adler32: Option<String>,
    /// Site → path at that site. At sites that are not listed, the file is looked for at its storage path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<String, String>,
    /// Range of events to read. Absent: all events of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventWindow>,
    /// Luminosity sections to read. Absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lumis: Option<LumiMask>,
}

/// A range of events of one file by position, from 1, both ends inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventWindow {
    pub first: u64,
    pub last: u64,
}

/// A range of events to generate. Event numbers are unique in the whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventGeneration {
    pub first_event: u64,
    pub last_event: u64,
    #[serde(default = "one_u64")]
    pub run: u64,
    #[serde(default = "one_u64")]
    pub first_lumi: u64,
    /// Events per luminosity section. Absent: all events of the node are in one section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_per_lumi: Option<u64>,
}

const fn one_u64() -> u64 {
    1
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessingEstimates {
    pub memory_mb: u64,
    pub time_sec: u64,
    pub disk_kb: u64,
}

/// A kept output of a step. The file of a step without one is intermediate and is deleted with the scratch
/// directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkUnitOutput {
    pub dataset: String,
    pub tier: String,
    pub step: String,
    /// `/store/unmerged/…`: base path under which the unit creates its own directory.
    pub unmerged_base: String,
    /// `/store/…`: base path of the merged files.
    pub merged_base: String,
    /// File name extension without the dot. Absent: `txt`.
    #[serde(default = "txt")]
    pub extension: String,
    /// Whether a file without events is acceptable, because a filter or a mask may leave none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_be_empty: bool,
}

fn txt() -> String {
    "txt".to_owned()
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MergeSettings {
    /// Shell command that merges. Absent: the files are concatenated in the order of their nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Maximum size of a merged file; it is closed before it gets larger. Absent: one file for each dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl WorkUnitManifest {
    pub fn node(&self, index: u32) -> Option<&ProcessingJob> {
        self.nodes.iter().find(|node| node.index == index)
    }

    pub fn outputs_of<'a>(&'a self, step: &'a str) -> impl Iterator<Item = &'a WorkUnitOutput> {
        self.outputs.iter().filter(move |output| output.step == step)
    }

    /// Returns the directory that holds the unmerged files of this unit only.
    pub fn unmerged_directory(&self, output: &WorkUnitOutput) -> String {
        format!("{}/{}-{}", output.unmerged_base, self.tag, self.unit)
    }

    pub fn unmerged_lfn(&self, output: &WorkUnitOutput, node: u32) -> String {
        let directory = self.unmerged_directory(output);
        format!("{directory}/{}_{node}.{}", output.tier, output.extension)
    }

    /// Returns the LFN of a merged file; parts are numbered from 0.
    pub fn merged_lfn(&self, output: &WorkUnitOutput, part: usize) -> String {
        let WorkUnitOutput { merged_base, extension, .. } = output;
        format!("{merged_base}/{}-{}-{part}.{extension}", self.tag, self.unit)
    }

    /// Returns all errors of the manifest.
    pub fn find_problems(&self) -> Vec<String> {
        let mut faults = ManifestProblems::default();
        self.check_names(&mut faults);
        self.check_steps(&mut faults);
        self.check_outputs(&mut faults);
        self.check_nodes(&mut faults);
        faults.0
    }

    fn check_names(&self, faults: &mut ManifestProblems) {
        faults.check_name("request", check_name(&self.request));
        faults.check_name("tag", check_name(&self.tag));
        faults.check_name("unit", check_name(&self.unit));
        for (name, site) in &self.sites {
            faults.check_name("sites", check_name(name));
            faults.require(is_site_path(&site.storage_path), || {
                format!("sites.{name}: storage_path {:?} is not an absolute path", site.storage_path)
            });
        }
    }

    fn check_steps(&self, faults: &mut ManifestProblems) {
        faults.require(!self.steps.is_empty(), || "steps: the list is empty".to_owned());
        let mut before = BTreeSet::new();
        for step in &self.steps {
            faults.check_name("steps", check_name(&step.name));
            faults.require(step.command.is_some() || step.simulation.is_some(), || {
                let name = &step.name;
                format!(
                    "steps.{name}: there is no command; add one, or `simulation: {{}}` to simulate the step"
                )
            });
            faults.require(step.threads > 0, || format!("steps.{}: threads must be at least 1", step.name));
            if let Some(reads) = &step.reads {
                faults.require(before.contains(reads.as_str()), || {
                    format!("steps.{}: reads `{reads}`, which is not an earlier step", step.name)
                });
            }
            faults.require(before.insert(step.name.as_str()), || {
                format!("steps: `{}` occurs twice", step.name)
            });
        }
    }

    fn check_outputs(&self, faults: &mut ManifestProblems) {
        faults.require(!self.outputs.is_empty(), || "outputs: the list is empty".to_owned());
        let mut places = BTreeSet::new();
        for output in &self.outputs {
            let of = |what: &str| format!("outputs.{}.{what}", output.tier);
            faults.check_name(&of("tier"), check_name(&output.tier));
            faults.check_name(&of("extension"), check_name(&output.extension));
            faults.check_name(&of("dataset"), check_lfn(&output.dataset));
            faults.check_name(&of("unmerged_base"), check_lfn(&output.unmerged_base));
            faults.check_name(&of("merged_base"), check_lfn(&output.merged_base));
            faults.require(self.steps.iter().any(|step| step.name == output.step), || {
                format!("{}: unknown step `{}`", of("step"), output.step)
            });
            let unmerged = (&output.unmerged_base, &output.tier);
            faults.require(places.insert(unmerged), || format!("{}: has the same path", of("unmerged_base")));
        }
        let merged: BTreeSet<_> = self.outputs.iter().map(|output| &output.merged_base).collect();
        faults.require(merged.len() == self.outputs.len(), || {
            "outputs: two outputs have the same merged_base and would write the same files".to_owned()
        });
    }

    fn check_nodes(&self, faults: &mut ManifestProblems) {
        let mut seen = BTreeSet::new();
        for node in &self.nodes {
            let of = format!("nodes.{}", node.index);
            faults.require(seen.insert(node.index), || format!("{of}: occurs twice"));
            faults.require(node.inputs.is_empty() != node.generate.is_none(), || {
                format!("{of}: requires either inputs or events to generate")
            });
            if let Some(made) = node.generate {
                faults.require(made.first_event <= made.last_event, || {
                    format!("{of}: first_event {} is after last_event {}", made.first_event, made.last_event)
                });
                faults.require(made.events_per_lumi != Some(0), || {
                    format!("{of}: events_per_lumi must be at least 1")
                });
            }
            for input in &node.inputs {
                faults.check_name(&format!("{of}.inputs"), check_lfn(&input.lfn));
                faults.require(input.events.is_none_or(|e| 1 <= e.first && e.first <= e.last), || {
                    format!("{of}.inputs: the event range of {} is empty or begins at 0", input.lfn)
                });
                faults.require(input.replicas.values().all(|path| is_site_path(path)), || {
                    format!("{of}.inputs: a replica of {} is not an absolute path", input.lfn)
                });
            }
        }
    }
}

fn is_site_path(text: &str) -> bool {
    text.starts_with('/') && !text.contains(['\0', '\n'])
}

#[derive(Default)]
struct ManifestProblems(Vec<String>);

impl ManifestProblems {
    fn check_name(&mut self, what: &str, checked: Result<(), PathNameError>) {
        if let Err(error) = checked {
            self.0.push(format!("{what}: {error}"));
        }
    }

    fn require(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.0.push(fault());
        }
    }
}

#[cfg(test)]
mod tests;

//! The manifest of a work unit: everything its jobs need to know, in one file.

use super::{PathNameError, check_lfn, check_name};
use crate::LumiMask;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkUnitManifest {
    pub request: String,
    /// Makes the names of this run's files unlike those of every other run of the request: goes into all of them.
    pub tag: String,
    /// `mg_000012`
    pub unit: String,
    pub number: u32,
    pub steps: Vec<ManifestStep>,
    pub nodes: Vec<ProcessingNode>,
    pub outputs: Vec<WorkUnitOutput>,
    #[serde(default)]
    pub merge: MergeSettings,
    pub sites: BTreeMap<String, ManifestSite>,
    /// What random numbers begin with; each node and step derives its own.
    #[serde(default)]
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestSite {
    /// LFN → path: this, then the LFN.
    pub storage_path: String,
}

/// One program of the chain that every node runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestStep {
    pub name: String,
    /// Any shell command. Absent: the built-in simulation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default = "one")]
    pub threads: u32,
    /// The step whose output it reads. Absent: the one before it; for the first, the inputs of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<String>,
    /// Any shell command that makes one output of several. With it, instances of the step can run side by side, each with
    /// some of the events; without it only those of the simulation can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<String>,
    /// How the simulation behaves, if there is no command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation: Option<StepSimulation>,
}

impl ManifestStep {
    /// What several instances of it write can be made one.
    pub const fn can_split(&self) -> bool {
        self.command.is_none() || self.join.is_some()
    }
}

const fn one() -> u32 {
    1
}

/// How the stand-in for a real program behaves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepSimulation {
    /// GEN, DIGI, RECO, MINI or NANO. Absent: the one that the step's name begins with, else DIGI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// How many times faster and smaller than the profile says. Absent: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// The share of events that is kept. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter_efficiency: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<SimulatedFailure>,
}

/// A failure on demand. It happens where all its conditions hold; an absent condition always does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedFailure {
    pub kind: SimulatedFailureKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Only up to this attempt, counted from 1: later ones succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_attempt: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SimulatedFailureKind {
    /// Ends with this code. Above 255 it is in the job report, as that of a real program is.
    Exit(i32),
    /// Ends itself with this signal.
    Signal(i32),
    /// Takes memory until somebody ends it, but never more than this many MiB; then it says that it has none left.
    Memory(u64),
    /// Does nothing for ever.
    Hang,
    /// Cannot read its first input (8021).
    BadInput,
    /// Ends with 0 and leaves no output.
    NoOutput,
    /// Ends with 0 and leaves an output without events.
    NoEvents,
}

/// What one processing job does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessingNode {
    /// Within the unit, from 0; its report is `proc_<index>.json`.
    pub index: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<ManifestInput>,
    /// Which events it makes, if it has no inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate: Option<EventGeneration>,
    #[serde(default)]
    pub expected_events: u64,
    #[serde(default)]
    pub estimates: NodeEstimates,
    /// It tries out how its steps do side by side. Stands over the manifest and over what was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<StepParallelism>,
}

/// How a step is run in several instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepParallelism {
    pub instances: u32,
    /// Of each.
    pub threads: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestInput {
    pub lfn: String,
    /// In bytes, as the catalog has it. Absent: it is not known, and not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// As the catalog has it, in hexadecimal digits. Absent: it is not known, and not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adler32: Option<String>,
    /// Site → path there. A site that is not named has it at its storage path, if it has it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replicas: BTreeMap<String, String>,
    /// Absent: all events of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<EventWindow>,
    /// Absent: all its luminosity sections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lumis: Option<LumiMask>,
}

/// Events of one file by their position in it, from 1, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventWindow {
    pub first: u64,
    pub last: u64,
}

/// Events that are made from nothing. Numbers are unique in the whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventGeneration {
    pub first_event: u64,
    pub last_event: u64,
    #[serde(default = "one_u64")]
    pub run: u64,
    #[serde(default = "one_u64")]
    pub first_lumi: u64,
    /// Absent: all events of the node are in one section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_per_lumi: Option<u64>,
}

const fn one_u64() -> u64 {
    1
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeEstimates {
    pub memory_mb: u64,
    pub time_sec: u64,
    pub disk_kb: u64,
}

/// What is kept of a step. A step without one is intermediate: its file goes with the scratch directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkUnitOutput {
    pub dataset: String,
    pub tier: String,
    pub step: String,
    /// `/store/unmerged/…`: below it the unit makes a directory of its own.
    pub unmerged_base: String,
    /// `/store/…`: here the merged files go.
    pub merged_base: String,
    /// Of the files, without a dot. Absent: `txt`.
    #[serde(default = "txt")]
    pub extension: String,
    /// A file without events is no failure: there is a filter, or a mask that may leave nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_be_empty: bool,
}

fn txt() -> String {
    "txt".to_owned()
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MergeSettings {
    /// Any shell command. Absent: the files are put one after another, in the order of their nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A merged file is closed before it gets larger. Absent: one file for each dataset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

impl WorkUnitManifest {
    pub fn node(&self, index: u32) -> Option<&ProcessingNode> {
        self.nodes.iter().find(|node| node.index == index)
    }

    pub fn outputs_of<'a>(&'a self, step: &'a str) -> impl Iterator<Item = &'a WorkUnitOutput> {
        self.outputs.iter().filter(move |output| output.step == step)
    }

    /// The directory that holds the unmerged files of this unit, and of no other.
    pub fn unmerged_directory(&self, output: &WorkUnitOutput) -> String {
        format!("{}/{}-{}", output.unmerged_base, self.tag, self.unit)
    }

    pub fn unmerged_lfn(&self, output: &WorkUnitOutput, node: u32) -> String {
        let directory = self.unmerged_directory(output);
        format!("{directory}/{}_{node}.{}", output.tier, output.extension)
    }

    /// Parts are numbered from 0.
    pub fn merged_lfn(&self, output: &WorkUnitOutput, part: usize) -> String {
        let WorkUnitOutput { merged_base, extension, .. } = output;
        format!("{merged_base}/{}-{}-{part}.{extension}", self.tag, self.unit)
    }

    /// Everything that is wrong with it.
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
        faults.require(!self.steps.is_empty(), || "steps: there are none".to_owned());
        let mut before = BTreeSet::new();
        for step in &self.steps {
            faults.check_name("steps", check_name(&step.name));
            faults.require(step.threads > 0, || format!("steps.{}: threads must be at least 1", step.name));
            if let Some(reads) = &step.reads {
                faults.require(before.contains(reads.as_str()), || {
                    format!("steps.{}: reads `{reads}`, which is no step before it", step.name)
                });
            }
            faults.require(before.insert(step.name.as_str()), || {
                format!("steps: `{}` is there twice", step.name)
            });
        }
    }

    fn check_outputs(&self, faults: &mut ManifestProblems) {
        faults.require(!self.outputs.is_empty(), || "outputs: there are none".to_owned());
        let mut places = BTreeSet::new();
        for output in &self.outputs {
            let of = |what: &str| format!("outputs.{}.{what}", output.tier);
            faults.check_name(&of("tier"), check_name(&output.tier));
            faults.check_name(&of("extension"), check_name(&output.extension));
            faults.check_name(&of("dataset"), check_lfn(&output.dataset));
            faults.check_name(&of("unmerged_base"), check_lfn(&output.unmerged_base));
            faults.check_name(&of("merged_base"), check_lfn(&output.merged_base));
            faults.require(self.steps.iter().any(|step| step.name == output.step), || {
                format!("{}: there is no step `{}`", of("step"), output.step)
            });
            let unmerged = (&output.unmerged_base, &output.tier);
            faults
                .require(places.insert(unmerged), || format!("{}: has that place too", of("unmerged_base")));
        }
        let merged: BTreeSet<_> = self.outputs.iter().map(|output| &output.merged_base).collect();
        faults.require(merged.len() == self.outputs.len(), || {
            "outputs: two have the same merged_base, and would write the same files".to_owned()
        });
    }

    fn check_nodes(&self, faults: &mut ManifestProblems) {
        let mut seen = BTreeSet::new();
        for node in &self.nodes {
            let of = format!("nodes.{}", node.index);
            faults.require(seen.insert(node.index), || format!("{of}: is there twice"));
            faults.require(node.inputs.is_empty() != node.generate.is_none(), || {
                format!("{of}: it needs either inputs or events to generate")
            });
            if let Some(made) = node.generate {
                faults.require(made.first_event <= made.last_event, || {
                    format!("{of}: first_event {} is after last_event {}", made.first_event, made.last_event)
                });
                faults.require(made.events_per_lumi != Some(0), || format!("{of}: events_per_lumi is 0"));
            }
            for input in &node.inputs {
                faults.check_name(&format!("{of}.inputs"), check_lfn(&input.lfn));
                faults.require(input.events.is_none_or(|e| 1 <= e.first && e.first <= e.last), || {
                    format!("{of}.inputs: the window of events of {} is empty or begins at 0", input.lfn)
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

//! Writes a plan: a manifest for each work unit, in the directory of the run, and the outline of all of them.

mod payload_config;

use crate::backend::JobSize;
use crate::planned_run_units::{PlannedRunUnits, PlannedUnitJobs, make_empty_directory, manifest_path};
use crate::{derived_names, planned_run_units};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use windlass_core::round_plan::{PlanJob, PlanJobInput, PlanUnit, RoundPlan};
use windlass_types::LumiMask;
use windlass_types::payload::{
    EventGeneration, EventWindow, ManifestInput, ManifestSite, ManifestStep, MergeSettings,
    ProcessingEstimates, ProcessingJob, WorkUnitManifest, WorkUnitOutput,
};
use windlass_types::requests::Request;

pub use payload_config::{PayloadConfigError, find_faults as payload_faults, read_steps as payload_steps};

/// What all manifests of a run have in common.
#[derive(Debug)]
pub(crate) struct ManifestTemplate {
    request: String,
    tag: String,
    run: String,
    /// Values of the request.
    multicore: u32,
    steps: Vec<ManifestStep>,
    outputs: Vec<WorkUnitOutput>,
    merge: MergeSettings,
    sites: BTreeMap<String, ManifestSite>,
}

impl ManifestTemplate {
    /// `storage` has the storage paths of the sites.
    pub(crate) fn new(
        request: &Request,
        run: &str,
        storage: &BTreeMap<String, String>,
    ) -> Result<Self, PayloadConfigError> {
        let steps = payload_config::read_steps(request)?;
        let outputs = payload_config::read_outputs(request, &steps)?;
        let site =
            |(name, path): (&String, &String)| (name.clone(), ManifestSite { storage_path: path.clone() });
        Ok(Self {
            request: request.request_name.clone(),
            // Unique, and short enough for a file name.
            tag: run.chars().filter(|c| *c != '-').take(16).collect(),
            run: run.to_owned(),
            multicore: request.multicore,
            steps,
            outputs,
            merge: payload_config::read_merge(request)?,
            sites: storage.iter().map(site).collect(),
        })
    }

    /// Where a job has fewer cores than requested, no step has more threads than that (W-11).
    fn steps_with(&self, cores: u32) -> Vec<ManifestStep> {
        let most = if cores < self.multicore { cores } else { u32::MAX };
        self.steps
            .iter()
            .map(|step| ManifestStep { threads: step.threads.min(most), ..step.clone() })
            .collect()
    }

    fn build_manifest(&self, plan: &RoundPlan, unit: &PlanUnit<'_>) -> WorkUnitManifest {
        let sites = unit.sites().filter_map(|name| Some((name.to_owned(), self.sites.get(name)?.clone())));
        WorkUnitManifest {
            request: self.request.clone(),
            tag: self.tag.clone(),
            unit: unit.name().to_string(),
            number: unit.number(),
            steps: self.steps_with(plan.resources.cores),
            nodes: unit.nodes().map(|node| manifest_node(plan, &node)).collect(),
            outputs: self.outputs.clone(),
            merge: self.merge.clone(),
            sites: sites.collect(),
            seed: derived_names::random_seed(&self.run, unit.number()),
        }
    }
}

fn manifest_node(plan: &RoundPlan, node: &PlanJob<'_>) -> ProcessingJob {
    ProcessingJob {
        index: node.index(),
        inputs: node.inputs().map(|input| manifest_input(&input)).collect(),
        generate: node.generated().map(|made| EventGeneration {
            first_event: made.first_event,
            last_event: made.last_event,
            run: 1,
            first_lumi: u64::from(made.first_lumi),
            events_per_lumi: plan.events_per_lumi,
        }),
        expected_events: node.output_events(),
        estimates: ProcessingEstimates {
            memory_mb: node.memory_mb(),
            time_sec: node.time_sec(),
            disk_kb: node.disk_kb(),
        },
        probe: node.probe().map(|probes| probes.way),
    }
}

fn manifest_input(input: &PlanJobInput<'_>) -> ManifestInput {
    let replica = |(site, path): (&str, &str)| (site.to_owned(), path.to_owned());
    let file = input.file();
    ManifestInput {
        lfn: file.lfn.clone(),
        // Catalogs that do not know the size of a file report 0.
        size: Some(file.size).filter(|size| *size > 0),
        adler32: file.adler32.as_deref().map(str::to_owned),
        // A site without an explicit path has the file at its storage path.
        replicas: input.replicas().filter(|(_, path)| !path.is_empty()).map(replica).collect(),
        events: input.event_window().map(|(first, last)| EventWindow { first, last }),
        lumis: input.lumi_ranges().map(|ranges| {
            let mut mask = LumiMask::default();
            for range in ranges {
                mask.insert_range(range.run.into(), (range.first.into(), range.last.into()));
            }
            mask
        }),
    }
}

/// The plan in the form for the backend.
pub(crate) fn build_outline(plan: &RoundPlan) -> PlannedRunUnits {
    let mut outline = PlannedRunUnits::default();
    for unit in plan.units() {
        let mut sites: Vec<String> = unit.sites().map(str::to_owned).collect();
        sites.sort_unstable();
        let mut row = PlannedUnitJobs { sites: outline.intern_site_set(&sites), nodes: Vec::new() };
        for node in unit.nodes() {
            let size = JobSize::from_estimate(plan.resources.cores, node.memory_mb(), node.time_sec());
            row.push(outline.intern_size(size));
            outline.disk_kb = outline.disk_kb.max(node.disk_kb());
        }
        outline.units.push(row);
    }
    outline
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestWriteError {
    #[error("cannot write {path}: {source}")]
    Io { path: String, source: io::Error },
    /// An internal error or an invalid request: nothing of it is submitted.
    #[error("the manifest of {unit} is invalid: {faults}")]
    InvalidManifest { unit: String, faults: String },
}

/// Writes the manifests of a run into its directory. It is complete once [`seal`] has written the outline.
pub(crate) fn write_manifests(
    directory: &Path,
    plan: &RoundPlan,
    common: &ManifestTemplate,
) -> Result<PlannedRunUnits, ManifestWriteError> {
    let wrong = |path: &Path, source| ManifestWriteError::Io { path: path.display().to_string(), source };
    make_empty_directory(directory).map_err(|source| wrong(directory, source))?;
    let mut text = Vec::new();
    for unit in plan.units() {
        let manifest = common.build_manifest(plan, &unit);
        // All are made alike; checking the first one checks what they have in common.
        let faults = if unit.number() == 0 { manifest.find_problems() } else { Vec::new() };
        if !faults.is_empty() {
            return Err(ManifestWriteError::InvalidManifest {
                unit: manifest.unit,
                faults: faults.join("; "),
            });
        }
        text.clear();
        let path = manifest_path(directory, unit.number());
        let written = serde_json::to_writer(&mut text, &manifest).map_err(io::Error::from);
        written.and_then(|()| fs::write(&path, &text)).map_err(|source| wrong(&path, source))?;
    }
    if let Some(profile) = &plan.profile {
        let path = directory.join("step_profile.json");
        let text = serde_json::to_vec_pretty(profile).map_err(io::Error::from);
        text.and_then(|text| fs::write(&path, text)).map_err(|source| wrong(&path, source))?;
    }
    Ok(build_outline(plan))
}

/// Marks the directory of a run as complete: its outline is written last, and is on disk when this returns.
pub(crate) fn write_outline(directory: &Path, outline: &PlannedRunUnits) -> Result<(), ManifestWriteError> {
    let path = directory.join(planned_run_units::OUTLINE_FILE);
    outline
        .write(directory)
        .map_err(|source| ManifestWriteError::Io { path: path.display().to_string(), source })
}

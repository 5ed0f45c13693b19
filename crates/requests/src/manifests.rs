//! A plan on paper: a manifest for each work unit, in the directory of the run, and the outline of all of them.

mod layout;

use crate::backend::JobSize;
use crate::outline::{Outline, UnitOutline, make_empty, manifest_path};
use crate::{names, outline};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use windlass_core::plan::{InputView, NodeView, Plan, UnitView};
use windlass_types::LumiMask;
use windlass_types::payload::{
    Estimates, EventWindow, Generation, Input, Merge, Node, Output, Site, Step, UnitManifest,
};
use windlass_types::requests::Request;

pub use layout::{LayoutFault, faults as payload_faults, steps as payload_steps};

/// What all manifests of a run have in common.
#[derive(Debug)]
pub(crate) struct Common {
    request: String,
    tag: String,
    run: String,
    /// What the request says.
    multicore: u32,
    steps: Vec<Step>,
    outputs: Vec<Output>,
    merge: Merge,
    sites: BTreeMap<String, Site>,
}

impl Common {
    /// `storage` says where sites keep their files.
    pub(crate) fn new(
        request: &Request,
        run: &str,
        storage: &BTreeMap<String, String>,
    ) -> Result<Self, LayoutFault> {
        let steps = layout::steps(request)?;
        let outputs = layout::outputs(request, &steps)?;
        let site = |(name, path): (&String, &String)| (name.clone(), Site { storage_path: path.clone() });
        Ok(Self {
            request: request.request_name.clone(),
            // Enough of it to be unlike all others, and short enough for a name of a file.
            tag: run.chars().filter(|c| *c != '-').take(16).collect(),
            run: run.to_owned(),
            multicore: request.multicore,
            steps,
            outputs,
            merge: layout::merge(request)?,
            sites: storage.iter().map(site).collect(),
        })
    }

    /// Where a job has fewer cores than the request says, no step has more threads than that (W-11).
    fn steps_with(&self, cores: u32) -> Vec<Step> {
        let most = if cores < self.multicore { cores } else { u32::MAX };
        self.steps.iter().map(|step| Step { threads: step.threads.min(most), ..step.clone() }).collect()
    }

    fn manifest(&self, plan: &Plan, unit: &UnitView<'_>) -> UnitManifest {
        let sites = unit.sites().filter_map(|name| Some((name.to_owned(), self.sites.get(name)?.clone())));
        UnitManifest {
            request: self.request.clone(),
            tag: self.tag.clone(),
            unit: unit.name().to_string(),
            number: unit.number(),
            steps: self.steps_with(plan.resources.cores),
            nodes: unit.nodes().map(|node| one_node(plan, &node)).collect(),
            outputs: self.outputs.clone(),
            merge: self.merge.clone(),
            sites: sites.collect(),
            seed: names::seed(&self.run, unit.number()),
        }
    }
}

fn one_node(plan: &Plan, node: &NodeView<'_>) -> Node {
    Node {
        index: node.index(),
        inputs: node.inputs().map(|input| one_input(&input)).collect(),
        generate: node.generated().map(|made| Generation {
            first_event: made.first_event,
            last_event: made.last_event,
            run: 1,
            first_lumi: u64::from(made.first_lumi),
            events_per_lumi: plan.events_per_lumi,
        }),
        expected_events: node.output_events(),
        estimates: Estimates {
            memory_mb: node.memory_mb(),
            time_sec: node.time_sec(),
            disk_kb: node.disk_kb(),
        },
        probe: node.probe().map(|probes| probes.way),
    }
}

fn one_input(input: &InputView<'_>) -> Input {
    let replica = |(site, path): (&str, &str)| (site.to_owned(), path.to_owned());
    let file = input.file();
    Input {
        lfn: file.lfn.clone(),
        // Catalogs that do not know the size of a file say 0.
        size: Some(file.size).filter(|size| *size > 0),
        adler32: file.adler32.as_deref().map(str::to_owned),
        // A site that is not named has it at its storage path.
        replicas: input.replicas().filter(|(_, path)| !path.is_empty()).map(replica).collect(),
        events: input.window().map(|(first, last)| EventWindow { first, last }),
        lumis: input.lumis().map(|ranges| {
            let mut mask = LumiMask::default();
            for range in ranges {
                mask.insert_range(range.run.into(), (range.first.into(), range.last.into()));
            }
            mask
        }),
    }
}

/// The plan, as the backend sees it.
pub(crate) fn outline_of(plan: &Plan) -> Outline {
    let mut outline = Outline::default();
    for unit in plan.units() {
        let mut sites: Vec<String> = unit.sites().map(str::to_owned).collect();
        sites.sort_unstable();
        let mut row = UnitOutline { sites: outline.site_set(&sites), nodes: Vec::new() };
        for node in unit.nodes() {
            let size = JobSize::of_estimate(plan.resources.cores, node.memory_mb(), node.time_sec());
            row.push(outline.size(size));
            outline.disk_kb = outline.disk_kb.max(node.disk_kb());
        }
        outline.units.push(row);
    }
    outline
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("cannot write {path}: {source}")]
    Io { path: String, source: io::Error },
    /// A mistake of ours or of what the request is made of: nothing of it is submitted.
    #[error("the manifest of {unit} makes no sense: {faults}")]
    Faulty { unit: String, faults: String },
}

/// Writes the manifests of a run into its directory. It is whole once [`seal`] has put the outline there.
pub(crate) fn write(directory: &Path, plan: &Plan, common: &Common) -> Result<Outline, WriteError> {
    let wrong = |path: &Path, source| WriteError::Io { path: path.display().to_string(), source };
    make_empty(directory).map_err(|source| wrong(directory, source))?;
    let mut text = Vec::new();
    for unit in plan.units() {
        let manifest = common.manifest(plan, &unit);
        // All are made alike; checking the first one checks what they have in common.
        let faults = if unit.number() == 0 { manifest.faults() } else { Vec::new() };
        if !faults.is_empty() {
            return Err(WriteError::Faulty { unit: manifest.unit, faults: faults.join("; ") });
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
    Ok(outline_of(plan))
}

/// Says that the directory of a run is whole: its outline comes last, and is on disk when this returns.
pub(crate) fn seal(directory: &Path, outline: &Outline) -> Result<(), WriteError> {
    let path = directory.join(outline::FILE);
    outline.write(directory).map_err(|source| WriteError::Io { path: path.display().to_string(), source })
}

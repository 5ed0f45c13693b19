//! The work of one node: its steps one after another in a scratch directory, stage-out of the outputs to the
//! storage of the site, and the report.

mod event_counts;
mod event_shares;
mod scratch;
mod step_environment;
mod step_instances;
mod step_metrics;
mod step_outcome;

use crate::exit_codes;
use crate::failure::PayloadFailure;
use crate::files::{DraftFile, write_json};
use crate::step_process::StepControl;
use crate::workspace::{InputCheck, UnitWorkspace, UnusableInput};
pub use step_environment::StepInput;

use event_counts::EventCount;
use event_shares::EventShare;
use scratch::ScratchDirectory;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use step_instances::StepContext;
use windlass_types::payload::{
    ManifestStep, ProcessingJob, ProcessingReport, ProducedFile, StepMetrics, StepParallelism, StepProfile,
    StepTuning, WorkUnitOutput,
};

/// Options for running a node.
#[derive(Clone, Copy, Debug)]
pub struct ProcessingOptions<'a> {
    pub node: u32,
    /// Counted from 1.
    pub attempt: u32,
    /// The parent of the scratch directory.
    pub work_dir: &'a Path,
    /// The `windlass` binary with the built-in simulation.
    pub program: &'a Path,
    /// Keep the scratch directory for inspection.
    pub keep_scratch: bool,
}

/// Runs a node. The report is on disk when this returns, also after a failure.
pub fn run_node(
    place: &UnitWorkspace,
    options: &ProcessingOptions<'_>,
    control: &StepControl,
) -> Result<ProcessingReport, PayloadFailure> {
    let node = place.node(options.node)?;
    let report_path = place.report_path(node.index);
    let mut report = ProcessingReport {
        unit: place.manifest.unit.clone(),
        node: node.index,
        site: place.site.clone(),
        attempt: options.attempt,
        inputs: node.inputs.iter().map(|input| input.lfn.clone()).collect(),
        ..ProcessingReport::default()
    };
    let worked = run_steps(place, node, options, control, &mut report);
    if let Err(failure) = &worked {
        report.outputs.clear();
        report.failure = Some(failure.to_report());
        report.bad_inputs.clone_from(&failure.bad_inputs);
    }
    let written = write_json(&report_path, &report).map_err(|error| {
        PayloadFailure::from_io(exit_codes::STORAGE, "write the report", &report_path, &error)
    });
    // The first failure counts.
    worked.and(written).map(|()| report)
}

fn run_steps(
    place: &UnitWorkspace,
    node: &ProcessingJob,
    options: &ProcessingOptions<'_>,
    control: &StepControl,
    report: &mut ProcessingReport,
) -> Result<(), PayloadFailure> {
    let inputs = find_inputs(place, node)?;
    let profile = place.step_profile().map_err(|error| {
        PayloadFailure::new(exit_codes::CONFIGURATION, format!("cannot read step_profile.json: {error}"))
    })?;
    let scratch = ScratchDirectory::create(options.work_dir, place, node.index, options.keep_scratch)?;
    let context = StepContext { workspace: place, node, options, control };
    let mut chain = StepChain { context, profile, step_outputs: BTreeMap::new(), last: None };
    let mut kept = Vec::new();
    for (index, step) in place.manifest.steps.iter().enumerate() {
        let directory = scratch.step_directory(index, &step.name)?;
        let (metrics, result) = chain.run_step(step, &inputs, &directory);
        report.steps.push(metrics);
        kept.extend(result.map_err(|failure| PayloadFailure { step: Some(step.name.clone()), ..failure })?);
    }
    for file in kept {
        report.outputs.push(stage_out(place, node, file)?);
    }
    Ok(())
}

/// The paths of a node's inputs. Each is compared with the catalog before a step reads it.
fn find_inputs(place: &UnitWorkspace, node: &ProcessingJob) -> Result<Vec<StepInput>, PayloadFailure> {
    let (mut found, mut bad) = (Vec::new(), Vec::new());
    let (mut missing, mut changed, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for input in &node.inputs {
        let lfn = || input.lfn.clone();
        match place.find_input_path(input, InputCheck::Checksum) {
            Ok(path) => {
                let lumis = input.lumis.clone();
                found.push(StepInput { path, lfn: lfn(), events: input.events, lumis });
                continue;
            }
            Err(UnusableInput::Missing) => missing.push(lfn()),
            Err(UnusableInput::Changed(why)) => changed.push(why),
            Err(UnusableInput::Unreadable(why)) => unreadable.push(why),
        }
        bad.push(lfn());
    }
    if bad.is_empty() {
        return Ok(found);
    }
    let site = &place.site;
    let (code, message) = if !missing.is_empty() {
        (exit_codes::FILE_OPEN, format!("inputs cannot be opened at {site}: {}", missing.join(", ")))
    } else if !changed.is_empty() {
        (exit_codes::FILE_READ, format!("inputs were changed at {site}: {}", changed.join("; ")))
    } else {
        (exit_codes::FILE_READ, format!("inputs cannot be read at {site}: {}", unreadable.join("; ")))
    };
    bad.dedup();
    Err(PayloadFailure::new(code, message).with_bad_inputs(bad))
}

/// An output of a step that is kept.
struct KeptFile<'a> {
    output: &'a WorkUnitOutput,
    path: PathBuf,
    counted: EventCount,
}

/// Runs the steps of a node, each with the outputs of the previous ones.
struct StepChain<'a> {
    context: StepContext<'a>,
    profile: Option<StepProfile>,
    /// The output that each step passes on, with its number of events.
    step_outputs: BTreeMap<&'a str, (PathBuf, u64)>,
    last: Option<&'a str>,
}

impl<'a> StepChain<'a> {
    fn run_step(
        &mut self,
        step: &'a ManifestStep,
        inputs: &[StepInput],
        directory: &Path,
    ) -> (StepMetrics, Result<Vec<KeptFile<'a>>, PayloadFailure>) {
        let whole = self.step_share(step, inputs);
        let way = choose_parallelism(self.context.node, step, self.profile.as_ref());
        let (metrics, made) = step_instances::run_step(&self.context, step, way, &whole, directory);
        let made = match made {
            Ok(made) => made,
            Err(failure) => return (metrics, Err(failure)),
        };
        if let Some((path, counted)) = made.first() {
            self.step_outputs.insert(&step.name, (path.clone(), counted.events));
            self.last = Some(&step.name);
        }
        let outputs =
            self.context.workspace.manifest.outputs.iter().filter(|output| output.step == step.name);
        let kept = outputs.zip(made).map(|(output, (path, counted))| KeptFile { output, path, counted });
        (metrics, Ok(kept.collect()))
    }

    /// The inputs or the events to generate, and the expected number of events.
    fn step_share(&self, step: &'a ManifestStep, inputs: &[StepInput]) -> EventShare {
        let before = step.reads.as_deref().or(self.last);
        if let Some((path, events)) = before.and_then(|name| self.step_outputs.get(name)) {
            let inputs = vec![StepInput::whole_file(path.clone())];
            return EventShare { inputs, generate: None, expected: *events };
        }
        let node = self.context.node;
        let made = |made: windlass_types::payload::EventGeneration| made.last_event - made.first_event + 1;
        EventShare {
            inputs: inputs.to_vec(),
            generate: node.generate.filter(|_| inputs.is_empty()),
            expected: node.generate.map_or(node.expected_events, made),
        }
    }
}

/// The settings of a step: those of a probe override those of earlier rounds, which override the manifest.
pub(crate) fn choose_parallelism(
    node: &ProcessingJob,
    step: &ManifestStep,
    profile: Option<&StepProfile>,
) -> StepParallelism {
    let tuning = profile.and_then(|profile| profile.steps.get(&step.name)).copied().unwrap_or_default();
    let threads = tuning.run_threads.filter(|threads| *threads > 0).unwrap_or(step.threads);
    let (instances, threads) = match node.probe {
        // A step that cannot run in several instances is tried as one with as few threads: that is the purpose
        // of the probe.
        Some(probe) if !step.can_split() => (1, probe.threads.min(step.threads)),
        Some(probe) => (probe.instances, probe.threads.min(step.threads)),
        None => (tuning.instances.unwrap_or(1), threads),
    };
    let all = threads.saturating_mul(instances.max(1));
    let most = if step.can_split() { max_instances_in_memory(node, &tuning) } else { 1 };
    let instances = instances.clamp(1, most);
    StepParallelism { instances, threads: all / instances }
}

/// Limited by the memory.
fn max_instances_in_memory(node: &ProcessingJob, tuning: &StepTuning) -> u32 {
    match tuning.instance_mb.filter(|each| *each > 0.0) {
        Some(each) if node.estimates.memory_mb > 0 => {
            (node.estimates.memory_mb as f64 / each).clamp(1.0, f64::from(u32::MAX)) as u32
        }
        _ => u32::MAX,
    }
}

/// Copies a file to the storage of the site, completely or not at all.
fn stage_out(
    place: &UnitWorkspace,
    node: &ProcessingJob,
    file: KeptFile<'_>,
) -> Result<ProducedFile, PayloadFailure> {
    let KeptFile { output, path, counted } = file;
    let lfn = place.manifest.unmerged_lfn(output, node.index);
    let target = place.path_of(&lfn);
    let copy = || {
        let mut draft = DraftFile::new(&target)?;
        draft.copy_from(&path)?;
        draft.publish()
    };
    let sum =
        copy().map_err(|error| PayloadFailure::from_io(exit_codes::STAGE_OUT, "write", &target, &error))?;
    Ok(ProducedFile {
        lfn,
        dataset: output.dataset.clone(),
        tier: output.tier.clone(),
        step: output.step.clone(),
        size: sum.size,
        adler32: sum.adler32(),
        events: counted.events,
        events_from: counted.source,
        lumis: counted.lumis,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(join: Option<&str>) -> ManifestStep {
        let step = json!({"name": "RECO", "command": "true", "threads": 8, "join": join});
        serde_json::from_value(step).unwrap()
    }

    fn node(probe: Option<StepParallelism>) -> ProcessingJob {
        let node = json!({"index": 0, "expected_events": 1, "inputs": [], "probe": probe});
        serde_json::from_value(node).unwrap()
    }

    /// A probe with the usual settings shows nothing new.
    #[test]
    fn probe_changes_threads_of_splittable_and_unsplittable_steps() {
        let probe = Some(StepParallelism { instances: 2, threads: 4 });
        // join, probe → instances, threads
        for (join, probe, expected) in [
            (Some("true"), probe, (2, 4)),
            (None, probe, (1, 4)),
            (Some("true"), None, (1, 8)),
            (None, None, (1, 8)),
        ] {
            let found = choose_parallelism(&node(probe), &step(join), None);
            assert_eq!((found.instances, found.threads), expected, "{join:?} {probe:?}");
        }
    }
}

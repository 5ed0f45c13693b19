//! The work of one node: its steps one after another in a scratch directory, what they made into the storage of the
//! site, and a report at the end of it.

mod environment;
mod judge;
mod scratch;

use crate::codes;
use crate::events;
use crate::failure::Failure;
use crate::files::{Draft, write_json};
use crate::place::Place;
use crate::report::{self, JobReport};
use crate::step::{self, CgroupPeak, Control, Ended};
pub use environment::StepInput;

use environment::StepFiles;
use scratch::Scratch;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use windlass_types::Bytes;
use windlass_types::LumiMask;
use windlass_types::payload::{
    EventsFrom, Node, NodeReport, Output, ProducedFile, Step, StepMetrics, StepProfile,
};

/// How a node is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    pub node: u32,
    /// Counted from 1.
    pub attempt: u32,
    /// The scratch directory is made in here.
    pub work_dir: &'a Path,
    /// The `windlass` that is the built-in simulation.
    pub program: &'a Path,
    /// Leave the scratch directory, for somebody who wants to look.
    pub keep: bool,
}

/// Runs a node. The report is on disk when this returns, also if it failed.
pub fn run(place: &Place, options: &Options<'_>, control: &Control) -> Result<NodeReport, Failure> {
    let node = place.node(options.node)?;
    let report_path = place.report_path(node.index);
    let mut report = NodeReport {
        unit: place.manifest.unit.clone(),
        node: node.index,
        site: place.site.clone(),
        attempt: options.attempt,
        inputs: node.inputs.iter().map(|input| input.lfn.clone()).collect(),
        ..NodeReport::default()
    };
    let worked = work(place, node, options, control, &mut report);
    if let Err(failure) = &worked {
        report.outputs.clear();
        report.failure = Some(failure.to_report());
        report.bad_inputs.clone_from(&failure.bad_inputs);
    }
    let written = write_json(&report_path, &report)
        .map_err(|error| Failure::io(codes::STORAGE, "write the report", &report_path, &error));
    // What failed first is what matters.
    worked.and(written).map(|()| report)
}

fn work(
    place: &Place,
    node: &Node,
    options: &Options<'_>,
    control: &Control,
    report: &mut NodeReport,
) -> Result<(), Failure> {
    let inputs = find_inputs(place, node)?;
    let profile = place.step_profile().map_err(|error| {
        Failure::new(codes::CONFIGURATION, format!("cannot read step_profile.json: {error}"))
    })?;
    let scratch = Scratch::create(options.work_dir, place, node.index, options.keep)?;
    let mut chain = Chain { place, node, options, control, profile, made: BTreeMap::new(), last: None };
    let mut kept = Vec::new();
    for (index, step) in place.manifest.steps.iter().enumerate() {
        let directory = scratch.step(index, &step.name)?;
        let (metrics, result) = chain.step(step, &inputs, &directory);
        report.steps.push(metrics);
        kept.extend(result.map_err(|failure| Failure { step: Some(step.name.clone()), ..failure })?);
    }
    for file in kept {
        report.outputs.push(stage_out(place, node, file)?);
    }
    Ok(())
}

/// Where the inputs of a node are read from.
fn find_inputs(place: &Place, node: &Node) -> Result<Vec<StepInput>, Failure> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for input in &node.inputs {
        match place.find_input(input) {
            Some(path) => found.push(StepInput {
                path,
                lfn: input.lfn.clone(),
                events: input.events,
                lumis: input.lumis.clone(),
            }),
            None => missing.push(input.lfn.clone()),
        }
    }
    if missing.is_empty() {
        return Ok(found);
    }
    let said = format!("inputs cannot be opened at {}: {}", place.site, missing.join(", "));
    Err(Failure::new(codes::FILE_OPEN, said).with_bad_inputs(missing))
}

/// A file of a step that is to be kept.
struct Kept<'a> {
    output: &'a Output,
    path: PathBuf,
    counted: Counted,
}

/// How many events a file has, and who says so.
#[derive(Clone, Debug)]
struct Counted {
    events: u64,
    from: EventsFrom,
    lumis: LumiMask,
}

/// The steps of a node, each with what the ones before it made.
struct Chain<'a> {
    place: &'a Place,
    node: &'a Node,
    options: &'a Options<'a>,
    control: &'a Control,
    profile: Option<StepProfile>,
    /// What each step hands on, with its events.
    made: BTreeMap<&'a str, (PathBuf, u64)>,
    last: Option<&'a str>,
}

impl<'a> Chain<'a> {
    fn step(
        &mut self,
        step: &'a Step,
        inputs: &[StepInput],
        directory: &Path,
    ) -> (StepMetrics, Result<Vec<Kept<'a>>, Failure>) {
        let threads = self.threads(step);
        let mut metrics = StepMetrics { step: step.name.clone(), threads, ..StepMetrics::default() };
        let (inputs, expected) = self.inputs_of(step, inputs);
        let files = StepFiles::new(&self.place.manifest, step, directory);
        let cgroup = CgroupPeak::now();
        let started = environment::write_lists(&files, &inputs).and_then(|()| {
            step::run(self.control, &mut self.command(step, threads, &inputs, &files, expected))
        });
        let ended = match started {
            Ok(ended) => ended,
            Err(error) => {
                let said = format!("cannot be started: {error}");
                return (metrics, Err(Failure::new(codes::EXCEPTION, said)));
            }
        };
        let report = report::read(&files.report).ok().flatten();
        let failure = judge::verdict(&ended, report.as_ref(), self.control, &inputs);
        let counted = match failure {
            Some(failure) => Err(failure),
            None => self.count(step, &files, report.as_ref(), expected),
        };
        let written =
            counted.as_ref().ok().and_then(|files| files.first()).map(|(_, counted)| counted.events);
        measure(
            &mut metrics,
            &ended,
            report.as_ref(),
            &Flow {
                inputs: &inputs,
                files: &files,
                expected,
                written,
                cgroup: cgroup.and_then(|peak| peak.risen()),
            },
        );
        let counted = match counted {
            Ok(counted) => counted,
            Err(failure) => return (metrics, Err(failure)),
        };
        if let Some((path, counted)) = counted.first() {
            self.made.insert(&step.name, (path.clone(), counted.events));
            self.last = Some(&step.name);
        }
        let outputs = self.place.manifest.outputs.iter().filter(|output| output.step == step.name);
        let kept =
            outputs.zip(counted).map(|(output, (path, counted))| Kept { output, path, counted }).collect();
        (metrics, Ok(kept))
    }

    /// What earlier rounds found out stands over the manifest.
    fn threads(&self, step: &Step) -> u32 {
        let tuned = self.profile.as_ref().and_then(|profile| profile.steps.get(&step.name)?.run_threads);
        tuned.filter(|threads| *threads > 0).unwrap_or(step.threads)
    }

    /// What it reads, and how many events that should be.
    fn inputs_of(&self, step: &'a Step, inputs: &[StepInput]) -> (Vec<StepInput>, u64) {
        let before = step.reads.as_deref().or(self.last);
        match before.and_then(|name| self.made.get(name)) {
            Some((path, events)) => (vec![StepInput::whole(path.clone())], *events),
            None => (inputs.to_vec(), self.expected()),
        }
    }

    fn expected(&self) -> u64 {
        let made = |made: windlass_types::payload::Generation| made.last_event - made.first_event + 1;
        self.node.generate.map_or(self.node.expected_events, made)
    }

    fn command(
        &self,
        step: &Step,
        threads: u32,
        inputs: &[StepInput],
        files: &StepFiles,
        expected: u64,
    ) -> Command {
        let (program, arguments) = match &step.command {
            Some(text) => (Path::new("/bin/sh"), ["-c", text]),
            None => (self.options.program, ["payload", "simulate"]),
        };
        let mut command = Command::new(program);
        command.args(arguments);
        let told = environment::Told {
            place: self.place,
            node: self.node,
            step,
            threads,
            attempt: self.options.attempt,
            expected,
            generates: self.last.is_none() && inputs.is_empty(),
        };
        environment::clear(&mut command);
        command.envs(told.variables(inputs, files)).current_dir(&files.directory).stdin(Stdio::null());
        command
    }

    /// Every file that the step was to write, with its events.
    fn count(
        &self,
        step: &Step,
        files: &StepFiles,
        report: Option<&JobReport>,
        expected: u64,
    ) -> Result<Vec<(PathBuf, Counted)>, Failure> {
        let may_be_empty = |index: usize| {
            let mut outputs = self.place.manifest.outputs_of(&step.name);
            outputs.nth(index).is_none_or(|output| output.may_be_empty)
        };
        let mut counted = Vec::new();
        for (index, path) in files.outputs.iter().enumerate() {
            let found = count(path, report, expected)?;
            if found.events == 0 && found.from != EventsFrom::Expected && !may_be_empty(index) {
                let said = format!("{} has no events; it read {expected}", name_of(path));
                return Err(Failure::new(codes::NO_EVENTS, said));
            }
            counted.push((path.clone(), found));
        }
        Ok(counted)
    }
}

/// The report knows best. Event files we can count ourselves; for all others what was expected is what there is.
fn count(path: &Path, report: Option<&JobReport>, expected: u64) -> Result<Counted, Failure> {
    let missing = |error: &std::io::Error| {
        if error.kind() == std::io::ErrorKind::NotFound {
            Failure::new(codes::NO_OUTPUT, format!("it ended well and left no output {}", name_of(path)))
        } else {
            Failure::io(codes::NO_OUTPUT, "read its output", path, error)
        }
    };
    let contents = events::contents_of(path).map_err(|error| missing(&error))?;
    let told = report.and_then(|report| report.output(path));
    Ok(match (told.and_then(|told| Some((told.events?, told))), contents) {
        (Some((events, told)), contents) => Counted {
            events,
            from: EventsFrom::Report,
            lumis: if told.lumis.is_empty() {
                contents.unwrap_or_default().lumis
            } else {
                told.lumis.clone()
            },
        },
        (None, Some(contents)) => {
            Counted { events: contents.events, from: EventsFrom::File, lumis: contents.lumis }
        }
        (None, None) => Counted { events: expected, from: EventsFrom::Expected, lumis: LumiMask::default() },
    })
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What went into a step and came out of it.
struct Flow<'a> {
    inputs: &'a [StepInput],
    files: &'a StepFiles,
    expected: u64,
    written: Option<u64>,
    /// The most that the cgroup of the job held.
    cgroup: Option<Bytes>,
}

const MB: f64 = 1024.0 * 1024.0;

fn measure(metrics: &mut StepMetrics, ended: &Ended, report: Option<&JobReport>, flow: &Flow<'_>) {
    let told = |summary: &str, name: &str| report.and_then(|report| report.metric(summary, name));
    let read_events = report.filter(|report| !report.inputs.is_empty()).map(JobReport::events_read);
    metrics.wall_sec = ended.wall.as_secs_f64();
    metrics.cpu_sec = ended.cpu.as_secs_f64();
    let budget = metrics.wall_sec * f64::from(metrics.threads);
    metrics.cpu_efficiency = if budget > 0.0 { metrics.cpu_sec / budget } else { 0.0 };
    let peak = ended.peak_rss.0 as f64 / MB;
    metrics.peak_rss_mb = told("ApplicationMemory", "PeakValueRss").map_or(peak, |told| told.max(peak));
    metrics.peak_vsize_mb = told("ApplicationMemory", "PeakValueVsize");
    metrics.cgroup_memory_mb = flow.cgroup.map(|peak| peak.0 as f64 / MB);
    metrics.events_read = read_events.unwrap_or(flow.expected);
    metrics.events_written = flow.written.unwrap_or(0);
    metrics.time_per_event_sec =
        if metrics.events_read > 0 { metrics.wall_sec / metrics.events_read as f64 } else { 0.0 };
    let sizes = |paths: &mut dyn Iterator<Item = &PathBuf>| {
        paths.filter_map(|path| Some(path.metadata().ok()?.len() as f64 / MB)).sum::<f64>()
    };
    metrics.read_mb = report
        .and_then(JobReport::read_mb)
        .unwrap_or_else(|| sizes(&mut flow.inputs.iter().map(|input| &input.path)));
    metrics.write_mb =
        report.and_then(JobReport::write_mb).unwrap_or_else(|| sizes(&mut flow.files.outputs.iter()));
    let code = report.and_then(|report| report.error()).map(|error| error.status);
    metrics.exit_code = code.unwrap_or(ended.exit.return_code());
    metrics.signal = match ended.exit {
        windlass_types::work::Exit::Signal(signal) => Some(signal),
        windlass_types::work::Exit::Code(_) => None,
    };
}

/// Brings a file to the storage of the site, whole or not at all.
fn stage_out(place: &Place, node: &Node, file: Kept<'_>) -> Result<ProducedFile, Failure> {
    let Kept { output, path, counted } = file;
    let lfn = place.manifest.unmerged_lfn(output, node.index);
    let target = place.path_of(&lfn);
    let copy = || {
        let mut draft = Draft::new(&target)?;
        draft.copy_from(&path)?;
        draft.publish()
    };
    let sum = copy().map_err(|error| Failure::io(codes::STAGE_OUT, "write", &target, &error))?;
    Ok(ProducedFile {
        lfn,
        dataset: output.dataset.clone(),
        tier: output.tier.clone(),
        step: output.step.clone(),
        size: sum.size,
        adler32: sum.adler32(),
        events: counted.events,
        events_from: counted.from,
        lumis: counted.lumis,
    })
}

//! Runs a step as one process, or as several instances side by side, each with a share of its events. The result,
//! the events and the metrics are those of one step.

use super::event_counts::{EventCount, file_name};
use super::event_shares::{self, EventShare};
use super::step_environment::{self, StepEnvironment, StepFiles};
use super::{ProcessingOptions, step_metrics, step_outcome};
use crate::event_files;
use crate::exit_codes;
use crate::failure::PayloadFailure;
use crate::files::DraftFile;
use crate::report::{self, JobReport};
use crate::step_process::{self, CgroupMonitor, EndedProcess, ParallelRunResult, StepControl};
use crate::workspace::UnitWorkspace;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use windlass_process::shell;
use windlass_types::payload::{EventCountSource, ManifestStep, ProcessingJob, StepMetrics, StepParallelism};
use windlass_types::worker_messages::ProcessExit;

/// The parameters that all steps of a node share.
#[derive(Clone, Copy)]
pub(super) struct StepContext<'a> {
    pub(super) workspace: &'a UnitWorkspace,
    pub(super) node: &'a ProcessingJob,
    pub(super) options: &'a ProcessingOptions<'a>,
    pub(super) control: &'a StepControl,
}

/// The outputs of a step, with their numbers of events.
pub(super) type StepOutputs = Vec<(PathBuf, EventCount)>;

/// Runs a step. Its usage is reported also after a failure.
pub(super) fn run_step(
    context: &StepContext<'_>,
    step: &ManifestStep,
    way: StepParallelism,
    whole: &EventShare,
    directory: &Path,
) -> (StepMetrics, Result<StepOutputs, PayloadFailure>) {
    let mut instances = StepInstances::new(context, step, way, whole, directory);
    let mut metrics = StepMetrics {
        step: step.name.clone(),
        threads: instances.threads,
        instances: instances.instances.len() as u32,
        can_split: step.can_split(),
        ..StepMetrics::default()
    };
    let cgroup = CgroupMonitor::start();
    let together = match instances.run_all() {
        Ok(together) => together,
        Err(error) => {
            let message = format!("cannot be started: {error}");
            return (metrics, Err(PayloadFailure::new(exit_codes::EXCEPTION, message)));
        }
    };
    instances.read_reports();
    let (blamed, counted) = instances.step_result(&together);
    let written = counted.as_ref().ok().and_then(|files| files.first()).map(|(_, counted)| counted.events);
    let used = step_metrics::StepUsageInput {
        ended: &together.ended,
        deciding_instance: blamed,
        events_written: written,
        cgroup_peak: cgroup.and_then(CgroupMonitor::stop),
    };
    step_metrics::fill_metrics(&mut metrics, &instances.instances, &used);
    (metrics, counted)
}

/// One process of a step.
pub(super) struct StepInstance {
    pub(super) share: EventShare,
    pub(super) files: StepFiles,
    pub(super) report: Option<JobReport>,
}

struct StepInstances<'a> {
    context: &'a StepContext<'a>,
    step: &'a ManifestStep,
    /// Per instance.
    threads: u32,
    /// The paths of the joined outputs.
    files: StepFiles,
    instances: Vec<StepInstance>,
}

impl<'a> StepInstances<'a> {
    fn new(
        context: &'a StepContext<'a>,
        step: &'a ManifestStep,
        way: StepParallelism,
        whole: &EventShare,
        directory: &Path,
    ) -> Self {
        let count =
            |path: &Path| event_files::read_contents(path).ok().flatten().map(|contents| contents.events);
        let shares = event_shares::split_work(whole, way.instances.max(1), count);
        // Threads that little work leaves idle go to the remaining instances.
        let threads = way.threads * way.instances.max(1) / shares.len() as u32;
        let files = |directory: &Path| StepFiles::new(&context.workspace.manifest, step, directory);
        let is_alone = shares.len() == 1;
        let instance = |(index, share): (usize, EventShare)| StepInstance {
            share,
            files: if is_alone { files(directory) } else { files(&directory.join(index.to_string())) },
            report: None,
        };
        Self {
            context,
            step,
            threads: threads.max(1),
            files: files(directory),
            instances: shares.into_iter().enumerate().map(instance).collect(),
        }
    }

    fn run_all(&self) -> io::Result<ParallelRunResult> {
        let mut commands = Vec::with_capacity(self.instances.len());
        for (index, instance) in self.instances.iter().enumerate() {
            fs::create_dir_all(&instance.files.directory)?;
            step_environment::write_lists(&instance.files, &instance.share.inputs)?;
            commands.push(self.command(index, instance));
        }
        match &mut commands[..] {
            [alone] => {
                let ended = step_process::run_process(self.context.control, alone)?;
                let failed = (ended.exit != ProcessExit::Code(0)).then_some(0);
                Ok(ParallelRunResult { ended: vec![ended], failed })
            }
            several => step_process::run_in_parallel(self.context.control, several),
        }
    }

    fn command(&self, index: usize, instance: &StepInstance) -> Command {
        let mut command = if let Some(text) = &self.step.command {
            shell::shell_command(text)
        } else {
            let mut command = Command::new(self.context.options.program);
            command.args(["payload", "simulate"]);
            command
        };
        let environment = StepEnvironment {
            workspace: self.context.workspace,
            node: self.context.node,
            step: self.step,
            threads: self.threads,
            attempt: self.context.options.attempt,
            instance: (index, self.instances.len()),
        };
        step_environment::clear_variables(&mut command);
        command.envs(environment.variables(&instance.share, &instance.files));
        command.current_dir(&instance.files.directory).stdin(Stdio::null());
        command
    }

    fn read_reports(&mut self) {
        for instance in &mut self.instances {
            instance.report = report::read_report(&instance.files.report).ok().flatten();
        }
    }

    /// The outputs, or the first failure with its instance.
    fn step_result(&self, together: &ParallelRunResult) -> (usize, Result<StepOutputs, PayloadFailure>) {
        let describe_failure = |(index, ended): (usize, &EndedProcess)| {
            let StepInstance { share, report, .. } = &self.instances[index];
            let failure =
                step_outcome::find_failure(ended, report.as_ref(), self.context.control, &share.inputs)?;
            Some((index, failure))
        };
        // Instances that were ended because of another one have not failed themselves.
        let first = together.failed.map(|index| (index, &together.ended[index]));
        let failed = first
            .and_then(describe_failure)
            .or_else(|| together.ended.iter().enumerate().find_map(describe_failure));
        match failed {
            Some((index, failure)) => (index, Err(failure)),
            None => (0, self.outputs()),
        }
    }

    /// Every output of the step, joined, with its number of events.
    fn outputs(&self) -> Result<StepOutputs, PayloadFailure> {
        let expected: u64 = self.instances.iter().map(|instance| instance.share.expected).sum();
        let mut wanted = self.context.workspace.manifest.outputs_of(&self.step.name);
        let mut outputs = Vec::new();
        for (index, path) in self.files.outputs.iter().enumerate() {
            let counted = self.count_events(index)?;
            // An output that only the next step reads is not registered: it may be empty, and of any format.
            let output = wanted.next();
            if output.is_some() && counted.source == EventCountSource::Expected {
                return Err(uncounted_error(path));
            }
            if counted.events == 0 && output.is_some_and(|output| !output.may_be_empty) {
                let message = format!("{} has no events; it read {expected}", file_name(path));
                return Err(PayloadFailure::new(exit_codes::NO_EVENTS, message));
            }
            if self.instances.len() > 1 {
                self.join_outputs(index, path, &counted)?;
            }
            outputs.push((path.clone(), counted));
        }
        Ok(outputs)
    }

    /// The number of events of one output, over all instances.
    fn count_events(&self, output: usize) -> Result<EventCount, PayloadFailure> {
        let mut all: Option<EventCount> = None;
        for StepInstance { share, files, report } in &self.instances {
            let one = EventCount::from_file(&files.outputs[output], report.as_ref(), share.expected)?;
            all = Some(match all {
                Some(before) => before.combine(&one),
                None => one,
            });
        }
        all.ok_or_else(|| PayloadFailure::new(exit_codes::NO_OUTPUT, "no instance of it ran"))
    }

    /// Joins the files of the instances, in their order.
    fn join_outputs(&self, output: usize, target: &Path, counted: &EventCount) -> Result<(), PayloadFailure> {
        let parts: Vec<&PathBuf> =
            self.instances.iter().map(|instance| &instance.files.outputs[output]).collect();
        match &self.step.join {
            None => concatenate(&parts, target),
            Some(command) => self.join_by_command(command, &parts, target),
        }?;
        let found = event_files::read_contents(target).map_err(|error| {
            PayloadFailure::from_io(exit_codes::NO_OUTPUT, "read what was joined in", target, &error)
        })?;
        match found {
            Some(found) if counted.source != EventCountSource::Expected && found.events != counted.events => {
                let message = format!(
                    "{} was joined from parts with {} events and has {}",
                    file_name(target),
                    counted.events,
                    found.events
                );
                Err(PayloadFailure::new(exit_codes::MERGE_INPUT, message))
            }
            _ => Ok(()),
        }
    }

    fn join_by_command(&self, text: &str, parts: &[&PathBuf], target: &Path) -> Result<(), PayloadFailure> {
        let list = self.files.directory.join("parts.txt");
        let lines = parts.iter().fold(String::new(), |text, path| text + &path.to_string_lossy() + "\n");
        fs::write(&list, lines)
            .map_err(|error| PayloadFailure::from_io(exit_codes::STORAGE, "write", &list, &error))?;
        let mut command = shell::shell_command(text);
        command.env("WINDLASS_INPUTS", &list).env("WINDLASS_OUTPUT", target);
        command.env("WINDLASS_STEP", &self.step.name).current_dir(&self.files.directory).stdin(Stdio::null());
        match step_process::run_process(self.context.control, &mut command).map(|ended| ended.exit) {
            Ok(ProcessExit::Code(0)) => Ok(()),
            Ok(exit) => {
                let code = exit.return_code();
                Err(PayloadFailure::new(code, format!("the join command failed with exit code {code}")))
            }
            Err(error) => Err(PayloadFailure::new(
                exit_codes::EXCEPTION,
                format!("what joins its outputs cannot be started: {error}"),
            )),
        }
    }
}

/// The registered number of events is that of the output, not the planned one.
fn uncounted_error(path: &Path) -> PayloadFailure {
    let message = format!(
        "the events of {} cannot be counted: it is not an event file, and there is no job report ($WINDLASS_JOB_REPORT) \
         that says how many it has",
        file_name(path)
    );
    PayloadFailure::new(exit_codes::CONFIGURATION, message)
}

fn concatenate(parts: &[&PathBuf], target: &Path) -> Result<(), PayloadFailure> {
    let copy = || {
        let mut draft = DraftFile::new(target)?;
        for part in parts {
            draft.copy_from(part)?;
            // It would exist twice otherwise, and scratch space is scarce.
            fs::remove_file(part)?;
        }
        draft.publish().map(drop)
    };
    copy().map_err(|error| PayloadFailure::from_io(exit_codes::STORAGE, "join outputs in", target, &error))
}

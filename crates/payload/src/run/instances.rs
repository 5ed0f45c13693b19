//! A step, run: as one process, or as several side by side that each have a share of its events. Judged, counted and
//! measured as one.

use super::counted::{Counted, name_of};
use super::environment::{self, StepFiles, Told};
use super::shares::{self, Share};
use super::{Options, judge, measure};
use crate::codes;
use crate::events;
use crate::failure::Failure;
use crate::files::Draft;
use crate::place::Place;
use crate::report::{self, JobReport};
use crate::step::{self, CgroupWatch, Control, Ended, Together};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use windlass_proc::shell;
use windlass_types::payload::{EventsFrom, Node, SideBySide, Step, StepMetrics};
use windlass_types::work::Exit;

/// What steps of a node have in common.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub(super) place: &'a Place,
    pub(super) node: &'a Node,
    pub(super) options: &'a Options<'a>,
    pub(super) control: &'a Control,
}

/// The outputs of a step, with their events.
pub(super) type Outputs = Vec<(PathBuf, Counted)>;

/// Runs a step. What it used is told also if it failed.
pub(super) fn run(
    ground: &Ground<'_>,
    step: &Step,
    way: SideBySide,
    whole: &Share,
    directory: &Path,
) -> (StepMetrics, Result<Outputs, Failure>) {
    let mut instances = Instances::new(ground, step, way, whole, directory);
    let mut metrics = StepMetrics {
        step: step.name.clone(),
        threads: instances.threads,
        instances: instances.all.len() as u32,
        can_split: step.can_split(),
        ..StepMetrics::default()
    };
    let cgroup = CgroupWatch::begin();
    let together = match instances.start() {
        Ok(together) => together,
        Err(error) => {
            let said = format!("cannot be started: {error}");
            return (metrics, Err(Failure::new(codes::EXCEPTION, said)));
        }
    };
    instances.read_reports();
    let (blamed, counted) = instances.outcome(&together);
    let written = counted.as_ref().ok().and_then(|files| files.first()).map(|(_, counted)| counted.events);
    let used =
        measure::Used { ended: &together.ended, blamed, written, cgroup: cgroup.and_then(CgroupWatch::end) };
    measure::measure(&mut metrics, &instances.all, &used);
    (metrics, counted)
}

/// One process of a step.
pub(super) struct Instance {
    pub(super) share: Share,
    pub(super) files: StepFiles,
    pub(super) report: Option<JobReport>,
}

struct Instances<'a> {
    ground: &'a Ground<'a>,
    step: &'a Step,
    /// Of each.
    threads: u32,
    /// Where the outputs of all of them together go.
    files: StepFiles,
    all: Vec<Instance>,
}

impl<'a> Instances<'a> {
    fn new(ground: &'a Ground<'a>, step: &'a Step, way: SideBySide, whole: &Share, directory: &Path) -> Self {
        let count = |path: &Path| events::contents_of(path).ok().flatten().map(|contents| contents.events);
        let shares = shares::cut(whole, way.instances.max(1), count);
        // What too little work leaves idle goes to those that have some.
        let threads = way.threads * way.instances.max(1) / shares.len() as u32;
        let files = |directory: &Path| StepFiles::new(&ground.place.manifest, step, directory);
        let is_alone = shares.len() == 1;
        let instance = |(index, share): (usize, Share)| Instance {
            share,
            files: if is_alone { files(directory) } else { files(&directory.join(index.to_string())) },
            report: None,
        };
        Self {
            ground,
            step,
            threads: threads.max(1),
            files: files(directory),
            all: shares.into_iter().enumerate().map(instance).collect(),
        }
    }

    fn start(&self) -> io::Result<Together> {
        let mut commands = Vec::with_capacity(self.all.len());
        for (index, instance) in self.all.iter().enumerate() {
            fs::create_dir_all(&instance.files.directory)?;
            environment::write_lists(&instance.files, &instance.share.inputs)?;
            commands.push(self.command(index, instance));
        }
        match &mut commands[..] {
            [alone] => {
                let ended = step::run(self.ground.control, alone)?;
                let failed = (ended.exit != Exit::Code(0)).then_some(0);
                Ok(Together { ended: vec![ended], failed })
            }
            several => step::run_together(self.ground.control, several),
        }
    }

    fn command(&self, index: usize, instance: &Instance) -> Command {
        let mut command = if let Some(text) = &self.step.command {
            shell::command(text)
        } else {
            let mut command = Command::new(self.ground.options.program);
            command.args(["payload", "simulate"]);
            command
        };
        let told = Told {
            place: self.ground.place,
            node: self.ground.node,
            step: self.step,
            threads: self.threads,
            attempt: self.ground.options.attempt,
            instance: (index, self.all.len()),
        };
        environment::clear(&mut command);
        command.envs(told.variables(&instance.share, &instance.files));
        command.current_dir(&instance.files.directory).stdin(Stdio::null());
        command
    }

    fn read_reports(&mut self) {
        for instance in &mut self.all {
            instance.report = report::read(&instance.files.report).ok().flatten();
        }
    }

    /// What was made, or what went wrong first and with which of them.
    fn outcome(&self, together: &Together) -> (usize, Result<Outputs, Failure>) {
        let verdict = |(index, ended): (usize, &Ended)| {
            let Instance { share, report, .. } = &self.all[index];
            let failure = judge::verdict(ended, report.as_ref(), self.ground.control, &share.inputs)?;
            Some((index, failure))
        };
        // Those that were ended because of another are not to blame.
        let first = together.failed.map(|index| (index, &together.ended[index]));
        let failed = first.and_then(verdict).or_else(|| together.ended.iter().enumerate().find_map(verdict));
        match failed {
            Some((index, failure)) => (index, Err(failure)),
            None => (0, self.outputs()),
        }
    }

    /// Every file that the step was to write, as one, with its events.
    fn outputs(&self) -> Result<Outputs, Failure> {
        let expected: u64 = self.all.iter().map(|instance| instance.share.expected).sum();
        let mut wanted = self.ground.place.manifest.outputs_of(&self.step.name);
        let mut outputs = Vec::new();
        for (index, path) in self.files.outputs.iter().enumerate() {
            let counted = self.count(index)?;
            // What only the next step reads is not registered: it may be empty, and of any form.
            let output = wanted.next();
            if output.is_some() && counted.from == EventsFrom::Expected {
                return Err(uncounted(path));
            }
            if counted.events == 0 && output.is_some_and(|output| !output.may_be_empty) {
                let said = format!("{} has no events; it read {expected}", name_of(path));
                return Err(Failure::new(codes::NO_EVENTS, said));
            }
            if self.all.len() > 1 {
                self.join(index, path, &counted)?;
            }
            outputs.push((path.clone(), counted));
        }
        Ok(outputs)
    }

    /// The events of one output, of all instances together.
    fn count(&self, output: usize) -> Result<Counted, Failure> {
        let mut all: Option<Counted> = None;
        for Instance { share, files, report } in &self.all {
            let one = Counted::of(&files.outputs[output], report.as_ref(), share.expected)?;
            all = Some(match all {
                Some(before) => before.and(&one),
                None => one,
            });
        }
        all.ok_or_else(|| Failure::new(codes::NO_OUTPUT, "nothing of it ran"))
    }

    /// One file out of those of the instances, in their order.
    fn join(&self, output: usize, target: &Path, counted: &Counted) -> Result<(), Failure> {
        let parts: Vec<&PathBuf> = self.all.iter().map(|instance| &instance.files.outputs[output]).collect();
        match &self.step.join {
            None => concatenate(&parts, target),
            Some(command) => self.join_by(command, &parts, target),
        }?;
        let found = events::contents_of(target)
            .map_err(|error| Failure::io(codes::NO_OUTPUT, "read what was joined in", target, &error))?;
        match found {
            Some(found) if counted.from != EventsFrom::Expected && found.events != counted.events => {
                let said = format!(
                    "{} was joined of parts with {} events and has {}",
                    name_of(target),
                    counted.events,
                    found.events
                );
                Err(Failure::new(codes::MERGE_INPUT, said))
            }
            _ => Ok(()),
        }
    }

    fn join_by(&self, text: &str, parts: &[&PathBuf], target: &Path) -> Result<(), Failure> {
        let list = self.files.directory.join("parts.txt");
        let lines = parts.iter().fold(String::new(), |text, path| text + &path.to_string_lossy() + "\n");
        fs::write(&list, lines).map_err(|error| Failure::io(codes::STORAGE, "write", &list, &error))?;
        let mut command = shell::command(text);
        command.env("WINDLASS_INPUTS", &list).env("WINDLASS_OUTPUT", target);
        command.env("WINDLASS_STEP", &self.step.name).current_dir(&self.files.directory).stdin(Stdio::null());
        match step::run(self.ground.control, &mut command).map(|ended| ended.exit) {
            Ok(Exit::Code(0)) => Ok(()),
            Ok(exit) => {
                let code = exit.return_code();
                Err(Failure::new(code, format!("what joins its outputs ended with exit code {code}")))
            }
            Err(error) => Err(Failure::new(
                codes::EXCEPTION,
                format!("what joins its outputs cannot be started: {error}"),
            )),
        }
    }
}

/// Whatever was planned: how many events are registered follows from what was written.
fn uncounted(path: &Path) -> Failure {
    let said = format!(
        "the events of {} cannot be counted: it is not an event file, and there is no job report ($WINDLASS_JOB_REPORT) \
         that says how many it has",
        name_of(path)
    );
    Failure::new(codes::CONFIGURATION, said)
}

fn concatenate(parts: &[&PathBuf], target: &Path) -> Result<(), Failure> {
    let copy = || {
        let mut draft = Draft::new(target)?;
        for part in parts {
            draft.copy_from(part)?;
            // It is here twice otherwise, and scratch space is what jobs run out of.
            fs::remove_file(part)?;
        }
        draft.publish().map(drop)
    };
    copy().map_err(|error| Failure::io(codes::STORAGE, "join outputs in", target, &error))
}

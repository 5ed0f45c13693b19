//! A workflow spec as one DAG: a node for each job.
//!
//! A job runs where its workflow was created, or, where workers do not see that directory, with its input files sent and
//! its output files fetched, each at its own relative path. What it runs is a script of its own.

mod dag;
mod fit;
mod nodes;
mod script;
mod submit;

use super::outer::CONFIG;
use super::quote::{self, Unfit};
use super::{Credentials, RenderError, write};
use crate::layout;
use crate::terms::{self, Care, Terms};
use dag::Dag;
use nodes::Kinds;
use script::Script;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path};
use windlass_spec::{Job, Workflow};

/// A workflow on its way to HTCondor.
#[derive(Clone, Copy, Debug)]
pub struct SpecRun<'a> {
    pub workflow: &'a Workflow<'a>,
    /// Of the text of the spec.
    pub digest: &'a str,
    /// Where its files go; made if it is not there.
    pub directory: &'a Path,
    /// Where its relative paths begin.
    pub submission_dir: &'a Path,
    /// The UUID of the run.
    pub run: &'a str,
    /// The `windlass` of this machine, absolute.
    pub program: &'a Path,
    pub transfer: Transfer,
    pub accounting: &'a BTreeMap<String, String>,
    pub credentials: Credentials<'a>,
}

/// Whether files are sent to workers and fetched from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transfer {
    /// Where HTCondor knows that they do not see this file system.
    #[default]
    IfNeeded,
    Always,
}

/// Writes all that HTCondor has to know of a workflow. The DAG comes last: where it is, all is.
pub fn render_spec(run: &SpecRun<'_>) -> Result<(), RenderError> {
    let faults = spec_faults(run.workflow);
    if !faults.is_empty() {
        return Err(RenderError::NoDag(faults));
    }
    let names = nodes::names(run.workflow.jobs().map(|job| job.name));
    let mut dag = Dag::new(run, &names)?;
    let submit = submit::submit_file(run)?;
    // What can be refused has been: from here on files are made.
    let scripts = run.directory.join(layout::SCRIPTS);
    fs::create_dir_all(&scripts).map_err(|source| RenderError::Io { path: scripts.clone(), source })?;
    for ((number, job), name) in (0..).zip(run.workflow.jobs()).zip(&names) {
        let said = |error| RenderError::Unfit { what: format!("job `{}`", job.name), source: error };
        let files = Files::of(run.workflow, &job).map_err(RenderError::NoDag)?;
        let script = script(run.workflow, &job, &files).map_err(said)?;
        write_script(&scripts.join(format!("{name}.sh")), &script)?;
        dag.node(number, &job, &files).map_err(said)?;
    }
    let (text, kinds) = dag.finish();
    terms(run, kinds).write(run.directory)?;
    write_names(run, &names)?;
    let put = |name: &str, text: &str| write(&run.directory.join(name), text);
    put(layout::CONFIG, CONFIG)?;
    put(layout::JOB_SUBMIT, &submit)?;
    put(layout::OUTER_DAG, &text)
}

/// What the spec says that DAGMan cannot do, or that cannot be said to it, with the remedies.
pub fn spec_faults(workflow: &Workflow<'_>) -> Vec<String> {
    let mut faults = fit::faults(workflow);
    faults.extend(workflow.jobs().flat_map(|job| unwritable(workflow, &job)));
    faults
}

/// What of a job cannot be written for HTCondor.
fn unwritable(workflow: &Workflow<'_>, job: &Job<'_>) -> Vec<String> {
    let files = match Files::of(workflow, job) {
        Ok(files) => files,
        Err(faults) => return faults,
    };
    let texts = [script(workflow, job, &files), dag::vars_of(workflow, job, &files)];
    let faults = texts.into_iter().filter_map(Result::err);
    faults.map(|fault| format!("job `{}`: {fault}", job.name)).collect()
}

fn script(workflow: &Workflow<'_>, job: &Job<'_>, files: &Files) -> Result<String, Unfit> {
    let resources = nodes::asked(workflow, job);
    Script { job, workflow, resources, outputs: &files.written }.text()
}

/// Only its owner reads it, from the first moment on: variables may hold secrets.
fn write_script(path: &Path, text: &str) -> Result<(), RenderError> {
    let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(path);
    let written = made.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| RenderError::Io { path: path.to_owned(), source })
}

fn write_names(run: &SpecRun<'_>, names: &[String]) -> Result<(), RenderError> {
    let jobs = run.workflow.jobs().zip(names);
    let other = jobs.filter(|(job, name)| job.name != **name);
    let names = other.map(|(job, name)| (name.clone(), job.name.to_owned())).collect();
    Ok(terms::write_names(run.directory, &names)?)
}

fn terms(run: &SpecRun<'_>, kinds: Kinds) -> Terms {
    let handlers = run.workflow.failure_handlers().iter();
    Terms {
        name: run.workflow.name().to_owned(),
        run: run.run.to_owned(),
        program: run.program.to_owned(),
        kinds: kinds.kinds,
        care: Care::default(),
        handlers: handlers.map(|handler| (handler.name.clone(), handler.clone())).collect(),
        digest: Some(run.digest.to_owned()),
        submission_dir: Some(run.submission_dir.to_owned()),
        accounting: run.accounting.clone(),
    }
}

/// The files of a job.
struct Files {
    /// As lists for HTCondor; only those whose paths are relative travel.
    sent: String,
    fetched: String,
    /// All that it must have written.
    written: Vec<String>,
}

impl Files {
    /// Or what is wrong with each of those that cannot be had.
    fn of(workflow: &Workflow<'_>, job: &Job<'_>) -> Result<Self, Vec<String>> {
        let paths = |numbers: &mut dyn Iterator<Item = &[u32]>| {
            let mut numbers: Vec<u32> = numbers.flatten().copied().collect();
            numbers.sort_unstable();
            numbers.dedup();
            let path = |number: u32| workflow.file(number as usize).path.into_owned();
            numbers.into_iter().map(path).collect::<Vec<_>>()
        };
        let (read, written) = (paths(&mut job.input_files()), paths(&mut job.output_files()));
        let mut faults = Vec::new();
        let (sent, fetched) = (list(job, &read, &mut faults), list(job, &written, &mut faults));
        if faults.is_empty() { Ok(Self { sent, fetched, written }) } else { Err(faults) }
    }
}

fn list(job: &Job<'_>, paths: &[String], faults: &mut Vec<String>) -> String {
    let mut list = String::new();
    for path in paths.iter().filter(|path| !Path::new(path).is_absolute()) {
        let leads_out = Path::new(path).components().any(|part| part == Component::ParentDir);
        match quote::transferred(path) {
            _ if leads_out => faults.push(format!(
                "file `{path}` of job `{}`: it is outside of the directory of the workflow",
                job.name
            )),
            Err(unfit) => faults.push(format!("job `{}`: {unfit}", job.name)),
            Ok(path) => {
                let comma = if list.is_empty() { "" } else { "," };
                write!(list, "{comma}{path}").ok();
            }
        }
    }
    list
}

//! Renders a workflow spec as one DAG, with a node for each job.
//!
//! A job runs in the directory where its workflow was created, or, if workers do not see that directory, with its
//! input files transferred to it and its output files transferred back, each at its own relative path. Each job
//! runs a script of its own.

mod dag_writer;
mod job_script;
mod node_groups;
mod submit_file;
mod unsupported_features;

use super::outer_dag::DAGMAN_CONFIG;
use super::quote::{self, UnquotableText};
use super::{DagRenderError, StorageCredentials, write_file};
use crate::file_layout;
use crate::script_settings::{self, RequestRetrySettings, ScriptSettings};
use dag_writer::WorkflowDagWriter;
use job_script::JobScript;
use node_groups::NodeGroups;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path};
use windlass_spec::{ResolvedJob, ResolvedWorkflow};

/// A run of a workflow spec that is to be submitted to HTCondor.
#[derive(Clone, Copy, Debug)]
pub struct WorkflowDagRun<'a> {
    pub workflow: &'a ResolvedWorkflow<'a>,
    /// The hash of the text of the spec.
    pub digest: &'a str,
    /// The directory of its files; created if missing.
    pub directory: &'a Path,
    /// The base of its relative paths.
    pub submission_dir: &'a Path,
    /// The UUID of the run.
    pub run: &'a str,
    /// The absolute path of `windlass` on this machine.
    pub program: &'a Path,
    pub transfer: FileTransfer,
    pub accounting: &'a BTreeMap<String, String>,
    pub credentials: StorageCredentials<'a>,
}

/// Whether files are transferred to workers and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileTransfer {
    /// Only to workers that do not share this file system, as far as HTCondor knows.
    #[default]
    IfNeeded,
    Always,
}

/// Writes all files of a workflow for HTCondor. The DAG is written last: if it exists, all files exist.
pub fn render_workflow(run: &WorkflowDagRun<'_>) -> Result<(), DagRenderError> {
    let faults = find_unsupported_features(run.workflow);
    if !faults.is_empty() {
        return Err(DagRenderError::NoDag(faults));
    }
    let names = node_groups::assign_node_names(run.workflow.jobs().map(|job| job.name));
    let mut dag = WorkflowDagWriter::new(run, &names)?;
    let submit = submit_file::render_submit_file(run)?;
    // All checks are done: from here on files are written.
    let scripts = run.directory.join(file_layout::SCRIPTS_DIRECTORY);
    fs::create_dir_all(&scripts).map_err(|source| DagRenderError::Io { path: scripts.clone(), source })?;
    for ((number, job), name) in (0..).zip(run.workflow.jobs()).zip(&names) {
        let message =
            |error| DagRenderError::Unquotable { what: format!("job `{}`", job.name), source: error };
        let files = JobFiles::from_job(run.workflow, &job).map_err(DagRenderError::NoDag)?;
        let script = render_job_script(run.workflow, &job, &files).map_err(message)?;
        write_script(&scripts.join(format!("{name}.sh")), &script)?;
        dag.write_node(number, &job, &files).map_err(message)?;
    }
    let (text, groups) = dag.finish();
    script_settings(run, groups).save(run.directory)?;
    write_names(run, &names)?;
    let put = |name: &str, text: &str| write_file(&run.directory.join(name), text);
    put(file_layout::DAGMAN_CONFIG_FILE, DAGMAN_CONFIG)?;
    put(file_layout::JOB_SUBMIT, &submit)?;
    put(file_layout::OUTER_DAG, &text)
}

/// Lists the features of the spec that DAGMan lacks or that cannot be written for it, with the remedies.
pub fn find_unsupported_features(workflow: &ResolvedWorkflow<'_>) -> Vec<String> {
    let mut faults = unsupported_features::find_unsupported(workflow);
    faults.extend(workflow.jobs().flat_map(|job| find_unquotable(workflow, &job)));
    faults
}

/// What in a job cannot be written for HTCondor.
fn find_unquotable(workflow: &ResolvedWorkflow<'_>, job: &ResolvedJob<'_>) -> Vec<String> {
    let files = match JobFiles::from_job(workflow, job) {
        Ok(files) => files,
        Err(faults) => return faults,
    };
    let texts = [render_job_script(workflow, job, &files), dag_writer::render_vars(workflow, job, &files)];
    let faults = texts.into_iter().filter_map(Result::err);
    faults.map(|fault| format!("job `{}`: {fault}", job.name)).collect()
}

fn render_job_script(
    workflow: &ResolvedWorkflow<'_>,
    job: &ResolvedJob<'_>,
    files: &JobFiles,
) -> Result<String, UnquotableText> {
    let resources = node_groups::requested_resources(workflow, job);
    JobScript { job, workflow, resources, outputs: &files.outputs }.render()
}

/// Readable by the owner only, from the moment of creation: variables may hold secrets.
fn write_script(path: &Path, text: &str) -> Result<(), DagRenderError> {
    let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o700).open(path);
    let written = made.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| DagRenderError::Io { path: path.to_owned(), source })
}

fn write_names(run: &WorkflowDagRun<'_>, names: &[String]) -> Result<(), DagRenderError> {
    let jobs = run.workflow.jobs().zip(names);
    let other = jobs.filter(|(job, name)| job.name != **name);
    let names = other.map(|(job, name)| (name.clone(), job.name.to_owned())).collect();
    Ok(script_settings::write_names(run.directory, &names)?)
}

fn script_settings(run: &WorkflowDagRun<'_>, groups: NodeGroups) -> ScriptSettings {
    let handlers = run.workflow.failure_handlers().iter();
    ScriptSettings {
        name: run.workflow.name().to_owned(),
        run: run.run.to_owned(),
        program: run.program.to_owned(),
        node_groups: groups.settings,
        retry_settings: RequestRetrySettings::default(),
        handlers: handlers.map(|handler| (handler.name.clone(), handler.clone())).collect(),
        digest: Some(run.digest.to_owned()),
        submission_dir: Some(run.submission_dir.to_owned()),
        accounting: run.accounting.clone(),
    }
}

/// The files of a job.
struct JobFiles {
    /// As lists for HTCondor; only files with relative paths are transferred.
    input_list: String,
    output_list: String,
    /// All outputs that the job must have written.
    outputs: Vec<String>,
}

impl JobFiles {
    /// Or an error for each file that cannot be transferred.
    fn from_job(workflow: &ResolvedWorkflow<'_>, job: &ResolvedJob<'_>) -> Result<Self, Vec<String>> {
        let paths = |numbers: &mut dyn Iterator<Item = &[u32]>| {
            let mut numbers: Vec<u32> = numbers.flatten().copied().collect();
            numbers.sort_unstable();
            numbers.dedup();
            let path = |number: u32| workflow.file(number as usize).path.into_owned();
            numbers.into_iter().map(path).collect::<Vec<_>>()
        };
        let (read, written) = (paths(&mut job.input_files()), paths(&mut job.output_files()));
        let mut faults = Vec::new();
        let (sent, fetched) = (join_paths(job, &read, &mut faults), join_paths(job, &written, &mut faults));
        if faults.is_empty() {
            Ok(Self { input_list: sent, output_list: fetched, outputs: written })
        } else {
            Err(faults)
        }
    }
}

fn join_paths(job: &ResolvedJob<'_>, paths: &[String], faults: &mut Vec<String>) -> String {
    let mut list = String::new();
    for path in paths.iter().filter(|path| !Path::new(path).is_absolute()) {
        let leads_out = Path::new(path).components().any(|part| part == Component::ParentDir);
        match quote::check_transfer_path(path) {
            _ if leads_out => faults.push(format!(
                "file `{path}` of job `{}` is outside of the directory of the workflow",
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

//! From a spec file to a workflow in the store. Shared by `create`, `run` and, without a file, `exec`.

use crate::args::OutputArgs;
use crate::error::CliError;
use crate::job_logs;
use rustix::fs::Access;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use windlass_core::edges::{Edges, EdgesBuilder};
use windlass_spec::{Job, RequirementsSpec, Workflow};
use windlass_store::Store;
use windlass_store::model::{Listed, NewJob, NewRequirements, NewWorkflow};
use windlass_types::work::Stdio;
use windlass_types::{JobStatus, Timestamp, WorkflowId};

/// The text of a spec and where it came from.
#[derive(Debug)]
pub(crate) struct SpecFile {
    /// As typed, for messages.
    name: String,
    /// Absolute; `None` if it came from stdin.
    path: Option<PathBuf>,
    bytes: Vec<u8>,
}

impl SpecFile {
    /// Reads the file, or stdin for `-`.
    pub(crate) fn read(cwd: &Path, spec: &Path) -> Result<Self, CliError> {
        if spec == Path::new("-") {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut bytes);
            read.map_err(|e| CliError::io(format!("cannot read the spec from stdin: {e}")))?;
            return Ok(Self { name: "<stdin>".to_owned(), path: None, bytes });
        }
        let path = cwd.join(spec);
        let bytes = std::fs::read(&path).map_err(|e| unreadable(spec, &e))?;
        Ok(Self { name: spec.display().to_string(), path: Some(path), bytes })
    }

    /// All errors of the file at once.
    pub(crate) fn load(&self) -> Result<Workflow<'_>, CliError> {
        Ok(windlass_spec::load(&self.name, &self.bytes)?)
    }

    /// The same text gives the same digest, here and everywhere.
    pub(crate) fn digest(&self) -> String {
        windlass_types::digest(&self.bytes)
    }

    /// As typed.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

/// A workflow to be created, all but its jobs.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) name: &'a str,
    /// `None`: whoever runs this.
    pub(crate) user: Option<&'a str>,
    pub(crate) description: Option<&'a str>,
    pub(crate) env: &'a [(String, String)],
    pub(crate) stdio: Stdio,
    pub(crate) requirements: &'a [RequirementsSpec],
    pub(crate) spec_path: Option<&'a Path>,
    pub(crate) spec_digest: Option<&'a str>,
    /// Absolute. Jobs run here.
    pub(crate) submission_dir: &'a Path,
    /// Absolute. Logs go here.
    pub(crate) output_dir: &'a Path,
}

/// Stores the workflow of a spec file.
pub(crate) fn create_from_spec(
    store: &dyn Store,
    file: &SpecFile,
    workflow: &Workflow<'_>,
    submission_dir: &Path,
    output_dir: &Path,
    now: Timestamp,
) -> Result<WorkflowId, CliError> {
    let plan = Plan {
        name: workflow.name(),
        user: workflow.user(),
        description: workflow.description(),
        env: workflow.env(),
        stdio: workflow.stdio(),
        requirements: workflow.requirements(),
        spec_path: file.path(),
        spec_digest: Some(&file.digest()),
        submission_dir,
        output_dir,
    };
    create(store, &plan, workflow.job_count(), |number| workflow.job(number), now)
}

/// Stores a workflow with the jobs `job(0)`, `job(1)`, …
pub(crate) fn create<'j>(
    store: &dyn Store,
    plan: &Plan<'_>,
    jobs: usize,
    job: impl Fn(usize) -> Job<'j>,
    now: Timestamp,
) -> Result<WorkflowId, CliError> {
    let user = plan.user.map_or_else(current_user, str::to_owned);
    let requirements: Vec<NewRequirements<'_>> =
        plan.requirements.iter().map(|r| NewRequirements { name: &r.name, resources: r.resources }).collect();
    let edges = edges((0..jobs).map(&job));
    let workflow = NewWorkflow {
        name: plan.name,
        user: &user,
        description: plan.description,
        submission_dir: utf8(plan.submission_dir)?,
        output_dir: utf8(plan.output_dir)?,
        spec_path: plan.spec_path.map(utf8).transpose()?,
        spec_digest: plan.spec_digest,
        env: plan.env,
        stdio: plan.stdio,
        requirements: &requirements,
        edges: &edges,
        ..NewWorkflow::default()
    };
    let mut rows = Listed::new((0..jobs).map(|number| new_job(job(number))));
    Ok(store.create_workflow(&workflow, &mut rows, now)?)
}

fn edges<'j>(jobs: impl Iterator<Item = Job<'j>>) -> Edges {
    let mut builder = EdgesBuilder::default();
    for (number, job) in (0..).zip(jobs) {
        builder.depend(number, job.depends_on);
    }
    builder.finish()
}

fn new_job(job: Job<'_>) -> NewJob<'_> {
    NewJob {
        name: job.name,
        command: job.command,
        env: job.env,
        requirements: job.requirements,
        priority: job.priority,
        cancel_on_blocking_job_failure: job.cancel_on_blocking_job_failure,
        status: if job.depends_on.is_empty() { JobStatus::Ready } else { JobStatus::Blocked },
        ..NewJob::default()
    }
}

/// The directory for logs, absolute, made if it is not there. Found out before a workflow is made that could not use it.
pub(crate) fn output_directory(cwd: &Path, args: &OutputArgs) -> Result<PathBuf, CliError> {
    let directory = cwd.join(&args.output_dir);
    let logs = directory.join(job_logs::FOLDER);
    let usable = std::fs::create_dir_all(&logs)
        .and_then(|()| Ok(rustix::fs::access(&logs, Access::WRITE_OK | Access::EXEC_OK)?));
    match usable {
        Ok(()) => Ok(directory),
        Err(e) => Err(CliError::io(format!(
            "cannot use {} as the output directory: {e}",
            args.output_dir.display()
        ))
        .with_hint("name a directory that can be made and written to with --output-dir")),
    }
}

/// The store keeps paths as text.
pub(crate) fn utf8(path: &Path) -> Result<&str, CliError> {
    path.to_str().ok_or_else(|| {
        CliError::user(format!("the path {} is not UTF-8", path.display()))
            .with_hint("use a directory with a plain name")
    })
}

fn current_user() -> String {
    let named =
        ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok()).filter(|n| !n.is_empty());
    named.unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()))
}

fn unreadable(spec: &Path, error: &std::io::Error) -> CliError {
    let message = format!("cannot read the spec {}: {error}", spec.display());
    match error.kind() {
        std::io::ErrorKind::NotFound => CliError::user(message)
            .with_hint("paths are taken from the current directory; `windlass exec -- CMD` runs a command without a spec"),
        std::io::ErrorKind::IsADirectory => CliError::user(message).with_hint("name the file in it"),
        _ => CliError::io(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_nothing_is_ready() {
        let job = Job {
            name: "a",
            command: "true",
            env: &[],
            depends_on: &[],
            requirements: None,
            priority: 0,
            cancel_on_blocking_job_failure: true,
        };
        assert_eq!(new_job(job).status, JobStatus::Ready);
        assert_eq!(new_job(Job { depends_on: &[0], ..job }).status, JobStatus::Blocked);
        let edges =
            edges([job, Job { depends_on: &[0], ..job }, Job { depends_on: &[1, 0], ..job }].into_iter());
        assert_eq!(edges.direct, [(1, 0)]);
        assert_eq!(edges.gates, [vec![0, 1]]);
        assert_eq!(edges.waits, [(2, 0)]);
    }
}

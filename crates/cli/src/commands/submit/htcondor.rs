//! `windlass submit --backend htcondor`: submits a workflow as a DAG, without a server.

use crate::args::run::{CreateArgs, HtcondorSubmitArgs};
use crate::commands::{create, dag};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::spec_discovery;
use crate::spec_file::SpecFile;
use crate::ui::text;
use serde::Serialize;
use std::error::Error as _;
use std::path::{Path, PathBuf};
use uuid::Uuid;
use windlass_htcondor::commands::{BATCH_PREFIX, CondorClient};
use windlass_htcondor::file_layout;
use windlass_htcondor::render::{
    DagRenderError, FileTransfer, StorageCredentials, WorkflowDagRun, find_unsupported_features,
    render_workflow,
};
use windlass_htcondor::script_settings::ScriptSettings;
use windlass_htcondor::submit::{DagSubmitError, SubmittedDag, submit};
use windlass_spec::ResolvedWorkflow;

/// Default directory of DAGs.
const DAGS_DIR: &str = ".windlass/dags";

#[derive(Serialize)]
struct SubmittedDagView<'a> {
    name: &'a str,
    jobs: usize,
    run: &'a str,
    directory: &'a Path,
    cluster: u64,
    schedd: Option<&'a str>,
}

pub(super) fn run(
    ctx: &CliContext,
    args: &CreateArgs,
    dag: &HtcondorSubmitArgs,
) -> Result<CliExit, CliError> {
    let file = SpecFile::read(&ctx.cwd, &spec_discovery::resolve_spec_path(args.spec.as_ref(), &ctx.cwd)?)?;
    let workflow = file.load()?;
    if args.dry_run {
        let faults = find_unsupported_features(&workflow);
        return if faults.is_empty() {
            create::run(ctx, args)
        } else {
            Err(DagRenderError::NoDag(faults).into())
        };
    }
    ctx.ui.print_spec_warnings(workflow.warning_diagnostics());
    let (directory, run) = render_dag(ctx, dag, &file, &workflow)?;
    let condor = CondorClient { schedd: dag.schedd.clone(), ..CondorClient::default() };
    let submitted = submit(&condor, &directory, &format!("{BATCH_PREFIX}{run}"))
        .map_err(|error| submit_error(&directory, &error))?;
    print_submitted(ctx, &workflow, &directory, &run, &submitted)?;
    Ok(CliExit::Success)
}

/// The directory with the rendered DAG, and the UUID of the run.
fn render_dag(
    ctx: &CliContext,
    dag: &HtcondorSubmitArgs,
    file: &SpecFile,
    workflow: &ResolvedWorkflow<'_>,
) -> Result<(PathBuf, String), CliError> {
    let run = Uuid::new_v4().to_string();
    let directory = match &dag.dir {
        Some(directory) => ctx.cwd.join(directory),
        None => ctx.cwd.join(DAGS_DIR).join(&run),
    };
    if directory.join(file_layout::OUTER_DAG).exists() {
        return Ok((directory.clone(), rendered_run(&directory, &file.digest())?));
    }
    let program = std::env::current_exe().map_err(|error| {
        CliError::io(format!("cannot find the windlass executable for the scripts: {error}"))
    })?;
    let [proxy, token] = [&dag.proxy, &dag.token].map(|path| path.as_ref().map(|path| ctx.cwd.join(path)));
    render_workflow(&WorkflowDagRun {
        workflow,
        digest: &file.digest(),
        directory: &directory,
        submission_dir: &ctx.cwd,
        run: &run,
        program: &program,
        transfer: if dag.transfer { FileTransfer::Always } else { FileTransfer::IfNeeded },
        accounting: &dag.attributes.iter().cloned().collect(),
        credentials: StorageCredentials { proxy: proxy.as_deref(), token: token.as_deref() },
    })?;
    Ok((directory, run))
}

/// The run that was rendered in the directory, if it is of the same spec.
fn rendered_run(directory: &Path, digest: &str) -> Result<String, CliError> {
    let terms = ScriptSettings::load(directory)?;
    if terms.digest.as_deref() != Some(digest) {
        let message =
            format!("{} contains the DAG of another spec, or of an older text of it", directory.display());
        return Err(CliError::refused(message).with_hint("use another --dir"));
    }
    Ok(terms.run)
}

fn print_submitted(
    ctx: &CliContext,
    workflow: &ResolvedWorkflow<'_>,
    directory: &Path,
    run: &str,
    submitted: &SubmittedDag,
) -> Result<(), CliError> {
    let SubmittedDag { cluster, schedd, .. } = submitted;
    let (name, jobs) = (workflow.name(), workflow.job_count());
    if ctx.ui.wants_json() {
        let schedd = schedd.as_deref();
        return ctx.ui.print_json(&SubmittedDagView {
            name,
            jobs,
            run,
            directory,
            cluster: *cluster,
            schedd,
        });
    }
    let (jobs, place) = (text::render_count(jobs as u64, "job"), directory.display());
    ctx.ui.print_line(&format!("DAG {cluster}: {name}, {jobs}, in {place}"))?;
    ctx.ui.print_note(&format!("next: windlass request dag show {place}"));
    Ok(())
}

/// The rendered DAG can be submitted later.
fn submit_error(directory: &Path, error: &DagSubmitError) -> CliError {
    let message = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let goes_on =
        || format!("retry with `windlass submit --backend htcondor --dir {} …`", directory.display());
    let refused = CliError::io(message);
    match dag::resubmit_hint(directory, error).or_else(|| error.is_transient().then(goes_on)) {
        Some(hint) => refused.with_hint(hint),
        None => refused,
    }
}

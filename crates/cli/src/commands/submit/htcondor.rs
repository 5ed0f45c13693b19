//! `windlass submit --backend htcondor`: a workflow as a DAG, with no server at all.

use crate::args::run::{CreateArgs, DagArgs};
use crate::commands::{create, dag};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::plan::SpecFile;
use crate::spec_files;
use crate::ui::text;
use serde::Serialize;
use std::error::Error as _;
use std::path::{Path, PathBuf};
use uuid::Uuid;
use windlass_condor::layout;
use windlass_condor::pool::{BATCH_PREFIX, Condor};
use windlass_condor::render::{Credentials, RenderError, SpecRun, Transfer, render_spec, spec_faults};
use windlass_condor::submit::{SubmitError, Submitted, submit};
use windlass_condor::terms::Terms;
use windlass_spec::Workflow;

/// Where DAGs go if nobody says where.
const DAGS: &str = ".windlass/dags";

#[derive(Serialize)]
struct DagView<'a> {
    name: &'a str,
    jobs: usize,
    run: &'a str,
    directory: &'a Path,
    cluster: u64,
    schedd: Option<&'a str>,
}

pub(super) fn run(ctx: &Context, args: &CreateArgs, dag: &DagArgs) -> Result<Exit, CliError> {
    let file = SpecFile::read(&ctx.cwd, &spec_files::named_or_found(args.spec.as_ref(), &ctx.cwd)?)?;
    let workflow = file.load()?;
    if args.dry_run {
        let faults = spec_faults(&workflow);
        return if faults.is_empty() {
            create::run(ctx, args)
        } else {
            Err(RenderError::NoDag(faults).into())
        };
    }
    ctx.ui.spec_warnings(workflow.all_warnings());
    let (directory, run) = place(ctx, dag, &file, &workflow)?;
    let condor = Condor { schedd: dag.schedd.clone(), ..Condor::default() };
    let submitted = submit(&condor, &directory, &format!("{BATCH_PREFIX}{run}"))
        .map_err(|error| refusal(&directory, &error))?;
    print(ctx, &workflow, &directory, &run, &submitted)?;
    Ok(Exit::Success)
}

/// The directory with the rendered DAG in it, and the UUID of the run.
fn place(
    ctx: &Context,
    dag: &DagArgs,
    file: &SpecFile,
    workflow: &Workflow<'_>,
) -> Result<(PathBuf, String), CliError> {
    let run = Uuid::new_v4().to_string();
    let directory = match &dag.dir {
        Some(directory) => ctx.cwd.join(directory),
        None => ctx.cwd.join(DAGS).join(&run),
    };
    if directory.join(layout::OUTER_DAG).exists() {
        return Ok((directory.clone(), rendered_before(&directory, &file.digest())?));
    }
    let program = std::env::current_exe()
        .map_err(|error| CliError::io(format!("cannot find the windlass that scripts would run: {error}")))?;
    let [proxy, token] = [&dag.proxy, &dag.token].map(|path| path.as_ref().map(|path| ctx.cwd.join(path)));
    render_spec(&SpecRun {
        workflow,
        digest: &file.digest(),
        directory: &directory,
        submission_dir: &ctx.cwd,
        run: &run,
        program: &program,
        transfer: if dag.transfer { Transfer::Always } else { Transfer::IfNeeded },
        accounting: &dag.attributes.iter().cloned().collect(),
        credentials: Credentials { proxy: proxy.as_deref(), token: token.as_deref() },
    })?;
    Ok((directory, run))
}

/// The run that was rendered there, if it is of the same spec.
fn rendered_before(directory: &Path, digest: &str) -> Result<String, CliError> {
    let terms = Terms::read(directory)?;
    if terms.digest.as_deref() != Some(digest) {
        let said =
            format!("{} holds the DAG of another spec, or of an older text of it", directory.display());
        return Err(CliError::refused(said).with_hint("name another --dir"));
    }
    Ok(terms.run)
}

fn print(
    ctx: &Context,
    workflow: &Workflow<'_>,
    directory: &Path,
    run: &str,
    submitted: &Submitted,
) -> Result<(), CliError> {
    let Submitted { cluster, schedd, .. } = submitted;
    let (name, jobs) = (workflow.name(), workflow.job_count());
    if ctx.ui.json_wanted() {
        let schedd = schedd.as_deref();
        return ctx.ui.print_json(&DagView { name, jobs, run, directory, cluster: *cluster, schedd });
    }
    let (jobs, place) = (text::count(jobs as u64, "job"), directory.display());
    ctx.ui.print_line(&format!("DAG {cluster}: {name}, {jobs}, in {place}"))?;
    ctx.ui.note(&format!("next: windlass dag show {place}"));
    Ok(())
}

/// Nothing is lost: what is rendered can be submitted later.
fn refusal(directory: &Path, error: &SubmitError) -> CliError {
    let said = match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let goes_on =
        || format!("`windlass submit --backend htcondor --dir {} …` goes on with it", directory.display());
    let refused = CliError::io(said);
    match dag::again(directory, error).or_else(|| error.is_transient().then(goes_on)) {
        Some(hint) => refused.with_hint(hint),
        None => refused,
    }
}

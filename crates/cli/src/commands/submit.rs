//! `windlass submit`: a workflow for a server, whose workers run it, or for HTCondor.

mod htcondor;
mod slurm;

use crate::args::run::{SubmitArgs, SubmitBackend};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::inputs;
use crate::plan::{self, SpecFile};
use crate::rerun;
use crate::spec_files;
use crate::ui::text;
use serde::Serialize;
use std::path::Path;
use windlass_types::{RunId, WorkflowId};

#[derive(Serialize)]
struct SubmittedView<'a> {
    workflow_id: WorkflowId,
    run_id: RunId,
    name: &'a str,
    jobs: usize,
    url: &'a str,
}

pub(crate) fn run(ctx: &Context, args: &SubmitArgs) -> Result<Exit, CliError> {
    match args.backend {
        SubmitBackend::Server => to_server(ctx, args),
        SubmitBackend::Htcondor => htcondor::run(ctx, &args.create, &args.dag),
    }
}

fn to_server(ctx: &Context, submit: &SubmitArgs) -> Result<Exit, CliError> {
    let args = &submit.create;
    let named = spec_files::named_or_found(args.spec.as_ref(), &ctx.cwd)?;
    // What standard input says can be read once.
    if args.dry_run && !submit.slurm.slurm && named == Path::new("-") {
        return super::create::run(ctx, args);
    }
    let file = SpecFile::read(&ctx.cwd, &named)?;
    if slurm::is_wanted(&file, &submit.slurm)? {
        if args.dry_run {
            return slurm::show(ctx, &file, &submit.slurm);
        }
        // Before anything is created: what fits nowhere would wait for ever.
        let scheduled = slurm::scheduled(ctx, &file, &submit.slurm)?;
        slurm::require_steward(ctx)?;
        return hand_over(ctx, submit, &scheduled);
    }
    if args.dry_run { super::create::run(ctx, args) } else { hand_over(ctx, submit, &file) }
}

fn hand_over(ctx: &Context, submit: &SubmitArgs, file: &SpecFile) -> Result<Exit, CliError> {
    let args = &submit.create;
    let client = ctx.require_server()?;
    let workflow = file.load()?;
    ctx.ui.spec_warnings(workflow.all_warnings());
    let (name, jobs) = (workflow.name(), workflow.job_count());
    let output_dir = plan::output_directory(ctx, &args.output)?;
    let store = ctx.open_write()?;
    let now = ctx.clock.now();
    let workflow_id = plan::create_from_spec(&*store, file, &workflow, None, &ctx.cwd, &output_dir, now)?;
    // The workers may be where the files are, and this machine may not.
    let missing = inputs::missing(&*store, &rerun::row(&*store, workflow_id)?, &[])?;
    if !missing.is_empty() {
        ctx.ui.warn(&inputs::words(&missing));
    }
    let run_id = client.start_workflow(workflow_id)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&SubmittedView { workflow_id, run_id, name, jobs, url: client.url() })?;
        return Ok(Exit::Success);
    }
    let jobs = text::count(jobs as u64, "job");
    ctx.ui.print_line(&format!("workflow {workflow_id}: {name}, {jobs}, started at {}", client.url()))?;
    ctx.ui.note(&format!("next: windlass status {workflow_id}; windlass events follow {workflow_id}"));
    Ok(Exit::Success)
}

//! `windlass submit`: submits a workflow to a server, whose workers run it, or to HTCondor.

mod htcondor;
mod slurm;

use crate::args::run::{SubmitArgs, SubmitBackendArg};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::missing_inputs;
use crate::rerun;
use crate::spec_discovery;
use crate::spec_file::{self, SpecFile};
use crate::ui::text;
use crate::workflow_view;
use serde::Serialize;
use std::path::Path;
use windlass_types::{RunId, WorkflowId};

#[derive(Serialize)]
struct SubmittedWorkflowView<'a> {
    workflow_id: WorkflowId,
    run_id: RunId,
    name: &'a str,
    jobs: usize,
    url: &'a str,
}

pub(crate) fn run(ctx: &CliContext, args: &SubmitArgs) -> Result<CliExit, CliError> {
    match args.backend {
        SubmitBackendArg::Server => submit_to_server(ctx, args),
        SubmitBackendArg::Htcondor => htcondor::run(ctx, &args.create, &args.dag),
    }
}

fn submit_to_server(ctx: &CliContext, submit: &SubmitArgs) -> Result<CliExit, CliError> {
    let args = &submit.create;
    let named = spec_discovery::resolve_spec_path(args.spec.as_ref(), &ctx.cwd)?;
    // Standard input can be read only once.
    if args.dry_run && !submit.slurm.slurm && named == Path::new("-") {
        return super::create::run(ctx, args);
    }
    let file = SpecFile::read(&ctx.cwd, &named)?;
    if slurm::needs_slurm(&file, &submit.slurm)? {
        if args.dry_run {
            return slurm::show_plan(ctx, &file, &submit.slurm);
        }
        // Checked before anything is created: a job that fits nowhere would wait forever.
        let scheduled = slurm::add_allocations(ctx, &file, &submit.slurm)?;
        slurm::require_allocation_reconciler(ctx)?;
        return create_on_server(ctx, submit, &scheduled);
    }
    if args.dry_run { super::create::run(ctx, args) } else { create_on_server(ctx, submit, &file) }
}

fn create_on_server(ctx: &CliContext, submit: &SubmitArgs, file: &SpecFile) -> Result<CliExit, CliError> {
    let args = &submit.create;
    let client = ctx.require_server()?;
    let workflow = file.load()?;
    ctx.ui.print_spec_warnings(workflow.warning_diagnostics());
    let (name, jobs) = (workflow.name(), workflow.job_count());
    let output_dir = spec_file::output_directory(ctx, &args.output)?;
    let store = ctx.open_write()?;
    let now = ctx.clock.now();
    let workflow_id =
        spec_file::create_from_spec(&*store, file, &workflow, None, &ctx.cwd, &output_dir, now)?;
    // The workers may see the input files even if this machine does not.
    let missing =
        missing_inputs::find_missing(&*store, &rerun::load_workflow_row(&*store, workflow_id)?, &[])?;
    if !missing.is_empty() {
        ctx.ui.print_warning(&missing_inputs::render_missing(&missing));
    }
    let run_id = client.start_workflow(workflow_id)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&SubmittedWorkflowView { workflow_id, run_id, name, jobs, url: client.url() })?;
        return Ok(CliExit::Success);
    }
    let jobs = text::render_count(jobs as u64, "job");
    ctx.ui.print_line(&format!("workflow {workflow_id}: {name}, {jobs}, started at {}", client.url()))?;
    if let Some(note) = workflow_view::missing_workers_note(client, workflow_id) {
        ctx.ui.print_note(&note);
    }
    ctx.ui.print_note(&format!("next: windlass status {workflow_id}; windlass events follow {workflow_id}"));
    Ok(CliExit::Success)
}

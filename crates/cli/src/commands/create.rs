//! `windlass create`: checks a spec and stores its workflow.

use crate::args::run::CreateArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::plan::{self, SpecFile};
use crate::spec_files;
use crate::ui::text;
use serde::Serialize;
use windlass_types::WorkflowId;

#[derive(Serialize)]
struct CreatedView<'a> {
    /// `null` after a dry run.
    workflow_id: Option<WorkflowId>,
    name: &'a str,
    jobs: usize,
    dry_run: bool,
}

pub(crate) fn run(ctx: &Context, args: &CreateArgs) -> Result<Exit, CliError> {
    let file = SpecFile::read(&ctx.cwd, &spec_files::named_or_found(args.spec.as_ref(), &ctx.cwd)?)?;
    let workflow = file.load()?;
    let (name, jobs) = (workflow.name(), workflow.job_count());
    let workflow_id = if args.dry_run {
        None
    } else {
        let output_dir = plan::output_directory(&ctx.cwd, &args.output)?;
        let store = ctx.open_or_create()?;
        Some(plan::create_from_spec(&store, &file, &workflow, &ctx.cwd, &output_dir, ctx.clock.now())?)
    };
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&CreatedView { workflow_id, name, jobs, dry_run: args.dry_run })?;
        return Ok(Exit::Success);
    }
    let jobs = text::count(jobs as u64, "job");
    match workflow_id {
        None => ctx.ui.print_line(&format!("the spec is good: {name}, {jobs}"))?,
        Some(id) => {
            ctx.ui.print_line(&format!("workflow {id}: {name}, {jobs}"))?;
            ctx.ui.note("next: windlass resume");
        }
    }
    Ok(Exit::Success)
}

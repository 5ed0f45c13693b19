//! `windlass create`: checks a spec and stores its workflow.

use crate::args::run::CreateArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::plan::{self, SpecFile};
use crate::spec_files;
use crate::ui::text;
use serde::Serialize;
use windlass_spec::{Diagnostics, Workflow};
use windlass_types::WorkflowId;
use windlass_types::settings::ActionType;

#[derive(Serialize)]
struct CreatedView<'a> {
    workflow_id: WorkflowId,
    name: &'a str,
    jobs: usize,
    dry_run: bool,
    warnings: Vec<String>,
}

pub(crate) fn run(ctx: &Context, args: &CreateArgs) -> Result<Exit, CliError> {
    if args.torc.no_resource_monitoring {
        ctx.ui.warn("--no-resource-monitoring has no effect: `resource_monitor: {enabled: false}` in the spec has jobs not measured");
    }
    let file = SpecFile::read(&ctx.cwd, &spec_files::named_or_found(args.spec.as_ref(), &ctx.cwd)?)?;
    if args.dry_run {
        return check(ctx, &file);
    }
    let workflow = file.load()?;
    let (name, jobs) = (workflow.name(), workflow.job_count());
    let output_dir = plan::output_directory(ctx, &args.output)?;
    let store = ctx.open_or_create()?;
    let workflow_id =
        plan::create_from_spec(&*store, &file, &workflow, None, &ctx.cwd, &output_dir, ctx.clock.now())?;
    if ctx.ui.json_wanted() {
        let warnings = plan::warnings(&workflow);
        ctx.ui.print_json(&CreatedView { workflow_id, name, jobs, dry_run: false, warnings })?;
        return Ok(Exit::Success);
    }
    ctx.ui.spec_warnings(workflow.all_warnings());
    ctx.ui.print_line(&format!("workflow {workflow_id}: {name}, {}", text::count(jobs as u64, "job")))?;
    ctx.ui.note("next: windlass resume");
    Ok(Exit::Success)
}

/// What a dry run found, good or bad; the same fields as a created workflow has, and Torc's.
#[derive(Serialize)]
struct CheckedView<'a> {
    workflow_id: Option<WorkflowId>,
    name: Option<&'a str>,
    jobs: Option<usize>,
    dry_run: bool,
    valid: bool,
    errors: Vec<String>,
    warnings: Vec<String>,
    summary: Option<SummaryView<'a>>,
}

#[derive(Serialize)]
struct SummaryView<'a> {
    workflow_name: &'a str,
    job_count: usize,
    job_count_before_expansion: usize,
    file_count: usize,
    user_data_count: usize,
    resource_requirements_count: usize,
    failure_handler_count: usize,
    slurm_scheduler_count: usize,
    action_count: usize,
    has_schedule_nodes_action: bool,
    job_names: Vec<&'a str>,
    scheduler_names: Vec<&'a str>,
}

/// `--dry-run`: no database is touched.
fn check(ctx: &Context, file: &SpecFile) -> Result<Exit, CliError> {
    if !ctx.ui.json_wanted() {
        let workflow = file.load()?;
        ctx.ui.spec_warnings(workflow.all_warnings());
        ctx.ui.print_lines(&lines(&workflow))?;
        return Ok(Exit::Success);
    }
    match file.load() {
        Ok(workflow) => ctx.ui.print_json(&CheckedView {
            workflow_id: None,
            name: Some(workflow.name()),
            jobs: Some(workflow.job_count()),
            dry_run: true,
            valid: true,
            errors: Vec::new(),
            warnings: plan::warnings(&workflow),
            summary: Some(summary(&workflow)),
        })?,
        Err(CliError { diagnostics, .. }) if !diagnostics.is_empty() => {
            ctx.ui.print_json(&CheckedView {
                workflow_id: None,
                name: None,
                jobs: None,
                dry_run: true,
                valid: false,
                errors: diagnostics
                    .iter()
                    .flat_map(Diagnostics::reports)
                    .map(|one| plan::in_a_line(&one))
                    .collect(),
                warnings: Vec::new(),
                summary: None,
            })?;
            return Ok(Exit::Usage);
        }
        Err(error) => return Err(error),
    }
    Ok(Exit::Success)
}

fn summary<'a>(workflow: &'a Workflow<'_>) -> SummaryView<'a> {
    let schedules = workflow.actions().iter().any(|one| one.action.action_type == ActionType::ScheduleNodes);
    SummaryView {
        workflow_name: workflow.name(),
        job_count: workflow.job_count(),
        job_count_before_expansion: workflow.entry_count(),
        file_count: workflow.file_count(),
        user_data_count: workflow.user_data_count(),
        resource_requirements_count: workflow.requirements().len(),
        failure_handler_count: workflow.failure_handlers().len(),
        slurm_scheduler_count: workflow.schedulers().len(),
        action_count: workflow.actions().len(),
        has_schedule_nodes_action: schedules,
        job_names: workflow.jobs().map(|job| job.name).collect(),
        scheduler_names: workflow.schedulers().iter().map(|one| one.name.as_str()).collect(),
    }
}

/// What there is of what; nothing is said of what there is none of.
fn lines(workflow: &Workflow<'_>) -> Vec<String> {
    let (jobs, entries) = (workflow.job_count(), workflow.entry_count());
    let mut lines =
        vec![format!("the spec is good: {}, {}", workflow.name(), text::count(jobs as u64, "job"))];
    if entries != jobs {
        lines.push(format!("  jobs as written: {entries}"));
    }
    let parts = [
        ("files", workflow.file_count()),
        ("user data", workflow.user_data_count()),
        ("resource requirements", workflow.requirements().len()),
        ("failure handlers", workflow.failure_handlers().len()),
        ("Slurm schedulers", workflow.schedulers().len()),
        ("actions", workflow.actions().len()),
    ];
    lines.extend(parts.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("  {what}: {n}")));
    lines
}

//! `windlass create`: validates a spec and stores its workflow.

use crate::args::run::CreateArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::spec_discovery;
use crate::spec_file::{self, SpecFile};
use crate::ui::text;
use serde::Serialize;
use windlass_spec::{ResolvedWorkflow, SpecDiagnostics};
use windlass_types::WorkflowId;
use windlass_types::settings::ActionType;

#[derive(Serialize)]
struct CreatedWorkflowView<'a> {
    workflow_id: WorkflowId,
    name: &'a str,
    jobs: usize,
    dry_run: bool,
    warnings: Vec<String>,
}

pub(crate) fn run(ctx: &CliContext, args: &CreateArgs) -> Result<CliExit, CliError> {
    let file = SpecFile::read(&ctx.cwd, &spec_discovery::resolve_spec_path(args.spec.as_ref(), &ctx.cwd)?)?;
    if args.dry_run {
        return check_spec(ctx, &file);
    }
    let workflow = file.load()?;
    let (name, jobs) = (workflow.name(), workflow.job_count());
    let output_dir = spec_file::output_directory(ctx, &args.output)?;
    let store = ctx.open_or_create()?;
    let workflow_id =
        spec_file::create_from_spec(&*store, &file, &workflow, None, &ctx.cwd, &output_dir, ctx.clock.now())?;
    if ctx.ui.wants_json() {
        let warnings = spec_file::warnings(&workflow);
        ctx.ui.print_json(&CreatedWorkflowView { workflow_id, name, jobs, dry_run: false, warnings })?;
        return Ok(CliExit::Success);
    }
    ctx.ui.print_spec_warnings(workflow.warning_diagnostics());
    ctx.ui
        .print_line(&format!("workflow {workflow_id}: {name}, {}", text::render_count(jobs as u64, "job")))?;
    ctx.ui.print_note("next: windlass resume");
    Ok(CliExit::Success)
}

/// Result of a dry run, valid or not; the same fields as for a created workflow, and Torc's.
#[derive(Serialize)]
struct SpecCheckView<'a> {
    workflow_id: Option<WorkflowId>,
    name: Option<&'a str>,
    jobs: Option<usize>,
    dry_run: bool,
    valid: bool,
    errors: Vec<String>,
    warnings: Vec<String>,
    summary: Option<SpecSummaryView<'a>>,
}

#[derive(Serialize)]
struct SpecSummaryView<'a> {
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

/// `--dry-run`: no database is opened.
fn check_spec(ctx: &CliContext, file: &SpecFile) -> Result<CliExit, CliError> {
    if !ctx.ui.wants_json() {
        let workflow = file.load()?;
        ctx.ui.print_spec_warnings(workflow.warning_diagnostics());
        ctx.ui.print_lines(&render_summary(&workflow))?;
        return Ok(CliExit::Success);
    }
    match file.load() {
        Ok(workflow) => ctx.ui.print_json(&SpecCheckView {
            workflow_id: None,
            name: Some(workflow.name()),
            jobs: Some(workflow.job_count()),
            dry_run: true,
            valid: true,
            errors: Vec::new(),
            warnings: spec_file::warnings(&workflow),
            summary: Some(summarize_spec(&workflow)),
        })?,
        Err(CliError { diagnostics, .. }) if !diagnostics.is_empty() => {
            ctx.ui.print_json(&SpecCheckView {
                workflow_id: None,
                name: None,
                jobs: None,
                dry_run: true,
                valid: false,
                errors: diagnostics
                    .iter()
                    .flat_map(SpecDiagnostics::reports)
                    .map(|one| spec_file::render_warning(&one))
                    .collect(),
                warnings: Vec::new(),
                summary: None,
            })?;
            return Ok(CliExit::Usage);
        }
        Err(error) => return Err(error),
    }
    Ok(CliExit::Success)
}

fn summarize_spec<'a>(workflow: &'a ResolvedWorkflow<'_>) -> SpecSummaryView<'a> {
    let schedules = workflow.actions().iter().any(|one| one.action.action_type == ActionType::ScheduleNodes);
    SpecSummaryView {
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

/// Counts of the objects; zero counts are omitted.
fn render_summary(workflow: &ResolvedWorkflow<'_>) -> Vec<String> {
    let (jobs, entries) = (workflow.job_count(), workflow.entry_count());
    let mut lines =
        vec![format!("the spec is valid: {}, {}", workflow.name(), text::render_count(jobs as u64, "job"))];
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

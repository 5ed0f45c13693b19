//! `windlass plan`: shows what a spec or a workflow would run, as text, as a drawing, and compared with earlier
//! runs.

use crate::args::plan_and_reset::PlanArgs;
use crate::args::{OutputFormat, WorkflowRef};
use crate::changes::{self, ComparisonSettings, PlannedJobs, RerunReasonView, StoredJobs, WorkflowChanges};
use crate::commands::reinit::reason_table;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::output_files;
use crate::spec_file::{self, SpecFile};
use crate::ui::style::{TextPainter, TextTone};
use crate::ui::text;
use crate::{object_selection, spec_discovery, workflow_outline};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use windlass_core::reuse::ReuseSummary;
use windlass_core::workflow_outline::{CriticalStep, MakespanEstimate, OutlineGranularity, WorkflowOutline};
use windlass_render::GraphDrawing;
use windlass_store::model::WorkflowRow;
use windlass_types::{WorkflowId, format_duration};

/// Columns of a drawing that is not printed on a terminal.
const DEFAULT_WIDTH: usize = 100;
/// Maximum number of jobs listed without --all.
const MAX_NAMED: usize = 20;
/// Maximum number of steps of a critical path that are shown; those in the middle are counted.
const MAX_STEPS: usize = 8;

pub(crate) fn run(ctx: &CliContext, args: &PlanArgs) -> Result<CliExit, CliError> {
    let word = args.target.as_deref().map(Path::new);
    let view = if let Some(workflow) =
        word.and_then(|word| object_selection::workflow_ref_from_word(&ctx.cwd, word))
    {
        plan_workflow(ctx, &workflow, args)?
    } else {
        let path = spec_discovery::resolve_spec_path(word.map(Path::to_owned).as_ref(), &ctx.cwd)?;
        plan_spec(ctx, &SpecFile::read(&ctx.cwd, &path)?, args)?
    };
    output_files::write_text(ctx, args.output.as_deref(), &render_plan(ctx, &view, args)?)?;
    Ok(CliExit::Success)
}

/// A plan, also as JSON.
#[derive(Serialize)]
struct WorkflowPlanView {
    /// `null` for a spec.
    workflow_id: Option<WorkflowId>,
    name: String,
    spec_path: Option<String>,
    #[serde(flatten)]
    outline: WorkflowOutline,
    /// `null` if there is no earlier run.
    changes: Option<WorkflowChangesView>,
    #[serde(skip)]
    drawing: GraphDrawing,
}

#[derive(Serialize)]
struct WorkflowChangesView {
    /// The workflow whose results are reused.
    compared_with: WorkflowId,
    #[serde(flatten)]
    summary: ReuseSummary,
    run: Vec<RerunReasonView>,
}

impl WorkflowChangesView {
    fn new(changes: &WorkflowChanges, name: impl Fn(u32) -> String) -> Self {
        let run =
            changes.jobs_to_run().map(|(job, reason)| RerunReasonView::new(job, reason, &name)).collect();
        Self { compared_with: changes.compared_with, summary: changes.summary(), run }
    }
}

fn plan_grain(args: &PlanArgs) -> OutlineGranularity {
    if args.per_job { OutlineGranularity::Jobs } else { OutlineGranularity::Entries }
}

fn plan_spec(ctx: &CliContext, file: &SpecFile, args: &PlanArgs) -> Result<WorkflowPlanView, CliError> {
    let workflow = file.load()?;
    ctx.ui.print_spec_warnings(workflow.warning_diagnostics());
    let store = if args.new { None } else { ctx.open_read_if_exists()? };
    let earlier = match &store {
        Some(store) => spec_file::newest_workflow_of(&**store, file, &ctx.cwd)?,
        None => None,
    };
    let jobs_store = match (store.as_deref(), &earlier) {
        (Some(store), Some(row)) => Some(StoredJobs::load(store, row)?),
        _ => None,
    };
    let planned = PlannedJobs::new(&workflow, jobs_store.as_ref());
    let same_text = earlier.as_ref().is_some_and(|row| row.spec_digest == Some(file.digest()));
    let terms =
        ComparisonSettings { compare_contents: args.content, accepted_changes: &args.accept, same_text };
    let changes = jobs_store
        .as_ref()
        .map(|jobs_store| changes::compare_spec(jobs_store, &planned, terms))
        .transpose()?;
    let earlier = jobs_store.as_ref().zip(changes.as_ref());
    let outline = workflow_outline::outline_spec(
        &planned,
        earlier,
        plan_grain(args),
        workflow_outline::planning_capacity(args.capacity),
    )?;
    let name = |number: u32| workflow.job(number as usize).name.to_owned();
    Ok(WorkflowPlanView {
        workflow_id: None,
        name: workflow.name().to_owned(),
        spec_path: file.path().map(|path| path.display().to_string()),
        drawing: build_drawing(&outline, changes.as_ref()),
        changes: changes.as_ref().map(|changes| WorkflowChangesView::new(changes, name)),
        outline,
    })
}

fn plan_workflow(
    ctx: &CliContext,
    workflow: &WorkflowRef,
    args: &PlanArgs,
) -> Result<WorkflowPlanView, CliError> {
    let store = ctx.open_read()?;
    let row: WorkflowRow = object_selection::find_workflow(&*store, workflow)?;
    let jobs_store = StoredJobs::load(&*store, &row)?;
    // Before the first run there is no earlier run to compare with.
    let compared = row.started_at.is_some() && !args.new;
    let terms = ComparisonSettings {
        compare_contents: args.content,
        accepted_changes: &args.accept,
        ..ComparisonSettings::default()
    };
    let changes = compared.then(|| changes::compare_workflow(&jobs_store, terms)).transpose()?;
    let machine = workflow_outline::planning_capacity(args.capacity);
    let outline = workflow_outline::outline_workflow(
        &*store,
        &jobs_store,
        changes.as_ref(),
        plan_grain(args),
        machine,
    )?;
    let view = WorkflowPlanView {
        workflow_id: Some(row.id),
        name: row.name.clone(),
        spec_path: row.spec_path.clone(),
        drawing: build_drawing(&outline, changes.as_ref()),
        changes: changes
            .as_ref()
            .map(|changes| WorkflowChangesView::new(changes, |number| jobs_store.name(number))),
        outline,
    };
    jobs_store.check_read_error()?;
    Ok(view)
}

/// Shows which jobs run and which are reused, where known.
fn build_drawing(outline: &WorkflowOutline, changes: Option<&WorkflowChanges>) -> GraphDrawing {
    let mut drawing = GraphDrawing::from_outline(outline);
    if let Some(changes) = changes {
        drawing.show_decisions(outline, &changes.decisions);
    }
    drawing
}

fn render_plan(ctx: &CliContext, view: &WorkflowPlanView, args: &PlanArgs) -> Result<String, CliError> {
    Ok(match ctx.ui.format() {
        OutputFormat::Json => {
            let mut text = serde_json::to_string_pretty(view)
                .map_err(|e| CliError::internal(format!("cannot write the plan as JSON: {e}")))?;
            text.push('\n');
            text::escape_json(&text).into_owned()
        }
        OutputFormat::Dot => windlass_render::render_dot(&view.drawing),
        OutputFormat::Mermaid => windlass_render::render_mermaid(&view.drawing),
        OutputFormat::Svg => windlass_render::render_svg(&view.drawing),
        OutputFormat::Table | OutputFormat::Text | OutputFormat::Csv | OutputFormat::Toml => {
            let to_file = args.output.is_some();
            let paint = if to_file { TextPainter::PLAIN } else { ctx.ui.stdout_painter() };
            let width = ctx.ui.stdout_width().filter(|_| !to_file);
            let mut text = render_lines(view, args.all, width, paint).join("\n");
            text.push('\n');
            text
        }
    })
}

fn render_lines(view: &WorkflowPlanView, all: bool, width: Option<usize>, paint: TextPainter) -> Vec<String> {
    let mut lines = vec![render_title(view, paint)];
    if view.changes.as_ref().is_none_or(|changes| changes.summary.rerun_count() > 0) {
        lines.extend(render_facts(&view.outline).into_iter().map(|line| format!("  {line}")));
    }
    lines.push(String::new());
    let drawn = windlass_render::render_text(&view.drawing, width.unwrap_or(DEFAULT_WIDTH));
    lines.extend(drawn.lines().map(str::to_owned));
    if let Some(changes) = &view.changes {
        lines.push(String::new());
        lines.extend(render_changes(changes, view.workflow_id, all, width, paint));
    }
    lines
}

fn render_title(view: &WorkflowPlanView, paint: TextPainter) -> String {
    let outline = &view.outline;
    let name = paint.apply(TextTone::Bold, &text::one_line(&view.name));
    let id = view.workflow_id.map(|id| format!(" (workflow {id})")).unwrap_or_default();
    let jobs = text::render_count(outline.jobs.into(), "job");
    let stages = outline.stages.last().map_or(0, |stage| stage.last);
    let stages = text::render_count(stages.into(), "stage");
    format!("{name}{id}: {jobs} in {stages}")
}

fn render_facts(outline: &WorkflowOutline) -> Vec<String> {
    let mut facts = Vec::new();
    if outline.jobs == 0 {
        return facts;
    }
    facts.push(format!(
        "at most {} in parallel, on {}; {} in all",
        text::render_count(outline.width.into(), "job"),
        text::render_count(outline.width_cpus, "CPU"),
        render_cpu_time(outline.cpu_hours)
    ));
    if outline.critical_path.len() > 1 {
        facts.push(format!(
            "critical path, {}: {}",
            format_duration(outline.critical_time),
            render_critical_path(outline)
        ));
    }
    facts.extend(outline.estimate.as_ref().map(render_estimate));
    if outline.guessed_runtimes > 0 {
        facts.push(format!(
            "{} without a `runtime`: each counts as 1 hour",
            text::render_count(outline.guessed_runtimes.into(), "job")
        ));
    }
    facts
}

/// In hours, unless that rounds to zero.
fn render_cpu_time(hours: f64) -> String {
    if hours >= 0.1 {
        return format!("{hours:.1} CPU-hours");
    }
    format!("{} of CPU time", format_duration(Duration::from_secs_f64((hours * 3600.0).max(0.0))))
}

/// The steps that take time: reused jobs take none.
fn render_critical_path(outline: &WorkflowOutline) -> String {
    let steps: Vec<&CriticalStep> =
        outline.critical_path.iter().filter(|step| !step.expected.is_zero()).collect();
    let name = |step: &&CriticalStep| text::one_line(&step.name);
    if steps.len() <= MAX_STEPS {
        return steps.iter().map(name).collect::<Vec<_>>().join(" → ");
    }
    let half = MAX_STEPS / 2;
    let mut shown: Vec<String> = steps[..half].iter().map(name).collect();
    shown.push(format!("… {} more …", steps.len() - MAX_STEPS));
    shown.extend(steps[steps.len() - half..].iter().map(name));
    shown.join(" → ")
}

fn render_estimate(estimate: &MakespanEstimate) -> String {
    let capacity = &estimate.capacity;
    let gpus = match capacity.gpus {
        0 => String::new(),
        n => format!(", {}", text::render_count(n.into(), "GPU")),
    };
    let machine = format!("{}, {}{gpus}", text::render_count(capacity.cpus.into(), "CPU"), capacity.memory);
    let never = match estimate.never {
        0 => String::new(),
        n => format!("; {} would never fit", text::render_count(n.into(), "job")),
    };
    format!("about {} on a machine with {machine}{never}", format_duration(estimate.makespan))
}

fn render_changes(
    changes: &WorkflowChangesView,
    workflow: Option<WorkflowId>,
    all: bool,
    width: Option<usize>,
    paint: TextPainter,
) -> Vec<String> {
    let with = match workflow {
        Some(_) => "since its last run".to_owned(),
        None => format!("compared with workflow {}", changes.compared_with),
    };
    let (runs, reused) = (changes.summary.rerun_count(), changes.summary.reused);
    if runs == 0 {
        return vec![format!("{with}, nothing has changed: no jobs run, {reused} reused")];
    }
    let mut lines = vec![format!("{with}: {} run, {reused} reused", text::render_count(runs.into(), "job"))];
    let named = if all { usize::MAX } else { MAX_NAMED };
    lines.extend(reason_table(&changes.run, named).render(width, paint));
    if changes.run.len() > named {
        lines.push(format!(
            "… and {}; --all lists them",
            text::render_count((changes.run.len() - named) as u64, "more job")
        ));
    }
    lines
}

//! `windlass plan`: what a spec or a workflow would do, in words, as a drawing, and compared with what was done before.

use crate::args::plan::PlanArgs;
use crate::args::{Format, WorkflowRef};
use crate::changes::{self, Books, Changes, Planned, ReasonView, Terms};
use crate::commands::reinit::reason_table;
use crate::context::Context;
use crate::deliver;
use crate::error::{CliError, Exit};
use crate::plan::{self, SpecFile};
use crate::ui::style::{Paint, Tone};
use crate::ui::text;
use crate::{select, sketch, spec_files};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use windlass_core::outline::{Estimate, Grain, Outline, Step};
use windlass_core::reuse::Summary;
use windlass_draw::Drawing;
use windlass_store::model::WorkflowRow;
use windlass_types::{WorkflowId, format_duration};

/// A drawing for nobody's terminal.
const WIDTH: usize = 100;
/// So many jobs that run again are named unless all are asked for.
const NAMED: usize = 20;
/// Steps of a critical path that are shown; what lies between the first and the last of them is counted.
const STEPS: usize = 8;

pub(crate) fn run(ctx: &Context, args: &PlanArgs) -> Result<Exit, CliError> {
    let word = args.target.as_deref().map(Path::new);
    let view = if let Some(workflow) = word.and_then(|word| select::meant_workflow(&ctx.cwd, word)) {
        of_workflow(ctx, &workflow, args)?
    } else {
        let path = spec_files::named_or_found(word.map(Path::to_owned).as_ref(), &ctx.cwd)?;
        of_spec(ctx, &SpecFile::read(&ctx.cwd, &path)?, args)?
    };
    deliver::text(ctx, args.output.as_deref(), &show(ctx, &view, args)?)?;
    Ok(Exit::Success)
}

/// A plan, also for programs.
#[derive(Serialize)]
struct PlanView {
    /// `null` for a spec.
    workflow_id: Option<WorkflowId>,
    name: String,
    spec_path: Option<String>,
    #[serde(flatten)]
    outline: Outline,
    /// `null` if there is nothing to compare with.
    changes: Option<ChangesView>,
    #[serde(skip)]
    drawing: Drawing,
}

#[derive(Serialize)]
struct ChangesView {
    /// The workflow whose results are reused.
    compared_with: WorkflowId,
    #[serde(flatten)]
    summary: Summary,
    run: Vec<ReasonView>,
}

impl ChangesView {
    fn new(changes: &Changes, name: impl Fn(u32) -> String) -> Self {
        let run = changes.runs().map(|(job, reason)| ReasonView::new(job, reason, &name)).collect();
        Self { compared_with: changes.compared_with, summary: changes.summary(), run }
    }
}

fn grain(args: &PlanArgs) -> Grain {
    if args.per_job { Grain::Jobs } else { Grain::Kinds }
}

fn of_spec(ctx: &Context, file: &SpecFile, args: &PlanArgs) -> Result<PlanView, CliError> {
    let workflow = file.load()?;
    ctx.ui.spec_warnings(workflow.all_warnings());
    let store = if args.new { None } else { ctx.open_read_if_there()? };
    let earlier = match &store {
        Some(store) => plan::newest_of(&**store, file, &ctx.cwd)?,
        None => None,
    };
    let books = match (store.as_deref(), &earlier) {
        (Some(store), Some(row)) => Some(Books::load(store, row)?),
        _ => None,
    };
    let planned = Planned::new(&workflow, books.as_ref());
    let same_text = earlier.as_ref().is_some_and(|row| row.spec_digest == Some(file.digest()));
    let terms = Terms { content: args.content, accepted: &args.accept, same_text };
    let changes = books.as_ref().map(|books| changes::of_spec(books, &planned, terms)).transpose()?;
    let earlier = books.as_ref().zip(changes.as_ref());
    let outline = sketch::of_spec(&planned, earlier, grain(args), sketch::capacity(args.capacity))?;
    let name = |number: u32| workflow.job(number as usize).name.to_owned();
    Ok(PlanView {
        workflow_id: None,
        name: workflow.name().to_owned(),
        spec_path: file.path().map(|path| path.display().to_string()),
        drawing: drawing(&outline, changes.as_ref()),
        changes: changes.as_ref().map(|changes| ChangesView::new(changes, name)),
        outline,
    })
}

fn of_workflow(ctx: &Context, workflow: &WorkflowRef, args: &PlanArgs) -> Result<PlanView, CliError> {
    let store = ctx.open_read()?;
    let row: WorkflowRow = select::workflow(&*store, workflow)?;
    let books = Books::load(&*store, &row)?;
    // Before the first run there is nothing to compare with.
    let compared = row.started_at.is_some() && !args.new;
    let terms = Terms { content: args.content, accepted: &args.accept, ..Terms::default() };
    let changes = compared.then(|| changes::of_workflow(&books, terms)).transpose()?;
    let machine = sketch::capacity(args.capacity);
    let outline = sketch::of_books(&*store, &books, changes.as_ref(), grain(args), machine)?;
    let view = PlanView {
        workflow_id: Some(row.id),
        name: row.name.clone(),
        spec_path: row.spec_path.clone(),
        drawing: drawing(&outline, changes.as_ref()),
        changes: changes.as_ref().map(|changes| ChangesView::new(changes, |number| books.name(number))),
        outline,
    };
    books.trouble()?;
    Ok(view)
}

/// With what runs and what is reused, where that is known.
fn drawing(outline: &Outline, changes: Option<&Changes>) -> Drawing {
    let mut drawing = Drawing::of(outline);
    if let Some(changes) = changes {
        drawing.show_decisions(outline, &changes.decisions);
    }
    drawing
}

fn show(ctx: &Context, view: &PlanView, args: &PlanArgs) -> Result<String, CliError> {
    Ok(match ctx.ui.format() {
        Format::Json => {
            let mut text = serde_json::to_string_pretty(view)
                .map_err(|e| CliError::internal(format!("the plan cannot be written as JSON: {e}")))?;
            text.push('\n');
            text
        }
        Format::Dot => windlass_draw::dot(&view.drawing),
        Format::Mermaid => windlass_draw::mermaid(&view.drawing),
        Format::Svg => windlass_draw::svg(&view.drawing),
        Format::Table | Format::Text | Format::Csv | Format::Toml => {
            let to_file = args.output.is_some();
            let paint = if to_file { Paint::PLAIN } else { ctx.ui.paint_out() };
            let width = ctx.ui.width_out().filter(|_| !to_file);
            let mut text = lines(view, args.all, width, paint).join("\n");
            text.push('\n');
            text
        }
    })
}

fn lines(view: &PlanView, all: bool, width: Option<usize>, paint: Paint) -> Vec<String> {
    let mut lines = vec![title(view, paint)];
    if view.changes.as_ref().is_none_or(|changes| changes.summary.runs() > 0) {
        lines.extend(facts(&view.outline).into_iter().map(|line| format!("  {line}")));
    }
    lines.push(String::new());
    let drawn = windlass_draw::text(&view.drawing, width.unwrap_or(WIDTH));
    lines.extend(drawn.lines().map(str::to_owned));
    if let Some(changes) = &view.changes {
        lines.push(String::new());
        lines.extend(change_lines(changes, view.workflow_id, all, width, paint));
    }
    lines
}

fn title(view: &PlanView, paint: Paint) -> String {
    let outline = &view.outline;
    let name = paint.apply(Tone::Bold, &text::one_line(&view.name));
    let id = view.workflow_id.map(|id| format!(" (workflow {id})")).unwrap_or_default();
    let jobs = text::count(outline.jobs.into(), "job");
    let stages = outline.stages.last().map_or(0, |stage| stage.last);
    let stages = text::count(stages.into(), "stage");
    format!("{name}{id}: {jobs} in {stages}")
}

fn facts(outline: &Outline) -> Vec<String> {
    let mut facts = Vec::new();
    if outline.jobs == 0 {
        return facts;
    }
    facts.push(format!(
        "at most {} at once, on {}; {} in all",
        text::count(outline.width.into(), "job"),
        text::count(outline.width_cpus, "CPU"),
        cpu_time(outline.cpu_hours)
    ));
    if outline.critical_path.len() > 1 {
        facts.push(format!("critical path, {}: {}", format_duration(outline.critical_time), path(outline)));
    }
    facts.extend(outline.estimate.as_ref().map(estimate));
    if outline.guessed_runtimes > 0 {
        facts.push(format!(
            "{} without a `runtime`: each counts as 1 hour",
            text::count(outline.guessed_runtimes.into(), "job")
        ));
    }
    facts
}

/// In hours, unless that would say nothing.
fn cpu_time(hours: f64) -> String {
    if hours >= 0.1 {
        return format!("{hours:.1} CPU-hours");
    }
    format!("{} of CPU time", format_duration(Duration::from_secs_f64((hours * 3600.0).max(0.0))))
}

/// The steps that take their time: what is reused does not.
fn path(outline: &Outline) -> String {
    let steps: Vec<&Step> = outline.critical_path.iter().filter(|step| !step.expected.is_zero()).collect();
    let name = |step: &&Step| text::one_line(&step.name);
    if steps.len() <= STEPS {
        return steps.iter().map(name).collect::<Vec<_>>().join(" → ");
    }
    let half = STEPS / 2;
    let mut shown: Vec<String> = steps[..half].iter().map(name).collect();
    shown.push(format!("… {} more …", steps.len() - STEPS));
    shown.extend(steps[steps.len() - half..].iter().map(name));
    shown.join(" → ")
}

fn estimate(estimate: &Estimate) -> String {
    let capacity = &estimate.capacity;
    let gpus = match capacity.gpus {
        0 => String::new(),
        n => format!(", {}", text::count(n.into(), "GPU")),
    };
    let machine = format!("{}, {}{gpus}", text::count(capacity.cpus.into(), "CPU"), capacity.memory);
    let never = match estimate.never {
        0 => String::new(),
        n => format!("; {} would never run there", text::count(n.into(), "job")),
    };
    format!("about {} on a machine with {machine}{never}", format_duration(estimate.makespan))
}

fn change_lines(
    changes: &ChangesView,
    workflow: Option<WorkflowId>,
    all: bool,
    width: Option<usize>,
    paint: Paint,
) -> Vec<String> {
    let with = match workflow {
        Some(_) => "since its last run".to_owned(),
        None => format!("compared with workflow {}", changes.compared_with),
    };
    let (runs, reused) = (changes.summary.runs(), changes.summary.reused);
    if runs == 0 {
        return vec![format!("{with}, nothing has changed: all {reused} are reused")];
    }
    let mut lines = vec![format!("{with}: {} run, {reused} reused", text::count(runs.into(), "job"))];
    let named = if all { usize::MAX } else { NAMED };
    lines.extend(reason_table(&changes.run, named).render(width, paint));
    if changes.run.len() > named {
        lines.push(format!(
            "… and {}; --all lists them",
            text::count((changes.run.len() - named) as u64, "more job")
        ));
    }
    lines
}

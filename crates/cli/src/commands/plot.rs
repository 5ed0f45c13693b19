//! `windlass resources plot`: draws CPU, memory and jobs of a run over time as an HTML page.

use crate::args::resources::PlotResourcesArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::job_logs;
use crate::object_selection;
use crate::output_files;
use crate::resource_samples::{self, RunSamples};
use crate::ui::attempt_end::AttemptEndSummary;
use crate::ui::text;
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use windlass_render::StatusTone;
use windlass_render::usage_plot::{self, AttemptBar, PlotJob, PlotLimits, UsagePlot};
use windlass_store::Store;
use windlass_store::model::{JobFilter, LoadedJobs, ResultFilter, ResultRow, WorkflowRow};
use windlass_types::{Attempt, JobId, JobStatus, RunId, Timestamp, WorkflowId, format_duration};

const PAGE_SIZE: u64 = 2000;
/// Maximum number of bars: the longest attempts are drawn.
const MAX_BARS: usize = 3000;

#[derive(Serialize)]
struct ResourcePlotView {
    workflow_id: WorkflowId,
    run_id: RunId,
    path: PathBuf,
    /// Number of attempts.
    attempts: usize,
    /// Number of attempts with a bar.
    bars: usize,
    /// Number of attempts and hosts with lines.
    series: usize,
}

pub(crate) fn plot_resources(ctx: &CliContext, args: &PlotResourcesArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    let run = args.run.unwrap_or(row.run_id);
    let path = match &args.output {
        Some(path) => ctx.cwd.join(path),
        None => default_path(&row, run),
    };
    let view = write_plot(ctx, &*store, &row, run, &path)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&view)?;
    } else {
        ctx.ui.print_line(&job_logs::short_path(&view.path, &ctx.cwd))?;
        if view.bars < view.attempts {
            ctx.ui.print_note(&format!("the longest {} of {} attempts are drawn", view.bars, view.attempts));
        }
        if view.series == 0 {
            ctx.ui.print_note("no samples were kept, so only bars are drawn; `windlass resources plot --help` explains how to keep samples");
        }
    }
    Ok(CliExit::Success)
}

/// At the end of a run, for workflows that ask for it. A plot that fails does not fail the run.
pub(crate) fn plot_after_run(ctx: &CliContext, store: &dyn Store, workflow: WorkflowId) {
    let Ok(Some(row)) = store.workflow(workflow) else { return };
    if !row.settings.resource_monitor.is_some_and(|monitor| monitor.generate_plots) {
        return;
    }
    let path = default_path(&row, row.run_id);
    match write_plot(ctx, store, &row, row.run_id, &path) {
        Ok(_) => ctx.ui.print_note(&format!("wrote {}", job_logs::short_path(&path, &ctx.cwd))),
        Err(error) => ctx.ui.print_warning(&format!("cannot plot the resources: {error}")),
    }
}

fn default_path(row: &WorkflowRow, run: RunId) -> PathBuf {
    Path::new(&row.output_dir).join(format!("resources_wf{}_r{run}.html", row.id))
}

fn write_plot(
    ctx: &CliContext,
    store: &dyn Store,
    row: &WorkflowRow,
    run: RunId,
    path: &Path,
) -> Result<ResourcePlotView, CliError> {
    let samples = resource_samples::load_samples(row, run)?;
    let attempts = load_attempts(ctx, store, row, run)?;
    let Some(origin) = attempts.iter().map(|one| one.start).chain(samples.first_sample_time()).min() else {
        return Err(CliError::user(format!(
            "workflow {} ({}) has no data to plot for run {run}",
            row.id, row.name
        ))
        .with_hint("`windlass jobs results --all-runs` lists the attempts of each run"));
    };
    let table = store.load_jobs(row.id)?;
    let usage = build_usage_page(row, run, origin, &samples, &attempts, &table);
    let is_svg = path.extension().is_some_and(|extension| extension == "svg");
    let text =
        if is_svg { usage_plot::render_usage_svg(&usage) } else { usage_plot::render_usage_html(&usage) };
    output_files::replace_file(path, &text)?;
    let series = usage.jobs.len() + usize::from(!usage.node.memory.is_empty());
    Ok(ResourcePlotView {
        workflow_id: row.id,
        run_id: run,
        path: path.to_owned(),
        attempts: usage.attempts,
        bars: usage.bars.len(),
        series,
    })
}

/// When an attempt ran, and its outcome.
struct AttemptSpan {
    job: JobId,
    attempt: Attempt,
    name: String,
    start: Timestamp,
    end: Timestamp,
    tone: StatusTone,
    note: String,
}

fn load_attempts(
    ctx: &CliContext,
    store: &dyn Store,
    row: &WorkflowRow,
    run: RunId,
) -> Result<Vec<AttemptSpan>, CliError> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let filter =
            ResultFilter { run: Some(run), after, limit: Some(PAGE_SIZE), ..ResultFilter::default() };
        let page = store.results(row.id, &filter)?;
        let Some(last) = page.last().map(|row| row.key) else { break };
        after = Some((last.job_id, last.run_id, last.attempt_id));
        found.extend(page.into_iter().filter_map(span_from_result));
    }
    if run == row.run_id {
        let running = JobFilter { status: vec![JobStatus::Running], ..JobFilter::default() };
        let now = ctx.clock.now();
        found.extend(store.jobs(row.id, &running)?.into_iter().filter_map(|job| {
            Some(AttemptSpan {
                job: job.id,
                attempt: job.attempt_id,
                name: job.name,
                start: job.started_at?,
                end: now,
                tone: StatusTone::Active,
                note: "still running".to_owned(),
            })
        }));
    }
    Ok(found)
}

fn span_from_result(row: ResultRow) -> Option<AttemptSpan> {
    let how = match row.status {
        JobStatus::Completed => "completed".to_owned(),
        _ => AttemptEndSummary::from(&row).describe(),
    };
    let memory = row.peak_memory_bytes.map(|peak| format!(", at most {peak}")).unwrap_or_default();
    Some(AttemptSpan {
        job: row.key.job_id,
        attempt: row.key.attempt_id,
        start: row.started_at?,
        end: row.ended_at,
        tone: match row.status {
            JobStatus::Completed => StatusTone::Good,
            JobStatus::Canceled => StatusTone::Quiet,
            _ => StatusTone::Bad,
        },
        note: format!("{how} in {}{memory}", format_duration(row.wall)),
        name: row.job_name,
    })
}

fn build_usage_page(
    row: &WorkflowRow,
    run: RunId,
    origin: Timestamp,
    samples: &RunSamples,
    attempts: &[AttemptSpan],
    table: &LoadedJobs,
) -> UsagePlot {
    let names: HashMap<(JobId, Attempt), &AttemptSpan> =
        attempts.iter().map(|ran| ((ran.job, ran.attempt), ran)).collect();
    let job = |(key, points): (&(JobId, Attempt), &Vec<_>)| PlotJob {
        name: attempt_label(names.get(key).map(|ran| ran.name.as_str()), key.0, key.1),
        series: resource_samples::to_series(points, origin),
        requested: requested_limits(table, key.0),
    };
    let mut longest: Vec<&AttemptSpan> = attempts.iter().collect();
    if longest.len() > MAX_BARS {
        longest.sort_by_key(|ran| std::cmp::Reverse(ran.end.since(ran.start)));
        longest.truncate(MAX_BARS);
    }
    longest.sort_by_key(|ran| (ran.start, ran.job));
    UsagePlot {
        title: format!("{}, workflow {}, run {run}", text::one_line(&row.name), row.id),
        origin,
        node: resource_samples::to_series(&samples.node, origin),
        node_limits: samples.limits,
        jobs: samples.jobs.iter().map(job).collect(),
        bars: longest.into_iter().map(|ran| attempt_bar(ran, origin)).collect(),
        attempts: attempts.len(),
    }
}

fn attempt_bar(ran: &AttemptSpan, origin: Timestamp) -> AttemptBar {
    AttemptBar {
        name: attempt_label(Some(&ran.name), ran.job, ran.attempt),
        start: ran.start.since(origin).as_secs_f64(),
        end: ran.end.since(origin).as_secs_f64(),
        tone: ran.tone,
        end_note: ran.note.clone(),
    }
}

/// The first attempt is labeled with the job name alone.
fn attempt_label(name: Option<&str>, job: JobId, attempt: Attempt) -> String {
    let name = name.map_or_else(|| format!("job {job}"), str::to_owned);
    if attempt.0 > 1 { format!("{name} (attempt {attempt})") } else { name }
}

/// The requirements of a job, if it has any.
fn requested_limits(table: &LoadedJobs, job: JobId) -> PlotLimits {
    let Ok(number) = table.ids.binary_search(&job) else { return PlotLimits::default() };
    match table.class[number] {
        0 => PlotLimits::default(),
        class => {
            let resources = &table.requirements[class as usize];
            PlotLimits { cpus: Some(resources.cpus.into()), memory: Some(resources.memory.0 as f64) }
        }
    }
}

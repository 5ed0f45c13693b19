//! `windlass plot resources`: CPU, memory and the jobs of a run over time, as one page.

use crate::args::resources::{PlotArgs, PlotResourcesArgs, PlotWhat};
use crate::context::Context;
use crate::deliver;
use crate::error::{CliError, Exit};
use crate::job_logs;
use crate::recordings::{self, Samples};
use crate::select;
use crate::ui::outcome::Outcome;
use crate::ui::text;
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use windlass_draw::Tone;
use windlass_draw::usage::{self, Bar, JobUsage, Limits, Usage};
use windlass_store::Store;
use windlass_store::model::{JobFilter, LoadedJobs, ResultFilter, ResultRow, WorkflowRow};
use windlass_types::{Attempt, JobId, JobStatus, RunId, Timestamp, WorkflowId, format_duration};

const PAGE: u64 = 2000;
/// More bars than this are no picture any more: the longest are drawn.
const MOST_BARS: usize = 3000;

pub(crate) fn run(ctx: &Context, args: &PlotArgs) -> Result<Exit, CliError> {
    match &args.what {
        PlotWhat::Resources(args) => resources(ctx, args),
    }
}

#[derive(Serialize)]
struct PlotView {
    workflow_id: WorkflowId,
    run_id: RunId,
    path: PathBuf,
    /// How many attempts there were.
    attempts: usize,
    /// How many of them have a bar.
    bars: usize,
    /// How many of them, and of machines, have lines.
    series: usize,
}

pub(crate) fn resources(ctx: &Context, args: &PlotResourcesArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let row = select::workflow(&*store, &args.workflow)?;
    let run = args.run.unwrap_or(row.run_id);
    let path = match &args.output {
        Some(path) => ctx.cwd.join(path),
        None => default_path(&row, run),
    };
    let view = draw(ctx, &*store, &row, run, &path)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&view)?;
    } else {
        ctx.ui.print_line(&job_logs::short(&view.path, &ctx.cwd))?;
        if view.bars < view.attempts {
            ctx.ui.note(&format!("the longest {} of {} attempts are drawn", view.bars, view.attempts));
        }
        if view.series == 0 {
            ctx.ui.note("no samples were kept, so there are only bars; `windlass plot resources --help` says how to keep them");
        }
    }
    Ok(Exit::Success)
}

/// At the end of a run, for workflows that ask for it. A picture that cannot be drawn spoils no run.
pub(crate) fn after_run(ctx: &Context, store: &dyn Store, workflow: WorkflowId) {
    let Ok(Some(row)) = store.workflow(workflow) else { return };
    if !row.settings.resource_monitor.is_some_and(|monitor| monitor.generate_plots) {
        return;
    }
    let path = default_path(&row, row.run_id);
    match draw(ctx, store, &row, row.run_id, &path) {
        Ok(_) => ctx.ui.note(&format!("drew {}", job_logs::short(&path, &ctx.cwd))),
        Err(error) => ctx.ui.warn(&format!("the resources could not be drawn: {error}")),
    }
}

fn default_path(row: &WorkflowRow, run: RunId) -> PathBuf {
    Path::new(&row.output_dir).join(format!("resources_wf{}_r{run}.html", row.id))
}

fn draw(
    ctx: &Context,
    store: &dyn Store,
    row: &WorkflowRow,
    run: RunId,
    path: &Path,
) -> Result<PlotView, CliError> {
    let samples = recordings::read(row, run)?;
    let attempts = attempts(ctx, store, row, run)?;
    let Some(origin) = attempts.iter().map(|one| one.start).chain(samples.first()).min() else {
        return Err(CliError::user(format!(
            "workflow {} ({}) has nothing to draw: nothing of run {run} is known",
            row.id, row.name
        ))
        .with_hint("`windlass results --all-runs` shows what ran in which run"));
    };
    let table = store.load_jobs(row.id)?;
    let usage = picture(row, run, origin, &samples, &attempts, &table);
    let is_svg = path.extension().is_some_and(|extension| extension == "svg");
    let text = if is_svg { usage::svg(&usage) } else { usage::html(&usage) };
    deliver::replace(path, &text)?;
    let series = usage.jobs.len() + usize::from(!usage.node.memory.is_empty());
    Ok(PlotView {
        workflow_id: row.id,
        run_id: run,
        path: path.to_owned(),
        attempts: usage.attempts,
        bars: usage.bars.len(),
        series,
    })
}

/// When an attempt ran, and how it ended.
struct Ran {
    job: JobId,
    attempt: Attempt,
    name: String,
    start: Timestamp,
    end: Timestamp,
    tone: Tone,
    note: String,
}

fn attempts(ctx: &Context, store: &dyn Store, row: &WorkflowRow, run: RunId) -> Result<Vec<Ran>, CliError> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let filter = ResultFilter { run: Some(run), after, limit: Some(PAGE), ..ResultFilter::default() };
        let page = store.results(row.id, &filter)?;
        let Some(last) = page.last().map(|row| row.key) else { break };
        after = Some((last.job_id, last.run_id, last.attempt_id));
        found.extend(page.into_iter().filter_map(ended));
    }
    if run == row.run_id {
        let running = JobFilter { status: vec![JobStatus::Running], ..JobFilter::default() };
        let now = ctx.clock.now();
        found.extend(store.jobs(row.id, &running)?.into_iter().filter_map(|job| {
            Some(Ran {
                job: job.id,
                attempt: job.attempt_id,
                name: job.name,
                start: job.started_at?,
                end: now,
                tone: Tone::Active,
                note: "still running".to_owned(),
            })
        }));
    }
    Ok(found)
}

fn ended(row: ResultRow) -> Option<Ran> {
    let how = match row.status {
        JobStatus::Completed => "completed".to_owned(),
        _ => Outcome::from(&row).describe(),
    };
    let memory = row.peak_memory_bytes.map(|peak| format!(", at most {peak}")).unwrap_or_default();
    Some(Ran {
        job: row.key.job_id,
        attempt: row.key.attempt_id,
        start: row.started_at?,
        end: row.ended_at,
        tone: match row.status {
            JobStatus::Completed => Tone::Good,
            JobStatus::Canceled => Tone::Quiet,
            _ => Tone::Bad,
        },
        note: format!("{how} in {}{memory}", format_duration(row.wall)),
        name: row.job_name,
    })
}

fn picture(
    row: &WorkflowRow,
    run: RunId,
    origin: Timestamp,
    samples: &Samples,
    attempts: &[Ran],
    table: &LoadedJobs,
) -> Usage {
    let names: HashMap<(JobId, Attempt), &Ran> =
        attempts.iter().map(|ran| ((ran.job, ran.attempt), ran)).collect();
    let job = |(key, points): (&(JobId, Attempt), &Vec<_>)| JobUsage {
        name: label(names.get(key).map(|ran| ran.name.as_str()), key.0, key.1),
        series: recordings::series(points, origin),
        asked: asked(table, key.0),
    };
    let mut longest: Vec<&Ran> = attempts.iter().collect();
    if longest.len() > MOST_BARS {
        longest.sort_by_key(|ran| std::cmp::Reverse(ran.end.since(ran.start)));
        longest.truncate(MOST_BARS);
    }
    longest.sort_by_key(|ran| (ran.start, ran.job));
    Usage {
        title: format!("{}, workflow {}, run {run}", text::one_line(&row.name), row.id),
        origin,
        node: recordings::series(&samples.node, origin),
        node_limits: samples.limits,
        jobs: samples.jobs.iter().map(job).collect(),
        bars: longest.into_iter().map(|ran| bar(ran, origin)).collect(),
        attempts: attempts.len(),
    }
}

fn bar(ran: &Ran, origin: Timestamp) -> Bar {
    Bar {
        name: label(Some(&ran.name), ran.job, ran.attempt),
        start: ran.start.since(origin).as_secs_f64(),
        end: ran.end.since(origin).as_secs_f64(),
        tone: ran.tone,
        note: ran.note.clone(),
    }
}

/// The first attempt of a job is the job; later ones say so.
fn label(name: Option<&str>, job: JobId, attempt: Attempt) -> String {
    let name = name.map_or_else(|| format!("job {job}"), str::to_owned);
    if attempt.0 > 1 { format!("{name} (attempt {attempt})") } else { name }
}

/// What a job asked for, if it asked for anything.
fn asked(table: &LoadedJobs, job: JobId) -> Limits {
    let Ok(number) = table.ids.binary_search(&job) else { return Limits::default() };
    match table.class[number] {
        0 => Limits::default(),
        class => {
            let resources = &table.requirements[class as usize];
            Limits { cpus: Some(resources.cpus.into()), memory: Some(resources.memory.0 as f64) }
        }
    }
}

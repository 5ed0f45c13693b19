//! `windlass why`: where a job stands, what speaks for it, and what to type next.
//!
//! The verdict is a pure function (`windlass_core::why`); here the facts are gathered from the books and the logs, and
//! the answer is shown.

use crate::args::plan::WhyArgs;
use crate::context::Context;
use crate::error::{CliError, Exit, Kind};
use crate::ui::style::{Paint, Tone};
use crate::ui::text;
use crate::{job_logs, select, tail, view};
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;
use windlass_core::why::{
    self, Chain, Evidence, Jobs, Link, Log, Offer, Outcome, Situation, Verdict, Workflow,
};
use windlass_engine::service::TROUBLE;
use windlass_store::Store;
use windlass_store::model::{EventFilter, JobFilter, JobRow, ResultFilter, ResultRow, WorkflowRow};
use windlass_types::{Bytes, Capacity, JobId, JobStatus};

/// So much of the end of each log is searched for what went wrong.
const LOG_LINES: usize = 2000;
/// So many of its siblings tell how long a job usually takes.
const SIBLINGS: u64 = 50;

pub(crate) fn run(ctx: &Context, args: &WhyArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let job = select::job(&*store, &workflow, &args.job, "--workflow")?;
    let verdict = judge(ctx, &*store, &workflow, &job)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&verdict)?;
    } else {
        ctx.ui.print_lines(&render(&verdict, &workflow, ctx.ui.paint_out()))?;
    }
    Ok(Exit::Success)
}

/// Gathers what is known about the job and asks for the verdict.
fn judge(
    ctx: &Context,
    store: &dyn Store,
    workflow: &WorkflowRow,
    job: &JobRow,
) -> Result<Verdict, CliError> {
    let table = store.load_jobs(workflow.id)?;
    let number = table.ids.binary_search(&job.id).map_err(|_| gone(job.id))?;
    let newest = newest_result(store, workflow, job.id)?;
    let outcome = newest.as_ref().map(outcome_of);
    let logs = newest.as_ref().map(|row| read_logs(ctx, workflow, row)).transpose()?.unwrap_or_default();
    let quoted: Vec<Log<'_>> = logs.iter().map(ReadLog::quoted).collect();
    let (workers, is_served) = (offers(ctx, store, workflow)?, ctx.server()?.is_some());
    let labels = table.place_of(number).labels;
    let trouble = if job.status == JobStatus::Ready { trouble(store, workflow)? } else { None };
    let class = table.class[number];
    let situation = Situation {
        now: ctx.clock.now(),
        id: job.id,
        job: number as u32,
        asked: (class != 0).then(|| table.requirements[class as usize]),
        started_at: job.started_at,
        not_before: table
            .carried
            .iter()
            .find(|(job, _)| *job == number as u32)
            .and_then(|(_, it)| it.not_before),
        outcome: outcome.as_ref(),
        labels: &labels,
        trouble: trouble.as_deref(),
        usual: usual_time(store, workflow, job)?,
        logs: &quoted,
        workflow: Workflow {
            id: workflow.id,
            is_canceled: workflow.is_canceled,
            is_driven: view::is_run_by_somebody(store, workflow),
            is_served,
            workers: &workers,
        },
        graph: Jobs {
            count: table.ids.len() as u32,
            edges: &table.edges,
            id: &|number| table.ids[number as usize],
            name: &|number| name(store, table.ids[number as usize]),
            status: &|number| table.status[number as usize],
            outcome: &|number| {
                // A name or an end that cannot be read is left out: the rest of the answer is worth having.
                newest_result(store, workflow, table.ids[number as usize])
                    .ok()
                    .flatten()
                    .as_ref()
                    .map(outcome_of)
            },
        },
    };
    why::why(&situation).map_err(|cycle| CliError::new(Kind::Spec, cycle.to_string()))
}

/// Those who may work on it.
fn offers(ctx: &Context, store: &dyn Store, workflow: &WorkflowRow) -> Result<Vec<Offer>, CliError> {
    let Some(client) = ctx.server()? else {
        let workers = store.active_workers(Some(workflow.id))?.into_iter();
        return Ok(workers.map(|row| Offer::of(row.worker.capacity)).collect());
    };
    let offer = |worker: windlass_client::Worker| Offer {
        name: format!("worker {} on {}", worker.id, worker.host),
        capacity: Capacity {
            cpus: worker.num_cpus,
            memory: Bytes(worker.memory_bytes),
            gpus: worker.num_gpus,
            nodes: 1,
            max_jobs: worker.max_jobs,
        },
        labels: worker.labels,
        is_draining: worker.is_draining,
        time_left: worker.time_left_seconds.map(|left| Duration::from_secs(left as u64)),
    };
    Ok(client.workers(Some(workflow.id))?.into_iter().map(offer).collect())
}

/// What the last worker said that could not start a job of the workflow.
fn trouble(store: &dyn Store, workflow: &WorkflowRow) -> Result<Option<String>, CliError> {
    let category = Some(TROUBLE.to_owned());
    let filter = EventFilter { category, newest: Some(1), ..EventFilter::default() };
    Ok(store.events(Some(workflow.id), &filter)?.pop().map(|event| event.message))
}

fn gone(job: JobId) -> CliError {
    CliError::internal(format!("job {job} is in the list of jobs but not in the workflow"))
}

fn name(store: &dyn Store, job: JobId) -> String {
    store.job_names(&[job]).ok().and_then(|mut names| names.pop()).unwrap_or_default()
}

/// Of the newest run in which it ran.
fn newest_result(
    store: &dyn Store,
    workflow: &WorkflowRow,
    job: JobId,
) -> Result<Option<ResultRow>, CliError> {
    let filter = ResultFilter { job: Some(job), ..ResultFilter::default() };
    let rows = store.results(workflow.id, &filter)?;
    Ok(rows.into_iter().max_by_key(|row| (row.key.run_id, row.key.attempt_id)))
}

fn outcome_of(row: &ResultRow) -> Outcome {
    Outcome {
        attempt: row.key.attempt_id,
        status: row.status,
        return_code: row.return_code,
        signal: row.signal,
        out_of_memory: row.out_of_memory,
        reason: row.reason.clone(),
        ended_at: row.ended_at,
        wall: row.wall,
        peak_memory: row.peak_memory_bytes,
    }
}

/// How long completed jobs of the same kind took: the median, if there are enough to speak of a custom.
fn usual_time(store: &dyn Store, workflow: &WorkflowRow, job: &JobRow) -> Result<Option<Duration>, CliError> {
    if job.status != JobStatus::Running || job.kind.is_none() {
        return Ok(None);
    }
    let Some(kind) = store.kinds(workflow.id)?.into_iter().find(|kind| Some(&kind.name) == job.kind.as_ref())
    else {
        return Ok(None);
    };
    let filter = JobFilter {
        kind: Some(kind.id),
        status: vec![JobStatus::Completed],
        limit: Some(SIBLINGS),
        ..JobFilter::default()
    };
    let mut walls = Vec::new();
    for sibling in store.jobs(workflow.id, &filter)? {
        walls.extend(newest_result(store, workflow, sibling.id)?.map(|row| row.wall));
    }
    walls.sort_unstable();
    Ok((walls.len() >= 3).then(|| walls[walls.len() / 2]))
}

/// The end of a log.
struct ReadLog {
    name: String,
    text: String,
    skipped_lines: usize,
}

impl ReadLog {
    fn quoted(&self) -> Log<'_> {
        Log { name: &self.name, text: &self.text, skipped_lines: self.skipped_lines }
    }
}

/// What most likely says why comes first.
fn read_logs(ctx: &Context, workflow: &WorkflowRow, row: &ResultRow) -> Result<Vec<ReadLog>, CliError> {
    let paths = job_logs::written(workflow, row.key.into()).into_iter().map(|(_, path)| path);
    let read = |path: std::path::PathBuf| {
        let name = job_logs::short(&path, &ctx.cwd);
        let unreadable = |e: std::io::Error| CliError::io(format!("cannot read {name}: {e}"));
        match read_end(&path) {
            // An attempt that printed nothing leaves no file.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            end => Some(end.map_err(unreadable).map(|(text, skipped_lines)| ReadLog {
                name: name.clone(),
                text,
                skipped_lines,
            })),
        }
    };
    paths.filter_map(read).collect()
}

/// The last lines, and how many come before them.
fn read_end(path: &Path) -> std::io::Result<(String, usize)> {
    let mut file = std::fs::File::open(path)?;
    tail::skip_to_last_lines(&mut file, LOG_LINES)?;
    let start = std::io::Seek::stream_position(&mut file)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let skipped_lines = count_lines(path, start)?;
    Ok((String::from_utf8_lossy(&text).into_owned(), skipped_lines))
}

fn count_lines(path: &Path, end: u64) -> std::io::Result<usize> {
    let mut rest = std::fs::File::open(path)?.take(end);
    let mut buffer = vec![0; 64 * 1024];
    let mut lines = 0;
    loop {
        match rest.read(&mut buffer)? {
            0 => return Ok(lines),
            n => lines += buffer[..n].split(|byte| *byte == b'\n').count() - 1,
        }
    }
}

fn render(verdict: &Verdict, workflow: &WorkflowRow, paint: Paint) -> Vec<String> {
    let title = paint.apply(Tone::Bold, &text::one_line(&verdict.name));
    let status = paint.apply(Tone::of(verdict.status), verdict.status.name());
    let place =
        format!("job {} of workflow {} ({})", verdict.job, workflow.id, text::one_line(&workflow.name));
    let mut lines =
        vec![format!("{title}, {place}: {status}"), format!("  {}", text::one_line(&verdict.headline))];
    section(&mut lines, "Evidence", verdict.evidence.iter().flat_map(|one| evidence(one, paint)), paint);
    let chain = verdict.chain.iter().flat_map(|chain| chain_lines(chain, paint));
    section(&mut lines, "Because of", chain, paint);
    let width = verdict.next.iter().map(|next| text::width(&next.command)).max().unwrap_or(0);
    let next = verdict.next.iter().map(|next| {
        let blanks = " ".repeat(width - text::width(&next.command));
        format!("{}{blanks}  {}", next.command, paint.apply(Tone::Dim, &next.does))
    });
    section(&mut lines, "Next", next, paint);
    lines
}

fn section(lines: &mut Vec<String>, title: &str, content: impl Iterator<Item = String>, paint: Paint) {
    let mut content = content.peekable();
    if content.peek().is_some() {
        lines.push(String::new());
        lines.push(paint.apply(Tone::Bold, title));
        lines.extend(content.map(|line| format!("  {line}")));
    }
}

fn evidence(evidence: &Evidence, paint: Paint) -> Vec<String> {
    match evidence {
        Evidence::Fact { text } => vec![text::one_line(text)],
        Evidence::LogLine { log, line, text, means } => {
            let place = paint.apply(Tone::Dim, &format!("{log}:{line}:"));
            vec![format!("{place} {}", text::one_line(text)), format!("    {means}")]
        }
    }
}

/// The way to the first cause, one step deeper on each line, then the other causes.
fn chain_lines(chain: &Chain, paint: Paint) -> Vec<String> {
    let mut lines: Vec<String> = chain
        .links
        .iter()
        .enumerate()
        .map(|(depth, link)| format!("{}{}", "  ".repeat(depth), link_line(link, paint)))
        .collect();
    lines.extend(chain.roots.iter().skip(1).map(|root| format!("also {}", link_line(root, paint))));
    let unnamed = (chain.root_count as usize).saturating_sub(chain.roots.len());
    if unnamed > 0 {
        lines.push(format!("and {}", text::count(unnamed as u64, "more job")));
    }
    lines
}

fn link_line(link: &Link, paint: Paint) -> String {
    // How it ended mostly says again what its state is.
    let words = match &link.note {
        Some(note) if note.starts_with(link.status.name()) => note.clone(),
        Some(note) => format!("{}, {note}", link.status),
        None => link.status.to_string(),
    };
    let words = paint.apply(Tone::of(link.status), &text::one_line(&words));
    format!("{} ({}): {words}", text::one_line(&link.name), link.job)
}

//! `windlass why`: where a job stands, what speaks for it, and what to type next.
//!
//! What is known is gathered and judged by `windlass_insight::why`; here the answer is shown.

use crate::args::MachineArgs;
use crate::args::plan::WhyArgs;
use crate::context::Context;
use crate::error::{CliError, Exit, Kind};
use crate::history::History;
use crate::recovery::local_room;
use crate::ui::style::{Paint, Tone};
use crate::ui::text;
use crate::{job_logs, select};
use serde::Serialize;
use std::time::Duration;
use windlass_core::why::{Chain, Evidence, Link, Offer, Verdict};
use windlass_insight::why;
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{Bytes, Capacity};

/// For programs.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    verdict: Verdict,
    #[serde(flatten)]
    history: History,
}

pub(crate) fn run(ctx: &Context, args: &WhyArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let job = select::job(&*store, &workflow, &args.job, "--workflow")?;
    let workers = offers(ctx, &*store, &workflow)?;
    let asker = why::Asker {
        now: ctx.clock.now(),
        is_served: ctx.server()?.is_some(),
        workers: &workers,
        name_of: &|path| job_logs::short(path, &ctx.cwd),
    };
    let verdict = why::explain(&*store, &workflow, &job, asker)?;
    let history = History::of(&*store, workflow.id, job.id)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&Answer { verdict, history })?;
    } else {
        ctx.ui.print_lines(&render(&verdict, &history, &workflow, ctx.ui.paint_out()))?;
    }
    Ok(Exit::Success)
}

/// Those who may work on it.
fn offers(ctx: &Context, store: &dyn Store, workflow: &WorkflowRow) -> Result<Vec<Offer>, CliError> {
    let Some(client) = ctx.server()? else {
        // If nothing runs it: what this machine would have for it.
        let room = local_room(store, workflow.id, &MachineArgs::default())?;
        return Ok(room.takers.into_iter().map(|taker| Offer::of(taker.has)).collect());
    };
    Ok(client.workers(Some(workflow.id))?.into_iter().map(offer).collect())
}

/// What a worker of a server can do, as it is told of it.
pub(crate) fn offer(worker: windlass_client::Worker) -> Offer {
    Offer {
        name: format!("worker {} on {}", worker.id, worker.host),
        worker: Some(worker.id),
        silence: worker.silence_seconds.and_then(|silence| Duration::try_from_secs_f64(silence).ok()),
        capacity: Capacity {
            cpus: worker.num_cpus,
            memory: Bytes(worker.memory_bytes),
            gpus: worker.num_gpus,
            nodes: 1,
            max_jobs: worker.max_jobs,
        },
        labels: worker.labels,
        site: worker.site,
        is_draining: worker.is_draining,
        time_left: worker.time_left_seconds.map(|left| Duration::from_secs(left as u64)),
    }
}

fn render(verdict: &Verdict, history: &History, workflow: &WorkflowRow, paint: Paint) -> Vec<String> {
    let title = paint.apply(Tone::Bold, &text::one_line(&verdict.name));
    let status = paint.apply(Tone::of(verdict.status), verdict.status.name());
    let place =
        format!("job {} of workflow {} ({})", verdict.job, workflow.id, text::one_line(&workflow.name));
    let mut lines =
        vec![format!("{title}, {place}: {status}"), format!("  {}", text::one_line(&verdict.headline))];
    section(&mut lines, "Evidence", verdict.evidence.iter().flat_map(|one| evidence(one, paint)), paint);
    let chain = verdict.chain.iter().flat_map(|chain| chain_lines(chain, paint));
    section(&mut lines, "Because of", chain, paint);
    section(&mut lines, "Decisions and changes", history.lines().into_iter(), paint);
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

impl From<why::Error> for CliError {
    fn from(error: why::Error) -> Self {
        match error {
            why::Error::Store(error) => error.into(),
            why::Error::Log { .. } => Self::io(error.to_string()),
            why::Error::Cycle(_) => Self::new(Kind::Spec, error.to_string()),
            why::Error::Gone(_) => Self::internal(error.to_string()),
        }
    }
}

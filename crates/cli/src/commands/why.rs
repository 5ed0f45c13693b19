//! `windlass why`: explains the state of a job, with evidence and the next command.
//!
//! `windlass_insight::why` collects and evaluates the facts; this module shows the result.

use crate::args::MachineArgs;
use crate::args::plan_and_reset::WhyArgs;
use crate::context::CliContext;
use crate::decision_history::DecisionHistory;
use crate::error::{CliError, CliErrorKind, CliExit};
use crate::recovery::local_capacity;
use crate::ui::style::{TextPainter, TextTone};
use crate::ui::text;
use crate::{job_logs, object_selection};
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;
use windlass_core::job_explanation::{
    BlockingChain, ChainLink, ExplanationEvidence, JobExplanation, WorkerAvailability,
};
use windlass_insight::explain;
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{Bytes, Capacity};

/// JSON output.
#[derive(Serialize)]
struct WhyView {
    #[serde(flatten)]
    explanation: JobExplanation,
    #[serde(flatten)]
    history: DecisionHistory,
}

pub(crate) fn run(ctx: &CliContext, args: &WhyArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let job = object_selection::find_job(&*store, &workflow, &args.job, "--workflow")?;
    let workers = list_offers(ctx, &*store, &workflow)?;
    let context = explain::ExplainContext {
        now: ctx.clock.now(),
        is_on_server: ctx.server()?.is_some(),
        workers: &workers,
        name_file: &|path| job_logs::short_path(path, &ctx.cwd),
    };
    let explanation = explain::explain_job(&*store, &workflow, &job, context)?;
    let history = DecisionHistory::load(&*store, workflow.id, job.id)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&WhyView { explanation, history })?;
    } else {
        ctx.ui.print_lines(&render_explanation(
            &explanation,
            &history,
            &workflow,
            ctx.ui.stdout_painter(),
        ))?;
    }
    Ok(CliExit::Success)
}

/// The workers that may run the job.
fn list_offers(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: &WorkflowRow,
) -> Result<Vec<WorkerAvailability>, CliError> {
    let Some(client) = ctx.server()? else {
        // If no process runs the workflow: the resources of this machine.
        let eligible = local_capacity(store, workflow.id, &MachineArgs::default())?;
        return Ok(eligible
            .workers
            .into_iter()
            .map(|available| WorkerAvailability::from_capacity(available.capacity))
            .collect());
    };
    let offer = |worker: windlass_client::WorkerInfo| {
        // The list does not tell whether it was started for this user.
        let is_foreign = worker.user != workflow.user;
        let mut offer = worker_offer(worker);
        if is_foreign {
            write!(
                offer.name,
                " (of another user: runs jobs of {0} only with `--jobs-of {0}`)",
                workflow.user
            )
            .unwrap_or_default();
        }
        offer
    };
    Ok(client.workers(Some(workflow.id))?.into_iter().map(offer).collect())
}

/// The capacity of a worker, as the server reports it.
pub(crate) fn worker_offer(worker: windlass_client::WorkerInfo) -> WorkerAvailability {
    WorkerAvailability {
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

fn render_explanation(
    explanation: &JobExplanation,
    history: &DecisionHistory,
    workflow: &WorkflowRow,
    paint: TextPainter,
) -> Vec<String> {
    let title = paint.apply(TextTone::Bold, &text::one_line(&explanation.name));
    let status = paint.apply(TextTone::for_status(explanation.status), explanation.status.name());
    let place =
        format!("job {} of workflow {} ({})", explanation.job, workflow.id, text::one_line(&workflow.name));
    let mut lines =
        vec![format!("{title}, {place}: {status}"), format!("  {}", text::one_line(&explanation.headline))];
    render_section(
        &mut lines,
        "Evidence",
        explanation.evidence.iter().flat_map(|one| render_evidence(one, paint)),
        paint,
    );
    let chain = explanation.chain.iter().flat_map(|chain| render_chain(chain, paint));
    render_section(&mut lines, "Caused by", chain, paint);
    render_section(&mut lines, "Decisions and changes", history.render_lines().into_iter(), paint);
    let width = explanation.next.iter().map(|next| text::display_width(&next.command)).max().unwrap_or(0);
    let next = explanation.next.iter().map(|next| {
        let blanks = " ".repeat(width - text::display_width(&next.command));
        format!("{}{blanks}  {}", next.command, paint.apply(TextTone::Dim, &next.does))
    });
    render_section(&mut lines, "Next", next, paint);
    lines
}

fn render_section(
    lines: &mut Vec<String>,
    title: &str,
    content: impl Iterator<Item = String>,
    paint: TextPainter,
) {
    let mut content = content.peekable();
    if content.peek().is_some() {
        lines.push(String::new());
        lines.push(paint.apply(TextTone::Bold, title));
        lines.extend(content.map(|line| format!("  {line}")));
    }
}

fn render_evidence(evidence: &ExplanationEvidence, paint: TextPainter) -> Vec<String> {
    match evidence {
        ExplanationEvidence::Fact { text } => vec![text::one_line(text)],
        ExplanationEvidence::LogLine { log, line, text, means } => {
            let place = paint.apply(TextTone::Dim, &format!("{log}:{line}:"));
            vec![format!("{place} {}", text::one_line(text)), format!("    {means}")]
        }
    }
}

/// The path to the first cause, one level deeper per line, then the other causes.
fn render_chain(chain: &BlockingChain, paint: TextPainter) -> Vec<String> {
    let mut lines: Vec<String> = chain
        .links
        .iter()
        .enumerate()
        .map(|(depth, link)| format!("{}{}", "  ".repeat(depth), render_link(link, paint)))
        .collect();
    lines.extend(chain.roots.iter().skip(1).map(|root| format!("also {}", render_link(root, paint))));
    let unnamed = (chain.root_count as usize).saturating_sub(chain.roots.len());
    if unnamed > 0 {
        lines.push(format!("and {}", text::render_count(unnamed as u64, "more job")));
    }
    lines
}

fn render_link(link: &ChainLink, paint: TextPainter) -> String {
    // The outcome usually repeats the state.
    let words = match &link.note {
        Some(note) if note.starts_with(link.status.name()) => note.clone(),
        Some(note) => format!("{}, {note}", link.status),
        None => link.status.to_string(),
    };
    let words = paint.apply(TextTone::for_status(link.status), &text::one_line(&words));
    format!("{} ({}): {words}", text::one_line(&link.name), link.job)
}

impl From<explain::ExplainError> for CliError {
    fn from(error: explain::ExplainError) -> Self {
        match error {
            explain::ExplainError::Store(error) => error.into(),
            explain::ExplainError::Log { .. } => Self::io(error.to_string()),
            explain::ExplainError::Cycle(_) => Self::new(CliErrorKind::Spec, error.to_string()),
            explain::ExplainError::Gone(_) => Self::internal(error.to_string()),
        }
    }
}

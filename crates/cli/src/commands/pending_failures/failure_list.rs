//! Failures with their log excerpts: several in short form, or one in full.

use crate::args::OutputFormat;
use crate::args::failures::PendingFailuresArgs;
use crate::commands::failures::{JOB_FIELDS, render_ending};
use crate::context::CliContext;
use crate::decision_history::{self, DecisionHistory};
use crate::error::{CliError, CliExit};
use crate::failure_selection::{self, KEY_LENGTH};
use crate::object_selection;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::style::{TextPainter, TextTone};
use crate::ui::text;
use windlass_store::model::{DecisionFilter, DecisionRow, DecisionState, FailureRow, JobRow, WorkflowRow};
use windlass_types::JobStatus;

/// Default number of failures shown.
const DEFAULT_SHOWN: u64 = 20;

/// A failure with the proposals for it.
struct FailureWithProposals {
    failure: FailureRow,
    proposals: Vec<DecisionRow>,
}

pub(in crate::commands) fn list_pending_failures(
    ctx: &CliContext,
    args: &PendingFailuresArgs,
) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let mut rows = failure_selection::list_open_failures(&*store, &workflow, &args.filter)?;
    rows.retain(|row| row.job_status == JobStatus::PendingFailed);
    let all = rows.len() as u64;
    let shown =
        args.limit.unwrap_or(if ctx.ui.format() == OutputFormat::Table { DEFAULT_SHOWN } else { u64::MAX });
    rows.truncate(usize::try_from(shown).unwrap_or(usize::MAX));
    let filter = DecisionFilter {
        state: Some(DecisionState::Proposed),
        run: Some(workflow.run_id),
        ..DecisionFilter::default()
    };
    let proposed = store.decisions(workflow.id, &filter)?;
    let waiting = rows.into_iter().map(|failure| FailureWithProposals {
        proposals: proposed.iter().filter(|row| applies_to(row, &failure)).cloned().collect(),
        failure,
    });
    let waiting: Vec<FailureWithProposals> = waiting.collect();
    if ctx.ui.format() != OutputFormat::Table {
        return print_for_programs(ctx, waiting);
    }
    if waiting.is_empty() {
        ctx.ui.print_note(&no_failures_text(&workflow));
        return Ok(CliExit::Success);
    }
    let paint = ctx.ui.stdout_painter();
    let of = format!("workflow {} ({})", workflow.id, text::one_line(&workflow.name));
    let wait = if all == 1 { "waits" } else { "wait" };
    let mut lines = vec![format!("{of}: {} {wait} for a decision", text::render_count(all, "job"))];
    for one in &waiting {
        lines.push(String::new());
        lines.extend(render_short(one, args.lines, paint));
    }
    let left = all - waiting.len() as u64;
    if left > 0 {
        lines.push(String::new());
        lines.push(format!("… and {left} more; `windlass failures {}` lists them by group", workflow.id));
    }
    ctx.ui.print_lines(&lines)?;
    print_next_steps(ctx, &workflow, &waiting);
    Ok(CliExit::Success)
}

/// A proposal applies only to the attempt for which it was made.
fn applies_to(row: &DecisionRow, failure: &FailureRow) -> bool {
    row.job_id == failure.job_id && row.attempt_id == failure.attempt_id
}

fn no_failures_text(workflow: &WorkflowRow) -> String {
    let none =
        format!("no failures of workflow {} ({}) are waiting for a decision", workflow.id, workflow.name);
    if workflow.settings.use_pending_failed {
        none
    } else {
        format!("{none}: failures wait only in workflows with `use_pending_failed: true`")
    }
}

fn print_next_steps(ctx: &CliContext, workflow: &WorkflowRow, waiting: &[FailureWithProposals]) {
    let Some(first) = waiting.first() else { return };
    let name = text::shell_quote(&first.failure.job_name);
    let of = format!("-w {}", workflow.id);
    ctx.ui.print_note(&format!("next: windlass failures retry {name} {of}   (or fail, ignore)"));
    if let Some(proposal) = waiting.iter().flat_map(|one| &one.proposals).next() {
        ctx.ui.print_note(&format!("      windlass failures approve {}   (or decline)", proposal.id));
    }
}

fn render_short(one: &FailureWithProposals, lines: usize, paint: TextPainter) -> Vec<String> {
    let row = &one.failure;
    let name = paint.apply(TextTone::Bold, &text::one_line(&row.job_name));
    let key = row.signature.get(..KEY_LENGTH).unwrap_or(&row.signature);
    let mut shown = vec![format!(
        "{name} (job {}), attempt {}: {}, {}, group {key}",
        row.job_id,
        row.attempt_id,
        render_ending(row),
        row.class
    )];
    shown.extend(
        render_excerpt(row, lines)
            .map(|line| format!("  {}", paint.apply(TextTone::Dim, &format!("| {line}")))),
    );
    shown.extend(
        one.proposals.iter().map(|row| format!("  {}", paint.apply(TextTone::Warn, &render_proposal(row)))),
    );
    shown
}

/// The last lines of the log excerpt.
fn render_excerpt(row: &FailureRow, lines: usize) -> impl Iterator<Item = String> {
    let words = row.last_words.as_deref().unwrap_or_default().trim_end();
    let skipped = words.lines().count().saturating_sub(lines);
    words.lines().skip(skipped).map(text::one_line)
}

fn render_proposal(row: &DecisionRow) -> String {
    let sure = row.confidence.map(|sure| format!(", confidence {sure}")).unwrap_or_default();
    let what = decision_history::render_failure_command(row.kind, &row.changes);
    let why = if row.reason.is_empty() { String::new() } else { format!(": {}", row.reason) };
    text::one_line(&format!("proposal {} of {}{sure}: {what}{why}", row.id, row.made_by))
}

/// JSON output: the failures, each with its proposals.
fn print_for_programs(ctx: &CliContext, waiting: Vec<FailureWithProposals>) -> Result<CliExit, CliError> {
    if ctx.ui.format() == OutputFormat::Csv {
        let failures = waiting.into_iter().map(|one| one.failure).collect();
        ctx.ui.print_list(&ListFields::new(JOB_FIELDS), failures)?;
    } else {
        ctx.ui.print_list(&ListFields::new(FAILURE_FIELDS), waiting)?;
    }
    Ok(CliExit::Success)
}

const FAILURE_FIELDS: &[ListField<FailureWithProposals>] = &[
    ListField::new("job_id", |one: &FailureWithProposals| one.failure.job_id.0.into()),
    ListField::new("job_name", |one: &FailureWithProposals| (&one.failure.job_name).into()),
    ListField::new("run_id", |one: &FailureWithProposals| one.failure.run_id.0.into()),
    ListField::new("attempt_id", |one: &FailureWithProposals| one.failure.attempt_id.0.into()),
    ListField::new("return_code", |one: &FailureWithProposals| one.failure.return_code.into()),
    ListField::new("class", |one: &FailureWithProposals| one.failure.class.as_str().into()),
    ListField::new("rule", |one: &FailureWithProposals| one.failure.rule.as_ref().into()),
    ListField::new("signature", |one: &FailureWithProposals| (&one.failure.signature).into()),
    ListField::new("message", |one: &FailureWithProposals| (&one.failure.message).into()),
    ListField::new("line", |one: &FailureWithProposals| one.failure.line.as_ref().into()),
    ListField::new("why", |one: &FailureWithProposals| one.failure.why.as_ref().into()),
    ListField::new("host", |one: &FailureWithProposals| (&one.failure.host).into()),
    ListField::new("ended_at", |one: &FailureWithProposals| one.failure.ended_at.into()),
    ListField::new("log_tail", |one: &FailureWithProposals| one.failure.last_words.as_ref().into()),
    ListField::new("proposals", |one: &FailureWithProposals| {
        serde_json::to_value(&one.proposals).map_or(FieldValue::Empty, FieldValue::Json)
    }),
];

/// All failures of one job.
pub(super) fn render_full(
    ctx: &CliContext,
    workflow: &WorkflowRow,
    job: &JobRow,
    failures: &[FailureRow],
    history: &DecisionHistory,
) -> Vec<String> {
    let paint = ctx.ui.stdout_painter();
    let name = paint.apply(TextTone::Bold, &text::one_line(&job.name));
    let status = paint.apply(TextTone::for_status(job.status), job.status.name());
    let of = format!("job {} of workflow {} ({})", job.id, workflow.id, text::one_line(&workflow.name));
    let mut lines = vec![format!("{name}, {of}: {status}"), format!("  {}", text::one_line(&job.command))];
    for row in failures {
        lines.push(String::new());
        lines.push(
            paint.apply(TextTone::Bold, &format!("Attempt {}: {}", row.attempt_id, render_ending(row))),
        );
        lines.push(format!("  class {}{}, on {}", row.class, render_rule(row), text::one_line(&row.host)));
        lines.push(format!("  group {}: {}", row.signature, text::one_line(&row.message)));
        lines.extend(row.why.iter().map(|why| format!("  {}", text::one_line(why))));
        lines.extend(
            render_excerpt(row, usize::MAX)
                .map(|line| format!("  {}", paint.apply(TextTone::Dim, &format!("| {line}")))),
        );
    }
    if failures.is_empty() {
        lines.push("  no failures in this run".to_owned());
    }
    let history_lines = history.render_lines();
    if !history_lines.is_empty() {
        lines.push(String::new());
        lines.push(paint.apply(TextTone::Bold, "Decisions and changes"));
        lines.extend(history_lines.into_iter().map(|line| format!("  {line}")));
    }
    lines
}

fn render_rule(row: &FailureRow) -> String {
    row.rule.as_ref().map(|rule| format!(" (rule {})", text::one_line(rule))).unwrap_or_default()
}

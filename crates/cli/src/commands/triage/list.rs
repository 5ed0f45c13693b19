//! Failures with what they said: several in short, or one in full.

use crate::args::Format;
use crate::args::triage::TriageListArgs;
use crate::commands::failures::{JOBS, ending};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::failing::{self, KEY};
use crate::history::{self, History};
use crate::select;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::style::{Paint, Tone};
use crate::ui::text;
use windlass_store::model::{DecisionFilter, DecisionRow, DecisionState, FailureRow, JobRow, WorkflowRow};
use windlass_types::JobStatus;

/// So many are shown to people who say no other number.
const SHOWN: u64 = 20;

/// A failure, and what is proposed about it.
struct Waiting {
    failure: FailureRow,
    proposals: Vec<DecisionRow>,
}

pub(super) fn run(ctx: &Context, args: &TriageListArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let mut rows = failing::open(&*store, &workflow, &args.which)?;
    rows.retain(|row| row.job_status == JobStatus::PendingFailed);
    let all = rows.len() as u64;
    let shown = args.limit.unwrap_or(if ctx.ui.format() == Format::Table { SHOWN } else { u64::MAX });
    rows.truncate(usize::try_from(shown).unwrap_or(usize::MAX));
    let filter = DecisionFilter {
        state: Some(DecisionState::Proposed),
        run: Some(workflow.run_id),
        ..DecisionFilter::default()
    };
    let proposed = store.decisions(workflow.id, &filter)?;
    let waiting = rows.into_iter().map(|failure| Waiting {
        proposals: proposed.iter().filter(|row| is_about(row, &failure)).cloned().collect(),
        failure,
    });
    let waiting: Vec<Waiting> = waiting.collect();
    if ctx.ui.format() != Format::Table {
        return as_list(ctx, waiting);
    }
    if waiting.is_empty() {
        ctx.ui.note(&nothing(&workflow));
        return Ok(Exit::Success);
    }
    let paint = ctx.ui.paint_out();
    let of = format!("workflow {} ({})", workflow.id, text::one_line(&workflow.name));
    let wait = if all == 1 { "waits" } else { "wait" };
    let mut lines = vec![format!("{of}: {} {wait} for a decision", text::count(all, "job"))];
    for one in &waiting {
        lines.push(String::new());
        lines.extend(in_short(one, args.lines, paint));
    }
    let left = all - waiting.len() as u64;
    if left > 0 {
        lines.push(String::new());
        lines.push(format!("… and {left} more; `windlass failures {}` shows them in groups", workflow.id));
    }
    ctx.ui.print_lines(&lines)?;
    say_next(ctx, &workflow, &waiting);
    Ok(Exit::Success)
}

/// A proposal about a failure that something came after is about nothing.
fn is_about(row: &DecisionRow, failure: &FailureRow) -> bool {
    row.job_id == failure.job_id && row.attempt_id == failure.attempt_id
}

fn nothing(workflow: &WorkflowRow) -> String {
    let none = format!("nothing of workflow {} ({}) waits for a decision", workflow.id, workflow.name);
    if workflow.settings.use_pending_failed {
        none
    } else {
        format!("{none}: failures do so in workflows that say `use_pending_failed: true`")
    }
}

fn say_next(ctx: &Context, workflow: &WorkflowRow, waiting: &[Waiting]) {
    let Some(first) = waiting.first() else { return };
    let name = text::shell_quote(&first.failure.job_name);
    let of = format!("-w {}", workflow.id);
    ctx.ui.note(&format!("next: windlass triage retry {name} {of}   or fail, or ignore"));
    if let Some(proposal) = waiting.iter().flat_map(|one| &one.proposals).next() {
        ctx.ui.note(&format!("      windlass triage approve {}   or decline", proposal.id));
    }
}

fn in_short(one: &Waiting, lines: usize, paint: Paint) -> Vec<String> {
    let row = &one.failure;
    let name = paint.apply(Tone::Bold, &text::one_line(&row.job_name));
    let key = row.signature.get(..KEY).unwrap_or(&row.signature);
    let mut shown = vec![format!(
        "{name} (job {}), attempt {}: {}, {}, group {key}",
        row.job_id,
        row.attempt_id,
        ending(row),
        row.class
    )];
    shown.extend(tail(row, lines).map(|line| format!("  {}", paint.apply(Tone::Dim, &format!("| {line}")))));
    shown.extend(one.proposals.iter().map(|row| format!("  {}", paint.apply(Tone::Warn, &proposal(row)))));
    shown
}

/// The last lines of what it said.
fn tail(row: &FailureRow, lines: usize) -> impl Iterator<Item = String> {
    let words = row.last_words.as_deref().unwrap_or_default().trim_end();
    let skipped = words.lines().count().saturating_sub(lines);
    words.lines().skip(skipped).map(text::one_line)
}

fn proposal(row: &DecisionRow) -> String {
    let sure = row.confidence.map(|sure| format!(", sure to {sure}")).unwrap_or_default();
    let what = history::verdict(row.verdict, &row.changes);
    let why = if row.reason.is_empty() { String::new() } else { format!(": {}", row.reason) };
    text::one_line(&format!("proposal {} of {}{sure}: {what}{why}", row.id, row.made_by))
}

/// For programs: the failures, and beside each what is proposed.
fn as_list(ctx: &Context, waiting: Vec<Waiting>) -> Result<Exit, CliError> {
    if ctx.ui.format() == Format::Csv {
        let failures = waiting.into_iter().map(|one| one.failure).collect();
        ctx.ui.print_list(&Listing::new(JOBS), failures)?;
    } else {
        ctx.ui.print_list(&Listing::new(WAITING), waiting)?;
    }
    Ok(Exit::Success)
}

const WAITING: &[Field<Waiting>] = &[
    Field::new("job_id", |one: &Waiting| one.failure.job_id.0.into()),
    Field::new("job_name", |one: &Waiting| (&one.failure.job_name).into()),
    Field::new("run_id", |one: &Waiting| one.failure.run_id.0.into()),
    Field::new("attempt_id", |one: &Waiting| one.failure.attempt_id.0.into()),
    Field::new("return_code", |one: &Waiting| one.failure.return_code.into()),
    Field::new("class", |one: &Waiting| one.failure.class.as_str().into()),
    Field::new("rule", |one: &Waiting| one.failure.rule.as_ref().into()),
    Field::new("signature", |one: &Waiting| (&one.failure.signature).into()),
    Field::new("message", |one: &Waiting| (&one.failure.message).into()),
    Field::new("line", |one: &Waiting| one.failure.line.as_ref().into()),
    Field::new("why", |one: &Waiting| one.failure.why.as_ref().into()),
    Field::new("host", |one: &Waiting| (&one.failure.host).into()),
    Field::new("ended_at", |one: &Waiting| one.failure.ended_at.into()),
    Field::new("last_words", |one: &Waiting| one.failure.last_words.as_ref().into()),
    Field::new("proposals", |one: &Waiting| {
        serde_json::to_value(&one.proposals).map_or(Datum::Nothing, Datum::Json)
    }),
];

/// All about the failures of one job.
pub(super) fn in_full(
    ctx: &Context,
    workflow: &WorkflowRow,
    job: &JobRow,
    failures: &[FailureRow],
    history: &History,
) -> Vec<String> {
    let paint = ctx.ui.paint_out();
    let name = paint.apply(Tone::Bold, &text::one_line(&job.name));
    let status = paint.apply(Tone::of(job.status), job.status.name());
    let of = format!("job {} of workflow {} ({})", job.id, workflow.id, text::one_line(&workflow.name));
    let mut lines = vec![format!("{name}, {of}: {status}"), format!("  {}", text::one_line(&job.command))];
    for row in failures {
        lines.push(String::new());
        lines.push(paint.apply(Tone::Bold, &format!("Attempt {}: {}", row.attempt_id, ending(row))));
        lines.push(format!("  class {}{}, on {}", row.class, by_rule(row), text::one_line(&row.host)));
        lines.push(format!("  group {}: {}", row.signature, text::one_line(&row.message)));
        lines.extend(row.why.iter().map(|why| format!("  {}", text::one_line(why))));
        lines.extend(
            tail(row, usize::MAX).map(|line| format!("  {}", paint.apply(Tone::Dim, &format!("| {line}")))),
        );
    }
    if failures.is_empty() {
        lines.push("  it has not failed in this run".to_owned());
    }
    let told = history.lines();
    if !told.is_empty() {
        lines.push(String::new());
        lines.push(paint.apply(Tone::Bold, "Decisions and changes"));
        lines.extend(told.into_iter().map(|line| format!("  {line}")));
    }
    lines
}

fn by_rule(row: &FailureRow) -> String {
    row.rule.as_ref().map(|rule| format!(" (rule {})", text::one_line(rule))).unwrap_or_default()
}

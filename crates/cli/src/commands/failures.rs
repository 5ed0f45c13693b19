//! `windlass failures`: lists failures grouped by cause; retries, ignores or fails whole groups.

use super::{classify, pending_failures, revisions, workflow_parts};
use crate::args::OutputFormat;
use crate::args::failures::{FailuresArgs, FailuresListArgs, FailuresSubcommand};
use crate::commands::classify::class_value;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::failure_selection::{self, KEY_LENGTH};
use crate::object_selection;
use crate::ui::attempt_end::AttemptEndSummary;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::table::TableColumn;
use crate::ui::text;
use windlass_store::Store;
use windlass_store::model::{FailureFilter, FailureGroup, FailureRow, WorkflowRow};
use windlass_types::failure_commands::{FailureCommandBatch, FailureCommandKind, RequestedJobChanges};
use windlass_types::{FailureClass, JobId};

pub(crate) fn run(ctx: &CliContext, args: &FailuresArgs) -> Result<CliExit, CliError> {
    use FailureCommandKind as Kind;
    let unchanged = RequestedJobChanges::default();
    match &args.verb {
        None => list_groups(ctx, &args.list),
        Some(FailuresSubcommand::List(args)) => list_groups(ctx, args),
        Some(FailuresSubcommand::Pending(args)) => pending_failures::list_pending_failures(ctx, args),
        Some(FailuresSubcommand::Show(args)) => pending_failures::show_failures(ctx, args),
        Some(FailuresSubcommand::Retry(args)) => {
            pending_failures::decide_failures(ctx, Kind::Retry, &args.decision, &(&args.changes).into())
        }
        Some(FailuresSubcommand::Change(args)) => {
            pending_failures::decide_failures(ctx, Kind::Change, &args.decision, &(&args.changes).into())
        }
        Some(FailuresSubcommand::Fail(args)) => {
            pending_failures::decide_failures(ctx, Kind::Fail, args, &unchanged)
        }
        Some(FailuresSubcommand::Ignore(args)) => {
            pending_failures::decide_failures(ctx, Kind::Ignore, args, &unchanged)
        }
        Some(FailuresSubcommand::Approve(args)) => pending_failures::review_proposals(ctx, args, true),
        Some(FailuresSubcommand::Decline(args)) => pending_failures::review_proposals(ctx, args, false),
        Some(FailuresSubcommand::Decisions(args)) => pending_failures::list_decisions(ctx, args),
        Some(FailuresSubcommand::Report(args)) => pending_failures::show_report(ctx, args),
        Some(FailuresSubcommand::Revisions(args)) => revisions::run(ctx, args),
        Some(FailuresSubcommand::Undo(args)) => revisions::undo_revision(ctx, args),
        Some(FailuresSubcommand::Classify(args)) => classify::run(ctx, args),
        Some(FailuresSubcommand::Handlers(args)) => match &args.verb {
            None => workflow_parts::list_handlers(ctx, &args.list),
            Some(verb) => workflow_parts::dispatch_handlers(ctx, verb),
        },
    }
}

/// A failure group with its context.
struct FailureGroupRow {
    group: FailureGroup,
    example: String,
    /// Number of failed and pending_failed jobs in all groups.
    total_open: u64,
}

impl FailureGroupRow {
    const fn open_count(&self) -> u64 {
        self.group.failed + self.group.pending
    }

    fn short_key(&self) -> &str {
        self.group.signature.get(..KEY_LENGTH).unwrap_or(&self.group.signature)
    }
}

const FIELDS: &[ListField<FailureGroupRow>] = &[
    ListField::table_only(TableColumn::text("KEY"), |row: &FailureGroupRow| row.short_key().into()),
    ListField::new("signature", |row: &FailureGroupRow| (&row.group.signature).into()),
    ListField::table_only(TableColumn::number("JOBS"), |row: &FailureGroupRow| {
        format!("{} of {}", row.open_count(), row.total_open).into()
    }),
    ListField::new("class", |row: &FailureGroupRow| class_value(row.group.class))
        .column(TableColumn::text("CLASS")),
    ListField::new("message", |row: &FailureGroupRow| (&row.group.message).into())
        .column(TableColumn::wrapped("MESSAGE")),
    ListField::new("failed", |row: &FailureGroupRow| row.group.failed.into())
        .column(TableColumn::number("FAILED")),
    ListField::new("pending", |row: &FailureGroupRow| row.group.pending.into())
        .column(TableColumn::number("PENDING")),
    ListField::new("retried", |row: &FailureGroupRow| row.group.retried.into())
        .column(TableColumn::number("RETRIED")),
    ListField::new("jobs", |row: &FailureGroupRow| row.group.jobs.into()),
    ListField::new("attempts", |row: &FailureGroupRow| row.group.attempts.into()),
    ListField::new("line", |row: &FailureGroupRow| row.group.line.as_ref().into()),
    ListField::new("example_job_id", |row: &FailureGroupRow| row.group.example.0.into()),
    ListField::new("example_job_name", |row: &FailureGroupRow| (&row.example).into())
        .column(TableColumn::flexible("EXAMPLE")),
    ListField::new("hint", |row: &FailureGroupRow| group_hint(&row.group).into()),
];

/// The usual remedy, and the options to add to the command.
fn group_hint(group: &FailureGroup) -> Option<String> {
    if group.failed + group.pending == 0 {
        return None;
    }
    let key = group.signature.get(..KEY_LENGTH).unwrap_or(&group.signature);
    let (what, with) = match group.class {
        FailureClass::Memory => ("give the jobs more memory", " --memory SIZE"),
        FailureClass::Timeout => ("give the jobs more time", " --runtime DURATION"),
        FailureClass::Transient | FailureClass::Infrastructure => ("not caused by the job: retry", ""),
        FailureClass::Data => ("fix the input, then retry", ""),
        FailureClass::Permanent => ("fix the program or its command, then retry", ""),
        FailureClass::Unknown => ("inspect one of the jobs, then retry", ""),
    };
    Some(format!("windlass failures retry {key}{with} --reason TEXT   ({what})"))
}

fn list_groups(ctx: &CliContext, args: &FailuresListArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let mut groups = store.failure_groups(workflow.id)?;
    if let Some(key) = &args.group {
        let group = failure_selection::find_group(&groups, key, &workflow)?;
        return list_group_jobs(ctx, &*store, &workflow, group, args);
    }
    if !args.all {
        groups.retain(|group| group.failed + group.pending > 0);
    }
    groups.sort_by_key(|group| std::cmp::Reverse((group.failed + group.pending, group.attempts)));
    let all_open = groups.iter().map(|group| group.failed + group.pending).sum();
    let examples: Vec<JobId> = groups.iter().map(|group| group.example).collect();
    let names = store.job_names(&examples)?;
    let rows: Vec<FailureGroupRow> = groups
        .into_iter()
        .zip(names)
        .map(|(group, example)| FailureGroupRow { group, example, total_open: all_open })
        .collect();
    let first = rows.first().map(|row| (row.short_key().to_owned(), group_hint(&row.group)));
    let listing = ListFields::new(FIELDS).without_fields(&args.page.exclude)?;
    ctx.ui.print_list(&listing, listing.sort_and_limit(rows, &args.page)?)?;
    match first {
        // For JSON output this is part of the list.
        Some(_) if ctx.ui.format() != OutputFormat::Table => {}
        Some((key, hint)) => {
            ctx.ui.print_note(&format!("next: windlass failures {} --group {key}", workflow.id));
            if let Some(hint) = hint {
                ctx.ui.print_note(&format!("      {hint}"));
            }
        }
        None => {
            let all = if args.all { "" } else { "; --all includes failures that were retried" };
            ctx.ui.print_note(&format!("workflow {} ({}) has no failures{all}", workflow.id, workflow.name));
        }
    }
    Ok(CliExit::Success)
}

pub(crate) const JOB_FIELDS: &[ListField<FailureRow>] = &[
    ListField::new("job_id", |row: &FailureRow| row.job_id.0.into()).column(TableColumn::number("ID")),
    ListField::new("job_name", |row: &FailureRow| (&row.job_name).into())
        .column(TableColumn::flexible("NAME")),
    ListField::new("job_status", |row: &FailureRow| row.job_status.into())
        .column(TableColumn::text("STATUS")),
    ListField::new("run_id", |row: &FailureRow| row.run_id.0.into()),
    ListField::new("attempt_id", |row: &FailureRow| row.attempt_id.0.into())
        .column(TableColumn::number("ATTEMPT")),
    ListField::new("return_code", |row: &FailureRow| row.return_code.into())
        .column(TableColumn::number("CODE")),
    ListField::new("host", |row: &FailureRow| (&row.host).into()).column(TableColumn::text("HOST")),
    ListField::new("line", |row: &FailureRow| row.line.as_ref().into()).column(TableColumn::flexible("LINE")),
    ListField::new("ending", |row: &FailureRow| render_ending(row).into()),
    ListField::new("class", |row: &FailureRow| class_value(row.class)),
    ListField::new("rule", |row: &FailureRow| row.rule.as_ref().into()),
    ListField::new("signature", |row: &FailureRow| (&row.signature).into()),
    ListField::new("message", |row: &FailureRow| (&row.message).into()),
    ListField::new("next", |row: &FailureRow| (&row.next).into()),
    ListField::new("why", |row: &FailureRow| row.why.as_ref().into()),
    ListField::new("worker_id", |row: &FailureRow| row.worker_id.0.into()),
    ListField::new("ended_at", |row: &FailureRow| row.ended_at.into()),
    ListField::new("log_tail", |row: &FailureRow| {
        row.last_words.as_ref().map_or(FieldValue::Empty, FieldValue::from)
    }),
];

/// `exit code 3`, `out of memory (137)`
pub(crate) fn render_ending(row: &FailureRow) -> String {
    let FailureRow { job_status: status, return_code, signal, out_of_memory, .. } = *row;
    AttemptEndSummary { status, return_code, signal, out_of_memory }.describe()
}

/// The jobs of one group.
fn list_group_jobs(
    ctx: &CliContext,
    store: &dyn Store,
    workflow: &WorkflowRow,
    group: &FailureGroup,
    args: &FailuresListArgs,
) -> Result<CliExit, CliError> {
    let filter = FailureFilter {
        signature: Some(group.signature.clone()),
        open_only: !args.all,
        ..FailureFilter::default()
    };
    let rows = store.failures(workflow.id, &filter)?;
    let listing = ListFields::new(JOB_FIELDS).without_fields(&args.page.exclude)?;
    let is_table = ctx.ui.format() == OutputFormat::Table;
    if is_table {
        let count = text::render_count(rows.len() as u64, "failure");
        ctx.ui.print_note(&format!(
            "{count} of group {}: {}",
            group.signature,
            text::one_line(&group.message)
        ));
    }
    ctx.ui.print_list(&listing, listing.sort_and_limit(rows, &args.page)?)?;
    if let Some(hint) = group_hint(group).filter(|_| is_table) {
        ctx.ui.print_note(&format!("next: {hint}"));
    }
    Ok(CliExit::Success)
}

pub(crate) fn refuse_no_change(
    command: FailureCommandKind,
    changes: &RequestedJobChanges,
) -> Result<(), CliError> {
    if command == FailureCommandKind::Change && changes.is_empty() {
        return Err(CliError::user("no changes given").with_hint(
            "use --memory, --runtime, --cpus, --command, --priority, --scheduler or --partition",
        ));
    }
    Ok(())
}

/// Retries can be repeated and changes undone, but failing a job cancels its dependents, and ignoring a failure
/// starts them. One job needs no confirmation; several do.
pub(crate) fn confirm_decision(
    ctx: &CliContext,
    workflow: &WorkflowRow,
    command: FailureCommandKind,
    orders: &FailureCommandBatch,
    confirm: crate::args::list_options::ConfirmArgs,
) -> Result<(), CliError> {
    let many = orders.orders.len();
    if orders.dry_run || many < 2 || !matches!(command, FailureCommandKind::Fail | FailureCommandKind::Ignore)
    {
        return Ok(());
    }
    let what = match command {
        FailureCommandKind::Fail => "fail",
        _ => "ignore the failures of",
    };
    let whose = format!("workflow {} ({})", workflow.id, text::one_line(&workflow.name));
    ctx.ui.confirm(&format!("{what} {} of {whose}", text::render_count(many as u64, "job")), confirm)
}

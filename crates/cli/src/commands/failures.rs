//! `windlass failures`: what failed, in groups of what failed alike, and what is to become of whole groups.

use crate::args::Format;
use crate::args::triage::{FailuresArgs, FailuresListArgs, FailuresVerb, FilterArgs, GroupVerdictArgs};
use crate::commands::classify::class;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::failing::{self, KEY};
use crate::orders::{self, Given};
use crate::select;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::outcome::Outcome;
use crate::ui::table::Column;
use crate::ui::text;
use windlass_store::Store;
use windlass_store::model::{FailureFilter, FailureGroup, FailureRow, WorkflowRow};
use windlass_types::orders::{Changes, Order, Orders, Verdict};
use windlass_types::{FailureClass, JobId};

pub(crate) fn run(ctx: &Context, args: &FailuresArgs) -> Result<Exit, CliError> {
    match &args.verb {
        None => list(ctx, &args.list),
        Some(FailuresVerb::List(args)) => list(ctx, args),
        Some(FailuresVerb::Retry(args)) => {
            decide(ctx, Verdict::Retry, &args.which, &Changes::from(&args.changes))
        }
        Some(FailuresVerb::Change(args)) => {
            decide(ctx, Verdict::Change, &args.which, &Changes::from(&args.changes))
        }
        Some(FailuresVerb::Fail(args)) => decide(ctx, Verdict::Fail, args, &Changes::default()),
        Some(FailuresVerb::Ignore(args)) => decide(ctx, Verdict::Ignore, args, &Changes::default()),
    }
}

/// A group, and what it is a part of.
struct Row {
    group: FailureGroup,
    example: String,
    /// How many jobs have failed or wait for a decision, in all groups.
    all_open: u64,
}

impl Row {
    const fn open(&self) -> u64 {
        self.group.failed + self.group.pending
    }

    fn key(&self) -> &str {
        self.group.signature.get(..KEY).unwrap_or(&self.group.signature)
    }
}

const FIELDS: &[Field<Row>] = &[
    Field::shown(Column::text("KEY"), |row: &Row| row.key().into()),
    Field::new("signature", |row: &Row| (&row.group.signature).into()),
    Field::shown(Column::number("JOBS"), |row: &Row| format!("{} of {}", row.open(), row.all_open).into()),
    Field::new("class", |row: &Row| class(row.group.class)).column(Column::text("CLASS")),
    Field::new("message", |row: &Row| (&row.group.message).into()).column(Column::elastic("MESSAGE")),
    Field::new("failed", |row: &Row| row.group.failed.into()).column(Column::number("FAILED")),
    Field::new("pending", |row: &Row| row.group.pending.into()).column(Column::number("PENDING")),
    Field::new("retried", |row: &Row| row.group.retried.into()).column(Column::number("RETRIED")),
    Field::new("jobs", |row: &Row| row.group.jobs.into()),
    Field::new("attempts", |row: &Row| row.group.attempts.into()),
    Field::new("line", |row: &Row| row.group.line.as_ref().into()),
    Field::new("example_job_id", |row: &Row| row.group.example.0.into()),
    Field::new("example_job_name", |row: &Row| (&row.example).into()).column(Column::elastic("EXAMPLE")),
    Field::new("hint", |row: &Row| hint(&row.group).into()),
];

/// What mostly helps; with what is to be typed instead of dots.
fn hint(group: &FailureGroup) -> Option<String> {
    if group.failed + group.pending == 0 {
        return None;
    }
    let key = group.signature.get(..KEY).unwrap_or(&group.signature);
    let (what, with) = match group.class {
        FailureClass::Memory => ("give it more memory", " --memory SIZE"),
        FailureClass::Timeout => ("give it more time", " --runtime DURATION"),
        FailureClass::Transient | FailureClass::Infrastructure => ("try again", ""),
        FailureClass::Data => ("mend its input, then try again", ""),
        FailureClass::Permanent => ("mend the program or its command, then try again", ""),
        FailureClass::Unknown => ("look at one of them, then try again", ""),
    };
    Some(format!("windlass failures retry {key}{with} --reason TEXT   ({what})"))
}

fn list(ctx: &Context, args: &FailuresListArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let mut groups = store.failure_groups(workflow.id)?;
    if let Some(key) = &args.group {
        let group = failing::group(&groups, key, &workflow)?;
        return jobs(ctx, &*store, &workflow, group, args);
    }
    if !args.all {
        groups.retain(|group| group.failed + group.pending > 0);
    }
    groups.sort_by_key(|group| std::cmp::Reverse((group.failed + group.pending, group.attempts)));
    let all_open = groups.iter().map(|group| group.failed + group.pending).sum();
    let examples: Vec<JobId> = groups.iter().map(|group| group.example).collect();
    let names = store.job_names(&examples)?;
    let rows: Vec<Row> =
        groups.into_iter().zip(names).map(|(group, example)| Row { group, example, all_open }).collect();
    let first = rows.first().map(|row| (row.key().to_owned(), hint(&row.group)));
    let listing = Listing::new(FIELDS).without(&args.page.exclude)?;
    ctx.ui.print_list(&listing, listing.arrange(rows, &args.page)?)?;
    match first {
        // For programs it stands in the list.
        Some(_) if ctx.ui.format() != Format::Table => {}
        Some((key, hint)) => {
            ctx.ui.note(&format!("next: windlass failures {} --group {key}", workflow.id));
            if let Some(hint) = hint {
                ctx.ui.note(&format!("      {hint}"));
            }
        }
        None => {
            let all = if args.all { "" } else { "; --all also lists what was tried again" };
            ctx.ui.note(&format!("nothing of workflow {} ({}) has failed{all}", workflow.id, workflow.name));
        }
    }
    Ok(Exit::Success)
}

pub(crate) const JOBS: &[Field<FailureRow>] = &[
    Field::new("job_id", |row: &FailureRow| row.job_id.0.into()).column(Column::number("ID")),
    Field::new("job_name", |row: &FailureRow| (&row.job_name).into()).column(Column::elastic("NAME")),
    Field::new("job_status", |row: &FailureRow| row.job_status.into()).column(Column::text("STATUS")),
    Field::new("run_id", |row: &FailureRow| row.run_id.0.into()),
    Field::new("attempt_id", |row: &FailureRow| row.attempt_id.0.into()).column(Column::number("ATTEMPT")),
    Field::new("return_code", |row: &FailureRow| row.return_code.into()).column(Column::number("CODE")),
    Field::new("host", |row: &FailureRow| (&row.host).into()).column(Column::text("HOST")),
    Field::new("line", |row: &FailureRow| row.line.as_ref().into()).column(Column::elastic("LINE")),
    Field::new("ending", |row: &FailureRow| ending(row).into()),
    Field::new("class", |row: &FailureRow| class(row.class)),
    Field::new("rule", |row: &FailureRow| row.rule.as_ref().into()),
    Field::new("signature", |row: &FailureRow| (&row.signature).into()),
    Field::new("message", |row: &FailureRow| (&row.message).into()),
    Field::new("next", |row: &FailureRow| (&row.next).into()),
    Field::new("why", |row: &FailureRow| row.why.as_ref().into()),
    Field::new("worker_id", |row: &FailureRow| row.worker_id.0.into()),
    Field::new("ended_at", |row: &FailureRow| row.ended_at.into()),
    Field::new("last_words", |row: &FailureRow| row.last_words.as_ref().map_or(Datum::Nothing, Datum::from)),
];

/// `exit code 3`, `out of memory (137)`
pub(crate) fn ending(row: &FailureRow) -> String {
    let FailureRow { job_status: status, return_code, signal, out_of_memory, .. } = *row;
    Outcome { status, return_code, signal, out_of_memory }.describe()
}

/// The jobs of one group.
fn jobs(
    ctx: &Context,
    store: &dyn Store,
    workflow: &WorkflowRow,
    group: &FailureGroup,
    args: &FailuresListArgs,
) -> Result<Exit, CliError> {
    let filter = FailureFilter {
        signature: Some(group.signature.clone()),
        open_only: !args.all,
        ..FailureFilter::default()
    };
    let rows = store.failures(workflow.id, &filter)?;
    let listing = Listing::new(JOBS).without(&args.page.exclude)?;
    let is_table = ctx.ui.format() == Format::Table;
    if is_table {
        let count = text::count(rows.len() as u64, "failure");
        ctx.ui.note(&format!("{count} of group {}: {}", group.signature, text::one_line(&group.message)));
    }
    ctx.ui.print_list(&listing, listing.arrange(rows, &args.page)?)?;
    if let Some(hint) = hint(group).filter(|_| is_table) {
        ctx.ui.note(&format!("next: {hint}"));
    }
    Ok(Exit::Success)
}

fn decide(
    ctx: &Context,
    verdict: Verdict,
    args: &GroupVerdictArgs,
    changes: &Changes,
) -> Result<Exit, CliError> {
    refuse_no_change(verdict, changes)?;
    let store = ctx.open_write()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let which = FilterArgs { group: args.groups.clone(), class: Vec::new() };
    let jobs = failing::jobs(&*store, &workflow, verdict, &[], &which)?;
    let order = |job| Order {
        job,
        verdict,
        changes: changes.clone(),
        reason: args.reason.clone(),
        confidence: None,
        evidence: Vec::new(),
    };
    let dry_run = args.confirm.dry_run;
    let given = jobs.into_iter().map(order).collect();
    let orders = Orders { agent: orders::agent(None), dry_run, orders: given, ..Orders::default() };
    ask(ctx, &workflow, verdict, &orders, args.confirm)?;
    let outcomes = orders::give_within_limits(&*store, workflow.id, orders)?;
    Given { workflow: &workflow, dry_run, outcomes }.show(ctx, &*store)
}

pub(crate) fn refuse_no_change(verdict: Verdict, changes: &Changes) -> Result<(), CliError> {
    if verdict == Verdict::Change && changes.is_empty() {
        return Err(CliError::user("nothing was said that is to change")
            .with_hint("--memory, --runtime, --cpus, --command, --priority, --scheduler or --partition"));
    }
    Ok(())
}

/// What is tried again can fail again, and what was changed can be put back; but what was failed takes others with it, and
/// what was ignored lets others go on without it. For one job that is what was said; for many it is asked once more.
pub(crate) fn ask(
    ctx: &Context,
    workflow: &WorkflowRow,
    verdict: Verdict,
    orders: &Orders,
    confirm: crate::args::page::ConfirmArgs,
) -> Result<(), CliError> {
    let many = orders.orders.len();
    if orders.dry_run || many < 2 || !matches!(verdict, Verdict::Fail | Verdict::Ignore) {
        return Ok(());
    }
    let what = match verdict {
        Verdict::Fail => "let fail",
        _ => "ignore the failures of",
    };
    let whose = format!("workflow {} ({})", workflow.id, text::one_line(&workflow.name));
    ctx.ui.confirm(&format!("{what} {} of {whose}", text::count(many as u64, "job")), confirm)
}

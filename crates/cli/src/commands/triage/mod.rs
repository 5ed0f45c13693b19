//! `windlass triage`: failures that wait for a decision, and what is decided about them.

mod list;
mod report;

use super::failures::ask;
use crate::args::WorkflowRef;
use crate::args::triage::{
    DecisionsArgs, ReportArgs, SettleArgs, TriageArgs, TriageShowArgs, TriageVerb, VerdictArgs,
};
use crate::commands::classify::class;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::history::{self, History};
use crate::orders::{self, Given};
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::style::Tone;
use crate::ui::table::Column;
use crate::{failing, select};
use serde::Serialize;
use windlass_store::Store;
use windlass_store::model::{
    DecisionFilter, DecisionRow, DecisionState, FailureFilter, FailureRow, JobRow, WorkflowRow,
};
use windlass_types::JobId;
use windlass_types::orders::{Changes, Order, Orders, Verdict, Wanted};

pub(crate) fn run(ctx: &Context, args: &TriageArgs) -> Result<Exit, CliError> {
    match &args.verb {
        None => list::run(ctx, &args.list),
        Some(TriageVerb::List(args)) => list::run(ctx, args),
        Some(TriageVerb::Show(args)) => show(ctx, args),
        Some(TriageVerb::Retry(args)) => {
            decide(ctx, Verdict::Retry, &args.which, &Changes::from(&args.changes))
        }
        Some(TriageVerb::Fail(args)) => decide(ctx, Verdict::Fail, args, &Changes::default()),
        Some(TriageVerb::Ignore(args)) => decide(ctx, Verdict::Ignore, args, &Changes::default()),
        Some(TriageVerb::Approve(args)) => settle(ctx, args, true),
        Some(TriageVerb::Decline(args)) => settle(ctx, args, false),
        Some(TriageVerb::Decisions(args)) => decisions(ctx, args),
        Some(TriageVerb::Report(args)) => report(ctx, args),
    }
}

fn decide(ctx: &Context, verdict: Verdict, args: &VerdictArgs, changes: &Changes) -> Result<Exit, CliError> {
    let agent = orders::agent(args.agent.agent.as_deref());
    if agent.is_none() && (args.agent.confidence.is_some() || !args.agent.evidence.is_empty()) {
        return Err(
            CliError::user("--confidence and --evidence are for agents").with_hint("--agent names one")
        );
    }
    let store = ctx.open_write()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let jobs = failing::jobs(&*store, &workflow, verdict, &args.jobs, &args.which)?;
    let order = |job| Order {
        job,
        verdict,
        changes: changes.clone(),
        reason: args.reason.clone(),
        confidence: args.agent.confidence,
        evidence: args.agent.evidence.clone(),
    };
    let dry_run = args.confirm.dry_run;
    let given = jobs.into_iter().map(order).collect();
    let orders = Orders { agent, dry_run, orders: given, ..Orders::default() };
    ask(ctx, &workflow, verdict, &orders, args.confirm)?;
    let outcomes = orders::give_within_limits(&*store, workflow.id, orders)?;
    Given { workflow: &workflow, dry_run, outcomes }.show(ctx, &*store)
}

/// Says yes or no to what agents proposed.
fn settle(ctx: &Context, args: &SettleArgs, agreed: bool) -> Result<Exit, CliError> {
    if let Some(agent) = orders::agent(None) {
        return Err(CliError::refused(format!(
            "what waits for a person is not for agent `{agent}` to settle"
        )));
    }
    let store = ctx.open_write()?;
    let workflow = workflow_of(&*store, &args.workflow, &args.decisions)?;
    let mut outcomes = Vec::new();
    for &decision in &args.decisions {
        outcomes.extend(orders::give(&*store, workflow.id, &Wanted::Settle { decision, agreed })?);
    }
    Given { workflow: &workflow, dry_run: false, outcomes }.show(ctx, &*store)
}

/// The workflow that proposals are about, which are all there. Their numbers are unique in a database: they say which
/// workflow is meant, if nobody did.
fn workflow_of(store: &dyn Store, named: &WorkflowRef, proposals: &[i64]) -> Result<WorkflowRow, CliError> {
    let here = select::workflow(store, named)?;
    let Some(missing) = missing(store, &here, proposals)? else { return Ok(here) };
    if *named == WorkflowRef::Last {
        for row in store.workflows()? {
            if self::missing(store, &row, proposals)?.is_none() {
                return Ok(row);
            }
        }
    }
    Err(CliError::user(format!(
        "no proposal {missing} waits for a person in workflow {} ({})",
        here.id, here.name
    ))
    .with_hint(format!("`windlass triage decisions {} --proposed` lists those that do", here.id)))
}

/// The first proposal that does not wait in this workflow.
fn missing(store: &dyn Store, workflow: &WorkflowRow, proposals: &[i64]) -> Result<Option<i64>, CliError> {
    let filter = DecisionFilter { state: Some(DecisionState::Proposed), ..DecisionFilter::default() };
    let rows = store.decisions(workflow.id, &filter)?;
    Ok(proposals.iter().copied().find(|id| rows.iter().all(|row| row.id != *id)))
}

/// The failure of a job, and what was made of it.
#[derive(Serialize)]
struct Shown<'a> {
    job_id: JobId,
    name: &'a str,
    status: windlass_types::JobStatus,
    command: &'a str,
    failures: Vec<FailureRow>,
    #[serde(flatten)]
    history: History,
}

fn show(ctx: &Context, args: &TriageShowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let (workflow, job) = select::job_anywhere(&*store, &args.job, &args.workflow)?;
    let filter = FailureFilter { job: Some(job.id), ..FailureFilter::default() };
    let failures = store.failures(workflow.id, &filter)?;
    let history = History::of(&*store, workflow.id, job.id)?;
    if ctx.ui.json_wanted() {
        let JobRow { id: job_id, name, status, command, .. } = &job;
        let (job_id, status) = (*job_id, *status);
        ctx.ui.print_json(&Shown { job_id, name, status, command, failures, history })?;
    } else {
        ctx.ui.print_lines(&list::in_full(ctx, &workflow, &job, &failures, &history))?;
    }
    Ok(Exit::Success)
}

const FIELDS: &[Field<DecisionRow>] = &[
    Field::new("id", |row: &DecisionRow| row.id.into()).column(Column::number("ID")),
    Field::new("job_id", |row: &DecisionRow| row.job_id.0.into()),
    Field::new("job_name", |row: &DecisionRow| (&row.job_name).into()).column(Column::elastic("JOB")),
    Field::new("run_id", |row: &DecisionRow| row.run_id.0.into()),
    Field::new("attempt_id", |row: &DecisionRow| row.attempt_id.0.into()).column(Column::number("ATTEMPT")),
    Field::new("verdict", |row: &DecisionRow| row.verdict.as_str().into()),
    Field::shown(Column::elastic("DECIDED"), |row: &DecisionRow| {
        history::verdict(row.verdict, &row.changes).into()
    }),
    Field::new("changes", |row: &DecisionRow| json(&row.changes)),
    Field::new("made_by", |row: &DecisionRow| (&row.made_by).into()).column(Column::text("BY")),
    Field::new("is_agent", |row: &DecisionRow| row.is_agent.into()),
    Field::new("confidence", |row: &DecisionRow| row.confidence.into()),
    Field::new("state", |row: &DecisionRow| state(row.state)).column(Column::text("STATE")),
    Field::new("next_status", |row: &DecisionRow| row.next_status.into()).column(Column::text("THEN")),
    Field::new("reason", |row: &DecisionRow| (&row.reason).into()).column(Column::elastic("REASON")),
    Field::new("evidence", |row: &DecisionRow| json(&row.evidence)),
    Field::new("made_at", |row: &DecisionRow| row.made_at.into()),
    Field::new("settled_at", |row: &DecisionRow| row.settled_at.into()),
    Field::new("settled_by", |row: &DecisionRow| row.settled_by.as_ref().into()),
    Field::new("class", |row: &DecisionRow| row.class.map_or(Datum::Nothing, class)),
    Field::new("signature", |row: &DecisionRow| row.signature.as_ref().into()),
    Field::new("message", |row: &DecisionRow| row.message.as_ref().into()),
];

fn json(value: &impl Serialize) -> Datum {
    // Words and numbers always have a JSON.
    serde_json::to_value(value).map_or(Datum::Nothing, Datum::Json)
}

const fn state(state: DecisionState) -> Datum {
    let tone = match state {
        DecisionState::Proposed => Some(Tone::Warn),
        DecisionState::Done => None,
        DecisionState::Declined | DecisionState::Overtaken => Some(Tone::Dim),
    };
    Datum::Word(state.as_str(), tone)
}

fn decisions(ctx: &Context, args: &DecisionsArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let job = args.job.as_ref().map(|job| select::job(&*store, &workflow, job, "the first argument"));
    let filter = DecisionFilter {
        jobs: job.transpose()?.into_iter().map(|job| job.id).collect(),
        state: args.proposed.then_some(DecisionState::Proposed),
        ..DecisionFilter::default()
    };
    let listing = Listing::new(FIELDS).without(&args.page.exclude)?;
    let rows = store.decisions(workflow.id, &filter)?;
    if ctx.ui.print_list(&listing, listing.arrange(rows, &args.page)?)? == 0 {
        ctx.ui.note(&format!("nothing was decided about workflow {} ({})", workflow.id, workflow.name));
    }
    Ok(Exit::Success)
}

fn report(ctx: &Context, args: &ReportArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflows =
        if args.all { store.workflows()? } else { vec![select::workflow(&*store, &args.workflow)?] };
    let mut decided = Vec::new();
    for workflow in &workflows {
        decided.push(store.decisions(workflow.id, &DecisionFilter::default())?);
    }
    report::print(ctx, &decided)
}

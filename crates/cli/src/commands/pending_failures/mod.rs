//! `windlass failures pending` and its decisions: failures that wait for a decision, and decisions about them.

mod decision_report;
mod failure_list;

pub(super) use failure_list::list_pending_failures;

use super::failures::{confirm_decision, refuse_no_change};
use crate::args::WorkflowRef;
use crate::args::failures::{
    DecisionListArgs, DecisionReportArgs, FailureDecisionArgs, FailureShowArgs, ProposalReviewArgs,
};
use crate::commands::classify::class_value;
use crate::context::CliContext;
use crate::decision_history::{self, DecisionHistory};
use crate::error::{CliError, CliExit};
use crate::failure_commands::{self, FailureCommandReport};
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::style::TextTone;
use crate::ui::table::TableColumn;
use crate::{failure_selection, object_selection};
use serde::Serialize;
use windlass_store::Store;
use windlass_store::model::{
    DecisionFilter, DecisionRow, DecisionState, FailureFilter, FailureRow, JobRow, WorkflowRow,
};
use windlass_types::JobId;
use windlass_types::failure_commands::{
    FailureCommand, FailureCommandBatch, FailureCommandKind, PendingCommand, RequestedJobChanges,
};

pub(super) fn decide_failures(
    ctx: &CliContext,
    command: FailureCommandKind,
    args: &FailureDecisionArgs,
    changes: &RequestedJobChanges,
) -> Result<CliExit, CliError> {
    refuse_no_change(command, changes)?;
    let agent = failure_commands::acting_agent(args.agent.agent.as_deref());
    if agent.is_none() && (args.agent.confidence.is_some() || !args.agent.evidence.is_empty()) {
        return Err(CliError::user("--confidence and --evidence are for agents")
            .with_hint("use --agent to name the agent"));
    }
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let (named, which) = failure_selection::split_jobs_and_groups(&*store, &workflow, args)?;
    let jobs = failure_selection::select_jobs(&*store, &workflow, command, &named, &which)?;
    let order = |job| FailureCommand {
        job,
        kind: command,
        changes: changes.clone(),
        reason: args.reason.clone(),
        confidence: args.agent.confidence,
        evidence: args.agent.evidence.clone(),
    };
    let dry_run = args.confirm.dry_run;
    let given = jobs.into_iter().map(order).collect();
    let orders = FailureCommandBatch { agent, dry_run, orders: given, ..FailureCommandBatch::default() };
    confirm_decision(ctx, &workflow, command, &orders, args.confirm)?;
    let outcomes = failure_commands::submit_failure_commands_within_limits(&*store, workflow.id, orders)?;
    FailureCommandReport { workflow: &workflow, dry_run, outcomes }.print_report(ctx, &*store)
}

/// Approves or declines proposals of agents.
pub(super) fn review_proposals(
    ctx: &CliContext,
    args: &ProposalReviewArgs,
    agreed: bool,
) -> Result<CliExit, CliError> {
    if let Some(agent) = failure_commands::acting_agent(None) {
        return Err(CliError::refused(format!(
            "agent `{agent}` may not settle proposals, which need a user"
        )));
    }
    let store = ctx.open_write()?;
    let workflow = workflow_of_proposals(&*store, &args.workflow, &args.decisions)?;
    let mut outcomes = Vec::new();
    for &decision in &args.decisions {
        outcomes.extend(failure_commands::submit_failure_commands(
            &*store,
            workflow.id,
            &PendingCommand::Settle { decision, agreed },
        )?);
    }
    FailureCommandReport { workflow: &workflow, dry_run: false, outcomes }.print_report(ctx, &*store)
}

/// The workflow of the proposals, all of which must exist. Their ids are unique in a database and determine the
/// workflow if none is given.
fn workflow_of_proposals(
    store: &dyn Store,
    named: &WorkflowRef,
    proposals: &[i64],
) -> Result<WorkflowRow, CliError> {
    let here = object_selection::find_workflow(store, named)?;
    let Some(missing) = missing_proposal(store, &here, proposals)? else { return Ok(here) };
    if *named == WorkflowRef::Last {
        for row in store.workflows()? {
            if self::missing_proposal(store, &row, proposals)?.is_none() {
                return Ok(row);
            }
        }
    }
    Err(CliError::user(format!("no proposal {missing} is waiting in workflow {} ({})", here.id, here.name))
        .with_hint(format!("`windlass failures decisions {} --proposed` lists the waiting ones", here.id)))
}

/// The first proposal that is not waiting in this workflow.
fn missing_proposal(
    store: &dyn Store,
    workflow: &WorkflowRow,
    proposals: &[i64],
) -> Result<Option<i64>, CliError> {
    let filter = DecisionFilter { state: Some(DecisionState::Proposed), ..DecisionFilter::default() };
    let rows = store.decisions(workflow.id, &filter)?;
    Ok(proposals.iter().copied().find(|id| rows.iter().all(|row| row.id != *id)))
}

/// The failure of a job with its classification and retry decision.
#[derive(Serialize)]
struct JobFailuresView<'a> {
    job_id: JobId,
    name: &'a str,
    status: windlass_types::JobStatus,
    command: &'a str,
    failures: Vec<FailureRow>,
    #[serde(flatten)]
    history: DecisionHistory,
}

pub(super) fn show_failures(ctx: &CliContext, args: &FailureShowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let (workflow, job) = object_selection::find_job_anywhere(&*store, &args.job, &args.workflow)?;
    let filter = FailureFilter { job: Some(job.id), ..FailureFilter::default() };
    let failures = store.failures(workflow.id, &filter)?;
    let history = DecisionHistory::load(&*store, workflow.id, job.id)?;
    if ctx.ui.wants_json() {
        let JobRow { id: job_id, name, status, command, .. } = &job;
        let (job_id, status) = (*job_id, *status);
        ctx.ui.print_json(&JobFailuresView { job_id, name, status, command, failures, history })?;
    } else {
        ctx.ui.print_lines(&failure_list::render_full(ctx, &workflow, &job, &failures, &history))?;
    }
    Ok(CliExit::Success)
}

const FIELDS: &[ListField<DecisionRow>] = &[
    ListField::new("id", |row: &DecisionRow| row.id.into()).column(TableColumn::number("ID")),
    ListField::new("job_id", |row: &DecisionRow| row.job_id.0.into()),
    ListField::new("job_name", |row: &DecisionRow| (&row.job_name).into())
        .column(TableColumn::flexible("JOB")),
    ListField::new("run_id", |row: &DecisionRow| row.run_id.0.into()),
    ListField::new("attempt_id", |row: &DecisionRow| row.attempt_id.0.into())
        .column(TableColumn::number("ATTEMPT")),
    ListField::new("action", |row: &DecisionRow| row.kind.as_str().into()),
    ListField::table_only(TableColumn::flexible("DECIDED"), |row: &DecisionRow| {
        decision_history::render_failure_command(row.kind, &row.changes).into()
    }),
    ListField::new("changes", |row: &DecisionRow| json_value(&row.changes)),
    ListField::new("made_by", |row: &DecisionRow| (&row.made_by).into()).column(TableColumn::text("BY")),
    ListField::new("is_agent", |row: &DecisionRow| row.is_agent.into()),
    ListField::new("confidence", |row: &DecisionRow| row.confidence.into()),
    ListField::new("state", |row: &DecisionRow| state_value(row.state)).column(TableColumn::text("STATE")),
    ListField::new("next_status", |row: &DecisionRow| row.next_status.into())
        .column(TableColumn::text("OUTCOME")),
    ListField::new("reason", |row: &DecisionRow| (&row.reason).into())
        .column(TableColumn::flexible("REASON")),
    ListField::new("evidence", |row: &DecisionRow| json_value(&row.evidence)),
    ListField::new("made_at", |row: &DecisionRow| row.made_at.into()),
    ListField::new("settled_at", |row: &DecisionRow| row.settled_at.into()),
    ListField::new("settled_by", |row: &DecisionRow| row.settled_by.as_ref().into()),
    ListField::new("class", |row: &DecisionRow| row.class.map_or(FieldValue::Empty, class_value)),
    ListField::new("signature", |row: &DecisionRow| row.signature.as_ref().into()),
    ListField::new("message", |row: &DecisionRow| row.message.as_ref().into()),
];

fn json_value(value: &impl Serialize) -> FieldValue {
    // Words and numbers can always be written as JSON.
    serde_json::to_value(value).map_or(FieldValue::Empty, FieldValue::Json)
}

const fn state_value(state: DecisionState) -> FieldValue {
    let tone = match state {
        DecisionState::Proposed => Some(TextTone::Warn),
        DecisionState::Done => None,
        DecisionState::Declined | DecisionState::Overtaken => Some(TextTone::Dim),
    };
    FieldValue::Word(state.as_str(), tone)
}

pub(super) fn list_decisions(ctx: &CliContext, args: &DecisionListArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let job = args
        .job
        .as_ref()
        .map(|job| object_selection::find_job(&*store, &workflow, job, "the first argument"));
    let filter = DecisionFilter {
        jobs: job.transpose()?.into_iter().map(|job| job.id).collect(),
        state: args.proposed.then_some(DecisionState::Proposed),
        ..DecisionFilter::default()
    };
    let listing = ListFields::new(FIELDS).without_fields(&args.page.exclude)?;
    let rows = store.decisions(workflow.id, &filter)?;
    if ctx.ui.print_list(&listing, listing.sort_and_limit(rows, &args.page)?)? == 0 {
        ctx.ui.print_note(&format!("workflow {} ({}) has no decisions", workflow.id, workflow.name));
    }
    Ok(CliExit::Success)
}

pub(super) fn show_report(ctx: &CliContext, args: &DecisionReportArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflows = if args.all {
        store.workflows()?
    } else {
        vec![object_selection::find_workflow(&*store, &args.workflow)?]
    };
    let mut decided = Vec::new();
    for workflow in &workflows {
        decided.push(store.decisions(workflow.id, &DecisionFilter::default())?);
    }
    decision_report::print_report(ctx, &decided)
}

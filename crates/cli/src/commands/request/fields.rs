//! Columns of requests.

use super::programs::describe_programs;
use super::{recovery, suggest_request};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::style::TextTone;
use crate::ui::table::TableColumn;
use serde_json::json;
use windlass_api::requests::{
    BlockSummary, RequestRecoveryState, RequestSummary, RequestWorkflowStatus, StatusTransitionResponse,
};
use windlass_types::requests::RequestStatus;

pub(super) const REQUEST_LIST_FIELDS: &[ListField<RequestSummary>] = &[
    ListField::new("request_name", |r: &RequestSummary| (&r.request_name).into())
        .column(TableColumn::flexible("REQUEST")),
    ListField::new("status", |r: &RequestSummary| status_value(r.status)).column(TableColumn::text("STATUS")),
    ListField::new("priority", |r: &RequestSummary| r.priority.into())
        .column(TableColumn::number("PRIORITY")),
    ListField::new("urgent", |r: &RequestSummary| r.urgent.into()),
    ListField::new("requestor", |r: &RequestSummary| (&r.requestor).into())
        .column(TableColumn::text("REQUESTOR")),
    ListField::new("campaign", |r: &RequestSummary| r.campaign.clone().into())
        .column(TableColumn::text("CAMPAIGN")),
    ListField::new("since", |r: &RequestSummary| r.since.into()).column(TableColumn::text("SINCE")),
    ListField::new("reason", |r: &RequestSummary| r.reason.clone().into())
        .column(TableColumn::flexible("REASON")),
    ListField::new("input_dataset", |r: &RequestSummary| r.input_dataset.clone().into()),
    ListField::new("output_datasets", |r: &RequestSummary| FieldValue::Json(json!(r.output_datasets))),
    ListField::new("created_at", |r: &RequestSummary| r.created_at.into()),
    ListField::new("updated_at", |r: &RequestSummary| r.updated_at.into()),
    ListField::new("version", |r: &RequestSummary| r.version.into()),
];

const TRANSITION_FIELDS: &[ListField<StatusTransitionResponse>] = &[
    ListField::new("timestamp", |t: &StatusTransitionResponse| t.timestamp.into())
        .column(TableColumn::text("TIME")),
    ListField::new("from", |t: &StatusTransitionResponse| t.from.map(RequestStatus::name).into()),
    ListField::new("to", |t: &StatusTransitionResponse| status_value(t.to))
        .column(TableColumn::text("STATUS")),
    ListField::new("by", |t: &StatusTransitionResponse| (&t.by).into()).column(TableColumn::text("BY")),
    ListField::new("reason", |t: &StatusTransitionResponse| t.reason.clone().unwrap_or_default().into())
        .column(TableColumn::flexible("REASON")),
];

const BLOCK_FIELDS: &[ListField<BlockSummary>] = &[
    ListField::new("dataset_name", |b: &BlockSummary| (&b.dataset_name).into())
        .column(TableColumn::flexible("DATASET")),
    ListField::new("block_index", |b: &BlockSummary| b.block_index.into())
        .column(TableColumn::number("BLOCK")),
    ListField::new("status", |b: &BlockSummary| b.status.name().into()).column(TableColumn::text("STATUS")),
    ListField::new("work_units", |b: &BlockSummary| (&b.work_units).into())
        .column(TableColumn::number("UNITS")),
];

pub(super) fn status_value(status: RequestStatus) -> FieldValue {
    FieldValue::Word(status.name(), status_tone(status))
}

pub(super) const fn status_tone(status: RequestStatus) -> Option<TextTone> {
    match status {
        RequestStatus::Completed => Some(TextTone::Good),
        RequestStatus::Failed | RequestStatus::Aborted => Some(TextTone::Bad),
        RequestStatus::Held | RequestStatus::Partial => Some(TextTone::Warn),
        RequestStatus::Planning
        | RequestStatus::Active
        | RequestStatus::Stopping
        | RequestStatus::Resubmitting => Some(TextTone::Busy),
        RequestStatus::New | RequestStatus::Submitted | RequestStatus::Queued => None,
    }
}

/// One request with all fields.
struct RequestDetailsRow {
    line: RequestSummary,
    programs: Vec<String>,
    progress: RequestWorkflowStatus,
    recovery: RequestRecoveryState,
}

const REQUEST_DETAIL_FIELDS: &[ListField<RequestDetailsRow>] = &[
    ListField::new("request_name", |w: &RequestDetailsRow| (&w.line.request_name).into()),
    ListField::new("status", |w: &RequestDetailsRow| status_value(w.line.status)),
    ListField::new("reason", |w: &RequestDetailsRow| w.line.reason.clone().into()),
    ListField::new("priority", |w: &RequestDetailsRow| w.line.priority.into()),
    ListField::new("requestor", |w: &RequestDetailsRow| (&w.line.requestor).into()),
    ListField::new("campaign", |w: &RequestDetailsRow| w.line.campaign.clone().into()),
    ListField::new("input_dataset", |w: &RequestDetailsRow| w.line.input_dataset.clone().into()),
    ListField::new("output_datasets", |w: &RequestDetailsRow| w.line.output_datasets.join(" ").into()),
    ListField::new("runs", |w: &RequestDetailsRow| w.programs.join("; ").into()),
    ListField::new("workflow", |w: &RequestDetailsRow| w.progress.workflow_id.clone().into()),
    ListField::new("progress", |w: &RequestDetailsRow| render_progress(&w.progress).into()),
    ListField::new("estimated_completion", |w: &RequestDetailsRow| w.progress.estimated_completion.into()),
    ListField::new("since", |w: &RequestDetailsRow| w.line.since.into()),
    ListField::new("changed", |w: &RequestDetailsRow| recovery::render_changes(&w.recovery).into()),
    ListField::new("outputs", |w: &RequestDetailsRow| w.recovery.output_state.clone().into()),
    ListField::new("next", |w: &RequestDetailsRow| recovery::next_steps(&w.line, &w.recovery).into()),
];

/// `41.8 %: 12 of 25 work units, 4000 of 9560 nodes; run …`
fn render_progress(status: &RequestWorkflowStatus) -> String {
    let Some(dag) = &status.dag else { return "nothing is planned yet".to_owned() };
    let failed = if dag.nodes_failed > 0 { format!(", {} failed", dag.nodes_failed) } else { String::new() };
    let held = match dag.nodes_held {
        0 => String::new(),
        held => format!(", {held} held (`windlass request dag show {}` shows the reasons)", dag.id),
    };
    let engine =
        dag.engine_workflow_id.map(|id| format!("; workflow {id} of the engine")).unwrap_or_default();
    format!(
        "{} %: {} of {} work units, {} of {} nodes{failed}{held}{engine}",
        status.progress_percent,
        dag.work_units_completed,
        dag.total_work_units,
        dag.nodes_done,
        dag.total_nodes
    )
}

pub(super) fn show_request(ctx: &CliContext, name: &str) -> Result<CliExit, CliError> {
    let requests = ctx.request_service_read()?;
    let shown = suggest_request(&requests, name, requests.get_request(name))?;
    let progress = requests.request_status(name)?;
    if ctx.ui.wants_json() {
        let mut whole = serde_json::to_value(&shown).unwrap_or_default();
        whole["progress"] = json!(progress);
        ctx.ui.print_json(&whole)?;
        return Ok(CliExit::Success);
    }
    let request = shown.request;
    let programs = describe_programs(&request);
    let line = RequestSummary {
        request_name: request.request_name,
        status: shown.status,
        priority: request.priority,
        urgent: request.urgent,
        requestor: request.requestor,
        campaign: request.campaign,
        input_dataset: request.input_dataset,
        output_datasets: request.output_datasets,
        created_at: shown.created_at,
        updated_at: shown.updated_at,
        since: shown.since,
        reason: shown.reason,
        version: shown.version,
    };
    let blocks = progress.blocks.clone();
    let recovery = shown.recovery;
    ctx.ui.print_line(&recovery::render_headline(&line, &recovery))?;
    ctx.ui.print_line("")?;
    ctx.ui.print_record(
        &ListFields::new(REQUEST_DETAIL_FIELDS),
        RequestDetailsRow { line, programs, progress, recovery },
    )?;
    if !blocks.is_empty() {
        ctx.ui.print_line("")?;
        ctx.ui.print_list(&ListFields::new(BLOCK_FIELDS), blocks)?;
    }
    ctx.ui.print_line("")?;
    ctx.ui.print_list(&ListFields::new(TRANSITION_FIELDS), shown.status_transitions)?;
    Ok(CliExit::Success)
}

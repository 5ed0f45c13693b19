//! What is shown of requests.

use super::programs::programs;
use super::{known, recovery};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::style::Tone;
use crate::ui::table::Column;
use serde_json::json;
use windlass_api::requests::{BlockLine, RecoveryState, RequestLine, Transition, WorkflowStatus};
use windlass_types::requests::RequestStatus;

pub(super) const LINES: &[Field<RequestLine>] = &[
    Field::new("request_name", |r: &RequestLine| (&r.request_name).into()).column(Column::elastic("REQUEST")),
    Field::new("status", |r: &RequestLine| status(r.status)).column(Column::text("STATUS")),
    Field::new("priority", |r: &RequestLine| r.priority.into()).column(Column::number("PRIORITY")),
    Field::new("urgent", |r: &RequestLine| r.urgent.into()),
    Field::new("requestor", |r: &RequestLine| (&r.requestor).into()).column(Column::text("REQUESTOR")),
    Field::new("campaign", |r: &RequestLine| r.campaign.clone().into()).column(Column::text("CAMPAIGN")),
    Field::new("since", |r: &RequestLine| r.since.into()).column(Column::text("SINCE")),
    Field::new("reason", |r: &RequestLine| r.reason.clone().into()).column(Column::elastic("REASON")),
    Field::new("input_dataset", |r: &RequestLine| r.input_dataset.clone().into()),
    Field::new("output_datasets", |r: &RequestLine| Datum::Json(json!(r.output_datasets))),
    Field::new("created_at", |r: &RequestLine| r.created_at.into()),
    Field::new("updated_at", |r: &RequestLine| r.updated_at.into()),
    Field::new("version", |r: &RequestLine| r.version.into()),
];

const TRANSITIONS: &[Field<Transition>] = &[
    Field::new("timestamp", |t: &Transition| t.timestamp.into()).column(Column::text("TIME")),
    Field::new("from", |t: &Transition| t.from.map(RequestStatus::name).into()),
    Field::new("to", |t: &Transition| status(t.to)).column(Column::text("STATUS")),
    Field::new("by", |t: &Transition| (&t.by).into()).column(Column::text("BY")),
    Field::new("reason", |t: &Transition| t.reason.clone().unwrap_or_default().into())
        .column(Column::elastic("REASON")),
];

const BLOCKS: &[Field<BlockLine>] = &[
    Field::new("dataset_name", |b: &BlockLine| (&b.dataset_name).into()).column(Column::elastic("DATASET")),
    Field::new("block_index", |b: &BlockLine| b.block_index.into()).column(Column::number("BLOCK")),
    Field::new("status", |b: &BlockLine| b.status.name().into()).column(Column::text("STATUS")),
    Field::new("work_units", |b: &BlockLine| (&b.work_units).into()).column(Column::number("UNITS")),
];

pub(super) fn status(status: RequestStatus) -> Datum {
    Datum::Word(status.name(), tone(status))
}

pub(super) const fn tone(status: RequestStatus) -> Option<Tone> {
    match status {
        RequestStatus::Completed => Some(Tone::Good),
        RequestStatus::Failed | RequestStatus::Aborted => Some(Tone::Bad),
        RequestStatus::Held | RequestStatus::Partial => Some(Tone::Warn),
        RequestStatus::Planning
        | RequestStatus::Active
        | RequestStatus::Stopping
        | RequestStatus::Resubmitting => Some(Tone::Busy),
        RequestStatus::New | RequestStatus::Submitted | RequestStatus::Queued => None,
    }
}

/// One request in full.
struct Whole {
    line: RequestLine,
    programs: Vec<String>,
    progress: WorkflowStatus,
    recovery: RecoveryState,
}

const WHOLE: &[Field<Whole>] = &[
    Field::new("request_name", |w: &Whole| (&w.line.request_name).into()),
    Field::new("status", |w: &Whole| status(w.line.status)),
    Field::new("reason", |w: &Whole| w.line.reason.clone().into()),
    Field::new("priority", |w: &Whole| w.line.priority.into()),
    Field::new("requestor", |w: &Whole| (&w.line.requestor).into()),
    Field::new("campaign", |w: &Whole| w.line.campaign.clone().into()),
    Field::new("input_dataset", |w: &Whole| w.line.input_dataset.clone().into()),
    Field::new("output_datasets", |w: &Whole| w.line.output_datasets.join(" ").into()),
    Field::new("runs", |w: &Whole| w.programs.join("; ").into()),
    Field::new("workflow", |w: &Whole| w.progress.workflow_id.clone().into()),
    Field::new("progress", |w: &Whole| progress(&w.progress).into()),
    Field::new("estimated_completion", |w: &Whole| w.progress.estimated_completion.into()),
    Field::new("since", |w: &Whole| w.line.since.into()),
    Field::new("changed", |w: &Whole| recovery::changed(&w.recovery).into()),
    Field::new("outputs", |w: &Whole| w.recovery.output_state.clone().into()),
    Field::new("next", |w: &Whole| recovery::next(&w.line, &w.recovery).into()),
];

/// `41.8 %: 12 of 25 work units, 4000 of 9560 nodes; run …`
fn progress(status: &WorkflowStatus) -> String {
    let Some(dag) = &status.dag else { return "nothing is planned yet".to_owned() };
    let failed = if dag.nodes_failed > 0 { format!(", {} failed", dag.nodes_failed) } else { String::new() };
    let held = match dag.nodes_held {
        0 => String::new(),
        held => format!(", {held} held (`windlass dag show {}` says why)", dag.id),
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

pub(super) fn show(ctx: &Context, name: &str) -> Result<Exit, CliError> {
    let desk = ctx.desk_to_read()?;
    let shown = known(&desk, name, desk.request(name))?;
    let progress = desk.status(name)?;
    if ctx.ui.json_wanted() {
        let mut whole = serde_json::to_value(&shown).unwrap_or_default();
        whole["progress"] = json!(progress);
        ctx.ui.print_json(&whole)?;
        return Ok(Exit::Success);
    }
    let request = shown.request;
    let programs = programs(&request);
    let line = RequestLine {
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
    ctx.ui.print_line(&recovery::told(&line, &recovery))?;
    ctx.ui.print_line("")?;
    ctx.ui.print_record(&Listing::new(WHOLE), Whole { line, programs, progress, recovery })?;
    if !blocks.is_empty() {
        ctx.ui.print_line("")?;
        ctx.ui.print_list(&Listing::new(BLOCKS), blocks)?;
    }
    ctx.ui.print_line("")?;
    ctx.ui.print_list(&Listing::new(TRANSITIONS), shown.status_transitions)?;
    Ok(Exit::Success)
}

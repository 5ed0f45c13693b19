//! `windlass slurm audit`: the history of each allocation, from its row and its events.

use crate::args::allocations::AllocationAuditArgs;
use crate::commands::workflow_parts::print_objects;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{ListField, ListFields};
use crate::ui::table::TableColumn;
use crate::ui::text;
use serde_json::Value;
use std::collections::HashMap;
use windlass_store::Store;
use windlass_store::model::{AllocationFilter, EventFilter, EventRow};
use windlass_types::slurm::{Allocation, AllocationState};
use windlass_types::{AllocationId, Timestamp, WorkflowId, format_duration};

/// An event of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AllocationAuditStep {
    allocation: AllocationId,
    at: Timestamp,
    what: String,
    job_id: Option<u64>,
    /// Empty if no user is recorded.
    who: String,
    detail: String,
}

const FIELDS: &[ListField<AllocationAuditStep>] = &[
    ListField::new("allocation_id", |s: &AllocationAuditStep| s.allocation.0.into())
        .column(TableColumn::number("ID")),
    ListField::new("at", |s: &AllocationAuditStep| s.at.into()).column(TableColumn::text("TIME")),
    ListField::new("what", |s: &AllocationAuditStep| (&s.what).into()).column(TableColumn::text("WHAT")),
    ListField::new("slurm_job_id", |s: &AllocationAuditStep| s.job_id.into())
        .column(TableColumn::number("JOB")),
    ListField::new("who", |s: &AllocationAuditStep| (&s.who).into()).column(TableColumn::flexible("WHO")),
    ListField::new("detail", |s: &AllocationAuditStep| (&s.detail).into())
        .column(TableColumn::flexible("DETAIL")),
];

const UNWANTED: &str = "unwanted";

pub(crate) fn run(ctx: &CliContext, args: &AllocationAuditArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let filter = AllocationFilter {
        workflow: Some(workflow.id),
        ids: args.allocations.clone(),
        ..AllocationFilter::default()
    };
    let rows = store.allocations(&filter)?;
    if let Some(id) = args.allocations.iter().find(|id| !rows.iter().any(|row| row.id == **id)) {
        return Err(CliError::user(format!("workflow {} has no allocation {id}", workflow.id))
            .with_hint(format!("`windlass slurm allocations {}` lists its allocations", workflow.id)));
    }
    let events = load_allocation_events(&*store, workflow.id)?;
    let audit_steps =
        rows.iter().flat_map(|row| list_audit_steps(row, events.get(&row.id).map_or(&[][..], Vec::as_slice)));
    print_objects(ctx, &workflow, ListFields::new(FIELDS), audit_steps.collect(), &args.page)
}

/// Queries only the events of allocations, among possibly millions of the workflow.
fn load_allocation_events(
    store: &dyn Store,
    workflow: WorkflowId,
) -> Result<HashMap<AllocationId, Vec<EventRow>>, CliError> {
    let mut found: HashMap<AllocationId, Vec<EventRow>> = HashMap::new();
    for name in AllocationState::ALL.map(AllocationState::name).into_iter().chain([UNWANTED]) {
        let filter = EventFilter { category: Some(event_category(name)), ..EventFilter::default() };
        for event in store.events(Some(workflow), &filter)? {
            let id = event.data.as_ref().and_then(|data| data["allocation_id"].as_i64());
            if let Some(id) = id {
                found.entry(AllocationId(id)).or_default().push(event);
            }
        }
    }
    Ok(found)
}

fn event_category(name: &str) -> String {
    format!("allocation_{name}")
}

/// The history from the intent to the end. Events may have been deleted: the row replaces missing ones.
fn list_audit_steps(row: &Allocation, events: &[EventRow]) -> Vec<AllocationAuditStep> {
    let step = |at: Timestamp, what: &str, who: &str, detail: String| AllocationAuditStep {
        allocation: row.id,
        at,
        what: what.to_owned(),
        job_id: row.job_id.filter(|_| what != "asked"),
        who: who.to_owned(),
        detail,
    };
    // The creation event repeats what the row contains.
    let noted = events.iter().filter(|event| !is_creation(event)).map(|event| {
        let what = event.category.strip_prefix(&event_category("")).unwrap_or(&event.category);
        AllocationAuditStep {
            job_id: event.data.as_ref().and_then(|data| data["slurm_job_id"].as_u64()),
            ..step(event.at, what, &event.actor, event.data.as_ref().map(render_detail).unwrap_or_default())
        }
    });
    let mut steps: Vec<AllocationAuditStep> = noted.collect();
    // Slurm's state, if the allocation was submitted.
    let end = row.end.map(|end| end.name().to_owned()).or_else(|| row.reason.clone()).unwrap_or_default();
    for (state, at, detail) in [
        (AllocationState::Submitting, row.submitted_at, String::new()),
        (AllocationState::Running, row.started_at, row.nodes.clone().unwrap_or_default()),
        (row.state, row.ended_at, end),
    ] {
        let is_noted = steps.iter().any(|step| step.what == state.name());
        if let Some(at) = at.filter(|_| !is_noted) {
            steps.push(step(at, state.name(), "", detail));
        }
    }
    steps.sort_by_key(|step| step.at);
    let what = if row.is_ours { "asked" } else { "stated" };
    steps.insert(0, step(row.created_at, what, &row.by, render_request(row)));
    steps
}

/// The first event, which has no previous state.
fn is_creation(event: &EventRow) -> bool {
    event.category == event_category(AllocationState::Intended.name())
        && event.data.as_ref().is_none_or(|data| data["from"].is_null())
}

fn render_request(row: &Allocation) -> String {
    let request = &row.request;
    let nodes = text::render_count(request.nodes.into(), "node");
    let action = row.action.map(|(action, ..)| format!(", by action {action}")).unwrap_or_default();
    let again = match row.submissions {
        0 | 1 => String::new(),
        often => format!(", submitted {often} times"),
    };
    let time = format_duration(request.walltime);
    format!("tag {}: {nodes} for {time}, scheduler {}{action}{again}", row.tag, request.scheduler)
}

fn render_detail(data: &Value) -> String {
    let text = |name: &str| data[name].as_str().filter(|text| !text.is_empty());
    let exit = text("exit_code").map(|code| format!("exit {code}"));
    let parts = [text("end").map(str::to_owned), exit, text("nodes").map(str::to_owned)];
    let parts = parts.into_iter().chain([text("reason").map(str::to_owned)]);
    parts.flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use windlass_store::model::EventSeverity;
    use windlass_types::EventId;
    use windlass_types::slurm::{AllocationRequest, SlurmJobState};

    fn row() -> Allocation {
        Allocation {
            id: AllocationId(5),
            workflow: WorkflowId(1),
            is_ours: true,
            scheduler: None,
            tag: "windlass-1-5".into(),
            request: AllocationRequest {
                scheduler: "night".into(),
                nodes: 2,
                ..AllocationRequest::default()
            },
            state: AllocationState::Ended,
            job_id: Some(8),
            restarts: 0,
            reason: None,
            nodes: Some("n[1-2]".into()),
            action: Some((3, 1, 0)),
            by: "ann".into(),
            unwanted: None,
            created_at: Timestamp(1),
            submitted_at: Some(Timestamp(2)),
            submissions: 2,
            started_at: Some(Timestamp(3)),
            ends_at: None,
            ended_at: Some(Timestamp(9)),
            end: Some(SlurmJobState::Timeout),
            exit_code: None,
            seen_at: None,
            missed: 0,
        }
    }

    fn event(at: i64, name: &str, data: Value) -> EventRow {
        EventRow {
            id: EventId(at),
            workflow_id: Some(WorkflowId(1)),
            job_id: None,
            at: Timestamp(at),
            severity: EventSeverity::Info,
            category: event_category(name),
            actor: "windlass".into(),
            message: String::new(),
            data: Some(data),
        }
    }

    fn told(steps: &[AllocationAuditStep]) -> Vec<String> {
        let tell = |step: &AllocationAuditStep| {
            let job = step.job_id.map_or_else(|| "-".to_owned(), |job| job.to_string());
            format!("{} {} {job} {:?} {}", step.at.0, step.what, step.who, step.detail)
        };
        steps.iter().map(tell).collect()
    }

    #[test]
    fn allocation_audit_uses_events_or_row() {
        let asked = "1 asked - \"ann\" tag windlass-1-5: 2 nodes for 0ms, scheduler night, by action 3, submitted 2 times";
        let found = list_audit_steps(&row(), &[]);
        assert_eq!(
            told(&found),
            [asked, "2 submitting 8 \"\" ", "3 running 8 \"\" n[1-2]", "9 ended 8 \"\" TIMEOUT"]
        );
        let events = [
            event(1, "intended", json!({ "scheduler": "night" })),
            event(4, "intended", json!({ "from": "submitting", "reason": "not found" })),
            event(2, "submitting", json!({ "from": "intended" })),
            event(6, "running", json!({ "slurm_job_id": 8, "nodes": "n[1-2]" })),
            event(9, "ended", json!({ "slurm_job_id": 8, "end": "TIMEOUT", "exit_code": "0:15" })),
        ];
        assert_eq!(
            told(&list_audit_steps(&row(), &events)),
            [
                asked,
                "2 submitting - \"windlass\" ",
                "4 intended - \"windlass\" not found",
                "6 running 8 \"windlass\" n[1-2]",
                "9 ended 8 \"windlass\" TIMEOUT, exit 0:15",
            ]
        );
    }
}

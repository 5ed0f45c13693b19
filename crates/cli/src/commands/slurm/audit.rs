//! `windlass slurm audit`: what became of each allocation, from its row and from the events about it.

use crate::args::allocations::AuditArgs;
use crate::commands::parts::print;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use crate::ui::text;
use serde_json::Value;
use std::collections::HashMap;
use windlass_store::Store;
use windlass_store::model::{AllocationFilter, EventFilter, EventRow};
use windlass_types::slurm::{Allocation, AllocationState};
use windlass_types::{AllocationId, Timestamp, WorkflowId, format_duration};

/// Something that happened to an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    allocation: AllocationId,
    at: Timestamp,
    what: String,
    job_id: Option<u64>,
    /// Empty where nobody noted it.
    who: String,
    detail: String,
}

const FIELDS: &[Field<Step>] = &[
    Field::new("allocation_id", |s: &Step| s.allocation.0.into()).column(Column::number("ID")),
    Field::new("at", |s: &Step| s.at.into()).column(Column::text("TIME")),
    Field::new("what", |s: &Step| (&s.what).into()).column(Column::text("WHAT")),
    Field::new("slurm_job_id", |s: &Step| s.job_id.into()).column(Column::number("JOB")),
    Field::new("who", |s: &Step| (&s.who).into()).column(Column::elastic("WHO")),
    Field::new("detail", |s: &Step| (&s.detail).into()).column(Column::elastic("DETAIL")),
];

const UNWANTED: &str = "unwanted";

pub(crate) fn run(ctx: &Context, args: &AuditArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let filter = AllocationFilter {
        workflow: Some(workflow.id),
        ids: args.allocations.clone(),
        ..AllocationFilter::default()
    };
    let rows = store.allocations(&filter)?;
    if let Some(id) = args.allocations.iter().find(|id| !rows.iter().any(|row| row.id == **id)) {
        return Err(CliError::user(format!("workflow {} has no allocation {id}", workflow.id))
            .with_hint(format!("`windlass slurm allocations {}` lists those that it has", workflow.id)));
    }
    let events = events(&*store, workflow.id)?;
    let trails = rows.iter().flat_map(|row| trail(row, events.get(&row.id).map_or(&[][..], Vec::as_slice)));
    print(ctx, &workflow, Listing::new(FIELDS), trails.collect(), &args.page)
}

/// Those about allocations: of millions of a workflow only they are asked for.
fn events(store: &dyn Store, workflow: WorkflowId) -> Result<HashMap<AllocationId, Vec<EventRow>>, CliError> {
    let mut found: HashMap<AllocationId, Vec<EventRow>> = HashMap::new();
    for name in AllocationState::ALL.map(AllocationState::name).into_iter().chain([UNWANTED]) {
        let filter = EventFilter { category: Some(category(name)), ..EventFilter::default() };
        for event in store.events(Some(workflow), &filter)? {
            let id = event.data.as_ref().and_then(|data| data["allocation_id"].as_i64());
            if let Some(id) = id {
                found.entry(AllocationId(id)).or_default().push(event);
            }
        }
    }
    Ok(found)
}

fn category(name: &str) -> String {
    format!("allocation_{name}")
}

/// From its intent to its end. Events may have been deleted: what the row still tells of them stands in their place.
fn trail(row: &Allocation, events: &[EventRow]) -> Vec<Step> {
    let step = |at: Timestamp, what: &str, who: &str, detail: String| Step {
        allocation: row.id,
        at,
        what: what.to_owned(),
        job_id: row.job_id.filter(|_| what != "asked"),
        who: who.to_owned(),
        detail,
    };
    // What an event of its creation says, the row says too.
    let noted = events.iter().filter(|event| !is_creation(event)).map(|event| {
        let what = event.category.strip_prefix(&category("")).unwrap_or(&event.category);
        Step {
            job_id: event.data.as_ref().and_then(|data| data["slurm_job_id"].as_u64()),
            ..step(event.at, what, &event.actor, event.data.as_ref().map(detail).unwrap_or_default())
        }
    });
    let mut steps: Vec<Step> = noted.collect();
    // Slurm's word, if it came that far.
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
    steps.insert(0, step(row.created_at, what, &row.by, asked(row)));
    steps
}

/// The first of them, which no state came before.
fn is_creation(event: &EventRow) -> bool {
    event.category == category(AllocationState::Intended.name())
        && event.data.as_ref().is_none_or(|data| data["from"].is_null())
}

fn asked(row: &Allocation) -> String {
    let request = &row.request;
    let nodes = text::count(request.nodes.into(), "node");
    let action = row.action.map(|(action, ..)| format!(", by action {action}")).unwrap_or_default();
    let again = match row.submissions {
        0 | 1 => String::new(),
        often => format!(", submitted {often} times"),
    };
    let time = format_duration(request.walltime);
    format!("tag {}: {nodes} for {time}, scheduler {}{action}{again}", row.tag, request.scheduler)
}

fn detail(data: &Value) -> String {
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
    use windlass_store::model::Severity;
    use windlass_types::EventId;
    use windlass_types::slurm::{AllocationRequest, SlurmState};

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
            end: Some(SlurmState::Timeout),
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
            severity: Severity::Info,
            category: category(name),
            actor: "windlass".into(),
            message: String::new(),
            data: Some(data),
        }
    }

    fn told(steps: &[Step]) -> Vec<String> {
        let tell = |step: &Step| {
            let job = step.job_id.map_or_else(|| "-".to_owned(), |job| job.to_string());
            format!("{} {} {job} {:?} {}", step.at.0, step.what, step.who, step.detail)
        };
        steps.iter().map(tell).collect()
    }

    #[test]
    fn what_events_tell_and_what_the_row_tells_without_them() {
        let asked = "1 asked - \"ann\" tag windlass-1-5: 2 nodes for 0ms, scheduler night, by action 3, submitted 2 times";
        let found = trail(&row(), &[]);
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
            told(&trail(&row(), &events)),
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

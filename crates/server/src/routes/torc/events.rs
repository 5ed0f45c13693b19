//! Events: what was noted, by the server or by clients.

use super::call::{Call, limit, offset};
use super::table::Table;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use serde_json::{Map, Value, json};
use windlass_api::torc::query::{ListEvents, OfWorkflow};
use windlass_api::torc::{EventModel, Page};
use windlass_auth::Operation;
use windlass_store::model::{Counted, EventFilter, EventRow, NewEvent, Part, Severity};
use windlass_types::{EventId, Timestamp};

pub(super) fn table() -> Table {
    Table::new("events")
        .get("/events", "list_events", "Events of a workflow, oldest first", list)
        .post("/events", "create_event", "Notes something", create)
        .delete("/events", "delete_events", "Deletes the events of a workflow", delete_all)
        .get("/events/{id}", "get_event", "One event", get)
        .put("/events/{id}", "update_event", "Replaces what an event says", update)
        .delete("/events/{id}", "delete_event", "Deletes an event", delete)
}

fn list(call: &Call, Query(query): Query<ListEvents>) -> Answer<Page<EventModel>> {
    let row = call.workflow(Operation::ReadWorkflow, query.workflow_id)?;
    let view = query.view();
    if !matches!(view.sort_by, None | Some("id" | "timestamp" | "workflow_id")) {
        return Err(ApiError::invalid("events are sorted by id or timestamp"));
    }
    let mut filter = EventFilter {
        category: query.category.clone(),
        since: query.after_timestamp.map(|ms| Timestamp(ms.saturating_mul(1000).saturating_add(999))),
        descending: view.reverse,
        ..EventFilter::default()
    };
    let total = call.store().count(&Counted::Events(Some(row.id), filter.clone()))?;
    filter.offset = offset(view);
    filter.limit = limit(view);
    let events = call.store().events(Some(row.id), &filter)?;
    Ok(Page::new(events.into_iter().map(model).collect(), view.offset, total as i64))
}

fn get(call: &Call, Path(id): Path<i64>) -> Answer<EventModel> {
    call.part(Operation::ReadWorkflow, Part::Event(EventId(id)))?;
    shown(call, id)
}

fn shown(call: &Call, id: i64) -> Answer<EventModel> {
    let row = call.store().event(EventId(id))?;
    row.map(model).ok_or_else(|| ApiError::not_found(format_args!("event {id}")))
}

/// The category is what the data say it is. The time is ours.
fn create(call: &Call, Json(body): Json<EventModel>) -> Answer<EventModel> {
    let row = call.workflow(Operation::Work, body.workflow_id)?;
    let word = |field: &str| body.data.get(field).and_then(Value::as_str);
    let event = NewEvent {
        workflow: Some(row.id),
        job: None,
        severity: severity(word("severity").or_else(|| word("level"))),
        category: word("category").unwrap_or("user").chars().take(100).collect(),
        // What clients say is in the data, and given back as it came.
        message: String::new(),
        data: Some(body.data.clone()),
    };
    let id = call.store().acting_as(call.by()).add_event(&event, call.now())?;
    shown(call, id.0)
}

fn severity(word: Option<&str>) -> Severity {
    match word {
        Some("debug") => Severity::Debug,
        Some("warning") => Severity::Warning,
        Some("error") => Severity::Error,
        _ => Severity::Info,
    }
}

fn update(call: &Call, Path(id): Path<i64>, Json(body): Json<Value>) -> Answer<EventModel> {
    call.part(Operation::ChangeWorkflow, Part::Event(EventId(id)))?;
    // A whole event, or only its data.
    let data = match &body {
        Value::Object(fields) if fields.contains_key("data") && fields.contains_key("workflow_id") => {
            &fields["data"]
        }
        _ => &body,
    };
    call.store().acting_as(call.by()).update_event(EventId(id), data, call.now())?;
    shown(call, id)
}

fn delete(call: &Call, Path(id): Path<i64>) -> Answer<EventModel> {
    call.part(Operation::ChangeWorkflow, Part::Event(EventId(id)))?;
    let event = shown(call, id)?;
    call.store().acting_as(call.by()).delete_event(EventId(id), call.now())?;
    Ok(event)
}

fn delete_all(call: &Call, Query(query): Query<OfWorkflow>) -> Answer<Value> {
    let row = call.workflow(Operation::ChangeWorkflow, query.workflow_id)?;
    let count = call.store().acting_as(call.by()).delete_events(row.id, call.now())?;
    Ok(json!({ "count": count }))
}

fn model(row: EventRow) -> EventModel {
    let id = row.id.0;
    let workflow_id = row.workflow_id.map_or(0, |id| id.0);
    let timestamp = row.at.micros() / 1000;
    EventModel { id: Some(id), workflow_id, timestamp, data: data(row) }
}

/// What a client noted is given back as it came; to what we noted, we add who, what and how grave.
fn data(row: EventRow) -> Value {
    if row.message.is_empty()
        && row.job_id.is_none()
        && let Some(data) = row.data
    {
        return data;
    }
    let mut all = match row.data {
        Some(Value::Object(fields)) => fields,
        Some(other) => Map::from_iter([("value".to_owned(), other)]),
        None => Map::new(),
    };
    let mut add = |field: &str, value: Value| {
        all.entry(field.to_owned()).or_insert(value);
    };
    add("category", json!(row.category));
    add("severity", json!(row.severity));
    add("user", json!(row.actor));
    add("message", json!(row.message));
    if let Some(job) = row.job_id {
        add("job_id", json!(job));
    }
    Value::Object(all)
}

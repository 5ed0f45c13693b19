//! Events, recorded by the server or by clients.

use super::call_context::{TorcCallContext, limit, offset};
use super::operation_table::OperationTable;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use serde_json::{Map, Value, json};
use windlass_api::torc::query::{ListEvents, WorkflowQuery};
use windlass_api::torc::{EventModel, ListPage};
use windlass_auth::AuthOperation;
use windlass_store::model::{
    CountQuery, EventFilter, EventRow, EventSeverity, NewEvent, WorkflowPartId, is_reserved_event_category,
};
use windlass_types::{EventId, Timestamp};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("events")
        .get("/events", "list_events", "List the events of a workflow, oldest first", list_events)
        .post("/events", "create_event", "Add an event", create_event)
        .delete("/events", "delete_events", "Delete the events of a workflow", delete_events)
        .get("/events/{id}", "get_event", "Get an event", get_event)
        .put("/events/{id}", "update_event", "Replace the data of an event", update_event)
        .delete("/events/{id}", "delete_event", "Delete an event", delete_event)
}

fn list_events(call: &TorcCallContext, Query(query): Query<ListEvents>) -> ApiResult<ListPage<EventModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, query.workflow_id)?;
    let view = query.view();
    if !matches!(view.sort_by, None | Some("id" | "timestamp" | "workflow_id")) {
        return Err(ApiError::invalid("events can be sorted by id or timestamp"));
    }
    let mut filter = EventFilter {
        category: query.category.clone(),
        since: query.after_timestamp.map(|ms| Timestamp(ms.saturating_mul(1000).saturating_add(999))),
        descending: view.reverse,
        ..EventFilter::default()
    };
    let total = call.store().count_rows(&CountQuery::Events(Some(row.id), filter.clone()))?;
    filter.offset = offset(view);
    filter.limit = limit(view);
    let events = call.store().events(Some(row.id), &filter)?;
    Ok(ListPage::new(events.into_iter().map(event_model).collect(), view.offset, total as i64))
}

fn get_event(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<EventModel> {
    call.authorize_part(AuthOperation::ReadWorkflow, WorkflowPartId::Event(EventId(id)))?;
    load_event_model(call, id)
}

fn load_event_model(call: &TorcCallContext, id: i64) -> ApiResult<EventModel> {
    let row = call.store().event(EventId(id))?;
    row.map(event_model).ok_or_else(|| ApiError::not_found(format_args!("event {id}")))
}

/// The category is taken from the data. The server sets the time.
fn create_event(call: &TorcCallContext, Json(body): Json<EventModel>) -> ApiResult<EventModel> {
    let row = call.authorize_workflow(AuthOperation::RunJobs, body.workflow_id)?;
    let word = |field: &str| body.data.get(field).and_then(Value::as_str);
    let category: String = word("category").unwrap_or("user").chars().take(100).collect();
    check_event_category(&category)?;
    let event = NewEvent {
        workflow: Some(row.id),
        job: None,
        severity: parse_severity(word("severity").or_else(|| word("level"))),
        category,
        // Client data is stored and returned unchanged.
        message: String::new(),
        data: Some(body.data.clone()),
    };
    let id = call.store().acting_as(call.caller_name()).add_event(&event, call.now())?;
    load_event_model(call, id.0)
}

/// Rejects categories of events that only the server records.
pub(crate) fn check_event_category(category: &str) -> ApiResult<()> {
    if is_reserved_event_category(category) {
        return Err(ApiError::invalid(format!(
            "events of the category `{category}` are recorded by the server only"
        ))
        .with_hint("use another category, for example `user`"));
    }
    Ok(())
}

fn parse_severity(word: Option<&str>) -> EventSeverity {
    match word {
        Some("debug") => EventSeverity::Debug,
        Some("warning") => EventSeverity::Warning,
        Some("error") => EventSeverity::Error,
        _ => EventSeverity::Info,
    }
}

fn update_event(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<Value>,
) -> ApiResult<EventModel> {
    call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::Event(EventId(id)))?;
    // A whole event, or only its data.
    let data = match &body {
        Value::Object(fields) if fields.contains_key("data") && fields.contains_key("workflow_id") => {
            &fields["data"]
        }
        _ => &body,
    };
    call.store().acting_as(call.caller_name()).update_event(EventId(id), data, call.now())?;
    load_event_model(call, id)
}

fn delete_event(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<EventModel> {
    call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::Event(EventId(id)))?;
    let event = load_event_model(call, id)?;
    call.store().acting_as(call.caller_name()).delete_event(EventId(id), call.now())?;
    Ok(event)
}

fn delete_events(call: &TorcCallContext, Query(query): Query<WorkflowQuery>) -> ApiResult<Value> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, query.workflow_id)?;
    let count = call.store().acting_as(call.caller_name()).delete_events(row.id, call.now())?;
    Ok(json!({ "count": count }))
}

fn event_model(row: EventRow) -> EventModel {
    let id = row.id.0;
    let workflow_id = row.workflow_id.map_or(0, |id| id.0);
    let timestamp = row.at.micros() / 1000;
    EventModel { id: Some(id), workflow_id, timestamp, data: event_data(row) }
}

/// Events of clients are returned unchanged; events of the server get user, message and severity added.
fn event_data(row: EventRow) -> Value {
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

//! Live events: server-sent events, resumed by id.

use crate::caller::{Caller, RequestCredential};
use crate::error::{ApiError, ApiResult};
use crate::event_publisher::EventSubscription;
use crate::extract::{Path, Query};
use crate::state::{AppState, run_blocking};
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::HeaderName;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use windlass_auth::{AuthOperation, AuthenticationError};
use windlass_store::model::{EventRow, EventSeverity};
use windlass_types::{EventId, WorkflowId};

pub(crate) fn streaming_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(stream_events))
}

pub(crate) fn torc_streaming_routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(stream_workflow_events))
}

/// Interval of keep-alive comments, by which readers detect dead connections.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Reconnect delay for disconnected readers.
const CLIENT_RETRY_DELAY: Duration = Duration::from_secs(1);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EventLevel {
    Debug,
    Info,
    Warning,
    Error,
}

impl From<EventLevel> for EventSeverity {
    fn from(level: EventLevel) -> Self {
        match level {
            EventLevel::Debug => Self::Debug,
            EventLevel::Info => Self::Info,
            EventLevel::Warning => Self::Warning,
            EventLevel::Error => Self::Error,
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventStreamQuery {
    /// Only events of this workflow. Default: all events that the caller may see.
    workflow: Option<i64>,
    /// Start after the event with this id. Default: new events only. The header `Last-Event-ID`, which
    /// browsers send automatically, takes precedence.
    after: Option<i64>,
    /// Minimum severity.
    severity: Option<EventLevel>,
    /// Only events of this category.
    category: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WorkflowEventStreamQuery {
    /// Minimum severity.
    level: Option<EventLevel>,
    /// Start after the event with this id. Default: new events only.
    after: Option<i64>,
}

/// Stream events
///
/// Server-sent events: `id` is the id of the event, `event` its category, `data` the event as JSON. A slow
/// reader is disconnected, and so are all readers when the server stops; reconnecting with `Last-Event-ID`
/// resumes without a gap.
#[utoipa::path(get, path = "/events/stream", tag = "events", params(EventStreamQuery),
    responses((status = 200, description = "Events until the client disconnects", content_type = "text/event-stream", body = String)))]
async fn stream_events(
    State(state): State<AppState>,
    caller: Caller,
    Extension(credential): Extension<RequestCredential>,
    headers: HeaderMap,
    Query(follow): Query<EventStreamQuery>,
) -> ApiResult<Response> {
    let workflow = follow.workflow.map(WorkflowId);
    let sees = caller.event_visibility(&state, workflow).await?;
    let subscription = state.events.subscribe(workflow, resume_after(&headers, follow.after)?).await?;
    let severity = follow.severity.map(EventSeverity::from);
    let wanted = move |event: &EventRow| {
        severity.is_none_or(|least| event.severity >= least)
            && follow.category.as_ref().is_none_or(|category| *category == event.category)
    };
    let right = StreamPermission::new(state, caller, credential, workflow);
    Ok(stream_response(right, subscription, sees, wanted, windlass_event))
}

/// Stream events of a workflow in the format of Torc
#[utoipa::path(get, path = "/workflows/{id}/events/stream", tag = "events", params(("id" = i64, Path,), WorkflowEventStreamQuery),
    responses((status = 200, description = "Events until the client disconnects", content_type = "text/event-stream", body = String)))]
async fn stream_workflow_events(
    State(state): State<AppState>,
    caller: Caller,
    Extension(credential): Extension<RequestCredential>,
    headers: HeaderMap,
    Path(id): Path<i64>,
    Query(follow): Query<WorkflowEventStreamQuery>,
) -> ApiResult<Response> {
    let workflow = Some(WorkflowId(id));
    let sees = caller.event_visibility(&state, workflow).await?;
    let subscription = state.events.subscribe(workflow, resume_after(&headers, follow.after)?).await?;
    let severity = follow.level.map_or(EventSeverity::Info, EventSeverity::from);
    let right = StreamPermission::new(state, caller, credential, workflow);
    Ok(stream_response(right, subscription, sees, move |event| event.severity >= severity, torc_event))
}

fn resume_after(headers: &HeaderMap, asked: Option<i64>) -> ApiResult<Option<EventId>> {
    let Some(header) = headers.get(LAST_EVENT_ID) else { return Ok(asked.map(EventId)) };
    let id = header.to_str().ok().and_then(|text| text.trim().parse().ok());
    id.map(|id| Some(EventId(id))).ok_or_else(|| ApiError::invalid("Last-Event-ID is not an event id"))
}

/// The permission of a reader to follow events; checked again while the stream is open.
pub(crate) struct StreamPermission {
    state: AppState,
    caller: Caller,
    credential: RequestCredential,
    workflow: Option<WorkflowId>,
    check_at: tokio::time::Instant,
}

impl StreamPermission {
    fn new(
        state: AppState,
        caller: Caller,
        credential: RequestCredential,
        workflow: Option<WorkflowId>,
    ) -> Self {
        let check_at = tokio::time::Instant::now() + state.options.permission_check_interval;
        Self { state, caller, credential, workflow, check_at }
    }

    /// Returns the next events; `None`: the stream has ended, or the permission was revoked.
    async fn next_events(&mut self, subscription: &mut EventSubscription) -> Option<Vec<EventRow>> {
        loop {
            let heard = tokio::time::timeout_at(self.check_at, subscription.next_batch()).await;
            if tokio::time::Instant::now() >= self.check_at {
                if !self.is_still_allowed().await {
                    return None;
                }
                self.check_at = tokio::time::Instant::now() + self.state.options.permission_check_interval;
            }
            if let Ok(batch) = heard {
                return batch;
            }
        }
    }

    /// Checks the credential and the permission again. If that fails for the moment, the stream continues.
    async fn is_still_allowed(&self) -> bool {
        match self.credential.authenticate(&self.state).await {
            Ok(now) if now != self.caller.0 => return false,
            Ok(_) | Err(AuthenticationError::Unavailable | AuthenticationError::Throttled(_)) => {}
            Err(_) => return false,
        }
        let Some(id) = self.workflow else { return true };
        match self.caller.authorize_workflow(&self.state, AuthOperation::ReadWorkflow, id).await {
            Ok(_) => true,
            Err(error) => !error.status.is_client_error(),
        }
    }
}

/// Which events a caller may see.
pub(crate) enum EventVisibility {
    All,
    /// Asks the database (on a blocking thread) and caches the answers.
    Filtered(Box<dyn FnMut(WorkflowId) -> bool + Send>),
}

impl EventVisibility {
    /// `remembered`: how long a permission is cached; a revoked one ends after this time.
    pub(crate) fn cached(remembered: Duration, may: impl Fn(WorkflowId) -> bool + Send + 'static) -> Self {
        let mut known: HashMap<WorkflowId, (bool, Instant)> = HashMap::new();
        Self::Filtered(Box::new(move |id| match known.get(&id) {
            Some((sees, asked)) if asked.elapsed() < remembered => *sees,
            _ => {
                let sees = may(id);
                known.insert(id, (sees, Instant::now()));
                sees
            }
        }))
    }

    /// Removes the events that the caller may not see.
    async fn filter_events(self, events: Vec<EventRow>) -> Option<(Vec<EventRow>, Self)> {
        let Self::Filtered(mut may) = self else { return Some((events, self)) };
        let sifted = run_blocking(move || {
            let mine = events.into_iter().filter(|event| event.workflow_id.is_some_and(&mut may)).collect();
            (mine, Self::Filtered(may))
        });
        sifted.await.ok()
    }
}

fn stream_response(
    right: StreamPermission,
    subscription: EventSubscription,
    sees: EventVisibility,
    wanted: impl Fn(&EventRow) -> bool + Send + 'static,
    say: fn(&EventRow) -> Event,
) -> Response {
    let welcome = stream::once(async { Ok(Event::default().retry(CLIENT_RETRY_DELAY).comment("following")) });
    let events = welcome.chain(render_event_stream(right, subscription, sees, wanted, say));
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response();
    // Proxies that buffer responses would delay events.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    response
}

fn render_event_stream(
    right: StreamPermission,
    subscription: EventSubscription,
    sees: EventVisibility,
    wanted: impl Fn(&EventRow) -> bool + Send + 'static,
    say: fn(&EventRow) -> Event,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let reader = (right, subscription, sees, wanted);
    let batches = stream::unfold(reader, move |(mut right, mut subscription, sees, wanted)| async move {
        let batch = right.next_events(&mut subscription).await?;
        let (batch, sees) = sees.filter_events(batch.into_iter().filter(&wanted).collect()).await?;
        let events: Vec<_> = batch.iter().map(|event| Ok(say(event))).collect();
        Some((stream::iter(events), (right, subscription, sees, wanted)))
    });
    batches.flatten()
}

fn windlass_event(event: &EventRow) -> Event {
    sse_event(event, &json!(event))
}

fn torc_event(event: &EventRow) -> Event {
    sse_event(
        event,
        &json!({
            "workflow_id": event.workflow_id,
            "timestamp": event.at.0 / 1000,
            "event_type": event.category,
            "severity": event.severity,
            "data": event.data.clone().unwrap_or_else(|| json!({"message": event.message})),
        }),
    )
}

fn sse_event(event: &EventRow, data: &serde_json::Value) -> Event {
    let category = event.category.replace(['\n', '\r'], " ");
    Event::default().id(event.id.0.to_string()).event(category).data(data.to_string())
}

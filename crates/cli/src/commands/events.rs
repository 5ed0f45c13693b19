//! `windlass events`: lists events of workflows with user and time.

use crate::args::files_and_events::{
    CreateEventArgs, EventSeverityArg, EventsListArgs, EventsSubcommand, FollowEventsArgs,
};
use crate::args::workflows::OneWorkflowArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{FieldValue, ListField, ListFields, RecordView};
use crate::ui::style::TextTone;
use crate::ui::table::TableColumn;
use crate::ui::text;
use crate::workflow_view;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use windlass_client::{Client, EventStreamOptions, RelocateServer};
use windlass_store::Store;
use windlass_store::model::{EventFilter, EventRow, EventSeverity, NewEvent};
use windlass_store::rpc::rpc_error::ErrorCategory;
use windlass_types::{EventId, WorkflowId};

/// Poll interval: the database cannot notify about another process.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Idle time of the event stream after which the server is considered to have sent all present events.
const STREAM_IDLE: Duration = Duration::from_millis(500);

const FIELDS: &[ListField<EventRow>] = &[
    ListField::new("id", |e: &EventRow| e.id.0.into()).column(TableColumn::number("ID")),
    ListField::new("workflow_id", |e: &EventRow| e.workflow_id.map(|id| id.0).into()),
    ListField::new("at", |e: &EventRow| e.at.into()).column(TableColumn::text("TIME")),
    ListField::new("severity", |e: &EventRow| severity_value(e.severity))
        .column(TableColumn::text("SEVERITY")),
    ListField::new("category", |e: &EventRow| (&e.category).into()).column(TableColumn::text("CATEGORY")),
    ListField::new("actor", |e: &EventRow| (&e.actor).into()).column(TableColumn::text("WHO")),
    ListField::new("message", |e: &EventRow| (&e.message).into()).column(TableColumn::flexible("MESSAGE")),
    ListField::new("data", |e: &EventRow| e.data.clone().map_or(FieldValue::Empty, FieldValue::Json)),
];

const fn severity_value(severity: EventSeverity) -> FieldValue {
    match severity {
        EventSeverity::Debug => FieldValue::Word("debug", Some(TextTone::Dim)),
        EventSeverity::Info => FieldValue::Word("info", None),
        EventSeverity::Warning => FieldValue::Word("warning", Some(TextTone::Warn)),
        EventSeverity::Error => FieldValue::Word("error", Some(TextTone::Bad)),
    }
}

impl From<EventSeverityArg> for EventSeverity {
    fn from(level: EventSeverityArg) -> Self {
        match level {
            EventSeverityArg::Debug => Self::Debug,
            EventSeverityArg::Info => Self::Info,
            EventSeverityArg::Warning => Self::Warning,
            EventSeverityArg::Error => Self::Error,
        }
    }
}

pub(crate) fn run(ctx: &CliContext, verb: &EventsSubcommand) -> Result<CliExit, CliError> {
    match verb {
        EventsSubcommand::List(args) => list_events(ctx, args),
        EventsSubcommand::Create(args) => create_event(ctx, args),
        EventsSubcommand::GetLatestEvent(args) => show_latest_event(ctx, args),
        EventsSubcommand::Follow(args) => follow_events(ctx, args),
        EventsSubcommand::Delete(args) => super::edit_objects::delete_event(ctx, args),
    }
}

pub(crate) fn list_events(ctx: &CliContext, args: &EventsListArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow =
        if args.all { None } else { Some(object_selection::find_workflow(&*store, &args.workflow)?.id) };
    let filter = EventFilter {
        severity: Some(args.level.into()),
        category: args.category.clone(),
        ..EventFilter::default()
    };
    let listing = ListFields::new(FIELDS).without_fields(&args.page.exclude)?;
    let rows = listing.sort_and_limit(store.events(workflow, &filter)?, &args.page)?;
    if ctx.ui.print_list(&listing, rows)? == 0 {
        ctx.ui.print_note("no events match");
    }
    Ok(CliExit::Success)
}

fn show_latest_event(ctx: &CliContext, args: &OneWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let filter = EventFilter { newest: Some(1), ..EventFilter::default() };
    match store.events(Some(workflow.id), &filter)?.pop() {
        Some(event) => ctx.ui.print_record(&ListFields::new(FIELDS), event)?,
        None => ctx.ui.print_note(&format!("workflow {} ({}) has no events", workflow.id, workflow.name)),
    }
    Ok(CliExit::Success)
}

fn create_event(ctx: &CliContext, args: &CreateEventArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let (message, data) = match serde_json::from_str::<Value>(&args.data) {
        Ok(Value::String(text)) => (text, None),
        Ok(data) => {
            let message =
                data.get("message").and_then(Value::as_str).map_or_else(|| data.to_string(), str::to_owned);
            (message, Some(data))
        }
        Err(_) => (args.data.clone(), None),
    };
    let event = NewEvent {
        workflow: Some(workflow.id),
        job: None,
        severity: args.level.into(),
        category: "user".to_owned(),
        message,
        data,
    };
    let id = store.add_event(&event, ctx.clock.now())?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&serde_json::json!({ "id": id }))?;
    } else {
        ctx.ui.print_note(&format!("recorded as event {id}"));
    }
    Ok(CliExit::Success)
}

/// Prints new events until no process runs the workflow any more, or the time limit is reached.
fn follow_events(ctx: &CliContext, args: &FollowEventsArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let mut file = args.filename.as_ref().map(|path| {
        let opened = OpenOptions::new().append(true).create(true).open(ctx.cwd.join(path));
        opened.map_err(|e| CliError::io(format!("cannot write to {}: {e}", path.display())))
    });
    let mut file = file.take().transpose()?;
    if let Some(client) = ctx.server()? {
        return follow_event_stream(ctx, client, store, workflow.id, args, file);
    }
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let newest = EventFilter { newest: Some(1), ..EventFilter::default() };
    let mut after = store.events(Some(workflow.id), &newest)?.pop().map(|event| event.id);
    if !workflow_view::has_active_process(&*store, &workflow) {
        ctx.ui.print_note(&format!("no process is running workflow {} ({})", workflow.id, workflow.name));
    }
    let mut was_run = false;
    loop {
        // Checked before the events are read, so that no event before the end of the run is missed.
        let is_run = workflow_view::has_active_process(&*store, &workflow);
        let filter = EventFilter { after, severity: Some(args.level.into()), ..EventFilter::default() };
        for event in store.events(Some(workflow.id), &filter)? {
            after = Some(event.id);
            write_event(ctx, &event, file.as_mut())?;
        }
        let is_over = was_run && !is_run;
        if is_over || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(CliExit::Success);
        }
        was_run |= is_run;
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The same for a server, which pushes new events. While the server is unreachable, the stream waits and
/// reconnects.
fn follow_event_stream(
    ctx: &CliContext,
    client: &Client,
    mut store: Arc<dyn Store>,
    workflow: WorkflowId,
    args: &FollowEventsArgs,
    mut file: Option<File>,
) -> Result<CliExit, CliError> {
    let newest = EventFilter { newest: Some(1), ..EventFilter::default() };
    let after = store.events(Some(workflow), &newest)?.pop().map(|event| event.id).or(Some(EventId(0)));
    let severity = Some(args.level.into());
    let stream = client.follow_events(EventStreamOptions {
        workflow: Some(workflow),
        after,
        severity,
        category: None,
    });
    let way_back = || ctx.server_finder().map(|find| Box::new(find) as RelocateServer);
    let mut stream = stream.relocated_by(way_back());
    let relocate = way_back();
    stream.connect()?;
    let (sender, events) = mpsc::channel();
    std::thread::spawn(move || {
        loop {
            let event = stream.next_event();
            let is_last = event.is_err();
            // The receiver is gone: the command is ending.
            if sender.send(event).is_err() || is_last {
                return;
            }
        }
    });
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let (mut was_run, mut last) = (false, after);
    loop {
        let mut asked = store.workflow(workflow);
        if asked.as_ref().is_err_and(is_server_unavailable)
            && let Some(client) = relocate.as_ref().and_then(|find| find())
        {
            // Checked at once: a run that ends before the first event would otherwise never be seen as
            // running.
            store = Arc::new(client.store());
            asked = store.workflow(workflow);
        }
        let is_run = match asked {
            Ok(row) => row.is_some_and(|row| workflow_view::has_active_process(&*store, &row)),
            // Unknown; the state after the reconnect counts.
            Err(error) if is_server_unavailable(&error) => was_run,
            Err(error) => return Err(error.into()),
        };
        while let Some(event) = next_event(&events, deadline)? {
            last = Some(event.id);
            write_event(ctx, &event, file.as_mut())?;
        }
        let is_over = was_run && !is_run;
        if is_over {
            // If the connection was lost, events before the end of the run may still be in transit.
            let filter = EventFilter { after: last, severity, ..EventFilter::default() };
            for event in store.events(Some(workflow), &filter)? {
                write_event(ctx, &event, file.as_mut())?;
            }
        }
        if is_over || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(CliExit::Success);
        }
        was_run |= is_run;
    }
}

/// Whether the server is unreachable or has lost its database connection.
pub(crate) fn is_server_unavailable(error: &windlass_store::StoreError) -> bool {
    matches!(error, windlass_store::StoreError::Remote(elsewhere) if elsewhere.category == ErrorCategory::Unavailable)
}

/// The next event, unless the stream stays idle or the time limit is reached first.
fn next_event(
    events: &mpsc::Receiver<Result<EventRow, windlass_client::ClientError>>,
    deadline: Option<Instant>,
) -> Result<Option<EventRow>, CliError> {
    let left = deadline.map_or(STREAM_IDLE, |deadline| deadline.saturating_duration_since(Instant::now()));
    match events.recv_timeout(left.min(STREAM_IDLE)) {
        Ok(event) => Ok(Some(event?)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(CliError::io("the server ended the event stream")),
    }
}

fn write_event(ctx: &CliContext, event: &EventRow, file: Option<&mut File>) -> Result<(), CliError> {
    print_event(ctx, event)?;
    let Some(file) = file else { return Ok(()) };
    let line = serde_json::to_string(&RecordView::new(FIELDS, event)).unwrap_or_default();
    writeln!(file, "{line}").map_err(|e| CliError::io(format!("cannot write events: {e}")))
}

fn print_event(ctx: &CliContext, event: &EventRow) -> Result<(), CliError> {
    if ctx.ui.wants_json() {
        return ctx.ui.print_json_line(&RecordView::new(FIELDS, event));
    }
    let message = text::one_line(&event.message);
    ctx.ui.print_line(&format!(
        "{}  {}  {}: {message}",
        text::render_time(event.at),
        event.severity,
        event.category
    ))
}

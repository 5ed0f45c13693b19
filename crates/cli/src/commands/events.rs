//! `windlass events`: what happened to workflows, who did it, and when.

use crate::args::data::{CreateEventArgs, EventsListArgs, EventsVerb, FollowEventsArgs, Level};
use crate::args::workflows::OneWorkflowArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Datum, Field, Listing, Record};
use crate::ui::style::Tone;
use crate::ui::table::Column;
use crate::ui::text;
use crate::view;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use windlass_client::{Client, Follow, Relocate};
use windlass_store::Store;
use windlass_store::model::{EventFilter, EventRow, NewEvent, Severity};
use windlass_store::wire::error::Sort;
use windlass_types::{EventId, WorkflowId};

/// Another process is watched through the books, which cannot notify.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A server that says nothing for so long has nothing to say just now.
const SILENCE: Duration = Duration::from_millis(500);

const FIELDS: &[Field<EventRow>] = &[
    Field::new("id", |e: &EventRow| e.id.0.into()).column(Column::number("ID")),
    Field::new("workflow_id", |e: &EventRow| e.workflow_id.map(|id| id.0).into()),
    Field::new("at", |e: &EventRow| e.at.into()).column(Column::text("TIME")),
    Field::new("severity", |e: &EventRow| severity(e.severity)).column(Column::text("SEVERITY")),
    Field::new("category", |e: &EventRow| (&e.category).into()).column(Column::text("CATEGORY")),
    Field::new("actor", |e: &EventRow| (&e.actor).into()).column(Column::text("WHO")),
    Field::new("message", |e: &EventRow| (&e.message).into()).column(Column::elastic("MESSAGE")),
    Field::new("data", |e: &EventRow| e.data.clone().map_or(Datum::Nothing, Datum::Json)),
];

const fn severity(severity: Severity) -> Datum {
    match severity {
        Severity::Debug => Datum::Word("debug", Some(Tone::Dim)),
        Severity::Info => Datum::Word("info", None),
        Severity::Warning => Datum::Word("warning", Some(Tone::Warn)),
        Severity::Error => Datum::Word("error", Some(Tone::Bad)),
    }
}

impl From<Level> for Severity {
    fn from(level: Level) -> Self {
        match level {
            Level::Debug => Self::Debug,
            Level::Info => Self::Info,
            Level::Warning => Self::Warning,
            Level::Error => Self::Error,
        }
    }
}

pub(crate) fn run(ctx: &Context, verb: &EventsVerb) -> Result<Exit, CliError> {
    match verb {
        EventsVerb::List(args) => list(ctx, args),
        EventsVerb::Create(args) => create(ctx, args),
        EventsVerb::GetLatestEvent(args) => get_latest(ctx, args),
        EventsVerb::Follow(args) => follow(ctx, args),
        EventsVerb::Delete(args) => super::edit_parts::delete_event(ctx, args),
    }
}

pub(crate) fn list(ctx: &Context, args: &EventsListArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = if args.all { None } else { Some(select::workflow(&*store, &args.workflow)?.id) };
    let filter = EventFilter {
        severity: Some(args.level.into()),
        category: args.category.clone(),
        ..EventFilter::default()
    };
    let listing = Listing::new(FIELDS).without(&args.page.exclude)?;
    let rows = listing.arrange(store.events(workflow, &filter)?, &args.page)?;
    if ctx.ui.print_list(&listing, rows)? == 0 {
        ctx.ui.note("there are no such events");
    }
    Ok(Exit::Success)
}

fn get_latest(ctx: &Context, args: &OneWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let filter = EventFilter { newest: Some(1), ..EventFilter::default() };
    match store.events(Some(workflow.id), &filter)?.pop() {
        Some(event) => ctx.ui.print_record(&Listing::new(FIELDS), event)?,
        None => ctx.ui.note(&format!("nothing was noted about workflow {} ({})", workflow.id, workflow.name)),
    }
    Ok(Exit::Success)
}

fn create(ctx: &Context, args: &CreateEventArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
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
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&serde_json::json!({ "id": id }))?;
    } else {
        ctx.ui.note(&format!("noted as event {id}"));
    }
    Ok(Exit::Success)
}

/// Prints what is new, from now on, until nobody runs the workflow any more, or the time is up.
fn follow(ctx: &Context, args: &FollowEventsArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let mut file = args.filename.as_ref().map(|path| {
        let opened = OpenOptions::new().append(true).create(true).open(ctx.cwd.join(path));
        opened.map_err(|e| CliError::io(format!("cannot write to {}: {e}", path.display())))
    });
    let mut file = file.take().transpose()?;
    if let Some(client) = ctx.server()? {
        return follow_stream(ctx, client, store, workflow.id, args, file);
    }
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let newest = EventFilter { newest: Some(1), ..EventFilter::default() };
    let mut after = store.events(Some(workflow.id), &newest)?.pop().map(|event| event.id);
    if !view::is_run_by_somebody(&*store, &workflow) {
        ctx.ui.note(&format!("nobody runs workflow {} ({}) now", workflow.id, workflow.name));
    }
    let mut was_run = false;
    loop {
        // Asked before the events are read: what happened until its end is then certainly seen.
        let is_run = view::is_run_by_somebody(&*store, &workflow);
        let filter = EventFilter { after, severity: Some(args.level.into()), ..EventFilter::default() };
        for event in store.events(Some(workflow.id), &filter)? {
            after = Some(event.id);
            tell(ctx, &event, file.as_mut())?;
        }
        let is_over = was_run && !is_run;
        if is_over || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(Exit::Success);
        }
        was_run |= is_run;
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The same from a server, which says by itself what is new. One that is away is waited for, as long as the stream does.
fn follow_stream(
    ctx: &Context,
    client: &Client,
    mut store: Arc<dyn Store>,
    workflow: WorkflowId,
    args: &FollowEventsArgs,
    mut file: Option<File>,
) -> Result<Exit, CliError> {
    let newest = EventFilter { newest: Some(1), ..EventFilter::default() };
    let after = store.events(Some(workflow), &newest)?.pop().map(|event| event.id).or(Some(EventId(0)));
    let severity = Some(args.level.into());
    let stream = client.follow(Follow { workflow: Some(workflow), after, severity, category: None });
    let way_back = || ctx.way_back().map(|find| Box::new(find) as Relocate);
    let mut stream = stream.relocated_by(way_back());
    let relocate = way_back();
    stream.connect()?;
    let (sender, events) = mpsc::channel();
    std::thread::spawn(move || {
        loop {
            let event = stream.next_event();
            let is_last = event.is_err();
            // Nobody listens any more: the command is about to end.
            if sender.send(event).is_err() || is_last {
                return;
            }
        }
    });
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let (mut was_run, mut last) = (false, after);
    loop {
        let mut asked = store.workflow(workflow);
        if asked.as_ref().is_err_and(is_away)
            && let Some(client) = relocate.as_ref().and_then(|find| find())
        {
            // At once: what runs now may be over when nothing more is heard, and nobody would know that it ever ran.
            store = Arc::new(client.books());
            asked = store.workflow(workflow);
        }
        let is_run = match asked {
            Ok(row) => row.is_some_and(|row| view::is_run_by_somebody(&*store, &row)),
            // Nobody knows; what is known when it is back counts.
            Err(error) if is_away(&error) => was_run,
            Err(error) => return Err(error.into()),
        };
        while let Some(event) = heard(&events, deadline)? {
            last = Some(event.id);
            tell(ctx, &event, file.as_mut())?;
        }
        let is_over = was_run && !is_run;
        if is_over {
            // What happened until its end may still be on its way, if the connection was lost in between.
            let filter = EventFilter { after: last, severity, ..EventFilter::default() };
            for event in store.events(Some(workflow), &filter)? {
                tell(ctx, &event, file.as_mut())?;
            }
        }
        if is_over || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(Exit::Success);
        }
        was_run |= is_run;
    }
}

/// The server cannot be reached, or has no database in this moment.
pub(crate) fn is_away(error: &windlass_store::Error) -> bool {
    matches!(error, windlass_store::Error::Elsewhere(elsewhere) if elsewhere.sort == Sort::Surroundings)
}

/// The next event, if one comes before it has been silent for a moment or the time is up.
fn heard(
    events: &mpsc::Receiver<Result<EventRow, windlass_client::Error>>,
    deadline: Option<Instant>,
) -> Result<Option<EventRow>, CliError> {
    let left = deadline.map_or(SILENCE, |deadline| deadline.saturating_duration_since(Instant::now()));
    match events.recv_timeout(left.min(SILENCE)) {
        Ok(event) => Ok(Some(event?)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(CliError::io("the server tells no more events")),
    }
}

fn tell(ctx: &Context, event: &EventRow, file: Option<&mut File>) -> Result<(), CliError> {
    print_event(ctx, event)?;
    let Some(file) = file else { return Ok(()) };
    let line = serde_json::to_string(&Record::new(FIELDS, event)).unwrap_or_default();
    writeln!(file, "{line}").map_err(|e| CliError::io(format!("cannot write events: {e}")))
}

fn print_event(ctx: &Context, event: &EventRow) -> Result<(), CliError> {
    if ctx.ui.json_wanted() {
        return ctx.ui.print_json_line(&Record::new(FIELDS, event));
    }
    let message = text::one_line(&event.message);
    ctx.ui.print_line(&format!(
        "{}  {}  {}: {message}",
        text::short_time(event.at),
        event.severity,
        event.category
    ))
}

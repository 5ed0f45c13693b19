//! Updates of a workflow that another process runs: pushed by its server, or polled from the database, which
//! cannot notify.

use crate::commands::events::is_server_unavailable;
use crate::context::CliContext;
use crate::error::CliError;
use crate::server_run::JobRateMeter;
use crate::ui::text;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;
use windlass_client::{EventStreamOptions, RelocateServer};
use windlass_scheduler::run_observer::RunObserver;
use windlass_store::Store;
use windlass_store::model::{EventFilter, EventRow, EventSeverity, WorkflowRow};
use windlass_types::EventId;

/// Poll interval of the database.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Idle time after which the server is queried.
const STREAM_IDLE: Duration = Duration::from_secs(2);

pub(super) struct WorkflowUpdates {
    row: WorkflowRow,
    source: UpdateSource,
    observer: Box<dyn RunObserver>,
    meter: JobRateMeter,
}

enum UpdateSource {
    /// Later events are new.
    Database(Option<EventId>),
    Server {
        events: Receiver<Result<EventRow, windlass_client::ClientError>>,
        relocate: Option<RelocateServer>,
    },
}

impl WorkflowUpdates {
    pub(super) fn open(ctx: &CliContext, store: &dyn Store, row: &WorkflowRow) -> Result<Self, CliError> {
        let newest = EventFilter { newest: Some(1), ..EventFilter::default() };
        let after = store.events(Some(row.id), &newest)?.pop().map(|event| event.id);
        let source = match ctx.server()? {
            None => UpdateSource::Database(after),
            Some(client) => {
                let after = after.or(Some(EventId(0)));
                let follow =
                    EventStreamOptions { workflow: Some(row.id), after, severity: None, category: None };
                let way_back = || ctx.server_finder().map(|find| Box::new(find) as RelocateServer);
                let mut stream = client.follow_events(follow).relocated_by(way_back());
                stream.connect()?;
                let (sender, events) = mpsc::channel();
                std::thread::spawn(move || {
                    // The receiver is gone when the workflow has stopped.
                    while let Ok(()) = sender.send(stream.next_event()) {}
                });
                UpdateSource::Server { events, relocate: way_back() }
            }
        };
        let observer = ctx.ui.observer(row.counts.total());
        Ok(Self { row: row.clone(), source, observer, meter: JobRateMeter::new(row.counts) })
    }

    /// Waits for an update, prints it, and returns the state of the workflow.
    pub(super) fn next_state(&mut self, store: &mut Arc<dyn Store>) -> Result<WorkflowRow, CliError> {
        let happened = self.wait_for_events(&**store)?;
        match store.workflow(self.row.id) {
            Ok(Some(row)) => self.row = row,
            Ok(None) => return Err(windlass_store::StoreError::NoSuchWorkflow(self.row.id).into()),
            Err(error) if is_server_unavailable(&error) => {
                // The stream reconnects by itself, and ends when it gives up.
                if let UpdateSource::Server { relocate: Some(find), .. } = &self.source
                    && let Some(client) = find()
                {
                    *store = Arc::new(client.store());
                }
            }
            Err(error) => return Err(error.into()),
        }
        for event in happened.iter().filter(|event| event.severity >= EventSeverity::Warning) {
            self.observer.on_notice(&text::one_line(&event.message));
        }
        self.observer.on_progress(&self.meter.progress(self.row.counts));
        Ok(self.row.clone())
    }

    fn wait_for_events(&mut self, store: &dyn Store) -> Result<Vec<EventRow>, CliError> {
        match &mut self.source {
            UpdateSource::Database(after) => {
                std::thread::sleep(POLL_INTERVAL);
                let filter = EventFilter { after: *after, ..EventFilter::default() };
                let happened = store.events(Some(self.row.id), &filter)?;
                *after = happened.last().map(|event| event.id).or(*after);
                Ok(happened)
            }
            UpdateSource::Server { events, .. } => {
                let first = match events.recv_timeout(STREAM_IDLE) {
                    Ok(event) => event?,
                    Err(RecvTimeoutError::Timeout) => return Ok(Vec::new()),
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(CliError::io("the server ended the event stream"));
                    }
                };
                let mut happened = vec![first];
                for event in events.try_iter() {
                    happened.push(event?);
                }
                Ok(happened)
            }
        }
    }
}

//! What happens in a workflow that somebody else runs: told by its server as it happens, or read from the books again and
//! again, which cannot notify.

use crate::away::Meter;
use crate::commands::events::is_away;
use crate::context::Context;
use crate::error::CliError;
use crate::ui::text;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;
use windlass_client::{Follow, Relocate};
use windlass_engine::observe::Observer;
use windlass_store::Store;
use windlass_store::model::{EventFilter, EventRow, Severity, WorkflowRow};
use windlass_types::EventId;

/// How often the books are read.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A server that says nothing for so long is asked.
const SILENCE: Duration = Duration::from_secs(2);

pub(super) struct News {
    row: WorkflowRow,
    source: Source,
    observer: Box<dyn Observer>,
    meter: Meter,
}

enum Source {
    /// What came after this event is new.
    Books(Option<EventId>),
    Server {
        events: Receiver<Result<EventRow, windlass_client::Error>>,
        relocate: Option<Relocate>,
    },
}

impl News {
    pub(super) fn begin(ctx: &Context, store: &dyn Store, row: &WorkflowRow) -> Result<Self, CliError> {
        let newest = EventFilter { newest: Some(1), ..EventFilter::default() };
        let after = store.events(Some(row.id), &newest)?.pop().map(|event| event.id);
        let source = match ctx.server()? {
            None => Source::Books(after),
            Some(client) => {
                let after = after.or(Some(EventId(0)));
                let follow = Follow { workflow: Some(row.id), after, severity: None, category: None };
                let way_back = || ctx.way_back().map(|find| Box::new(find) as Relocate);
                let mut stream = client.follow(follow).relocated_by(way_back());
                stream.connect()?;
                let (sender, events) = mpsc::channel();
                std::thread::spawn(move || {
                    // Nobody listens any more when the workflow has stopped.
                    while let Ok(()) = sender.send(stream.next_event()) {}
                });
                Source::Server { events, relocate: way_back() }
            }
        };
        let observer = ctx.ui.observer(row.counts.total());
        Ok(Self { row: row.clone(), source, observer, meter: Meter::new(row.counts) })
    }

    /// Waits until something may have happened, shows it, and says how the workflow stands.
    pub(super) fn look(&mut self, store: &mut Arc<dyn Store>) -> Result<WorkflowRow, CliError> {
        let happened = self.wait(&**store)?;
        match store.workflow(self.row.id) {
            Ok(Some(row)) => self.row = row,
            Ok(None) => return Err(windlass_store::Error::NoSuchWorkflow(self.row.id).into()),
            Err(error) if is_away(&error) => {
                // The stream has its own patience, and says when it is over.
                if let Source::Server { relocate: Some(find), .. } = &self.source
                    && let Some(client) = find()
                {
                    *store = Arc::new(client.books());
                }
            }
            Err(error) => return Err(error.into()),
        }
        for event in happened.iter().filter(|event| event.severity >= Severity::Warning) {
            self.observer.notice(&text::one_line(&event.message));
        }
        self.observer.progress(&self.meter.progress(self.row.counts));
        Ok(self.row.clone())
    }

    fn wait(&mut self, store: &dyn Store) -> Result<Vec<EventRow>, CliError> {
        match &mut self.source {
            Source::Books(after) => {
                std::thread::sleep(LOOK_EVERY);
                let filter = EventFilter { after: *after, ..EventFilter::default() };
                let happened = store.events(Some(self.row.id), &filter)?;
                *after = happened.last().map(|event| event.id).or(*after);
                Ok(happened)
            }
            Source::Server { events, .. } => {
                let first = match events.recv_timeout(SILENCE) {
                    Ok(event) => event?,
                    Err(RecvTimeoutError::Timeout) => return Ok(Vec::new()),
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(CliError::io("the server tells no more events"));
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

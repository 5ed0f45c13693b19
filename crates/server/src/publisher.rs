//! Events as they happen, for any number of readers.
//!
//! The books are the source: whoever commits something says so ([`Publisher::nudge`]), and one task then reads what is
//! new, once, and hands it to all readers. A reader first catches up from the books and then follows; ids tell the two
//! apart, so nothing is missed and nothing comes twice. Nobody waits for a slow reader: it is cut off, and resumes from
//! the last id it saw. With no reader nothing is read.

use crate::error::{Answer, ApiError};
use crate::metrics::{Counted, Metrics};
use crate::state::blocking;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, broadcast};
use tokio_util::sync::CancellationToken;
use windlass_store::Store;
use windlass_store::model::{EventFilter, EventRow};
use windlass_types::{EventId, WorkflowId};

/// So many batches a reader may be behind.
const BEHIND: usize = 256;
/// What is read from the books at a time by one who catches up.
const CATCH_UP: u64 = 1000;
/// The books cannot be read: look again after this.
const TROUBLE: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub struct Publisher(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    news: Notify,
    batches: broadcast::Sender<Arc<[EventRow]>>,
    /// All up to this one was handed out; `None`: nobody listens.
    position: Mutex<Option<EventId>>,
    /// Should somebody commit and not say so, it is noticed after this.
    look_anyway: Duration,
    stop: CancellationToken,
}

impl Publisher {
    /// Its task runs until `stop`, and so do its readers.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        metrics: Arc<Metrics>,
        look_anyway: Duration,
        stop: CancellationToken,
    ) -> Self {
        let (batches, _) = broadcast::channel(BEHIND);
        let (news, position) = (Notify::new(), Mutex::new(None));
        let publisher = Self(Arc::new(Inner { store, metrics, news, batches, position, look_anyway, stop }));
        tokio::spawn(publisher.clone().run());
        publisher
    }

    /// Something was committed. Costs nothing; may be called from anywhere.
    pub fn nudge(&self) {
        self.0.news.notify_one();
    }

    async fn run(self) {
        while !self.0.stop.is_cancelled() {
            let pause = match self.hand_out().await {
                Ok(()) => self.0.look_anyway,
                Err(error) => {
                    tracing::warn!(%error, "cannot read events");
                    TROUBLE
                }
            };
            let idle = self.0.batches.receiver_count() == 0;
            tokio::select! {
                () = self.0.stop.cancelled() => {}
                () = self.0.news.notified() => {}
                () = tokio::time::sleep(pause), if !idle => {}
            }
        }
    }

    /// Reads what is new and hands it to all readers.
    async fn hand_out(&self) -> Answer<()> {
        let mut position = self.0.position.lock().await;
        if self.0.batches.receiver_count() == 0 {
            *position = None;
            return Ok(());
        }
        let Some(after) = *position else { return Ok(()) };
        let store = Arc::clone(&self.0.store);
        let filter = EventFilter { after: Some(after), ..EventFilter::default() };
        let events = blocking(move || store.events(None, &filter)).await??;
        let Some(last) = events.last() else { return Ok(()) };
        *position = Some(last.id);
        self.0.metrics.published.inc_by(events.len() as u64);
        // An error only says that the last reader has just left.
        drop(self.0.batches.send(events.into()));
        Ok(())
    }

    /// Everything after `after`, as it happens; `None`: from now on.
    pub async fn subscribe(
        &self,
        workflow: Option<WorkflowId>,
        after: Option<EventId>,
    ) -> Answer<Subscription> {
        let mut position = self.0.position.lock().await;
        let now = match *position {
            Some(position) => position,
            None => newest(&self.0.store).await?,
        };
        *position = Some(now);
        let live = self.0.batches.subscribe();
        drop(position);
        // Its task may have been idle.
        self.nudge();
        let after = after.unwrap_or(now);
        Ok(Subscription {
            publisher: self.clone(),
            workflow,
            seen: after,
            // Whoever wants nothing old has nothing to catch up with.
            catching_up: after < now,
            live,
            _counted: Counted::new(&self.0.metrics.streams),
        })
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("readers", &self.0.batches.receiver_count()).finish_non_exhaustive()
    }
}

/// The id of the newest event, or 0.
async fn newest(store: &Arc<dyn Store>) -> Answer<EventId> {
    let store = Arc::clone(store);
    let filter = EventFilter { newest: Some(1), ..EventFilter::default() };
    let events = blocking(move || store.events(None, &filter)).await??;
    Ok(events.last().map_or(EventId(0), |event| event.id))
}

/// One reader.
#[derive(Debug)]
pub struct Subscription {
    publisher: Publisher,
    workflow: Option<WorkflowId>,
    /// The last one it was given.
    seen: EventId,
    catching_up: bool,
    live: broadcast::Receiver<Arc<[EventRow]>>,
    _counted: Counted,
}

impl Subscription {
    /// What comes next, oldest first; `None`: it is over, because the server stops or the reader was too slow.
    pub async fn next(&mut self) -> Option<Vec<EventRow>> {
        loop {
            let batch = if self.catching_up { self.older().await? } else { self.newer().await? };
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }

    async fn older(&mut self) -> Option<Vec<EventRow>> {
        let store = Arc::clone(&self.publisher.0.store);
        let filter = EventFilter { after: Some(self.seen), limit: Some(CATCH_UP), ..EventFilter::default() };
        let workflow = self.workflow;
        let read = blocking(move || store.events(workflow, &filter)).await;
        match read.and_then(|events| events.map_err(ApiError::from)) {
            Ok(events) => {
                self.catching_up = events.len() as u64 == CATCH_UP;
                self.seen = events.last().map_or(self.seen, |event| event.id);
                Some(events)
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read events; the reader has to come again");
                None
            }
        }
    }

    async fn newer(&mut self) -> Option<Vec<EventRow>> {
        let received = tokio::select! {
            received = self.live.recv() => received,
            () = self.publisher.0.stop.cancelled() => return None,
        };
        match received {
            Ok(batch) => {
                let mine = |event: &&EventRow| {
                    event.id > self.seen && self.workflow.is_none_or(|id| event.workflow_id == Some(id))
                };
                let events: Vec<EventRow> = batch.iter().filter(mine).cloned().collect();
                self.seen = events.last().map_or(self.seen, |event| event.id);
                Some(events)
            }
            Err(broadcast::error::RecvError::Lagged(_)) => {
                self.publisher.0.metrics.streams_cut.inc();
                None
            }
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

//! Distribution of new events to any number of readers.
//!
//! The database is the source: committers call [`EventPublisher::wake`], and one task then reads the new events
//! once and sends them to all readers. A reader first catches up from the database and then follows; event ids
//! tell the two apart, so no event is missed or duplicated. A slow reader is disconnected and resumes from the
//! last id it received. Without readers the database is not read.

use crate::error::{ApiError, ApiResult};
use crate::metrics::{GaugeGuard, ServerMetrics};
use crate::state::run_blocking;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify, broadcast};
use tokio_util::sync::CancellationToken;
use windlass_store::Store;
use windlass_store::model::{EventFilter, EventRow};
use windlass_types::{EventId, WorkflowId};

/// Number of batches that a reader may lag behind.
const MAX_BATCHES_BEHIND: usize = 256;
/// Page size for readers that catch up from the database.
const CATCH_UP_PAGE: u64 = 1000;
/// Delay after a failed database read.
const RETRY_AFTER_ERROR: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub struct EventPublisher(Arc<EventPublisherState>);

struct EventPublisherState {
    store: Arc<dyn Store>,
    metrics: Arc<ServerMetrics>,
    wake_signal: Notify,
    batches: broadcast::Sender<Arc<[EventRow]>>,
    /// Id of the last published event; `None` without readers.
    position: Mutex<Option<EventId>>,
    /// Polling interval, for commits that did not wake the publisher.
    poll_interval: Duration,
    stop: CancellationToken,
}

impl EventPublisher {
    /// Starts the task; it and all readers run until `stop`.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        metrics: Arc<ServerMetrics>,
        look_anyway: Duration,
        stop: CancellationToken,
    ) -> Self {
        let (batches, _) = broadcast::channel(MAX_BATCHES_BEHIND);
        let (notify, position) = (Notify::new(), Mutex::new(None));
        let publisher = Self(Arc::new(EventPublisherState {
            store,
            metrics,
            wake_signal: notify,
            batches,
            position,
            poll_interval: look_anyway,
            stop,
        }));
        tokio::spawn(publisher.clone().run());
        publisher
    }

    /// Wakes the publisher after a commit. Cheap; may be called from anywhere.
    pub fn wake(&self) {
        self.0.wake_signal.notify_one();
    }

    async fn run(self) {
        while !self.0.stop.is_cancelled() {
            let pause = match self.publish_new_events().await {
                Ok(()) => self.0.poll_interval,
                Err(error) => {
                    tracing::warn!(%error, "cannot read events");
                    RETRY_AFTER_ERROR
                }
            };
            let idle = self.0.batches.receiver_count() == 0;
            tokio::select! {
                () = self.0.stop.cancelled() => {}
                () = self.0.wake_signal.notified() => {}
                () = tokio::time::sleep(pause), if !idle => {}
            }
        }
    }

    /// Reads new events and sends them to all readers.
    async fn publish_new_events(&self) -> ApiResult<()> {
        let mut position = self.0.position.lock().await;
        if self.0.batches.receiver_count() == 0 {
            *position = None;
            return Ok(());
        }
        let Some(after) = *position else { return Ok(()) };
        let store = Arc::clone(&self.0.store);
        let filter = EventFilter { after: Some(after), ..EventFilter::default() };
        let events = run_blocking(move || store.events(None, &filter)).await??;
        let Some(last) = events.last() else { return Ok(()) };
        *position = Some(last.id);
        self.0.metrics.published.inc_by(events.len() as u64);
        // An error only means that the last reader has just left.
        drop(self.0.batches.send(events.into()));
        Ok(())
    }

    /// Subscribes to all events after `after`; `None`: from now on.
    pub async fn subscribe(
        &self,
        workflow: Option<WorkflowId>,
        after: Option<EventId>,
    ) -> ApiResult<EventSubscription> {
        let mut position = self.0.position.lock().await;
        let now = match *position {
            Some(position) => position,
            None => newest_event_id(&self.0.store).await?,
        };
        *position = Some(now);
        let live = self.0.batches.subscribe();
        drop(position);
        // The task may have been idle.
        self.wake();
        let after = after.unwrap_or(now);
        Ok(EventSubscription {
            publisher: self.clone(),
            workflow,
            last_seen: after,
            // A reader without `after` has nothing to catch up with.
            catching_up: after < now,
            live,
            _counted: GaugeGuard::new(&self.0.metrics.streams),
        })
    }
}

impl std::fmt::Debug for EventPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventPublisher")
            .field("readers", &self.0.batches.receiver_count())
            .finish_non_exhaustive()
    }
}

/// Returns the id of the newest event, or 0.
async fn newest_event_id(store: &Arc<dyn Store>) -> ApiResult<EventId> {
    let store = Arc::clone(store);
    let filter = EventFilter { newest: Some(1), ..EventFilter::default() };
    let events = run_blocking(move || store.events(None, &filter)).await??;
    Ok(events.last().map_or(EventId(0), |event| event.id))
}

/// A subscription of one reader.
#[derive(Debug)]
pub struct EventSubscription {
    publisher: EventPublisher,
    workflow: Option<WorkflowId>,
    /// Id of the last event returned.
    last_seen: EventId,
    catching_up: bool,
    live: broadcast::Receiver<Arc<[EventRow]>>,
    _counted: GaugeGuard,
}

impl EventSubscription {
    /// Returns the next events, oldest first; `None` when the server stops or the reader was too slow.
    pub async fn next_batch(&mut self) -> Option<Vec<EventRow>> {
        loop {
            let batch = if self.catching_up { self.next_stored().await? } else { self.next_live().await? };
            if !batch.is_empty() {
                return Some(batch);
            }
        }
    }

    async fn next_stored(&mut self) -> Option<Vec<EventRow>> {
        let store = Arc::clone(&self.publisher.0.store);
        let filter =
            EventFilter { after: Some(self.last_seen), limit: Some(CATCH_UP_PAGE), ..EventFilter::default() };
        let workflow = self.workflow;
        let read = run_blocking(move || store.events(workflow, &filter)).await;
        match read.and_then(|events| events.map_err(ApiError::from)) {
            Ok(events) => {
                self.catching_up = events.len() as u64 == CATCH_UP_PAGE;
                self.last_seen = events.last().map_or(self.last_seen, |event| event.id);
                Some(events)
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read events; disconnecting the reader");
                None
            }
        }
    }

    async fn next_live(&mut self) -> Option<Vec<EventRow>> {
        let received = tokio::select! {
            received = self.live.recv() => received,
            () = self.publisher.0.stop.cancelled() => return None,
        };
        match received {
            Ok(batch) => {
                let mine = |event: &&EventRow| {
                    event.id > self.last_seen && self.workflow.is_none_or(|id| event.workflow_id == Some(id))
                };
                let events: Vec<EventRow> = batch.iter().filter(mine).cloned().collect();
                self.last_seen = events.last().map_or(self.last_seen, |event| event.id);
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

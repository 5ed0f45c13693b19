//! The handle of the reconciler, and the loop that makes its passes: after a notice, when something is due, and
//! otherwise at an interval, in case a notice was lost.
//!
//! The pause between passes is at least the duration of the last one. So a thousand notices cost one pass, and
//! the reconciler uses at most half of one core.

use crate::backend::{CondorBackend, EngineBackend, RunBackends};
use crate::catalog::DatasetCatalog;
use crate::context::{LifecycleOptions, RequestReconcilerContext};
use crate::mailbox::{RequestReconcilerMailbox, RequestReconcilerWaker, WakeEvents};
use crate::metrics::LifecycleMetrics;
use crate::reconciler::RequestReconciler;
use serde::Serialize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use windlass_scheduler::service::SchedulerHandle;
use windlass_store::StoreDatabase;
use windlass_types::{SystemClock, Timestamp, WorkflowId};

/// Shortest pause between two passes: notices that arrive together are handled together.
const MIN_PAUSE: Duration = Duration::from_millis(5);

/// Makes the passes.
pub(crate) trait PassRunner: Send {
    /// Checks the named requests, or all, and acts on them.
    fn run_pass(&mut self, events: &WakeEvents) -> PassReport;
}

/// The result of a pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PassReport {
    /// Number of checked requests.
    pub evaluated: u64,
    /// Number of requests with a decision.
    pub changed: u64,
    /// Errors; the last one of each request.
    pub errors: Vec<RetryablePassError>,
    /// The next action is due then. The interval causes a pass anyway.
    pub look_again: Option<Timestamp>,
    /// Number of effects in progress: planning, submitting, calls to the catalog.
    pub under_way: u64,
}

impl PassReport {
    pub(crate) fn add_error(&mut self, request: Option<&str>, error: &dyn std::fmt::Display) {
        let request = request.map(str::to_owned);
        self.errors.retain(|known| known.request != request);
        self.errors.push(RetryablePassError { request, error: error.to_string() });
    }
}

/// An error that will be retried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RetryablePassError {
    /// `None`: the pass as a whole.
    pub request: Option<String>,
    pub error: String,
}

/// The status for `GET /lifecycle/status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LifecycleStatus {
    pub running: bool,
    pub cycle_interval_sec: f64,
    /// Since the start of the server.
    pub passes: u64,
    pub last_pass_at: Option<Timestamp>,
    pub last_duration_sec: Option<f64>,
    pub last: PassReport,
    /// Unless there is a notice before.
    pub next_pass_at: Option<Timestamp>,
}

/// What the reconciler works with.
#[derive(Clone)]
pub struct LifecycleDependencies {
    pub database: Arc<dyn StoreDatabase>,
    pub service: SchedulerHandle,
    pub catalog: Arc<dyn DatasetCatalog>,
}

impl std::fmt::Debug for LifecycleDependencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("catalog", &self.catalog).finish_non_exhaustive()
    }
}

/// The handle; cheap to clone. When the last one is dropped, the reconciler ends after the current pass.
#[derive(Clone, Debug)]
pub struct RequestLifecycle(Arc<LifecycleHandle>);

#[derive(Debug)]
struct LifecycleHandle {
    waker: RequestReconcilerWaker,
    status: Arc<Mutex<LifecycleStatus>>,
    metrics: Arc<Mutex<LifecycleMetrics>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl RequestLifecycle {
    /// Resumes all active requests. `wake` is the handle for notices. Only one reconciler may run per database.
    pub fn open(
        parts: LifecycleDependencies,
        waker: RequestReconcilerWaker,
        options: LifecycleOptions,
    ) -> std::io::Result<Self> {
        let interval = options.interval;
        let lifecycle_metrics = Arc::new(Mutex::new(LifecycleMetrics::default()));
        let engine = EngineBackend { service: parts.service, store: Arc::clone(&parts.database) };
        let condor = CondorBackend::new(options.condor.clone(), waker.clone());
        let backends = RunBackends { engine, condor, new_run_backend: options.backend };
        let context =
            RequestReconcilerContext { database: parts.database, backends, catalog: parts.catalog, options };
        let reconciler = RequestReconciler::new(context, waker.clone(), Arc::clone(&lifecycle_metrics))?;
        Self::start_loop(interval, waker, lifecycle_metrics, reconciler)
    }

    /// Starts the loop on a thread of its own, with a pass over everything.
    fn start_loop(
        interval: Duration,
        waker: RequestReconcilerWaker,
        lifecycle_metrics: Arc<Mutex<LifecycleMetrics>>,
        mut passes: impl PassRunner + 'static,
    ) -> std::io::Result<Self> {
        let status = LifecycleStatus {
            running: true,
            cycle_interval_sec: interval.as_secs_f64(),
            ..LifecycleStatus::default()
        };
        let status = Arc::new(Mutex::new(status));
        waker.wake_all();
        let (mailbox, told) = (Arc::clone(&waker.0), Arc::clone(&status));
        let thread = thread::Builder::new()
            .name("windlass-requests".into())
            .spawn(move || run_loop(&mailbox, &told, interval, &mut passes))?;
        Ok(Self(Arc::new(LifecycleHandle {
            waker,
            status,
            metrics: lifecycle_metrics,
            thread: Mutex::new(Some(thread)),
        })))
    }

    /// This request has changed: it is new, or a user has requested something.
    pub fn wake_request(&self, request: &str) {
        self.0.waker.wake_request(request);
    }

    /// A change that may concern any request: a limit, a site, a setting.
    pub fn wake_all(&self) {
        self.0.waker.wake_all();
    }

    /// A workflow of the engine has changed, which may be the run of a request.
    pub fn wake_workflow(&self, workflow: WorkflowId) {
        self.0.waker.wake_workflow(workflow);
    }

    /// Counters for metrics.
    pub fn metrics(&self) -> LifecycleMetrics {
        self.0.metrics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn status(&self) -> LifecycleStatus {
        self.0.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops the reconciler; returns after the current pass.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl LifecycleHandle {
    fn stop(&self) {
        self.waker.0.stop();
        // From within a pass there is nothing to wait for; and a waiting caller must not hold the lock that a
        // pass needs.
        let is_other = |thread: &mut JoinHandle<()>| thread.thread().id() != thread::current().id();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take_if(is_other);
        if let Some(thread) = thread {
            // The panic hook has logged a panic of the loop itself.
            drop(thread.join());
        }
    }
}

impl Drop for LifecycleHandle {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run_loop(
    mailbox: &RequestReconcilerMailbox,
    status: &Mutex<LifecycleStatus>,
    interval: Duration,
    passes: &mut dyn PassRunner,
) {
    let set = |change: &dyn Fn(&mut LifecycleStatus)| {
        change(&mut status.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let mut wait_until = Instant::now();
    while let Some(mut events) = mailbox.wait_for_events(wait_until) {
        // Without a notice the interval has passed, or something is due. In both cases all requests are
        // checked.
        events.all |= events.is_empty();
        let (began, began_at) = (Instant::now(), SystemClock.now());
        let report = run_pass_guarded(passes, &events);
        let took = began.elapsed();
        let pause = next_interval(&report, interval);
        set(&|status| {
            status.passes += 1;
            status.last_pass_at = Some(began_at);
            status.last_duration_sec = Some(took.as_secs_f64());
            status.last = report.clone();
            status.next_pass_at = Some(SystemClock.now().plus(pause));
        });
        wait_until = Instant::now() + pause;
        if !mailbox.sleep_until(Instant::now() + took.max(MIN_PAUSE)) {
            break;
        }
    }
    set(&|status| {
        status.running = false;
        status.next_pass_at = None;
    });
}

/// A panic in a pass is reported like any other error, and the next pass starts again from the rows.
fn run_pass_guarded(passes: &mut dyn PassRunner, events: &WakeEvents) -> PassReport {
    catch_unwind(AssertUnwindSafe(|| passes.run_pass(events))).unwrap_or_else(|_| {
        tracing::error!("a pass over the requests failed; the next one starts again from the database");
        let error = "the pass failed; see the log of the server".to_owned();
        PassReport { errors: vec![RetryablePassError { request: None, error }], ..PassReport::default() }
    })
}

/// Pause until the next pass without a notice.
fn next_interval(report: &PassReport, interval: Duration) -> Duration {
    report.look_again.map_or(interval, |due| due.since(SystemClock.now()).min(interval))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, Receiver, Sender};

    /// Reports the notices of each pass, and returns what the test says.
    struct ScriptedPasses {
        events: Sender<WakeEvents>,
        go_on: Receiver<PassReport>,
    }

    impl PassRunner for ScriptedPasses {
        fn run_pass(&mut self, events: &WakeEvents) -> PassReport {
            self.events.send(events.clone()).unwrap();
            self.go_on.recv().expect("failure of the test")
        }
    }

    fn scripted(interval: Duration) -> (RequestLifecycle, Receiver<WakeEvents>, Sender<PassReport>) {
        let (events, seen) = mpsc::channel();
        let (go, go_on) = mpsc::channel();
        let scripted = ScriptedPasses { events, go_on };
        (
            RequestLifecycle::start_loop(
                interval,
                RequestReconcilerWaker::default(),
                Arc::default(),
                scripted,
            )
            .unwrap(),
            seen,
            go,
        )
    }

    #[test]
    fn wakes_during_pass_cause_one_more_pass() {
        let (lifecycle, seen, go) = scripted(Duration::from_hours(1));
        assert!(seen.recv().unwrap().all, "the first pass checks everything");
        for _ in 0..100 {
            lifecycle.wake_request("b");
            lifecycle.wake_request("a");
            lifecycle.wake_workflow(WorkflowId(7));
        }
        go.send(PassReport { evaluated: 3, ..PassReport::default() }).unwrap();
        let second = seen.recv().unwrap();
        assert_eq!(second.requests.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(second.workflows.into_iter().collect::<Vec<_>>(), [WorkflowId(7)]);
        assert!(!second.all);
        assert_eq!((lifecycle.status().passes, lifecycle.status().last.evaluated), (1, 3));
        go.send(PassReport::default()).unwrap();
        lifecycle.stop();
        assert!(!lifecycle.status().running);
        assert!(seen.try_recv().is_err(), "there are no more notices, so there is no third pass");
    }

    #[test]
    fn due_requests_are_checked_without_wake() {
        let (lifecycle, seen, go) = scripted(Duration::from_hours(1));
        seen.recv().unwrap();
        go.send(PassReport { look_again: Some(SystemClock.now()), ..PassReport::default() }).unwrap();
        assert!(seen.recv().unwrap().all);
        go.send(PassReport::default()).unwrap();
        lifecycle.stop();
    }

    #[test]
    fn panicking_pass_is_reported_and_next_pass_runs() {
        let (lifecycle, seen, go) = scripted(Duration::from_millis(1));
        seen.recv().unwrap();
        // The pass waits for a following notice, which never comes.
        drop(go);
        // A second and a third one run anyway.
        seen.recv().unwrap();
        seen.recv().unwrap();
        let status = lifecycle.status();
        assert!(status.running && status.last.errors[0].request.is_none(), "{status:?}");
        lifecycle.stop();
    }
}

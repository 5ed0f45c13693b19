//! Requests that stay too long in a status: operators are notified; requests that only Windlass can advance are
//! held, and all others continue (R-034 to R-040, N-2).

use crate::kit::{Bench, generating};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use windlass_core::requests::rows::RequestCommandKind;
use windlass_requests::MAX_ACTIVE_RUNS;
use windlass_store::model::AlertFilter;
use windlass_types::SystemClock;
use windlass_types::requests::RequestStatus;

/// Short, so that tests do not wait long; a state that lasts this long is intended.
const SOON: Duration = Duration::from_millis(100);

fn impatient(status: RequestStatus) -> Bench {
    let mut bench = Bench::new();
    bench.options.decision_settings.timeouts.insert(status, SOON);
    bench
}

/// Waits until operators were notified of this.
fn told(bench: &Bench, kind: &str) -> String {
    let filter = AlertFilter { kind: Some(kind.into()), ..AlertFilter::default() };
    bench.wait_for(|bench| bench.job_store.alerts(&filter).unwrap().pop()).alert.message
}

/// Jobs wait behind it.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn before_jobs_of(bench: &mut Bench) -> Self {
        let gate = Self::default();
        let waits = gate.clone();
        bench.fate = Arc::new(move |_| {
            let (is_open, told) = &*waits.0;
            drop(told.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
            true
        });
        gate
    }

    fn open(&self) {
        let (is_open, told) = &*self.0;
        *is_open.lock().unwrap() = true;
        told.notify_all();
    }
}

#[test]
fn planning_timeout_holds_request_with_reason() {
    let mut bench = impatient(RequestStatus::Planning);
    bench.start();
    let mut request = generating("g1", 20);
    // It may appear at any time.
    request.site_whitelist = vec!["T9_Nowhere".into()];
    bench.submit(&request);
    let held = bench.wait("g1", RequestStatus::Held);
    let reason = held.reason.unwrap();
    assert!(reason.contains("still planning") && reason.contains("T9_Nowhere"), "{reason}");
    assert!(told(&bench, "stuck_in_planning").contains("has been planning since"));
}

#[test]
fn queue_timeout_sends_alert_and_request_starts_later() {
    let mut bench = impatient(RequestStatus::Queued);
    bench.options.admission_settings.max_active = 0;
    bench.start();
    bench.submit(&generating("g1", 20));
    told(&bench, "stuck_in_queue");
    assert_eq!(bench.row("g1").status, RequestStatus::Queued);
    bench.job_store.set_setting(MAX_ACTIVE_RUNS, Some(&1.into()), "me", SystemClock.now()).unwrap();
    bench.lifecycle().wake_all();
    bench.wait("g1", RequestStatus::Completed);
}

#[test]
fn active_timeout_sends_alert_and_request_continues() {
    let mut bench = impatient(RequestStatus::Active);
    let gate = Gate::before_jobs_of(&mut bench);
    bench.start();
    bench.submit(&generating("g1", 20));
    told(&bench, "slow_dag");
    assert_eq!(bench.row("g1").status, RequestStatus::Active);
    gate.open();
    bench.wait("g1", RequestStatus::Completed);
}

#[test]
fn stop_timeout_sends_alert_and_request_stops_later() {
    let mut bench = impatient(RequestStatus::Stopping);
    let gate = Gate::before_jobs_of(&mut bench);
    bench.start();
    bench.submit(&generating("g1", 20));
    bench.wait("g1", RequestStatus::Active);
    bench.want("g1", RequestCommandKind::Stop);
    told(&bench, "stuck_in_stopping");
    assert_eq!(bench.row("g1").status, RequestStatus::Stopping);
    gate.open();
    bench.wait("g1", RequestStatus::Completed);
    assert!(bench.statuses("g1").contains(&RequestStatus::Stopping));
}

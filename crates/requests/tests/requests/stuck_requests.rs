//! Requests that stay too long in a status: operators are notified; requests that only Windlass can advance are
//! held, and all others continue (R-034 to R-040, N-2).

use crate::kit::{Fixture, generating};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use windlass_core::requests::rows::RequestCommandKind;
use windlass_requests::MAX_ACTIVE_RUNS;
use windlass_store::model::AlertFilter;
use windlass_types::SystemClock;
use windlass_types::requests::RequestStatus;

/// Short, so that tests do not wait long; a state that lasts this long is intended.
const SOON: Duration = Duration::from_millis(100);

fn impatient(status: RequestStatus) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.options.decision_settings.timeouts.insert(status, SOON);
    fixture
}

/// Waits until operators were notified of this.
fn told(fixture: &Fixture, kind: &str) -> String {
    let filter = AlertFilter { kind: Some(kind.into()), ..AlertFilter::default() };
    fixture.wait_for(|fixture| fixture.job_store.alerts(&filter).unwrap().pop()).alert.message
}

/// Jobs wait behind it.
#[derive(Clone, Default)]
struct JobBarrier(Arc<(Mutex<bool>, Condvar)>);

impl JobBarrier {
    fn before_jobs_of(fixture: &mut Fixture) -> Self {
        let barrier = Self::default();
        let waits = barrier.clone();
        fixture.job_outcome = Arc::new(move |_| {
            let (is_open, told) = &*waits.0;
            drop(told.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
            true
        });
        barrier
    }

    fn open(&self) {
        let (is_open, told) = &*self.0;
        *is_open.lock().unwrap() = true;
        told.notify_all();
    }
}

#[test]
fn planning_timeout_holds_request_with_reason() {
    let mut fixture = impatient(RequestStatus::Planning);
    fixture.start();
    let mut request = generating("g1", 20);
    // It may appear at any time.
    request.site_whitelist = vec!["T9_Nowhere".into()];
    fixture.submit(&request);
    let held = fixture.wait("g1", RequestStatus::Held);
    let reason = held.reason.unwrap();
    assert!(reason.contains("still planning") && reason.contains("T9_Nowhere"), "{reason}");
    assert!(told(&fixture, "stuck_in_planning").contains("has been planning since"));
}

#[test]
fn queue_timeout_sends_alert_and_request_starts_later() {
    let mut fixture = impatient(RequestStatus::Queued);
    fixture.options.admission_settings.max_active = 0;
    fixture.start();
    fixture.submit(&generating("g1", 20));
    told(&fixture, "stuck_in_queue");
    assert_eq!(fixture.row("g1").status, RequestStatus::Queued);
    fixture.job_store.set_setting(MAX_ACTIVE_RUNS, Some(&1.into()), "me", SystemClock.now()).unwrap();
    fixture.lifecycle().wake_all();
    fixture.wait("g1", RequestStatus::Completed);
}

#[test]
fn active_timeout_sends_alert_and_request_continues() {
    let mut fixture = impatient(RequestStatus::Active);
    let barrier = JobBarrier::before_jobs_of(&mut fixture);
    fixture.start();
    fixture.submit(&generating("g1", 20));
    told(&fixture, "slow_dag");
    assert_eq!(fixture.row("g1").status, RequestStatus::Active);
    barrier.open();
    fixture.wait("g1", RequestStatus::Completed);
}

#[test]
fn stop_timeout_sends_alert_and_request_stops_later() {
    let mut fixture = impatient(RequestStatus::Stopping);
    let barrier = JobBarrier::before_jobs_of(&mut fixture);
    fixture.start();
    fixture.submit(&generating("g1", 20));
    fixture.wait("g1", RequestStatus::Active);
    fixture.want("g1", RequestCommandKind::Stop);
    told(&fixture, "stuck_in_stopping");
    assert_eq!(fixture.row("g1").status, RequestStatus::Stopping);
    barrier.open();
    fixture.wait("g1", RequestStatus::Completed);
    assert!(fixture.statuses("g1").contains(&RequestStatus::Stopping));
}

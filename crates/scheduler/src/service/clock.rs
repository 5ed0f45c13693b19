//! The clock of the service: that of the machine, or a manual one for tests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_types::{SystemClock, Timestamp};

/// The clock of a service.
#[derive(Clone, Debug, Default)]
pub struct SchedulerClock(Option<ManualClock>);

/// Moves the clock of a service that was started with it. Deadlines do not notice by themselves:
/// [`super::SchedulerHandle::check_time`] makes the service check them.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<TimePoint>>);

/// A point in time, for deadlines and for records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimePoint {
    pub(crate) instant: Instant,
    pub(crate) timestamp: Timestamp,
}

impl SchedulerClock {
    /// A clock that stands still unless it is moved.
    pub fn manual() -> (Self, ManualClock) {
        let start = TimePoint { instant: Instant::now(), timestamp: SystemClock.now() };
        let hand = ManualClock(Arc::new(Mutex::new(start)));
        (Self(Some(hand.clone())), hand)
    }

    pub(crate) fn now(&self) -> TimePoint {
        match &self.0 {
            Some(hand) => *hand.0.lock().unwrap_or_else(PoisonError::into_inner),
            None => TimePoint { instant: Instant::now(), timestamp: SystemClock.now() },
        }
    }

    /// Whether deadlines are reached by waiting.
    pub(crate) fn is_automatic(&self) -> bool {
        self.0.is_none()
    }
}

impl ManualClock {
    pub fn advance(&self, by: Duration) {
        let mut moment = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        moment.instant += by;
        moment.timestamp = moment.timestamp.plus(by);
    }

    /// Sets the wall clock back.
    pub fn set_wall_clock_back(&self, by: Duration) {
        let mut moment = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        moment.timestamp = Timestamp(moment.timestamp.0 - i64::try_from(by.as_micros()).unwrap_or(i64::MAX));
    }
}

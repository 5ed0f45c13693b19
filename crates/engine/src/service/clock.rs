//! Where the service takes the time from: the clocks of the machine, or a hand that a test moves.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windlass_types::{Clock, Timestamp};

/// The clock of a service.
#[derive(Clone, Debug, Default)]
pub struct ServiceClock(Option<Hand>);

/// Moves the clock of a service that was started with it. What waits for a time does not notice by itself:
/// [`super::Service::look_around`] makes it look.
#[derive(Clone, Debug)]
pub struct Hand(Arc<Mutex<Moment>>);

/// A point in time, for deadlines and for records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Instant,
    pub(crate) wall: Timestamp,
}

impl ServiceClock {
    /// A clock that stands still unless it is moved.
    pub fn manual() -> (Self, Hand) {
        let start = Moment { at: Instant::now(), wall: Clock.now() };
        let hand = Hand(Arc::new(Mutex::new(start)));
        (Self(Some(hand.clone())), hand)
    }

    pub(crate) fn now(&self) -> Moment {
        match &self.0 {
            Some(hand) => *hand.0.lock().unwrap_or_else(PoisonError::into_inner),
            None => Moment { at: Instant::now(), wall: Clock.now() },
        }
    }

    /// Whether deadlines come by waiting for them.
    pub(crate) fn runs_by_itself(&self) -> bool {
        self.0.is_none()
    }
}

impl Hand {
    pub fn advance(&self, by: Duration) {
        let mut moment = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        moment.at += by;
        moment.wall = moment.wall.after(by);
    }

    /// Somebody sets the wall clock back.
    pub fn set_back(&self, by: Duration) {
        let mut moment = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        moment.wall = Timestamp(moment.wall.0 - i64::try_from(by.as_micros()).unwrap_or(i64::MAX));
    }
}

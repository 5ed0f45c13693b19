//! Delays before effects are repeated: they stay due as long as the rows say so, also after an error and while
//! they take effect. Losing them in a crash does no harm.

use std::collections::HashMap;
use windlass_types::Timestamp;

#[derive(Debug, Default)]
pub(super) struct EffectDelays {
    /// By request and effect.
    until: HashMap<(String, String), Timestamp>,
    /// By request: all of its effects.
    all: HashMap<String, Timestamp>,
    /// The last known time.
    last_time: Option<Timestamp>,
}

impl EffectDelays {
    pub(super) fn delay_effect(&mut self, request: &str, tag: &str, until: Timestamp) {
        self.until.insert((request.to_owned(), tag.to_owned()), until);
    }

    pub(super) fn delay_request(&mut self, request: &str, until: Timestamp) {
        self.all.insert(request.to_owned(), until);
    }

    pub(super) fn is_delayed(&self, request: &str, tag: &str, now: Timestamp) -> bool {
        let until = self.until.get(&(request.to_owned(), tag.to_owned()));
        until.into_iter().chain(self.all.get(request)).any(|until| *until > now)
    }

    /// The earliest end of a delay.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.until.values().chain(self.all.values()).copied().min()
    }

    /// Ends the delays that are over; all of them if the clock was set back, which would prolong them.
    pub(super) fn on_time(&mut self, now: Timestamp) {
        if self.last_time.replace(now).is_some_and(|before| now < before) {
            self.clear_all();
        }
        self.until.retain(|_, until| *until > now);
        self.all.retain(|_, until| *until > now);
    }

    /// A possible obstacle has changed.
    pub(super) fn clear_all(&mut self) {
        self.until.clear();
        self.all.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_set_back_ends_delays() {
        let mut delays = EffectDelays::default();
        for (now, is_delayed) in [(100, true), (109, true), (108, false)] {
            delays.on_time(Timestamp(now));
            if now == 100 {
                delays.delay_effect("r", "submit", Timestamp(110));
            }
            assert_eq!(delays.is_delayed("r", "submit", Timestamp(now)), is_delayed, "{now}");
        }
    }
}

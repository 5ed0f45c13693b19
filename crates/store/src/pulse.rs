//! How certain a server can be that it still is the server.
//!
//! Another one may take over from a server that was silent for [`SILENCE`]. A server that is cut off from its database
//! cannot know whether that has happened; it can know how long ago it was last heard.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A server that has been silent for so long may be replaced.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);
/// It ceases to be certain so much earlier: clocks do not run alike.
const MARGIN: Duration = Duration::from_secs(1);

/// Asked by whoever speaks for the server; cheap, and from any thread.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Option<Arc<AtomicU64>>);

impl Pulse {
    /// Of one that is heard now.
    pub(crate) fn beating(at: Duration) -> Self {
        let pulse = Self(Some(Arc::default()));
        pulse.heard(at);
        pulse
    }

    /// The sign of life that was sent then was heard.
    pub(crate) fn heard(&self, at: Duration) {
        if let Some(last) = &self.0 {
            last.store(u64::try_from(at.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
        }
    }

    /// Nobody else can have taken over. Always so where a lock is held by the system on which its holder runs.
    pub fn is_certain(&self) -> bool {
        self.age().is_none_or(|age| age < Self::LASTS)
    }

    /// How long another one, from whom this one has taken over, may still believe that nobody has.
    pub fn overlap(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |_| Self::LASTS)
    }

    const LASTS: Duration = SILENCE.saturating_sub(MARGIN);

    fn age(&self) -> Option<Duration> {
        let last = Duration::from_millis(self.0.as_ref()?.load(Ordering::Acquire));
        Some(since_boot().saturating_sub(last))
    }
}

/// Goes on while the machine sleeps: whoever takes over does not sleep with it.
pub(crate) fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_not_heard_ceases_to_be_certain_before_another_one_may_take_over() {
        let now = since_boot();
        assert!(Pulse::default().is_certain() && Pulse::default().overlap().is_zero());
        let pulse = Pulse::beating(now);
        assert!(pulse.is_certain() && pulse.clone().overlap() < SILENCE);
        pulse.heard(now.saturating_sub(SILENCE.saturating_sub(MARGIN)));
        assert!(!pulse.is_certain());
        pulse.heard(since_boot());
        assert!(pulse.is_certain());
    }
}

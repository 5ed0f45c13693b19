//! How long jobs may run without contact to the server.
//!
//! The server counts from the arrival of an exchange, the worker from the moment of sending, and it stops a
//! little earlier still: regardless of network delays, its jobs are frozen before the server reassigns them.
//! Times are on the boot clock, which also runs while this process is stopped and while the machine sleeps.

use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerLease {
    length: Duration,
    expires_at: Option<Duration>,
    /// The sending time of the latest call that was answered.
    last_contact: Duration,
}

impl ServerLease {
    /// Records an answered call by its sending time.
    pub(crate) fn renew(&mut self, length: Duration, sent: Duration) {
        self.length = length;
        self.last_contact = self.last_contact.max(sent);
        let until = sent + length.saturating_sub(expiry_margin(length));
        self.expires_at = self.expires_at.max(Some(until));
    }

    /// The length of the lease that the server grants; zero before the first grant.
    pub(crate) const fn length(&self) -> Duration {
        self.length
    }

    pub(crate) const fn expires_at(&self) -> Option<Duration> {
        self.expires_at
    }

    pub(crate) fn is_over(&self, now: Duration) -> bool {
        self.expires_at.is_some_and(|until| now >= until)
    }

    /// The time since the last contact to the server.
    pub(crate) fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_contact)
    }

    /// How long an exchange may wait at the server: short enough for the next one to arrive in time even if one
    /// is lost.
    pub(crate) fn exchange_wait(&self) -> Duration {
        self.length / 3
    }

    /// How long a reply may take beyond that.
    pub(crate) fn reply_timeout(&self) -> Duration {
        let longest = Duration::from_secs(20);
        if self.length.is_zero() { longest } else { (self.length / 3).clamp(Duration::from_secs(2), longest) }
    }

    /// How long the worker process may take to report that it is alive, or that its jobs are frozen.
    pub(crate) fn worker_reply_timeout(&self) -> Duration {
        (self.length / 4).clamp(Duration::from_secs(2), Duration::from_secs(30))
    }
}

fn expiry_margin(length: Duration) -> Duration {
    (length / 10).min(Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_lease_counts_from_sending_and_never_goes_back() {
        let mut lease = ServerLease::default();
        assert!(!lease.is_over(Duration::MAX), "without a grant nothing may run");
        lease.renew(60 * SECOND, 100 * SECOND);
        assert_eq!(lease.expires_at(), Some(155 * SECOND));
        lease.renew(60 * SECOND, 90 * SECOND);
        assert_eq!(lease.expires_at(), Some(155 * SECOND), "a late reply counts from its own sending time");
        assert!(!lease.is_over(154 * SECOND) && lease.is_over(155 * SECOND));
        assert_eq!(lease.silence(130 * SECOND), 30 * SECOND);
        assert!(lease.exchange_wait() + lease.reply_timeout() < 60 * SECOND);
    }
}

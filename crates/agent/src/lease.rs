//! How long jobs may run without a word from the server.
//!
//! The server counts from the moment it received an exchange, we from the moment we sent it, and we give up a little
//! earlier still: whatever the network does, our jobs stand still before the server gives them to others. Times are on
//! the clock that counts from the boot of the machine, which goes on while we are stopped and while the machine sleeps.

use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerLease {
    length: Duration,
    expires_at: Option<Duration>,
    /// When a call was sent that was answered.
    last_contact: Duration,
}

impl ServerLease {
    /// The server has answered a call that was sent then.
    pub(crate) fn renew(&mut self, length: Duration, sent: Duration) {
        self.length = length;
        self.last_contact = self.last_contact.max(sent);
        let until = sent + length.saturating_sub(expiry_margin(length));
        self.expires_at = self.expires_at.max(Some(until));
    }

    /// As long as the server grants at a time; zero before it has.
    pub(crate) const fn length(&self) -> Duration {
        self.length
    }

    pub(crate) const fn expires_at(&self) -> Option<Duration> {
        self.expires_at
    }

    pub(crate) fn is_over(&self, now: Duration) -> bool {
        self.expires_at.is_some_and(|until| now >= until)
    }

    /// How long nothing was heard of the server.
    pub(crate) fn silence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_contact)
    }

    /// How long an exchange may wait at the server: so short that the next one is there in time, also if one is lost.
    pub(crate) fn exchange_wait(&self) -> Duration {
        self.length / 3
    }

    /// How long an answer may take beyond that.
    pub(crate) fn reply_timeout(&self) -> Duration {
        let longest = Duration::from_secs(20);
        if self.length.is_zero() { longest } else { (self.length / 3).clamp(Duration::from_secs(2), longest) }
    }

    /// How long the worker process may take to say that it is alive, or that its jobs stand still.
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
    fn it_counts_from_when_the_call_was_sent_and_never_goes_back() {
        let mut lease = ServerLease::default();
        assert!(!lease.is_over(Duration::MAX), "nothing was granted yet, so nothing runs either");
        lease.renew(60 * SECOND, 100 * SECOND);
        assert_eq!(lease.expires_at(), Some(155 * SECOND));
        lease.renew(60 * SECOND, 90 * SECOND);
        assert_eq!(
            lease.expires_at(),
            Some(155 * SECOND),
            "an answer that came late is about an earlier time"
        );
        assert!(!lease.is_over(154 * SECOND) && lease.is_over(155 * SECOND));
        assert_eq!(lease.silence(130 * SECOND), 30 * SECOND);
        assert!(lease.exchange_wait() + lease.reply_timeout() < 60 * SECOND);
    }
}

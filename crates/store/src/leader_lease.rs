//! How certain a server can be that it is still the leader.
//!
//! A standby may take over from a server that was silent for [`LEASE_DURATION`]. A server that is disconnected from
//! its database cannot know whether that has happened; but it knows when it last had contact.

use crate::lock::DatabaseFile;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Silence after which a server may be replaced.
pub(crate) const LEASE_DURATION: Duration = Duration::from_secs(5);
/// Safety margin: the lease ends this much earlier because clocks differ.
const CLOCK_MARGIN: Duration = Duration::from_secs(1);

/// A cheap check that is usable from any thread.
#[derive(Clone, Debug, Default)]
pub struct LeaderLease {
    /// The time of the last contact, for a lock in a database server.
    last_contact: Option<Arc<AtomicU64>>,
    /// The locked database file: if it is removed, changes are lost.
    file: Option<Arc<DatabaseFile>>,
}

impl LeaderLease {
    /// Creates a lease with contact now.
    pub(crate) fn held_since(at: Duration) -> Self {
        let lease = Self { last_contact: Some(Arc::default()), file: None };
        lease.renew(at);
        lease
    }

    /// Creates the lease of a locked database file.
    pub(crate) fn of_file(file: DatabaseFile) -> Self {
        Self { last_contact: None, file: Some(Arc::new(file)) }
    }

    /// Extends the lease: a heartbeat sent at that time was received.
    pub(crate) fn renew(&self, at: Duration) {
        if let Some(last) = &self.last_contact {
            last.store(u64::try_from(at.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
        }
    }

    /// Whether no other server can have taken over. For a lock held by the operating system of this machine:
    /// whether the locked file is still the database.
    pub fn is_valid(&self) -> bool {
        self.time_since_renewal().is_none_or(|age| age < Self::VALID_FOR)
            && self.file.as_ref().is_none_or(|file| file.is_at_its_path())
    }

    /// How long the former leader may still consider itself the leader after this one has taken over.
    pub fn remaining_overlap(&self) -> Duration {
        self.last_contact.as_ref().map_or(Duration::ZERO, |_| Self::VALID_FOR)
    }

    const VALID_FOR: Duration = LEASE_DURATION.saturating_sub(CLOCK_MARGIN);

    fn time_since_renewal(&self) -> Option<Duration> {
        let last = Duration::from_millis(self.last_contact.as_ref()?.load(Ordering::Acquire));
        Some(time_since_boot().saturating_sub(last))
    }
}

/// A clock that continues during suspend, because a standby on another machine continues too.
pub(crate) fn time_since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_becomes_uncertain_before_next_server_may_start() {
        let now = time_since_boot();
        assert!(LeaderLease::default().is_valid() && LeaderLease::default().remaining_overlap().is_zero());
        let lease = LeaderLease::held_since(now);
        assert!(lease.is_valid() && lease.clone().remaining_overlap() < LEASE_DURATION);
        lease.renew(now.saturating_sub(LEASE_DURATION.saturating_sub(CLOCK_MARGIN)));
        assert!(!lease.is_valid());
        lease.renew(time_since_boot());
        assert!(lease.is_valid());
    }
}

//! Throttling of password guessing: after some wrong passwords there is a delay that grows with each. Pure; the
//! time is passed in.
//!
//! Counted per user name and network, so that guesses from elsewhere do not lock the user out, and, with a much
//! higher limit, per network. A network is an IPv4 address or the 64-bit prefix of an IPv6 address: one host
//! usually has a whole prefix to itself.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Wrong passwords without a delay.
const FREE_TRIES: u32 = 5;
/// The same for all names from one network; a proxy may serve many users.
const FREE_TRIES_OF_ADDRESS: u32 = 100;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// Time without a wrong password after which the count is reset.
const FORGET_AFTER: Duration = Duration::from_mins(15);
/// Maximum number of entries: trying many names must not fill the memory.
const MAX_ENTRIES: usize = 10_000;

/// Returns the network that an address is counted with.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[derive(Debug, Default)]
pub(crate) struct LoginThrottle {
    failures: HashMap<ThrottleKey, LoginFailures>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ThrottleKey {
    User(Box<str>, IpAddr),
    Address(IpAddr),
}

#[derive(Clone, Copy, Debug)]
struct LoginFailures {
    count: u32,
    last: Instant,
}

impl LoginThrottle {
    /// Returns how long this name has to wait at this address before the next attempt.
    pub(crate) fn wait_time(&self, user: &str, address: IpAddr, now: Instant) -> Option<Duration> {
        let address = client_network(address);
        let of = |whose: &ThrottleKey, free| {
            let failures = self.failures.get(whose)?;
            let until = failures.last + backoff_delay(failures.count, free)?;
            until.checked_duration_since(now).filter(|wait| !wait.is_zero())
        };
        of(&ThrottleKey::User(user.into(), address), FREE_TRIES)
            .max(of(&ThrottleKey::Address(address), FREE_TRIES_OF_ADDRESS))
    }

    pub(crate) fn record_failure(&mut self, user: &str, address: IpAddr, now: Instant) {
        let address = client_network(address);
        if self.failures.len() >= MAX_ENTRIES {
            self.evict_entries(now);
        }
        for whose in [ThrottleKey::User(user.into(), address), ThrottleKey::Address(address)] {
            let failures = self.failures.entry(whose).or_insert(LoginFailures { count: 0, last: now });
            if now.duration_since(failures.last) >= FORGET_AFTER {
                failures.count = 0;
            }
            failures.count += 1;
            failures.last = now;
        }
    }

    pub(crate) fn record_success(&mut self, user: &str, address: IpAddr) {
        self.failures.remove(&ThrottleKey::User(user.into(), client_network(address)));
    }

    /// Makes room: removes old entries and, if that is not enough, entries of single names, never those of
    /// networks.
    fn evict_entries(&mut self, now: Instant) {
        self.failures.retain(|_, failures| now.duration_since(failures.last) < FORGET_AFTER);
        if self.failures.len() >= MAX_ENTRIES {
            self.failures.retain(|whose, _| matches!(whose, ThrottleKey::Address(_)));
        }
        if self.failures.len() >= MAX_ENTRIES {
            self.failures.clear();
        }
    }
}

/// Returns the delay after a number of wrong passwords: doubled with each beyond the free ones.
fn backoff_delay(count: u32, free: u32) -> Option<Duration> {
    let beyond = count.checked_sub(free)?;
    Some(FIRST_WAIT.saturating_mul(1 << beyond.min(16)).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn after(failures: u32) -> (LoginThrottle, Instant) {
        let mut throttle = LoginThrottle::default();
        let now = Instant::now();
        for _ in 0..failures {
            throttle.record_failure("ana", HERE, now);
        }
        (throttle, now)
    }

    #[test]
    fn wait_doubles_up_to_a_limit() {
        let wait = |failures| {
            let (throttle, now) = after(failures);
            throttle.wait_time("ana", HERE, now).map(|wait| wait.as_secs())
        };
        assert_eq!([0, 4, 5, 6, 7, 50].map(wait), [None, None, Some(1), Some(2), Some(4), Some(300)]);
        let (throttle, now) = after(6);
        assert_eq!(throttle.wait_time("ana", HERE, now + Duration::from_secs(2)), None);
    }

    #[test]
    fn failures_do_not_lock_out_other_users_or_addresses() {
        let (throttle, now) = after(20);
        assert!(throttle.wait_time("ana", HERE, now).is_some());
        assert_eq!(throttle.wait_time("ana", THERE, now), None);
        assert_eq!(throttle.wait_time("bob", HERE, now), None);
    }

    #[test]
    fn address_that_tries_many_names_waits_for_all() {
        let (mut throttle, now) = after(0);
        for number in 0..FREE_TRIES_OF_ADDRESS {
            throttle.record_failure(&format!("user{number}"), HERE, now);
        }
        assert!(throttle.wait_time("ana", HERE, now).is_some());
        assert_eq!(throttle.wait_time("ana", THERE, now), None);
    }

    #[test]
    fn guesses_from_one_ipv6_prefix_are_counted_together() {
        let (mut throttle, now) = after(0);
        let host = |number: u16| IpAddr::V6([0x2001, 0xdb8, 0, 1, 0, 0, 0, number].into());
        for number in 0..=FREE_TRIES {
            throttle.record_failure("ana", host(number as u16), now);
        }
        assert!(throttle.wait_time("ana", host(999), now).is_some());
        let elsewhere = IpAddr::V6([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1].into());
        assert_eq!(throttle.wait_time("ana", elsewhere, now), None, "another network is not locked out");
    }

    #[test]
    fn throttle_memory_is_bounded_and_keeps_the_address() {
        let (mut throttle, now) = after(0);
        for number in 0..2 * MAX_ENTRIES {
            throttle.record_failure(&number.to_string(), HERE, now);
        }
        assert!(throttle.failures.len() <= MAX_ENTRIES + 1);
        assert!(throttle.wait_time("ana", HERE, now).is_some());
    }

    #[test]
    fn success_and_time_clear_failures() {
        let (mut throttle, now) = after(6);
        throttle.record_success("ana", HERE);
        assert_eq!(throttle.wait_time("ana", HERE, now), None);
        let (mut throttle, now) = after(20);
        let later = now + FORGET_AFTER;
        throttle.record_failure("ana", HERE, later);
        assert_eq!(throttle.wait_time("ana", HERE, later), None);
    }
}

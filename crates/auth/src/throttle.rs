//! Wrong passwords cost time: after a few, whoever guesses waits, longer each time. Pure; the time is given.
//!
//! Counted for a user name from one network, so that guesses from elsewhere do not lock the user out, and, with a much
//! higher limit, for the network as a whole. A network is an IPv4 address or the 64-bit prefix of an IPv6 address: one host
//! usually has a whole prefix to itself.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Wrong tries that cost nothing.
const FREE_TRIES: u32 = 5;
/// The same for all names from one address; a proxy may stand for many people.
const FREE_TRIES_OF_ADDRESS: u32 = 100;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(5);
/// After so long without a wrong try all is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(15);
/// What is remembered at most: whoever tries many names must not fill the memory.
const REMEMBERED: usize = 10_000;

/// The network that an address is counted with.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[derive(Debug, Default)]
pub(crate) struct Throttle {
    failures: HashMap<Whose, Failures>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Whose {
    User(Box<str>, IpAddr),
    Address(IpAddr),
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Throttle {
    /// How long this name has to wait at this address before it may try again.
    pub(crate) fn wait(&self, user: &str, address: IpAddr, now: Instant) -> Option<Duration> {
        let address = network(address);
        let of = |whose: &Whose, free| {
            let failures = self.failures.get(whose)?;
            let until = failures.last + delay(failures.count, free)?;
            until.checked_duration_since(now).filter(|wait| !wait.is_zero())
        };
        of(&Whose::User(user.into(), address), FREE_TRIES)
            .max(of(&Whose::Address(address), FREE_TRIES_OF_ADDRESS))
    }

    pub(crate) fn failed(&mut self, user: &str, address: IpAddr, now: Instant) {
        let address = network(address);
        if self.failures.len() >= REMEMBERED {
            self.forget(now);
        }
        for whose in [Whose::User(user.into(), address), Whose::Address(address)] {
            let failures = self.failures.entry(whose).or_insert(Failures { count: 0, last: now });
            if now.duration_since(failures.last) >= FORGOTTEN_AFTER {
                failures.count = 0;
            }
            failures.count += 1;
            failures.last = now;
        }
    }

    pub(crate) fn succeeded(&mut self, user: &str, address: IpAddr) {
        self.failures.remove(&Whose::User(user.into(), network(address)));
    }

    /// Makes room: what is old goes, and if that is not enough the single names, never the addresses they came from.
    fn forget(&mut self, now: Instant) {
        self.failures.retain(|_, failures| now.duration_since(failures.last) < FORGOTTEN_AFTER);
        if self.failures.len() >= REMEMBERED {
            self.failures.retain(|whose, _| matches!(whose, Whose::Address(_)));
        }
        if self.failures.len() >= REMEMBERED {
            self.failures.clear();
        }
    }
}

/// The wait after so many wrong tries: doubled with each beyond the free ones.
fn delay(count: u32, free: u32) -> Option<Duration> {
    let beyond = count.checked_sub(free)?;
    Some(FIRST_WAIT.saturating_mul(1 << beyond.min(16)).min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn after(failures: u32) -> (Throttle, Instant) {
        let mut throttle = Throttle::default();
        let now = Instant::now();
        for _ in 0..failures {
            throttle.failed("ana", HERE, now);
        }
        (throttle, now)
    }

    #[test]
    fn waits_double_and_end() {
        let wait = |failures| {
            let (throttle, now) = after(failures);
            throttle.wait("ana", HERE, now).map(|wait| wait.as_secs())
        };
        assert_eq!([0, 4, 5, 6, 7, 50].map(wait), [None, None, Some(1), Some(2), Some(4), Some(300)]);
        let (throttle, now) = after(6);
        assert_eq!(throttle.wait("ana", HERE, now + Duration::from_secs(2)), None);
    }

    #[test]
    fn nobody_locks_another_out() {
        let (throttle, now) = after(20);
        assert!(throttle.wait("ana", HERE, now).is_some());
        assert_eq!(throttle.wait("ana", THERE, now), None);
        assert_eq!(throttle.wait("bob", HERE, now), None);
    }

    #[test]
    fn an_address_that_tries_many_names_waits_with_all() {
        let (mut throttle, now) = after(0);
        for number in 0..FREE_TRIES_OF_ADDRESS {
            throttle.failed(&format!("user{number}"), HERE, now);
        }
        assert!(throttle.wait("ana", HERE, now).is_some());
        assert_eq!(throttle.wait("ana", THERE, now), None);
    }

    #[test]
    fn guesses_from_one_ipv6_prefix_are_counted_together() {
        let (mut throttle, now) = after(0);
        let host = |number: u16| IpAddr::V6([0x2001, 0xdb8, 0, 1, 0, 0, 0, number].into());
        for number in 0..=FREE_TRIES {
            throttle.failed("ana", host(number as u16), now);
        }
        assert!(throttle.wait("ana", host(999), now).is_some());
        let elsewhere = IpAddr::V6([0x2001, 0xdb8, 0, 2, 0, 0, 0, 1].into());
        assert_eq!(throttle.wait("ana", elsewhere, now), None, "another network is not locked out");
    }

    #[test]
    fn memory_is_bounded_and_the_address_remembered() {
        let (mut throttle, now) = after(0);
        for number in 0..2 * REMEMBERED {
            throttle.failed(&number.to_string(), HERE, now);
        }
        assert!(throttle.failures.len() <= REMEMBERED + 1);
        assert!(throttle.wait("ana", HERE, now).is_some());
    }

    #[test]
    fn success_and_time_forget() {
        let (mut throttle, now) = after(6);
        throttle.succeeded("ana", HERE);
        assert_eq!(throttle.wait("ana", HERE, now), None);
        let (mut throttle, now) = after(20);
        let later = now + FORGOTTEN_AFTER;
        throttle.failed("ana", HERE, later);
        assert_eq!(throttle.wait("ana", HERE, later), None);
    }
}

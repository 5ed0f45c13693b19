//! How often somebody may ask.
//!
//! Whoever is known is counted by who he is, and where he calls from. Whoever is not known yet, or not at all, is counted by
//! his address alone: else he would be somebody new with every token that he makes up. A worker that is known is counted
//! for itself, with much more patience, since each of its exchanges may bring a thousand jobs home; one that turns out not
//! to be known costs whoever spoke for it.

use crate::error::{Answer, ApiError};
use crate::metrics::{Metrics, Reason};
use crate::options::Limits;
use axum::http::StatusCode;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windlass_auth::{How, Principal, network};

/// So many are told apart before those who have been quiet are forgotten.
const CLIENTS: usize = 10_000;
/// A worker may exchange so many times more often than others may ask.
const PATIENCE: u32 = 20;

#[derive(Clone, Debug)]
pub struct Rates(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: Limits,
    metrics: Arc<Metrics>,
    buckets: Mutex<HashMap<u64, Bucket>>,
    keys: RandomState,
}

impl Rates {
    pub(crate) fn new(limits: Limits, metrics: Arc<Metrics>) -> Self {
        let (buckets, keys) = (Mutex::default(), RandomState::new());
        Self(Arc::new(Inner { limits, metrics, buckets, keys }))
    }

    /// Somebody asks whom nobody knows, or not yet.
    pub(crate) fn stranger(&self, address: IpAddr) -> Answer<()> {
        self.take(&("stranger", network(address)), 1)
    }

    /// Somebody known asks for something.
    pub(crate) fn known(&self, who: &Principal, address: IpAddr) -> Answer<()> {
        self.take(&known(who, address), 1)
    }

    /// Somebody known speaks for a worker, which costs him nothing unless it is refused ([`Rates::refused`]).
    pub(crate) fn worker(&self, who: &Principal, address: IpAddr, worker: &str) -> Answer<()> {
        if self.0.limits.rate == 0 {
            return Ok(());
        }
        let key = self.0.keys.hash_one(known(who, address));
        let (now, limits) = (Instant::now(), &self.0.limits);
        let wait = self.buckets().get(&key).and_then(|bucket| bucket.wait(now, limits, 1));
        self.told(wait)?;
        self.take(&("worker", &who.user, worker), PATIENCE)
    }

    /// What was said for a worker was refused.
    pub(crate) fn refused(&self, who: &Principal, address: IpAddr) {
        // Next time he waits.
        drop(self.take(&known(who, address), 1));
    }

    fn take(&self, key: &impl std::hash::Hash, patience: u32) -> Answer<()> {
        let (now, limits) = (Instant::now(), &self.0.limits);
        if limits.rate == 0 {
            return Ok(());
        }
        let mut key = self.0.keys.hash_one(key);
        let mut buckets = self.buckets();
        if buckets.len() >= CLIENTS && !buckets.contains_key(&key) {
            buckets.retain(|_, bucket| !bucket.is_full(now, limits));
            if buckets.len() >= CLIENTS {
                // So many at once cannot all be honest: whoever is new shares one.
                key = self.0.keys.hash_one("shared");
            }
        }
        let bucket = buckets.entry(key).or_insert_with(|| Bucket::new(now, limits, patience));
        let wait = bucket.take(now, limits, patience);
        drop(buckets);
        self.told(wait)
    }

    fn told(&self, wait: Option<Duration>) -> Answer<()> {
        let Some(wait) = wait else { return Ok(()) };
        self.0.metrics.turned_away(Reason::Rate);
        let detail = "too many requests in a short time";
        Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", detail).retry_after(wait))
    }

    fn buckets(&self) -> MutexGuard<'_, HashMap<u64, Bucket>> {
        self.0.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What tells people apart who are known.
fn known(who: &Principal, address: IpAddr) -> (&str, &str, i64, IpAddr) {
    let token = match &who.how {
        How::Token { id, .. } => *id,
        _ => 0,
    };
    (&who.user, who.how.name(), token, address)
}

/// Holds up to `burst` requests and gains `rate` per second, each times its patience.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn new(now: Instant, limits: &Limits, patience: u32) -> Self {
        Self { left: burst(limits, patience), at: now }
    }

    fn filled(&self, now: Instant, limits: &Limits, patience: u32) -> f64 {
        let gained = now.duration_since(self.at).as_secs_f64() * rate(limits, patience);
        (self.left + gained).min(burst(limits, patience))
    }

    fn is_full(&self, now: Instant, limits: &Limits) -> bool {
        self.filled(now, limits, 1) >= burst(limits, 1)
    }

    /// How long it is until there is one.
    fn wait(&self, now: Instant, limits: &Limits, patience: u32) -> Option<Duration> {
        let missing = 1.0 - self.filled(now, limits, patience);
        (missing > 0.0).then(|| Duration::from_secs_f64(missing / rate(limits, patience)))
    }

    fn take(&mut self, now: Instant, limits: &Limits, patience: u32) -> Option<Duration> {
        let wait = self.wait(now, limits, patience);
        let taken = if wait.is_none() { 1.0 } else { 0.0 };
        (self.left, self.at) = (self.filled(now, limits, patience) - taken, now);
        wait
    }
}

fn rate(limits: &Limits, patience: u32) -> f64 {
    f64::from(limits.rate) * f64::from(patience)
}

fn burst(limits: &Limits, patience: u32) -> f64 {
    f64::from(limits.burst.max(1)) * f64::from(patience)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_auth::Role;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let limits = Limits { rate: 10, burst: 3, ..Limits::default() };
        let start = Instant::now();
        let mut bucket = Bucket::new(start, &limits, 1);
        for _ in 0..3 {
            assert_eq!(bucket.take(start, &limits, 1), None);
        }
        assert_eq!(bucket.take(start, &limits, 1), Some(Duration::from_millis(100)));
        assert_eq!(bucket.take(start + Duration::from_millis(101), &limits, 1), None);
        assert!(!bucket.is_full(start + Duration::from_millis(200), &limits));
        assert!(bucket.is_full(start + Duration::from_secs(1), &limits));
    }

    fn rates(rate: u32, burst: u32) -> Rates {
        let limits = Limits { rate, burst, ..Limits::default() };
        Rates::new(limits, Arc::new(Metrics::default()))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn whoever_nobody_knows_is_his_address() {
        let rates = rates(1, 2);
        for _ in 0..2 {
            rates.stranger(address("2001:db8::1")).unwrap();
        }
        rates.stranger(address("2001:db8::2")).unwrap_err();
        rates.stranger(address("2001:db8:1::1")).unwrap();
        rates.stranger(address("192.0.2.1")).unwrap();
        let ana = Principal::full("ana", Role::User, How::Password);
        rates.known(&ana, address("2001:db8::1")).unwrap();
    }

    #[test]
    fn workers_at_full_speed_are_not_held_up_and_those_made_up_are() {
        // As served: 16 workers of one user at one address, each with a thousand exchanges in the same second.
        let rates = rates(Limits::default().rate, Limits::default().burst);
        let (ana, here) = (Principal::full("ana", Role::User, How::Password), address("192.0.2.1"));
        for worker in 0..16 {
            for _ in 0..1000 {
                rates.worker(&ana, here, &worker.to_string()).unwrap();
            }
        }
        for _ in 0..Limits::default().burst + Limits::default().rate {
            rates.refused(&ana, here);
        }
        rates.worker(&ana, here, "17").unwrap_err();
    }
}

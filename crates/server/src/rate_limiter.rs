//! Rate limiting of requests.
//!
//! Authenticated callers are counted by credential and address. Requests that are not authenticated (yet) are
//! counted by address only, because made-up tokens would otherwise each get a new budget. Exchanges of a worker
//! are counted per worker with a much higher limit, since each may report a thousand jobs; an exchange that is
//! rejected counts against the caller.

use crate::error::{ApiError, ApiResult};
use crate::metrics::{RejectionReason, ServerMetrics};
use crate::options::HttpRequestLimits;
use axum::http::StatusCode;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windlass_auth::{AuthMethod, Principal, client_network};
use windlass_types::WorkerId;

/// Maximum number of buckets before idle ones are removed.
const MAX_BUCKETS: usize = 10_000;
/// How much higher the rate limit of a worker is.
const WORKER_RATE_FACTOR: u32 = 20;

#[derive(Clone, Debug)]
pub struct RateLimiter(Arc<RateLimiterState>);

#[derive(Debug)]
struct RateLimiterState {
    limits: HttpRequestLimits,
    metrics: Arc<ServerMetrics>,
    buckets: Mutex<HashMap<u64, TokenBucket>>,
    keys: RandomState,
}

impl RateLimiter {
    pub(crate) fn new(limits: HttpRequestLimits, metrics: Arc<ServerMetrics>) -> Self {
        let (buckets, keys) = (Mutex::default(), RandomState::new());
        Self(Arc::new(RateLimiterState { limits, metrics, buckets, keys }))
    }

    /// Counts a request without an authenticated caller.
    pub(crate) fn count_anonymous(&self, address: IpAddr) -> ApiResult<()> {
        self.take_token(&("stranger", client_network(address)), 1)
    }

    /// Counts a request with a token that this worker signed for a job, before it is authenticated.
    pub(crate) fn count_job_of(&self, worker: WorkerId) -> ApiResult<()> {
        self.take_token(&("job of", worker), 1)
    }

    /// Counts a request of an authenticated caller.
    pub(crate) fn count_principal(&self, who: &Principal, address: IpAddr) -> ApiResult<()> {
        self.take_token(&principal_key(who, address), 1)
    }

    /// Counts an exchange of a worker; the caller is charged only if it is rejected
    /// ([`Self::count_rejected_worker`]).
    pub(crate) fn count_worker(&self, who: &Principal, address: IpAddr, worker: &str) -> ApiResult<()> {
        if self.0.limits.rate == 0 {
            return Ok(());
        }
        let key = self.0.keys.hash_one(principal_key(who, address));
        let (now, limits) = (Instant::now(), &self.0.limits);
        let wait = self.lock_buckets().get(&key).and_then(|bucket| bucket.time_until_token(now, limits, 1));
        self.reject_if_limited(wait)?;
        self.take_token(&("worker", &who.user, worker), WORKER_RATE_FACTOR)
    }

    /// Charges the caller for a rejected exchange.
    pub(crate) fn count_rejected_worker(&self, who: &Principal, address: IpAddr) {
        // The limit applies to the next request.
        drop(self.take_token(&principal_key(who, address), 1));
    }

    fn take_token(&self, key: &impl std::hash::Hash, multiplier: u32) -> ApiResult<()> {
        let (now, limits) = (Instant::now(), &self.0.limits);
        if limits.rate == 0 {
            return Ok(());
        }
        let mut key = self.0.keys.hash_one(key);
        let mut buckets = self.lock_buckets();
        if buckets.len() >= MAX_BUCKETS && !buckets.contains_key(&key) {
            buckets.retain(|_, bucket| !bucket.is_full(now, limits));
            if buckets.len() >= MAX_BUCKETS {
                // So many distinct clients indicate abuse: new ones share one bucket.
                key = self.0.keys.hash_one("shared");
            }
        }
        let bucket = buckets.entry(key).or_insert_with(|| TokenBucket::new(now, limits, multiplier));
        let wait = bucket.take_token(now, limits, multiplier);
        drop(buckets);
        self.reject_if_limited(wait)
    }

    fn reject_if_limited(&self, wait: Option<Duration>) -> ApiResult<()> {
        let Some(wait) = wait else { return Ok(()) };
        self.0.metrics.record_rejection(RejectionReason::Rate);
        let detail = "too many requests in a short time";
        Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", detail).with_retry_after(wait))
    }

    fn lock_buckets(&self) -> MutexGuard<'_, HashMap<u64, TokenBucket>> {
        self.0.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Key that identifies an authenticated caller.
fn principal_key(who: &Principal, address: IpAddr) -> (&str, &str, i64, IpAddr) {
    let token = match &who.method {
        AuthMethod::Token { id, .. } => *id,
        _ => 0,
    };
    (&who.user, who.method.name(), token, address)
}

/// Holds up to `burst` requests and gains `rate` per second, each multiplied by its factor.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TokenBucket {
    tokens: f64,
    updated_at: Instant,
}

impl TokenBucket {
    fn new(now: Instant, limits: &HttpRequestLimits, multiplier: u32) -> Self {
        Self { tokens: bucket_size(limits, multiplier), updated_at: now }
    }

    fn tokens_at(&self, now: Instant, limits: &HttpRequestLimits, multiplier: u32) -> f64 {
        let gained = now.duration_since(self.updated_at).as_secs_f64() * bucket_rate(limits, multiplier);
        (self.tokens + gained).min(bucket_size(limits, multiplier))
    }

    fn is_full(&self, now: Instant, limits: &HttpRequestLimits) -> bool {
        self.tokens_at(now, limits, 1) >= bucket_size(limits, 1)
    }

    /// Time until the next request is permitted.
    fn time_until_token(
        &self,
        now: Instant,
        limits: &HttpRequestLimits,
        multiplier: u32,
    ) -> Option<Duration> {
        let missing = 1.0 - self.tokens_at(now, limits, multiplier);
        (missing > 0.0).then(|| Duration::from_secs_f64(missing / bucket_rate(limits, multiplier)))
    }

    fn take_token(&mut self, now: Instant, limits: &HttpRequestLimits, multiplier: u32) -> Option<Duration> {
        let wait = self.time_until_token(now, limits, multiplier);
        let taken = if wait.is_none() { 1.0 } else { 0.0 };
        (self.tokens, self.updated_at) = (self.tokens_at(now, limits, multiplier) - taken, now);
        wait
    }
}

fn bucket_rate(limits: &HttpRequestLimits, multiplier: u32) -> f64 {
    f64::from(limits.rate) * f64::from(multiplier)
}

fn bucket_size(limits: &HttpRequestLimits, multiplier: u32) -> f64 {
    f64::from(limits.burst.max(1)) * f64::from(multiplier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_auth::UserRole;

    #[test]
    fn bucket_allows_its_burst_then_its_rate() {
        let limits = HttpRequestLimits { rate: 10, burst: 3, ..HttpRequestLimits::default() };
        let start = Instant::now();
        let mut bucket = TokenBucket::new(start, &limits, 1);
        for _ in 0..3 {
            assert_eq!(bucket.take_token(start, &limits, 1), None);
        }
        assert_eq!(bucket.take_token(start, &limits, 1), Some(Duration::from_millis(100)));
        assert_eq!(bucket.take_token(start + Duration::from_millis(101), &limits, 1), None);
        assert!(!bucket.is_full(start + Duration::from_millis(200), &limits));
        assert!(bucket.is_full(start + Duration::from_secs(1), &limits));
    }

    fn rates(rate: u32, burst: u32) -> RateLimiter {
        let limits = HttpRequestLimits { rate, burst, ..HttpRequestLimits::default() };
        RateLimiter::new(limits, Arc::new(ServerMetrics::default()))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn anonymous_requests_are_limited_by_address() {
        let rates = rates(1, 2);
        for _ in 0..2 {
            rates.count_anonymous(address("2001:db8::1")).unwrap();
        }
        rates.count_anonymous(address("2001:db8::2")).unwrap_err();
        rates.count_anonymous(address("2001:db8:1::1")).unwrap();
        rates.count_anonymous(address("192.0.2.1")).unwrap();
        let ana = Principal::with_all_scopes("ana", UserRole::User, AuthMethod::Password);
        rates.count_principal(&ana, address("2001:db8::1")).unwrap();
    }

    #[test]
    fn exchanges_are_limited_for_unknown_workers_only() {
        // As in production: 16 workers of one user at one address, each with a thousand exchanges in the same
        // second.
        let rates = rates(HttpRequestLimits::default().rate, HttpRequestLimits::default().burst);
        let (ana, here) =
            (Principal::with_all_scopes("ana", UserRole::User, AuthMethod::Password), address("192.0.2.1"));
        for worker in 0..16 {
            for _ in 0..1000 {
                rates.count_worker(&ana, here, &worker.to_string()).unwrap();
            }
        }
        for _ in 0..HttpRequestLimits::default().burst + HttpRequestLimits::default().rate {
            rates.count_rejected_worker(&ana, here);
        }
        rates.count_worker(&ana, here, "17").unwrap_err();
    }
}

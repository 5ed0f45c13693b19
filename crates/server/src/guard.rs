//! What every request passes: it gets an id, is logged and counted, and is turned away when there are too many.
//!
//! Back-pressure instead of collapse: beyond the limits a caller hears 429 or 503 with Retry-After at once, so that what
//! was begun gets done. Waits and streams cost next to nothing and are not counted among the requests under way.

use crate::caller::Peer;
use crate::error::ApiError;
use crate::metrics::{Counted, Metrics, Reason};
use crate::options::Limits;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{self, AUTHORIZATION, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tracing::Instrument as _;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Routes are few; what matches none of them is counted together.
const NO_ROUTE: &str = "none";
/// So many clients are told apart before those who have been quiet are forgotten.
const CLIENTS: usize = 10_000;

/// What the layers share.
#[derive(Clone, Debug)]
pub(crate) struct Guard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    metrics: Arc<Metrics>,
    limits: Limits,
    slots: Semaphore,
    rates: Mutex<HashMap<u64, Bucket>>,
    keys: RandomState,
    /// Tells the requests of this server from those of the one before.
    start: u32,
    requests: AtomicU64,
    secure: bool,
}

impl Guard {
    /// `secure`: it is spoken to over TLS.
    pub(crate) fn new(metrics: Arc<Metrics>, limits: Limits, secure: bool) -> Self {
        let keys = RandomState::new();
        let start = keys.hash_one("start") as u32;
        let slots = Semaphore::new(limits.max_in_flight);
        let inner = Inner {
            metrics,
            limits,
            slots,
            rates: Mutex::default(),
            keys,
            start,
            requests: AtomicU64::new(0),
            secure,
        };
        Self(Arc::new(inner))
    }

    fn request_id(&self) -> String {
        format!("{:08x}-{}", self.0.start, self.0.requests.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// How long this client has to wait; `None`: it may go on.
    fn too_often(&self, request: &Request) -> Option<Duration> {
        let limits = &self.0.limits;
        if limits.rate == 0 {
            return None;
        }
        let address = request.extensions().get::<Peer>().map(|peer| peer.address.ip());
        let key = self.0.keys.hash_one((address, request.headers().get(AUTHORIZATION)));
        let now = Instant::now();
        let mut rates = self.0.rates.lock().unwrap_or_else(PoisonError::into_inner);
        if rates.len() >= CLIENTS && !rates.contains_key(&key) {
            rates.retain(|_, bucket| !bucket.is_full(now, limits));
        }
        if rates.len() >= CLIENTS && !rates.contains_key(&key) {
            // So many at once cannot all be honest: the strangers share one.
            let shared = self.0.keys.hash_one(None::<IpAddr>);
            return rates.entry(shared).or_insert_with(|| Bucket::new(now, limits)).take(now, limits);
        }
        rates.entry(key).or_insert_with(|| Bucket::new(now, limits)).take(now, limits)
    }
}

/// Holds up to `burst` requests and gains `rate` per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn new(now: Instant, limits: &Limits) -> Self {
        Self { left: f64::from(limits.burst.max(1)), at: now }
    }

    fn filled(&self, now: Instant, limits: &Limits) -> f64 {
        let gained = now.duration_since(self.at).as_secs_f64() * f64::from(limits.rate);
        (self.left + gained).min(f64::from(limits.burst.max(1)))
    }

    fn is_full(&self, now: Instant, limits: &Limits) -> bool {
        self.filled(now, limits) >= f64::from(limits.burst.max(1))
    }

    fn take(&mut self, now: Instant, limits: &Limits) -> Option<Duration> {
        self.left = self.filled(now, limits);
        self.at = now;
        if self.left >= 1.0 {
            self.left -= 1.0;
            return None;
        }
        Some(Duration::from_secs_f64((1.0 - self.left) / f64::from(limits.rate)))
    }
}

/// The outermost layer: names, counts and logs each request. Neither credentials nor queries are ever logged.
pub(crate) async fn observe(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let id = guard.request_id();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let path = request.uri().path().to_owned();
    let span = tracing::info_span!("request", %id);
    let began = Instant::now();
    let counted = Counted::new(&guard.0.metrics.in_flight);
    let mut response = next.run(request).instrument(span.clone()).await;
    drop(counted);
    let (time, code) = (began.elapsed(), response.status());
    let counted_as = route.as_deref().unwrap_or(NO_ROUTE);
    guard.0.metrics.requested(method.as_str(), counted_as, code.as_u16());
    if response.extensions().get::<Lasting>().is_none() {
        guard.0.metrics.took(counted_as, time);
    }
    span.in_scope(|| log(&method, &path, code, time, &response));
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    secure_headers(&mut response, guard.0.secure);
    response
}

/// In the extensions of a response whose time says nothing about the server.
#[derive(Clone, Copy, Debug)]
struct Lasting;

fn log(method: &axum::http::Method, path: &str, code: StatusCode, time: Duration, response: &Response) {
    let ms = time.as_millis() as u64;
    let error = response.extensions().get::<ApiError>();
    let (code, why) = (code.as_u16(), error.map(|error| error.code.as_ref()).unwrap_or_default());
    match code {
        500.. => tracing::warn!(%method, path, code, ms, why, "answered"),
        400.. => tracing::info!(%method, path, code, ms, why, "answered"),
        _ => tracing::debug!(%method, path, code, ms, "answered"),
    }
}

/// What keeps browsers from doing more with an answer than showing it.
fn secure_headers(response: &mut Response, secure: bool) {
    let headers = response.headers_mut();
    let set = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in set {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    if secure {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
}

/// For requests that are done in a moment: not too many at once, not too often, not too long.
pub(crate) async fn brief(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let metrics = &guard.0.metrics;
    if let Some(wait) = guard.too_often(&request) {
        metrics.turned_away(Reason::Rate);
        return ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too_many_requests",
            "too many requests in a short time",
        )
        .retry_after(wait)
        .into_response();
    }
    let Ok(_slot) = guard.0.slots.try_acquire() else {
        metrics.turned_away(Reason::Busy);
        return ApiError::unavailable("the server is busy with other requests", Duration::from_secs(1))
            .into_response();
    };
    let limit = guard.0.limits.timeout;
    if let Ok(response) = tokio::time::timeout(limit, next.run(request)).await {
        return response;
    }
    metrics.turned_away(Reason::Timeout);
    let detail = format!("this took longer than {} s; whether it was done is not known", limit.as_secs());
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail).into_response()
}

/// For waits, streams and uploads: as long as they like.
pub(crate) async fn lasting(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.extensions_mut().insert(Lasting);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let limits = Limits { rate: 10, burst: 3, ..Limits::default() };
        let start = Instant::now();
        let mut bucket = Bucket::new(start, &limits);
        for _ in 0..3 {
            assert_eq!(bucket.take(start, &limits), None);
        }
        assert_eq!(bucket.take(start, &limits), Some(Duration::from_millis(100)));
        assert_eq!(bucket.take(start + Duration::from_millis(101), &limits), None);
        assert!(!bucket.is_full(start + Duration::from_millis(200), &limits));
        assert!(bucket.is_full(start + Duration::from_secs(1), &limits));
    }
}

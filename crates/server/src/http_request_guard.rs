//! Middleware for every request: assigns an id, logs and counts it, and rejects it above the limits.
//!
//! Above the limits a caller gets 429 or 503 with Retry-After at once, so that accepted requests complete. Long
//! polls and streams are cheap and not counted among the active requests.

use crate::caller::{Caller, ConnectionPeer};
use crate::error::ApiError;
use crate::metrics::{GaugeGuard, RejectionReason, ServerMetrics};
use crate::options::HttpRequestLimits;
use axum::body::{Body, HttpBody as _};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Instrument as _;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Route label of requests that match no route, to limit the number of label values.
const UNMATCHED_ROUTE: &str = "none";
/// Bodies up to this size are not counted.
const SMALL_BODY_BYTES: u64 = 64 << 10;
/// Unit in which the memory of larger bodies is counted.
const BODY_PIECE_BYTES: usize = 4 << 10;
/// Maximum number of concurrent workflow uploads: each may fill the disk.
const MAX_UPLOADS: usize = 16;
/// Maximum number of them per user.
const MAX_UPLOADS_PER_USER: usize = 4;

/// State shared by the layers.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequestGuard(Arc<RequestGuardState>);

#[derive(Debug)]
struct RequestGuardState {
    metrics: Arc<ServerMetrics>,
    limits: HttpRequestLimits,
    request_slots: Semaphore,
    /// Memory for large bodies, in pieces of [`BODY_PIECE_BYTES`].
    body_budget: Arc<Semaphore>,
    uploads: Semaphore,
    uploads_by_user: Arc<UsageByUser>,
    /// Brief requests in progress.
    requests_by_user: Arc<UsageByUser>,
    /// Parts of `body_budget`.
    bodies_by_user: Arc<UsageByUser>,
    /// Distinguishes request ids of this server process from those of earlier ones.
    start_id: u32,
    request_count: AtomicU64,
    is_tls: bool,
}

impl HttpRequestGuard {
    /// `secure`: the server uses TLS.
    pub(crate) fn new(metrics: Arc<ServerMetrics>, limits: HttpRequestLimits, secure: bool) -> Self {
        let start = RandomState::new().hash_one("start") as u32;
        let slots = Semaphore::new(limits.max_in_flight);
        let bodies = Arc::new(Semaphore::new(limits.max_bodies / BODY_PIECE_BYTES));
        let inner = RequestGuardState {
            metrics,
            limits,
            request_slots: slots,
            body_budget: bodies,
            uploads: Semaphore::new(MAX_UPLOADS),
            uploads_by_user: Arc::default(),
            requests_by_user: Arc::default(),
            bodies_by_user: Arc::default(),
            start_id: start,
            request_count: AtomicU64::new(0),
            is_tls: secure,
        };
        Self(Arc::new(inner))
    }

    fn request_id(&self) -> String {
        format!("{:08x}-{}", self.0.start_id, self.0.request_count.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// The outermost layer: identifies, counts and logs each request. Neither credentials nor queries are ever
/// logged.
pub(crate) async fn observe_request(
    State(guard): State<HttpRequestGuard>,
    request: Request,
    next: Next,
) -> Response {
    let id = guard.request_id();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let path = request.uri().path().to_owned();
    let address = request.extensions().get::<ConnectionPeer>().map(|peer| peer.address.ip());
    let span = tracing::info_span!("request", %id);
    let began = Instant::now();
    let counted = GaugeGuard::new(&guard.0.metrics.in_flight);
    let mut response = next.run(request).instrument(span.clone()).await;
    drop(counted);
    let (time, code) = (began.elapsed(), response.status());
    let route_label = route.as_deref().unwrap_or(UNMATCHED_ROUTE);
    guard.0.metrics.record_request(method.as_str(), route_label, code.as_u16());
    if response.extensions().get::<LongRunningResponse>().is_none() {
        guard.0.metrics.record_duration(route_label, time);
    }
    span.in_scope(|| log_request(&method, &path, address, time, &response));
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    set_security_headers(&mut response, guard.0.is_tls);
    response
}

/// Extension of a response whose duration is not recorded.
#[derive(Clone, Copy, Debug)]
struct LongRunningResponse;

/// Extension of a response: the authenticated user of the request, for the log.
#[derive(Clone, Debug)]
pub(crate) struct RequestUser(pub(crate) Arc<str>);

fn log_request(
    method: &axum::http::Method,
    path: &str,
    address: Option<IpAddr>,
    time: Duration,
    response: &Response,
) {
    let ms = time.as_millis() as u64;
    let error = response.extensions().get::<ApiError>();
    let why = error.map(|error| error.code.as_ref()).unwrap_or_default();
    let user = response.extensions().get::<RequestUser>().map(|user| &*user.0);
    let (code, address) = (response.status().as_u16(), address.map(tracing::field::display));
    match code {
        500.. => tracing::warn!(%method, path, code, ms, why, user, address, "answered"),
        400.. => tracing::info!(%method, path, code, ms, why, user, address, "answered"),
        _ => tracing::debug!(%method, path, code, ms, user, address, "answered"),
    }
}

/// Sets headers that keep browsers from doing more with a response than showing it.
fn set_security_headers(response: &mut Response, secure: bool) {
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

/// Layer for brief requests: limits concurrency and duration. For the rate limit see [`crate::rate_limiter`].
pub(crate) async fn limit_brief_requests(
    State(guard): State<HttpRequestGuard>,
    request: Request,
    next: Next,
) -> Response {
    let metrics = &guard.0.metrics;
    let Ok(_slot) = guard.0.request_slots.try_acquire() else {
        metrics.record_rejection(RejectionReason::Busy);
        return busy_response();
    };
    let limit = guard.0.limits.timeout;
    if let Ok(response) = tokio::time::timeout(limit, next.run(request)).await {
        return response;
    }
    metrics.record_rejection(RejectionReason::Timeout);
    let detail =
        format!("the request took longer than {} s; whether it was applied is unknown", limit.as_secs());
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail).into_response()
}

/// Layer for bodies that are read into memory: limits their total by the bytes received, not by the announced
/// length, and the share of each user, so that a slow sender does not lock others out. It runs after
/// authentication.
pub(crate) async fn limit_body_memory(
    State(guard): State<HttpRequestGuard>,
    request: Request,
    next: Next,
) -> Response {
    let length: Option<u64> =
        request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let is_small = match length {
        Some(length) => length <= SMALL_BODY_BYTES,
        None => request.body().is_end_stream(),
    };
    if is_small {
        return next.run(request).await;
    }
    let is_refused = Arc::new(AtomicBool::new(false));
    let user = request_user(&request).unwrap_or_else(|| Arc::from(""));
    let share = UserShare::new(&guard.0.bodies_by_user, user);
    let most = guard.0.limits.max_bodies / BODY_PIECE_BYTES * 3 / 4;
    let counted = count_body_memory(Arc::clone(&guard.0.body_budget), share, most, Arc::clone(&is_refused));
    let response = next.run(request.map(counted)).await;
    if !is_refused.load(Ordering::Relaxed) {
        return response;
    }
    guard.0.metrics.record_rejection(RejectionReason::Busy);
    busy_response()
}

/// Wraps a body so that its pieces are counted as they arrive, until it has been read.
fn count_body_memory(
    budget: Arc<Semaphore>,
    mut share: UserShare,
    max_share: usize,
    is_refused: Arc<AtomicBool>,
) -> impl FnOnce(Body) -> Body {
    move |body| {
        let mut held: Option<OwnedSemaphorePermit> = None;
        Body::from_stream(body.into_data_stream().map(move |piece| {
            let piece = piece?;
            let pieces = u32::try_from(piece.len().div_ceil(BODY_PIECE_BYTES)).unwrap_or(u32::MAX);
            let more = share
                .grow(pieces as usize, max_share)
                .then(|| Arc::clone(&budget).try_acquire_many_owned(pieces).ok())
                .flatten();
            let Some(more) = more else {
                is_refused.store(true, Ordering::Relaxed);
                return Err(axum::Error::new(std::io::Error::other("body memory limit reached")));
            };
            match &mut held {
                Some(held) => held.merge(more),
                none => *none = Some(more),
            }
            Ok(piece)
        }))
    }
}

fn busy_response() -> Response {
    ApiError::unavailable("the server is busy with other requests", Duration::from_secs(1)).into_response()
}

/// What each user has in use at present.
#[derive(Debug, Default)]
struct UsageByUser(Mutex<HashMap<Arc<str>, usize>>);

/// A part that a user has in use until it is dropped.
struct UserShare {
    usage: Arc<UsageByUser>,
    user: Arc<str>,
    amount: usize,
}

impl UserShare {
    /// Nothing yet.
    fn new(usage: &Arc<UsageByUser>, user: Arc<str>) -> Self {
        Self { usage: Arc::clone(usage), user, amount: 0 }
    }

    /// Adds to it, unless the user would then have more than the maximum in use.
    fn grow(&mut self, amount: usize, most: usize) -> bool {
        let mut users = self.usage.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = users.get(&self.user).copied().unwrap_or(0) + amount;
        let is_permitted = total <= most;
        if is_permitted {
            users.insert(Arc::clone(&self.user), total);
            self.amount += amount;
        }
        is_permitted
    }
}

impl Drop for UserShare {
    fn drop(&mut self) {
        let mut users = self.usage.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(total) = users.get_mut(&self.user) {
            *total -= self.amount;
            if *total == 0 {
                users.remove(&self.user);
            }
        }
    }
}

fn request_user(request: &Request) -> Option<Arc<str>> {
    request.extensions().get::<Caller>().map(|caller| Arc::clone(&caller.0.user))
}

/// Layer for brief requests. It runs after authentication, so that the slow requests of one user leave room for
/// others.
pub(crate) async fn limit_requests_of_user(
    State(guard): State<HttpRequestGuard>,
    request: Request,
    next: Next,
) -> Response {
    let Some(user) = request_user(&request) else { return next.run(request).await };
    let most = guard.0.limits.max_in_flight.div_ceil(2);
    let mut counted = UserShare::new(&guard.0.requests_by_user, Arc::clone(&user));
    if !counted.grow(1, most) {
        guard.0.metrics.record_rejection(RejectionReason::Busy);
        let detail = format!("user {user} has {most} requests in progress, the limit per user");
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_in_progress", detail);
        return error.with_retry_after(Duration::from_secs(1)).into_response();
    }
    next.run(request).await
}

/// Layer for workflow uploads. It runs after authentication, so that slow uploads of one user leave room for
/// others.
pub(crate) async fn limit_uploads(
    State(guard): State<HttpRequestGuard>,
    request: Request,
    next: Next,
) -> Response {
    let user = request_user(&request).unwrap_or_else(|| Arc::from(""));
    let mut counted = UserShare::new(&guard.0.uploads_by_user, Arc::clone(&user));
    if !counted.grow(1, MAX_UPLOADS_PER_USER) {
        guard.0.metrics.record_rejection(RejectionReason::Busy);
        let detail =
            format!("user {user} has {MAX_UPLOADS_PER_USER} uploads in progress, the limit per user");
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_uploads", detail);
        return error.with_retry_after(Duration::from_secs(1)).into_response();
    }
    let Ok(_slot) = guard.0.uploads.try_acquire() else {
        guard.0.metrics.record_rejection(RejectionReason::Busy);
        return busy_response();
    };
    next.run(request).await
}

/// Layer for long polls, streams and uploads: no time limit.
pub(crate) async fn mark_long_running(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.extensions_mut().insert(LongRunningResponse);
    response
}

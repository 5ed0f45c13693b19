//! What every request passes: it gets an id, is logged and counted, and is turned away when there are too many.
//!
//! Back-pressure instead of collapse: beyond the limits a caller hears 429 or 503 with Retry-After at once, so that what
//! was begun gets done. Waits and streams cost next to nothing and are not counted among the requests under way.

use crate::caller::Caller;
use crate::error::ApiError;
use crate::metrics::{Counted, Metrics, Reason};
use crate::options::Limits;
use axum::body::{Body, HttpBody as _};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Instrument as _;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Routes are few; what matches none of them is counted together.
const NO_ROUTE: &str = "none";
/// Bodies up to this are not worth counting.
const SMALL: u64 = 64 << 10;
/// In such pieces what all larger ones take of the memory together is counted.
const PIECE: usize = 4 << 10;
/// Workflows that are uploaded at once: each may fill the disk.
const UPLOADS: usize = 16;
/// Of them, those of one user.
const UPLOADS_OF_USER: usize = 4;

/// What the layers share.
#[derive(Clone, Debug)]
pub(crate) struct Guard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    metrics: Arc<Metrics>,
    limits: Limits,
    slots: Semaphore,
    /// Bytes of large bodies, in pieces of [`PIECE`], that may be in memory at once.
    bodies: Arc<Semaphore>,
    uploads: Semaphore,
    uploads_by_user: Mutex<HashMap<Arc<str>, usize>>,
    /// Tells the requests of this server from those of the one before.
    start: u32,
    requests: AtomicU64,
    secure: bool,
}

impl Guard {
    /// `secure`: it is spoken to over TLS.
    pub(crate) fn new(metrics: Arc<Metrics>, limits: Limits, secure: bool) -> Self {
        let start = RandomState::new().hash_one("start") as u32;
        let slots = Semaphore::new(limits.max_in_flight);
        let bodies = Arc::new(Semaphore::new(limits.max_bodies / PIECE));
        let inner = Inner {
            metrics,
            limits,
            slots,
            bodies,
            uploads: Semaphore::new(UPLOADS),
            uploads_by_user: Mutex::default(),
            start,
            requests: AtomicU64::new(0),
            secure,
        };
        Self(Arc::new(inner))
    }

    fn request_id(&self) -> String {
        format!("{:08x}-{}", self.0.start, self.0.requests.fetch_add(1, Ordering::Relaxed) + 1)
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

/// For requests that are done in a moment: not too many at once, not too long. How often: see [`crate::rates`].
pub(crate) async fn brief(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let metrics = &guard.0.metrics;
    let Ok(_slot) = guard.0.slots.try_acquire() else {
        metrics.turned_away(Reason::Busy);
        return busy();
    };
    let limit = guard.0.limits.timeout;
    if let Ok(response) = tokio::time::timeout(limit, next.run(request)).await {
        return response;
    }
    metrics.turned_away(Reason::Timeout);
    let detail = format!("this took longer than {} s; whether it was done is not known", limit.as_secs());
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail).into_response()
}

/// For what is read into memory as a whole: all of it together is limited, by what has arrived and not by what is
/// announced, so that nobody keeps others out by sending slowly.
pub(crate) async fn bodies(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let length: Option<u64> =
        request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let is_small = match length {
        Some(length) => length <= SMALL,
        None => request.body().is_end_stream(),
    };
    if is_small {
        return next.run(request).await;
    }
    let is_refused = Arc::new(AtomicBool::new(false));
    let counted = counted(Arc::clone(&guard.0.bodies), Arc::clone(&is_refused));
    let response = next.run(request.map(counted)).await;
    if !is_refused.load(Ordering::Relaxed) {
        return response;
    }
    guard.0.metrics.turned_away(Reason::Busy);
    busy()
}

/// A body whose pieces are counted as they arrive, until it has been read.
fn counted(budget: Arc<Semaphore>, is_refused: Arc<AtomicBool>) -> impl FnOnce(Body) -> Body {
    move |body| {
        let mut held: Option<OwnedSemaphorePermit> = None;
        Body::from_stream(body.into_data_stream().map(move |piece| {
            let piece = piece?;
            let pieces = u32::try_from(piece.len().div_ceil(PIECE)).unwrap_or(u32::MAX);
            let Ok(more) = Arc::clone(&budget).try_acquire_many_owned(pieces) else {
                is_refused.store(true, Ordering::Relaxed);
                return Err(axum::Error::new(std::io::Error::other("too much at once")));
            };
            match &mut held {
                Some(held) => held.merge(more),
                none => *none = Some(more),
            }
            Ok(piece)
        }))
    }
}

fn busy() -> Response {
    ApiError::unavailable("the server is busy with other requests", Duration::from_secs(1)).into_response()
}

/// An upload of a user, counted until it is dropped.
struct UploadOfUser<'a> {
    guard: &'a Guard,
    user: Arc<str>,
}

impl<'a> UploadOfUser<'a> {
    fn begin(guard: &'a Guard, user: &Arc<str>) -> Option<Self> {
        let mut users = guard.0.uploads_by_user.lock().unwrap_or_else(PoisonError::into_inner);
        let count = users.entry(Arc::clone(user)).or_default();
        (*count < UPLOADS_OF_USER).then(|| {
            *count += 1;
            Self { guard, user: Arc::clone(user) }
        })
    }
}

impl Drop for UploadOfUser<'_> {
    fn drop(&mut self) {
        let mut users = self.guard.0.uploads_by_user.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = users.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                users.remove(&self.user);
            }
        }
    }
}

/// For workflows that arrive in a file. Stands behind authentication, so that slow uploads of one user leave room for others.
pub(crate) async fn uploads(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let user = request.extensions().get::<Caller>().map(|caller| Arc::clone(&caller.0.user));
    let user = user.unwrap_or_else(|| Arc::from(""));
    let Some(_of_user) = UploadOfUser::begin(&guard, &user) else {
        guard.0.metrics.turned_away(Reason::Busy);
        let detail = format!("user {user} has {UPLOADS_OF_USER} uploads under way, which is the most");
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_uploads", detail);
        return error.retry_after(Duration::from_secs(1)).into_response();
    };
    let Ok(_slot) = guard.0.uploads.try_acquire() else {
        guard.0.metrics.turned_away(Reason::Busy);
        return busy();
    };
    next.run(request).await
}

/// For waits, streams and uploads: as long as they like.
pub(crate) async fn lasting(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.extensions_mut().insert(Lasting);
    response
}

//! The engine as a service: REST API, events, workers, multiple users. The only crate that uses axum.
//!
//! ```text
//! listen ─▶ front (standby | active) ─▶ layers (id, log, limits, headers) ─▶ routes ─▶ store | service
//! ```
//!
//! - Handlers decide nothing: they authenticate the caller ([`caller`]), call the store or the scheduler, and
//!   render.
//! - A handler may be dropped at any `await` when its client disconnects. Its operation is then applied
//!   completely or not at all, and a claim that no client receives is returned.
//! - Store calls block, so they run on the blocking pool ([`state::run_blocking`]). The scheduler answers
//!   through a closure ([`state::call_service`]).
//! - Every error is an [`error::ApiError`], rendered according to the path of the request.

mod auth_backend;
pub mod caller;
mod connection_server;
mod connections;
mod cross_site;
pub mod discovery;
pub mod error;
pub mod event_publisher;
pub mod exchange_waiters;
pub mod extract;
mod http_request_guard;
pub mod logging;
pub mod metrics;
mod openapi_page;
pub mod options;
mod parameter_docs;
mod peer_certificate;
mod rate_limiter;
mod request_lifecycle;
pub mod requests;
pub mod route_policy;
mod router;
mod routes;
mod serve;
mod signals;
mod slurm_allocations;
pub mod state;
mod swappable_router;
mod systemd_notify;
pub mod tls;

pub use error::{ApiError, ApiResult, FieldError};
pub use options::ServeOptions;
pub use router::build_openapi;
pub use serve::{ApiServer, DATABASE_START_WAIT, RunningServer, ServeError, ServerRole, serve};
pub use state::AppState;

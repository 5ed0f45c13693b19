//! The engine as a service: REST, events, workers, many users. The only crate that knows axum.
//!
//! ```text
//! listen ─▶ front (standby | active) ─▶ layers (id, log, limits, headers) ─▶ routes ─▶ store | service
//! ```
//!
//! - Handlers decide nothing: they find out who calls ([`caller`]), ask the store or the service, and render.
//! - A handler may be dropped at any `await`, because its caller hung up. What it asked for is then done or not done as
//!   a whole; nothing is left half done, and a claim that nobody hears of is given back.
//! - Store calls block, so they run on the blocking pool ([`state::blocking`]). Service calls answer by a closure
//!   ([`state::ask`]).
//! - Every error is an [`error::ApiError`] and is written in the manner of the path it was asked at.

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
pub mod logging;
pub mod metrics;
mod openapi_page;
pub mod options;
mod peer_certificate;
mod rate_limiter;
mod request_guard;
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
pub use serve::{ApiServer, RunningServer, ServeError, ServerRole, serve};
pub use state::AppState;

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

pub mod caller;
mod certificate;
mod connections;
mod cross_site;
pub mod discovery;
pub mod error;
pub mod extract;
mod front;
mod gate;
mod guard;
mod lifecycle;
mod listen;
pub mod listeners;
pub mod logging;
pub mod metrics;
mod notify;
pub mod options;
mod page;
pub mod policy;
pub mod publisher;
mod rates;
pub mod requests;
mod router;
mod routes;
mod serve;
mod signals;
mod slurm;
pub mod state;
pub mod tls;

pub use error::{Answer, ApiError, FieldFault};
pub use options::ServeOptions;
pub use router::openapi;
pub use serve::{Role, Running, ServeError, Server, serve};
pub use state::AppState;

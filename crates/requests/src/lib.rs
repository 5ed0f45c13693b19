//! The lifecycle of requests: one reconciler that owns their states, the catalog they read and write, and their
//! backends.
//!
//! [`RequestLifecycle`] is the handle: it takes notices and reports the status. Behind it one thread makes passes
//! (`reconciler.rs`): it reads all active requests, has `windlass-core` decide about each, commits the decisions,
//! and passes their effects to a few threads (`work_pool.rs`, `effects.rs`): planning, submitting, stopping,
//! calls to the [`DatasetCatalog`]. Their results are input for the next pass.

mod alerts;
mod backend;
mod catalog;
mod context;
mod derived_names;
mod effects;
mod lifecycle;
mod mailbox;
mod manifests;
mod metrics;
mod planned_run_units;
mod reconciler;
mod reqmgr2;
pub mod round_measurements;
mod work_pool;

pub use alerts::{AlertError, AlertNotifier};
pub use backend::{BackendKind, CondorOptions};
pub use catalog::{CatalogError, CatalogErrorKind, DatasetCatalog, LocalCatalog};
pub use context::{LifecycleOptions, MAX_ACTIVE_RUNS, OnRequestCommit};
pub use lifecycle::{
    LifecycleDependencies, LifecycleStatus, PassReport, RequestLifecycle, RetryablePassError,
};
pub use mailbox::RequestReconcilerWaker;
pub use manifests::{PayloadConfigError, payload_faults, payload_steps};
pub use metrics::LifecycleMetrics;
pub use reqmgr2::{Reqmgr2Client, Reqmgr2Error};

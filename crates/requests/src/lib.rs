//! The life of requests: one reconciler that owns their states, the catalog they read and write, and their way onto a backend.
//!
//! [`Lifecycle`] is what others hold: it takes nudges and says how it goes. Behind it one thread makes passes
//! (`reconciler.rs`): it reads all requests that are under way, has `windlass-core` decide about each, commits what was
//! decided, and has a few threads (`pool.rs`) do what follows (`effects.rs`): planning, submitting, stopping, calls to the
//! [`Catalog`]. What came of it is news for the next pass.

mod alerts;
mod backend;
mod catalog;
mod context;
mod derived_names;
mod effects;
pub mod experience;
mod lifecycle;
mod mailbox;
mod manifests;
mod metrics;
mod reconciler;
mod reqmgr2;
mod run_outline;
mod work_pool;

pub use alerts::{AlertError, AlertNotifier};
pub use backend::{BackendKind, CondorOptions};
pub use catalog::{CatalogError, CatalogErrorKind, DatasetCatalog, LocalCatalog};
pub use context::{LifecycleOptions, MAX_ACTIVE_RUNS, OnRequestCommit};
pub use lifecycle::{LifecycleParts, LifecycleStatus, PassReport, PassTrouble, RequestLifecycle};
pub use mailbox::ReconcilerWaker;
pub use manifests::{PayloadConfigError, payload_faults, payload_steps};
pub use metrics::LifecycleMetrics;
pub use reqmgr2::{Reqmgr2Client, Reqmgr2Error};

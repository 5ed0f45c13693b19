//! The life of requests: one reconciler that owns their states, the catalog they read and write, and their way onto a backend.
//!
//! [`Lifecycle`] is what others hold: it takes nudges and says how it goes. Behind it one thread makes passes
//! (`reconciler.rs`): it reads all requests that are under way, has `windlass-core` decide about each, commits what was
//! decided, and has a few threads (`pool.rs`) do what follows (`effects.rs`): planning, submitting, stopping, calls to the
//! [`Catalog`]. What came of it is news for the next pass.

mod alerts;
mod backend;
mod catalog;
mod effects;
mod figures;
pub mod learnt;
mod lifecycle;
mod mailbox;
mod manifests;
mod names;
mod outline;
mod pool;
mod reconciler;
mod reqmgr2;
mod world;

pub use alerts::{Bell, BellError};
pub use backend::{BackendKind, CondorOptions};
pub use catalog::{Catalog, CatalogError, Fault, LocalCatalog};
pub use figures::Figures;
pub use lifecycle::{Lifecycle, LifecycleStatus, Parts, PassReport, Trouble};
pub use mailbox::Nudge;
pub use manifests::{LayoutFault, payload_faults, payload_steps};
pub use reqmgr2::{Reqmgr2, Reqmgr2Error};
pub use world::{LifecycleOptions, MAX_ACTIVE_RUNS, OnCommit};

//! The life of requests: one reconciler that owns their states, the catalog they read and write, and their way onto a backend.
//!
//! [`Lifecycle`] is what others hold: it takes nudges and says how it goes. Behind it one thread makes passes.

mod lifecycle;
mod mailbox;
mod reconciler;

pub use lifecycle::{Lifecycle, LifecycleStatus, PassReport, Rounds, Trouble};
pub use mailbox::Heard;
pub use reconciler::Reconciler;

//! Lifecycle of requests as pure functions: status transitions, and decisions about the next steps.
//!
//! | file | content |
//! |---|---|
//! | `document/` | a JSON document, native or ReqMgr2's → a `Request`, or all its problems |
//! | `reqmgr2.rs` | responses of ReqMgr2 to a lookup by name |
//! | `transitions.rs` | the table of status transitions |
//! | `lifecycle.rs` | rows and events → changes, effects, alerts; details in `lifecycle/` |
//! | `outputs.rs` | steps for outputs: order and retries |
//! | `input_files.rs` | which input files are processed, retried, or excluded |
//! | `rounds.rs` | what follows the end of a run: the next round, the end, or a hold |
//! | `admission.rs` | admission order |
//! | `failures/` | summary of failed attempts, and the error report |
//! | `bans.rs`, `correlated_failures.rs` | site bans; correlated failures of an active run |
//! | `versions.rs` | requests that supersede others |
//! | `rows.rs`, `change.rs`, `request_view.rs` | the rows, and their changes |

pub mod admission;
pub mod bans;
pub mod change;
pub mod correlated_failures;
pub mod derived_uuids;
pub mod document;
pub mod failures;
pub mod input_files;
pub mod lifecycle;
pub mod outputs;
pub mod reqmgr2;
mod request_view;
pub mod rounds;
pub mod rows;
pub mod transitions;
pub mod versions;

pub use request_view::RequestView;

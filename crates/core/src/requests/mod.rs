//! The life of requests, decided purely: what may follow what, and what is to be done next.
//!
//! | file | what |
//! |---|---|
//! | `document/` | a JSON document, ours or ReqMgr2's → a `Request`, or all its faults at once |
//! | `reqmgr2.rs` | what ReqMgr2 answers when it is asked for a request by its name |
//! | `transitions.rs` | the one table of what may follow what |
//! | `lifecycle.rs` | rows and news → changes, effects, alerts; its parts in `lifecycle/` |
//! | `outputs.rs` | what is done about outputs, in which order, how often it is tried |
//! | `files.rs` | which input files are done, to be tried again, or left out |
//! | `rounds.rs` | what follows the end of a run: the next round, the end, a person |
//! | `admission.rs` | whose turn it is |
//! | `failures/` | failed attempts summed up; what people are told of them |
//! | `bans.rs`, `correlated.rs` | which sites get no work; what failures have in common while a run is active |
//! | `versions.rs` | the request that takes the place of another |
//! | `book.rs`, `change.rs` | the rows, and what a decision changes of them |

pub mod admission;
pub mod bans;
pub mod change;
pub mod correlated_failures;
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
pub mod uuids;
pub mod versions;

pub use request_view::RequestView;

//! Rounds that learn: what the jobs of a request have used becomes what its next jobs ask for. Pure.
//!
//! | file | what |
//! |---|---|
//! | `settings.rs` | what a deployment may set, and the window that memory stays in |
//! | `experience.rs` | metrics of completed work units → what is known of each step; medians, weighed by jobs |
//! | `model.rs` | what is known at some numbers of threads → what to expect at others |
//! | `decision.rs` | hints and experience → cores, memory, time, events per job, how each step is run |
//! | `filter.rs` | how many events have to be made for so many to come out of a filter |
//! | `rounds.rs` | how large a round is, and which jobs of the first one try something out |
//! | `record.rs` | what each round asked for and what it turned out to need, for people |
//!
//! Steps are known by their names, never by their numbers. A [`Decision`] is made once, before anything is cut: what the
//! plan asks for, how it is cut, and what the payload is told in `step_profile.json` come from the same value.
//!
//! What was decided, and why: docs/design/022-adaptive-rounds.md.

mod decision;
mod experience;
mod filter;
mod model;
mod record;
mod rounds;
mod settings;

pub use decision::{Decision, Hints, Source, decide};
pub use experience::{Experience, Known, Point};
pub(crate) use filter::{efficiency, to_make};
pub use record::{Asked, Measured, RoundRecord};
pub use rounds::{Probes, RoundSize, probes, round_size};
pub use settings::{AdaptiveSettings, Window};

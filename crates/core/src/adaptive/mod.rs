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

mod event_filter;
mod measurements;
mod round_record;
mod round_size;
mod settings;
mod step_model;
mod tuning;

pub(crate) use event_filter::{estimate_filter_efficiency, events_to_generate};
pub use measurements::{RequestMeasurements, StepHistory, ThreadPoint};
pub use round_record::{RoundEstimate, RoundMeasurement, RoundRecord};
pub use round_size::{ProbeJobs, RoundSize, decide_round_size, plan_probe_jobs};
pub use settings::{AdaptiveSettings, MemoryWindow};
pub use tuning::{JobHints, JobTuning, SizingSource, decide_tuning};

//! Adaptive rounds: measurements of a request's jobs determine what its next jobs request. Pure functions.
//!
//! | file | content |
//! |---|---|
//! | `settings.rs` | settings of a deployment, and the range for memory requests |
//! | `measurements.rs` | metrics of completed work units → medians for each step, weighted by jobs |
//! | `step_model.rs` | measurements at some numbers of threads → estimates for others |
//! | `tuning.rs` | hints and measurements → cores, memory, time, events per job, layout of each step |
//! | `generator_filter.rs` | how many events to generate so that the wanted number passes a filter |
//! | `round_size.rs` | size of a round, and which jobs of the first round are probes |
//! | `round_record.rs` | estimate and measurement of each round, for people |
//!
//! Steps are identified by name, never by number. A [`JobTuning`] is computed once, before the work is split:
//! the resource requests of the plan, the splitting, and `step_profile.json` for the payload come from the same
//! value.
//!
//! Design and reasons: docs/design/022-adaptive-rounds.md.

mod generator_filter;
mod measurements;
mod round_record;
mod round_size;
mod settings;
mod step_model;
mod tuning;

pub(crate) use generator_filter::{estimate_filter_efficiency, events_to_generate};
pub use measurements::{RequestMeasurements, StepMeasurements, ThreadCountMedians};
pub use round_record::{RoundEstimate, RoundMeasurement, RoundRecord};
pub use round_size::{RoundSizeLimit, ThreadProbeJobs, decide_round_size, plan_thread_probe_jobs};
pub use settings::{AdaptiveSettings, MemoryWindow};
pub use tuning::{JobHints, JobTuning, SizingSource, decide_tuning};

//! The shared vocabulary of Windlass as types: ids, states, amounts, time, and the messages between workers and
//! the engine.
//!
//! The lowest crate of the workspace: no I/O, no policy, and no clock except [`SystemClock`], which the outermost
//! layers hold to pass *timestamps* inward. Decisions belong to `windlass-core`, parsing of spec files to
//! `windlass-spec`.

mod amount;
pub mod catalog;
mod digest;
mod failure;
pub mod failure_commands;
mod id;
mod job_definition;
mod lumi_mask;
pub mod payload;
pub mod requests;
mod resource_growth;
pub mod resource_series;
mod resources;
pub mod settings;
pub mod shell;
mod signal;
mod site;
pub mod slurm;
mod status;
mod time;
mod work_unit;
pub mod worker_bounds;
pub mod worker_messages;
pub mod worker_protocol;

pub use amount::{
    Bytes, ParseAmountError, format_duration, format_exact_size, format_iso_duration, parse_duration,
};
pub use digest::{ContentHasher, digest_bytes};
pub use failure::{FailureClass, ParseFailureClassError};
pub use id::{
    AllocationId, Attempt, EventId, FileId, JobGroupId, JobId, RequirementsId, ResultId, RunId, UserDataId,
    WorkerId, WorkflowId,
};
pub use job_definition::{JobDefinition, JobGroup, JobOptions, JobSettings};
pub use lumi_mask::LumiMask;
pub use resource_growth::{GrowableQuantity, ParseGrowthError, ParseRatioError, Ratio, ResourceGrowth};
pub use resources::{Capacity, Resources};
pub use signal::{ParseSignalError, SIGNAL_NAMES, Signal, signal_name, signal_number};
pub use site::{LOCAL_SITE, ParseSiteError, check_site_name};
pub use status::{JobStatus, ParseStatusError, StatusCounts, matching_statuses};
pub use time::{SystemClock, Timestamp};
pub use work_unit::{WorkUnitStatus, WorkUnitStatusCounts};

//! The words of Windlass as types: ids, states, amounts, time, and what a worker and the engine say to each other.
//!
//! Lives at the bottom of the house: no I/O, no clock (the one exception is [`Clock`], which the edges hold and
//! pass *instants* from), no policy. Decisions belong to `windlass-core`, parsing of spec files to `windlass-spec`.

mod amount;
pub mod catalog;
mod digest;
mod failure;
pub mod fleet;
mod growth;
mod id;
mod lumis;
pub mod orders;
pub mod payload;
pub mod requests;
mod resources;
pub mod series;
pub mod settings;
pub mod shell;
mod signal;
mod site;
pub mod slurm;
mod status;
mod time;
mod unit;
pub mod work;
pub mod worker_bounds;

pub use amount::{Bytes, ParseAmountError, format_duration, parse_duration, write_duration, write_size};
pub use digest::{Digest, digest};
pub use failure::{FailureClass, ParseClassError};
pub use growth::{Growth, ParseGrowthError, ParseRatioError, Quantity, Ratio};
pub use id::{
    AllocationId, Attempt, EventId, FileId, JobId, KindId, RequirementsId, ResultId, RunId, UserDataId,
    WorkerId, WorkflowId,
};
pub use lumis::LumiMask;
pub use resources::{Capacity, Resources};
pub use signal::{ParseSignalError, SIGNAL_NAMES, Signal, signal_name, signal_number};
pub use site::{LOCAL_SITE, ParseSiteError, check_site_name};
pub use status::{JobStatus, ParseStatusError, StatusCounts, matching_statuses};
pub use time::{Clock, Timestamp};
pub use unit::{UnitCounts, UnitStatus};

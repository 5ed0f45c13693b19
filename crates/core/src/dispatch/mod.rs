//! Which ready job starts next, and on what: priorities, packing, backfill.
//!
//! The order is that of the Torc contract: priority first, then the hardest to place (GPUs, runtime, memory, CPUs), then
//! age. A job that does not fit now is passed over by those that do (backfill), but not for ever: after
//! [`BYPASS_LIMIT`] starts in front of it nothing is started until it fits.
//!
//! `demand` says what jobs ask for and who takes them, `queue` keeps the ready ones in order, `pool` knows what is
//! free on a worker, and `mirror` what the worker holds.

mod demand;
mod ready_queue;
mod resource_pool;
#[cfg(test)]
mod tests;
mod worker_usage;

pub use demand::{JobDemand, LocationConstraint, WorkerSelector};
pub use ready_queue::{BYPASS_LIMIT, JobFit, ReadyQueue};
pub use resource_pool::{NodePlacement, Pool};
pub use worker_usage::{ClaimLimits, JobHandle, WorkerUsage};

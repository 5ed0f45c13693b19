//! Selection of the next ready job and its node: priorities, packing, backfill.
//!
//! The order is that of the Torc contract: priority first, then the hardest to place (GPUs, runtime, memory,
//! CPUs), then age. Jobs that fit now may pass a job that does not (backfill), but not forever: after
//! [`BYPASS_LIMIT`] starts ahead of it nothing starts until it fits.
//!
//! `demand`: requests of jobs and selectors of workers; `ready_queue`: ready jobs in order; `resource_pool`:
//! free resources of a worker; `worker_usage`: the jobs that a worker holds.

mod demand;
mod ready_queue;
mod resource_pool;
#[cfg(test)]
mod tests;
mod worker_usage;

pub use demand::{JobDemand, LocationConstraint, WorkerSelector};
pub use ready_queue::{BYPASS_LIMIT, JobFit, ReadyQueue};
pub use resource_pool::{NodePlacement, NodeResourcePool};
pub use worker_usage::{ClaimLimits, UsageJobKey, WorkerUsage};

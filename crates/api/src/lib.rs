//! The words of the REST interface: what goes over the wire, and nothing else.
//!
//! [`allocations`] are those of Slurm that host workers, and [`slurm`] is how the server gets on with it; [`failures`] is about
//! what failed and what is decided about it; [`requests`] is about what is wished for on a larger scale, sites and datasets;
//! [`tokens`] is about who one is, [`job_token`] what a job shows of itself; [`torc`] is the job-level contract, served at
//! `/torc-service/v1` and at `/api/v1`.

pub mod allocations;
pub mod failures;
pub mod job_token;
pub mod requests;
pub mod slurm;
pub mod tokens;
pub mod torc;

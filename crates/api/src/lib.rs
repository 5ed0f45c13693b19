//! Types of the REST interface: the requests and responses, and nothing else.
//!
//! [`allocations`] and [`slurm`] are about Slurm allocations that host workers; [`failures`] about failures and
//! decisions; [`requests`] about production requests, sites and datasets; [`tokens`] about callers and access
//! tokens, [`job_token`] about the tokens of running jobs; [`torc`] is the job-level contract, served at
//! `/torc-service/v1` and at `/api/v1`.

pub mod allocations;
pub mod failures;
pub mod job_token;
pub mod requests;
pub mod slurm;
pub mod tokens;
pub mod torc;

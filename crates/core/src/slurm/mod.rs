//! Slurm, decided purely: what is asked of it, what became of what was asked, and what is to be asked next.
//!
//! | file | what |
//! |---|---|
//! | `admit.rs` | whether a worker is in the allocation that it says it is in |
//! | `autoschedule.rs` | when allocations are asked for without anybody saying so |
//! | `book.rs` | the rows of allocations as values, and what a decision changes of them |
//! | `calls.rs` | how often Slurm was asked, in an hour and a day |
//! | `fate.rs` | what became of an allocation, and what is done about it |
//! | `fit.rs` | which partitions can hold what a job asks for, which is the best, what the nearest lacks |
//! | `generate.rs` | schedulers and actions for groups, and whether written ones can ever get what they ask for |
//! | `groups.rs` | which jobs share allocations, where, for how long, and how many there are |
//! | `home.rs` | which of a user's jobs are those of these books, and not of a copy |
//! | `offer.rs` | what an allocation can hold |
//! | `profile.rs` | what a cluster has: partitions, their nodes and limits |
//! | `reasons.rs` | why one waits, in plain words |
//! | `regenerate.rs` | a schedule for what is left of a workflow |
//! | `request.rs` | what a scheduler of a workflow asks for |
//! | `reserve.rs` | how much of an allocation its jobs do not have |
//! | `sight.rs` | what Slurm says about its jobs |
//! | `signs.rs` | what lines in the output of an allocation mean, and what to do about it |
//! | `stay.rs` | what a worker has to know of its workflow should its server be away |
//! | `steps.rs` | which jobs run as steps, and what a worker that is gone has left of them |
//! | `usage.rs` | what became of the core-hours of allocations |

pub mod allocation_capacity;
pub mod allocation_decision;
pub mod allocation_ends;
pub mod allocation_groups;
pub mod allocation_request;
pub mod allocation_rows;
pub mod autoschedule;
pub mod call_statistics;
pub mod cluster_profile;
pub mod core_hours;
pub mod database_id;
pub mod end_reserve;
pub mod job_steps;
pub mod log_meanings;
pub mod partition_fit;
pub mod pending_reasons;
pub mod regenerate;
pub mod schedule_generation;
pub mod slurm_jobs;
pub mod worker_admission;
pub mod worker_settings;

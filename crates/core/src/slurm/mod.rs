//! Slurm as pure functions: allocation requests, state of allocations, schedules.
//!
//! | file | content |
//! |---|---|
//! | `allocation_capacity.rs` | capacity of an allocation |
//! | `allocation_decision.rs` | state of an allocation from the replies of Slurm, and the next action |
//! | `allocation_ends.rs` | the end of an allocation in plain words |
//! | `allocation_groups.rs` | which jobs share allocations: nodes, walltime, number |
//! | `allocation_request.rs` | the request of a scheduler of a workflow |
//! | `allocation_rows.rs` | rows of allocations as values, and their changes |
//! | `autoschedule.rs` | automatic allocation requests |
//! | `call_statistics.rs` | number of Slurm calls, by hour and day |
//! | `cluster_profile.rs` | partitions of a cluster, their nodes and limits |
//! | `core_hours.rs` | core-hours of allocations |
//! | `database_id.rs` | which of a user's jobs belong to this database, and not to a copy |
//! | `end_reserve.rs` | the part of an allocation in which no job may run |
//! | `job_steps.rs` | which jobs run as steps, and orphaned steps |
//! | `log_meanings.rs` | meanings of lines in the output of an allocation, with remedies |
//! | `partition_fit.rs` | partitions that fit a job, the best, and what the nearest lacks |
//! | `pending_reasons.rs` | why an allocation waits, in plain words |
//! | `schedule_regeneration.rs` | a schedule for the remaining jobs of a workflow |
//! | `schedule_generation.rs` | schedulers and actions for groups, and checks of hand-written ones |
//! | `slurm_jobs.rs` | jobs as Slurm reports them |
//! | `worker_admission.rs` | whether a worker belongs to its allocation |
//! | `worker_settings.rs` | settings that a worker needs while its server is down |

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
pub mod schedule_generation;
pub mod schedule_regeneration;
pub mod slurm_jobs;
pub mod worker_admission;
pub mod worker_settings;

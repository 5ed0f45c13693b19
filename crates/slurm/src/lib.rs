//! Slurm: allocations that host workers.
//!
//! Text in and out is pure: [`render`] writes the arguments of `sbatch` and `srun`, [`parse`] reads the answers
//! of `squeue`, `sacct`, `sinfo` and `scontrol`, [`slurm_environment`] the environment of a worker.

pub mod allocation_reconciler;
pub mod cluster_discovery;
pub mod parse;
pub mod render;
pub mod slurm_client;
pub mod slurm_environment;
pub mod workflow_accounting;

//! Slurm: allocations that host workers.
//!
//! Text in and out is pure: [`render`] writes what `sbatch` and `srun` are given, [`read`] understands what `squeue`, `sacct`,
//! `sinfo` and `scontrol` answer, [`worker`] what a worker finds in its environment.

pub mod allocation_reconciler;
pub mod cluster_discovery;
pub mod parse;
pub mod render;
pub mod slurm_client;
pub mod slurm_environment;
pub mod workflow_accounting;

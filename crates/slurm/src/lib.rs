//! Slurm: allocations that host workers.
//!
//! Text in and out is pure: [`render`] writes what `sbatch` and `srun` are given, [`read`] understands what `squeue`, `sacct`,
//! `sinfo` and `scontrol` answer, [`worker`] what a worker finds in its environment.

pub mod accounts;
pub mod calls;
pub mod discover;
pub mod read;
pub mod render;
pub mod steward;
pub mod worker;

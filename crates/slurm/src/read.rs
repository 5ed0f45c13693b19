//! What the commands of Slurm answer.

pub mod accounts;
pub mod cluster;
pub mod sacct;
pub mod sbatch;
pub mod squeue;
pub mod steps;
mod values;

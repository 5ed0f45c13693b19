//! Parsers for the output of Slurm's commands.

pub mod cluster;
pub mod sacct;
pub mod sacct_usage;
pub mod sbatch;
pub mod squeue;
pub mod steps;
mod values;

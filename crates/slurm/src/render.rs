//! What `sbatch` and `srun` are given.

pub mod batch;
pub mod srun;
pub mod words;

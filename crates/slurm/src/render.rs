//! What `sbatch` and `srun` are given.

pub mod batch;
pub mod shell_words;
pub mod srun;

//! The arguments and scripts for `sbatch` and `srun`.

pub mod batch;
pub mod shell_words;
pub mod srun;

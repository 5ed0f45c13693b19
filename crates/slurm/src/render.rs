//! What `sbatch` and `srun` are given.

//! What the commands of Slurm answer.

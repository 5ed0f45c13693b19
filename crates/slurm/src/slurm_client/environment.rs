//! What of our environment the commands of Slurm do not get.

use windlass_core::redact::SecretNames;

/// With what variables begin that act as options of the commands.
const OPTION_PREFIXES: &[&str] =
    &["SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SCONTROL_", "SALLOC_", "SRUN_"];

/// Those among them that say where Slurm is and who we are.
const KEPT_VARIABLES: &[&str] = &["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"];

/// Ours that are no secrets, though their names look so: they say in which files those are.
const FILE_VARIABLES: &[&str] = &["WINDLASS_TOKEN_FILE"];

/// Whether a variable is taken away. What is submitted goes with its environment to wherever it runs, and stays in files of
/// Slurm's: no secret goes along.
pub(crate) fn is_dropped(name: &str, is_submission: bool) -> bool {
    if KEPT_VARIABLES.contains(&name) {
        return false;
    }
    let is_option = OPTION_PREFIXES.iter().any(|begin| name.starts_with(begin));
    is_option || (is_submission && !FILE_VARIABLES.contains(&name) && SecretNames::default().is_secret(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_secrets_stay_here() {
        for name in [
            "SLURM_MEM_PER_CPU",
            "SLURM_NTASKS",
            "SQUEUE_FORMAT",
            "SACCT_FORMAT",
            "SBATCH_ACCOUNT",
            "SLURM_TIME_FORMAT",
        ] {
            assert!(is_dropped(name, false) && is_dropped(name, true), "{name}");
        }
        for name in
            ["SLURM_CONF", "SLURM_CONF_SERVER", "PATH", "HOME", "WINDLASS_TOKEN_FILE", "LD_LIBRARY_PATH"]
        {
            assert!(!is_dropped(name, false) && !is_dropped(name, true), "{name}");
        }
        for name in ["WINDLASS_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "DATABASE_URL"] {
            assert!(is_dropped(name, true) && !is_dropped(name, false), "{name}");
        }
    }
}

//! Variables that Slurm's commands do not inherit.

use windlass_core::redact::SecretNames;

/// Prefixes of variables that act as options of the commands.
const OPTION_PREFIXES: &[&str] =
    &["SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SCONTROL_", "SALLOC_", "SRUN_"];

/// Those that tell where Slurm is and identify the user.
const KEPT_VARIABLES: &[&str] = &["SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"];

/// Variables that look like secrets by name but only contain paths of files.
const FILE_VARIABLES: &[&str] = &["WINDLASS_TOKEN_FILE"];

/// Whether a variable is removed. A submitted job inherits the environment, and Slurm stores it in files: it must
/// not contain secrets.
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
    fn options_and_secrets_are_not_passed_to_slurm() {
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

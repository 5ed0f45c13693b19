//! The part of the worker's environment that jobs get: variables on a list, and those that the worker's options
//! name. All others, in particular secrets, stay with the worker.

use std::ffi::OsString;
use std::process::Command;

/// Variables that every job gets. A trailing `*` matches any suffix.
const PASSED_VARIABLES: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR"];
/// Additional variables for jobs in a Slurm allocation.
const PASSED_ALLOCATION_VARIABLES: &[&str] = &[
    "SLURM_*",
    "SLURMD_*",
    "CUDA_*",
    "HIP_*",
    "ROCR_*",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
    "NVIDIA_VISIBLE_DEVICES",
];
/// Credentials of the worker, which are never passed on.
pub const CREDENTIAL_VARIABLES: &[&str] =
    &["WINDLASS_TOKEN", "WINDLASS_TOKEN_FILE", crate::KEYRING_VARIABLE, "SLURM_JWT"];

/// Which variables of its environment a worker passes to its jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedEnvironment {
    /// Additional names, or prefixes with a trailing `*`.
    pub extra_patterns: Vec<String>,
    pub in_allocation: bool,
}

impl PassedEnvironment {
    /// Selects the variables that are passed on.
    pub fn select_variables(
        &self,
        own: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> impl Iterator<Item = (OsString, OsString)> {
        own.into_iter().filter(|(name, _)| name.to_str().is_some_and(|name| self.includes(name)))
    }

    fn includes(&self, name: &str) -> bool {
        let of_slurm = PASSED_ALLOCATION_VARIABLES.iter().filter(|_| self.in_allocation).copied();
        let mut patterns = PASSED_VARIABLES
            .iter()
            .copied()
            .chain(of_slurm)
            .chain(self.extra_patterns.iter().map(String::as_str));
        !CREDENTIAL_VARIABLES.contains(&name) && patterns.any(|pattern| matches_pattern(pattern, name))
    }

    /// Sets this environment, and nothing else, for the command.
    pub(crate) fn apply_to(&self, command: &mut Command) {
        command.env_clear().envs(self.select_variables(std::env::vars_os()));
    }
}

fn matches_pattern(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |beginning| name.starts_with(beginning))
}

/// Checks the name of a variable to pass on, or a prefix with a trailing `*`.
pub fn check_pattern(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('*').unwrap_or(text);
    if name.is_empty() && text != "*" || name.contains(['=', '*', '\0', ',']) {
        return Err("expected the name of a variable, or a prefix followed by `*`".to_owned());
    }
    if CREDENTIAL_VARIABLES.contains(&text) {
        return Err(format!("{text} is a credential of the worker and is not passed to jobs"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(how: &PassedEnvironment, names: &[&str]) -> Vec<String> {
        let own = names.iter().map(|name| (OsString::from(name), OsString::from("x")));
        how.select_variables(own).map(|(name, _)| name.into_string().unwrap()).collect()
    }

    #[test]
    fn jobs_get_listed_variables() {
        let names = [
            "PATH",
            "LC_ALL",
            "HOME",
            "AWS_SECRET_ACCESS_KEY",
            "WINDLASS_TOKEN",
            "SLURM_JOB_ID",
            "SLURM_JWT",
            "CUDA_VISIBLE_DEVICES",
            "CONDA_PREFIX",
            "CONDA_EXE",
            "PATHOLOGY",
        ];
        let usual = PassedEnvironment::default();
        assert_eq!(passed(&usual, &names), ["PATH", "LC_ALL", "HOME"]);
        let slurm = PassedEnvironment { in_allocation: true, ..usual.clone() };
        assert_eq!(
            passed(&slurm, &names),
            ["PATH", "LC_ALL", "HOME", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES"]
        );
        let more = PassedEnvironment { extra_patterns: vec!["CONDA_*".into()], ..usual.clone() };
        assert_eq!(passed(&more, &names), ["PATH", "LC_ALL", "HOME", "CONDA_PREFIX", "CONDA_EXE"]);
        let all = PassedEnvironment { extra_patterns: vec!["*".into()], ..usual };
        assert!(!passed(&all, &names).iter().any(|name| CREDENTIAL_VARIABLES.contains(&name.as_str())));
    }

    #[test]
    fn invalid_variable_names_are_rejected() {
        for text in ["", "A=B", "A*B", "A,B", "WINDLASS_TOKEN"] {
            assert!(check_pattern(text).is_err(), "{text}");
        }
        assert!(["*", "A", "A_*"].into_iter().all(|text| check_pattern(text).is_ok()));
    }
}

//! Selects a cluster profile: the cluster that Slurm reports here, or one that a file describes.

use crate::config::ConfigPaths;
use crate::context::CliContext;
use crate::error::CliError;
use std::path::{Path, PathBuf};
use windlass_core::slurm::cluster_profile::ClusterProfile;
use windlass_slurm::cluster_discovery::{self, ClusterDiscoveryError};
use windlass_slurm::slurm_client::SlurmClient;
use windlass_spec::SpecSource;

/// Name of the profile that is read from Slurm itself.
pub(crate) const LOCAL_SLURM: &str = "slurm";
/// Directory beside config.toml.
const PROFILES_FOLDER: &str = "hpc";

/// The named profile; otherwise the profile whose environment matches, otherwise the cluster that Slurm
/// reports.
pub(crate) fn find_profile(ctx: &CliContext, named: Option<&str>) -> Result<ClusterProfile, CliError> {
    find_profile_from(&ctx.cwd, named)
}

/// The same for a caller in this directory.
pub(crate) fn find_profile_from(cwd: &Path, named: Option<&str>) -> Result<ClusterProfile, CliError> {
    match named {
        Some(LOCAL_SLURM) => Ok(cluster_discovery::discover_cluster(&SlurmClient::unlimited())?),
        Some(name) if name.contains(['/', '.']) => read_profile(&cwd.join(name)),
        Some(name) => {
            let known = list_profiles(cwd)?;
            let names: Vec<&str> =
                known.iter().map(|(profile, _)| profile.name.as_str()).chain([LOCAL_SLURM]).collect();
            let names = names.join(", ");
            known.into_iter().map(|(profile, _)| profile).find(|profile| profile.name == name).ok_or_else(
                || {
                    CliError::user(format!("no profile is named `{name}`; available: {names}")).with_hint(
                    "there are no built-in profiles: `windlass slurm hpc generate` on the cluster writes a profile of it",
                )
                },
            )
        }
        None => detect_profile(cwd)?
            .map_or_else(|| Ok(cluster_discovery::discover_cluster(&SlurmClient::unlimited())?), Ok),
    }
}

/// The profile whose environment matches this one.
pub(crate) fn detect_profile(cwd: &Path) -> Result<Option<ClusterProfile>, CliError> {
    let variable = |name: &str| std::env::var(name).ok();
    Ok(list_profiles(cwd)?
        .into_iter()
        .map(|(profile, _)| profile)
        .find(|profile| profile.is_detected(variable)))
}

/// The stored profiles by name, with their files.
pub(crate) fn list_profiles(cwd: &Path) -> Result<Vec<(ClusterProfile, PathBuf)>, CliError> {
    let paths = ConfigPaths::new(cwd, |name| std::env::var(name).ok());
    let folders = [Some(paths.system.as_path()), paths.user.as_deref()];
    let mut found: Vec<(ClusterProfile, PathBuf)> = Vec::new();
    for folder in
        folders.into_iter().flatten().filter_map(Path::parent).map(|folder| folder.join(PROFILES_FOLDER))
    {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|file| windlass_spec::SpecFormat::from_path(file).is_some());
        files.sort();
        for file in files {
            let profile = read_profile(&file)?;
            // The user's profiles take precedence over those of the machine.
            found.retain(|(other, _)| other.name != profile.name);
            found.push((profile, file));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    Ok(found)
}

/// Reads a profile from a file in any format that specs support.
fn read_profile(path: &Path) -> Result<ClusterProfile, CliError> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|e| CliError::user(format!("cannot read {name}: {e}")))?;
    let value = windlass_spec::document_to_json(SpecSource::new(&name, &bytes))?;
    let profile: ClusterProfile = serde_json::from_value(value)
        .map_err(|e| CliError::user(format!("{name} is not a valid cluster profile: {e}")))?;
    match profile.find_problem() {
        Some(complaint) => Err(CliError::user(format!("{name}: {complaint}"))),
        None => Ok(profile),
    }
}

impl From<ClusterDiscoveryError> for CliError {
    fn from(error: ClusterDiscoveryError) -> Self {
        let hint = match &error {
            ClusterDiscoveryError::NoSlurm { .. } => {
                "run this on a login node of the cluster, or describe it: --profile FILE"
            }
            ClusterDiscoveryError::InvalidRequest { .. } => {
                "change the scheduler, or slurm_defaults of the spec"
            }
            _ => "check Slurm with `sinfo` and `scontrol ping`",
        };
        Self::io(error.to_string()).with_hint(hint)
    }
}

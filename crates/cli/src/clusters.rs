//! Which cluster is meant: the one that Slurm tells of here, or one that a file describes.

use crate::config::Paths;
use crate::context::Context;
use crate::error::CliError;
use std::path::{Path, PathBuf};
use windlass_core::slurm::profile::Profile;
use windlass_slurm::calls::Slurm;
use windlass_slurm::discover::{self, DiscoverError};
use windlass_spec::Source;

/// What asks Slurm itself is called.
pub(crate) const HERE: &str = "slurm";
/// Beside config.toml.
const FOLDER: &str = "hpc";

/// The one that is named; otherwise the one whose environment this is, otherwise the one that Slurm tells of.
pub(crate) fn find(ctx: &Context, named: Option<&str>) -> Result<Profile, CliError> {
    find_from(&ctx.cwd, named)
}

/// The same for whoever is in this directory.
pub(crate) fn find_from(cwd: &Path, named: Option<&str>) -> Result<Profile, CliError> {
    match named {
        Some(HERE) => Ok(discover::discover(&Slurm::by_hand())?),
        Some(name) if name.contains(['/', '.']) => read(&cwd.join(name)),
        Some(name) => {
            let known = all(cwd)?;
            let names: Vec<&str> =
                known.iter().map(|(profile, _)| profile.name.as_str()).chain([HERE]).collect();
            let names = names.join(", ");
            known.into_iter().map(|(profile, _)| profile).find(|profile| profile.name == name).ok_or_else(
                || {
                    CliError::user(format!("there is no profile `{name}`; there are: {names}")).with_hint(
                    "no cluster is built in: `windlass hpc generate` on the cluster writes a profile of it",
                )
                },
            )
        }
        None => detect(cwd)?.map_or_else(|| Ok(discover::discover(&Slurm::by_hand())?), Ok),
    }
}

/// The profile whose environment this is.
pub(crate) fn detect(cwd: &Path) -> Result<Option<Profile>, CliError> {
    let variable = |name: &str| std::env::var(name).ok();
    Ok(all(cwd)?.into_iter().map(|(profile, _)| profile).find(|profile| profile.is_detected(variable)))
}

/// Those that are kept, by name, with their files.
pub(crate) fn all(cwd: &Path) -> Result<Vec<(Profile, PathBuf)>, CliError> {
    let paths = Paths::new(cwd, |name| std::env::var(name).ok());
    let folders = [Some(paths.system.as_path()), paths.user.as_deref()];
    let mut found: Vec<(Profile, PathBuf)> = Vec::new();
    for folder in folders.into_iter().flatten().filter_map(Path::parent).map(|folder| folder.join(FOLDER)) {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|file| windlass_spec::Format::from_path(file).is_some());
        files.sort();
        for file in files {
            let profile = read(&file)?;
            // Your own goes before that of the machine.
            found.retain(|(other, _)| other.name != profile.name);
            found.push((profile, file));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    Ok(found)
}

/// A file in any format that specs have.
fn read(path: &Path) -> Result<Profile, CliError> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|e| CliError::user(format!("cannot read {name}: {e}")))?;
    let value = windlass_spec::to_json(Source::new(&name, &bytes))?;
    let profile: Profile = serde_json::from_value(value)
        .map_err(|e| CliError::user(format!("{name} is no profile of a cluster: {e}")))?;
    match profile.complaint() {
        Some(complaint) => Err(CliError::user(format!("{name}: {complaint}"))),
        None => Ok(profile),
    }
}

impl From<DiscoverError> for CliError {
    fn from(error: DiscoverError) -> Self {
        let hint = match &error {
            DiscoverError::NoSlurm { .. } => {
                "run this on a login node of the cluster, or describe it: --profile FILE"
            }
            DiscoverError::Unfit { .. } => "change the scheduler, or slurm_defaults of the spec",
            _ => "see what Slurm says by hand: sinfo; scontrol ping",
        };
        Self::io(error.to_string()).with_hint(hint)
    }
}

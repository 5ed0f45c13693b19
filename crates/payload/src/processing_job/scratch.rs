//! The scratch directory of a node. Removed afterwards; leftovers of a killed attempt are removed before the
//! next one.

use crate::exit_codes;
use crate::failure::PayloadFailure;
use crate::workspace::UnitWorkspace;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use windlass_types::digest_bytes;

pub(super) struct ScratchDirectory {
    path: PathBuf,
    keep: bool,
}

impl ScratchDirectory {
    /// Its name is the same for every attempt of this node and of no other, so that nothing accumulates.
    pub(super) fn create(
        work_dir: &Path,
        place: &UnitWorkspace,
        node: u32,
        keep: bool,
    ) -> Result<Self, PayloadFailure> {
        let owner = rustix::process::getuid().as_raw();
        let of = digest_bytes(place.directory().as_os_str().as_encoded_bytes());
        let unit = &place.manifest.unit;
        let path = work_dir.join(format!("windlass-{owner}-{}-{unit}-{node}", &of[..12]));
        let make = || {
            fs::create_dir_all(work_dir)?;
            remove_own(&path, owner)?;
            DirBuilder::new().mode(0o700).create(&path)
        };
        make().map_err(|error| {
            PayloadFailure::from_io(exit_codes::STORAGE, "make the scratch directory", &path, &error)
        })?;
        Ok(Self { path, keep })
    }

    /// The directory of a step.
    pub(super) fn step_directory(&self, index: usize, name: &str) -> Result<PathBuf, PayloadFailure> {
        let path = self.path.join(format!("{index}-{name}"));
        fs::create_dir(&path).map_err(|error| {
            PayloadFailure::from_io(exit_codes::STORAGE, "make the directory", &path, &error)
        })?;
        Ok(path)
    }
}

/// Removes the leftovers of an earlier attempt. In a world-writable directory another user may have taken the
/// name.
fn remove_own(path: &Path, owner: u32) -> io::Result<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(metadata) if metadata.is_dir() && metadata.uid() == owner => fs::remove_dir_all(path),
        Ok(_) => Err(io::Error::other("another user has a directory or file of that name there")),
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        if !self.keep {
            // The next attempt tries again.
            fs::remove_dir_all(&self.path).ok();
        }
    }
}

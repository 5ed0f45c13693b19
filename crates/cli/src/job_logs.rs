//! Paths of the output of jobs, and how they are displayed.

pub(crate) use windlass_insight::logs::*;

use std::path::Path;

/// Relative if it is below the current directory.
pub(crate) fn short_path(path: &Path, cwd: &Path) -> String {
    path.strip_prefix(cwd).unwrap_or(path).display().to_string()
}

//! Where the output of jobs lies, and how that is shown.

pub(crate) use windlass_insight::logs::*;

use std::path::Path;

/// Short if it lies below the current directory, as people would type it.
pub(crate) fn short_path(path: &Path, cwd: &Path) -> String {
    path.strip_prefix(cwd).unwrap_or(path).display().to_string()
}

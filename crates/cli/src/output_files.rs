//! Writes results to standard output or a file; replaces files atomically.

use crate::context::CliContext;
use crate::error::CliError;
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Writes to the named file, or to standard output.
pub(crate) fn write_text(ctx: &CliContext, output: Option<&Path>, text: &str) -> Result<(), CliError> {
    match output {
        None => ctx.ui.print_rendered_text(text),
        Some(path) => {
            replace_file(&ctx.cwd.join(path), text)?;
            ctx.ui.print_note(&format!("wrote {}", path.display()));
            Ok(())
        }
    }
}

/// Replaces the contents of a file atomically, or creates it.
pub(crate) fn replace_file(path: &Path, text: &str) -> Result<(), CliError> {
    try_replace_file(path, text).map_err(|e| CliError::io(format!("cannot write {}: {e}", path.display())))
}

fn try_replace_file(path: &Path, text: &str) -> io::Result<()> {
    // A link is kept, and its target is replaced.
    let target = match path.canonicalize() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => path.to_owned(),
        target => target?,
    };
    if std::fs::metadata(&target).is_ok_and(|meta| !meta.is_file()) {
        // A pipe or a terminal cannot be replaced, only written to.
        return File::options().write(true).open(&target)?.write_all(text.as_bytes());
    }
    let permissions = std::fs::metadata(&target).map(|meta| meta.permissions()).ok();
    let beside = temporary_path(&target)?;
    let written = write_new(&beside, text, permissions).and_then(|()| std::fs::rename(&beside, &target));
    if written.is_err() {
        // The temporary file may not exist.
        drop(std::fs::remove_file(&beside));
    }
    written
}

/// A name in the same directory, so that renaming is atomic.
fn temporary_path(target: &Path) -> io::Result<PathBuf> {
    let name = target.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}", std::process::id()));
    Ok(target.with_file_name(hidden))
}

fn write_new(path: &Path, text: &str, permissions: Option<Permissions>) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    if let Some(permissions) = permissions {
        file.set_permissions(permissions)?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn replaced_file_keeps_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spec.yaml");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let link = dir.path().join("link.yaml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace_file(&link, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left behind");
    }

    #[test]
    fn replace_file_creates_file_and_reports_bad_path() {
        let dir = tempfile::tempdir().unwrap();
        replace_file(&dir.path().join("a"), "x").unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("a")).unwrap(), "x");
        let error = replace_file(&dir.path().join("no/such/place"), "x").unwrap_err();
        assert!(error.message.contains("no/such/place"), "{error}");
        assert!(replace_file(dir.path(), "x").is_err());
    }
}

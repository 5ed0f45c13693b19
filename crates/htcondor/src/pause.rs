//! Pausing a run: none of its nodes start until it is resumed.
//!
//! A held DAGMan of a run starts no further units; but the DAGMans of started units continue and would use up all
//! retries of their nodes. They cannot be held as well: the outer DAGMan treats that as a failure and removes
//! them. So while a run is paused, a file is in its directory, and the PRE scripts of its nodes defer their
//! start.

use crate::file_layout;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const PAUSED_FILE_TEXT: &str = "This run is paused: none of its nodes start while this file exists. `windlass request dag release` removes it.\n";

/// The pause file of a run cannot be written or removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}")]
pub struct PauseError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Pauses the run. Running jobs continue; queued jobs may still start once.
pub fn pause_run(run: &Path) -> Result<(), PauseError> {
    let path = run.join(file_layout::PAUSED_FILE);
    fs::write(&path, PAUSED_FILE_TEXT).map_err(|source| PauseError { action: "write", path, source })
}

/// Resumes the run. Returns whether it was paused.
pub fn resume_run(run: &Path) -> Result<bool, PauseError> {
    let path = run.join(file_layout::PAUSED_FILE);
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(PauseError { action: "remove", path, source }),
    }
}

pub fn is_paused(run: &Path) -> bool {
    run.join(file_layout::PAUSED_FILE).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_idempotent_and_ends_once() {
        let run = tempfile::tempdir().unwrap();
        assert!(!is_paused(run.path()) && !resume_run(run.path()).unwrap());
        for _ in 0..2 {
            pause_run(run.path()).unwrap();
            assert!(is_paused(run.path()));
        }
        assert!(
            resume_run(run.path()).unwrap() && !is_paused(run.path()) && !resume_run(run.path()).unwrap()
        );
    }

    #[test]
    fn pausing_a_missing_run_fails_with_the_file_name() {
        let run = tempfile::tempdir().unwrap();
        let error = pause_run(&run.path().join("gone")).unwrap_err().to_string();
        assert!(error.contains("gone/paused"), "{error}");
    }
}

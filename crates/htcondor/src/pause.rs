//! A run that is paused: nothing more of it begins until somebody lets it go on.
//!
//! Held, DAGMan of the run begins no further units; but the DAGMans of units that have begun go on, and would use up all
//! retries of their nodes. They cannot be held as well: the outer one takes that for a failure, and removes them. So a file
//! lies in the directory of the run meanwhile, and the PRE scripts of its nodes say that it is too early.

use crate::file_layout;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const PAUSED_FILE_TEXT: &str = "Nothing more of this run begins while this file is here; `windlass request dag release` takes it away.\n";

/// The file of a run cannot be written or removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}")]
pub struct PauseError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// What runs goes on, and what is in the queue already begins once.
pub fn pause_run(run: &Path) -> Result<(), PauseError> {
    let path = run.join(file_layout::PAUSED_FILE);
    fs::write(&path, PAUSED_FILE_TEXT).map_err(|source| PauseError { action: "write", path, source })
}

/// It is paused no more. Whether it was.
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
    fn a_pause_is_over_once_and_may_be_said_twice() {
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
    fn where_there_is_no_run_the_error_names_the_file() {
        let run = tempfile::tempdir().unwrap();
        let error = pause_run(&run.path().join("gone")).unwrap_err().to_string();
        assert!(error.contains("gone/paused"), "{error}");
    }
}

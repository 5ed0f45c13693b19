//! A run that is paused: nothing more of it begins until somebody lets it go on.
//!
//! Held, DAGMan of the run begins no further units; but the DAGMans of units that have begun go on, and would use up all
//! retries of their nodes. They cannot be held as well: the outer one takes that for a failure, and removes them. So a file
//! lies in the directory of the run meanwhile, and the PRE scripts of its nodes say that it is too early.

use crate::layout;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const TEXT: &str =
    "Nothing more of this run begins while this file is here; `windlass dag release` takes it away.\n";

/// The file of a run cannot be written or removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {path}: {source}")]
pub struct PauseError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// What runs goes on, and what is in the queue already begins once.
pub fn pause(run: &Path) -> Result<(), PauseError> {
    let path = run.join(layout::PAUSED);
    fs::write(&path, TEXT).map_err(|source| PauseError { doing: "write", path, source })
}

/// It is paused no more. Whether it was.
pub fn go_on(run: &Path) -> Result<bool, PauseError> {
    let path = run.join(layout::PAUSED);
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(PauseError { doing: "remove", path, source }),
    }
}

pub fn is_paused(run: &Path) -> bool {
    run.join(layout::PAUSED).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_over_once_and_may_be_said_twice() {
        let run = tempfile::tempdir().unwrap();
        assert!(!is_paused(run.path()) && !go_on(run.path()).unwrap());
        for _ in 0..2 {
            pause(run.path()).unwrap();
            assert!(is_paused(run.path()));
        }
        assert!(go_on(run.path()).unwrap() && !is_paused(run.path()) && !go_on(run.path()).unwrap());
    }

    #[test]
    fn where_there_is_no_run_the_error_names_the_file() {
        let run = tempfile::tempdir().unwrap();
        let error = pause(&run.path().join("gone")).unwrap_err().to_string();
        assert!(error.contains("gone/paused"), "{error}");
    }
}

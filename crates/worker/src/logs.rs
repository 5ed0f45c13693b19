//! The log files of an attempt: `job_stdio/STEM.o`, `.e`, or `.log`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use windlass_proc::spawn;
use windlass_types::work::{AttemptKey, StdioMode};

/// The directory that all logs of a worker go to.
#[derive(Debug)]
pub(crate) struct Logs {
    directory: PathBuf,
}

/// The open logs of one attempt. A job writes to them itself; we close our ends once it has started.
#[derive(Debug, Default)]
pub(crate) struct JobLogs {
    pub(crate) stdout: Option<File>,
    /// `None` with `Combined` too: both go to `stdout`'s file.
    pub(crate) stderr: Option<File>,
    combined: bool,
}

impl JobLogs {
    /// Where standard error goes, if it is kept.
    pub(crate) fn error_log(&self) -> Option<&File> {
        if self.combined { self.stdout.as_ref() } else { self.stderr.as_ref() }
    }
}

impl Logs {
    pub(crate) fn create(output_dir: &Path) -> io::Result<Self> {
        let directory = output_dir.join("job_stdio");
        fs::create_dir_all(&directory)?;
        Ok(Self { directory })
    }

    pub(crate) fn open(&self, key: &AttemptKey, mode: StdioMode) -> io::Result<JobLogs> {
        let open =
            |extension: Option<&str>| extension.map(|extension| self.open_file(key, extension)).transpose();
        let (stdout, stderr) = extensions(mode);
        Ok(JobLogs { stdout: open(stdout)?, stderr: open(stderr)?, combined: mode == StdioMode::Combined })
    }

    pub(crate) fn remove(&self, key: &AttemptKey, mode: StdioMode) {
        let (stdout, stderr) = extensions(mode);
        for extension in [stdout, stderr].into_iter().flatten() {
            // Somebody else may have removed it; a log too many harms nobody.
            fs::remove_file(self.path(key, extension)).ok();
        }
    }

    fn open_file(&self, key: &AttemptKey, extension: &str) -> io::Result<File> {
        let path = self.path(key, extension);
        let open = || spawn::create_log(&path);
        match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.directory)?;
                open()
            }
            result => result,
        }
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    }

    fn path(&self, key: &AttemptKey, extension: &str) -> PathBuf {
        self.directory.join(format!("{}.{extension}", key.stem()))
    }
}

const fn extensions(mode: StdioMode) -> (Option<&'static str>, Option<&'static str>) {
    match mode {
        StdioMode::Separate => (Some("o"), Some("e")),
        StdioMode::Combined => (Some("log"), None),
        StdioMode::None => (None, None),
        StdioMode::NoStdout => (None, Some("e")),
        StdioMode::NoStderr => (Some("o"), None),
    }
}

//! The log files of an attempt: `job_stdio/STEM.o`, `.e`, or `.log`.
//!
//! A file exists, under its name, from the start of the attempt. If nothing was written to it, it becomes the
//! file of the slot's next attempt: an attempt without output leaves no file, a million silent jobs do not use
//! up the inodes of a file system, and renaming is cheaper than creating (much cheaper on some file systems
//! after many files were removed).

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use windlass_core::log_lines;
use windlass_core::redact::SecretRedactor;
use windlass_process::command::create_memory_file;
use windlass_process::spawn;
use windlass_types::worker_messages::{AttemptKey, RecoveryScript, StdioMode};

/// How much is read to find the last words of a failed attempt: more than its report carries, so that a secret
/// is matched as a whole also where the last words begin.
const MAX_TAIL_READ: u64 = 2 * log_lines::LOG_TAIL_BYTES as u64;

/// The directory of all logs of a worker.
#[derive(Debug)]
pub(crate) struct LogDirectory {
    directory: PathBuf,
}

/// The open logs of one attempt. The job writes to them directly.
#[derive(Debug, Default)]
pub(crate) struct AttemptLogs {
    stdout: Option<LogFile>,
    /// Also `None` with `Combined`: both streams go to `stdout`'s file.
    stderr: Option<LogFile>,
    is_combined: bool,
    /// The launcher's messages, where standard error is not kept: removed with the attempt.
    launcher_stderr: Option<File>,
}

/// Empty logs for the next attempt in the same slot.
#[derive(Debug, Default)]
pub(crate) struct SpareLogs {
    stdout: Option<LogFile>,
    stderr: Option<LogFile>,
}

#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    file: File,
}

impl LogFile {
    fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|meta| meta.len() == 0)
    }
}

impl SpareLogs {
    /// Removes the spare logs when the slot has no more attempts.
    pub(crate) fn discard(&mut self) {
        for log in [self.stdout.take(), self.stderr.take()].into_iter().flatten() {
            // It may have been removed already.
            fs::remove_file(&log.path).ok();
        }
    }
}

impl AttemptLogs {
    pub(crate) fn output_log(&self) -> Option<&File> {
        self.stdout.as_ref().map(|log| &log.file)
    }

    /// The destination of standard error, if it is kept or read.
    pub(crate) fn error_log(&self) -> Option<&File> {
        let log = if self.is_combined { &self.stdout } else { &self.stderr };
        log.as_ref().map(|log| &log.file).or(self.launcher_stderr.as_ref())
    }

    /// The launcher's messages are always read; the job's own are dropped inside the step.
    pub(crate) fn capture_launcher_stderr(&mut self) -> io::Result<()> {
        if self.error_log().is_none() {
            self.launcher_stderr = Some(create_memory_file("launcher")?);
        }
        Ok(())
    }

    /// The end of standard error, from the start of a line, if it has any output. Secrets are masked before it
    /// is cut, because half a secret is not recognized.
    pub(crate) fn error_tail(&self, redactor: &SecretRedactor) -> Option<String> {
        let log = if self.is_combined { &self.stdout } else { &self.stderr };
        let mut file = match log {
            Some(log) => File::open(&log.path).ok()?,
            None => self.launcher_stderr.as_ref()?.try_clone().ok()?,
        };
        let length = file.metadata().ok()?.len();
        let skipped = length.saturating_sub(MAX_TAIL_READ);
        file.seek(SeekFrom::Start(skipped)).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_TAIL_READ).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = redactor.redact(&text);
        let words = log_lines::log_tail(&text, skipped > 0);
        (!words.is_empty()).then(|| words.to_owned())
    }

    /// Whether all logs are empty.
    pub(crate) fn are_empty(&self) -> bool {
        self.stdout.iter().chain(&self.stderr).all(LogFile::is_empty)
    }

    /// Ends the attempt. Empty logs become spare, unless a process could still write to them.
    pub(crate) fn finish(self, spares: Option<&mut SpareLogs>, delete: bool) {
        let mut nowhere = SpareLogs::default();
        let reusable = spares.is_some();
        let spares = spares.unwrap_or(&mut nowhere);
        for (log, spare) in [(self.stdout, &mut spares.stdout), (self.stderr, &mut spares.stderr)] {
            let Some(log) = log else { continue };
            if reusable && log.is_empty() {
                *spare = Some(log);
            } else if delete {
                // It may have been removed already; a superfluous log does no harm.
                fs::remove_file(&log.path).ok();
            }
        }
    }
}

impl LogDirectory {
    /// The paths of the logs.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn create(output_dir: &Path) -> io::Result<Self> {
        let directory = output_dir.join("job_stdio");
        fs::create_dir_all(&directory)?;
        Ok(Self { directory })
    }

    pub(crate) fn open_logs(
        &self,
        key: &AttemptKey,
        mode: StdioMode,
        spares: &mut SpareLogs,
    ) -> io::Result<AttemptLogs> {
        let open = |extension: Option<&str>, spare: &mut Option<LogFile>| {
            extension.map(|extension| self.open_file(self.log_path(key, extension), spare.take())).transpose()
        };
        let (stdout, stderr) = log_extensions(mode);
        let (stdout, stderr) = (open(stdout, &mut spares.stdout)?, open(stderr, &mut spares.stderr)?);
        Ok(AttemptLogs { stdout, stderr, is_combined: mode == StdioMode::Combined, launcher_stderr: None })
    }

    /// The output of a recovery script is kept beside the logs of the failed attempt.
    pub(crate) fn open_recovery(
        &self,
        key: &AttemptKey,
        recovery: &RecoveryScript,
    ) -> io::Result<AttemptLogs> {
        let failed = AttemptKey { attempt: recovery.failed, ..*key };
        let log = self.open_file(self.log_path(&failed, RecoveryScript::LOG_EXTENSION), None)?;
        Ok(AttemptLogs { stdout: Some(log), is_combined: true, ..AttemptLogs::default() })
    }

    fn open_file(&self, path: PathBuf, spare: Option<LogFile>) -> io::Result<LogFile> {
        if let Some(spare) = spare
            && fs::rename(&spare.path, &path).is_ok()
        {
            return Ok(LogFile { path, file: spare.file });
        }
        let open = || spawn::create_log(&path);
        let opened = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(&self.directory)?;
                open()
            }
            result => result,
        };
        match opened {
            Ok(file) => Ok(LogFile { path, file }),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        }
    }

    fn log_path(&self, key: &AttemptKey, extension: &str) -> PathBuf {
        self.directory.join(format!("{}.{extension}", key.log_stem()))
    }
}

const fn log_extensions(mode: StdioMode) -> (Option<&'static str>, Option<&'static str>) {
    match mode {
        StdioMode::Separate => (Some("o"), Some("e")),
        StdioMode::Combined => (Some("log"), None),
        StdioMode::None => (None, None),
        StdioMode::NoStdout => (None, Some("e")),
        StdioMode::NoStderr => (Some("o"), None),
    }
}

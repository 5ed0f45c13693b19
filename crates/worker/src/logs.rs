//! The log files of an attempt: `job_stdio/STEM.o`, `.e`, or `.log`.
//!
//! A file is there, under its name, from the start of the attempt. If nothing was written to it, it becomes the file of the
//! slot's next attempt: an attempt that printed nothing leaves nothing behind, a million silent jobs do not use up the
//! inodes of a file system, and renaming is cheaper than creating (much cheaper on some file systems after many files were
//! removed).

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use windlass_core::lines;
use windlass_core::redact::Redactor;
use windlass_proc::command::memory;
use windlass_proc::spawn;
use windlass_types::work::{AttemptKey, Recovery, StdioMode};

/// So much is read to find the last words of an attempt that failed: more than goes with its report, so that a secret is
/// seen whole also where the last words begin.
const MOST_READ: u64 = 2 * lines::LAST_WORDS as u64;

/// The directory that all logs of a worker go to.
#[derive(Debug)]
pub(crate) struct Logs {
    directory: PathBuf,
}

/// The open logs of one attempt. A job writes to them itself.
#[derive(Debug, Default)]
pub(crate) struct JobLogs {
    stdout: Option<Log>,
    /// `None` with `Combined` too: both go to `stdout`'s file.
    stderr: Option<Log>,
    combined: bool,
    /// What a launcher says, where standard error is not kept: it is gone with the attempt.
    aside: Option<File>,
}

/// Empty logs that the next attempt in the same slot can have.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    stdout: Option<Log>,
    stderr: Option<Log>,
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|meta| meta.len() == 0)
    }
}

impl Spares {
    /// The slot has no more attempts.
    pub(crate) fn discard(&mut self) {
        for log in [self.stdout.take(), self.stderr.take()].into_iter().flatten() {
            // Somebody else may have removed it.
            fs::remove_file(&log.path).ok();
        }
    }
}

impl JobLogs {
    pub(crate) fn output_log(&self) -> Option<&File> {
        self.stdout.as_ref().map(|log| &log.file)
    }

    /// Where standard error goes, if it is kept or listened to.
    pub(crate) fn error_log(&self) -> Option<&File> {
        let log = if self.combined { &self.stdout } else { &self.stderr };
        log.as_ref().map(|log| &log.file).or(self.aside.as_ref())
    }

    /// What a launcher says is heard in any case; the job's own errors are for it to drop.
    pub(crate) fn listen(&mut self) -> io::Result<()> {
        if self.error_log().is_none() {
            self.aside = Some(memory("launcher")?);
        }
        Ok(())
    }

    /// The end of what was written to standard error, from the start of a line, if anything was. Secrets are taken out
    /// before it is cut: half of one looks like nothing.
    pub(crate) fn last_words(&self, redactor: &Redactor) -> Option<String> {
        let log = if self.combined { &self.stdout } else { &self.stderr };
        let mut file = match log {
            Some(log) => File::open(&log.path).ok()?,
            None => self.aside.as_ref()?.try_clone().ok()?,
        };
        let length = file.metadata().ok()?.len();
        let skipped = length.saturating_sub(MOST_READ);
        file.seek(SeekFrom::Start(skipped)).ok()?;
        let mut bytes = Vec::new();
        file.take(MOST_READ).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let text = redactor.redact(&text);
        let words = lines::last_words(&text, skipped > 0);
        (!words.is_empty()).then(|| words.to_owned())
    }

    /// Nothing was written, to none of them.
    pub(crate) fn are_empty(&self) -> bool {
        self.stdout.iter().chain(&self.stderr).all(Log::is_empty)
    }

    /// The attempt is over. Empty logs are spare, if nobody is left who could still write to them.
    pub(crate) fn finish(self, spares: Option<&mut Spares>, delete: bool) {
        let mut nowhere = Spares::default();
        let reusable = spares.is_some();
        let spares = spares.unwrap_or(&mut nowhere);
        for (log, spare) in [(self.stdout, &mut spares.stdout), (self.stderr, &mut spares.stderr)] {
            let Some(log) = log else { continue };
            if reusable && log.is_empty() {
                *spare = Some(log);
            } else if delete {
                // Somebody else may have removed it; a log too many harms nobody.
                fs::remove_file(&log.path).ok();
            }
        }
    }
}

impl Logs {
    /// Where they are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn create(output_dir: &Path) -> io::Result<Self> {
        let directory = output_dir.join("job_stdio");
        fs::create_dir_all(&directory)?;
        Ok(Self { directory })
    }

    pub(crate) fn open(&self, key: &AttemptKey, mode: StdioMode, spares: &mut Spares) -> io::Result<JobLogs> {
        let open = |extension: Option<&str>, spare: &mut Option<Log>| {
            extension.map(|extension| self.open_file(self.path(key, extension), spare.take())).transpose()
        };
        let (stdout, stderr) = extensions(mode);
        let (stdout, stderr) = (open(stdout, &mut spares.stdout)?, open(stderr, &mut spares.stderr)?);
        Ok(JobLogs { stdout, stderr, combined: mode == StdioMode::Combined, aside: None })
    }

    /// What the recovery of a failure prints is kept beside the logs of the attempt that failed.
    pub(crate) fn open_recovery(&self, key: &AttemptKey, recovery: &Recovery) -> io::Result<JobLogs> {
        let failed = AttemptKey { attempt: recovery.failed, ..*key };
        let log = self.open_file(self.path(&failed, Recovery::LOG_EXTENSION), None)?;
        Ok(JobLogs { stdout: Some(log), combined: true, ..JobLogs::default() })
    }

    fn open_file(&self, path: PathBuf, spare: Option<Log>) -> io::Result<Log> {
        if let Some(spare) = spare
            && fs::rename(&spare.path, &path).is_ok()
        {
            return Ok(Log { path, file: spare.file });
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
            Ok(file) => Ok(Log { path, file }),
            Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        }
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

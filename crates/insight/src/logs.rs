//! Locations of job output: `OUTPUT_DIR/job_stdio/job_wf{W}_j{J}_r{R}_a{A}.o`, `.e` and `.log`;
//! `.recovery.log` for the recovery script that followed. For reading the end of a log see [`crate::log_tail`].

use std::io;
use std::path::{Path, PathBuf};
use windlass_store::model::WorkflowRow;
use windlass_store::{Store, StoreError};
use windlass_types::JobId;
use windlass_types::worker_messages::{AttemptKey, RecoveryScript, StdioMode, StdioSettings};

/// Folder in the output directory.
pub const LOG_FOLDER: &str = "job_stdio";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    Stdout,
    Stderr,
    /// Both streams in one file.
    Combined,
    /// Output of the recovery script that followed the attempt.
    Recovery,
}

impl LogStream {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Combined => "output",
            Self::Recovery => "recovery",
        }
    }

    const fn extension(self) -> &'static str {
        match self {
            Self::Stdout => "o",
            Self::Stderr => "e",
            Self::Combined => "log",
            Self::Recovery => RecoveryScript::LOG_EXTENSION,
        }
    }
}

pub fn log_path(workflow: &WorkflowRow, key: AttemptKey, stream: LogStream) -> PathBuf {
    let file = format!("{}.{}", key.log_stem(), stream.extension());
    Path::new(&workflow.output_dir).join(LOG_FOLDER).join(file)
}

/// File that names the database of the logs in this folder, on one line.
const OWNER_FILE: &str = ".database";

/// Claims the folder for this database. Log names contain ids that are unique only within one database, so a
/// folder has one owner; `Some` if that is another database that still exists.
pub fn claim_folder(logs: &Path, database: &Path) -> io::Result<Option<PathBuf>> {
    let marker = logs.join(OWNER_FILE);
    let owner = match std::fs::read_to_string(&marker) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        owner => Some(PathBuf::from(owner?.trim_end())),
    };
    let is_ours = |owner: &PathBuf| owner == database || same_file(owner, database);
    match owner {
        Some(owner) if is_ours(&owner) => Ok(None),
        Some(other) if other.exists() || is_server_address(&other) => Ok(Some(other)),
        _ => std::fs::write(marker, format!("{}\n", database.display())).map(|()| None),
    }
}

/// The database of a server is identified by its address.
fn is_server_address(owner: &Path) -> bool {
    ["http://", "https://"].iter().any(|scheme| owner.to_str().is_some_and(|text| text.starts_with(scheme)))
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Returns the output settings of the job, or else of its workflow.
pub fn load_stdio(
    store: &dyn Store,
    workflow: &WorkflowRow,
    job: JobId,
) -> Result<StdioSettings, StoreError> {
    let commands = store.load_job_commands(&[job])?;
    let own = commands
        .first()
        .and_then(|command| command.stdio.or_else(|| workflow.settings.stdio_override(&command.name)));
    Ok(own.unwrap_or_else(|| workflow.settings.stdio(workflow.stdio)))
}

/// Returns the streams that are kept.
pub const fn kept_streams(mode: StdioMode) -> &'static [LogStream] {
    match mode {
        StdioMode::Separate => &[LogStream::Stdout, LogStream::Stderr],
        StdioMode::Combined => &[LogStream::Combined],
        StdioMode::None => &[],
        StdioMode::NoStdout => &[LogStream::Stderr],
        StdioMode::NoStderr => &[LogStream::Stdout],
    }
}

/// Returns the existing log files of an attempt, the most informative about a failure first. An attempt without
/// output has none.
pub fn existing_logs(workflow: &WorkflowRow, key: AttemptKey) -> Vec<(LogStream, PathBuf)> {
    let streams = [LogStream::Stderr, LogStream::Stdout, LogStream::Combined];
    let files = streams.map(|stream| (stream, log_path(workflow, key, stream)));
    files.into_iter().filter(|(_, file)| file.exists()).collect()
}

/// Returns the output of the recovery script that followed this attempt, if not empty.
pub fn recovery_log(workflow: &WorkflowRow, key: AttemptKey) -> Option<PathBuf> {
    Some(log_path(workflow, key, LogStream::Recovery)).filter(|file| file.exists())
}

/// The log to look at first after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstLog {
    pub path: PathBuf,
    pub stream_with_text: Option<LogStream>,
}

/// Returns the stream that most likely shows the cause of a failure: stderr, else stdout. `None` if no output
/// is kept.
pub fn choose_first_log(workflow: &WorkflowRow, key: AttemptKey, stdio: StdioSettings) -> Option<FirstLog> {
    let has_text = |file: &Path| std::fs::metadata(file).is_ok_and(|meta| meta.len() > 0);
    let with_text = existing_logs(workflow, key).into_iter().find(|(_, file)| has_text(file));
    match with_text {
        Some((stream, path)) => Some(FirstLog { path, stream_with_text: Some(stream) }),
        None => kept_streams(stdio.mode)
            .last()
            .map(|stream| FirstLog { path: log_path(workflow, key, *stream), stream_with_text: None }),
    }
}

//! Where the output of jobs lies: `OUTPUT_DIR/job_stdio/job_wf{W}_j{J}_r{R}_a{A}.o`, `.e` and `.log`;
//! `.recovery.log` for the script that followed. How it is read for
//! those who only want its end is in [`crate::tail`].

use std::io;
use std::path::{Path, PathBuf};
use windlass_store::model::WorkflowRow;
use windlass_store::{Store, StoreError};
use windlass_types::JobId;
use windlass_types::worker_messages::{AttemptKey, RecoveryScript, StdioMode, StdioSettings};

/// In the output directory.
pub const LOG_FOLDER: &str = "job_stdio";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    Stdout,
    Stderr,
    /// Both in one file.
    Combined,
    /// Of the recovery script that followed the attempt.
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

pub fn path(workflow: &WorkflowRow, key: AttemptKey, stream: LogStream) -> PathBuf {
    let file = format!("{}.{}", key.log_stem(), stream.extension());
    Path::new(&workflow.output_dir).join(LOG_FOLDER).join(file)
}

/// Says which database the logs in this folder belong to: its name, on one line.
const OWNER_FILE: &str = ".database";

/// Makes the folder this database's. Logs are named by numbers that only one database hands out once, so a folder has one
/// owner; `Some` if that is another database, which is still there.
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

/// The books of a server go by its address.
fn is_server_address(owner: &Path) -> bool {
    ["http://", "https://"].iter().any(|scheme| owner.to_str().is_some_and(|text| text.starts_with(scheme)))
}

fn same_file(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// What the job says about its output, or else its workflow.
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

/// The streams that are kept.
pub const fn kept(mode: StdioMode) -> &'static [LogStream] {
    match mode {
        StdioMode::Separate => &[LogStream::Stdout, LogStream::Stderr],
        StdioMode::Combined => &[LogStream::Combined],
        StdioMode::None => &[],
        StdioMode::NoStdout => &[LogStream::Stderr],
        StdioMode::NoStderr => &[LogStream::Stdout],
    }
}

/// The files of an attempt that are there, what most likely says why it failed first. One that printed nothing has none.
pub fn existing_logs(workflow: &WorkflowRow, key: AttemptKey) -> Vec<(LogStream, PathBuf)> {
    let streams = [LogStream::Stderr, LogStream::Stdout, LogStream::Combined];
    let files = streams.map(|stream| (stream, path(workflow, key, stream)));
    files.into_iter().filter(|(_, file)| file.exists()).collect()
}

/// What the recovery script printed that followed this attempt, if one did and said something.
pub fn recovery_log(workflow: &WorkflowRow, key: AttemptKey) -> Option<PathBuf> {
    Some(path(workflow, key, LogStream::Recovery)).filter(|file| file.exists())
}

/// The file to look at first, and which stream in it says something, if any does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstLog {
    pub path: PathBuf,
    pub stream_with_text: Option<LogStream>,
}

/// What most likely says why a job failed: what it wrote to stderr, else to stdout. `None` if nothing was to be kept.
pub fn choose_first_log(workflow: &WorkflowRow, key: AttemptKey, stdio: StdioSettings) -> Option<FirstLog> {
    let has_text = |file: &Path| std::fs::metadata(file).is_ok_and(|meta| meta.len() > 0);
    let spoken = existing_logs(workflow, key).into_iter().find(|(_, file)| has_text(file));
    match spoken {
        Some((stream, path)) => Some(FirstLog { path, stream_with_text: Some(stream) }),
        None => kept(stdio.mode)
            .last()
            .map(|stream| FirstLog { path: path(workflow, key, *stream), stream_with_text: None }),
    }
}

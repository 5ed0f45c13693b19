//! Where the output of jobs lies: `OUTPUT_DIR/job_stdio/job_wf{W}_j{J}_r{R}_a{A}.o`, `.e` and `.log`.

use std::path::{Path, PathBuf};
use windlass_store::model::WorkflowRow;
use windlass_types::work::{AttemptKey, StdioMode};

/// In the output directory.
pub(crate) const FOLDER: &str = "job_stdio";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
    /// Both in one file.
    Combined,
}

impl Stream {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Combined => "output",
        }
    }

    const fn extension(self) -> &'static str {
        match self {
            Self::Stdout => "o",
            Self::Stderr => "e",
            Self::Combined => "log",
        }
    }
}

pub(crate) fn path(workflow: &WorkflowRow, key: AttemptKey, stream: Stream) -> PathBuf {
    let file = format!("{}.{}", key.stem(), stream.extension());
    Path::new(&workflow.output_dir).join(FOLDER).join(file)
}

/// The streams that this workflow keeps.
pub(crate) const fn kept(mode: StdioMode) -> &'static [Stream] {
    match mode {
        StdioMode::Separate => &[Stream::Stdout, Stream::Stderr],
        StdioMode::Combined => &[Stream::Combined],
        StdioMode::None => &[],
        StdioMode::NoStdout => &[Stream::Stderr],
        StdioMode::NoStderr => &[Stream::Stdout],
    }
}

/// The file to look at first, and which stream in it says something, if any does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Clue {
    pub(crate) path: PathBuf,
    pub(crate) spoken: Option<Stream>,
}

/// What most likely says why a job failed: what it wrote to stderr, else to stdout. `None` if nothing was kept.
pub(crate) fn first_to_look_at(workflow: &WorkflowRow, key: AttemptKey) -> Option<Clue> {
    let streams = kept(workflow.stdio.mode).iter().rev();
    let files: Vec<(Stream, PathBuf)> = streams.map(|s| (*s, path(workflow, key, *s))).collect();
    let has_text = |file: &Path| std::fs::metadata(file).is_ok_and(|meta| meta.len() > 0);
    match files.iter().find(|(_, file)| has_text(file)) {
        Some((stream, path)) => Some(Clue { path: path.clone(), spoken: Some(*stream) }),
        None => files.first().map(|(_, path)| Clue { path: path.clone(), spoken: None }),
    }
}

/// Short if it lies below the current directory, as people would type it.
pub(crate) fn short(path: &Path, cwd: &Path) -> String {
    path.strip_prefix(cwd).unwrap_or(path).display().to_string()
}

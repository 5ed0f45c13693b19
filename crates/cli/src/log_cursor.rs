//! Reads text that is appended to a file.

use crate::job_logs::LogStream;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;
use windlass_insight::log_tail::skip_to_last_lines;

/// A growing file, and the read position.
#[derive(Debug)]
pub(crate) struct LogCursor {
    pub(crate) stream: LogStream,
    pub(crate) path: PathBuf,
    /// Start with the last lines that exist when the file is first seen.
    tail: Option<usize>,
    file: Option<File>,
    /// The incomplete last line; for [`LogCursor::complete_lines`].
    unfinished: Vec<u8>,
}

impl LogCursor {
    pub(crate) fn new(stream: LogStream, path: PathBuf, tail: Option<usize>) -> Self {
        Self { stream, path, tail, file: None, unfinished: Vec::new() }
    }

    /// The text appended since the last call. A file that does not exist yet is empty.
    pub(crate) fn read_new(&mut self) -> io::Result<Vec<u8>> {
        let file = match &mut self.file {
            Some(file) => file,
            None => match File::open(&self.path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                opened => {
                    let mut file = opened?;
                    if let Some(lines) = self.tail.take() {
                        skip_to_last_lines(&mut file, lines)?;
                    }
                    self.file.insert(file)
                }
            },
        };
        let mut new_bytes = Vec::new();
        file.read_to_end(&mut new_bytes)?;
        Ok(new_bytes)
    }

    /// The lines that `new_bytes` completes; at the end also a last one without its newline.
    pub(crate) fn complete_lines(&mut self, new_bytes: &[u8], at_end: bool) -> Vec<String> {
        self.unfinished.extend_from_slice(new_bytes);
        let complete = match self.unfinished.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => self.unfinished.drain(..=last).collect(),
            None => Vec::new(),
        };
        let mut lines: Vec<String> = String::from_utf8_lossy(&complete).lines().map(str::to_owned).collect();
        if at_end && !self.unfinished.is_empty() {
            lines.push(String::from_utf8_lossy(&std::mem::take(&mut self.unfinished)).into_owned());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn log_cursor_follows_growing_and_missing_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job.o");
        let mut cursor = LogCursor::new(LogStream::Stdout, path.clone(), Some(1));
        assert_eq!(cursor.read_new().unwrap(), b"");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\ntwo\n").unwrap();
        assert_eq!(cursor.read_new().unwrap(), b"two\n");
        assert_eq!(cursor.read_new().unwrap(), b"");
        file.write_all(b"three").unwrap();
        assert_eq!(cursor.read_new().unwrap(), b"three");
    }

    #[test]
    fn log_cursor_returns_complete_lines() {
        let mut cursor = LogCursor::new(LogStream::Stdout, PathBuf::new(), None);
        assert_eq!(cursor.complete_lines("a\nb\u{e9}".as_bytes(), false), ["a"]);
        assert_eq!(cursor.complete_lines(b"", false), [""; 0]);
        assert_eq!(cursor.complete_lines(b"c\nd", true), ["b\u{e9}c", "d"]);
    }
}

//! Reading the end of a file, and what is added to it.

use crate::job_logs::Stream;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

const BLOCK: u64 = 64 * 1024;

/// Moves to the start of the last `lines` lines. A last line without its newline counts.
pub(crate) fn skip_to_last_lines(file: &mut (impl Read + Seek), lines: usize) -> io::Result<()> {
    let end = file.seek(SeekFrom::End(0))?;
    let start = last_lines_start(file, end, lines)?;
    file.seek(SeekFrom::Start(start)).map(|_| ())
}

fn last_lines_start(file: &mut (impl Read + Seek), end: u64, lines: usize) -> io::Result<u64> {
    if lines == 0 {
        return Ok(end);
    }
    // The newline that ends the last line does not begin another one.
    let mut to_pass = lines;
    let mut block_end = end;
    let mut block = Vec::new();
    while block_end > 0 {
        let block_start = block_end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(block_start))?;
        block.clear();
        file.by_ref().take(block_end - block_start).read_to_end(&mut block)?;
        for (i, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let after = block_start + i as u64 + 1;
            if after == end {
                continue;
            }
            to_pass -= 1;
            if to_pass == 0 {
                return Ok(after);
            }
        }
        block_end = block_start;
    }
    Ok(0)
}

/// A file that grows, and how much of it was read.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) stream: Stream,
    pub(crate) path: PathBuf,
    /// Begin with the last lines that are there when the file is first seen.
    tail: Option<usize>,
    file: Option<File>,
    /// The part of a line that has come so far; for [`Cursor::complete_lines`].
    unfinished: Vec<u8>,
}

impl Cursor {
    pub(crate) fn new(stream: Stream, path: PathBuf, tail: Option<usize>) -> Self {
        Self { stream, path, tail, file: None, unfinished: Vec::new() }
    }

    /// What was added since the last time. A file that is not there yet has nothing in it.
    pub(crate) fn read_news(&mut self) -> io::Result<Vec<u8>> {
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
        let mut news = Vec::new();
        file.read_to_end(&mut news)?;
        Ok(news)
    }

    /// The lines that `news` completes; at the end also a last one without its newline.
    pub(crate) fn complete_lines(&mut self, news: &[u8], at_end: bool) -> Vec<String> {
        self.unfinished.extend_from_slice(news);
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
    use std::io::{Cursor as Bytes, Write as _};

    fn last(text: &str, lines: usize) -> String {
        let mut file = Bytes::new(text.as_bytes());
        skip_to_last_lines(&mut file, lines).unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        rest
    }

    #[test]
    fn the_last_lines() {
        for (text, lines, expected) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 2, "b\nc"),
            ("a\nb\nc\n", 9, "a\nb\nc\n"),
            ("a\nb\nc\n", 0, ""),
            ("a\n\n\n", 2, "\n\n"),
            ("", 3, ""),
            ("\n", 1, "\n"),
        ] {
            assert_eq!(last(text, lines), expected, "{text:?} {lines}");
        }
    }

    #[test]
    fn the_last_lines_of_a_long_file() {
        let lines: Vec<String> = (0..40_000).map(|i| format!("line {i}")).collect();
        let text = lines.join("\n") + "\n";
        assert_eq!(last(&text, 1), "line 39999\n");
        let many = last(&text, 20_000);
        assert!(many.starts_with("line 20000\n"));
        assert_eq!(many.lines().count(), 20_000);
    }

    #[test]
    fn news_of_a_growing_file_and_of_one_that_is_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("job.o");
        let mut cursor = Cursor::new(Stream::Stdout, path.clone(), Some(1));
        assert_eq!(cursor.read_news().unwrap(), b"");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\ntwo\n").unwrap();
        assert_eq!(cursor.read_news().unwrap(), b"two\n");
        assert_eq!(cursor.read_news().unwrap(), b"");
        file.write_all(b"three").unwrap();
        assert_eq!(cursor.read_news().unwrap(), b"three");
    }

    #[test]
    fn lines_are_given_when_they_are_complete() {
        let mut cursor = Cursor::new(Stream::Stdout, PathBuf::new(), None);
        assert_eq!(cursor.complete_lines("a\nb\u{e9}".as_bytes(), false), ["a"]);
        assert_eq!(cursor.complete_lines(b"", false), [""; 0]);
        assert_eq!(cursor.complete_lines(b"c\nd", true), ["b\u{e9}c", "d"]);
    }
}

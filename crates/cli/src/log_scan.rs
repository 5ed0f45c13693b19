//! Scans logs for known error patterns.

use crate::error::CliError;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use windlass_core::log_excerpt::{LogSeverity, find_possible_pattern};

/// Maximum number of findings per file: a loop that fails a million times has one cause.
const MAX_SIGNS_PER_FILE: usize = 20;
/// Longer lines are truncated: they are data rather than text.
const MAX_LINE_LENGTH: usize = 4096;
/// Read buffer size.
const CHUNK_SIZE: usize = 1 << 20;

/// The file itself, or all files in the directory and below, in order.
pub(crate) fn files_below(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let unreadable = |e: io::Error| CliError::user(format!("cannot read {}: {e}", path.display()));
    if !std::fs::metadata(path).map_err(unreadable)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut inner: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(unreadable)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(unreadable)?;
    inner.sort();
    // Symbolic links may form a cycle.
    inner.retain(|path| !path.is_symlink());
    let lists: Vec<Vec<PathBuf>> = inner.iter().map(|path| files_below(path)).collect::<Result<_, _>>()?;
    Ok(lists.into_iter().flatten().collect())
}

/// Matching lines, numbered from 1, with the matched pattern; the most severe if there are many. Repeated text
/// counts once.
pub(crate) fn find_signs<S>(
    mut reader: impl Read,
    sign_of: impl Fn(&str) -> Option<(LogSeverity, S)>,
) -> io::Result<Vec<(u64, S, String)>> {
    let mut search = LogScanner { sign_of, line: 1, found_signs: Vec::new() };
    let mut buffer = vec![0; CHUNK_SIZE];
    // This part of the buffer is the beginning of an incomplete line.
    let mut kept = 0;
    // The beginning of the line was already searched; the rest is skipped.
    let mut is_passing_over = false;
    loop {
        let read = read_some(&mut reader, &mut buffer[kept..])?;
        let text = &buffer[..kept + read];
        let mut begin = 0;
        if is_passing_over {
            begin = text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| at + 1);
            is_passing_over = begin == text.len() && !text.ends_with(b"\n");
            search.line += u64::from(!is_passing_over && begin > 0);
        }
        let is_end = read == 0;
        let whole = match text.iter().rposition(|byte| *byte == b'\n') {
            _ if is_end => text.len(),
            Some(at) => (at + 1).max(begin),
            None => begin,
        };
        search.scan_lines(&text[begin..whole]);
        if is_end {
            break;
        }
        if text.len() - whole >= MAX_LINE_LENGTH {
            search.scan_line(&text[whole..]);
            (kept, is_passing_over) = (0, true);
        } else {
            kept = text.len() - whole;
            buffer.copy_within(whole..whole + kept, 0);
        }
    }
    search.found_signs.sort_by_key(|found| found.line_number);
    Ok(search.found_signs.into_iter().map(|found| (found.line_number, found.sign, found.text)).collect())
}

fn read_some(reader: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

struct LogScanner<F, S> {
    sign_of: F,
    /// The number of the next line.
    line: u64,
    found_signs: Vec<FoundLogSign<S>>,
}

impl<S, F: Fn(&str) -> Option<(LogSeverity, S)>> LogScanner<F, S> {
    /// Whole lines; those that cannot match are only counted.
    fn scan_lines(&mut self, mut text: &[u8]) {
        while let Some(at) = find_possible_pattern(text) {
            let begin = text[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let rest = text[at..].iter().position(|byte| *byte == b'\n');
            let end = rest.map_or(text.len(), |rest| at + rest + 1);
            self.line += count_line_ends(&text[..begin]);
            self.scan_line(&text[begin..end]);
            self.line += u64::from(rest.is_some());
            text = &text[end..];
        }
        self.line += count_line_ends(text);
    }

    fn scan_line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(&line[..line.len().min(MAX_LINE_LENGTH)]);
        let line = line.trim();
        if self.found_signs.iter().any(|known| known.text == line) {
            return;
        }
        if let Some((weight, sign)) = (self.sign_of)(line) {
            keep_heaviest(
                &mut self.found_signs,
                FoundLogSign { line_number: self.line, weight, sign, text: line.to_owned() },
            );
        }
    }
}

#[expect(clippy::naive_bytecount, reason = "the compiler makes vector instructions of it")]
fn count_line_ends(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

struct FoundLogSign<S> {
    line_number: u64,
    weight: LogSeverity,
    sign: S,
    text: String,
}

/// Drops the least severe, earliest finding: the last lines of a log usually explain most.
fn keep_heaviest<S>(found: &mut Vec<FoundLogSign<S>>, new: FoundLogSign<S>) {
    found.push(new);
    if found.len() > MAX_SIGNS_PER_FILE
        && let Some(lightest) = (0..found.len()).min_by_key(|i| (found[*i].weight, found[*i].line_number))
    {
        found.remove(lightest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::log_excerpt::match_line;

    fn lines(text: &[u8]) -> Vec<(u64, &'static str)> {
        find_signs(text, |line| match_line(line).map(|sign| (sign.weight, sign)))
            .unwrap()
            .into_iter()
            .map(|(line, sign, _)| (line, sign.name))
            .collect()
    }

    #[test]
    fn line_numbers_are_correct_after_very_long_line() {
        let mut text = b"fine\n".to_vec();
        text.extend(b"x".repeat(10_000));
        text.extend(b"\n\xffPermission denied\nfine\nSegmentation fault");
        assert_eq!(lines(&text), [(3, "permission"), (5, "segmentation-fault")]);
    }

    /// Returns a few bytes per read, so that lines and words are split everywhere.
    struct ShortReads<'t>(&'t [u8], usize);

    impl Read for ShortReads<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let give = self.1.min(self.0.len()).min(into.len());
            into[..give].copy_from_slice(&self.0[..give]);
            self.0 = &self.0[give..];
            Ok(give)
        }
    }

    #[test]
    fn log_scan_is_independent_of_read_size() {
        let long = format!("x{}\n", "y".repeat(3 * MAX_LINE_LENGTH));
        let late = format!("{}error\n", "z".repeat(2 * MAX_LINE_LENGTH));
        let text = format!("fine\nan error\n{long}Killed\n{late}\n\n{long}disk quota exceeded");
        let known = |line: &str| match_line(line).map(|sign| (sign.weight, sign.name));
        for step in [1, 2, 7, 100, 4095, 4096, 4097, 10_000, text.len()] {
            let found = find_signs(ShortReads(text.as_bytes(), step), known).unwrap();
            let lines: Vec<u64> = found.iter().map(|(line, ..)| *line).collect();
            assert_eq!(lines, [2, 4, 9], "{step} bytes at a time");
        }
    }

    #[test]
    fn log_scan_drops_repetitions_and_keeps_heaviest_signs() {
        assert_eq!(lines(&b"No space left on device\n".repeat(1000)), [(1, "disk-full")]);
        let mut many = "x: command not found\n".to_owned();
        many.extend((0..1000).map(|i| format!("step {i} failed\n")));
        let found = lines(many.as_bytes());
        assert_eq!(found.len(), MAX_SIGNS_PER_FILE);
        assert_eq!(found[0], (1, "program-missing"));
        assert_eq!(found.last(), Some(&(1001, "failed")));
    }
}

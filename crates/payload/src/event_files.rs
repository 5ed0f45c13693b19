//! Event files: text, one event per line, `run lumi event`, then anything.

use crate::files::read_chunks;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use windlass_types::LumiMask;
use windlass_types::payload::EventWindow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLine<'a> {
    pub run: u64,
    pub lumi: u64,
    pub number: u64,
    pub rest: &'a str,
}

impl<'a> EventLine<'a> {
    pub fn parse(line: &'a str) -> Option<Self> {
        let (run, line) = parse_number(line)?;
        let (lumi, line) = parse_number(line)?;
        let (event, rest) = parse_number(line)?;
        Some(Self { run, lumi, number: event, rest })
    }
}

/// The leading number, and the text after the space that follows it.
fn parse_number(text: &str) -> Option<(u64, &str)> {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    // `parse` would accept a sign.
    if !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((word.parse().ok()?, rest))
}

/// The content of an event file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFileContents {
    pub events: u64,
    pub lumis: LumiMask,
}

/// Counts events in a stream of bytes without keeping them. A line that is not an event is skipped: a file is an
/// event file if it is text and has events, or is empty.
#[derive(Debug, Default)]
pub struct EventCounter {
    contents: EventFileContents,
    /// The beginning of an incomplete line; of a long line the first [`HEAD`] bytes.
    line: Vec<u8>,
    last: Option<(u64, u64)>,
    /// Some lines are not events.
    has_other_lines: bool,
    is_binary: bool,
}

/// Three numbers and their blanks fit into this.
const MAX_LINE_HEAD: usize = 64;

impl EventCounter {
    pub fn add(&mut self, bytes: &[u8]) {
        self.is_binary |= bytes.contains(&0);
        if self.is_binary {
            return;
        }
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        self.buffer_line(pieces.next().unwrap_or_default());
        for piece in pieces {
            self.end_line();
            self.buffer_line(piece);
        }
    }

    /// `None` if it is not an event file. An empty file is an event file without events.
    pub fn finish(mut self) -> Option<EventFileContents> {
        if !self.line.is_empty() {
            self.end_line();
        }
        let has_only_others = self.has_other_lines && self.contents.events == 0;
        (!self.is_binary && !has_only_others).then_some(self.contents)
    }

    fn buffer_line(&mut self, bytes: &[u8]) {
        let room = MAX_LINE_HEAD.saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self) {
        // A long line is cut behind its numbers, perhaps in the middle of a character.
        let text = String::from_utf8_lossy(&self.line);
        let Some(EventLine { run, lumi, .. }) = EventLine::parse(&text) else {
            self.has_other_lines = true;
            self.line.clear();
            return;
        };
        self.contents.events += 1;
        if self.last != Some((run, lumi)) {
            self.contents.lumis.insert(run, lumi);
            self.last = Some((run, lumi));
        }
        self.line.clear();
    }
}

/// The content of a file, if it is an event file.
pub fn read_contents(path: &Path) -> io::Result<Option<EventFileContents>> {
    let mut counter = EventCounter::default();
    read_chunks(path, |piece| {
        counter.add(piece);
        Ok(())
    })?;
    Ok(counter.finish())
}

/// The requested events of a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventSelection<'a> {
    pub events: Option<EventWindow>,
    pub lumis: Option<&'a LumiMask>,
}

impl EventSelection<'_> {
    /// `position` counts from 1.
    pub fn includes(&self, position: u64, run: u64, lumi: u64) -> bool {
        self.events.is_none_or(|window| (window.first..=window.last).contains(&position))
            && self.lumis.is_none_or(|mask| mask.contains(run, lumi))
    }
}

/// Why an event file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum EventReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("line {0} is not an event")]
    NoEvent(u64),
}

/// Passes the requested events of a file on, in order.
pub fn read_events(
    path: &Path,
    wanted: EventSelection<'_>,
    mut each: impl FnMut(EventLine<'_>) -> io::Result<()>,
) -> Result<(), EventReadError> {
    let mut reader = BufReader::with_capacity(64 * 1024, File::open(path)?);
    let mut line = String::new();
    for position in 1u64.. {
        if wanted.events.is_some_and(|window| position > window.last) {
            break;
        }
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            break;
        }
        let event = EventLine::parse(line.trim_end_matches('\n')).ok_or(EventReadError::NoEvent(position))?;
        if wanted.includes(position, event.run, event.lumi) {
            each(event)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "1 1 1 a\n1 1 2\n1 2 3 b c\n2 7 18446744073709551615 x\n";

    fn numbers(wanted: EventSelection<'_>) -> Vec<u64> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), TEXT).unwrap();
        let mut found = Vec::new();
        read_events(file.path(), wanted, |event| {
            found.push(event.number);
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn event_windows_and_lumi_masks_select_events() {
        assert_eq!(numbers(EventSelection::default()), [1, 2, 3, u64::MAX]);
        let events = Some(EventWindow { first: 2, last: 3 });
        assert_eq!(numbers(EventSelection { events, lumis: None }), [2, 3]);
        let mask = LumiMask::from([(1, vec![(2, 9)]), (2, vec![(7, 7)])]);
        assert_eq!(numbers(EventSelection { events: None, lumis: Some(&mask) }), [3, u64::MAX]);
        assert_eq!(numbers(EventSelection { events, lumis: Some(&mask) }), [3]);
    }

    #[test]
    fn event_count_is_independent_of_piece_size() {
        let long = format!("{TEXT}2 8 5 {}\n2 8 6", "y".repeat(1000));
        for size in [1, 2, 7, 64, 5000] {
            let mut counter = EventCounter::default();
            long.as_bytes().chunks(size).for_each(|piece| counter.add(piece));
            let contents = counter.finish().unwrap();
            assert_eq!(contents.events, 6, "pieces of {size}");
            assert_eq!(contents.lumis, LumiMask::from([(1, vec![(1, 2)]), (2, vec![(7, 8)])]));
        }
        assert_eq!(EventCounter::default().finish(), Some(EventFileContents::default()));
    }

    #[test]
    fn other_files_are_not_event_files() {
        for text in ["root\0\0\n1 1 1\n", "1 1\n", "1 1 x\n", "\n", "+1 1 1\n", "1 1 18446744073709551616\n"]
        {
            let mut counter = EventCounter::default();
            counter.add(text.as_bytes());
            assert_eq!(counter.finish(), None, "{text:?}");
        }
    }

    #[test]
    fn invalid_line_does_not_end_event_counting() {
        for (text, events) in [("1 1 1\n\n1 1 2\n", 2), ("# header\n1 1 1\n", 1), ("1 1 1\n1 1\n1 2 3", 2)] {
            for size in [1, 3, 100] {
                let mut counter = EventCounter::default();
                text.as_bytes().chunks(size).for_each(|piece| counter.add(piece));
                assert_eq!(counter.finish().map(|contents| contents.events), Some(events), "{text:?}");
            }
        }
    }
}

//! Follows a growing log from where it was last read.
//!
//! Only complete lines are returned: an incomplete one is read again by the next poll. A log that is shorter than
//! the part already read, or begins differently, was replaced, and is read from its beginning.

use super::cached_files::{FileStamp, none_if_missing};
use memchr::{memchr, memrchr};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

const CHUNK_BYTES: usize = 64 * 1024;
/// Text without an end after this many bytes is not a line and is skipped.
const MAX_LINE_BYTES: usize = 1024 * 1024;
/// The first bytes that identify a log: the time and the id of the DAGMan that started it.
const MARK_BYTES: usize = 48;

#[derive(Debug)]
pub(super) struct GrowingLogReader {
    path: PathBuf,
    offset: u64,
    stamp: Option<FileStamp>,
    mark: Vec<u8>,
}

pub(super) enum GrowingLogItem<'a> {
    /// The log was replaced: everything read before is void.
    Replaced,
    /// Without its line end, which is at `end`.
    Line { end: u64, text: &'a [u8] },
}

impl GrowingLogReader {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, stamp: None, mark: Vec::new() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How far it has been read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads the lines that were appended. A missing log is empty, and may reappear unchanged.
    pub(super) fn read_new(&mut self, mut take: impl FnMut(GrowingLogItem<'_>)) -> io::Result<()> {
        let Some(metadata) = none_if_missing(std::fs::metadata(&self.path))? else { return Ok(()) };
        let stamp = FileStamp::from_metadata(&metadata);
        if self.stamp == Some(stamp) {
            return Ok(());
        }
        let Some(file) = none_if_missing(File::open(&self.path))? else { return Ok(()) };
        if self.is_replaced(&file)? {
            self.offset = 0;
            self.mark.clear();
            take(GrowingLogItem::Replaced);
        }
        self.read_lines(&file, &mut take)?;
        self.remember_mark(&file)?;
        self.stamp = Some(stamp);
        Ok(())
    }

    fn is_replaced(&self, file: &File) -> io::Result<bool> {
        let mut beginning = vec![0; self.mark.len()];
        let length = read_at(file, &mut beginning, 0)?;
        Ok(beginning[..length] != self.mark || file.metadata()?.len() < self.offset)
    }

    fn remember_mark(&mut self, file: &File) -> io::Result<()> {
        let length = usize::try_from(self.offset).map_or(MARK_BYTES, |offset| offset.min(MARK_BYTES));
        if self.mark.len() < length {
            let mut mark = vec![0; length];
            let read = read_at(file, &mut mark, 0)?;
            mark.truncate(read);
            self.mark = mark;
        }
        Ok(())
    }

    fn read_lines(&mut self, file: &File, take: &mut impl FnMut(GrowingLogItem<'_>)) -> io::Result<()> {
        let mut bytes = vec![0; CHUNK_BYTES];
        loop {
            let length = read_at(file, &mut bytes, self.offset)?;
            let read = &bytes[..length];
            match memrchr(b'\n', read) {
                Some(last) => self.take_lines(&read[..=last], take),
                None if length < bytes.len() => return Ok(()),
                None if length >= MAX_LINE_BYTES => self.offset += length as u64,
                None => bytes.resize(bytes.len() * 2, 0),
            }
        }
    }

    /// `lines` ends with the end of a line.
    fn take_lines(&mut self, mut lines: &[u8], take: &mut impl FnMut(GrowingLogItem<'_>)) {
        while let Some(end) = memchr(b'\n', lines) {
            self.offset += end as u64 + 1;
            take(GrowingLogItem::Line { end: self.offset, text: &lines[..end] });
            lines = &lines[end + 1..];
        }
    }
}

/// Reads up to the length of the buffer or the end of the file.
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::OpenOptions;
    use std::io::Write as _;

    struct Reader {
        tail: GrowingLogReader,
        lines: Vec<(u64, Vec<u8>)>,
        anew: usize,
    }

    impl Reader {
        fn new(path: &Path) -> Self {
            Self { tail: GrowingLogReader::new(path.to_owned()), lines: Vec::new(), anew: 0 }
        }

        fn look(&mut self) {
            let Self { tail, lines, anew } = self;
            let take = |piece: GrowingLogItem<'_>| match piece {
                GrowingLogItem::Replaced => {
                    lines.clear();
                    *anew += 1;
                }
                GrowingLogItem::Line { end, text } => lines.push((end, text.to_vec())),
            };
            tail.read_new(take).unwrap();
        }
    }

    fn append(path: &Path, text: &[u8]) {
        OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text).unwrap();
    }

    #[test]
    fn incomplete_line_waits_for_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut reader = Reader::new(&path);
        reader.look();
        append(&path, b"one\ntw");
        reader.look();
        reader.look();
        assert_eq!(reader.lines, [(4, b"one".to_vec())]);
        append(&path, b"o\n");
        reader.look();
        assert_eq!(reader.lines[1..], [(8, b"two".to_vec())]);
        assert_eq!((reader.tail.offset(), reader.anew), (8, 0));
    }

    #[test]
    fn replaced_log_is_read_from_its_beginning() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut reader = Reader::new(&path);
        append(&path, b"one\ntwo\n");
        reader.look();
        // Longer than before: only its beginning shows that it was replaced.
        std::fs::write(&path, b"three\nfour\nfive\n").unwrap();
        reader.look();
        assert_eq!((reader.lines.len(), reader.anew), (3, 1));
        std::fs::write(&path, b"three\n").unwrap();
        reader.look();
        assert_eq!((reader.lines.len(), reader.anew), (1, 2), "shorter than the part already read");
        std::fs::remove_file(&path).unwrap();
        reader.look();
        append(&path, b"three\nfour\n");
        reader.look();
        assert_eq!((reader.lines.len(), reader.anew), (2, 2), "it was missing and is back");
    }

    #[test]
    fn oversized_line_is_skipped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        append(&path, &vec![b'x'; MAX_LINE_BYTES + 10]);
        append(&path, b"\none\n");
        let mut reader = Reader::new(&path);
        reader.look();
        assert_eq!(reader.lines.last().map(|(_, line)| line.as_slice()), Some(b"one".as_slice()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn reading_in_pieces_equals_reading_at_once(
            pieces in prop::collection::vec(prop::collection::vec(prop::sample::select(b"ab\n".to_vec()), 0..30), 0..20),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            let mut reader = Reader::new(&path);
            for piece in &pieces {
                append(&path, piece);
                reader.look();
            }
            let mut whole = Reader::new(&path);
            whole.look();
            prop_assert_eq!(&reader.lines, &whole.lines);
            prop_assert_eq!(reader.anew, 0);
        }
    }
}

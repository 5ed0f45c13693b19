//! Reads the end of a log, within limits.
//!
//! The user who runs jobs writes their logs, and the reader may be another user: a server reads for its
//! callers. So a log is read only if it is a regular file with a single link, not a link to a file that the
//! reader may read and the caller may not, and never one that blocks.

use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

const BLOCK_BYTES: u64 = 64 * 1024;

/// Moves to the start of the last `lines` lines. A last line without its newline counts.
pub fn skip_to_last_lines(file: &mut (impl Read + Seek), lines: usize) -> io::Result<()> {
    let end = file.seek(SeekFrom::End(0))?;
    let start = find_last_lines_start(file, end, lines)?;
    file.seek(SeekFrom::Start(start)).map(|_| ())
}

fn find_last_lines_start(file: &mut (impl Read + Seek), end: u64, lines: usize) -> io::Result<u64> {
    if lines == 0 {
        return Ok(end);
    }
    // The newline that ends the last line does not start another one.
    let mut to_pass = lines;
    let mut block_end = end;
    let mut block = Vec::new();
    while block_end > 0 {
        let block_start = block_end.saturating_sub(BLOCK_BYTES);
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

/// The last lines of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFileTail {
    pub text: String,
    /// Size of the whole file.
    pub bytes: u64,
    /// Number of lines before; `None`: the file is too long to count them.
    pub skipped_lines: Option<usize>,
}

/// Maximum size of a file whose lines are counted.
const MAX_COUNTED_BYTES: u64 = 256 << 20;

/// Reads the last lines of a file, at most the last `bytes`. `None`: no such file.
pub fn read_log_tail(path: &Path, lines: usize, bytes: u64) -> io::Result<Option<LogFileTail>> {
    let mut file = match open_plain_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let end = file.seek(SeekFrom::End(0))?;
    let start = find_last_lines_start(&mut file, end, lines)?.max(end.saturating_sub(bytes));
    file.seek(SeekFrom::Start(start))?;
    let mut text = Vec::new();
    file.by_ref().take(end - start).read_to_end(&mut text)?;
    let skipped_lines = if start <= MAX_COUNTED_BYTES { Some(count_lines(&mut file, start)?) } else { None };
    Ok(Some(LogFileTail { text: String::from_utf8_lossy(&text).into_owned(), bytes: end, skipped_lines }))
}

/// Opens a regular file with a single link.
fn open_plain_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() && meta.nlink() <= 1 {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file, or it has several links"))
}

fn count_lines(file: &mut (impl Read + Seek), end: u64) -> io::Result<usize> {
    file.seek(SeekFrom::Start(0))?;
    let mut rest = file.take(end);
    let mut buffer = vec![0; 64 * 1024];
    let mut lines = 0;
    loop {
        match rest.read(&mut buffer)? {
            0 => return Ok(lines),
            n => lines += buffer[..n].split(|byte| *byte == b'\n').count() - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor as Bytes;

    fn last(text: &str, lines: usize) -> String {
        let mut file = Bytes::new(text.as_bytes());
        skip_to_last_lines(&mut file, lines).unwrap();
        let mut rest = String::new();
        file.read_to_string(&mut rest).unwrap();
        rest
    }

    #[test]
    fn last_lines_of_log_are_returned() {
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
    fn last_lines_of_long_file_are_returned() {
        let lines: Vec<String> = (0..40_000).map(|i| format!("line {i}")).collect();
        let text = lines.join("\n") + "\n";
        assert_eq!(last(&text, 1), "line 39999\n");
        let many = last(&text, 20_000);
        assert!(many.starts_with("line 20000\n"));
        assert_eq!(many.lines().count(), 20_000);
    }

    #[test]
    fn log_tail_is_read_within_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("job.e");
        assert_eq!(read_log_tail(&path, 5, 1000).unwrap(), None);
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        let tail = read_log_tail(&path, 2, 1000).unwrap().unwrap();
        assert_eq!(tail, LogFileTail { text: "two\nthree\n".to_owned(), bytes: 14, skipped_lines: Some(1) });
        assert_eq!(read_log_tail(&path, 9, 6).unwrap().unwrap().text, "three\n");
    }

    #[test]
    fn log_tail_rejects_links_and_special_files() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "s3same").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        assert!(read_log_tail(&link, 5, 1000).is_err());
        let twin = dir.path().join("twin");
        std::fs::hard_link(&secret, &twin).unwrap();
        assert!(read_log_tail(&twin, 5, 1000).is_err());
        assert!(read_log_tail(dir.path(), 5, 1000).is_err());
    }
}

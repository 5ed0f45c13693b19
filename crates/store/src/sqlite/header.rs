//! Reads the file header without SQLite, for files that are too short or that SQLite has rejected.
//!
//! Must not be called while this process has the same intact database open: closing any descriptor of a file
//! drops the locks that SQLite holds on it.

use crate::StoreError;
use std::fs::File;
use std::io::Read;
use std::path::Path;

const HEADER_LENGTH: usize = 100;
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Rejects a file that is too short for a header. SQLite would treat some of them as empty databases.
pub(crate) fn refuse_short_file(path: &Path, length: u64) -> Result<(), StoreError> {
    if length >= HEADER_LENGTH as u64 {
        return Ok(());
    }
    let start = std::fs::read(path).map_err(|e| StoreError::file("read", path, e))?;
    let common = start.len().min(MAGIC.len());
    if start[..common] == MAGIC[..common] {
        Err(StoreError::Truncated { path: path.to_owned(), found: length, expected: None })
    } else {
        Err(StoreError::NotADatabase { path: path.to_owned() })
    }
}

/// Returns an error if the file is shorter than its header states, or too short for a header.
pub(crate) fn find_truncation(path: &Path) -> Option<StoreError> {
    let found = path.metadata().ok()?.len();
    let mut start = Vec::with_capacity(HEADER_LENGTH);
    File::open(path).ok()?.take(HEADER_LENGTH as u64).read_to_end(&mut start).ok()?;
    let expected = expected_length(&start);
    let short = expected.is_none_or(|expected| found < expected);
    short.then(|| StoreError::Truncated { path: path.to_owned(), found, expected })
}

/// Page size times number of pages.
fn expected_length(start: &[u8]) -> Option<u64> {
    let page_size = match u16::from_be_bytes(start.get(16..18)?.try_into().ok()?) {
        1 => 65536,
        other => u64::from(other),
    };
    let page_count = u32::from_be_bytes(start.get(28..32)?.try_into().ok()?);
    (start.len() == HEADER_LENGTH).then(|| page_size * u64::from(page_count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_gives_the_database_length() {
        let mut start = vec![0; HEADER_LENGTH];
        start[16..18].copy_from_slice(&4096u16.to_be_bytes());
        start[28..32].copy_from_slice(&3u32.to_be_bytes());
        assert_eq!(expected_length(&start), Some(3 * 4096));
        start[16..18].copy_from_slice(&1u16.to_be_bytes());
        assert_eq!(expected_length(&start), Some(3 * 65536));
        assert_eq!(expected_length(&start[..50]), None);
    }
}

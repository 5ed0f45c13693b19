//! Files of other processes, read again only when they have changed.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Identifies the version of a file. DAGMan replaces its files, so the inode changes with the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl FileStamp {
    pub(super) fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// The content of a file when it was last read.
#[derive(Clone, Debug)]
pub(super) struct CachedFile<T> {
    stamp: Option<FileStamp>,
    value: Option<T>,
}

impl<T> Default for CachedFile<T> {
    fn default() -> Self {
        Self { stamp: None, value: None }
    }
}

impl<T> CachedFile<T> {
    pub(super) fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// True if the value has changed. A missing or invalid file has no value.
    pub(super) fn refresh(
        &mut self,
        path: &Path,
        read: impl FnOnce(&Path) -> io::Result<Option<T>>,
    ) -> io::Result<bool> {
        // The stamp first: if the file changes in between, the next poll reads it once more.
        let stamp = read_stamp(path)?;
        if stamp == self.stamp {
            return Ok(false);
        }
        self.value = if stamp.is_some() { read(path)? } else { None };
        self.stamp = stamp;
        Ok(true)
    }
}

/// `None` if there is no such file. All other problems are errors, from which nothing may be concluded.
fn read_stamp(path: &Path) -> io::Result<Option<FileStamp>> {
    Ok(none_if_missing(std::fs::metadata(path))?.map(|metadata| FileStamp::from_metadata(&metadata)))
}

pub(super) fn none_if_missing<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A whole file. Empty if it was deleted.
pub(super) fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    Ok(none_if_missing(std::fs::read(path))?.unwrap_or_default())
}

/// The beginning of a file, read with one call.
pub(super) fn read_beginning(path: &Path, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    if let Some(file) = none_if_missing(File::open(path))? {
        file.take(length as u64).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// The end of a file.
pub(super) fn read_end(path: &Path, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut file) = none_if_missing(File::open(path))? {
        let whole = file.metadata()?.len();
        file.seek(SeekFrom::Start(whole.saturating_sub(length)))?;
        file.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_file_is_not_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut remembered = CachedFile::default();
        let mut refresh = |reads: bool| {
            let read = |path: &Path| {
                assert!(reads, "it has not changed");
                Ok(Some(read_whole(path)?))
            };
            remembered.refresh(&path, read).unwrap();
            remembered.get().cloned()
        };
        assert_eq!(refresh(false), None);
        std::fs::write(&path, "one").unwrap();
        assert_eq!(refresh(true).as_deref(), Some(b"one".as_slice()));
        assert_eq!(refresh(false).as_deref(), Some(b"one".as_slice()));
        let next = directory.path().join("next");
        std::fs::write(&next, "two").unwrap();
        std::fs::rename(next, &path).unwrap();
        assert_eq!(refresh(true).as_deref(), Some(b"two".as_slice()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(refresh(false), None);
    }

    #[test]
    fn unreadable_file_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let below_a_file = file.join("status");
        assert!(CachedFile::<()>::default().refresh(&below_a_file, |_| Ok(None)).is_err());
        assert_eq!(read_beginning(&directory.path().join("nothing"), 5).unwrap(), b"");
        std::fs::write(&file, "0123456789").unwrap();
        assert_eq!(read_beginning(&file, 5).unwrap(), b"01234");
        assert_eq!(read_end(&file, 5).unwrap(), b"56789");
        assert_eq!(read_end(&file, 50).unwrap(), b"0123456789");
    }
}

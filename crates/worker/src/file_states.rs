//! The states of an attempt's files before and after it, so that a later run can detect changes.
//!
//! Contents are read only where the workflow requests it, and a file that many jobs use is read once: its
//! digest is cached with its modification time and size. A directory is represented by its contents, see
//! [`directory_state`].

mod directory_state;

use crate::lock_ignoring_poison;
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use windlass_types::worker_messages::FileSnapshot;
use windlass_types::{ContentHasher, SystemClock};

/// The size of one read.
const READ_SIZE: usize = 1 << 17;
/// The number of cached digests. Few files are shared by many jobs.
const MAX_CACHED_DIGESTS: usize = 4096;
/// A file may change again within this time without a new modification time, because file system clocks are
/// coarse.
const SETTLED_AFTER_NS: i64 = 2_000_000_000;

/// Inspects files relative to the working directory of the jobs.
#[derive(Debug)]
pub struct FileInspector {
    directory: PathBuf,
    clock: SystemClock,
    cached_digests: Mutex<HashMap<PathBuf, CachedDigest>>,
}

#[derive(Debug)]
struct CachedDigest {
    fingerprint: FileFingerprint,
    hash: String,
}

/// Metadata that changes when a file does, unless it is restored on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileFingerprint {
    device: u64,
    inode: u64,
    mtime_ns: i64,
    size: u64,
}

impl FileFingerprint {
    fn from_metadata(metadata: &Metadata) -> Self {
        let mtime_ns = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
        Self { device: metadata.dev(), inode: metadata.ino(), mtime_ns, size: metadata.len() }
    }
}

impl FileInspector {
    pub fn new(directory: PathBuf, clock: SystemClock) -> Self {
        Self { directory, clock, cached_digests: Mutex::default() }
    }

    /// The states in the order given; `None` for missing files.
    pub fn inspect_files(&self, paths: &[String], with_contents: bool) -> Vec<Option<FileSnapshot>> {
        paths.iter().map(|path| self.inspect_file(self.directory.join(path), with_contents)).collect()
    }

    fn inspect_file(&self, path: PathBuf, with_contents: bool) -> Option<FileSnapshot> {
        let metadata = fs::metadata(&path).ok()?;
        if metadata.is_dir() {
            return Some(directory_state::inspect_directory(self, &path, &metadata, with_contents));
        }
        let stamp = FileFingerprint::from_metadata(&metadata);
        Some(FileSnapshot {
            mtime_ns: stamp.mtime_ns,
            size: stamp.size,
            hash: self.digest_if_wanted(path, &metadata, with_contents),
        })
    }

    /// The digest of the contents, if wanted. Unreadable files are compared by time and size only.
    fn digest_if_wanted(&self, path: PathBuf, metadata: &Metadata, wanted: bool) -> Option<String> {
        if wanted && metadata.is_file() {
            self.cached_hash(path, FileFingerprint::from_metadata(metadata)).ok()
        } else {
            None
        }
    }

    fn cached_hash(&self, path: PathBuf, stamp: FileFingerprint) -> io::Result<String> {
        if let Some(known) =
            lock_ignoring_poison(&self.cached_digests).get(&path).filter(|known| known.fingerprint == stamp)
        {
            return Ok(known.hash.clone());
        }
        let hash = hash_contents(&path)?;
        let now_ns = self.clock.now().0.saturating_mul(1000);
        if now_ns.saturating_sub(stamp.mtime_ns) > SETTLED_AFTER_NS {
            let mut known = lock_ignoring_poison(&self.cached_digests);
            if known.len() >= MAX_CACHED_DIGESTS {
                known.clear();
            }
            known.insert(path, CachedDigest { fingerprint: stamp, hash: hash.clone() });
        }
        Ok(hash)
    }
}

fn hash_contents(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut chunk = vec![0; READ_SIZE];
    let mut digest = ContentHasher::default();
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(digest.finish()),
            Ok(length) => digest.add(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    fn fixture() -> (tempfile::TempDir, FileInspector) {
        let directory = tempfile::tempdir().unwrap();
        let files = FileInspector::new(directory.path().to_owned(), SystemClock);
        (directory, files)
    }

    fn age(path: &Path, seconds: u64) {
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds);
        File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
    }

    #[test]
    fn states_have_time_and_size_and_missing_files_none() {
        let (directory, files) = fixture();
        fs::write(directory.path().join("a"), "12345").unwrap();
        age(&directory.path().join("a"), 0);
        let absolute = directory.path().join("a").display().to_string();
        let seen = files.inspect_files(&["a".into(), "b".into(), absolute], false);
        let a = FileSnapshot { mtime_ns: 1_000_000_000_000_000, size: 5, hash: None };
        assert_eq!(seen, [Some(a.clone()), None, Some(a)]);
    }

    #[test]
    fn a_digest_is_cached_until_the_file_changes() {
        let (directory, files) = fixture();
        let path = directory.path().join("a");
        let hash = || files.inspect_files(&["a".into()], true).remove(0).unwrap().hash.unwrap();
        let long = "x".repeat(READ_SIZE + 17);
        fs::write(&path, &long).unwrap();
        age(&path, 0);
        assert_eq!(hash(), windlass_types::digest_bytes(long.as_bytes()));
        assert_eq!(lock_ignoring_poison(&files.cached_digests).len(), 1);
        age(&path, 1);
        assert_eq!(hash(), windlass_types::digest_bytes(long.as_bytes()), "touched, not changed");
        fs::write(&path, "other").unwrap();
        age(&path, 2);
        assert_eq!(hash(), windlass_types::digest_bytes(b"other"));
    }

    #[test]
    fn a_file_that_has_just_changed_is_read_again() {
        let (directory, files) = fixture();
        fs::write(directory.path().join("a"), "1").unwrap();
        files.inspect_files(&["a".into()], true);
        assert!(lock_ignoring_poison(&files.cached_digests).is_empty());
    }
}

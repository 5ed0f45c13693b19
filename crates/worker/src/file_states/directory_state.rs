//! The state of a directory used as an input or output, with everything below it.
//!
//! Without digests: the newest modification time and the total size; with digests: a digest of names and
//! contents. Links are followed, each directory once, so that cycles end.

use super::{FileFingerprint, FileInspector};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use windlass_types::ContentHasher;
use windlass_types::worker_messages::FileSnapshot;

/// The largest number of entries that is inspected for every attempt.
const MAX_ENTRIES: usize = 200_000;

/// The state of a directory. One with too many entries gets a different state each time, because changes cannot
/// be excluded.
pub(super) fn inspect_directory(
    files: &FileInspector,
    path: &Path,
    metadata: &Metadata,
    with_contents: bool,
) -> FileSnapshot {
    inspect_directory_up_to(files, path, metadata, with_contents, MAX_ENTRIES)
}

fn inspect_directory_up_to(
    files: &FileInspector,
    path: &Path,
    metadata: &Metadata,
    with_contents: bool,
    most: usize,
) -> FileSnapshot {
    let mut walk = DirectoryWalk {
        files,
        with_contents,
        entries_left: most,
        visited: HashSet::default(),
        newest_ns: 0,
        size: 0,
        digest: ContentHasher::default(),
    };
    if walk.visit_directory(path, metadata).is_none() {
        return FileSnapshot {
            mtime_ns: files.clock.now().0.saturating_mul(1000),
            size: walk.size,
            hash: None,
        };
    }
    let hash = with_contents.then(|| walk.digest.finish());
    FileSnapshot { mtime_ns: walk.newest_ns, size: walk.size, hash }
}

struct DirectoryWalk<'f> {
    files: &'f FileInspector,
    with_contents: bool,
    /// Remaining number of entries.
    entries_left: usize,
    /// Device and inode of the directories visited.
    visited: HashSet<(u64, u64)>,
    newest_ns: i64,
    size: u64,
    digest: ContentHasher,
}

impl DirectoryWalk<'_> {
    /// `None` if there are too many entries.
    fn visit_directory(&mut self, path: &Path, metadata: &Metadata) -> Option<()> {
        self.newest_ns = self.newest_ns.max(FileFingerprint::from_metadata(metadata).mtime_ns);
        if !self.visited.insert((metadata.dev(), metadata.ino())) {
            return Some(());
        }
        // An unreadable directory is represented by its time.
        let Ok(entries) = fs::read_dir(path) else { return Some(()) };
        let mut names: Vec<OsString> = Vec::new();
        for entry in entries.flatten() {
            self.entries_left = self.entries_left.checked_sub(1)?;
            names.push(entry.file_name());
        }
        names.sort_unstable();
        for name in names {
            self.add_to_digest(name.as_bytes());
            self.visit_entry(&path.join(name))?;
        }
        // Marks the end of the directory, so that what follows is not taken for a part of it.
        self.add_to_digest(b"");
        Some(())
    }

    fn visit_entry(&mut self, path: &Path) -> Option<()> {
        let Ok(metadata) = fs::metadata(path).or_else(|_| fs::symlink_metadata(path)) else {
            // Removed in the meantime.
            return Some(());
        };
        if metadata.is_dir() {
            return self.visit_directory(path, &metadata);
        }
        let stamp = FileFingerprint::from_metadata(&metadata);
        self.newest_ns = self.newest_ns.max(stamp.mtime_ns);
        self.size = self.size.saturating_add(stamp.size);
        if self.with_contents {
            let contents = self.files.digest_if_wanted(path.to_owned(), &metadata, true);
            let contents = contents.unwrap_or_else(|| format!("{} {}", stamp.mtime_ns, stamp.size));
            self.add_to_digest(contents.as_bytes());
        }
        Some(())
    }

    /// Adds a text with its length, so that adjacent texts stay distinct.
    fn add_to_digest(&mut self, text: &[u8]) {
        if self.with_contents {
            self.digest.add(&text.len().to_le_bytes());
            self.digest.add(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, SystemTime};
    use windlass_types::SystemClock;

    struct Fixture {
        directory: tempfile::TempDir,
        files: FileInspector,
    }

    impl Fixture {
        /// Creates `d/f`, `d/sub/g` and a cycle, all with the same time.
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let files = FileInspector::new(directory.path().to_owned(), SystemClock);
            let fixture = Self { directory, files };
            fs::create_dir_all(fixture.path("d/sub")).unwrap();
            symlink("..", fixture.path("d/sub/up")).unwrap();
            fixture.write("d/f", "12345", 0);
            fixture.write("d/sub/g", "678", 0);
            fixture.settle();
            fixture
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.directory.path().join(name)
        }

        fn write(&self, name: &str, text: &str, seconds: u64) {
            fs::write(self.path(name), text).unwrap();
            self.age(name, seconds);
        }

        fn age(&self, name: &str, seconds: u64) {
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds);
            File::open(self.path(name)).unwrap().set_modified(then).unwrap();
        }

        /// Resets the times of the directories.
        fn settle(&self) {
            self.age("d/sub", 0);
            self.age("d", 0);
        }

        fn see(&self, with_contents: bool) -> FileSnapshot {
            self.files.inspect_files(&["d".into()], with_contents).remove(0).unwrap()
        }
    }

    #[test]
    fn a_change_anywhere_inside_is_a_change() {
        let fixture = Fixture::new();
        let (by_time, by_contents) = (fixture.see(false), fixture.see(true));
        assert_eq!(by_time, FileSnapshot { mtime_ns: 1_000_000_000_000_000, size: 8, hash: None });
        assert_eq!((fixture.see(false), fixture.see(true)), (by_time.clone(), by_contents.clone()));
        fixture.write("d/sub/g", "679", 9);
        assert_eq!(fixture.see(false).mtime_ns, 1_000_009_000_000_000);
        assert_ne!(fixture.see(true).hash, by_contents.hash);
        fixture.write("d/sub/g", "678", 10);
        assert_eq!(fixture.see(true).hash, by_contents.hash, "only touched");
        // Swapping contents between names must be detected.
        fixture.write("d/f", "678", 0);
        fixture.write("d/sub/g", "12345", 0);
        assert_eq!(fixture.see(false), by_time, "times and sizes do not differ");
        assert_ne!(fixture.see(true).hash, by_contents.hash);
    }

    #[test]
    fn names_and_paths_are_part_of_the_digest() {
        let fixture = Fixture::new();
        let before = fixture.see(true).hash;
        fs::rename(fixture.path("d/f"), fixture.path("d/e")).unwrap();
        let renamed = fixture.see(true).hash;
        fs::rename(fixture.path("d/e"), fixture.path("d/sub/f")).unwrap();
        let moved = fixture.see(true).hash;
        assert!(before != renamed && renamed != moved && moved != before);
        fs::remove_file(fixture.path("d/sub/f")).unwrap();
        assert!(fixture.see(false).mtime_ns > 1_000_000_000_000_000, "a removed file changes the state");
    }

    #[test]
    fn targets_of_links_are_part_of_the_state() {
        let fixture = Fixture::new();
        fixture.write("outside", "1", 0);
        symlink(fixture.path("outside"), fixture.path("d/link")).unwrap();
        symlink("nowhere", fixture.path("d/broken")).unwrap();
        fixture.settle();
        let before = fixture.see(true).hash;
        fixture.write("outside", "2", 1);
        assert_ne!(fixture.see(true).hash, before);
    }

    #[test]
    fn a_directory_with_too_many_entries_always_differs() {
        let fixture = Fixture::new();
        let metadata = fs::metadata(fixture.path("d")).unwrap();
        let see = |most| inspect_directory_up_to(&fixture.files, &fixture.path("d"), &metadata, true, most);
        assert_eq!(see(4), fixture.see(true));
        let cut = see(3);
        assert_eq!(cut.hash, None);
        assert!(cut.mtime_ns > 1_600_000_000_000_000_000, "the time of inspection");
    }
}

//! Local files for the catalog: finds them and reads each once to determine its content.

use crate::args::catalog::EventCountSourceArg;
use crate::error::CliError;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use windlass_payload::event_files::EventLine;
use windlass_payload::files::{FileChecksum, read_chunks};
use windlass_types::catalog::{CatalogFile, FileLumi};

/// How the events of a file are determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventCounting {
    Given(u64),
    From(EventCountSourceArg),
}

/// A file, and its name relative to the argument that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScannedFile {
    pub(super) path: PathBuf,
    /// Components separated by `/`.
    pub(super) relative: String,
    pub(super) size: u64,
}

/// All files that the arguments name, in order.
pub(super) fn find_files(cwd: &Path, words: &[String]) -> Result<Vec<ScannedFile>, CliError> {
    let mut found = Vec::new();
    for word in words {
        let matching = if fs::symlink_metadata(cwd.join(word)).is_ok() {
            vec![cwd.join(word)]
        } else {
            expand_pattern(cwd, word)
        };
        if matching.is_empty() {
            let hint = if is_pattern(word) { "no file matches" } else { "no such file or directory" };
            return Err(CliError::user(format!("`{word}`: {hint}")));
        }
        for path in matching {
            let path = path.canonicalize().map_err(|error| read_error(&path, &error))?;
            if path.is_dir() {
                walk_directory(&path, "", &mut found)?;
            } else {
                let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
                found.push(scan_file(path, name.unwrap_or_default())?);
            }
        }
    }
    found.dedup_by(|a, b| a.path == b.path);
    Ok(found)
}

fn read_error(path: &Path, error: &io::Error) -> CliError {
    CliError::io(format!("cannot read {}: {error}", path.display()))
}

fn scan_file(path: PathBuf, relative: String) -> Result<ScannedFile, CliError> {
    let size = fs::metadata(&path).map_err(|error| read_error(&path, &error))?.len();
    Ok(ScannedFile { path, relative, size })
}

/// Names that begin with a dot are private or temporary files.
fn walk_directory(directory: &Path, below: &str, found: &mut Vec<ScannedFile>) -> Result<(), CliError> {
    let wrong = |error| read_error(directory, &error);
    let entries = fs::read_dir(directory).map_err(wrong)?.collect::<io::Result<Vec<_>>>().map_err(wrong)?;
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    names.sort();
    for path in names {
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else { continue };
        if name.starts_with('.') {
            continue;
        }
        let relative = if below.is_empty() { name } else { format!("{below}/{name}") };
        let kind = fs::symlink_metadata(&path).map_err(|error| read_error(&path, &error))?;
        if kind.is_dir() {
            walk_directory(&path, &relative, found)?;
        } else if path.is_file() {
            found.push(scan_file(path, relative)?);
        }
    }
    Ok(())
}

fn is_pattern(word: &str) -> bool {
    word.contains(['*', '?'])
}

/// Expands a pattern component by component; each may contain `*` and `?`.
fn expand_pattern(cwd: &Path, pattern: &str) -> Vec<PathBuf> {
    let (start, rest) = match pattern.strip_prefix('/') {
        Some(rest) => (PathBuf::from("/"), rest),
        None => (cwd.to_owned(), pattern),
    };
    let mut paths = vec![start];
    for part in rest.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for path in paths {
            if !is_pattern(part) {
                next.push(path.join(part));
                continue;
            }
            // Without a directory there is no match.
            let Ok(entries) = fs::read_dir(&path) else { continue };
            let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
            let visible = names.filter(|name| !name.starts_with('.') && matches_pattern(part, name));
            next.extend(visible.map(|name| path.join(name)));
        }
        next.sort();
        paths = next;
    }
    paths.retain(|path| path.exists());
    paths
}

/// Whether a name matches a pattern: `*` matches any text, `?` any one character.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where to continue if the text after the last `*` does not match.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match retry {
                Some((after, from)) => {
                    (p, n) = (after, from + 1);
                    retry = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Reads all files, several in parallel. Reports all unusable files at once.
pub(super) fn read_files(
    found: &[ScannedFile],
    counting: EventCounting,
    describe: impl Fn(&ScannedFile) -> CatalogFile + Sync,
    read_bytes: &AtomicU64,
) -> Result<Vec<CatalogFile>, Vec<String>> {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(8);
    let work = || {
        let mut done = Vec::new();
        while let Some(file) = found.get(next.fetch_add(1, Ordering::Relaxed)) {
            let index = next.load(Ordering::Relaxed);
            let outcome =
                read_file(file, counting, read_bytes).map(|contents| add_contents(describe(file), contents));
            done.push((file.path.clone(), index, outcome));
        }
        done
    };
    let mut done = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect::<Vec<_>>()
    });
    done.sort_by(|a, b| a.0.cmp(&b.0));
    let (mut files, mut faults) = (Vec::with_capacity(done.len()), Vec::new());
    for (path, _, outcome) in done {
        match outcome {
            Ok(file) => files.push(file),
            Err(fault) => faults.push(format!("{}: {fault}", path.display())),
        }
    }
    if faults.is_empty() { Ok(files) } else { Err(faults) }
}

struct FileContents {
    sum: FileChecksum,
    events: u64,
    lumis: Vec<FileLumi>,
}

fn add_contents(file: CatalogFile, contents: FileContents) -> CatalogFile {
    CatalogFile {
        size: contents.sum.size,
        events: contents.events,
        checksums: [("adler32".to_owned(), contents.sum.adler32())].into(),
        lumis: contents.lumis,
        ..file
    }
}

fn read_file(
    file: &ScannedFile,
    counting: EventCounting,
    read_bytes: &AtomicU64,
) -> Result<FileContents, String> {
    let mut sum = FileChecksum::default();
    let mut lines = EventLineParser::default();
    read_chunks(&file.path, |piece| {
        sum.add(piece);
        if counting == EventCounting::From(EventCountSourceArg::Events)
            || counting == EventCounting::From(EventCountSourceArg::Lines)
        {
            lines.add_bytes(piece);
        }
        read_bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
        Ok(())
    })
    .map_err(|error| error.to_string())?;
    let (events, lumis) = match counting {
        EventCounting::Given(events) => (events, Vec::new()),
        EventCounting::From(EventCountSourceArg::None) => (1, Vec::new()),
        EventCounting::From(EventCountSourceArg::Lines) => (lines.finish().count, Vec::new()),
        EventCounting::From(EventCountSourceArg::Events) => lines.finish().into_events()?,
    };
    Ok(FileContents { sum, events, lumis })
}

/// Counts lines, and events by run and lumi, in a stream of bytes.
#[derive(Debug, Default)]
struct EventLineParser {
    /// The beginning of an incomplete line.
    partial_line: Vec<u8>,
    /// Whether bytes came after the end of the last line.
    has_partial_line: bool,
    count: u64,
    lumis: BTreeMap<(u32, u32), u32>,
    last_lumi: Option<(u32, u32)>,
    error: Option<String>,
}

/// Long enough for three numbers with blanks.
const LINE_HEAD_LENGTH: usize = 64;

impl EventLineParser {
    fn add_bytes(&mut self, bytes: &[u8]) {
        let mut pieces = bytes.split(|byte| *byte == b'\n');
        self.keep_partial(pieces.next().unwrap_or_default());
        for piece in pieces {
            self.end_line();
            self.keep_partial(piece);
        }
    }

    fn keep_partial(&mut self, bytes: &[u8]) {
        self.has_partial_line |= !bytes.is_empty();
        let room = LINE_HEAD_LENGTH.saturating_sub(self.partial_line.len());
        self.partial_line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self) {
        self.count += 1;
        self.has_partial_line = false;
        if self.error.is_none()
            && let Err(fault) = self.parse_event()
        {
            self.error = Some(fault);
        }
        self.partial_line.clear();
    }

    fn parse_event(&mut self) -> Result<(), String> {
        let line = self.count;
        // A long line is cut after its numbers, possibly in the middle of a character.
        let text = String::from_utf8_lossy(&self.partial_line);
        let event = EventLine::parse(&text).ok_or_else(|| {
            format!("line {line} is not an event (`run lumi event`); use --events N or --events-from")
        })?;
        let number = |what: &str, n: u64| {
            u32::try_from(n).map_err(|_| format!("line {line}: {n} is too large for a {what}"))
        };
        let at = (number("run", event.run)?, number("lumi", event.lumi)?);
        if self.last_lumi.is_some_and(|last| at < last) {
            return Err(format!(
                "line {line}: the events are not ordered by run and lumi; sort the file, or use --events-from lines"
            ));
        }
        self.last_lumi = Some(at);
        *self.lumis.entry(at).or_default() += 1;
        Ok(())
    }

    fn finish(mut self) -> Self {
        if self.has_partial_line {
            self.end_line();
        }
        self
    }

    fn into_events(self) -> Result<(u64, Vec<FileLumi>), String> {
        if let Some(fault) = self.error {
            return Err(fault);
        }
        let one = |((run, lumi), events)| FileLumi { run, lumi, events: Some(events) };
        Ok((self.count, self.lumis.into_iter().map(one).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(text: &str, size: usize) -> Result<(u64, Vec<FileLumi>), String> {
        let mut lines = EventLineParser::default();
        text.as_bytes().chunks(size).for_each(|piece| lines.add_bytes(piece));
        lines.finish().into_events()
    }

    #[test]
    fn event_count_by_lumi_is_independent_of_read_size() {
        let text = format!("1 1 1 a\n1 1 2\n1 2 3 {}\n2 7 4\n2 7 5", "y".repeat(500));
        let lumi = |run, lumi, events| FileLumi { run, lumi, events: Some(events) };
        for size in [1, 3, 64, 4096] {
            assert_eq!(counted(&text, size), Ok((5, vec![lumi(1, 1, 2), lumi(1, 2, 1), lumi(2, 7, 2)])));
        }
        assert_eq!(counted("", 1), Ok((0, vec![])));
    }

    #[test]
    fn invalid_event_file_error_names_line() {
        assert!(counted("1 1 1\nhello\n", 4).unwrap_err().starts_with("line 2 is not an event"));
        assert!(counted("1 2 1\n1 1 2\n", 4).unwrap_err().contains("not ordered"));
        assert!(counted("1 5000000000 1\n", 4).unwrap_err().contains("too large"));
    }

    #[test]
    fn file_patterns_match_names() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*.root", "a.root", true),
            ("*.root", "a.txt", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("??", "ab", true),
            ("??", "a", false),
            ("**", "x", true),
            ("a?c*", "abc", true),
        ] {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn file_scan_is_sorted_and_skips_hidden_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b/2.txt", "b/1.txt", "a.txt", ".hidden", "b/.part"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        let names = |words: &[&str]| -> Vec<String> {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            find_files(dir.path(), &words).unwrap().into_iter().map(|found| found.relative).collect()
        };
        assert_eq!(names(&["."]), ["a.txt", "b/1.txt", "b/2.txt"]);
        assert_eq!(names(&["b/*.txt"]), ["1.txt", "2.txt"]);
        assert_eq!(names(&["*"]), ["a.txt", "1.txt", "2.txt"]);
        assert!(find_files(dir.path(), &["none*".to_owned()]).is_err());
    }

    #[test]
    fn file_scan_reports_all_rejected_files_at_once() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [("a", "1 1 1\n"), ("b", "no\n"), ("c", "no\n")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let found = find_files(dir.path(), &[".".to_owned()]).unwrap();
        let describe =
            |found: &ScannedFile| CatalogFile { lfn: found.relative.clone(), ..CatalogFile::default() };
        let read_bytes = AtomicU64::new(0);
        let counting = EventCounting::From(EventCountSourceArg::Events);
        assert_eq!(read_files(&found, counting, describe, &read_bytes).unwrap_err().len(), 2);
        let files =
            read_files(&found, EventCounting::From(EventCountSourceArg::Lines), describe, &read_bytes)
                .unwrap();
        assert_eq!(files.iter().map(|file| file.events).collect::<Vec<_>>(), [1, 1, 1]);
        let files = read_files(&found, EventCounting::Given(7), describe, &read_bytes).unwrap();
        assert_eq!((files[2].lfn.as_str(), files[2].events, files[2].size), ("c", 7, 3));
    }
}

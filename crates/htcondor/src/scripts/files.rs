//! Files that scripts write and read: written atomically, and read only as far as needed.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

/// The specification keeps this many last lines of the output of a job …
const TAIL_LINES: usize = 200;
/// … limited to this many bytes: a job that prints no line ends must not make the report large.
const TAIL_BYTES: u64 = 64 * 1024;

/// Written under a hidden name first, so that readers never see half a file. It is not synced: if the machine
/// crashes, DAGMan runs the scripts again whose end it has not recorded.
pub(super) fn write_atomically(path: &Path, text: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let hidden = path.with_file_name(format!(".{}.part", name.to_string_lossy()));
    fs::write(&hidden, text)?;
    fs::rename(&hidden, path)
}

/// Returns whether the file existed.
pub(super) fn remove_if_exists(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The last lines of a log, however large it is. Empty if the log does not exist.
pub(super) fn read_tail(path: &Path) -> io::Result<String> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        opened => opened?,
    };
    let length = file.metadata()?.len();
    let begin = length.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(last_lines(&String::from_utf8_lossy(&bytes), begin > 0).to_owned())
}

/// If the text is truncated at its beginning, the first line is dropped, unless it is the only one.
fn last_lines(text: &str, is_cut: bool) -> &str {
    let text = match text.split_once('\n') {
        Some((_, rest)) if is_cut && !rest.is_empty() => rest,
        _ => text,
    };
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.rmatch_indices('\n').nth(TAIL_LINES - 1).map_or(text, |(at, _)| &text[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_tail_has_whole_lines_and_a_limit() {
        let lines = |n: usize| {
            (0..n).flat_map(|i| ["line ".to_owned(), i.to_string(), "\n".to_owned()]).collect::<String>()
        };
        assert_eq!(last_lines("", true), "");
        assert_eq!(last_lines("half\nwhole\n", true), "whole\n");
        assert_eq!(last_lines("all of it\n", true), "all of it\n");
        assert_eq!(last_lines("one\ntwo", false), "one\ntwo");
        assert_eq!(last_lines(&lines(TAIL_LINES), false), lines(TAIL_LINES));
        let longer = lines(TAIL_LINES + 1);
        assert_eq!(last_lines(&longer, false), longer.strip_prefix("line 0\n").unwrap());
    }

    #[test]
    fn log_without_line_breaks_is_truncated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.err");
        assert_eq!(read_tail(&path).unwrap(), "");
        fs::write(&path, vec![b'\xff'; 300_000]).unwrap();
        assert_eq!(read_tail(&path).unwrap().chars().count(), usize::try_from(TAIL_BYTES).unwrap());
    }

    #[test]
    fn atomic_write_leaves_no_other_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        for text in ["first", "second, longer", "3"] {
            write_atomically(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(remove_if_exists(&path).unwrap() && !remove_if_exists(&path).unwrap());
    }
}

//! Looking through logs for lines that say something.

use crate::error::CliError;
use std::io::{self, BufRead, Read as _};
use std::path::{Path, PathBuf};
use windlass_core::telltale::Weight;

/// Of one file so many findings are shown: a loop that fails a million times fails for one reason.
const PER_FILE: usize = 20;
/// Longer lines are cut: they are data rather than words.
const LONGEST_LINE: u64 = 4096;

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
    // A link may lead back up.
    inner.retain(|path| !path.is_symlink());
    let lists: Vec<Vec<PathBuf>> = inner.iter().map(|path| files_below(path)).collect::<Result<_, _>>()?;
    Ok(lists.into_iter().flatten().collect())
}

/// Lines from 1 with what they are a sign of, the heaviest if there are many. The same text again is the same sign.
pub(crate) fn signs_of<S>(
    mut reader: impl BufRead,
    sign_of: impl Fn(&str) -> Option<(Weight, S)>,
) -> io::Result<Vec<(u64, S, String)>> {
    let mut found: Vec<Found<S>> = Vec::new();
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        if reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        if bytes.len() as u64 == LONGEST_LINE && !bytes.ends_with(b"\n") {
            reader.skip_until(b'\n')?;
        }
        let line = String::from_utf8_lossy(&bytes);
        if let Some((weight, sign)) = sign_of(line.trim()) {
            keep(&mut found, Found { number, weight, sign, text: line.trim().to_owned() });
        }
    }
    found.sort_by_key(|found| found.number);
    Ok(found.into_iter().map(|found| (found.number, found.sign, found.text)).collect())
}

struct Found<S> {
    number: u64,
    weight: Weight,
    sign: S,
    text: String,
}

/// Makes room by letting go of the lightest, the earliest first: what comes last in a log mostly says most.
fn keep<S>(found: &mut Vec<Found<S>>, new: Found<S>) {
    if found.iter().any(|known| known.text == new.text) {
        return;
    }
    found.push(new);
    if found.len() > PER_FILE
        && let Some(lightest) = (0..found.len()).min_by_key(|i| (found[*i].weight, found[*i].number))
    {
        found.remove(lightest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::telltale::sign_of;

    fn lines(text: &[u8]) -> Vec<(u64, &'static str)> {
        signs_of(text, |line| sign_of(line).map(|sign| (sign.weight, sign)))
            .unwrap()
            .into_iter()
            .map(|(line, sign, _)| (line, sign.name))
            .collect()
    }

    #[test]
    fn lines_are_counted_also_after_a_very_long_one() {
        let mut text = b"fine\n".to_vec();
        text.extend(b"x".repeat(10_000));
        text.extend(b"\n\xffPermission denied\nfine\nSegmentation fault");
        assert_eq!(lines(&text), [(3, "permission"), (5, "segmentation-fault")]);
    }

    #[test]
    fn repetitions_count_once_and_the_heaviest_are_kept() {
        assert_eq!(lines(&b"No space left on device\n".repeat(1000)), [(1, "disk-full")]);
        let mut many = "x: command not found\n".to_owned();
        many.extend((0..1000).map(|i| format!("step {i} failed\n")));
        let found = lines(many.as_bytes());
        assert_eq!(found.len(), PER_FILE);
        assert_eq!(found[0], (1, "program-missing"));
        assert_eq!(found.last(), Some(&(1001, "failed")));
    }
}

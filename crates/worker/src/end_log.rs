//! The worker's own record of ended jobs: one small append each, before the end is reported.
//!
//! Not synced: it covers the case that this process and the engine are killed. The next process that runs the
//! workflow commits what the record holds, so that no ended job runs again. Two files are used in turn, so that
//! the record stays small and always has the last [`SEGMENT`] ends: there are never more unsettled claims than
//! that ([`windlass_process::ledger::MAX_RECORDS`]).

use crate::lock_ignoring_poison;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use windlass_process::ledger;
use windlass_types::worker_messages::{AttemptEndReport, AttemptKey};

/// The number of ends per file.
const SEGMENT: usize = ledger::MAX_RECORDS;

#[derive(Debug)]
pub(crate) struct EndLog {
    paths: [PathBuf; 2],
    state: Mutex<EndLogState>,
}

#[derive(Debug, Default)]
struct EndLogState {
    /// The index of the file that is written to.
    current: usize,
    file: Option<File>,
    records: usize,
    /// The length of the complete lines in the file.
    whole_length: u64,
}

impl EndLog {
    pub(crate) fn beside_ledger(ledger: &Path) -> Self {
        Self { paths: end_log_paths(ledger), state: Mutex::default() }
    }

    /// Appends an end. If this fails and both this process and the engine are killed before the end is
    /// committed, the job runs again.
    pub(crate) fn append(&self, ended: &AttemptEndReport) {
        let Ok(mut line) = serde_json::to_vec(ended) else { return };
        line.push(b'\n');
        let mut state = lock_ignoring_poison(&self.state);
        if self.write_record(&mut state, &line).is_err()
            && let Some(file) = &state.file
        {
            // A partial line would corrupt the next one.
            file.set_len(state.whole_length).ok();
        }
    }

    fn write_record(&self, state: &mut EndLogState, line: &[u8]) -> io::Result<()> {
        if state.records >= SEGMENT {
            *state = EndLogState { current: 1 - state.current, ..EndLogState::default() };
        }
        let file = match &mut state.file {
            Some(file) => file,
            none => none.insert(create_file(&self.paths[state.current])?),
        };
        file.write_all(line)?;
        state.records += 1;
        state.whole_length += line.len() as u64;
        Ok(())
    }
}

fn create_file(path: &Path) -> io::Result<File> {
    // Append mode, so that lines go to the end also after the file was truncated.
    let file = File::options().append(true).create(true).mode(0o600).open(path)?;
    file.set_len(0)?;
    Ok(file)
}

fn end_log_paths(ledger: &Path) -> [PathBuf; 2] {
    ["ends-0", "ends-1"].map(|extension| {
        let mut path = ledger.as_os_str().to_owned();
        path.push(".");
        path.push(extension);
        path.into()
    })
}

/// The ends that a dead worker recorded beside its ledger, by attempt. A truncated last line is ignored.
pub fn read_ends(ledger: &Path) -> HashMap<AttemptKey, AttemptEndReport> {
    let texts = end_log_paths(ledger).into_iter().filter_map(|path| fs::read(path).ok());
    let mut ends = HashMap::new();
    for text in texts {
        let lines = text.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
        let found = lines.filter_map(|line| serde_json::from_slice::<AttemptEndReport>(line).ok());
        ends.extend(found.map(|ended| (ended.key, ended)));
    }
    ends
}

/// Removes the record beside a ledger.
pub fn remove_ends(ledger: &Path) {
    for path in end_log_paths(ledger) {
        // A file that stays behind does no harm.
        fs::remove_file(path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use windlass_types::worker_messages::{AttemptEndCause, AttemptUsage, ProcessExit};
    use windlass_types::{Attempt, JobId, RunId, Timestamp, WorkflowId};

    fn ended(job: i64) -> AttemptEndReport {
        AttemptEndReport {
            key: AttemptKey { workflow: WorkflowId(1), job: JobId(job), run: RunId(1), attempt: Attempt(1) },
            started_at: Timestamp(5),
            ended_at: Timestamp(7),
            wall: Duration::from_micros(2),
            exit: ProcessExit::Code(3),
            cause: AttemptEndCause::Itself,
            usage: AttemptUsage::default(),
            files: None,
            last_words: Some("two\nlines".to_owned()),
            recovered: None,
        }
    }

    #[test]
    fn recorded_ends_are_read_up_to_a_truncated_line() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = directory.path().join("ledger");
        assert!(read_ends(&ledger).is_empty());
        let log = EndLog::beside_ledger(&ledger);
        log.append(&ended(1));
        log.append(&ended(2));
        let read = read_ends(&ledger);
        assert_eq!((read.len(), &read[&ended(2).key]), (2, &ended(2)));
        let first = &end_log_paths(&ledger)[0];
        let length = fs::metadata(first).unwrap().len();
        File::options().write(true).open(first).unwrap().set_len(length - 1).unwrap();
        assert_eq!(read_ends(&ledger).into_values().collect::<Vec<_>>(), [ended(1)]);
        remove_ends(&ledger);
        assert!(read_ends(&ledger).is_empty());
    }

    #[test]
    fn the_end_log_stays_small_and_keeps_the_latest_ends() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = directory.path().join("ledger");
        let log = EndLog::beside_ledger(&ledger);
        let last = 3 * SEGMENT as i64 + 10;
        for job in 0..last {
            log.append(&ended(job));
        }
        let read = read_ends(&ledger);
        assert_eq!(read.len(), SEGMENT + 10);
        assert!((last - SEGMENT as i64..last).all(|job| read.contains_key(&ended(job).key)));
    }
}

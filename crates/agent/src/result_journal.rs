//! Undelivered results on disk: one line of JSON each, synced before anything else happens.
//!
//! Written only while the server is unreachable. Only complete lines are read back. A line that could not be
//! written completely, because the disk was full, is truncated before the next one, which it would corrupt.

use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use windlass_types::worker_messages::{AttemptKey, AttemptReport};
use windlass_types::worker_protocol::ActionReport;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum JournalEntry {
    Report(AttemptReport),
    Action(ActionReport),
}

impl JournalEntry {
    pub(crate) fn into_report(self) -> Option<AttemptReport> {
        match self {
            Self::Report(report) => Some(report),
            Self::Action(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct ResultJournal {
    path: PathBuf,
    file: Option<File>,
    /// The length of the complete lines in the file.
    whole_length: u64,
}

impl ResultJournal {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None, whole_length: 0 }
    }

    pub(crate) fn append<'a>(
        &mut self,
        entries: impl IntoIterator<Item = &'a JournalEntry>,
    ) -> io::Result<()> {
        let mut lines = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut lines, entry)?;
            lines.push(b'\n');
        }
        if lines.is_empty() {
            return Ok(());
        }
        let whole = self.whole_length;
        let file = self.open_file()?;
        if file.metadata()?.len() > whole {
            file.set_len(whole)?;
        }
        file.write_all(&lines)?;
        file.sync_data()?;
        self.whole_length += lines.len() as u64;
        Ok(())
    }

    fn open_file(&mut self) -> io::Result<&mut File> {
        match &mut self.file {
            Some(file) => Ok(file),
            closed => Ok(closed.insert(File::options().append(true).create(true).open(&self.path)?)),
        }
    }

    /// Empties the journal after all of it was delivered.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.set_len(0)?;
            file.rewind()?;
            file.sync_data()?;
            self.whole_length = 0;
        }
        Ok(())
    }

    /// Reads the complete lines; one that was cut off by its writer's death or a full disk is ignored.
    pub(crate) fn read_entries(path: &Path) -> io::Result<Vec<JournalEntry>> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        Ok(lines.filter_map(|line| serde_json::from_slice(line.strip_suffix(b"\n")?).ok()).collect())
    }
}

/// The attempt that a report is about.
pub(crate) const fn report_key(report: &AttemptReport) -> AttemptKey {
    match report {
        AttemptReport::Started { key, .. }
        | AttemptReport::LeftBehind { key, .. }
        | AttemptReport::Returned { key, .. } => *key,
        AttemptReport::Ended(ended) => ended.key,
    }
}

/// Whether no report of that attempt can follow.
pub(crate) const fn is_final_report(report: &AttemptReport) -> bool {
    !matches!(report, AttemptReport::Started { .. } | AttemptReport::LeftBehind { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::worker_messages::ReturnReason;
    use windlass_types::{Attempt, JobId, RunId, WorkflowId};

    fn entry(job: i64) -> JournalEntry {
        let key = AttemptKey { workflow: WorkflowId(1), job: JobId(job), run: RunId(1), attempt: Attempt(1) };
        JournalEntry::Report(AttemptReport::Returned { key, why: ReturnReason::WorkerDied })
    }

    #[test]
    fn the_journal_is_read_up_to_a_truncated_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        assert_eq!(ResultJournal::read_entries(&path).unwrap(), []);
        let mut journal = ResultJournal::new(path.clone());
        journal.append(&[entry(1), entry(2)]).unwrap();
        journal.append(&[entry(3)]).unwrap();
        assert_eq!(ResultJournal::read_entries(&path).unwrap(), [entry(1), entry(2), entry(3)]);
        let length = fs::metadata(&path).unwrap().len();
        File::options().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
        assert_eq!(
            ResultJournal::read_entries(&path).unwrap(),
            [entry(1), entry(2)],
            "a line without its end is ignored"
        );
        journal.clear().unwrap();
        assert_eq!(ResultJournal::read_entries(&path).unwrap(), []);
        journal.append(&[entry(4)]).unwrap();
        assert_eq!(ResultJournal::read_entries(&path).unwrap(), [entry(4)]);
    }

    #[test]
    fn a_partial_line_does_not_corrupt_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let mut journal = ResultJournal::new(path.clone());
        journal.append(&[entry(1)]).unwrap();
        // As after a write on a full disk.
        let half = |text: &str| {
            File::options().append(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        };
        half(r#"{"Report":{"Retu"#);
        journal.append(&[entry(2)]).unwrap();
        journal.append(&[entry(3)]).unwrap();
        assert_eq!(ResultJournal::read_entries(&path).unwrap(), [entry(1), entry(2), entry(3)]);
        // A partial line that an earlier version wrote after.
        half("{\"Report\":{\"Retu{\"Report\":…}\n");
        half(&format!("{}\n", serde_json::to_string(&entry(4)).unwrap()));
        assert_eq!(ResultJournal::read_entries(&path).unwrap(), [entry(1), entry(2), entry(3), entry(4)]);
    }
}

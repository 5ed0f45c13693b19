//! `submission.json`: what was handed over, and what was about to be. Written before and after, so that after a crash it
//! says where to look.

use super::SubmitError;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use windlass_types::Timestamp;

pub const RECORD: &str = "submission.json";

/// The submissions of one directory, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub batch: String,
    pub submissions: Vec<Submission>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// From 1; those after the first are rescues.
    pub number: u32,
    /// To which schedd, if it was named.
    pub schedd: Option<String>,
    pub begun_at: Timestamp,
    /// Its number in the queue. Without one nobody knows whether it came to a submission.
    pub cluster: Option<u64>,
    /// DAGMan has read the DAG and begun.
    pub has_started: bool,
}

/// What is to be done for a submission, by what is on record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It was submitted, as this.
    Done(Submission, u64),
    /// It was begun; nobody knows how far it came.
    Look(Submission),
    Begin,
}

impl Record {
    /// `None` if nothing was ever submitted here.
    pub fn read(directory: &Path) -> Result<Option<Self>, SubmitError> {
        let path = directory.join(RECORD);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(SubmitError::io(&path))?,
        };
        let record =
            serde_json::from_slice(&text).map_err(io::Error::from).map_err(SubmitError::io(&path))?;
        Ok(Some(record))
    }

    pub(super) fn read_for(directory: &Path, batch: &str) -> Result<Self, SubmitError> {
        let record =
            Self::read(directory)?.unwrap_or_else(|| Self { batch: batch.to_owned(), submissions: vec![] });
        if record.batch != batch {
            let (path, found) = (directory.join(RECORD), record.batch);
            return Err(SubmitError::OtherRun { path, found, batch: batch.to_owned() });
        }
        Ok(record)
    }

    pub(super) fn due(&self, number: u32) -> Result<Due, SubmitError> {
        if let Some(known) = self.submissions.iter().find(|known| known.number == number) {
            let known = known.clone();
            return Ok(match known.cluster {
                Some(cluster) => Due::Done(known, cluster),
                None => Due::Look(known),
            });
        }
        let last = self.submissions.last();
        let next = last.map_or(1, |last| last.number + 1);
        if number == next && last.is_none_or(|last| last.cluster.is_some()) {
            return Ok(Due::Begin);
        }
        Err(SubmitError::OutOfTurn { number, next })
    }

    /// What earlier submissions became, at the same schedd.
    pub(super) fn knows(&self, schedd: Option<&str>, cluster: u64) -> bool {
        let is_it = |known: &Submission| known.schedd.as_deref() == schedd && known.cluster == Some(cluster);
        self.submissions.iter().any(is_it)
    }

    /// On disk when this returns.
    pub(super) fn note(&mut self, directory: &Path, submission: &Submission) -> Result<(), SubmitError> {
        match self.submissions.iter_mut().find(|known| known.number == submission.number) {
            Some(known) => known.clone_from(submission),
            None => self.submissions.push(submission.clone()),
        }
        self.write(directory)
    }

    /// Whole or not at all.
    fn write(&self, directory: &Path) -> Result<(), SubmitError> {
        let path = directory.join(RECORD);
        self.write_to(directory).map_err(SubmitError::io(&path))
    }

    fn write_to(&self, directory: &Path) -> io::Result<()> {
        let hidden = directory.join(format!(".{RECORD}"));
        let mut file = File::create(&hidden)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&hidden, directory.join(RECORD))?;
        File::open(directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission(number: u32, cluster: Option<u64>) -> Submission {
        Submission { number, schedd: None, begun_at: Timestamp(0), cluster, has_started: false }
    }

    fn record(submissions: &[Submission]) -> Record {
        Record { batch: "windlass-a".into(), submissions: submissions.to_vec() }
    }

    #[test]
    fn what_is_due_follows_from_what_is_on_record() {
        let none = record(&[]);
        assert_eq!(none.due(1).unwrap(), Due::Begin);
        let begun = record(&[submission(1, None)]);
        assert_eq!(begun.due(1).unwrap(), Due::Look(submission(1, None)));
        let once = record(&[submission(1, Some(40))]);
        assert_eq!(once.due(1).unwrap(), Due::Done(submission(1, Some(40)), 40));
        assert_eq!(once.due(2).unwrap(), Due::Begin);
        let rescue = record(&[submission(1, Some(40)), submission(2, None)]);
        assert_eq!(rescue.due(1).unwrap(), Due::Done(submission(1, Some(40)), 40));
        assert_eq!(rescue.due(2).unwrap(), Due::Look(submission(2, None)));
        for (record, number) in [(&none, 0), (&none, 2), (&begun, 2), (&once, 3), (&rescue, 3)] {
            let refused = record.due(number);
            assert!(matches!(refused, Err(SubmitError::OutOfTurn { .. })), "{number}: {refused:?}");
        }
    }

    #[test]
    fn a_number_of_another_schedd_is_another_dag() {
        let elsewhere = Submission { schedd: Some("b".into()), ..submission(1, Some(40)) };
        let record = record(&[elsewhere]);
        assert!(record.knows(Some("b"), 40));
        assert!(!record.knows(None, 40) && !record.knows(Some("b"), 41));
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_belongs_to_one_run() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(directory.path()).unwrap(), None);
        let written = record(&[submission(1, Some(40)), submission(2, None)]);
        written.write(directory.path()).unwrap();
        assert_eq!(Record::read_for(directory.path(), "windlass-a").unwrap(), written);
        let error = Record::read_for(directory.path(), "windlass-b").unwrap_err().to_string();
        assert!(error.contains("windlass-a") && error.contains("windlass-b"), "{error}");
    }
}

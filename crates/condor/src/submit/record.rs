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
    /// Why DAGMan did not accept the DAG. It then counts for nothing: the next submission has the same number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
}

impl Submission {
    /// An intent, and nothing more.
    pub(super) fn begun(number: u32, schedd: Option<String>, begun_at: Timestamp) -> Self {
        Self { number, schedd, begun_at, cluster: None, has_started: false, rejected: None }
    }

    /// The one that a number stands for.
    fn is(&self, number: u32) -> bool {
        self.number == number && self.rejected.is_none()
    }
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
        if let Some(known) = self.submissions.iter().find(|known| known.is(number)) {
            let known = known.clone();
            return Ok(match known.cluster {
                Some(cluster) => Due::Done(known, cluster),
                None => Due::Look(known),
            });
        }
        let next = self.next_number();
        if number == next { Ok(Due::Begin) } else { Err(SubmitError::OutOfTurn { number, next }) }
    }

    /// The number of the submission that would go on with this DAG: of one that was begun, or did not come to anything,
    /// its own.
    pub fn next_number(&self) -> u32 {
        let came_to_something = |last: &Submission| last.cluster.is_some() && last.rejected.is_none();
        self.submissions.last().map_or(1, |last| last.number + u32::from(came_to_something(last)))
    }

    /// The last submission, and its number in the queue, if DAGMan did not accept it.
    pub(super) fn rejected(&mut self) -> Option<(&mut Submission, u64)> {
        let last = self.submissions.last_mut().filter(|last| last.rejected.is_some())?;
        let cluster = last.cluster?;
        Some((last, cluster))
    }

    /// What earlier submissions became, at the same schedd.
    pub(super) fn knows(&self, schedd: Option<&str>, cluster: u64) -> bool {
        let is_it = |known: &Submission| known.schedd.as_deref() == schedd && known.cluster == Some(cluster);
        self.submissions.iter().any(is_it)
    }

    /// The same, at whatever schedd: two names may be those of one, and a number may have been given twice.
    pub(super) fn knows_number(&self, cluster: u64) -> bool {
        self.submissions.iter().any(|known| known.cluster == Some(cluster))
    }

    /// The last submission that was made, if it was at another schedd than this one.
    pub(super) fn last_elsewhere(&self, schedd: Option<&str>) -> Option<&Submission> {
        let last = self.submissions.iter().rev().find(|known| known.cluster.is_some());
        last.filter(|last| last.schedd.as_deref() != schedd)
    }

    /// On disk when this returns.
    pub(super) fn note(&mut self, directory: &Path, submission: &Submission) -> Result<(), SubmitError> {
        match self.submissions.iter_mut().find(|known| known.is(submission.number)) {
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
        Submission { cluster, ..Submission::begun(number, None, Timestamp(0)) }
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
    fn what_was_rejected_is_made_again_under_its_number() {
        let rejected = |number, cluster| {
            let rejected = Some("line 4: nobody".to_owned());
            Submission { rejected, ..submission(number, Some(cluster)) }
        };
        let first = record(&[rejected(1, 40)]);
        assert_eq!((first.due(1).unwrap(), first.next_number()), (Due::Begin, 1));
        assert!(matches!(first.due(2), Err(SubmitError::OutOfTurn { number: 2, next: 1 })));
        let twice = record(&[rejected(1, 40), rejected(1, 41), submission(1, None)]);
        assert_eq!((twice.due(1).unwrap(), twice.next_number()), (Due::Look(submission(1, None)), 1));
        let rescue = record(&[submission(1, Some(40)), rejected(2, 41), submission(2, Some(42))]);
        assert_eq!(rescue.due(2).unwrap(), Due::Done(submission(2, Some(42)), 42));
        assert_eq!((rescue.due(3).unwrap(), rescue.next_number()), (Due::Begin, 3));
        assert!(rescue.knows(None, 41), "it is not taken for one that nobody knows");
    }

    #[test]
    fn what_was_rejected_stays_on_record() {
        let directory = tempfile::tempdir().unwrap();
        let mut record = record(&[]);
        let refused = Submission { rejected: Some("no".into()), ..submission(1, Some(40)) };
        for noted in [submission(1, None), submission(1, Some(40)), refused.clone(), submission(1, None)] {
            record.note(directory.path(), &noted).unwrap();
        }
        assert_eq!(record.submissions, [refused, submission(1, None)]);
        assert_eq!(Record::read(directory.path()).unwrap().unwrap(), record);
        // Those that nobody rejected are written, and read, as before there was such a word.
        let text = serde_json::to_string(&submission(1, Some(40))).unwrap();
        assert!(!text.contains("rejected"), "{text}");
        assert_eq!(serde_json::from_str::<Submission>(&text).unwrap(), submission(1, Some(40)));
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

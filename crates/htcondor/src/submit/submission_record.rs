//! `submission.json`: the record of submissions, written before and after each, so that it says after a crash
//! where to look for the DAG.

use super::DagSubmitError;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use windlass_types::Timestamp;

pub const RECORD_FILE: &str = "submission.json";

/// The submissions of one directory, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmissionRecord {
    pub batch: String,
    pub submissions: Vec<RecordedSubmission>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedSubmission {
    /// From 1; submissions after the first are rescues.
    pub number: u32,
    /// The schedd, if it was named.
    pub schedd: Option<String>,
    pub begun_at: Timestamp,
    /// The cluster id. Without one, it is unknown whether the DAG was submitted.
    pub cluster: Option<u64>,
    /// DAGMan has parsed the DAG and started.
    pub has_started: bool,
    /// Why DAGMan rejected the DAG. A rejected submission does not count: the next one has the same number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
}

impl RecordedSubmission {
    /// An intent without a result.
    pub(super) fn new_intent(number: u32, schedd: Option<String>, begun_at: Timestamp) -> Self {
        Self { number, schedd, begun_at, cluster: None, has_started: false, rejected: None }
    }

    /// Whether this is the submission with this number; a rejected one is not.
    fn has_number(&self, number: u32) -> bool {
        self.number == number && self.rejected.is_none()
    }
}

/// The next step of a submission, depending on the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SubmissionStep {
    /// It was submitted, as this.
    Done(RecordedSubmission, u64),
    /// It was started; its result is unknown.
    Search(RecordedSubmission),
    Begin,
}

impl SubmissionRecord {
    /// `None` if nothing was ever submitted here.
    pub fn load(directory: &Path) -> Result<Option<Self>, DagSubmitError> {
        let path = directory.join(RECORD_FILE);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(DagSubmitError::io(&path))?,
        };
        let record =
            serde_json::from_slice(&text).map_err(io::Error::from).map_err(DagSubmitError::io(&path))?;
        Ok(Some(record))
    }

    pub(super) fn load_for(directory: &Path, batch: &str) -> Result<Self, DagSubmitError> {
        let record =
            Self::load(directory)?.unwrap_or_else(|| Self { batch: batch.to_owned(), submissions: vec![] });
        if record.batch != batch {
            let (path, found) = (directory.join(RECORD_FILE), record.batch);
            return Err(DagSubmitError::OtherRun { path, found, batch: batch.to_owned() });
        }
        Ok(record)
    }

    pub(super) fn next_step(&self, number: u32) -> Result<SubmissionStep, DagSubmitError> {
        if let Some(known) = self.submissions.iter().find(|known| known.has_number(number)) {
            let known = known.clone();
            return Ok(match known.cluster {
                Some(cluster) => SubmissionStep::Done(known, cluster),
                None => SubmissionStep::Search(known),
            });
        }
        let next = self.next_number();
        if number == next {
            Ok(SubmissionStep::Begin)
        } else {
            Err(DagSubmitError::WrongNumber { number, next })
        }
    }

    /// The number of the next submission of this DAG; that of the last one if it has no cluster id or was rejected.
    pub fn next_number(&self) -> u32 {
        let came_to_something = |last: &RecordedSubmission| last.cluster.is_some() && last.rejected.is_none();
        self.submissions.last().map_or(1, |last| last.number + u32::from(came_to_something(last)))
    }

    /// The last submission and its cluster id, if DAGMan rejected the DAG.
    pub(super) fn last_rejected(&mut self) -> Option<(&mut RecordedSubmission, u64)> {
        let last = self.submissions.last_mut().filter(|last| last.rejected.is_some())?;
        let cluster = last.cluster?;
        Some((last, cluster))
    }

    /// Whether an earlier submission at the same schedd has this cluster id.
    pub(super) fn has_cluster(&self, schedd: Option<&str>, cluster: u64) -> bool {
        let is_it =
            |known: &RecordedSubmission| known.schedd.as_deref() == schedd && known.cluster == Some(cluster);
        self.submissions.iter().any(is_it)
    }

    /// The same at any schedd: two names may belong to one schedd, and two schedds may assign the same id.
    pub(super) fn has_cluster_anywhere(&self, cluster: u64) -> bool {
        self.submissions.iter().any(|known| known.cluster == Some(cluster))
    }

    /// The last submission, if it was at another schedd than this one.
    pub(super) fn last_at_other_schedd(&self, schedd: Option<&str>) -> Option<&RecordedSubmission> {
        let last = self.submissions.iter().rev().find(|known| known.cluster.is_some());
        last.filter(|last| last.schedd.as_deref() != schedd)
    }

    /// The record is on disk when this returns.
    pub(super) fn save_submission(
        &mut self,
        directory: &Path,
        submission: &RecordedSubmission,
    ) -> Result<(), DagSubmitError> {
        match self.submissions.iter_mut().find(|known| known.has_number(submission.number)) {
            Some(known) => known.clone_from(submission),
            None => self.submissions.push(submission.clone()),
        }
        self.save(directory)
    }

    /// Writes atomically.
    fn save(&self, directory: &Path) -> Result<(), DagSubmitError> {
        let path = directory.join(RECORD_FILE);
        self.write_to(directory).map_err(DagSubmitError::io(&path))
    }

    fn write_to(&self, directory: &Path) -> io::Result<()> {
        let hidden = directory.join(format!(".{RECORD_FILE}"));
        let mut file = File::create(&hidden)?;
        serde_json::to_writer_pretty(&mut file, self)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&hidden, directory.join(RECORD_FILE))?;
        File::open(directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission(number: u32, cluster: Option<u64>) -> RecordedSubmission {
        RecordedSubmission { cluster, ..RecordedSubmission::new_intent(number, None, Timestamp(0)) }
    }

    fn record(submissions: &[RecordedSubmission]) -> SubmissionRecord {
        SubmissionRecord { batch: "windlass-a".into(), submissions: submissions.to_vec() }
    }

    #[test]
    fn next_step_follows_from_the_submission_record() {
        let none = record(&[]);
        assert_eq!(none.next_step(1).unwrap(), SubmissionStep::Begin);
        let begun = record(&[submission(1, None)]);
        assert_eq!(begun.next_step(1).unwrap(), SubmissionStep::Search(submission(1, None)));
        let once = record(&[submission(1, Some(40))]);
        assert_eq!(once.next_step(1).unwrap(), SubmissionStep::Done(submission(1, Some(40)), 40));
        assert_eq!(once.next_step(2).unwrap(), SubmissionStep::Begin);
        let rescue = record(&[submission(1, Some(40)), submission(2, None)]);
        assert_eq!(rescue.next_step(1).unwrap(), SubmissionStep::Done(submission(1, Some(40)), 40));
        assert_eq!(rescue.next_step(2).unwrap(), SubmissionStep::Search(submission(2, None)));
        for (record, number) in [(&none, 0), (&none, 2), (&begun, 2), (&once, 3), (&rescue, 3)] {
            let refused = record.next_step(number);
            assert!(matches!(refused, Err(DagSubmitError::WrongNumber { .. })), "{number}: {refused:?}");
        }
    }

    #[test]
    fn rejected_submission_is_repeated_with_its_number() {
        let rejected = |number, cluster| {
            let rejected = Some("line 4: undeclared".to_owned());
            RecordedSubmission { rejected, ..submission(number, Some(cluster)) }
        };
        let first = record(&[rejected(1, 40)]);
        assert_eq!((first.next_step(1).unwrap(), first.next_number()), (SubmissionStep::Begin, 1));
        assert!(matches!(first.next_step(2), Err(DagSubmitError::WrongNumber { number: 2, next: 1 })));
        let twice = record(&[rejected(1, 40), rejected(1, 41), submission(1, None)]);
        assert_eq!(
            (twice.next_step(1).unwrap(), twice.next_number()),
            (SubmissionStep::Search(submission(1, None)), 1)
        );
        let rescue = record(&[submission(1, Some(40)), rejected(2, 41), submission(2, Some(42))]);
        assert_eq!(rescue.next_step(2).unwrap(), SubmissionStep::Done(submission(2, Some(42)), 42));
        assert_eq!((rescue.next_step(3).unwrap(), rescue.next_number()), (SubmissionStep::Begin, 3));
        assert!(rescue.has_cluster(None, 41), "it is not taken for an unknown one");
    }

    #[test]
    fn rejected_submissions_stay_in_the_record() {
        let directory = tempfile::tempdir().unwrap();
        let mut record = record(&[]);
        let refused = RecordedSubmission { rejected: Some("no".into()), ..submission(1, Some(40)) };
        for noted in [submission(1, None), submission(1, Some(40)), refused.clone(), submission(1, None)] {
            record.save_submission(directory.path(), &noted).unwrap();
        }
        assert_eq!(record.submissions, [refused, submission(1, None)]);
        assert_eq!(SubmissionRecord::load(directory.path()).unwrap().unwrap(), record);
        // A submission that was not rejected is written and read as in versions without this field.
        let text = serde_json::to_string(&submission(1, Some(40))).unwrap();
        assert!(!text.contains("rejected"), "{text}");
        assert_eq!(serde_json::from_str::<RecordedSubmission>(&text).unwrap(), submission(1, Some(40)));
    }

    #[test]
    fn same_cluster_id_at_another_schedd_is_another_dag() {
        let elsewhere = RecordedSubmission { schedd: Some("b".into()), ..submission(1, Some(40)) };
        let record = record(&[elsewhere]);
        assert!(record.has_cluster(Some("b"), 40));
        assert!(!record.has_cluster(None, 40) && !record.has_cluster(Some("b"), 41));
    }

    #[test]
    fn submission_record_round_trips_and_belongs_to_one_run() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(SubmissionRecord::load(directory.path()).unwrap(), None);
        let written = record(&[submission(1, Some(40)), submission(2, None)]);
        written.save(directory.path()).unwrap();
        assert_eq!(SubmissionRecord::load_for(directory.path(), "windlass-a").unwrap(), written);
        let error = SubmissionRecord::load_for(directory.path(), "windlass-b").unwrap_err().to_string();
        assert!(error.contains("windlass-a") && error.contains("windlass-b"), "{error}");
    }
}

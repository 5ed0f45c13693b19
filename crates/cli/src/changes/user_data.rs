//! The user data of a workflow in the books, as the comparison wants them: who reads and writes them, and whether they
//! are still what a reader read.
//!
//! The books keep the present data and when they were set. What its writer set is the business of the two jobs: if the
//! writer runs again, so does the reader. What somebody else set later makes the readers run, and not the writer, which
//! would undo it.

use crate::error::CliError;
use std::collections::HashMap;
use windlass_store::Store;
use windlass_store::model::{DataFilter, UserDataRow, WorkflowRow};
use windlass_types::{JobId, Timestamp, UserDataId};

#[derive(Default)]
pub(super) struct WorkflowUserData {
    pub(super) rows: Vec<UserDataRow>,
    /// By number of the job: indices into `rows`.
    reads: HashMap<u32, Vec<usize>>,
    writes: HashMap<u32, Vec<usize>>,
    /// By index: the job that writes it.
    writers: HashMap<usize, u32>,
}

impl WorkflowUserData {
    pub(super) fn load(
        store: &dyn Store,
        row: &WorkflowRow,
        number: impl Fn(JobId) -> Option<u32>,
    ) -> Result<Self, CliError> {
        let rows = store.user_data(row.id, &DataFilter::default())?;
        if rows.is_empty() {
            return Ok(Self::default());
        }
        let index: HashMap<UserDataId, usize> =
            rows.iter().enumerate().map(|(index, piece)| (piece.id, index)).collect();
        let mut data = Self::default();
        for one in store.job_user_data(row.id)? {
            let (Some(number), Some(&index)) = (number(one.job_id), index.get(&one.user_data_id)) else {
                continue;
            };
            if one.is_output {
                data.writes.entry(number).or_default().push(index);
                data.writers.insert(index, number);
            } else {
                data.reads.entry(number).or_default().push(index);
            }
        }
        Ok(Self { rows, ..data })
    }

    /// Name and present text of what a job reads.
    pub(super) fn read_by(&self, number: u32) -> impl Iterator<Item = (&UserDataRow, Option<u32>)> {
        let indices = self.reads.get(&number).into_iter().flatten();
        indices.map(|index| (&self.rows[*index], self.writers.get(index).copied()))
    }

    pub(super) fn written_by(&self, number: u32) -> impl Iterator<Item = &UserDataRow> {
        self.writes.get(&number).into_iter().flatten().map(|index| &self.rows[*index])
    }
}

/// What it holds now.
pub(super) fn current_text(piece: &UserDataRow) -> String {
    piece.data.as_ref().map_or_else(|| "null".to_owned(), ToString::to_string)
}

/// What it held for a reader that started `since` then; `written` is when the job that writes it had ended.
pub(super) fn text_as_of(
    piece: &UserDataRow,
    since: Option<Timestamp>,
    written: Option<Timestamp>,
) -> String {
    let by_its_writer = written.is_some_and(|at| piece.changed_at <= at);
    match since {
        Some(at) if piece.changed_at > at && !by_its_writer => format!("(as it was on {at})"),
        _ => current_text(piece),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_somebody_else_set_after_the_start_has_changed() {
        let piece = |changed_at| UserDataRow {
            id: UserDataId(1),
            workflow_id: windlass_types::WorkflowId(1),
            name: "u".into(),
            data: Some(5.into()),
            is_ephemeral: false,
            changed_at: Timestamp(changed_at),
        };
        let is_same = |changed_at, since: Option<i64>, written: Option<i64>| {
            text_as_of(&piece(changed_at), since.map(Timestamp), written.map(Timestamp)) == "5"
        };
        assert!(is_same(10, Some(10), None) && is_same(10, None, None));
        assert!(!is_same(11, Some(10), None), "set from outside after the start");
        assert!(is_same(11, Some(10), Some(11)), "set by the job that writes it");
        assert!(!is_same(12, Some(10), Some(11)), "set by hand after that");
        assert!(is_same(12, Some(13), Some(11)), "set by hand, and then read");
    }
}

//! The user data of a stored workflow in the form that the comparison needs: which jobs read and write them,
//! and whether they have changed since they were read.
//!
//! The database keeps the present value and the time it was set. A value set by the job that writes it needs no
//! check: if the writer runs again, so does the reader. A value set later from outside makes the readers run,
//! but not the writer, which would overwrite it.

use crate::error::CliError;
use std::collections::HashMap;
use windlass_store::Store;
use windlass_store::model::{DataFilter, UserDataRow, WorkflowRow};
use windlass_types::{JobId, Timestamp, UserDataId};

#[derive(Default)]
pub(super) struct WorkflowUserData {
    pub(super) rows: Vec<UserDataRow>,
    /// Indices into `rows`, by job number.
    reads: HashMap<u32, Vec<usize>>,
    writes: HashMap<u32, Vec<usize>>,
    /// The job that writes the user data, by index.
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

    /// Name and present text of the user data that a job reads.
    pub(super) fn read_by(&self, number: u32) -> impl Iterator<Item = (&UserDataRow, Option<u32>)> {
        let indices = self.reads.get(&number).into_iter().flatten();
        indices.map(|index| (&self.rows[*index], self.writers.get(index).copied()))
    }

    pub(super) fn written_by(&self, number: u32) -> impl Iterator<Item = &UserDataRow> {
        self.writes.get(&number).into_iter().flatten().map(|index| &self.rows[*index])
    }
}

/// The present value.
pub(super) fn current_text(piece: &UserDataRow) -> String {
    piece.data.as_ref().map_or_else(|| "null".to_owned(), ToString::to_string)
}

/// The value seen by a reader that started at `since`; `written` is when the writing job ended.
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
    fn user_data_set_after_start_by_others_counts_as_changed() {
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
        assert!(!is_same(12, Some(10), Some(11)), "set by a user after that");
        assert!(is_same(12, Some(13), Some(11)), "set by a user, and then read");
    }
}

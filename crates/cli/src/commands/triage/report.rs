//! How often those who decide were right.

use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use std::collections::BTreeMap;
use windlass_store::model::{DecisionRow, DecisionState};
use windlass_types::JobStatus;
use windlass_types::orders::Verdict;

/// What came of the decisions of one agent or person.
#[derive(Debug, Default, PartialEq, Eq)]
struct Record {
    by: String,
    is_agent: bool,
    decisions: u64,
    /// Tried again: it then completed, failed once more, or has not ended yet.
    retries: u64,
    completed: u64,
    failed_again: u64,
    /// Failed: of these a person confirmed so many, and had so many tried again or ignored after all. The rest was not
    /// reviewed, which says nothing.
    fails: u64,
    confirmed: u64,
    overruled: u64,
    ignores: u64,
    /// Proposed: of these a person declined so many, and so many wait.
    declined: u64,
    waiting: u64,
}

impl Record {
    /// Of how many decisions it is known whether they were right, and of how many that they were.
    const fn right(&self) -> (u64, u64) {
        let right = self.completed + self.confirmed;
        (right, right + self.failed_again + self.overruled + self.declined)
    }

    fn in_words(&self) -> String {
        match self.right() {
            (_, 0) => "nothing is known yet".to_owned(),
            (right, known) => format!("right {right} of {known}"),
        }
    }
}

const FIELDS: &[Field<Record>] = &[
    Field::new("made_by", |r: &Record| (&r.by).into()).column(Column::elastic("BY")),
    Field::new("is_agent", |r: &Record| r.is_agent.into()),
    Field::shown(Column::text("IS"), |r: &Record| if r.is_agent { "agent" } else { "person" }.into()),
    Field::new("decisions", |r: &Record| r.decisions.into()).column(Column::number("DECISIONS")),
    Field::new("retries", |r: &Record| r.retries.into()).column(Column::number("RETRIED")),
    Field::new("completed", |r: &Record| r.completed.into()).column(Column::number("COMPLETED")),
    Field::new("failed_again", |r: &Record| r.failed_again.into()).column(Column::number("FAILED AGAIN")),
    Field::new("fails", |r: &Record| r.fails.into()).column(Column::number("FAILED")),
    Field::new("confirmed", |r: &Record| r.confirmed.into()).column(Column::number("CONFIRMED")),
    Field::new("overruled", |r: &Record| r.overruled.into()).column(Column::number("OVERRULED")),
    Field::new("ignores", |r: &Record| r.ignores.into()).column(Column::number("IGNORED")),
    Field::new("declined", |r: &Record| r.declined.into()).column(Column::number("DECLINED")),
    Field::new("waiting", |r: &Record| r.waiting.into()),
    Field::new("right", |r: &Record| r.right().0.into()),
    Field::new("known", |r: &Record| r.right().1.into()),
    Field::shown(Column::text("IN SHORT"), |r: &Record| r.in_words().into()),
];

/// Of several workflows together.
pub(super) fn print(ctx: &Context, workflows: &[Vec<DecisionRow>]) -> Result<Exit, CliError> {
    if ctx.ui.print_list(&Listing::new(FIELDS), records(workflows))? == 0 {
        ctx.ui.note("nothing was decided yet");
    }
    Ok(Exit::Success)
}

/// Agents first.
fn records(workflows: &[Vec<DecisionRow>]) -> Vec<Record> {
    let mut records: BTreeMap<(bool, &str), Record> = BTreeMap::new();
    for rows in workflows {
        for row in rows {
            let key = (!row.is_agent, row.made_by.as_str());
            let record = records.entry(key).or_insert_with(|| Record {
                by: row.made_by.clone(),
                is_agent: row.is_agent,
                ..Record::default()
            });
            count(record, row, rows);
        }
    }
    records.into_values().collect()
}

fn count(record: &mut Record, row: &DecisionRow, all: &[DecisionRow]) {
    record.decisions += 1;
    match (row.state, row.verdict) {
        (DecisionState::Declined, _) => record.declined += 1,
        (DecisionState::Proposed, _) => record.waiting += 1,
        (DecisionState::Done, Verdict::Retry) => {
            record.retries += 1;
            match row.next_status {
                Some(JobStatus::Completed) => record.completed += 1,
                // Stopped by somebody: that says nothing.
                None | Some(JobStatus::Canceled) => {}
                Some(_) => record.failed_again += 1,
            }
        }
        (DecisionState::Done, Verdict::Fail) => {
            record.fails += 1;
            match review(row, all) {
                Some(Review::Confirmed) => record.confirmed += 1,
                Some(Review::Overruled) => record.overruled += 1,
                None => {}
            }
        }
        (DecisionState::Done, Verdict::Ignore) => record.ignores += 1,
        // Nobody said whether it was right.
        (DecisionState::Overtaken, _) | (DecisionState::Done, Verdict::Change) => {}
    }
}

/// What a person made of a decision to let a job fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Review {
    Confirmed,
    Overruled,
}

/// What a person decided about the same failure: by approving the proposal, or by a decision of their own afterwards. The
/// last word counts. A person's own decision needs no review.
fn review(row: &DecisionRow, all: &[DecisionRow]) -> Option<Review> {
    let is_later = |other: &&DecisionRow| {
        other.id > row.id
            && !other.is_agent
            && other.state == DecisionState::Done
            && (other.job_id, other.run_id, other.attempt_id) == (row.job_id, row.run_id, row.attempt_id)
    };
    let by_person = |other: &DecisionRow| match other.verdict {
        Verdict::Retry | Verdict::Ignore => Some(Review::Overruled),
        Verdict::Fail => Some(Review::Confirmed),
        Verdict::Change => None,
    };
    let was_approved = !row.is_agent || row.settled_by.is_some();
    all.iter()
        .filter(is_later)
        .filter_map(by_person)
        .next_back()
        .or(was_approved.then_some(Review::Confirmed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::orders::Changes;
    use windlass_types::{Attempt, JobId, RunId, Timestamp};

    fn row(id: i64, job: i64, by: &str, verdict: Verdict, next: Option<JobStatus>) -> DecisionRow {
        DecisionRow {
            id,
            job_id: JobId(job),
            job_name: format!("j{job}"),
            run_id: RunId(1),
            attempt_id: Attempt(1),
            made_at: Timestamp(id),
            made_by: by.to_owned(),
            is_agent: by == "robot",
            verdict,
            confidence: None,
            reason: String::new(),
            evidence: Vec::new(),
            changes: Changes::default(),
            state: DecisionState::Done,
            settled_at: None,
            settled_by: None,
            next_status: next,
            class: None,
            signature: None,
            message: None,
        }
    }

    #[test]
    fn each_is_measured_by_what_came_of_it() {
        let declined =
            DecisionRow { state: DecisionState::Declined, ..row(6, 6, "robot", Verdict::Fail, None) };
        let rows = vec![
            row(1, 1, "robot", Verdict::Retry, Some(JobStatus::Completed)),
            row(2, 2, "robot", Verdict::Retry, Some(JobStatus::Failed)),
            row(3, 3, "robot", Verdict::Retry, None),
            row(4, 4, "robot", Verdict::Fail, None),
            row(5, 5, "robot", Verdict::Fail, None),
            declined,
            row(7, 5, "ann", Verdict::Retry, Some(JobStatus::Completed)),
            DecisionRow { settled_by: Some("ann".into()), ..row(8, 8, "robot", Verdict::Fail, None) },
        ];
        let found = records(&[rows]);
        assert_eq!(found.iter().map(|r| r.by.as_str()).collect::<Vec<_>>(), ["robot", "ann"]);
        let robot = &found[0];
        assert_eq!((robot.decisions, robot.retries, robot.completed, robot.failed_again), (7, 3, 1, 1));
        assert_eq!((robot.fails, robot.confirmed, robot.overruled, robot.declined), (3, 1, 1, 1));
        assert_eq!(robot.in_words(), "right 2 of 5", "nobody has reviewed the failure of job 4");
        assert_eq!(found[1].in_words(), "right 1 of 1");
    }

    #[test]
    fn an_unreviewed_decision_to_fail_says_nothing() {
        let found = records(&[vec![row(1, 1, "robot", Verdict::Fail, None)]]);
        assert_eq!(found[0].in_words(), "nothing is known yet");
        let reviewed = vec![row(1, 1, "robot", Verdict::Fail, None), row(2, 1, "ann", Verdict::Fail, None)];
        assert_eq!(records(&[reviewed])[0].in_words(), "right 1 of 1");
    }

    #[test]
    fn what_has_not_ended_says_nothing() {
        let found = records(&[vec![row(1, 1, "robot", Verdict::Retry, None)]]);
        assert_eq!(found[0].in_words(), "nothing is known yet");
    }
}

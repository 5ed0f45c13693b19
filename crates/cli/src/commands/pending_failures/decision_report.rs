//! How often decisions turned out right.

use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::ui::listing::{ListField, ListFields};
use crate::ui::table::TableColumn;
use std::collections::BTreeMap;
use windlass_store::model::{DecisionRow, DecisionState};
use windlass_types::JobStatus;
use windlass_types::failure_commands::FailureCommandKind;

/// The results of the decisions of one agent or user.
#[derive(Debug, Default, PartialEq, Eq)]
struct DecisionRecord {
    made_by: String,
    is_agent: bool,
    decisions: u64,
    /// Retry decisions: the job then completed, failed again, or has not ended yet.
    retries: u64,
    completed: u64,
    failed_again: u64,
    /// Fail decisions: the number confirmed by a user, and the number overruled by a retry or ignore. The rest
    /// was not reviewed.
    fails: u64,
    confirmed: u64,
    overruled: u64,
    ignores: u64,
    /// Proposals: the number declined by a user, and the number waiting.
    declined: u64,
    waiting: u64,
}

impl DecisionRecord {
    /// The number of decisions with a known result, and the number of right ones.
    const fn correct_count(&self) -> (u64, u64) {
        let right = self.completed + self.confirmed;
        (right, right + self.failed_again + self.overruled + self.declined)
    }

    fn render_summary(&self) -> String {
        match self.correct_count() {
            (_, 0) => "no results yet".to_owned(),
            (right, known) => format!("{right} of {known} right"),
        }
    }
}

const FIELDS: &[ListField<DecisionRecord>] = &[
    ListField::new("made_by", |r: &DecisionRecord| (&r.made_by).into()).column(TableColumn::flexible("BY")),
    ListField::new("is_agent", |r: &DecisionRecord| r.is_agent.into()),
    ListField::table_only(TableColumn::text("TYPE"), |r: &DecisionRecord| {
        if r.is_agent { "agent" } else { "person" }.into()
    }),
    ListField::new("decisions", |r: &DecisionRecord| r.decisions.into())
        .column(TableColumn::number("DECISIONS")),
    ListField::new("retries", |r: &DecisionRecord| r.retries.into()).column(TableColumn::number("RETRIED")),
    ListField::new("completed", |r: &DecisionRecord| r.completed.into())
        .column(TableColumn::number("COMPLETED")),
    ListField::new("failed_again", |r: &DecisionRecord| r.failed_again.into())
        .column(TableColumn::number("FAILED AGAIN")),
    ListField::new("fails", |r: &DecisionRecord| r.fails.into()).column(TableColumn::number("FAILED")),
    ListField::new("confirmed", |r: &DecisionRecord| r.confirmed.into())
        .column(TableColumn::number("CONFIRMED")),
    ListField::new("overruled", |r: &DecisionRecord| r.overruled.into())
        .column(TableColumn::number("OVERRULED")),
    ListField::new("ignores", |r: &DecisionRecord| r.ignores.into()).column(TableColumn::number("IGNORED")),
    ListField::new("declined", |r: &DecisionRecord| r.declined.into())
        .column(TableColumn::number("DECLINED")),
    ListField::new("waiting", |r: &DecisionRecord| r.waiting.into()),
    ListField::new("right", |r: &DecisionRecord| r.correct_count().0.into()),
    ListField::new("known", |r: &DecisionRecord| r.correct_count().1.into()),
    ListField::table_only(TableColumn::text("SUMMARY"), |r: &DecisionRecord| r.render_summary().into()),
];

/// Totals over several workflows.
pub(super) fn print_report(ctx: &CliContext, workflows: &[Vec<DecisionRow>]) -> Result<CliExit, CliError> {
    if ctx.ui.print_list(&ListFields::new(FIELDS), collect_records(workflows))? == 0 {
        ctx.ui.print_note("no decisions yet");
    }
    Ok(CliExit::Success)
}

/// Agents first.
fn collect_records(workflows: &[Vec<DecisionRow>]) -> Vec<DecisionRecord> {
    let mut records: BTreeMap<(bool, &str), DecisionRecord> = BTreeMap::new();
    for rows in workflows {
        for row in rows {
            let key = (!row.is_agent, row.made_by.as_str());
            let record = records.entry(key).or_insert_with(|| DecisionRecord {
                made_by: row.made_by.clone(),
                is_agent: row.is_agent,
                ..DecisionRecord::default()
            });
            count_decision(record, row, rows);
        }
    }
    records.into_values().collect()
}

fn count_decision(record: &mut DecisionRecord, row: &DecisionRow, all: &[DecisionRow]) {
    record.decisions += 1;
    match (row.state, row.kind) {
        (DecisionState::Declined, _) => record.declined += 1,
        (DecisionState::Proposed, _) => record.waiting += 1,
        (DecisionState::Done, FailureCommandKind::Retry) => {
            record.retries += 1;
            match row.next_status {
                Some(JobStatus::Completed) => record.completed += 1,
                // A terminated retry has no result.
                None | Some(JobStatus::Canceled) => {}
                Some(_) => record.failed_again += 1,
            }
        }
        (DecisionState::Done, FailureCommandKind::Fail) => {
            record.fails += 1;
            match review_decision(row, all) {
                Some(DecisionReview::Confirmed) => record.confirmed += 1,
                Some(DecisionReview::Overruled) => record.overruled += 1,
                None => {}
            }
        }
        (DecisionState::Done, FailureCommandKind::Ignore) => record.ignores += 1,
        // Not reviewed.
        (DecisionState::Overtaken, _) | (DecisionState::Done, FailureCommandKind::Change) => {}
    }
}

/// The review of a fail decision by a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecisionReview {
    Confirmed,
    Overruled,
}

/// What a user decided about the same failure: by approving the proposal, or by a later decision. The last one
/// counts. A user's own decision needs no review.
fn review_decision(row: &DecisionRow, all: &[DecisionRow]) -> Option<DecisionReview> {
    let is_later = |other: &&DecisionRow| {
        other.id > row.id
            && !other.is_agent
            && other.state == DecisionState::Done
            && (other.job_id, other.run_id, other.attempt_id) == (row.job_id, row.run_id, row.attempt_id)
    };
    let by_person = |other: &DecisionRow| match other.kind {
        FailureCommandKind::Retry | FailureCommandKind::Ignore => Some(DecisionReview::Overruled),
        FailureCommandKind::Fail => Some(DecisionReview::Confirmed),
        FailureCommandKind::Change => None,
    };
    let was_approved = !row.is_agent || row.settled_by.is_some();
    all.iter()
        .filter(is_later)
        .filter_map(by_person)
        .next_back()
        .or(was_approved.then_some(DecisionReview::Confirmed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::failure_commands::RequestedJobChanges;
    use windlass_types::{Attempt, JobId, RunId, Timestamp};

    fn row(id: i64, job: i64, by: &str, kind: FailureCommandKind, next: Option<JobStatus>) -> DecisionRow {
        DecisionRow {
            id,
            job_id: JobId(job),
            job_name: format!("j{job}"),
            run_id: RunId(1),
            attempt_id: Attempt(1),
            made_at: Timestamp(id),
            made_by: by.to_owned(),
            is_agent: by == "robot",
            kind,
            confidence: None,
            reason: String::new(),
            evidence: Vec::new(),
            changes: RequestedJobChanges::default(),
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
    fn agent_decisions_are_rated_by_results() {
        let declined = DecisionRow {
            state: DecisionState::Declined,
            ..row(6, 6, "robot", FailureCommandKind::Fail, None)
        };
        let rows = vec![
            row(1, 1, "robot", FailureCommandKind::Retry, Some(JobStatus::Completed)),
            row(2, 2, "robot", FailureCommandKind::Retry, Some(JobStatus::Failed)),
            row(3, 3, "robot", FailureCommandKind::Retry, None),
            row(4, 4, "robot", FailureCommandKind::Fail, None),
            row(5, 5, "robot", FailureCommandKind::Fail, None),
            declined,
            row(7, 5, "ann", FailureCommandKind::Retry, Some(JobStatus::Completed)),
            DecisionRow {
                settled_by: Some("ann".into()),
                ..row(8, 8, "robot", FailureCommandKind::Fail, None)
            },
        ];
        let found = collect_records(&[rows]);
        assert_eq!(found.iter().map(|r| r.made_by.as_str()).collect::<Vec<_>>(), ["robot", "ann"]);
        let robot = &found[0];
        assert_eq!((robot.decisions, robot.retries, robot.completed, robot.failed_again), (7, 3, 1, 1));
        assert_eq!((robot.fails, robot.confirmed, robot.overruled, robot.declined), (3, 1, 1, 1));
        assert_eq!(robot.render_summary(), "2 of 5 right", "the failure of job 4 was not reviewed");
        assert_eq!(found[1].render_summary(), "1 of 1 right");
    }

    #[test]
    fn unreviewed_fail_decision_is_not_rated() {
        let found = collect_records(&[vec![row(1, 1, "robot", FailureCommandKind::Fail, None)]]);
        assert_eq!(found[0].render_summary(), "no results yet");
        let reviewed = vec![
            row(1, 1, "robot", FailureCommandKind::Fail, None),
            row(2, 1, "ann", FailureCommandKind::Fail, None),
        ];
        assert_eq!(collect_records(&[reviewed])[0].render_summary(), "1 of 1 right");
    }

    #[test]
    fn decision_without_result_is_not_rated() {
        let found = collect_records(&[vec![row(1, 1, "robot", FailureCommandKind::Retry, None)]]);
        assert_eq!(found[0].render_summary(), "no results yet");
    }
}

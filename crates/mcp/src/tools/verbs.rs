//! What starts, ends or repeats the work of others: only with a word that says it is meant.

use super::Answer;
use crate::desk::{Desk, Trouble};
use schemars::JsonSchema;
use serde::Deserialize;
use windlass_insight::orders::{in_words, not_for_agents};
use windlass_store::model::WorkflowRow;
use windlass_types::WorkflowId;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Confirmed {
    workflow_id: i64,
    /// Must be true. Ask your user first, and say what will happen.
    #[serde(default)]
    confirm: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reset {
    workflow_id: i64,
    /// Only jobs that did not end well (and those that wait for a decision). Otherwise all that ran, also what completed.
    #[serde(default)]
    failed_only: bool,
    /// Must be true. Ask your user first, and say what will happen.
    #[serde(default)]
    confirm: bool,
}

pub(super) fn run(desk: &Desk, args: &Confirmed) -> Answer {
    let row = confirmed(desk, args.workflow_id, args.confirm, |row| {
        format!(
            "run workflow {} ({}): up to {} jobs start as programs",
            row.id,
            row.name,
            row.counts.total() - row.counts.settled()
        )
    })?;
    desk.hands.start(row)
}

pub(super) fn cancel(desk: &Desk, args: &Confirmed) -> Answer {
    let row = confirmed(desk, args.workflow_id, args.confirm, |row| {
        format!(
            "cancel workflow {} ({}): its {} active jobs are killed",
            row.id,
            row.name,
            row.counts.active()
        )
    })?;
    desk.hands.cancel(row)
}

pub(super) fn reset(desk: &Desk, args: &Reset) -> Answer {
    let which = if args.failed_only { "the jobs that did not end well" } else { "all jobs that ran" };
    let row = confirmed(desk, args.workflow_id, args.confirm, |row| {
        format!("reset workflow {} ({}): {which} run again, and all that was built on them", row.id, row.name)
    })?;
    let kept = not_for_agents(&*desk.books, &desk.workflow(args.workflow_id)?)?;
    if let Some(why) = in_words(&kept) {
        return Err(Trouble::refused(why).with_hint(
            "classify_and_resolve_failures decides on what waits; ask your user to have the rest run again",
        ));
    }
    desk.hands.reset(row, args.failed_only)
}

/// The workflow, if it is meant.
pub(super) fn confirmed(
    desk: &Desk,
    id: i64,
    confirm: bool,
    what: impl Fn(&WorkflowRow) -> String,
) -> Result<WorkflowId, Trouble> {
    let row = desk.workflow(id)?;
    if confirm {
        return Ok(row.id);
    }
    Err(Trouble::refused(format!("nothing was done. This would {}.", what(&row)))
        .with_hint("ask your user; if that is wanted, call this again with confirm: true"))
}

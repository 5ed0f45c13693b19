//! Changes that somebody makes to a job without an order: they are revisions like those that are ordered.

use crate::books::manage::By;
use crate::books::{column, parts};
use crate::db::{Db, values};
use crate::error::Fault;
use crate::sql::common as sql;
use windlass_core::orders::{Asked, AskedBy, Edition};
use windlass_types::{JobId, RequirementsId, Resources, WorkflowId};

/// What of a job a revision is about, whole.
pub(crate) fn edition(
    db: &impl Db,
    requirements: Option<i64>,
    command: &str,
    priority: i32,
) -> Result<Edition, Fault> {
    let id = requirements.map(RequirementsId);
    let row = id.map(|id| parts::requirements_row(db, id)).transpose()?.flatten();
    let asked = Asked {
        resources: row.map_or(Resources::DEFAULT, |(_, row)| row.resources),
        by: id.map_or(AskedBy::Nothing, AskedBy::Row),
    };
    Ok(Edition {
        asked: Some(asked),
        command: Some(command.to_owned()),
        priority: Some(priority),
        place: None,
    })
}

/// What is the same before and after is no part of it.
pub(crate) fn note(
    db: &impl Db,
    workflow: WorkflowId,
    job: JobId,
    (mut before, mut after): (Edition, Edition),
    by: By<'_>,
) -> Result<(), Fault> {
    if before.asked == after.asked {
        (before.asked, after.asked) = (None, None);
    }
    if before.command == after.command {
        (before.command, after.command) = (None, None);
    }
    if before.priority == after.priority {
        (before.priority, after.priority) = (None, None);
    }
    if after == Edition::default() {
        return Ok(());
    }
    let batch: i64 = db.one(sql::LAST_BATCH, [workflow.0], |row| row.get(0))?;
    let (before, after) = (column::json_text(&before)?, column::json_text(&after)?);
    let reason = "changed by hand";
    db.execute(
        sql::INSERT_REVISION,
        values![batch + 1, workflow.0, job.0, by.now.0, by.actor, reason, before, after],
    )?;
    Ok(())
}

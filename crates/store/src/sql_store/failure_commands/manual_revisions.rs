//! Records manual changes of jobs as revisions, like those made by failure commands.

use crate::db::{SqlConnection, values};
use crate::error::SqlError;
use crate::sql::common as sql;
use crate::sql_store::workflow_updates::AuditContext;
use crate::sql_store::{column_decoding, workflow_parts};
use windlass_core::failure_commands::{JobPatch, RequestedResources, ResourceSource};
use windlass_types::{JobId, RequirementsId, Resources, WorkflowId};

/// Returns all fields of a job that a revision covers.
pub(crate) fn load_job_patch(
    db: &impl SqlConnection,
    requirements: Option<i64>,
    command: &str,
    priority: i32,
) -> Result<JobPatch, SqlError> {
    let id = requirements.map(RequirementsId);
    let row = id.map(|id| workflow_parts::find_requirements(db, id)).transpose()?.flatten();
    let asked = RequestedResources {
        resources: row.map_or(Resources::DEFAULT, |(_, row)| row.resources),
        by: id.map_or(ResourceSource::Nothing, ResourceSource::Row),
    };
    Ok(JobPatch {
        asked: Some(asked),
        command: Some(command.to_owned()),
        priority: Some(priority),
        place: None,
    })
}

/// Fields with equal values are omitted.
pub(crate) fn record_revision(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    job: JobId,
    (mut before, mut after): (JobPatch, JobPatch),
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    if before.asked == after.asked {
        (before.asked, after.asked) = (None, None);
    }
    if before.command == after.command {
        (before.command, after.command) = (None, None);
    }
    if before.priority == after.priority {
        (before.priority, after.priority) = (None, None);
    }
    if after == JobPatch::default() {
        return Ok(());
    }
    let batch: i64 = db.query_one(sql::LAST_BATCH, [workflow.0], |row| row.get(0))?;
    let (before, after) = (column_decoding::render_json(&before)?, column_decoding::render_json(&after)?);
    let reason = "changed by hand";
    db.execute(
        sql::INSERT_REVISION,
        values![batch + 1, workflow.0, job.0, by.now.0, by.actor, reason, before, after],
    )?;
    Ok(())
}

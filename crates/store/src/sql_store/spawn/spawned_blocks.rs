//! Blocks of added jobs, and their replacement when the job that added them runs again.
//!
//! A block belongs to the attempt that last requested it. If it is requested again unchanged, it moves to that
//! attempt; if changed, its names go to new jobs. When the caller ends, blocks that it did not request again
//! are disabled, together with everything that their jobs had added. Rows and results are kept.

use crate::db::{SqlConnection, SqlRow, values};
use crate::error::SqlError;
use crate::model::SpawnRequest;
use crate::sql::common as sql;
use std::ops::Range;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{JobId, WorkflowId};

/// Jobs that were added together.
#[derive(Clone)]
pub(super) struct SpawnedBlock {
    pub(super) first: i64,
    count: i64,
    pub(super) spawned_by: JobId,
    pub(super) lineage: String,
    pub(super) iteration: u32,
    /// Digest of the request; unknown for imported workflows.
    digest: Option<String>,
    /// Run and attempt of the caller that last requested it.
    requested_by: Option<(i64, u32)>,
}

impl SpawnedBlock {
    /// Returns the block of a job; `None` for jobs that the workflow was created with.
    pub(super) fn find_containing(
        db: &impl SqlConnection,
        workflow: WorkflowId,
        job: i64,
    ) -> Result<Option<Self>, SqlError> {
        let found = db.query_optional(sql::BLOCK_OF_JOB, [workflow.0, job], |row| {
            match row.get::<Option<i64>>(2)? {
                Some(_) => Self::from_row(row).map(Some),
                None => Ok(None),
            }
        });
        Ok(found?.flatten())
    }

    fn from_row(row: &SqlRow<'_>) -> Result<Self, SqlError> {
        let asked = row.get::<Option<i64>>(6)?.zip(row.get::<Option<u32>>(7)?);
        Ok(Self {
            first: row.get(0)?,
            count: row.get(1)?,
            spawned_by: JobId(row.get(2)?),
            lineage: row.get(3)?,
            iteration: row.get(4)?,
            digest: row.get(5)?,
            requested_by: asked,
        })
    }

    /// Returns the blocks added by jobs in a range of ids.
    fn list_added_by(
        db: &impl SqlConnection,
        workflow: WorkflowId,
        jobs: &Range<i64>,
    ) -> Result<Vec<Self>, SqlError> {
        db.query_all(sql::BLOCKS_ADDED_BY, [workflow.0, jobs.start, jobs.end], Self::from_row)
    }

    pub(super) const fn ids(&self) -> Range<i64> {
        self.first..self.first + self.count
    }

    /// Whether the current attempt has requested it.
    pub(super) fn is_requested_by(&self, caller: AttemptKey) -> bool {
        self.spawned_by == caller.job && self.requested_by == Some((caller.run.0, caller.attempt.0))
    }

    /// Whether the caller made the same request before, and all jobs exist and may still run.
    pub(super) fn is_replay(
        &self,
        db: &impl SqlConnection,
        request: &SpawnRequest,
        digest: &str,
    ) -> Result<bool, SqlError> {
        let same = self.spawned_by == request.caller.job && self.digest.as_deref() == Some(digest);
        // Some of them may have been deleted.
        let whole = self.count == request.jobs.len() as i64;
        Ok(same && whole && self.count_disabled(db)? == 0)
    }

    /// Whether its names can be reused: an earlier attempt of the caller requested it, or no job requests it
    /// any more.
    pub(super) fn may_be_replaced(
        &self,
        db: &impl SqlConnection,
        caller: AttemptKey,
    ) -> Result<bool, SqlError> {
        let is_of_the_past = self.spawned_by == caller.job && !self.is_requested_by(caller);
        Ok(is_of_the_past || self.count_disabled(db)? == self.count)
    }

    /// Counts its disabled jobs.
    fn count_disabled(&self, db: &impl SqlConnection) -> Result<i64, SqlError> {
        let ids = self.ids();
        db.query_one(sql::COUNT_DISABLED_JOBS, [ids.start, ids.end], |row| row.get(0))
    }

    /// Assigns the block to this attempt.
    pub(super) fn mark_requested_by(
        &self,
        db: &impl SqlConnection,
        caller: AttemptKey,
    ) -> Result<(), SqlError> {
        let values = values![caller.run.0, caller.attempt.0, caller.workflow.0, self.first];
        db.execute(sql::MARK_BLOCK_REQUESTED, values)?;
        Ok(())
    }
}

/// Returns blocks of earlier attempts of a job that this one has not requested, and everything that their jobs
/// have added.
pub(super) fn list_outdated(
    db: &impl SqlConnection,
    caller: AttemptKey,
) -> Result<Vec<SpawnedBlock>, SqlError> {
    let mut own = SpawnedBlock::list_added_by(db, caller.workflow, &(caller.job.0..caller.job.0 + 1))?;
    own.retain(|block| !block.is_requested_by(caller));
    with_descendants(db, caller.workflow, own)
}

fn with_descendants(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    mut blocks: Vec<SpawnedBlock>,
) -> Result<Vec<SpawnedBlock>, SqlError> {
    let mut next = 0;
    while let Some(block) = blocks.get(next) {
        let added = SpawnedBlock::list_added_by(db, workflow, &block.ids())?;
        blocks.extend(added);
        next += 1;
    }
    Ok(blocks)
}

/// Returns the jobs that earlier attempts of a job had added and its ended attempt did not request again.
pub(crate) fn list_not_respawned(
    db: &impl SqlConnection,
    callers: &[AttemptKey],
) -> Result<Vec<JobId>, SqlError> {
    let mut jobs = Vec::new();
    for &caller in callers {
        jobs.extend(list_outdated(db, caller)?.iter().flat_map(|block| block.ids().map(JobId)));
    }
    Ok(jobs)
}

/// Returns jobs that have added others which still count.
pub(crate) fn list_spawning_jobs(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<Vec<JobId>, SqlError> {
    db.query_all(sql::SPAWNING_JOBS, [workflow.0], |row| row.get(0).map(JobId))
}

/// Renames the jobs of blocks, and of everything that their jobs have added.
pub(super) fn replace_blocks(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    blocks: Vec<SpawnedBlock>,
) -> Result<(), SqlError> {
    for block in with_descendants(db, workflow, blocks)? {
        for id in block.ids() {
            let name: String = db.query_one(sql::JOB_NAME, [id], |row| row.get(0))?;
            let free = find_free_name(&name, |name| db.exists(sql::JOB_NAMED, values![workflow.0, name]))?;
            db.execute(sql::RENAME_JOB, values![free, id])?;
        }
        db.execute(sql::REPLACE_BLOCK, [workflow.0, block.first])?;
    }
    Ok(())
}

/// Returns the first unused name, starting with `name~1`.
pub(super) fn find_free_name(
    name: &str,
    is_taken: impl Fn(&str) -> Result<bool, SqlError>,
) -> Result<String, SqlError> {
    let mut number = 1u64;
    loop {
        let free = format!("{name}~{number}");
        if !is_taken(&free)? {
            return Ok(free);
        }
        number += 1;
    }
}

/// Counts how often the lineage has added jobs that still count.
pub(super) fn last_iteration(
    db: &impl SqlConnection,
    caller: AttemptKey,
    lineage: &str,
) -> Result<u32, SqlError> {
    let past: Vec<i64> = list_outdated(db, caller)?.iter().map(|block| block.first).collect();
    let mut last = 0;
    db.query_each(sql::ITERATIONS, values![caller.workflow.0, lineage], |row| {
        if !past.contains(&row.get(0)?) {
            last = last.max(row.get(1)?);
        }
        Ok(())
    })?;
    Ok(last)
}

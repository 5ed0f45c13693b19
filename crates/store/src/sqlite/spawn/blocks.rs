//! Jobs that were added together, and what becomes of them when the job that added them runs once more.
//!
//! A block belongs to the attempt that last asked for it. Asked for again with the same contents, it is that attempt's;
//! asked for with others, it gives its names up to new jobs. Whatever the caller did not ask for again is left out when it
//! ends, with all that it had added in turn. The rows stay, and their results with them.

use crate::error::Fault;
use crate::model::SpawnRequest;
use crate::sql::common as sql;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::ops::Range;
use windlass_types::work::AttemptKey;
use windlass_types::{JobId, WorkflowId};

/// Jobs that were added together.
#[derive(Clone)]
pub(super) struct SpawnedBlock {
    pub(super) first: i64,
    count: i64,
    pub(super) spawned_by: JobId,
    pub(super) lineage: String,
    pub(super) iteration: u32,
    /// Of what was asked for; unknown where it came from a file.
    digest: Option<String>,
    /// The run and the attempt of the caller that last asked for it.
    asked: Option<(i64, u32)>,
}

impl SpawnedBlock {
    /// The one that a job of the workflow is in; none for those that the workflow was created with.
    pub(super) fn around(conn: &Connection, workflow: WorkflowId, job: i64) -> Result<Option<Self>, Fault> {
        let found =
            conn.prepare_cached(sql::BLOCK_AROUND)?.query_row([workflow.0, job], |row| {
                match row.get::<_, Option<i64>>(2)? {
                    Some(_) => Self::read(row).map(Some),
                    None => Ok(None),
                }
            });
        Ok(found.optional()?.flatten())
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let asked = row.get::<_, Option<i64>>(6)?.zip(row.get::<_, Option<u32>>(7)?);
        Ok(Self {
            first: row.get(0)?,
            count: row.get(1)?,
            spawned_by: JobId(row.get(2)?),
            lineage: row.get(3)?,
            iteration: row.get(4)?,
            digest: row.get(5)?,
            asked,
        })
    }

    /// Those that jobs of a range of ids have added.
    fn added_by(conn: &Connection, workflow: WorkflowId, jobs: &Range<i64>) -> Result<Vec<Self>, Fault> {
        let mut statement = conn.prepare_cached(sql::BLOCKS_ADDED_BY)?;
        let rows = statement.query_map([workflow.0, jobs.start, jobs.end], Self::read)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    pub(super) const fn ids(&self) -> Range<i64> {
        self.first..self.first + self.count
    }

    /// The attempt that runs now has asked for it.
    pub(super) fn is_asked_by(&self, caller: AttemptKey) -> bool {
        self.spawned_by == caller.job && self.asked == Some((caller.run.0, caller.attempt.0))
    }

    /// The caller asked for the very same before, and all of it is there and may still run.
    pub(super) fn is_replay(
        &self,
        conn: &Connection,
        request: &SpawnRequest,
        digest: &str,
    ) -> Result<bool, Fault> {
        let same = self.spawned_by == request.caller.job && self.digest.as_deref() == Some(digest);
        // Somebody may have deleted some of them.
        let whole = self.count == request.jobs.len() as i64;
        Ok(same && whole && self.left_out(conn)? == 0)
    }

    /// Whether its names may go to others: the caller asked for it in an earlier attempt, or nobody asks for it any more.
    pub(super) fn may_be_replaced(&self, conn: &Connection, caller: AttemptKey) -> Result<bool, Fault> {
        let is_of_the_past = self.spawned_by == caller.job && !self.is_asked_by(caller);
        Ok(is_of_the_past || self.left_out(conn)? == self.count)
    }

    /// How many of its jobs are left out.
    fn left_out(&self, conn: &Connection) -> Result<i64, Fault> {
        let ids = self.ids();
        Ok(conn.prepare_cached(sql::LEFT_OUT)?.query_row([ids.start, ids.end], |row| row.get(0))?)
    }

    /// From now on it is what this attempt asked for.
    pub(super) fn ask_again(&self, conn: &Connection, caller: AttemptKey) -> Result<(), Fault> {
        let values = params![caller.run.0, caller.attempt.0, caller.workflow.0, self.first];
        conn.prepare_cached(sql::ASK_AGAIN)?.execute(values)?;
        Ok(())
    }
}

/// Blocks of earlier attempts of a job, for which this one has not asked, and what their jobs have added in turn.
pub(super) fn of_the_past(conn: &Connection, caller: AttemptKey) -> Result<Vec<SpawnedBlock>, Fault> {
    let mut own = SpawnedBlock::added_by(conn, caller.workflow, &(caller.job.0..caller.job.0 + 1))?;
    own.retain(|block| !block.is_asked_by(caller));
    with_descendants(conn, caller.workflow, own)
}

fn with_descendants(
    conn: &Connection,
    workflow: WorkflowId,
    mut blocks: Vec<SpawnedBlock>,
) -> Result<Vec<SpawnedBlock>, Fault> {
    let mut next = 0;
    while let Some(block) = blocks.get(next) {
        let added = SpawnedBlock::added_by(conn, workflow, &block.ids())?;
        blocks.extend(added);
        next += 1;
    }
    Ok(blocks)
}

/// The jobs that an attempt which is over did not ask for again, though the same job had added them before.
pub(crate) fn left_behind(conn: &Connection, callers: &[AttemptKey]) -> Result<Vec<JobId>, Fault> {
    let mut jobs = Vec::new();
    for &caller in callers {
        jobs.extend(of_the_past(conn, caller)?.iter().flat_map(|block| block.ids().map(JobId)));
    }
    Ok(jobs)
}

/// Jobs that have added others which still count.
pub(crate) fn spawners(conn: &Connection, workflow: WorkflowId) -> Result<Vec<JobId>, Fault> {
    let mut statement = conn.prepare_cached(sql::SPAWNERS)?;
    let rows = statement.query_map([workflow.0], |row| row.get(0).map(JobId))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Takes the names of blocks away, and of all that their jobs have added.
pub(super) fn replace(
    conn: &Connection,
    workflow: WorkflowId,
    blocks: Vec<SpawnedBlock>,
) -> Result<(), Fault> {
    for block in with_descendants(conn, workflow, blocks)? {
        for id in block.ids() {
            let name: String = conn.prepare_cached(sql::JOB_NAME)?.query_row([id], |row| row.get(0))?;
            let free = free_name(&name, |name| {
                let mut named = conn.prepare_cached(sql::JOB_NAMED)?;
                Ok(named.exists(params![workflow.0, name])?)
            })?;
            conn.prepare_cached(sql::RENAME_JOB)?.execute(params![free, id])?;
        }
        conn.prepare_cached(sql::REPLACE_BLOCK)?.execute([workflow.0, block.first])?;
    }
    Ok(())
}

/// `name~1`, or the first one after it that nobody has.
pub(super) fn free_name(name: &str, is_taken: impl Fn(&str) -> Result<bool, Fault>) -> Result<String, Fault> {
    let mut number = 1u64;
    loop {
        let free = format!("{name}~{number}");
        if !is_taken(&free)? {
            return Ok(free);
        }
        number += 1;
    }
}

/// How often the lineage has added jobs that still count.
pub(super) fn last_iteration(conn: &Connection, caller: AttemptKey, lineage: &str) -> Result<u32, Fault> {
    let past: Vec<i64> = of_the_past(conn, caller)?.iter().map(|block| block.first).collect();
    let mut statement = conn.prepare_cached(sql::ITERATIONS)?;
    let mut rows = statement.query(params![caller.workflow.0, lineage])?;
    let mut last = 0;
    while let Some(row) = rows.next()? {
        if !past.contains(&row.get(0)?) {
            last = last.max(row.get(1)?);
        }
    }
    Ok(last)
}

//! Takes jobs out of a workflow, with their results and all that hangs on them.
//!
//! What others refer to stays: a job that another one waits for, or an action, is not deleted without it.

use super::refuse_while_held;
use crate::Error;
use crate::books::apply::{Moved, find_job};
use crate::books::load::{Block, Blocks, for_each_pair};
use crate::books::manage::{By, JOBS_AT_ONCE};
use crate::books::read::job_names;
use crate::db::Db;
use crate::error::Fault;
use crate::sql::common as sql;
use serde_json::json;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use windlass_types::{JobId, WorkflowId};

/// So many are named in the note that is made of it.
const NAMED: usize = 100;

/// One transaction, on a connection of its own that does not look for references: they are looked for here, once.
pub(crate) fn delete_jobs(
    db: &impl Db,
    workflow: WorkflowId,
    jobs: &[JobId],
    by: By<'_>,
) -> Result<(), Fault> {
    let blocks = Blocks::read(db, workflow)?;
    refuse_while_held(db, workflow)?;
    let goes: BTreeSet<i64> = jobs.iter().map(|job| job.0).collect();
    let mut moved = Moved::default();
    for &id in &goes {
        let found = find_job(db, workflow, JobId(id))?.ok_or(Error::NoSuchJob(JobId(id)))?;
        moved.remove(found.status);
    }
    refuse_what_is_waited_for(db, workflow, &goes)?;
    let named: Vec<JobId> = goes.iter().take(NAMED).copied().map(JobId).collect();
    let names = job_names(db, &named)?;
    delete_gate_members(db, workflow, &goes)?;
    for range in ranges(&goes) {
        delete_range(db, workflow, range)?;
    }
    for block in blocks.iter() {
        cut(db, workflow, block, &goes)?;
    }
    moved.write(db, workflow)?;
    let message = match names.as_slice() {
        [one] => format!("deleted job `{one}`"),
        _ => format!("deleted {} jobs", goes.len()),
    };
    by.note(db, workflow, "jobs", message, json!({ "jobs": goes.len(), "job_ids": named, "names": names }))
}

fn refuse_what_is_waited_for(db: &impl Db, workflow: WorkflowId, goes: &BTreeSet<i64>) -> Result<(), Fault> {
    // (the job, who waits for it)
    let mut wanted = None;
    for_each_pair(db, sql::LOAD_EDGES, workflow, |job, on| {
        if goes.contains(&on) && !goes.contains(&job) {
            wanted.get_or_insert((on, job));
        }
    })?;
    let mut waiting = std::collections::HashMap::new();
    for_each_pair(db, sql::LOAD_JOB_GATES, workflow, |job, gate| {
        if !goes.contains(&job) {
            waiting.entry(gate).or_insert(job);
        }
    })?;
    for_each_pair(db, sql::LOAD_GATE_MEMBERS, workflow, |gate, on| {
        if let Some(job) = waiting.get(&gate)
            && goes.contains(&on)
        {
            wanted.get_or_insert((on, *job));
        }
    })?;
    if let Some((on, job)) = wanted {
        let names = job_names(db, &[JobId(on), JobId(job)])?;
        let what = format!("job {on} (`{}`)", names[0]);
        return Err(Error::InUse { what, by: format!("job {job} (`{}`) waits for it", names[1]) }.into());
    }
    let mut watched = None;
    for_each_pair(db, sql::ALL_ACTION_JOBS, workflow, |action, job| {
        if goes.contains(&job) {
            watched.get_or_insert((action, job));
        }
    })?;
    let Some((action, job)) = watched else { return Ok(()) };
    let name = job_names(db, &[JobId(job)])?.swap_remove(0);
    let what = format!("job {job} (`{name}`)");
    Err(Error::InUse { what, by: format!("action {action} of the workflow waits for it") }.into())
}

/// Only of gates for which nobody waits who stays.
fn delete_gate_members(db: &impl Db, workflow: WorkflowId, goes: &BTreeSet<i64>) -> Result<(), Fault> {
    let mut members = HashSet::new();
    for_each_pair(db, sql::LOAD_GATE_MEMBERS, workflow, |gate, job| {
        if goes.contains(&job) {
            members.insert((gate, job));
        }
    })?;
    for (gate, job) in members {
        db.execute(sql::DELETE_GATE_MEMBER, [workflow.0, gate, job])?;
    }
    Ok(())
}

/// Ids that follow each other, and not too many at once.
fn ranges(ids: &BTreeSet<i64>) -> Vec<Range<i64>> {
    let mut ranges: Vec<Range<i64>> = Vec::new();
    for &id in ids {
        match ranges.last_mut() {
            Some(last) if last.end == id && last.end - last.start < JOBS_AT_ONCE as i64 => last.end += 1,
            _ => ranges.push(id..id + 1),
        }
    }
    ranges
}

fn delete_range(db: &impl Db, workflow: WorkflowId, range: Range<i64>) -> Result<(), Fault> {
    for sql in [sql::DELETE_EDGES_OF, sql::DELETE_GATES_OF] {
        db.execute(sql, [workflow.0, range.start, range.end])?;
    }
    for sql in sql::DELETE_JOBS {
        db.execute(sql, [range.start, range.end])?;
    }
    Ok(())
}

/// Leaves of a block what stays of it, in as many pieces as it takes.
fn cut(db: &impl Db, workflow: WorkflowId, block: Block, goes: &BTreeSet<i64>) -> Result<(), Fault> {
    let mut pieces = Vec::new();
    let mut start = block.first;
    for &gone in goes.range(block.first..block.end()).chain([&block.end()]) {
        if start < gone {
            pieces.push(start..gone);
        }
        start = gone + 1;
    }
    if pieces.iter().map(|piece| piece.end - piece.start).sum::<i64>() == block.count {
        return Ok(());
    }
    let (same_start, others): (Vec<_>, Vec<_>) =
        pieces.into_iter().partition(|piece| piece.start == block.first);
    for piece in others {
        let values = [piece.start, piece.end - piece.start, workflow.0, block.first];
        db.execute(sql::SPLIT_BLOCK, values)?;
    }
    match same_start.first() {
        Some(piece) => {
            let values = [piece.end - piece.start, workflow.0, block.first];
            db.execute(sql::SET_BLOCK_LENGTH, values)?;
        }
        None => {
            db.execute(sql::DELETE_BLOCK, [workflow.0, block.first])?;
        }
    }
    Ok(())
}

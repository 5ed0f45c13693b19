//! Deletes jobs from a workflow, with their results and all relations.
//!
//! A job is not deleted without its dependents, or if an action waits for it.

use super::refuse_held_jobs;
use crate::StoreError;
use crate::db::SqlConnection;
use crate::error::SqlError;
use crate::sql::common as sql;
use crate::sql_store::apply_changes::{StatusCountDeltas, find_job_state};
use crate::sql_store::job_loading::{JobIdBlock, JobIdBlocks, for_each_pair};
use crate::sql_store::queries::load_job_names;
use crate::sql_store::workflow_updates::{AuditContext, JOBS_PER_DELETE};
use serde_json::json;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use windlass_types::{JobId, WorkflowId};

/// Maximum number of names in the event.
const MAX_NAMES_IN_EVENT: usize = 100;

/// One transaction, on a connection without foreign key checks: references are checked here, once.
pub(crate) fn delete_jobs(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    jobs: &[JobId],
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let blocks = JobIdBlocks::load(db, workflow)?;
    refuse_held_jobs(db, workflow)?;
    let goes: BTreeSet<i64> = jobs.iter().map(|job| job.0).collect();
    let mut moved = StatusCountDeltas::default();
    for &id in &goes {
        let found = find_job_state(db, workflow, JobId(id))?.ok_or(StoreError::NoSuchJob(JobId(id)))?;
        moved.remove(found.status);
    }
    refuse_needed_jobs(db, workflow, &goes)?;
    let named: Vec<JobId> = goes.iter().take(MAX_NAMES_IN_EVENT).copied().map(JobId).collect();
    let names = load_job_names(db, &named)?;
    delete_dependency_group_members(db, workflow, &goes)?;
    for range in to_id_ranges(&goes) {
        delete_range(db, workflow, range)?;
    }
    for block in blocks.iter() {
        split_block(db, workflow, block, &goes)?;
    }
    moved.write_counts(db, workflow)?;
    let message = match names.as_slice() {
        [one] => format!("deleted job `{one}`"),
        _ => format!("deleted {} jobs", goes.len()),
    };
    by.record_event(
        db,
        workflow,
        "jobs",
        message,
        json!({ "jobs": goes.len(), "job_ids": named, "names": names }),
    )
}

fn refuse_needed_jobs(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    goes: &BTreeSet<i64>,
) -> Result<(), SqlError> {
    // (the job, its dependent)
    let mut wanted = None;
    for_each_pair(db, sql::LOAD_EDGES, workflow, |job, on| {
        if goes.contains(&on) && !goes.contains(&job) {
            wanted.get_or_insert((on, job));
        }
    })?;
    let mut waiting = std::collections::HashMap::new();
    for_each_pair(db, sql::LOAD_JOB_DEPENDENCY_GROUPS, workflow, |job, group| {
        if !goes.contains(&job) {
            waiting.entry(group).or_insert(job);
        }
    })?;
    for_each_pair(db, sql::LOAD_DEPENDENCY_GROUP_MEMBERS, workflow, |group, on| {
        if let Some(job) = waiting.get(&group)
            && goes.contains(&on)
        {
            wanted.get_or_insert((on, *job));
        }
    })?;
    if let Some((on, job)) = wanted {
        let names = load_job_names(db, &[JobId(on), JobId(job)])?;
        let what = format!("job {on} (`{}`)", names[0]);
        return Err(StoreError::InUse { what, by: format!("job {job} (`{}`) waits for it", names[1]) }.into());
    }
    let mut watched = None;
    for_each_pair(db, sql::ALL_ACTION_JOBS, workflow, |action, job| {
        if goes.contains(&job) {
            watched.get_or_insert((action, job));
        }
    })?;
    let Some((action, job)) = watched else { return Ok(()) };
    let name = load_job_names(db, &[JobId(job)])?.swap_remove(0);
    let what = format!("job {job} (`{name}`)");
    Err(StoreError::InUse { what, by: format!("action {action} of the workflow waits for it") }.into())
}

/// Only members of dependency groups without remaining dependents.
fn delete_dependency_group_members(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    goes: &BTreeSet<i64>,
) -> Result<(), SqlError> {
    let mut members = HashSet::new();
    for_each_pair(db, sql::LOAD_DEPENDENCY_GROUP_MEMBERS, workflow, |group, job| {
        if goes.contains(&job) {
            members.insert((group, job));
        }
    })?;
    for (group, job) in members {
        db.execute(sql::DELETE_DEPENDENCY_GROUP_MEMBER, [workflow.0, group, job])?;
    }
    Ok(())
}

/// Ranges of consecutive ids with a limited length.
fn to_id_ranges(ids: &BTreeSet<i64>) -> Vec<Range<i64>> {
    let mut ranges: Vec<Range<i64>> = Vec::new();
    for &id in ids {
        match ranges.last_mut() {
            Some(last) if last.end == id && last.end - last.start < JOBS_PER_DELETE as i64 => last.end += 1,
            _ => ranges.push(id..id + 1),
        }
    }
    ranges
}

fn delete_range(db: &impl SqlConnection, workflow: WorkflowId, range: Range<i64>) -> Result<(), SqlError> {
    for sql in [sql::DELETE_EDGES_OF, sql::DELETE_DEPENDENCY_GROUPS_OF] {
        db.execute(sql, [workflow.0, range.start, range.end])?;
    }
    for sql in sql::DELETE_JOBS {
        db.execute(sql, [range.start, range.end])?;
    }
    Ok(())
}

/// Splits a block into the parts that remain.
fn split_block(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    block: JobIdBlock,
    goes: &BTreeSet<i64>,
) -> Result<(), SqlError> {
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

//! Reads a whole workflow into the arrays that the scheduler uses.

use super::apply_changes::current_run;
use super::column_decoding;
use super::{failures, work_units};
use crate::db::{SqlConnection, SqlRow};
use crate::error::SqlError;
use crate::model::LoadedJobs;
use crate::sql::common as sql;
use std::collections::HashMap;
use windlass_core::dependency_edges::DependencyEdges;
use windlass_core::dispatch::LocationConstraint;
use windlass_types::settings::FailureHandler;
use windlass_types::{Attempt, Bytes, JobId, Resources, WorkflowId};

/// The id ranges of the jobs of a workflow, ascending.
pub(crate) struct JobIdBlocks(Vec<JobIdBlock>);

#[derive(Clone, Copy)]
pub(crate) struct JobIdBlock {
    pub(crate) first: i64,
    pub(crate) count: i64,
    /// Number of jobs in earlier blocks.
    jobs_before: i64,
}

impl JobIdBlock {
    pub(crate) const fn end(self) -> i64 {
        self.first + self.count
    }
}

impl JobIdBlocks {
    pub(crate) fn load(db: &impl SqlConnection, workflow: WorkflowId) -> Result<Self, SqlError> {
        current_run(db, workflow)?;
        let (mut blocks, mut before) = (Vec::new(), 0);
        db.query_each(sql::JOB_BLOCKS, [workflow.0], |row| {
            let block = JobIdBlock { first: row.get(0)?, count: row.get(1)?, jobs_before: before };
            before += block.count;
            blocks.push(block);
            Ok(())
        })?;
        Ok(Self(blocks))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = JobIdBlock> {
        self.0.iter().copied()
    }

    pub(crate) fn job_count(&self) -> usize {
        self.0.last().map_or(0, |last| (last.jobs_before + last.count) as usize)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = JobId> {
        self.iter().flat_map(|block| (block.first..block.end()).map(JobId))
    }

    /// Whether the blocks contain exactly the ids from `first` up to (not including) `end`.
    pub(crate) fn covers_exactly(&self, first: i64, end: i64) -> bool {
        let mut next = first;
        self.iter().all(|block| std::mem::replace(&mut next, block.end()) == block.first) && next == end
    }

    /// Returns the index of a job in the workflow, from 0 in the order of the ids.
    pub(crate) fn job_index(&self, id: i64) -> u32 {
        let block = self.0.partition_point(|block| block.first <= id).checked_sub(1);
        block.map_or(0, |block| (self.0[block].jobs_before + id - self.0[block].first) as u32)
    }
}

pub(crate) fn load_jobs(db: &impl SqlConnection, workflow: WorkflowId) -> Result<LoadedJobs, SqlError> {
    let run = current_run(db, workflow)?;
    let blocks = JobIdBlocks::load(db, workflow)?;
    let classes = load_shared_attributes(db, workflow)?;
    let mut loaded = LoadedJobs { ids: blocks.ids().collect(), ..new_job_table(blocks.job_count()) };
    for block in blocks.iter() {
        load_block(db, block, &classes, &mut loaded)?;
    }
    classes.move_into(&mut loaded);
    loaded.edges = load_edges(db, workflow, &blocks)?;
    failures::load_next_attempts(db, workflow, run, &blocks, &mut loaded)?;
    loaded.units = work_units::load_units(db, workflow, &loaded.ids)?;
    Ok(loaded)
}

/// The same for the jobs of blocks that begin after `after`. Edges use indices over all jobs of the workflow.
pub(crate) fn load_jobs_after(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    after: JobId,
) -> Result<LoadedJobs, SqlError> {
    let values = [workflow.0, after.0];
    let new: i64 = db.query_one(sql::BLOCKS_AFTER, values, |row| row.get(0))?;
    if new == 0 {
        return Ok(LoadedJobs::default());
    }
    let blocks = JobIdBlocks::load(db, workflow)?;
    let classes = load_shared_attributes(db, workflow)?;
    let mut loaded = LoadedJobs::default();
    for block in blocks.iter().filter(|block| block.first > after.0) {
        loaded.ids.extend((block.first..block.end()).map(JobId));
        load_block(db, block, &classes, &mut loaded)?;
    }
    classes.move_into(&mut loaded);
    db.query_each(sql::EDGES_AFTER, values, |row| {
        loaded.edges.direct.push((blocks.job_index(row.get(0)?), blocks.job_index(row.get(1)?)));
        Ok(())
    })?;
    Ok(loaded)
}

/// Distinct resource requests of jobs.
struct SharedJobAttributes {
    requirements: Vec<Resources>,
    /// Class of each requirements row by id.
    requirements_index: HashMap<i64, u32>,
    /// Placements of jobs, and the placement of each job group by id. Empty if no job group has one.
    locations: Vec<LocationConstraint>,
    location_index: HashMap<i64, u32>,
    /// Failure handlers, and the handler of each job group by id, plus one. Empty if there are none.
    handlers: Vec<FailureHandler>,
    handler_index: HashMap<i64, u32>,
}

impl SharedJobAttributes {
    /// Returns an empty list if no job has a placement.
    fn move_into(self, loaded: &mut LoadedJobs) {
        loaded.requirements = self.requirements;
        loaded.places = self.locations;
        loaded.handlers = self.handlers;
    }
}

/// Class 0 is for jobs without requirements. Requirements with the same values are another class, because
/// values set by a user are enforced and defaults are not.
fn load_shared_attributes(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<SharedJobAttributes, SqlError> {
    let mut requirements = vec![Resources::DEFAULT];
    let mut class = HashMap::new();
    let mut known: HashMap<Resources, u32> = HashMap::new();
    db.query_each(sql::LOAD_REQUIREMENTS, [workflow.0], |row| {
        let resources = read_resources(row)?;
        let index = *known.entry(resources).or_insert_with(|| {
            requirements.push(resources);
            requirements.len() as u32 - 1
        });
        class.insert(row.get(0)?, index);
        Ok(())
    })?;
    let (places, place) = load_locations(db, workflow)?;
    let (handlers, handler) = failures::load_handlers(db, workflow)?;
    Ok(SharedJobAttributes {
        requirements,
        requirements_index: class,
        locations: places,
        location_index: place,
        handlers,
        handler_index: handler,
    })
}

/// Distinct labels, schedulers, sites and limits of job groups. Empty if no job group has any.
fn load_locations(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<(Vec<LocationConstraint>, HashMap<i64, u32>), SqlError> {
    let mut places = vec![LocationConstraint::default()];
    let mut place = HashMap::new();
    db.query_each(sql::LOAD_JOB_LOCATIONS, [workflow.0], |row| {
        let mut labels: Vec<String> = column_decoding::read_required_json(row, 1)?;
        let mut sites: Vec<String> = column_decoding::read_json(row, 3)?.unwrap_or_default();
        for names in [&mut labels, &mut sites] {
            names.sort_unstable();
            names.dedup();
        }
        let (scheduler, limit, elects) = (row.get(2)?, row.get(4)?, column_decoding::read_flag(row, 5)?);
        let at = LocationConstraint { labels, scheduler, sites, limit, elects };
        let index = places.iter().position(|known| *known == at).unwrap_or_else(|| {
            places.push(at);
            places.len() - 1
        });
        place.insert(row.get(0)?, index as u32);
        Ok(())
    })?;
    if places.len() == 1 { Ok((Vec::new(), HashMap::new())) } else { Ok((places, place)) }
}

pub(crate) fn read_resources(row: &SqlRow<'_>) -> Result<Resources, SqlError> {
    Ok(Resources {
        cpus: row.get(1)?,
        memory: Bytes(row.get::<i64>(2)?.unsigned_abs()),
        gpus: row.get(3)?,
        nodes: row.get(4)?,
        runtime: column_decoding::read_duration(row, 5)?,
    })
}

fn new_job_table(n: usize) -> LoadedJobs {
    LoadedJobs {
        status: Vec::with_capacity(n),
        attempt: Vec::with_capacity(n),
        priority: Vec::with_capacity(n),
        cancel_on_blocking_job_failure: Vec::with_capacity(n),
        class: Vec::with_capacity(n),
        ..LoadedJobs::default()
    }
}

/// Appends the rows of a block.
fn load_block(
    db: &impl SqlConnection,
    block: JobIdBlock,
    classes: &SharedJobAttributes,
    loaded: &mut LoadedJobs,
) -> Result<(), SqlError> {
    let expected = loaded.status.len() + block.count as usize;
    // Thousands of consecutive jobs usually have the same requirements.
    let mut last = (None, 0);
    db.query_each(sql::LOAD_JOBS, [block.first, block.end()], |row| {
        loaded.status.push(column_decoding::read_status(row, 0)?);
        loaded.attempt.push(Attempt(row.get(1)?));
        loaded.priority.push(row.get(2)?);
        loaded.cancel_on_blocking_job_failure.push(column_decoding::read_flag(row, 3)?);
        let requirements: Option<i64> = row.get(4)?;
        if requirements != last.0 {
            let class = requirements.and_then(|id| classes.requirements_index.get(&id)).copied();
            last = (requirements, class.unwrap_or(0));
        }
        loaded.class.push(last.1);
        if !classes.locations.is_empty() {
            let job_group: Option<i64> = row.get(5)?;
            loaded.place.push(
                job_group.and_then(|job_group| classes.location_index.get(&job_group)).copied().unwrap_or(0),
            );
        }
        if !classes.handler_index.is_empty() {
            let job_group: Option<i64> = row.get(5)?;
            loaded.handler.push(
                job_group.and_then(|job_group| classes.handler_index.get(&job_group)).copied().unwrap_or(0),
            );
        }
        Ok(())
    })?;
    if loaded.status.len() == expected {
        Ok(())
    } else {
        Err(SqlError::damage("jobs of a block are missing"))
    }
}

fn load_edges(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    blocks: &JobIdBlocks,
) -> Result<DependencyEdges, SqlError> {
    let mut edges = DependencyEdges::default();
    let index = |id: i64| blocks.job_index(id);
    for_each_pair(db, sql::LOAD_EDGES, workflow, |job, waits_for| {
        edges.direct.push((index(job), index(waits_for)));
    })?;
    for_each_pair(db, sql::LOAD_DEPENDENCY_GROUP_MEMBERS, workflow, |group, job| {
        if edges.groups.len() <= group as usize {
            edges.groups.resize_with(group as usize + 1, Vec::new);
        }
        edges.groups[group as usize].push(index(job));
    })?;
    for_each_pair(db, sql::LOAD_JOB_DEPENDENCY_GROUPS, workflow, |job, group| {
        edges.waits.push((index(job), group as u32));
    })?;
    Ok(edges)
}

pub(crate) fn for_each_pair(
    db: &impl SqlConnection,
    sql: &str,
    workflow: WorkflowId,
    mut take: impl FnMut(i64, i64),
) -> Result<(), SqlError> {
    db.query_each(sql, [workflow.0], |row| {
        take(row.get(0)?, row.get(1)?);
        Ok(())
    })?;
    Ok(())
}

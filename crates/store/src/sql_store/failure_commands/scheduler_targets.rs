//! Moves jobs to another Slurm scheduler or partition. The scheduler is stored in the job group, which other
//! jobs share: the job gets a copy of its job group with the new scheduler, so that other jobs are not
//! affected.

use crate::db::{SqlConnection, values};
use crate::error::SqlError;
use crate::sql::common as sql;
use crate::sql_store::column_decoding;
use crate::sql_store::create::insert_job_group;
use crate::sql_store::workflow_parts;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use windlass_core::failure_commands::SchedulerTarget;
use windlass_types::settings::SlurmScheduler;
use windlass_types::{JobGroup, JobId, JobSettings, WorkflowId};

/// The schedulers of a workflow, and job groups already looked up.
pub(crate) struct SchedulerTargets {
    workflow: WorkflowId,
    /// Planned ones have no id yet.
    known: RefCell<Vec<(Option<i64>, SlurmScheduler)>>,
    job_groups: RefCell<FxHashMap<SchedulerMove, i64>>,
}

/// The old job group of a job, and its new scheduler.
type SchedulerMove = (Option<i64>, Option<i64>);

impl SchedulerTargets {
    pub(crate) fn load(db: &impl SqlConnection, workflow: WorkflowId) -> Result<Self, SqlError> {
        let known = workflow_parts::list_schedulers(db, workflow)?
            .into_iter()
            .map(|row| (Some(row.id), row.scheduler));
        Ok(Self { workflow, known: RefCell::new(known.collect()), job_groups: RefCell::default() })
    }

    pub(crate) fn schedulers(&self) -> Vec<SlurmScheduler> {
        self.known.borrow().iter().map(|(_, scheduler)| scheduler.clone()).collect()
    }

    pub(crate) fn scheduler(&self, id: i64) -> Option<SlurmScheduler> {
        let known = self.known.borrow();
        known.iter().find(|(known, _)| *known == Some(id)).map(|(_, scheduler)| scheduler.clone())
    }

    /// Later commands can refer to it.
    pub(crate) fn add_planned_scheduler(&self, place: &SchedulerTarget) {
        let Some(scheduler) = place.scheduler() else { return };
        let mut known = self.known.borrow_mut();
        if known.iter().all(|(_, one)| one.name != scheduler.name) {
            known.push((None, scheduler.clone()));
        }
    }

    /// Returns the job group of the job with the new scheduler.
    pub(crate) fn group_for_target(
        &self,
        db: &impl SqlConnection,
        job: JobId,
        place: &SchedulerTarget,
    ) -> Result<i64, SqlError> {
        let scheduler =
            place.scheduler().map(|scheduler| self.find_or_insert_scheduler(db, scheduler)).transpose()?;
        let now: Option<i64> = db.query_one(sql::GROUP_OF_JOB, [job.0], |row| row.get(0))?;
        if let Some(job_group) = self.job_groups.borrow().get(&(now, scheduler)) {
            return Ok(*job_group);
        }
        let job_group = match now {
            Some(job_group) => find_or_copy_group(db, job_group, scheduler)?,
            None => insert_job_group(
                db,
                self.workflow,
                &JobGroup {
                    settings: JobSettings { scheduler, ..JobSettings::default() },
                    ..JobGroup::default()
                },
            )?,
        };
        self.job_groups.borrow_mut().insert((now, scheduler), job_group);
        Ok(job_group)
    }

    /// Returns the id of the scheduler of this name; creates it if it does not exist.
    fn find_or_insert_scheduler(
        &self,
        db: &impl SqlConnection,
        scheduler: &SlurmScheduler,
    ) -> Result<i64, SqlError> {
        let mut known = self.known.borrow_mut();
        let place = known.iter().position(|(_, one)| one.name == scheduler.name);
        if let Some(id) = place.and_then(|place| known[place].0) {
            return Ok(id);
        }
        let settings = column_decoding::render_json(scheduler)?;
        let values = values![self.workflow.0, scheduler.name, settings];
        let id = db.query_one(sql::INSERT_SCHEDULER, values, |row| row.get(0))?;
        match place {
            Some(place) => known[place].0 = Some(id),
            None => known.push((Some(id), scheduler.clone())),
        }
        Ok(id)
    }
}

/// Returns a copy of the job group with the scheduler.
fn find_or_copy_group(
    db: &impl SqlConnection,
    job_group: i64,
    scheduler: Option<i64>,
) -> Result<i64, SqlError> {
    let (labels, terminates, handler) = db.query_one(sql::SHARED_BY_GROUP, [job_group], |row| {
        Ok((row.get::<String>(0)?, row.get::<Option<i64>>(1)?, row.get::<Option<i64>>(2)?))
    })?;
    let like = values![job_group, labels, terminates, handler, scheduler];
    if let Some(known) = db.query_optional(sql::FIND_SIMILAR_GROUP, like, |row| row.get(0))? {
        return Ok(known);
    }
    let copy = values![labels, terminates, handler, scheduler, job_group];
    db.query_one(sql::COPY_JOB_GROUP, copy, |row| row.get(0))
}

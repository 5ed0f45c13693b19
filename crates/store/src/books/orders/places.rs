//! Jobs that are to go to another Slurm scheduler or partition. What a job names belongs to its kind, which it shares: so it
//! gets a kind that is like its own but for that, and neither the kind nor the scheduler of the others changes.

use crate::books::column;
use crate::books::create::insert_kind;
use crate::books::parts;
use crate::db::{Db, values};
use crate::error::Fault;
use crate::model::NewKind;
use crate::sql::common as sql;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use windlass_core::orders::Place;
use windlass_types::settings::SlurmScheduler;
use windlass_types::{JobId, WorkflowId};

/// The schedulers of a workflow, and kinds that were looked up already.
pub(crate) struct Places {
    workflow: WorkflowId,
    /// Those that were only promised have no number yet.
    known: RefCell<Vec<(Option<i64>, SlurmScheduler)>>,
    kinds: RefCell<FxHashMap<Move, i64>>,
}

/// The kind that a job was of, and the scheduler that it goes to.
type Move = (Option<i64>, Option<i64>);

impl Places {
    pub(crate) fn read(db: &impl Db, workflow: WorkflowId) -> Result<Self, Fault> {
        let known = parts::schedulers(db, workflow)?.into_iter().map(|row| (Some(row.id), row.scheduler));
        Ok(Self { workflow, known: RefCell::new(known.collect()), kinds: RefCell::default() })
    }

    pub(crate) fn schedulers(&self) -> Vec<SlurmScheduler> {
        self.known.borrow().iter().map(|(_, scheduler)| scheduler.clone()).collect()
    }

    pub(crate) fn scheduler(&self, id: i64) -> Option<SlurmScheduler> {
        let known = self.known.borrow();
        known.iter().find(|(known, _)| *known == Some(id)).map(|(_, scheduler)| scheduler.clone())
    }

    /// Orders that follow know of it.
    pub(crate) fn promise(&self, place: &Place) {
        let Some(scheduler) = place.scheduler() else { return };
        let mut known = self.known.borrow_mut();
        if known.iter().all(|(_, one)| one.name != scheduler.name) {
            known.push((None, scheduler.clone()));
        }
    }

    /// The kind that a job is of once it goes there.
    pub(crate) fn kind(&self, db: &impl Db, job: JobId, place: &Place) -> Result<i64, Fault> {
        let scheduler = place.scheduler().map(|scheduler| self.row(db, scheduler)).transpose()?;
        let now: Option<i64> = db.one(sql::KIND_OF_JOB, [job.0], |row| row.get(0))?;
        if let Some(kind) = self.kinds.borrow().get(&(now, scheduler)) {
            return Ok(*kind);
        }
        let kind = match now {
            Some(kind) => kind_like(db, kind, scheduler)?,
            None => insert_kind(db, self.workflow, &NewKind::default(), None, scheduler)?,
        };
        self.kinds.borrow_mut().insert((now, scheduler), kind);
        Ok(kind)
    }

    /// The number of the scheduler of this name, which is made if there is none.
    fn row(&self, db: &impl Db, scheduler: &SlurmScheduler) -> Result<i64, Fault> {
        let mut known = self.known.borrow_mut();
        let place = known.iter().position(|(_, one)| one.name == scheduler.name);
        if let Some(id) = place.and_then(|place| known[place].0) {
            return Ok(id);
        }
        let settings = column::json_text(scheduler)?;
        let values = values![self.workflow.0, scheduler.name, settings];
        let id = db.one(sql::INSERT_SCHEDULER, values, |row| row.get(0))?;
        match place {
            Some(place) => known[place].0 = Some(id),
            None => known.push((Some(id), scheduler.clone())),
        }
        Ok(id)
    }
}

/// One that is like it but for the scheduler.
fn kind_like(db: &impl Db, kind: i64, scheduler: Option<i64>) -> Result<i64, Fault> {
    let (labels, terminates, handler) = db.one(sql::SHARED_BY_KIND, [kind], |row| {
        Ok((row.get::<String>(0)?, row.get::<Option<i64>>(1)?, row.get::<Option<i64>>(2)?))
    })?;
    let like = values![kind, labels, terminates, handler, scheduler];
    if let Some(known) = db.optional(sql::KIND_LIKE, like, |row| row.get(0))? {
        return Ok(known);
    }
    let copy = values![labels, terminates, handler, scheduler, kind];
    db.one(sql::COPY_KIND, copy, |row| row.get(0))
}

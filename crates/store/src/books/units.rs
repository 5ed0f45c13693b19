//! Units of jobs: made with their workflow, changed with what decides it, read by whoever follows them.

use super::apply::current_run;
use super::manage::By;
use crate::Error;
use crate::db::{Db, Loader as _, Pipeline, Row, values};
use crate::error::Fault;
use crate::model::{SiteCounts, UnitRow};
use crate::sql::{common as sql, tables};
use std::collections::BTreeMap;
use windlass_core::board::{TableUnit, UnitTally};
use windlass_core::change::UnitChange;
use windlass_types::{JobId, JobStatus, RunId, Timestamp, UnitCounts, UnitStatus, WorkflowId};

/// The units of a workflow that is being made, gathered while its jobs come.
#[derive(Default)]
pub(crate) struct NewUnits {
    /// `(first job, how many, unit)`.
    rows: Vec<(i64, i64, u32)>,
    /// How the jobs of each stand, and whether one of them elects.
    units: BTreeMap<u32, (UnitTally, bool)>,
}

impl NewUnits {
    /// The next job, or one of none.
    pub(crate) fn note(
        &mut self,
        id: i64,
        unit: Option<u32>,
        elects: bool,
        status: JobStatus,
        name: &str,
    ) -> Result<(), Fault> {
        let Some(number) = unit else {
            let what = || format!("job `{name}`, which elects a site and belongs to no unit");
            return if elects { Err(Error::OutOfRange { what: what() }.into()) } else { Ok(()) };
        };
        let (tally, has_elector) = self.units.entry(number).or_default();
        tally.count(status, true);
        if elects && std::mem::replace(has_elector, true) {
            return Err(Error::OutOfRange {
                what: format!("job `{name}`, the second of unit {number} to elect"),
            }
            .into());
        }
        match self.rows.last_mut() {
            Some((first, count, last)) if *last == number && *first + *count == id => *count += 1,
            _ => self.rows.push((id, 1, number)),
        }
        Ok(())
    }

    /// Nothing at all where there are none.
    pub(crate) fn insert(&self, db: &impl Db, workflow: WorkflowId, now: Timestamp) -> Result<(), Fault> {
        if self.units.is_empty() {
            return Ok(());
        }
        let mut counts = UnitCounts::default();
        let mut rows = db.load_into(&tables::UNIT)?;
        for (seq, (number, (tally, _))) in (1i64..).zip(&self.units) {
            let status = tally.status();
            *counts.of(status) += 1;
            let ended_at = status.is_over().then_some(now.0);
            rows.push(&values![workflow.0, i64::from(*number), status.name(), ended_at, 1, seq])?;
        }
        rows.finish()?;
        let mut rows = db.load_into(&tables::UNIT_JOBS)?;
        for &(first, count, number) in &self.rows {
            rows.push(&values![workflow.0, first, count, i64::from(number)])?;
        }
        rows.finish()?;
        for status in UnitStatus::ALL {
            let n = *counts.of(status) as i64;
            db.execute(sql::INSERT_UNIT_COUNT, values![workflow.0, status.name(), n])?;
        }
        Ok(())
    }
}

/// In the same commit as what decides it.
pub(crate) fn send(
    pipe: &mut dyn Pipeline,
    number: usize,
    (workflow, run): (WorkflowId, RunId),
    change: &UnitChange,
    now: Timestamp,
) -> Result<(), Fault> {
    let UnitChange { number: unit, from, to, site } = change;
    let ended_at = to.is_over().then_some(now.0);
    let values =
        values![to.name(), site.as_deref(), ended_at, run.0, workflow.0, i64::from(*unit), from.name()];
    pipe.send(number, sql::CHANGE_UNIT, &values)?;
    if from != to {
        for (status, n) in [(from, -1i64), (to, 1)] {
            pipe.send(number, sql::ADD_UNIT_COUNT, &values![n, workflow.0, status.name()])?;
        }
    }
    Ok(())
}

/// So many attempts have ended there.
pub(crate) fn count_at_site(
    pipe: &mut dyn Pipeline,
    number: usize,
    workflow: WorkflowId,
    (site, handler): (&str, &str),
    attempts: u32,
) -> Result<(), Fault> {
    pipe.send(number, sql::ADD_SITE_COUNT, &values![workflow.0, site, handler, i64::from(attempts)])
}

/// How many attempts have ended at each site, by who sees to the failures of their jobs.
pub(crate) fn site_counts(db: &impl Db, workflow: WorkflowId) -> Result<SiteCounts, Fault> {
    let mut counts = SiteCounts::new();
    db.for_each(sql::SITE_COUNTS, [workflow.0], |row| {
        counts.entry(row.get(0)?).or_default().insert(row.get(1)?, row.get::<i64>(2)?.unsigned_abs());
        Ok(())
    })?;
    Ok(counts)
}

/// Something else was found than what the change was decided on.
pub(crate) fn conflict(workflow: WorkflowId, change: &UnitChange) -> Fault {
    let UnitChange { number, from, .. } = change;
    Error::OutOfRange { what: format!("unit {number} of workflow {workflow}, which is not {from}") }.into()
}

/// The run was canceled: what was not over will not go on by itself.
pub(crate) fn cancel_open(db: &impl Db, workflow: WorkflowId, run: RunId, by: By<'_>) -> Result<(), Fault> {
    let canceled = db.execute(sql::CANCEL_UNITS, values![by.now.0, run.0, workflow.0])?;
    if canceled == 0 {
        return Ok(());
    }
    db.execute(sql::EMPTY_OPEN_UNIT_COUNTS, [workflow.0])?;
    let name = UnitStatus::Canceled.name();
    db.execute(sql::ADD_UNIT_COUNT, values![canceled as i64, workflow.0, name])?;
    Ok(())
}

/// As a board wants them. Jobs that were deleted are in none.
/// `ids`: of all jobs, ascending.
pub(crate) fn load(db: &impl Db, workflow: WorkflowId, ids: &[JobId]) -> Result<Vec<TableUnit>, Fault> {
    let mut units: BTreeMap<u32, TableUnit> = BTreeMap::new();
    db.for_each(sql::UNIT_JOBS, [workflow.0], |row| {
        let (first, count, number): (i64, i64, u32) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let start = ids.partition_point(|id| id.0 < first);
        let end = ids.partition_point(|id| id.0 < first + count);
        if start < end {
            let unit = units.entry(number).or_insert_with(|| TableUnit { number, ..TableUnit::default() });
            unit.jobs.push((start as u32, (end - start) as u32));
        }
        Ok(())
    })?;
    if !units.is_empty() {
        for row in list(db, workflow, 0)? {
            if let Some(unit) = units.get_mut(&row.number) {
                (unit.status, unit.site) = (row.status, row.site);
            }
        }
    }
    Ok(units.into_values().collect())
}

pub(crate) fn list(db: &impl Db, workflow: WorkflowId, after_seq: u64) -> Result<Vec<UnitRow>, Fault> {
    let after = i64::try_from(after_seq).unwrap_or(i64::MAX);
    db.all(sql::UNITS, [workflow.0, after], |row| {
        Ok(UnitRow {
            number: row.get(0)?,
            site: row.get(1)?,
            status: status(row, 2)?,
            ended_at: row.get::<Option<i64>>(3)?.map(Timestamp),
            run_id: RunId(row.get(4)?),
            seq: row.get::<i64>(5)?.unsigned_abs(),
        })
    })
}

/// From the counts that every change keeps, not by counting.
pub(crate) fn counts(db: &impl Db, workflow: WorkflowId) -> Result<UnitCounts, Fault> {
    current_run(db, workflow)?;
    let mut counts = UnitCounts::default();
    db.for_each(sql::UNIT_COUNTS, [workflow.0], |row| {
        *counts.of(status(row, 0)?) = row.get::<i64>(1)?.unsigned_abs();
        Ok(())
    })?;
    Ok(counts)
}

fn status(row: &Row<'_>, index: usize) -> Result<UnitStatus, Fault> {
    let name: String = row.get(index)?;
    UnitStatus::from_name(&name)
        .ok_or_else(|| row.wrong(index, format!("`{name}`, which is no status of a unit")))
}

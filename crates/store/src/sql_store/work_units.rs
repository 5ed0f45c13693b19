//! Work units: created with their workflow, changed together with their jobs, and read by clients that follow
//! them.

use super::apply_changes::current_run;
use super::workflow_updates::AuditContext;
use crate::StoreError;
use crate::db::{BulkLoader as _, SqlConnection, SqlRow, StatementPipeline, values};
use crate::error::SqlError;
use crate::model::{AttemptCountsBySite, WorkUnitStatusRow};
use crate::sql::{common as sql, tables};
use std::collections::BTreeMap;
use windlass_core::change::WorkUnitChange;
use windlass_core::workflow_state::{UnitJobCounts, WorkUnitRow};
use windlass_types::{JobId, JobStatus, RunId, Timestamp, WorkUnitStatus, WorkUnitStatusCounts, WorkflowId};

/// The work units of a new workflow, collected while its jobs are read.
#[derive(Default)]
pub(crate) struct NewWorkUnits {
    /// `(first job, number of jobs, unit)`.
    rows: Vec<(i64, i64, u32)>,
    /// Job states of each unit, and whether it has a landing job.
    units: BTreeMap<u32, (UnitJobCounts, bool)>,
}

impl NewWorkUnits {
    /// Adds the next job, which may have no unit.
    pub(crate) fn add_job(
        &mut self,
        id: i64,
        unit: Option<u32>,
        elects: bool,
        status: JobStatus,
        name: &str,
    ) -> Result<(), SqlError> {
        let Some(number) = unit else {
            let what = || format!("landing job `{name}` without a work unit");
            return if elects { Err(StoreError::OutOfRange { what: what() }.into()) } else { Ok(()) };
        };
        let (tally, has_elector) = self.units.entry(number).or_default();
        tally.count_job(status, true);
        if elects && std::mem::replace(has_elector, true) {
            return Err(StoreError::OutOfRange {
                what: format!("job `{name}`, the second landing job of work unit {number}"),
            }
            .into());
        }
        match self.rows.last_mut() {
            Some((first, count, last)) if *last == number && *first + *count == id => *count += 1,
            _ => self.rows.push((id, 1, number)),
        }
        Ok(())
    }

    /// Does nothing if there are none.
    pub(crate) fn insert_units(
        &self,
        db: &impl SqlConnection,
        workflow: WorkflowId,
        now: Timestamp,
    ) -> Result<(), SqlError> {
        if self.units.is_empty() {
            return Ok(());
        }
        let mut counts = WorkUnitStatusCounts::default();
        let mut rows = db.open_loader(&tables::UNIT)?;
        for (seq, (number, (tally, _))) in (1i64..).zip(&self.units) {
            let status = tally.status();
            *counts.count_mut(status) += 1;
            let ended_at = status.is_over().then_some(now.0);
            rows.push(&values![workflow.0, i64::from(*number), status.name(), ended_at, 1, seq])?;
        }
        rows.finish()?;
        let mut rows = db.open_loader(&tables::UNIT_JOBS)?;
        for &(first, count, number) in &self.rows {
            rows.push(&values![workflow.0, first, count, i64::from(number)])?;
        }
        rows.finish()?;
        for status in WorkUnitStatus::ALL {
            let n = *counts.count_mut(status) as i64;
            db.execute(sql::INSERT_UNIT_COUNT, values![workflow.0, status.name(), n])?;
        }
        Ok(())
    }
}

/// In the same commit as the changes of its jobs.
pub(crate) fn send_unit_change(
    pipe: &mut dyn StatementPipeline,
    number: usize,
    (workflow, run): (WorkflowId, RunId),
    change: &WorkUnitChange,
    now: Timestamp,
) -> Result<(), SqlError> {
    let WorkUnitChange { number: unit, from, to, site } = change;
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

/// Adds to the number of ended attempts at a site.
pub(crate) fn send_site_count(
    pipe: &mut dyn StatementPipeline,
    number: usize,
    workflow: WorkflowId,
    (site, handler): (&str, &str),
    attempts: u32,
) -> Result<(), SqlError> {
    pipe.send(number, sql::ADD_SITE_COUNT, &values![workflow.0, site, handler, i64::from(attempts)])
}

/// Counts ended attempts by site and failure role.
pub(crate) fn load_site_counts(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<AttemptCountsBySite, SqlError> {
    let mut counts = AttemptCountsBySite::new();
    db.query_each(sql::SITE_COUNTS, [workflow.0], |row| {
        counts.entry(row.get(0)?).or_default().insert(row.get(1)?, row.get::<i64>(2)?.unsigned_abs());
        Ok(())
    })?;
    Ok(counts)
}

/// The error for a change whose expected status was not found.
pub(crate) fn conflict_error(workflow: WorkflowId, change: &WorkUnitChange) -> SqlError {
    let WorkUnitChange { number, from, .. } = change;
    StoreError::OutOfRange { what: format!("work unit {number} of workflow {workflow} is not {from}") }.into()
}

/// The run was canceled: open units end, too.
pub(crate) fn cancel_open_units(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    run: RunId,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let canceled = db.execute(sql::CANCEL_UNITS, values![by.now.0, run.0, workflow.0])?;
    if canceled == 0 {
        return Ok(());
    }
    db.execute(sql::EMPTY_OPEN_UNIT_COUNTS, [workflow.0])?;
    let name = WorkUnitStatus::Canceled.name();
    db.execute(sql::ADD_UNIT_COUNT, values![canceled as i64, workflow.0, name])?;
    Ok(())
}

/// In the form that the workflow state needs; deleted jobs are omitted. `ids`: of all jobs, ascending.
pub(crate) fn load_units(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    ids: &[JobId],
) -> Result<Vec<WorkUnitRow>, SqlError> {
    let mut units: BTreeMap<u32, WorkUnitRow> = BTreeMap::new();
    db.query_each(sql::UNIT_JOBS, [workflow.0], |row| {
        let (first, count, number): (i64, i64, u32) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let start = ids.partition_point(|id| id.0 < first);
        let end = ids.partition_point(|id| id.0 < first + count);
        if start < end {
            let unit =
                units.entry(number).or_insert_with(|| WorkUnitRow { number, ..WorkUnitRow::default() });
            unit.jobs.push((start as u32, (end - start) as u32));
        }
        Ok(())
    })?;
    if !units.is_empty() {
        for row in list_units(db, workflow, 0)? {
            if let Some(unit) = units.get_mut(&row.number) {
                (unit.status, unit.site) = (row.status, row.site);
            }
        }
    }
    Ok(units.into_values().collect())
}

pub(crate) fn list_units(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    after_seq: u64,
) -> Result<Vec<WorkUnitStatusRow>, SqlError> {
    let after = i64::try_from(after_seq).unwrap_or(i64::MAX);
    db.query_all(sql::UNITS, [workflow.0, after], |row| {
        Ok(WorkUnitStatusRow {
            number: row.get(0)?,
            site: row.get(1)?,
            status: read_unit_status(row, 2)?,
            ended_at: row.get::<Option<i64>>(3)?.map(Timestamp),
            run_id: RunId(row.get(4)?),
            seq: row.get::<i64>(5)?.unsigned_abs(),
        })
    })
}

/// From the stored counts, without counting.
pub(crate) fn load_unit_counts(
    db: &impl SqlConnection,
    workflow: WorkflowId,
) -> Result<WorkUnitStatusCounts, SqlError> {
    current_run(db, workflow)?;
    let mut counts = WorkUnitStatusCounts::default();
    db.query_each(sql::UNIT_COUNTS, [workflow.0], |row| {
        *counts.count_mut(read_unit_status(row, 0)?) = row.get::<i64>(1)?.unsigned_abs();
        Ok(())
    })?;
    Ok(counts)
}

fn read_unit_status(row: &SqlRow<'_>, index: usize) -> Result<WorkUnitStatus, SqlError> {
    let name: String = row.get(index)?;
    WorkUnitStatus::from_name(&name)
        .ok_or_else(|| row.conversion_error(index, format!("unknown work unit status `{name}`")))
}

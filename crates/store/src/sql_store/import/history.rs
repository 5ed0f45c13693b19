//! Imports the history: runs, workers, results; and which job added which.

use super::import_source::ImportNumbering;
use crate::db::{BulkLoader as _, SqlConnection, SqlValue, values};
use crate::error::SqlError;
use crate::model::export::{ExportedResult, ExportedWorker, WorkflowExport};
use crate::model::{NewEvent, NewWorker};
use crate::sql::workers_and_parts::RETIRE_WORKER;
use crate::sql::{common as sql, tables};
use crate::sql_store::workers;
use crate::sql_store::{column_decoding, events};
use std::collections::HashMap;
use windlass_types::{Bytes, Capacity, RunId, Timestamp, WorkerId, WorkflowId};

pub(super) fn insert_history(
    db: &impl SqlConnection,
    id: WorkflowId,
    export: &WorkflowExport,
    numbers: &ImportNumbering,
    first_job: i64,
) -> Result<(), SqlError> {
    let (run, is_canceled) = (export.workflow.run_id, export.workflow.is_canceled);
    db.execute(sql::SET_RUN, [run, i64::from(is_canceled), id.0])?;
    for run in export.runs.iter().flatten() {
        let values = values![id.0, run.run_id, run.started_at.0, run.ended_at.map(|at| at.0)];
        db.execute(sql::INSERT_RUN, values)?;
    }
    for (job, row) in (first_job..).zip(&export.jobs) {
        if let Some(n) = row.attempt_id.filter(|n| *n > 1) {
            db.execute(sql::SET_ATTEMPT, [i64::from(n), job])?;
        }
    }
    let mut workers = ImportedWorkers { db, id, ended_at: export.exported_at, known: HashMap::new() };
    for row in export.compute_nodes.iter().flatten() {
        workers.insert_worker(row)?;
    }
    let mut rows = db.open_loader(&tables::RESULT)?;
    for row in export.results.iter().flatten() {
        let number = numbers.jobs.resolve(row.job_id, || "a result".to_owned())?;
        let worker = workers.worker_id(row)?;
        let files = render_files(row)?;
        rows.push(&result_values(row, first_job + i64::from(number), worker, files.as_deref()))?;
    }
    rows.finish()
}

/// Imports events with their original author and time.
pub(super) fn insert_events(
    db: &impl SqlConnection,
    id: WorkflowId,
    export: &WorkflowExport,
) -> Result<(), SqlError> {
    for row in export.events.iter().flatten() {
        let event = NewEvent {
            workflow: Some(id),
            job: None,
            severity: row.severity,
            category: row.category.clone(),
            message: row.message.clone(),
            data: row.data.clone(),
        };
        events::insert_event(db, &row.actor, &event, row.at)?;
    }
    Ok(())
}

/// The new ids of workers. All of them have ended.
struct ImportedWorkers<'d, D> {
    db: &'d D,
    id: WorkflowId,
    /// For workers without an end.
    ended_at: Timestamp,
    known: HashMap<i64, i64>,
}

impl<D: SqlConnection> ImportedWorkers<'_, D> {
    fn insert_worker(&mut self, row: &ExportedWorker) -> Result<i64, SqlError> {
        let worker = NewWorker {
            workflow: Some(self.id),
            run: Some(RunId(row.run_id)),
            host: row.hostname.clone(),
            pid: row.pid,
            capacity: Capacity {
                cpus: row.num_cpus,
                memory: Bytes((row.memory_gb * f64::from(1 << 30)) as u64),
                gpus: row.num_gpus,
                nodes: row.num_nodes,
                max_jobs: None,
            },
            ..NewWorker::default()
        };
        let WorkerId(id) = workers::insert_worker(self.db, &worker, row.start_time)?;
        let ended_at = row.end_time.unwrap_or(self.ended_at);
        self.db.execute(RETIRE_WORKER, [ended_at.0, id])?;
        self.known.insert(row.id, id);
        Ok(id)
    }

    /// A result names its worker; if the file does not describe that worker, only the id is kept.
    fn worker_id(&mut self, result: &ExportedResult) -> Result<i64, SqlError> {
        if let Some(&known) = self.known.get(&result.compute_node_id) {
            return Ok(known);
        }
        self.insert_worker(&ExportedWorker {
            id: result.compute_node_id,
            run_id: result.run_id,
            hostname: "unknown".to_owned(),
            pid: 0,
            start_time: result.start_time.unwrap_or(result.completion_time),
            end_time: Some(result.completion_time),
            num_cpus: 0,
            memory_gb: 0.0,
            num_gpus: 0,
            num_nodes: 0,
            compute_node_type: String::new(),
        })
    }
}

fn render_files(row: &ExportedResult) -> Result<Option<String>, SqlError> {
    Ok(row.files.as_ref().map(column_decoding::render_json).transpose()?)
}

fn result_values<'v>(
    row: &'v ExportedResult,
    job: i64,
    worker: i64,
    files: Option<&'v str>,
) -> [SqlValue<'v>; 19] {
    let wall = row.wall_us.unwrap_or((row.exec_time_minutes * 60e6) as i64);
    let int = |n: Option<i64>| n.map_or(SqlValue::Null, SqlValue::Int);
    let real = |x: Option<f64>| x.map_or(SqlValue::Null, SqlValue::Real);
    let text = |text: Option<&'v str>| text.map_or(SqlValue::Null, SqlValue::Text);
    [
        SqlValue::Int(job),
        SqlValue::Int(row.run_id),
        SqlValue::Int(row.attempt_id.into()),
        SqlValue::Int(worker),
        SqlValue::Int(row.status.code().into()),
        SqlValue::Int(row.return_code.into()),
        int(row.exit_code.map(i64::from)),
        int(row.signal.map(i64::from)),
        SqlValue::Int(row.out_of_memory.into()),
        int(row.start_time.map(|at| at.0)),
        SqlValue::Int(row.completion_time.0),
        SqlValue::Int(wall.max(0)),
        SqlValue::Int(row.cpu_time_us.max(0)),
        int(row.peak_memory_bytes),
        int(row.avg_memory_bytes),
        real(row.peak_cpu_percent),
        real(row.avg_cpu_percent),
        text(row.reason.as_deref()),
        text(files),
    ]
}

/// Splits the single block of a new workflow where jobs were added.
pub(super) fn insert_spawns(
    db: &impl SqlConnection,
    id: WorkflowId,
    export: &WorkflowExport,
    numbers: &ImportNumbering,
    first_job: i64,
) -> Result<(), SqlError> {
    let Some(first_spawn) = export.spawns.first() else { return Ok(()) };
    let job_id = |id: i64| -> Result<i64, SqlError> {
        Ok(first_job + i64::from(numbers.jobs.resolve(id, || "a spawn".to_owned())?))
    };
    let created = job_id(first_spawn.first_job_id)? - first_job;
    db.execute(sql::SET_BLOCK_LENGTH, [created, id.0, first_job])?;
    for spawn in &export.spawns {
        let first = job_id(spawn.first_job_id)?;
        let caller = job_id(spawn.spawned_by)?;
        // The attempt that added them is not in the file; if the job runs again, it adds them again.
        let (run, attempt) = (None::<i64>, None::<i64>);
        let (lineage, iteration, digest) = (&spawn.lineage, spawn.iteration, &spawn.digest);
        let values = values![id.0, first, spawn.job_count, caller, lineage, iteration, digest, run, attempt];
        db.execute(sql::INSERT_SPAWNED_BLOCK, values)?;
        db.execute(sql::MARK_SPAWNED, [first, first + i64::from(spawn.job_count)])?;
    }
    let blocks = crate::sql_store::job_loading::JobIdBlocks::load(db, id)?;
    let end = first_job + export.jobs.len() as i64;
    if !blocks.covers_exactly(first_job, end) {
        return Err(super::bad_export_error("its spawns are not consecutive".to_owned()).into());
    }
    Ok(())
}

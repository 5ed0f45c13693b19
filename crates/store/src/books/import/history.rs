//! What was done: runs, workers, results; and which jobs were added by which.

use super::source::Numbers;
use crate::books::fleet;
use crate::books::{column, events};
use crate::db::{Db, Loader as _, Value, values};
use crate::error::Fault;
use crate::model::export::{Export, ExportedResult, ExportedWorker};
use crate::model::{NewEvent, NewWorker};
use crate::sql::server::RETIRE_WORKER;
use crate::sql::{common as sql, tables};
use std::collections::HashMap;
use windlass_types::{Bytes, Capacity, RunId, Timestamp, WorkerId, WorkflowId};

pub(super) fn insert(
    db: &impl Db,
    id: WorkflowId,
    export: &Export,
    numbers: &Numbers,
    first_job: i64,
) -> Result<(), Fault> {
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
    let mut workers = Workers { db, id, ended_at: export.exported_at, known: HashMap::new() };
    for row in export.compute_nodes.iter().flatten() {
        workers.insert(row)?;
    }
    let mut rows = db.load_into(&tables::RESULT)?;
    for row in export.results.iter().flatten() {
        let number = numbers.jobs.one(row.job_id, || "a result".to_owned())?;
        let worker = workers.number(row)?;
        let files = column_files(row)?;
        rows.push(&result_values(row, first_job + i64::from(number), worker, files.as_deref()))?;
    }
    rows.finish()
}

/// What was noted before, by whom and when it was.
pub(super) fn insert_events(db: &impl Db, id: WorkflowId, export: &Export) -> Result<(), Fault> {
    for row in export.events.iter().flatten() {
        let event = NewEvent {
            workflow: Some(id),
            job: None,
            severity: row.severity,
            category: row.category.clone(),
            message: row.message.clone(),
            data: row.data.clone(),
        };
        events::note(db, &row.actor, &event, row.at)?;
    }
    Ok(())
}

/// The ids that workers have here. All of them are of the past.
struct Workers<'d, D> {
    db: &'d D,
    id: WorkflowId,
    /// Of those that have no end.
    ended_at: Timestamp,
    known: HashMap<i64, i64>,
}

impl<D: Db> Workers<'_, D> {
    fn insert(&mut self, row: &ExportedWorker) -> Result<i64, Fault> {
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
        let WorkerId(id) = fleet::insert_worker(self.db, &worker, row.start_time)?;
        let ended_at = row.end_time.unwrap_or(self.ended_at);
        self.db.execute(RETIRE_WORKER, [ended_at.0, id])?;
        self.known.insert(row.id, id);
        Ok(id)
    }

    /// A result says who did it; of somebody that the file does not describe only the number is known.
    fn number(&mut self, result: &ExportedResult) -> Result<i64, Fault> {
        if let Some(&known) = self.known.get(&result.compute_node_id) {
            return Ok(known);
        }
        self.insert(&ExportedWorker {
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

fn column_files(row: &ExportedResult) -> Result<Option<String>, Fault> {
    Ok(row.files.as_ref().map(column::json_text).transpose()?)
}

fn result_values<'v>(
    row: &'v ExportedResult,
    job: i64,
    worker: i64,
    files: Option<&'v str>,
) -> [Value<'v>; 19] {
    let wall = row.wall_us.unwrap_or((row.exec_time_minutes * 60e6) as i64);
    let int = |n: Option<i64>| n.map_or(Value::Null, Value::Int);
    let real = |x: Option<f64>| x.map_or(Value::Null, Value::Real);
    let text = |text: Option<&'v str>| text.map_or(Value::Null, Value::Text);
    [
        Value::Int(job),
        Value::Int(row.run_id),
        Value::Int(row.attempt_id.into()),
        Value::Int(worker),
        Value::Int(row.status.code().into()),
        Value::Int(row.return_code.into()),
        int(row.exit_code.map(i64::from)),
        int(row.signal.map(i64::from)),
        Value::Int(row.out_of_memory.into()),
        int(row.start_time.map(|at| at.0)),
        Value::Int(row.completion_time.0),
        Value::Int(wall.max(0)),
        Value::Int(row.cpu_time_us.max(0)),
        int(row.peak_memory_bytes),
        int(row.avg_memory_bytes),
        real(row.peak_cpu_percent),
        real(row.avg_cpu_percent),
        text(row.reason.as_deref()),
        text(files),
    ]
}

/// Splits the one block of a new workflow where jobs were added.
pub(super) fn insert_spawns(
    db: &impl Db,
    id: WorkflowId,
    export: &Export,
    numbers: &Numbers,
    first_job: i64,
) -> Result<(), Fault> {
    let Some(first_spawn) = export.spawns.first() else { return Ok(()) };
    let job_id = |id: i64| -> Result<i64, Fault> {
        Ok(first_job + i64::from(numbers.jobs.one(id, || "a spawn".to_owned())?))
    };
    let created = job_id(first_spawn.first_job_id)? - first_job;
    db.execute(sql::SET_BLOCK_LENGTH, [created, id.0, first_job])?;
    for spawn in &export.spawns {
        let first = job_id(spawn.first_job_id)?;
        let caller = job_id(spawn.spawned_by)?;
        // Which attempt asked for them is not in the file: whoever runs again asks again.
        let (run, attempt) = (None::<i64>, None::<i64>);
        let (lineage, iteration, digest) = (&spawn.lineage, spawn.iteration, &spawn.digest);
        let values = values![id.0, first, spawn.job_count, caller, lineage, iteration, digest, run, attempt];
        db.execute(sql::INSERT_SPAWNED_BLOCK, values)?;
        db.execute(sql::MARK_SPAWNED, [first, first + i64::from(spawn.job_count)])?;
    }
    let blocks = crate::books::load::Blocks::read(db, id)?;
    let end = first_job + export.jobs.len() as i64;
    if !blocks.cover(first_job, end) {
        return Err(super::bad("its spawns do not follow each other".to_owned()).into());
    }
    Ok(())
}

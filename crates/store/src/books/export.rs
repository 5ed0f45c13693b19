//! Reads a whole workflow into the shape of an export file.

use super::load::for_each_pair;
use super::{column, events, parts, read};
use crate::Error;
use crate::db::{Db, Row};
use crate::error::Fault;
use crate::model::export::{
    Export, ExportOptions, ExportedAction, ExportedEvent, ExportedFile, ExportedHandler, ExportedJob,
    ExportedKind, ExportedRequirements, ExportedResult, ExportedRun, ExportedScheduler, ExportedSpawn,
    ExportedUserData, ExportedWorker, ExportedWorkflow, SharedByKind,
};
use crate::model::{DataFilter, EventFilter, KindRow, WorkflowRow};
use crate::sql::common as sql;
use std::collections::HashMap;
use windlass_types::{Bytes, JobId, Resources, Timestamp, WorkflowId};

pub(crate) fn export(
    db: &impl Db,
    id: WorkflowId,
    options: ExportOptions,
    now: Timestamp,
) -> Result<Export, Fault> {
    let row = read::workflow(db, id)?.ok_or(Error::NoSuchWorkflow(id))?;
    let failure_handlers = parts::handlers(db, id)?;
    let slurm_schedulers = parts::schedulers(db, id)?;
    let names = Names {
        handlers: failure_handlers.iter().map(|row| (row.handler.name.clone(), row.id)).collect(),
        schedulers: slurm_schedulers.iter().map(|row| (row.scheduler.name.clone(), row.id)).collect(),
    };
    let kinds = parts::kinds(db, id)?;
    let job_kinds: Vec<ExportedKind> = kinds.into_iter().map(|kind| names.kind(kind)).collect();
    let mut jobs = jobs(db, id, &job_kinds)?;
    note_units(db, id, &mut jobs)?;
    let gates = relate(db, id, &mut jobs)?;
    let listed = options.results.then(|| history(db, id)).transpose()?;
    let (compute_nodes, runs, results) =
        listed.map_or((None, None, None), |(w, r, s)| (Some(w), Some(r), Some(s)));
    Ok(Export {
        export_version: Export::VERSION.to_owned(),
        exported_at: now,
        workflow: workflow(row),
        files: files(db, id)?,
        user_data: user_data(db, id)?,
        resource_requirements: requirements(db, id)?,
        slurm_schedulers: slurm_schedulers
            .into_iter()
            .map(|row| ExportedScheduler { id: row.id, scheduler: row.scheduler })
            .collect(),
        local_schedulers: Vec::new(),
        failure_handlers: failure_handlers
            .into_iter()
            .map(|row| ExportedHandler { id: row.id, name: row.handler.name, rules: row.handler.rules })
            .collect(),
        job_kinds,
        gates,
        jobs,
        spawns: of_workflow(db, sql::SPAWNED_BLOCKS, id, spawn)?,
        workflow_actions: actions(db, id)?,
        ro_crate_entities: Vec::new(),
        compute_nodes,
        runs,
        results,
        events: options.events.then(|| exported_events(db, id)).transpose()?,
    })
}

fn workflow(row: WorkflowRow) -> ExportedWorkflow {
    ExportedWorkflow {
        id: row.id.0,
        name: row.name,
        user: row.user,
        description: row.description,
        timestamp: Some(row.created_at),
        is_archived: row.is_archived,
        is_canceled: row.is_canceled,
        run_id: row.run_id.0,
        env: row.env,
        stdio: row.stdio,
        submission_directory: Some(row.submission_dir),
        output_directory: Some(row.output_dir),
        spec_path: row.spec_path,
        settings: row.settings,
    }
}

/// From names to the ids that stand for them in the file.
struct Names {
    handlers: HashMap<String, i64>,
    schedulers: HashMap<String, i64>,
}

impl Names {
    fn kind(&self, kind: KindRow) -> ExportedKind {
        ExportedKind {
            id: kind.id.0,
            name: kind.name,
            env: kind.env,
            invocation_script: kind.invocation_script,
            shared: SharedByKind {
                stdio: kind.stdio,
                supports_termination: kind.supports_termination,
                failure_handler_id: kind.failure_handler.and_then(|name| self.handlers.get(&name).copied()),
                scheduler_id: kind.scheduler.and_then(|name| self.schedulers.get(&name).copied()),
                labels: kind.labels,
            },
            parameters: kind.parameters,
            sites: kind.sites,
            limit: kind.limit,
            elects: kind.elects,
        }
    }
}

fn jobs(db: &impl Db, id: WorkflowId, kinds: &[ExportedKind]) -> Result<Vec<ExportedJob>, Fault> {
    let kinds: HashMap<i64, &ExportedKind> = kinds.iter().map(|kind| (kind.id, kind)).collect();
    of_workflow(db, sql::EXPORT_JOBS, id, |row| {
        let mut job = job(row)?;
        if let Some(kind) = job.kind_id.and_then(|id| kinds.get(&id)) {
            job.shared = kind.shared.clone();
            job.invocation_script = job.invocation_script.or_else(|| kind.invocation_script.clone());
            let own = std::mem::take(&mut job.env);
            job.env = super::command::merged_env(&kind.env, own);
        }
        Ok(job)
    })
}

fn note_units(db: &impl Db, id: WorkflowId, jobs: &mut [ExportedJob]) -> Result<(), Fault> {
    let ids: Vec<JobId> = jobs.iter().map(|job| JobId(job.id)).collect();
    for unit in super::units::load(db, id, &ids)? {
        for &(first, count) in &unit.jobs {
            let of_unit = jobs.iter_mut().skip(first as usize).take(count as usize);
            of_unit.for_each(|job| job.unit = Some(unit.number));
        }
    }
    Ok(())
}

fn job(row: &Row<'_>) -> Result<ExportedJob, Fault> {
    Ok(ExportedJob {
        id: row.get(0)?,
        name: row.get(1)?,
        command: row.get(2)?,
        status: Some(column::status(row, 3)?),
        attempt_id: Some(row.get(4)?),
        unit: None,
        priority: row.get(5)?,
        cancel_on_blocking_job_failure: Some(column::flag(row, 6)?),
        resource_requirements_id: row.get(7)?,
        kind_id: row.get(8)?,
        origin: read::origin(row, 9)?,
        invocation_script: row.get(10)?,
        env: column::env(row, 11)?,
        parameters: column::json(row, 12)?.unwrap_or_default(),
        shared: SharedByKind::default(),
        depends_on_job_ids: Vec::new(),
        depends_on_gates: Vec::new(),
        input_file_ids: Vec::new(),
        output_file_ids: Vec::new(),
        input_user_data_ids: Vec::new(),
        output_user_data_ids: Vec::new(),
    })
}

/// Gives jobs what they wait for, read and write. The gates.
fn relate(db: &impl Db, id: WorkflowId, jobs: &mut [ExportedJob]) -> Result<Vec<Vec<i64>>, Fault> {
    let numbers: HashMap<i64, usize> = jobs.iter().enumerate().map(|(n, job)| (job.id, n)).collect();
    let mut with = |job: i64, act: &mut dyn FnMut(&mut ExportedJob)| {
        if let Some(&number) = numbers.get(&job) {
            act(&mut jobs[number]);
        }
    };
    for_each_pair(db, sql::LOAD_EDGES, id, |job, waits_for| {
        with(job, &mut |job| job.depends_on_job_ids.push(waits_for));
    })?;
    for_each_pair(db, sql::LOAD_JOB_GATES, id, |job, gate| {
        with(job, &mut |job| job.depends_on_gates.push(gate as u32));
    })?;
    for related in parts::job_files(db, id)? {
        let list = |job: &mut ExportedJob| {
            if related.is_output { &mut job.output_file_ids } else { &mut job.input_file_ids }
                .push(related.file_id.0);
        };
        with(related.job_id.0, &mut { list });
    }
    for related in parts::job_user_data(db, id)? {
        let list = |job: &mut ExportedJob| {
            if related.is_output { &mut job.output_user_data_ids } else { &mut job.input_user_data_ids }
                .push(related.user_data_id.0);
        };
        with(related.job_id.0, &mut { list });
    }
    let mut gates: Vec<Vec<i64>> = Vec::new();
    for_each_pair(db, sql::LOAD_GATE_MEMBERS, id, |gate, job| {
        if gates.len() <= gate as usize {
            gates.resize_with(gate as usize + 1, Vec::new);
        }
        gates[gate as usize].push(job);
    })?;
    Ok(gates)
}

fn files(db: &impl Db, id: WorkflowId) -> Result<Vec<ExportedFile>, Fault> {
    let rows = parts::files(db, id, &DataFilter::default())?;
    let exported = rows.into_iter().map(|row| ExportedFile {
        id: row.id.0,
        name: row.name,
        path: row.path,
        identifier: row.identifier,
        st_mtime: row.mtime_ns.map(|ns| ns as f64 / 1e9),
        mtime_ns: row.mtime_ns,
    });
    Ok(exported.collect())
}

fn user_data(db: &impl Db, id: WorkflowId) -> Result<Vec<ExportedUserData>, Fault> {
    let rows = parts::user_data(db, id, &DataFilter::default())?;
    let exported = rows.into_iter().map(|row| ExportedUserData {
        id: row.id.0,
        name: row.name,
        data: row.data,
        is_ephemeral: row.is_ephemeral,
    });
    Ok(exported.collect())
}

fn requirements(db: &impl Db, id: WorkflowId) -> Result<Vec<ExportedRequirements>, Fault> {
    let exported = parts::requirements(db, id)?.into_iter().map(|row| {
        let Resources { cpus, memory, gpus, nodes, runtime } = row.resources;
        ExportedRequirements {
            id: row.id.0,
            name: row.name,
            num_cpus: cpus,
            num_gpus: gpus,
            num_nodes: nodes,
            memory: size_text(memory),
            runtime: runtime.map(|runtime| format!("PT{}S", runtime.as_secs_f64())),
        }
    });
    Ok(exported.collect())
}

/// The largest unit that says it exactly; bare numbers are bytes.
fn size_text(Bytes(bytes): Bytes) -> String {
    let unit = [("t", 40), ("g", 30), ("m", 20), ("k", 10)];
    let exact = unit.into_iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    exact.map_or_else(|| bytes.to_string(), |(name, shift)| format!("{}{name}", bytes >> shift))
}

fn actions(db: &impl Db, id: WorkflowId) -> Result<Vec<ExportedAction>, Fault> {
    let exported = parts::actions(db, id)?.into_iter().map(|row| ExportedAction {
        id: row.id,
        action: row.action,
        job_ids: row.jobs.into_iter().map(|job| job.0).collect(),
    });
    Ok(exported.collect())
}

type History = (Vec<ExportedWorker>, Vec<ExportedRun>, Vec<ExportedResult>);

fn history(db: &impl Db, id: WorkflowId) -> Result<History, Fault> {
    let workers = of_workflow(db, sql::EXPORT_WORKERS, id, worker)?;
    let runs = of_workflow(db, sql::RUNS, id, run)?;
    let results = of_workflow(db, sql::EXPORT_RESULTS, id, result)?;
    Ok((workers, runs, results))
}

fn exported_events(db: &impl Db, id: WorkflowId) -> Result<Vec<ExportedEvent>, Fault> {
    let exported =
        events::events(db, Some(id), &EventFilter::default())?.into_iter().map(|row| ExportedEvent {
            at: row.at,
            severity: row.severity,
            category: row.category,
            actor: row.actor,
            message: row.message,
            data: row.data,
        });
    Ok(exported.collect())
}

fn spawn(row: &Row<'_>) -> Result<ExportedSpawn, Fault> {
    Ok(ExportedSpawn {
        first_job_id: row.get(0)?,
        job_count: row.get(1)?,
        spawned_by: row.get(2)?,
        lineage: row.get(3)?,
        iteration: row.get(4)?,
        digest: row.get(5)?,
    })
}

fn worker(row: &Row<'_>) -> Result<ExportedWorker, Fault> {
    Ok(ExportedWorker {
        id: row.get(0)?,
        run_id: row.get(1)?,
        hostname: row.get(2)?,
        pid: row.get(3)?,
        start_time: Timestamp(row.get(4)?),
        end_time: column::time(row, 5)?,
        num_cpus: row.get(6)?,
        memory_gb: row.get::<i64>(7)? as f64 / f64::from(1 << 30),
        num_gpus: row.get(8)?,
        num_nodes: row.get(9)?,
        compute_node_type: "local".to_owned(),
    })
}

fn run(row: &Row<'_>) -> Result<ExportedRun, Fault> {
    Ok(ExportedRun {
        run_id: row.get(0)?,
        started_at: Timestamp(row.get(1)?),
        ended_at: column::time(row, 2)?,
    })
}

fn result(row: &Row<'_>) -> Result<ExportedResult, Fault> {
    let wall_us: i64 = row.get(11)?;
    Ok(ExportedResult {
        job_id: row.get(0)?,
        run_id: row.get(1)?,
        attempt_id: row.get(2)?,
        compute_node_id: row.get(3)?,
        status: column::status(row, 4)?,
        return_code: row.get(5)?,
        exit_code: row.get(6)?,
        signal: row.get(7)?,
        out_of_memory: column::flag(row, 8)?,
        start_time: column::time(row, 9)?,
        completion_time: Timestamp(row.get(10)?),
        exec_time_minutes: wall_us as f64 / 60e6,
        wall_us: Some(wall_us),
        cpu_time_us: row.get(12)?,
        peak_memory_bytes: row.get(13)?,
        avg_memory_bytes: row.get(14)?,
        peak_cpu_percent: row.get(15)?,
        avg_cpu_percent: row.get(16)?,
        reason: row.get(17)?,
        files: column::json(row, 18)?,
    })
}

fn of_workflow<T>(
    db: &impl Db,
    sql: &str,
    id: WorkflowId,
    row: impl FnMut(&Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    db.all(sql, [id.0], row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_said_exactly() {
        for (bytes, text) in
            [(0, "0"), (1, "1"), (1 << 20, "1m"), (3 << 30, "3g"), ((1 << 30) + 1, "1073741825")]
        {
            assert_eq!(size_text(Bytes(bytes)), text);
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)));
        }
    }
}

//! Reads a whole workflow for an export file.

use super::job_loading::for_each_pair;
use super::{column_decoding, events, queries, workflow_parts};
use crate::StoreError;
use crate::db::{SqlConnection, SqlRow};
use crate::error::SqlError;
use crate::model::export::{
    ExportOptions, ExportedAction, ExportedEvent, ExportedFile, ExportedHandler, ExportedJob,
    ExportedJobGroup, ExportedRequirements, ExportedResult, ExportedRun, ExportedScheduler, ExportedSpawn,
    ExportedUserData, ExportedWorker, ExportedWorkflow, SharedByGroup, WorkflowExport,
};
use crate::model::{DataFilter, EventFilter, JobGroupRow, WorkflowRow};
use crate::sql::common as sql;
use std::collections::HashMap;
use windlass_types::{Bytes, JobId, Resources, Timestamp, WorkflowId};

pub(crate) fn export_workflow(
    db: &impl SqlConnection,
    id: WorkflowId,
    options: ExportOptions,
    now: Timestamp,
) -> Result<WorkflowExport, SqlError> {
    let row = queries::find_workflow(db, id)?.ok_or(StoreError::NoSuchWorkflow(id))?;
    let failure_handlers = workflow_parts::list_handlers(db, id)?;
    let slurm_schedulers = workflow_parts::list_schedulers(db, id)?;
    let names = ExportedNameIds {
        handlers: failure_handlers.iter().map(|row| (row.handler.name.clone(), row.id)).collect(),
        schedulers: slurm_schedulers.iter().map(|row| (row.scheduler.name.clone(), row.id)).collect(),
    };
    let job_groups = workflow_parts::list_job_groups(db, id)?;
    let job_groups: Vec<ExportedJobGroup> =
        job_groups.into_iter().map(|job_group| names.exported_group(job_group)).collect();
    let mut jobs = export_jobs(db, id, &job_groups)?;
    assign_work_units(db, id, &mut jobs)?;
    let dependency_groups = attach_relations(db, id, &mut jobs)?;
    let listed = options.results.then(|| export_history(db, id)).transpose()?;
    let (compute_nodes, runs, results) =
        listed.map_or((None, None, None), |(w, r, s)| (Some(w), Some(r), Some(s)));
    Ok(WorkflowExport {
        export_version: WorkflowExport::VERSION.to_owned(),
        exported_at: now,
        workflow: exported_workflow(row),
        files: export_files(db, id)?,
        user_data: export_user_data(db, id)?,
        resource_requirements: export_requirements(db, id)?,
        slurm_schedulers: slurm_schedulers
            .into_iter()
            .map(|row| ExportedScheduler { id: row.id, scheduler: row.scheduler })
            .collect(),
        local_schedulers: Vec::new(),
        failure_handlers: failure_handlers
            .into_iter()
            .map(|row| ExportedHandler { id: row.id, name: row.handler.name, rules: row.handler.rules })
            .collect(),
        job_groups,
        dependency_groups,
        jobs,
        spawns: list_of_workflow(db, sql::SPAWNED_BLOCKS, id, read_exported_spawn)?,
        workflow_actions: export_actions(db, id)?,
        ro_crate_entities: Vec::new(),
        compute_nodes,
        runs,
        results,
        events: options.events.then(|| export_events(db, id)).transpose()?,
    })
}

fn exported_workflow(row: WorkflowRow) -> ExportedWorkflow {
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

/// Ids in the file by name.
struct ExportedNameIds {
    handlers: HashMap<String, i64>,
    schedulers: HashMap<String, i64>,
}

impl ExportedNameIds {
    fn exported_group(&self, JobGroupRow { id, group }: JobGroupRow) -> ExportedJobGroup {
        let settings = group.settings;
        ExportedJobGroup {
            id: id.0,
            name: group.name,
            env: group.env,
            invocation_script: group.invocation_script,
            shared: SharedByGroup {
                stdio: settings.stdio,
                supports_termination: settings.supports_termination,
                failure_handler_id: settings
                    .failure_handler
                    .and_then(|name| self.handlers.get(&name).copied()),
                scheduler_id: settings.scheduler.and_then(|name| self.schedulers.get(&name).copied()),
                labels: settings.labels,
            },
            parameters: group.parameters,
            sites: settings.sites,
            limit: settings.limit,
            elects: group.elects_site,
        }
    }
}

fn export_jobs(
    db: &impl SqlConnection,
    id: WorkflowId,
    job_groups: &[ExportedJobGroup],
) -> Result<Vec<ExportedJob>, SqlError> {
    let job_groups: HashMap<i64, &ExportedJobGroup> =
        job_groups.iter().map(|job_group| (job_group.id, job_group)).collect();
    list_of_workflow(db, sql::EXPORT_JOBS, id, |row| {
        let mut job = read_exported_job(row)?;
        if let Some(job_group) = job.kind_id.and_then(|id| job_groups.get(&id)) {
            job.shared = job_group.shared.clone();
            job.invocation_script = job.invocation_script.or_else(|| job_group.invocation_script.clone());
            let own = std::mem::take(&mut job.env);
            job.env = super::claimed_commands::merge_env(&job_group.env, own);
        }
        Ok(job)
    })
}

fn assign_work_units(
    db: &impl SqlConnection,
    id: WorkflowId,
    jobs: &mut [ExportedJob],
) -> Result<(), SqlError> {
    let ids: Vec<JobId> = jobs.iter().map(|job| JobId(job.id)).collect();
    for unit in super::work_units::load_units(db, id, &ids)? {
        for &(first, count) in &unit.jobs {
            let of_unit = jobs.iter_mut().skip(first as usize).take(count as usize);
            of_unit.for_each(|job| job.unit = Some(unit.number));
        }
    }
    Ok(())
}

fn read_exported_job(row: &SqlRow<'_>) -> Result<ExportedJob, SqlError> {
    Ok(ExportedJob {
        id: row.get(0)?,
        name: row.get(1)?,
        command: row.get(2)?,
        status: Some(column_decoding::read_status(row, 3)?),
        attempt_id: Some(row.get(4)?),
        unit: None,
        priority: row.get(5)?,
        cancel_on_blocking_job_failure: Some(column_decoding::read_flag(row, 6)?),
        resource_requirements_id: row.get(7)?,
        kind_id: row.get(8)?,
        origin: queries::read_origin(row, 9)?,
        invocation_script: row.get(10)?,
        env: column_decoding::read_env(row, 11)?,
        parameters: column_decoding::read_json(row, 12)?.unwrap_or_default(),
        shared: SharedByGroup::default(),
        options: column_decoding::read_json(row, 13)?.unwrap_or_default(),
        depends_on_job_ids: Vec::new(),
        depends_on_groups: Vec::new(),
        input_file_ids: Vec::new(),
        output_file_ids: Vec::new(),
        input_user_data_ids: Vec::new(),
        output_user_data_ids: Vec::new(),
    })
}

/// Adds dependencies, inputs and outputs to jobs. Returns the dependency groups.
fn attach_relations(
    db: &impl SqlConnection,
    id: WorkflowId,
    jobs: &mut [ExportedJob],
) -> Result<Vec<Vec<i64>>, SqlError> {
    let numbers: HashMap<i64, usize> = jobs.iter().enumerate().map(|(n, job)| (job.id, n)).collect();
    let mut with = |job: i64, act: &mut dyn FnMut(&mut ExportedJob)| {
        if let Some(&number) = numbers.get(&job) {
            act(&mut jobs[number]);
        }
    };
    for_each_pair(db, sql::LOAD_EDGES, id, |job, waits_for| {
        with(job, &mut |job| job.depends_on_job_ids.push(waits_for));
    })?;
    for_each_pair(db, sql::LOAD_JOB_DEPENDENCY_GROUPS, id, |job, group| {
        with(job, &mut |job| job.depends_on_groups.push(group as u32));
    })?;
    for related in workflow_parts::list_job_files(db, id)? {
        let list = |job: &mut ExportedJob| {
            if related.is_output { &mut job.output_file_ids } else { &mut job.input_file_ids }
                .push(related.file_id.0);
        };
        with(related.job_id.0, &mut { list });
    }
    for related in workflow_parts::list_job_user_data(db, id)? {
        let list = |job: &mut ExportedJob| {
            if related.is_output { &mut job.output_user_data_ids } else { &mut job.input_user_data_ids }
                .push(related.user_data_id.0);
        };
        with(related.job_id.0, &mut { list });
    }
    let mut dependency_groups: Vec<Vec<i64>> = Vec::new();
    for_each_pair(db, sql::LOAD_DEPENDENCY_GROUP_MEMBERS, id, |group, job| {
        if dependency_groups.len() <= group as usize {
            dependency_groups.resize_with(group as usize + 1, Vec::new);
        }
        dependency_groups[group as usize].push(job);
    })?;
    Ok(dependency_groups)
}

fn export_files(db: &impl SqlConnection, id: WorkflowId) -> Result<Vec<ExportedFile>, SqlError> {
    let rows = workflow_parts::list_files(db, id, &DataFilter::default())?;
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

fn export_user_data(db: &impl SqlConnection, id: WorkflowId) -> Result<Vec<ExportedUserData>, SqlError> {
    let rows = workflow_parts::list_user_data(db, id, &DataFilter::default())?;
    let exported = rows.into_iter().map(|row| ExportedUserData {
        id: row.id.0,
        name: row.name,
        data: row.data,
        is_ephemeral: row.is_ephemeral,
    });
    Ok(exported.collect())
}

fn export_requirements(
    db: &impl SqlConnection,
    id: WorkflowId,
) -> Result<Vec<ExportedRequirements>, SqlError> {
    let exported = workflow_parts::list_requirements(db, id)?.into_iter().map(|row| {
        let Resources { cpus, memory, gpus, nodes, runtime } = row.resources;
        ExportedRequirements {
            id: row.id.0,
            name: row.name,
            num_cpus: cpus,
            num_gpus: gpus,
            num_nodes: nodes,
            memory: render_size(memory),
            runtime: runtime.map(|runtime| format!("PT{}S", runtime.as_secs_f64())),
        }
    });
    Ok(exported.collect())
}

/// Uses the largest unit without a fraction; plain numbers are bytes.
fn render_size(Bytes(bytes): Bytes) -> String {
    let unit = [("t", 40), ("g", 30), ("m", 20), ("k", 10)];
    let exact = unit.into_iter().find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    exact.map_or_else(|| bytes.to_string(), |(name, shift)| format!("{}{name}", bytes >> shift))
}

fn export_actions(db: &impl SqlConnection, id: WorkflowId) -> Result<Vec<ExportedAction>, SqlError> {
    let exported = workflow_parts::list_actions(db, id)?.into_iter().map(|row| ExportedAction {
        id: row.id,
        action: row.action,
        job_ids: row.jobs.into_iter().map(|job| job.0).collect(),
    });
    Ok(exported.collect())
}

type ExportedHistory = (Vec<ExportedWorker>, Vec<ExportedRun>, Vec<ExportedResult>);

fn export_history(db: &impl SqlConnection, id: WorkflowId) -> Result<ExportedHistory, SqlError> {
    let workers = list_of_workflow(db, sql::EXPORT_WORKERS, id, read_exported_worker)?;
    let runs = list_of_workflow(db, sql::RUNS, id, read_exported_run)?;
    let results = list_of_workflow(db, sql::EXPORT_RESULTS, id, read_exported_result)?;
    Ok((workers, runs, results))
}

fn export_events(db: &impl SqlConnection, id: WorkflowId) -> Result<Vec<ExportedEvent>, SqlError> {
    let exported =
        events::list_events(db, Some(id), &EventFilter::default())?.into_iter().map(|row| ExportedEvent {
            at: row.at,
            severity: row.severity,
            category: row.category,
            actor: row.actor,
            message: row.message,
            data: row.data,
        });
    Ok(exported.collect())
}

fn read_exported_spawn(row: &SqlRow<'_>) -> Result<ExportedSpawn, SqlError> {
    Ok(ExportedSpawn {
        first_job_id: row.get(0)?,
        job_count: row.get(1)?,
        spawned_by: row.get(2)?,
        lineage: row.get(3)?,
        iteration: row.get(4)?,
        digest: row.get(5)?,
    })
}

fn read_exported_worker(row: &SqlRow<'_>) -> Result<ExportedWorker, SqlError> {
    Ok(ExportedWorker {
        id: row.get(0)?,
        run_id: row.get(1)?,
        hostname: row.get(2)?,
        pid: row.get(3)?,
        start_time: Timestamp(row.get(4)?),
        end_time: column_decoding::read_time(row, 5)?,
        num_cpus: row.get(6)?,
        memory_gb: row.get::<i64>(7)? as f64 / f64::from(1 << 30),
        num_gpus: row.get(8)?,
        num_nodes: row.get(9)?,
        compute_node_type: "local".to_owned(),
    })
}

fn read_exported_run(row: &SqlRow<'_>) -> Result<ExportedRun, SqlError> {
    Ok(ExportedRun {
        run_id: row.get(0)?,
        started_at: Timestamp(row.get(1)?),
        ended_at: column_decoding::read_time(row, 2)?,
    })
}

fn read_exported_result(row: &SqlRow<'_>) -> Result<ExportedResult, SqlError> {
    let wall_us: i64 = row.get(11)?;
    Ok(ExportedResult {
        job_id: row.get(0)?,
        run_id: row.get(1)?,
        attempt_id: row.get(2)?,
        compute_node_id: row.get(3)?,
        status: column_decoding::read_status(row, 4)?,
        return_code: row.get(5)?,
        exit_code: row.get(6)?,
        signal: row.get(7)?,
        out_of_memory: column_decoding::read_flag(row, 8)?,
        start_time: column_decoding::read_time(row, 9)?,
        completion_time: Timestamp(row.get(10)?),
        exec_time_minutes: wall_us as f64 / 60e6,
        wall_us: Some(wall_us),
        cpu_time_us: row.get(12)?,
        peak_memory_bytes: row.get(13)?,
        avg_memory_bytes: row.get(14)?,
        peak_cpu_percent: row.get(15)?,
        avg_cpu_percent: row.get(16)?,
        reason: row.get(17)?,
        files: column_decoding::read_json(row, 18)?,
    })
}

fn list_of_workflow<T>(
    db: &impl SqlConnection,
    sql: &str,
    id: WorkflowId,
    row: impl FnMut(&SqlRow<'_>) -> Result<T, SqlError>,
) -> Result<Vec<T>, SqlError> {
    db.query_all(sql, [id.0], row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rendered_exactly() {
        for (bytes, text) in
            [(0, "0"), (1, "1"), (1 << 20, "1m"), (3 << 30, "3g"), ((1 << 30) + 1, "1073741825")]
        {
            assert_eq!(render_size(Bytes(bytes)), text);
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)));
        }
    }
}

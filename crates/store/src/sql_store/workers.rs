//! Workers: registration and end.

use super::apply_changes::{current_run, to_sql_bytes};
use super::query_builder::{SqlQuery, render_id_list};
use super::workflow_updates::AuditContext;
use super::{SqlStore, StoreBackend, column_decoding, events, node_quarantine, queries};
use crate::db::{SqlConnection, SqlRow, values};
use crate::error::SqlError;
use crate::model::{
    EventSeverity, HeldJob, NewEvent, NewWorker, NodeQuarantineRow, WorkerFilter, WorkerKind, WorkerRow,
    WorkerUpdate,
};
use crate::sql::workers_and_parts as sql;
use crate::{StoreError, WorkerStore};
use serde_json::json;
use windlass_types::{Bytes, Capacity, JobId, RunId, Timestamp, WorkerId, WorkflowId};

impl<B: StoreBackend> WorkerStore for SqlStore<B> {
    fn add_worker(&self, worker: &NewWorker, now: Timestamp) -> Result<WorkerId, StoreError> {
        let worker = worker.clone();
        self.write_as_actor(now, move |db, by| add_worker(db, &worker, by))
    }

    fn retire_worker(&self, worker: WorkerId, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| retire_worker(db, worker, by))
    }

    fn update_worker(
        &self,
        worker: WorkerId,
        update: &WorkerUpdate,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let update = update.clone();
        self.write_as_actor(now, move |db, by| update_worker(db, worker, &update, by))
    }

    fn workers(&self, filter: &WorkerFilter) -> Result<Vec<WorkerRow>, StoreError> {
        self.read(|db| list_workers(db, filter))
    }

    fn worker(&self, id: WorkerId) -> Result<Option<WorkerRow>, StoreError> {
        self.read(|db| find_worker(db, id))
    }

    fn held_job(&self, workflow: WorkflowId, job: JobId) -> Result<Option<HeldJob>, StoreError> {
        self.read(|db| queries::find_held_job(db, workflow, job))
    }

    fn delete_workers(&self, workers: &[WorkerId], now: Timestamp) -> Result<(), StoreError> {
        let workers = workers.to_vec();
        self.write_as_actor(now, move |db, by| delete_workers(db, &workers, by))
    }

    fn active_workflows(&self) -> Result<Vec<WorkflowId>, StoreError> {
        self.read(|db| db.query_all(sql::OPEN_RUNS, values![], |row| row.get(0).map(WorkflowId)))
    }

    fn quarantined_nodes(&self) -> Result<Vec<NodeQuarantineRow>, StoreError> {
        self.read(|db| db.query_all(sql::QUARANTINED_NODES, values![], node_quarantine::read_node_row))
    }

    fn quarantine_node(&self, node: &NodeQuarantineRow, now: Timestamp) -> Result<(), StoreError> {
        let node = node.clone();
        self.write_as_actor(now, move |db, by| node_quarantine::quarantine_node(db, &node, by))
    }

    fn release_quarantined_node(
        &self,
        host: &str,
        user: Option<&str>,
        why: &str,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let (host, user, why) = (host.to_owned(), user.map(str::to_owned), why.to_owned());
        self.write_as_actor(now, move |db, by| {
            node_quarantine::release_node(db, &host, user.as_deref(), &why, by)
        })
    }
}

fn add_worker(
    db: &impl SqlConnection,
    worker: &NewWorker,
    by: AuditContext<'_>,
) -> Result<WorkerId, SqlError> {
    if let Some(workflow) = worker.workflow {
        current_run(db, workflow)?;
    }
    let id = insert_worker(db, worker, by.now)?;
    if worker.kind != WorkerKind::Claims {
        record_worker_event(db, id, worker, "compute_node_started", "has started", by)?;
    }
    Ok(id)
}

/// Only the row, without an event: the imported worker ended long ago.
pub(crate) fn insert_worker(
    db: &impl SqlConnection,
    worker: &NewWorker,
    started_at: Timestamp,
) -> Result<WorkerId, SqlError> {
    let capacity = &worker.capacity;
    let labels = column_decoding::render_json(&worker.labels)?;
    let extra = worker.extra.as_ref().map(column_decoding::render_json).transpose()?;
    let values = values![
        worker.kind.name(),
        worker.workflow.map(|id| id.0),
        worker.run.map(|id| id.0),
        worker.user,
        worker.version,
        labels,
        worker.host,
        worker.boot_id,
        worker.pid,
        worker.pid_start_ticks.cast_signed(),
        worker.token,
        worker.secret_hash,
        worker.ledger_path,
        capacity.cpus,
        to_sql_bytes(capacity.memory),
        capacity.gpus,
        capacity.nodes,
        capacity.max_jobs,
        worker.allocation,
        extra,
        started_at.0,
        worker.site,
    ];
    Ok(WorkerId(db.query_one(sql::INSERT_WORKER, values, |row| row.get(0))?))
}

/// Also called within other transactions: a workflow is not deleted while one of its workers may be alive.
pub(crate) fn active_workers(
    db: &impl SqlConnection,
    workflow: Option<WorkflowId>,
) -> Result<Vec<WorkerRow>, SqlError> {
    match workflow {
        Some(workflow) => db.query_all(sql::ACTIVE_WORKERS_OF, [workflow.0], read_worker_row),
        None => list_workers(db, &WorkerFilter { is_active: Some(true), ..WorkerFilter::default() }),
    }
}

fn retire_worker(db: &impl SqlConnection, id: WorkerId, by: AuditContext<'_>) -> Result<(), SqlError> {
    let row = require_worker(db, id)?;
    if db.execute(sql::RETIRE_WORKER, [by.now.0, id.0])? > 0 && row.worker.kind != WorkerKind::Claims {
        record_worker_event(db, id, &row.worker, "compute_node_stopped", "has ended", by)?;
    }
    Ok(())
}

fn update_worker(
    db: &impl SqlConnection,
    id: WorkerId,
    update: &WorkerUpdate,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let old = require_worker(db, id)?;
    let WorkerRow { worker, started_at, ended_at, is_draining, .. } = updated_worker(old.clone(), update);
    let capacity = &worker.capacity;
    let labels = column_decoding::render_json(&worker.labels)?;
    let extra = worker.extra.as_ref().map(column_decoding::render_json).transpose()?;
    let values = values![
        worker.host,
        worker.boot_id,
        worker.pid,
        worker.pid_start_ticks.cast_signed(),
        worker.version,
        labels,
        capacity.cpus,
        to_sql_bytes(capacity.memory),
        capacity.gpus,
        capacity.nodes,
        capacity.max_jobs,
        worker.secret_hash,
        worker.allocation,
        extra,
        i64::from(is_draining),
        started_at.0,
        ended_at.map(|at| at.0),
        worker.site,
        id.0,
    ];
    db.execute(sql::UPDATE_WORKER, values)?;
    match (old.ended_at, ended_at) {
        (None, Some(_)) => record_worker_event(db, id, &worker, "compute_node_stopped", "has ended", by)?,
        (Some(_), None) => {
            record_worker_event(db, id, &worker, "compute_node_started", "is active again", by)?;
        }
        _ => {}
    }
    if is_draining && !old.is_draining {
        record_worker_event(db, id, &worker, "compute_node_draining", "is draining", by)?;
    }
    Ok(())
}

/// Returns the row with the update applied.
fn updated_worker(row: WorkerRow, update: &WorkerUpdate) -> WorkerRow {
    let WorkerRow { id, worker, started_at, ended_at, is_draining } = row;
    let update = update.clone();
    let worker = NewWorker {
        host: update.host.unwrap_or(worker.host),
        boot_id: update.boot_id.unwrap_or(worker.boot_id),
        pid: update.pid.unwrap_or(worker.pid),
        pid_start_ticks: update.pid_start_ticks.unwrap_or(worker.pid_start_ticks),
        version: update.version.unwrap_or(worker.version),
        labels: update.labels.unwrap_or(worker.labels),
        site: update.site.or(worker.site),
        capacity: update.capacity.unwrap_or(worker.capacity),
        secret_hash: update.secret_hash.or(worker.secret_hash),
        allocation: update.allocation.or(worker.allocation),
        extra: update.extra.or(worker.extra),
        ..worker
    };
    WorkerRow {
        id,
        worker,
        started_at: update.started_at.unwrap_or(started_at),
        ended_at: update.ended_at.unwrap_or(ended_at),
        is_draining: update.is_draining.unwrap_or(is_draining),
    }
}

fn delete_workers(db: &impl SqlConnection, ids: &[WorkerId], by: AuditContext<'_>) -> Result<(), SqlError> {
    for &id in ids {
        let row = require_worker(db, id)?;
        let held =
            db.query_optional(sql::JOB_HELD_BY, [id.0], |row| Ok((JobId(row.get(0)?), row.get(1)?)))?;
        if let Some((job, name)) = held {
            return Err(StoreError::JobIsHeld { job, name }.into());
        }
        db.execute(sql::DELETE_WORKER, [by.now.0, id.0])?;
        if row.ended_at.is_none() {
            record_worker_event(db, id, &row.worker, "compute_node_stopped", "has ended", by)?;
        }
    }
    Ok(())
}

fn record_worker_event(
    db: &impl SqlConnection,
    id: WorkerId,
    worker: &NewWorker,
    category: &str,
    what: &str,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let event = NewEvent {
        workflow: worker.workflow,
        job: None,
        severity: EventSeverity::Info,
        category: category.to_owned(),
        message: format!("worker {id} on {} {what}", worker.host),
        data: Some(json!({ "compute_node_id": id, "hostname": worker.host, "kind": worker.kind.name() })),
    };
    events::insert_event(db, by.actor, &event, by.now)?;
    Ok(())
}

fn list_workers(db: &impl SqlConnection, filter: &WorkerFilter) -> Result<Vec<WorkerRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_WORKERS, vec![]);
    push_conditions(&mut query, filter);
    query.push_order(filter.sort.as_ref(), SORTABLE_WORKERS, "w.id")?;
    query.push_page(filter.offset, filter.limit);
    query.read_rows(db, read_worker_row)
}

pub(crate) fn count_workers(db: &impl SqlConnection, filter: &WorkerFilter) -> Result<u64, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_COUNT_OF_WORKERS, vec![]);
    push_conditions(&mut query, filter);
    query.read_count(db)
}

fn push_conditions(query: &mut SqlQuery, filter: &WorkerFilter) {
    query.push("w.is_deleted = 0", vec![]);
    match (filter.workflow, filter.also_shared) {
        (Some(id), true) => {
            query.push(" AND (w.workflow_id = ? OR w.workflow_id IS NULL)", vec![Box::new(id.0)]);
        }
        (Some(id), false) => query.push(" AND w.workflow_id = ?", vec![Box::new(id.0)]),
        (None, _) => {}
    }
    if !filter.ids.is_empty() {
        query.push(&format!(" AND w.id IN ({})", render_id_list(filter.ids.iter().map(|id| id.0))), vec![]);
    }
    if !filter.kinds.is_empty() {
        let kinds: Vec<String> = filter.kinds.iter().map(|kind| format!("'{}'", kind.name())).collect();
        query.push(&format!(" AND w.kind IN ({})", kinds.join(", ")), vec![]);
    }
    if let Some(host) = &filter.host {
        query.push_contains(" AND ", "w.host", host);
    }
    if let Some(user) = &filter.user {
        query.push(" AND w.user_name = ?", vec![Box::new(user.clone())]);
    }
    match filter.is_active {
        Some(true) => query.push(" AND w.ended_at IS NULL", vec![]),
        Some(false) => query.push(" AND w.ended_at IS NOT NULL", vec![]),
        None => {}
    }
    if let Some(allocation) = filter.allocation {
        query.push(" AND w.allocation_id = ?", vec![Box::new(allocation)]);
    }
}

const SORTABLE_WORKERS: &[(&str, &str)] = &[
    ("id", "w.id"),
    ("workflow_id", "w.workflow_id"),
    ("hostname", "w.host"),
    ("pid", "w.pid"),
    ("start_time", "w.started_at"),
    ("end_time", "w.ended_at"),
    ("duration_seconds", "w.ended_at - w.started_at"),
    ("is_active", "w.ended_at IS NULL"),
    ("num_cpus", "w.cpus"),
    ("memory_gb", "w.memory_bytes"),
    ("num_gpus", "w.gpus"),
    ("num_nodes", "w.nodes"),
    ("compute_node_type", "w.kind"),
];

pub(crate) fn find_worker(db: &impl SqlConnection, id: WorkerId) -> Result<Option<WorkerRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_WORKERS, vec![]);
    query.push("w.id = ?", vec![Box::new(id.0)]);
    Ok(query.read_rows(db, read_worker_row)?.pop())
}

fn require_worker(db: &impl SqlConnection, id: WorkerId) -> Result<WorkerRow, SqlError> {
    find_worker(db, id)?.ok_or_else(|| StoreError::NoSuchWorker(id).into())
}

fn read_worker_row(row: &SqlRow<'_>) -> Result<WorkerRow, SqlError> {
    let kind: String = row.get(1)?;
    let known = WorkerKind::ALL.into_iter().find(|known| known.name() == kind);
    Ok(WorkerRow {
        id: WorkerId(row.get(0)?),
        worker: NewWorker {
            kind: known.ok_or_else(|| row.conversion_error(1, format!("unknown worker kind `{kind}`")))?,
            workflow: row.get::<Option<i64>>(2)?.map(WorkflowId),
            run: row.get::<Option<i64>>(3)?.map(RunId),
            user: row.get(4)?,
            version: row.get(5)?,
            labels: column_decoding::read_required_json(row, 6)?,
            site: row.get(24)?,
            host: row.get(7)?,
            boot_id: row.get(8)?,
            pid: row.get(9)?,
            pid_start_ticks: row.get::<i64>(10)?.cast_unsigned(),
            token: row.get(11)?,
            secret_hash: row.get(12)?,
            ledger_path: row.get(13)?,
            capacity: Capacity {
                cpus: row.get(14)?,
                memory: Bytes(row.get::<i64>(15)?.unsigned_abs()),
                gpus: row.get(16)?,
                nodes: row.get(17)?,
                max_jobs: row.get(18)?,
            },
            allocation: row.get(19)?,
            extra: column_decoding::read_json(row, 20)?,
        },
        started_at: Timestamp(row.get(21)?),
        ended_at: column_decoding::read_time(row, 22)?,
        is_draining: column_decoding::read_flag(row, 23)?,
    })
}

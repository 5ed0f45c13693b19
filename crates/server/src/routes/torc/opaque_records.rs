//! Objects that only clients interpret, stored unchanged.

use super::call_context::TorcCallContext;
use super::input;
use super::operation_table::OperationTable;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::cmp::Ordering;
use windlass_api::torc::query::{
    ListLocalSchedulers, ListPageQuery, ListRoCrateEntities, ListSlurmStats, WorkflowQuery,
};
use windlass_api::torc::{
    DeleteCountResponse, DeleteRoCrateEntitiesResponse, ListPage, LocalSchedulerModel, MessageResponse,
    RemoteWorkerModel, RoCrateEntityModel, SlurmStatsModel,
};
use windlass_auth::AuthOperation;
use windlass_store::model::{ClientRecordRow, WorkflowPartId, WorkflowRow};
use windlass_types::{FileId, JobId, WorkflowId};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("client data")
        .get(
            "/local_schedulers",
            "list_local_schedulers",
            "List the local schedulers of a workflow",
            list_local_schedulers,
        )
        .post(
            "/local_schedulers",
            "create_local_scheduler",
            "Add a local scheduler",
            create_record::<LocalSchedulerModel>,
        )
        .delete(
            "/local_schedulers",
            "delete_local_schedulers",
            "Delete the local schedulers of a workflow",
            delete_records::<LocalSchedulerModel>,
        )
        .get(
            "/local_schedulers/{id}",
            "get_local_scheduler",
            "Get a local scheduler",
            get_record::<LocalSchedulerModel>,
        )
        .put(
            "/local_schedulers/{id}",
            "update_local_scheduler",
            "Change a local scheduler",
            update_record::<LocalSchedulerModel>,
        )
        .delete(
            "/local_schedulers/{id}",
            "delete_local_scheduler",
            "Delete a local scheduler",
            delete_record::<LocalSchedulerModel>,
        )
        .post(
            "/ro_crate_entities",
            "create_ro_crate_entity",
            "Add an RO-Crate entity",
            create_record::<RoCrateEntityModel>,
        )
        .get(
            "/ro_crate_entities/{id}",
            "get_ro_crate_entity",
            "Get an RO-Crate entity",
            get_record::<RoCrateEntityModel>,
        )
        .put(
            "/ro_crate_entities/{id}",
            "update_ro_crate_entity",
            "Change an RO-Crate entity",
            update_record::<RoCrateEntityModel>,
        )
        .delete(
            "/ro_crate_entities/{id}",
            "delete_ro_crate_entity",
            "Delete an RO-Crate entity",
            delete_entity,
        )
        .get(
            "/workflows/{id}/ro_crate_entities",
            "list_ro_crate_entities",
            "List the RO-Crate entities of a workflow",
            list_entities,
        )
        .delete(
            "/workflows/{id}/ro_crate_entities",
            "delete_ro_crate_entities",
            "Delete the RO-Crate entities of a workflow",
            delete_entities,
        )
        .get("/slurm_stats", "list_slurm_stats", "List Slurm accounting data", list_slurm_stats)
        .post(
            "/slurm_stats",
            "create_slurm_stats",
            "Add Slurm accounting data",
            create_record::<SlurmStatsModel>,
        )
        .get(
            "/workflows/{id}/remote_workers",
            "list_remote_workers",
            "List the hosts for workers of a workflow",
            list_remote_workers,
        )
        .post(
            "/workflows/{id}/remote_workers",
            "create_remote_workers",
            "Add hosts for workers",
            create_remote_workers,
        )
        .delete(
            "/workflows/{id}/remote_workers/{worker}",
            "delete_remote_worker",
            "Remove a host",
            delete_remote_worker,
        )
}

const REMOTE_WORKER: &str = "remote_worker";

/// An object that is stored unchanged.
trait StoredRecord: Serialize + DeserializeOwned + Send + 'static {
    const KIND: &'static str;
    const WHAT: &'static str;
    fn workflow(&self) -> i64;
    fn id(&mut self) -> &mut Option<i64>;
    /// Name that is unique for its type within a workflow.
    fn name(&self) -> Option<&str> {
        None
    }
    /// Validates the object for this workflow.
    fn check(&self, call: &TorcCallContext, workflow: WorkflowId) -> ApiResult<()>;
}

impl StoredRecord for LocalSchedulerModel {
    const KIND: &'static str = "local_scheduler";
    const WHAT: &'static str = "local scheduler";
    fn workflow(&self) -> i64 {
        self.workflow_id
    }
    fn id(&mut self) -> &mut Option<i64> {
        &mut self.id
    }
    fn check(&self, _: &TorcCallContext, _: WorkflowId) -> ApiResult<()> {
        self.memory.as_deref().map(input::parse_memory).transpose()?;
        self.num_cpus.map(|n| input::convert_number::<u32>("num_cpus", n)).transpose()?;
        Ok(())
    }
}

impl StoredRecord for RoCrateEntityModel {
    const KIND: &'static str = "ro_crate_entity";
    const WHAT: &'static str = "description";
    fn workflow(&self) -> i64 {
        self.workflow_id
    }
    fn id(&mut self) -> &mut Option<i64> {
        &mut self.id
    }
    fn check(&self, call: &TorcCallContext, workflow: WorkflowId) -> ApiResult<()> {
        input::check_name("a description", &self.entity_id)?;
        call.check_parts_of(workflow, self.file_id.map(|id| WorkflowPartId::File(FileId(id))))
    }
}

impl StoredRecord for SlurmStatsModel {
    const KIND: &'static str = "slurm_stats";
    const WHAT: &'static str = "measurement";
    fn workflow(&self) -> i64 {
        self.workflow_id
    }
    fn id(&mut self) -> &mut Option<i64> {
        &mut self.id
    }
    fn check(&self, call: &TorcCallContext, workflow: WorkflowId) -> ApiResult<()> {
        call.check_part_of(workflow, WorkflowPartId::Job(JobId(self.job_id)))
    }
}

fn parse_record<T: StoredRecord>(record: ClientRecordRow) -> ApiResult<T> {
    let mut model: T = serde_json::from_value(record.data).map_err(ApiError::internal)?;
    *model.id() = Some(record.id);
    Ok(model)
}

fn load_records<T: StoredRecord>(call: &TorcCallContext, workflow: WorkflowId) -> ApiResult<Vec<T>> {
    call.store().records(Some(workflow), T::KIND)?.into_iter().map(parse_record).collect()
}

fn load_record<T: StoredRecord>(
    call: &TorcCallContext,
    operation: AuthOperation,
    id: i64,
) -> ApiResult<(WorkflowRow, T)> {
    let missing = || ApiError::not_found(format_args!("{} {id}", T::WHAT));
    let record = call.store().record(id)?.filter(|record| record.kind == T::KIND);
    // Report a missing role first, regardless of the object.
    let row = match &record {
        Some(_) => call.authorize_part(operation, WorkflowPartId::Record(id)).map_err(|error| match error
            .status
            .as_u16()
        {
            404 => missing(),
            _ => error,
        })?,
        None => return call.authorize(operation).and(Err(missing())),
    };
    Ok((row, parse_record(record.ok_or_else(missing)?)?))
}

fn get_record<T: StoredRecord>(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<T> {
    Ok(load_record(call, AuthOperation::ReadWorkflow, id)?.1)
}

fn create_record<T: StoredRecord>(call: &TorcCallContext, Json(mut body): Json<T>) -> ApiResult<T> {
    let row = call.authorize_workflow(AuthOperation::RunJobs, body.workflow())?;
    body.check(call, row.id)?;
    *body.id() = None;
    let store = call.store().acting_as(call.caller_name());
    let id = store.add_record(Some(row.id), T::KIND, body.name(), &json!(body), call.now())?;
    *body.id() = Some(id);
    Ok(body)
}

fn update_record<T: StoredRecord>(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(mut body): Json<T>,
) -> ApiResult<T> {
    let (row, _) = load_record::<T>(call, AuthOperation::RunJobs, id)?;
    if body.workflow() != row.id.0 || body.id().is_some_and(|given| given != id) {
        return Err(ApiError::invalid(format!("id and workflow of a {} cannot change", T::WHAT)));
    }
    body.check(call, row.id)?;
    *body.id() = None;
    call.store().acting_as(call.caller_name()).update_record(id, &json!(body), call.now())?;
    *body.id() = Some(id);
    Ok(body)
}

fn delete_record<T: StoredRecord>(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<T> {
    let (_, model) = load_record(call, AuthOperation::RunJobs, id)?;
    call.store().acting_as(call.caller_name()).delete_record(id, call.now())?;
    Ok(model)
}

fn delete_records<T: StoredRecord>(
    call: &TorcCallContext,
    Query(query): Query<WorkflowQuery>,
) -> ApiResult<DeleteCountResponse> {
    let row = call.authorize_workflow(AuthOperation::RunJobs, query.workflow_id)?;
    let count = call.store().acting_as(call.caller_name()).delete_records(row.id, T::KIND, call.now())?;
    Ok(DeleteCountResponse { count: count as i64 })
}

/// Sorts models by a field.
pub(super) fn sort_models<T: Serialize>(models: Vec<T>, view: ListPageQuery<'_>) -> ApiResult<Vec<T>> {
    let mut keyed = Vec::with_capacity(models.len());
    for model in models {
        let fields = serde_json::to_value(&model).map_err(ApiError::internal)?;
        keyed.push((view.sort_by.map_or(Value::Null, |field| fields[field].clone()), model));
    }
    keyed.sort_by(|(a, _), (b, _)| compare_values(a, b));
    if view.reverse {
        keyed.reverse();
    }
    Ok(keyed.into_iter().map(|(_, model)| model).collect())
}

fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0))
        }
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Null, _) => Ordering::Less,
        (_, Value::Null) => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

fn list_local_schedulers(
    call: &TorcCallContext,
    Query(query): Query<ListLocalSchedulers>,
) -> ApiResult<ListPage<LocalSchedulerModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, query.workflow_id)?;
    let mut found: Vec<LocalSchedulerModel> = load_records(call, row.id)?;
    found.retain(|one| query.memory.is_none() || one.memory == query.memory);
    found.retain(|one| query.num_cpus.is_none() || one.num_cpus == query.num_cpus);
    let view = query.view();
    Ok(ListPage::from_full_list(sort_models(found, view)?, view.offset, view.limit))
}

fn list_slurm_stats(
    call: &TorcCallContext,
    Query(query): Query<ListSlurmStats>,
) -> ApiResult<ListPage<SlurmStatsModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, query.workflow_id)?;
    let mut found: Vec<SlurmStatsModel> = load_records(call, row.id)?;
    found.retain(|one| query.job_id.is_none_or(|id| id == one.job_id));
    found.retain(|one| query.run_id.is_none_or(|id| id == one.run_id));
    found.retain(|one| query.attempt_id.is_none_or(|id| id == one.attempt_id));
    let view = query.view();
    Ok(ListPage::from_full_list(found, view.offset, view.limit))
}

fn list_entities(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Query(query): Query<ListRoCrateEntities>,
) -> ApiResult<ListPage<RoCrateEntityModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let mut found: Vec<RoCrateEntityModel> = load_records(call, row.id)?;
    found.retain(|one| query.file_id.is_none() || one.file_id == query.file_id);
    found.retain(|one| query.entity_id.as_ref().is_none_or(|id| *id == one.entity_id));
    let view = query.view();
    Ok(ListPage::from_full_list(sort_models(found, view)?, view.offset, view.limit))
}

fn delete_entity(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<MessageResponse> {
    let entity: RoCrateEntityModel = delete_record(call, Path(id))?;
    Ok(MessageResponse { message: format!("deleted RO-Crate entity {}", entity.entity_id) })
}

fn delete_entities(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<DeleteRoCrateEntitiesResponse> {
    let deleted = delete_records::<RoCrateEntityModel>(call, Query(WorkflowQuery { workflow_id: id }))?.count;
    Ok(DeleteRoCrateEntitiesResponse {
        deleted_count: deleted,
        message: format!("deleted {deleted} RO-Crate entities"),
    })
}

fn list_remote_workers(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<Vec<RemoteWorkerModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let hosts =
        call.store().records(Some(row.id), REMOTE_WORKER)?.into_iter().filter_map(|record| record.name);
    Ok(hosts.map(|worker| RemoteWorkerModel { worker, workflow_id: id }).collect())
}

/// Existing hosts are kept.
fn create_remote_workers(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(hosts): Json<Vec<String>>,
) -> ApiResult<Vec<RemoteWorkerModel>> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, id)?;
    let hosts = hosts
        .iter()
        .map(|host| input::check_name("a remote worker", host))
        .collect::<ApiResult<Vec<String>>>()?;
    let store = call.store().acting_as(call.caller_name());
    let mut known: Vec<String> =
        list_remote_workers(call, Path(id))?.into_iter().map(|one| one.worker).collect();
    for host in &hosts {
        if !known.contains(host) {
            store.add_record(Some(row.id), REMOTE_WORKER, Some(host), &json!({}), call.now())?;
            known.push(host.clone());
        }
    }
    Ok(hosts.into_iter().map(|worker| RemoteWorkerModel { worker, workflow_id: id }).collect())
}

fn delete_remote_worker(
    call: &TorcCallContext,
    Path((id, worker)): Path<(i64, String)>,
) -> ApiResult<RemoteWorkerModel> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, id)?;
    let mut records = call.store().records(Some(row.id), REMOTE_WORKER)?.into_iter();
    let record = records.find(|record| record.name.as_deref() == Some(&worker));
    let record = record.ok_or_else(|| ApiError::not_found(format_args!("remote worker `{worker}`")))?;
    call.store().acting_as(call.caller_name()).delete_record(record.id, call.now())?;
    Ok(RemoteWorkerModel { worker, workflow_id: id })
}

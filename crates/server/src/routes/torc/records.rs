//! Objects that only clients know what to do with. The books keep them as they came.

use super::call::Call;
use super::input;
use super::table::Table;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::cmp::Ordering;
use windlass_api::torc::query::{ListLocalSchedulers, ListRoCrateEntities, ListSlurmStats, OfWorkflow, View};
use windlass_api::torc::{
    DeleteCountResponse, DeleteRoCrateEntitiesResponse, LocalSchedulerModel, MessageResponse, Page,
    RemoteWorkerModel, RoCrateEntityModel, SlurmStatsModel,
};
use windlass_auth::Operation;
use windlass_store::model::{Part, RecordRow, WorkflowRow};
use windlass_types::{FileId, JobId, WorkflowId};

pub(super) fn table() -> Table {
    Table::new("kept for clients")
        .get("/local_schedulers", "list_local_schedulers", "Local schedulers of a workflow", list_local)
        .post(
            "/local_schedulers",
            "create_local_scheduler",
            "Adds a local scheduler",
            create::<LocalSchedulerModel>,
        )
        .delete(
            "/local_schedulers",
            "delete_local_schedulers",
            "Deletes those of a workflow",
            delete_all::<LocalSchedulerModel>,
        )
        .get(
            "/local_schedulers/{id}",
            "get_local_scheduler",
            "One local scheduler",
            get::<LocalSchedulerModel>,
        )
        .put("/local_schedulers/{id}", "update_local_scheduler", "Changes it", update::<LocalSchedulerModel>)
        .delete(
            "/local_schedulers/{id}",
            "delete_local_scheduler",
            "Deletes it",
            delete::<LocalSchedulerModel>,
        )
        .post(
            "/ro_crate_entities",
            "create_ro_crate_entity",
            "Describes a thing",
            create::<RoCrateEntityModel>,
        )
        .get("/ro_crate_entities/{id}", "get_ro_crate_entity", "One description", get::<RoCrateEntityModel>)
        .put(
            "/ro_crate_entities/{id}",
            "update_ro_crate_entity",
            "Describes it otherwise",
            update::<RoCrateEntityModel>,
        )
        .delete("/ro_crate_entities/{id}", "delete_ro_crate_entity", "Deletes a description", delete_entity)
        .get(
            "/workflows/{id}/ro_crate_entities",
            "list_ro_crate_entities",
            "Descriptions of a workflow",
            list_entities,
        )
        .delete(
            "/workflows/{id}/ro_crate_entities",
            "delete_ro_crate_entities",
            "Deletes all of them",
            delete_entities,
        )
        .get("/slurm_stats", "list_slurm_stats", "What Slurm measured", list_stats)
        .post("/slurm_stats", "create_slurm_stats", "Notes what Slurm measured", create::<SlurmStatsModel>)
        .get(
            "/workflows/{id}/remote_workers",
            "list_remote_workers",
            "Hosts for workers of a workflow",
            list_remote,
        )
        .post("/workflows/{id}/remote_workers", "create_remote_workers", "Adds hosts", create_remote)
        .delete(
            "/workflows/{id}/remote_workers/{worker}",
            "delete_remote_worker",
            "Forgets a host",
            delete_remote,
        )
}

const REMOTE: &str = "remote_worker";

/// An object that is kept as it is.
trait Kept: Serialize + DeserializeOwned + Send + 'static {
    const KIND: &'static str;
    const WHAT: &'static str;
    fn workflow(&self) -> i64;
    fn id(&mut self) -> &mut Option<i64>;
    /// The name that no other of its kind and workflow may have.
    fn name(&self) -> Option<&str> {
        None
    }
    /// Whether it makes sense in this workflow.
    fn check(&self, call: &Call, workflow: WorkflowId) -> Answer<()>;
}

impl Kept for LocalSchedulerModel {
    const KIND: &'static str = "local_scheduler";
    const WHAT: &'static str = "local scheduler";
    fn workflow(&self) -> i64 {
        self.workflow_id
    }
    fn id(&mut self) -> &mut Option<i64> {
        &mut self.id
    }
    fn check(&self, _: &Call, _: WorkflowId) -> Answer<()> {
        self.memory.as_deref().map(input::memory).transpose()?;
        self.num_cpus.map(|n| input::number::<u32>("num_cpus", n)).transpose()?;
        Ok(())
    }
}

impl Kept for RoCrateEntityModel {
    const KIND: &'static str = "ro_crate_entity";
    const WHAT: &'static str = "description";
    fn workflow(&self) -> i64 {
        self.workflow_id
    }
    fn id(&mut self) -> &mut Option<i64> {
        &mut self.id
    }
    fn check(&self, call: &Call, workflow: WorkflowId) -> Answer<()> {
        input::name("a description", &self.entity_id)?;
        call.are_of(workflow, self.file_id.map(|id| Part::File(FileId(id))))
    }
}

impl Kept for SlurmStatsModel {
    const KIND: &'static str = "slurm_stats";
    const WHAT: &'static str = "measurement";
    fn workflow(&self) -> i64 {
        self.workflow_id
    }
    fn id(&mut self) -> &mut Option<i64> {
        &mut self.id
    }
    fn check(&self, call: &Call, workflow: WorkflowId) -> Answer<()> {
        call.is_of(workflow, Part::Job(JobId(self.job_id)))
    }
}

fn read<T: Kept>(record: RecordRow) -> Answer<T> {
    let mut model: T = serde_json::from_value(record.data).map_err(ApiError::internal)?;
    *model.id() = Some(record.id);
    Ok(model)
}

fn all<T: Kept>(call: &Call, workflow: WorkflowId) -> Answer<Vec<T>> {
    call.store().records(Some(workflow), T::KIND)?.into_iter().map(read).collect()
}

fn shown<T: Kept>(call: &Call, operation: Operation, id: i64) -> Answer<(WorkflowRow, T)> {
    let missing = || ApiError::not_found(format_args!("{} {id}", T::WHAT));
    let record = call.store().record(id)?.filter(|record| record.kind == T::KIND);
    // Want of a role is told first, whatever the object is.
    let row = match &record {
        Some(_) => call.part(operation, Part::Record(id)).map_err(|error| match error.status.as_u16() {
            404 => missing(),
            _ => error,
        })?,
        None => return call.may(operation).and(Err(missing())),
    };
    Ok((row, read(record.ok_or_else(missing)?)?))
}

fn get<T: Kept>(call: &Call, Path(id): Path<i64>) -> Answer<T> {
    Ok(shown(call, Operation::ReadWorkflow, id)?.1)
}

fn create<T: Kept>(call: &Call, Json(mut body): Json<T>) -> Answer<T> {
    let row = call.workflow(Operation::Work, body.workflow())?;
    body.check(call, row.id)?;
    *body.id() = None;
    let store = call.store().acting_as(call.by());
    let id = store.add_record(Some(row.id), T::KIND, body.name(), &json!(body), call.now())?;
    *body.id() = Some(id);
    Ok(body)
}

fn update<T: Kept>(call: &Call, Path(id): Path<i64>, Json(mut body): Json<T>) -> Answer<T> {
    let (row, _) = shown::<T>(call, Operation::Work, id)?;
    if body.workflow() != row.id.0 || body.id().is_some_and(|said| said != id) {
        return Err(ApiError::invalid(format!("a {} keeps its id and its workflow", T::WHAT)));
    }
    body.check(call, row.id)?;
    *body.id() = None;
    call.store().acting_as(call.by()).update_record(id, &json!(body), call.now())?;
    *body.id() = Some(id);
    Ok(body)
}

fn delete<T: Kept>(call: &Call, Path(id): Path<i64>) -> Answer<T> {
    let (_, model) = shown(call, Operation::Work, id)?;
    call.store().acting_as(call.by()).delete_record(id, call.now())?;
    Ok(model)
}

fn delete_all<T: Kept>(call: &Call, Query(query): Query<OfWorkflow>) -> Answer<DeleteCountResponse> {
    let row = call.workflow(Operation::Work, query.workflow_id)?;
    let count = call.store().acting_as(call.by()).delete_records(row.id, T::KIND, call.now())?;
    Ok(DeleteCountResponse { count: count as i64 })
}

/// Sorts models by a field of theirs.
pub(super) fn sort_models<T: Serialize>(models: Vec<T>, view: View<'_>) -> Answer<Vec<T>> {
    let mut keyed = Vec::with_capacity(models.len());
    for model in models {
        let fields = serde_json::to_value(&model).map_err(ApiError::internal)?;
        keyed.push((view.sort_by.map_or(Value::Null, |field| fields[field].clone()), model));
    }
    keyed.sort_by(|(a, _), (b, _)| compare(a, b));
    if view.reverse {
        keyed.reverse();
    }
    Ok(keyed.into_iter().map(|(_, model)| model).collect())
}

fn compare(a: &Value, b: &Value) -> Ordering {
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

fn list_local(call: &Call, Query(query): Query<ListLocalSchedulers>) -> Answer<Page<LocalSchedulerModel>> {
    let row = call.workflow(Operation::ReadWorkflow, query.workflow_id)?;
    let mut found: Vec<LocalSchedulerModel> = all(call, row.id)?;
    found.retain(|one| query.memory.is_none() || one.memory == query.memory);
    found.retain(|one| query.num_cpus.is_none() || one.num_cpus == query.num_cpus);
    let view = query.view();
    Ok(Page::of(sort_models(found, view)?, view.offset, view.limit))
}

fn list_stats(call: &Call, Query(query): Query<ListSlurmStats>) -> Answer<Page<SlurmStatsModel>> {
    let row = call.workflow(Operation::ReadWorkflow, query.workflow_id)?;
    let mut found: Vec<SlurmStatsModel> = all(call, row.id)?;
    found.retain(|one| query.job_id.is_none_or(|id| id == one.job_id));
    found.retain(|one| query.run_id.is_none_or(|id| id == one.run_id));
    found.retain(|one| query.attempt_id.is_none_or(|id| id == one.attempt_id));
    let view = query.view();
    Ok(Page::of(found, view.offset, view.limit))
}

fn list_entities(
    call: &Call,
    Path(id): Path<i64>,
    Query(query): Query<ListRoCrateEntities>,
) -> Answer<Page<RoCrateEntityModel>> {
    let row = call.workflow(Operation::ReadWorkflow, id)?;
    let mut found: Vec<RoCrateEntityModel> = all(call, row.id)?;
    found.retain(|one| query.file_id.is_none() || one.file_id == query.file_id);
    found.retain(|one| query.entity_id.as_ref().is_none_or(|id| *id == one.entity_id));
    let view = query.view();
    Ok(Page::of(sort_models(found, view)?, view.offset, view.limit))
}

fn delete_entity(call: &Call, Path(id): Path<i64>) -> Answer<MessageResponse> {
    let entity: RoCrateEntityModel = delete(call, Path(id))?;
    Ok(MessageResponse { message: format!("the description of {} was deleted", entity.entity_id) })
}

fn delete_entities(call: &Call, Path(id): Path<i64>) -> Answer<DeleteRoCrateEntitiesResponse> {
    let deleted = delete_all::<RoCrateEntityModel>(call, Query(OfWorkflow { workflow_id: id }))?.count;
    Ok(DeleteRoCrateEntitiesResponse {
        deleted_count: deleted,
        message: format!("{deleted} descriptions were deleted"),
    })
}

fn list_remote(call: &Call, Path(id): Path<i64>) -> Answer<Vec<RemoteWorkerModel>> {
    let row = call.workflow(Operation::ReadWorkflow, id)?;
    let hosts = call.store().records(Some(row.id), REMOTE)?.into_iter().filter_map(|record| record.name);
    Ok(hosts.map(|worker| RemoteWorkerModel { worker, workflow_id: id }).collect())
}

/// A host that is there already stays.
fn create_remote(
    call: &Call,
    Path(id): Path<i64>,
    Json(hosts): Json<Vec<String>>,
) -> Answer<Vec<RemoteWorkerModel>> {
    let row = call.workflow(Operation::ChangeWorkflow, id)?;
    let hosts =
        hosts.iter().map(|host| input::name("a remote worker", host)).collect::<Answer<Vec<String>>>()?;
    let store = call.store().acting_as(call.by());
    let mut known: Vec<String> = list_remote(call, Path(id))?.into_iter().map(|one| one.worker).collect();
    for host in &hosts {
        if !known.contains(host) {
            store.add_record(Some(row.id), REMOTE, Some(host), &json!({}), call.now())?;
            known.push(host.clone());
        }
    }
    Ok(hosts.into_iter().map(|worker| RemoteWorkerModel { worker, workflow_id: id }).collect())
}

fn delete_remote(call: &Call, Path((id, worker)): Path<(i64, String)>) -> Answer<RemoteWorkerModel> {
    let row = call.workflow(Operation::ChangeWorkflow, id)?;
    let mut records = call.store().records(Some(row.id), REMOTE)?.into_iter();
    let record = records.find(|record| record.name.as_deref() == Some(&worker));
    let record = record.ok_or_else(|| ApiError::not_found(format_args!("remote worker `{worker}`")))?;
    call.store().acting_as(call.by()).delete_record(record.id, call.now())?;
    Ok(RemoteWorkerModel { worker, workflow_id: id })
}

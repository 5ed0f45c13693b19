//! Slurm schedulers: where allocations come from.

use super::call::Call;
use super::input;
use super::records::sort_models;
use super::table::Table;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::{ListSlurmSchedulers, OfWorkflow};
use windlass_api::torc::{DeleteCountResponse, Page, SlurmSchedulerModel};
use windlass_auth::Operation;
use windlass_engine::service::Quiet;
use windlass_store::model::{Part, SchedulerRow};
use windlass_types::WorkflowId;
use windlass_types::settings::{SlurmScheduler, parse_walltime};

pub(super) fn table() -> Table {
    Table::new("schedulers")
        .get("/slurm_schedulers", "list_slurm_schedulers", "Slurm schedulers of a workflow", list)
        .post("/slurm_schedulers", "create_slurm_scheduler", "Adds a Slurm scheduler", create)
        .delete("/slurm_schedulers", "delete_slurm_schedulers", "Deletes those that no job names", delete_all)
        .get("/slurm_schedulers/{id}", "get_slurm_scheduler", "One Slurm scheduler", get)
        .put("/slurm_schedulers/{id}", "update_slurm_scheduler", "Changes it", update)
        .delete("/slurm_schedulers/{id}", "delete_slurm_scheduler", "Deletes it", delete)
}

fn list(call: &Call, Query(query): Query<ListSlurmSchedulers>) -> Answer<Page<SlurmSchedulerModel>> {
    let row = call.workflow(Operation::ReadWorkflow, query.workflow_id)?;
    let all = call.store().schedulers(row.id)?.into_iter().map(|found| model(row.id, found)).collect();
    let view = query.view();
    Ok(Page::of(sort_models(all, view)?, view.offset, view.limit))
}

fn get(call: &Call, Path(id): Path<i64>) -> Answer<SlurmSchedulerModel> {
    let row = call.part(Operation::ReadWorkflow, Part::Scheduler(id))?;
    shown(call, row.id, id)
}

fn shown(call: &Call, workflow: WorkflowId, id: i64) -> Answer<SlurmSchedulerModel> {
    let found = call.store().schedulers(workflow)?.into_iter().find(|row| row.id == id);
    let found = found.ok_or_else(|| ApiError::not_found(format_args!("scheduler {id}")))?;
    Ok(model(workflow, found))
}

fn create(call: &Call, Json(body): Json<SlurmSchedulerModel>) -> Answer<SlurmSchedulerModel> {
    let workflow = call.workflow(Operation::ChangeWorkflow, body.workflow_id)?.id;
    let named = body.name.is_some();
    let mut scheduler = scheduler(&body)?;
    let id = call.change(workflow, Quiet::Any, move |store, now| {
        if !named {
            let count = store.schedulers(workflow)?.len();
            scheduler.name = format!("slurm_{}", count + 1);
        }
        store.add_scheduler(workflow, &scheduler, now)
    })?;
    shown(call, workflow, id)
}

fn scheduler(body: &SlurmSchedulerModel) -> Answer<SlurmScheduler> {
    parse_walltime(&body.walltime).map_err(|error| ApiError::invalid(format!("walltime: {error}")))?;
    let checked =
        |field: &str, said: &Option<String>| said.as_deref().map(|said| input::text(field, said)).transpose();
    Ok(SlurmScheduler {
        name: body
            .name
            .as_deref()
            .map(|name| input::name("a scheduler", name))
            .transpose()?
            .unwrap_or_default(),
        account: input::text("account", &body.account)?,
        gres: checked("gres", &body.gres)?,
        mem: checked("mem", &body.mem)?,
        nodes: input::number("nodes", body.nodes)?,
        ntasks_per_node: body.ntasks_per_node.map(|n| input::number("ntasks_per_node", n)).transpose()?,
        partition: checked("partition", &body.partition)?,
        qos: checked("qos", &body.qos)?,
        tmp: checked("tmp", &body.tmp)?,
        walltime: body.walltime.clone(),
        extra: checked("extra", &body.extra)?,
        serialize_allocations: body.serialize_allocations.unwrap_or(false),
    })
}

fn update(
    call: &Call,
    Path(id): Path<i64>,
    Json(body): Json<SlurmSchedulerModel>,
) -> Answer<SlurmSchedulerModel> {
    let workflow = call.part(Operation::ChangeWorkflow, Part::Scheduler(id))?.id;
    if body.workflow_id != workflow.0 || body.id.is_some_and(|said| said != id) {
        return Err(ApiError::invalid("a scheduler keeps its id and its workflow"));
    }
    let mut scheduler = scheduler(&body)?;
    if body.name.is_none() {
        scheduler.name = shown(call, workflow, id)?.name.unwrap_or_default();
    }
    call.change(workflow, Quiet::Any, move |store, now| store.update_scheduler(id, &scheduler, now))?;
    shown(call, workflow, id)
}

fn delete(call: &Call, Path(id): Path<i64>) -> Answer<SlurmSchedulerModel> {
    let workflow = call.part(Operation::ChangeWorkflow, Part::Scheduler(id))?.id;
    let scheduler = shown(call, workflow, id)?;
    call.change(workflow, Quiet::Any, move |store, now| store.delete_scheduler(id, now))?;
    Ok(scheduler)
}

fn delete_all(call: &Call, Query(query): Query<OfWorkflow>) -> Answer<DeleteCountResponse> {
    let id = call.workflow(Operation::ChangeWorkflow, query.workflow_id)?.id;
    let count = call.change(id, Quiet::Free, move |store, now| {
        let rows = store.schedulers(id)?;
        rows.iter().try_for_each(|row| store.delete_scheduler(row.id, now))?;
        Ok(rows.len() as i64)
    })?;
    Ok(DeleteCountResponse { count })
}

fn model(workflow: WorkflowId, row: SchedulerRow) -> SlurmSchedulerModel {
    let scheduler = row.scheduler;
    SlurmSchedulerModel {
        id: Some(row.id),
        workflow_id: workflow.0,
        name: Some(scheduler.name),
        account: scheduler.account,
        nodes: i64::from(scheduler.nodes),
        walltime: scheduler.walltime,
        extra: scheduler.extra,
        gres: scheduler.gres,
        mem: scheduler.mem,
        ntasks_per_node: scheduler.ntasks_per_node.map(i64::from),
        partition: scheduler.partition,
        qos: scheduler.qos,
        serialize_allocations: Some(scheduler.serialize_allocations),
        tmp: scheduler.tmp,
    }
}

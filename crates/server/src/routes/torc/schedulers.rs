//! Slurm schedulers: settings for allocations.

use super::call_context::TorcCallContext;
use super::input;
use super::opaque_records::sort_models;
use super::operation_table::OperationTable;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::{ListSlurmSchedulers, WorkflowQuery};
use windlass_api::torc::{DeleteCountResponse, ListPage, SlurmSchedulerModel};
use windlass_auth::AuthOperation;
use windlass_scheduler::service::ExclusiveRequirement;
use windlass_store::model::{SlurmSchedulerRow, WorkflowPartId};
use windlass_types::WorkflowId;
use windlass_types::settings::{SlurmScheduler, parse_walltime};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("schedulers")
        .get(
            "/slurm_schedulers",
            "list_slurm_schedulers",
            "List the Slurm schedulers of a workflow",
            list_schedulers,
        )
        .post("/slurm_schedulers", "create_slurm_scheduler", "Add a Slurm scheduler", create_scheduler)
        .delete(
            "/slurm_schedulers",
            "delete_slurm_schedulers",
            "Delete the Slurm schedulers of a workflow that no job uses",
            delete_schedulers,
        )
        .get("/slurm_schedulers/{id}", "get_slurm_scheduler", "Get a Slurm scheduler", get_scheduler)
        .put("/slurm_schedulers/{id}", "update_slurm_scheduler", "Change a Slurm scheduler", update_scheduler)
        .delete(
            "/slurm_schedulers/{id}",
            "delete_slurm_scheduler",
            "Delete a Slurm scheduler",
            delete_scheduler,
        )
}

fn list_schedulers(
    call: &TorcCallContext,
    Query(query): Query<ListSlurmSchedulers>,
) -> ApiResult<ListPage<SlurmSchedulerModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, query.workflow_id)?;
    let all =
        call.store().schedulers(row.id)?.into_iter().map(|found| scheduler_model(row.id, found)).collect();
    let view = query.view();
    Ok(ListPage::from_full_list(sort_models(all, view)?, view.offset, view.limit))
}

fn get_scheduler(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<SlurmSchedulerModel> {
    let row = call.authorize_part(AuthOperation::ReadWorkflow, WorkflowPartId::Scheduler(id))?;
    load_scheduler_model(call, row.id, id)
}

fn load_scheduler_model(
    call: &TorcCallContext,
    workflow: WorkflowId,
    id: i64,
) -> ApiResult<SlurmSchedulerModel> {
    let found = call.store().schedulers(workflow)?.into_iter().find(|row| row.id == id);
    let found = found.ok_or_else(|| ApiError::not_found(format_args!("scheduler {id}")))?;
    Ok(scheduler_model(workflow, found))
}

fn create_scheduler(
    call: &TorcCallContext,
    Json(body): Json<SlurmSchedulerModel>,
) -> ApiResult<SlurmSchedulerModel> {
    let workflow = call.authorize_workflow(AuthOperation::ChangeWorkflow, body.workflow_id)?.id;
    let named = body.name.is_some();
    let mut scheduler = parse_scheduler(&body)?;
    let id = call.change_workflow(workflow, ExclusiveRequirement::NoneRequired, move |store, now| {
        if !named {
            let count = store.schedulers(workflow)?.len();
            scheduler.name = format!("slurm_{}", count + 1);
        }
        store.add_scheduler(workflow, &scheduler, now)
    })?;
    load_scheduler_model(call, workflow, id)
}

fn parse_scheduler(body: &SlurmSchedulerModel) -> ApiResult<SlurmScheduler> {
    parse_walltime(&body.walltime).map_err(|error| ApiError::invalid(format!("walltime: {error}")))?;
    let checked = |field: &str, given: &Option<String>| {
        given.as_deref().map(|given| input::check_text(field, given)).transpose()
    };
    Ok(SlurmScheduler {
        name: body
            .name
            .as_deref()
            .map(|name| input::check_name("a scheduler", name))
            .transpose()?
            .unwrap_or_default(),
        account: input::check_text("account", &body.account)?,
        gres: checked("gres", &body.gres)?,
        mem: checked("mem", &body.mem)?,
        nodes: input::convert_number("nodes", body.nodes)?,
        ntasks_per_node: body
            .ntasks_per_node
            .map(|n| input::convert_number("ntasks_per_node", n))
            .transpose()?,
        partition: checked("partition", &body.partition)?,
        qos: checked("qos", &body.qos)?,
        tmp: checked("tmp", &body.tmp)?,
        walltime: body.walltime.clone(),
        extra: checked("extra", &body.extra)?,
        serialize_allocations: body.serialize_allocations.unwrap_or(false),
    })
}

fn update_scheduler(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<SlurmSchedulerModel>,
) -> ApiResult<SlurmSchedulerModel> {
    let workflow = call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::Scheduler(id))?.id;
    if body.workflow_id != workflow.0 || body.id.is_some_and(|given| given != id) {
        return Err(ApiError::invalid("id and workflow of a scheduler cannot change"));
    }
    let mut scheduler = parse_scheduler(&body)?;
    if body.name.is_none() {
        scheduler.name = load_scheduler_model(call, workflow, id)?.name.unwrap_or_default();
    }
    call.change_workflow(workflow, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.update_scheduler(id, &scheduler, now)
    })?;
    load_scheduler_model(call, workflow, id)
}

fn delete_scheduler(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<SlurmSchedulerModel> {
    let workflow = call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::Scheduler(id))?.id;
    let scheduler = load_scheduler_model(call, workflow, id)?;
    call.change_workflow(workflow, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.delete_scheduler(id, now)
    })?;
    Ok(scheduler)
}

fn delete_schedulers(
    call: &TorcCallContext,
    Query(query): Query<WorkflowQuery>,
) -> ApiResult<DeleteCountResponse> {
    let id = call.authorize_workflow(AuthOperation::ChangeWorkflow, query.workflow_id)?.id;
    let count = call.change_workflow(id, ExclusiveRequirement::NoHeldJobs, move |store, now| {
        let rows = store.schedulers(id)?;
        rows.iter().try_for_each(|row| store.delete_scheduler(row.id, now))?;
        Ok(rows.len() as i64)
    })?;
    Ok(DeleteCountResponse { count })
}

fn scheduler_model(workflow: WorkflowId, row: SlurmSchedulerRow) -> SlurmSchedulerModel {
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

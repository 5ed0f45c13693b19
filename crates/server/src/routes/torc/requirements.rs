//! Resource requirements of jobs.

use super::call_context::TorcCallContext;
use super::input::{self, render_duration, render_memory};
use super::operation_table::OperationTable;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::{ListRequirements, WorkflowQuery};
use windlass_api::torc::{DeleteCountResponse, ListPage, ResourceRequirementsModel};
use windlass_auth::AuthOperation;
use windlass_scheduler::service::ExclusiveRequirement;
use windlass_store::model::{RequirementsRow, RequirementsUpdate, WorkflowPartId};
use windlass_types::{JobId, RequirementsId, Resources, WorkflowId};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("resource requirements")
        .get(
            "/resource_requirements",
            "list_resource_requirements",
            "List the resource requirements of a workflow",
            list_requirements,
        )
        .post(
            "/resource_requirements",
            "create_resource_requirements",
            "Add resource requirements",
            create_requirements,
        )
        .delete(
            "/resource_requirements",
            "delete_resource_requirements",
            "Delete all resource requirements of a workflow that no job uses",
            delete_all_requirements,
        )
        .get(
            "/resource_requirements/{id}",
            "get_resource_requirements",
            "Get resource requirements",
            get_requirements,
        )
        .put(
            "/resource_requirements/{id}",
            "update_resource_requirements",
            "Change resource requirements",
            update_requirements,
        )
        .delete(
            "/resource_requirements/{id}",
            "delete_resource_requirement",
            "Delete resource requirements",
            delete_requirements,
        )
}

fn list_requirements(
    call: &TorcCallContext,
    Query(query): Query<ListRequirements>,
) -> ApiResult<ListPage<ResourceRequirementsModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, query.workflow_id)?;
    let of_job = match query.job_id {
        Some(job) => Some(call.store().job(JobId(job))?.and_then(|job| job.requirements_id)),
        None => None,
    };
    let memory = query.memory.as_deref().map(input::parse_memory).transpose()?;
    let fits = |asked: Option<i64>, has: u32| asked.is_none_or(|asked| asked == i64::from(has));
    let mut found: Vec<RequirementsRow> = call
        .store()
        .requirements(row.id)?
        .into_iter()
        .filter(|row| of_job.is_none_or(|id| id == Some(row.id)))
        .filter(|row| query.name.as_ref().is_none_or(|name| *name == row.name))
        .filter(|row| memory.is_none_or(|memory| memory == row.resources.memory))
        .filter(|row| fits(query.num_cpus, row.resources.cpus))
        .filter(|row| fits(query.num_gpus, row.resources.gpus))
        .filter(|row| fits(query.num_nodes, row.resources.nodes))
        .filter(|row| {
            query.runtime.is_none_or(|seconds| effective_runtime(&row.resources).as_secs() as i64 == seconds)
        })
        .collect();
    let view = query.view();
    match view.sort_by {
        None | Some("id" | "workflow_id") => {}
        Some("name") => found.sort_by(|a, b| a.name.cmp(&b.name)),
        Some("memory") => found.sort_by_key(|row| row.resources.memory),
        Some("num_cpus") => found.sort_by_key(|row| row.resources.cpus),
        Some("num_gpus") => found.sort_by_key(|row| row.resources.gpus),
        Some("num_nodes") => found.sort_by_key(|row| row.resources.nodes),
        Some("runtime") => found.sort_by_key(|row| effective_runtime(&row.resources)),
        Some(field) => return Err(ApiError::invalid(format!("cannot sort by `{field}`"))),
    }
    if view.reverse {
        found.reverse();
    }
    let models = found.into_iter().map(|found| requirements_model(row.id, found)).collect();
    Ok(ListPage::from_full_list(models, view.offset, view.limit))
}

fn effective_runtime(resources: &Resources) -> std::time::Duration {
    resources.runtime.unwrap_or(Resources::ASSUMED_RUNTIME)
}

fn get_requirements(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<ResourceRequirementsModel> {
    let row =
        call.authorize_part(AuthOperation::ReadWorkflow, WorkflowPartId::Requirements(RequirementsId(id)))?;
    load_requirements_model(call, row.id, id)
}

fn load_requirements_model(
    call: &TorcCallContext,
    workflow: WorkflowId,
    id: i64,
) -> ApiResult<ResourceRequirementsModel> {
    let found = call.store().requirements(workflow)?.into_iter().find(|row| row.id.0 == id);
    let found = found.ok_or_else(|| ApiError::not_found(format_args!("resource requirements {id}")))?;
    Ok(requirements_model(workflow, found))
}

fn create_requirements(
    call: &TorcCallContext,
    Json(body): Json<ResourceRequirementsModel>,
) -> ApiResult<ResourceRequirementsModel> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, body.workflow_id)?;
    let name = input::check_name("requirements", &body.name)?;
    let resources = parse_resources(&body)?;
    let workflow = row.id;
    let id = call.change_workflow(workflow, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.add_requirements(workflow, &name, &resources, now)
    })?;
    load_requirements_model(call, workflow, id.0)
}

fn parse_resources(body: &ResourceRequirementsModel) -> ApiResult<Resources> {
    let at_least_one = |field: &str, value: i64| match value {
        ..1 => Err(ApiError::invalid(format!("{field}: must be at least 1"))),
        _ => input::convert_number(field, value),
    };
    let resources = Resources {
        cpus: at_least_one("num_cpus", body.num_cpus)?,
        memory: input::parse_memory(&body.memory)?,
        gpus: input::convert_number("num_gpus", body.num_gpus)?,
        nodes: at_least_one("num_nodes", body.num_nodes)?,
        runtime: Some(input::parse_duration_field("runtime", &body.runtime)?),
    };
    resources.check().map_err(|error| ApiError::invalid(error.to_string()))?;
    Ok(resources)
}

fn update_requirements(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<ResourceRequirementsModel>,
) -> ApiResult<ResourceRequirementsModel> {
    let row =
        call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::Requirements(RequirementsId(id)))?;
    if body.workflow_id != row.id.0 || body.id.is_some_and(|given| given != id) {
        return Err(ApiError::invalid("id and workflow of resource requirements cannot change"));
    }
    let old = load_requirements_model(call, row.id, id)?;
    let update = RequirementsUpdate {
        name: Some(input::check_name("requirements", &body.name)?).filter(|name| *name != old.name),
        resources: Some(parse_resources(&body)?),
    };
    call.change_workflow(row.id, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.update_requirements(RequirementsId(id), &update, now)
    })?;
    load_requirements_model(call, row.id, id)
}

fn delete_requirements(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<ResourceRequirementsModel> {
    let row =
        call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::Requirements(RequirementsId(id)))?;
    let shown = load_requirements_model(call, row.id, id)?;
    call.change_workflow(row.id, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.delete_requirements(RequirementsId(id), now)
    })?;
    Ok(shown)
}

fn delete_all_requirements(
    call: &TorcCallContext,
    Query(query): Query<WorkflowQuery>,
) -> ApiResult<DeleteCountResponse> {
    let id = call.authorize_workflow(AuthOperation::ChangeWorkflow, query.workflow_id)?.id;
    let count = call.change_workflow(id, ExclusiveRequirement::NoHeldJobs, move |store, now| {
        let rows = store.requirements(id)?;
        rows.iter().try_for_each(|row| store.delete_requirements(row.id, now))?;
        Ok(rows.len() as i64)
    })?;
    Ok(DeleteCountResponse { count })
}

fn requirements_model(workflow: WorkflowId, row: RequirementsRow) -> ResourceRequirementsModel {
    ResourceRequirementsModel {
        id: Some(row.id.0),
        workflow_id: workflow.0,
        name: row.name,
        memory: render_memory(row.resources.memory),
        num_cpus: i64::from(row.resources.cpus),
        num_gpus: i64::from(row.resources.gpus),
        num_nodes: i64::from(row.resources.nodes),
        runtime: render_duration(effective_runtime(&row.resources)),
    }
}

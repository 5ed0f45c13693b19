//! What jobs ask for.

use super::call::Call;
use super::input::{self, show_duration, show_memory};
use super::table::Table;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::{ListRequirements, OfWorkflow};
use windlass_api::torc::{DeleteCountResponse, Page, ResourceRequirementsModel};
use windlass_auth::Operation;
use windlass_engine::service::Quiet;
use windlass_store::model::{Part, RequirementsRow, RequirementsUpdate};
use windlass_types::{JobId, RequirementsId, Resources, WorkflowId};

pub(super) fn table() -> Table {
    Table::new("resource requirements")
        .get("/resource_requirements", "list_resource_requirements", "Requirements of a workflow", list)
        .post("/resource_requirements", "create_resource_requirements", "Adds requirements", create)
        .delete(
            "/resource_requirements",
            "delete_resource_requirements",
            "Deletes all requirements of a workflow that no job has",
            delete_all,
        )
        .get("/resource_requirements/{id}", "get_resource_requirements", "What some jobs ask for", get)
        .put("/resource_requirements/{id}", "update_resource_requirements", "Changes them", update)
        .delete("/resource_requirements/{id}", "delete_resource_requirement", "Deletes them", delete)
}

fn list(call: &Call, Query(query): Query<ListRequirements>) -> Answer<Page<ResourceRequirementsModel>> {
    let row = call.workflow(Operation::ReadWorkflow, query.workflow_id)?;
    let of_job = match query.job_id {
        Some(job) => Some(call.store().job(JobId(job))?.and_then(|job| job.requirements_id)),
        None => None,
    };
    let memory = query.memory.as_deref().map(input::memory).transpose()?;
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
        .filter(|row| query.runtime.is_none_or(|seconds| runtime(&row.resources).as_secs() as i64 == seconds))
        .collect();
    let view = query.view();
    match view.sort_by {
        None | Some("id" | "workflow_id") => {}
        Some("name") => found.sort_by(|a, b| a.name.cmp(&b.name)),
        Some("memory") => found.sort_by_key(|row| row.resources.memory),
        Some("num_cpus") => found.sort_by_key(|row| row.resources.cpus),
        Some("num_gpus") => found.sort_by_key(|row| row.resources.gpus),
        Some("num_nodes") => found.sort_by_key(|row| row.resources.nodes),
        Some("runtime") => found.sort_by_key(|row| runtime(&row.resources)),
        Some(field) => return Err(ApiError::invalid(format!("there is no field `{field}` to sort by"))),
    }
    if view.reverse {
        found.reverse();
    }
    let models = found.into_iter().map(|found| model(row.id, found)).collect();
    Ok(Page::of(models, view.offset, view.limit))
}

fn runtime(resources: &Resources) -> std::time::Duration {
    resources.runtime.unwrap_or(Resources::UNSAID_RUNTIME)
}

fn get(call: &Call, Path(id): Path<i64>) -> Answer<ResourceRequirementsModel> {
    let row = call.part(Operation::ReadWorkflow, Part::Requirements(RequirementsId(id)))?;
    shown(call, row.id, id)
}

fn shown(call: &Call, workflow: WorkflowId, id: i64) -> Answer<ResourceRequirementsModel> {
    let found = call.store().requirements(workflow)?.into_iter().find(|row| row.id.0 == id);
    let found = found.ok_or_else(|| ApiError::not_found(format_args!("resource requirements {id}")))?;
    Ok(model(workflow, found))
}

fn create(call: &Call, Json(body): Json<ResourceRequirementsModel>) -> Answer<ResourceRequirementsModel> {
    let row = call.workflow(Operation::ChangeWorkflow, body.workflow_id)?;
    let name = input::name("requirements", &body.name)?;
    let resources = resources(&body)?;
    let workflow = row.id;
    let id = call.change(workflow, Quiet::Any, move |store, now| {
        store.add_requirements(workflow, &name, &resources, now)
    })?;
    shown(call, workflow, id.0)
}

fn resources(body: &ResourceRequirementsModel) -> Answer<Resources> {
    let at_least_one = |field: &str, value: i64| match value {
        ..1 => Err(ApiError::invalid(format!("{field}: it must be at least 1"))),
        _ => input::number(field, value),
    };
    Ok(Resources {
        cpus: at_least_one("num_cpus", body.num_cpus)?,
        memory: input::memory(&body.memory)?,
        gpus: input::number("num_gpus", body.num_gpus)?,
        nodes: at_least_one("num_nodes", body.num_nodes)?,
        runtime: Some(input::duration("runtime", &body.runtime)?),
    })
}

fn update(
    call: &Call,
    Path(id): Path<i64>,
    Json(body): Json<ResourceRequirementsModel>,
) -> Answer<ResourceRequirementsModel> {
    let row = call.part(Operation::ChangeWorkflow, Part::Requirements(RequirementsId(id)))?;
    if body.workflow_id != row.id.0 || body.id.is_some_and(|said| said != id) {
        return Err(ApiError::invalid("requirements keep their id and their workflow"));
    }
    let old = shown(call, row.id, id)?;
    let update = RequirementsUpdate {
        name: Some(input::name("requirements", &body.name)?).filter(|name| *name != old.name),
        resources: Some(resources(&body)?),
    };
    call.change(row.id, Quiet::Any, move |store, now| {
        store.update_requirements(RequirementsId(id), &update, now)
    })?;
    shown(call, row.id, id)
}

fn delete(call: &Call, Path(id): Path<i64>) -> Answer<ResourceRequirementsModel> {
    let row = call.part(Operation::ChangeWorkflow, Part::Requirements(RequirementsId(id)))?;
    let shown = shown(call, row.id, id)?;
    call.change(row.id, Quiet::Any, move |store, now| store.delete_requirements(RequirementsId(id), now))?;
    Ok(shown)
}

fn delete_all(call: &Call, Query(query): Query<OfWorkflow>) -> Answer<DeleteCountResponse> {
    let id = call.workflow(Operation::ChangeWorkflow, query.workflow_id)?.id;
    let count = call.change(id, Quiet::Free, move |store, now| {
        let rows = store.requirements(id)?;
        rows.iter().try_for_each(|row| store.delete_requirements(row.id, now))?;
        Ok(rows.len() as i64)
    })?;
    Ok(DeleteCountResponse { count })
}

fn model(workflow: WorkflowId, row: RequirementsRow) -> ResourceRequirementsModel {
    ResourceRequirementsModel {
        id: Some(row.id.0),
        workflow_id: workflow.0,
        name: row.name,
        memory: show_memory(row.resources.memory),
        num_cpus: i64::from(row.resources.cpus),
        num_gpus: i64::from(row.resources.gpus),
        num_nodes: i64::from(row.resources.nodes),
        runtime: show_duration(runtime(&row.resources)),
    }
}

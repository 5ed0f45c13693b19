//! Jobs as objects: create, list, change, delete.

use super::call_context::{TorcCallContext, limit, offset, sort_order};
use super::input::{self, DEFAULT_REQUIREMENTS, DEFAULT_RESOURCES};
use super::operation_table::OperationTable;
use super::workflows::visible_environment;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use std::collections::HashMap;
use windlass_api::torc::query::{ListJobs, WorkflowQuery};
use windlass_api::torc::{
    CreateJobsResponse, DeleteCountResponse, JobModel, JobsModel, ListJobIdsResponse, ListPage, MAX_PAGE,
};
use windlass_auth::AuthOperation;
use windlass_scheduler::service::ExclusiveRequirement;
use windlass_store::model::{
    AddJob, CountQuery, JobDetails, JobFilter, JobOrigin, JobRelations, JobUpdate, WorkflowPartId,
    WorkflowRow,
};
use windlass_types::{
    FileId, JobDefinition, JobId, JobOptions, JobSettings, JobStatus, RequirementsId, UserDataId, WorkerId,
    WorkflowId,
};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("jobs")
        .get("/jobs", "list_jobs", "List the jobs of a workflow", list_jobs)
        .post("/jobs", "create_job", "Add a job", create_job)
        .delete("/jobs", "delete_jobs", "Delete all jobs of a workflow, with their results", delete_jobs)
        .post("/bulk_jobs", "create_jobs", "Add jobs to one workflow, all or none", create_jobs)
        .get("/jobs/{id}", "get_job", "Get a job", get_job)
        .put("/jobs/{id}", "update_job", "Change a job; absent fields keep their value", update_job)
        .delete("/jobs/{id}", "delete_job", "Delete a job and its results", delete_job)
        .get(
            "/workflows/{id}/job_ids",
            "list_job_ids",
            "List the ids of all jobs of a workflow",
            list_job_ids,
        )
}

fn list_jobs(call: &TorcCallContext, Query(query): Query<ListJobs>) -> ApiResult<ListPage<JobModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, query.workflow_id)?;
    let view = query.view();
    let mut filter = JobFilter {
        status: query.status.into_iter().collect(),
        name_contains: query.name.clone(),
        command_contains: query.command.clone(),
        worker: query.active_compute_node_id.map(WorkerId),
        needs_file: query.needs_file_id.map(FileId),
        upstream: query.upstream_job_id.map(JobId),
        has_origin: query.origin_is_set,
        for_labels: query.labels.as_deref().map(|text| input::parse_label_list(Some(text))).transpose()?,
        sort: sort_order(view),
        ..JobFilter::default()
    };
    let total = call.store().count_rows(&CountQuery::Jobs(row.id, filter.clone()))?;
    filter.offset = offset(view);
    filter.limit = limit(view);
    let jobs = call.store().job_details(row.id, &filter)?;
    let with_relations = query.include_relationships.unwrap_or(false);
    Ok(ListPage::new(job_models(call, &row, jobs, with_relations)?, view.offset, total as i64))
}

fn get_job(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<JobModel> {
    let row = call.authorize_part(AuthOperation::ReadWorkflow, WorkflowPartId::Job(JobId(id)))?;
    load_job_model(call, &row, JobId(id))
}

/// Returns a job with its relations.
pub(super) fn load_job_model(call: &TorcCallContext, row: &WorkflowRow, id: JobId) -> ApiResult<JobModel> {
    let job = call.store().job(id)?.ok_or_else(|| ApiError::not_found(format_args!("job {id}")))?;
    let mut models = job_models(call, row, vec![job], true)?;
    models.pop().ok_or_else(|| ApiError::internal("a job without a model"))
}

/// Returns jobs for the runner that executes them, with secrets unmasked. Ordered by id.
pub(super) fn load_jobs_to_run(
    call: &TorcCallContext,
    row: &WorkflowRow,
    ids: &[JobId],
) -> ApiResult<Vec<JobModel>> {
    let jobs = load_job_details(call, row, ids)?;
    let envs: Vec<_> = jobs.iter().map(|job| job.env.clone()).collect();
    let mut models = job_models(call, row, jobs, true)?;
    for (model, env) in models.iter_mut().zip(envs) {
        model.env = (!env.is_empty()).then(|| env.into_iter().collect());
    }
    Ok(models)
}

/// Returns the jobs with these ids, in this order.
fn load_job_details(call: &TorcCallContext, row: &WorkflowRow, ids: &[JobId]) -> ApiResult<Vec<JobDetails>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let filter = JobFilter { ids: ids.to_vec(), ..JobFilter::default() };
    let mut jobs = call.store().job_details(row.id, &filter)?;
    let places: HashMap<JobId, usize> = ids.iter().enumerate().map(|(place, id)| (*id, place)).collect();
    jobs.sort_by_key(|job| places.get(&job.row.id).copied());
    Ok(jobs)
}

fn create_job(call: &TorcCallContext, Json(body): Json<JobModel>) -> ApiResult<JobModel> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, body.workflow_id)?;
    let ids = add_jobs(call, &row, std::slice::from_ref(&body))?;
    load_job_model(call, &row, ids[0])
}

fn create_jobs(call: &TorcCallContext, Json(body): Json<JobsModel>) -> ApiResult<CreateJobsResponse> {
    let Some(first) = body.jobs.first() else { return Ok(CreateJobsResponse { jobs: Some(Vec::new()) }) };
    if body.jobs.len() as i64 > MAX_PAGE {
        return Err(ApiError::invalid(format!("at most {MAX_PAGE} jobs per request")));
    }
    if body.jobs.iter().any(|job| job.workflow_id != first.workflow_id) {
        return Err(ApiError::invalid("the jobs of one request must belong to one workflow"));
    }
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, first.workflow_id)?;
    let ids = add_jobs(call, &row, &body.jobs)?;
    Ok(CreateJobsResponse { jobs: Some(job_models(call, &row, load_job_details(call, &row, &ids)?, true)?) })
}

fn add_jobs(call: &TorcCallContext, row: &WorkflowRow, bodies: &[JobModel]) -> ApiResult<Vec<JobId>> {
    let default = ensure_default_requirements(call, row.id)?;
    let jobs = bodies.iter().map(|body| parse_job(body, default)).collect::<ApiResult<Vec<AddJob>>>()?;
    check_references(call, row.id, &jobs)?;
    let id = row.id;
    call.change_workflow(id, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.add_jobs(id, &jobs, now)
    })
}

fn parse_job(body: &JobModel, default: RequirementsId) -> ApiResult<AddJob> {
    let ids = |ids: &Option<Vec<i64>>| ids.iter().flatten().copied().collect::<Vec<i64>>();
    let scheduler = body.scheduler_id;
    let labels = input::parse_labels(body.labels.as_deref())?;
    if scheduler.is_some() && !labels.is_empty() {
        return Err(ApiError::invalid("a job may have labels or a scheduler, not both"));
    }
    Ok(AddJob {
        definition: JobDefinition {
            invocation_script: check_script(body)?,
            env: input::parse_environment(body.env.as_ref())?,
            // The default requirements limit nothing, so they are stored as none.
            resource_requirements: body.resource_requirements_id.filter(|id| *id != default.0),
            priority: parse_priority(body.priority)?.unwrap_or(0),
            cancel_on_blocking_job_failure: body.cancel_on_blocking_job_failure.unwrap_or(true),
            settings: JobSettings {
                supports_termination: body.supports_termination,
                labels,
                failure_handler: body.failure_handler_id,
                scheduler,
                ..JobSettings::default()
            },
            options: JobOptions { description: body.description.clone() },
            ..JobDefinition::new(input::check_name("a job", &body.name)?, check_command(&body.command)?)
        },
        waits_for: ids(&body.depends_on_job_ids).into_iter().map(JobId).collect(),
        input_files: ids(&body.input_file_ids).into_iter().map(FileId).collect(),
        output_files: ids(&body.output_file_ids).into_iter().map(FileId).collect(),
        input_user_data: ids(&body.input_user_data_ids).into_iter().map(UserDataId).collect(),
        output_user_data: ids(&body.output_user_data_ids).into_iter().map(UserDataId).collect(),
        is_uninitialized: true,
    })
}

fn check_command(text: &str) -> ApiResult<String> {
    if text.trim().is_empty() {
        return Err(ApiError::invalid("a job requires a command"));
    }
    input::check_text("command", text)
}

fn check_script(body: &JobModel) -> ApiResult<Option<String>> {
    body.invocation_script.as_deref().map(|text| input::check_text("invocation_script", text)).transpose()
}

fn parse_priority(given: Option<i64>) -> ApiResult<Option<i32>> {
    match given {
        Some(..0) => Err(ApiError::invalid("priority: must not be negative")),
        Some(priority) => input::convert_number("priority", priority).map(Some),
        None => Ok(None),
    }
}

/// Checks that objects named by jobs belong to their workflow. Each object is looked up once.
fn check_references(call: &TorcCallContext, workflow: WorkflowId, jobs: &[AddJob]) -> ApiResult<()> {
    let mut named: Vec<(u8, i64)> = Vec::new();
    for job in jobs {
        named.extend(job.waits_for.iter().map(|id| (0, id.0)));
        named.extend(job.input_files.iter().chain(&job.output_files).map(|id| (1, id.0)));
        named.extend(job.input_user_data.iter().chain(&job.output_user_data).map(|id| (2, id.0)));
        let JobDefinition { resource_requirements, settings, .. } = &job.definition;
        named.extend(resource_requirements.map(|id| (3, id)));
        named.extend(settings.failure_handler.map(|id| (4, id)));
        named.extend(settings.scheduler.map(|id| (5, id)));
    }
    named.sort_unstable();
    named.dedup();
    let part = |(kind, id): (u8, i64)| match kind {
        0 => WorkflowPartId::Job(JobId(id)),
        1 => WorkflowPartId::File(FileId(id)),
        2 => WorkflowPartId::UserData(UserDataId(id)),
        3 => WorkflowPartId::Requirements(RequirementsId(id)),
        4 => WorkflowPartId::Handler(id),
        _ => WorkflowPartId::Scheduler(id),
    };
    call.check_parts_of(workflow, named.into_iter().map(part))
}

/// Changes the given fields that differ. The status is not among them: it has its own operations.
fn update_job(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<JobModel>,
) -> ApiResult<JobModel> {
    let row = call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::Job(JobId(id)))?;
    let old = load_job_model(call, &row, JobId(id))?;
    if body.workflow_id != row.id.0 || body.id.is_some_and(|given| given != id) {
        return Err(ApiError::invalid("id and workflow of a job cannot change"));
    }
    if body.status.is_some() && body.status != old.status {
        return Err(ApiError::invalid("the status of a job cannot be changed by an update")
            .with_hint("use start_job, complete_job, retry, manage_status_change or reset_job_status"));
    }
    reject_fixed_changes(&body, &old)?;
    let default = ensure_default_requirements(call, row.id)?;
    let changed = |given: &Option<i64>, was: &Option<i64>| given.filter(|_| given != was);
    let update = JobUpdate {
        name: Some(input::check_name("a job", &body.name)?).filter(|name| *name != old.name),
        command: Some(check_command(&body.command)?).filter(|command| *command != old.command),
        invocation_script: check_script(&body)?
            .filter(|text| Some(text) != old.invocation_script.as_ref())
            .map(Some),
        requirements: changed(&body.resource_requirements_id, &old.resource_requirements_id)
            .map(RequirementsId),
        priority: parse_priority(body.priority)?.filter(|_| body.priority != old.priority),
        cancel_on_blocking_job_failure: body
            .cancel_on_blocking_job_failure
            .filter(|given| Some(*given) != old.cancel_on_blocking_job_failure),
        supports_termination: body
            .supports_termination
            .filter(|given| Some(*given) != old.supports_termination)
            .map(Some),
        failure_handler: changed(&body.failure_handler_id, &old.failure_handler_id).map(Some),
        scheduler: changed(&body.scheduler_id, &old.scheduler_id).map(Some),
        labels: body.labels.as_deref().map(|labels| input::parse_labels(Some(labels))).transpose()?,
        ..JobUpdate::default()
    };
    let update = JobUpdate { requirements: update.requirements.filter(|id| *id != default), ..update };
    call.check_parts_of(row.id, update.requirements.map(WorkflowPartId::Requirements))?;
    call.check_parts_of(row.id, update.failure_handler.flatten().map(WorkflowPartId::Handler))?;
    call.check_parts_of(row.id, update.scheduler.flatten().map(WorkflowPartId::Scheduler))?;
    let workflow = row.id;
    call.change_workflow(workflow, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.update_job(workflow, JobId(id), &update, now)
    })?;
    load_job_model(call, &row, JobId(id))
}

/// Rejects changes of dependencies, inputs and outputs.
fn reject_fixed_changes(body: &JobModel, old: &JobModel) -> ApiResult<()> {
    let sorted = |ids: &Option<Vec<i64>>| {
        let mut ids = ids.clone().unwrap_or_default();
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    let lists = [
        ("depends_on_job_ids", &body.depends_on_job_ids, &old.depends_on_job_ids),
        ("input_file_ids", &body.input_file_ids, &old.input_file_ids),
        ("output_file_ids", &body.output_file_ids, &old.output_file_ids),
        ("input_user_data_ids", &body.input_user_data_ids, &old.input_user_data_ids),
        ("output_user_data_ids", &body.output_user_data_ids, &old.output_user_data_ids),
    ];
    for (field, given, was) in lists {
        if given.is_some() && sorted(given) != sorted(was) {
            return Err(ApiError::invalid(format!(
                "{field}: dependencies, inputs and outputs of a job cannot change"
            ))
            .with_hint("delete the job and create another one"));
        }
    }
    if body.env.is_some() && body.env != old.env {
        return Err(ApiError::invalid("env: the environment of a job cannot change"));
    }
    if body.description.is_some() && body.description != old.description {
        return Err(ApiError::invalid("description: the description of a job cannot change"));
    }
    Ok(())
}

fn delete_job(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<JobModel> {
    let row = call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::Job(JobId(id)))?;
    let job = load_job_model(call, &row, JobId(id))?;
    let workflow = row.id;
    call.change_workflow(workflow, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.delete_jobs(workflow, &[JobId(id)], now)
    })?;
    Ok(job)
}

fn delete_jobs(call: &TorcCallContext, Query(query): Query<WorkflowQuery>) -> ApiResult<DeleteCountResponse> {
    let id = call.authorize_workflow(AuthOperation::ChangeWorkflow, query.workflow_id)?.id;
    let count = call.change_workflow(id, ExclusiveRequirement::NoHeldJobs, move |store, now| {
        let jobs = store.job_ids(id)?;
        store.delete_jobs(id, &jobs, now)?;
        Ok(jobs.len() as i64)
    })?;
    Ok(DeleteCountResponse { count })
}

fn list_job_ids(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<ListJobIdsResponse> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    let job_ids: Vec<i64> = call.store().job_ids(row.id)?.into_iter().map(|id| id.0).collect();
    Ok(ListJobIdsResponse { count: job_ids.len() as i64, job_ids })
}

/// Returns the default requirements. Clients expect every job to have requirements, so workflows created
/// elsewhere get them on the first request.
pub(super) fn ensure_default_requirements(
    call: &TorcCallContext,
    workflow: WorkflowId,
) -> ApiResult<RequirementsId> {
    let known = call.store().requirements(workflow)?;
    if let Some(row) = known.into_iter().find(|row| row.name == DEFAULT_REQUIREMENTS) {
        return Ok(row.id);
    }
    call.change_workflow(workflow, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.add_requirements(workflow, DEFAULT_REQUIREMENTS, &DEFAULT_RESOURCES, now)
    })
}

fn job_models(
    call: &TorcCallContext,
    row: &WorkflowRow,
    jobs: Vec<JobDetails>,
    with_relations: bool,
) -> ApiResult<Vec<JobModel>> {
    let default = ensure_default_requirements(call, row.id)?;
    let relations = if with_relations {
        let ids: Vec<JobId> = jobs.iter().map(|job| job.row.id).collect();
        call.store().list_job_relations(&ids)?.into_iter().map(Some).collect()
    } else {
        vec![None; jobs.len()]
    };
    jobs.into_iter()
        .zip(relations)
        .map(|(job, relations)| job_model(call, row, job, relations, default))
        .collect()
}

fn job_model(
    call: &TorcCallContext,
    row: &WorkflowRow,
    job: JobDetails,
    relations: Option<JobRelations>,
    default: RequirementsId,
) -> ApiResult<JobModel> {
    // A claim has no compute node; starting the job sets it.
    let is_running = job.row.status == JobStatus::Running;
    let relations = relations.map(|all| {
        [
            all.waits_for.into_iter().map(|id| id.0).collect(),
            all.input_files.into_iter().map(|id| id.0).collect(),
            all.output_files.into_iter().map(|id| id.0).collect(),
            all.input_user_data.into_iter().map(|id| id.0).collect(),
            all.output_user_data.into_iter().map(|id| id.0).collect(),
        ]
    });
    let [waits, reads, writes, takes, gives] =
        relations.map_or([const { None::<Vec<i64>> }; 5], |lists| lists.map(Some));
    Ok(JobModel {
        id: Some(job.row.id.0),
        workflow_id: job.row.workflow_id.0,
        env: visible_environment(call, row, &job.env)?,
        name: job.row.name,
        attempt_id: Some(i64::from(job.row.attempt_id.0)),
        command: job.row.command,
        cancel_on_blocking_job_failure: Some(job.row.cancel_on_blocking_job_failure),
        compute_node_id: job.worker_id.filter(|_| is_running).map(|id| id.0),
        depends_on_job_ids: waits,
        description: job.row.options.description,
        failure_handler_id: job.failure_handler_id,
        input_file_ids: reads,
        input_user_data_ids: takes,
        invocation_script: job.invocation_script,
        labels: (!job.labels.is_empty()).then_some(job.labels),
        origin: job.row.origin.map(|origin| match origin {
            JobOrigin::Retry => "retry".to_owned(),
            JobOrigin::Spawn => "spawn".to_owned(),
        }),
        output_file_ids: writes,
        output_user_data_ids: gives,
        priority: Some(i64::from(job.row.priority)),
        resource_requirements_id: Some(job.requirements_id.unwrap_or(default).0),
        schedule_compute_nodes: None,
        scheduler_id: job.scheduler_id,
        start_time: job.row.started_at.filter(|_| is_running).map(|at| at.to_string()),
        status: Some(job.row.status),
        supports_termination: Some(job.supports_termination.unwrap_or(false)),
    })
}

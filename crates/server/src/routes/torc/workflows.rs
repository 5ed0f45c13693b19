//! Workflows as objects: create, list, change, delete.

use super::call_context::{TorcCallContext, limit, offset, sort_order};
use super::input::{self, DEFAULT_REQUIREMENTS, DEFAULT_RESOURCES};
use super::operation_table::{OperationTable, TorcOrOwnReply, WorkflowKey};
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use crate::routes::requests;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_api::torc::query::ListWorkflows;
use windlass_api::torc::{
    ArchiveWorkflowRequest, DynamicJobsConfig, ExecutionConfig, ListPage, ResourceMonitorConfig,
    WorkflowModel,
};
use windlass_auth::{AuthOperation, MASK};
use windlass_scheduler::service::ExclusiveRequirement;
use windlass_store::model::{
    CountQuery, EventSeverity, InMemoryJobSource, NewEvent, NewRequirements, NewWorkflow, SettingsUpdate,
    WorkflowFilter, WorkflowRow, WorkflowUpdate,
};
use windlass_store::{Store, StoreError};
use windlass_types::settings::{
    DynamicJobSettings, NO_RO_CRATE, NO_STAGGERED_START, ResourceMonitor, WorkflowSettings,
};
use windlass_types::{Timestamp, WorkflowId};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("workflows")
        .get(
            "/workflows",
            "list_workflows",
            "List the engine workflows that the caller may see; `/request-workflows` lists those of requests",
            list_workflows,
        )
        .post("/workflows", "create_workflow", "Create a workflow without jobs", create_workflow)
        .get(
            "/workflows/{id}",
            "get_workflow",
            "Get an engine workflow by its number; with a UUID, same as `/request-workflows/{id}`",
            get_workflow_by_key,
        )
        .put(
            "/workflows/{id}",
            "update_workflow",
            "Change a workflow; absent fields keep their value",
            update_workflow,
        )
        .delete("/workflows/{id}", "delete_workflow", "Delete a workflow with all its data", delete_workflow)
        .post(
            "/workflows/{id}/archive",
            "archive_workflow",
            "Archive or restore a workflow",
            archive_workflow,
        )
}

fn list_workflows(
    call: &TorcCallContext,
    Query(query): Query<ListWorkflows>,
) -> ApiResult<ListPage<WorkflowModel>> {
    call.authorize(AuthOperation::ListVisible)?;
    let view = query.view();
    let mut filter = WorkflowFilter {
        name: query.name.clone(),
        user: query.user.clone(),
        description: query.description.clone(),
        is_archived: Some(query.is_archived.unwrap_or(false)),
        visible_to: (!call.principal.sees_all()).then(|| call.caller_name().to_owned()),
        sort: sort_order(view),
        ..WorkflowFilter::default()
    };
    if let Some(name) = &query.access_group {
        match call.store().groups()?.into_iter().find(|group| group.name == *name) {
            Some(group) => filter.group = Some(group.id),
            None => return Ok(ListPage::new(Vec::new(), view.offset, 0)),
        }
    }
    let total = call.store().count_rows(&CountQuery::Workflows(filter.clone()))?;
    filter.offset = offset(view);
    filter.limit = limit(view);
    let rows = call.store().list_workflows(&filter)?;
    let items = rows.iter().map(|row| workflow_model(call, row)).collect::<ApiResult<_>>()?;
    Ok(ListPage::new(items, view.offset, total as i64))
}

fn get_workflow_by_key(
    call: &TorcCallContext,
    Path(key): Path<WorkflowKey>,
) -> ApiResult<TorcOrOwnReply<WorkflowModel, windlass_api::requests::RequestWorkflowDetails>> {
    match key {
        WorkflowKey::Id(id) => get_workflow(call, Path(id)).map(TorcOrOwnReply::Contract),
        WorkflowKey::Uuid(uuid) => {
            call.authorize(AuthOperation::ListVisible)?;
            requests::get_workflow_by_uuid(&*call.state.database, &uuid).map(TorcOrOwnReply::Own)
        }
    }
}

fn get_workflow(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<WorkflowModel> {
    workflow_model(call, &call.authorize_workflow(AuthOperation::ReadWorkflow, id)?)
}

fn create_workflow(call: &TorcCallContext, Json(body): Json<WorkflowModel>) -> ApiResult<WorkflowModel> {
    call.authorize(AuthOperation::CreateWorkflow)?;
    let settings = merge_settings(&body, WorkflowSettings::default())?;
    let groups = find_group_ids(call, &settings.access_groups)?;
    let directory = submission_directory(body.submission_directory.as_deref())?;
    let name = input::check_name("a workflow", &body.name)?;
    let description =
        body.description.as_deref().map(|text| input::check_text("description", text)).transpose()?;
    let new = NewWorkflow {
        name: &name,
        user: call.caller_name(),
        description: description.as_deref(),
        submission_dir: &directory,
        output_dir: &format!("{}/torc_output", directory.trim_end_matches('/')),
        env: &input::parse_environment(body.env.as_ref())?,
        settings: Some(&settings),
        requirements: &[NewRequirements { name: DEFAULT_REQUIREMENTS, resources: DEFAULT_RESOURCES }],
        ..NewWorkflow::default()
    };
    let store = call.store().acting_as(call.caller_name());
    let id = store.create_workflow(&new, &mut InMemoryJobSource::new([]), call.now())?;
    for group in groups {
        store.share_workflow(id, group, call.now())?;
    }
    record_unsupported_fields(&*store, id, &body, call.now())?;
    get_workflow(call, Path(id.0))
}

/// Warns of fields that are stored and have no effect. Clients of Torc send them unasked, so they are not
/// refused.
fn record_unsupported_fields(
    store: &dyn Store,
    workflow: WorkflowId,
    body: &WorkflowModel,
    now: Timestamp,
) -> Result<(), StoreError> {
    let is_staggered = body.execution_config.as_ref().and_then(|config| config.staggered_start);
    let fields = [
        ("enable_ro_crate", body.enable_ro_crate, NO_RO_CRATE),
        ("staggered_start", is_staggered, NO_STAGGERED_START),
    ];
    for (field, _, why) in fields.into_iter().filter(|(_, value, _)| *value == Some(true)) {
        let warning = NewEvent {
            workflow: Some(workflow),
            job: None,
            severity: EventSeverity::Warning,
            category: "workflow".to_owned(),
            message: format!("`{field}` has no effect: {why}"),
            data: None,
        };
        store.add_event(&warning, now)?;
    }
    Ok(())
}

/// Returns the ids of groups by name; an unknown group makes the request invalid.
fn find_group_ids(call: &TorcCallContext, names: &[String]) -> ApiResult<Vec<i64>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let known = call.store().groups()?;
    let find = |name: &String| {
        let group = known.iter().find(|group| group.name == *name);
        group
            .map(|group| group.id)
            .ok_or_else(|| ApiError::invalid(format!("there is no access group `{name}`")))
    };
    names.iter().map(find).collect()
}

/// The working directory of the server.
fn current_directory() -> Option<String> {
    std::env::current_dir().ok()?.into_os_string().into_string().ok()
}

/// Returns the directory in which jobs run. Default: the working directory of the server.
fn submission_directory(given: Option<&str>) -> ApiResult<String> {
    match given {
        Some(path) if path.starts_with('/') => input::check_text("submission_directory", path),
        Some(path) => {
            Err(ApiError::invalid(format!("submission_directory: `{}` is not absolute", path.escape_debug())))
        }
        None => current_directory().ok_or_else(|| {
            ApiError::invalid("submission_directory: not set, and the server's working directory is unknown")
        }),
    }
}

/// Changes the given fields. Absent fields keep their value; the owner cannot be changed.
fn update_workflow(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<WorkflowModel>,
) -> ApiResult<WorkflowModel> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, id)?;
    if body.id.is_some_and(|given| given != id) {
        return Err(ApiError::invalid("the id of a workflow cannot change"));
    }
    let update = WorkflowUpdate {
        name: Some(input::check_name("a workflow", &body.name)?),
        description: body
            .description
            .as_deref()
            .map(|text| input::check_text("description", text).map(Some))
            .transpose()?,
        ..WorkflowUpdate::default()
    };
    let settings = SettingsUpdate {
        settings: Some(merge_settings(&body, row.settings.clone())?),
        env: body.env.as_ref().map(|env| merge_environment(env, &row)).transpose()?,
        submission_dir: body
            .submission_directory
            .as_deref()
            .map(|path| submission_directory(Some(path)))
            .transpose()?,
    };
    let is_archived = body.is_archived;
    call.change_workflow(row.id, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.update_workflow(row.id, &update, now)?;
        store.update_settings(row.id, &settings, now)?;
        record_unsupported_fields(store, row.id, &body, now)
    })?;
    if let Some(is_archived) = is_archived {
        set_archived(call, id, is_archived)?;
    }
    get_workflow(call, Path(id))
}

/// A client that sends back a masked value does not change the secret.
fn merge_environment(
    given: &BTreeMap<String, String>,
    row: &WorkflowRow,
) -> ApiResult<Vec<(String, String)>> {
    let mut env = input::parse_environment(Some(given))?;
    for (name, value) in &mut env {
        if value == MASK
            && let Some((_, kept)) = row.env.iter().find(|(known, _)| known == name)
        {
            value.clone_from(kept);
        }
    }
    Ok(env)
}

fn delete_workflow(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<WorkflowModel> {
    let row = call.authorize_workflow(AuthOperation::DeleteWorkflow, id)?;
    let shown = workflow_model(call, &row)?;
    call.change_workflow(row.id, ExclusiveRequirement::NoHeldJobs, move |store, now| {
        store.delete_workflow(row.id, now)
    })?;
    Ok(shown)
}

fn archive_workflow(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<ArchiveWorkflowRequest>,
) -> ApiResult<WorkflowModel> {
    call.authorize_workflow(AuthOperation::ChangeWorkflow, id)?;
    set_archived(call, id, body.is_archived)?;
    get_workflow(call, Path(id))
}

fn set_archived(call: &TorcCallContext, id: i64, is_archived: bool) -> ApiResult<()> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, id)?;
    if row.is_archived == is_archived {
        return Ok(());
    }
    call.change_workflow(row.id, ExclusiveRequirement::NoHeldJobs, move |store, now| {
        store.set_archived(&[row.id], is_archived, now)
    })
}

/// Merges the fields of a body into the current settings.
fn merge_settings(body: &WorkflowModel, mut settings: WorkflowSettings) -> ApiResult<WorkflowSettings> {
    let seconds = |field: &str, value: Option<i64>, kept: Option<u64>| match value {
        Some(value) => input::convert_number(field, value).map(Some),
        None => Ok(kept),
    };
    settings.compute_node_expiration_buffer_seconds = seconds(
        "compute_node_expiration_buffer_seconds",
        body.compute_node_expiration_buffer_seconds,
        settings.compute_node_expiration_buffer_seconds,
    )?;
    settings.compute_node_wait_for_new_jobs_seconds = seconds(
        "compute_node_wait_for_new_jobs_seconds",
        body.compute_node_wait_for_new_jobs_seconds,
        settings.compute_node_wait_for_new_jobs_seconds,
    )?;
    settings.compute_node_wait_for_healthy_database_minutes = seconds(
        "compute_node_wait_for_healthy_database_minutes",
        body.compute_node_wait_for_healthy_database_minutes,
        settings.compute_node_wait_for_healthy_database_minutes,
    )?;
    if body.compute_node_ignore_workflow_completion.is_some() {
        settings.compute_node_ignore_workflow_completion = body.compute_node_ignore_workflow_completion;
    }
    if let Some(project) = &body.project {
        settings.project = Some(input::check_text("project", project)?);
    }
    if let Some(metadata) = &body.metadata {
        settings.metadata.clone_from(metadata);
    }
    if let Some(defaults) = &body.slurm_defaults {
        settings.slurm_defaults.clone_from(defaults);
    }
    if let Some(groups) = &body.access_groups {
        settings.access_groups.clone_from(groups);
    }
    if let Some(config) = &body.execution_config {
        settings.execution_config = Some(convert_settings("execution_config", config)?);
    }
    if let Some(config) = &body.resource_monitor_config {
        settings.resource_monitor = Some(convert_settings("resource_monitor_config", config)?);
    }
    if let Some(config) = body.dynamic_jobs {
        settings.dynamic_jobs = Some(parse_dynamic_jobs(config)?);
    }
    settings.use_pending_failed = body.use_pending_failed.unwrap_or(settings.use_pending_failed);
    settings.enable_ro_crate = body.enable_ro_crate.unwrap_or(settings.enable_ro_crate);
    Ok(settings)
}

fn parse_dynamic_jobs(config: DynamicJobsConfig) -> ApiResult<DynamicJobSettings> {
    let Some(max_iterations) = config.max_iterations else { return Ok(DynamicJobSettings::default()) };
    match u32::try_from(max_iterations) {
        Ok(max_iterations @ 1..) => Ok(DynamicJobSettings { max_iterations }),
        _ => Err(ApiError::invalid("dynamic_jobs.max_iterations: must be at least 1")),
    }
}

/// Converts settings to another type with the same field names.
fn convert_settings<T: DeserializeOwned>(field: &str, value: &impl Serialize) -> ApiResult<T> {
    let json = serde_json::to_value(value).map_err(ApiError::internal)?;
    serde_json::from_value(json).map_err(|error| ApiError::invalid(format!("{field}: {error}")))
}

/// A stored setting that the contract cannot express is an error, and is not omitted.
fn execution_config_model(config: &windlass_types::settings::ExecutionConfig) -> ApiResult<ExecutionConfig> {
    let json = serde_json::to_value(config).map_err(ApiError::internal)?;
    serde_json::from_value(json).map_err(|error| ApiError::internal(format!("execution_config: {error}")))
}

/// Monitoring settings in whole seconds, as in the contract; ours may be fractions.
fn monitor_model(config: &ResourceMonitor) -> ApiResult<ResourceMonitorConfig> {
    let seconds = |time: Duration| i32::try_from(time.as_secs().max(1)).unwrap_or(i32::MAX);
    let mut json = serde_json::to_value(config).map_err(ApiError::internal)?;
    json["sample_interval_seconds"] = seconds(config.sample_interval()).into();
    json["flush_interval_seconds"] = seconds(config.flush_interval()).into();
    serde_json::from_value(json).map_err(ApiError::internal)
}

pub(super) fn workflow_model(call: &TorcCallContext, row: &WorkflowRow) -> ApiResult<WorkflowModel> {
    let settings = &row.settings;
    let number = |value: Option<u64>| value.and_then(|value| i64::try_from(value).ok());
    let groups = call.store().groups_sharing(row.id)?;
    Ok(WorkflowModel {
        id: Some(row.id.0),
        name: row.name.clone(),
        user: row.user.clone(),
        run_id: Some(row.run_id.0),
        description: row.description.clone(),
        access_groups: (!groups.is_empty()).then(|| groups.into_iter().map(|group| group.name).collect()),
        compute_node_expiration_buffer_seconds: number(settings.compute_node_expiration_buffer_seconds),
        compute_node_ignore_workflow_completion: settings.compute_node_ignore_workflow_completion,
        compute_node_min_time_for_new_jobs_seconds: None,
        compute_node_wait_for_healthy_database_minutes: number(
            settings.compute_node_wait_for_healthy_database_minutes,
        ),
        compute_node_wait_for_new_jobs_seconds: number(settings.compute_node_wait_for_new_jobs_seconds),
        dynamic_jobs: settings
            .dynamic_jobs
            .map(|config| DynamicJobsConfig { max_iterations: Some(i64::from(config.max_iterations)) }),
        enable_ro_crate: Some(settings.enable_ro_crate),
        env: visible_environment(call, row, &row.env)?,
        execution_config: settings.execution_config.as_ref().map(execution_config_model).transpose()?,
        is_archived: Some(row.is_archived),
        is_canceled: Some(row.is_canceled),
        metadata: (!settings.metadata.is_empty()).then(|| settings.metadata.clone()),
        project: settings.project.clone(),
        resource_monitor_config: settings.resource_monitor.as_ref().map(monitor_model).transpose()?,
        slurm_defaults: (!settings.slurm_defaults.is_empty()).then(|| settings.slurm_defaults.clone()),
        submission_directory: Some(row.submission_dir.clone()),
        timestamp: Some(row.created_at.to_string()),
        use_pending_failed: Some(settings.use_pending_failed),
    })
}

/// Returns the environment variables, with secret values masked for callers that may not see them.
pub(super) fn visible_environment(
    call: &TorcCallContext,
    row: &WorkflowRow,
    env: &[(String, String)],
) -> ApiResult<Option<BTreeMap<String, String>>> {
    if env.is_empty() {
        return Ok(None);
    }
    let all = call.can_read_secrets(row)?;
    let masking = call.state.authenticator.masking();
    let shown = |(name, value): &(String, String)| {
        let value = if !all && masking.is_secret(name) { MASK.to_owned() } else { value.clone() };
        (name.clone(), value)
    };
    Ok(Some(env.iter().map(shown).collect()))
}

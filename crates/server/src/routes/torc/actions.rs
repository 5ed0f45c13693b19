//! Actions: commands triggered by workflow events.

use super::call_context::TorcCallContext;
use super::input;
use super::operation_table::{HandlerArgument as Taken, HandlerInput, OperationDescription, OperationTable};
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path};
use serde_json::{Map, Value, json};
use utoipa::IntoParams;
use utoipa::openapi::path::ParameterIn;
use windlass_api::torc::query::PendingActionsQuery;
use windlass_api::torc::{ClaimActionRequest, ClaimActionResponse, MessageResponse, WorkflowActionModel};
use windlass_auth::AuthOperation;
use windlass_scheduler::service::ExclusiveRequirement;
use windlass_store::model::{ActionRow, NewAllocationAction, SlurmSchedulerRow, WorkflowPartId, WorkflowRow};
use windlass_types::settings::{ActionType, WorkflowAction};
use windlass_types::{JobId, WorkerId};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("actions")
        .get(
            "/workflows/{id}/actions",
            "get_workflow_actions",
            "List the actions of a workflow",
            list_actions,
        )
        .post("/workflows/{id}/actions", "create_workflow_action", "Add an action", create_action)
        .get(
            "/workflows/{id}/actions/pending",
            "get_pending_actions",
            "List pending actions",
            list_pending_actions,
        )
        .put(
            "/workflows/{id}/actions/{action_id}",
            "update_workflow_action",
            "Change an action",
            update_action,
        )
        .delete(
            "/workflows/{id}/actions/{action_id}",
            "delete_workflow_action",
            "Delete an action",
            delete_action,
        )
        .post(
            "/workflows/{id}/actions/{action_id}/claim",
            "claim_action",
            "Claim an action for a runner",
            claim_action,
        )
}

fn list_actions(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<Vec<WorkflowActionModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    action_models(call, &row, call.store().actions(row.id)?)
}

/// The requested triggers; the parameter may be repeated.
pub(super) struct TriggerFilter(Vec<String>);

impl Taken for TriggerFilter {
    fn describe(description: OperationDescription<'_>) -> OperationDescription<'_> {
        description.with_parameters(PendingActionsQuery::into_params(|| Some(ParameterIn::Query)))
    }

    async fn extract(given: &mut HandlerInput, call: &TorcCallContext) -> ApiResult<Self> {
        let pairs: Vec<(String, String)> = given.query(call).await?;
        let triggers = pairs.into_iter().filter(|(name, _)| name == "trigger_type").map(|(_, value)| value);
        Ok(Self(triggers.collect()))
    }
}

fn list_pending_actions(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    TriggerFilter(triggers): TriggerFilter,
) -> ApiResult<Vec<WorkflowActionModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, id)?;
    // Every runner polls, and most workflows have no actions.
    if call.store().actions(row.id)?.is_empty() {
        return Ok(Vec::new());
    }
    let actions = call.call_service(|service, reply| service.pending_actions(row.id, reply))?;
    let mut models = action_models(call, &row, actions)?;
    models.retain(|action| triggers.is_empty() || triggers.contains(&action.trigger_type));
    Ok(models)
}

fn create_action(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<WorkflowActionModel>,
) -> ApiResult<WorkflowActionModel> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, id)?;
    if body.workflow_id != id {
        return Err(ApiError::invalid("the action names another workflow than the path"));
    }
    let action = parse_action(call, &row, &body)?;
    let id = call.change_workflow(row.id, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.add_action(row.id, &action, now)
    })?;
    load_action_model(call, &row, id)
}

fn load_action_model(call: &TorcCallContext, row: &WorkflowRow, id: i64) -> ApiResult<WorkflowActionModel> {
    let found = call.store().actions(row.id)?.into_iter().find(|action| action.id == id);
    let found = found.ok_or_else(|| ApiError::not_found(format_args!("action {id}")))?;
    action_models(call, row, vec![found])?
        .pop()
        .ok_or_else(|| ApiError::internal("an action without a model"))
}

/// Checks and converts an action.
fn parse_action(
    call: &TorcCallContext,
    row: &WorkflowRow,
    body: &WorkflowActionModel,
) -> ApiResult<NewAllocationAction> {
    let Value::Object(config) = &body.action_config else {
        return Err(ApiError::invalid("action_config must be an object"));
    };
    let mut action: Map<String, Value> = config.clone();
    action.insert("trigger_type".to_owned(), json!(body.trigger_type));
    action.insert("action_type".to_owned(), json!(body.action_type));
    action.insert("persistent".to_owned(), json!(body.persistent));
    if let Some(id) = config.get("scheduler_id").and_then(Value::as_i64) {
        action.insert("scheduler".to_owned(), json!(load_scheduler_name(call, row, id)?));
    }
    action.retain(|_, value| !value.is_null());
    let action: WorkflowAction = serde_json::from_value(Value::Object(action))
        .map_err(|error| ApiError::invalid(format!("invalid action: {error}")))?;
    if action.action_type == ActionType::RunCommands && action.commands.is_empty() {
        return Err(ApiError::invalid("action_config: run_commands requires commands"));
    }
    action.commands.iter().try_for_each(|command| input::check_text("commands", command).map(drop))?;
    let jobs: Vec<JobId> = body.job_ids.iter().flatten().copied().map(JobId).collect();
    if action.trigger_type.is_about_jobs() && jobs.is_empty() {
        return Err(ApiError::invalid(format!("{} requires job_ids", body.trigger_type)));
    }
    call.check_parts_of(row.id, jobs.iter().copied().map(WorkflowPartId::Job))?;
    Ok(NewAllocationAction { action, jobs, is_recovery: body.is_recovery })
}

fn load_scheduler_name(call: &TorcCallContext, row: &WorkflowRow, id: i64) -> ApiResult<String> {
    let found = call.store().schedulers(row.id)?.into_iter().find(|scheduler| scheduler.id == id);
    let missing = || ApiError::invalid(format!("workflow {} has no scheduler {id}", row.id));
    found.map(|found| found.scheduler.name).ok_or_else(missing)
}

/// Changes fields of the action's configuration.
fn update_action(
    call: &TorcCallContext,
    Path((id, action)): Path<(i64, i64)>,
    Json(body): Json<Value>,
) -> ApiResult<WorkflowActionModel> {
    let row = authorize_action(call, AuthOperation::ChangeWorkflow, id, action)?;
    let mut model = load_action_model(call, &row, action)?;
    let Value::Object(changes) = body else {
        return Err(ApiError::invalid("the body must be an object with the fields to change"));
    };
    // A whole action, its configuration, or fields of the configuration.
    let changes = match changes.get("action_config") {
        Some(Value::Object(config)) => config.clone(),
        Some(_) => return Err(ApiError::invalid("action_config must be an object")),
        None => changes,
    };
    if let Value::Object(config) = &mut model.action_config {
        config.extend(changes);
    }
    let changed = parse_action(call, &row, &model)?;
    call.change_workflow(row.id, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.update_action(action, &changed, now)
    })?;
    load_action_model(call, &row, action)
}

/// Returns the workflow of the path, if the action belongs to it.
fn authorize_action(
    call: &TorcCallContext,
    operation: AuthOperation,
    id: i64,
    action: i64,
) -> ApiResult<WorkflowRow> {
    let row = call.authorize_workflow(operation, id)?;
    match call.store().workflow_of(WorkflowPartId::Action(action))? {
        Some(workflow) if workflow == row.id => Ok(row),
        _ => Err(ApiError::not_found(format_args!("action {action}"))),
    }
}

fn delete_action(call: &TorcCallContext, Path((id, action)): Path<(i64, i64)>) -> ApiResult<MessageResponse> {
    let row = authorize_action(call, AuthOperation::ChangeWorkflow, id, action)?;
    call.change_workflow(row.id, ExclusiveRequirement::NoneRequired, move |store, now| {
        store.delete_action(action, now)
    })?;
    Ok(MessageResponse { message: format!("action {action} was deleted") })
}

fn claim_action(
    call: &TorcCallContext,
    Path((id, action)): Path<(i64, i64)>,
    Json(body): Json<ClaimActionRequest>,
) -> ApiResult<ClaimActionResponse> {
    let row = authorize_action(call, AuthOperation::RunJobs, id, action)?;
    let node = body.compute_node_id.map(WorkerId);
    call.check_parts_of(row.id, node.map(WorkflowPartId::Worker))?;
    let success = call.call_service(|service, reply| service.claim_action(row.id, action, node, reply))?;
    if !success {
        return Err(ApiError::conflict(
            "claimed",
            format!("action {action} cannot be claimed: another runner has it, or it is not triggered yet"),
        ));
    }
    Ok(ClaimActionResponse { action_id: action, success })
}

fn action_models(
    call: &TorcCallContext,
    row: &WorkflowRow,
    actions: Vec<ActionRow>,
) -> ApiResult<Vec<WorkflowActionModel>> {
    if actions.is_empty() {
        return Ok(Vec::new());
    }
    let schedulers = call.store().schedulers(row.id)?;
    actions.into_iter().map(|action| action_model(row, &action, &schedulers)).collect()
}

fn action_model(
    row: &WorkflowRow,
    action: &ActionRow,
    schedulers: &[SlurmSchedulerRow],
) -> ApiResult<WorkflowActionModel> {
    let last = action.last_run();
    let Value::Object(mut config) = serde_json::to_value(&action.action).map_err(ApiError::internal)? else {
        return Err(ApiError::internal("an action is no object"));
    };
    let mut word = |field: &str| {
        config.remove(field).and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let (trigger_type, action_type) = (word("trigger_type"), word("action_type"));
    config.remove("persistent");
    let scheduler = action.action.scheduler.as_ref();
    if let Some(known) = schedulers.iter().find(|known| Some(&known.scheduler.name) == scheduler) {
        config.insert("scheduler_id".to_owned(), json!(known.id));
    }
    let required_triggers = action.required_triggers();
    // Runners detect their own start and exit; for them the trigger has fired once the workflow has started.
    let is_theirs = action.action.trigger_type.is_about_workers() && row.started_at.is_some();
    let trigger_count = if is_theirs { required_triggers } else { action.trigger_count };
    Ok(WorkflowActionModel {
        id: Some(action.id),
        workflow_id: row.id.0,
        action_config: Value::Object(config),
        action_type,
        trigger_type,
        // Actions that fire once per runner are always available to other runners.
        executed: last.is_some() && !action.action.persistent,
        executed_at: last.map(|run| run.started_at.to_string()),
        executed_by: last.and_then(|run| run.worker_id).map(|id| id.0),
        is_recovery: action.is_recovery,
        job_ids: (!action.jobs.is_empty()).then(|| action.jobs.iter().map(|id| id.0).collect()),
        persistent: action.action.persistent,
        required_triggers: i64::from(required_triggers),
        trigger_count: i64::from(trigger_count),
    })
}

//! User data that jobs read and write.

use super::call_context::{TorcCallContext, limit, offset, sort_order};
use super::input;
use super::operation_table::OperationTable;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use serde_json::Value;
use windlass_api::torc::query::{CreateUserDataQuery, ListUserData, WorkflowQuery};
use windlass_api::torc::{
    CreateUserDataListResponse, DeleteCountResponse, ListPage, MAX_PAGE, UserDataListModel, UserDataModel,
};
use windlass_auth::AuthOperation;
use windlass_scheduler::service::ExclusiveRequirement;
use windlass_store::model::{
    AddUserData, CountQuery, DataFilter, UserDataRow, UserDataUpdate, WorkflowPartId,
};
use windlass_types::{JobId, UserDataId, WorkflowId};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("user data")
        .get("/user_data", "list_user_data", "List the user data of a workflow", list_user_data)
        .post("/user_data", "create_user_data", "Add user data for existing jobs", create_user_data)
        .delete(
            "/user_data",
            "delete_all_user_data",
            "Delete all user data of a workflow that no job uses",
            delete_all_user_data,
        )
        .post(
            "/bulk_user_data",
            "create_user_data_list",
            "Add user data to one workflow, all or none",
            create_user_data_list,
        )
        .get("/user_data/{id}", "get_user_data", "Get user data", get_user_data)
        .put(
            "/user_data/{id}",
            "update_user_data",
            "Change user data; absent fields keep their value",
            update_user_data,
        )
        .delete("/user_data/{id}", "delete_user_data", "Delete user data", delete_user_data)
}

fn list_user_data(
    call: &TorcCallContext,
    Query(query): Query<ListUserData>,
) -> ApiResult<ListPage<UserDataModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, query.workflow_id)?;
    let view = query.view();
    let mut filter = DataFilter {
        name: query.name.clone(),
        producer: query.producer_job_id.map(JobId),
        consumer: query.consumer_job_id.map(JobId),
        is_ephemeral: query.is_ephemeral,
        sort: sort_order(view),
        ..DataFilter::default()
    };
    let total = call.store().count_rows(&CountQuery::UserData(row.id, filter.clone()))?;
    filter.offset = offset(view);
    filter.limit = limit(view);
    let pieces = call.store().user_data(row.id, &filter)?;
    Ok(ListPage::new(pieces.into_iter().map(user_data_model).collect(), view.offset, total as i64))
}

fn get_user_data(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<UserDataModel> {
    call.authorize_part(AuthOperation::ReadWorkflow, WorkflowPartId::UserData(UserDataId(id)))?;
    load_user_data_model(call, id)
}

fn load_user_data_model(call: &TorcCallContext, id: i64) -> ApiResult<UserDataModel> {
    let row = call.store().find_user_data(UserDataId(id))?;
    row.map(user_data_model).ok_or_else(|| ApiError::not_found(format_args!("user data {id}")))
}

fn create_user_data(
    call: &TorcCallContext,
    Query(jobs): Query<CreateUserDataQuery>,
    Json(body): Json<UserDataModel>,
) -> ApiResult<UserDataModel> {
    let row = call.authorize_workflow(AuthOperation::ChangeUserData, body.workflow_id)?;
    let sides = jobs.consumer_job_id.into_iter().chain(jobs.producer_job_id);
    call.check_parts_of(row.id, sides.map(|id| WorkflowPartId::Job(JobId(id))))?;
    let mut new = parse_user_data(&body)?;
    new.consumers.extend(jobs.consumer_job_id.map(JobId));
    new.producers.extend(jobs.producer_job_id.map(JobId));
    let ids = add_user_data(call, row.id, vec![new])?;
    load_user_data_model(call, ids[0].0)
}

fn create_user_data_list(
    call: &TorcCallContext,
    Json(body): Json<UserDataListModel>,
) -> ApiResult<CreateUserDataListResponse> {
    let Some(first) = body.user_data.first() else {
        return Ok(CreateUserDataListResponse { user_data: Some(Vec::new()) });
    };
    if body.user_data.len() as i64 > MAX_PAGE {
        return Err(ApiError::invalid(format!("at most {MAX_PAGE} items per request")));
    }
    if body.user_data.iter().any(|piece| piece.workflow_id != first.workflow_id) {
        return Err(ApiError::invalid("the user data of one request must belong to one workflow"));
    }
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, first.workflow_id)?;
    let list = body.user_data.iter().map(parse_user_data).collect::<ApiResult<_>>()?;
    let ids = add_user_data(call, row.id, list)?;
    let made = ids.into_iter().map(|id| load_user_data_model(call, id.0)).collect::<ApiResult<_>>()?;
    Ok(CreateUserDataListResponse { user_data: Some(made) })
}

fn parse_user_data(body: &UserDataModel) -> ApiResult<AddUserData> {
    Ok(AddUserData {
        name: input::check_name("user data", &body.name)?,
        data: non_null(body.data.clone()),
        is_ephemeral: body.is_ephemeral.unwrap_or(false),
        ..AddUserData::default()
    })
}

/// `null` means no value.
fn non_null(data: Option<Value>) -> Option<Value> {
    data.filter(|data| !data.is_null())
}

fn add_user_data(
    call: &TorcCallContext,
    workflow: WorkflowId,
    list: Vec<AddUserData>,
) -> ApiResult<Vec<UserDataId>> {
    // Readers and writers get new dependencies, which the scheduler has to load.
    let has_sides = list.iter().any(|piece| !piece.consumers.is_empty() || !piece.producers.is_empty());
    if has_sides {
        return call.change_workflow(workflow, ExclusiveRequirement::NoneRequired, move |store, now| {
            store.add_user_data_list(workflow, &list, now)
        });
    }
    call.write_store(|store, now| store.add_user_data_list(workflow, &list, now))
}

/// Absent data is not changed: jobs write it while the workflow runs.
fn update_user_data(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<UserDataModel>,
) -> ApiResult<UserDataModel> {
    let row = call.authorize_part(AuthOperation::ChangeUserData, WorkflowPartId::UserData(UserDataId(id)))?;
    if body.workflow_id != row.id.0 || body.id.is_some_and(|given| given != id) {
        return Err(ApiError::invalid("id and workflow of user data cannot change"));
    }
    let old = load_user_data_model(call, id)?;
    let update = UserDataUpdate {
        name: Some(input::check_name("user data", &body.name)?).filter(|name| *name != old.name),
        data: non_null(body.data).map(Some),
        is_ephemeral: body.is_ephemeral.filter(|given| Some(*given) != old.is_ephemeral),
    };
    call.write_store(|store, now| store.update_user_data(UserDataId(id), &update, now))?;
    load_user_data_model(call, id)
}

fn delete_user_data(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<UserDataModel> {
    call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::UserData(UserDataId(id)))?;
    let piece = load_user_data_model(call, id)?;
    call.write_store(|store, now| store.delete_user_data(UserDataId(id), now))?;
    Ok(piece)
}

fn delete_all_user_data(
    call: &TorcCallContext,
    Query(query): Query<WorkflowQuery>,
) -> ApiResult<DeleteCountResponse> {
    let id = call.authorize_workflow(AuthOperation::ChangeWorkflow, query.workflow_id)?.id;
    let count = call.change_workflow(id, ExclusiveRequirement::NoHeldJobs, move |store, now| {
        let pieces = store.user_data(id, &DataFilter::default())?;
        pieces.iter().try_for_each(|piece| store.delete_user_data(piece.id, now))?;
        Ok(pieces.len() as i64)
    })?;
    Ok(DeleteCountResponse { count })
}

fn user_data_model(row: UserDataRow) -> UserDataModel {
    UserDataModel {
        id: Some(row.id.0),
        workflow_id: row.workflow_id.0,
        name: row.name,
        data: row.data,
        is_ephemeral: Some(row.is_ephemeral),
    }
}

//! Data that jobs read and write.

use super::call::{Call, limit, offset, sorting};
use super::input;
use super::table::Table;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use serde_json::Value;
use windlass_api::torc::query::{ListUserData, NewUserDataFor, OfWorkflow};
use windlass_api::torc::{
    CreateUserDataListResponse, DeleteCountResponse, MAX_PAGE, Page, UserDataListModel, UserDataModel,
};
use windlass_auth::Operation;
use windlass_engine::service::Quiet;
use windlass_store::model::{AddUserData, Counted, DataFilter, Part, UserDataRow, UserDataUpdate};
use windlass_types::{JobId, UserDataId, WorkflowId};

pub(super) fn table() -> Table {
    Table::new("user data")
        .get("/user_data", "list_user_data", "User data of a workflow", list)
        .post("/user_data", "create_user_data", "Adds a piece of user data, for jobs that are there", create)
        .delete(
            "/user_data",
            "delete_all_user_data",
            "Deletes all user data of a workflow that no job names",
            delete_all,
        )
        .post(
            "/bulk_user_data",
            "create_user_data_list",
            "Adds user data of one workflow: all or none",
            create_many,
        )
        .get("/user_data/{id}", "get_user_data", "A piece of user data", get)
        .put("/user_data/{id}", "update_user_data", "Changes what is said; leaves the rest", update)
        .delete("/user_data/{id}", "delete_user_data", "Deletes a piece of user data", delete)
}

fn list(call: &Call, Query(query): Query<ListUserData>) -> Answer<Page<UserDataModel>> {
    let row = call.workflow(Operation::ReadWorkflow, query.workflow_id)?;
    let view = query.view();
    let mut filter = DataFilter {
        name: query.name.clone(),
        producer: query.producer_job_id.map(JobId),
        consumer: query.consumer_job_id.map(JobId),
        is_ephemeral: query.is_ephemeral,
        sort: sorting(view),
        ..DataFilter::default()
    };
    let total = call.store().count(&Counted::UserData(row.id, filter.clone()))?;
    filter.offset = offset(view);
    filter.limit = limit(view);
    let pieces = call.store().user_data(row.id, &filter)?;
    Ok(Page::new(pieces.into_iter().map(model).collect(), view.offset, total as i64))
}

fn get(call: &Call, Path(id): Path<i64>) -> Answer<UserDataModel> {
    call.part(Operation::ReadWorkflow, Part::UserData(UserDataId(id)))?;
    piece(call, id)
}

fn piece(call: &Call, id: i64) -> Answer<UserDataModel> {
    let row = call.store().user_data_piece(UserDataId(id))?;
    row.map(model).ok_or_else(|| ApiError::not_found(format_args!("user data {id}")))
}

fn create(
    call: &Call,
    Query(jobs): Query<NewUserDataFor>,
    Json(body): Json<UserDataModel>,
) -> Answer<UserDataModel> {
    let row = call.workflow(Operation::ChangeUserData, body.workflow_id)?;
    let sides = jobs.consumer_job_id.into_iter().chain(jobs.producer_job_id);
    call.are_of(row.id, sides.map(|id| Part::Job(JobId(id))))?;
    let mut new = new(&body)?;
    new.consumers.extend(jobs.consumer_job_id.map(JobId));
    new.producers.extend(jobs.producer_job_id.map(JobId));
    let ids = add(call, row.id, vec![new])?;
    piece(call, ids[0].0)
}

fn create_many(call: &Call, Json(body): Json<UserDataListModel>) -> Answer<CreateUserDataListResponse> {
    let Some(first) = body.user_data.first() else {
        return Ok(CreateUserDataListResponse { user_data: Some(Vec::new()) });
    };
    if body.user_data.len() as i64 > MAX_PAGE {
        return Err(ApiError::invalid(format!("at most {MAX_PAGE} pieces at once")));
    }
    if body.user_data.iter().any(|piece| piece.workflow_id != first.workflow_id) {
        return Err(ApiError::invalid("the user data of one request must belong to one workflow"));
    }
    let row = call.workflow(Operation::ChangeWorkflow, first.workflow_id)?;
    let list = body.user_data.iter().map(new).collect::<Answer<_>>()?;
    let ids = add(call, row.id, list)?;
    let made = ids.into_iter().map(|id| piece(call, id.0)).collect::<Answer<_>>()?;
    Ok(CreateUserDataListResponse { user_data: Some(made) })
}

fn new(body: &UserDataModel) -> Answer<AddUserData> {
    Ok(AddUserData {
        name: input::name("user data", &body.name)?,
        data: said(body.data.clone()),
        is_ephemeral: body.is_ephemeral.unwrap_or(false),
        ..AddUserData::default()
    })
}

/// `null` is nothing.
fn said(data: Option<Value>) -> Option<Value> {
    data.filter(|data| !data.is_null())
}

fn add(call: &Call, workflow: WorkflowId, list: Vec<AddUserData>) -> Answer<Vec<UserDataId>> {
    // Who reads or writes it waits for others, and the service has to know.
    let has_sides = list.iter().any(|piece| !piece.consumers.is_empty() || !piece.producers.is_empty());
    if has_sides {
        return call
            .change(workflow, Quiet::Any, move |store, now| store.add_user_data_list(workflow, &list, now));
    }
    call.write(|store, now| store.add_user_data_list(workflow, &list, now))
}

/// Data that are not said stay; jobs write theirs while the workflow runs.
fn update(call: &Call, Path(id): Path<i64>, Json(body): Json<UserDataModel>) -> Answer<UserDataModel> {
    let row = call.part(Operation::ChangeUserData, Part::UserData(UserDataId(id)))?;
    if body.workflow_id != row.id.0 || body.id.is_some_and(|said| said != id) {
        return Err(ApiError::invalid("user data keep their id and their workflow"));
    }
    let old = piece(call, id)?;
    let update = UserDataUpdate {
        name: Some(input::name("user data", &body.name)?).filter(|name| *name != old.name),
        data: said(body.data).map(Some),
        is_ephemeral: body.is_ephemeral.filter(|said| Some(*said) != old.is_ephemeral),
    };
    call.write(|store, now| store.update_user_data(UserDataId(id), &update, now))?;
    piece(call, id)
}

fn delete(call: &Call, Path(id): Path<i64>) -> Answer<UserDataModel> {
    call.part(Operation::ChangeWorkflow, Part::UserData(UserDataId(id)))?;
    let piece = piece(call, id)?;
    call.write(|store, now| store.delete_user_data(UserDataId(id), now))?;
    Ok(piece)
}

fn delete_all(call: &Call, Query(query): Query<OfWorkflow>) -> Answer<DeleteCountResponse> {
    let id = call.workflow(Operation::ChangeWorkflow, query.workflow_id)?.id;
    let count = call.change(id, Quiet::Free, move |store, now| {
        let pieces = store.user_data(id, &DataFilter::default())?;
        pieces.iter().try_for_each(|piece| store.delete_user_data(piece.id, now))?;
        Ok(pieces.len() as i64)
    })?;
    Ok(DeleteCountResponse { count })
}

fn model(row: UserDataRow) -> UserDataModel {
    UserDataModel {
        id: Some(row.id.0),
        workflow_id: row.workflow_id.0,
        name: row.name,
        data: row.data,
        is_ephemeral: Some(row.is_ephemeral),
    }
}

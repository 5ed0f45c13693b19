//! Files that jobs read and write.

use super::call_context::{TorcCallContext, limit, offset, sort_order};
use super::input;
use super::operation_table::OperationTable;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::{ListFiles, WorkflowQuery};
use windlass_api::torc::{
    CreateFilesResponse, DeleteCountResponse, FileModel, FilesModel, ListPage, MAX_PAGE,
};
use windlass_auth::AuthOperation;
use windlass_scheduler::service::ExclusiveRequirement;
use windlass_store::model::{AddFile, CountQuery, DataFilter, FileUpdate, WorkflowFileRow, WorkflowPartId};
use windlass_types::{FileId, JobId, WorkflowId};

pub(super) fn operations() -> OperationTable {
    OperationTable::new("files")
        .get("/files", "list_files", "List the files of a workflow", list_files)
        .post("/files", "create_file", "Add a file", create_file)
        .delete(
            "/files",
            "delete_files",
            "Delete the file records of a workflow that no job uses",
            delete_files,
        )
        .post("/bulk_files", "create_files", "Add files to one workflow, all or none", create_files)
        .get("/files/{id}", "get_file", "Get a file record", get_file)
        .put(
            "/files/{id}",
            "update_file",
            "Change a file record; absent fields keep their value",
            update_file,
        )
        .delete(
            "/files/{id}",
            "delete_file",
            "Delete a file record; the file itself is not deleted",
            delete_file,
        )
}

fn list_files(call: &TorcCallContext, Query(query): Query<ListFiles>) -> ApiResult<ListPage<FileModel>> {
    let row = call.authorize_workflow(AuthOperation::ReadWorkflow, query.workflow_id)?;
    let view = query.view();
    let mut filter = DataFilter {
        name: query.name.clone(),
        path_contains: query.path.clone(),
        producer: query.produced_by_job_id.map(JobId),
        is_output: query.is_output,
        sort: sort_order(view),
        ..DataFilter::default()
    };
    let total = call.store().count_rows(&CountQuery::Files(row.id, filter.clone()))?;
    filter.offset = offset(view);
    filter.limit = limit(view);
    let files = call.store().files(row.id, &filter)?;
    Ok(ListPage::new(files.into_iter().map(file_model).collect(), view.offset, total as i64))
}

fn get_file(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<FileModel> {
    call.authorize_part(AuthOperation::ReadWorkflow, WorkflowPartId::File(FileId(id)))?;
    load_file_model(call, id)
}

fn load_file_model(call: &TorcCallContext, id: i64) -> ApiResult<FileModel> {
    let row = call.store().file(FileId(id))?;
    row.map(file_model).ok_or_else(|| ApiError::not_found(format_args!("file {id}")))
}

fn create_file(call: &TorcCallContext, Json(body): Json<FileModel>) -> ApiResult<FileModel> {
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, body.workflow_id)?;
    let ids = add_files(call, row.id, std::slice::from_ref(&body))?;
    load_file_model(call, ids[0].0)
}

fn create_files(call: &TorcCallContext, Json(body): Json<FilesModel>) -> ApiResult<CreateFilesResponse> {
    let Some(first) = body.files.first() else { return Ok(CreateFilesResponse { files: Some(Vec::new()) }) };
    if body.files.len() as i64 > MAX_PAGE {
        return Err(ApiError::invalid(format!("at most {MAX_PAGE} files per request")));
    }
    if body.files.iter().any(|file| file.workflow_id != first.workflow_id) {
        return Err(ApiError::invalid("the files of one request must belong to one workflow"));
    }
    let row = call.authorize_workflow(AuthOperation::ChangeWorkflow, first.workflow_id)?;
    let ids = add_files(call, row.id, &body.files)?;
    let files = ids.into_iter().zip(body.files).map(|(id, file)| FileModel { id: Some(id.0), ..file });
    Ok(CreateFilesResponse { files: Some(files.collect()) })
}

fn add_files(call: &TorcCallContext, workflow: WorkflowId, files: &[FileModel]) -> ApiResult<Vec<FileId>> {
    let new = |file: &FileModel| {
        Ok(AddFile {
            name: input::check_name("a file", &file.name)?,
            path: check_path(&file.path)?,
            mtime_ns: file.st_mtime.map(to_nanoseconds).transpose()?,
        })
    };
    let files = files.iter().map(new).collect::<ApiResult<Vec<AddFile>>>()?;
    call.write_store(|store, now| store.add_files(workflow, &files, now))
}

fn check_path(text: &str) -> ApiResult<String> {
    if text.is_empty() {
        return Err(ApiError::invalid("a file requires a path"));
    }
    input::check_text("path", text)
}

/// Converts seconds since 1970 to nanoseconds. A double is accurate to the microsecond.
fn to_nanoseconds(seconds: f64) -> ApiResult<i64> {
    match seconds {
        -9e9..9e9 => Ok(((seconds * 1e6).round() as i64) * 1000),
        _ => Err(ApiError::invalid("st_mtime is out of range")),
    }
}

fn update_file(
    call: &TorcCallContext,
    Path(id): Path<i64>,
    Json(body): Json<FileModel>,
) -> ApiResult<FileModel> {
    let row = call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::File(FileId(id)))?;
    if body.workflow_id != row.id.0 || body.id.is_some_and(|given| given != id) {
        return Err(ApiError::invalid("id and workflow of a file cannot change"));
    }
    let old = load_file_model(call, id)?;
    let update = FileUpdate {
        name: Some(input::check_name("a file", &body.name)?).filter(|name| *name != old.name),
        path: Some(check_path(&body.path)?).filter(|path| *path != old.path),
        mtime_ns: body.st_mtime.map(to_nanoseconds).transpose()?,
    };
    call.write_store(|store, now| store.update_file(FileId(id), &update, now))?;
    load_file_model(call, id)
}

fn delete_file(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<FileModel> {
    call.authorize_part(AuthOperation::ChangeWorkflow, WorkflowPartId::File(FileId(id)))?;
    let file = load_file_model(call, id)?;
    call.write_store(|store, now| store.delete_file(FileId(id), now))?;
    Ok(file)
}

fn delete_files(
    call: &TorcCallContext,
    Query(query): Query<WorkflowQuery>,
) -> ApiResult<DeleteCountResponse> {
    let id = call.authorize_workflow(AuthOperation::ChangeWorkflow, query.workflow_id)?.id;
    let count = call.change_workflow(id, ExclusiveRequirement::NoHeldJobs, move |store, now| {
        let files = store.files(id, &DataFilter::default())?;
        files.iter().try_for_each(|file| store.delete_file(file.id, now))?;
        Ok(files.len() as i64)
    })?;
    Ok(DeleteCountResponse { count })
}

fn file_model(row: WorkflowFileRow) -> FileModel {
    FileModel {
        id: Some(row.id.0),
        workflow_id: row.workflow_id.0,
        name: row.name,
        path: row.path,
        st_mtime: row.mtime_ns.map(|ns| ns as f64 / 1e9),
    }
}

//! Files that jobs read and write.

use super::call::{Call, limit, offset, sorting};
use super::input;
use super::table::Table;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use windlass_api::torc::query::{ListFiles, OfWorkflow};
use windlass_api::torc::{CreateFilesResponse, DeleteCountResponse, FileModel, FilesModel, MAX_PAGE, Page};
use windlass_auth::Operation;
use windlass_engine::service::Quiet;
use windlass_store::model::{AddFile, Counted, DataFilter, FileRow, FileUpdate, Part};
use windlass_types::{FileId, JobId, WorkflowId};

pub(super) fn table() -> Table {
    Table::new("files")
        .get("/files", "list_files", "Files of a workflow", list)
        .post("/files", "create_file", "Adds a file", create)
        .delete("/files", "delete_files", "Forgets all files of a workflow that no job names", delete_all)
        .post("/bulk_files", "create_files", "Adds files of one workflow: all of them or none", create_many)
        .get("/files/{id}", "get_file", "One file", get)
        .put("/files/{id}", "update_file", "Changes what is said; leaves the rest", update)
        .delete("/files/{id}", "delete_file", "Forgets a file; the file itself stays", delete)
}

fn list(call: &Call, Query(query): Query<ListFiles>) -> Answer<Page<FileModel>> {
    let row = call.workflow(Operation::ReadWorkflow, query.workflow_id)?;
    let view = query.view();
    let mut filter = DataFilter {
        name: query.name.clone(),
        path_contains: query.path.clone(),
        producer: query.produced_by_job_id.map(JobId),
        is_output: query.is_output,
        sort: sorting(view),
        ..DataFilter::default()
    };
    let total = call.store().count(&Counted::Files(row.id, filter.clone()))?;
    filter.offset = offset(view);
    filter.limit = limit(view);
    let files = call.store().files(row.id, &filter)?;
    Ok(Page::new(files.into_iter().map(model).collect(), view.offset, total as i64))
}

fn get(call: &Call, Path(id): Path<i64>) -> Answer<FileModel> {
    call.part(Operation::ReadWorkflow, Part::File(FileId(id)))?;
    file(call, id)
}

fn file(call: &Call, id: i64) -> Answer<FileModel> {
    let row = call.store().file(FileId(id))?;
    row.map(model).ok_or_else(|| ApiError::not_found(format_args!("file {id}")))
}

fn create(call: &Call, Json(body): Json<FileModel>) -> Answer<FileModel> {
    let row = call.workflow(Operation::ChangeWorkflow, body.workflow_id)?;
    let ids = add(call, row.id, std::slice::from_ref(&body))?;
    file(call, ids[0].0)
}

fn create_many(call: &Call, Json(body): Json<FilesModel>) -> Answer<CreateFilesResponse> {
    let Some(first) = body.files.first() else { return Ok(CreateFilesResponse { files: Some(Vec::new()) }) };
    if body.files.len() as i64 > MAX_PAGE {
        return Err(ApiError::invalid(format!("at most {MAX_PAGE} files at once")));
    }
    if body.files.iter().any(|file| file.workflow_id != first.workflow_id) {
        return Err(ApiError::invalid("the files of one request must belong to one workflow"));
    }
    let row = call.workflow(Operation::ChangeWorkflow, first.workflow_id)?;
    let ids = add(call, row.id, &body.files)?;
    let files = ids.into_iter().zip(body.files).map(|(id, file)| FileModel { id: Some(id.0), ..file });
    Ok(CreateFilesResponse { files: Some(files.collect()) })
}

fn add(call: &Call, workflow: WorkflowId, files: &[FileModel]) -> Answer<Vec<FileId>> {
    let new = |file: &FileModel| {
        Ok(AddFile {
            name: input::name("a file", &file.name)?,
            path: path(&file.path)?,
            mtime_ns: file.st_mtime.map(nanoseconds).transpose()?,
        })
    };
    let files = files.iter().map(new).collect::<Answer<Vec<AddFile>>>()?;
    call.write(|store, now| store.add_files(workflow, &files, now))
}

fn path(text: &str) -> Answer<String> {
    if text.is_empty() {
        return Err(ApiError::invalid("a file needs a path"));
    }
    input::text("path", text)
}

/// Seconds since 1970 as nanoseconds. A double holds them to the microsecond.
fn nanoseconds(seconds: f64) -> Answer<i64> {
    match seconds {
        -9e9..9e9 => Ok(((seconds * 1e6).round() as i64) * 1000),
        _ => Err(ApiError::invalid("st_mtime is out of range")),
    }
}

fn update(call: &Call, Path(id): Path<i64>, Json(body): Json<FileModel>) -> Answer<FileModel> {
    let row = call.part(Operation::ChangeWorkflow, Part::File(FileId(id)))?;
    if body.workflow_id != row.id.0 || body.id.is_some_and(|said| said != id) {
        return Err(ApiError::invalid("a file keeps its id and its workflow"));
    }
    let old = file(call, id)?;
    let update = FileUpdate {
        name: Some(input::name("a file", &body.name)?).filter(|name| *name != old.name),
        path: Some(path(&body.path)?).filter(|path| *path != old.path),
        mtime_ns: body.st_mtime.map(nanoseconds).transpose()?,
    };
    call.write(|store, now| store.update_file(FileId(id), &update, now))?;
    file(call, id)
}

fn delete(call: &Call, Path(id): Path<i64>) -> Answer<FileModel> {
    call.part(Operation::ChangeWorkflow, Part::File(FileId(id)))?;
    let file = file(call, id)?;
    call.write(|store, now| store.delete_file(FileId(id), now))?;
    Ok(file)
}

fn delete_all(call: &Call, Query(query): Query<OfWorkflow>) -> Answer<DeleteCountResponse> {
    let id = call.workflow(Operation::ChangeWorkflow, query.workflow_id)?.id;
    let count = call.change(id, Quiet::Free, move |store, now| {
        let files = store.files(id, &DataFilter::default())?;
        files.iter().try_for_each(|file| store.delete_file(file.id, now))?;
        Ok(files.len() as i64)
    })?;
    Ok(DeleteCountResponse { count })
}

fn model(row: FileRow) -> FileModel {
    FileModel {
        id: Some(row.id.0),
        workflow_id: row.workflow_id.0,
        name: row.name,
        path: row.path,
        st_mtime: row.mtime_ns.map(|ns| ns as f64 / 1e9),
    }
}

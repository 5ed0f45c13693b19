//! `windlass jobs files`: lists the files that jobs read and write, and whether they exist.

use super::job_relations::{self, JobObjectAccess};
use crate::args::files_and_events::FilesListArgs;
use crate::args::jobs::NamedObjectArgs;
use crate::args::workflows::ListInWorkflowArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::table::TableColumn;
use std::path::Path;
use std::time::UNIX_EPOCH;
use windlass_store::model::{DataFilter, WorkflowFileRow, WorkflowRow};
use windlass_types::{Bytes, FileId, Timestamp};

/// A declared file with its present state.
struct FileWithState {
    file: WorkflowFileRow,
    /// `None`: the file does not exist.
    disk_state: Option<(Bytes, Option<Timestamp>)>,
}

impl FileWithState {
    fn new(workflow: &WorkflowRow, file: WorkflowFileRow) -> Self {
        let path = Path::new(&workflow.submission_dir).join(&file.path);
        let disk_state = std::fs::metadata(path).ok().map(|meta| {
            let since = meta.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let changed = since.and_then(|since| i64::try_from(since.as_micros()).ok()).map(Timestamp);
            (Bytes(meta.len()), changed)
        });
        Self { file, disk_state }
    }
}

const FIELDS: &[ListField<FileWithState>] = &[
    ListField::new("id", |f: &FileWithState| f.file.id.0.into()).column(TableColumn::number("ID")),
    ListField::new("workflow_id", |f: &FileWithState| f.file.workflow_id.0.into()),
    ListField::new("name", |f: &FileWithState| (&f.file.name).into()).column(TableColumn::flexible("NAME")),
    ListField::new("path", |f: &FileWithState| (&f.file.path).into()).column(TableColumn::path("PATH")),
    ListField::new("identifier", |f: &FileWithState| f.file.identifier.as_ref().into()),
    ListField::new("exists", |f: &FileWithState| f.disk_state.is_some().into())
        .column(TableColumn::text("THERE")),
    ListField::new("size_bytes", |f: &FileWithState| f.disk_state.map(|(size, _)| size).into())
        .column(TableColumn::number("SIZE")),
    ListField::new("modified_at", |f: &FileWithState| f.disk_state.and_then(|(_, changed)| changed).into())
        .column(TableColumn::text("MODIFIED")),
    ListField::new("st_mtime", |f: &FileWithState| {
        f.file.mtime_ns.map_or(FieldValue::Empty, |ns| FieldValue::Real(ns as f64 / 1e9))
    }),
];

pub(crate) fn list_files(ctx: &CliContext, args: &FilesListArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let producer = args.produced_by_job_id.as_ref();
    let producer = producer
        .map(|job| object_selection::find_job(&*store, &workflow, job, "`windlass jobs files ID`"))
        .transpose()?;
    let filter = DataFilter { job: producer.as_ref().map(|job| job.id), ..DataFilter::default() };
    let mut files = store.files(workflow.id, &filter)?;
    if let Some(job) = producer {
        let written = store.job_relations(job.id)?.output_files;
        files.retain(|file| written.contains(&file.id));
    }
    let mut rows: Vec<FileWithState> =
        files.into_iter().map(|file| FileWithState::new(&workflow, file)).collect();
    if args.missing {
        rows.retain(|row| row.disk_state.is_none());
    }
    print_files(ctx, &workflow, rows, &args.page)
}

pub(crate) fn show_file(ctx: &CliContext, args: &NamedObjectArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let by_id = |id| Ok(store.file(FileId(id))?.map(|file| (file.workflow_id, file)));
    let (workflow, file) = job_relations::find_named(&*store, args, by_id, |workflow| {
        Ok(store.files(workflow, &DataFilter::default())?)
    })?;
    print_record(ctx, &workflow, file)?;
    Ok(CliExit::Success)
}

pub(crate) fn print_record(
    ctx: &CliContext,
    workflow: &WorkflowRow,
    file: WorkflowFileRow,
) -> Result<(), CliError> {
    ctx.ui.print_record(&ListFields::new(FIELDS), FileWithState::new(workflow, file))
}

/// Files that jobs read and no job writes.
pub(crate) fn list_required_files(ctx: &CliContext, args: &ListInWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let relations = store.job_files(workflow.id)?;
    let wanted = job_relations::required_inputs(
        relations.iter().map(|r| JobObjectAccess { is_output: r.is_output, object: r.file_id }),
    );
    let files = store.files(workflow.id, &DataFilter::default())?;
    let rows = files.into_iter().filter(|file| wanted.contains(&file.id));
    let rows = rows.map(|file| FileWithState::new(&workflow, file)).collect();
    print_files(ctx, &workflow, rows, &args.page)
}

fn print_files(
    ctx: &CliContext,
    workflow: &WorkflowRow,
    rows: Vec<FileWithState>,
    page: &crate::args::list_options::ListPageArgs,
) -> Result<CliExit, CliError> {
    let listing = ListFields::new(FIELDS).without_fields(&page.exclude)?;
    if ctx.ui.print_list(&listing, listing.sort_and_limit(rows, page)?)? == 0 {
        ctx.ui.print_note(&format!("workflow {} ({}) has no such files", workflow.id, workflow.name));
    }
    Ok(CliExit::Success)
}

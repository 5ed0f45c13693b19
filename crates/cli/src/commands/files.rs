//! `windlass files`: what jobs read and write, and whether it is there.

use super::relations::{self, Relation};
use crate::args::data::FilesListArgs;
use crate::args::jobs::NamedArgs;
use crate::args::workflows::ListOfWorkflowArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::table::Column;
use std::path::Path;
use std::time::UNIX_EPOCH;
use windlass_store::model::{DataFilter, FileRow, WorkflowRow};
use windlass_types::{Bytes, FileId, Timestamp};

/// A file as the books know it and as it is now.
struct Shown {
    file: FileRow,
    /// `None`: it is not there.
    now: Option<(Bytes, Option<Timestamp>)>,
}

impl Shown {
    fn new(workflow: &WorkflowRow, file: FileRow) -> Self {
        let path = Path::new(&workflow.submission_dir).join(&file.path);
        let now = std::fs::metadata(path).ok().map(|meta| {
            let since = meta.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let changed = since.and_then(|since| i64::try_from(since.as_micros()).ok()).map(Timestamp);
            (Bytes(meta.len()), changed)
        });
        Self { file, now }
    }
}

const FIELDS: &[Field<Shown>] = &[
    Field::new("id", |f: &Shown| f.file.id.0.into()).column(Column::number("ID")),
    Field::new("workflow_id", |f: &Shown| f.file.workflow_id.0.into()),
    Field::new("name", |f: &Shown| (&f.file.name).into()).column(Column::elastic("NAME")),
    Field::new("path", |f: &Shown| (&f.file.path).into()).column(Column::path("PATH")),
    Field::new("identifier", |f: &Shown| f.file.identifier.as_ref().into()),
    Field::new("exists", |f: &Shown| f.now.is_some().into()).column(Column::text("THERE")),
    Field::new("size_bytes", |f: &Shown| f.now.map(|(size, _)| size).into()).column(Column::number("SIZE")),
    Field::new("modified_at", |f: &Shown| f.now.and_then(|(_, changed)| changed).into())
        .column(Column::text("MODIFIED")),
    Field::new("st_mtime", |f: &Shown| {
        f.file.mtime_ns.map_or(Datum::Nothing, |ns| Datum::Real(ns as f64 / 1e9))
    }),
];

pub(crate) fn list(ctx: &Context, args: &FilesListArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let producer = args.produced_by_job_id.as_ref();
    let producer =
        producer.map(|job| select::job(&*store, &workflow, job, "`windlass files ID`")).transpose()?;
    let filter = DataFilter { job: producer.as_ref().map(|job| job.id), ..DataFilter::default() };
    let mut files = store.files(workflow.id, &filter)?;
    if let Some(job) = producer {
        let written = store.job_relations(job.id)?.output_files;
        files.retain(|file| written.contains(&file.id));
    }
    let mut rows: Vec<Shown> = files.into_iter().map(|file| Shown::new(&workflow, file)).collect();
    if args.missing {
        rows.retain(|row| row.now.is_none());
    }
    print(ctx, &workflow, rows, &args.page)
}

pub(crate) fn get(ctx: &Context, args: &NamedArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let by_id = |id| Ok(store.file(FileId(id))?.map(|file| (file.workflow_id, file)));
    let (workflow, file) =
        relations::named(
            &*store,
            args,
            by_id,
            |workflow| Ok(store.files(workflow, &DataFilter::default())?),
        )?;
    print_record(ctx, &workflow, file)?;
    Ok(Exit::Success)
}

pub(crate) fn print_record(ctx: &Context, workflow: &WorkflowRow, file: FileRow) -> Result<(), CliError> {
    ctx.ui.print_record(&Listing::new(FIELDS), Shown::new(workflow, file))
}

/// What jobs read and no job writes.
pub(crate) fn list_required(ctx: &Context, args: &ListOfWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let relations = store.job_files(workflow.id)?;
    let wanted = relations::read_and_never_written(
        relations.iter().map(|r| Relation { is_output: r.is_output, thing: r.file_id }),
    );
    let files = store.files(workflow.id, &DataFilter::default())?;
    let rows = files.into_iter().filter(|file| wanted.contains(&file.id));
    let rows = rows.map(|file| Shown::new(&workflow, file)).collect();
    print(ctx, &workflow, rows, &args.page)
}

fn print(
    ctx: &Context,
    workflow: &WorkflowRow,
    rows: Vec<Shown>,
    page: &crate::args::page::PageArgs,
) -> Result<Exit, CliError> {
    let listing = Listing::new(FIELDS).without(&page.exclude)?;
    if ctx.ui.print_list(&listing, listing.arrange(rows, page)?)? == 0 {
        ctx.ui.note(&format!("workflow {} ({}) names no such files", workflow.id, workflow.name));
    }
    Ok(Exit::Success)
}

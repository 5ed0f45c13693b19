//! `export` and `import`: write a workflow to a file and read it back.

use crate::args::workflows::{WorkflowExportArgs, WorkflowImportArgs};
use crate::context::CliContext;
use crate::error::{CliError, CliErrorKind, CliExit};
use crate::object_selection;
use crate::output_files;
use crate::spec_file;
use crate::ui::text;
use serde::Serialize;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;
use windlass_store::Store;
use windlass_store::model::export::ExportedJob;
use windlass_store::model::{DataFilter, ExportOptions, ImportOptions, WorkflowExport};
use windlass_types::WorkflowId;

pub(crate) fn export_workflow(ctx: &CliContext, args: &WorkflowExportArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    let options = ExportOptions { results: args.include_results, events: args.include_events };
    let export = store.export_workflow(row.id, options, ctx.clock.now())?;
    match args.output.as_deref().filter(|path| *path != Path::new("-")) {
        None => ctx.ui.print_json(&export)?,
        Some(path) => {
            let mut text =
                serde_json::to_string_pretty(&export).map_err(|e| CliError::internal(e.to_string()))?;
            text.push('\n');
            output_files::replace_file(&ctx.cwd.join(path), &text)?;
            let jobs = text::render_count(row.counts.total(), "job");
            ctx.ui.print_note(&format!(
                "wrote workflow {} ({}, {jobs}) to {}",
                row.id,
                row.name,
                path.display()
            ));
        }
    }
    Ok(CliExit::Success)
}

#[derive(Serialize)]
struct ImportedWorkflowView<'a> {
    workflow_id: WorkflowId,
    name: &'a str,
    jobs: usize,
}

pub(crate) fn import_workflow(ctx: &CliContext, args: &WorkflowImportArgs) -> Result<CliExit, CliError> {
    let mut export = read_export(ctx, &args.file)?;
    if args.skip_events {
        export.events = None;
    }
    let options = ImportOptions {
        name: args.name.clone(),
        without_results: args.skip_results,
        ..import_options(ctx, args)?
    };
    let store = ctx.open_or_create()?;
    let id = store.import_workflow(&export, &options, ctx.clock.now())?;
    warn_of_stale_ids(ctx, &*store, id, &export)?;
    let name = options.name.as_deref().unwrap_or(&export.workflow.name);
    let jobs = export.jobs.len();
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&ImportedWorkflowView { workflow_id: id, name, jobs })?;
    } else {
        ctx.ui.print_line(&format!("workflow {id}: {name}, {}", text::render_count(jobs as u64, "job")))?;
        if store.workflow(id)?.is_some_and(|row| row.counts.settled() < row.counts.total()) {
            ctx.ui.print_note(&format!("next: windlass resume {id}"));
        }
    }
    Ok(CliExit::Success)
}

/// For `${user_data.input.NAME}` in a spec, a stored command contains an id of the original database. It cannot
/// be told from any other number, so it is not rewritten.
fn warn_of_stale_ids(
    ctx: &CliContext,
    store: &dyn Store,
    id: WorkflowId,
    export: &WorkflowExport,
) -> Result<(), CliError> {
    let pieces = store.user_data(id, &DataFilter::default())?;
    let changed: HashMap<i64, i64> = (export.user_data.iter().zip(&pieces))
        .map(|(old, new)| (old.id, new.id.0))
        .filter(|(old, new)| old != new)
        .collect();
    let mut stale_ids = export.jobs.iter().filter_map(|job| Some((job, stale_id_in(job, &changed)?)));
    let Some((job, old)) = stale_ids.next() else { return Ok(()) };
    let others = match stale_ids.count() {
        0 => String::new(),
        n => format!(", and so do the commands of {}", text::render_count(n as u64, "other job")),
    };
    ctx.ui.print_warning(&format!(
        "the command of job `{}` seems to contain {old}, a former id of user data (now {}){others}; \
         use `windlass jobs update` to change the command; jobs can also refer to user data by name",
        job.name, changed[&old]
    ));
    Ok(())
}

/// The former id of user data of the job, if the command contains it as a word and it now means something else.
fn stale_id_in(job: &ExportedJob, changed: &HashMap<i64, i64>) -> Option<i64> {
    let used = job.input_user_data_ids.iter().chain(&job.output_user_data_ids);
    let names = |id: &i64| {
        let mut words = job.command.split(|c: char| !c.is_alphanumeric());
        words.any(|word| word.parse() == Ok(*id))
    };
    used.filter(|id| changed.contains_key(id)).find(|id| names(id)).copied()
}

/// Jobs run where the workflow is imported, regardless of the original directory: files and logs in another
/// user's directory are not touched.
fn import_options(ctx: &CliContext, args: &WorkflowImportArgs) -> Result<ImportOptions, CliError> {
    let output_dir = spec_file::output_directory(ctx, &args.output)?;
    Ok(ImportOptions {
        submission_dir: Some(spec_file::path_to_utf8(&ctx.cwd)?.to_owned()),
        output_dir: Some(spec_file::path_to_utf8(&output_dir)?.to_owned()),
        ..ImportOptions::default()
    })
}

fn read_export(ctx: &CliContext, file: &Path) -> Result<WorkflowExport, CliError> {
    let parsed: Result<WorkflowExport, serde_json::Error> = if file == Path::new("-") {
        serde_json::from_reader(io::stdin().lock())
    } else {
        let opened = File::open(ctx.cwd.join(file));
        let opened = opened.map_err(|e| CliError::user(format!("cannot read {}: {e}", file.display())))?;
        serde_json::from_reader(BufReader::new(opened))
    };
    let export = parsed.map_err(|e| {
        CliError::new(CliErrorKind::Spec, format!("{} is not an exported workflow: {e}", file.display()))
            .with_hint("`windlass workflows export` writes such files")
    })?;
    if export.export_version != WorkflowExport::VERSION {
        return Err(CliError::refused(format!(
            "{} has version {} of the export format, and this windlass reads {}",
            file.display(),
            export.export_version,
            WorkflowExport::VERSION
        )));
    }
    Ok(export)
}

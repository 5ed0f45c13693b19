//! Files and resource requirements made, changed and deleted by hand; results and events deleted.

use super::files;
use super::parts::REQUIREMENTS;
use super::relations;
use crate::args::WorkflowRef;
use crate::args::edit::{
    ByIdArgs, CreateFileArgs, CreateRequirementsArgs, ResourceArgs, UpdateFileArgs, UpdateRequirementsArgs,
};
use crate::args::jobs::NamedArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::Listing;
use serde_json::Value;
use windlass_store::Store;
use windlass_store::model::{
    DataFilter, FieldChange, FileRow, FileUpdate, RequirementsRow, RequirementsUpdate, WorkflowRow,
};
use windlass_types::{Bytes, EventId, FileId, RequirementsId, Resources, ResultId};

pub(crate) fn create_file(ctx: &Context, args: &CreateFileArgs) -> Result<Exit, CliError> {
    for (flag, text) in [("--name", &args.name), ("--path", &args.path)] {
        if text.is_empty() {
            return Err(CliError::user(format!("{flag} is empty")));
        }
    }
    let store = ctx.open_write()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let id = store.add_file(workflow.id, &args.name, &args.path, ctx.clock.now())?;
    match store.file(id)? {
        Some(file) if ctx.ui.json_wanted() => files::print_record(ctx, &workflow, file)?,
        _ => ctx.ui.print_line(&format!("file {id}: {}", args.name))?,
    }
    Ok(Exit::Success)
}

pub(crate) fn update_file(ctx: &Context, args: &UpdateFileArgs) -> Result<Exit, CliError> {
    let update = FileUpdate { name: args.new_name.clone(), path: args.path.clone(), ..FileUpdate::default() };
    if update == FileUpdate::default() {
        return Err(nothing_said("--name or --path"));
    }
    let store = ctx.open_write()?;
    let (workflow, file) = find_file(&*store, &args.file)?;
    let changes = store.update_file(file.id, &update, ctx.clock.now())?;
    say_changes(ctx, &format!("file {} ({})", file.id, file.name), &changes);
    if ctx.ui.json_wanted() {
        files::print_record(ctx, &workflow, store.file(file.id)?.unwrap_or(file))?;
    }
    Ok(Exit::Success)
}

pub(crate) fn delete_file(ctx: &Context, args: &NamedArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let (workflow, file) = find_file(&*store, args)?;
    store.delete_file(file.id, ctx.clock.now())?;
    let whose = format!("workflow {} ({})", workflow.id, workflow.name);
    ctx.ui.note(&format!("{whose} no longer names file {} ({}); the file itself stays", file.id, file.name));
    Ok(Exit::Success)
}

fn find_file(store: &dyn Store, args: &NamedArgs) -> Result<(WorkflowRow, FileRow), CliError> {
    let by_id = |id| Ok(store.file(FileId(id))?.map(|file| (file.workflow_id, file)));
    relations::named(store, args, by_id, |workflow| Ok(store.files(workflow, &DataFilter::default())?))
}

/// A file of the workflow, by id or name.
pub(crate) fn file_named(store: &dyn Store, workflow: &WorkflowRow, name: &str) -> Result<FileId, CliError> {
    let args = NamedArgs { name: name.to_owned(), workflow: WorkflowRef::Id(workflow.id) };
    Ok(find_file(store, &args)?.1.id)
}

pub(crate) fn create_requirements(ctx: &Context, args: &CreateRequirementsArgs) -> Result<Exit, CliError> {
    if args.name.is_empty() {
        return Err(CliError::user("--name is empty"));
    }
    let store = ctx.open_write()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    // What is not said limits nothing.
    let resources = changed(Resources { memory: Bytes(0), ..Resources::DEFAULT }, &args.resources);
    let id = store.add_requirements(workflow.id, &args.name, &resources, ctx.clock.now())?;
    if ctx.ui.json_wanted() {
        let row = RequirementsRow { id, name: args.name.clone(), resources };
        ctx.ui.print_record(&Listing::new(REQUIREMENTS), row)?;
    } else {
        ctx.ui.print_line(&format!("resource requirements {id}: {}", args.name))?;
    }
    Ok(Exit::Success)
}

pub(crate) fn update_requirements(ctx: &Context, args: &UpdateRequirementsArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let (workflow, row) = find_requirements(&*store, &args.requirements)?;
    let resources = changed(row.resources, &args.resources);
    if args.new_name.is_none() && resources == row.resources {
        return Err(nothing_said("--name, --num-cpus, --num-gpus, --num-nodes, --memory or --runtime"));
    }
    let update = RequirementsUpdate { name: args.new_name.clone(), resources: Some(resources) };
    let changes = store.update_requirements(row.id, &update, ctx.clock.now())?;
    say_changes(ctx, &format!("resource requirements {} ({})", row.id, row.name), &changes);
    if ctx.ui.json_wanted() {
        let now = store.requirements(workflow.id)?.into_iter().find(|now| now.id == row.id);
        ctx.ui.print_record(&Listing::new(REQUIREMENTS), now.unwrap_or(row))?;
    }
    Ok(Exit::Success)
}

fn changed(old: Resources, args: &ResourceArgs) -> Resources {
    Resources {
        cpus: args.num_cpus.unwrap_or(old.cpus),
        memory: args.memory.unwrap_or(old.memory),
        gpus: args.num_gpus.unwrap_or(old.gpus),
        nodes: args.num_nodes.unwrap_or(old.nodes),
        runtime: args.runtime.or(old.runtime),
    }
}

pub(crate) fn delete_requirements(ctx: &Context, args: &NamedArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let (_, row) = find_requirements(&*store, args)?;
    store.delete_requirements(row.id, ctx.clock.now())?;
    ctx.ui.note(&format!("deleted the resource requirements {} ({})", row.id, row.name));
    Ok(Exit::Success)
}

/// Resource requirements of the workflow, by id or name.
pub(crate) fn requirements_named(
    store: &dyn Store,
    workflow: &WorkflowRow,
    name: &str,
) -> Result<RequirementsId, CliError> {
    let args = NamedArgs { name: name.to_owned(), workflow: WorkflowRef::Id(workflow.id) };
    Ok(find_requirements(store, &args)?.1.id)
}

fn find_requirements(
    store: &dyn Store,
    args: &NamedArgs,
) -> Result<(WorkflowRow, RequirementsRow), CliError> {
    let by_id = |id: i64| {
        for workflow in store.workflows()? {
            let rows = store.requirements(workflow.id)?;
            if let Some(row) = rows.into_iter().find(|row| row.id.0 == id) {
                return Ok(Some((workflow.id, row)));
            }
        }
        Ok(None)
    };
    relations::named(store, args, by_id, |workflow| Ok(store.requirements(workflow)?))
}

pub(crate) fn delete_result(ctx: &Context, args: &ByIdArgs) -> Result<Exit, CliError> {
    ctx.open_write()?.delete_result(ResultId(args.id), ctx.clock.now())?;
    ctx.ui.note(&format!("deleted result {}; its job stays as it is", args.id));
    Ok(Exit::Success)
}

pub(crate) fn delete_event(ctx: &Context, args: &ByIdArgs) -> Result<Exit, CliError> {
    ctx.open_write()?.delete_event(EventId(args.id), ctx.clock.now())?;
    ctx.ui.note(&format!("deleted event {}; another event says so", args.id));
    Ok(Exit::Success)
}

fn nothing_said(flags: &str) -> CliError {
    CliError::user("nothing was said that is to change").with_hint(flags)
}

/// `job 3 (a): priority 0 → 5`, a line for each.
pub(crate) fn say_changes(ctx: &Context, whose: &str, changes: &[FieldChange]) {
    if changes.is_empty() {
        ctx.ui.note(&format!("nothing to do: {whose} is so already"));
    }
    for FieldChange { field, old, new } in changes {
        ctx.ui.note(&format!("{whose}: {} {} → {}", field.replace('_', " "), plain(old), plain(new)));
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

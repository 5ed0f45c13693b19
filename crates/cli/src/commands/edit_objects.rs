//! Files and resource requirements created, changed and deleted one at a time; results and events deleted.

use super::files;
use super::job_relations;
use super::workflow_parts::REQUIREMENT_FIELDS;
use crate::args::WorkflowRef;
use crate::args::crud::{
    CreateFileArgs, CreateRequirementsArgs, RecordIdArgs, ResourceAmountArgs, UpdateFileArgs,
    UpdateRequirementsArgs,
};
use crate::args::jobs::NamedObjectArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::ListFields;
use serde_json::Value;
use windlass_store::Store;
use windlass_store::model::{
    DataFilter, FieldChange, FileUpdate, RequirementsRow, RequirementsUpdate, WorkflowFileRow, WorkflowRow,
};
use windlass_types::{Bytes, EventId, FileId, RequirementsId, Resources, ResultId};

pub(crate) fn create_file(ctx: &CliContext, args: &CreateFileArgs) -> Result<CliExit, CliError> {
    for (flag, text) in [("--name", &args.name), ("--path", &args.path)] {
        if text.is_empty() {
            return Err(CliError::user(format!("{flag} is empty")));
        }
    }
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let id = store.add_file(workflow.id, &args.name, &args.path, ctx.clock.now())?;
    match store.file(id)? {
        Some(file) if ctx.ui.wants_json() => files::print_record(ctx, &workflow, file)?,
        _ => ctx.ui.print_line(&format!("file {id}: {}", args.name))?,
    }
    Ok(CliExit::Success)
}

pub(crate) fn update_file(ctx: &CliContext, args: &UpdateFileArgs) -> Result<CliExit, CliError> {
    let update = FileUpdate { name: args.new_name.clone(), path: args.path.clone(), ..FileUpdate::default() };
    if update == FileUpdate::default() {
        return Err(no_changes_error("--name or --path"));
    }
    let store = ctx.open_write()?;
    let (workflow, file) = find_file(&*store, &args.file)?;
    let changes = store.update_file(file.id, &update, ctx.clock.now())?;
    print_changes(ctx, &format!("file {} ({})", file.id, file.name), &changes);
    if ctx.ui.wants_json() {
        files::print_record(ctx, &workflow, store.file(file.id)?.unwrap_or(file))?;
    }
    Ok(CliExit::Success)
}

pub(crate) fn delete_file(ctx: &CliContext, args: &NamedObjectArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let (workflow, file) = find_file(&*store, args)?;
    store.delete_file(file.id, ctx.clock.now())?;
    let whose = format!("workflow {} ({})", workflow.id, workflow.name);
    ctx.ui.print_note(&format!(
        "{whose} no longer refers to file {} ({}); the file itself is kept",
        file.id, file.name
    ));
    Ok(CliExit::Success)
}

fn find_file(store: &dyn Store, args: &NamedObjectArgs) -> Result<(WorkflowRow, WorkflowFileRow), CliError> {
    let by_id = |id| Ok(store.file(FileId(id))?.map(|file| (file.workflow_id, file)));
    job_relations::find_named(store, args, by_id, |workflow| {
        Ok(store.files(workflow, &DataFilter::default())?)
    })
}

/// A file of the workflow, by id or name.
pub(crate) fn find_file_id(
    store: &dyn Store,
    workflow: &WorkflowRow,
    name: &str,
) -> Result<FileId, CliError> {
    let args = NamedObjectArgs { name: name.to_owned(), workflow: WorkflowRef::Id(workflow.id) };
    Ok(find_file(store, &args)?.1.id)
}

pub(crate) fn create_requirements(
    ctx: &CliContext,
    args: &CreateRequirementsArgs,
) -> Result<CliExit, CliError> {
    if args.name.is_empty() {
        return Err(CliError::user("--name is empty"));
    }
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    // Options that are not given set no limit.
    let resources =
        apply_resource_args(Resources { memory: Bytes(0), ..Resources::DEFAULT }, &args.resources);
    let id = store.add_requirements(workflow.id, &args.name, &resources, ctx.clock.now())?;
    if ctx.ui.wants_json() {
        let row = RequirementsRow { id, name: args.name.clone(), resources };
        ctx.ui.print_record(&ListFields::new(REQUIREMENT_FIELDS), row)?;
    } else {
        ctx.ui.print_line(&format!("resource requirements {id}: {}", args.name))?;
    }
    Ok(CliExit::Success)
}

pub(crate) fn update_requirements(
    ctx: &CliContext,
    args: &UpdateRequirementsArgs,
) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let (workflow, row) = find_requirements(&*store, &args.requirements)?;
    let resources = apply_resource_args(row.resources, &args.resources);
    if args.new_name.is_none() && resources == row.resources {
        return Err(no_changes_error("--name, --num-cpus, --num-gpus, --num-nodes, --memory or --runtime"));
    }
    let update = RequirementsUpdate { name: args.new_name.clone(), resources: Some(resources) };
    let changes = store.update_requirements(row.id, &update, ctx.clock.now())?;
    print_changes(ctx, &format!("resource requirements {} ({})", row.id, row.name), &changes);
    if ctx.ui.wants_json() {
        let now = store.requirements(workflow.id)?.into_iter().find(|now| now.id == row.id);
        ctx.ui.print_record(&ListFields::new(REQUIREMENT_FIELDS), now.unwrap_or(row))?;
    }
    Ok(CliExit::Success)
}

fn apply_resource_args(old: Resources, args: &ResourceAmountArgs) -> Resources {
    Resources {
        cpus: args.num_cpus.unwrap_or(old.cpus),
        memory: args.memory.unwrap_or(old.memory),
        gpus: args.num_gpus.unwrap_or(old.gpus),
        nodes: args.num_nodes.unwrap_or(old.nodes),
        runtime: args.runtime.or(old.runtime),
    }
}

pub(crate) fn delete_requirements(ctx: &CliContext, args: &NamedObjectArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let (_, row) = find_requirements(&*store, args)?;
    store.delete_requirements(row.id, ctx.clock.now())?;
    ctx.ui.print_note(&format!("deleted the resource requirements {} ({})", row.id, row.name));
    Ok(CliExit::Success)
}

/// Resource requirements of the workflow, by id or name.
pub(crate) fn find_requirements_id(
    store: &dyn Store,
    workflow: &WorkflowRow,
    name: &str,
) -> Result<RequirementsId, CliError> {
    let args = NamedObjectArgs { name: name.to_owned(), workflow: WorkflowRef::Id(workflow.id) };
    Ok(find_requirements(store, &args)?.1.id)
}

fn find_requirements(
    store: &dyn Store,
    args: &NamedObjectArgs,
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
    job_relations::find_named(store, args, by_id, |workflow| Ok(store.requirements(workflow)?))
}

pub(crate) fn delete_result(ctx: &CliContext, args: &RecordIdArgs) -> Result<CliExit, CliError> {
    ctx.open_write()?.delete_result(ResultId(args.id), ctx.clock.now())?;
    ctx.ui.print_note(&format!("deleted result {}; its job is unchanged", args.id));
    Ok(CliExit::Success)
}

pub(crate) fn delete_event(ctx: &CliContext, args: &RecordIdArgs) -> Result<CliExit, CliError> {
    ctx.open_write()?.delete_event(EventId(args.id), ctx.clock.now())?;
    ctx.ui.print_note(&format!("deleted event {}; the deletion is recorded as another event", args.id));
    Ok(CliExit::Success)
}

fn no_changes_error(flags: &str) -> CliError {
    CliError::user("no changes given").with_hint(flags)
}

/// `job 3 (a): priority 0 → 5`, one line per change.
pub(crate) fn print_changes(ctx: &CliContext, whose: &str, changes: &[FieldChange]) {
    if changes.is_empty() {
        ctx.ui.print_note(&format!("nothing to do: {whose} already has these values"));
    }
    for FieldChange { field, old, new } in changes {
        ctx.ui.print_note(&format!(
            "{whose}: {} {} → {}",
            field.replace('_', " "),
            plain_value(old),
            plain_value(new)
        ));
    }
}

fn plain_value(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

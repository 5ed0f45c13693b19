//! `windlass slurm list`, `get`, `create`, `update`, `delete`: the Slurm schedulers of a workflow, from which
//! allocations are created.

use crate::args::allocations::{CreateSchedulerArgs, SchedulerSettingsArgs, UpdateSchedulerArgs};
use crate::args::jobs::NamedObjectArgs;
use crate::args::workflows::ListInWorkflowArgs;
use crate::commands::job_relations;
use crate::commands::workflow_parts::print_objects;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{ListField, ListFields};
use crate::ui::table::TableColumn;
use windlass_store::Store;
use windlass_store::model::{SlurmSchedulerRow, WorkflowRow};
use windlass_types::settings::SlurmScheduler;

const FIELDS: &[ListField<SlurmSchedulerRow>] = &[
    ListField::new("id", |s: &SlurmSchedulerRow| s.id.into()).column(TableColumn::number("ID")),
    ListField::new("name", |s: &SlurmSchedulerRow| (&s.scheduler.name).into())
        .column(TableColumn::flexible("NAME")),
    ListField::new("account", |s: &SlurmSchedulerRow| (&s.scheduler.account).into())
        .column(TableColumn::text("ACCOUNT")),
    ListField::new("partition", |s: &SlurmSchedulerRow| s.scheduler.partition.as_ref().into())
        .column(TableColumn::text("PARTITION")),
    ListField::new("qos", |s: &SlurmSchedulerRow| s.scheduler.qos.as_ref().into()),
    ListField::new("nodes", |s: &SlurmSchedulerRow| s.scheduler.nodes.into())
        .column(TableColumn::number("NODES")),
    ListField::new("ntasks_per_node", |s: &SlurmSchedulerRow| s.scheduler.ntasks_per_node.into()),
    ListField::new("walltime", |s: &SlurmSchedulerRow| (&s.scheduler.walltime).into())
        .column(TableColumn::number("WALLTIME")),
    ListField::new("mem", |s: &SlurmSchedulerRow| s.scheduler.mem.as_ref().into())
        .column(TableColumn::number("MEMORY")),
    ListField::new("gres", |s: &SlurmSchedulerRow| s.scheduler.gres.as_ref().into())
        .column(TableColumn::text("GRES")),
    ListField::new("tmp", |s: &SlurmSchedulerRow| s.scheduler.tmp.as_ref().into()),
    ListField::new("extra", |s: &SlurmSchedulerRow| s.scheduler.extra.as_ref().into()),
    ListField::new("serialize_allocations", |s: &SlurmSchedulerRow| s.scheduler.serialize_allocations.into()),
];

pub(crate) fn list_schedulers(ctx: &CliContext, args: &ListInWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    print_objects(ctx, &workflow, ListFields::new(FIELDS), store.schedulers(workflow.id)?, &args.page)
}

pub(crate) fn show_scheduler(ctx: &CliContext, args: &NamedObjectArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let (_, row) = find_scheduler(&*store, args)?;
    ctx.ui.print_record(&ListFields::new(FIELDS), row)?;
    Ok(CliExit::Success)
}

pub(crate) fn create_scheduler(ctx: &CliContext, args: &CreateSchedulerArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let scheduler = SlurmScheduler { name: args.name.clone(), ..SlurmScheduler::default() };
    let scheduler = apply_settings(scheduler, &args.settings)?;
    let id = store.add_scheduler(workflow.id, &scheduler, ctx.clock.now())?;
    if ctx.ui.wants_json() {
        ctx.ui.print_record(&ListFields::new(FIELDS), SlurmSchedulerRow { id, scheduler })?;
    } else {
        ctx.ui.print_line(&format!("scheduler {id}: {}", scheduler.name))?;
    }
    Ok(CliExit::Success)
}

pub(crate) fn update_scheduler(ctx: &CliContext, args: &UpdateSchedulerArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let (_, row) = find_scheduler(&*store, &args.scheduler)?;
    let mut scheduler = apply_settings(row.scheduler.clone(), &args.settings)?;
    if let Some(name) = &args.new_name {
        scheduler.name.clone_from(name);
    }
    if scheduler == row.scheduler {
        return Err(
            CliError::user("no changes given").with_hint("`windlass slurm update --help` lists the options")
        );
    }
    store.update_scheduler(row.id, &scheduler, ctx.clock.now())?;
    let id = row.id;
    if ctx.ui.wants_json() {
        ctx.ui.print_record(&ListFields::new(FIELDS), SlurmSchedulerRow { id, scheduler })?;
    } else {
        ctx.ui.print_note(&format!("scheduler {id} ({}) is changed for new allocations", scheduler.name));
    }
    Ok(CliExit::Success)
}

pub(crate) fn delete_scheduler(ctx: &CliContext, args: &NamedObjectArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let (workflow, row) = find_scheduler(&*store, args)?;
    store.delete_scheduler(row.id, ctx.clock.now())?;
    let whose = format!("workflow {} ({})", workflow.id, workflow.name);
    ctx.ui.print_note(&format!("{whose}: deleted scheduler {} ({})", row.id, row.scheduler.name));
    Ok(CliExit::Success)
}

/// The given scheduler, or the only one.
pub(super) fn select_scheduler(
    store: &dyn Store,
    workflow: &WorkflowRow,
    named: Option<&str>,
) -> Result<SlurmSchedulerRow, CliError> {
    let mut known = store.schedulers(workflow.id)?;
    let names: Vec<String> = known.iter().map(|row| format!("`{}`", row.scheduler.name)).collect();
    let whose = format!("workflow {} ({})", workflow.id, workflow.name);
    let place = match named {
        Some(name) => known
            .iter()
            .position(|row| row.scheduler.name == name)
            .or_else(|| known.iter().position(|row| row.id.to_string() == name)),
        None if known.len() == 1 => Some(0),
        None => None,
    };
    match (place, named) {
        (Some(place), _) => Ok(known.swap_remove(place)),
        (None, _) if names.is_empty() => Err(CliError::user(format!("{whose} has no scheduler"))
            .with_hint("create one with `windlass slurm create`")),
        (None, Some(name)) => Err(CliError::user(format!("{whose} has no scheduler `{name}`"))
            .with_hint(format!("it has {}", names.join(", ")))),
        (None, None) => Err(CliError::user(format!("{whose} has several schedulers"))
            .with_hint(format!("select one with --scheduler: {}", names.join(", ")))),
    }
}

fn find_scheduler(
    store: &dyn Store,
    args: &NamedObjectArgs,
) -> Result<(WorkflowRow, SlurmSchedulerRow), CliError> {
    let by_id = |id: i64| {
        for workflow in store.workflows()? {
            if let Some(row) = store.schedulers(workflow.id)?.into_iter().find(|row| row.id == id) {
                return Ok(Some((workflow.id, row)));
            }
        }
        Ok(None)
    };
    job_relations::find_named(store, args, by_id, |workflow| Ok(store.schedulers(workflow)?))
}

/// The given value, or the present one if none is given; an empty text removes it.
fn apply_settings(
    mut scheduler: SlurmScheduler,
    given: &SchedulerSettingsArgs,
) -> Result<SlurmScheduler, CliError> {
    let SchedulerSettingsArgs { account, partition, qos, nodes, ntasks_per_node, .. } = given;
    let SchedulerSettingsArgs { walltime, mem, gres, tmp, extra, serialize_allocations, .. } = given;
    for (field, given) in [
        (&mut scheduler.partition, partition),
        (&mut scheduler.qos, qos),
        (&mut scheduler.mem, mem),
        (&mut scheduler.gres, gres),
        (&mut scheduler.tmp, tmp),
        (&mut scheduler.extra, extra),
    ] {
        if let Some(given) = given {
            if given.chars().any(char::is_control) {
                return Err(CliError::user(format!(
                    "`{}` contains control characters",
                    given.escape_debug()
                )));
            }
            *field = Some(given.clone()).filter(|given| !given.is_empty());
        }
    }
    if let Some(account) = account {
        scheduler.account.clone_from(account);
    }
    if let Some(walltime) = walltime {
        scheduler.walltime.clone_from(walltime);
    }
    scheduler.nodes = nodes.unwrap_or(scheduler.nodes);
    scheduler.ntasks_per_node = ntasks_per_node.or(scheduler.ntasks_per_node);
    scheduler.serialize_allocations = serialize_allocations.unwrap_or(scheduler.serialize_allocations);
    Ok(scheduler)
}

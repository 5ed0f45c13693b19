//! `windlass slurm list`, `get`, `create`, `update`, `delete`: the schedulers that a workflow's allocations are made from.

use crate::args::allocations::{CreateSchedulerArgs, SchedulerSettings, UpdateSchedulerArgs};
use crate::args::jobs::NamedArgs;
use crate::args::workflows::ListOfWorkflowArgs;
use crate::commands::parts::print;
use crate::commands::relations;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use windlass_store::Store;
use windlass_store::model::{SchedulerRow, WorkflowRow};
use windlass_types::settings::SlurmScheduler;

const FIELDS: &[Field<SchedulerRow>] = &[
    Field::new("id", |s: &SchedulerRow| s.id.into()).column(Column::number("ID")),
    Field::new("name", |s: &SchedulerRow| (&s.scheduler.name).into()).column(Column::elastic("NAME")),
    Field::new("account", |s: &SchedulerRow| (&s.scheduler.account).into()).column(Column::text("ACCOUNT")),
    Field::new("partition", |s: &SchedulerRow| s.scheduler.partition.as_ref().into())
        .column(Column::text("PARTITION")),
    Field::new("qos", |s: &SchedulerRow| s.scheduler.qos.as_ref().into()),
    Field::new("nodes", |s: &SchedulerRow| s.scheduler.nodes.into()).column(Column::number("NODES")),
    Field::new("ntasks_per_node", |s: &SchedulerRow| s.scheduler.ntasks_per_node.into()),
    Field::new("walltime", |s: &SchedulerRow| (&s.scheduler.walltime).into())
        .column(Column::number("WALLTIME")),
    Field::new("mem", |s: &SchedulerRow| s.scheduler.mem.as_ref().into()).column(Column::number("MEMORY")),
    Field::new("gres", |s: &SchedulerRow| s.scheduler.gres.as_ref().into()).column(Column::text("GRES")),
    Field::new("tmp", |s: &SchedulerRow| s.scheduler.tmp.as_ref().into()),
    Field::new("extra", |s: &SchedulerRow| s.scheduler.extra.as_ref().into()),
    Field::new("serialize_allocations", |s: &SchedulerRow| s.scheduler.serialize_allocations.into()),
];

pub(crate) fn list(ctx: &Context, args: &ListOfWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    print(ctx, &workflow, Listing::new(FIELDS), store.schedulers(workflow.id)?, &args.page)
}

pub(crate) fn get(ctx: &Context, args: &NamedArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let (_, row) = find(&*store, args)?;
    ctx.ui.print_record(&Listing::new(FIELDS), row)?;
    Ok(Exit::Success)
}

pub(crate) fn create(ctx: &Context, args: &CreateSchedulerArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let scheduler = SlurmScheduler { name: args.name.clone(), ..SlurmScheduler::default() };
    let scheduler = changed(scheduler, &args.settings)?;
    let id = store.add_scheduler(workflow.id, &scheduler, ctx.clock.now())?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_record(&Listing::new(FIELDS), SchedulerRow { id, scheduler })?;
    } else {
        ctx.ui.print_line(&format!("scheduler {id}: {}", scheduler.name))?;
    }
    Ok(Exit::Success)
}

pub(crate) fn update(ctx: &Context, args: &UpdateSchedulerArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let (_, row) = find(&*store, &args.scheduler)?;
    let mut scheduler = changed(row.scheduler.clone(), &args.settings)?;
    if let Some(name) = &args.new_name {
        scheduler.name.clone_from(name);
    }
    if scheduler == row.scheduler {
        return Err(CliError::user("nothing was said that is to be otherwise")
            .with_hint("`windlass slurm update --help` lists what can be said"));
    }
    store.update_scheduler(row.id, &scheduler, ctx.clock.now())?;
    let id = row.id;
    if ctx.ui.json_wanted() {
        ctx.ui.print_record(&Listing::new(FIELDS), SchedulerRow { id, scheduler })?;
    } else {
        ctx.ui.note(&format!(
            "scheduler {id} ({}) is changed, for allocations that are asked for from now on",
            scheduler.name
        ));
    }
    Ok(Exit::Success)
}

pub(crate) fn delete(ctx: &Context, args: &NamedArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let (workflow, row) = find(&*store, args)?;
    store.delete_scheduler(row.id, ctx.clock.now())?;
    let whose = format!("workflow {} ({})", workflow.id, workflow.name);
    ctx.ui.note(&format!("{whose} has no scheduler {} ({}) any more", row.id, row.scheduler.name));
    Ok(Exit::Success)
}

/// The one that was named, or the only one.
pub(super) fn one_of(
    store: &dyn Store,
    workflow: &WorkflowRow,
    named: Option<&str>,
) -> Result<SchedulerRow, CliError> {
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
            .with_hint("`windlass slurm create` gives it one")),
        (None, Some(name)) => Err(CliError::user(format!("{whose} has no scheduler `{name}`"))
            .with_hint(format!("it has {}", names.join(", ")))),
        (None, None) => Err(CliError::user(format!("{whose} has several schedulers"))
            .with_hint(format!("--scheduler says which: {}", names.join(", ")))),
    }
}

fn find(store: &dyn Store, args: &NamedArgs) -> Result<(WorkflowRow, SchedulerRow), CliError> {
    let by_id = |id: i64| {
        for workflow in store.workflows()? {
            if let Some(row) = store.schedulers(workflow.id)?.into_iter().find(|row| row.id == id) {
                return Ok(Some((workflow.id, row)));
            }
        }
        Ok(None)
    };
    relations::named(store, args, by_id, |workflow| Ok(store.schedulers(workflow)?))
}

/// What was said in place of what was there; an empty text is nothing.
fn changed(mut scheduler: SlurmScheduler, said: &SchedulerSettings) -> Result<SlurmScheduler, CliError> {
    let SchedulerSettings { account, partition, qos, nodes, ntasks_per_node, .. } = said;
    let SchedulerSettings { walltime, mem, gres, tmp, extra, serialize_allocations, .. } = said;
    for (field, said) in [
        (&mut scheduler.partition, partition),
        (&mut scheduler.qos, qos),
        (&mut scheduler.mem, mem),
        (&mut scheduler.gres, gres),
        (&mut scheduler.tmp, tmp),
        (&mut scheduler.extra, extra),
    ] {
        if let Some(said) = said {
            if said.chars().any(char::is_control) {
                return Err(CliError::user(format!("`{}` has control characters", said.escape_debug())));
            }
            *field = Some(said.clone()).filter(|said| !said.is_empty());
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

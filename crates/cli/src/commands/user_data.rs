//! `windlass user-data`: values that jobs pass on.

use super::relations::{self, Relation};
use crate::args::WorkflowRef;
use crate::args::data::{
    CreateUserDataArgs, DeleteUserDataArgs, UpdateUserDataArgs, UserDataListArgs, UserDataVerb,
};
use crate::args::jobs::NamedArgs;
use crate::args::page::PageArgs;
use crate::args::workflows::ListOfWorkflowArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::table::Column;
use crate::ui::text;
use serde_json::Value;
use std::io::Read as _;
use windlass_store::Store;
use windlass_store::model::{DataFilter, JobUserDataRow, NewUserData, UserDataRow, WorkflowRow};
use windlass_types::{JobId, UserDataId};

const FIELDS: &[Field<UserDataRow>] = &[
    Field::new("id", |d: &UserDataRow| d.id.0.into()).column(Column::number("ID")),
    Field::new("workflow_id", |d: &UserDataRow| d.workflow_id.0.into()),
    Field::new("name", |d: &UserDataRow| (&d.name).into()).column(Column::elastic("NAME")),
    Field::new("is_ephemeral", |d: &UserDataRow| d.is_ephemeral.into()).column(Column::text("EPHEMERAL")),
    Field::new("changed_at", |d: &UserDataRow| d.changed_at.into()).column(Column::text("CHANGED")),
    Field::new("data", |d: &UserDataRow| d.data.clone().map_or(Datum::Nothing, Datum::Json))
        .column(Column::elastic("DATA")),
];

pub(crate) fn run(ctx: &Context, verb: &UserDataVerb) -> Result<Exit, CliError> {
    match verb {
        UserDataVerb::List(args) => list(ctx, args),
        UserDataVerb::Get(args) => get(ctx, args),
        UserDataVerb::Update(args) => update(ctx, args),
        UserDataVerb::Create(args) => create(ctx, args),
        UserDataVerb::Delete(args) => delete(ctx, args),
        UserDataVerb::ListMissing(args) => list_missing(ctx, args),
    }
}

pub(crate) fn list(ctx: &Context, args: &UserDataListArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let find = |job: &crate::args::JobRef| {
        select::job(&*store, &workflow, job, "`windlass user-data ID`").map(|j| j.id)
    };
    let consumer = args.consumer_job_id.as_ref().map(find).transpose()?;
    let producer = args.producer_job_id.as_ref().map(find).transpose()?;
    let filter = DataFilter { name: args.name.clone(), ..DataFilter::default() };
    let mut rows = store.user_data(workflow.id, &filter)?;
    rows.retain(|row| args.is_ephemeral.is_none_or(|wanted| row.is_ephemeral == wanted));
    if consumer.is_some() || producer.is_some() {
        let relations = store.job_user_data(workflow.id)?;
        let uses = |job: Option<JobId>, is_output: bool, id: UserDataId| {
            let fits = |r: &JobUserDataRow| {
                Some(r.job_id) == job && r.is_output == is_output && r.user_data_id == id
            };
            job.is_none() || relations.iter().any(fits)
        };
        rows.retain(|row| uses(consumer, false, row.id) && uses(producer, true, row.id));
    }
    print(ctx, &workflow, rows, &args.page)
}

fn get(ctx: &Context, args: &NamedArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let (_, piece) = find(&*store, &args.name, &args.workflow)?;
    ctx.ui.print_record(&Listing::new(FIELDS), piece)?;
    Ok(Exit::Success)
}

/// What jobs read, no job writes, and nobody gave yet.
fn list_missing(ctx: &Context, args: &ListOfWorkflowArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let relations = store.job_user_data(workflow.id)?;
    let wanted = relations::read_and_never_written(
        relations.iter().map(|r| Relation { is_output: r.is_output, thing: r.user_data_id }),
    );
    let mut rows = store.user_data(workflow.id, &DataFilter::default())?;
    rows.retain(|row| row.data.is_none() && wanted.contains(&row.id));
    print(ctx, &workflow, rows, &args.page)
}

fn print(
    ctx: &Context,
    workflow: &WorkflowRow,
    rows: Vec<UserDataRow>,
    page: &PageArgs,
) -> Result<Exit, CliError> {
    let listing = Listing::new(FIELDS).without(&page.exclude)?;
    if ctx.ui.print_list(&listing, listing.arrange(rows, page)?)? == 0 {
        ctx.ui.note(&format!("workflow {} ({}) has no such user data", workflow.id, workflow.name));
    }
    Ok(Exit::Success)
}

fn update(ctx: &Context, args: &UpdateUserDataArgs) -> Result<Exit, CliError> {
    let data = args.data.as_deref().map(|text| value(ctx, text)).transpose()?;
    let store = ctx.open_write()?;
    let (_, piece) = find(&*store, &args.name, &args.workflow)?;
    let shown = |data: Option<&Value>| data.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let change =
        format!("user data `{}`: {} → {}", piece.name, shown(piece.data.as_ref()), shown(data.as_ref()));
    if args.dry_run {
        ctx.ui.note(&format!("would change {change}"));
    } else {
        store.set_user_data(piece.id, data.as_ref(), ctx.clock.now())?;
        ctx.ui.note(&format!("changed {change}"));
    }
    if ctx.ui.json_wanted() {
        let now = store.user_data_piece(piece.id)?.unwrap_or(piece);
        ctx.ui.print_record(&Listing::new(FIELDS), now)?;
    }
    Ok(Exit::Success)
}

fn create(ctx: &Context, args: &CreateUserDataArgs) -> Result<Exit, CliError> {
    let data = args.data.as_deref().map(|text| value(ctx, text)).transpose()?;
    let store = ctx.open_write()?;
    let workflow = select::workflow(&*store, &args.workflow)?;
    let new = NewUserData { name: &args.name, data: data.as_ref(), is_ephemeral: args.ephemeral };
    let id = store.add_user_data(workflow.id, &new, ctx.clock.now())?;
    let piece = store.user_data_piece(id)?;
    match piece {
        Some(piece) if ctx.ui.json_wanted() => ctx.ui.print_record(&Listing::new(FIELDS), piece)?,
        _ => ctx.ui.print_line(&format!("user data {id}: {}", args.name))?,
    }
    Ok(Exit::Success)
}

fn delete(ctx: &Context, args: &DeleteUserDataArgs) -> Result<Exit, CliError> {
    let store = ctx.open_write()?;
    let pieces: Vec<UserDataRow> = args
        .names
        .iter()
        .map(|name| find(&*store, name, &args.workflow).map(|(_, piece)| piece))
        .collect::<Result<_, _>>()?;
    let names = pieces.iter().map(|piece| format!("`{}`", piece.name)).collect::<Vec<_>>().join(", ");
    if args.confirm.dry_run {
        ctx.ui.note(&format!("would delete the user data {names}"));
        return Ok(Exit::Success);
    }
    ctx.ui.confirm(&format!("delete the user data {names}"), args.confirm)?;
    for piece in &pieces {
        store.delete_user_data(piece.id, ctx.clock.now())?;
    }
    ctx.ui.note(&format!("deleted {}", text::count(pieces.len() as u64, "piece")));
    Ok(Exit::Success)
}

fn find(
    store: &dyn Store,
    name: &str,
    workflow: &WorkflowRef,
) -> Result<(WorkflowRow, UserDataRow), CliError> {
    let args = NamedArgs { name: name.to_owned(), workflow: workflow.clone() };
    let by_id = |id| Ok(store.user_data_piece(UserDataId(id))?.map(|piece| (piece.workflow_id, piece)));
    relations::named(store, &args, by_id, |workflow| Ok(store.user_data(workflow, &DataFilter::default())?))
}

/// The value that was given: JSON, `@FILE`, or `-` for stdin.
fn value(ctx: &Context, text: &str) -> Result<Value, CliError> {
    let (text, place) = match text.strip_prefix('@') {
        Some(file) => {
            let read = std::fs::read_to_string(ctx.cwd.join(file));
            (read.map_err(|e| CliError::user(format!("cannot read {file}: {e}")))?, file)
        }
        None if text == "-" => {
            let mut read = String::new();
            let done = std::io::stdin().lock().read_to_string(&mut read);
            done.map_err(|e| CliError::user(format!("cannot read the value from stdin: {e}")))?;
            (read, "stdin")
        }
        None => (text.to_owned(), "--data"),
    };
    serde_json::from_str(&text).map_err(|e| {
        CliError::user(format!("{place} is not JSON: {e}"))
            .with_hint("a text needs quotes of its own: '\"text\"'")
    })
}

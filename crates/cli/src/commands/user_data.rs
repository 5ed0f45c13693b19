//! `windlass jobs user-data`: values that jobs read and write.

use super::job_relations::{self, JobObjectAccess};
use crate::args::WorkflowRef;
use crate::args::files_and_events::{
    CreateUserDataArgs, DeleteUserDataArgs, UpdateUserDataArgs, UserDataListArgs, UserDataSubcommand,
};
use crate::args::jobs::NamedObjectArgs;
use crate::args::list_options::ListPageArgs;
use crate::args::workflows::ListInWorkflowArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::table::TableColumn;
use crate::ui::text;
use serde_json::Value;
use std::io::Read as _;
use windlass_store::Store;
use windlass_store::model::{DataFilter, JobUserDataRow, NewUserData, UserDataRow, WorkflowRow};
use windlass_types::{JobId, UserDataId};

const FIELDS: &[ListField<UserDataRow>] = &[
    ListField::new("id", |d: &UserDataRow| d.id.0.into()).column(TableColumn::number("ID")),
    ListField::new("workflow_id", |d: &UserDataRow| d.workflow_id.0.into()),
    ListField::new("name", |d: &UserDataRow| (&d.name).into()).column(TableColumn::flexible("NAME")),
    ListField::new("is_ephemeral", |d: &UserDataRow| d.is_ephemeral.into())
        .column(TableColumn::text("EPHEMERAL")),
    ListField::new("changed_at", |d: &UserDataRow| d.changed_at.into()).column(TableColumn::text("CHANGED")),
    ListField::new("data", |d: &UserDataRow| d.data.clone().map_or(FieldValue::Empty, FieldValue::Json))
        .column(TableColumn::flexible("DATA")),
];

pub(crate) fn run(ctx: &CliContext, verb: &UserDataSubcommand) -> Result<CliExit, CliError> {
    match verb {
        UserDataSubcommand::List(args) => list_user_data(ctx, args),
        UserDataSubcommand::Get(args) => show_user_data(ctx, args),
        UserDataSubcommand::Update(args) => update_user_data(ctx, args),
        UserDataSubcommand::Create(args) => create_user_data(ctx, args),
        UserDataSubcommand::Delete(args) => delete_user_data(ctx, args),
        UserDataSubcommand::ListMissing(args) => list_missing_user_data(ctx, args),
    }
}

pub(crate) fn list_user_data(ctx: &CliContext, args: &UserDataListArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let find = |job: &crate::args::JobRef| {
        object_selection::find_job(&*store, &workflow, job, "`windlass jobs user-data ID`").map(|j| j.id)
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
    print_user_data(ctx, &workflow, rows, &args.page)
}

fn show_user_data(ctx: &CliContext, args: &NamedObjectArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let (_, piece) = find_user_data(&*store, &args.name, &args.workflow)?;
    ctx.ui.print_record(&ListFields::new(FIELDS), piece)?;
    Ok(CliExit::Success)
}

/// User data that jobs read, no job writes, and that have no value yet.
fn list_missing_user_data(ctx: &CliContext, args: &ListInWorkflowArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let relations = store.job_user_data(workflow.id)?;
    let wanted = job_relations::required_inputs(
        relations.iter().map(|r| JobObjectAccess { is_output: r.is_output, object: r.user_data_id }),
    );
    let mut rows = store.user_data(workflow.id, &DataFilter::default())?;
    rows.retain(|row| row.data.is_none() && wanted.contains(&row.id));
    print_user_data(ctx, &workflow, rows, &args.page)
}

fn print_user_data(
    ctx: &CliContext,
    workflow: &WorkflowRow,
    rows: Vec<UserDataRow>,
    page: &ListPageArgs,
) -> Result<CliExit, CliError> {
    let listing = ListFields::new(FIELDS).without_fields(&page.exclude)?;
    if ctx.ui.print_list(&listing, listing.sort_and_limit(rows, page)?)? == 0 {
        ctx.ui.print_note(&format!("workflow {} ({}) has no matching user data", workflow.id, workflow.name));
    }
    Ok(CliExit::Success)
}

fn update_user_data(ctx: &CliContext, args: &UpdateUserDataArgs) -> Result<CliExit, CliError> {
    let data = args.data.as_deref().map(|text| parse_value(ctx, text)).transpose()?;
    let store = ctx.open_write()?;
    let (_, piece) = find_user_data(&*store, &args.name, &args.workflow)?;
    let shown = |data: Option<&Value>| data.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let change =
        format!("user data `{}`: {} → {}", piece.name, shown(piece.data.as_ref()), shown(data.as_ref()));
    if args.dry_run {
        ctx.ui.print_note(&format!("would change {change}"));
    } else {
        store.set_user_data(piece.id, data.as_ref(), ctx.clock.now())?;
        ctx.ui.print_note(&format!("changed {change}"));
    }
    if ctx.ui.wants_json() {
        let now = store.find_user_data(piece.id)?.unwrap_or(piece);
        ctx.ui.print_record(&ListFields::new(FIELDS), now)?;
    }
    Ok(CliExit::Success)
}

fn create_user_data(ctx: &CliContext, args: &CreateUserDataArgs) -> Result<CliExit, CliError> {
    let data = args.data.as_deref().map(|text| parse_value(ctx, text)).transpose()?;
    let store = ctx.open_write()?;
    let workflow = object_selection::find_workflow(&*store, &args.workflow)?;
    let new = NewUserData { name: &args.name, data: data.as_ref(), is_ephemeral: args.ephemeral };
    let id = store.add_user_data(workflow.id, &new, ctx.clock.now())?;
    let piece = store.find_user_data(id)?;
    match piece {
        Some(piece) if ctx.ui.wants_json() => ctx.ui.print_record(&ListFields::new(FIELDS), piece)?,
        _ => ctx.ui.print_line(&format!("user data {id}: {}", args.name))?,
    }
    Ok(CliExit::Success)
}

fn delete_user_data(ctx: &CliContext, args: &DeleteUserDataArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_write()?;
    let pieces: Vec<UserDataRow> = args
        .names
        .iter()
        .map(|name| find_user_data(&*store, name, &args.workflow).map(|(_, piece)| piece))
        .collect::<Result<_, _>>()?;
    let names = pieces.iter().map(|piece| format!("`{}`", piece.name)).collect::<Vec<_>>().join(", ");
    if args.confirm.dry_run {
        ctx.ui.print_note(&format!("would delete the user data {names}"));
        return Ok(CliExit::Success);
    }
    ctx.ui.confirm(&format!("delete the user data {names}"), args.confirm)?;
    for piece in &pieces {
        store.delete_user_data(piece.id, ctx.clock.now())?;
    }
    ctx.ui.print_note(&format!("deleted {}", text::render_count(pieces.len() as u64, "piece")));
    Ok(CliExit::Success)
}

fn find_user_data(
    store: &dyn Store,
    name: &str,
    workflow: &WorkflowRef,
) -> Result<(WorkflowRow, UserDataRow), CliError> {
    let args = NamedObjectArgs { name: name.to_owned(), workflow: workflow.clone() };
    let by_id = |id| Ok(store.find_user_data(UserDataId(id))?.map(|piece| (piece.workflow_id, piece)));
    job_relations::find_named(store, &args, by_id, |workflow| {
        Ok(store.user_data(workflow, &DataFilter::default())?)
    })
}

/// The given value: JSON, `@FILE`, or `-` for stdin.
fn parse_value(ctx: &CliContext, text: &str) -> Result<Value, CliError> {
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
            .with_hint("a text needs its own quotes: '\"text\"'")
    })
}

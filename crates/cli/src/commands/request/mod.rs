//! `windlass request`: datasets to be made, from their documents to their outputs.

mod campaign;
mod documents;
mod errors;
mod fields;
mod files;
mod import;
mod metrics;
pub(super) mod operator;
mod plan;
mod programs;
mod recovery;
mod run;
mod watch;

use crate::args::request::{
    CancelArgs, ListArgs, OneArgs, Order, PriorityArgs, RequestArgs, RequestVerb, StopArgs, SubmitArgs,
};
use crate::context::Context;
use crate::desk::Desk;
use crate::error::{CliError, Exit};
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use crate::ui::text;
use windlass_api::requests::{PatchRequest, Submitted, Version};
use windlass_client::RequestQuery;
use windlass_types::requests::RequestStatus;

pub(crate) use campaign::demo;

pub(crate) fn run(ctx: &Context, args: &RequestArgs) -> Result<Exit, CliError> {
    match &args.verb {
        None => list(ctx, &args.list),
        Some(RequestVerb::List(args)) => list(ctx, args),
        Some(RequestVerb::Submit(args)) => submit(ctx, args),
        Some(RequestVerb::Import(args)) => import::run(ctx, args),
        Some(RequestVerb::Run(args)) => run::run(ctx, args),
        Some(RequestVerb::Show(args)) => fields::show(ctx, &args.name),
        Some(RequestVerb::Plan(args)) => plan::run(ctx, args),
        Some(RequestVerb::Metrics(args)) => metrics::run(ctx, args),
        Some(RequestVerb::Watch(args)) => watch::run(ctx, args),
        Some(RequestVerb::Stop(args)) => stop(ctx, args),
        Some(RequestVerb::Errors(args)) => errors::run(ctx, args),
        Some(RequestVerb::Release(args)) => operator::release(ctx, args),
        Some(RequestVerb::Fail(args)) => operator::fail(ctx, args),
        Some(RequestVerb::Restart(args)) => operator::restart(ctx, args),
        Some(RequestVerb::Invalidate(args)) => operator::invalidate(ctx, args),
        Some(RequestVerb::Alerts(args)) => operator::alerts(ctx, args),
        Some(RequestVerb::Cancel(args)) => cancel(ctx, args),
        Some(RequestVerb::Priority(args)) => priority(ctx, args),
        Some(RequestVerb::Versions(args)) => versions(ctx, args),
        Some(RequestVerb::Files(args)) => files::run(ctx, args),
    }
}

fn submit(ctx: &Context, args: &SubmitArgs) -> Result<Exit, CliError> {
    let steps = documents::steps(&args.steps)?;
    let wanted = documents::load(ctx, &args.files, &[], &steps)?;
    if args.dry_run {
        for one in &wanted {
            documents::refuse_foreign(&one.request)?;
            ctx.ui.note(&format!("{} is all right", one.request.request_name));
        }
        if ctx.ui.json_wanted() {
            let requests: Vec<_> = wanted.iter().map(|one| &one.request).collect();
            ctx.ui.print_json(&requests)?;
        }
        return Ok(Exit::Success);
    }
    let desk = ctx.desk()?;
    let mut submitted = Vec::new();
    for one in &wanted {
        submitted.push(desk.submit(&one.document)?);
    }
    if ctx.ui.json_wanted() && !args.watch {
        ctx.ui.print_json(&submitted)?;
    }
    tell_submitted(ctx, &desk, &submitted);
    if args.watch {
        let names: Vec<String> = submitted.into_iter().map(|one| one.request_name).collect();
        return watch::follow(ctx, &desk, &names, None, None);
    }
    Ok(Exit::Success)
}

fn tell_submitted(ctx: &Context, desk: &Desk, submitted: &[Submitted]) {
    for one in submitted {
        ctx.ui.note(&match one.status {
            RequestStatus::Submitted => format!("{} is submitted", one.request_name),
            status => format!("{} was submitted before; it is {status}", one.request_name),
        });
    }
    if desk.is_unattended() {
        ctx.ui.note(
            "no server has this database now: `windlass serve` or `windlass request run` carries requests out",
        );
    }
}

fn list(ctx: &Context, args: &ListArgs) -> Result<Exit, CliError> {
    let open = || RequestStatus::ALL.iter().copied().filter(|status| !status.is_terminal()).collect();
    let query = RequestQuery {
        status: if args.open { open() } else { args.status.clone() },
        campaign: args.campaign.clone(),
        requestor: args.requestor.clone(),
        name: args.name.clone(),
        sort_by: args.sort_by.map(|order| match order {
            Order::Name => "request_name",
            Order::Status => "status",
            Order::Priority => "priority",
            Order::Campaign => "campaign",
            Order::Created => "created_at",
            Order::Updated => "updated_at",
        }),
        reverse: args.reverse_sort,
        offset: args.offset,
        limit: Some(args.limit),
    };
    let found = ctx.desk_to_read()?.requests(&query)?;
    let (shown, total) = (found.items.len() as u64, found.total);
    if shown == 0 {
        ctx.ui.note("there are no such requests");
    }
    ctx.ui.print_list(&Listing::new(fields::LINES), found.items)?;
    if shown > 0 && args.offset + shown < total {
        ctx.ui.note(&format!("{shown} of {total}; --limit and --offset show others"));
    }
    Ok(Exit::Success)
}

/// A request that is not there may be called otherwise.
pub(super) fn known<T>(desk: &Desk, name: &str, answer: Result<T, CliError>) -> Result<T, CliError> {
    answer.map_err(|error| {
        if !error.message.starts_with("there is no request") {
            return error;
        }
        let query = RequestQuery { limit: Some(10_000), ..RequestQuery::default() };
        let Ok(all) = desk.requests(&query) else { return error };
        match windlass_spec::nearest(name, all.items.iter().map(|one| one.request_name.as_str())) {
            Some(near) => error.with_hint(format!("did you mean `{near}`?")),
            None => error.with_hint("`windlass request list` shows those that there are"),
        }
    })
}

fn stop(ctx: &Context, args: &StopArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk()?;
    let name = &args.which.name;
    let stopped = known(&desk, name, desk.stop(name, &args.which.reason))?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&stopped)?;
    }
    ctx.ui.note(&format!("{name}: {}", stopped.message));
    if args.wait {
        watch::until(ctx, &desk, name, |status| {
            !matches!(status, RequestStatus::Active | RequestStatus::Planning | RequestStatus::Stopping)
        })?;
    }
    Ok(Exit::Success)
}

fn cancel(ctx: &Context, args: &CancelArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk()?;
    let name = &args.which.name;
    let before = known(&desk, name, desk.request(name))?;
    let what = format!("end request {name}, which is {}", before.status);
    if args.confirm.dry_run {
        ctx.ui.note(&format!("would {what}"));
        return Ok(Exit::Success);
    }
    ctx.ui.confirm(&what, args.confirm)?;
    let aborted = desk.abort(name, &args.which.reason)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&aborted)?;
    }
    ctx.ui.note(&format!("{name}: {}", aborted.message));
    Ok(Exit::Success)
}

fn priority(ctx: &Context, args: &PriorityArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk()?;
    let patch = PatchRequest { priority: Some(args.priority), ..PatchRequest::default() };
    let shown = known(&desk, &args.name, desk.patch(&args.name, &patch))?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&shown)?;
    }
    ctx.ui.note(&format!("{} has priority {}", args.name, shown.request.priority));
    Ok(Exit::Success)
}

const VERSIONS: &[Field<Version>] = &[
    Field::new("request_name", |v: &Version| (&v.request_name).into()).column(Column::elastic("REQUEST")),
    Field::new("processing_version", |v: &Version| v.processing_version.into())
        .column(Column::number("VERSION")),
    Field::new("status", |v: &Version| fields::status(v.status)).column(Column::text("STATUS")),
    Field::new("superseded_by", |v: &Version| v.superseded_by.clone().into())
        .column(Column::text("SUPERSEDED BY")),
    Field::new("failure_reason", |v: &Version| v.failure_reason.clone().into())
        .column(Column::elastic("REASON")),
];

fn versions(ctx: &Context, args: &OneArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk_to_read()?;
    let versions = known(&desk, &args.name, desk.versions(&args.name))?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&versions)?;
        return Ok(Exit::Success);
    }
    let rows: Vec<Version> = versions.versions.into_iter().chain([versions.current]).collect();
    ctx.ui.note(&text::count(rows.len() as u64, "version"));
    ctx.ui.print_list(&Listing::new(VERSIONS), rows)?;
    Ok(Exit::Success)
}

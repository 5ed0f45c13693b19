//! `windlass request`: requests for datasets, from their documents to their outputs.

mod demo_campaign;
mod documents;
mod errors;
mod fields;
mod files;
mod import;
mod metrics;
pub(super) mod operations;
mod plan;
mod programs;
mod recovery;
mod run;
mod watch;

use crate::args::request::{
    OneRequestArgs, RequestArgs, RequestCancelArgs, RequestListArgs, RequestOrderArg, RequestPriorityArgs,
    RequestStopArgs, RequestSubcommand, RequestSubmitArgs,
};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_requests::RequestService;
use crate::ui::listing::{ListField, ListFields};
use crate::ui::table::TableColumn;
use crate::ui::text;
use windlass_api::requests::{PatchRequest, RequestVersion, SubmitResponse};
use windlass_client::RequestListOptions;
use windlass_types::requests::RequestStatus;

pub(crate) use demo_campaign::run_demo;

pub(crate) fn run(ctx: &CliContext, args: &RequestArgs) -> Result<CliExit, CliError> {
    match &args.verb {
        None => list_requests(ctx, &args.list),
        Some(RequestSubcommand::List(args)) => list_requests(ctx, args),
        Some(RequestSubcommand::Submit(args)) => submit_requests(ctx, args),
        Some(RequestSubcommand::Import(args)) => import::run(ctx, args),
        Some(RequestSubcommand::Run(args)) => run::run(ctx, args),
        Some(RequestSubcommand::Show(args)) => fields::show_request(ctx, &args.name),
        Some(RequestSubcommand::Plan(args)) => plan::run(ctx, args),
        Some(RequestSubcommand::Metrics(args)) => metrics::run(ctx, args),
        Some(RequestSubcommand::Watch(args)) => watch::run(ctx, args),
        Some(RequestSubcommand::Stop(args)) => stop_request(ctx, args),
        Some(RequestSubcommand::Errors(args)) => errors::run(ctx, args),
        Some(RequestSubcommand::Release(args)) => operations::release_request(ctx, args),
        Some(RequestSubcommand::Fail(args)) => operations::fail_request(ctx, args),
        Some(RequestSubcommand::Restart(args)) => operations::restart_request(ctx, args),
        Some(RequestSubcommand::Invalidate(args)) => operations::invalidate_request(ctx, args),
        Some(RequestSubcommand::Alerts(args)) => operations::list_alerts(ctx, args),
        Some(RequestSubcommand::Cancel(args)) => cancel_request(ctx, args),
        Some(RequestSubcommand::Priority(args)) => set_priority(ctx, args),
        Some(RequestSubcommand::Versions(args)) => list_versions(ctx, args),
        Some(RequestSubcommand::Files(args)) => files::run(ctx, args),
        Some(RequestSubcommand::Dag(args)) => super::dag::run(ctx, args),
        Some(RequestSubcommand::Admission(args)) => super::site::dispatch_admission(ctx, args),
    }
}

fn submit_requests(ctx: &CliContext, args: &RequestSubmitArgs) -> Result<CliExit, CliError> {
    let steps = documents::parse_steps(&args.steps)?;
    let wanted = documents::load_documents(ctx, &args.files, &[], &steps)?;
    if args.dry_run {
        documents::check_submission(plan::open_request_service(ctx)?.as_ref(), &wanted)?;
        for one in &wanted {
            ctx.ui.print_note(&format!("{} is valid", one.request.request_name));
        }
        if ctx.ui.wants_json() {
            let requests: Vec<_> = wanted.iter().map(|one| &one.request).collect();
            ctx.ui.print_json(&requests)?;
        }
        return Ok(CliExit::Success);
    }
    let request_service = ctx.request_service()?;
    let mut submitted = Vec::new();
    for one in &wanted {
        submitted.push(request_service.submit(&one.document)?);
    }
    if ctx.ui.wants_json() && !args.watch {
        ctx.ui.print_json(&submitted)?;
    }
    print_submitted(ctx, &request_service, &submitted);
    if args.watch {
        let names: Vec<String> = submitted.into_iter().map(|one| one.request_name).collect();
        return watch::follow_requests(ctx, &request_service, &names, None, None);
    }
    Ok(CliExit::Success)
}

fn print_submitted(ctx: &CliContext, request_service: &RequestService, submitted: &[SubmitResponse]) {
    for one in submitted {
        ctx.ui.print_note(&match one.status {
            RequestStatus::Submitted => format!("{} is submitted", one.request_name),
            status => format!("{} is already submitted; it is {status}", one.request_name),
        });
    }
    if request_service.has_no_server() {
        ctx.ui.print_note(
            "no server is using this database: start `windlass serve` or `windlass request run` to process requests",
        );
    }
}

fn list_requests(ctx: &CliContext, args: &RequestListArgs) -> Result<CliExit, CliError> {
    let open = || RequestStatus::ALL.iter().copied().filter(|status| !status.is_terminal()).collect();
    let query = RequestListOptions {
        status: if args.open { open() } else { args.status.clone() },
        campaign: args.campaign.clone(),
        requestor: args.requestor.clone(),
        name: args.name.clone(),
        sort_by: args.sort_by.map(|order| match order {
            RequestOrderArg::Name => "request_name",
            RequestOrderArg::Status => "status",
            RequestOrderArg::Priority => "priority",
            RequestOrderArg::Campaign => "campaign",
            RequestOrderArg::Created => "created_at",
            RequestOrderArg::Updated => "updated_at",
        }),
        reverse: args.reverse_sort,
        offset: args.offset,
        limit: Some(args.limit),
    };
    let found = ctx.request_service_read()?.list_requests(&query)?;
    let (shown, total) = (found.items.len() as u64, found.total);
    if shown == 0 {
        ctx.ui.print_note("no requests match");
    }
    ctx.ui.print_list(&ListFields::new(fields::REQUEST_LIST_FIELDS), found.items)?;
    if shown > 0 && args.offset + shown < total {
        ctx.ui.print_note(&format!("{shown} of {total}; use --limit and --offset for others"));
    }
    Ok(CliExit::Success)
}

/// Suggests a similar name for an unknown request.
pub(super) fn suggest_request<T>(
    request_service: &RequestService,
    name: &str,
    answer: Result<T, CliError>,
) -> Result<T, CliError> {
    answer.map_err(|error| {
        if !error.message.starts_with("there is no request") {
            return error;
        }
        let query = RequestListOptions { limit: Some(10_000), ..RequestListOptions::default() };
        let Ok(all) = request_service.list_requests(&query) else { return error };
        match windlass_spec::nearest_name(name, all.items.iter().map(|one| one.request_name.as_str())) {
            Some(near) => error.with_hint(format!("did you mean `{near}`?")),
            None => error.with_hint("`windlass request list` lists the requests"),
        }
    })
}

fn stop_request(ctx: &CliContext, args: &RequestStopArgs) -> Result<CliExit, CliError> {
    let request_service = ctx.request_service()?;
    let name = &args.request.name;
    let stopped =
        suggest_request(&request_service, name, request_service.stop_request(name, &args.request.reason))?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&stopped)?;
    }
    ctx.ui.print_note(&format!("{name}: {}", stopped.message));
    if args.wait {
        watch::wait_for_status(ctx, &request_service, name, |status| {
            !matches!(status, RequestStatus::Active | RequestStatus::Planning | RequestStatus::Stopping)
        })?;
    }
    Ok(CliExit::Success)
}

fn cancel_request(ctx: &CliContext, args: &RequestCancelArgs) -> Result<CliExit, CliError> {
    let request_service = ctx.request_service()?;
    let name = &args.request.name;
    let before = suggest_request(&request_service, name, request_service.get_request(name))?;
    let what = format!("cancel request {name}, which is {}", before.status);
    if args.confirm.dry_run {
        ctx.ui.print_note(&format!("would {what}"));
        return Ok(CliExit::Success);
    }
    ctx.ui.confirm(&what, args.confirm)?;
    let aborted = request_service.abort_request(name, &args.request.reason)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&aborted)?;
    }
    ctx.ui.print_note(&format!("{name}: {}", aborted.message));
    Ok(CliExit::Success)
}

fn set_priority(ctx: &CliContext, args: &RequestPriorityArgs) -> Result<CliExit, CliError> {
    let request_service = ctx.request_service()?;
    let patch = PatchRequest { priority: Some(args.priority), ..PatchRequest::default() };
    let shown =
        suggest_request(&request_service, &args.name, request_service.patch_request(&args.name, &patch))?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&shown)?;
    }
    ctx.ui.print_note(&format!("{} has priority {}", args.name, shown.request.priority));
    Ok(CliExit::Success)
}

const VERSION_FIELDS: &[ListField<RequestVersion>] = &[
    ListField::new("request_name", |v: &RequestVersion| (&v.request_name).into())
        .column(TableColumn::flexible("REQUEST")),
    ListField::new("processing_version", |v: &RequestVersion| v.processing_version.into())
        .column(TableColumn::number("VERSION")),
    ListField::new("status", |v: &RequestVersion| fields::status_value(v.status))
        .column(TableColumn::text("STATUS")),
    ListField::new("superseded_by", |v: &RequestVersion| v.superseded_by.clone().into())
        .column(TableColumn::text("SUPERSEDED BY")),
    ListField::new("failure_reason", |v: &RequestVersion| v.failure_reason.clone().into())
        .column(TableColumn::flexible("REASON")),
];

fn list_versions(ctx: &CliContext, args: &OneRequestArgs) -> Result<CliExit, CliError> {
    let request_service = ctx.request_service_read()?;
    let versions =
        suggest_request(&request_service, &args.name, request_service.request_versions(&args.name))?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&versions)?;
        return Ok(CliExit::Success);
    }
    let rows: Vec<RequestVersion> = versions.versions.into_iter().chain([versions.current]).collect();
    ctx.ui.print_note(&text::render_count(rows.len() as u64, "version"));
    ctx.ui.print_list(&ListFields::new(VERSION_FIELDS), rows)?;
    Ok(CliExit::Success)
}

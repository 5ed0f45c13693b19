//! `windlass site`: sites where work units run; and `windlass request admission`: the limit of active requests.

use crate::args::site::{
    AdmissionArgs, AdmissionSetArgs, AdmissionSubcommand, SiteArgs, SiteBanArgs, SiteBansArgs, SiteDrainArgs,
    SiteSetArgs, SiteSubcommand, SiteUnbanArgs,
};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_requests::RequestService;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::style::TextTone;
use crate::ui::table::TableColumn;
use crate::ui::text;
use serde_json::json;
use windlass_api::requests::{
    AdmissionConfig, BanResponse, BanSite, DrainSite, NextInQueue, PatchSite, SiteResponse,
};
use windlass_types::requests::SiteStatus;

const FIELDS: &[ListField<SiteResponse>] = &[
    ListField::new("name", |s: &SiteResponse| (&s.name).into()).column(TableColumn::text("SITE")),
    ListField::new("status", |s: &SiteResponse| {
        FieldValue::Word(s.status.name(), Some(status_tone(s.status)))
    })
    .column(TableColumn::text("STATUS")),
    ListField::new("total_slots", |s: &SiteResponse| s.total_slots.into())
        .column(TableColumn::number("SLOTS")),
    ListField::new("running_slots", |s: &SiteResponse| s.running_slots.into())
        .column(TableColumn::number("RUNNING")),
    ListField::new("pending_slots", |s: &SiteResponse| s.pending_slots.into())
        .column(TableColumn::number("PENDING")),
    ListField::new("drain_until", |s: &SiteResponse| s.drain_until.into()),
    ListField::table_only(TableColumn::flexible("BANNED"), ban_summary),
    ListField::new("bans", |s: &SiteResponse| FieldValue::Json(json!(s.bans))),
    ListField::new("storage_path", |s: &SiteResponse| s.storage_path.clone().into())
        .column(TableColumn::text("STORAGE")),
    ListField::new("storage_element", |s: &SiteResponse| s.storage_element.clone().into()),
    ListField::new("schedd_name", |s: &SiteResponse| s.schedd_name.clone().into()),
    ListField::new("collector_host", |s: &SiteResponse| s.collector_host.clone().into()),
    ListField::new("thresholds", |s: &SiteResponse| FieldValue::Json(json!(s.thresholds))),
    ListField::new("updated_at", |s: &SiteResponse| s.updated_at.into()),
];

const fn status_tone(status: SiteStatus) -> TextTone {
    match status {
        SiteStatus::Enabled => TextTone::Good,
        SiteStatus::Draining | SiteStatus::Maintenance => TextTone::Warn,
        SiteStatus::Disabled => TextTone::Bad,
    }
}

/// The first ban, as text.
fn ban_summary(site: &SiteResponse) -> FieldValue {
    let Some(ban) = site.bans.first() else { return "".into() };
    let for_request = ban.request_name.as_ref().map(|name| format!("for {name} ")).unwrap_or_default();
    let more = if site.bans.len() > 1 { format!(" (+{})", site.bans.len() - 1) } else { String::new() };
    format!("{for_request}until {}: {}{more}", text::render_time(ban.expires_at), ban.reason).into()
}

pub(crate) fn run(ctx: &CliContext, args: &SiteArgs) -> Result<CliExit, CliError> {
    match &args.verb {
        None | Some(SiteSubcommand::List) => list_sites(ctx),
        Some(SiteSubcommand::Show(args)) => {
            let requests = ctx.request_service_read()?;
            let site = suggest_site(&requests, &args.name, requests.get_site(&args.name))?;
            ctx.ui.print_record(&ListFields::new(FIELDS), site)?;
            Ok(CliExit::Success)
        }
        Some(SiteSubcommand::Drain(args)) => drain_site(ctx, args),
        Some(SiteSubcommand::Enable(args)) => {
            let requests = ctx.request_service()?;
            let site = suggest_site(&requests, &args.name, requests.enable_site(&args.name))?;
            print_change(ctx, site, "is enabled")
        }
        Some(SiteSubcommand::Ban(args)) => ban_site(ctx, args),
        Some(SiteSubcommand::Bans(args)) => list_bans(ctx, args),
        Some(SiteSubcommand::Unban(args)) => unban_site(ctx, args),
        Some(SiteSubcommand::Set(args)) => update_site(ctx, args),
    }
}

fn list_sites(ctx: &CliContext) -> Result<CliExit, CliError> {
    let sites = ctx.request_service_read()?.list_sites()?.items;
    if sites.is_empty() {
        ctx.ui
            .print_note("no sites are known; a site is added when its first worker connects: `windlass worker --site NAME`");
    }
    ctx.ui.print_list(&ListFields::new(FIELDS), sites)?;
    Ok(CliExit::Success)
}

/// Suggests a similar name for an unknown site.
fn suggest_site<T>(
    requests: &RequestService,
    name: &str,
    answer: Result<T, CliError>,
) -> Result<T, CliError> {
    answer.map_err(|error| {
        let Ok(sites) = requests.list_sites() else { return error };
        let is_there = sites.items.iter().any(|site| site.name == name);
        match windlass_spec::nearest_name(name, sites.items.iter().map(|site| site.name.as_str())) {
            Some(near) if !is_there => error.with_hint(format!("did you mean `{near}`?")),
            _ => error,
        }
    })
}

fn print_change(ctx: &CliContext, site: SiteResponse, how: &str) -> Result<CliExit, CliError> {
    ctx.ui.print_note(&format!("site {} {how}", site.name));
    if ctx.ui.wants_json() {
        ctx.ui.print_record(&ListFields::new(FIELDS), site)?;
    }
    Ok(CliExit::Success)
}

fn drain_site(ctx: &CliContext, args: &SiteDrainArgs) -> Result<CliExit, CliError> {
    let until = args.until.or_else(|| args.spell.map(|spell| ctx.clock.now().plus(spell)));
    let requests = ctx.request_service()?;
    let site =
        suggest_site(&requests, &args.site.name, requests.drain_site(&args.site.name, DrainSite { until }))?;
    let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
    print_change(ctx, site, &format!("is draining{until}: running work continues, no new work starts"))
}

fn ban_site(ctx: &CliContext, args: &SiteBanArgs) -> Result<CliExit, CliError> {
    let ban = BanSite {
        request_name: args.request.clone(),
        reason: args.reason.clone(),
        seconds: args.spell.as_secs(),
    };
    let requests = ctx.request_service()?;
    let site = suggest_site(&requests, &args.site.name, requests.ban_site(&args.site.name, &ban))?;
    let until = site.bans.last().map(|ban| ban.expires_at.to_string()).unwrap_or_default();
    let whose = args.request.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
    print_change(ctx, site, &format!("gets no new work{whose} until {until}; running work continues"))
}

const BAN_FIELDS: &[ListField<BanResponse>] = &[
    ListField::new("id", |b: &BanResponse| b.id.into()),
    ListField::new("site_name", |b: &BanResponse| (&b.site_name).into()).column(TableColumn::text("SITE")),
    ListField::new("request_name", |b: &BanResponse| b.request_name.clone().into())
        .column(TableColumn::text("REQUEST")),
    ListField::new("created_at", |b: &BanResponse| b.created_at.into()),
    ListField::new("expires_at", |b: &BanResponse| b.expires_at.into()).column(TableColumn::text("UNTIL")),
    ListField::new("created_by", |b: &BanResponse| (&b.created_by).into()).column(TableColumn::text("BY")),
    ListField::new("removed_by", |b: &BanResponse| b.removed_by.clone().into())
        .column(TableColumn::text("LIFTED BY")),
    ListField::new("removed_at", |b: &BanResponse| b.removed_at.into()),
    ListField::new("reason", |b: &BanResponse| (&b.reason).into()).column(TableColumn::flexible("REASON")),
    ListField::new("failure_data", |b: &BanResponse| b.failure_data.clone().into()),
];

fn list_bans(ctx: &CliContext, args: &SiteBansArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service_read()?;
    let found = requests.list_bans(args.site.as_deref(), args.request.as_deref(), args.all)?;
    if found.items.is_empty() {
        ctx.ui.print_note("no bans match");
    }
    ctx.ui.print_list(&ListFields::new(BAN_FIELDS), found.items)?;
    Ok(CliExit::Success)
}

fn unban_site(ctx: &CliContext, args: &SiteUnbanArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service()?;
    let name = &args.site.name;
    let lifted = suggest_site(&requests, name, requests.unban_site(name, args.request.as_deref()))?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&lifted)?;
    }
    ctx.ui.print_note(&match lifted.removed {
        0 => format!("site {name} was not banned"),
        n => format!("site {name}: {} lifted", text::render_count(n, "ban")),
    });
    Ok(CliExit::Success)
}

fn update_site(ctx: &CliContext, args: &SiteSetArgs) -> Result<CliExit, CliError> {
    let patch = PatchSite {
        status: args.status,
        total_slots: args.slots,
        storage_path: args.storage_path.clone(),
        storage_element: args.storage_element.clone(),
        ..PatchSite::default()
    };
    if patch == PatchSite::default() {
        return Err(CliError::user("no changes given")
            .with_hint("use --status, --slots, --storage-path or --storage-element"));
    }
    let site = ctx.request_service()?.patch_site(&args.site.name, &patch)?;
    print_change(ctx, site, "is updated")
}

const QUEUE_FIELDS: &[ListField<NextInQueue>] = &[
    ListField::new("request_name", |n: &NextInQueue| (&n.request_name).into())
        .column(TableColumn::flexible("REQUEST")),
    ListField::new("priority", |n: &NextInQueue| n.priority.into()).column(TableColumn::number("PRIORITY")),
    ListField::new("urgent", |n: &NextInQueue| n.urgent.into()).column(TableColumn::text("URGENT")),
    ListField::new("requestor", |n: &NextInQueue| (&n.requestor).into())
        .column(TableColumn::text("REQUESTOR")),
    ListField::new("queued_since", |n: &NextInQueue| n.queued_since.into())
        .column(TableColumn::text("SINCE")),
];

pub(crate) fn dispatch_admission(ctx: &CliContext, args: &AdmissionArgs) -> Result<CliExit, CliError> {
    match &args.verb {
        None => show_queue(ctx, 20),
        Some(AdmissionSubcommand::Show(args)) => show_queue(ctx, args.limit),
        Some(AdmissionSubcommand::Set(args)) => set_admission(ctx, args),
    }
}

fn show_queue(ctx: &CliContext, limit: u64) -> Result<CliExit, CliError> {
    let queue = ctx.request_service_read()?.admission_queue(limit)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&queue)?;
        return Ok(CliExit::Success);
    }
    let waiting = text::render_count(queue.queued_workflows, "request");
    ctx.ui.print_note(&format!(
        "{} of {} runs active; {waiting} in the queue",
        queue.active_dags, queue.max_active_dags
    ));
    ctx.ui.print_list(&ListFields::new(QUEUE_FIELDS), queue.queue)?;
    Ok(CliExit::Success)
}

fn set_admission(ctx: &CliContext, args: &AdmissionSetArgs) -> Result<CliExit, CliError> {
    let config = AdmissionConfig { max_active_dags: Some(args.max_active) };
    let config = ctx.request_service()?.set_admission(&config)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&config)?;
    }
    ctx.ui.print_note(&match args.max_active {
        0 => "no more requests are started; active ones continue".to_owned(),
        most => format!("at most {} at once from now on", text::render_count(most, "run")),
    });
    Ok(CliExit::Success)
}
